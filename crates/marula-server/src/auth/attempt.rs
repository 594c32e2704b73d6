//! A completed login attempt, for the log and the audit log.

use marula_bson::DocBuf;
use marula_error::{Error, codes};

use super::name::Name;
use crate::context::Context;
use crate::dispatch::address_text;
use crate::log::attributes;

/// A completed login attempt.
pub(crate) struct Attempt<'a> {
    /// The mechanism.
    pub(crate) mechanism: &'a str,
    /// The user that the client claims to be; the name is empty if it is not known yet.
    pub(crate) user: &'a Name,
    /// Whether it began with the client's first `hello`.
    pub(crate) is_speculative: bool,
    /// The reason for its failure, which the client does not see.
    pub(crate) cause: Option<&'a Error>,
}

impl Attempt<'_> {
    /// Writes its line, and its event if there is an audit log.
    pub(crate) fn record(&self, ctx: &Context<'_>) {
        self.log(ctx);
        if let (Some(audit), Some(actor)) = (&ctx.server.options.audit, &ctx.connection.actor) {
            // Only the log distinguishes unknown users.
            let result = self.cause.map_or(0, |cause| match cause.code() {
                codes::UserNotFound => codes::AuthenticationFailed.number(),
                code => code.number(),
            });
            audit.write(actor, "authenticate", result, |param| {
                param.append("user", self.user.name.as_str()).append("db", self.user.db.as_str());
                param.append("mechanism", self.mechanism);
            });
        }
    }

    fn log(&self, ctx: &Context<'_>) {
        let attr = attributes(|out| {
            out.append("mechanism", self.mechanism);
            out.append("speculative", self.is_speculative);
            out.append("principalName", self.user.name.as_str());
            out.append("authenticationDatabase", self.user.db.as_str());
            out.append("remote", address_text(ctx.connection.peer.remote).as_str());
            out.append("extraInfo", &DocBuf::new());
            if let Some(cause) = self.cause {
                let text = format!("{}: {}", cause.code().name(), cause.message());
                out.append("error", text.as_str());
            }
        });
        match self.cause {
            None => {
                tracing::info!(target: "ACCESS", id = 20_250, attr, "Authentication succeeded");
            }
            Some(_) => {
                tracing::info!(target: "ACCESS", id = 20_249, attr, "Authentication failed");
            }
        }
    }
}

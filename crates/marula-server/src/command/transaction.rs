//! `commitTransaction` and `abortTransaction`: the end of a multi-document transaction.
//!
//! The frame finds the transaction of the request, or fails if there is none, before these
//! functions run.

use marula_bson::DocWriter;
use marula_error::{Error, Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
use crate::concern::WriteConcern;
use crate::context::Context;
use crate::request::Request;
use crate::transactions::LastCommitted;

errors! {
    outside(name: &str) = CommandFailed, "{name} must be run within a transaction";
}

const FIELDS: &[Field] = &[Field::optional("recoveryToken", Types::DOCUMENT)
    .of(&[Field::optional("recoveryShardId", Types::STRING)])];

pub(super) static COMMIT: Command = Command {
    name: "commitTransaction",
    help: "Commits the transaction of a session: all its writes become visible at once.",
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict { place: "commitTransaction", fields: FIELDS },
    run: commit,
    ..END
};

pub(super) static ABORT: Command = Command {
    name: "abortTransaction",
    help: "Aborts the transaction of a session and discards its writes.",
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict { place: "abortTransaction", fields: FIELDS },
    run: abort,
    ..END
};

const END: Command = Command {
    place: CommandPlace::Inline,
    admin_only: true,
    takes_write_concern: true,
    in_transaction: true,
    in_api_v1: true,
    auth: Auth::User,
    ..Command::DEFAULT
};

fn commit(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let entered = ctx.entered.ok_or_else(|| outside("commitTransaction"))?;
    // A repeated commit returns success and waits for the disk, like the first one.
    if let Some(transaction) = &entered.transaction {
        if !ctx.may_wait() && transaction.is_large() {
            return Err(Error::postponed());
        }
        entered.commit(ctx.server.db.sessions(), ctx.now_ms)?;
        let (operations, bytes) = transaction.written();
        let write_concern = WriteConcern::shown(request.body.get("writeConcern"));
        let committed = LastCommitted { operations, bytes, write_concern };
        ctx.server.transactions.note_committed(committed);
        ctx.server.transactions.ended(entered, true);
    }
    Ok(Outcome::Done)
}

fn abort(ctx: &mut Context<'_>, _: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let entered = ctx.entered.ok_or_else(|| outside("abortTransaction"))?;
    let is_large = entered.transaction.as_ref().is_some_and(|transaction| transaction.is_large());
    if is_large && !ctx.may_wait() {
        return Err(Error::postponed());
    }
    ctx.server.transactions.ended(entered, false);
    Ok(Outcome::Done)
}

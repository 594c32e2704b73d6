//! `backup` and `backupStatus`: create a backup while the server runs, and report its progress.
//!
//! Shape: `{ backup: 1, to: <target>, keyFile: <path>, full: <boolean> }`; without `to`, the target
//! of the server's options. The reply follows when the backup is complete. If the client
//! disconnects, the backup is cancelled.
//! Source: Marula's own commands; mongod does not have them.

use marula_bson::{DocWriter, Value, doc_fields, long};
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Field, Fields, Outcome, Types};
use crate::auth::check::{Check, Target};
use crate::backups::{BackupFailure, BackupMade, BackupRequest, Backups};
use crate::context::Context;
use crate::request::Request;

errors! {
    /// The data is in memory, or in a store that does not support backups.
    no_backups() = CommandNotSupported, "backups are made of data in a folder, which this server has not";
    backup_refused(reason: &str) = BadValue, "{reason}";
    backup_failed(reason: &str) = OperationFailed, "the backup could not be made: {reason}";
}

pub(super) static CREATE: Command = Command {
    name: "backup",
    help: "Creates a backup in a folder or an object store while reads and writes continue, and returns when it is complete.",
    ends_with_client: true,
    admin_only: true,
    fields: Fields::Strict {
        place: "backup",
        fields: &[
            Field::optional("to", Types::STRING),
            Field::optional("keyFile", Types::STRING),
            Field::optional("full", Types::FLAG),
        ],
    },
    auth: Auth::Content(demands),
    run: create,
    ..Command::DEFAULT
};

pub(super) static STATUS: Command = Command {
    name: "backupStatus",
    help: "Returns the progress of a running backup, and the state of the backup schedule.",
    place: CommandPlace::Reserved,
    admin_only: true,
    fields: Fields::Strict { place: "backupStatus", fields: &[] },
    auth: Auth::Content(demands),
    run: status,
    ..Command::DEFAULT
};

/// Requires the privileges of MongoDB's role `backup`: a backup contains all data, users included.
fn demands(_: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs(Target::EveryDatabase, &["find"]);
    check.needs(Target::Cluster, &["appendOplogNote", "serverStatus"]);
    check.needs_on("admin", "system.users", &["find"]);
    check.needs_on("admin", "system.roles", &["find"]);
    Ok(())
}

fn create(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let text = |name: &str| request.text(name).map(|text| text.to_string());
    let wanted = BackupRequest {
        target: text("to"),
        key_file: text("keyFile"),
        is_full: request.flag("full"),
    };
    let backups = backups(ctx)?;
    let made =
        backups.create(&wanted, &|| ctx.check_interrupt()).map_err(|failure| match failure {
            BackupFailure::Ended(error) => error,
            BackupFailure::Refused(reason) => backup_refused(&reason),
            BackupFailure::Failed(reason) => backup_failed(&reason),
        })?;
    let BackupMade { id, target, moment_ms, files, bytes, sent_bytes, sent_objects } = &made;
    doc_fields!(reply;
        "id": id.as_str(),
        "to": target.as_str(),
        "moment": Value::DateTime(*moment_ms),
        "files": long(*files),
        "bytes": long(*bytes),
        "sentBytes": long(*sent_bytes),
        "sentObjects": long(*sent_objects),
    );
    Ok(Outcome::Done)
}

fn status(ctx: &mut Context<'_>, _: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    backups(ctx)?.status(reply);
    Ok(Outcome::Done)
}

fn backups<'c>(ctx: &Context<'c>) -> Result<&'c dyn Backups> {
    ctx.server.backups.get().map(|backups| &**backups).ok_or_else(no_backups)
}

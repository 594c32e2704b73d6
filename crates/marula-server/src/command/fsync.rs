//! `fsync` and `fsyncUnlock`: flush all writes to disk, and block writes while files are copied.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static LOCK: Command = Command {
    name: "fsync",
    help: "Waits until all writes are on disk; with lock: true, blocks writes until fsyncUnlock.",
    admin_only: true,
    auth: Auth::Cluster(&["fsync"]),
    run: lock,
    ..Command::DEFAULT
};

pub(super) static UNLOCK: Command = Command {
    name: "fsyncUnlock",
    help: "Releases one lock of fsync; writes continue when no lock is left.",
    place: CommandPlace::Reserved,
    admin_only: true,
    auth: Auth::Cluster(&["unlock"]),
    run: unlock,
    ..Command::DEFAULT
};

fn lock(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let server = context.server;
    let db = &server.db;
    let lock = request.flag("lock");
    tracing::info!(target: "COMMAND", id = 20_461, lock, "CMD fsync");
    if !lock {
        db.sync(db.moment())?;
        reply.append("numFiles", 1);
        return Ok(Outcome::Done);
    }
    let count = server.write_lock.lock();
    // Once this succeeds, the files of the store do not change and can be copied one by one.
    let held = db.sync(db.moment()).and_then(|()| db.hold_files());
    if let Err(error) = held {
        if server.write_lock.unlock() == Some(0) {
            db.release_files()?;
        }
        return Err(error);
    }
    tracing::info!(target: "COMMAND", id = 20_462, lockCount = count, "mongod is locked and no writes are allowed");
    reply.append("info", "now locked against writes, use db.fsyncUnlock() to unlock");
    reply.append("lockCount", count);
    reply.append("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(Outcome::Done)
}

fn unlock(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    match context.server.write_lock.unlock() {
        None => Ok(Outcome::Failed("fsyncUnlock called when not locked".to_owned())),
        Some(left) => {
            if left == 0 {
                context.server.db.release_files()?;
            }
            tracing::info!(target: "COMMAND", id = 20_466, lockCount = left, "fsyncUnlock complete");
            reply.append("info", "fsyncUnlock completed").append("lockCount", left);
            Ok(Outcome::Done)
        }
    }
}

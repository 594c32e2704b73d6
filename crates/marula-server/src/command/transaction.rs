//! `commitTransaction` and `abortTransaction`: the end of a multi-document transaction, which none
//! can begin yet.
//!
//! Inside a transaction the frame has answered before these run: no transaction of that number is
//! in progress.

use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome, Place};

errors! {
    outside(name: &str) = CommandFailed, "{name} must be run within a transaction";
}

const FIELDS: &[Field] = &[Field::optional("recoveryToken", Types::DOCUMENT)
    .of(&[Field::optional("recoveryShardId", Types::STRING)])];

pub(super) static COMMIT: Command = Command {
    name: "commitTransaction",
    help: "Makes the writes of a session's transaction visible together.",
    fields: Fields::Strict { place: "commitTransaction", fields: FIELDS },
    run: |_, _, _| refuse("commitTransaction"),
    ..END
};

pub(super) static ABORT: Command = Command {
    name: "abortTransaction",
    help: "Forgets the writes of a session's transaction.",
    fields: Fields::Strict { place: "abortTransaction", fields: FIELDS },
    run: |_, _, _| refuse("abortTransaction"),
    ..END
};

const END: Command = Command {
    place: Place::Inline,
    admin_only: true,
    takes_write_concern: true,
    in_transaction: true,
    in_api_v1: true,
    auth: Auth::User,
    ..Command::DEFAULT
};

fn refuse(name: &str) -> Result<Outcome> {
    Err(outside(name))
}

//! `replSetResizeOplog`: changes the maximum size and the minimum retention of the oplog.
//!
//! Source: manual "replSetResizeOplog"; errors recorded from mongod 6.0.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    too_small(field: &str, least: f64, value: f64) = 51_024, "BSON field '{field}' value must be >= {least}, actual value '{value}'";
    too_large(value: f64) = 51_024, "BSON field 'size' value must be <= 1.07374e+09, actual value '{value}'";
}

/// The minimum and the maximum size, in megabytes.
const SIZE_MIN: f64 = 990.0;
const SIZE_MAX: f64 = 1_073_741_824.0;

pub(super) static COMMAND: Command = Command {
    name: "replSetResizeOplog",
    help: "Changes the maximum size of the oplog in megabytes, and the hours for which entries are retained regardless of the size.",
    admin_only: true,
    fields: Fields::Known {
        place: "replSetResizeOplog",
        fields: &[
            Field::optional("size", Types::NUMBER),
            Field::optional("minRetentionHours", Types::NUMBER),
        ],
    },
    auth: Auth::Cluster(&["replSetResizeOplog"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let number = |name: &str| request.arg(name).as_ref().and_then(Value::as_f64);
    let (size, hours) = (number("size"), number("minRetentionHours"));
    match size {
        Some(size) if size < SIZE_MIN => return Err(too_small("size", SIZE_MIN, size)),
        Some(size) if size > SIZE_MAX => return Err(too_large(size)),
        _ => {}
    }
    if let Some(hours) = hours.filter(|&hours| hours < 0.0) {
        return Err(too_small("minRetentionHours", 0.0, hours));
    }
    if let Some(size) = size {
        #[allow(clippy::cast_possible_truncation)]
        ctx.server.db.resize_oplog((size * 1024.0 * 1024.0) as i64)?;
    }
    if let Some(hours) = hours {
        #[allow(clippy::cast_possible_truncation)]
        ctx.server.oplog_keeper.keep_at_least((hours * 3_600_000.0) as i64);
    }
    Ok(Outcome::Done)
}

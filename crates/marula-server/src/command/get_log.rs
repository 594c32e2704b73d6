//! `getLog`: the newest lines of the log.

use marula_bson::{ByteSlice, DocWriter, Value, doc_fields};
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Fields, Outcome, fields};
use crate::auth::args;
use crate::context::Context;
use crate::request::Request;

errors! {
    wrong_type(kind: &str) = TypeMismatch, "BSON field 'getLog.getLog' is the wrong type '{kind}', expected type 'string'";
    no_such_log(name: &str) = OperationFailed, "No log named '{name}'";
}

pub(super) static COMMAND: Command = Command {
    name: "getLog",
    help: "Returns the newest lines of the log, or the warnings of the start.",
    place: CommandPlace::Reserved,
    admin_only: true,
    fields: Fields::Strict { place: "getLog", fields: &[] },
    auth: Auth::Cluster(&["getLog"]),
    run,
    ..Command::DEFAULT
};

/// The maximum size of the returned lines, because the reply is one document. The oldest lines are
/// omitted first.
const BYTES_MAX: usize = 8 * 1024 * 1024;

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let name = match request.first.value.get() {
        Value::String(name) if name.contains(&0) => return Err(args::embedded_nul()),
        Value::String(name) => name,
        value if value.is_nullish() => return Err(fields::missing_field("getLog", "getLog")),
        other => return Err(wrong_type(other.kind().alias())),
    };
    let log = &context.server.log;
    let (lines, total) = match name.as_bytes() {
        b"*" => {
            doc_fields!(reply; "names": ["global", "startupWarnings"]);
            return Ok(Outcome::Done);
        }
        b"global" => log.lines(),
        b"startupWarnings" => {
            let lines = log.startup_warnings();
            let total = lines.len() as u64;
            (lines, total)
        }
        _ => return Err(no_such_log(&name.to_string())),
    };
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len() + 1;
        bytes <= BYTES_MAX
    };
    let newest: Vec<&String> = lines.iter().rev().take_while(fits).collect();
    reply.append("totalLinesWritten", i32::try_from(total).unwrap_or(i32::MAX));
    let mut array = reply.begin_array("log");
    for line in newest.into_iter().rev() {
        array.push(format!("{line}\n").as_str());
    }
    Ok(Outcome::Done)
}

//! The requests that a network worker executes itself.
//!
//! One decision for all commands, made on the request before it is parsed further: a request whose
//! text does not prove that it is short goes to the pool. A command's own code may still move to
//! the pool, once it knows the plan and the collection; it never runs on a worker without this
//! decision.

use marula_bson::{ByteSlice, Doc, RawValue, Type, Value};
use marula_db::Db;
use marula_query::quick::Cost;

use crate::request::Request;
use crate::row::{CommandPlace, Kind};

/// The maximum message size of a command that is always short.
const SMALL_BYTES_MAX: usize = 16 * 1024;
/// The maximum message size of other commands.
const BYTES_MAX: usize = 64 * 1024;
/// The maximum number of bytes of a document that are processed on a worker, divided by the number
/// of times the statement reads it.
const DOCUMENT_BYTES_MAX: usize = 512 * 1024;

/// Returns the size of the largest document that the request may read on a network worker; `None`
/// if it goes to the pool. Over a remote store each read waits for the network: no command that
/// reads is short.
pub(crate) fn document_bytes_max(request: &Request<'_>, db: &Db) -> Option<usize> {
    let bytes = request.message.bytes().len();
    match request.command.place {
        CommandPlace::Pool | CommandPlace::Reserved => None,
        CommandPlace::Inline if reads_users(request) && db.engine().is_remote => None,
        CommandPlace::Inline => (bytes <= SMALL_BYTES_MAX).then_some(DOCUMENT_BYTES_MAX),
        CommandPlace::Decides if bytes <= BYTES_MAX && !db.engine().is_remote => {
            let cost = cost(request)?;
            Some(DOCUMENT_BYTES_MAX / cost.conditions())
        }
        CommandPlace::Decides => None,
    }
}

/// Returns whether a request that is otherwise short looks up a user.
fn reads_users(request: &Request<'_>) -> bool {
    match request.command.name {
        "saslStart" | "saslContinue" | "authenticate" => true,
        "hello" | "isMaster" => {
            request.arg("saslSupportedMechs").is_some()
                || request.arg("speculativeAuthenticate").is_some()
        }
        _ => false,
    }
}

/// Returns whether the text of a request is quick, whatever its command.
pub(crate) fn is_quick(request: &Request<'_>) -> bool {
    request.message.bytes().len() <= BYTES_MAX && cost(request).is_some()
}

/// Returns the cost of the request for each document; `None` if it is not bounded.
fn cost(request: &Request<'_>) -> Option<Cost> {
    let mut cost = Cost::default();
    // Inserted documents are data.
    let is_insert = request.command.kind == Kind::Insert;
    let is_quick = request.args.iter().all(|arg| match arg.name.as_bytes() {
        b"documents" if is_insert => true,
        b"updates" | b"deletes" => match arg.value.get() {
            Value::Array(statements) => {
                let mut all = statements.values();
                all.all(|statement| add_statement(&mut cost, statement))
            }
            _ => true,
        },
        name => add_field(&mut cost, name, arg.value),
    });
    let mut sequences = request.message.sequences().filter(|_| !is_insert);
    let is_quick = is_quick
        && sequences.all(|mut sequence| {
            sequence.docs.all(|statement| add_statement(&mut cost, Value::Document(statement)))
        });
    is_quick.then_some(cost)
}

fn add_statement(cost: &mut Cost, statement: Value<'_>) -> bool {
    let Value::Document(statement) = statement else { return true };
    statement.iter().all(|field| add_field(cost, field.name, field.value))
}

/// Adds the cost of a field of a command or of a statement.
fn add_field(cost: &mut Cost, name: &[u8], value: RawValue<'_>) -> bool {
    // Other types cost nothing beyond their size.
    if !matches!(value.kind(), Type::Document | Type::Array) {
        return true;
    }
    match (name, value.get()) {
        (b"projection" | b"fields", value) => cost.add_projection(value),
        (b"u" | b"update", value) => cost.add_update(value),
        // Variables are for expressions, which are not quick.
        (b"let" | b"c", Value::Document(variables)) => variables == Doc::EMPTY,
        (_, value) => cost.add_filter(value),
    }
}

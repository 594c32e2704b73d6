//! Which requests a network worker carries out itself.
//!
//! One judgement for all commands, made on the request before anything of it is parsed further:
//! what is not known to be short by its text goes to the pool. A command's own code may still say
//! that it is not short, once it knows the plan and the collection; it can never run here what was
//! not let through here.

use marula_bson::{ByteSlice, Doc, RawValue, Type, Value};
use marula_db::Db;
use marula_query::quick::Cost;

use crate::request::Request;
use crate::row::{Kind, Place};

/// The longest message of a command that is short by its nature.
const SMALL_BYTES_MAX: usize = 16 * 1024;
/// The longest message of any other.
const BYTES_MAX: usize = 64 * 1024;
/// How many bytes of a document are looked through here, each time that the statement looks through
/// it.
const DOCUMENT_BYTES_MAX: usize = 512 * 1024;

/// The largest document that the request may look at on a network worker; `None` where it is for
/// the pool. Over a remote store each read waits for the network: no command that reads is short.
pub(crate) fn document_bytes_max(request: &Request<'_>, db: &Db) -> Option<usize> {
    let bytes = request.message.bytes().len();
    match request.command.place {
        Place::Pool | Place::Reserved => None,
        Place::Inline if reads_users(request) && db.engine().is_remote => None,
        Place::Inline => (bytes <= SMALL_BYTES_MAX).then_some(DOCUMENT_BYTES_MAX),
        Place::Decides if bytes <= BYTES_MAX && !db.engine().is_remote => {
            let cost = cost(request)?;
            Some(DOCUMENT_BYTES_MAX / cost.conditions())
        }
        Place::Decides => None,
    }
}

/// Whether a request of those that are short by their nature looks up a user.
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

/// Whether what the request says takes little time, whatever its command does.
pub(crate) fn is_quick(request: &Request<'_>) -> bool {
    request.message.bytes().len() <= BYTES_MAX && cost(request).is_some()
}

/// What the request costs with each document; `None` where that is not bounded.
fn cost(request: &Request<'_>) -> Option<Cost> {
    let mut cost = Cost::default();
    // What is inserted is data.
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

/// Adds a field of a command or of a statement.
fn add_field(cost: &mut Cost, name: &[u8], value: RawValue<'_>) -> bool {
    // The others are as long as they are.
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

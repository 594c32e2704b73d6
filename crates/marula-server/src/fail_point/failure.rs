//! The effect of fail points on one request.

use std::time::Duration;

use marula_bson::{Doc, DocBuf, Value};
use marula_error::codes::Code;
use marula_error::{Error, errors};

use super::{FAIL_COMMAND, FailPoints, RETRYABLE_WRITE, TIME_OUT};
use crate::connection::Connection;
use crate::request::Request;

errors! {
    /// An operation has a time limit while `maxTimeAlwaysTimeOut` is active.
    pub(crate) out_of_time() = MaxTimeMSExpired, "operation exceeded time limit";
    no_block_time() = InvalidOptions, "must specify 'blockTimeMS' when 'blockConnection' is true";
    block_time_negative() = InvalidOptions, "'blockTimeMS' must be non-negative";
}

/// The command that no fail point affects.
const CONFIGURE: &str = "configureFailPoint";
/// The maximum delay by `blockTimeMS`: a test with more waits no longer.
const BLOCK_MAX: Duration = Duration::from_secs(600);

/// The failure of a request.
#[derive(Default, Debug)]
pub(crate) struct Failure {
    /// The delay before anything else.
    pub(crate) delay: Option<Duration>,
    /// The end that replaces its own.
    pub(crate) ending: Option<Ending>,
    /// The labels that replace those of the error.
    pub(crate) labels: Option<Vec<String>>,
    /// The `writeConcernError` of its reply.
    pub(crate) write_concern_error: Option<DocBuf>,
}

/// The end of a request that a fail point causes.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The connection is closed without executing the request.
    Close,
    /// This error is the reply; the request is not executed.
    Error(Error),
}

impl Failure {
    /// Returns the failure of a new request, if there is one.
    pub(crate) fn of(
        points: &FailPoints,
        connection: &Connection,
        request: &Request<'_>,
    ) -> Option<Box<Failure>> {
        if request.command.name == CONFIGURE {
            return None;
        }
        let by_name =
            points.enter(FAIL_COMMAND, |data| Failure::by_name(data, connection, request));
        if let Some(failure) = by_name {
            return Some(Box::new(failure));
        }
        if request.max_time.is_some() && points.enter(TIME_OUT, |_| Some(())).is_some() {
            return Some(Box::new(Failure::ending(Ending::Error(out_of_time()))));
        }
        let enter =
            |data: Doc<'_>| (closes(data) && data.get(BEFORE_COMMIT).is_some()).then_some(());
        let closes_before =
            is_numbered_write(request) && points.enter(RETRYABLE_WRITE, enter).is_some();
        closes_before.then(|| Box::new(Failure::ending(Ending::Close)))
    }

    fn ending(ending: Ending) -> Self {
        Failure { ending: Some(ending), ..Failure::default() }
    }

    /// Returns the failure of a request by `failCommand`.
    ///
    /// Shape of its data: `{ failCommands: [<name>], errorCode: <code>, errorLabels: [<label>],
    /// closeConnection: <bool>, blockConnection: <bool>, blockTimeMS: <ms>, writeConcernError: {},
    /// appName: <name>, namespace: <ns> }`. Fields of another type are ignored.
    fn by_name(data: Doc<'_>, connection: &Connection, request: &Request<'_>) -> Option<Failure> {
        if !names(data, request) || !is_client(data, connection) || !is_on(data, request) {
            return None;
        }
        let closes = data.get("closeConnection") == Some(Value::Boolean(true));
        let code = data.get("errorCode").and_then(|code| code.as_exact_i64());
        let code = code.and_then(|code| i32::try_from(code).ok());
        let blocks = data.get("blockConnection") == Some(Value::Boolean(true));
        let concern_error =
            data.get("writeConcernError").filter(|_| request.command.takes_write_concern);
        if !closes && code.is_none() && !blocks && concern_error.is_none() {
            return None;
        }
        let mut failure = Failure::default();
        if blocks {
            match block_time(data) {
                Ok(delay) => failure.delay = Some(delay),
                Err(error) => return Some(Failure::ending(Ending::Error(error))),
            }
        }
        failure.labels = data.get("errorLabels").and_then(labels_of);
        failure.write_concern_error =
            concern_error.and_then(|error| error.as_doc()).map(|error| error.to_buf());
        failure.ending = match code {
            _ if closes => Some(Ending::Close),
            None | Some(0) => None,
            Some(code) => {
                let message = "Failing command via 'failCommand' failpoint";
                Some(Ending::Error(Error::new(Code::from_number(code), message)))
            }
        };
        Some(failure)
    }

    /// Returns whether `onPrimaryTransactionalWrite` closes the connection after a request: a
    /// retryable write, or a commit.
    pub(crate) fn closes_after(points: &FailPoints, request: &Request<'_>) -> bool {
        let enter =
            |data: Doc<'_>| (closes(data) && data.get(BEFORE_COMMIT).is_none()).then_some(());
        is_numbered_write(request) && points.enter(RETRYABLE_WRITE, enter).is_some()
    }
}

/// The field with which `onPrimaryTransactionalWrite` prevents a write.
const BEFORE_COMMIT: &str = "failBeforeCommitExceptionCode";

fn closes(data: Doc<'_>) -> bool {
    data.get("closeConnection") != Some(Value::Boolean(false))
}

fn is_numbered_write(request: &Request<'_>) -> bool {
    let is_retryable = request.command.is_retryable_write
        && request.txn_number.is_some()
        && request.transaction.is_none();
    is_retryable || request.command.name == "commitTransaction"
}

/// Returns whether the data names the request's command.
fn names(data: Doc<'_>, request: &Request<'_>) -> bool {
    let Some(Value::Array(commands)) = data.get("failCommands") else { return false };
    let command = request.command;
    commands.values().any(|name| {
        [command.name].iter().chain(command.aliases).any(|own| name == Value::String((*own).into()))
    })
}

/// Returns whether the data matches the client of this connection.
fn is_client(data: Doc<'_>, connection: &Connection) -> bool {
    let application = || {
        let metadata = connection.metadata.as_ref()?.as_doc();
        metadata.get("application")?.as_doc()?.get("name").map(|name| name.to_buf())
    };
    let is_named = match data.get("appName") {
        None => true,
        Some(wanted) => application().is_some_and(|name| name.get() == wanted),
    };
    // The server's threads have no names that a test could use.
    is_named && data.get("threadName").is_none()
}

/// Returns whether the data matches the request's collection.
fn is_on(data: Doc<'_>, request: &Request<'_>) -> bool {
    match data.get("namespace") {
        None => true,
        Some(wanted) => wanted == Value::String(request.shown_namespace().as_str().into()),
    }
}

fn block_time(data: Doc<'_>) -> marula_error::Result<Duration> {
    let ms = data.get("blockTimeMS").and_then(|ms| ms.as_exact_i64()).ok_or_else(no_block_time)?;
    let ms = u64::try_from(ms).map_err(|_| block_time_negative())?;
    Ok(Duration::from_millis(ms).min(BLOCK_MAX))
}

fn labels_of(labels: Value<'_>) -> Option<Vec<String>> {
    let labels = labels.as_array()?;
    let text = |label: Value<'_>| label.as_str().map(|label| label.to_string());
    Some(labels.values().filter_map(text).collect())
}

//! A call of the service: a panic inside it ends the call, not the process.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::Instant;

use marula_error::errors;
use marula_wire::{Message, ReplyBuffer};

use super::service::{Arm, Call, Lane, Order, Service, Step};

errors! {
    /// A bug in the server; the log has details.
    panicked() = InternalError, "the operation failed inside the server; its log says where";
    /// More requests wait for a thread than the limit: nothing has been done, and the client may
    /// retry later.
    too_many_queued() = IngressRequestRateLimitExceeded, "Request rejected: too many requests wait to be served. Throttling the workload is recommended.";
    /// A command claimed to have replied and had not.
    no_reply_written() = InternalError, "the operation ended without a reply";
}

thread_local! {
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
    static TRACE: RefCell<Option<Backtrace>> = const { RefCell::new(None) };
}

/// The result of a call; replies are complete.
pub(super) enum Verdict {
    /// The reply, if the request wants one, is in the buffer.
    Done,
    /// Like `Done`, but it is sent when woken.
    Hold(Arm),
    Retry(Arm, Instant, Lane),
    /// The reply is in the buffer, and another one follows.
    Stream(Lane),
    ToPool(Order),
    /// Like `Done`, and the connection closes.
    Close,
}

/// Stores the backtrace of a panic inside a call for its log line; other panics are reported as
/// usual.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IN_CALL.get() {
                TRACE.set(Some(Backtrace::force_capture()));
            } else {
                previous(info);
            }
        }));
    });
}

/// Calls the service and completes its reply in `reply`; returns the verdict and the reply's
/// uncompressed size.
pub(super) fn call<S: Service>(
    service: &S,
    connection: &mut S::Connection,
    message: &Message<'_>,
    call: &Call,
    reply: &mut ReplyBuffer,
) -> (Verdict, usize) {
    reply.begin(message.reply_to());
    let step = protect("call", || service.call(connection, message, call, reply));
    let step = step.unwrap_or_else(|| {
        reply.error(&panicked());
        Step::Reply
    });
    let silent = message.more_to_come();
    match step {
        Step::ToPool(order) => {
            reply.abandon();
            (Verdict::ToPool(order), 0)
        }
        Step::Retry(arm, deadline, lane) => {
            reply.abandon();
            (Verdict::Retry(arm, deadline, lane), 0)
        }
        Step::NoReply => {
            reply.abandon();
            (Verdict::Done, 0)
        }
        // A reply that the client does not want is not held.
        Step::Reply | Step::Hold(_) | Step::Stream(_) if silent => {
            reply.abandon();
            (Verdict::Done, 0)
        }
        Step::Close if silent || !reply.is_written() => {
            reply.abandon();
            (Verdict::Close, 0)
        }
        Step::Close => (Verdict::Close, finish(reply, false)),
        Step::Hold(arm) => (Verdict::Hold(arm), finish(reply, false)),
        Step::Stream(lane) if message.exhaust_allowed() => {
            (Verdict::Stream(lane), finish(reply, true))
        }
        Step::Reply | Step::Stream(_) => (Verdict::Done, finish(reply, false)),
    }
}

/// Rejects a request that asked for a pool thread if too many wait for one: the service gives it
/// up, and the client gets an error. Returns the reply's uncompressed size; zero if no reply is
/// wanted.
///
/// Source: MongoDB's driver specification "Client Backpressure", for the labels.
pub(super) fn refuse_overload<S: Service>(
    service: &S,
    connection: &mut S::Connection,
    message: &Message<'_>,
    reply: &mut ReplyBuffer,
) -> usize {
    protect("give up", || service.give_up(connection));
    if message.more_to_come() {
        return 0;
    }
    reply.begin(message.reply_to());
    let error = too_many_queued().with_label("SystemOverloadedError").with_label("RetryableError");
    reply.error(&error);
    reply.finish(false)
}

fn finish(reply: &mut ReplyBuffer, more_to_come: bool) -> usize {
    if !reply.is_written() {
        tracing::error!("a command replied without a document");
        reply.error(&no_reply_written());
    }
    reply.finish(more_to_come)
}

/// Runs code of the service; `None` after a panic, which is logged with `what`.
pub(super) fn protect<T>(what: &str, run: impl FnOnce() -> T) -> Option<T> {
    IN_CALL.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    IN_CALL.set(false);
    result.map_err(|panic| log(what, &*panic)).ok()
}

fn log(what: &str, panic: &(dyn Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let backtrace = TRACE.take().map(|trace| trace.to_string()).unwrap_or_default();
    tracing::error!(what, panic = text, backtrace, "the service panicked");
}

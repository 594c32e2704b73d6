//! The report of an open transaction in `currentOp`.
//!
//! Source: manual "currentOp"; fields recorded from mongod 6.0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, DocWriter, Value, long};

use crate::concern::ReadConcern;
use crate::operation::Operation;
use crate::session::Lsid;

/// The time since a transaction started, and the part of it in which requests ran.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) began: Instant,
    pub(super) began_ms: i64,
    active: Duration,
    running_since: Option<Instant>,
}

impl Clock {
    /// Returns the clock of a transaction whose first request starts.
    pub(super) fn start(now_ms: i64) -> Self {
        let began = Instant::now();
        Clock { began, began_ms: now_ms, active: Duration::ZERO, running_since: Some(began) }
    }

    /// Records the start of a request.
    pub(super) fn run(&mut self) {
        self.running_since = Some(Instant::now());
    }

    /// Records its end.
    pub(super) fn rest(&mut self) {
        self.active += self.running_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Returns the time in which requests have run.
    pub(super) fn active(&self) -> Duration {
        self.active + self.running_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// A snapshot of an open transaction.
pub struct OpenTransaction {
    /// Its session.
    pub lsid: Lsid,
    /// The connection of its newest request.
    pub operation: Arc<Operation>,
    /// Whether one of its requests runs.
    pub is_running: bool,
    pub(super) number: i64,
    pub(super) read_concern: ReadConcern,
    pub(super) read_time: u64,
    pub(super) clock: Clock,
    pub(super) lifetime: Duration,
}

impl OpenTransaction {
    /// Writes the section `transaction` of an operation.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        let micros = |time: Duration| long(time.as_micros());
        let (open, active) = (self.clock.began.elapsed(), self.clock.active());
        let lifetime_ms = long(self.lifetime.as_millis());
        let expires_ms = self.clock.began_ms.saturating_add(lifetime_ms);
        write_parameters(self.number, &self.read_concern, &mut out.begin_doc("parameters"));
        out.append("readTimestamp", Value::Timestamp(self.read_time));
        out.append("startWallClockTime", date_text(self.clock.began_ms).as_str());
        out.append("timeOpenMicros", micros(open));
        out.append("timeActiveMicros", micros(active));
        out.append("timeInactiveMicros", micros(open).saturating_sub(micros(active)));
        out.append("expiryTime", date_text(expires_ms).as_str());
    }
}

/// Writes the parameters of a transaction.
pub(super) fn write_parameters(number: i64, concern: &ReadConcern, out: &mut DocWriter<'_>) {
    out.append("txnNumber", number);
    out.append("txnRetryCounter", 0);
    out.append("autocommit", false);
    concern.write(&mut out.begin_doc("readConcern"));
}

/// Returns a time as `currentOp` prints it.
pub(crate) fn date_text(ms: i64) -> String {
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string()
}

/// The last committed transaction, for `serverStatus`.
#[derive(Clone, Default)]
pub struct LastCommitted {
    /// The number of its changes of documents.
    pub operations: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The write concern of its commit.
    pub write_concern: DocBuf,
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments_are_printed_as_mongod_prints_them() {
        assert_eq!(super::date_text(1_700_000_000_123), "2023-11-14T22:13:20.123+00:00");
    }
}

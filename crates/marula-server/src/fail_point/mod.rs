//! Fail points: named places at which a test server fails, as drivers' tests request.
//!
//! They exist only on a server that was started with the parameter `enableTestCommands`.
//! `configureFailPoint` sets one; [`Failure`] is the effect of `failCommand` and similar fail
//! points on a request, which the frame applies.
//!
//! Source: manual "configureFailPoint"; driver specifications "Transactions" (fail points) and
//! "Unified test format"; numbers and errors recorded from mongod 6.0.

mod failure;
mod reply;

use std::sync::atomic::{AtomicBool, Ordering};

use marula_bson::{Doc, DocBuf, Value, doc};
use marula_error::{Result, errors};
use parking_lot::Mutex;

pub(crate) use failure::{Ending, Failure, out_of_time};

errors! {
    no_mode() = IllegalOperation, "When setting a failpoint, you must supply a 'mode'";
    mode_type() = TypeMismatch, "'mode' must be a string or JSON object";
    unknown_mode(name: &str) = BadValue, "unknown mode: {name}";
    not_a_mode() = BadValue, "'mode' must be one of 'off', 'alwaysOn', '{{times:n}}', '{{skip:n}}' or '{{activationProbability:p}}'";
    count_type(name: &str, kind: &str) = TypeMismatch, "Expected field \"{name}\" to have numeric type, but found {kind}";
    count_not_whole(name: &str, value: &Value<'_>) = BadValue, "Expected field \"{name}\" to have a value exactly representable as a 64-bit integer, but found {name}: {value}";
    count_negative(name: &str) = BadValue, "'{name}' option to 'mode' must be positive";
    count_too_large(name: &str) = BadValue, "'{name}' option to 'mode' is too large";
    probability_type() = TypeMismatch, "the 'activationProbability' option to 'mode' must be a double between 0 and 1";
    probability_range(value: f64) = BadValue, "activationProbability must be between 0.0 and 1.0; found {value}";
    data_type() = TypeMismatch, "the 'data' option must be a JSON object";
}

/// The parameter that enables fail points.
pub(crate) const PARAMETER: &str = "enableTestCommands";

/// Fails commands by name.
pub(crate) const FAIL_COMMAND: &str = "failCommand";
/// Fails a `getMore` once it has its cursor.
pub(crate) const FAIL_GET_MORE: &str = "failGetMoreAfterCursorCheckout";
/// Makes every operation with `maxTimeMS` time out.
pub(crate) const TIME_OUT: &str = "maxTimeAlwaysTimeOut";
/// Closes the connection of a retryable write.
pub(crate) const RETRYABLE_WRITE: &str = "onPrimaryTransactionalWrite";

const NAMES: [&str; 4] = [FAIL_COMMAND, FAIL_GET_MORE, TIME_OUT, RETRYABLE_WRITE];

/// All fail points.
#[derive(Default)]
pub struct FailPoints {
    are_enabled: AtomicBool,
    points: [FailPoint; NAMES.len()],
}

/// One fail point.
#[derive(Default)]
pub(crate) struct FailPoint(Mutex<State>);

#[derive(Default)]
struct State {
    mode: Mode,
    data: DocBuf,
    times_entered: i64,
}

/// The condition under which a fail point is active.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) enum Mode {
    /// Never.
    #[default]
    Off,
    /// Always.
    AlwaysOn,
    /// With this probability.
    Random(f64),
    /// This number of times.
    Times(u32),
    /// Always, except for this number of first times.
    Skip(u32),
}

impl FailPoints {
    /// Returns whether this is a test server.
    pub fn are_enabled(&self) -> bool {
        self.are_enabled.load(Ordering::Relaxed)
    }

    /// Sets whether this is a test server.
    pub fn set_enabled(&self, are_enabled: bool) {
        self.are_enabled.store(are_enabled, Ordering::Relaxed);
    }

    /// Returns the fail point with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&FailPoint> {
        let at = NAMES.iter().position(|known| *known == name)?;
        self.are_enabled().then(|| &self.points[at])
    }

    /// Enters a fail point, if it is active and `concerns` returns a result for its data.
    pub(crate) fn enter<T>(
        &self,
        name: &str,
        concerns: impl FnOnce(Doc<'_>) -> Option<T>,
    ) -> Option<T> {
        self.find(name)?.enter(concerns)
    }
}

impl FailPoint {
    /// Sets mode and data; returns the number of times it was entered so far.
    pub(crate) fn set(&self, mode: Mode, data: DocBuf) -> i64 {
        let mut state = self.0.lock();
        state.mode = mode;
        state.data = data;
        state.times_entered
    }

    fn enter<T>(&self, concerns: impl FnOnce(Doc<'_>) -> Option<T>) -> Option<T> {
        let mut state = self.0.lock();
        if matches!(state.mode, Mode::Off | Mode::Times(0)) {
            return None;
        }
        let found = concerns(state.data.as_doc())?;
        match &mut state.mode {
            Mode::Skip(left) if *left > 0 => {
                *left -= 1;
                return None;
            }
            Mode::Random(probability) if rand::random::<f64>() >= *probability => return None,
            Mode::Times(left) => *left -= 1,
            Mode::Off | Mode::AlwaysOn | Mode::Random(_) | Mode::Skip(_) => {}
        }
        state.times_entered += 1;
        Some(found)
    }

    /// Returns its form in `getParameter`.
    pub(crate) fn shown(&self) -> DocBuf {
        let state = self.0.lock();
        let mode = match state.mode {
            Mode::Off => 0,
            Mode::AlwaysOn => 1,
            Mode::Random(_) => 2,
            Mode::Times(_) => 3,
            Mode::Skip(_) => 4,
        };
        doc! { "mode": mode, "data": state.data.as_doc(), "timesEntered": state.times_entered }
    }
}

impl Mode {
    /// Parses the mode of `configureFailPoint`.
    ///
    /// Shape: `"off"`, `"alwaysOn"`, `{ times: <n> }`, `{ skip: <n> }` or
    /// `{ activationProbability: <p> }`.
    /// Errors: anything else.
    pub(crate) fn parse(value: Option<Value<'_>>) -> Result<Mode> {
        let mode = match value {
            None => return Err(no_mode()),
            Some(Value::String(name)) if name == "off" => return Ok(Mode::Off),
            Some(Value::String(name)) if name == "alwaysOn" => return Ok(Mode::AlwaysOn),
            Some(Value::String(name)) => return Err(unknown_mode(&name.to_string())),
            Some(Value::Document(mode)) => mode,
            Some(_) => return Err(mode_type()),
        };
        if let Some(times) = mode.get("times") {
            return count("times", times).map(Mode::Times);
        }
        if let Some(skip) = mode.get("skip") {
            return count("skip", skip).map(Mode::Skip);
        }
        let probability = mode.get("activationProbability").ok_or_else(not_a_mode)?;
        let probability = probability.as_f64().ok_or_else(probability_type)?;
        match (0.0..=1.0).contains(&probability) {
            true => Ok(Mode::Random(probability)),
            false => Err(probability_range(probability)),
        }
    }
}

/// Parses the number of times that a fail point is entered, or skipped.
fn count(name: &str, value: Value<'_>) -> Result<u32> {
    if value.as_f64().is_none() {
        return Err(count_type(name, value.kind().alias()));
    }
    let whole = value.as_exact_i64().ok_or_else(|| count_not_whole(name, &value))?;
    match whole {
        negative if negative < 0 => Err(count_negative(name)),
        whole if whole > i64::from(i32::MAX) => Err(count_too_large(name)),
        whole => Ok(u32::try_from(whole).expect("it is within 32 bits")),
    }
}

/// Parses the data of `configureFailPoint`.
///
/// Errors: it is not a document.
pub(crate) fn data_of(value: Option<Value<'_>>) -> Result<DocBuf> {
    match value {
        None => Ok(DocBuf::new()),
        Some(Value::Document(data) | Value::Array(data)) => Ok(data.to_buf()),
        Some(_) => Err(data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(mode: Mode, calls: usize) -> Vec<bool> {
        let point = FailPoint::default();
        point.set(mode, DocBuf::new());
        (0..calls).map(|_| point.enter(|_| Some(())).is_some()).collect()
    }

    #[test]
    fn modes_say_which_calls_enter() {
        assert_eq!(entered(Mode::Off, 2), [false, false]);
        assert_eq!(entered(Mode::AlwaysOn, 2), [true, true]);
        assert_eq!(entered(Mode::Times(2), 3), [true, true, false]);
        assert_eq!(entered(Mode::Times(0), 1), [false]);
        assert_eq!(entered(Mode::Skip(1), 3), [false, true, true]);
        assert_eq!(entered(Mode::Random(1.0), 2), [true, true]);
        assert_eq!(entered(Mode::Random(0.0), 2), [false, false]);
    }

    #[test]
    fn calls_that_it_does_not_concern_do_not_count() {
        let point = FailPoint::default();
        point.set(Mode::Times(1), DocBuf::new());
        assert_eq!(point.enter(|_| None::<()>), None);
        assert_eq!(point.enter(|_| Some(7)), Some(7));
        assert_eq!(point.set(Mode::Off, DocBuf::new()), 1);
    }

    #[test]
    fn a_server_that_is_not_for_tests_has_none() {
        let points = FailPoints::default();
        assert!(points.find(FAIL_COMMAND).is_none());
        points.set_enabled(true);
        assert!(points.find(FAIL_COMMAND).is_some());
        assert!(points.find("nope").is_none());
    }
}

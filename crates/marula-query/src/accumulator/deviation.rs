//! `$stdDevPop` and `$stdDevSamp`, by Welford's method: one pass, no cancellation.

use marula_bson::Value;
use marula_error::Result;

use super::{AccumulatorRow, State, parse_unary};
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$stdDevPop",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(DeviationState { sample: false, so_far: Deviation::default() }),
    },
    AccumulatorRow {
        name: "$stdDevSamp",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(DeviationState { sample: true, so_far: Deviation::default() }),
    },
];

/// Mean and sum of squared differences so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Deviation {
    count: i64,
    mean: f64,
    squares: f64,
}

impl Deviation {
    /// Adds a value; ignores values that are not numbers.
    pub(crate) fn add(&mut self, value: Value<'_>) {
        let Some(number) = value.as_f64() else {
            return;
        };
        self.count += 1;
        let delta = number - self.mean;
        if delta != 0.0 {
            #[allow(clippy::cast_precision_loss)]
            let count = self.count as f64;
            self.mean += delta / count;
            self.squares += delta * (number - self.mean);
        }
    }

    /// The deviation; null if there are too few numbers.
    pub(crate) fn value(&self, sample: bool) -> Value<'static> {
        let divisor = if sample { self.count - 1 } else { self.count };
        if divisor <= 0 {
            return Value::Null;
        }
        #[allow(clippy::cast_precision_loss)]
        let divisor = divisor as f64;
        (self.squares / divisor).sqrt().into()
    }
}

struct DeviationState {
    sample: bool,
    so_far: Deviation,
}

impl State for DeviationState {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        if let Some(value) = value {
            self.so_far.add(value);
        }
        Ok(0)
    }

    fn result<'a>(&self, _: &'a Arena) -> Result<Value<'a>> {
        Ok(self.so_far.value(self.sample))
    }
}

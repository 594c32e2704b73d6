//! `$min` and `$max`.

use marula_bson::{Value, ValueBuf, order};
use marula_error::Result;

use super::{AccumulatorRow, State, parse_unary};
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$max",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(Extreme { greatest: true, best: None }),
    },
    AccumulatorRow {
        name: "$min",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(Extreme { greatest: false, best: None }),
    },
];

struct Extreme {
    greatest: bool,
    best: Option<ValueBuf>,
}

impl State for Extreme {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        let Some(value) = value.filter(|value| !value.is_nullish()) else {
            return Ok(0);
        };
        let Some(best) = &mut self.best else {
            let best = value.to_buf();
            let size = best.as_raw().bytes().len();
            self.best = Some(best);
            return Ok(size);
        };
        let order = order::compare(value, best.get(), frame.context.collator());
        if if self.greatest { order.is_gt() } else { order.is_lt() } {
            *best = value.to_buf();
        }
        Ok(0)
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        self.best.as_ref().map_or(Ok(Value::Null), |best| arena.keep(best.get()))
    }
}

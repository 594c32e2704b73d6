//! `$first` and `$last`.

use marula_bson::{RawValue, Type, Value, ValueBuf};
use marula_error::Result;

use super::{AccumulatorRow, State, parse_unary};
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$first",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(First(None)),
    },
    AccumulatorRow {
        name: "$last",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(Last(None)),
    },
];

struct First(Option<ValueBuf>);

impl State for First {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        if self.0.is_some() {
            return Ok(0);
        }
        let value = value.unwrap_or(Value::Null).to_buf();
        let size = value.as_raw().bytes().len();
        self.0 = Some(value);
        Ok(size)
    }

    fn add_raw<'a>(&mut self, value: Option<RawValue<'a>>, frame: &Frame<'a>) -> Result<usize> {
        // Most documents' values are not decoded.
        if self.0.is_some() { Ok(0) } else { self.add(value.map(RawValue::get), frame) }
    }

    fn is_full(&self) -> bool {
        self.0.is_some()
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        self.0.as_ref().map_or(Ok(Value::Null), |value| arena.keep(value.get()))
    }
}

/// The value of a missing field.
const NULL: RawValue<'static> = RawValue::new(Type::Null, &[]);

struct Last(Option<ValueBuf>);

impl State for Last {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        self.0 = Some(value.unwrap_or(Value::Null).to_buf());
        Ok(0)
    }

    fn add_raw<'a>(&mut self, value: Option<RawValue<'a>>, _: &Frame<'a>) -> Result<usize> {
        let value = value.unwrap_or(NULL);
        match &mut self.0 {
            Some(last) => last.set(value),
            none => *none = Some(value.to_buf()),
        }
        Ok(0)
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        self.0.as_ref().map_or(Ok(Value::Null), |value| arena.keep(value.get()))
    }
}

//! `$limit`: ends after a number of documents.

use std::sync::Arc;

use marula_bson::{Doc, Type, Value, ValueBuf, long};
use marula_error::{Result, errors};

use super::needs::{Gives, Needs};
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::expression::print;
use crate::feature_version::FeatureVersion;
use crate::known::Known;

pub(super) const ROW: StageRow =
    StageRow { name: "$limit", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    invalid(why: &str, text: &str) = 5107201, "invalid argument to $limit stage: {why} $limit: {text}";
    not_positive() = 15958, "the limit must be positive";
}

/// A parsed `$limit`.
#[derive(Debug)]
pub(super) struct Limit(pub(super) u64);

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match read_count(value) {
        Ok(0) => Err(not_positive()),
        Ok(count) => {
            parser.push(Limit(count));
            Ok(())
        }
        Err(why) => Err(invalid(why, &print::element(value))),
    }
}

/// Returns the count that a stage is given, or the reason why it is invalid.
pub(super) fn read_count(value: Value<'_>) -> Result<u64, &'static str> {
    if !value.kind().is_number() {
        return Err("Expected a number in:");
    }
    let Some(count) = value.as_exact_i64() else {
        let number = value.as_f64().filter(|_| value.kind() == Type::Double);
        return Err(match number {
            Some(number) if number.is_nan() => "Expected an integer, but found NaN in:",
            Some(number) if number.abs() < 9.2e18 => "Expected an integer:",
            // Doubles beyond the range of longs, and all invalid decimals.
            _ => "Cannot represent as a 64-bit integer:",
        });
    };
    u64::try_from(count).map_err(|_| "Expected a non-negative number in:")
}

impl Stage for Limit {
    fn name(&self) -> &'static str {
        "$limit"
    }

    fn print(&self) -> ValueBuf {
        Value::Int64(long(self.0)).to_buf()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Limit(self.0)
    }

    fn reads(&self, _: &mut Needs) -> Gives {
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Limited { input, left: self.0 }))
    }
}

struct Limited {
    input: Box<dyn Source>,
    left: u64,
}

impl Source for Limited {
    fn pull(&mut self) -> Result<Step> {
        if self.left == 0 {
            return Ok(Step::End);
        }
        let step = self.input.advance()?;
        if step == Step::Document {
            self.left -= 1;
        }
        Ok(step)
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

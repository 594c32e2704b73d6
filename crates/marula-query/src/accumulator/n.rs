//! `$firstN`, `$lastN`, `$minN`, `$maxN`: a bounded number of values per group.

use std::collections::VecDeque;

use marula_bson::{Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::{Accumulator, Row, Settings, State, Ties};
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;

pub(super) static ROWS: &[Row] = &[
    Row {
        name: "$firstN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::First, value, scope),
        start: nothing,
    },
    Row {
        name: "$lastN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::Last, value, scope),
        start: nothing,
    },
    Row {
        name: "$maxN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::Greatest, value, scope),
        start: nothing,
    },
    Row {
        name: "$minN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::Least, value, scope),
        start: nothing,
    },
];

errors! {
    first_last_not_object(name: &str, text: &str) = 5787801, "specification must be an object; found {name}: {text}";
    min_max_not_object(name: &str, text: &str) = 5787900, "specification must be an object; found {name}: {text}";
    unknown_argument(argument: &str) = 5787901, "Unknown argument for 'n' operator: {argument}";
    missing_n() = 5787906, "Missing value for 'n'";
    missing_input() = 5787907, "Missing value for 'input'";
    count_wrong_type(text: &str) = 5787902, "Value for 'n' must be of integral type, but found {text}";
    count_not_integral(text: &str) = 5787903, "Value for 'n' must be of integral type, but found {text}";
    count_not_positive(count: i64) = 5787908, "'n' must be greater than 0, found {count}";
}

/// Which values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    First,
    Last,
    Least,
    Greatest,
}

fn nothing() -> Box<dyn State> {
    state(Keep::First, 0, Ties::Earliest)
}

/// Parses `{ n: <expression>, input: <expression> }`.
pub(crate) fn parse_count(
    name: &str,
    keep: Keep,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<(Expression, Expression)> {
    let Value::Document(doc) = value else {
        let text = print::element(value);
        return Err(match keep {
            Keep::First | Keep::Last => first_last_not_object(name, &text),
            Keep::Least | Keep::Greatest => min_max_not_object(name, &text),
        });
    };
    let mut count = None;
    let mut input = None;
    for element in doc {
        match &**element.name {
            b"n" => count = Some(Expression::parse(element.value.get(), scope)?),
            b"input" => input = Some(Expression::parse(element.value.get(), scope)?),
            _ => return Err(unknown_argument(&element.name.to_string())),
        }
    }
    let count = count.ok_or_else(missing_n)?;
    Ok((count, input.ok_or_else(missing_input)?))
}

/// The count that `n` evaluates to.
pub(crate) fn read_count(count: Option<Value<'_>>) -> Result<usize> {
    let Some(value) = count.filter(|value| value.kind().is_number()) else {
        return Err(count_wrong_type(&print::optional(count)));
    };
    crate::expression::number::check_fits_long(value)?;
    // A decimal whose fraction no double tells has none.
    let count = match value {
        Value::Decimal128(number) => value
            .as_exact_i64()
            .or_else(|| marula_bson::value::exact_i64_of_double(number.to_f64())),
        value => value.as_exact_i64(),
    };
    let count = count.ok_or_else(|| count_not_integral(&print::value(value)))?;
    match usize::try_from(count) {
        Ok(0) | Err(_) => Err(count_not_positive(count)),
        Ok(count) => Ok(count),
    }
}

fn parse(
    row: &'static Row,
    keep: Keep,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let (count, argument) = parse_count(row.name, keep, value, scope)?;
    Ok(Accumulator { row, argument, settings: Settings::Count { count, keep } })
}

/// A state that keeps `count` values.
pub(super) fn state(keep: Keep, count: usize, ties: Ties) -> Box<dyn State> {
    Box::new(Kept { keep, count, ties, values: VecDeque::new(), is_over: false })
}

struct Kept {
    keep: Keep,
    count: usize,
    ties: Ties,
    /// In the order of the result.
    values: VecDeque<ValueBuf>,
    /// Whether one value more than are kept was met, of which the first are.
    is_over: bool,
}

impl State for Kept {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        let full = self.values.len() >= self.count;
        let size = |value: &ValueBuf| value.as_raw().bytes().len() + size_of::<ValueBuf>();
        match self.keep {
            Keep::First if full => {
                self.is_over = true;
                return Ok(0);
            }
            Keep::First => self.values.push_back(value.unwrap_or(Value::Null).to_buf()),
            Keep::Last => {
                if full {
                    self.values.pop_front();
                }
                self.values.push_back(value.unwrap_or(Value::Null).to_buf());
            }
            Keep::Least | Keep::Greatest => {
                let Some(value) = value.filter(|value| !value.is_nullish()) else {
                    return Ok(0);
                };
                let collator = frame.context.collator();
                let compare = |kept: &ValueBuf| order::compare(kept.get(), value, collator);
                // Of equals the one that came first is the least; it is also the one that stays, but for a moving window.
                let is_beyond = |least: &ValueBuf| match self.ties {
                    Ties::Earliest => compare(least).is_ge(),
                    Ties::Latest => compare(least).is_gt(),
                };
                if full && self.keep == Keep::Greatest && self.values.back().is_none_or(is_beyond) {
                    return Ok(0);
                }
                let at = self.values.partition_point(|kept| match self.keep {
                    Keep::Least => compare(kept).is_le(),
                    _ => compare(kept).is_gt(),
                });
                if at >= self.count {
                    return Ok(0);
                }
                self.values.insert(at, value.to_buf());
                self.values.truncate(self.count);
            }
        }
        Ok(if full { 0 } else { self.values.back().map_or(0, size) })
    }

    fn is_full(&self) -> bool {
        self.is_over
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.array(self.values.iter().map(ValueBuf::get))
    }
}

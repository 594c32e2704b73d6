//! `$firstN`, `$lastN`, `$minN`, `$maxN`: a bounded number of values per group.

use std::collections::VecDeque;

use marula_bson::{Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::{Accumulator, AccumulatorRow, Settings, State};
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::spill::Limits;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$firstN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::First, value, scope),
        start: nothing,
    },
    AccumulatorRow {
        name: "$lastN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::Last, value, scope),
        start: nothing,
    },
    AccumulatorRow {
        name: "$maxN",
        since: FeatureVersion::V6_0,
        parse: |row, value, scope| parse(row, Keep::Greatest, value, scope),
        start: nothing,
    },
    AccumulatorRow {
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
    list_too_large(name: &str, limit: usize) = ExceededMemoryLimit, "{name} used too much memory and spilling to disk cannot reduce memory consumption any further. Memory limit: {limit} bytes";
    count_not_positive(count: i64) = 5787908, "'n' must be greater than 0, found {count}";
}

/// The values that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    First,
    Last,
    Least,
    Greatest,
}

/// The overhead of a value in a list. It is greater than a group's overhead, so that the list
/// reports the excess before the group does.
pub(super) const VALUE_BYTES: usize = 64;

fn nothing() -> Box<dyn State> {
    state("$firstN", Keep::First, 0)
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

/// The value of `n`.
pub(crate) fn read_count(count: Option<Value<'_>>) -> Result<usize> {
    let Some(value) = count.filter(|value| value.kind().is_number()) else {
        return Err(count_wrong_type(&print::optional(count)));
    };
    crate::expression::number::check_fits_long(value)?;
    // A decimal whose nearest double is whole counts as whole.
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
    row: &'static AccumulatorRow,
    keep: Keep,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let (count, argument) = parse_count(row.name, keep, value, scope)?;
    Ok(Accumulator { row, argument, settings: Settings::Count { count, keep } })
}

/// A state that keeps `count` values.
pub(super) fn state(name: &'static str, keep: Keep, count: usize) -> Box<dyn State> {
    let memory = ListMemory::of(name);
    Box::new(Kept { memory, keep, count, values: VecDeque::new(), is_over: false })
}

/// Checks the size of a list of the accumulator `name`.
pub(super) fn check_list(name: &str, size: usize, limits: &Limits) -> Result<()> {
    let limit = limits.list_bytes_max;
    if size > limit { Err(list_too_large(name, limit)) } else { Ok(()) }
}

/// The memory of one group's list.
pub(super) struct ListMemory {
    name: &'static str,
    taken: usize,
}

impl ListMemory {
    /// Memory for a list of the accumulator `name`.
    pub(super) fn of(name: &'static str) -> ListMemory {
        ListMemory { name, taken: 0 }
    }

    /// Reserves memory for a value. Returns an error if the list exceeds its limit.
    pub(super) fn take(&mut self, bytes: usize, frame: &Frame<'_>) -> Result<()> {
        self.taken += bytes + VALUE_BYTES;
        check_list(self.name, self.taken, &frame.context.limits)?;
        meter::spend_bytes(bytes)?;
        meter::check_room(bytes)
    }

    /// The number of reserved bytes.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Releases the memory of a value.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.taken -= bytes + VALUE_BYTES;
    }
}

struct Kept {
    memory: ListMemory,
    keep: Keep,
    count: usize,
    /// The values in the order of the result.
    values: VecDeque<ValueBuf>,
    /// Whether `First` has been offered more values than it keeps.
    is_over: bool,
}

fn size_of_value(value: &ValueBuf) -> usize {
    value.as_raw().bytes().len()
}

impl Kept {
    /// The position of a value in the order of the result; `None` if the kept values precede it.
    fn place(&self, value: Value<'_>, is_full: bool, frame: &Frame<'_>) -> Option<usize> {
        if matches!(self.keep, Keep::First | Keep::Last) {
            return Some(self.values.len());
        }
        let collator = frame.context.collator();
        let compare = |kept: &ValueBuf| order::compare(kept.get(), value, collator);
        // Of equal values the earliest is the least and stays.
        let is_beyond = |least: &ValueBuf| compare(least).is_ge();
        if is_full && self.keep == Keep::Greatest && self.values.back().is_none_or(is_beyond) {
            return None;
        }
        let at = self.values.partition_point(|kept| match self.keep {
            Keep::Least => compare(kept).is_le(),
            _ => compare(kept).is_gt(),
        });
        (at < self.count).then_some(at)
    }
}

impl State for Kept {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        let is_full = self.values.len() >= self.count;
        let value = match self.keep {
            Keep::First if is_full => {
                self.is_over = true;
                return Ok(0);
            }
            Keep::First | Keep::Last => value.unwrap_or(Value::Null),
            Keep::Least | Keep::Greatest => match value {
                Some(value) if !value.is_nullish() => value,
                _ => return Ok(0),
            },
        };
        let Some(at) = self.place(value, is_full, frame) else { return Ok(0) };
        let before = self.memory.taken();
        if is_full {
            let gone = match self.keep {
                Keep::Last => self.values.pop_front(),
                _ => self.values.pop_back(),
            };
            self.memory.give_back(gone.map_or(0, |gone| size_of_value(&gone)));
        }
        let value = value.to_buf();
        self.memory.take(size_of_value(&value), frame)?;
        self.values.insert(at.min(self.values.len()), value);
        Ok(self.memory.taken().saturating_sub(before))
    }

    fn is_full(&self) -> bool {
        self.is_over
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.array(self.values.iter().map(ValueBuf::get))
    }
}

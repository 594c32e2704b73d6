//! The documents that a window function reads: by position, or by the value of `sortBy`.

use std::ops::Range;

use marula_bson::{Doc, DocWriter, Value, ValueBuf, long, order};
use marula_error::{Result, errors};

use super::{Partition, SortBy};
use crate::expression::calendar::{Unit, add_units};
use crate::expression::number::{Number, int_or_long};
use crate::expression::{Expression, Scope, print};
use crate::meter;

errors! {
    window_not_object() = FailedToParse, "'window' field must be an object";
    window_bad_fields() = FailedToParse, "'window' field can only contain 'documents' as the only argument or 'range' with an optional 'unit' field";
    both_kinds() = FailedToParse, "Window bounds can specify either 'documents' or 'unit', not both.";
    unit_without_range() = FailedToParse, "Window bounds can only specify 'unit' with range-based bounds.";
    documents_not_alone() = FailedToParse, "'window' field that specifies documents cannot have other fields";
    range_not_alone() = FailedToParse, "'window' field that specifies range cannot have other fields besides 'unit'";
    unit_not_alone() = FailedToParse, "'window' field that specifies unit cannot have other fields besides 'range'";
    unit_not_string() = FailedToParse, "'unit' must be a string";
    not_a_pair(name: &str, text: &str) = FailedToParse, "Window bounds must be a 2-element array: {name}: {text}";
    not_a_bound() = FailedToParse, "Window bounds must be 'unbounded', 'current', or a number.";
    bound_not_constant() = FailedToParse, "Window bounds expression must be a constant.";
    distance_not_number() = FailedToParse, "Range-based bounds expression must be a number";
    position_not_integer() = FailedToParse, "Numeric document-based bounds must be an integer";
    units_not_integer() = FailedToParse, "With 'unit', range-based bounds must be an integer";
    unknown_unit(name: &str) = FailedToParse, "unknown time unit value: {name}";
    lower_above_upper(lower: &str, upper: &str) = 5339900, "Lower bound must not exceed upper bound: [{lower}, {upper}]";
    positions_need_sort() = 5339901, "Document-based bounds require a sortBy";
    range_needs_one_field() = 5339902, "Range-based bounds require sortBy a single field";
    range_needs_a_path() = 8947400, "Range-based bounds require a non-expression sortBy";
    range_needs_ascending() = 8947401, "Range-based bounds require an ascending sortBy";
    not_a_number(kind: &str) = 5429414, "Invalid range: Expected the sortBy field to be a number, but it was {kind}";
    date_without_unit() = 5429413, "Invalid range: For windows that involve date or time ranges, a unit must be provided.";
    not_a_date(kind: &str) = 5429513, "Invalid range: Expected the sortBy field to be a Date, but it was {kind}";
}

/// One end of a window.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Bound<T> {
    /// The first or last document of the partition.
    Unbounded,
    /// The document itself.
    Current,
    /// At this distance from it.
    At(T),
}

impl<T> Bound<T> {
    fn printed<'t>(&'t self, at: impl FnOnce(&'t T) -> Value<'t>) -> Value<'t> {
        match self {
            Bound::Unbounded => "unbounded".into(),
            Bound::Current => "current".into(),
            Bound::At(distance) => at(distance),
        }
    }
}

/// The documents that a window function reads.
#[derive(Debug)]
pub(crate) enum Bounds {
    /// By position.
    Documents(Bound<i64>, Bound<i64>),
    /// By the distance of the sort value.
    Range {
        /// The minimum distance.
        lower: Bound<ValueBuf>,
        /// The maximum distance.
        upper: Bound<ValueBuf>,
        /// The unit of distances of dates.
        unit: Option<Unit>,
        /// The path of the sort value.
        sort_by: SortBy,
    },
}

impl Bounds {
    /// The whole partition.
    pub(crate) const ALL: Bounds = Bounds::Documents(Bound::Unbounded, Bound::Unbounded);

    /// Parses `{ documents: […] }` or `{ range: […], unit }`.
    pub(crate) fn parse(
        window: Value<'_>,
        sort: Option<Doc<'_>>,
        scope: &mut Scope<'_>,
    ) -> Result<Bounds> {
        let Value::Document(spec) = window else {
            return Err(window_not_object());
        };
        let count = spec.iter().count();
        match ["documents", "range", "unit"].map(|name| spec.get(name)) {
            [Some(_), Some(_), _] => Err(both_kinds()),
            [_, None, Some(_)] => Err(unit_without_range()),
            [Some(_), ..] if count > 1 => Err(documents_not_alone()),
            [Some(documents), ..] => parse_documents(documents, sort, scope),
            [_, Some(range), unit] => {
                // That the bounds are two comes before other fields, and what they are after them.
                let ends = pair("range", range)?;
                match unit {
                    Some(_) if count > 2 => Err(unit_not_alone()),
                    None if count > 1 => Err(range_not_alone()),
                    unit => parse_range(ends, unit, sort, scope),
                }
            }
            _ if count > 0 => Err(window_bad_fields()),
            _ => Ok(Bounds::ALL),
        }
    }

    /// Returns whether documents leave the window as it moves.
    pub(crate) fn start_moves(&self) -> bool {
        match self {
            Bounds::Documents(lower, _) => *lower != Bound::Unbounded,
            Bounds::Range { lower, .. } => *lower != Bound::Unbounded,
        }
    }

    /// Writes them in the form that `explain` shows.
    pub(super) fn print(&self, out: &mut DocWriter<'_>) {
        let mut window = out.begin_doc("window");
        match self {
            Bounds::Documents(lower, upper) => {
                let mut ends = window.begin_array("documents");
                for end in [lower, upper] {
                    ends.push(end.printed(|at| int_or_long(*at).into()));
                }
            }
            Bounds::Range { lower, upper, unit, .. } => {
                let mut ends = window.begin_array("range");
                for end in [lower, upper] {
                    ends.push(end.printed(ValueBuf::get));
                }
                drop(ends);
                if let Some(unit) = unit {
                    window.append("unit", unit.name());
                }
            }
        }
    }

    /// Returns the window of each document of a partition, as positions; the lower and upper ends
    /// never move back.
    pub(crate) fn windows(&self, partition: &Partition<'_>) -> Result<Vec<Range<usize>>> {
        let count = partition.documents.len();
        match self {
            Bounds::Documents(lower, upper) => Ok((0..count)
                .map(|at| {
                    let start = position(lower, at, 0, count);
                    let end = match upper {
                        Bound::Unbounded => count,
                        upper => position(upper, at, 1, count),
                    };
                    start.min(end)..end
                })
                .collect()),
            Bounds::Range { lower, upper, unit, sort_by } => {
                let values = partition.sort_values(sort_by)?;
                let values: Vec<ValueBuf> = values
                    .into_iter()
                    .map(|value| check_sort_value(value, *unit))
                    .collect::<Result<_>>()?;
                range_windows(&values, lower, upper, *unit, partition)
            }
        }
    }
}

/// Returns the position of a bound, plus `past`, inside the partition.
fn position(bound: &Bound<i64>, at: usize, past: i64, count: usize) -> usize {
    let offset = match bound {
        Bound::Unbounded => return 0,
        Bound::Current => 0,
        Bound::At(offset) => *offset,
    };
    let at = long(at);
    let position = at.saturating_add(offset).saturating_add(past).max(0);
    usize::try_from(position).unwrap_or(usize::MAX).min(count)
}

/// Returns a bound in the form of mongod's messages.
fn shown(value: Value<'_>) -> String {
    print::value(value)
}

fn pair<'v>(name: &str, value: Value<'v>) -> Result<[Value<'v>; 2]> {
    let not_a_pair = || not_a_pair(name, &print::element(value));
    let items = value.as_array().ok_or_else(not_a_pair)?;
    let mut values = items.values();
    match (values.next(), values.next(), values.next()) {
        (Some(lower), Some(upper), None) => Ok([lower, upper]),
        _ => Err(not_a_pair()),
    }
}

/// Parses a bound: one of two names, or a constant expression.
fn parse_bound<T>(
    value: Value<'_>,
    scope: &mut Scope<'_>,
    read: impl Fn(Value<'_>) -> Result<T>,
) -> Result<Bound<T>> {
    match value {
        Value::String(text) if *text == "unbounded" => Ok(Bound::Unbounded),
        Value::String(text) if *text == "current" => Ok(Bound::Current),
        Value::String(_) => Err(not_a_bound()),
        value => {
            let mut expression = Expression::parse(value, scope)?;
            expression.optimize(scope.context)?;
            read(expression.as_constant().ok_or_else(bound_not_constant)?).map(Bound::At)
        }
    }
}

/// Returns a number of any type that fits into an int.
fn as_int(value: Value<'_>) -> Option<i64> {
    value.as_exact_i64().filter(|number| i32::try_from(*number).is_ok())
}

fn parse_documents(
    value: Value<'_>,
    sort: Option<Doc<'_>>,
    scope: &mut Scope<'_>,
) -> Result<Bounds> {
    let [lower, upper] = pair("documents", value)?;
    let read = |value: Value<'_>| as_int(value).ok_or_else(position_not_integer);
    let (low, up) = (parse_bound(lower, scope, read)?, parse_bound(upper, scope, read)?);
    let distance = |bound: &Bound<i64>| match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(0),
        Bound::At(distance) => Some(*distance),
    };
    if let (Some(a), Some(b)) = (distance(&low), distance(&up))
        && a > b
    {
        return Err(lower_above_upper(&a.to_string(), &b.to_string()));
    }
    let is_all = low == Bound::Unbounded && up == Bound::Unbounded;
    if !is_all && sort.is_none() {
        return Err(positions_need_sort());
    }
    Ok(Bounds::Documents(low, up))
}

fn parse_range(
    [lower, upper]: [Value<'_>; 2],
    unit: Option<Value<'_>>,
    sort: Option<Doc<'_>>,
    scope: &mut Scope<'_>,
) -> Result<Bounds> {
    let unit = match unit {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err(unit_not_string()),
    };
    let read = |value: Value<'_>| match unit {
        Some(_) if as_int(value).is_none() => Err(units_not_integer()),
        _ if !value.kind().is_number() => Err(distance_not_number()),
        _ => Ok(value.to_buf()),
    };
    let (low, up) = (parse_bound(lower, scope, read)?, parse_bound(upper, scope, read)?);
    let unit = match unit {
        None => None,
        Some(name) => Some(Unit::parse(name).ok_or_else(|| unknown_unit(&name.to_string()))?),
    };
    if let (Some(a), Some(b)) = (distance(&low), distance(&up))
        && order::compare(a.get(), b.get(), None).is_gt()
    {
        return Err(lower_above_upper(&shown(a.get()), &shown(b.get())));
    }
    let sort_by = SortBy::only(sort)?.ok_or_else(range_needs_one_field)?;
    if sort.is_some_and(|sort| sort.values().any(|part| part.as_doc().is_some())) {
        return Err(range_needs_a_path());
    }
    if sort_by.descending {
        return Err(range_needs_ascending());
    }
    Ok(Bounds::Range { lower: low, upper: up, unit, sort_by })
}

fn distance(bound: &Bound<ValueBuf>) -> Option<ValueBuf> {
    match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(Value::Int32(0).to_buf()),
        Bound::At(distance) => Some(distance.clone()),
    }
}

fn check_sort_value(value: Option<ValueBuf>, unit: Option<Unit>) -> Result<ValueBuf> {
    let kind = value.as_ref().map_or("missing", |value| value.kind().alias());
    let value = value.unwrap_or_else(|| Value::Null.to_buf());
    match (value.get(), unit) {
        (Value::DateTime(_), Some(_)) => Ok(value),
        (_, Some(_)) => Err(not_a_date(kind)),
        (Value::DateTime(_), None) => Err(date_without_unit()),
        (other, None) if other.kind().is_number() => Ok(value),
        (_, None) => Err(not_a_number(kind)),
    }
}

/// Returns the value at a distance from another.
fn shifted(value: Value<'_>, distance: Value<'_>, unit: Option<Unit>) -> ValueBuf {
    match (value, unit) {
        (Value::DateTime(ms), Some(unit)) => {
            let amount = distance.as_exact_i64().unwrap_or(0);
            let limit = if amount < 0 { i64::MIN } else { i64::MAX };
            Value::DateTime(add_units(ms, unit, amount).unwrap_or(limit)).to_buf()
        }
        _ => match (Number::of(value), Number::of(distance)) {
            (Some(a), Some(b)) => Value::from(a.add(b)).to_buf(),
            _ => value.to_buf(),
        },
    }
}

fn range_windows(
    values: &[ValueBuf],
    lower: &Bound<ValueBuf>,
    upper: &Bound<ValueBuf>,
    unit: Option<Unit>,
    partition: &Partition<'_>,
) -> Result<Vec<Range<usize>>> {
    let collator = partition.context.collator();
    // The current document is meant by its position: others with an equal value are not included.
    let lower_is_here = *lower == Bound::Current;
    let upper_is_here = *upper == Bound::Current;
    let (lower, upper) = (distance(lower), distance(upper));
    // The values are sorted, so both ends only move forward.
    let (mut start, mut end) = (0, 0);
    let mut windows = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        meter::spend(meter::CALL)?;
        if lower_is_here {
            start = at;
        } else if let Some(distance) = &lower {
            let least = shifted(value.get(), distance.get(), unit);
            while start < values.len()
                && order::compare(values[start].get(), least.get(), collator).is_lt()
            {
                meter::spend(meter::CALL)?;
                start += 1;
            }
        }
        match &upper {
            _ if upper_is_here => end = at + 1,
            None => end = values.len(),
            Some(distance) => {
                let greatest = shifted(value.get(), distance.get(), unit);
                while end < values.len()
                    && order::compare(values[end].get(), greatest.get(), collator).is_le()
                {
                    meter::spend(meter::CALL)?;
                    end += 1;
                }
            }
        }
        windows.push(start.min(end)..end);
    }
    Ok(windows)
}

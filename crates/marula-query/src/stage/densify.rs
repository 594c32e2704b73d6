//! `$densify`: adds documents for missing values of a field, at equal steps.
//!
//! The input is sorted by the field, within its partitions unless the bounds are those of all
//! documents. A [`Densifying`] source tracks for each partition the next value on its grid, and
//! creates a document for each value on the grid that is less than the next document's.

use std::mem;
use std::sync::Arc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::calendar::Civil;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, order};
use marula_error::{Error, Result, errors};

use super::fields::write_with;
use super::sort::Sort;
use super::source::check_size;
use super::{Env, Parser, Source, Stage, StagePlace, StageRow, Step, deep_path};
use crate::context::Context;
use crate::expression::Path;
use crate::expression::calendar::{Unit, add_units};
use crate::expression::number::{Number, Pair, decimal_remainder};
use crate::expression::operator::unknown_operator;
use crate::expression::set::hash;
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::once::{Once, unknown_field};
use crate::sort::SortPattern;
use crate::spill::Share;

pub(super) const ROW: StageRow =
    StageRow { name: "$densify", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object(kind: &str) = FailedToParse, "The $densify stage specification must be an object, found {kind}";
    missing(name: &str) = IDLFailedToParse, "BSON field '$densify.{name}' is missing but a required field";
    fields_not_array() = 10065, "invalid parameter: expected an object (partitionByFields)";
    wrong_type(name: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '$densify.{name}' is the wrong type '{kind}', expected type '{expected}'";
    step_type(kind: &str) = TypeMismatch, "BSON field '$densify.range.step' is the wrong type '{kind}', expected types '[int, decimal, double, long']";
    step_not_positive() = 5733401, "The step parameter in a range statement must be a strictly positive numeric value";
    step_not_whole() = 6586400, "The step parameter in a range statement must be a whole number when densifying a date range";
    unknown_unit(name: &str) = FailedToParse, "unknown time unit value: {name}";
    unknown_bounds() = 5946802, "Bounds string must either be 'full' or 'partition'";
    bounds_type() = 5733404, "The bounds in a range statement must be the string 'full', 'partition', or an ascending array of two numbers or two dates";
    bounds_count() = 5733403, "A bounding array in a range statement must have exactly two elements";
    bounds_descend() = 5733402, "A bounding array must be an ascending array of either two dates or two numbers";
    bounds_not_values() = 5946800, "Explicit bounds must be numeric or dates";
    bounds_differ() = 5733406, "A bounding array must contain either both dates or both numeric types";
    bounds_without_unit() = 5733410, "A bounding array of dates must specify a unit";
    bounds_with_unit() = 5733409, "Numeric bounds may not have unit parameter";
    types_differ() = 5876900, "Upper bound, lower bound, and step must all have the same type";
    no_partition() = 5733408, "One cannot specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You may have meant to specify 'full' bounds.";
    value_type() = 5733201, "Densify field type must be numeric or a date";
    date_without_unit() = 6053600, "Encountered date densify value in collection when step does not have a date unit.";
    number_with_unit() = 6053600, "Encountered numeric densify value in collection when step has a date unit.";
    field_in_partition() = 5733306, "DocGenerator cannot include field that is being densified";
    too_many(made: u64, limit: u64) = 5897900, "Generated {made} documents in $densify, which is over the limit of {limit}. Increase the 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents";
    too_much_memory(limit: usize) = 6_007_200, "$densify exceeded memory limit of {limit}";
}

/// The range in which documents are created.
#[derive(Debug)]
enum Bounds {
    /// From the least to the greatest value of all documents, in every partition.
    Full,
    /// From the least to the greatest value of the partition.
    Partition,
    /// From a value up to before another.
    Explicit(ValueBuf, ValueBuf),
}

impl Bounds {
    /// Returns whether the bounds are explicit and equal, which means that one value.
    fn is_one_value(&self) -> bool {
        matches!(self, Bounds::Explicit(lower, upper) if order::equal(lower.get(), upper.get(), None))
    }
}

/// A parsed `$densify`, without the sort before it.
#[derive(Debug)]
struct Densify {
    field: Path,
    partition_by: Vec<Path>,
    /// The error of partition fields that cannot be read.
    unreadable: Option<Error>,
    step: ValueBuf,
    unit: Option<Unit>,
    bounds: Bounds,
    range: DocBuf,
    /// The order of the input.
    order: SortPattern,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut field, mut partition_by, mut range) = (None, Doc::EMPTY, None);
    let mut once = Once::of("$densify");
    for element in spec {
        let (name, value) = (element.name.to_str_lossy(), element.value.get());
        let wrong = |expected: &str| wrong_type(&name, value.kind().alias(), expected);
        match &*name {
            // As in other commands, a null field counts as absent.
            "field" | "range" if value.is_nullish() => {}
            "partitionByFields" if value.is_nullish() => return Err(fields_not_array()),
            "field" => field = Some(value.as_str().ok_or_else(|| wrong("string"))?),
            "partitionByFields" => {
                partition_by = value.as_array().ok_or_else(|| wrong("array"))?;
            }
            "range" => range = Some(value.as_doc().ok_or_else(|| wrong("object"))?),
            _ => return Err(unknown_field("$densify", element.name)),
        }
        once.note_given(element)?;
    }
    let field = field.ok_or_else(|| missing("field"))?;
    let range = range.ok_or_else(|| missing("range"))?;
    let mut names = Vec::new();
    for (at, name) in partition_by.values().enumerate().filter(|(_, name)| !name.is_nullish()) {
        let place = format!("partitionByFields.{at}");
        let name = name.as_str();
        let kind = || partition_by.values().nth(at).map_or("missing", |name| name.kind().alias());
        names.push(name.ok_or_else(|| wrong_type(&place, kind(), "string"))?);
    }
    let (step, unit, bounds) = parse_range(range, names.is_empty())?;
    let path = Path::parse(field)?;
    let partition_by = names.iter().map(|name| Path::parse(name)).collect::<Result<Vec<_>>>()?;
    let sort = DocBuf::build(|out| {
        if !matches!(bounds, Bounds::Full) {
            let mut seen = Vec::new();
            for name in names.iter().filter(|name| **name != field) {
                if !seen.contains(name) {
                    seen.push(*name);
                    out.append(*name, 1);
                }
            }
        }
        out.append(field, 1);
    });
    let pattern = SortPattern::parse(sort.as_doc(), parser.context)?;
    let order = pattern.clone();
    parser.push(Sort::new(pattern, sort));
    let range = range.to_buf();
    let unreadable = partition_by.iter().find_map(|path| unreadable(path, parser));
    parser.push(Densify {
        field: path,
        partition_by,
        unreadable,
        step,
        unit,
        bounds,
        range,
        order,
    });
    Ok(())
}

/// Returns the error of a path of `partitionByFields` that cannot be read. mongod makes an
/// expression of each path once a document has a value of the field: there a part of a reference to
/// another document is an operator, or at the front a variable.
fn unreadable(path: &Path, parser: &Parser<'_>) -> Option<Error> {
    let at = path.parts().iter().position(|part| part.starts_with(b"$"))?;
    let text = path.text();
    match at {
        0 => parser.scope().variable(&text[1..]).err(),
        _ => Some(unknown_operator(&path.parts()[at].to_str_lossy())),
    }
}

fn parse_range(range: Doc<'_>, is_whole: bool) -> Result<(ValueBuf, Option<Unit>, Bounds)> {
    let (mut step, mut unit, mut bounds) = (None, None, None);
    let mut once = Once::of("$densify.range");
    for element in range {
        let value = element.value.get();
        match &**element.name {
            b"step" | b"unit" if value.is_nullish() => {}
            b"step" => {
                let number = Number::of(value).ok_or_else(|| step_type(value.kind().alias()))?;
                step = Some((value, number));
            }
            b"unit" => {
                let Value::String(name) = value else {
                    return Err(wrong_type("range.unit", value.kind().alias(), "string"));
                };
                // A second one is refused whatever it names.
                once.note(element.name)?;
                unit = Some(Unit::parse(name).ok_or_else(|| unknown_unit(&name.to_string()))?);
                continue;
            }
            b"bounds" => {
                // They may be of any type, also null.
                once.note(element.name)?;
                bounds = Some(value);
                continue;
            }
            _ => return Err(unknown_field("$densify.range", element.name)),
        }
        once.note_given(element)?;
    }
    let (step, number) = step.ok_or_else(|| missing("range.step"))?;
    let bounds = bounds.ok_or_else(|| missing("range.bounds"))?;
    if !number.compare_zero().is_some_and(std::cmp::Ordering::is_gt) {
        return Err(step_not_positive());
    }
    if unit.is_some() && step.as_exact_i64().is_none() {
        return Err(step_not_whole());
    }
    let bounds = match bounds {
        Value::String(name) if *name == "full" => Bounds::Full,
        Value::String(name) if *name == "partition" => match is_whole {
            true => return Err(no_partition()),
            false => Bounds::Partition,
        },
        Value::String(_) => return Err(unknown_bounds()),
        Value::Array(pair) => parse_pair(pair, step, unit)?,
        _ => return Err(bounds_type()),
    };
    Ok((step.to_buf(), unit, bounds))
}

fn parse_pair(pair: Doc<'_>, step: Value<'_>, unit: Option<Unit>) -> Result<Bounds> {
    let mut values = pair.values();
    let (Some(lower), Some(upper), None) = (values.next(), values.next(), values.next()) else {
        return Err(bounds_count());
    };
    if order::compare(lower, upper, None).is_gt() {
        return Err(bounds_descend());
    }
    match (lower, upper) {
        (Value::DateTime(_), Value::DateTime(_)) if unit.is_none() => {
            return Err(bounds_without_unit());
        }
        (Value::DateTime(_), Value::DateTime(_)) => {}
        (Value::DateTime(_), _) => return Err(bounds_differ()),
        _ if !lower.kind().is_number() => return Err(bounds_not_values()),
        _ if !upper.kind().is_number() => return Err(bounds_differ()),
        _ if unit.is_some() => return Err(bounds_with_unit()),
        _ if lower.kind() != upper.kind() || lower.kind() != step.kind() => {
            return Err(types_differ());
        }
        _ => {}
    }
    Ok(Bounds::Explicit(lower.to_buf(), upper.to_buf()))
}

impl Stage for Densify {
    fn name(&self) -> &'static str {
        "$_internalDensify"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("field", self.field.text().as_bstr());
            let mut fields = out.begin_array("partitionByFields");
            for path in &self.partition_by {
                fields.push(path.text().as_bstr());
            }
            fields.finish();
            let mut range = out.begin_doc("range");
            for name in ["step", "bounds", "unit"] {
                if let Some(value) = self.range.as_doc().get(name) {
                    range.append(name, value);
                }
            }
        })
    }

    fn gives_order(&self, pattern: &SortPattern) -> bool {
        // The output is in one order only if the partitions come one after another.
        let is_kept = !matches!(self.bounds, Bounds::Full) || self.partition_by.is_empty();
        is_kept && pattern.is_front_of(&self.order)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Densifying {
            input: deep_path::guard(input, std::iter::once(&self.field).chain(&self.partition_by)),
            stage: self,
            context: Arc::clone(&env.context),
            bytes_max: env.context.limits.densify_bytes_max,
            share: Share::default(),
            partitions: Partitions::default(),
            is_below: false,
            is_done: false,
            first: None,
            last: None,
            phase: Phase::Reading,
            made: 0,
            out: Vec::new(),
        }))
    }
}

impl Densify {
    /// Returns the value one step after another; `None` if it exceeds the range of dates.
    fn next(&self, value: Value<'_>) -> Option<ValueBuf> {
        match (value, self.unit) {
            (Value::DateTime(ms), Some(unit)) => {
                let amount = self.step.get().as_exact_i64().unwrap_or(i64::MAX);
                add_units(ms, unit, amount).map(|ms| Value::DateTime(ms).to_buf())
            }
            _ => {
                let (value, step) = (Number::of(value)?, Number::of(self.step.get())?);
                Some(Value::from(value.add(step)).to_buf())
            }
        }
    }

    /// Returns the first value before a document: as in mongod one step back from the start of the
    /// grid and one step on, which differs by rounding and by the lengths of months.
    fn begin(&self, start: Value<'_>) -> Option<ValueBuf> {
        let before = match (start, self.unit) {
            (Value::DateTime(ms), Some(unit)) => {
                let amount = self.step.get().as_exact_i64().and_then(i64::checked_neg)?;
                add_units(ms, unit, amount).map(|ms| Value::DateTime(ms).to_buf())
            }
            _ => {
                let (start, step) = (Number::of(start)?, Number::of(self.step.get())?);
                Some(Value::from(start.subtract(step)).to_buf())
            }
        };
        self.next(before?.get())
    }

    /// Returns whether a document with this value may be the last within explicit bounds. With
    /// partitions, no document is.
    fn is_at_end(&self, value: Value<'_>) -> bool {
        let Bounds::Explicit(_, upper) = &self.bounds else { return false };
        let is_above = order::compare(value, upper.get(), None);
        let is_behind =
            if self.bounds.is_one_value() { is_above.is_gt() } else { is_above.is_ge() };
        is_behind && self.partition_by.is_empty()
    }

    /// Returns whether explicit bounds contain no value from this one on.
    fn is_past_bounds(&self, next: Value<'_>) -> bool {
        let Bounds::Explicit(_, upper) = &self.bounds else { return false };
        self.bounds.is_one_value() || order::compare(next, upper.get(), None).is_ge()
    }

    /// Returns whether a value is a whole number of steps from another.
    fn is_on_grid(&self, value: Value<'_>, from: Value<'_>) -> bool {
        let steps = |distance: i64, step: i64| distance.checked_div(step).unwrap_or(0);
        match (value, from, self.unit) {
            (Value::DateTime(value), Value::DateTime(from), Some(unit)) => {
                let amount = self.step.get().as_exact_i64().unwrap_or(i64::MAX);
                let near = match unit.months() {
                    Some(months) => {
                        let of = |ms: i64| {
                            let civil = Civil::of_ms(ms);
                            civil.year * 12 + civil.month
                        };
                        steps(of(value) - of(from), months.saturating_mul(amount))
                    }
                    None => steps(value.saturating_sub(from), unit.ms().saturating_mul(amount)),
                };
                let there = near.checked_mul(amount).and_then(|by| add_units(from, unit, by));
                there == Some(value)
            }
            _ => match [value, from, self.step.get()].map(Number::of) {
                [
                    Some(Number::Int(_) | Number::Long(_)),
                    Some(Number::Int(_) | Number::Long(_)),
                    Some(Number::Int(_) | Number::Long(_)),
                ] => {
                    let whole = |value: Value<'_>| value.as_exact_i64().map_or(0, i128::from);
                    (whole(value) - whole(from)) % whole(self.step.get()).max(1) == 0
                }
                [Some(value), Some(from), Some(step)] => {
                    let distance = value.subtract(from);
                    match Number::pair(distance, step) {
                        // A remainder that is zero as a double counts as zero.
                        Pair::Decimal(distance, step) => {
                            decimal_remainder(distance, step).to_f64() == 0.0
                        }
                        _ => distance.to_f64() % step.to_f64() == 0.0,
                    }
                }
                _ => false,
            },
        }
    }

    fn check_value(&self, value: Value<'_>) -> Result<()> {
        match (value, self.unit) {
            (Value::DateTime(_), None) => Err(date_without_unit()),
            (Value::DateTime(_), Some(_)) => Ok(()),
            _ if !value.kind().is_number() => Err(value_type()),
            (_, Some(_)) => Err(number_with_unit()),
            (_, None) => Ok(()),
        }
    }

    /// Returns the fields of a document's partition: the start of the documents created for it.
    fn partition_of(&self, document: Doc<'_>) -> DocBuf {
        let mut partition = DocBuf::new();
        for path in &self.partition_by {
            let value = value_at(document, path);
            let mut bytes = Vec::new();
            let mut out = DocWriter::new(&mut bytes);
            write_with(partition.as_doc(), path.parts(), value, &mut out);
            out.finish();
            partition = DocBuf::trusted(bytes);
        }
        partition
    }
}

/// Returns the value at a path through documents; arrays are not entered.
fn value_at<'d>(document: Doc<'d>, path: &Path) -> Option<Value<'d>> {
    let (last, way) = path.parts().split_last()?;
    let holder = way.iter().try_fold(document, |doc, part| doc.get(part)?.as_doc())?;
    holder.get(last)
}

/// A partition in which documents are created.
struct Partition {
    /// The fields that identify the partition.
    fields: DocBuf,
    /// The last value on the grid that has a document; the partition's first one while its
    /// documents are below explicit bounds.
    last: Option<ValueBuf>,
    /// The next value on the grid; `None` if it exceeds the range of dates.
    next: Option<ValueBuf>,
}

/// The partitions in the order in which they were found.
#[derive(Default)]
struct Partitions {
    all: Vec<Partition>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    size: usize,
}

impl Partitions {
    fn hash(hashing: &DefaultHashBuilder, fields: Doc<'_>, context: &Context) -> u64 {
        hash(hashing, Value::Document(fields), context.collator())
    }

    fn find(&self, fields: Doc<'_>, context: &Context) -> Option<usize> {
        let hash = Partitions::hash(&self.hashing, fields, context);
        let is_same = |&at: &usize| {
            let known = Value::Document(self.all[at].fields.as_doc());
            order::equal(known, Value::Document(fields), context.collator())
        };
        self.table.find(hash, is_same).copied()
    }

    fn insert(&mut self, partition: Partition, context: &Context) -> usize {
        let (hashing, at) = (&self.hashing, self.all.len());
        self.size += partition.fields.len() + 2 * size_of::<Partition>();
        let hash = Partitions::hash(hashing, partition.fields.as_doc(), context);
        self.all.push(partition);
        let all = &self.all;
        let rehash = |&at: &usize| Partitions::hash(hashing, all[at].fields.as_doc(), context);
        self.table.insert_unique(hash, at, rehash);
        at
    }
}

/// The next output.
enum Phase {
    /// The next document of the input.
    Reading,
    /// The missing values before the input's document, then that document.
    Before(PendingDocument),
    /// The next document after the input's document, which was returned last.
    Given,
    /// The input has ended: the missing values after the last document, from this partition on.
    After { partition: usize },
}

/// A document with possibly missing values before it.
struct PendingDocument {
    /// The index of its partition.
    partition: usize,
    /// Its partition fields. As in mongod, documents created before it use these, and those after
    /// the last document use the first document's: `5` and `5.0` are one partition.
    fields: DocBuf,
    value: ValueBuf,
    /// Whether a value was missing before it.
    is_behind_made: bool,
}

struct Densifying {
    input: Box<dyn Source>,
    stage: Arc<Densify>,
    context: Arc<Context>,
    bytes_max: usize,
    /// The memory of the partitions.
    share: Share,
    partitions: Partitions,
    /// Whether the last document was below the explicit bounds.
    is_below: bool,
    /// Whether all values within explicit bounds exist; later documents are passed through.
    is_done: bool,
    /// The first and the last value of all documents.
    first: Option<ValueBuf>,
    last: Option<ValueBuf>,
    phase: Phase,
    made: u64,
    out: Vec<u8>,
}

impl Densifying {
    /// Handles the document that the input has moved to; returns `None` if no value is missing
    /// before it.
    fn meet(&mut self) -> Result<Option<PendingDocument>> {
        let document = self.input.doc();
        let stage = &*self.stage;
        let value = match value_at(document, &stage.field) {
            Some(value) if !value.is_nullish() && !self.is_done => value,
            _ => return Ok(None),
        };
        stage.check_value(value)?;
        if let Some(failure) = &stage.unreadable {
            return Err(failure.clone());
        }
        let fields = stage.partition_of(document);
        let known = self.partitions.find(fields.as_doc(), &self.context);
        let start = match &stage.bounds {
            Bounds::Full => self.first.get_or_insert_with(|| value.to_buf()).clone(),
            Bounds::Partition => value.to_buf(),
            Bounds::Explicit(lower, _) => lower.clone(),
        };
        if let Bounds::Explicit(lower, _) = &stage.bounds {
            let was_below = self.is_below;
            self.is_below = order::compare(value, lower.get(), None).is_lt();
            // As in mongod, of successive documents below the bounds only the first may begin a
            // partition.
            if self.is_below && was_below {
                return Ok(None);
            }
        }
        self.last = Some(value.to_buf());
        let value = value.to_buf();
        let at = match known {
            Some(at) => at,
            None => {
                if !fields.as_doc().is_empty() && value_at(fields.as_doc(), &stage.field).is_some()
                {
                    return Err(field_in_partition());
                }
                // With the bounds of all documents, only the very first document starts a grid.
                let is_later =
                    matches!(stage.bounds, Bounds::Full) && !self.partitions.all.is_empty();
                let is_behind = is_later || order::compare(value.get(), start.get(), None).is_gt();
                let mut next =
                    if is_behind { stage.begin(start.get()) } else { Some(start.clone()) };
                // Rounding may have put the next value after the document; the document then takes
                // its place.
                if let Some(rounded) = next.as_ref().filter(|_| is_behind)
                    && order::compare(rounded.get(), value.get(), None).is_gt()
                {
                    next = stage.next(rounded.get());
                }
                let fields = fields.clone();
                let last = self.is_below.then(|| value.clone());
                let partition = Partition { fields, last, next };
                let at = self.partitions.insert(partition, &self.context);
                if self.partitions.size > self.bytes_max {
                    return Err(too_much_memory(self.bytes_max));
                }
                self.share.require(self.partitions.size)?;
                at
            }
        };
        let next = self.partitions.all[at].next.as_ref();
        // No value is missing before it.
        self.is_done = stage.is_at_end(value.get())
            && next.is_none_or(|next| stage.is_past_bounds(next.get()));
        Ok(Some(PendingDocument { partition: at, fields, value, is_behind_made: false }))
    }

    /// Creates the document of a partition's next value, if that is less than `end`. Its partition
    /// fields are `fields`, or those of the partition's first document.
    fn make(
        &mut self,
        partition: usize,
        fields: Option<&DocBuf>,
        end: &ValueBuf,
        is_inclusive: bool,
    ) -> Result<bool> {
        let partition = &mut self.partitions.all[partition];
        let Some(value) = &partition.next else { return Ok(false) };
        let order = order::compare(value.get(), end.get(), None);
        let is_bounded = match &self.stage.bounds {
            Bounds::Explicit(lower, upper) => {
                order::compare(value.get(), upper.get(), None).is_lt()
                    || self.stage.bounds.is_one_value()
                        && order::equal(value.get(), lower.get(), None)
            }
            _ => true,
        };
        if !is_bounded || order.is_gt() || (order.is_eq() && !is_inclusive) {
            return Ok(false);
        }
        self.made += 1;
        let limit = self.context.limits.densify_documents_max;
        if self.made > limit {
            return Err(too_many(self.made, limit));
        }
        self.out.clear();
        let mut out = DocWriter::new(&mut self.out);
        let fields = fields.unwrap_or(&partition.fields).as_doc();
        write_with(fields, self.stage.field.parts(), Some(value.get()), &mut out);
        out.finish();
        check_size(self.out.len())?;
        let next = self.stage.next(value.get());
        partition.last = mem::replace(&mut partition.next, next);
        Ok(true)
    }

    /// Moves a partition's grid past a document that lies on it. Rounding may put a document on
    /// the grid that is less than the next value; this counts within explicit bounds alone, if
    /// the value before the document was missing.
    fn pass(&mut self, document: &PendingDocument) {
        let value = &document.value;
        let partition = &mut self.partitions.all[document.partition];
        let Some(next) = &partition.next else { return };
        self.is_done |=
            self.stage.is_at_end(value.get()) && self.stage.is_on_grid(value.get(), next.get());
        let is_near = matches!(self.stage.bounds, Bounds::Explicit(..)) && document.is_behind_made;
        let before = partition.last.as_ref().filter(|_| is_near);
        let is_on_grid = order::equal(value.get(), next.get(), None)
            || before.is_some_and(|before| self.stage.is_on_grid(value.get(), before.get()));
        if is_on_grid {
            // From here on the grid has the document's type.
            partition.next = self.stage.next(value.get());
            partition.last = Some(value.clone());
        }
    }

    /// Begins a partition of which no document has reached the explicit bounds: one step after its
    /// first document, unless that is below the bounds too. A document within the bounds would
    /// have put the grid at their lower end.
    fn leave_from_below(&mut self, partition: usize) {
        let stage = &*self.stage;
        let Bounds::Explicit(lower, _) = &stage.bounds else { return };
        let partition = &mut self.partitions.all[partition];
        let is_below = |value: &ValueBuf| order::compare(value.get(), lower.get(), None).is_lt();
        let Some(first) = partition.last.as_ref().filter(|last| is_below(last)) else { return };
        if stage.partition_by.is_empty() {
            return;
        }
        let next = stage.next(first.get());
        if !next.as_ref().is_some_and(is_below) {
            partition.next = next;
        }
    }

    /// Creates the values that are missing after the last document, up to the end that all
    /// partitions share.
    fn make_rest(&mut self, mut partition: usize) -> Result<bool> {
        let end = match &self.stage.bounds {
            Bounds::Partition => None,
            Bounds::Full => self.last.clone(),
            Bounds::Explicit(lower, upper) => {
                if self.partitions.all.is_empty() {
                    // Documents without a value belong to no partition.
                    let next = Some(lower.clone());
                    let whole = Partition { fields: DocBuf::new(), last: None, next };
                    self.partitions.insert(whole, &self.context);
                }
                let is_one_value = self.stage.bounds.is_one_value();
                Some(upper.clone()).filter(|_| !is_one_value || self.stage.partition_by.is_empty())
            }
        };
        let Some(end) = end else { return Ok(false) };
        let is_inclusive = match &self.stage.bounds {
            Bounds::Explicit(..) => self.stage.bounds.is_one_value(),
            Bounds::Full | Bounds::Partition => true,
        };
        // If a step does not advance, as from NaN, a partition that is at the end has its last
        // document there.
        let leads_on = |value: ValueBuf| order::compare(value.get(), end.get(), None).is_ne();
        let is_done = is_inclusive && !self.stage.next(end.get()).is_none_or(leads_on);
        while partition < self.partitions.all.len() {
            let next = self.partitions.all[partition].next.as_ref();
            if is_done && next.is_some_and(|next| order::equal(next.get(), end.get(), None)) {
                meter::spend(meter::DOCUMENT)?;
                partition += 1;
                continue;
            }
            self.leave_from_below(partition);
            if self.make(partition, None, &end, is_inclusive)? {
                self.phase = Phase::After { partition };
                return Ok(true);
            }
            partition += 1;
            meter::spend(meter::DOCUMENT)?;
        }
        self.phase = Phase::After { partition };
        Ok(false)
    }
}

impl Source for Densifying {
    fn pull(&mut self) -> Result<Step> {
        if let Phase::After { partition } = self.phase {
            return Ok(if self.make_rest(partition)? { Step::Document } else { Step::End });
        }
        if matches!(self.phase, Phase::Reading | Phase::Given) {
            match self.input.advance()? {
                Step::Document => {}
                Step::Pause => return Ok(Step::Pause),
                Step::End => {
                    return Ok(if self.make_rest(0)? { Step::Document } else { Step::End });
                }
            }
            self.phase = match self.meet()? {
                Some(met) => Phase::Before(met),
                None => Phase::Given,
            };
        }
        if let Phase::Before(met) = mem::replace(&mut self.phase, Phase::Given) {
            if self.make(met.partition, Some(&met.fields), &met.value, false)? {
                self.phase = Phase::Before(PendingDocument { is_behind_made: true, ..met });
                return Ok(Step::Document);
            }
            self.pass(&met);
        }
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        match self.phase {
            Phase::Given | Phase::Reading => self.input.doc(),
            Phase::Before(_) | Phase::After { .. } => Doc::trusted(&self.out),
        }
    }
}

//! Accumulators: computed by `$group`, `$bucket` and windows from many documents.
//!
//! An [`Accumulator`] is parsed once: its row, its argument, its settings. Each group starts a
//! [`State`] and adds one value per document; the state owns its data.
//!
//! Each file has one family; the expression operators of the same names (`$sum`, `$max`, `$firstN`,
//! …) share its arithmetic.

mod collect;
mod deviation;
mod extreme;
mod first_last;
mod merged;
mod n;
mod percentile;
mod quantile;
mod script;
pub(crate) mod sum;
mod top;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, RawValue, Value, ValueBuf};
use marula_error::{Result, errors};

use crate::context::Context;
use crate::expression::frame::size_of_value;
use crate::expression::set;
use crate::expression::{Arena, Expression, Frame, Scope};
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::spill::Limits;
use crate::stage::needs::Needs;
use crate::usage;

pub(crate) use deviation::Deviation;
pub(crate) use merged::{MergedFields, merged};
pub(crate) use n::{Keep, parse_count, read_count};
pub(crate) use percentile::{Percentiles, Spec};
pub(crate) use quantile::{counted, percentile};
pub(crate) use top::Top;

errors! {
    /// `$bucketAuto` has no key while it reads the documents.
    refers_to_key() = 4544714, "Can't refer to the group key in $bucketAuto";
    not_accumulator_object(field: &str) = 40234, "The field '{field}' must be an accumulator object";
    field_has_dot(field: &str) = 40235, "The field name '{field}' cannot contain '.'";
    field_is_operator(field: &str) = 40236, "The field name '{field}' cannot be an operator name";
    not_unary(name: &str) = 40237, "The {name} accumulator is a unary operator";
    not_one_accumulator(field: &str) = 40238, "The field '{field}' must specify one accumulator";
    unknown_accumulator(name: &str) = 15952, "unknown group operator '{name}'";
    count_takes_nothing() = TypeMismatch, "$count takes no arguments, i.e. $count:{{}}";
}

/// The row of an accumulator.
pub struct AccumulatorRow {
    /// The name including the dollar sign.
    pub name: &'static str,
    /// The release that introduced it.
    since: FeatureVersion,
    /// Parses the argument.
    parse: fn(&'static AccumulatorRow, Value<'_>, &mut Scope<'_>) -> Result<Accumulator>,
    /// Starts a group, if that needs no settings.
    start: fn() -> Box<dyn State>,
}

/// The accumulators of all families.
static ACCUMULATORS: &[&[AccumulatorRow]] = &[
    collect::ROWS,
    deviation::ROWS,
    extreme::ROWS,
    first_last::ROWS,
    n::ROWS,
    percentile::ROWS,
    script::ROWS,
    sum::ROWS,
    top::ROWS,
];

/// A parsed accumulator.
#[derive(Debug)]
pub struct Accumulator {
    row: &'static AccumulatorRow,
    /// The expression that is evaluated on each document.
    argument: Expression,
    settings: Settings,
}

/// The settings with which some accumulators start a state.
#[derive(Debug)]
enum Settings {
    None,
    /// The number of values to keep: an expression over the group's key.
    Count {
        count: Expression,
        keep: Keep,
    },
    /// The requested percentiles.
    Percentile(Percentiles),
    /// The first or last documents in an order.
    Top(top::Top),
    /// The functions of `$accumulator`.
    Script(Box<script::Functions>),
}

/// The values that an accumulator's result is made of.
pub(crate) enum Listed<'a> {
    /// All that are not missing: `$push`.
    All,
    /// Each distinct value once: `$addToSet`.
    Distinct,
    /// A number of values: `$firstN` and similar accumulators.
    Kept(Keep, usize),
    /// The values of a number of documents in an order: `$topN` and similar accumulators.
    Top(&'a Top, usize),
}

/// The value of one group while documents are added.
pub trait State: Send {
    /// Adds a document's value, `None` if it is missing. Returns by how many bytes the state has
    /// grown.
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize>;

    /// Same as [`add`](State::add), for an undecoded value.
    fn add_raw<'a>(&mut self, value: Option<RawValue<'a>>, frame: &Frame<'a>) -> Result<usize> {
        self.add(value.map(RawValue::get), frame)
    }

    /// Returns whether further values cannot change the result: they are then not evaluated and
    /// cannot fail.
    fn is_full(&self) -> bool {
        false
    }

    /// The result so far.
    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>>;
}

impl std::fmt::Debug for AccumulatorRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Accumulator {
    /// The name including the dollar sign.
    pub(crate) fn name(&self) -> &'static str {
        self.row.name
    }

    /// The requested percentiles, if it is a percentile accumulator.
    pub(crate) fn percentiles(&self) -> Option<&Percentiles> {
        match &self.settings {
            Settings::Percentile(wanted) => Some(wanted),
            _ => None,
        }
    }

    /// The expression that is evaluated on each document.
    pub(crate) fn argument(&self) -> &Expression {
        &self.argument
    }

    /// Parses `{ $operator: <argument> }`, the value of the group's field `field`.
    pub fn parse_field(field: &[u8], value: Value<'_>, scope: &mut Scope<'_>) -> Result<Self> {
        let name = &*field.to_str_lossy();
        let Value::Document(doc) = value else {
            return Err(not_accumulator_object(name));
        };
        let mut elements = doc.iter();
        let Some(element) = elements.next() else {
            return Err(not_accumulator_object(name));
        };
        if field.contains(&b'.') {
            return Err(field_has_dot(name));
        }
        if field.starts_with(b"$") {
            return Err(field_is_operator(name));
        }
        if !element.name.starts_with(b"$") {
            return Err(not_accumulator_object(name));
        }
        if elements.next().is_some() {
            return Err(not_one_accumulator(name));
        }
        if let Value::Array(_) = element.value.get() {
            return Err(not_unary(&element.name.to_str_lossy()));
        }
        let accumulator = Self::parse(element.name, element.value.get(), scope)?;
        usage::ACCUMULATORS.note(accumulator.name(), scope.context);
        Ok(accumulator)
    }

    /// Parses the argument of the accumulator `name`.
    pub fn parse(name: &[u8], argument: Value<'_>, scope: &mut Scope<'_>) -> Result<Self> {
        let row = find(name, scope.context.version)
            .ok_or_else(|| unknown_accumulator(&name.to_str_lossy()))?;
        (row.parse)(row, argument, scope)
    }

    /// A count of documents, for `$count` and `$sortByCount`.
    pub fn counting() -> Self {
        Accumulator {
            row: &sum::ROWS[0],
            argument: Value::Int32(1).into(),
            settings: Settings::None,
        }
    }

    /// Folds constant expressions.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        self.count_mut().map_or(Ok(()), |count| count.optimize(context))?;
        self.optimize_argument(context)
    }

    /// Same as [`optimize`](Accumulator::optimize), without the settings: for `$setWindowFields`.
    pub(crate) fn optimize_argument(&mut self, context: &Context) -> Result<()> {
        self.argument.optimize(context)
    }

    /// Computes the number of values to keep where no group's key is known.
    ///
    /// Errors: `refers_to_key`, those of the expression.
    pub(crate) fn fix_count(&mut self, context: &Context) -> Result<()> {
        let Some(count) = self.count_mut() else { return Ok(()) };
        count.optimize(context)?;
        let mut reads = false;
        count.for_each_path(&mut |_| reads = true);
        if reads { Err(refers_to_key()) } else { Ok(()) }
    }

    /// The number of values to keep: an expression over the group's key.
    fn count_mut(&mut self) -> Option<&mut Expression> {
        match &mut self.settings {
            Settings::Count { count, .. } => Some(count),
            Settings::Top(top) => Some(top.count_mut()),
            _ => None,
        }
    }

    /// Returns whether the result is the argument's value for the first document.
    pub(crate) fn takes_first(&self) -> bool {
        self.row.name == "$first"
    }

    /// Adds the paths that are read from each document.
    pub(crate) fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.argument);
        if let Settings::Top(top) = &self.settings {
            top.reads(needs);
        }
    }

    /// Starts a group with this key.
    pub fn start(&self, key: Value<'_>, context: &Context) -> Result<Box<dyn State>> {
        match &self.settings {
            Settings::None => Ok((self.row.start)()),
            Settings::Count { count, keep } => {
                let count = group_count(count, key, context)?;
                Ok(n::state(self.row.name, *keep, count))
            }
            Settings::Percentile(wanted) => Ok(percentile::start(wanted)),
            Settings::Script(functions) => functions.start(key, context),
            Settings::Top(top) => top.start(self.row.name, group_count(top.count(), key, context)?),
        }
    }

    /// Returns the values of a window that are in its result, if the result is made of such values.
    ///
    /// Errors: those of the number of values.
    pub(crate) fn listed(&self, context: &Context) -> Result<Option<Listed<'_>>> {
        Ok(Some(match &self.settings {
            Settings::Count { count, keep } => {
                Listed::Kept(*keep, group_count(count, Value::Null, context)?)
            }
            Settings::Top(top) => Listed::Top(top, group_count(top.count(), Value::Null, context)?),
            _ if self.row.name == "$push" => Listed::All,
            _ if self.row.name == "$addToSet" => Listed::Distinct,
            _ => return Ok(None),
        }))
    }

    /// Checks the size of the values in a result.
    ///
    /// Errors: the list is too large.
    pub(crate) fn check_listed(&self, count: usize, bytes: usize, limits: &Limits) -> Result<()> {
        match self.row.name {
            "$push" => collect::check_push(bytes + count * collect::PUSHED_BYTES, limits),
            "$addToSet" => collect::check_set(bytes + count * set::VALUE_BYTES, limits),
            name => n::check_list(name, bytes + count * n::VALUE_BYTES, limits),
        }
    }

    /// Adds the frame's document to a group. Returns by how many bytes the group has grown.
    #[inline]
    pub fn add<'a>(&'a self, state: &mut dyn State, frame: &Frame<'a>) -> Result<usize> {
        if state.is_full() {
            return Ok(0);
        }
        let value = self.argument.eval(frame)?;
        self.add_value(state, value, frame)
    }

    /// The value of the frame's document, to be passed to [`Accumulator::add_value`] later.
    pub fn evaluate<'a>(&'a self, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
        self.argument.eval(frame)
    }

    /// Returns whether [`Accumulator::add_value`] needs the document in its frame.
    pub fn needs_document(&self) -> bool {
        matches!(self.settings, Settings::Top(_))
    }

    /// Adds a result of [`Accumulator::evaluate`]. Returns by how many bytes the group has grown.
    pub fn add_value<'a>(
        &self,
        state: &mut dyn State,
        value: Option<Value<'a>>,
        frame: &Frame<'a>,
    ) -> Result<usize> {
        // Most states keep the value.
        meter::check_room(value.map_or(0, size_of_value))?;
        state.add(value, frame)
    }

    /// The form shown by `explain`.
    pub fn print(&self) -> ValueBuf {
        let argument = match &self.settings {
            Settings::None => self.argument.print(),
            Settings::Count { count, .. } => document(|out| {
                out.append("n", &count.print()).append("input", &self.argument.print());
            }),
            Settings::Percentile(wanted) => percentile::print(wanted, &self.argument),
            Settings::Script(functions) => document(|out| functions.print(&self.argument, out)),
            Settings::Top(top) => top.print(&self.argument),
        };
        document(|out| {
            out.append(self.row.name, &argument);
        })
    }
}

fn document(fill: impl FnOnce(&mut marula_bson::DocWriter<'_>)) -> ValueBuf {
    Value::Document(DocBuf::build(fill).as_doc()).to_buf()
}

/// The number of values that a group keeps; its expression sees the group's key.
fn group_count(count: &Expression, key: Value<'_>, context: &Context) -> Result<usize> {
    let arena = Arena::new();
    let root = key.as_doc().unwrap_or(Doc::EMPTY);
    let frame = Frame::new(root, &arena, context);
    read_count(count.eval(&frame)?)
}

/// Returns whether a release has an accumulator with this name.
pub(crate) fn is_known(name: &[u8], version: FeatureVersion) -> bool {
    find(name, version).is_some()
}

/// Returns whether the accumulator keeps a bounded number of values or documents: `$minN`, `$top`
/// and similar ones.
pub(crate) fn keeps_some(name: &[u8]) -> bool {
    [n::ROWS, top::ROWS].iter().flat_map(|rows| rows.iter()).any(|row| row.name.as_bytes() == name)
}

/// The names of all accumulators.
pub(crate) fn names() -> Vec<&'static str> {
    ACCUMULATORS.iter().flat_map(|rows| rows.iter()).map(|row| row.name).collect()
}

fn find(name: &[u8], version: FeatureVersion) -> Option<&'static AccumulatorRow> {
    ACCUMULATORS
        .iter()
        .flat_map(|rows| rows.iter())
        .find(|row| row.name.as_bytes() == name && row.since <= version)
}

/// Parses the argument of an accumulator with one argument and no settings.
fn parse_unary(
    row: &'static AccumulatorRow,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let argument = Expression::parse(value, scope)?;
    Ok(Accumulator { row, argument, settings: Settings::None })
}

/// Parses `{ $count: {} }`.
fn parse_nothing(
    row: &'static AccumulatorRow,
    value: Value<'_>,
    _: &mut Scope<'_>,
) -> Result<Accumulator> {
    match value {
        Value::Document(doc) if doc.is_empty() => {
            Ok(Accumulator { row, argument: Value::Int32(1).into(), settings: Settings::None })
        }
        _ => Err(count_takes_nothing()),
    }
}

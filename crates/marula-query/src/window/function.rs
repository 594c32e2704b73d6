//! A window function: its row, its arguments, its bounds.

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Bounds, Partition, SortBy, calculus, rank, removable, smooth, text};
use crate::accumulator::{self, Accumulator};
use crate::context::Context;
use crate::expression::{Arena, Frame, Scope, print};

errors! {
    field_not_object(name: &str) = FailedToParse, "The field '{name}' must be an object";
    no_function() = FailedToParse, "Expected a $-prefixed window function";
    not_a_function(name: &str) = FailedToParse, "Expected a $-prefixed window function, {name}";
    unknown_function(name: &str) = FailedToParse, "Unrecognized window function, {name}";
    two_functions() = FailedToParse, "Cannot specify two functions in window function spec";
    unknown_argument(name: &str) = FailedToParse, "Window function found an unknown argument: {name}";
}

/// What a window function is parsed from.
pub(super) struct Spec<'s> {
    /// The name with its dollar sign.
    pub(super) name: &'static str,
    /// The argument.
    pub(super) argument: Value<'s>,
    /// The field beside it, where it is given.
    pub(super) window: Option<Value<'s>>,
    /// The stage's `sortBy`.
    pub(super) sort: Option<Doc<'s>>,
}

/// Computes a value for each document of a partition.
pub(super) trait Function: std::fmt::Debug + Send + Sync {
    /// One value per document.
    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>>;

    /// Computes what needs no document.
    fn optimize(&mut self, context: &Context) -> Result<()>;

    /// Whether the function can start at all; asked before the first document is read.
    fn check_start(&self, _: &Context) -> Result<()> {
        Ok(())
    }
}

/// A window function that a user can name and that is not an accumulator: its row.
pub(super) struct Row {
    /// The name with its dollar sign.
    pub(super) name: &'static str,
    /// Parses the function.
    pub(super) parse: fn(&Spec<'_>, &mut Scope<'_>) -> Result<Box<dyn Function>>,
}

/// The functions of all kinds.
static FUNCTIONS: &[&[Row]] = &[calculus::ROWS, rank::ROWS, smooth::ROWS];

/// Accumulators that are not window functions.
const NOT_IN_WINDOWS: &[&[u8]] = &[b"$accumulator", b"$mergeObjects"];

/// A window function, parsed.
#[derive(Debug)]
pub(crate) struct WindowFunction {
    function: Box<dyn Function>,
    spec: ValueBuf,
}

impl WindowFunction {
    /// Parses `{ $function: <argument>, window: <bounds> }`, the value of the output field `field`.
    pub(crate) fn parse(
        field: &[u8],
        value: Value<'_>,
        sort: Option<Doc<'_>>,
        scope: &mut Scope<'_>,
    ) -> Result<Self> {
        let Value::Document(doc) = value else {
            return Err(field_not_object(&text(field)));
        };
        let (mut function, mut window, mut other) = (None, None, None);
        for element in doc {
            if element.name.starts_with(b"$") {
                if function.is_some() {
                    return Err(two_functions());
                }
                function = Some(element);
            } else if **element.name == *b"window" {
                window = Some(element.value.get());
            } else {
                other = Some(element.name);
            }
        }
        let Some(function) = function else {
            let first = doc.iter().next().map(|first| text(first.name));
            let first = first.filter(|name| !name.is_empty());
            return Err(first.map_or_else(no_function, |name| not_a_function(&name)));
        };
        if let Some(name) = other {
            return Err(unknown_argument(&text(name)));
        }
        let argument = function.value.get();
        let rows = FUNCTIONS.iter().flat_map(|rows| rows.iter());
        let row = rows.into_iter().find(|row| *row.name.as_bytes() == **function.name);
        let function: Box<dyn Function> = match row {
            Some(row) => (row.parse)(&Spec { name: row.name, argument, window, sort }, scope)?,
            None => {
                let name: &[u8] = function.name;
                if !accumulator::is_known(name, scope.context.version)
                    || NOT_IN_WINDOWS.contains(&name)
                {
                    return Err(unknown_function(&text(name)));
                }
                let accumulator = Accumulator::parse_in_window(name, argument, scope)?;
                Box::new(Accumulated { accumulator, bounds: bounds(window, sort, scope)? })
            }
        };
        Ok(WindowFunction { function, spec: value.to_buf() })
    }

    /// One value for each document of a partition.
    pub(crate) fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        self.function.values(partition)
    }

    /// Computes what needs no document.
    pub(crate) fn optimize(&mut self, context: &Context) -> Result<()> {
        self.function.optimize(context)
    }

    /// Whether the function can start at all; to be asked before the first document is read.
    pub(crate) fn check_start(&self, context: &Context) -> Result<()> {
        self.function.check_start(context)
    }

    /// The function as it was given.
    pub(crate) fn print(&self) -> ValueBuf {
        self.spec.clone()
    }
}

/// The bounds of a function; the whole partition where none are given.
pub(super) fn bounds(
    window: Option<Value<'_>>,
    sort: Option<Doc<'_>>,
    scope: &mut Scope<'_>,
) -> Result<Bounds> {
    window.map_or(Ok(Bounds::ALL), |window| Bounds::parse(window, sort, scope))
}

/// An accumulator over a window.
#[derive(Debug)]
struct Accumulated {
    accumulator: Accumulator,
    bounds: Bounds,
}

impl Accumulated {
    fn add(
        &self,
        state: &mut dyn accumulator::State,
        document: Doc<'_>,
        arena: &mut Arena,
        context: &Context,
    ) -> Result<()> {
        arena.reset();
        self.accumulator.add(state, &Frame::new(document, arena, context)).map(drop)
    }
}

impl Function for Accumulated {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.accumulator.optimize_argument(context)
    }

    fn check_start(&self, context: &Context) -> Result<()> {
        self.accumulator.start(Value::Null, context).map(drop)
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let windows = self.bounds.windows(partition)?;
        if (self.bounds.start_moves() || self.accumulator.percentiles().is_some())
            && let Some(values) = removable::values(&self.accumulator, &windows, partition)?
        {
            return Ok(values);
        }
        let context = partition.context;
        let start = || self.accumulator.start(Value::Null, context);
        let (mut arena, results) = (Arena::new(), Arena::new());
        let mut values: Vec<ValueBuf> = Vec::with_capacity(windows.len());
        let mut state = start()?;
        let mut held = 0..0;
        for window in windows {
            // Nothing is taken out of a state: a window whose start moved is computed anew.
            if window.start != held.start {
                state = start()?;
                held = window.start..window.start;
            } else if window == held
                && let Some(last) = values.last()
            {
                let same = last.clone();
                values.push(same);
                continue;
            }
            for document in &partition.documents[held.end..window.end] {
                self.add(&mut *state, document.as_doc(), &mut arena, context)?;
            }
            held = window;
            values.push(state.result(&results)?.to_buf());
        }
        Ok(values)
    }
}

/// The only field of `sortBy`, or the error of a function that needs one.
pub(super) fn only_sort_field(
    sort: Option<Doc<'_>>,
    error: impl FnOnce() -> marula_error::Error,
) -> Result<SortBy> {
    SortBy::only(sort)?.ok_or_else(error)
}

/// A field's name and value as mongod's messages show them.
pub(super) fn shown(name: &str, value: Value<'_>) -> String {
    format!("{name}: {}", print::element(value))
}

//! A window function: its row, its arguments, its bounds.

use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::kept;
use super::{Bounds, Partition, SortBy, calculus, lists, rank, removable, smooth, text};
use crate::accumulator::{self, Accumulator};
use crate::context::Context;
use crate::expression::{Arena, Frame, Scope, print};
use crate::meter;
use crate::stage::needs::Needs;
use crate::usage;

errors! {
    field_not_object(name: &str) = FailedToParse, "The field '{name}' must be an object";
    no_function() = FailedToParse, "Expected a $-prefixed window function";
    not_a_function(name: &str) = FailedToParse, "Expected a $-prefixed window function, {name}";
    unknown_function(name: &str) = FailedToParse, "Unrecognized window function, {name}";
    two_functions() = FailedToParse, "Cannot specify two functions in window function spec";
    /// The same function twice.
    two_arguments(name: &str) = FailedToParse, "saw multiple specifications for '{name}' expression";
    two_windows(name: &str) = FailedToParse, "saw multiple 'window' fields in '{name}' expression";
    several_functions() = FailedToParse, "Cannot specify multiple functions in window function spec";
    unknown_argument(name: &str) = FailedToParse, "Window function found an unknown argument: {name}";
    unexpected_argument(name: &str, argument: &str) = FailedToParse, "{name} got unexpected argument: {argument}";
    count_takes_nothing() = FailedToParse, "$count only accepts an empty object as input";
}

/// The text of a window function.
pub(super) struct Spec<'s> {
    /// The name with its dollar sign.
    pub(super) name: &'s str,
    /// The argument.
    pub(super) argument: Value<'s>,
    /// The function and the fields next to it.
    pub(super) fields: Doc<'s>,
    /// The stage's `sortBy`.
    pub(super) sort: Option<Doc<'s>>,
}

/// A part of a function, in the order of the text: of several errors the first is reported.
pub(super) enum Part<'s> {
    /// The function's argument.
    Argument(Value<'s>),
    /// The bounds of its window.
    Window(Value<'s>),
}

impl<'s> Spec<'s> {
    /// Calls `take` with the argument and the window, in the order of the text.
    ///
    /// Errors: those of `take`; `two_functions`, `unknown_argument` and similar ones for other
    /// fields.
    pub(super) fn for_each(&self, mut take: impl FnMut(Part<'s>) -> Result<()>) -> Result<()> {
        let (mut has_argument, mut has_window) = (false, false);
        for element in self.fields {
            let (name, value) = (element.name, element.value.get());
            // Of two arguments, these take the last.
            let is_another = matches!(self.name, "$first" | "$last") && name == self.name;
            if name.starts_with(b"$") && (!has_argument || is_another) {
                has_argument = true;
                take(Part::Argument(value))?;
            } else if **name == *b"window" {
                // Others take the last window.
                if has_window && self.keeps_some() {
                    return Err(two_windows(self.name));
                }
                has_window = true;
                take(Part::Window(value))?;
            } else {
                return Err(self.unexpected(name));
            }
        }
        Ok(())
    }

    /// Returns whether the function gives some of its values, which has errors of its own.
    fn keeps_some(&self) -> bool {
        matches!(self.name, "$first" | "$last") || accumulator::keeps_some(self.name.as_bytes())
    }

    /// Returns the error for a field that the function does not accept.
    fn unexpected(&self, field: &[u8]) -> Error {
        if self.keeps_some() && field == self.name.as_bytes() {
            two_arguments(self.name)
        } else if self.keeps_some() {
            unexpected_argument(self.name, &text(field))
        } else if !field.starts_with(b"$") {
            unknown_argument(&text(field))
        } else if matches!(self.name, "$count" | "$shift") {
            several_functions()
        } else {
            two_functions()
        }
    }
}

/// Computes a value for each document of a partition.
pub(super) trait Function: std::fmt::Debug + Send + Sync {
    /// Returns one value per document.
    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>>;

    /// Computes the parts that need no document.
    fn optimize(&mut self, context: &Context) -> Result<()>;

    /// Records the fields that are read of each document, except those of `sortBy`.
    fn reads(&self, needs: &mut Needs);

    /// Writes the function in the form that `explain` shows.
    fn print(&self, out: &mut DocWriter<'_>);

    /// Checks that the function can start; called before the first document is read.
    fn check_start(&self, _: &Context) -> Result<()> {
        Ok(())
    }
}

/// A row of the table of window functions that are not accumulators.
pub(super) struct FunctionRow {
    /// The name with its dollar sign.
    pub(super) name: &'static str,
    /// Parses the function.
    pub(super) parse: fn(&Spec<'_>, &mut Scope<'_>) -> Result<Box<dyn Function>>,
}

/// The functions of all kinds.
static FUNCTIONS: &[&[FunctionRow]] = &[calculus::ROWS, rank::ROWS, smooth::ROWS];

/// Accumulators that are not window functions.
pub(crate) const NOT_IN_WINDOWS: &[&[u8]] = &[b"$accumulator", b"$mergeObjects"];

/// The names of all functions, accumulators included.
pub(crate) fn names() -> Vec<&'static str> {
    let is_in_windows = |name: &&str| !NOT_IN_WINDOWS.contains(&name.as_bytes());
    accumulator::names().into_iter().filter(is_in_windows).chain(function_names()).collect()
}

/// The names of the functions that are no accumulators.
pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().flat_map(|rows| rows.iter()).map(|row| row.name)
}

/// A parsed window function.
#[derive(Debug)]
pub(crate) struct WindowFunction(Box<dyn Function>);

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
        let Some(function) = doc.iter().find(|element| element.name.starts_with(b"$")) else {
            let first = doc.iter().next().map(|first| text(first.name));
            let first = first.filter(|name| !name.is_empty());
            return Err(first.map_or_else(no_function, |name| not_a_function(&name)));
        };
        let argument = function.value.get();
        let rows = FUNCTIONS.iter().flat_map(|rows| rows.iter());
        let row = rows.into_iter().find(|row| *row.name.as_bytes() == **function.name);
        let function: Box<dyn Function> = match row {
            Some(row) => {
                usage::WINDOW_FUNCTIONS.note(row.name, scope.context);
                (row.parse)(&Spec { name: row.name, argument, fields: doc, sort }, scope)?
            }
            None => {
                let name: &[u8] = function.name;
                let is_known = accumulator::is_known(name, scope.context.version);
                let name = match std::str::from_utf8(name) {
                    Ok(known) if is_known && !NOT_IN_WINDOWS.contains(&name) => known,
                    _ => return Err(unknown_function(&text(name))),
                };
                usage::WINDOW_FUNCTIONS.note(name, scope.context);
                parse_accumulated(&Spec { name, argument, fields: doc, sort }, scope)?
            }
        };
        Ok(WindowFunction(function))
    }

    /// Returns one value for each document of a partition.
    pub(crate) fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        self.0.values(partition)
    }

    /// Computes the parts that need no document.
    pub(crate) fn optimize(&mut self, context: &Context) -> Result<()> {
        self.0.optimize(context)
    }

    /// Records the fields that are read of each document, except those of `sortBy`.
    pub(crate) fn reads(&self, needs: &mut Needs) {
        self.0.reads(needs);
    }

    /// Checks that the function can start; must be called before the first document is read.
    pub(crate) fn check_start(&self, context: &Context) -> Result<()> {
        self.0.check_start(context)
    }

    /// Returns the function in the form that `explain` shows.
    pub(crate) fn print(&self) -> DocBuf {
        DocBuf::build(|out| self.0.print(out))
    }
}

fn parse_accumulated(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let (mut accumulator, mut bounds) = (Accumulator::counting(), Bounds::ALL);
    spec.for_each(|part| {
        match part {
            // A count has no input and is complete already.
            Part::Argument(argument) if spec.name == "$count" => {
                if argument.as_doc().is_none_or(|doc| !doc.is_empty()) {
                    return Err(count_takes_nothing());
                }
            }
            Part::Argument(argument) => {
                accumulator = Accumulator::parse(spec.name.as_bytes(), argument, scope)?;
            }
            Part::Window(window) => bounds = Bounds::parse(window, spec.sort, scope)?,
        }
        Ok(())
    })?;
    Ok(Box::new(Accumulated { accumulator, bounds }))
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
        let frame = Frame::new(document, arena, context);
        // The argument is evaluated even if the state needs no more values, because it may fail.
        let value = self.accumulator.evaluate(&frame)?;
        self.accumulator.add_value(state, value, &frame).map(drop)
    }
}

impl Function for Accumulated {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.accumulator.optimize_argument(context)
    }

    fn reads(&self, needs: &mut Needs) {
        self.accumulator.reads(needs);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        let printed = self.accumulator.print();
        for element in printed.get().as_doc().unwrap_or(Doc::EMPTY) {
            out.append_raw(element.name, element.value);
        }
        self.bounds.print(out);
    }

    fn check_start(&self, context: &Context) -> Result<()> {
        self.accumulator.start(Value::Null, context).map(drop)
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let windows = self.bounds.windows(partition)?;
        let has_own_way = self.accumulator.percentiles().is_some()
            || matches!(self.accumulator.name(), "$first" | "$last");
        let moves = self.bounds.start_moves();
        if (moves || has_own_way)
            && let Some(values) = removable::values(&self.accumulator, &windows, partition)?
        {
            return Ok(values);
        }
        if moves {
            let values = lists::values(&self.accumulator, &windows, partition)?;
            return Ok(values.expect("values are removed from each accumulator or listed by it"));
        }
        // All windows start at the first document, so that no value is ever removed.
        let context = partition.context;
        let (mut arena, mut results) = (Arena::new(), Arena::new());
        let mut values: Vec<ValueBuf> = Vec::with_capacity(windows.len());
        let mut state = self.accumulator.start(Value::Null, context)?;
        let mut end = 0;
        for window in windows {
            meter::spend(meter::CALL)?;
            if window.end == end
                && let Some(last) = values.last()
            {
                values.push(kept(last.get())?);
                continue;
            }
            for document in &partition.documents[end..window.end] {
                meter::spend(meter::DOCUMENT)?;
                self.add(&mut *state, document.as_doc(), &mut arena, context)?;
            }
            end = window.end;
            values.push(kept(state.result(&results)?)?);
            results.reset();
        }
        Ok(values)
    }
}

/// Returns the only field of `sortBy`, or the error of a function that needs one.
pub(super) fn only_sort_field(
    sort: Option<Doc<'_>>,
    error: impl FnOnce() -> marula_error::Error,
) -> Result<SortBy> {
    SortBy::only(sort)?.ok_or_else(error)
}

/// Returns a field's name and value in the form of mongod's messages.
pub(super) fn shown(name: &str, value: Value<'_>) -> String {
    format!("{name}: {}", print::element(value))
}

//! Window functions: the values that `$setWindowFields` computes for a document from its
//! neighbours.
//!
//! A [`WindowFunction`] is parsed once: an accumulator or another function, and the [`Bounds`] of
//! the documents that it reads. It computes one value per document of a [`Partition`].
//!
//! Start with [`bounds`], then [`function`].

pub(crate) mod bounds;
mod calculus;
pub(crate) mod function;
mod lists;
mod rank;
mod removable;
mod smooth;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::Result;

pub(crate) use bounds::Bounds;
pub(crate) use function::WindowFunction;
#[cfg(test)]
pub(crate) use function::{NOT_IN_WINDOWS, function_names};

use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Path};
use crate::meter;

/// The documents of one partition, in order.
pub(crate) struct Partition<'p> {
    /// The documents.
    pub(crate) documents: &'p [DocBuf],
    /// The context of the operation.
    pub(crate) context: &'p Context,
    /// The function's state from earlier partitions.
    pub(crate) memory: &'p FunctionState,
}

/// The state that mongod's functions keep from one partition to the next.
#[derive(Default)]
pub(crate) struct FunctionState {
    /// Whether `$expMovingAvg` has read a decimal.
    met_decimal: Cell<bool>,
    /// The last value of the sort field that `$linearFill` has read.
    last_place: RefCell<Option<ValueBuf>>,
}

/// The parts of `sortBy` that functions need.
#[derive(Debug)]
pub(crate) struct SortBy {
    /// The path of the only field.
    pub(crate) path: Path,
    /// Whether greater values come first.
    pub(crate) descending: bool,
}

impl SortBy {
    /// Returns the only field of a sort document, if it has one.
    pub(crate) fn only(spec: Option<Doc<'_>>) -> Result<Option<SortBy>> {
        let mut fields = spec.unwrap_or(Doc::EMPTY).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Ok(None);
        };
        let descending = field.value.get().as_f64().is_some_and(|order| order < 0.0);
        Ok(Some(SortBy { path: Path::parse_of_expression(field.name)?, descending }))
    }
}

impl Partition<'_> {
    /// Returns the value of an expression for each document.
    fn values(&self, expression: &Expression) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(self.documents.len());
        for document in self.documents {
            arena.reset();
            let frame = Frame::new(document.as_doc(), &arena, self.context);
            values.push(expression.eval(&frame)?.map(kept).transpose()?);
        }
        Ok(values)
    }

    /// Returns the value of an expression for the document at `at`.
    fn value(&self, expression: &Expression, at: usize) -> Result<Option<ValueBuf>> {
        let arena = Arena::new();
        let frame = Frame::new(self.documents[at].as_doc(), &arena, self.context);
        expression.eval(&frame)?.map(kept).transpose()
    }

    /// As [`values`](Partition::values), but only for the documents in `wanted`: others are never
    /// computed, so they cannot fail.
    fn values_of(&self, expression: &Expression, wanted: &[bool]) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = vec![None; self.documents.len()];
        for ((document, value), _) in
            self.documents.iter().zip(&mut values).zip(wanted).filter(|(_, wanted)| **wanted)
        {
            arena.reset();
            let frame = Frame::new(document.as_doc(), &arena, self.context);
            *value = expression.eval(&frame)?.map(kept).transpose()?;
        }
        Ok(values)
    }

    /// As [`values_of`](Partition::values_of), for the documents that are in at least one window.
    fn values_in(
        &self,
        expression: &Expression,
        windows: &[Range<usize>],
    ) -> Result<Vec<Option<ValueBuf>>> {
        let seen = Partition::seen(windows);
        let wanted: Vec<bool> = (0..self.documents.len()).map(|at| seen.contains(&at)).collect();
        self.values_of(expression, &wanted)
    }

    /// The documents from the first to the last that is in a window.
    fn seen(windows: &[Range<usize>]) -> Range<usize> {
        let seen = windows.iter().filter(|window| !window.is_empty());
        let start = seen.clone().map(|window| window.start).min().unwrap_or(0);
        let end = seen.map(|window| window.end).max().unwrap_or(0);
        start..end
    }

    /// Returns the value at the path of `sortBy` for each document.
    fn sort_values(&self, sort_by: &SortBy) -> Result<Vec<Option<ValueBuf>>> {
        self.values(&Expression::Field(sort_by.path.clone()))
    }
}

/// Returns a value, or null if it is missing.
fn or_null(value: Option<ValueBuf>) -> ValueBuf {
    value.unwrap_or_else(|| Value::Null.to_buf())
}

/// Returns a name as text, which may not be UTF-8.
fn text(name: &[u8]) -> String {
    name.to_str_lossy().into_owned()
}

/// Returns a value to store as long as its partition exists.
///
/// Errors: those of an operation that must end, and of a server without memory for it.
fn kept(value: Value<'_>) -> Result<ValueBuf> {
    meter::spend(meter::CALL)?;
    let kept = value.to_buf();
    meter::spend_bytes(kept.as_raw().bytes().len())?;
    meter::check_room(kept.as_raw().bytes().len())?;
    Ok(kept)
}

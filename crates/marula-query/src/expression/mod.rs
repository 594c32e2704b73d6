//! Aggregation expressions such as `{ $add: ["$a", 1] }`, parsed once and evaluated on bytes.
//!
//! An [`Expression`] is a small tree of constants, field paths, variables and [`Operator`] calls.
//! It is parsed in a [`Scope`] (the visible variables) and evaluated in a [`Frame`] (the current
//! document, the variables' values, the arena). A result is `Option<Value>`: `None` is a missing
//! value, which differs from null. Computed values live in the frame's [`Arena`]; nothing is
//! cloned.
//!
//! Each file below `operators` is one family of the manual: a table of rows and a function per row.
//! Start with [`scope`], then [`frame`], then [`operator`].

mod angle;
pub(crate) mod calendar;
mod decimal_exact;
mod decimal_logarithm;
mod decimal_math;
pub(crate) mod decimal_power;
mod decimal_series;
mod decimal_steps;
pub mod frame;
mod list_search;
mod notes;
pub(crate) mod number;
pub mod operator;
pub(crate) mod operators;
mod parse;
pub mod path;
mod positions;
pub(crate) mod print;
mod quad;
mod ranges;
pub mod scope;
pub(crate) mod set;

use marula_bson::{RawValue, Value, ValueBuf};
use marula_error::{Result, errors};

pub use frame::{Arena, Frame};
pub use list_search::ListSearch;
pub use number::{saturated_long, short_double_text};
pub use operator::{Call, Operator};
pub use path::Path;
pub use ranges::Ranges;
pub use scope::Scope;

/// The names of all operators.
pub(crate) fn operator_names() -> Vec<&'static str> {
    operators::names()
}

use crate::context::Context;
use crate::meter;

errors! {
    /// A system variable that this operation does not have.
    variable_not_available(name: &str) = 51144, "Builtin variable '$${name}' is not available";
}

/// A parsed aggregation expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A value that is independent of the document.
    Constant(ValueBuf),
    /// An argument that was not given, or `$$REMOVE`: always missing.
    Missing,
    /// `"$a.b"`: a path from the root of the document.
    Field(Path),
    /// `"$$name.b"`: a variable, and a path into it.
    Variable(Variable, Path),
    /// `{ a: <expression>, … }`: a new document.
    Object(Box<[(Box<[u8]>, Expression)]>),
    /// `[ <expression>, … ]`: a new array.
    Array(Box<[Expression]>),
    /// An operator and its arguments.
    Call(Call),
    /// A `$switch` over ranges of a value.
    Ranges(Box<Ranges>),
    /// An `$in` or `$indexOfArray` of a constant list.
    ListSearch(Box<ListSearch>),
}

/// The meaning of a `$$` name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `$$ROOT`, and `$$CURRENT` unless it was redefined.
    Root {
        /// The one of the two that was written, for printing.
        name: &'static str,
    },
    /// `$$NOW`.
    Now,
    /// `$$CLUSTER_TIME`.
    ClusterTime,
    /// A system variable that only other kinds of operations define, such as `$$JS_SCOPE`.
    Unavailable(&'static str),
    /// A user variable.
    Bound {
        /// The number of bindings between this use and the variable's binding.
        up: usize,
        /// The name, for printing.
        name: Box<str>,
    },
}

impl Expression {
    /// Evaluates the expression on the frame's document; `None` is a missing value.
    pub fn eval<'a>(&'a self, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
        let value = match self {
            Expression::Field(path) => path.eval(frame.root, frame.arena)?,
            Expression::Constant(value) => Some(value.get()),
            Expression::Call(call) => {
                meter::spend(meter::CALL)?;
                (call.operator.eval)(&call.args, frame)?
            }
            Expression::Ranges(ranges) => ranges.eval(frame)?,
            Expression::ListSearch(search) => Some(search.eval(frame)?),
            Expression::Missing => None,
            Expression::Variable(variable, path) => match variable.eval(frame)? {
                Some(value) if !path.is_empty() => path.eval_value(value, frame.arena)?,
                value => value,
            },
            Expression::Object(fields) => Some(eval_object(fields, frame)?),
            Expression::Array(items) => Some(frame.arena.array_of(|out| {
                items.iter().try_for_each(|item| out.push(item.eval(frame)?.unwrap_or(Value::Null)))
            })?),
        };
        // The caller will read the value from start to end.
        match value {
            Some(Value::Array(doc) | Value::Document(doc)) => {
                meter::spend_bytes(doc.as_bytes().len())?;
            }
            Some(Value::String(text)) => meter::spend_bytes(text.len())?,
            _ => {}
        }
        Ok(value)
    }

    /// Evaluates the expression as a condition: missing, null, false and zero are false.
    pub fn eval_truth<'a>(&'a self, frame: &Frame<'a>) -> Result<bool> {
        Ok(self.eval(frame)?.is_some_and(|value| value.is_truthy()))
    }

    /// Replaces every part that is independent of the document by its value.
    ///
    /// Errors: those of evaluating such a part, which mongod too raises before it reads a document.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        match self {
            // The time is constant for the command, and has no fields.
            Expression::Variable(Variable::Now, path) => {
                *self = match path.is_empty() {
                    true => Value::DateTime(context.now_ms).into(),
                    false => Expression::Missing,
                };
                return Ok(());
            }
            Expression::Constant(_)
            | Expression::Missing
            | Expression::Field(_)
            | Expression::Variable(..)
            | Expression::Ranges(_)
            | Expression::ListSearch(_) => return Ok(()),
            Expression::Object(fields) => {
                fields.iter_mut().try_for_each(|(_, field)| field.optimize(context))?;
            }
            Expression::Array(items) => {
                items.iter_mut().try_for_each(|item| item.optimize(context))?;
            }
            Expression::Call(call) => {
                // mongod leaves everything below such a call as written, and with it the order of
                // errors.
                if call.operator.late {
                    return Ok(());
                }
                if call.operator.name == "$switch" {
                    *self = match operators::optimize_switch(call, context)? {
                        Some(decided) => decided,
                        None => match Ranges::of(call.take(), context) {
                            Ok(ranges) => Expression::Ranges(Box::new(ranges)),
                            Err(call) => Expression::Call(call),
                        },
                    };
                    return Ok(());
                }
                // The result expression of `$let` is its first argument, and is optimized last.
                let count = call.args.len();
                let first = usize::from(call.operator.name == "$let");
                for at in (first..count).chain(0..first) {
                    call.args[at].optimize(context)?;
                    // A constant of the wrong type is reported before errors in later arguments.
                    if let (Some(check), "$setEquals") = (call.operator.check, call.operator.name) {
                        check(&call.args[..=at])?;
                    }
                }
                call.gather_constants(context)?;
                if let Some(decided) = call.decided() {
                    *self = decided;
                    return Ok(());
                }
                if let Some(check) = call.operator.check {
                    check(&call.args)?;
                }
                if let (Some(prepared), false) = (call.operator.prepared, context.keeps_calls) {
                    call.operator = prepared;
                }
                if !call.operator.foldable {
                    return Ok(());
                }
            }
        }
        if let Expression::Call(call) = self
            && !context.keeps_calls
        {
            *self = match ListSearch::of(call.take(), context) {
                Ok(search) => Expression::ListSearch(Box::new(search)),
                Err(call) => Expression::Call(call),
            };
        }
        let mut constant = true;
        self.for_each_child(&mut |child| constant &= child.needs_no_document());
        // An array would lose the difference between missing and null, which some operators check.
        constant &= match self {
            Expression::Array(items) => {
                !items.iter().any(|item| matches!(item, Expression::Missing))
            }
            _ => true,
        };
        if constant {
            let arena = Arena::new();
            let frame = Frame::new(marula_bson::Doc::EMPTY, &arena, context);
            let value = self.eval(&frame)?.map(|value| value.to_buf());
            *self = value.map_or(Expression::Missing, Expression::Constant);
        }
        Ok(())
    }

    /// Returns whether the expression is a computed value, or an array of computed values.
    pub(crate) fn needs_no_document(&self) -> bool {
        match self {
            Expression::Constant(_) | Expression::Missing => true,
            Expression::Array(items) => items.iter().all(Expression::needs_no_document),
            _ => false,
        }
    }

    /// Calls `visit` with each direct part of the expression.
    pub fn for_each_child<'e>(&'e self, visit: &mut dyn FnMut(&'e Expression)) {
        match self {
            Expression::Constant(_)
            | Expression::Missing
            | Expression::Field(_)
            | Expression::Variable(..) => {}
            Expression::Object(fields) => fields.iter().for_each(|(_, field)| visit(field)),
            Expression::Array(items) => items.iter().for_each(visit),
            Expression::Call(call) => call.args.iter().for_each(visit),
            Expression::Ranges(ranges) => ranges.call().args.iter().for_each(visit),
            Expression::ListSearch(search) => search.call().args.iter().for_each(visit),
        }
    }

    /// Calls `visit` with every path from the root that the expression reads; an empty path is the
    /// whole document.
    pub fn for_each_path<'e>(&'e self, visit: &mut dyn FnMut(&'e Path)) {
        match self {
            Expression::Field(path) | Expression::Variable(Variable::Root { .. }, path) => {
                visit(path)
            }
            _ => self.for_each_child(&mut |child| child.for_each_path(visit)),
        }
    }

    /// The undecoded value of a constant.
    #[inline]
    pub fn as_raw_constant(&self) -> Option<RawValue<'_>> {
        match self {
            Expression::Constant(value) => Some(value.as_raw()),
            _ => None,
        }
    }

    /// Returns whether it uses the values that documents are sorted by, and so may need any field.
    pub(crate) fn uses_sort_key(&self) -> bool {
        let mut uses = self.metadata() == Some(b"sortKey");
        self.for_each_child(&mut |child| uses = uses || child.uses_sort_key());
        uses
    }

    /// The argument of a `$meta`.
    pub(crate) fn metadata(&self) -> Option<&[u8]> {
        match self {
            Expression::Call(call) if call.operator.name == "$meta" => match &call.args[0] {
                Expression::Constant(name) => name.get().as_str().map(|name| &**name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of a constant.
    pub fn as_constant(&self) -> Option<Value<'_>> {
        match self {
            Expression::Constant(value) => Some(value.get()),
            _ => None,
        }
    }
}

impl From<Value<'_>> for Expression {
    fn from(value: Value<'_>) -> Self {
        Expression::Constant(value.to_buf())
    }
}

impl Variable {
    fn eval<'a>(&self, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
        Ok(Some(match self {
            Variable::Root { .. } => Value::Document(frame.root),
            Variable::Bound { up, .. } => return Ok(frame.bound(*up)),
            Variable::Now => Value::DateTime(frame.context.now_ms),
            Variable::ClusterTime => match frame.context.cluster_time {
                Some(time) => Value::Timestamp(time),
                None => return Err(variable_not_available("CLUSTER_TIME")),
            },
            Variable::Unavailable(name) => return Err(variable_not_available(name)),
        }))
    }
}

/// Builds a document of the fields that are not missing.
fn eval_object<'a>(fields: &'a [(Box<[u8]>, Expression)], frame: &Frame<'a>) -> Result<Value<'a>> {
    frame.arena.document_of(|out| {
        for (name, field) in fields {
            if let Some(value) = field.eval(frame)? {
                out.push(name, value)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;

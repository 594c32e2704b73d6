//! The update operators: a row for each, and its effect on a value.
//!
//! An [`Operation`] is a parsed operator at one path. It has three methods: [`Operation::change`]
//! changes an existing value, [`Operation::make`] creates a missing one, and [`Operation::blocked`]
//! decides whether a path that cannot go on is an error.

mod array;
mod bit;
mod number;
mod pull;
mod push;
mod rename;
mod value;
mod value_set;

use std::fmt;

use bstr::BStr;
use marula_bson::{Doc, Element, RawValue, Type};
use marula_error::{Result, errors};

pub(super) use push::Effect;
pub(super) use rename::{add_rename_source, add_rename_target};
pub(super) use value::now_timestamp;

use super::stored;
use super::trail::Trail;
use super::walk::{Block, Walk, WriteStep};
use crate::context::Context;

errors! {
    /// A path leads into a scalar, for an operator that removes something.
    cannot_traverse(part: &BStr, path: &Trail<'_>, parent: Element<'_>) = PathNotViable, "Cannot use the part ({part}) of ({path}) to traverse the element ({{{parent}}})";
}

/// An operator's row: its name and the parser of its operand for one field.
pub(super) struct Operator {
    /// The name, such as `$set`.
    pub(super) name: &'static str,
    /// Parses the operand of one field.
    pub(super) parse: fn(Element<'_>, &Context) -> Result<Operation>,
}

/// All operators except `$rename`, which has two paths.
static OPERATORS: &[Operator] = &[
    Operator { name: "$set", parse: value::parse_set },
    Operator { name: "$setOnInsert", parse: value::parse_set_on_insert },
    Operator { name: "$unset", parse: value::parse_unset },
    Operator { name: "$currentDate", parse: value::parse_current_date },
    Operator { name: "$min", parse: value::parse_min },
    Operator { name: "$max", parse: value::parse_max },
    Operator { name: "$inc", parse: number::parse_inc },
    Operator { name: "$mul", parse: number::parse_mul },
    Operator { name: "$bit", parse: bit::parse },
    Operator { name: "$push", parse: push::parse },
    Operator { name: "$addToSet", parse: array::parse_add_to_set },
    Operator { name: "$pop", parse: array::parse_pop },
    Operator { name: "$pull", parse: pull::parse_pull },
    Operator { name: "$pullAll", parse: pull::parse_pull_all },
];

/// The names of all operators.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|operator| operator.name).chain(["$rename"])
}

/// Returns the operator with this name.
pub(super) fn find(name: &[u8]) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name.as_bytes() == name)
}

/// A parsed operator at one path.
#[derive(Debug)]
pub(super) enum Operation {
    /// `$set`.
    Set(value::Operand),
    /// `$setOnInsert`.
    SetOnInsert(value::Operand),
    /// `$unset`.
    Unset,
    /// `$currentDate`.
    CurrentDate(value::CurrentDate),
    /// `$min` and `$max`.
    Extreme(value::Extreme),
    /// `$inc` and `$mul`.
    Arithmetic(number::Arithmetic),
    /// `$bit`.
    Bit(bit::Bit),
    /// `$push`.
    Push(push::Push),
    /// `$addToSet`.
    AddToSet(array::AddToSet),
    /// `$pop`.
    Pop(array::Pop),
    /// `$pull` and `$pullAll`.
    Pull(pull::Pull),
    /// `$rename`, at the new path.
    RenameTo(rename::RenameTo),
    /// `$rename`, at the old path.
    RenameFrom,
}

impl Operation {
    /// Decides the effect on a value. A new value is appended to `out`.
    pub(super) fn change(
        &self,
        walk: &mut Walk<'_>,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        match self {
            Operation::Set(operand) => Ok(operand.change(old, out)),
            Operation::SetOnInsert(operand) if walk.is_insert => Ok(operand.change(old, out)),
            Operation::SetOnInsert(_) => Ok(WriteStep::Keep),
            Operation::Unset | Operation::RenameFrom => Ok(WriteStep::Remove),
            Operation::CurrentDate(moment) => Ok(WriteStep::Write(moment.write(walk, out))),
            Operation::Extreme(extreme) => Ok(extreme.change(walk, old, out)),
            Operation::Arithmetic(arithmetic) => arithmetic.change(walk, old, at, out),
            Operation::Bit(bit) => bit.change(walk, old, at, out),
            Operation::Push(push) => push.change(walk, old, at, out),
            Operation::AddToSet(add) => add.change(walk, old, at, out),
            Operation::Pop(pop) => pop.change(old, at, out),
            Operation::Pull(pull) => pull.change(walk, old, out),
            Operation::RenameTo(rename) => rename.change(walk, old, out),
        }
    }

    /// Appends the value that the operator creates if there is none; returns its type, or `None` if
    /// it creates none.
    pub(super) fn make(&self, walk: &mut Walk<'_>, out: &mut Vec<u8>) -> Result<Option<Type>> {
        Ok(match self {
            Operation::Set(operand) => Some(operand.write(out)),
            Operation::SetOnInsert(operand) => walk.is_insert.then(|| operand.write(out)),
            Operation::CurrentDate(moment) => Some(moment.write(walk, out)),
            Operation::Extreme(extreme) => Some(extreme.operand.write(out)),
            Operation::Arithmetic(arithmetic) => Some(arithmetic.make(out)),
            Operation::Bit(bit) => Some(bit.make(out)),
            Operation::Push(push) => Some(push.make(walk, out)?),
            Operation::AddToSet(add) => Some(add.make(out)),
            Operation::RenameTo(rename) => rename.make(walk, out)?,
            Operation::Unset | Operation::RenameFrom | Operation::Pop(_) | Operation::Pull(_) => {
                None
            }
        })
    }

    /// Decides whether it is an error that the path reaches a value that it cannot enter.
    pub(super) fn blocked(
        &self,
        walk: &mut Walk<'_>,
        block: &Block<'_>,
        at: &Trail<'_>,
    ) -> Result<()> {
        match self {
            Operation::Unset | Operation::RenameFrom => Ok(()),
            Operation::SetOnInsert(_) if !walk.is_insert => Ok(()),
            Operation::Pop(_) | Operation::Pull(_) => {
                Err(cannot_traverse(block.part.into(), at, block.parent))
            }
            Operation::RenameTo(rename) if rename.find(walk)?.is_none() => Ok(()),
            _ => Err(block.cannot_create()),
        }
    }

    /// Returns the number of parts of the longest path in the value that the operator may have put
    /// into `written`.
    pub(super) fn inner_depth(&self, written: RawValue<'_>) -> usize {
        match self {
            Operation::Set(operand) | Operation::SetOnInsert(operand) => operand.inner_depth,
            Operation::Extreme(extreme) => extreme.operand.inner_depth,
            Operation::Push(push) => 1 + push.inner_depth,
            Operation::AddToSet(add) => 1 + add.inner_depth,
            Operation::RenameTo(_) => stored::inner_depth(written),
            _ => 0,
        }
    }
}

/// The `_id` of a document in the form of messages: `{_id: 1}` without the braces.
struct IdOf<'d> {
    doc: Doc<'d>,
    missing: &'static str,
}

impl<'d> IdOf<'d> {
    fn of(doc: Doc<'d>) -> Self {
        IdOf { doc, missing: "no id" }
    }
}

impl fmt::Display for IdOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.doc.get("_id") {
            Some(id) => write!(f, "_id: {id}"),
            None => f.write_str(self.missing),
        }
    }
}

//! Matches a filter against a document's bytes.
//!
//! Matching allocates nothing. A path with one part, by far the most common, is a direct lookup;
//! others are walked. `position` is the array index for a positional `$`: every condition that
//! matches within an array sets it, so the last one wins.

use std::ops::ControlFlow;

use marula_bson::order::{canonical_class, compare};
use marula_bson::{Collator, Doc, FieldPath, RawValue, Type, Value};
use marula_error::Result;

use super::bits;
use super::geo;
use super::modulo;
use super::node::{Compare, CompareOp, Node, PathNode, Predicate};
use crate::meter;

/// The state of a match.
pub(super) struct Matcher<'m> {
    /// The comparison of strings, unless it is binary.
    pub(super) collator: Option<&'m dyn Collator>,
    /// The array index set last.
    pub(super) position: Option<usize>,
}

impl Matcher<'_> {
    /// Returns whether the node is true for the document.
    pub(super) fn node(&mut self, node: &Node, doc: Doc<'_>) -> Result<bool> {
        match node {
            Node::Path(PathNode { path, predicate: Predicate::InternalExpr(constant) }) => {
                Ok(orders_at(path, constant, doc, self.collator))
            }
            Node::Path(at) => self.path(&at.path, &at.predicate, doc),
            Node::And(children) => self.all(children, doc),
            // The branch that matched is not defined, so branches do not set the position.
            Node::Or(children) => self.silent(|m| m.any(children, doc)),
            Node::Nor(children) => self.silent(|m| m.any(children, doc)).map(|any| !any),
            Node::Not(child) => self.silent(|m| m.node(child, doc)).map(|matched| !matched),
            Node::Expr(expr) => expr.matches(doc),
            Node::Schema(schema) => {
                let matched = schema.matches(doc);
                if matched {
                    self.note(schema.position(doc));
                }
                Ok(matched)
            }
            Node::Where(code) => code.matches(doc),
            Node::Text(text) => text.matches(doc),
            Node::AlwaysTrue => Ok(true),
            Node::AlwaysFalse => Ok(false),
        }
    }

    fn all(&mut self, children: &[Node], doc: Doc<'_>) -> Result<bool> {
        // Finding the field is most of the work, and a range has two conditions on it.
        let mut last: Option<(&[u8], Option<RawValue<'_>>)> = None;
        for child in children {
            meter::spend(meter::ELEMENT)?;
            let matched = match child {
                Node::Path(at) if at.path.is_single() => {
                    meter::spend_bytes(doc.as_bytes().len())?;
                    let name = at.path.first();
                    let value = match last {
                        Some((known, value)) if known == name => value,
                        _ => doc.get_raw(name),
                    };
                    last = Some((name, value));
                    self.field(&at.predicate, value)?
                }
                other => self.node(other, doc)?,
            };
            if !matched {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn any(&mut self, children: &[Node], doc: Doc<'_>) -> Result<bool> {
        for child in children {
            if self.node(child, doc)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs `part` without changing the position.
    fn silent<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        let position = self.position;
        let result = part(self);
        self.position = position;
        result
    }

    /// Tests the predicate on a field of the document, which may be missing.
    #[inline]
    fn field(&mut self, predicate: &Predicate, value: Option<RawValue<'_>>) -> Result<bool> {
        match predicate {
            Predicate::Not(inner) => self.silent(|m| m.field(inner, value)).map(|matched| !matched),
            Predicate::All(list) => {
                for inner in list {
                    if !self.field(inner, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => match value {
                Some(value) => self.leaf(predicate, value, true, None),
                None => Ok(holds_for_missing(predicate)),
            },
        }
    }

    fn path(&mut self, path: &FieldPath, predicate: &Predicate, doc: Doc<'_>) -> Result<bool> {
        meter::spend(meter::ELEMENT)?;
        meter::spend_bytes(doc.as_bytes().len())?;
        if path.is_single() {
            return self.field(predicate, path.first_field(doc));
        }
        match predicate {
            Predicate::Not(inner) => {
                return self.silent(|m| m.path(path, inner, doc)).map(|matched| !matched);
            }
            Predicate::All(list) => {
                for inner in list {
                    if !self.path(path, inner, doc)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            _ => {}
        }
        let walked = path.walk(doc, |leaf| {
            let matched = match leaf.value {
                Some(value) => self.leaf(predicate, value, leaf.expands, leaf.outer_index),
                None => {
                    let holds = holds_for_missing(predicate);
                    if holds {
                        self.note(leaf.outer_index);
                    }
                    Ok(holds)
                }
            };
            match matched {
                Ok(false) => ControlFlow::Continue(()),
                decided => ControlFlow::Break(decided),
            }
        });
        match walked {
            ControlFlow::Break(decided) => decided,
            ControlFlow::Continue(()) => Ok(false),
        }
    }

    /// Tests the predicate on the value at the end of a path: first on an array's elements, then on
    /// the value.
    fn leaf(
        &mut self,
        predicate: &Predicate,
        value: RawValue<'_>,
        expands: bool,
        outer_index: Option<usize>,
    ) -> Result<bool> {
        if value.kind() == Type::Array && expands && predicate.tries_elements() {
            meter::spend_bytes(value.bytes().len())?;
            for (index, element) in Doc::trusted(value.bytes()).iter().enumerate() {
                meter::spend(meter::ELEMENT)?;
                if self.single(predicate, element.value)? {
                    self.note(outer_index.or(Some(index)));
                    return Ok(true);
                }
            }
        }
        let matched = self.single(predicate, value)?;
        if matched {
            self.note(outer_index);
        }
        Ok(matched)
    }

    fn note(&mut self, index: Option<usize>) {
        if index.is_some() {
            self.position = index;
        }
    }

    /// Tests the predicate on one value, without entering arrays.
    #[inline]
    fn single(&mut self, predicate: &Predicate, value: RawValue<'_>) -> Result<bool> {
        Ok(match predicate {
            Predicate::Compare(constant) => compares(constant, value, self.collator),
            Predicate::InternalExpr(constant) => {
                value.kind() == Type::Array || orders(constant, value.get(), self.collator)
            }
            Predicate::In(list) => list.contains(value, self.collator),
            Predicate::Regex(regex) => regex.matches_value(value),
            Predicate::Exists => true,
            Predicate::Type(types) => types.contains(value.kind()),
            Predicate::Mod { divisor, remainder } => {
                modulo::matches(value.get(), *divisor, *remainder)
            }
            Predicate::Size(size) => {
                value.kind() == Type::Array
                    && i64::try_from(Doc::trusted(value.bytes()).iter().count()) == Ok(*size)
            }
            Predicate::Bits(test) => bits::matches(test, value.get()),
            Predicate::Geo(test) => geo::matches(test, value.get()),
            Predicate::BucketGeo(_) | Predicate::Near(_) => true,
            Predicate::ElemMatchObject(filter) => return self.elem_match_object(filter, value),
            Predicate::ElemMatchValue(list) => return self.elem_match_value(list, value),
            Predicate::Not(inner) => {
                return self.silent(|m| m.single(inner, value)).map(|matched| !matched);
            }
            Predicate::All(list) => return self.single_all(list, value),
            Predicate::AlwaysFalse => false,
        })
    }

    fn single_all(&mut self, list: &[Predicate], value: RawValue<'_>) -> Result<bool> {
        for inner in list {
            meter::spend(meter::ELEMENT)?;
            if !self.single(inner, value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn elem_match_object(&mut self, filter: &Node, value: RawValue<'_>) -> Result<bool> {
        if value.kind() != Type::Array {
            return Ok(false);
        }
        for (index, element) in Doc::trusted(value.bytes()).iter().enumerate() {
            meter::spend(meter::ELEMENT)?;
            // An array within the array counts as a document whose names are the indexes.
            if !matches!(element.value.kind(), Type::Document | Type::Array) {
                continue;
            }
            let inner = Doc::trusted(element.value.bytes());
            if self.silent(|m| m.node(filter, inner))? {
                self.position = Some(index);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn elem_match_value(&mut self, list: &[Predicate], value: RawValue<'_>) -> Result<bool> {
        if value.kind() != Type::Array {
            return Ok(false);
        }
        for (index, element) in Doc::trusted(value.bytes()).iter().enumerate() {
            meter::spend(meter::ELEMENT)?;
            if self.silent(|m| m.single_all(list, element.value))? {
                self.position = Some(index);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Predicate {
    /// Returns whether the elements of an array at the end of the path are tested.
    fn tries_elements(&self) -> bool {
        !matches!(
            self,
            Predicate::Size(_)
                | Predicate::ElemMatchObject(_)
                | Predicate::ElemMatchValue(_)
                | Predicate::InternalExpr(_)
        )
    }
}

/// Returns whether the predicate holds where the path ends too early.
fn holds_for_missing(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(constant) => holds_for_nothing(constant),
        Predicate::InternalExpr(constant) => expr_holds_for_missing(constant),
        Predicate::In(list) => list.has_null(),
        Predicate::BucketGeo(_) | Predicate::Near(_) => true,
        _ => false,
    }
}

/// Returns whether a comparison of an expression holds for a missing value, which sorts before all
/// values except MinKey.
fn expr_holds_for_missing(constant: &Compare) -> bool {
    match constant.op {
        CompareOp::Eq => false,
        CompareOp::Lt | CompareOp::Lte => true,
        CompareOp::Gt | CompareOp::Gte => constant.value.kind() == Type::MinKey,
    }
}

/// Returns whether the comparison holds in the order of all values.
fn orders(constant: &Compare, value: Value<'_>, collator: Option<&dyn Collator>) -> bool {
    let order = marula_bson::order::compare(value, constant.value.get(), collator);
    constant.op.holds(order)
}

/// Same as [`orders`], for the value at the end of a path.
fn orders_at(
    path: &FieldPath,
    constant: &Compare,
    mut doc: Doc<'_>,
    collator: Option<&dyn Collator>,
) -> bool {
    let Some((last, way)) = path.parts().split_last() else { return true };
    for name in way {
        match doc.get_raw(name).map(RawValue::get) {
            Some(Value::Document(inner)) => doc = inner,
            // An expression evaluates this to an array.
            Some(Value::Array(_)) => return true,
            _ => return expr_holds_for_missing(constant),
        }
    }
    match doc.get_raw(last).map(RawValue::get) {
        Some(Value::Array(_)) => true,
        Some(value) => orders(constant, value, collator),
        None => expr_holds_for_missing(constant),
    }
}

/// Returns whether a comparison holds for a missing or undefined value; both compare like null.
fn holds_for_nothing(constant: &Compare) -> bool {
    match constant.value.kind() {
        Type::Null => matches!(constant.op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte),
        Type::MinKey | Type::MaxKey => holds_beside_end(constant),
        _ => false,
    }
}

/// Returns whether a comparison with MinKey or MaxKey holds for another value. Unlike other
/// constants, these compare with values of every class, and with missing values.
fn holds_beside_end(constant: &Compare) -> bool {
    match constant.op {
        CompareOp::Eq => false,
        CompareOp::Gt | CompareOp::Gte => constant.value.kind() == Type::MinKey,
        CompareOp::Lt | CompareOp::Lte => constant.value.kind() == Type::MaxKey,
    }
}

/// Returns whether the comparison holds; only values of the same class compare.
#[inline]
pub(crate) fn compares(
    constant: &Compare,
    value: RawValue<'_>,
    collator: Option<&dyn Collator>,
) -> bool {
    let kind = constant.value.kind();
    let wanted = constant.value.as_raw();
    if constant.op == CompareOp::Eq && value.kind() == kind {
        if value.bytes() == wanted.bytes() {
            return true;
        }
        if equality_is_bytes(kind, collator) {
            return false;
        }
    } else if canonical_class(value.kind()) != canonical_class(kind) {
        return match kind {
            Type::MinKey | Type::MaxKey => holds_beside_end(constant),
            Type::Null if value.kind() == Type::Undefined => holds_for_nothing(constant),
            _ => false,
        };
    }
    let (value, wanted) = (value.get(), wanted.get());
    if is_nan(value) || is_nan(wanted) {
        return is_nan(value)
            && is_nan(wanted)
            && !matches!(constant.op, CompareOp::Lt | CompareOp::Gt);
    }
    let order = compare(value, wanted, collator);
    constant.op.holds(order)
}

/// Returns whether values of the type are equal only if their bytes are equal.
fn equality_is_bytes(kind: Type, collator: Option<&dyn Collator>) -> bool {
    match kind {
        Type::String => collator.is_none(),
        Type::Int32 | Type::Int64 | Type::ObjectId | Type::DateTime | Type::Timestamp => true,
        _ => false,
    }
}

fn is_nan(value: Value<'_>) -> bool {
    match value {
        Value::Double(number) => number.is_nan(),
        Value::Decimal128(number) => number.is_nan(),
        _ => false,
    }
}

//! An update by operators: `{ $set: { … }, $inc: { … } }`.

use std::sync::Arc;

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, Element, FieldPath, Value};
use marula_error::{Result, errors};

use super::array_filter::ArrayFilter;
use super::operator::{self, Operation};
use super::path::{self, Part};
use super::tree::Fields;
use super::walk::Walk;
use super::{Matched, Touched};
use crate::context::Context;

errors! {
    /// A top-level field is not an operator.
    unknown_operator(name: &BStr) = FailedToParse, "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array";
    /// An operator's operand is not an object.
    operand_not_an_object(name: &BStr, value: Value<'_>, kind: &str) = FailedToParse, "Modifiers operate on fields but we found type {kind} instead. For example: {{$mod: {{<field>: ...}}}} not {{{name}: {value}}}";
    /// `$[id]` names no array filter.
    unknown_identifier(id: &BStr, path: &BStr) = BadValue, "No array filter found for identifier '{id}' in path '{path}'";
    /// No path uses an array filter.
    unused_identifier(id: &BStr, update: Doc<'_>) = FailedToParse, "The array filter for identifier '{id}' was not used in the update {update}";
}

/// Returns whether a document contains operators and is not a replacement.
pub(super) fn begins_with_operator(doc: Doc<'_>) -> bool {
    doc.iter().next().is_some_and(|first| first.name.starts_with(b"$"))
}

/// Parsed operators.
#[derive(Debug)]
pub(super) struct Operators {
    tree: Fields,
    array_filters: Vec<ArrayFilter>,
    touched: Touched,
}

/// The state of the parser.
struct Parser<'c> {
    context: &'c Context,
    tree: Fields,
    array_filters: Vec<ArrayFilter>,
    used: Vec<Box<[u8]>>,
    touched: Vec<FieldPath>,
}

impl Operators {
    pub(super) fn parse(
        doc: Doc<'_>,
        array_filters: Vec<ArrayFilter>,
        context: &Context,
    ) -> Result<Operators> {
        let mut parser = Parser {
            context,
            tree: Fields::default(),
            array_filters,
            used: Vec::new(),
            touched: Vec::new(),
        };
        for element in doc {
            parser.operator(element)?;
        }
        for filter in &parser.array_filters {
            if !parser.used.contains(&filter.id) {
                return Err(unused_identifier(filter.id.as_bstr(), doc));
            }
        }
        parser.tree.finish();
        Ok(Operators {
            tree: parser.tree,
            array_filters: parser.array_filters,
            touched: Touched::Paths(Arc::from(parser.touched)),
        })
    }

    /// Returns the operators by path.
    pub(super) fn tree(&self) -> &Fields {
        &self.tree
    }

    pub(super) fn array_filters(&self) -> &[ArrayFilter] {
        &self.array_filters
    }

    pub(super) fn needs_position(&self) -> bool {
        self.tree.uses_position()
    }

    /// Returns whether an operator that adds elements to an array is at the field.
    pub(super) fn adds_elements(&self, name: &[u8]) -> bool {
        self.tree.leaf(name).is_some_and(|operation| {
            matches!(operation, Operation::Push(_) | Operation::AddToSet(_))
        })
    }

    pub(super) fn touched(&self) -> Touched {
        self.touched.clone()
    }

    /// Appends the updated document; returns whether it counts as modified.
    pub(super) fn apply(
        &self,
        doc: Doc<'_>,
        matched: &Matched,
        context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let id_is_fixed = true;
        self.run(doc, matched.position, context, false, id_is_fixed, out)
    }

    /// Appends the result of the operators on an upsert's base document.
    pub(super) fn apply_to_insert(
        &self,
        doc: Doc<'_>,
        context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let id_is_fixed = doc.get_raw(b"_id").is_some();
        self.run(doc, None, context, true, id_is_fixed, out)?;
        Ok(())
    }

    fn run(
        &self,
        doc: Doc<'_>,
        position: Option<usize>,
        context: &Context,
        is_insert: bool,
        id_is_fixed: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.reserve(doc.as_bytes().len() + 64);
        let mut walk = Walk {
            root: doc,
            position,
            is_insert,
            id_is_fixed,
            context,
            array_filters: &self.array_filters,
            scratch: Vec::new(),
        };
        walk.document(&self.tree, doc, None, out)
    }
}

impl Parser<'_> {
    fn operator(&mut self, element: Element<'_>) -> Result<()> {
        let is_rename = element.name == "$rename";
        let operator = operator::find(element.name);
        if !is_rename && operator.is_none() {
            return Err(unknown_operator(element.name));
        }
        let Value::Document(fields) = element.value.get() else {
            let value = element.value.get();
            return Err(operand_not_an_object(element.name, value, value.kind().alias()));
        };
        for field in fields {
            match operator {
                Some(operator) => self.field(operator, field)?,
                None => self.rename(field)?,
            }
        }
        Ok(())
    }

    fn rename(&mut self, field: Element<'_>) -> Result<()> {
        let parts = operator::add_rename_source(&mut self.tree, field)?;
        self.identifiers(&parts, field.name)?;
        let target = operator::add_rename_target(&mut self.tree, field)?;
        self.touched.push(FieldPath::new(field.name));
        self.touched.push(FieldPath::new(target));
        Ok(())
    }

    fn field(&mut self, operator: &operator::Operator, field: Element<'_>) -> Result<()> {
        path::check_names(field.name)?;
        let leaf = (operator.parse)(field, self.context)?;
        let parts = path::parts(field.name)?;
        self.tree.add(field.name, &parts, leaf)?;
        self.identifiers(&parts, field.name)?;
        self.touched.push(FieldPath::new(field.name));
        Ok(())
    }

    fn identifiers(&mut self, parts: &[Part<'_>], path: &BStr) -> Result<()> {
        for part in parts {
            if let Part::Elements(id) = *part {
                self.identifier(id, path)?;
            }
        }
        Ok(())
    }

    fn identifier(&mut self, id: &[u8], path: &BStr) -> Result<()> {
        if id.is_empty() || self.used.iter().any(|used| **used == *id) {
            return Ok(());
        }
        if !self.array_filters.iter().any(|filter| *filter.id == *id) {
            return Err(unknown_identifier(id.as_bstr(), path));
        }
        self.used.push(id.into());
        Ok(())
    }
}

//! Fields that a stage writes into a document: those of `$addFields`, and single ones of `$unwind`
//! and others.
//!
//! A [`FieldTree`] is the specification as a tree by the parts of its paths. If a document has an
//! array on the path, the fields are written into each of its elements; a scalar on the path is
//! replaced by a document.

use std::convert::Infallible;

use bstr::ByteSlice;
use marula_bson::{ArrayWriter, Doc, DocWriter, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::needs::Needs;
use super::passage::Passage;
use crate::context::Context;
use crate::expression::frame::check_room;
use crate::expression::path::check_field_name;
use crate::expression::{Expression, Frame, Path, Scope, print};
use crate::field_map::{FieldMap, Met};
use crate::meter;

errors! {
    conflict(new: &str, earlier: &str, spec: &str) = 40176, "specification contains two conflicting paths. Cannot specify both '{new}' and '{earlier}': {spec}";
    empty_object(path: &str) = 40180, "an empty object is not a valid value. Found empty object at path {path}";
    not_one_field(found: &str, count: usize, spec: &str) = 40181, "an expression specification must contain exactly one field, the name of the expression. Found {count} fields in {found}, while parsing object {spec}";
    dotted_in_sub_object(name: &str, spec: &str) = 40183, "cannot use dotted field name '{name}' in a sub object: {spec}";
}

/// Fields to write, by the parts of their paths.
#[derive(Debug, Default)]
pub(crate) struct FieldTree {
    fields: FieldMap<FieldNode>,
}

#[derive(Debug)]
enum FieldNode {
    Leaf(Expression),
    Inner(FieldTree),
}

/// The computed values of the fields of one level, for one document.
enum Computed<'a> {
    /// An error is reported where the value is written: an empty array on the path reports none.
    Leaf(Result<Option<Value<'a>>>),
    Inner(Vec<Computed<'a>>),
}

/// Parses the value at the end of a path; `None` if only the paths are looked at.
type Leaf = Option<fn(Value<'_>, &mut Scope<'_>) -> Result<Expression>>;

/// The expression at the end of a path.
fn read(leaf: Leaf, value: Value<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
    leaf.map_or(Ok(Expression::Missing), |parse| parse(value, scope))
}

impl FieldTree {
    /// Parses `{ "a.b": <expression>, c: { d: <expression> } }`.
    pub(crate) fn parse(spec: Doc<'_>, scope: &mut Scope<'_>) -> Result<FieldTree> {
        // Conflicting paths are reported before errors of expressions and nested paths.
        FieldTree::parse_with(spec, scope, None)?;
        FieldTree::parse_with(spec, scope, Some(Expression::parse))
    }

    /// Creates a tree of one top-level field.
    pub(crate) fn of_one(name: &str, value: Expression) -> FieldTree {
        let mut tree = FieldTree::default();
        tree.fields.push(name.as_bytes(), FieldNode::Leaf(value));
        tree
    }

    fn parse_with(spec: Doc<'_>, scope: &mut Scope<'_>, leaf: Leaf) -> Result<FieldTree> {
        let mut tree = FieldTree::default();
        for element in spec {
            let path = Path::parse(element.name)?;
            let text = element.name.to_str_lossy().into_owned();
            tree.parse_value(path.parts(), &text, element.value.get(), spec, scope, leaf)?;
        }
        Ok(tree)
    }

    fn parse_value(
        &mut self,
        parts: &[Box<[u8]>],
        text: &str,
        value: Value<'_>,
        spec: Doc<'_>,
        scope: &mut Scope<'_>,
        leaf: Leaf,
    ) -> Result<()> {
        let Value::Document(doc) = value else {
            return self.insert(parts, text, read(leaf, value, scope)?, spec);
        };
        let mut names = doc.iter().map(|element| element.name);
        if doc.is_empty() {
            return Err(empty_object(text));
        }
        if names.any(|name| name.starts_with(b"$")) {
            let count = doc.iter().count();
            if count > 1 {
                return Err(not_one_field(&print::document(doc), count, &print::document(spec)));
            }
            return self.insert(parts, text, read(leaf, value, scope)?, spec);
        }
        for element in doc {
            if element.name.contains(&b'.') {
                let name = element.name.to_str_lossy();
                return Err(dotted_in_sub_object(&name, &print::document(spec)));
            }
            check_field_name(element.name)?;
            let mut inner = parts.to_vec();
            inner.push(element.name.to_vec().into());
            if leaf.is_some() {
                // mongod counts one part more than in a path with dots.
                Path::check_length(inner.len() + 1)?;
            }
            let text = format!("{text}.{}", element.name);
            scope.nested(|scope| {
                self.parse_value(&inner, &text, element.value.get(), spec, scope, leaf)
            })?;
        }
        Ok(())
    }

    fn insert(
        &mut self,
        parts: &[Box<[u8]>],
        text: &str,
        leaf: Expression,
        spec: Doc<'_>,
    ) -> Result<()> {
        let Some((first, rest)) = parts.split_first() else {
            return Ok(());
        };
        let at = self.fields.find(first);
        if rest.is_empty() {
            if let Some(at) = at {
                let mut earlier = text.to_owned();
                self.fields.entries()[at].1.first_path(&mut earlier);
                return Err(conflict(text, &earlier, &print::document(spec)));
            }
            self.fields.push(first, FieldNode::Leaf(leaf));
            return Ok(());
        }
        let at = at.unwrap_or_else(|| {
            self.fields.push(first, FieldNode::Inner(FieldTree::default()));
            self.fields.len() - 1
        });
        match self.fields.item_mut(at) {
            FieldNode::Inner(tree) => tree.insert(rest, text, leaf, spec),
            FieldNode::Leaf(_) => {
                let shorter = &text[..text.len() - rest.join(&b'.').len() - 1];
                Err(conflict(text, shorter, &print::document(spec)))
            }
        }
    }

    /// Computes the parts that need no document.
    pub(crate) fn optimize(&mut self, context: &Context) -> Result<()> {
        // Of several failures, one of this level is reported before those of inner levels.
        for node in self.fields.items_mut() {
            if let FieldNode::Leaf(leaf) = node {
                leaf.optimize(context)?;
            }
        }
        self.fields.items_mut().try_for_each(|node| match node {
            FieldNode::Leaf(_) => Ok(()),
            FieldNode::Inner(tree) => tree.optimize(context),
        })
    }

    /// Records the fields that the expressions read, and those that others are written into.
    pub(crate) fn reads(&self, needs: &mut Needs) {
        for (name, node) in self.fields.entries() {
            match node {
                FieldNode::Leaf(leaf) => needs.expression(leaf),
                FieldNode::Inner(tree) => {
                    needs.field(name);
                    tree.reads_below(needs);
                }
            }
        }
    }

    fn reads_below(&self, needs: &mut Needs) {
        for (_, node) in self.fields.entries() {
            match node {
                FieldNode::Leaf(leaf) => needs.expression(leaf),
                FieldNode::Inner(tree) => tree.reads_below(needs),
            }
        }
    }

    /// Returns which fields of a document are unchanged, and which are copies of others.
    pub(crate) fn passage(&self) -> Passage {
        let mut passage = Passage::all_but_named();
        for (name, node) in self.fields.entries() {
            passage.name(name);
            if let FieldNode::Leaf(leaf) = node {
                passage.renames_to(name, leaf);
            }
        }
        passage
    }

    /// Writes the frame's document with the fields into `out`, which is cleared first.
    pub(crate) fn apply<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()> {
        let computed = self.compute(frame);
        // Of several failures the specification's first is reported, whatever the order of the
        // document's fields.
        self.first_failure(Value::Document(frame.root), &computed)?;
        out.clear();
        self.write(frame.root, &computed, &mut DocWriter::new(out))
    }

    /// Computes all expressions before the first value is written, because all read the document
    /// before the change.
    fn compute<'a>(&'a self, frame: &Frame<'a>) -> Vec<Computed<'a>> {
        self.fields
            .entries()
            .iter()
            .map(|(_, node)| match node {
                FieldNode::Leaf(leaf) => Computed::Leaf(leaf.eval(frame)),
                FieldNode::Inner(tree) => Computed::Inner(tree.compute(frame)),
            })
            .collect()
    }

    /// Returns the error of the first value that fails and is written into `base`.
    fn first_failure(&self, base: Value<'_>, computed: &[Computed<'_>]) -> Result<()> {
        if let Value::Array(items) = base {
            let mut items = items.values();
            let item = items.find(|item| takes_fields(*item));
            return item.map_or(Ok(()), |item| self.first_failure(item, computed));
        }
        self.fields.entries().iter().zip(computed).try_for_each(|((name, node), computed)| {
            match (node, computed) {
                (_, Computed::Leaf(Err(error))) => Err(error.clone()),
                (FieldNode::Inner(tree), Computed::Inner(inner)) => {
                    let below = base.as_doc().and_then(|doc| doc.get(name)).unwrap_or(Value::Null);
                    tree.first_failure(below, inner)
                }
                _ => Ok(()),
            }
        })
    }

    fn write(
        &self,
        base: Doc<'_>,
        computed: &[Computed<'_>],
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        let mut met = Met::none_of(self.fields.len());
        out.append_changed(
            base,
            |field| {
                meter::spend(meter::ELEMENT)?;
                Ok(self.fields.find(field.name))
            },
            |at, field, out| {
                met.note(at);
                self.write_field(at, Some(field.value), &computed[at], out)
            },
        )?;
        for (at, value) in computed.iter().enumerate().filter(|(at, _)| !met.has(*at)) {
            self.write_field(at, None, value, out)?;
        }
        Ok(())
    }

    fn write_field(
        &self,
        at: usize,
        base: Option<RawValue<'_>>,
        computed: &Computed<'_>,
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        let (name, node) = &self.fields.entries()[at];
        match (node, computed) {
            (_, Computed::Leaf(Ok(None))) => {}
            (_, Computed::Leaf(Ok(Some(value)))) => {
                check_room(out.buffered(), *value)?;
                out.append(name, *value);
            }
            (_, Computed::Leaf(Err(error))) => return Err(error.clone()),
            (FieldNode::Inner(tree), Computed::Inner(inner)) => match base.map(RawValue::get) {
                Some(Value::Array(items)) => {
                    let mut list = out.begin_array(name);
                    tree.write_items(items, inner, &mut list)?;
                }
                Some(Value::Document(doc)) => tree.write(doc, inner, &mut out.begin_doc(name))?,
                _ => tree.write(Doc::EMPTY, inner, &mut out.begin_doc(name))?,
            },
            (FieldNode::Leaf(_), Computed::Inner(_)) => {}
        }
        Ok(())
    }

    fn write_items(
        &self,
        items: Doc<'_>,
        computed: &[Computed<'_>],
        out: &mut ArrayWriter<'_>,
    ) -> Result<()> {
        for item in items.values() {
            match item {
                Value::Array(nested) => {
                    self.write_items(nested, computed, &mut out.begin_array())?;
                }
                Value::Document(doc) => self.write(doc, computed, &mut out.begin_doc())?,
                _ => self.write(Doc::EMPTY, computed, &mut out.begin_doc())?,
            }
        }
        Ok(())
    }

    /// Returns the fields in the form that `explain` shows.
    pub(crate) fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            for (name, node) in self.fields.entries() {
                match node {
                    FieldNode::Leaf(leaf) => out.append(name, &leaf.print()),
                    FieldNode::Inner(tree) => out.append(name, &tree.print()),
                };
            }
        })
    }
}

impl FieldNode {
    /// Appends the path that comes first by the bytes of its parts, whatever the order of the
    /// text.
    fn first_path(&self, out: &mut String) {
        if let FieldNode::Inner(tree) = self
            && let Some((name, node)) =
                tree.fields.entries().iter().min_by(|one, other| one.0.cmp(&other.0))
        {
            out.push('.');
            out.push_str(&name.to_str_lossy());
            node.first_path(out);
        }
    }
}

/// Returns whether fields are written into a value at all: an array without elements takes none.
fn takes_fields(value: Value<'_>) -> bool {
    match value {
        Value::Array(items) => items.values().any(takes_fields),
        _ => true,
    }
}

/// Copies `doc` into `out` with `value` at `path`: documents on the path are entered, and any other
/// value there is replaced.
pub(crate) fn write_with(
    doc: Doc<'_>,
    path: &[Box<[u8]>],
    value: Option<Value<'_>>,
    out: &mut DocWriter<'_>,
) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let write = |base: Doc<'_>, out: &mut DocWriter<'_>| {
        if !rest.is_empty() {
            write_with(base, rest, value, &mut out.begin_doc(first));
        } else if let Some(value) = value {
            out.append(first, value);
        }
    };
    let mut found = false;
    let Ok(()) = out.append_changed::<_, Infallible>(
        doc,
        |field| Ok((**field.name == **first).then_some(())),
        |(), field, out| {
            found = true;
            let is_doc = field.value.kind() == Type::Document;
            write(if is_doc { Doc::trusted(field.value.bytes()) } else { Doc::EMPTY }, out);
            Ok(())
        },
    );
    if !found {
        write(Doc::EMPTY, out);
    }
}

/// Copies `doc` into `out` with `value` at `path`, as `$addFields` sets it: each element of an
/// array on the path gets the value.
///
/// Errors: those of [`check_room`].
pub(crate) fn write_through(
    doc: Doc<'_>,
    path: &[Box<[u8]>],
    value: Value<'_>,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(());
    };
    check_room(out.buffered(), value)?;
    let mut found = false;
    out.append_changed(
        doc,
        |field| Ok((**field.name == **first).then_some(())),
        |(), field, out| {
            found = true;
            match field.value.get() {
                _ if rest.is_empty() => {
                    out.append(first, value);
                    Ok(())
                }
                Value::Array(items) => write_items(items, rest, value, &mut out.begin_array(first)),
                Value::Document(inner) => {
                    write_through(inner, rest, value, &mut out.begin_doc(first))
                }
                _ => write_through(Doc::EMPTY, rest, value, &mut out.begin_doc(first)),
            }
        },
    )?;
    if !found && rest.is_empty() {
        out.append(first, value);
    } else if !found {
        write_through(Doc::EMPTY, rest, value, &mut out.begin_doc(first))?;
    }
    Ok(())
}

fn write_items(
    items: Doc<'_>,
    path: &[Box<[u8]>],
    value: Value<'_>,
    out: &mut ArrayWriter<'_>,
) -> Result<()> {
    for item in items.values() {
        match item {
            Value::Array(nested) => write_items(nested, path, value, &mut out.begin_array())?,
            Value::Document(inner) => write_through(inner, path, value, &mut out.begin_doc())?,
            _ => write_through(Doc::EMPTY, path, value, &mut out.begin_doc())?,
        }
    }
    Ok(())
}

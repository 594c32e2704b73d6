//! Projections: which parts of a document a reply shows.
//!
//! [`Projection::parse`] reads a projection document once into a tree by field name;
//! [`Projection::apply`] walks the tree along the document's bytes. A projection includes the
//! fields it names, or shows all other fields; expressions compute new fields. `find` and the stage
//! `$project` share it under different [`Policy`]s.
//!
//! Modules: `tree` is the parsed form, `parse` the parser, `apply` the walk, `metadata` the values
//! of `$meta`, `print` the output for `explain`.

mod apply;
mod metadata;
mod parse;
mod print;
mod slice;
#[cfg(test)]
mod tests;
mod tree;

use marula_bson::{Doc, DocWriter, FieldPath, FieldSet, Value};
use marula_error::Result;

use crate::context::Context;
use crate::expression::operators::meta::{is_lack, no_sort_key};
use crate::stage::passage::Passage;

pub use metadata::{Meta, Metadata};

use tree::{Child, Computed, Node};

/// The language whose rules a projection follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `find` and `findAndModify`: with `$slice`, `$elemMatch` and the positional `$` of the query
    /// language.
    Find,
    /// The stage `$project`.
    Aggregate,
}

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {
    root: Node,
    /// Whether fields that the projection does not name are omitted.
    inclusion: bool,
    /// The path before a positional `$`.
    positional: Option<Vec<Box<[u8]>>>,
    metadata: Vec<Meta>,
    needs: Option<Vec<FieldPath>>,
}

impl Projection {
    /// Parses a projection document.
    ///
    /// Errors: those of `parse`, and of the expressions in it.
    pub fn parse(doc: Doc<'_>, policy: Policy, context: &Context) -> Result<Projection> {
        let mut projection = Projection::draft(doc, policy, context)?;
        if policy == Policy::Find {
            projection.optimize(context)?;
        }
        Ok(projection)
    }

    /// Parses like [`parse`](Projection::parse), but leaves constant expressions for
    /// [`optimize`](Projection::optimize).
    pub fn draft(doc: Doc<'_>, policy: Policy, context: &Context) -> Result<Projection> {
        Projection::draft_of(parse::parse(doc, policy, None, context)?)
    }

    /// Parses like [`draft`](Projection::draft), for a `find` with the filter `query`.
    ///
    /// Errors: also a query that has no array position for a positional `$`.
    pub fn draft_for(doc: Doc<'_>, query: Doc<'_>, context: &Context) -> Result<Projection> {
        let parsed = parse::parse(doc, Policy::Find, Some(query), context);
        Projection::draft_of(parsed.map_err(|error| {
            // That documents do not have some metadata is reported after all other mistakes.
            if !is_lack(&error) {
                return error;
            }
            let context = context.with_all_metadata();
            parse::parse(doc, Policy::Find, Some(query), &context).err().unwrap_or(error)
        })?)
    }

    fn draft_of(parsed: parse::Parsed) -> Result<Projection> {
        let mut projection = Projection {
            root: parsed.root,
            inclusion: parsed.inclusion,
            positional: parsed.positional,
            metadata: parsed.metadata,
            needs: None,
        };
        projection.needs = projection.find_needs();
        Ok(projection)
    }

    /// Computes the parts that need no document. A `find` does so while parsing.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        self.root.optimize(context)
    }

    /// Appends the projected document to `out`.
    ///
    /// `position` is the array index that the filter noted, where [`Projection::needs_position`].
    pub fn apply(
        &self,
        doc: Doc<'_>,
        position: Option<usize>,
        metadata: &Metadata<'_>,
        context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        apply::apply(self, doc, position, metadata, context, out)
    }

    /// Appends `doc` with a value at each path that the projection has for this metadata, at the
    /// end of its document if it is new.
    pub fn add_metadata(&self, doc: Doc<'_>, meta: Meta, value: Value<'_>, out: &mut Vec<u8>) {
        let mut out = DocWriter::new(out);
        add_metadata(&self.root, doc, meta, value, &mut out);
        out.finish();
    }

    /// Returns whether fields that the projection does not name are omitted.
    pub fn includes(&self) -> bool {
        self.inclusion
    }

    /// Returns whether every document is shown unchanged.
    pub fn is_identity(&self) -> bool {
        !self.inclusion && self.root.children.len() == 0
    }

    /// Returns whether the result is only documents' own fields, chosen by inclusion: an index that
    /// has them all covers the query.
    pub fn is_plain_inclusion(&self) -> bool {
        self.inclusion && self.positional.is_none() && self.root.is_plain()
    }

    /// Returns the paths that the projection reads; `None` if it may need any part of the document.
    pub fn needs(&self) -> Option<&[FieldPath]> {
        self.needs.as_deref()
    }

    /// Returns the fields that the projection reads; `None` if it may need any part of the
    /// document, or what is not in it.
    pub fn fields(&self) -> Option<FieldSet> {
        let is_of_document = self.metadata.is_empty() && self.positional.is_none();
        let mut fields = FieldSet::new();
        fields.want_every();
        let mut needs = self.needs().filter(|_| is_of_document)?.iter();
        needs.all(|path| fields.insert(path.first())).then_some(fields)
    }

    /// Returns whether the positional `$` is used, which requires that the whole filter is matched
    /// and notes the array index.
    pub fn needs_position(&self) -> bool {
        self.positional.is_some()
    }

    /// Returns whether the projection chooses elements of an array: by `$slice`, `$elemMatch` or a
    /// positional `$`.
    pub fn chooses_elements(&self) -> bool {
        self.needs_position() || self.root.chooses_elements()
    }

    /// Returns whether the projection includes or excludes, and the paths that it names; `None` if
    /// it does more than choose.
    pub fn choice(&self) -> Option<(bool, Vec<FieldPath>)> {
        let mut paths = Vec::new();
        let is_plain = self.positional.is_none()
            && find_chosen(&self.root, self.inclusion, &mut Vec::new(), &mut paths);
        is_plain.then_some((self.inclusion, paths))
    }

    /// Returns which top-level fields the projection shows unchanged, and which are copies of
    /// others.
    pub fn passage(&self) -> Passage {
        let mut passage =
            if self.inclusion { Passage::only_named() } else { Passage::all_but_named() };
        for (name, child) in self.root.children.entries() {
            match (self.inclusion, child) {
                (true, Child::Keep) => passage.name(name),
                (true, Child::Computed(Computed::Expression(expression))) => {
                    passage.renames_to(name, expression);
                }
                (true, _) | (false, Child::Keep) => {}
                (false, _) => passage.name(name),
            }
        }
        passage
    }

    /// Returns the metadata that `$meta` asks for, in the order of the projection.
    pub fn metadata(&self) -> &[Meta] {
        &self.metadata
    }

    /// Checks that the values that documents are sorted by are not shown without a sort.
    ///
    /// Errors: that of `{ $meta: "sortKey" }` without a sort.
    pub fn check_sorted(&self, is_sorted: bool) -> Result<()> {
        match self.metadata.contains(&Meta::SortKey) && !is_sorted {
            true => Err(no_sort_key()),
            false => Ok(()),
        }
    }

    fn find_needs(&self) -> Option<Vec<FieldPath>> {
        if !self.inclusion {
            return None;
        }
        let mut paths = Vec::new();
        find_paths(&self.root, &mut Vec::new(), &mut paths).then_some(paths)
    }
}

/// Adds a value to a document at each path of a node for a kind of metadata. Values on the way to
/// it that are no documents are replaced.
fn add_metadata(node: &Node, doc: Doc<'_>, meta: Meta, value: Value<'_>, out: &mut DocWriter<'_>) {
    let has = |child: &Child| has_metadata(child, meta);
    let add = |name: &[u8], child: &Child, present: Doc<'_>, out: &mut DocWriter<'_>| {
        if let Child::Inner(inner) = child {
            let mut inside = out.begin_doc(name);
            add_metadata(inner, present, meta, value, &mut inside);
            inside.finish();
        } else {
            out.append(name, value);
        }
    };
    for field in doc {
        match node.children.get(field.name).filter(|child| has(child)) {
            Some(child) => {
                let present = field.value.get().as_doc().unwrap_or(Doc::EMPTY);
                add(field.name, child, present, out);
            }
            None => {
                out.append_raw(field.name, field.value);
            }
        }
    }
    for (name, child) in node.children.entries() {
        if has(child) && doc.get_raw(name).is_none() {
            add(name, child, Doc::EMPTY, out);
        }
    }
}

/// Returns whether a field is for a kind of metadata, or has one within it that is.
fn has_metadata(child: &Child, meta: Meta) -> bool {
    match child {
        Child::Inner(inner) => inner.children.entries().iter().any(|it| has_metadata(&it.1, meta)),
        Child::Computed(Computed::Meta(of)) => *of == meta,
        _ => false,
    }
}

/// Collects the included or excluded paths; returns whether the projection does nothing else.
fn find_chosen(
    node: &Node,
    inclusion: bool,
    prefix: &mut Vec<Box<[u8]>>,
    paths: &mut Vec<FieldPath>,
) -> bool {
    node.children.entries().iter().all(|(name, child)| {
        prefix.push(name.clone());
        let is_plain = match child {
            Child::Keep | Child::Drop => {
                if matches!(child, Child::Keep) == inclusion {
                    paths.push(FieldPath::new(prefix.join(&b'.')));
                }
                true
            }
            Child::Inner(inner) => find_chosen(inner, inclusion, prefix, paths),
            Child::Slice(_) | Child::Computed(_) => false,
        };
        prefix.pop();
        is_plain
    })
}

/// Collects the paths that an inclusion reads; returns whether they are known.
fn find_paths(node: &Node, prefix: &mut Vec<u8>, paths: &mut Vec<FieldPath>) -> bool {
    node.children.entries().iter().all(|(name, child)| {
        let length = prefix.len();
        if length > 0 {
            prefix.push(b'.');
        }
        prefix.extend_from_slice(name);
        let mut known = true;
        match child {
            Child::Keep | Child::Slice(_) => paths.push(FieldPath::new(&*prefix)),
            Child::Drop => {}
            Child::Inner(inner) => {
                if inner.computes {
                    // New values replace parts of the existing field.
                    paths.push(FieldPath::new(&*prefix));
                }
                known = find_paths(inner, prefix, paths);
            }
            // A sort that needs no documents has its values too.
            Child::Computed(Computed::Meta(_)) => {}
            Child::Computed(Computed::ElemMatch { name, .. }) => paths.push(FieldPath::new(name)),
            Child::Computed(Computed::Expression(expression)) => {
                expression.for_each_path(&mut |path| {
                    known &= !path.is_empty();
                    paths.push(FieldPath::new(path.text()));
                });
            }
        }
        prefix.truncate(length);
        known
    })
}

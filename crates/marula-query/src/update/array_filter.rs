//! `arrayFilters`: conditions on array elements, named by an identifier that `$[id]` refers to.

use std::collections::HashSet;

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, DocWriter, RawValue, Value};
use marula_error::{Result, errors};

use crate::context::Context;
use crate::filter::{Filter, Node, Purpose};

errors! {
    /// Two array filters have one identifier.
    same_identifier(id: &BStr) = FailedToParse, "Found multiple array filters with the same top-level field name {id}";
    /// An array filter uses two identifiers.
    two_identifiers(first: &BStr, second: &BStr) = FailedToParse, "Expected a single top-level field name, found '{first}' and '{second}'";
    /// An array filter has no identifier.
    no_identifier() = FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters";
    /// An identifier has an invalid form.
    bad_identifier(id: &BStr) = BadValue, "The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '{id}'";
}

/// The prefix of errors inside an array filter.
const CONTEXT: &str = "Error parsing array filter";

/// A parsed array filter.
#[derive(Debug)]
pub(super) struct ArrayFilter {
    /// The identifier.
    pub(super) id: Box<[u8]>,
    filter: Filter,
}

impl ArrayFilter {
    /// Parses the command's `arrayFilters`, an array of documents.
    pub(super) fn parse_all(filters: Doc<'_>, context: &Context) -> Result<Vec<ArrayFilter>> {
        let (mut parsed, mut ids) = (Vec::new(), HashSet::new());
        for element in filters {
            // Any other element is null, which is none.
            let Value::Document(filter) = element.value.get() else { continue };
            let filter = ArrayFilter::parse(filter, context)?;
            if !ids.insert(filter.id.clone()) {
                return Err(same_identifier(filter.id.as_bstr()));
            }
            parsed.push(filter);
        }
        parsed.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(parsed)
    }

    fn parse(doc: Doc<'_>, context: &Context) -> Result<ArrayFilter> {
        let explained = |error: marula_error::Error| error.caused_by(CONTEXT);
        let draft = Filter::draft(doc, Purpose::Element, context).map_err(explained)?;
        let mut id = None;
        find_identifier(draft.root(), &mut id).map_err(explained)?;
        let id = id.ok_or_else(no_identifier)?;
        if !is_identifier(id) {
            return Err(explained(bad_identifier(id)));
        }
        let id = id.as_bytes().into();
        Ok(ArrayFilter { id, filter: draft.finish(context).map_err(explained)? })
    }

    /// Returns whether an array element matches. `scratch` is a buffer for a document with the
    /// element under the identifier's name.
    pub(super) fn matches(&self, value: RawValue<'_>, scratch: &mut Vec<u8>) -> Result<bool> {
        scratch.clear();
        DocWriter::new(scratch).append_raw(&self.id, value);
        self.filter.matches(Doc::trusted(scratch))
    }
}

/// Finds the one name that all paths of a filter begin with.
fn find_identifier<'f>(node: &'f Node, found: &mut Option<&'f BStr>) -> Result<()> {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().try_for_each(|child| find_identifier(child, found))
        }
        Node::Not(child) => find_identifier(child, found),
        Node::Path(at) => {
            let first = at.path.first().as_bstr();
            match *found {
                Some(other) if other != first => Err(two_identifiers(other, first)),
                _ => {
                    *found = Some(first);
                    Ok(())
                }
            }
        }
        _ => Ok(()),
    }
}

fn is_identifier(id: &[u8]) -> bool {
    id.first().is_some_and(u8::is_ascii_lowercase) && id.iter().all(u8::is_ascii_alphanumeric)
}

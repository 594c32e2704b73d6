//! `$text` in a filter: its allowed positions, and its evaluation.

use std::sync::{Arc, OnceLock};

use marula_bson::{Doc, DocWriter, Value};
use marula_error::{Error, Result, errors};

use super::geo;
use super::node::{Node, TextNode};
use crate::context::Context;
use crate::text::{TextMatcher, TextQuery};

errors! {
    index_required() = IndexNotFound, "text index required for $text query";
    text_twice() = BadValue, "Too many text expressions";
    text_in_nor() = BadValue, "text expression not allowed in nor";
    text_with_near() = BadValue, "text and geoNear not allowed in same query";
}

/// Parses the operand of `$text`.
///
/// Errors: those of the operand; the collection has no text index.
pub(super) fn parse(operand: Value<'_>, context: &Context) -> Result<Node> {
    let query = TextQuery::parse(operand)?;
    if let Some(error) = &context.text_search_error {
        return Err(Error::clone(error));
    }
    Ok(Node::Text(TextNode { query, matcher: Arc::new(OnceLock::new()) }))
}

impl TextNode {
    /// The evaluation with the fields of the index, if these are known.
    pub fn matcher(&self) -> Option<&TextMatcher> {
        self.matcher.get().map(|matcher| &**matcher)
    }

    /// Returns whether a document matches; needs the index of the search.
    pub(super) fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        self.matcher.get().ok_or_else(index_required)?.matches(doc)
    }

    /// Writes the operand with all its fields, in the language of the search.
    pub(super) fn write(&self, out: &mut DocWriter<'_>) {
        let mut query = self.query.clone();
        if let Some(matcher) = self.matcher.get().filter(|_| query.language.is_empty()) {
            query.language = matcher.reading().name().to_owned();
        }
        query.write(&mut out.begin_doc("$text"));
    }
}

/// The text search of a filter.
pub(super) fn text_of(root: &Node) -> Option<&TextNode> {
    match root {
        Node::Text(text) => Some(text),
        Node::And(children) | Node::Or(children) => children.iter().find_map(text_of),
        _ => None,
    }
}

/// Checks that the filter has at most one text search, none in a `$nor`, and none together with a
/// search by distance.
pub(super) fn check(root: &Node) -> Result<()> {
    match count(root, false)? {
        0 => Ok(()),
        1 if geo::near_of(root).is_some() => Err(text_with_near()),
        1 => Ok(()),
        _ => Err(text_twice()),
    }
}

fn count(node: &Node, is_in_nor: bool) -> Result<usize> {
    match node {
        Node::Text(_) if is_in_nor => Err(text_in_nor()),
        Node::Text(_) => Ok(1),
        Node::And(children) | Node::Or(children) => {
            children.iter().try_fold(0, |sum, child| Ok(sum + count(child, is_in_nor)?))
        }
        Node::Nor(children) => {
            children.iter().try_fold(0, |sum, child| Ok(sum + count(child, true)?))
        }
        Node::Not(child) => count(child, true),
        _ => Ok(0),
    }
}

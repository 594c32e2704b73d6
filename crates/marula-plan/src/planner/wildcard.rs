//! Wildcard indexes: one index for every path of a filter that it holds.

use std::sync::{Arc, LazyLock};

use marula_bson::{FieldPath, Value};
use marula_db::Index;
use marula_db::index::IndexKind;
use marula_query::filter::Node as FilterNode;

use super::IndexView;
use crate::bounds::wildcard::WILDCARD;
use crate::bounds::{IndexBounds, Interval, PartView};
use crate::query::Query;

/// The field that stands for the path in an entry.
static PATH: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("$_path"));

/// Which part of such an index holds the value.
pub(super) const VALUE_PART: usize = 1;

/// The views of a wildcard index: one for each path in the filter that it holds.
pub(super) fn views<'a>(index: &'a Arc<Index>, query: &'a Query) -> Vec<IndexView<'a>> {
    let IndexKind::Wildcard(wildcard) = &index.spec.kind else { return Vec::new() };
    let mut paths: Vec<&FieldPath> = Vec::new();
    gather(query.filter.root(), &mut paths);
    let mut views: Vec<IndexView<'a>> = Vec::new();
    for path in paths {
        // A number may be the name of a field or a place in an array, which entries do not tell.
        let has_number = path.indexes().iter().any(Option::is_some);
        let is_known = views.iter().any(|view| view.wildcard == Some(path));
        if !has_number && !is_known && wildcard.covers(path) {
            let whole = IndexView::new(index, query);
            let first = PartView {
                path: &PATH,
                is_alone: false,
                order: None,
                same_collation: true,
                ..whole.parts[0]
            };
            let order = index.spec.collation.as_ref().map(|collation| collation.collator());
            let value = PartView {
                path,
                kind: &WILDCARD,
                multikey: index.multikey_path(path),
                is_sparse: true,
                order,
                same_collation: whole.same_collation,
                ..first
            };
            views.push(IndexView { parts: vec![first, value], wildcard: Some(path), ..whole });
        }
    }
    views
}

/// The paths that a filter speaks of.
fn gather<'q>(node: &'q FilterNode, paths: &mut Vec<&'q FieldPath>) {
    match node {
        FilterNode::Path(at) => paths.push(&at.path),
        FilterNode::And(children) | FilterNode::Or(children) => {
            children.iter().for_each(|child| gather(child, paths));
        }
        _ => {}
    }
}

/// Bounds the path of a view's entries: where every value is meant, those below are, too.
pub(super) fn bound_path(path: &FieldPath, bounds: &mut IndexBounds) {
    let name = path.parts().join(&b'.');
    let point = Interval::point(Value::String(name.as_slice().into()));
    let mut paths = vec![point];
    if bounds.fields[VALUE_PART].iter().any(Interval::is_all) {
        let [mut low, mut high] = [name.clone(), name];
        low.push(b'.');
        high.push(b'.' + 1);
        let (low, high) = (low.as_slice().into(), high.as_slice().into());
        paths.push(Interval::new(Value::String(low), true, Value::String(high), false));
    }
    bounds.fields[0] = paths;
}

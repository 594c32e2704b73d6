//! Wildcard indexes: one is seen as several indexes, one for each path of a filter that it holds, and where fields stand
//! in front of the wildcard, as one on those alone.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use marula_bson::{FieldPath, Type, Value};
use marula_db::Index;
use marula_db::index::IndexKind;
use marula_query::filter::Node as FilterNode;

use super::IndexView;
use crate::bounds::wildcard::{FRONT, WILDCARD};
use crate::bounds::{IndexBounds, Interval, PartView, class};
use crate::plan::Expansion;
use crate::query::Query;

/// The field that stands for the path in an entry.
static PATH: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("$_path"));

/// What a view of a wildcard index is of.
pub(super) struct Expanded {
    /// What is seen.
    pub expansion: Expansion,
    /// Which part of the view is the path of the entries.
    pub path_part: usize,
}

impl Expanded {
    /// Which part must be bounded for the index to be of use: what stands in front, or else the value.
    pub(super) fn lead(&self) -> usize {
        if self.path_part > 0 { 0 } else { 1 }
    }

    /// Which part holds the value of the path.
    pub(super) fn value_part(&self) -> Option<usize> {
        matches!(self.expansion, Expansion::Path(_)).then_some(self.path_part + 1)
    }
}

/// The views of a wildcard index for the paths in a filter.
pub(super) fn views<'a>(index: &'a Arc<Index>, query: &'a Query) -> Vec<IndexView<'a>> {
    let IndexKind::Wildcard(wildcard) = &index.spec.kind else { return Vec::new() };
    let mut asked: Vec<&FieldPath> = Vec::new();
    gather(query.filter.root(), &mut asked);
    let whole = IndexView::new(index, query);
    let number = wildcard.part();
    if number > 0 && !asked.iter().any(|path| whole.parts[0].is_on(path)) {
        return Vec::new();
    }
    let mut paths: Vec<&FieldPath> = Vec::new();
    for path in asked {
        // A number may be the name of a field or a place in an array, which entries do not tell.
        let has_number = path.indexes().iter().any(Option::is_some);
        if !has_number && !paths.contains(&path) && wildcard.covers(path) {
            paths.push(path);
        }
    }
    let mut views: Vec<IndexView<'a>> =
        paths.into_iter().map(|path| view_of_path(&whole, number, path)).collect();
    if number > 0 {
        views.push(view_of_front(&whole, number));
    }
    views
}

/// The index as one on `path`, between the fields beside the wildcard, which has this number.
fn view_of_path<'a>(whole: &IndexView<'a>, number: usize, path: &'a FieldPath) -> IndexView<'a> {
    let beside = |part: &PartView<'a>| PartView { is_counted: false, ..part.clone() };
    let value = PartView {
        path: Cow::Borrowed(path),
        kind: &WILDCARD,
        multikey: whole.index.multikey_path(path),
        is_sparse: true,
        is_alone: false,
        is_counted: false,
        ..whole.parts[number].clone()
    };
    let (front, behind) = (&whole.parts[..number], &whole.parts[number + 1..]);
    let parts = (front.iter().map(beside))
        .chain([path_part(&whole.parts[number]), value])
        .chain(behind.iter().map(beside));
    view(whole, number, parts.collect(), Expansion::Path(path.clone()))
}

/// The index as one on the fields in front of the wildcard, which has this number.
fn view_of_front<'a>(whole: &IndexView<'a>, number: usize) -> IndexView<'a> {
    let front = whole.parts[..number].iter().map(|part| PartView {
        kind: &FRONT,
        is_sparse: true,
        is_alone: false,
        is_counted: false,
        ..part.clone()
    });
    let parts = front.chain([path_part(&whole.parts[number])]).collect();
    view(whole, number, parts, Expansion::Front)
}

fn view<'a>(
    whole: &IndexView<'a>,
    number: usize,
    parts: Vec<PartView<'a>>,
    expansion: Expansion,
) -> IndexView<'a> {
    let wildcard = Some(Expanded { expansion, path_part: number });
    IndexView { index: whole.index, parts, same_collation: whole.same_collation, wildcard }
}

/// The part of the entries' paths; `wildcard` is what the index has in its place.
fn path_part<'a>(wildcard: &PartView<'a>) -> PartView<'a> {
    PartView {
        path: Cow::Borrowed(&PATH),
        descending: false,
        is_alone: false,
        order: None,
        same_collation: true,
        is_counted: false,
        ..wildcard.clone()
    }
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
pub(super) fn bound_path(view: &IndexView<'_>, bounds: &mut IndexBounds) {
    let Some(Expanded { expansion, path_part }) = &view.wildcard else { return };
    bounds.fields[*path_part] = match expansion {
        Expansion::Front => vec![Interval::point(Value::MinKey), class(Type::String)],
        Expansion::Path(path) => {
            let name = path.parts().join(&b'.');
            let mut paths = vec![Interval::point(Value::String(name.as_slice().into()))];
            if bounds.fields[path_part + 1].iter().any(Interval::is_all) {
                let [mut low, mut high] = [name.clone(), name];
                low.push(b'.');
                high.push(b'.' + 1);
                let (low, high) = (low.as_slice().into(), high.as_slice().into());
                paths.push(Interval::new(Value::String(low), true, Value::String(high), false));
            }
            paths
        }
    };
}

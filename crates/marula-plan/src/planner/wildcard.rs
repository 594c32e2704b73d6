//! Wildcard indexes: one is seen as several ordinary indexes, one for each of its paths that the
//! filter uses, and as an index on the fields before the wildcard, if there are any.
//!
//! ```text
//!   key pattern   { a: 1, "$**": 1, z: 1 }          filter on a, b.c and d
//!   entries       a │ path │ value │ z
//!   views         { a: 1, b.c: 1, z: 1 }   { a: 1, d: 1, z: 1 }   { a: 1 } alone
//! ```

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use marula_bson::{FieldPath, Type, Value};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::wildcard::Wildcard;
use marula_db::index::{IndexKind, PathArrays, component_bit};
use marula_error::Result;
use marula_query::expression::path::Path;
use marula_query::filter::{Node as FilterNode, Predicate};

use super::IndexView;
use super::conditions::DEPTH_MAX;
use crate::bounds::interval::union;
use crate::bounds::wildcard::{FRONT, WILDCARD};
use crate::bounds::{IndexBounds, Interval, PartView, class};
use crate::plan::Expansion;
use crate::query::Query;

/// The field with the path in an entry.
static PATH: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("$_path"));

/// A view of a wildcard index.
pub(super) struct Expanded {
    /// The kind of view.
    pub expansion: Expansion,
    /// The number of the view's part with the entries' paths.
    pub path_part: usize,
    /// The names that the path may have in entries.
    names: Vec<Vec<u8>>,
}

/// A path in a filter.
struct Asked<'q> {
    path: Cow<'q, FieldPath>,
    /// Whether a component of it is within an `$elemMatch`.
    is_of_element: bool,
}

impl Expanded {
    /// Returns the number of the part that must be bounded for the index to be useful: the first
    /// field before the wildcard, or else the value.
    pub(super) fn lead(&self) -> usize {
        if self.path_part > 0 { 0 } else { 1 }
    }

    /// Returns the number of the part with the path's value.
    pub(super) fn value_part(&self) -> Option<usize> {
        matches!(self.expansion, Expansion::Path(_)).then_some(self.path_part + 1)
    }
}

/// Checks that a wildcard index can look up each path of a filter: not every path is a valid path
/// of an expression.
///
/// Errors: those of a path.
pub(super) fn check(state: &State, query: &Query) -> Result<()> {
    let is_asked = |index: &Arc<Index>| {
        matches!(index.spec.kind, IndexKind::Wildcard(_)) && !index.spec.hidden
    };
    if !state.indexes.iter().any(is_asked) {
        return Ok(());
    }
    check_paths(query.filter.root(), &[], 0)
}

fn check_paths(node: &FilterNode, prefix: &[Box<[u8]>], depth: usize) -> Result<()> {
    match node {
        FilterNode::Path(at) => {
            let path = match at.path.parts() {
                // The element itself.
                [only] if only.is_empty() => return Ok(()),
                parts => [prefix, parts].concat(),
            };
            Path::parse(&path.join(&b'.'))?;
            let predicate = match &at.predicate {
                Predicate::Not(negated) => negated,
                predicate => predicate,
            };
            match predicate {
                Predicate::ElemMatchObject(inner) if depth < DEPTH_MAX => {
                    check_paths(inner, &path, depth + 1)
                }
                _ => Ok(()),
            }
        }
        FilterNode::And(children) | FilterNode::Or(children) | FilterNode::Nor(children) => {
            children.iter().try_for_each(|child| check_paths(child, prefix, depth))
        }
        FilterNode::Not(child) => check_paths(child, prefix, depth),
        _ => Ok(()),
    }
}

/// Returns the views of a wildcard index for the paths in a filter.
pub(super) fn views<'a>(index: &'a Arc<Index>, query: &'a Query) -> Vec<IndexView<'a>> {
    let IndexKind::Wildcard(wildcard) = &index.spec.kind else { return Vec::new() };
    let mut asked: Vec<Asked<'a>> = Vec::new();
    gather(query.filter.root(), &[], &mut asked, 0);
    let whole = IndexView::new(index, query);
    let number = wildcard.part();
    if number > 0 && !asked.iter().any(|asked| whole.parts[0].is_on(&asked.path)) {
        return Vec::new();
    }
    let mut views: Vec<IndexView<'a>> = asked
        .into_iter()
        .filter(|asked| wildcard.covers(&asked.path))
        .filter_map(|asked| view_of_path(&whole, wildcard, asked))
        .collect();
    if number > 0 {
        views.push(view_of_front(&whole, number));
    }
    views
}

/// Returns the index as one on a path, with the fields before and after the wildcard; `None` if its
/// entries do not determine the value.
fn view_of_path<'a>(
    whole: &IndexView<'a>,
    wildcard: &Wildcard,
    asked: Asked<'a>,
) -> Option<IndexView<'a>> {
    let Asked { path, is_of_element } = asked;
    let arrays = whole.index.path_arrays(&path);
    let is_told = !arrays.is_vague
        && !has_hidden_place(&path, &arrays, is_of_element)
        && (arrays.places == 0
            || arrays.names.iter().all(|name| wildcard.covers(&FieldPath::new(name))));
    if !is_told {
        return None;
    }
    let number = wildcard.part();
    let expansion = Expansion::Path(path.clone().into_owned());
    let beside = |part: &PartView<'a>| PartView { is_counted: false, ..part.clone() };
    let value = PartView {
        path,
        kind: &WILDCARD,
        multikey: arrays.arrays,
        names_places: arrays.places != 0,
        is_sparse: true,
        is_alone: false,
        is_counted: false,
        ..whole.parts[number].clone()
    };
    let (front, behind) = (&whole.parts[..number], &whole.parts[number + 1..]);
    let parts = (front.iter().map(beside))
        .chain([path_part(&whole.parts[number]), value])
        .chain(behind.iter().map(beside));
    let parts = parts.collect();
    let wildcard = Expanded { expansion, path_part: number, names: arrays.names };
    Some(view(whole, parts, wildcard))
}

/// Returns whether a number in the path may be an index of an array whose elements have no entries:
/// an array within an array, unless the path ends there and the array is one value.
fn has_hidden_place(path: &FieldPath, arrays: &PathArrays, is_of_element: bool) -> bool {
    let count = path.parts().len();
    let is = |bits: u64, component: usize| bits & component_bit(component) != 0;
    (1..count).filter(|&component| is(arrays.places, component)).any(|component| {
        let is_end = component + 1 == count && !is_of_element;
        let is_twice = path.indexes().get(component + 1).is_some_and(Option::is_some);
        is_twice || (is(arrays.nested, component - 1) && !is_end)
    })
}

/// Returns the index as one on the fields before the wildcard, which has this number.
fn view_of_front<'a>(whole: &IndexView<'a>, number: usize) -> IndexView<'a> {
    let front = whole.parts[..number].iter().map(|part| PartView {
        kind: &FRONT,
        is_sparse: true,
        is_alone: false,
        is_counted: false,
        ..part.clone()
    });
    let parts = front.chain([path_part(&whole.parts[number])]).collect();
    let wildcard = Expanded { expansion: Expansion::Front, path_part: number, names: Vec::new() };
    view(whole, parts, wildcard)
}

fn view<'a>(whole: &IndexView<'a>, parts: Vec<PartView<'a>>, wildcard: Expanded) -> IndexView<'a> {
    let IndexView { index, same_collation, .. } = *whole;
    IndexView { index, parts, same_collation, wildcard: Some(wildcard) }
}

/// Returns the part for the entries' paths; `wildcard` is the index's part in its place.
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

/// Collects the paths in a filter, each once; within an `$elemMatch` with the path of the array,
/// `prefix`, before them.
fn gather<'q>(
    node: &'q FilterNode,
    prefix: &[Box<[u8]>],
    asked: &mut Vec<Asked<'q>>,
    depth: usize,
) {
    match node {
        FilterNode::Path(at) => {
            let path = match prefix {
                [] => Cow::Borrowed(&at.path),
                _ => Cow::Owned(FieldPath::new([prefix, at.path.parts()].concat().join(&b'.'))),
            };
            if let Predicate::ElemMatchObject(inner) = &at.predicate {
                if depth < DEPTH_MAX {
                    gather(inner, path.parts(), asked, depth + 1);
                }
                return;
            }
            let is_of_element = depth > 0;
            match asked.iter_mut().find(|known| known.path == path) {
                Some(known) => known.is_of_element |= is_of_element,
                None => asked.push(Asked { path, is_of_element }),
            }
        }
        FilterNode::Or(_) if depth > 0 => {}
        FilterNode::And(children) | FilterNode::Or(children) => {
            children.iter().for_each(|child| gather(child, prefix, asked, depth));
        }
        _ => {}
    }
}

/// Bounds the path of a view's entries: bounds of all values include the paths below.
pub(super) fn bound_path(view: &IndexView<'_>, bounds: &mut IndexBounds) {
    let Some(Expanded { expansion, path_part, names }) = &view.wildcard else { return };
    if *expansion == Expansion::Front {
        bounds.fields[*path_part] = vec![Interval::point(Value::MinKey), class(Type::String)];
        return;
    }
    let is_whole = bounds.fields[path_part + 1].iter().any(Interval::is_all);
    let mut paths = Vec::with_capacity(names.len());
    for name in names {
        paths.push(Interval::point(Value::String(name.as_slice().into())));
        if is_whole {
            let below = |separator: u8| [name.as_slice(), &[separator]].concat();
            let (low, high) = (below(b'.'), below(b'.' + 1));
            let (low, high) = (low.as_slice().into(), high.as_slice().into());
            paths.push(Interval::new(Value::String(low), true, Value::String(high), false));
        }
    }
    bounds.fields[*path_part] = union(paths, None);
}

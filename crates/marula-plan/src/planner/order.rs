//! Sort orders from indexes: turns an access path so that it returns documents in an order, if it
//! can.

use marula_bson::FieldPath;
use marula_query::sort::{SortPart, SortPattern};
use marula_storage::Direction;

use super::{IndexView, is_free_of_strings};
use crate::bounds::{IndexBounds, Interval, KeyBounds, PartView};
use crate::clustered;
use crate::plan::{Ixscan, ScanBounds, SortMerge, Stage};
use crate::query::{Query, Wanted};

/// The maximum number of scans into which one scan of single values is split, to merge them.
/// Source: mongod 6.0's `internalQueryMaxScansToExplode`.
const WALKS_MAX: usize = 200;

/// Makes `node` return its documents in the order of `pattern`, if possible; returns it, and
/// whether it does.
pub(super) fn orient(node: Stage, pattern: &SortPattern, views: &[IndexView<'_>]) -> (Stage, bool) {
    match node {
        Stage::Ixscan(scan) => orient_scan(scan, pattern, views),
        Stage::Collscan(ref scan)
            if scan.records.as_ref().is_some_and(|records| records.gives_order) =>
        {
            (node, true)
        }
        Stage::Fetch(mut fetch) => {
            let (input, is_ordered) = orient(*fetch.input, pattern, views);
            fetch.input = Box::new(input);
            (Stage::Fetch(fetch), is_ordered)
        }
        Stage::Or(mut or) => {
            // Rows are merged by their documents, or by the values of their entries.
            let is_ordered = or.inputs.iter().all(|input| {
                can_orient(input, pattern, views)
                    && (is_fetched(input) || has_sort_key(input, pattern, views))
            });
            if !is_ordered {
                return (Stage::Or(or), false);
            }
            let oriented = or.inputs.drain(..).map(|input| orient(input, pattern, views).0);
            (merge(oriented.collect(), pattern), true)
        }
        stage => (stage, false),
    }
}

/// Turns the scan of a query without a sort so that it gives one of the query's free orders, if it
/// can without another stage; returns the number of that order.
pub(super) fn orient_freely(
    node: Stage,
    query: &Query,
    views: &[IndexView<'_>],
) -> (Stage, Option<usize>) {
    if query.sort.is_some() || query.wanted == Wanted::Count {
        return (node, None);
    }
    let found = query.free_orders.iter().enumerate().find_map(|(number, order)| {
        let direction = match scan_below(&node)? {
            Stage::Ixscan(scan) => match orientation(scan, order, views)? {
                Orientation::Walk(direction) => direction,
                Orientation::Walks(..) => return None,
            },
            Stage::Collscan(scan) => {
                let records = scan.records.as_ref().filter(|records| records.gives_order)?;
                clustered::direction_of(order).filter(|it| *it == records.direction)?
            }
            _ => return None,
        };
        Some((number, direction))
    });
    let Some((number, direction)) = found else { return (node, None) };
    (turned(node, direction), Some(number))
}

/// Returns the only scan of an access path.
fn scan_below(node: &Stage) -> Option<&Stage> {
    match node {
        Stage::Ixscan(_) | Stage::Collscan(_) => Some(node),
        Stage::Fetch(fetch) => scan_below(&fetch.input),
        _ => None,
    }
}

fn turned(node: Stage, to: Direction) -> Stage {
    match node {
        Stage::Ixscan(scan) => Stage::Ixscan(Ixscan { direction: to, ..scan }),
        Stage::Fetch(mut fetch) => {
            fetch.input = Box::new(turned(*fetch.input, to));
            Stage::Fetch(fetch)
        }
        node => node,
    }
}

/// Returns whether [`orient`] would make a stage provide the order of `pattern`.
fn can_orient(node: &Stage, pattern: &SortPattern, views: &[IndexView<'_>]) -> bool {
    match node {
        Stage::Ixscan(scan) => orientation(scan, pattern, views).is_some(),
        Stage::Collscan(scan) => scan.records.as_ref().is_some_and(|records| records.gives_order),
        Stage::Fetch(fetch) => can_orient(&fetch.input, pattern, views),
        Stage::Or(or) => or.inputs.iter().all(|input| {
            can_orient(input, pattern, views)
                && (is_fetched(input) || has_sort_key(input, pattern, views))
        }),
        _ => false,
    }
}

/// Returns whether a stage's documents have been fetched.
pub(super) fn is_fetched(node: &Stage) -> bool {
    match node {
        Stage::Ixscan(_) => false,
        Stage::Eof
        | Stage::IdHack(_)
        | Stage::Collscan(_)
        | Stage::Fetch(_)
        | Stage::GeoNear(_)
        | Stage::TextOr(_) => true,
        _ => node.inputs().iter().all(is_fetched),
    }
}

fn merge(mut inputs: Vec<Stage>, pattern: &SortPattern) -> Stage {
    let flat: Vec<Stage> = inputs
        .drain(..)
        .flat_map(|input| match input {
            Stage::SortMerge(inner) => inner.inputs,
            stage => vec![stage],
        })
        .map(shows_key)
        .collect();
    Stage::SortMerge(SortMerge { pattern: pattern.clone(), inputs: flat })
}

/// Makes a scan return its entries' values, by which rows without documents are merged.
fn shows_key(mut node: Stage) -> Stage {
    if let Stage::Ixscan(scan) = &mut node {
        scan.covers = true;
    }
    node
}

fn orient_scan(mut scan: Ixscan, pattern: &SortPattern, views: &[IndexView<'_>]) -> (Stage, bool) {
    match orientation(&scan, pattern, views) {
        None => {
            // As in mongod, an index with another collation is split at its points as if it had the
            // query's, unless there are arrays after them.
            let view = views.iter().find(|view| view.is_walked_by(&scan));
            if let Some((view, fields)) = view.zip(scan.bounds.fields.as_ref())
                && !view.same_collation
                && let Some((fixed @ 1.., one)) = behind_points(view, fields, pattern)
                && view.parts[fixed..].iter().all(|part| part.multikey == 0)
                && let Some(direction) = direction_by_keys(view, &one, pattern)
            {
                scan.direction = direction;
            }
            (Stage::Ixscan(scan), false)
        }
        Some(Orientation::Walk(direction)) => {
            scan.direction = direction;
            (Stage::Ixscan(scan), true)
        }
        Some(Orientation::Walks(direction, walks)) => {
            let view = views.iter().find(|view| view.is_walked_by(&scan));
            let parts = view.map_or(&[][..], |view| &view.parts);
            let mut inputs: Vec<Stage> = walks
                .into_iter()
                .map(|bounds| {
                    let keys = KeyBounds::new(&bounds, parts);
                    let bounds = ScanBounds { fields: Some(bounds), keys };
                    let mut walk = Ixscan::new(scan.index.clone(), bounds, direction);
                    walk.wildcard = scan.wildcard.clone();
                    walk.gives_once = scan.gives_once;
                    Stage::Ixscan(walk)
                })
                .collect();
            if direction == Direction::Backward {
                inputs.reverse();
            }
            (merge(inputs, pattern), true)
        }
    }
}

/// The way in which a scan provides an order.
enum Orientation {
    /// One scan, in this direction.
    Walk(Direction),
    /// Several scans, in this direction, that are merged.
    Walks(Direction, Vec<IndexBounds>),
}

fn orientation(
    scan: &Ixscan,
    pattern: &SortPattern,
    views: &[IndexView<'_>],
) -> Option<Orientation> {
    let view = views.iter().find(|view| view.is_walked_by(scan))?;
    let whole;
    let fields = match &scan.bounds.fields {
        Some(fields) => fields,
        None => {
            whole = IndexBounds::whole(view.parts.len());
            &whole
        }
    };
    if let Some(direction) = direction_of(view, fields, pattern) {
        return Some(Orientation::Walk(direction));
    }
    if !holds_key(view, pattern, Some(fields)) || scan.filter.is_some() || !view.same_collation {
        return None;
    }
    let Exploded { fixed, direction, walks } = explode(view, fields, pattern)?;
    if walks > WALKS_MAX {
        return None;
    }
    // The first field's values change the fastest.
    let mut walks = vec![Vec::new()];
    for intervals in &fields.fields[..fixed] {
        let longer = intervals.iter().flat_map(|point| {
            walks.iter().map(move |walk: &Vec<Interval>| {
                walk.iter().chain([point]).cloned().collect::<Vec<Interval>>()
            })
        });
        walks = longer.collect();
    }
    let bounds = walks.into_iter().map(|walk| {
        let points = walk.into_iter().map(|point| vec![point]);
        IndexBounds { fields: points.chain(fields.fields[fixed..].iter().cloned()).collect() }
    });
    Some(Orientation::Walks(direction, bounds.collect()))
}

/// The split of a scan of a few values of leading fields into many scans, each in order.
struct Exploded {
    /// The number of fields with single values.
    fixed: usize,
    direction: Direction,
    /// The number of scans.
    walks: usize,
}

/// Returns the number of leading fields with single values, and the bounds with only the first of
/// these values; `None` if the sort does not start directly after these fields.
fn behind_points(
    view: &IndexView<'_>,
    fields: &IndexBounds,
    pattern: &SortPattern,
) -> Option<(usize, IndexBounds)> {
    let are_points = |intervals: &&Vec<Interval>| intervals.iter().all(Interval::is_point);
    let fixed = fields.fields.iter().take_while(are_points).count();
    let rest = view.parts.get(fixed..)?;
    let names_rest = pattern.parts().len() <= rest.len()
        && pattern.parts().iter().zip(rest).all(
            |(wanted, part)| matches!(wanted, SortPart::Path { path, .. } if part.is_on(path)),
        );
    let mut one = fields.clone();
    one.fields[..fixed].iter_mut().for_each(|points| points.truncate(1));
    names_rest.then_some((fixed, one))
}

/// Returns the split of a scan into scans that are merged, if the sort fields follow the fields
/// with single values.
fn explode(view: &IndexView<'_>, fields: &IndexBounds, pattern: &SortPattern) -> Option<Exploded> {
    let (fixed, one) = behind_points(view, fields, pattern)?;
    let walks = fields.fields[..fixed]
        .iter()
        .fold(1_usize, |walks, points| walks.saturating_mul(points.len()));
    if walks < 2 {
        return None;
    }
    let direction = direction_of(view, &one, pattern)?;
    Some(Exploded { fixed, direction, walks })
}

/// Returns whether a scan in `node` would provide the order of `pattern` if it could be split into
/// more scans than the maximum.
pub(super) fn has_too_many_walks(
    node: &Stage,
    pattern: &SortPattern,
    views: &[IndexView<'_>],
) -> bool {
    match node {
        Stage::Ixscan(scan) => {
            let view = views.iter().find(|view| view.is_walked_by(scan));
            view.zip(scan.bounds.fields.as_ref()).is_some_and(|(view, fields)| {
                direction_of(view, fields, pattern).is_none()
                    && explode(view, fields, pattern).is_some_and(|it| it.walks > WALKS_MAX)
            })
        }
        Stage::Fetch(fetch) => has_too_many_walks(&fetch.input, pattern, views),
        Stage::Or(or) => or.inputs.iter().any(|input| has_too_many_walks(input, pattern, views)),
        _ => false,
    }
}

/// Returns whether the sort key of a stage's rows is known without reading documents.
fn has_sort_key(node: &Stage, pattern: &SortPattern, views: &[IndexView<'_>]) -> bool {
    match node {
        Stage::Ixscan(scan) => views
            .iter()
            .find(|view| view.is_walked_by(scan))
            .is_some_and(|view| holds_key(view, pattern, scan.bounds.fields.as_ref())),
        Stage::SortMerge(_) => true,
        _ => false,
    }
}

/// Returns whether the entries of an index contain the sort key.
fn holds_key(view: &IndexView<'_>, pattern: &SortPattern, bounds: Option<&IndexBounds>) -> bool {
    pattern.parts().iter().all(|part| match part {
        SortPart::Path { path, .. } => view.holds(path, bounds),
        SortPart::Meta(_) => false,
    })
}

/// Returns the direction in which the entries within `bounds` are in the order of `pattern`, if
/// there is one.
///
/// Fields with one value each may be anywhere. A document with an array sorts by its least or
/// greatest element, which is where a scan of the whole index reaches it first.
pub(super) fn direction_of(
    view: &IndexView<'_>,
    bounds: &IndexBounds,
    pattern: &SortPattern,
) -> Option<Direction> {
    let direction = direction_by_keys(view, bounds, pattern)?;
    let is_sorted_alike = |part: &SortPart| match part {
        SortPart::Path { path, .. } => (view.parts.iter().enumerate())
            .filter(|(_, part)| part.is_on(path))
            .all(|(number, _)| is_free_of_strings(Some(bounds), number)),
        SortPart::Meta(_) => false,
    };
    (view.same_collation || pattern.parts().iter().all(is_sorted_alike)).then_some(direction)
}

/// Like [`direction_of`], for any collation of the index.
fn direction_by_keys(
    view: &IndexView<'_>,
    bounds: &IndexBounds,
    pattern: &SortPattern,
) -> Option<Direction> {
    // All values of a document at a path are scanned: if there are arrays at it, neither the path
    // nor paths with the same prefix bound the entries. An array elsewhere has no effect, because
    // each of its values has all values of the path.
    let is_walked_whole = |path: &FieldPath| {
        view.parts.iter().zip(&bounds.fields).all(|(part, intervals)| {
            let is_apart = view.wildcard.is_none() && part.path.first() != path.first();
            part.multikey == 0
                || is_apart
                || matches!(intervals.as_slice(), [only] if only.is_all())
        })
    };
    let is_fixed =
        |intervals: &Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
    let has_one_value = |path: &FieldPath| {
        view.parts.iter().zip(&bounds.fields).any(|(part, intervals)| {
            part.is_on(path)
                && part.multikey == 0
                && part.kind.keeps_equality
                && is_fixed(intervals)
        })
    };
    let mut direction = None;
    let is_walkable = |(part, intervals): &(&PartView<'_>, &Vec<Interval>)| {
        part.kind.is_ordered || (part.kind.keeps_equality && is_fixed(intervals))
    };
    let mut parts = view.parts.iter().zip(&bounds.fields).take_while(is_walkable);
    for wanted in pattern.parts() {
        let SortPart::Path { path, descending } = wanted else { return None };
        // A field with the same value in all documents does not affect the order.
        if has_one_value(path) {
            continue;
        }
        let (part, _) = parts.find(|(part, intervals)| part.is_on(path) || !is_fixed(intervals))?;
        if !part.is_on(path) || (part.multikey != 0 && !is_walked_whole(path)) {
            return None;
        }
        let found =
            if part.descending == *descending { Direction::Forward } else { Direction::Backward };
        if *direction.get_or_insert(found) != found {
            return None;
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

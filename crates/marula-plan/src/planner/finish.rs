//! The stages above an access path: fetch, sort, skip and limit, projection.

use marula_bson::FieldPath;
use marula_query::sort::SortPart;
use marula_storage::Direction;

use super::access::Access;
use super::{IndexView, order};
use crate::bounds::{Interval, KeyBounds};
use crate::plan::{Ixscan, Plan, ProjectionKind, ScanUse, Sort, SortedKeys, Stage};
use crate::query::{Query, Shown, Wanted};

/// Returns the plan for this access path.
pub(super) fn finish(access: Access, query: &Query, views: &[IndexView<'_>]) -> Plan {
    let Access { rank, has_more_intersections, .. } = access;
    let sort = query.sort.as_ref();
    let has_more_walks =
        sort.is_some_and(|sort| order::has_too_many_walks(&access.node, sort, views));
    let (node, free_order) = order::orient_freely(access.node, query, views);
    let plan = Plan::new(on_top(node, query, views));
    Plan { rank, has_more_intersections, has_more_walks, free_order, ..plan }
}

/// Returns the tree above `node` that fulfils `query`.
fn on_top(mut node: Stage, query: &Query, views: &[IndexView<'_>]) -> Stage {
    if query.wanted == Wanted::Count {
        return count(node);
    }
    // A single document needs no sort and no limit.
    let is_one_at_most = matches!(node, Stage::IdHack(_) | Stage::Eof);
    let sort = query.sort.as_ref().filter(|_| !is_one_at_most);
    let mut is_ordered = true;
    if let Some(pattern) = sort {
        (node, is_ordered) = order::orient(node, pattern, views);
    }
    let blocking = sort.filter(|_| !is_ordered);
    // Whether index entries suffice for the sort, and for the projection.
    let is_fetched = order::is_fetched(&node);
    let sorts_entries = !is_fetched
        && blocking.is_some_and(|pattern| {
            let paths: Option<Vec<_>> = pattern.parts().iter().map(path_of).collect();
            paths.is_some_and(|paths| holds_all(&node, &paths, views))
        });
    let covers = !is_fetched
        && (blocking.is_none() || sorts_entries)
        && match (&query.wanted, &query.shown) {
            (Wanted::Key, _) => true,
            (Wanted::Documents, Some(Shown { needs: Some(needs), .. })) => {
                holds_all(&node, needs, views)
            }
            _ => false,
        };
    let shows_nothing = query.shown.as_ref().is_some_and(Shown::is_nothing);
    // If the key is wanted, the scan must return its entries.
    if (covers && !shows_nothing) || sorts_entries || query.wanted == Wanted::Key {
        show_entries(&mut node);
    }
    let mut must_fetch = !is_fetched && !covers;
    let mut is_projected = false;
    if let Some(pattern) = blocking {
        let mut input = node;
        if must_fetch && !sorts_entries {
            input = Stage::fetch(input, None);
            must_fetch = false;
        }
        // A full sort should hold small rows.
        let keeps = |shown: &Shown| {
            pattern.parts().iter().all(|part| match part {
                SortPart::Path { path, .. } => shown.keeps(path),
                SortPart::Meta(_) => false,
            })
        };
        if !must_fetch && query.limit.is_none() && query.shown.as_ref().is_some_and(keeps) {
            input = project(input, query, covers);
            is_projected = true;
        }
        let limit = query.limit.map(|limit| limit.saturating_add(query.skip));
        let is_simple = order::is_fetched(&input);
        node = Stage::Sort(Sort {
            pattern: pattern.clone(),
            limit,
            is_simple,
            keys: match query.wanted {
                Wanted::Key => SortedKeys::Instead,
                _ if query.wants_key => SortedKeys::Beside,
                _ => SortedKeys::Gone,
            },
            input: Box::new(input),
            bytes_max: query.context.limits.sort_bytes_max,
        });
    }
    if query.skip > 0 {
        node = Stage::skip(node, query.skip);
    }
    if must_fetch {
        node = Stage::fetch(node, None);
    }
    if !is_projected {
        node = project(node, query, covers);
    }
    if let Some(limit) = query.limit.filter(|_| blocking.is_none() && !is_one_at_most) {
        node = Stage::limit(node, limit);
    }
    match shows_nothing && query.skip == 0 && query.limit.is_none() {
        true => count(node),
        false => node,
    }
}

fn path_of(part: &SortPart) -> Option<FieldPath> {
    match part {
        SortPart::Path { path, .. } => Some(path.clone()),
        SortPart::Meta(_) => None,
    }
}

/// Adds the projection of a query to `node`, if it has one.
pub(super) fn project(node: Stage, query: &Query, covers: bool) -> Stage {
    if query.wanted == Wanted::Key {
        return Stage::project(node, ProjectionKind::ReturnKey);
    }
    let Some(shown) = query.shown.as_ref().filter(|shown| !shown.is_nothing()) else {
        return node;
    };
    let is_one_scan = !node.any(&|stage| matches!(stage, Stage::Or(_) | Stage::SortMerge(_)));
    let kind = match shown.is_simple {
        true if covers && is_one_scan => ProjectionKind::Covered,
        true if !covers => ProjectionKind::Simple,
        _ => ProjectionKind::Default,
    };
    Stage::project(node, kind)
}

/// Returns whether a stage's entries determine the documents' values at all of `paths`.
fn holds_all(node: &Stage, paths: &[FieldPath], views: &[IndexView<'_>]) -> bool {
    match node {
        Stage::Ixscan(scan) => {
            let view = views.iter().find(|view| view.is_walked_by(scan));
            let fields = scan.bounds.fields.as_ref();
            view.is_some_and(|view| paths.iter().all(|path| view.holds(path, fields)))
        }
        Stage::Or(_) | Stage::SortMerge(_) => {
            node.inputs().iter().all(|input| holds_all(input, paths, views))
        }
        Stage::Fetch(_) => true,
        _ => false,
    }
}

/// Makes scans return entries as documents.
fn show_entries(node: &mut Stage) {
    match node {
        Stage::Ixscan(scan) => scan.covers = true,
        _ => node.inputs_mut().iter_mut().for_each(show_entries),
    }
}

/// Counts the entries of one range of an index; undefined and null together are permitted too,
/// which are two ranges.
fn count(mut node: Stage) -> Stage {
    let Stage::Ixscan(scan) = &mut node else { return node };
    if scan.filter.is_some() {
        return node;
    }
    if matches!(scan.bounds.keys, KeyBounds::Range(_)) {
        scan.used_for = ScanUse::Count;
        // A count needs no order.
        scan.direction = Direction::Forward;
        return node;
    }
    let Some(fields) = scan.bounds.fields.as_ref().filter(|_| scan.wildcard.is_none()) else {
        return node;
    };
    let several = |intervals: &Vec<Interval>| intervals.len() > 1;
    let Some(number) = fields.fields.iter().position(several) else { return node };
    let view = IndexView::bare(&scan.index);
    let is_nothing = |interval: &Interval| interval.is_point() && interval.low.get().is_nullish();
    if view.parts[number].descending || !fields.fields[number].iter().all(is_nothing) {
        return node;
    }
    let walks = fields.fields[number].iter().map(|point| {
        let mut fields = fields.clone();
        fields.fields[number] = vec![point.clone()];
        let mut walk = view.scan(fields);
        walk.used_for = ScanUse::Count;
        walk
    });
    let walks: Vec<Ixscan> = walks.collect();
    if !walks.iter().all(|walk| matches!(walk.bounds.keys, KeyBounds::Range(_))) {
        return node;
    }
    Stage::or(walks.into_iter().map(Stage::Ixscan).collect())
}

//! Scans that jump from one value of a field to the next.
//!
//! ```text
//!   index on { a: 1 }   1  1  1  1  2  2  5  5  5
//!                       ▲           ▲     ▲           one entry per value, a seek in between
//! ```
//!
//! `distinct` wants each value once, and some `$group`s only the first document of each group.
//! Source: mongod 6.0's `explain` of both.

use marula_bson::FieldPath;
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_error::Result;

use super::{IndexView, access, find_hinted, finish, near, plans_inner, searched, visible};
use crate::bounds::{Interval, KeyBounds};
use crate::plan::{Ixscan, Plan, ProjectionKind, ScanUse, Stage};
use crate::query::{Hint, Query};

/// The location of a path's value in an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueLocation {
    /// The number of the entry's field.
    pub field: usize,
    /// The number of components of the path that lead to that field; the others lead into its
    /// value.
    pub depth: usize,
}

/// Returns the plan that returns one index entry for each value of `key` in matching documents, and
/// the location of the value in the entry, or `None` for it if the value must be read from the
/// documents. Returns `None` if no index supports it.
pub fn plan_distinct(
    state: &State,
    query: &Query,
    key: &FieldPath,
) -> Option<(Plan, Option<ValueLocation>)> {
    if query.hint.is_some() {
        return None;
    }
    let views = visible(state, query);
    if query.filter.to_doc().as_doc().is_empty() {
        return whole_distinct(&views, key);
    }
    let mut found = access::accesses(state, &views, query, query.filter.root());
    found.sort_by_key(|access| std::cmp::Reverse(access.rank));
    found.into_iter().find_map(|access| {
        let Stage::Ixscan(mut scan) = access.node else { return None };
        let view = views.iter().find(|view| view.is_walked_by(&scan))?;
        let field = view.parts.iter().position(|part| part.is_on(key))?;
        let fields = scan.bounds.fields.as_ref();
        let is_in_entry = view.holds(key, fields);
        let is_separated =
            separates_values(view, field, key) && view.same_collation && view.has_one_path(fields);
        if scan.filter.is_some() || !(is_in_entry || is_separated) {
            return None;
        }
        scan.used_for = ScanUse::Distinct(field);
        if let Some(fields) = &scan.bounds.fields {
            scan.bounds.keys = KeyBounds::checked(fields, &view.parts);
        }
        let scan = Stage::Ixscan(scan);
        Some(match is_in_entry {
            true => (
                Plan::new(Stage::project(scan, covering(key))),
                Some(location_of(view, field, key)),
            ),
            false => (Plan::new(Stage::fetch(scan, None)), None),
        })
    })
}

/// Returns the scan of the whole index with the fewest fields that starts with `key`. The entries
/// contain the elements of arrays, which are what `distinct` returns.
fn whole_distinct(
    views: &[IndexView<'_>],
    key: &FieldPath,
) -> Option<(Plan, Option<ValueLocation>)> {
    let is_suitable = |view: &&IndexView<'_>| {
        let (part, spec) = (&view.parts[0], &view.index.spec);
        part.is_on(key)
            && view.wildcard.is_none()
            && part.kind.holds_value
            && view.same_collation
            && !matches!(spec.kind, IndexKind::Places(_))
            && spec.partial.is_none()
    };
    let view = views.iter().filter(is_suitable).min_by_key(|view| view.parts.len())?;
    let part = &view.parts[0];
    let mut scan = view.whole_scan();
    scan.gives_once = false;
    scan.used_for = ScanUse::Distinct(0);
    let scan = Stage::Ixscan(scan);
    // Sort keys of strings, and paths with numbers, do not determine the documents' values.
    Some(match part.order.is_none() && !part.names_places {
        true => (Plan::new(Stage::project(scan, covering(key))), Some(location_of(view, 0, key))),
        false => {
            let kind = match up_to_number(key).is_single() {
                true => ProjectionKind::Simple,
                false => ProjectionKind::Default,
            };
            (Plan::new(Stage::project(Stage::fetch(scan, None), kind)), None)
        }
    })
}

/// Returns the location of the values of `key` in the entries of an index whose part `field` is on
/// `key`. With an index on `a.b` and `a` the value is read from that of `a`, as in a covered
/// projection.
fn location_of(view: &IndexView<'_>, field: usize, key: &FieldPath) -> ValueLocation {
    let parts = if view.wildcard.is_none() { &view.index.spec.parts[..] } else { &[] };
    let fronts = parts.iter().enumerate().map(|(field, part)| (field, part.path.parts()));
    let around = fronts
        .filter(|(_, front)| front.len() < key.parts().len() && key.parts().starts_with(front))
        .min_by_key(|(_, front)| front.len());
    match around {
        Some((field, front)) => ValueLocation { field, depth: front.len() },
        None => ValueLocation { field, depth: key.parts().len() },
    }
}

/// Returns the kind of projection of entries that contain the values of `key`.
fn covering(key: &FieldPath) -> ProjectionKind {
    if key.is_single() { ProjectionKind::Covered } else { ProjectionKind::Default }
}

/// Returns the part of a path that `distinct` reads from documents: as in mongod, up to a number,
/// whose meaning depends on the document.
pub fn up_to_number(key: &FieldPath) -> FieldPath {
    let named = key.indexes().iter().take_while(|index| index.is_none()).count();
    FieldPath::new(key.parts()[..named.max(1)].join(&b'.'))
}

/// Returns whether an index on `key` leads to the matching documents.
pub fn is_led_to(state: &State, query: &Query, key: &FieldPath) -> bool {
    if query.filter.near().is_some() {
        return state.indexes.iter().any(|index| {
            let is_part = index.spec.parts.iter().any(|part| part.path == *key);
            is_part && !index.spec.hidden && near::serves(index, query)
        });
    }
    let mut filter = query.filter.clone();
    filter.add_index_conditions(&query.context);
    let mut views = visible(state, query);
    views.retain(|view| match &view.index.spec.kind {
        // Whichever path is scanned.
        IndexKind::Wildcard(wildcard) if wildcard.covers(key) => true,
        _ => view.parts.iter().any(|part| part.is_on(key)),
    });
    !access::accesses(state, &views, query, filter.root()).is_empty()
}

/// Returns the plan that returns, for each value of `query.first_of_each` in matching documents,
/// the first document in the sort order; `None` if no index supports it, or if the query does not
/// want it.
///
/// Errors: as of [`super::plans`].
pub(crate) fn plan_first_of_each(state: &State, query: &Query) -> Result<Option<Plan>> {
    let Some(key) = &query.first_of_each else { return Ok(None) };
    let is_part = query.skip > 0 || query.limit.is_some();
    let is_search = query.filter.near().is_some() || query.filter.text().is_some();
    if is_part || is_search || key.indexes().iter().any(Option::is_some) {
        return Ok(None);
    }
    if query.filter.is_always_true() && query.sort.is_none() {
        return whole_by_jumps(state, query, key);
    }
    let plans = match &query.hint {
        None => searched(state, query)?,
        Some(_) => plans_inner(state, query)?,
    };
    let views = visible(state, query);
    Ok(plans.into_iter().find_map(|plan| by_jumps(plan, &views, key)))
}

/// Returns the scan of the whole index with the fewest fields that starts with `key`.
fn whole_by_jumps(state: &State, query: &Query, key: &FieldPath) -> Result<Option<Plan>> {
    let hint = query.hint.as_ref().filter(|_| query.allowed.is_none());
    let views = match hint {
        None => visible(state, query),
        Some(Hint::Natural { .. }) => return Ok(None),
        Some(hint) => vec![IndexView::new(find_hinted(state, hint)?, query)],
    };
    let is_suitable = |view: &&IndexView<'_>| {
        let spec = &view.index.spec;
        // A hinted index may omit documents.
        let holds_all = hint.is_some() || (!spec.sparse && spec.partial.is_none());
        separates_values(view, 0, key)
            && view.same_collation
            && view.wildcard.is_none()
            && !matches!(spec.kind, IndexKind::Places(_) | IndexKind::Text(_))
            && holds_all
    };
    let Some(view) = views.iter().filter(is_suitable).min_by_key(|view| view.parts.len()) else {
        return Ok(None);
    };
    let mut scan = view.whole_scan();
    scan.gives_once = false;
    scan.used_for = ScanUse::Distinct(0);
    let needs = query.shown.as_ref().and_then(|shown| shown.needs.as_ref());
    scan.covers = needs.is_some_and(|needs| needs.iter().all(|path| view.holds(path, None)));
    let covers = scan.covers;
    let mut node = Stage::Ixscan(scan);
    if !covers {
        node = Stage::fetch(node, None);
    }
    Ok(Some(Plan::new(finish::project(node, query, covers))))
}

/// Returns the plan with jumps in its scan, if the scan reads the values of `key` in order and no
/// later stage drops documents.
fn by_jumps(plan: Plan, views: &[IndexView<'_>], key: &FieldPath) -> Option<Plan> {
    let jumping = |node: Stage| {
        let Stage::Ixscan(scan) = node else { return None };
        jumping(scan, views, key).map(Stage::Ixscan)
    };
    let root = match plan.root {
        Stage::Projection(projecting) => match *projecting.input {
            Stage::Fetch(fetch) if fetch.filter.is_none() => {
                Stage::fetch(jumping(*fetch.input)?, None)
            }
            stage => Stage::project(jumping(stage)?, projecting.kind),
        },
        Stage::Fetch(fetch) if fetch.filter.is_none() => Stage::fetch(jumping(*fetch.input)?, None),
        _ => return None,
    };
    Some(Plan::new(root))
}

fn jumping(mut scan: Ixscan, views: &[IndexView<'_>], key: &FieldPath) -> Option<Ixscan> {
    let view = views.iter().find(|view| view.is_walked_by(&scan))?;
    let field = view.parts.iter().position(|part| part.is_on(key))?;
    let fields = &scan.bounds.fields.as_ref()?.fields;
    let is_one = |intervals: &Vec<Interval>| matches!(&intervals[..], [one] if one.is_point());
    let tells_alike = view.same_collation || fields[field].iter().all(is_of_numbers);
    let is_in_order = tells_alike && fields.iter().take(field).all(is_one);
    if scan.filter.is_some() || !separates_values(view, field, key) || !is_in_order {
        return None;
    }
    scan.gives_once = false;
    scan.used_for = ScanUse::Distinct(field);
    Some(scan)
}

/// Returns whether entries with equal values in this field of an index belong to the documents with
/// equal values at `key`.
fn separates_values(view: &IndexView<'_>, field: usize, key: &FieldPath) -> bool {
    let part = &view.parts[field];
    part.is_on(key) && part.kind.holds_value && part.multikey == 0
}

/// Returns whether an interval contains only numbers, which are the same under every collation.
fn is_of_numbers(interval: &Interval) -> bool {
    interval.low.get().kind().is_number() && interval.high.get().kind().is_number()
}

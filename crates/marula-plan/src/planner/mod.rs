//! The planner: from a query to its candidate plans, the most promising first.
//!
//! ```text
//!   filter ──► conjuncts ──► conditions on fields
//!                                │ assign: which conditions bound which fields of an index
//!                                ▼
//!   indexes (`IndexView`) ──► access paths (`access`): an index, an intersection, a union
//!                                │ order: does the access path provide the sort order?
//!                                ▼
//!                             finish: fetch, residual filter, sort, skip, limit, projection
//!
//!   special cases: `_id` (id_hack), `min` and `max` (min_max), `$near` (near), `$text` (text),
//!                  DISTINCT (distinct), a top-level `$or` planned by branch (subplan)
//! ```
//!
//! The planner does not read the store; [`crate::trial`] measures the plans.

mod access;
mod assign;
mod conditions;
mod distinct;
mod finish;
mod min_max;
mod near;
mod order;
mod partial;
pub(crate) mod subplan;
mod text;
mod wildcard;

pub(crate) use partial::flatten;

use std::sync::Arc;

use marula_bson::{FieldPath, ValueBuf};
use marula_db::Index;
use marula_db::collection::{Shape, State};
use marula_db::index::IndexKind;
use marula_db::index::spec::same_pattern;
use marula_db::keys::Ident;
use marula_error::{Result, errors};
use marula_query::filter::{Filter, Node as FilterNode};
use marula_query::meter;
use marula_storage::Direction;

use crate::bounds::places::has_all_places;
use crate::bounds::{self, IndexBounds, KeyBounds, PartView};
use crate::clustered::{self, ClusteredScan};
use crate::plan::{Expansion, IdHack, Ixscan, Plan, ScanBounds, ScanUse, Stage};
use crate::query::{Hint, Query, Wanted};
pub(crate) use access::{Access, Rank};
pub(crate) use distinct::plan_first_of_each;
pub use distinct::{ValueLocation, is_led_to, plan_distinct, up_to_number};
pub use text::{has_text_index, index_required, prepare as prepare_search};
use wildcard::Expanded;

errors! {
    no_geo_index() = NoQueryExecutionPlans, "unable to find index for $geoNear query";
    /// A search by distance cannot scan the collection.
    pub near_with_natural() = BadValue, "geoNear expression not allowed with $natural hint";
    whole_wildcard() = NoQueryExecutionPlans, "$hint: refusing to build whole-index solution, because it's a wildcard index";
    no_solutions() = NoQueryExecutionPlans, "No query solutions";
    bad_hint() = BadValue, "hint provided does not correspond to an existing index";
    ambiguous_hint(one: &str, other: &str) = IndexNotFound, "Hint matched multiple indexes, must hint by index name. Matched: {one} and {other}";
}

/// The maximum number of plans considered for one query.
const PLANS_MAX: usize = 64;

/// An index as the planner sees it for one query.
pub(crate) struct IndexView<'a> {
    index: &'a Arc<Index>,
    parts: Vec<PartView<'a>>,
    same_collation: bool,
    /// For a wildcard index, the expansion.
    wildcard: Option<Expanded>,
}

impl<'a> IndexView<'a> {
    fn new(index: &'a Arc<Index>, query: &Query) -> Self {
        let same_collation = match (&index.spec.collation, &query.context.collation) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours.to_doc() == theirs.to_doc(),
            _ => false,
        };
        let mut parts = PartView::of(index, same_collation);
        // The fields of the index are not needed.
        let needs = query.shown.as_ref().and_then(|shown| shown.needs.as_deref());
        let shows_id_alone =
            matches!(needs, Some([path]) if path.is_single() && path.first() == b"_id");
        let is_counted = (query.wanted == Wanted::Count || shows_id_alone)
            && parts.iter().all(|part| part.multikey == 0);
        parts.iter_mut().for_each(|part| part.is_counted = is_counted);
        IndexView { index, parts, same_collation, wildcard: None }
    }

    /// Returns the view of an index without a query.
    fn bare(index: &'a Arc<Index>) -> Self {
        let parts = PartView::of(index, false);
        IndexView { index, parts, same_collation: false, wildcard: None }
    }

    /// Returns the number of the part that must be bounded first.
    fn lead(&self) -> usize {
        self.wildcard.as_ref().map_or(0, Expanded::lead)
    }

    /// Returns the number of the part with the value of a wildcard's path.
    fn value_part(&self) -> Option<usize> {
        self.wildcard.as_ref().and_then(Expanded::value_part)
    }

    /// Returns whether a scan is over this view of its index.
    fn is_walked_by(&self, scan: &Ixscan) -> bool {
        let ours = self.wildcard.as_ref().map(|wildcard| &wildcard.expansion);
        Arc::ptr_eq(self.index, &scan.index) && ours == scan.wildcard.as_ref()
    }

    /// Returns whether an entry within `bounds` determines a document's value at `path`.
    fn holds(&self, path: &FieldPath, bounds: Option<&IndexBounds>) -> bool {
        self.parts.iter().enumerate().any(|(number, part)| {
            part.is_on(path)
                && part.kind.holds_value
                && part.multikey == 0
                && (part.order.is_none() || is_free_of_strings(bounds, number))
                && !part.names_places
                && self.has_one_path(bounds)
        })
    }

    /// Returns whether entries within `bounds` are all of one path, if this is a wildcard index.
    fn has_one_path(&self, bounds: Option<&IndexBounds>) -> bool {
        let Some(Expanded { expansion: Expansion::Path(_), path_part, .. }) = &self.wildcard else {
            return true;
        };
        bounds.is_some_and(|bounds| bounds.fields[*path_part].len() == 1)
    }

    fn is_multikey(&self) -> bool {
        self.parts.iter().any(|part| part.multikey != 0)
    }

    fn scan(&self, bounds: IndexBounds) -> Ixscan {
        let keys = KeyBounds::new(&bounds, &self.parts);
        self.scan_of(ScanBounds { fields: Some(bounds), keys })
    }

    fn scan_of(&self, bounds: ScanBounds) -> Ixscan {
        let mut scan = Ixscan::new(self.index.clone(), bounds, Direction::Forward);
        scan.wildcard = self.wildcard.as_ref().map(|wildcard| wildcard.expansion.clone());
        // A document has an entry for each path.
        let has_paths = |fields: &IndexBounds| {
            let paths = self.wildcard.as_ref().map(|wildcard| &fields.fields[wildcard.path_part]);
            paths.is_some_and(|paths| paths.len() > 1)
        };
        if self.is_multikey() || scan.bounds.fields.as_ref().is_some_and(has_paths) {
            scan.gives_once = true;
        }
        scan
    }

    fn whole_scan(&self) -> Ixscan {
        self.scan(IndexBounds::whole(self.parts.len()))
    }
}

/// Returns whether no entry within `bounds` contains a string in this field of its index.
fn is_free_of_strings(bounds: Option<&IndexBounds>, field: usize) -> bool {
    let intervals = bounds.and_then(|bounds| bounds.fields.get(field));
    intervals.is_some_and(|intervals| bounds::are_free_of_strings(intervals))
}

/// Returns the most promising plan for `query` on a collection in `state`.
///
/// Errors: `bad_hint`, and the rules of `min` and `max`.
pub fn plan(state: &State, query: &Query) -> Result<Plan> {
    let mut plans = plans(state, query)?;
    let ranks = plans.iter().map(|plan| plan.rank).enumerate();
    let best = ranks.reduce(|a, b| if b.1 > a.1 { b } else { a }).map_or(0, |(number, _)| number);
    Ok(plans.swap_remove(best))
}

/// Returns the plans for `query` on a collection in `state`: at least one, in mongod's order.
///
/// Errors: as of [`plan`].
pub fn plans(state: &State, query: &Query) -> Result<Vec<Plan>> {
    check(state, query)?;
    plans_of_checked(state, query)
}

/// Like [`plans`], after [`check`] has succeeded.
pub(crate) fn plans_of_checked(state: &State, query: &Query) -> Result<Vec<Plan>> {
    let is_subplan = is_subplan(query);
    let plans = plans_inner(state, query);
    meter::recall()?;
    let plans = plans?;
    Ok(plans.into_iter().map(|plan| Plan { is_subplan, ..plan }).collect())
}

/// Checks a query before planning.
///
/// Errors: those of a text search and of a wildcard index, `near_with_natural`.
pub(crate) fn check(state: &State, query: &Query) -> Result<()> {
    text::prepare(state, query)?;
    wildcard::check(state, query)?;
    match query.hint {
        Some(Hint::Natural { .. }) if query.filter.near().is_some() => Err(near_with_natural()),
        _ => Ok(()),
    }
}

/// Returns the plan for one `_id`.
pub fn plan_id(id: ValueBuf) -> Plan {
    Plan::new(id_hack(id))
}

/// Returns whether an index has the query's collation.
pub(crate) fn has_collation_of(index: &Arc<Index>, query: &Query) -> bool {
    IndexView::new(index, query).same_collation
}

/// Returns whether a query implies the filter of a partial index; true for other indexes.
pub(crate) fn is_partial_served(index: &Index, query: &Query) -> bool {
    let Some(filter) = &index.spec.partial else { return true };
    let mut conjuncts = Vec::new();
    partial::flatten(query.filter.root(), &mut conjuncts);
    partial::covers(filter.root(), &conjuncts)
}

fn plans_inner(state: &State, query: &Query) -> Result<Vec<Plan>> {
    if query.filter.near().is_some() {
        return Ok(vec![near::plan(state, query)?]);
    }
    if query.min.is_some() || query.max.is_some() {
        return Ok(vec![min_max::plan(state, query)?]);
    }
    if query.filter.text().is_some() {
        let mut plans = indexed(state, &visible(state, query), query);
        // Only the text index has scores, also for a search in a branch.
        let searches = |plan: &Plan| plan.root.any(&|stage| matches!(stage, Stage::TextMatch(_)));
        if plans.iter().any(searches) {
            plans.retain(searches);
        }
        return match query.filter.root() {
            _ if !plans.is_empty() => Ok(plans),
            FilterNode::Or(branches) if text::lacks_prefix(state, branches) => {
                Err(text::index_not_usable())
            }
            FilterNode::Or(_) => Err(text::under_or()),
            _ => Err(text::index_not_usable()),
        };
    }
    match heeded_hint(query) {
        Some(Hint::Natural { backward }) => {
            let direction = if *backward { Direction::Backward } else { Direction::Forward };
            return Ok(vec![match clustered::scan(state, query)? {
                Some(walk) => clustered_plan(ClusteredScan { direction, ..walk }, query),
                None => collscan(direction, query),
            }]);
        }
        Some(hint) if clustered::is_hinted(state, hint) => {
            return Ok(vec![walk_records(state, query)?]);
        }
        Some(hint) => {
            let index = find_hinted(state, hint)?;
            let mut conjuncts = Vec::new();
            partial::flatten(query.filter.root(), &mut conjuncts);
            if let IndexKind::Wildcard(_) = index.spec.kind {
                let views = wildcard::views(index, query);
                let plans = indexed(state, &views, query);
                return match (plans.is_empty(), views.is_empty()) {
                    (false, _) => Ok(plans),
                    (true, true) => Err(no_solutions()),
                    (true, false) => Err(whole_wildcard()),
                };
            }
            let views = [IndexView::new(index, query)];
            // An index on locations is scanned from end to end if the query does not search for
            // locations.
            let mut plans = match has_all_places(index, &conjuncts) {
                true => indexed(state, &views, query),
                false => Vec::new(),
            };
            if plans.is_empty() {
                let scan = Stage::Ixscan(views[0].whole_scan());
                let access = Access::with_filter(scan, whole_filter(query));
                plans.push(finish::finish(access, query, &views));
            }
            return Ok(plans);
        }
        None => {}
    }
    if let Some(id) = query.filter.named_id()
        && query.skip == 0
        && !query.shows_record_id
        && state.shape() != Shape::Clustered
        && query.context.collation == state.options.collation
    {
        return Ok(vec![finish::finish(Access::of(id_hack(id.to_buf())), query, &[])]);
    }
    searched(state, query)
}

/// Returns whether there may be several plans, none of them short, for a query with the filter
/// `root`, its own or that of a branch: at least two indexes, none of them unique, may support it.
pub(crate) fn has_several_ways(state: &State, query: &Query, root: &FilterNode) -> bool {
    let is_searched = query.hint.is_none()
        && query.min.is_none()
        && query.max.is_none()
        && query.filter.near().is_none()
        && query.filter.text().is_none()
        && query.filter.named_id().is_none()
        && state.shape() != Shape::Clustered;
    let mut named = Vec::new();
    name_fields(root, &mut named);
    let may_be_of_use = |index: &&Arc<Index>| {
        !index.spec.hidden && (query.sort.is_some() || is_named(index, &named))
    };
    let of_use = || state.indexes.iter().filter(may_be_of_use);
    is_searched && of_use().nth(1).is_some() && !of_use().any(|index| index.spec.unique)
}

/// Returns the plans for `query` by these indexes alone, as [`plans_of_checked`] would return them
/// among all.
///
/// Errors: those of an operation that must end, or has no memory left.
pub(crate) fn plans_by(state: &State, query: &Query, indexes: &[Ident]) -> Result<Vec<Plan>> {
    let mut views = useful(state, query);
    views.retain(|view| indexes.contains(&view.index.ident));
    let plans = searched_by(state, &views, query);
    meter::recall()?;
    let is_subplan = is_subplan(query);
    Ok(plans?.into_iter().map(|plan| Plan { is_subplan, ..plan }).collect())
}

/// Returns the candidate plans of a query without a hint.
fn searched(state: &State, query: &Query) -> Result<Vec<Plan>> {
    searched_by(state, &useful(state, query), query)
}

/// Like [`searched`], with the given indexes.
fn searched_by(state: &State, views: &[IndexView<'_>], query: &Query) -> Result<Vec<Plan>> {
    let mut plans = indexed(state, views, query);
    // A count scan is not compared with other plans.
    if let Some(number) = plans.iter().position(|plan| plan.root.any(&counts_entries)) {
        return Ok(vec![plans.swap_remove(number)]);
    }
    let is_blocking = |stage: &Stage| matches!(stage, Stage::Sort(_));
    if let Some(sort) = &query.sort
        && plans.iter().all(|plan| plan.root.any(&is_blocking))
    {
        plans.extend(ordered(views, query, sort));
    }
    if plans.is_empty() {
        plans.push(walk_records(state, query)?);
    } else if let Some(walk) = clustered::scan(state, query)?
        && (walk.low.is_some() || (walk.gives_order && query.sort.is_some()))
    {
        plans.push(clustered_plan(walk, query));
    }
    plans.truncate(PLANS_MAX);
    Ok(plans)
}

fn counts_entries(stage: &Stage) -> bool {
    matches!(stage, Stage::Ixscan(scan) if scan.used_for == ScanUse::Count)
}

/// Returns the indexes that a query may use.
fn visible<'a>(state: &'a State, query: &'a Query) -> Vec<IndexView<'a>> {
    state.indexes.iter().flat_map(|index| views_of(index, query)).collect()
}

/// Returns the views of an index for a query: a wildcard index has one for each path, a text index
/// or a hidden index none.
fn views_of<'a>(index: &'a Arc<Index>, query: &'a Query) -> Vec<IndexView<'a>> {
    match index.spec.kind {
        _ if index.spec.hidden => Vec::new(),
        _ if query.allowed.as_ref().is_some_and(|allowed| !allowed.allows(&index.spec)) => {
            Vec::new()
        }
        IndexKind::Text(_) => Vec::new(),
        IndexKind::Wildcard(_) => wildcard::views(index, query),
        _ => vec![IndexView::new(index, query)],
    }
}

/// Returns the indexes that may support a query: without a sort, an ordinary index only by its
/// first field.
fn useful<'a>(state: &'a State, query: &'a Query) -> Vec<IndexView<'a>> {
    if query.sort.is_some() {
        return visible(state, query);
    }
    let mut named = Vec::new();
    name_fields(query.filter.root(), &mut named);
    let useful = state.indexes.iter().filter(|index| is_named(index, &named));
    useful.flat_map(|index| views_of(index, query)).collect()
}

/// Returns whether an index starts with one of these fields, or is not an ordinary index.
fn is_named(index: &Index, named: &[&[u8]]) -> bool {
    let first = index.spec.parts.first().map(|part| part.path.first());
    let is_ordinary = matches!(index.spec.kind, IndexKind::Ordinary);
    !is_ordinary || first.is_some_and(|first| named.contains(&first))
}

/// Collects the top-level fields in a filter's paths.
fn name_fields<'q>(node: &'q FilterNode, out: &mut Vec<&'q [u8]>) {
    match node {
        FilterNode::Path(at) => out.push(at.path.first()),
        FilterNode::And(children) | FilterNode::Or(children) => {
            children.iter().for_each(|child| name_fields(child, out));
        }
        _ => {}
    }
}

/// Returns the plans whose index is bounded by the filter.
fn indexed(state: &State, views: &[IndexView<'_>], query: &Query) -> Vec<Plan> {
    let found = access::accesses(state, views, query, query.filter.root());
    found.into_iter().map(|access| finish::finish(access, query, views)).collect()
}

/// Returns whether the branches of an `$or` are planned one by one, each as an independent query.
fn is_subplan(query: &Query) -> bool {
    matches!(query.filter.root(), FilterNode::Or(_))
        && query.hint.is_none()
        && query.min.is_none()
        && query.max.is_none()
}

/// Returns the plans that scan a whole index for its order.
fn ordered(
    views: &[IndexView<'_>],
    query: &Query,
    sort: &marula_query::sort::SortPattern,
) -> Vec<Plan> {
    let mut conjuncts = Vec::new();
    partial::flatten(query.filter.root(), &mut conjuncts);
    let knows_all = |view: &&IndexView<'_>| {
        let spec = &view.index.spec;
        !spec.sparse
            && view.wildcard.is_none()
            && !matches!(spec.kind, IndexKind::Places(_))
            && spec
                .partial
                .as_ref()
                .is_none_or(|partial| partial::covers(partial.root(), &conjuncts))
    };
    let gives_order = |view: &&IndexView<'_>| {
        order::direction_of(view, &IndexBounds::whole(view.parts.len()), sort).is_some()
    };
    let suitable = views.iter().filter(knows_all).filter(gives_order);
    suitable
        .map(|view| {
            let scan = Stage::Ixscan(view.whole_scan());
            finish::finish(Access::with_filter(scan, whole_filter(query)), query, views)
        })
        .collect()
}

fn collscan(direction: Direction, query: &Query) -> Plan {
    let access = Access::of(Stage::collscan(direction, whole_filter(query)));
    finish::finish(access, query, &[])
}

/// Returns a collection scan, within the query's bounds if the collection is clustered.
fn walk_records(state: &State, query: &Query) -> Result<Plan> {
    Ok(match clustered::scan(state, query)? {
        Some(walk) => clustered_plan(walk, query),
        None => collscan(Direction::Forward, query),
    })
}

/// Returns the hint of a query. An index filter takes precedence over a hint of an index.
fn heeded_hint(query: &Query) -> Option<&Hint> {
    query
        .hint
        .as_ref()
        .filter(|hint| query.allowed.is_none() || matches!(hint, Hint::Natural { .. }))
}

fn clustered_plan(walk: ClusteredScan, query: &Query) -> Plan {
    let mut node = Stage::collscan(walk.direction, whole_filter(query));
    if let Stage::Collscan(scan) = &mut node {
        scan.records = Some(walk);
    }
    finish::finish(Access::of(node), query, &[])
}

fn whole_filter(query: &Query) -> Option<Filter> {
    (!query.filter.is_always_true()).then(|| query.filter.clone())
}

fn id_hack(id: ValueBuf) -> Stage {
    Stage::IdHack(IdHack { id })
}

fn find_hinted<'s>(state: &'s State, hint: &Hint) -> Result<&'s Arc<Index>> {
    let found = match hint {
        Hint::Name(name) => state.index(name),
        Hint::Key(key) => {
            let is_meant = |index: &&Arc<Index>| {
                !index.spec.hidden && same_pattern(index.spec.key.as_doc(), key.as_doc())
            };
            let mut meant = state.indexes.iter().filter(is_meant);
            let first = meant.next();
            if let (Some(one), Some(other)) = (first, meant.next()) {
                return Err(ambiguous_hint(&described(one), &described(other)));
            }
            first
        }
        Hint::Natural { .. } => None,
    };
    found.filter(|index| !index.spec.hidden).ok_or_else(bad_hint)
}

/// Returns the description of an index in error messages.
fn described(index: &Index) -> String {
    let spec = &index.spec;
    format!("kp: {} name: '({}, )' io: {}", spec.key.as_doc(), spec.name, spec.quoted().as_doc())
}

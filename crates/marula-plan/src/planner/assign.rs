//! The assignment of conditions to the fields of an index.

use marula_query::filter::Node;
use marula_query::meter;

use super::conditions::{self, Condition};
use super::{IndexView, PLANS_MAX, wildcard};
use crate::bounds::interval::intersect;
use crate::bounds::{Exactness, IndexBounds, Interval};

/// One assignment of conjuncts to an index.
pub(super) struct Assignment {
    /// The bounds.
    pub bounds: IndexBounds,
    /// The conjuncts that bound it in order, and the check that remains for each.
    pub used: Vec<(usize, Exactness)>,
    /// The same conjuncts in the order of the fields that they bound.
    pub by_field: Vec<usize>,
    /// The number of fields with bounds.
    pub bounded_fields: usize,
    /// The number of leading fields with single values.
    pub point_fields: usize,
}

/// Returns the assignments of `conjuncts` to an index: several if arrays permit only one of two
/// conditions to bound it, at most as many as there can be plans.
pub(super) fn assignments(view: &IndexView<'_>, conjuncts: &[&Node]) -> Vec<Assignment> {
    let conditions = conditions::of(conjuncts);
    let Some(first) = view.parts.get(view.lead()) else { return Vec::new() };
    let mut ways: Vec<Assignment> = Vec::new();
    // Without arrays all conditions bound the index together, whichever is first.
    let ways_max = if view.is_multikey() { PLANS_MAX } else { 1 };
    for condition in conditions.iter().filter(|condition| *condition.path == *first.path) {
        // The result is not used once the operation must end.
        if ways.len() == ways_max || meter::spend(ways.len()).is_err() {
            break;
        }
        let Some(way) = assign(view, &conditions, condition) else { continue };
        let is_known = |known: &Assignment| known.bounds == way.bounds && known.used == way.used;
        if !ways.iter().any(is_known) {
            ways.push(way);
        }
    }
    ways
}

/// Returns the assignment that starts with `start` on the first field, with all other conditions
/// that can be combined with it.
fn assign<'q>(
    view: &IndexView<'_>,
    conditions: &'q [Condition<'q>],
    start: &'q Condition<'q>,
) -> Option<Assignment> {
    let mut chosen: Vec<(&Condition<'_>, usize)> = Vec::new();
    let mut fields: Vec<Vec<Interval>> = Vec::with_capacity(view.parts.len());
    let mut used: Vec<(usize, Exactness)> = Vec::new();
    // The place of each conjunct in `used`.
    let conjuncts = conditions.last().map_or(0, |condition| condition.conjunct + 1);
    let mut places: Vec<Option<usize>> = vec![None; conjuncts];
    let is_multikey = view.is_multikey();
    let mut bounded_fields = 0;
    for (number, part) in view.parts.iter().enumerate() {
        let mut intervals: Option<Vec<Interval>> = None;
        let starts = (number == view.lead()).then_some(start);
        let on_path = conditions.iter().filter(|condition| {
            *condition.path == *part.path
                && starts.is_none_or(|start| !std::ptr::eq(*condition, start))
        });
        for condition in starts.into_iter().chain(on_path) {
            let goes_with = |&(other, at): &(&Condition<'_>, usize)| {
                conditions::may_combine((condition, part), (other, &view.parts[at]))
            };
            let compared = if is_multikey { chosen.len() } else { 0 };
            if meter::spend(meter::ELEMENT + compared).is_err() {
                return None;
            }
            if is_multikey && !chosen.iter().all(goes_with) {
                continue;
            }
            let Some(found) = part.bounds(condition.predicate) else {
                if starts.is_some_and(|start| std::ptr::eq(condition, start)) {
                    return None;
                }
                continue;
            };
            intervals = Some(match intervals {
                Some(known) => intersect(&known, &found.intervals, part.order),
                None => found.intervals,
            });
            chosen.push((condition, number));
            let exactness =
                if condition.is_whole { found.exactness } else { Exactness::OnDocument };
            match places[condition.conjunct] {
                Some(place) => used[place].1 = used[place].1.max(exactness),
                None => {
                    places[condition.conjunct] = Some(used.len());
                    used.push((condition.conjunct, exactness));
                }
            }
        }
        // Without a condition on its path, a wildcard index is seen as an index on the fields
        // before it.
        if intervals.is_none() && view.value_part() == Some(number) {
            return None;
        }
        bounded_fields += usize::from(intervals.is_some());
        fields.push(intervals.unwrap_or_else(|| vec![Interval::all()]));
    }
    let by_field = used.iter().map(|(conjunct, _)| *conjunct).collect();
    used.sort_unstable();
    let mut bounds = IndexBounds { fields };
    wildcard::bound_path(view, &mut bounds);
    let are_points = |list: &&Vec<Interval>| list.iter().all(Interval::is_point);
    let point_fields = bounds.fields.iter().skip(view.lead()).take_while(are_points).count();
    Some(Assignment { bounds, used, by_field, bounded_fields, point_fields })
}

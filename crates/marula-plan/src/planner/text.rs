//! Text searches: the index for one, and the scans for its terms.

use std::sync::Arc;

use marula_bson::{DocBuf, FieldPath, Value};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_db::index::text::{TextIndex, key_term};
use marula_error::{Result, errors};
use marula_query::filter::{CompareOp, Node as FilterNode, PathNode, Predicate};
use marula_query::sort::SortPattern;
use marula_query::text::TextMatcher;
use marula_storage::Direction;

use crate::bounds::{IndexBounds, Interval, KeyBounds, PartView};
use crate::plan::{Ixscan, ScanBounds, Stage, TextMatch, TextOr};
use crate::query::Query;

errors! {
    no_score() = 40_218, "query requires text score metadata, but it is not available";
    /// A text search on a collection without a text index.
    pub index_required() = IndexNotFound, "text index required for $text query";
    with_hint() = BadValue, "text and hint not allowed in same query";
    pub(super) under_or() = NoQueryExecutionPlans, "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be indexed as well.";
    pub(super) index_not_usable() = NoQueryExecutionPlans, "failed to use text index to satisfy $text query (if text index is compound, are equality predicates given for all prefix fields?)";
}

/// Returns the text index of a collection.
fn text_index(state: &State) -> Option<(&Arc<Index>, &TextIndex)> {
    state.indexes.iter().filter(|index| !index.spec.hidden).find_map(|index| {
        match &index.spec.kind {
            IndexKind::Text(text) => Some((index, text)),
            _ => None,
        }
    })
}

/// Returns whether a collection has an index for text searches.
pub fn has_text_index(state: &State) -> bool {
    text_index(state).is_some()
}

/// Returns whether the branch with the text search lacks an equality for a field before the terms.
pub(super) fn lacks_prefix(state: &State, branches: &[FilterNode]) -> bool {
    let Some((index, kind)) = text_index(state) else { return false };
    branches.iter().any(|branch| {
        let conjuncts = match branch {
            FilterNode::And(conjuncts) => conjuncts.as_slice(),
            single => std::slice::from_ref(single),
        };
        let searches = conjuncts.iter().any(|node| matches!(node, FilterNode::Text(_)));
        let conjuncts: Vec<_> = conjuncts.iter().collect();
        searches && prefix_values(index, kind, &conjuncts).is_none()
    })
}

/// Returns the values of the fields before the terms, with the numbers of their conjuncts; `None`
/// if one has no equality.
fn prefix_values<'f>(
    index: &Index,
    kind: &TextIndex,
    conjuncts: &[&'f FilterNode],
) -> Option<Vec<(usize, Value<'f>)>> {
    let value_of = |path: &FieldPath| {
        conjuncts.iter().enumerate().find_map(|(number, node)| match node {
            FilterNode::Path(PathNode { path: own, predicate: Predicate::Compare(compare) })
                if own == path && compare.op == CompareOp::Eq =>
            {
                Some((number, compare.value.get()))
            }
            _ => None,
        })
    };
    index.spec.parts[..kind.prefix].iter().map(|part| value_of(&part.path)).collect()
}

/// Finds the index for the text search of `query`, if there is a search.
///
/// Errors: `index_required`, `with_hint`, `no_score`, an unsupported language.
pub fn prepare(state: &State, query: &Query) -> Result<()> {
    let Some(text) = query.filter.text() else { return Ok(()) };
    let (_, index) = text_index(state).ok_or_else(index_required)?;
    let matcher = TextMatcher::new(&text.query, Arc::clone(&index.fields))?;
    text.matcher.get_or_init(|| Arc::new(matcher));
    if query.hint.is_some() {
        return Err(with_hint());
    }
    // Branches are planned on their own, and have scores to sort by only if the projection shows
    // them.
    let sorts_by_score = query.sort.as_ref().is_some_and(SortPattern::is_by_score);
    match query.filter.root() {
        FilterNode::Or(_) if sorts_by_score && !query.shows_score => Err(no_score()),
        _ => Ok(()),
    }
}

/// Returns the stages for the text search in `conjuncts`, and the conjuncts that need no further
/// check; `None` if a field before the terms has no equality.
pub(super) fn access(
    state: &State,
    query: &Query,
    conjuncts: &[&FilterNode],
) -> Option<(Stage, Vec<usize>)> {
    let is_text = |node: &&FilterNode| matches!(node, FilterNode::Text(_));
    let number = conjuncts.iter().position(is_text)?;
    let FilterNode::Text(text) = conjuncts[number] else { return None };
    let matcher = text.matcher.get()?.clone();
    let (index, kind) = text_index(state)?;
    let mut settled = vec![number];
    let (numbers, prefix): (Vec<_>, Vec<_>) =
        prefix_values(index, kind, conjuncts)?.into_iter().unzip();
    settled.extend(numbers);
    let shown = DocBuf::build(|out| {
        for (element, value) in index.spec.key.as_doc().iter().zip(&prefix) {
            out.append(element.name, *value);
        }
    });
    let terms = &matcher.search().index_terms;
    let mut walks: Vec<Stage> = terms.iter().map(|term| walk(index, kind, &prefix, term)).collect();
    if walks.is_empty() {
        walks.push(Stage::Eof);
    }
    let input = if query.wants_score {
        Stage::TextOr(TextOr { inputs: walks })
    } else {
        let input = match walks.len() {
            1 => walks.remove(0),
            _ => Stage::or(walks),
        };
        Stage::fetch(input, None)
    };
    let node = Stage::TextMatch(TextMatch {
        matcher,
        index: Arc::clone(index),
        prefix: shown,
        input: Box::new(input),
    });
    Some((node, settled))
}

/// Returns the scan of the entries of one term, the best first.
fn walk(index: &Arc<Index>, kind: &TextIndex, prefix: &[Value<'_>], term: &str) -> Stage {
    let term = key_term(term);
    let parts = PartView::of(index, true);
    let points = prefix.iter().copied().chain([Value::String(term.as_slice().into())]);
    let mut fields: Vec<Vec<Interval>> = points.map(|value| vec![Interval::point(value)]).collect();
    fields.resize(parts.len(), vec![Interval::all()]);
    debug_assert!(kind.prefix + 1 < parts.len(), "the score follows the term");
    let keys = KeyBounds::new(&IndexBounds { fields }, &parts);
    let bounds = ScanBounds { fields: None, keys };
    Stage::Ixscan(Ixscan::new(Arc::clone(index), bounds, Direction::Backward))
}

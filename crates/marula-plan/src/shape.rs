//! The shape of a query: its predicates and fields, without the constants.
//!
//! Queries of one shape have the same `queryHash`. The indexes that support them may still differ
//! by their constants: a sparse index has no entries for null. Queries that the same indexes
//! support share a `planCacheKey`, and with it a plan cache entry.

use std::hash::{DefaultHasher, Hash, Hasher};

use marula_bson::{FieldPath, Type};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::plan_cache::QueryShape;
use marula_query::filter::{CompareOp, Node, Predicate};
use marula_query::sort::SortPart;

use crate::planner::{has_collation_of, is_partial_served};
use crate::query::{Query, Wanted};

/// Returns the shape of `query` on a collection with these indexes.
pub fn shape_of(query: &Query, state: &State) -> QueryShape {
    let shape = query_shape(query);
    let mut conditions = Vec::new();
    gather(query.filter.root(), &mut conditions);
    let mut hasher = DefaultHasher::new();
    shape.hash(&mut hasher);
    let mut is_told = false;
    for index in state.indexes.iter().filter(|index| !index.spec.hidden) {
        for (path, predicate) in &conditions {
            if index.spec.parts.iter().any(|part| part.path == **path) {
                is_told = true;
                path.hash(&mut hasher);
                serves(index, query, predicate).hash(&mut hasher);
            }
        }
    }
    let plan = if is_told { hasher.finish() } else { shape };
    QueryShape { query: shape, plan, is_count: query.wanted == Wanted::Count }
}

/// Returns the hash of a query's shape: queries with the same predicates on the same fields, in the
/// same order, have the same hash, whatever the constants.
pub fn query_shape(query: &Query) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.filter.shape_hash().hash(&mut hasher);
    if let Some(sort) = &query.sort {
        for part in sort.parts() {
            match part {
                SortPart::Path { path, descending } => (path, descending).hash(&mut hasher),
                SortPart::Meta(_) => 0_u8.hash(&mut hasher),
            }
        }
    }
    // A projection that may need any part of a document is like none, and so is one of the
    // operators on arrays.
    let shown = query.shown.as_ref().filter(|shown| !shown.chooses_elements);
    if let Some(needs) = shown.and_then(|shown| shown.needs.as_ref()) {
        let mut needs = needs.clone();
        needs.sort_by_cached_key(ToString::to_string);
        needs.dedup();
        needs.hash(&mut hasher);
    }
    if let Some(collation) = &query.context.collation {
        collation.to_doc().as_bytes().hash(&mut hasher);
    }
    hasher.finish()
}

/// Collects the conditions on paths, however they are combined.
fn gather<'n>(node: &'n Node, out: &mut Vec<(&'n FieldPath, &'n Predicate)>) {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().for_each(|child| gather(child, out));
        }
        Node::Not(child) => gather(child, out),
        Node::Path(at) => out.push((&at.path, &at.predicate)),
        _ => {}
    }
}

/// Returns whether entries of `index` can determine which documents match the condition.
fn serves(index: &std::sync::Arc<Index>, query: &Query, predicate: &Predicate) -> bool {
    let is_text = |kind: Type| matches!(kind, Type::String | Type::Document | Type::Array);
    let (matches_absence, tests_text) = match predicate {
        Predicate::Compare(compare) => {
            let includes_equal =
                matches!(compare.op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte);
            let is_nothing = includes_equal && compare.value.get().is_nullish();
            (is_nothing, is_text(compare.value.kind()))
        }
        Predicate::In(list) => {
            (list.has_null(), list.values().iter().any(|value| is_text(value.kind())))
        }
        Predicate::Not(inner) => (matches!(**inner, Predicate::Exists), true),
        Predicate::Regex(_) => (false, true),
        _ => (false, false),
    };
    !(index.spec.sparse && matches_absence)
        && (!tests_text || has_collation_of(index, query))
        && is_partial_served(index, query)
}

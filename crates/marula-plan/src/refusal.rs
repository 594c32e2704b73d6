//! Error messages for queries that cannot be planned: the reason, after a description of the query,
//! as in mongod.
//!
//! Source: the messages of mongod 6.0 for each command, with hints that match no index and with
//! `notablescan`.

use std::fmt::Write;

use marula_bson::{Doc, DocBuf, doc};
use marula_db::Namespace;
use marula_error::Error;
use marula_query::filter::id_equality;
use marula_query::sort::{SortPart, SortPattern};

use crate::query::{Query, WordedCollation, Wording, with_record_id};

/// Returns the error of a planner that finds no plan for a query on this collection.
pub fn not_planned(reason: Error, ns: &Namespace, query: &Query, wording: &Wording<'_>) -> Error {
    reason.caused_by(&format!("{} planner returned error", description(ns, query, wording)))
}

/// Returns the description of a query: `error processing query: ns=… limit=…Tree: …Sort: …Proj: …`,
/// up to the end of a line.
pub fn description(ns: &Namespace, query: &Query, wording: &Wording<'_>) -> String {
    let mut text = format!("error processing query: ns={ns}");
    let counts = [
        ("batchSize", wording.batch_size),
        ("limit", wording.limit.or(query.limit)),
        ("skip", Some(query.skip).filter(|&skip| skip > 0)),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            let _ = write!(text, " {name}={count}");
        }
    }
    // `$natural` is not a sort.
    let by_values = query.sort.as_ref();
    let sort = by_values.map(|pattern| wording.sort.map_or_else(|| sort_of(pattern), Doc::to_buf));
    let sort = sort.unwrap_or_default();
    let needed = wording.needs.map(|needs| needs());
    let projection = match &needed {
        Some(needed) => needed.as_doc(),
        None => wording.projection.unwrap_or(Doc::EMPTY),
    };
    let recorded;
    let projection = match query.shows_record_id {
        false => projection,
        true => {
            recorded = with_record_id(projection);
            recorded.as_doc()
        }
    };
    // The front of a pipeline without conditions is an empty `$and`.
    match needed.is_some() && query.filter.is_always_true() {
        true => text.push_str("Tree: $and\n"),
        false => {
            let _ = write!(text, "Tree: {}", query.filter.root().outline());
        }
    }
    let _ = writeln!(text, "Sort: {}\nProj: {projection}", sort.as_doc());
    let simple = doc! { "locale": "simple" };
    let in_full = || match &query.context.collation {
        Some(collation) => collation.to_doc(),
        None => simple.as_doc(),
    };
    let is_of_id = || wording.filter.is_some_and(|filter| id_equality(filter).is_some());
    let collation = match wording.collation {
        WordedCollation::AsGiven(given) => given.filter(|given| !given.is_empty()),
        WordedCollation::InFull => Some(in_full()),
        WordedCollation::OfUpdate { needs_position: false } if is_of_id() => Some(in_full()),
        WordedCollation::OfUpdate { .. } => Some(simple.as_doc()),
    };
    if let Some(collation) = collation {
        let _ = writeln!(text, "Collation: {collation}");
    }
    text
}

/// Returns a sort as a document.
fn sort_of(pattern: &SortPattern) -> DocBuf {
    DocBuf::build(|out| {
        for (number, part) in pattern.parts().iter().enumerate() {
            match part {
                SortPart::Path { path, descending } => {
                    out.append(path.to_string(), if *descending { -1 } else { 1 })
                }
                SortPart::Meta(_) => {
                    out.append(format!("$computed{number}"), &doc! { "$meta": "textScore" })
                }
            };
        }
    })
}

#[cfg(test)]
mod tests {
    use marula_query::context::Context;
    use marula_query::filter::Filter;

    use super::*;

    fn query(filter: DocBuf) -> Query {
        let context = Context::default();
        Query::new(Filter::parse(filter.as_doc(), &context).unwrap(), context)
    }

    #[test]
    fn what_was_asked_is_shown_with_its_counts_and_its_tree() {
        let ns = Namespace::new("d", "c").unwrap();
        let order = doc! { "a": 1 };
        let query = Query {
            sort: Some(SortPattern::parse(order.as_doc(), &Context::default()).unwrap()),
            limit: Some(3),
            skip: 2,
            shows_record_id: true,
            ..query(doc! { "a": 1, "b": { "$gt": "x" } })
        };
        let (projection, collation) = (doc! { "b": 1 }, doc! { "locale": "fr" });
        let wording = Wording {
            projection: Some(projection.as_doc()),
            collation: WordedCollation::AsGiven(Some(collation.as_doc())),
            batch_size: Some(5),
            ..Wording::default()
        };
        assert_eq!(
            description(&ns, &query, &wording),
            "error processing query: ns=d.c batchSize=5 limit=3 skip=2Tree: $and\n    a $eq 1\n    b $gt \"x\"\n\
             Sort: { a: 1 }\nProj: { b: 1, $recordId: { $meta: \"recordId\" } }\nCollation: { locale: \"fr\" }\n"
        );
    }

    #[test]
    fn a_pipeline_without_conditions_has_an_empty_tree() {
        let ns = Namespace::new("d", "c").unwrap();
        let needs = || doc! { "b": 1, "_id": 0 };
        let wording = Wording {
            collation: WordedCollation::InFull,
            needs: Some(&needs),
            ..Wording::default()
        };
        assert_eq!(
            description(&ns, &query(doc! {}), &wording),
            "error processing query: ns=d.cTree: $and\nSort: {}\nProj: { b: 1, _id: 0 }\nCollation: { locale: \"simple\" }\n"
        );
    }
}

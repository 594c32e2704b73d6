//! A plan as `explain` prints it: a tree of stages in the words of MongoDB's classic engine.
//!
//! The tree is made from the [`Plan`] that would run, nothing is planned for show: a filter stands at the stage that
//! checks it, which here is the one that reads documents, also where the bounds of an index imply it.

use marula_bson::{Doc, DocBuf, DocWriter, Type, Value};
use marula_db::Index;
use marula_storage::Direction;

use crate::bounds::{IndexBounds, Interval};
use crate::executor::Examined;
use crate::plan::{Access, Ixscan, Plan};
use crate::query::Query;

/// The memory that a sort may take, as `explain` prints it.
const SORT_BYTES_MAX: i32 = 100 * 1024 * 1024;

/// What a stage has done; only stages of a plan that ran have it.
#[derive(Clone, Copy, Default)]
pub struct Ran {
    /// What the access path has looked at.
    pub examined: Examined,
    /// How many documents came out of the plan.
    pub returned: u64,
}

/// The stages of `plan`, the last one outermost. `sort` and `projection` are the documents they were given as.
pub fn stages(
    plan: &Plan,
    query: &Query,
    sort: Doc<'_>,
    projection: Option<(&str, Doc<'_>)>,
    ran: Option<Ran>,
) -> DocBuf {
    let mut tree = access(plan, query, ran);
    let is_empty = matches!(plan.access, Access::Nothing);
    if plan.needs_sort && !is_empty {
        tree = above("SORT", ran, tree, |out| {
            out.append("sortPattern", sort);
            out.append("memLimit", SORT_BYTES_MAX);
            if let Some(limit) = query.limit {
                append_count(out, "limitAmount", limit.saturating_add(query.skip));
            }
            out.append("type", "simple");
        });
    }
    if query.skip > 0 && !is_empty {
        tree = above("SKIP", ran, tree, |out| append_count(out, "skipAmount", query.skip));
    }
    if let Some((stage, projection)) = projection.filter(|_| !is_empty) {
        tree = above(stage, ran, tree, |out| {
            out.append("transformBy", projection);
        });
    }
    if let Some(limit) = query.limit.filter(|_| !plan.needs_sort && !is_empty) {
        tree = above("LIMIT", ran, tree, |out| append_count(out, "limitAmount", limit));
    }
    tree
}

/// A stage above another.
pub fn above(
    stage: &str,
    ran: Option<Ran>,
    input: DocBuf,
    fill: impl FnOnce(&mut DocWriter<'_>),
) -> DocBuf {
    DocBuf::build(|out| {
        out.append("stage", stage);
        if let Some(ran) = ran {
            append_count(out, "nReturned", ran.returned);
        }
        fill(out);
        out.append("inputStage", &input);
    })
}

/// Appends a count: an int, or a long where an int is too small.
pub fn append_count(out: &mut DocWriter<'_>, name: &str, count: u64) {
    match i32::try_from(count) {
        Ok(small) => out.append(name, small),
        Err(_) => out.append(name, i64::try_from(count).unwrap_or(i64::MAX)),
    };
}

fn access(plan: &Plan, query: &Query, ran: Option<Ran>) -> DocBuf {
    let filter = |out: &mut DocWriter<'_>| {
        if let Some(filter) = &plan.filter {
            out.append("filter", &filter.to_doc());
        }
    };
    let examined_docs = |out: &mut DocWriter<'_>| {
        if let Some(ran) = ran {
            append_count(out, "docsExamined", ran.examined.docs);
        }
    };
    match &plan.access {
        Access::Nothing => DocBuf::build(|out| {
            out.append("stage", "EOF");
        }),
        Access::IdHack(_) => DocBuf::build(|out| {
            out.append("stage", "IDHACK");
            if let Some(ran) = ran {
                append_count(out, "keysExamined", ran.examined.keys);
            }
            examined_docs(out);
        }),
        Access::Collscan(direction) => DocBuf::build(|out| {
            out.append("stage", "COLLSCAN");
            filter(out);
            out.append("direction", direction_name(*direction));
            examined_docs(out);
        }),
        Access::Clustered(scan) => DocBuf::build(|out| {
            let is_bounded = scan.low.is_some() || scan.high.is_some();
            out.append("stage", if is_bounded { "CLUSTERED_IXSCAN" } else { "COLLSCAN" });
            filter(out);
            out.append("direction", direction_name(scan.direction));
            for (name, bound) in [("minRecord", &scan.low), ("maxRecord", &scan.high)] {
                if let Some(bound) = bound {
                    out.append(name, bound);
                }
            }
            examined_docs(out);
        }),
        Access::Ixscan(scan) => DocBuf::build(|out| {
            out.append("stage", "FETCH");
            filter(out);
            examined_docs(out);
            out.append("inputStage", &ixscan(scan, plan, query, ran));
        }),
    }
}

fn ixscan(scan: &Ixscan, plan: &Plan, query: &Query, ran: Option<Ran>) -> DocBuf {
    DocBuf::build(|out| {
        out.append("stage", "IXSCAN");
        describe_index(&scan.index, out);
        out.append("direction", direction_name(scan.direction));
        write_bounds(scan, plan, query, &mut out.begin_doc("indexBounds"));
        if let Some(ran) = ran {
            append_count(out, "keysExamined", ran.examined.keys);
        }
    })
}

/// Appends what a stage says of its index.
pub fn describe_index(index: &Index, out: &mut DocWriter<'_>) {
    let spec = &index.spec;
    out.append("keyPattern", &spec.key);
    out.append("indexName", spec.name.as_str());
    if let Some(collation) = &spec.collation {
        out.append("collation", collation.to_doc());
    }
    out.append("isMultiKey", index.is_multikey());
    let mut paths = out.begin_doc("multiKeyPaths");
    for (part, multikey) in spec.parts.iter().zip(index.multikey_paths()) {
        let names: Vec<String> = part
            .path
            .parts()
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        let mut arrays = paths.begin_array(names.join("."));
        for depth in 0..names.len() {
            if multikey & (1u64 << depth.min(63)) != 0 {
                arrays.push(names[..=depth].join(".").as_str());
            }
        }
        arrays.finish();
    }
    drop(paths);
    out.append("isUnique", spec.unique);
    out.append("isSparse", spec.sparse);
    out.append("isPartial", spec.partial.is_some());
    out.append("indexVersion", 2);
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

fn write_bounds(scan: &Ixscan, plan: &Plan, query: &Query, out: &mut DocWriter<'_>) {
    // Between `min` and `max` an index is bounded by its keys as wholes, not by its fields.
    if query.min.is_some() || query.max.is_some() {
        return;
    }
    let collations = (&scan.index.spec.collation, &query.context.collation);
    let same_collation = match collations {
        (None, None) => true,
        (Some(ours), Some(theirs)) => ours.to_doc() == theirs.to_doc(),
        _ => false,
    };
    let filter = plan.filter.as_ref();
    let bounds = filter.and_then(|filter| IndexBounds::of(filter, &scan.index, same_collation));
    let fields = bounds.map(|bounds| bounds.fields).unwrap_or_default();
    for (position, part) in scan.index.spec.key.as_doc().iter().enumerate() {
        let is_descending = scan.index.spec.parts[position].descending;
        let is_backward = is_descending != (scan.direction == Direction::Backward);
        let mut array = out.begin_array(part.name.to_string());
        match fields.get(position) {
            None => {
                array.push(if is_backward { "[MaxKey, MinKey]" } else { "[MinKey, MaxKey]" });
            }
            Some(intervals) => {
                let mut texts: Vec<String> =
                    intervals.iter().map(|interval| interval_text(interval, is_backward)).collect();
                if is_backward {
                    texts.reverse();
                }
                texts.iter().for_each(|text| {
                    array.push(text.as_str());
                });
            }
        }
        array.finish();
    }
}

/// `[1, 5)`: a bracket where the end belongs to it, a parenthesis where it does not.
fn interval_text(interval: &Interval, is_backward: bool) -> String {
    let low = (interval.low.get(), interval.low_inclusive, "[", "]");
    let high = (interval.high.get(), interval.high_inclusive, "[", "]");
    let (first, last) = if is_backward { (high, low) } else { (low, high) };
    format!(
        "{}{}, {}{}",
        if first.1 { first.2 } else { "(" },
        value_text(first.0),
        value_text(last.0),
        if last.1 { last.3 } else { ")" }
    )
}

fn value_text(value: Value<'_>) -> String {
    match value {
        // So mongod prints the ends of the numbers.
        Value::Double(number) if number == f64::INFINITY => "inf.0".to_owned(),
        Value::Double(number) if number == f64::NEG_INFINITY => "-inf.0".to_owned(),
        Value::Double(number) if number.is_nan() => "nan.0".to_owned(),
        Value::DateTime(ms) => format!("new Date({ms})"),
        value if value.kind() == Type::MinKey => "MinKey".to_owned(),
        value if value.kind() == Type::MaxKey => "MaxKey".to_owned(),
        value => value.to_string(),
    }
}

//! The output of `explain` for a plan: a tree of stages with the names of MongoDB's classic engine.
//!
//! The printed tree is the one that runs. Statistics are printed for plans that ran.
//!
//! Source: manual "Explain Results"; the order of fields and the meaning of the counts, recorded
//! from mongod 6.0.

use std::borrow::Cow;
use std::cmp::Ordering;

use marula_bson::{
    ArrayWriter, Collator, Doc, DocBuf, DocWriter, FieldPath, Type, Value, ValueBuf, doc, hex,
};
use marula_db::Index;
use marula_db::index::{Geography, IndexKind, component_bit};
use marula_query::filter::Filter;
use marula_query::geo::hash::hash_of;
use marula_query::sort::{self, SortPart};
use marula_query::text::Search;
use marula_storage::Direction;

use crate::bounds::{IndexBounds, Interval};
use crate::executor::{Round, StageRun, Stats};
use crate::plan::{Expansion, GeoNear, Ixscan, Plan, ProjectionKind, ScanUse, SortedKeys, Stage};

/// The options for printing a plan.
#[derive(Clone, Copy)]
pub struct Printed<'a> {
    /// The sort as the client gave it.
    pub sort: Doc<'a>,
    /// The projection as the client gave it.
    pub projection: Doc<'a>,
    /// Whether the plan has run, so that its stages have statistics.
    pub has_run: bool,
    /// Whether sorted rows include the record id, because documents are written or because it is
    /// shown.
    pub sorts_records: bool,
}

/// Returns the stages of `plan`, the top stage outermost; `run` is the state of a run, if it has
/// started.
pub fn tree(plan: &Plan, run: Option<&StageRun>, printed: &Printed<'_>) -> DocBuf {
    let root = stage(&plan.root, run, printed);
    match plan.is_subplan {
        true => {
            // It knows without a unit of work of the input that there are no more documents.
            let is_spent = u64::from(run.is_some_and(StageRun::is_spent));
            let stats = stats_of(run, printed)
                .map(|stats| (Stats { works: stats.works + is_spent, ..stats }, false));
            above("SUBPLAN", stats, root, |_| ())
        }
        false => root,
    }
}

/// Returns a stage above another; `stats` are its statistics and whether it failed, if it ran.
pub fn above(
    stage: &str,
    stats: Option<(Stats, bool)>,
    input: DocBuf,
    fill: impl FnOnce(&mut DocWriter<'_>),
) -> DocBuf {
    DocBuf::build(|out| {
        out.append("stage", stage);
        append_stats(stats, out);
        fill(out);
        out.append("inputStage", &input);
    })
}

/// Appends a count: an int, or a long if it does not fit.
pub fn append_count(out: &mut DocWriter<'_>, name: &str, count: u64) {
    out.append(name, Value::whole(count));
}

/// Appends the statistics of a stage that ran, and whether it failed.
pub fn append_stats(stats: Option<(Stats, bool)>, out: &mut DocWriter<'_>) {
    let Some((stats, has_failed)) = stats else { return };
    append_count(out, "nReturned", stats.advanced);
    // The time is not measured for each unit of work.
    out.append("executionTimeMillisEstimate", 0);
    append_count(out, "works", stats.works);
    append_count(out, "advanced", stats.advanced);
    append_count(out, "needTime", stats.need_time);
    // A run holds no lock that it could yield.
    out.append("needYield", 0).append("saveState", 0).append("restoreState", 0);
    if has_failed {
        out.append("failed", true);
    }
    out.append("isEOF", i32::from(stats.is_eof));
}

/// The stage of a `count` of all documents, which the collection's counter returns.
pub const FAST_COUNT: &str = "RECORD_STORE_FAST_COUNT";

/// Returns the only stage of an operation that nothing is planned for, with its statistics and
/// counts if it has run.
pub fn only_stage(name: &str, ran: Option<(Stats, &[(&str, u64)])>) -> DocBuf {
    DocBuf::build(|out| {
        out.append("stage", name);
        if let Some((stats, counts)) = ran {
            append_stats(Some((stats, false)), out);
            counts.iter().for_each(|&(name, count)| append_count(out, name, count));
        }
    })
}

fn stats_of(run: Option<&StageRun>, printed: &Printed<'_>) -> Option<Stats> {
    run.filter(|_| printed.has_run).map(|run| run.stats)
}

fn stage(stage: &Stage, run: Option<&StageRun>, printed: &Printed<'_>) -> DocBuf {
    let filter = match stage {
        Stage::Collscan(stage) => stage.filter.as_ref(),
        Stage::Ixscan(stage) => stage.filter.as_ref(),
        Stage::Fetch(stage) => stage.filter.as_ref(),
        _ => None,
    };
    stage_with(stage, run, filter.map(Filter::to_doc), printed)
}

/// Returns a stage that drops the documents that do not match the filter.
fn stage_with(
    above: &Stage,
    run: Option<&StageRun>,
    filter: Option<DocBuf>,
    printed: &Printed<'_>,
) -> DocBuf {
    let did = run.filter(|_| printed.has_run);
    DocBuf::build(|out| {
        out.append("stage", name(above));
        if let Some(filter) = filter {
            out.append("filter", &filter);
        }
        append_stats(did.map(|run| (run.stats, false)), out);
        describe(above, printed, did, out);
        let inputs: Vec<DocBuf> = printed_inputs(above, run, printed);
        match (above, inputs.as_slice()) {
            (_, []) => {}
            (Stage::TextOr(_) | Stage::GeoNear(_), [input]) => {
                out.append("inputStage", input);
            }
            (
                Stage::AndSorted(_)
                | Stage::GeoNear(_)
                | Stage::Or(_)
                | Stage::SortMerge(_)
                | Stage::TextOr(_),
                inputs,
            ) => {
                let mut array = out.begin_array("inputStages");
                inputs.iter().for_each(|input| {
                    array.push(input);
                });
            }
            (_, inputs) => inputs.iter().for_each(|input| {
                out.append("inputStage", input);
            }),
        }
    })
}

/// Returns the inputs of a stage. Those of a search by distance exist only after it has run.
fn printed_inputs(above: &Stage, run: Option<&StageRun>, printed: &Printed<'_>) -> Vec<DocBuf> {
    let mut inputs = Vec::new();
    let mut print = |input: &Stage, run: Option<&StageRun>| {
        inputs.push(match above {
            Stage::GeoNear(search) => stage_with(input, run, search.filter_below(), printed),
            _ => stage(input, run, printed),
        });
    };
    match run {
        Some(run) => run.each_input(above, &mut |input, run| print(input, Some(run))),
        None => above.inputs().iter().for_each(|input| print(input, None)),
    }
    inputs
}

fn name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Eof => "EOF",
        Stage::IdHack(_) => "IDHACK",
        Stage::Collscan(scan) => scan.stage_name(),
        Stage::Ixscan(scan) => scan.stage_name(),
        Stage::Fetch(_) => "FETCH",
        Stage::GeoNear(search) => search.stage_name(),
        Stage::AndSorted(_) => "AND_SORTED",
        Stage::Or(_) => "OR",
        Stage::TextOr(_) => "TEXT_OR",
        Stage::TextMatch(_) => "TEXT_MATCH",
        Stage::SortMerge(_) => "SORT_MERGE",
        Stage::Sort(_) => "SORT",
        Stage::Skip(_) => "SKIP",
        Stage::Limit(_) => "LIMIT",
        Stage::Projection(stage) => match stage.kind {
            ProjectionKind::Covered => "PROJECTION_COVERED",
            ProjectionKind::Simple => "PROJECTION_SIMPLE",
            ProjectionKind::Default => "PROJECTION_DEFAULT",
            ProjectionKind::ReturnKey => "RETURN_KEY",
        },
    }
}

/// Appends the fields that are specific to the stage; `run` is its state, if statistics are
/// printed.
fn describe(stage: &Stage, printed: &Printed<'_>, run: Option<&StageRun>, out: &mut DocWriter<'_>) {
    let count = |out: &mut DocWriter<'_>, name: &str, which: fn(&Stats) -> u64| {
        if let Some(run) = run {
            append_count(out, name, which(&run.stats));
        }
    };
    let keys = |out: &mut DocWriter<'_>| count(out, "keysExamined", |stats| stats.keys);
    let docs = |out: &mut DocWriter<'_>| count(out, "docsExamined", |stats| stats.docs);
    let dups = |out: &mut DocWriter<'_>| {
        count(out, "dupsTested", |stats| stats.dups_tested);
        count(out, "dupsDropped", |stats| stats.dups_dropped);
    };
    match stage {
        Stage::Eof => {}
        Stage::IdHack(_) => {
            keys(out);
            docs(out);
        }
        Stage::Collscan(stage) => {
            out.append("direction", direction_name(stage.direction));
            if let Some(records) = &stage.records {
                for (name, bound) in [("minRecord", &records.low), ("maxRecord", &records.high)] {
                    if let Some(bound) = bound {
                        out.append(name, &bound.shown);
                    }
                }
            }
            docs(out);
        }
        Stage::Ixscan(scan) => {
            if scan.used_for == ScanUse::Count {
                keys(out);
                describe_index(&scan.index, scan.wildcard.as_ref(), out);
                write_count_bounds(scan, &mut out.begin_doc("indexBounds"));
                return;
            }
            describe_index(&scan.index, scan.wildcard.as_ref(), out);
            out.append("direction", direction_name(scan.direction));
            write_bounds(scan, &mut out.begin_doc("indexBounds"));
            keys(out);
            if scan.used_for == ScanUse::Documents {
                count(out, "seeks", |stats| stats.seeks);
                match scan.index.spec.kind {
                    // A term has at most one entry per document, so there are no duplicates to
                    // check.
                    IndexKind::Text(_) => {
                        count(out, "dupsTested", |stats| stats.keys);
                        count(out, "dupsDropped", |stats| stats.dups_dropped);
                    }
                    _ => dups(out),
                }
            }
        }
        Stage::GeoNear(search) => {
            let spec = &search.index.spec;
            out.append("keyPattern", &spec.key);
            out.append("indexName", spec.name.as_str());
            out.append("indexVersion", 2);
            if let Some(run) = run {
                let mut rounds = out.begin_array("searchIntervals");
                run.rounds().iter().for_each(|round| write_round(round, &mut rounds));
            }
        }
        Stage::Fetch(_) => {
            docs(out);
            count(out, "alreadyHasObj", |stats| stats.dups_tested);
        }
        Stage::AndSorted(stage) => {
            if let Some(run) = run {
                for number in 0..stage.inputs.len() {
                    let failed = run.failed_intersections(number);
                    append_count(out, &format!("failedAnd_{number}"), failed);
                }
            }
        }
        Stage::Or(_) => dups(out),
        Stage::TextOr(_) => docs(out),
        Stage::TextMatch(stage) => {
            out.append("indexPrefix", &stage.prefix);
            out.append("indexName", stage.index.spec.name.as_str());
            write_search(stage.matcher.search(), &mut out.begin_doc("parsedTextQuery"));
            out.append("textIndexVersion", stage.matcher.reading().version().number());
            if let Some(run) = run {
                append_count(out, "docsRejected", run.rejected());
            }
        }
        Stage::SortMerge(_) => {
            out.append("sortPattern", printed.sort);
            dups(out);
        }
        Stage::Sort(stage) => {
            sort::write_shown(printed.sort, &mut out.begin_doc("sortPattern"));
            append_count(out, "memLimit", stage.bytes_max as u64);
            if let Some(limit) = stage.limit {
                append_count(out, "limitAmount", limit);
            }
            let is_by_field = |part: &SortPart| matches!(part, SortPart::Path { .. });
            // Scores are returned separately from the documents.
            let has_scores = stage.input.any(&|stage| matches!(stage, Stage::TextOr(_)));
            let is_simple = !printed.sorts_records
                && !has_scores
                && stage.keys == SortedKeys::Gone
                && stage.is_simple
                && stage.pattern.parts().iter().all(is_by_field);
            out.append("type", if is_simple { "simple" } else { "default" });
            if let Some(run) = run {
                let (bytes, spills) = run.sorted();
                append_count(out, "totalDataSizeSorted", bytes);
                out.append("usedDisk", spills > 0);
                append_count(out, "spills", spills);
            }
        }
        Stage::Skip(stage) => append_count(out, "skipAmount", stage.amount),
        Stage::Limit(stage) => append_count(out, "limitAmount", stage.amount),
        Stage::Projection(stage) if stage.kind == ProjectionKind::ReturnKey => {}
        Stage::Projection(_) => {
            out.append("transformBy", printed.projection);
        }
    }
}

impl GeoNear {
    /// Returns the filter that mongod puts below the search: in the plane, one for the ring.
    fn filter_below(&self) -> Option<DocBuf> {
        self.test.near.is_planar().then(|| doc! { "$TwoDPtInAnnulusExpression": true })
    }
}

/// Writes a ring of a search by distance, with its results.
fn write_round(round: &Round, out: &mut ArrayWriter<'_>) {
    let mut one = out.begin_doc();
    one.append("minDistance", round.from).append("maxDistance", round.to);
    one.append("maxInclusive", round.is_last);
    append_count(&mut one, "nBuffered", round.found);
    append_count(&mut one, "nReturned", round.given);
}

/// Writes a parsed search string.
fn write_search(search: &Search, out: &mut DocWriter<'_>) {
    let mut list = |name: &str, texts: &mut dyn Iterator<Item = &String>| {
        let mut array = out.begin_array(name);
        texts.for_each(|text| {
            array.push(text.as_str());
        });
    };
    list("terms", &mut search.terms.iter());
    list("negatedTerms", &mut search.negated_terms.iter());
    list("phrases", &mut search.phrases.iter());
    list("negatedPhrases", &mut search.negated_phrases.iter());
}

/// The field with the path in an entry of a wildcard index.
const PATH_FIELD: &str = "$_path";

/// A field of an index as a scan sees it.
struct SeenField<'a> {
    /// The name in the key pattern; for a wildcard, the path in its place.
    name: Cow<'a, str>,
    value: Value<'a>,
    descending: bool,
    /// The path, and the components at which documents have arrays.
    path: Option<(&'a FieldPath, u64)>,
}

/// Returns the fields of an index; for a wildcard index, those of its expansion.
fn fields_of<'a>(index: &'a Index, wildcard: Option<&'a Expansion>) -> Vec<SeenField<'a>> {
    let spec = &index.spec;
    let number = match &spec.kind {
        IndexKind::Wildcard(wildcard) => Some(wildcard.part()),
        _ => None,
    };
    let arrays = index.multikey_paths();
    let mut fields = Vec::with_capacity(spec.parts.len() + 1);
    for (at, (part, named)) in spec.parts.iter().zip(spec.key.as_doc()).enumerate() {
        let (value, descending) = (named.value.get(), part.descending);
        match wildcard.filter(|_| number == Some(at)) {
            None => {
                let name = String::from_utf8_lossy(named.name);
                fields.push(SeenField {
                    name,
                    value,
                    descending,
                    path: Some((&part.path, arrays[at])),
                });
            }
            Some(expansion) => {
                let (name, up) = (Cow::Borrowed(PATH_FIELD), Value::Int32(1));
                fields.push(SeenField { name, value: up, descending: false, path: None });
                let Expansion::Path(path) = expansion else { break };
                let (name, arrays) = (Cow::Owned(path.to_string()), index.path_arrays(path).arrays);
                fields.push(SeenField { name, value, descending, path: Some((path, arrays)) });
            }
        }
    }
    fields
}

/// Appends the description of a stage's index; for a wildcard index, of its expansion.
fn describe_index(index: &Index, wildcard: Option<&Expansion>, out: &mut DocWriter<'_>) {
    let spec = &index.spec;
    let fields = fields_of(index, wildcard);
    match wildcard {
        None => out.append("keyPattern", &spec.key),
        Some(_) => {
            let key = DocBuf::build(|key| {
                for field in &fields {
                    key.append(&*field.name, field.value);
                }
            });
            out.append("keyPattern", &key)
        }
    };
    out.append("indexName", spec.name.as_str());
    if let Some(collation) = &spec.collation {
        out.append("collation", collation.to_doc());
    }
    let has_arrays = |field: &SeenField<'_>| field.path.is_some_and(|(_, arrays)| arrays != 0);
    let is_multikey = match wildcard {
        None => index.is_multikey(),
        Some(_) => fields.iter().any(has_arrays),
    };
    out.append("isMultiKey", is_multikey);
    if !matches!(
        spec.kind,
        IndexKind::Hashed { .. } | IndexKind::Text(_) | IndexKind::Places(Geography::Flat(_))
    ) {
        let mut paths = out.begin_doc("multiKeyPaths");
        for field in &fields {
            match field.path {
                Some((path, arrays)) => write_multikey_path(path, arrays, &mut paths),
                None => paths.begin_array(&*field.name).finish(),
            }
        }
    }
    out.append("isUnique", spec.unique);
    out.append("isSparse", spec.sparse);
    out.append("isPartial", spec.partial.is_some());
    out.append("indexVersion", 2);
}

/// Writes the components of a path at which some document has an array.
fn write_multikey_path(path: &FieldPath, multikey: u64, paths: &mut DocWriter<'_>) {
    let names: Vec<String> =
        path.parts().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let mut arrays = paths.begin_array(names.join("."));
    for depth in 0..names.len() {
        if multikey & component_bit(depth) != 0 {
            arrays.push(names[..=depth].join(".").as_str());
        }
    }
    arrays.finish();
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// Writes the intervals of each field, in scan order.
fn write_bounds(scan: &Ixscan, out: &mut DocWriter<'_>) {
    // A scan between `min` and `max` is bounded by whole keys, not by fields.
    let Some(bounds) = &scan.bounds.fields else { return };
    let collator = collator_of(scan);
    let fields = fields_of(&scan.index, scan.wildcard.as_ref());
    for (field, intervals) in fields.iter().zip(&bounds.fields) {
        let is_backward = field.descending != (scan.direction == Direction::Backward);
        // Paths are not compared by the collation: their keys are their bytes.
        let collator = collator.map(|own| if field.path.is_some() { own } else { &BytesOrder });
        let mut array = out.begin_array(&*field.name);
        let mut texts: Vec<String> = intervals
            .iter()
            .map(|interval| match field.value == Value::from("2d") {
                true => squares_text(interval),
                false => interval_text(interval, is_backward, collator),
            })
            .collect();
        if is_backward {
            texts.reverse();
        }
        texts.iter().for_each(|text| {
            array.push(text.as_str());
        });
        array.finish();
    }
}

fn collator_of(scan: &Ixscan) -> Option<&dyn Collator> {
    scan.index.spec.collation.as_ref().map(|collation| collation.collator())
}

/// Returns whether an interval starts with the empty string as the lower bound of the type String.
fn begins_strings(interval: &Interval) -> bool {
    interval.low.get() == Value::from("") && interval.low_inclusive && !interval.is_point()
}

/// The binary order of strings, each its own key.
struct BytesOrder;

impl Collator for BytesOrder {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn sort_key(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(text);
    }
}

/// Writes the two keys that bound a count. An exclusive key excludes all keys that start with it.
fn write_count_bounds(scan: &Ixscan, out: &mut DocWriter<'_>) {
    let Some(IndexBounds { fields }) = &scan.bounds.fields else { return };
    let seen = fields_of(&scan.index, scan.wildcard.as_ref());
    let collator = collator_of(scan);
    let ends = |is_start: bool| {
        let mut is_included = true;
        let key = DocBuf::build(|key| {
            for (field, intervals) in seen.iter().zip(fields) {
                let Some(interval) = intervals.first() else { continue };
                let takes_low = is_start != field.descending;
                let (end, inclusive) = match takes_low {
                    true => (&interval.low, interval.low_inclusive),
                    false => (&interval.high, interval.high_inclusive),
                };
                // After an excluded value, the bound is the last key that contains it.
                let end = match (is_included, takes_low) {
                    (true, true) if begins_strings(interval) => end.clone(),
                    // Paths are their own keys.
                    (true, _) if field.path.is_some() => {
                        collator.map_or_else(|| end.clone(), |own| collated(end.get(), own))
                    }
                    (true, _) => end.clone(),
                    (false, true) => Value::MaxKey.to_buf(),
                    (false, false) => Value::MinKey.to_buf(),
                };
                key.append(&*field.name, end.get());
                is_included &= inclusive;
            }
        });
        (key, is_included)
    };
    let (start, starts_included) = ends(true);
    let (end, ends_included) = ends(false);
    out.append("startKey", &start).append("startKeyInclusive", starts_included);
    out.append("endKey", &end).append("endKeyInclusive", ends_included);
}

/// Returns an interval as text, such as `[1, 5)`: a bracket for an inclusive end, a parenthesis for
/// an exclusive one.
fn interval_text(
    interval: &Interval,
    is_backward: bool,
    collator: Option<&dyn Collator>,
) -> String {
    let low_text = match collator.filter(|_| begins_strings(interval)) {
        Some(_) => "CollationKey(0x)".to_owned(),
        None => value_text(interval.low.get(), collator),
    };
    let low = (low_text, interval.low_inclusive);
    let high = (value_text(interval.high.get(), collator), interval.high_inclusive);
    let (first, last) = if is_backward { (high, low) } else { (low, high) };
    let (opens, closes) = (if first.1 { '[' } else { '(' }, if last.1 { ']' } else { ')' });
    format!("{opens}{}, {}{closes}", first.0, last.0)
}

/// Returns the squares of a `2d` index by their hashes, from the first to the last.
fn squares_text(interval: &Interval) -> String {
    let text = |end: &ValueBuf| match end.get() {
        Value::Int64(key) => format!("BinData(128, {:016X})", hash_of(key)),
        other => value_text(other, None),
    };
    format!("[{}, {}]", text(&interval.low), text(&interval.high))
}

/// Returns a value with each string replaced by its sort key, as in an index.
pub(crate) fn collated(value: Value<'_>, collator: &dyn Collator) -> ValueBuf {
    match value {
        Value::String(text) => {
            let mut key = Vec::new();
            collator.sort_key(text.as_ref(), &mut key);
            Value::String(key.as_slice().into()).to_buf()
        }
        Value::Document(doc) => Value::Document(collated_fields(doc, collator).as_doc()).to_buf(),
        Value::Array(items) => Value::Array(collated_fields(items, collator).as_doc()).to_buf(),
        other => other.to_buf(),
    }
}

/// The recursion is bounded by the nesting of validated BSON.
fn collated_fields(doc: Doc<'_>, collator: &dyn Collator) -> DocBuf {
    DocBuf::build(|out| {
        for element in doc {
            out.append(element.name, &collated(element.value.get(), collator));
        }
    })
}

fn value_text(value: Value<'_>, collator: Option<&dyn Collator>) -> String {
    match value {
        Value::String(text) if let Some(collator) = collator => {
            let mut key = Vec::new();
            collator.sort_key(text.as_ref(), &mut key);
            format!("CollationKey(0x{})", hex::text(&key))
        }
        Value::Document(_) | Value::Array(_) if let Some(collator) = collator => {
            collated(value, collator).get().to_string()
        }
        // The text that mongod prints for infinite numbers.
        Value::Double(number) if number == f64::INFINITY => "inf.0".to_owned(),
        Value::Double(number) if number == f64::NEG_INFINITY => "-inf.0".to_owned(),
        Value::Double(number) if number.is_nan() => "nan.0".to_owned(),
        Value::DateTime(ms) => format!("new Date({ms})"),
        value if value.kind() == Type::MinKey => "MinKey".to_owned(),
        value if value.kind() == Type::MaxKey => "MaxKey".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;
    use marula_query::collation::Collation;

    use super::*;

    #[test]
    fn strings_are_shown_as_the_keys_that_an_index_holds() {
        let french = doc! { "locale": "fr" };
        let french = Collation::parse(french.as_doc(), "collation").unwrap().unwrap();
        let text = |low: Value<'_>, high: Value<'_>, is_high_in: bool| {
            let interval = Interval::new(low, true, high, is_high_in);
            interval_text(&interval, false, Some(french.collator()))
        };
        let mut bytes = Vec::new();
        french.collator().sort_key(b"x", &mut bytes);
        let key = format!("CollationKey(0x{})", hex::text(&bytes));
        assert_eq!(text("x".into(), "x".into(), true), format!("[{key}, {key}]"));
        // The empty string as a lower bound has no sort key.
        let objects = Value::Document(Doc::EMPTY);
        assert_eq!(text("".into(), objects, false), "[CollationKey(0x), {})");
        assert_eq!(text("".into(), "x".into(), false), format!("[CollationKey(0x), {key})"));
        // Strings within other values are replaced by their keys.
        let nested = doc! { "a": ["x", 1] };
        let nested = collated(Value::Document(nested.as_doc()), french.collator());
        let wanted = doc! { "a": [(Value::String(bytes.as_slice().into())), 1] };
        assert_eq!(nested.get(), Value::Document(wanted.as_doc()));
    }
}

//! `$graphLookup`: adds to each document an array of the documents reached by a walk through
//! another collection.

mod unwinding;

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, long};
use marula_error::{Result, errors};

use super::fields::write_with;
use super::lookup::collect;
use super::r#match::{Match, check_metadata, has_where};
use super::needs::{Gives, Needs};
use super::outer::OuterVariables;
use super::outline::check_from;
use super::passage::Passage;
use super::source::check_size;
use super::unwind::Unwind;
use super::{Env, Parser, Pipeline, Source, Stage, StagePlace, StageRow, Step, deep_path};
use crate::context::Context;
use crate::expression::number::whole_of_decimal;
use crate::expression::set::ValueSet;
use crate::expression::{Arena, Expression, Frame, Path, print};
use crate::feature_version::FeatureVersion;
use crate::filter::in_list::in_undefined;
use crate::filter::{Filter, Purpose};
use crate::meter;
use crate::spill::Share;

pub(super) const ROW: StageRow = StageRow {
    name: "$graphLookup",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    pub(super) not_object(kind: &str) = FailedToParse, "the $graphLookup stage specification must be an object, but found {kind}";
    missing_from(text: &str) = FailedToParse, "missing 'from' option to $graphLookup stage specification: {text}";
    depth_not_number(kind: &str) = 40100, "maxDepth must be numeric, found type: {kind}";
    depth_negative(depth: i64) = 40101, "maxDepth requires a nonnegative argument, found: {depth}";
    depth_not_integer(depth: i64) = 40102, "maxDepth could not be represented as a long long: {depth}";
    not_string(name: &str, kind: &str) = 40103, "expected string as argument for {name}, found: {kind}";
    object_not_string(name: &str) = 13111, "wrong type for field ({name}) object != string";
    unknown_argument(name: &str) = 40104, "Unknown argument to $graphLookup: {name}";
    missing_argument() = 40105, "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.";
    not_in_this_context(name: &str) = BadValue, "{name} is not allowed in this context";
    near_not_allowed() = 5626500, "$geoNear, $near, and $nearSphere are not allowed in this context";
    restrict_not_object(kind: &str) = 40185, "restrictSearchWithMatch must be an object, found {kind}";
    too_much_memory() = 40099, "$graphLookup reached maximum memory consumption";
}

/// A parsed `$graphLookup`.
#[derive(Debug)]
pub(super) struct GraphLookup {
    from: String,
    to: Path,
    start_with: Expression,
    connect_from: Path,
    connect_to: Path,
    depth_field: Option<Path>,
    depth_max: Option<u64>,
    restrict: Option<DocBuf>,
    /// The variables that the restriction may use.
    outer: OuterVariables,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut from, mut to, mut start_with) = (None, None, None);
    let (mut connect_from, mut connect_to, mut depth_field) = (None, None, None);
    let (mut depth_max, mut restrict) = (None, None);
    for element in spec {
        let value = element.value.get();
        let kind = value.kind().alias();
        match &**element.name {
            b"startWith" => {
                start_with = Some(Expression::parse(value, &mut parser.scope())?);
            }
            b"maxDepth" => depth_max = Some(read_depth(value)?),
            b"restrictSearchWithMatch" => {
                let doc = value.as_doc().ok_or_else(|| restrict_not_object(kind))?;
                check_restriction(doc, parser.context).map_err(|error| {
                    error.caused_by(
                        "Failed to parse 'restrictSearchWithMatch' option to $graphLookup",
                    )
                })?;
                restrict = Some(doc.to_buf());
            }
            b"from" => {
                if value.as_doc().is_some() || value.as_str().is_some() {
                    check_from("$graphLookup", value, parser.context)?;
                }
                let name = value.as_str().ok_or_else(|| not_string("from", kind))?;
                from = Some(name.to_string());
            }
            name @ (b"as" | b"connectFromField" | b"connectToField" | b"depthField") => {
                let text = match value {
                    Value::String(text) => text,
                    Value::Document(_) => return Err(object_not_string(&name.to_str_lossy())),
                    _ => return Err(not_string(&name.to_str_lossy(), kind)),
                };
                match name {
                    b"depthField" => depth_field = Some(Path::parse(text)?),
                    // An empty value counts as absent.
                    _ if text.is_empty() => {}
                    b"as" => to = Some(text),
                    b"connectFromField" => connect_from = Some(text),
                    _ => connect_to = Some(text),
                }
            }
            name => return Err(unknown_argument(&name.to_str_lossy())),
        }
    }
    let from = from.ok_or_else(|| missing_from(&print::document(spec)))?;
    // Missing fields are reported before errors of a path.
    let (Some(to), Some(start_with), Some(connect_from), Some(connect_to)) =
        (to, start_with, connect_from, connect_to)
    else {
        return Err(missing_argument());
    };
    let stage = GraphLookup {
        from,
        to: Path::parse(to)?,
        start_with,
        connect_from: Path::parse(connect_from)?,
        connect_to: Path::parse(connect_to)?,
        depth_field,
        depth_max,
        restrict,
        outer: OuterVariables::of(parser.context),
    };
    parser.push(stage);
    Ok(())
}

/// Checks a filter that the found documents must match. Its constants are computed when documents
/// are looked up.
fn check_restriction(doc: Doc<'_>, context: &Context) -> Result<()> {
    if has_where(doc) {
        return Err(not_in_this_context("$where"));
    }
    let draft = Filter::draft(doc, Purpose::Any, context)?;
    let filter = Filter::from_node(draft.root().clone(), context);
    if filter.text().is_some() {
        return Err(not_in_this_context("$text"));
    }
    if filter.near().is_some() {
        return Err(near_not_allowed());
    }
    Ok(())
}

fn read_depth(value: Value<'_>) -> Result<u64> {
    let number = value.as_f64().ok_or_else(|| depth_not_number(value.kind().alias()))?;
    #[allow(clippy::cast_possible_truncation)]
    let whole = match value {
        Value::Decimal128(decimal) => whole_of_decimal(decimal),
        _ => value.as_exact_i64().unwrap_or(number as i64),
    };
    let depth = u64::try_from(whole).map_err(|_| depth_negative(whole))?;
    // Compared as doubles, so that the double next to the greatest long is accepted.
    #[allow(clippy::cast_precision_loss)]
    let is_exact = whole as f64 == number;
    if is_exact { Ok(depth) } else { Err(depth_not_integer(whole)) }
}

impl Stage for GraphLookup {
    fn name(&self) -> &'static str {
        "$graphLookup"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            self.print_into(out);
        })
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.expression(&self.start_with);
        Gives::Input
    }

    fn passage(&self) -> Passage {
        let mut passage = Passage::all_but_named();
        passage.name_top_of(&self.to);
        passage
    }

    fn unwound(self: Arc<Self>, unwind: &Unwind) -> Option<Arc<dyn Stage>> {
        let is_of_this = *unwind.path() == self.to;
        is_of_this.then(|| unwinding::stage(self, unwind.clone()))
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let input = deep_path::guard(input, [&self.to]);
        let env = env.clone();
        Ok(Box::new(Walking { input, stage: self, env, arena: Arena::new(), out: Vec::new() }))
    }
}

struct Walking {
    input: Box<dyn Source>,
    stage: Arc<GraphLookup>,
    env: Env,
    arena: Arena,
    out: Vec<u8>,
}

impl Walking {
    fn write(&mut self) -> Result<()> {
        self.arena.reset();
        let doc = self.input.doc();
        let found = self.stage.find(doc, &self.arena, &self.env)?;
        let mut array = Vec::new();
        let mut list = marula_bson::ArrayWriter::new(&mut array);
        for doc in &found {
            list.push(doc);
        }
        list.finish();
        self.out.clear();
        let value = Value::Array(Doc::trusted(&array));
        write_with(doc, self.stage.to.parts(), Some(value), &mut DocWriter::new(&mut self.out));
        check_size(self.out.len())
    }
}

impl GraphLookup {
    /// Writes the output of `explain`.
    fn print_into(&self, out: &mut DocWriter<'_>) {
        out.append("from", &self.from);
        out.append("as", self.to.text().as_bstr());
        out.append("connectToField", self.connect_to.text().as_bstr());
        out.append("connectFromField", self.connect_from.text().as_bstr());
        out.append("startWith", &self.start_with.print());
        if let Some(path) = &self.depth_field {
            out.append("depthField", path.text().as_bstr());
        }
        if let Some(depth) = self.depth_max {
            out.append("maxDepth", long(depth));
        }
        if let Some(restrict) = &self.restrict {
            out.append("restrictSearchWithMatch", restrict);
        }
    }

    /// Returns the documents that belong to `doc`.
    fn find(&self, doc: Doc<'_>, arena: &Arena, env: &Env) -> Result<Vec<DocBuf>> {
        let frame = Frame::new(doc, arena, &env.context);
        let start = self.start_with.eval(&frame)?;
        let mut frontier: Vec<ValueBuf> = Vec::new();
        match start {
            Some(Value::Array(items)) => frontier.extend(items.values().map(|item| item.to_buf())),
            // A missing value leads nowhere but is looked up all the same; null leads to documents
            // without a value.
            None => {
                self.matching(&self.connect_to.text(), &[], env)?.advance()?;
            }
            Some(start) => frontier.push(start.to_buf()),
        }
        self.walk(frontier, env)
    }

    /// Walks breadth-first: each round finds the documents that the values of the previous round
    /// lead to.
    fn walk(&self, mut frontier: Vec<ValueBuf>, env: &Env) -> Result<Vec<DocBuf>> {
        let collator = env.context.collator();
        let connect_to = self.connect_to.text();
        let mut tried = ValueSet::default();
        let mut seen = ValueSet::default();
        let mut found = Vec::new();
        let mut size = 0;
        let mut share = Share::default();
        let mut depth = 0;
        frontier.retain(|value| tried.insert(value.get(), collator) > 0);
        while !frontier.is_empty() {
            let values: Vec<Value<'_>> = frontier.iter().map(ValueBuf::get).collect();
            let mut matches = self.matching(&connect_to, &values, env)?;
            let mut next: Vec<ValueBuf> = Vec::new();
            while matches.advance()? != Step::End {
                let doc = matches.doc();
                // Documents are identified by their `_id` as stored, whatever the collation.
                if seen.insert(doc.get("_id").unwrap_or(Value::Null), None) == 0 {
                    continue;
                }
                let mut leads = Vec::new();
                collect(Value::Document(doc), self.connect_from.parts(), &mut leads);
                for lead in leads {
                    meter::spend(meter::CALL)?;
                    let added = tried.insert(lead, collator);
                    if added > 0 {
                        size += added;
                        next.push(lead.to_buf());
                    }
                }
                let doc = self.with_depth(doc, depth)?;
                size += doc.len();
                if size > env.stage_bytes_max {
                    return Err(too_much_memory());
                }
                share.require(size)?;
                found.push(doc);
            }
            meter::spend(meter::DOCUMENT)?;
            if self.depth_max.is_some_and(|max| depth >= max) {
                break;
            }
            depth += 1;
            frontier = next;
        }
        Ok(found)
    }

    fn matching(&self, field: &[u8], values: &[Value<'_>], env: &Env) -> Result<Box<dyn Source>> {
        if values.contains(&Value::Undefined) {
            return Err(in_undefined());
        }
        let mut filter = among(field, values);
        if let Some(restrict) = &self.restrict {
            filter = DocBuf::build(|out| {
                out.begin_array("$and").push(&filter).push(restrict);
            });
        }
        let context = self.outer.context(&env.context);
        let mut draft = Filter::draft(filter.as_doc(), Purpose::Any, &context)?;
        check_metadata(draft.root())?;
        draft.optimize(&context).map_err(|error| error.caused_by("Failed to optimize pipeline"))?;
        let pipeline = Pipeline::from_stages(Vec::new());
        let pipeline = pipeline.after(Match::new(draft.finish(&context)?));
        Arc::clone(&env.world).aggregate(None, &self.from, pipeline)
    }

    fn with_depth(&self, doc: Doc<'_>, depth: u64) -> Result<DocBuf> {
        let Some(path) = &self.depth_field else {
            return Ok(doc.to_buf());
        };
        deep_path::check(path)?;
        let depth = Value::Int64(long(depth));
        Ok(DocBuf::build(|out| write_with(doc, path.parts(), Some(depth), out)))
    }
}

/// Returns the filter for documents whose field is among the values. A regular expression among
/// them matches strings; a null matches null, not a missing field.
fn among(field: &[u8], values: &[Value<'_>]) -> DocBuf {
    DocBuf::build(|out| {
        let mut condition = out.begin_doc(field);
        if values.contains(&Value::Null) {
            condition.append("$exists", true);
            condition.begin_doc("$not").append("$type", "undefined");
        }
        let mut list = condition.begin_array("$in");
        for value in values {
            list.push(*value);
        }
    })
}

impl Source for Walking {
    fn pull(&mut self) -> Result<Step> {
        match self.input.advance()? {
            Step::Document => {
                self.write()?;
                Ok(Step::Document)
            }
            step => Ok(step),
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}

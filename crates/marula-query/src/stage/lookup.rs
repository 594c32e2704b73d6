//! `$lookup`: adds to each document an array of the matching documents of another collection.
//!
//! If `let` defines variables, the sub-pipeline is parsed again for each set of their values, so
//! that the variables are constants in it and the planner can use indexes for them. It is also
//! parsed once in advance with unknown values, so that its errors are reported early. `joining`
//! finds the documents that belong to a document; `uncorrelated` handles the part that is the same
//! for all of them; `unwinding` is the stage combined with an `$unwind` of its array.

mod joining;
mod uncorrelated;
mod unwinding;

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, DocWriter, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::fields::write_with;
use super::needs::{Gives, Needs};
use super::outer::OuterVariables;
use super::outline::check_from;
use super::passage::Passage;
use super::pipeline::PipelineParent;
use super::source::check_size;
use super::unwind::Unwind;
use super::{Env, Kind, Parser, Pipeline, Source, Stage, StagePlace, StageRow, Step, deep_path};
use crate::context::Context;
use crate::expression::scope::check_user_variable;
use crate::expression::{Arena, Expression, Frame, Path, print};
use crate::feature_version::FeatureVersion;
use crate::filter::Filter;
use crate::known::Known;
use crate::spill::{Pieces, Share};
use joining::Joining;

pub(super) const ROW: StageRow =
    StageRow { name: "$lookup", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    pub(super) not_object(kind: &str) = FailedToParse, "the $lookup stage specification must be an object, but found {kind}";
    argument_not_string(name: &str, text: &str, kind: &str) = FailedToParse, "$lookup argument '{name}' must be a string, found {name}: {text}: {kind}";
    unknown_argument(name: &str) = FailedToParse, "unknown argument to $lookup: {name}";
    pub(super) pipeline_not_array() = TypeMismatch, "'pipeline' option must be specified as an array";
    let_not_object(text: &str, kind: &str) = FailedToParse, "$lookup argument 'let: {text}' must be an object, is type {kind}";
    no_as() = FailedToParse, "must specify 'as' field for a $lookup";
    pub(super) no_from() = FailedToParse, "must specify 'pipeline' when 'from' is empty";
    pub(super) no_from_nor_documents() = FailedToParse, "$lookup stage without explicit collection must have a pipeline with $documents as first stage";
    no_fields_nor_pipeline() = FailedToParse, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified";
    one_field() = FailedToParse, "$lookup requires both or neither of 'localField' and 'foreignField' to be specified";
    let_without_pipeline() = FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'";
    result_too_large(from: &str, limit: usize) = 4568, "Total size of documents in {from} matching pipeline's $lookup stage exceeds {limit} bytes";
}

/// A parsed `$lookup`.
#[derive(Debug)]
pub(super) struct Lookup {
    from: Option<String>,
    to: Path,
    fields: Option<(Path, Vec<u8>)>,
    variables: Vec<(String, Expression)>,
    /// The variables that are visible at the stage.
    outer: OuterVariables,
    /// The array of stages, which is parsed again; `None` if there is none.
    stages: Option<ValueBuf>,
    pipeline: Pipeline,
    /// The error of the pipeline that is reported with the first document: of its constants, or a
    /// stage that must be the first.
    failure: Option<Error>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut from, mut to, mut local, mut foreign) = (None, None, None, None);
    let (mut variables, mut stages) = (None, None);
    for element in spec {
        let value = element.value.get();
        let kind = value.kind().alias();
        match &**element.name {
            b"pipeline" => stages = Some(value.as_array().ok_or_else(pipeline_not_array)?),
            b"let" => {
                let doc = value.as_doc();
                variables = Some(doc.ok_or_else(|| let_not_object(&print::element(value), kind))?);
            }
            b"from" => {
                check_from("$lookup", value, parser.context)?;
                from = value.as_str().map(|name| name.to_string());
            }
            name => {
                let Value::String(text) = value else {
                    let name = name.to_str_lossy();
                    return Err(argument_not_string(&name, &print::element(value), kind));
                };
                match name {
                    // An empty value counts as absent.
                    b"as" | b"localField" | b"foreignField" if text.is_empty() => {}
                    b"as" => to = Some(text),
                    b"localField" => local = Some(text),
                    b"foreignField" => foreign = Some(text),
                    _ => return Err(unknown_argument(&name.to_str_lossy())),
                }
            }
        }
    }
    if from.is_none() && stages.is_none() {
        return Err(no_from());
    }
    let to = to.ok_or_else(no_as)?;
    let fields = match (local, foreign) {
        (Some(local), Some(foreign)) => Some((local, foreign)),
        (None, None) if stages.is_some() => None,
        _ if stages.is_some() => return Err(one_field()),
        _ => return Err(no_fields_nor_pipeline()),
    };
    if variables.is_some() && stages.is_none() {
        return Err(let_without_pipeline());
    }
    // Paths and expressions are parsed in this order, whatever the order of the fields.
    let to = Path::parse(to)?;
    let fields = match fields {
        Some((local, foreign)) => Some((Path::parse(local)?, Path::parse(foreign)?.text())),
        None => None,
    };
    let variables = parse_variables(variables.unwrap_or(Doc::EMPTY), parser)?;
    let context = with_unknown_variables(parser.context, &variables).within(from.as_deref());
    let pipeline = parser.nested(stages.unwrap_or(Doc::EMPTY), &context, PipelineParent::Lookup)?;
    if from.is_none() && !pipeline.is_origin() {
        return Err(no_from_nor_documents());
    }
    // The condition on the fields is before the pipeline, or after documents of its own.
    let first = pipeline.stages().first();
    let makes_documents = first.is_some_and(|stage| matches!(stage.kind(), Kind::Origin));
    let following = stages.filter(|_| fields.is_some() && !makes_documents);
    let failure =
        following.and_then(|stages| Pipeline::check_following(stages, context.version).err());
    let stages = stages.map(|stages| Value::Array(stages).to_buf());
    let outer = OuterVariables::of(parser.context);
    parser.push(Lookup { from, to, fields, variables, outer, stages, pipeline, failure });
    Ok(())
}

fn parse_variables(doc: Doc<'_>, parser: &Parser<'_>) -> Result<Vec<(String, Expression)>> {
    doc.iter()
        .map(|element| {
            let name = element.name.to_string();
            check_user_variable(&name)?;
            let value = Expression::parse(element.value.get(), &mut parser.scope())?;
            Ok((name, value))
        })
        .collect()
}

/// Returns a context in which the variables have names but no values.
fn with_unknown_variables(context: &Context, variables: &[(String, Expression)]) -> Context {
    let mut context = context.clone();
    context.unknown_variables.extend(variables.iter().map(|(name, _)| name.clone()));
    context
}

impl Stage for Lookup {
    fn name(&self) -> &'static str {
        "$lookup"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| self.print_into(out, None))
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        if self.variables.is_empty() {
            // mongod reports errors of the inner pipeline with the first document.
            let failure = self.pipeline.optimize(context).err();
            self.failure = self.failure.take().or(failure);
        }
        // Errors of variables are reported with the first document, so they are not computed here.
        Ok(())
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        if let Some((local, _)) = &self.fields {
            needs.path(local);
        }
        self.variables.iter().for_each(|(_, value)| needs.expression(value));
        Gives::Input
    }

    fn passage(&self) -> Passage {
        let mut passage = Passage::all_but_named().letting_sorts_pass();
        passage.name_top_of(&self.to);
        passage
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn unwound(self: Arc<Self>, unwind: &Unwind) -> Option<Arc<dyn Stage>> {
        let is_of_this = *unwind.path() == self.to;
        is_of_this.then(|| unwinding::stage(self, unwind.clone()))
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(LookingUp {
            input: deep_path::guard(input, [&self.to]),
            joining: Joining::new(self, env),
            arena: Arena::new(),
            found: Vec::new(),
            out: Vec::new(),
        }))
    }
}

struct LookingUp {
    input: Box<dyn Source>,
    joining: Joining,
    arena: Arena,
    /// The array of the documents found for the current document.
    found: Vec<u8>,
    out: Vec<u8>,
}

impl LookingUp {
    fn write(&mut self) -> Result<()> {
        let doc = self.input.doc();
        self.arena.reset();
        self.found.clear();
        let mut list = marula_bson::ArrayWriter::new(&mut self.found);
        let mut found = self.joining.find(doc, &self.arena)?;
        let lookup = &self.joining.stage;
        let limit = self.joining.env.context.limits.lookup_bytes_max;
        let mut share = Share::new(Pieces::Large);
        while let Some(joined) = found.next(&self.joining)? {
            list.push(joined);
            if list.size() > limit {
                return Err(result_too_large(lookup.from.as_deref().unwrap_or_default(), limit));
            }
            share.require(list.size())?;
        }
        list.finish();
        self.out.clear();
        let value = Value::Array(Doc::trusted(&self.found));
        write_with(doc, lookup.to.parts(), Some(value), &mut DocWriter::new(&mut self.out));
        check_size(self.out.len())
    }
}

impl Lookup {
    /// Writes the output of `explain`; `also` is a further filter of the found documents.
    fn print_into(&self, out: &mut DocWriter<'_>, also: Option<&Filter>) {
        if let Some(from) = &self.from {
            out.append("from", from);
        }
        out.append("as", self.to.text().as_bstr());
        if let Some((local, foreign)) = &self.fields {
            out.append("localField", local.text().as_bstr());
            out.append("foreignField", foreign.as_bstr());
        }
        if self.stages.is_none() && also.is_none() {
            return;
        }
        let mut variables = out.begin_doc("let");
        for (name, value) in &self.variables {
            variables.append(name, &value.print());
        }
        variables.finish();
        let mut stages = out.begin_array("pipeline");
        if let Some(written) = self.stages() {
            written.values().for_each(|stage| {
                stages.push(stage);
            });
        }
        if let Some(also) = also {
            stages.begin_doc().append("$match", &also.to_doc());
        }
    }

    /// Returns the inner stages as they were written.
    fn stages(&self) -> Option<Doc<'_>> {
        self.stages.as_ref().and_then(|stages| stages.get().as_array())
    }

    /// Returns the values of the variables for `doc`; missing ones are omitted.
    fn values(&self, doc: Doc<'_>, arena: &Arena, env: &Env) -> Result<DocBuf> {
        if self.variables.is_empty() {
            return Ok(DocBuf::new());
        }
        let frame = Frame::new(doc, arena, &env.context);
        let mut bytes = Vec::new();
        let mut out = DocWriter::new(&mut bytes);
        for (at, (name, value)) in self.variables.iter().enumerate() {
            let value = value.eval(&frame)?;
            // Of several variables with the same name the last counts.
            let is_last = self.variables[at + 1..].iter().all(|(later, _)| later != name);
            if let Some(value) = value.filter(|_| is_last) {
                out.append(name.as_str(), value);
            }
        }
        out.finish();
        Ok(DocBuf::trusted(bytes))
    }

    /// Returns the context in which the variables have these values, and the others are missing.
    fn context_of(&self, values: Doc<'_>, env: &Env) -> Context {
        let names = self.variables.iter().map(|(name, _)| name.as_str());
        let (known, missing): (Vec<&str>, Vec<&str>) =
            names.partition(|name| values.get(*name).is_some());
        let known: Vec<(&str, Value<'_>)> =
            known.into_iter().filter_map(|name| Some((name, values.get(name)?))).collect();
        self.outer.with(&env.context, &known, &missing)
    }
}

/// Returns the values that a document is joined by. A path without any value, such as to an empty
/// array, counts as null.
fn local_values<'d>(doc: Doc<'d>, local: &Path) -> Vec<Value<'d>> {
    let mut values = Vec::new();
    collect(Value::Document(doc), local.parts(), &mut values);
    if values.is_empty() {
        values.push(Value::Null);
    }
    values
}

/// Collects the values at a path, through arrays of documents; of an array, its elements. Values
/// that lack the path add nothing.
pub(super) fn collect<'a>(value: Value<'a>, parts: &[Box<[u8]>], out: &mut Vec<Value<'a>>) {
    let Some((first, rest)) = parts.split_first() else {
        match value {
            Value::Array(items) => out.extend(items.values()),
            value => out.push(value),
        }
        return;
    };
    match value {
        Value::Document(doc) => {
            if let Some(inner) = doc.get(first) {
                collect(inner, rest, out);
            }
        }
        Value::Array(items) => {
            // A number is the index of an element, never the name of a field in one.
            if let Some(index) = index(first) {
                items.values().nth(index).into_iter().for_each(|item| collect(item, rest, out));
                return;
            }
            for item in items.values().filter(|item| item.as_doc().is_some()) {
                collect(item, parts, out);
            }
        }
        _ => {}
    }
}

/// Returns the index that a part of a path names.
fn index(part: &[u8]) -> Option<usize> {
    std::str::from_utf8(part).ok()?.parse().ok()
}

/// Returns the filter for documents whose field equals one of the values.
pub(super) fn equal_to_any(field: &[u8], values: &[Value<'_>]) -> DocBuf {
    // A regular expression inside $in would be matched, not compared.
    let has_regex = values.iter().any(|value| value.kind() == Type::Regex);
    DocBuf::build(|out| match values {
        [only] => {
            out.begin_doc(field).append("$eq", *only);
        }
        _ if has_regex => {
            let mut either = out.begin_array("$or");
            for value in values {
                either.begin_doc().begin_doc(field).append("$eq", *value);
            }
        }
        _ => {
            let mut condition = out.begin_doc(field);
            let mut list = condition.begin_array("$in");
            for value in values {
                list.push(*value);
            }
        }
    })
}

impl Source for LookingUp {
    fn pull(&mut self) -> Result<Step> {
        match self.input.advance()? {
            Step::Document => {
                self.joining.prepare()?;
                self.write()?;
                Ok(Step::Document)
            }
            step => Ok(step),
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

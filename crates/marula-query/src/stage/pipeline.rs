//! Parses an array of stages into a [`Pipeline`] and runs it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use marula_bson::{ArrayWriter, Doc, DocWriter, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::asked::Asked;
use super::source::{Counted, Step};
use super::unavailable::Unavailable;
use super::{
    Env, Kind, STAGES, Source, Stage, StagePlace, StageRow, change_stream, documents, optimize,
    outline, split_event,
};
use crate::context::Context;
use crate::expression::Scope;
use crate::expression::operators::meta::is_lack;
use crate::feature_version::FeatureVersion;
use crate::text;
use crate::usage;

/// The maximum number of stages of a pipeline, as in mongod 6.0.
const STAGES_MAX: usize = 1000;
/// The maximum nesting of pipelines in `$lookup`, `$facet` and `$unionWith`.
pub(super) const DEPTH_MAX: usize = 20;

errors! {
    pub(super) stage_not_object() = TypeMismatch, "Each element of the 'pipeline' array must be an object";
    stage_not_one_field() = 40323, "A pipeline stage specification object must contain exactly one field.";
    unknown_stage(name: &str) = 40324, "Unrecognized pipeline stage name: '{name}'";
    too_many_stages() = FailedToParse, "Pipeline length must be no longer than {STAGES_MAX} stages";
    pub(super) too_deep() = MaxSubPipelineDepthExceeded, "Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}";
    must_be_first(name: &str) = 40602, "{name} is only valid as the first stage in a pipeline";
    must_be_last(name: &str) = 40601, "{name} can only be the final stage in the pipeline";
    not_in_lookup(name: &str) = 51047, "{name} is not allowed within a $lookup's sub-pipeline";
    not_in_union(name: &str) = 31441, "{name} is not allowed within a $unionWith's sub-pipeline";
    text_not_first() = 17_313, "$match with $text is only allowed as the first pipeline stage";
    not_in_facet(name: &str) = 40600, "{name} is not allowed to be used within a $facet stage";
}

/// mongod's internal stage that a `$changeStream` begins with.
const OPLOG_MATCH: &str = "$_internalChangeStreamOplogMatch";

/// A parsed pipeline.
#[derive(Clone)]
pub struct Pipeline {
    stages: Vec<Arc<dyn Stage>>,
    asked: Asked,
}

/// The stage that contains a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PipelineParent {
    /// None: the pipeline is the operation's own, or a view's.
    Nothing,
    /// `$facet`.
    Facet,
    /// `$lookup`.
    Lookup,
    /// `$unionWith`.
    UnionWith,
}

/// The parser of a pipeline.
pub struct Parser<'c> {
    /// The context of the operation.
    pub context: &'c Context,
    stages: Vec<Box<dyn Stage>>,
    inside: PipelineParent,
    depth: usize,
    /// The name of the stage that is being parsed.
    parsing: &'static str,
    asked: Asked,
}

impl Pipeline {
    /// Parses the array of stages of an operation.
    pub fn parse(array: Doc<'_>, context: &Context) -> Result<Pipeline> {
        Pipeline::parse_after(array, context, || Ok(()))
    }

    /// Parses like [`parse`](Pipeline::parse), for stages that follow others: `before` computes the
    /// constants of those, which is done once all stages are parsed.
    pub fn parse_after(
        array: Doc<'_>,
        context: &Context,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<Pipeline> {
        outline::check(array, context)?;
        let context = with_metadata(array, context, PipelineParent::Nothing);
        Parser::new(&context, PipelineParent::Nothing, 0).complete(array, |parser| {
            before()?;
            parser.finish()
        })
    }

    /// Parses the array of stages of an update or of a view's definition: as in mongod no constant
    /// is computed before it is used.
    pub fn parse_lazily(array: Doc<'_>, context: &Context) -> Result<Pipeline> {
        let parser = Parser::new(context, PipelineParent::Nothing, 0);
        parser.complete(array, |parser| Ok(parser.unoptimized()))
    }

    /// Checks that an array contains stages with names that a release knows, without parsing any.
    ///
    /// Errors: `stage_not_object`, `stage_not_one_field`, `unknown_stage`.
    pub fn check_form(array: Doc<'_>, version: FeatureVersion) -> Result<()> {
        array.values().try_for_each(|item| find_row(item, version).map(|_| ()))
    }

    /// Checks the names of an array of stages, of those inside them, and which collections they
    /// read and write, without parsing any.
    pub fn check_outline(array: Doc<'_>, context: &Context) -> Result<()> {
        outline::check(array, context)
    }

    /// Checks only that the elements of an array of stages are objects.
    pub fn check_objects(array: Doc<'_>) -> Result<()> {
        let is_object = |item: Value<'_>| matches!(item, Value::Document(_));
        if array.values().all(is_object) { Ok(()) } else { Err(stage_not_object()) }
    }

    /// Checks an array of stages, which are valid by themselves, that follow those of a view.
    ///
    /// Errors: `must_be_first`, `text_not_first`.
    pub fn check_following(array: Doc<'_>, version: FeatureVersion) -> Result<()> {
        let Some(first) = array.values().next() else { return Ok(()) };
        let (row, argument) = find_row(first, version)?;
        match row.name {
            _ if searches_text(row, argument) => Err(text_not_first()),
            name if row.place == StagePlace::First => Err(must_be_first(name)),
            _ => Ok(()),
        }
    }

    /// Parses the array of stages of a pipeline inside another, whose parser no longer exists.
    pub(super) fn parse_inside(
        array: Doc<'_>,
        context: &Context,
        inside: PipelineParent,
    ) -> Result<Pipeline> {
        let context = with_metadata(array, context, inside);
        Parser::new(&context, inside, 1).complete(array, |parser| parser.finish())
    }

    /// Returns the pipeline with one more stage at its front, or after a first stage that produces
    /// its own documents.
    #[must_use]
    pub(super) fn after(mut self, stage: impl Stage + 'static) -> Pipeline {
        self.stages.insert(usize::from(self.is_origin()), Arc::new(stage));
        self
    }

    /// Returns the pipeline with one more stage at its end.
    #[must_use]
    pub(super) fn before(mut self, stage: impl Stage + 'static) -> Pipeline {
        self.stages.push(Arc::new(stage));
        self
    }

    /// Creates a pipeline of parsed stages.
    pub fn from_stages(stages: Vec<Arc<dyn Stage>>) -> Pipeline {
        Pipeline { stages, asked: Asked::default() }
    }

    /// Returns the pipeline with its first stage replaced.
    #[must_use]
    pub fn with_first(mut self, stage: Arc<dyn Stage>) -> Pipeline {
        self.stages.splice(..1, [stage]);
        self
    }

    /// Returns the pipeline without the stage at `index`.
    #[must_use]
    pub fn without_stage(mut self, index: usize) -> Pipeline {
        self.stages.remove(index);
        self
    }

    /// Returns the metadata that it asks for, of all its stages and those within them.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Returns the pipeline as one that asks for this metadata, too.
    #[must_use]
    pub fn asking(mut self, asked: Asked) -> Pipeline {
        self.asked = self.asked.and(asked);
        self
    }

    /// Returns the stages in order.
    pub fn stages(&self) -> &[Arc<dyn Stage>] {
        &self.stages
    }

    /// Splits the pipeline before the stage at `index`: the planner runs the first part.
    #[must_use]
    pub fn split_at(mut self, index: usize) -> (Pipeline, Pipeline) {
        let rest = self.stages.split_off(index);
        let asked = self.asked;
        (self, Pipeline { stages: rest, asked })
    }

    /// Returns whether the first stage produces its own documents, so that the input is not read.
    pub fn is_origin(&self) -> bool {
        self.stages.first().is_some_and(|stage| match stage.kind() {
            Kind::Origin | Kind::ChangeStream(_) => true,
            Kind::Report(report) => !report.needs_collection(),
            _ => false,
        })
    }

    /// Returns whether the pipeline splits large events of a change stream.
    pub fn splits_events(&self) -> bool {
        self.stages.last().is_some_and(|stage| stage.name() == split_event::NAME)
    }

    /// Returns whether the last stage writes.
    pub fn writes(&self) -> bool {
        self.stages.last().is_some_and(|stage| matches!(stage.kind(), Kind::Writer))
    }

    /// Computes the parts that need no document.
    ///
    /// Errors: those of the constant expressions, with mongod's prefix.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        for stage in &mut self.stages {
            if let Some(stage) = Arc::get_mut(stage) {
                stage
                    .optimize(context)
                    .map_err(|error| error.caused_by("Failed to optimize pipeline"))?;
            }
        }
        optimize::limit_sorts(&mut self.stages);
        Ok(())
    }

    /// Returns the pipeline in the order of least cost that has the same result.
    ///
    /// Source: manual "Aggregation Pipeline Optimization"; the extent follows the `explain` of
    /// mongod 6.0.
    #[must_use]
    pub fn rearranged(self, context: &Context) -> Pipeline {
        Pipeline { stages: optimize::rearranged(self.stages, context), ..self }
    }

    /// Starts the stages on `input`; pulling the result runs the pipeline.
    pub fn run(&self, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        self.stages.iter().try_fold(input, |input, stage| Arc::clone(stage).start(input, env))
    }

    /// Runs the pipeline to its end without writing. Returns the number of documents of the input,
    /// and of each stage's output; a writing stage outputs none.
    pub fn count(&self, input: Box<dyn Source>, env: &Env) -> Result<Vec<u64>> {
        let (input, count) = Counted::new(input);
        let mut source: Box<dyn Source> = Box::new(input);
        let mut counts = vec![count];
        for stage in &self.stages[..self.stages.len() - usize::from(self.writes())] {
            let (next, count) = Counted::new(Arc::clone(stage).start(source, env)?);
            source = Box::new(next);
            counts.push(count);
        }
        while source.advance()? == Step::Document {}
        counts.resize_with(self.stages.len() + 1, Default::default);
        Ok(counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }

    /// Returns the stages in the form that `explain` shows.
    pub fn print(&self) -> ValueBuf {
        let mut bytes = Vec::new();
        let mut out = ArrayWriter::new(&mut bytes);
        for stage in &self.stages {
            out.begin_doc().append(stage.name(), &stage.print());
        }
        out.finish();
        Value::Array(Doc::trusted(&bytes)).to_buf()
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stages.fmt(f)
    }
}

/// Returns the context of a pipeline, with the metadata that its documents have: the score of a
/// text search, the distance of a geo search.
fn with_metadata<'c>(
    array: Doc<'_>,
    context: &'c Context,
    inside: PipelineParent,
) -> Cow<'c, Context> {
    if inside == PipelineParent::Facet || context.assumes_metadata {
        return Cow::Borrowed(context);
    }
    let first = array.values().next().and_then(|stage| stage.as_doc());
    let filter = first.and_then(|stage| stage.get("$match")?.as_doc());
    let has_text_score = filter.is_some_and(text::has_search);
    let has_distance = first.is_some_and(|stage| stage.get("$geoNear").is_some());
    if (has_text_score, has_distance) == (context.has_text_score, context.has_distance) {
        return Cow::Borrowed(context);
    }
    Cow::Owned(Context { has_text_score, has_distance, ..context.clone() })
}

impl<'c> Parser<'c> {
    fn new(context: &'c Context, inside: PipelineParent, depth: usize) -> Self {
        let asked = Asked::default();
        Parser { context, stages: Vec::new(), inside, depth, parsing: "", asked }
    }

    /// Returns the token after which the change stream at the front resumes.
    pub(super) fn resumed(&self) -> Option<&str> {
        match self.stages.first()?.kind() {
            Kind::ChangeStream(stream) => stream.resumed(),
            _ => None,
        }
    }

    /// Adds a parsed stage.
    pub fn push(&mut self, stage: impl Stage + 'static) {
        self.stages.push(Box::new(stage));
    }

    /// Parses a pipeline inside this one.
    pub fn nested(
        &self,
        array: Doc<'_>,
        context: &Context,
        inside: PipelineParent,
    ) -> Result<Pipeline> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        let context = with_metadata(array, context, inside);
        let mut parser = Parser::new(&context, inside, self.depth + 1);
        if let Err(error) = parser.parse_all(array) {
            let error = parser.mistake(error, array, |parser| Ok(parser.unoptimized()));
            if !parser.starts_to_fail(&error) {
                return Err(error);
            }
            parser.stages.clear();
            parser.push(Unavailable { error });
        }
        // The outer pipeline computes constants once all of it is parsed.
        Ok(parser.unoptimized())
    }

    /// Parses the stages and makes a pipeline of them by `finish`.
    fn complete(
        mut self,
        array: Doc<'_>,
        finish: impl FnOnce(Parser<'_>) -> Result<Pipeline>,
    ) -> Result<Pipeline> {
        match self.parse_all(array) {
            Ok(()) => finish(self),
            Err(error) => Err(self.mistake(error, array, finish)),
        }
    }

    /// Returns the mistake of the stages that is reported, of which `error` is the first: that they
    /// use metadata which their documents do not have counts after all others, those that
    /// `finish` finds included.
    fn mistake(
        &self,
        error: Error,
        array: Doc<'_>,
        finish: impl FnOnce(Parser<'_>) -> Result<Pipeline>,
    ) -> Error {
        if !self.is_late(&error) {
            return error;
        }
        let context = self.context.with_all_metadata();
        let mut parser = Parser::new(&context, self.inside, self.depth);
        let parsed = parser.parse_all(array).and_then(|()| finish(parser));
        parsed.err().unwrap_or(error)
    }

    /// Returns whether a pipeline with this mistake fails only when it starts: it uses metadata
    /// that its documents do not have, other than in a filter.
    fn starts_to_fail(&self, error: &Error) -> bool {
        self.inside != PipelineParent::Facet && self.is_late(error)
    }

    /// Returns whether a mistake is reported after others: that metadata is missing, other than in
    /// a filter.
    fn is_late(&self, error: &Error) -> bool {
        self.parsing != "$match" && is_lack(error)
    }

    /// Returns whether the pipeline is not inside another stage.
    pub fn is_outermost(&self) -> bool {
        self.inside == PipelineParent::Nothing
    }

    /// Returns the scope for an expression of a stage.
    pub fn scope(&self) -> Scope<'c> {
        Scope::new(self.context)
    }

    fn parse_all(&mut self, array: Doc<'_>) -> Result<()> {
        let count = array.iter().count();
        if count > STAGES_MAX {
            return Err(too_many_stages());
        }
        self.asked = Asked::of(array);
        for item in array.values() {
            let (row, argument) = find_row(item, self.context.version)?;
            usage::STAGES.note(row.name, self.context);
            self.parsing = row.name;
            (row.parse)(argument, self)?;
        }
        // Checked once all of them are valid: first whether they are permitted in this kind of
        // pipeline, then their positions.
        for item in array.values() {
            let (row, argument) = find_row(item, self.context.version)?;
            self.check_inside(row, argument)?;
        }
        let is_stream =
            self.stages.first().is_some_and(|stage| matches!(stage.kind(), Kind::ChangeStream(_)));
        for (index, item) in array.values().enumerate() {
            let (row, argument) = find_row(item, self.context.version)?;
            if is_stream && !change_stream::permits(row.name) {
                return Err(change_stream::not_permitted(row.name));
            }
            if row.name == split_event::NAME {
                if !is_stream {
                    return Err(split_event::not_in_stream());
                }
                if index + 1 < count {
                    return Err(split_event::not_last());
                }
            }
            self.check_place(row, index, count)?;
            if index > 0 && searches_text(row, argument) {
                return Err(text_not_first());
            }
        }
        Ok(())
    }

    fn check_inside(&self, row: &StageRow, argument: Value<'_>) -> Result<()> {
        // Messages name the first of mongod's internal stages.
        let name = if row.name == "$changeStream" { OPLOG_MATCH } else { row.name };
        let stays_out = matches!(row.place, StagePlace::Last) || name == OPLOG_MATCH;
        match self.inside {
            PipelineParent::Facet if !goes_in_facet(row, argument, self.context.version) => {
                Err(not_in_facet(name))
            }
            PipelineParent::Lookup if stays_out => Err(not_in_lookup(name)),
            PipelineParent::UnionWith if stays_out => Err(not_in_union(name)),
            _ => Ok(()),
        }
    }

    fn check_place(&self, row: &StageRow, index: usize, count: usize) -> Result<()> {
        match row.place {
            StagePlace::First if index > 0 => Err(must_be_first(row.name)),
            StagePlace::First
                if row.name == "$documents" && self.inside == PipelineParent::Nothing =>
            {
                documents::check_subject(self.context)
            }
            StagePlace::Last if index + 1 < count => Err(must_be_last(row.name)),
            _ => Ok(()),
        }
    }

    fn unoptimized(self) -> Pipeline {
        let stages = self.stages.into_iter().map(Arc::from).collect();
        Pipeline { stages, asked: self.asked }
    }

    fn finish(self) -> Result<Pipeline> {
        let context = self.context;
        let mut pipeline = self.unoptimized();
        pipeline.optimize(context)?;
        Ok(pipeline)
    }
}

/// Returns whether a stage is a `$match` with a text search.
fn searches_text(row: &StageRow, argument: Value<'_>) -> bool {
    row.name == "$match" && argument.as_doc().is_some_and(text::has_search)
}

/// Returns whether a stage is permitted in a `$facet`; a stage with an inner pipeline is if all
/// inner stages are.
fn goes_in_facet(row: &StageRow, argument: Value<'_>, version: FeatureVersion) -> bool {
    let joins = matches!(row.name, "$lookup" | "$unionWith");
    let inside = argument.as_doc().filter(|_| joins).and_then(|spec| spec.get("pipeline"));
    let inside = inside.and_then(|stages| stages.as_array()).unwrap_or(Doc::EMPTY);
    row.place == StagePlace::Anywhere
        && inside.values().all(|stage| {
            find_row(stage, version)
                .is_ok_and(|(row, argument)| goes_in_facet(row, argument, version))
        })
}

/// Returns the row of a stage that a release has, and its argument.
pub(super) fn find_row(
    item: Value<'_>,
    version: FeatureVersion,
) -> Result<(&'static StageRow, Value<'_>)> {
    let Value::Document(doc) = item else {
        return Err(stage_not_object());
    };
    let mut fields = doc.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(stage_not_one_field());
    };
    let row = STAGES
        .iter()
        .copied()
        .flatten()
        .find(|row| *row.name.as_bytes() == **field.name && row.since <= version)
        .ok_or_else(|| unknown_stage(&field.name.to_string()))?;
    Ok((row, field.value.get()))
}

/// Returns a stage's argument as a document that `fill` writes.
pub(super) fn printed(fill: impl FnOnce(&mut DocWriter<'_>)) -> ValueBuf {
    Value::Document(marula_bson::DocBuf::build(fill).as_doc()).to_buf()
}

//! `$unionWith`: the documents of another collection after the pipeline's own.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use super::r#match::Match;
use super::out::check_target_name;
use super::pipeline::PipelineParent;
use super::{Env, Parser, Pipeline, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::filter::{Filter, Node};
use crate::once::{Once, unknown_field};

pub(super) const ROW: StageRow = StageRow {
    name: "$unionWith",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    wrong_type(kind: &str) = FailedToParse, "the $unionWith stage specification must be an object or string, but found {kind}";
    pub(super) no_collection() = FailedToParse, "$unionWith stage without explicit collection must have a pipeline with $documents as first stage";
    empty_name(db: &str) = InvalidNamespace, "Namespace {db}. is not a valid collection name";
    coll_not_string(kind: &str) = TypeMismatch, "BSON field '$unionWith.coll' is the wrong type '{kind}', expected type 'string'";
    pipeline_not_array() = TypeMismatch, "'pipeline' option must be specified as an array";
}

/// A parsed `$unionWith`.
#[derive(Debug)]
pub(super) struct UnionWith {
    collection: Option<String>,
    pipeline: Pipeline,
}

/// Returns the name of the collection that a `$unionWith` reads, and its stages; the array is empty
/// if there are none.
pub(super) fn read(value: Value<'_>) -> Result<(Option<String>, Doc<'_>)> {
    let mut collection = None;
    let mut stages = Doc::EMPTY;
    match value {
        Value::String(name) => collection = Some(name.to_string()),
        Value::Document(spec) => {
            let mut once = Once::of("$unionWith");
            for element in spec {
                let value = element.value.get();
                match &**element.name {
                    b"coll" if value.is_nullish() => {}
                    b"coll" => {
                        let name = value.as_str();
                        let name = name.ok_or_else(|| coll_not_string(value.kind().alias()))?;
                        collection = Some(name.to_string());
                    }
                    b"pipeline" => {
                        // A second one is refused whatever it is.
                        once.note(element.name)?;
                        stages = value.as_array().ok_or_else(pipeline_not_array)?;
                        Pipeline::check_objects(stages)?;
                        continue;
                    }
                    _ => return Err(unknown_field("$unionWith", element.name)),
                }
                once.note_given(element)?;
            }
        }
        _ => return Err(wrong_type(value.kind().alias())),
    }
    if let Some(name) = &collection {
        check_target_name("", name)?;
    }
    Ok((collection, stages))
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let (collection, stages) = read(value)?;
    let context = parser.context.clone().within(collection.as_deref());
    let pipeline = parser.nested(stages, &context, PipelineParent::UnionWith)?;
    if collection.is_none() && !pipeline.is_origin() {
        return Err(no_collection());
    }
    parser.push(UnionWith { collection, pipeline });
    Ok(())
}

impl Stage for UnionWith {
    fn name(&self) -> &'static str {
        "$unionWith"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            if let Some(name) = &self.collection {
                out.append("coll", name);
            }
            out.append("pipeline", &self.pipeline.print());
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.pipeline.optimize(context)
    }

    fn taking_in(
        self: Arc<Self>,
        conditions: &[Node],
        context: &Context,
    ) -> Option<Vec<Arc<dyn Stage>>> {
        // Both sides evaluate the conditions, and may have indexes for them.
        let asked = || Match::new(Filter::written(Node::And(conditions.to_vec()), context));
        let (collection, pipeline) = (self.collection.clone(), self.pipeline.clone());
        let union = UnionWith { collection, pipeline: pipeline.before(asked()) };
        Some(vec![Arc::new(asked()), Arc::new(union)])
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Union { input, stage: self, env: env.clone(), is_second: false }))
    }
}

/// Runs a pipeline on a collection, or without one if it produces its own documents.
pub(super) fn open(
    collection: Option<&str>,
    pipeline: Pipeline,
    env: &Env,
) -> Result<Box<dyn Source>> {
    match collection {
        Some("") => Err(empty_name(env.context.database())),
        Some(name) => Arc::clone(&env.world).aggregate(None, name, pipeline),
        None => {
            let pipeline = pipeline.rearranged(&env.context);
            pipeline.run(Box::new(super::source::Documents::new(Vec::new())), env)
        }
    }
}

struct Union {
    input: Box<dyn Source>,
    stage: Arc<UnionWith>,
    env: Env,
    is_second: bool,
}

impl Source for Union {
    fn pull(&mut self) -> Result<Step> {
        let step = self.input.advance()?;
        if step != Step::End || self.is_second {
            return Ok(step);
        }
        self.is_second = true;
        let pipeline = self.stage.pipeline.clone();
        self.input = open(self.stage.collection.as_deref(), pipeline, &self.env)?;
        self.input.advance()
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }
}

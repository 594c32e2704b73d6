//! `$facet`: several pipelines over the same documents, each with its own field of one result.
//!
//! The input is read in batches; each pipeline is pulled until it has used up the batch and pauses.

use std::ops::Range;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};
use parking_lot::Mutex;

use super::needs::{Gives, Needs};
use super::pipeline::PipelineParent;
use super::source::{Batch, check_size};
use super::{Env, Kind, Parser, Pipeline, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::expression::path::check_field_name;
use crate::expression::print;
use crate::feature_version::FeatureVersion;
use crate::known::Known;
use crate::meter;
use crate::spill::Share;

pub(super) const ROW: StageRow = StageRow {
    name: "$facet",
    since: FeatureVersion::V6_0,
    place: StagePlace::OutsideFacet,
    parse,
};

/// The number of input bytes that are read before the pipelines run over them.
const BATCH_BYTES: usize = 256 * 1024;

errors! {
    not_object(text: &str) = 40169, "the $facet specification must be a non-empty object, but found: $facet: {text}";
    not_array(name: &str, kind: &str) = 40170, "arguments to $facet must be arrays, {name} is type {kind}";
    stage_not_object(name: &str, kind: &str, element: &str) = 40171, "elements of arrays in $facet spec must be non-empty objects, {name} argument contained an element of type {kind}: {element}";
    /// A text search needs an index, and a pipeline in `$facet` cannot use one.
    no_text_score() = 40218, "query requires text score metadata, but it is not available";
    name_has_dot() = 16412, "FieldPath field names may not contain '.'. Consider using $getField or $setField.";
    too_large(size: usize, limit: usize) = 4_031_700, "document constructed by $facet is {size} bytes, which exceeds the limit of {limit} bytes";
}

/// A parsed `$facet`.
#[derive(Debug)]
pub(super) struct Facet {
    pipelines: Vec<(Box<[u8]>, Pipeline)>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let mut pipelines = Vec::new();
    for (name, array) in read(value)? {
        let pipeline = parser.nested(array, parser.context, PipelineParent::Facet)?;
        pipelines.push((name.into(), pipeline));
    }
    parser.push(Facet { pipelines });
    Ok(())
}

/// Returns the names and the arrays of stages, whose elements are documents.
pub(super) fn read(value: Value<'_>) -> Result<Vec<(&[u8], Doc<'_>)>> {
    let spec = match value {
        Value::Document(spec) if !spec.is_empty() => spec,
        _ => return Err(not_object(&print::element(value))),
    };
    let mut pipelines = Vec::new();
    for element in spec {
        check_field_name(element.name)?;
        if element.name.contains(&b'.') {
            return Err(name_has_dot());
        }
        let Value::Array(array) = element.value.get() else {
            return Err(not_array(&element.name.to_string(), element.value.kind().alias()));
        };
        for item in array {
            let value = item.value.get();
            if value.as_doc().is_none() {
                let shown = format!("{}: {}", item.name, print::element(value));
                let name = element.name.to_string();
                return Err(stage_not_object(&name, value.kind().alias(), &shown));
            }
        }
        pipelines.push((&**element.name, array));
    }
    Ok(pipelines)
}

impl Stage for Facet {
    fn name(&self) -> &'static str {
        "$facet"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            for (name, pipeline) in &self.pipelines {
                out.append(name, &pipeline.print());
            }
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        for (_, pipeline) in &mut self.pipelines {
            pipeline.optimize(context)?;
            *pipeline = pipeline.clone().rearranged(context);
        }
        Ok(())
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        self.pipelines.iter().for_each(|(_, pipeline)| needs.pipeline(pipeline));
        Gives::Noted
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let firsts = self.pipelines.iter().filter_map(|(_, pipeline)| pipeline.stages().first());
        let is_search =
            |kind: Kind<'_>| matches!(kind, Kind::Match(filter) if filter.text().is_some());
        if firsts.into_iter().any(|stage| is_search(stage.kind())) {
            return Err(no_text_score());
        }
        let feed = Arc::new(Mutex::new(Feed::default()));
        let outputs = self
            .pipelines
            .iter()
            .map(|(_, pipeline)| {
                let reader =
                    Reader { feed: Arc::clone(&feed), number: 0, batch: Arc::default(), at: 0 };
                let source = pipeline.run(Box::new(reader), env)?;
                Ok(Output { source, documents: Vec::new() })
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(Faceting {
            input,
            stage: self,
            feed,
            outputs,
            size: 0,
            share: Share::default(),
            bytes_max: env.context.limits.facet_bytes_max,
            has_begun: false,
            is_done: false,
            out: Vec::new(),
        }))
    }
}

/// The batch that the pipelines read.
#[derive(Default)]
struct Feed {
    /// The batch's number, by which a reader notices a new one.
    number: u64,
    batch: Arc<Batch>,
    is_last: bool,
}

/// The reader of one pipeline.
struct Reader {
    feed: Arc<Mutex<Feed>>,
    number: u64,
    batch: Arc<Batch>,
    /// The index after the current document.
    at: usize,
}

impl Source for Reader {
    fn pull(&mut self) -> Result<Step> {
        if self.at < self.batch.ends.len() {
            self.at += 1;
            return Ok(Step::Document);
        }
        let feed = self.feed.lock();
        if feed.number == self.number {
            return Ok(if feed.is_last { Step::End } else { Step::Pause });
        }
        self.number = feed.number;
        self.batch = Arc::clone(&feed.batch);
        self.at = 0;
        if self.batch.ends.is_empty() {
            return Ok(if feed.is_last { Step::End } else { Step::Pause });
        }
        self.at = 1;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        self.at.checked_sub(1).map_or(Doc::EMPTY, |at| self.batch.doc(at))
    }

    fn known(&self) -> Option<&Known> {
        self.batch.known(self.at.checked_sub(1)?)
    }
}

struct Output {
    source: Box<dyn Source>,
    documents: Vec<DocBuf>,
}

struct Faceting {
    input: Box<dyn Source>,
    stage: Arc<Facet>,
    feed: Arc<Mutex<Feed>>,
    outputs: Vec<Output>,
    size: usize,
    share: Share,
    bytes_max: usize,
    /// Whether it is known that a pipeline reads its input.
    has_begun: bool,
    is_done: bool,
    out: Vec<u8>,
}

impl Faceting {
    /// Reads a batch, whose end the pipelines do not see yet. Returns how the input ended;
    /// `Step::Document` means that it continues.
    fn read_batch(&mut self) -> Result<Step> {
        let mut batch = Batch::default();
        let step = loop {
            match self.input.advance()? {
                Step::Document => {
                    batch.push(self.input.doc());
                    batch.note(self.input.known());
                    if batch.bytes.len() >= BATCH_BYTES {
                        break Step::Document;
                    }
                }
                step => break step,
            }
        };
        let mut feed = self.feed.lock();
        feed.number += 1;
        feed.batch = Arc::new(batch);
        Ok(step)
    }

    /// Lets the pipelines see the end of the input.
    fn end(&self) {
        self.feed.lock().is_last = true;
    }

    /// Returns whether a pipeline reads input before it ends: `$sample` of size zero does not, and
    /// as in mongod the input is then not read.
    fn reads_input(&mut self) -> Result<bool> {
        for at in 0..self.outputs.len() {
            if self.run_pipeline(at)? == Step::Pause {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pulls some of the pipelines until they pause or end.
    fn run_pipelines(&mut self, range: Range<usize>) -> Result<()> {
        range.into_iter().try_for_each(|at| self.run_pipeline(at).map(drop))
    }

    /// Pulls a pipeline until it pauses or ends.
    fn run_pipeline(&mut self, at: usize) -> Result<Step> {
        let output = &mut self.outputs[at];
        loop {
            match output.source.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let doc = output.source.doc().to_buf();
            self.size += doc.len();
            if self.size > self.bytes_max {
                return Err(too_large(self.size, self.bytes_max));
            }
            self.share.require(self.size)?;
            output.documents.push(doc);
        }
    }

    /// Writes the results of the pipelines.
    fn write(&mut self) -> Result<()> {
        let mut out = DocWriter::new(&mut self.out);
        for ((name, _), output) in self.stage.pipelines.iter().zip(&self.outputs) {
            let mut list = out.begin_array(name);
            for doc in &output.documents {
                meter::spend_bytes(doc.len())?;
                list.push(doc);
            }
        }
        out.finish();
        check_size(self.out.len())
    }
}

impl Source for Faceting {
    fn pull(&mut self) -> Result<Step> {
        if self.is_done {
            return Ok(Step::End);
        }
        let mut is_fed = self.has_begun || self.reads_input()?;
        self.has_begun = true;
        while is_fed {
            let step = self.read_batch()?;
            // All pipelines but the last wait until every one has read the batch; the last goes on,
            // and is the first to see the end.
            let count = self.outputs.len();
            let others = 0..count.saturating_sub(1);
            self.run_pipelines(others.clone())?;
            if step == Step::End {
                self.end();
            }
            self.run_pipelines(others.end..count)?;
            match step {
                Step::Document => {}
                Step::Pause => return Ok(Step::Pause),
                Step::End => {
                    self.run_pipelines(others)?;
                    is_fed = false;
                }
            }
        }
        self.is_done = true;
        self.write()?;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}

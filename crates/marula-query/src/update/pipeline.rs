//! An update that is a pipeline: `[{ $set: { a: "$b" } }]`.

use std::fmt;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, RawValue};
use marula_error::{Result, errors};

use super::field_order::FieldOrder;
use super::replacement::check_same_id;
use super::stored;
use crate::context::Context;
use crate::expression::scope::check_constant;
use crate::stage::pipeline::Pipeline;
use crate::stage::source::{Documents, Step};
use crate::stage::world::{Env, Nowhere, STAGE_BYTES_MAX};

errors! {
    /// A stage that is not permitted in an update.
    stage_not_allowed(name: &str) = InvalidOptions, "{name} is not allowed to be used within an update";
}

/// The stages that are permitted in an update: each outputs one document for each.
const STAGES: &[&str] =
    &["$addFields", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset"];

/// A parsed pipeline and the context in which it was parsed.
pub(super) struct PipelineUpdate {
    pipeline: Pipeline,
    context: Arc<Context>,
    /// Restores the position of a field that one stage removes and a later one sets.
    field_order: Option<FieldOrder>,
}

impl PipelineUpdate {
    pub(super) fn parse(
        stages: Doc<'_>,
        constants: Option<Doc<'_>>,
        context: &Context,
    ) -> Result<PipelineUpdate> {
        for constant in constants.unwrap_or(Doc::EMPTY) {
            check_constant(&constant.name.to_string())?;
        }
        let context = with_constants(context, constants);
        let pipeline = Pipeline::parse_lazily(stages, &context)?;
        // The check is on the stages it becomes: a `$fill` of values alone is an `$addFields`.
        for stage in pipeline.stages() {
            if !STAGES.contains(&stage.name()) {
                return Err(stage_not_allowed(stage.name()));
            }
        }
        let field_order = FieldOrder::of(stages);
        Ok(PipelineUpdate { pipeline, context: Arc::new(context), field_order })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Appends the new document; returns whether it differs from the old.
    pub(super) fn apply(
        &self,
        old: Doc<'_>,
        _context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        let has_own_id = self.write(old, false, out)?;
        // mongod compares before it restores the `_id`.
        Ok(!has_own_id || &out[start..] != old.as_bytes())
    }

    /// Appends the pipeline's result for a document, with the document's `_id` unless the pipeline
    /// sets one.
    ///
    /// Returns whether the pipeline sets an `_id`.
    pub(super) fn write(&self, doc: Doc<'_>, is_insert: bool, out: &mut Vec<u8>) -> Result<bool> {
        let input = Documents::new(vec![doc.to_buf()]);
        let env = Env {
            context: Arc::clone(&self.context),
            world: Arc::new(Nowhere),
            stage_bytes_max: STAGE_BYTES_MAX,
        };
        let mut output = self.pipeline.run(Box::new(input), &env)?;
        let step = output.advance()?;
        assert!(step == Step::Document, "every stage of an update makes one document of one");
        let new = output.doc();
        let own_id = new.get_raw(b"_id");
        let id = doc.get_raw(b"_id");
        if let Some(id) = own_id.or(id).filter(|_| is_insert) {
            stored::check_id_no_array(id)?;
        }
        own_id.map_or(Ok(()), stored::check_id)?;
        check_same_id(id, own_id)?;
        stored::check_result_depth(new)?;
        let id = own_id.or(id);
        match self.field_order.as_ref().and_then(|field_order| field_order.restore(doc, new)) {
            Some(new) => write_id_first(new.as_doc(), id, out),
            None => write_id_first(new, id, out),
        }
        Ok(own_id.is_some())
    }
}

impl fmt::Debug for PipelineUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pipeline.fmt(f)
    }
}

/// Appends a document with this `_id` as its first field.
pub(super) fn write_id_first(doc: Doc<'_>, id: Option<RawValue<'_>>, out: &mut Vec<u8>) {
    let mut writer = DocWriter::new(out);
    let Some(id) = id else {
        writer.append_elements(doc.elements_bytes());
        return;
    };
    writer.append_raw("_id", id);
    let mut iter = doc.iter();
    let mut before = doc.elements_bytes();
    // Later fields of that name are copied.
    loop {
        let rest = iter.rest();
        match iter.next() {
            Some(element) if element.name == "_id" => {
                writer.append_elements(&before[..before.len() - rest.len()]);
                before = iter.rest();
                break;
            }
            Some(_) => {}
            None => break,
        }
    }
    writer.append_elements(before);
}

/// Returns the context with the statement's constants added to the command's variables.
fn with_constants(context: &Context, constants: Option<Doc<'_>>) -> Context {
    let mut context = Context { keeps_calls: true, ..context.clone() };
    if let Some(constants) = constants {
        let variables = context.let_variables.take().unwrap_or_default();
        context.let_variables = Some(DocBuf::build(|writer| {
            writer.append_elements(constants.elements_bytes());
            writer.append_elements(variables.as_doc().elements_bytes());
        }));
    }
    context
}

//! The front of a `$lookup`'s pipeline that gives the same documents for every document: it runs
//! once.
//!
//! Source: manual "$lookup", "Performance Considerations": an uncorrelated sub-pipeline runs once
//! and is cached. The length of the front, and the stages that are never cached, follow mongod 6.0.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, Value, ValueBuf};
use marula_error::Result;

use super::{Lookup, with_unknown_variables};
use crate::filter::Filter;
use crate::stage::r#match::Match;
use crate::stage::pipeline::PipelineParent;
use crate::stage::source::{Batch, Step};
use crate::stage::union_with::open;
use crate::stage::{Env, Kind, Pipeline};

/// The size limit of the cache. Source: mongod 6.0's `internalDocumentSourceLookupCacheSizeBytes`.
const BYTES_MAX: usize = 100 * 1024 * 1024;

/// The documents of a pipeline's front, and the stages after it.
pub(super) struct CachedFront {
    pub documents: Arc<Batch>,
    /// The stages after the front, which use the variables; `None` if there are none.
    pub rest: Option<ValueBuf>,
}

impl CachedFront {
    /// Runs the front of a pipeline and keeps the documents that match `also`; returns `None` if
    /// the pipeline has no front, or the result is too large.
    pub(super) fn read(
        lookup: &Lookup,
        also: Option<&Filter>,
        env: &Env,
    ) -> Result<Option<CachedFront>> {
        let Some((mut front, rest)) = parts(lookup, env)? else { return Ok(None) };
        if let (Some(also), None) = (also, &rest) {
            front = front.before(Match::new(also.clone()));
        }
        let mut documents = Batch::default();
        let mut source = open(lookup.from.as_deref(), front, env)?;
        while source.advance()? != Step::End {
            documents.push(source.doc());
            if documents.bytes.len() > BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(CachedFront { documents: Arc::new(documents), rest }))
    }
}

/// Returns the stages that give the same documents for every document, and the stages after them.
fn parts(lookup: &Lookup, env: &Env) -> Result<Option<(Pipeline, Option<ValueBuf>)>> {
    let Some(stages) = lookup.stages().filter(|_| lookup.fields.is_none()) else { return Ok(None) };
    // Every path is one of `$$CURRENT`.
    if lookup.variables.iter().any(|(name, _)| name == "CURRENT") {
        return Ok(None);
    }
    let mut names: Vec<Vec<u8>> =
        lookup.variables.iter().map(|(name, _)| [b"$$", name.as_bytes()].concat()).collect();
    let count = stages.values().take_while(|stage| !changes(*stage, &names)).count();
    let context = lookup.outer.with(&env.context, &[], &[]);
    let context = with_unknown_variables(&context, &lookup.variables);
    if count == stages.iter().count() {
        let front = match lookup.variables.is_empty() {
            true => lookup.pipeline.clone(),
            false => Pipeline::parse_inside(stages, &context, PipelineParent::Lookup)?,
        };
        return Ok(Some((front, None)));
    }
    // An unknown name is printed in this form.
    names.push(b"$$let".to_vec());
    let rearranged = lookup.pipeline.clone().rearranged(&env.context);
    let first = rearranged.stages().first();
    let is_searched =
        |kind: Kind<'_>| matches!(kind, Kind::Match(filter) if filter.text().is_some());
    let goes_first =
        first.is_none_or(|stage| changes(stage.print().get(), &names) || is_searched(stage.kind()));
    if count == 0 || lookup.variables.is_empty() || goes_first {
        return Ok(None);
    }
    let part = |stages: &mut dyn Iterator<Item = Value<'_>>| {
        let mut bytes = Vec::new();
        let mut array = ArrayWriter::new(&mut bytes);
        stages.for_each(|stage| {
            array.push(stage);
        });
        array.finish();
        Value::Array(Doc::trusted(&bytes)).to_buf()
    };
    let front = part(&mut stages.values().take(count));
    let front = front.get().as_array().unwrap_or(Doc::EMPTY);
    let front = Pipeline::parse_inside(front, &context, PipelineParent::Lookup)?;
    if !is_front_of(&front.clone().rearranged(&env.context), &rearranged) {
        return Ok(None);
    }
    Ok(Some((front, Some(part(&mut stages.values().skip(count))))))
}

/// Returns whether a pipeline begins with these stages. It does not if a later stage is moved
/// before one of them, or replaces it.
fn is_front_of(front: &Pipeline, whole: &Pipeline) -> bool {
    let mut stages = whole.stages().iter();
    front.stages().iter().all(|stage| {
        stages.next().is_some_and(|other| {
            other.name() == stage.name() && other.print().get() == stage.print().get()
        })
    })
}

/// Stages and operators with a different result each time.
const RANDOM: [&[u8]; 3] = [b"$sample", b"$rand", b"$sampleRate"];

/// Returns whether a part of a pipeline may have a different result for another document: it uses
/// one of the variables, in the syntax of expressions, or is random.
fn changes(part: Value<'_>, names: &[Vec<u8>]) -> bool {
    match part {
        Value::String(text) => names.iter().any(|name| {
            text.strip_prefix(&name[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
        }),
        Value::Document(doc) => doc.iter().any(|element| {
            RANDOM.contains(&&**element.name) || changes(element.value.get(), names)
        }),
        Value::Array(items) => items.values().any(|item| changes(item, names)),
        _ => false,
    }
}

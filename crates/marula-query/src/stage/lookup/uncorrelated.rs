//! What stands at the front of a `$lookup`'s pipeline and gives the same for every document: it is
//! carried out once.
//!
//! Source: manual "$lookup", "Performance Considerations": an uncorrelated sub-pipeline runs once
//! and is kept. How far the front goes, and what is never kept, as mongod 6.0 answers.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, Value, ValueBuf};
use marula_error::Result;

use super::{Lookup, with_unknown_variables};
use crate::filter::Filter;
use crate::stage::r#match::Match;
use crate::stage::pipeline::Inside;
use crate::stage::source::{Batch, Step};
use crate::stage::union_with::open;
use crate::stage::{Env, Kind, Pipeline};

/// How much is kept. Source: mongod 6.0's `internalDocumentSourceLookupCacheSizeBytes`.
const BYTES_MAX: usize = 100 * 1024 * 1024;

/// What the front of a pipeline gives, and what is behind it.
pub(super) struct Kept {
    pub documents: Arc<Batch>,
    /// The stages behind, which refer to the variables; `None` where there are none.
    pub rest: Option<ValueBuf>,
}

impl Kept {
    /// Carries out the front of a pipeline, of whose documents only those are wanted in the end
    /// that match `also`; `None` where it has none, or gives too much.
    pub(super) fn read(lookup: &Lookup, also: Option<&Filter>, env: &Env) -> Result<Option<Kept>> {
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
        Ok(Some(Kept { documents: Arc::new(documents), rest }))
    }
}

/// The stages that give the same for every document, and those behind.
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
            false => Pipeline::parse_inside(stages, &context, Inside::Lookup)?,
        };
        return Ok(Some((front, None)));
    }
    // A name that is not known yet is printed so.
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
    let front = Pipeline::parse_inside(front, &context, Inside::Lookup)?;
    if !is_front_of(&front.clone().rearranged(&env.context), &rearranged) {
        return Ok(None);
    }
    Ok(Some((front, Some(part(&mut stages.values().skip(count))))))
}

/// Whether a pipeline begins with these stages. It does not where one that stands behind them is
/// moved before one of them, or takes its place.
fn is_front_of(front: &Pipeline, whole: &Pipeline) -> bool {
    let mut stages = whole.stages().iter();
    front.stages().iter().all(|stage| {
        stages.next().is_some_and(|other| {
            other.name() == stage.name() && other.print().get() == stage.print().get()
        })
    })
}

/// Stages and operators that give something else each time.
const RANDOM: [&[u8]; 3] = [b"$sample", b"$rand", b"$sampleRate"];

/// Whether a part of a pipeline may give something else for another document: it names one of the
/// variables, which are written as in expressions, or asks for chance.
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

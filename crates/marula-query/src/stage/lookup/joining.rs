//! What belongs to a document, in a `$lookup`: the other collection is asked for it, or was read as
//! a whole.

use std::collections::HashMap;
use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::Doc;
use marula_error::Result;

use super::uncorrelated::Kept;
use super::{Lookup, equal_to_any, local_values};
use crate::context::Context;
use crate::expression::Arena;
use crate::filter::Filter;
use crate::stage::join_table::{self, JoinTable};
use crate::stage::r#match::Match;
use crate::stage::pipeline::Inside;
use crate::stage::source::{Batch, Batched, Source, Step};
use crate::stage::union_with::open;
use crate::stage::world::JoinSide;
use crate::stage::{Env, Pipeline};

/// A `$lookup` under way.
pub(super) struct Joining {
    pub stage: Arc<Lookup>,
    pub env: Env,
    join: Join,
    front: Front,
    bound: Bound,
    /// What is found must match this too.
    also: Option<Filter>,
}

/// What is known of the part of the pipeline that gives the same for every document.
enum Front {
    /// Nothing; so many documents were joined.
    Unread(u64),
    /// What it gives.
    Kept(Kept),
    /// There is none.
    None,
}

/// How the documents that belong to one are found, where only a field decides.
enum Join {
    /// The other collection is asked for each document.
    Never,
    /// So far it was asked so many times; once that costs more than to read it, it is read.
    Asking(JoinSide, u64),
    /// It was read.
    Read(JoinTable),
}

/// What belongs to one document, one after another.
pub(super) enum Found {
    /// Of what was read, these documents by their numbers.
    Listed(std::vec::IntoIter<usize>),
    /// All that the pipeline gives for every document, from this one on.
    Kept(Arc<Batch>, usize),
    /// What the other collection answers.
    Asked(Box<dyn Source>),
}

impl Joining {
    pub(super) fn new(stage: Arc<Lookup>, env: &Env) -> Self {
        let join = match (&stage.from, &stage.fields) {
            (Some(from), Some((_, foreign))) if stage.pipeline.stages().is_empty() => {
                env.world.join_side(from, foreign).map_or(Join::Never, |side| Join::Asking(side, 0))
            }
            _ => Join::Never,
        };
        Joining {
            stage,
            env: env.clone(),
            join,
            front: Front::Unread(0),
            bound: Bound::default(),
            also: None,
        }
    }

    /// The same, where what is found must match `also`.
    pub(super) fn matching(self, also: Option<Filter>) -> Self {
        Joining { also, ..self }
    }

    /// Reads the other collection as a whole, or what is the same for all documents, where that is
    /// worth it by now. To be called before each document.
    pub(super) fn prepare(&mut self) -> Result<()> {
        match &mut self.front {
            // Of one document, not all that there is may be asked for.
            Front::Unread(count @ 0) => *count = 1,
            Front::Unread(_) => {
                // What is parsed from here on is what stands behind the front.
                self.bound = Bound::default();
                let kept = Kept::read(&self.stage, self.also.as_ref(), &self.env)?;
                self.front = kept.map_or(Front::None, Front::Kept);
            }
            Front::Kept(_) | Front::None => {}
        }
        let Join::Asking(side, questions) = &mut self.join else { return Ok(()) };
        *questions += 1;
        let Some((_, foreign)) = &self.stage.fields else { return Ok(()) };
        if !join_table::is_worth_it(side, *questions - 1) {
            return Ok(());
        }
        let pipeline = Pipeline::from_stages(Vec::new());
        let mut source = open(self.stage.from.as_deref(), pipeline, &self.env)?;
        let path: Vec<&[u8]> = foreign.split_str(b".").collect();
        let collator = self.env.context.collator();
        let table = JoinTable::read(&mut *source, &path, collator)?;
        self.join = table.map_or(Join::Never, Join::Read);
        Ok(())
    }

    /// Begins to find what belongs to `doc`.
    pub(super) fn find(&mut self, doc: Doc<'_>, arena: &Arena) -> Result<Found> {
        if let (Join::Read(table), Some((local, foreign))) = (&self.join, &self.stage.fields) {
            let values = local_values(doc, local);
            let context = &self.env.context;
            let filter = || Filter::parse(equal_to_any(foreign, &values).as_doc(), context);
            let found = table.matching(&values, context.collator(), &filter)?;
            return Ok(Found::Listed(found.into_iter()));
        }
        if let Front::Kept(kept) = &self.front {
            let documents = Arc::clone(&kept.documents);
            let Some(rest) = kept.rest.as_ref().and_then(|rest| rest.get().as_array()) else {
                return Ok(Found::Kept(documents, 0));
            };
            let (env, also) = (&self.env, &self.also);
            let rest = self.bound.pipeline(&self.stage, doc, arena, env, &|context| {
                let rest = Pipeline::parse_inside(rest, context, Inside::Lookup)?;
                let rest = match also {
                    Some(also) => rest.before(Match::new(also.clone())),
                    None => rest,
                };
                Ok(rest.rearranged(context))
            })?;
            return Ok(Found::Asked(rest.run(Box::new(Batched::new(documents)), &self.env)?));
        }
        if let Some(failure) = &self.stage.failure {
            return Err(failure.clone());
        }
        let mut pipeline = match self.stage.stages() {
            Some(stages) if !self.stage.variables.is_empty() => {
                self.bound.pipeline(&self.stage, doc, arena, &self.env, &|context| {
                    Pipeline::parse_inside(stages, context, Inside::Lookup)
                })?
            }
            _ => self.stage.pipeline.clone(),
        };
        if let Some((local, foreign)) = &self.stage.fields {
            let values = local_values(doc, local);
            let filter = equal_to_any(foreign, &values);
            let filter = Filter::parse(filter.as_doc(), &self.env.context)?;
            pipeline = pipeline.after(Match::new(filter));
        }
        if let Some(also) = &self.also {
            pipeline = pipeline.before(Match::new(also.clone()));
        }
        Ok(Found::Asked(open(self.stage.from.as_deref(), pipeline, &self.env)?))
    }
}

/// The pipelines that were parsed with values in the place of variables.
#[derive(Default)]
struct Bound {
    by_values: HashMap<Vec<u8>, Pipeline>,
}

/// So many sets of values are remembered: joins are often by few.
const BOUND_MAX: usize = 256;
/// Values larger than this are not.
const VALUES_BYTES_MAX: usize = 1024;

impl Bound {
    /// The pipeline with the values that `doc` gives the variables; `parse` makes it where it is
    /// not known.
    fn pipeline(
        &mut self,
        stage: &Lookup,
        doc: Doc<'_>,
        arena: &Arena,
        env: &Env,
        parse: &dyn Fn(&Context) -> Result<Pipeline>,
    ) -> Result<Pipeline> {
        let values = stage.values(doc, arena, env)?;
        if let Some(known) = self.by_values.get(values.as_doc().as_bytes()) {
            return Ok(known.clone());
        }
        let pipeline = parse(&stage.context_of(values.as_doc(), env))?;
        if self.by_values.len() < BOUND_MAX && values.len() <= VALUES_BYTES_MAX {
            self.by_values.insert(values.as_doc().as_bytes().to_vec(), pipeline.clone());
        }
        Ok(pipeline)
    }
}

impl Found {
    /// The next document; `joining` is what began to find them.
    pub(super) fn next<'f>(&'f mut self, joining: &'f Joining) -> Result<Option<Doc<'f>>> {
        match self {
            Found::Listed(numbers) => {
                let Join::Read(table) = &joining.join else { return Ok(None) };
                for at in numbers {
                    let doc = table.doc(at);
                    if joining.also.as_ref().map_or(Ok(true), |also| also.matches(doc))? {
                        return Ok(Some(doc));
                    }
                }
                Ok(None)
            }
            Found::Kept(documents, next) if *next < documents.ends.len() => {
                *next += 1;
                Ok(Some(documents.doc(*next - 1)))
            }
            Found::Kept(..) => Ok(None),
            Found::Asked(source) => match source.advance()? {
                Step::End => Ok(None),
                Step::Document | Step::Pause => Ok(Some(source.doc())),
            },
        }
    }
}

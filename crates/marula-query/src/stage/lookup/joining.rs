//! Finds the documents that belong to a document in a `$lookup`: by a query of the other
//! collection, or in a table of all its documents.

use std::collections::HashMap;
use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf};
use marula_error::Result;

use super::uncorrelated::CachedFront;
use super::{Lookup, equal_to_any, local_values};
use crate::context::Context;
use crate::expression::Arena;
use crate::filter::Filter;
use crate::stage::join_table::{self, JoinTable};
use crate::stage::r#match::Match;
use crate::stage::pipeline::PipelineParent;
use crate::stage::source::{Batch, Batched, Source, Step};
use crate::stage::union_with::open;
use crate::stage::world::JoinSide;
use crate::stage::{Env, Pipeline};

/// A running `$lookup`.
pub(super) struct Joining {
    pub stage: Arc<Lookup>,
    pub env: Env,
    join: Join,
    front: CommonFront,
    bound: Bound,
    /// A further filter of the found documents.
    also: Option<Filter>,
}

/// The state of the part of the pipeline that gives the same documents for every document.
enum CommonFront {
    /// Not read yet, after this number of joined documents.
    Unread(u64),
    /// Its result.
    Cached(CachedFront),
    /// There is no such part.
    None,
}

/// The way to find the documents that belong to a document by a field alone.
enum Join {
    /// The other collection is queried for each document.
    Never,
    /// The other collection was queried this number of times; it is read as a whole once that costs
    /// less.
    Querying(JoinSide, u64),
    /// It was read.
    Read(JoinTable),
}

/// The documents that belong to one document, as an iterator.
pub(super) enum Found {
    /// Documents of the table, by index.
    Listed(std::vec::IntoIter<usize>),
    /// All documents that the pipeline gives for every document, from this index on.
    Cached(Arc<Batch>, usize),
    /// The result of a query of the other collection.
    Queried(Box<dyn Source>),
}

impl Joining {
    pub(super) fn new(stage: Arc<Lookup>, env: &Env) -> Self {
        let join = match (&stage.from, &stage.fields) {
            (Some(from), Some((_, foreign))) if stage.pipeline.stages().is_empty() => env
                .world
                .join_side(from, foreign)
                .map_or(Join::Never, |side| Join::Querying(side, 0)),
            _ => Join::Never,
        };
        Joining {
            stage,
            env: env.clone(),
            join,
            front: CommonFront::Unread(0),
            bound: Bound::default(),
            also: None,
        }
    }

    /// Adds a further filter of the found documents.
    pub(super) fn matching(self, also: Option<Filter>) -> Self {
        Joining { also, ..self }
    }

    /// Reads the other collection as a whole, or the common part of the pipeline, if that is worth
    /// it by now. Must be called before each document.
    pub(super) fn prepare(&mut self) -> Result<()> {
        match &mut self.front {
            // For one document alone, the common part may not have to be read as a whole.
            CommonFront::Unread(count @ 0) => *count = 1,
            CommonFront::Unread(_) => {
                // From here on only the stages after the common part are parsed.
                self.bound = Bound::default();
                let kept = CachedFront::read(&self.stage, self.also.as_ref(), &self.env)?;
                self.front = kept.map_or(CommonFront::None, CommonFront::Cached);
            }
            CommonFront::Cached(_) | CommonFront::None => {}
        }
        let Join::Querying(side, questions) = &mut self.join else { return Ok(()) };
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

    /// Starts to find the documents that belong to `doc`.
    pub(super) fn find(&mut self, doc: Doc<'_>, arena: &Arena) -> Result<Found> {
        // They are computed even where nothing uses them: a value may fail.
        let values = self.stage.values(doc, arena, &self.env)?;
        if let (Join::Read(table), Some((local, foreign))) = (&self.join, &self.stage.fields) {
            let values = local_values(doc, local);
            let context = &self.env.context;
            let filter = || Filter::parse(equal_to_any(foreign, &values).as_doc(), context);
            let found = table.matching(&values, context.collator(), &filter)?;
            return Ok(Found::Listed(found.into_iter()));
        }
        if let CommonFront::Cached(kept) = &self.front {
            let documents = Arc::clone(&kept.documents);
            let Some(rest) = kept.rest.as_ref().and_then(|rest| rest.get().as_array()) else {
                return Ok(Found::Cached(documents, 0));
            };
            let also = &self.also;
            let rest = self.bound.pipeline(&self.stage, values, &self.env, &|context| {
                let rest = Pipeline::parse_inside(rest, context, PipelineParent::Lookup)?;
                let rest = match also {
                    Some(also) => rest.before(Match::new(also.clone())),
                    None => rest,
                };
                Ok(rest.rearranged(context))
            })?;
            return Ok(Found::Queried(rest.run(Box::new(Batched::new(documents)), &self.env)?));
        }
        if let Some(failure) = &self.stage.failure {
            return Err(failure.clone());
        }
        let mut pipeline = match self.stage.stages() {
            Some(stages) if !self.stage.variables.is_empty() => {
                self.bound.pipeline(&self.stage, values, &self.env, &|context| {
                    Pipeline::parse_inside(stages, context, PipelineParent::Lookup)
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
        Ok(Found::Queried(open(self.stage.from.as_deref(), pipeline, &self.env)?))
    }
}

/// The pipelines that were parsed with values for the variables.
#[derive(Default)]
struct Bound {
    by_values: HashMap<Vec<u8>, Pipeline>,
}

/// The number of sets of values that are cached: joins often use few.
const BOUND_MAX: usize = 256;
/// The size up to which a set of values is cached.
const VALUES_BYTES_MAX: usize = 1024;

impl Bound {
    /// Returns the pipeline with these values of the variables; `parse` creates it if it is not
    /// cached.
    fn pipeline(
        &mut self,
        stage: &Lookup,
        values: DocBuf,
        env: &Env,
        parse: &dyn Fn(&Context) -> Result<Pipeline>,
    ) -> Result<Pipeline> {
        if let Some(known) = self.by_values.get(values.as_doc().as_bytes()) {
            return Ok(known.clone());
        }
        let pipeline = parse(&stage.context_of(values.as_doc(), env))?;
        if self.by_values.len() < BOUND_MAX && values.len() <= VALUES_BYTES_MAX {
            self.by_values.insert(values.into_bytes(), pipeline.clone());
        }
        Ok(pipeline)
    }
}

impl Found {
    /// Returns the next document; `joining` is the lookup that started the search.
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
            Found::Cached(documents, next) if *next < documents.ends.len() => {
                *next += 1;
                Ok(Some(documents.doc(*next - 1)))
            }
            Found::Cached(..) => Ok(None),
            Found::Queried(source) => match source.advance()? {
                Step::End => Ok(None),
                Step::Document | Step::Pause => Ok(Some(source.doc())),
            },
        }
    }
}

//! Carrying out a plan, batch by batch.
//!
//! An [`Execution`] gives the documents one after the other to a closure, which takes them until its batch is full.
//! Between batches it holds nothing of the store but where it stands; the next batch goes on from there in what is
//! then stored. Documents are shown where the store has them and copied by whoever keeps them.

mod scan;
mod sort;

use std::sync::Arc;

use marula_bson::Doc;
use marula_db::index::entry::Entry;
use marula_db::{Collection, Db, Index};
use marula_error::{Result, errors};

use crate::plan::{Access, Plan};
use crate::query::Query;
use scan::Scan;
use sort::Sorter;

/// Documents or entries looked at between two looks at whether to go on.
const INTERRUPT_INTERVAL: u64 = 128;

errors! {
    collection_dropped() = QueryPlanKilled, "collection dropped";
}

/// A document that was found, in the store's own memory.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// The document.
    pub doc: Doc<'a>,
    /// What identifies it in its collection.
    pub record: &'a [u8],
    /// The index entry that led to it.
    pub entry: Option<(&'a Index, Entry<'a>)>,
}

/// What the taker of documents answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    /// It has taken the document and wants more.
    Taken,
    /// It has taken the document and has enough for now.
    Enough,
    /// It has not taken the document, which comes first next time.
    Full,
}

/// Why [`Execution::run`] came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// There are no more documents.
    Exhausted,
    /// The taker had enough.
    Paused,
}

/// What an execution has looked at so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Examined {
    /// Index entries.
    pub keys: u64,
    /// Documents.
    pub docs: u64,
}

/// A plan under way.
pub struct Execution {
    collection: Arc<Collection>,
    plan: Plan,
    query: Query,
    scan: Scan,
    sorter: Option<Sorter>,
    skip_left: u64,
    limit_left: u64,
    is_exhausted: bool,
    /// What it has looked at so far.
    pub examined: Examined,
}

impl Execution {
    /// Begins to carry out `plan` for `query` on `collection`.
    pub fn new(collection: Arc<Collection>, plan: Plan, query: Query) -> Self {
        let limit_left = query.limit.unwrap_or(u64::MAX);
        let sorter = match &query.sort {
            Some(pattern) if plan.needs_sort => Some(Sorter::new(
                pattern.clone(),
                query.limit.map(|limit| limit.saturating_add(query.skip)),
            )),
            _ => None,
        };
        match &plan.access {
            Access::Collscan(_) => collection.note_scan(),
            Access::Ixscan(scan) => scan.index.note_use(),
            Access::Nothing | Access::IdHack(_) | Access::Clustered(_) => {}
        }
        let scan = Scan::new(&plan.access);
        Execution {
            collection,
            plan,
            skip_left: query.skip,
            query,
            scan,
            sorter,
            limit_left,
            is_exhausted: false,
            examined: Examined::default(),
        }
    }

    /// The collection that is read.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Never gives a document twice, though writes between batches move its entries in the index that is walked.
    pub fn give_once(&mut self) {
        if matches!(self.plan.access, Access::Ixscan(_)) {
            self.scan.remember();
        }
    }

    /// From now on gives candidates instead: the records that the access path leads to, without reading or checking
    /// their documents, which the taker does itself under a guard. Where the plan sorts, what is given has
    /// been read and checked all the same.
    pub fn give_candidates(&mut self) {
        if self.sorter.is_none() {
            self.scan.skip_documents();
            self.plan.filter = match self.plan.access {
                Access::Collscan(_) | Access::Clustered(_) => self.plan.filter.take(),
                _ => None,
            };
        }
    }

    /// Whether the execution stands at the end for good. One over a capped collection may get more later:
    /// see [`Execution::reopen`].
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Lets an execution that came to the end look again for what has been added since: a tailable cursor.
    pub fn reopen(&mut self) {
        self.is_exhausted = false;
        self.scan.reopen();
    }

    /// Gives documents to `emit` until it has enough or there are no more. `interrupt` is asked now and then
    /// whether to go on; its error ends the run. `emit` must not call the store.
    pub fn run(
        &mut self,
        db: &Db,
        interrupt: &mut dyn FnMut() -> Result<()>,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        if self.is_exhausted || self.limit_left == 0 {
            self.is_exhausted = true;
            return Ok(End::Exhausted);
        }
        if let Some(sorter) = &mut self.sorter
            && !sorter.is_filled()
        {
            let filter = self.plan.filter.as_ref();
            let mut take = |found: Found<'_>| {
                if filter.is_none_or_ok(found.doc)? {
                    sorter.push(found)?;
                }
                Ok(Emit::Taken)
            };
            self.scan.run(
                db,
                &self.collection,
                &self.plan.access,
                &mut self.examined,
                interrupt,
                &mut take,
            )?;
            sorter.finish();
        }
        let mut window = Window { skip: &mut self.skip_left, limit: &mut self.limit_left };
        let end = match &mut self.sorter {
            Some(sorter) => sorter.drain(&mut |found| window.pass(found, emit))?,
            None => {
                let filter = self.plan.filter.as_ref();
                let mut take = |found: Found<'_>| {
                    if filter.is_none_or_ok(found.doc)? {
                        window.pass(found, emit)
                    } else {
                        Ok(Emit::Taken)
                    }
                };
                self.scan.run(
                    db,
                    &self.collection,
                    &self.plan.access,
                    &mut self.examined,
                    interrupt,
                    &mut take,
                )?
            }
        };
        if end == End::Exhausted || self.limit_left == 0 {
            self.is_exhausted = true;
            return Ok(End::Exhausted);
        }
        Ok(End::Paused)
    }
}

/// Leaves out `skip` documents and then lets `limit` through.
struct Window<'w> {
    skip: &'w mut u64,
    limit: &'w mut u64,
}

impl Window<'_> {
    fn pass(
        &mut self,
        found: Found<'_>,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Emit> {
        if *self.skip > 0 {
            *self.skip -= 1;
            return Ok(Emit::Taken);
        }
        let answer = emit(found)?;
        if answer != Emit::Full {
            *self.limit -= 1;
            if *self.limit == 0 {
                return Ok(Emit::Enough);
            }
        }
        Ok(answer)
    }
}

/// A filter that may not be there.
trait MaybeFilter {
    /// Whether there is none, or the document matches.
    fn is_none_or_ok(&self, doc: Doc<'_>) -> Result<bool>;
}

impl MaybeFilter for Option<&marula_query::filter::Filter> {
    #[inline]
    fn is_none_or_ok(&self, doc: Doc<'_>) -> Result<bool> {
        match self {
            Some(filter) => filter.matches(doc),
            None => Ok(true),
        }
    }
}

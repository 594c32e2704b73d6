//! `$graphLookup` with an `$unwind` of its array: the found documents are output one by one, and
//! the array is never built.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, ValueBuf};
use marula_error::Result;

use super::GraphLookup;
use crate::expression::Arena;
use crate::known::Known;
use crate::stage::deep_path;
use crate::stage::needs::{Gives, Needs};
use crate::stage::passage::Passage;
use crate::stage::pipeline::printed;
use crate::stage::source::check_size;
use crate::stage::unwind::Unwind;
use crate::stage::{Env, Source, Stage, Step};

/// The stage of a `$graphLookup` and the `$unwind` of its array.
pub(super) fn stage(lookup: Arc<GraphLookup>, unwind: Unwind) -> Arc<dyn Stage> {
    Arc::new(GraphUnwind { lookup, unwind })
}

#[derive(Debug)]
struct GraphUnwind {
    lookup: Arc<GraphLookup>,
    unwind: Unwind,
}

impl Stage for GraphUnwind {
    fn name(&self) -> &'static str {
        "$graphLookup"
    }

    fn print(&self) -> ValueBuf {
        printed(|out| {
            self.lookup.print_into(out);
            self.unwind.print_unwinding(out);
        })
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        self.lookup.reads(needs)
    }

    fn passage(&self) -> Passage {
        self.unwind.passage_of_conditions()
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let stage = Arc::clone(&self);
        let unwinding = Unwinding {
            input,
            stage: self,
            env: env.clone(),
            arena: Arena::new(),
            found: Vec::new().into_iter(),
            index: 0,
            out: Vec::new(),
            indexed: Vec::new(),
        };
        Ok(deep_path::guard(Box::new(unwinding), stage.unwind.paths()))
    }
}

struct Unwinding {
    input: Box<dyn Source>,
    stage: Arc<GraphUnwind>,
    env: Env,
    arena: Arena,
    /// The documents found for the input's document that were not output yet.
    found: std::vec::IntoIter<DocBuf>,
    index: i64,
    out: Vec<u8>,
    indexed: Vec<u8>,
}

impl Unwinding {
    fn write(&mut self, joined: Option<&DocBuf>) -> Result<Step> {
        let (doc, joined) = (self.input.doc(), joined.map(DocBuf::as_doc));
        let unwind = &self.stage.unwind;
        unwind.write_joined(doc, joined, self.index, &mut self.out, &mut self.indexed);
        self.index += 1;
        check_size(self.out.len())?;
        Ok(Step::Document)
    }
}

impl Source for Unwinding {
    fn pull(&mut self) -> Result<Step> {
        loop {
            if let Some(joined) = self.found.next() {
                return self.write(Some(&joined));
            }
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            self.arena.reset();
            let found = self.stage.lookup.find(self.input.doc(), &self.arena, &self.env)?;
            (self.found, self.index) = (found.into_iter(), 0);
            if self.found.len() == 0 && self.stage.unwind.preserves() {
                return self.write(None);
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

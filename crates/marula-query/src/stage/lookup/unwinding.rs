//! `$lookup` with an `$unwind` of its array: the found documents are output one by one, and the
//! array is never built.
//!
//! So the array may be larger than a document. A `$match` after it, on fields of the found
//! documents, becomes part of the query of the other collection. Source: manual "Aggregation
//! Pipeline Optimization", `$lookup` + `$unwind` coalescence; which conditions move, as `explain`
//! of mongod 6.0 shows it.

use std::sync::Arc;

use marula_bson::{Doc, FieldPath, ValueBuf};
use marula_error::Result;

use super::Lookup;
use super::joining::{Found, Joining};
use crate::context::Context;
use crate::expression::Arena;
use crate::filter::{Filter, Node, PathNode, Predicate};
use crate::known::Known;
use crate::stage::deep_path;
use crate::stage::r#match::Match;
use crate::stage::needs::{Gives, Needs};
use crate::stage::passage::Passage;
use crate::stage::pipeline::printed;
use crate::stage::source::check_size;
use crate::stage::unwind::Unwind;
use crate::stage::{Env, Source, Stage, Step};

/// The stage of a `$lookup` and the `$unwind` of its array.
pub(super) fn stage(lookup: Arc<Lookup>, unwind: Unwind) -> Arc<dyn Stage> {
    Arc::new(LookupUnwind { lookup, unwind, also: None })
}

#[derive(Debug)]
struct LookupUnwind {
    lookup: Arc<Lookup>,
    unwind: Unwind,
    /// A further filter of the found documents.
    also: Option<Filter>,
}

impl Stage for LookupUnwind {
    fn name(&self) -> &'static str {
        "$lookup"
    }

    fn print(&self) -> ValueBuf {
        printed(|out| {
            self.lookup.print_into(out, self.also.as_ref());
            self.unwind.print_unwinding(out);
        })
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        self.lookup.reads(needs)
    }

    fn passage(&self) -> Passage {
        self.unwind.passage()
    }

    fn taking_in(
        self: Arc<Self>,
        conditions: &[Node],
        context: &Context,
    ) -> Option<Vec<Arc<dyn Stage>>> {
        if !self.unwind.leaves_all() {
            return None;
        }
        let path = FieldPath::new(self.unwind.path().text());
        let mut taken = self.also.as_ref().map_or(Vec::new(), Filter::conditions);
        let before = taken.len();
        let mut left = Vec::new();
        for condition in conditions {
            match below(condition, &path) {
                Some(condition) => taken.push(condition),
                None => left.push(condition.clone()),
            }
        }
        if taken.len() == before {
            return None;
        }
        let filter = |conditions| Filter::written(Node::And(conditions), context);
        let stage = LookupUnwind {
            lookup: Arc::clone(&self.lookup),
            unwind: self.unwind.clone(),
            also: Some(filter(taken)),
        };
        let mut stages: Vec<Arc<dyn Stage>> = vec![Arc::new(stage)];
        if !left.is_empty() {
            stages.push(Arc::new(Match::new(filter(left))));
        }
        Some(stages)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let joining = Joining::new(Arc::clone(&self.lookup), env).matching(self.also.clone());
        let stage = Arc::clone(&self);
        let unwinding = Unwinding {
            input,
            joining,
            stage: self,
            found: None,
            arena: Arena::new(),
            out: Vec::new(),
            indexed: Vec::new(),
        };
        Ok(deep_path::guard(Box::new(unwinding), stage.unwind.paths()))
    }
}

/// Converts a condition on the field at `path` to a condition on the document in that field; `None`
/// if there is none. As in mongod, conditions on an array's elements are not converted.
fn below(node: &Node, path: &FieldPath) -> Option<Node> {
    let all = |children: &[Node]| -> Option<Vec<Node>> {
        children.iter().map(|child| below(child, path)).collect()
    };
    Some(match node {
        Node::And(children) => Node::And(all(children)?),
        Node::Or(children) => Node::Or(all(children)?),
        Node::Nor(children) => Node::Nor(all(children)?),
        Node::Not(child) => Node::Not(Box::new(below(child, path)?)),
        Node::Path(at) if at.path.starts_with(path) && !tests_elements(&at.predicate) => {
            let parts = at.path.parts().get(path.parts().len()..).filter(|it| !it.is_empty())?;
            let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
            let path = FieldPath::new(parts.join(&b'.'));
            Node::Path(PathNode { path, predicate: at.predicate.clone() })
        }
        _ => return None,
    })
}

fn tests_elements(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => true,
        Predicate::Not(inner) => tests_elements(inner),
        Predicate::All(list) => list.iter().any(tests_elements),
        _ => false,
    }
}

struct Unwinding {
    input: Box<dyn Source>,
    joining: Joining,
    stage: Arc<LookupUnwind>,
    /// The documents found for the input's document, and how many of them were output.
    found: Option<(Found, i64)>,
    arena: Arena,
    out: Vec<u8>,
    indexed: Vec<u8>,
}

impl Unwinding {
    /// Writes the next document for the input's; returns `false` if there is none.
    fn write_next(&mut self) -> Result<bool> {
        let Some((found, index)) = &mut self.found else { return Ok(false) };
        let doc = self.input.doc();
        let unwind = &self.stage.unwind;
        let joined = found.next(&self.joining)?;
        let is_there = joined.is_some();
        if is_there || (*index == 0 && unwind.preserves()) {
            unwind.write_joined(doc, joined, *index, &mut self.out, &mut self.indexed);
            check_size(self.out.len())?;
        } else {
            self.found = None;
            return Ok(false);
        }
        match is_there {
            true => *index += 1,
            false => self.found = None,
        }
        Ok(true)
    }
}

impl Source for Unwinding {
    fn pull(&mut self) -> Result<Step> {
        loop {
            if self.write_next()? {
                return Ok(Step::Document);
            }
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            self.joining.prepare()?;
            self.arena.reset();
            let found = self.joining.find(self.input.doc(), &self.arena)?;
            self.found = Some((found, 0));
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

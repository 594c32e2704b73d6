//! The conditions of a change stream's pipeline that are evaluated before documents are looked up.
//!
//! An event may show the document before and after its change, which are looked up and may be
//! missing: an error if they are required. As in mongod, these look-ups come after the conditions
//! at the front of the pipeline that do not read them, and the document before the change is
//! looked up first. So an event that the pipeline does not want ends no stream and costs no
//! look-up. The `$match` of the pipeline evaluates all conditions on the other events.

use marula_bson::Doc;
use marula_error::Result;

use super::passage::Passage;
use super::{ChangeStream, Kind, Pipeline, Shows};
use crate::context::Context;
use crate::filter::{Filter, Node};

/// The conditions at the front of a pipeline, by the documents that they read.
#[derive(Debug)]
pub struct EventConditions {
    /// Conditions on the change alone.
    change: Filter,
    /// Conditions that also read the document before the change.
    before: Filter,
}

impl EventConditions {
    /// Returns those of a rearranged pipeline that begins with `stream`; `None` if no look-up
    /// depends on any.
    pub fn of(stream: &ChangeStream, pipeline: &Pipeline, context: &Context) -> Option<Self> {
        let [_, first, ..] = pipeline.stages() else { return None };
        let Kind::Match(filter) = first.kind() else { return None };
        let after = (stream.full_document != Shows::Nothing).then_some("fullDocument");
        let before = (stream.before_change != Shows::Nothing).then_some("fullDocumentBeforeChange");
        after.or(before)?;
        let is_before = |node: &Node, looked_up: &[Option<&str>]| {
            let mut passage = Passage::all_but_named();
            looked_up.iter().flatten().for_each(|name| passage.name(name.as_bytes()));
            matches!(node, Node::AlwaysFalse) || passage.before(node).is_some()
        };
        let (change, rest): (Vec<_>, Vec<_>) =
            filter.conditions().into_iter().partition(|node| is_before(node, &[before, after]));
        let before = rest.into_iter().filter(|node| is_before(node, &[after])).collect();
        let filter = |nodes| Filter::written(Node::And(nodes), context).for_stage();
        Some(EventConditions { change: filter(change), before: filter(before) })
    }

    /// Returns whether an event without looked-up documents meets the conditions on the change.
    ///
    /// Errors: those of an expression.
    pub fn accept_change(&self, event: Doc<'_>) -> Result<bool> {
        self.change.matches(event)
    }

    /// Returns whether an event with the document before the change meets the conditions that
    /// read it.
    ///
    /// Errors: those of an expression.
    pub fn accept_before(&self, event: Doc<'_>) -> Result<bool> {
        self.before.matches(event)
    }
}

//! `$match`: the documents that match a filter.
//!
//! A query evaluates the conditions of its filter in an order by their kinds. A `$match` that stays
//! a stage evaluates them as they are written, as mongod does: the order determines which of them
//! fails on a document, or rejects it first.

use std::sync::{Arc, OnceLock};

use bstr::ByteSlice;
use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::needs::{Gives, Needs};
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::expression::Expression;
use crate::feature_version::FeatureVersion;
use crate::filter::{Filter, Node, Purpose};
use crate::known::Known;
use crate::text;
use crate::validation::allowed::near_not_allowed;

pub(super) const ROW: StageRow =
    StageRow { name: "$match", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object() = 15959, "the match filter must be an expression in an object";
    /// A filter uses metadata that is not available to it.
    no_metadata(what: &str) = 40218, "query requires {what} metadata, but it is not available";
    where_not_allowed() = BadValue, "$where is not allowed in this context";
}

/// A parsed `$match`.
#[derive(Debug)]
pub(super) struct Match {
    filter: Filter,
    /// The filter in the order in which the stage evaluates it.
    as_written: OnceLock<Filter>,
    /// The error of a constant expression in the filter: reported once the whole pipeline is
    /// parsed.
    failure: Option<Error>,
}

impl Match {
    /// Creates a stage with this filter.
    pub(super) fn new(filter: Filter) -> Self {
        Match { filter, as_written: OnceLock::new(), failure: None }
    }

    /// Returns the filter with its conditions as they are written.
    fn as_written(&self) -> &Filter {
        self.as_written.get_or_init(|| self.filter.for_stage())
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(doc) = value else {
        return Err(not_object());
    };
    if has_where(doc) {
        return Err(where_not_allowed());
    }
    let mut draft = Filter::draft(doc, Purpose::Any, parser.context).map_err(|error| {
        // A search by distance is refused before its form is looked at.
        if text::has_near(doc) { near_not_allowed() } else { error }
    })?;
    check_metadata(draft.root())?;
    if let Err(error) = draft.optimize(parser.context) {
        let filter = Filter::everything(parser.context);
        parser.push(Match { failure: Some(error), ..Match::new(filter) });
        return Ok(());
    }
    let filter = draft.finish_for_stage(parser.context)?;
    if filter.near().is_some() {
        return Err(near_not_allowed());
    }
    parser.push(Match::new(filter));
    Ok(())
}

/// Checks that no expression of a filter uses metadata: as in mongod, not even a score or a
/// distance that the documents have.
pub(super) fn check_metadata(node: &Node) -> Result<()> {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().try_for_each(check_metadata)
        }
        Node::Not(child) => check_metadata(child),
        Node::Expr(expr) => match unavailable(expr.expression()) {
            Some(what) => Err(no_metadata(what)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns the name, as a message has it, of metadata that an expression uses and no filter has.
fn unavailable(expression: &Expression) -> Option<&'static str> {
    let mut found = match expression.metadata() {
        Some(b"indexKey") => Some("index key"),
        Some(b"recordId") => Some("record ID"),
        Some(b"sortKey") => Some("sort key"),
        Some(b"randVal") => Some("rand val"),
        Some(b"timeseriesBucketMinTime") => Some("timeseries bucket min time"),
        Some(b"timeseriesBucketMaxTime") => Some("timeseries bucket max time"),
        Some(b"textScore") => Some("text score"),
        Some(b"geoNearDistance") => Some("$geoNear distance"),
        Some(b"geoNearPoint") => Some("$geoNear point"),
        Some(b"vectorSearchScore") => Some("$vectorSearch distance"),
        _ => None,
    };
    expression.for_each_child(&mut |child| found = found.or_else(|| unavailable(child)));
    found
}

/// Returns whether a condition of a filter is JavaScript, which may not even be compiled here.
pub(super) fn has_where(filter: Doc<'_>) -> bool {
    filter.iter().any(|element| match (element.name.as_bytes(), element.value.get()) {
        (b"$where", _) => true,
        (b"$and" | b"$or" | b"$nor", Value::Array(branches)) => {
            branches.values().filter_map(|branch| branch.as_doc()).any(has_where)
        }
        _ => false,
    })
}

impl Stage for Match {
    fn name(&self) -> &'static str {
        "$match"
    }

    fn print(&self) -> ValueBuf {
        Value::Document(self.as_written().to_doc().as_doc()).to_buf()
    }

    fn optimize(&mut self, _: &Context) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Match(&self.filter)
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.filter(&self.filter);
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Matching { input, stage: self }))
    }
}

struct Matching {
    input: Box<dyn Source>,
    stage: Arc<Match>,
}

impl Source for Matching {
    fn pull(&mut self) -> Result<Step> {
        loop {
            match self.input.advance()? {
                Step::Document if self.stage.as_written().matches(self.input.doc())? => {
                    return Ok(Step::Document);
                }
                Step::Document => {}
                step => return Ok(step),
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

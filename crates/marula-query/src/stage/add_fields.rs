//! `$addFields` and `$set`: the document with more fields.

use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::fields::FieldTree;
use super::needs::{Gives, Needs};
use super::passage::Passage;
use super::project::invalid;
use super::source::{Map, Transform};
use super::{Env, Parser, Source, Stage, StagePlace, StageRow};
use crate::context::Context;
use crate::expression::{Expression, Frame};
use crate::feature_version::FeatureVersion;

pub(super) const ADD_FIELDS: StageRow = StageRow {
    name: "$addFields",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse: |value, parser| parse("$addFields", value, parser),
};
pub(super) const SET: StageRow = StageRow {
    name: "$set",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse: |value, parser| parse("$set", value, parser),
};

errors! {
    not_object(name: &str, kind: &str) = 40272, "{name} specification stage must be an object, got {kind}";
}

/// A parsed `$addFields`.
#[derive(Debug)]
pub(super) struct AddFields {
    name: &'static str,
    fields: FieldTree,
}

/// Parses the fields of a stage of this name.
pub(super) fn parse(name: &'static str, value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(name, value.kind().alias()));
    };
    let fields =
        FieldTree::parse(spec, &mut parser.scope()).map_err(|error| invalid(name, error))?;
    parser.push(AddFields { name, fields });
    Ok(())
}

impl AddFields {
    /// Creates a stage that writes one top-level field.
    pub(super) fn of_one(name: &'static str, field: &str, value: Expression) -> Self {
        AddFields { name, fields: FieldTree::of_one(field, value) }
    }
}

impl Stage for AddFields {
    fn name(&self) -> &'static str {
        self.name
    }

    fn print(&self) -> ValueBuf {
        self.fields.print()
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.fields.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        self.fields.reads(needs);
        Gives::Input
    }

    fn passage(&self) -> Passage {
        self.fields.passage()
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Map::new(input, self, env)))
    }
}

impl Transform for AddFields {
    fn write<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()> {
        self.fields.apply(frame, out)
    }
}

//! `$project`: the document with some of its fields, and new ones.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::needs::{Gives, Needs};
use super::passage::Passage;
use super::source::{Map, Transform};
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow};
use crate::context::Context;
use crate::expression::Frame;
use crate::feature_version::FeatureVersion;
use crate::known::Known;
use crate::projection::{Meta, Metadata, Policy, Projection};

pub(super) const ROW: StageRow =
    StageRow { name: "$project", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object() = 15969, "$project specification must be an object";
}

/// A parsed `$project` or `$unset`.
#[derive(Debug)]
pub struct Project {
    projection: Projection,
}

impl Project {
    /// Parses a projection for the stage `name`.
    pub(super) fn parse(name: &str, spec: Doc<'_>, context: &Context) -> Result<Self> {
        let projection = Projection::parse(spec, Policy::Aggregate, context)
            .map_err(|error| invalid(name, error))?;
        Ok(Project { projection })
    }

    /// Returns the projection.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }
}

/// Returns the error of a stage's specification. A missing score is reported without the prefix:
/// mongod checks for it later.
pub(super) fn invalid(name: &str, error: Error) -> Error {
    const NO_SCORE: i32 = 40_218;
    match error.code().number() {
        NO_SCORE => error,
        _ => error.caused_by(&format!("Invalid {name}")),
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object());
    };
    parser.push(Project::parse("$project", spec, parser.context)?);
    Ok(())
}

impl Stage for Project {
    fn name(&self) -> &'static str {
        "$project"
    }

    fn print(&self) -> ValueBuf {
        Value::Document(self.projection.print().as_doc()).to_buf()
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.projection.optimize(context)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Project(self)
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        // As in mongod, a pipeline reads the documents for the values that they are sorted by.
        let has_sort_key = self.projection.metadata().contains(&Meta::SortKey);
        let paths = self.projection.needs().filter(|_| !has_sort_key);
        match (paths, self.projection.choice()) {
            (Some(paths), _) => {
                paths.iter().for_each(|path| needs.field_path(path.clone()));
                needs.every_field();
                Gives::Noted
            }
            (None, Some((false, _))) => Gives::Input,
            _ => Gives::Unknown,
        }
    }

    fn passage(&self) -> Passage {
        self.projection.passage()
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Map::new(input, self, env)))
    }
}

impl Transform for Project {
    fn write<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let metadata = frame.known.map_or_else(Metadata::default, Known::metadata);
        self.projection.apply(frame.root, None, &metadata, frame.context, out)
    }
}

//! `$skip`: all documents after the first ones.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf, long};
use marula_error::{Result, errors};

use super::limit::read_count;
use super::needs::{Gives, Needs};
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::expression::print;
use crate::feature_version::FeatureVersion;
use crate::known::Known;

pub(super) const ROW: StageRow =
    StageRow { name: "$skip", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    invalid(why: &str, text: &str) = 5107200, "invalid argument to $skip stage: {why} $skip: {text}";
}

/// A parsed `$skip`.
#[derive(Debug)]
pub(super) struct Skip(pub(super) u64);

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let count = read_count(value).map_err(|why| invalid(why, &print::element(value)))?;
    parser.push(Skip(count));
    Ok(())
}

impl Stage for Skip {
    fn name(&self) -> &'static str {
        "$skip"
    }

    fn print(&self) -> ValueBuf {
        Value::Int64(long(self.0)).to_buf()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Skip(self.0)
    }

    fn reads(&self, _: &mut Needs) -> Gives {
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Skipping { input, left: self.0 }))
    }
}

struct Skipping {
    input: Box<dyn Source>,
    left: u64,
}

impl Source for Skipping {
    fn pull(&mut self) -> Result<Step> {
        while self.left > 0 {
            match self.input.advance()? {
                Step::Document => self.left -= 1,
                step => return Ok(step),
            }
        }
        self.input.advance()
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

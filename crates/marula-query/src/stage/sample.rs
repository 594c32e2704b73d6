//! `$sample`: a number of documents, chosen at random.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf, long};
use marula_error::{Result, errors};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::needs::{Gives, Needs};
use super::source::Documents;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::expression::number::saturated_long;
use crate::feature_version::FeatureVersion;
use crate::spill::{ExternalSort, Rows};

pub(super) const ROW: StageRow =
    StageRow { name: "$sample", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object() = 28745, "the $sample stage specification must be an object";
    size_not_number() = 28746, "size argument to $sample must be a number";
    size_negative() = 28747, "size argument to $sample must not be negative";
    unknown_option(name: &str) = 28748, "unrecognized option to $sample: {name}";
    no_size() = 28749, "$sample stage must specify a size";
}

/// A parsed `$sample`.
#[derive(Debug)]
pub(super) struct Sample(u64);

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object());
    };
    let mut size = None;
    for element in spec {
        if **element.name != *b"size" {
            return Err(unknown_option(&element.name.to_string()));
        }
        let number = saturated_long(element.value.get()).ok_or_else(size_not_number)?;
        size = Some(u64::try_from(number).map_err(|_| size_negative())?);
    }
    parser.push(Sample(size.ok_or_else(no_size)?));
    Ok(())
}

impl Stage for Sample {
    fn name(&self) -> &'static str {
        "$sample"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("size", long(self.0));
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Sample(self.0)
    }

    fn reads(&self, _: &mut Needs) -> Gives {
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        if self.0 == 0 {
            // As in mongod the input is not read.
            return Ok(Box::new(Documents::new(Vec::new())));
        }
        let context = &env.context;
        let sort = ExternalSort::new(context, context.limits.sort_bytes_max, Some(self.0));
        let random = rand::make_rng();
        Ok(Box::new(Sampling { input, random, rows: Rows::Coming(sort) }))
    }
}

/// Documents sorted by random numbers; the first of them are the sample.
struct Sampling {
    input: Box<dyn Source>,
    random: SmallRng,
    rows: Rows,
}

impl Sampling {
    fn take_in(&mut self) -> Result<Step> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(Step::End) };
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let key = self.random.random::<u64>().to_ne_bytes();
            sort.push(&key, &[self.input.doc().as_bytes()])?;
        }
    }
}

impl Source for Sampling {
    fn pull(&mut self) -> Result<Step> {
        if self.take_in()? == Step::Pause {
            return Ok(Step::Pause);
        }
        self.rows.settle(Ok)?;
        Ok(if self.rows.advance()? { Step::Document } else { Step::End })
    }

    fn doc(&self) -> Doc<'_> {
        match &self.rows {
            Rows::Sorted(sorted) => Doc::trusted(sorted.value()),
            _ => Doc::EMPTY,
        }
    }
}

//! `$sample`: so many documents, chosen at random.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::{Env, Parser, Place, Row, Source, Stage, Step};
use crate::spill::sort::too_much_memory;

pub(super) const ROW: Row = Row { name: "$sample", place: Place::Anywhere, parse };

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
        let number = element.value.get().as_f64().ok_or_else(size_not_number)?;
        if number < 0.0 {
            return Err(size_negative());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = number as u64;
        size = Some(whole);
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
            out.append("size", i64::try_from(self.0).unwrap_or(i64::MAX));
        })
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Sampling {
            input,
            wanted: self.0,
            seen: 0,
            size: 0,
            bytes_max: env.stage_bytes_max,
            random: SmallRng::from_os_rng(),
            kept: Vec::new(),
            is_complete: false,
            current: DocBuf::new(),
        }))
    }
}

/// Keeps each document seen with the same probability (reservoir sampling) and answers in random order.
struct Sampling {
    input: Box<dyn Source>,
    wanted: u64,
    seen: u64,
    size: usize,
    bytes_max: usize,
    random: SmallRng,
    kept: Vec<DocBuf>,
    is_complete: bool,
    current: DocBuf,
}

impl Sampling {
    fn take_in(&mut self) -> Result<()> {
        self.seen += 1;
        let kept = self.kept.len();
        let at = if (kept as u64) < self.wanted {
            self.kept.push(DocBuf::new());
            self.size += DocBuf::new().len();
            kept
        } else {
            let at = self.random.random_range(0..self.seen);
            match usize::try_from(at) {
                Ok(at) if at < kept => at,
                _ => return Ok(()),
            }
        };
        let doc = self.input.doc().to_buf();
        self.size = self.size + doc.len() - self.kept[at].len();
        self.kept[at] = doc;
        if self.size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        Ok(())
    }
}

impl Source for Sampling {
    fn advance(&mut self) -> Result<Step> {
        if self.wanted == 0 {
            return Ok(Step::End);
        }
        while !self.is_complete {
            match self.input.advance()? {
                Step::Document => self.take_in()?,
                Step::Pause => return Ok(Step::Pause),
                Step::End => self.is_complete = true,
            }
        }
        if self.kept.is_empty() {
            return Ok(Step::End);
        }
        let at = self.random.random_range(0..self.kept.len());
        self.current = self.kept.swap_remove(at);
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}

//! `$collStats`: one document about the collection that a pipeline runs on.
//!
//! The stage says which parts are wanted ([`CollectionStats`]); who runs the pipeline knows the collection, writes
//! the document and gives it to the stage as its input.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Kind, Parser, Place, Row, Source, Stage};
use crate::expression::print;

pub(super) const ROW: Row = Row { name: "$collStats", place: Place::First, parse };

errors! {
    not_object(text: &str) = 5447000, "$collStats must take a nested object but found: $collStats: {text}";
    unknown_field(name: &str) = 40415, "BSON field '$collStats.{name}' is an unknown field.";
    option_type(name: &str, kind: &str) = TypeMismatch, "BSON field '$collStats.{name}' is the wrong type '{kind}', expected type 'object'";
    scale_type(kind: &str) = TypeMismatch, "BSON field '$collStats.storageStats.scale' is the wrong type '{kind}', expected types '[long, int, decimal, double']";
    scale_too_small(scale: i64) = 51024, "BSON field 'scale' value must be >= 1, actual value '{scale}'";
    not_empty(text: &str) = 31170, "expected an empty object, but got {text}";
    /// The server counts latencies and scans as a whole, not by collection.
    not_kept(name: &str) = NotImplemented, "{name} of $collStats is not kept by collection";
}

/// What a `$collStats` wants to know beside the collection's name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CollectionStats {
    /// `storageStats`: sizes, divided by this scale.
    pub storage_scale: Option<i64>,
    /// `count`: the number of documents.
    pub count: bool,
}

/// A parsed `$collStats`.
#[derive(Debug)]
struct CollStats {
    wanted: CollectionStats,
    argument: DocBuf,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(argument) = value else {
        return Err(not_object(&print::element(value)));
    };
    let mut wanted = CollectionStats::default();
    for option in argument.iter() {
        let name = option.name.to_string();
        if !["latencyStats", "storageStats", "count", "queryExecStats"].contains(&name.as_str()) {
            return Err(unknown_field(&name));
        }
        let Value::Document(inner) = option.value.get() else {
            return Err(option_type(&name, option.value.kind().alias()));
        };
        match name.as_str() {
            "storageStats" => wanted.storage_scale = Some(scale(inner)?),
            "count" if !inner.is_empty() => {
                return Err(not_empty(&print::value(Value::Document(inner))));
            }
            "count" => wanted.count = true,
            _ => return Err(not_kept(&name)),
        }
    }
    parser.push(CollStats { wanted, argument: argument.to_buf() });
    Ok(())
}

/// The scale of `storageStats`; other fields in it are passed over.
fn scale(options: Doc<'_>) -> Result<i64> {
    let Some(scale) = options.get("scale") else { return Ok(1) };
    let number = scale.as_f64().ok_or_else(|| scale_type(scale.kind().alias()))?;
    #[allow(clippy::cast_possible_truncation)] // towards zero and within a long, as mongod does
    let number = number as i64;
    if number < 1 { Err(scale_too_small(number)) } else { Ok(number) }
}

impl Stage for CollStats {
    fn name(&self) -> &'static str {
        "$collStats"
    }

    fn print(&self) -> ValueBuf {
        Value::Document(self.argument.as_doc()).to_buf()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::CollectionStats(&self.wanted)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(input)
    }
}

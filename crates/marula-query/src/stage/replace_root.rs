//! `$replaceRoot` and `$replaceWith`: replaces each document by another.

use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::needs::{Gives, Needs};
use super::source::{Map, Transform};
use super::{Env, Parser, Source, Stage, StagePlace, StageRow};
use crate::context::Context;
use crate::expression::{Expression, Frame, print};
use crate::feature_version::FeatureVersion;
use crate::once::{Once, unknown_field};

pub(super) const REPLACE_ROOT: StageRow = StageRow {
    name: "$replaceRoot",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse: parse_replace_root,
};
pub(super) const REPLACE_WITH: StageRow = StageRow {
    name: "$replaceWith",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse: parse_replace_with,
};

errors! {
    not_object(kind: &str) = 40229, "expected an object as specification for $replaceRoot stage, got {kind}";
    no_new_root() = IDLFailedToParse, "BSON field '$replaceRoot.newRoot' is missing but a required field";
    result_not_object(what: &str, text: &str, kind: &str, input: &str) = 40228, "{what}  must evaluate to an object, but resulting value was: {text}. Type of resulting value: '{kind}'. Input document: {input}";
}

/// A parsed `$replaceRoot`.
#[derive(Debug)]
pub(super) struct ReplaceRoot {
    new_root: Expression,
    /// The name of the expression in errors.
    what: &'static str,
}

fn parse_replace_root(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let mut new_root = None;
    let mut once = Once::of("$replaceRoot");
    for element in spec {
        match &**element.name {
            b"newRoot" => new_root = Some(element.value.get()),
            _ => return Err(unknown_field("$replaceRoot", element.name)),
        }
        once.note(element.name)?;
    }
    let new_root = Expression::parse(new_root.ok_or_else(no_new_root)?, &mut parser.scope())?;
    parser.push(ReplaceRoot { new_root, what: "'newRoot' expression" });
    Ok(())
}

fn parse_replace_with(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let new_root = Expression::parse(value, &mut parser.scope())?;
    parser.push(ReplaceRoot { new_root, what: "'replacement document'" });
    Ok(())
}

impl Stage for ReplaceRoot {
    fn name(&self) -> &'static str {
        "$replaceRoot"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("newRoot", &self.new_root.print());
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.new_root.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.expression(&self.new_root);
        Gives::Noted
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Map::new(input, self, env)))
    }
}

impl Transform for ReplaceRoot {
    fn write<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()> {
        let value = self.new_root.eval(frame)?;
        let Some(Value::Document(doc)) = value else {
            let kind = value.map_or("missing", |value| value.kind().alias());
            let input = print::value(Value::Document(frame.root));
            return Err(result_not_object(self.what, &print::optional(value), kind, &input));
        };
        out.clear();
        out.extend_from_slice(doc.as_bytes());
        Ok(())
    }
}

//! `$redact`: keeps or removes parts of a document by the value of an expression for each level.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocWriter, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::known::Known;

pub(super) const ROW: StageRow =
    StageRow { name: "$redact", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

/// The maximum nesting of a document: that of BSON.
const DEPTH_MAX: usize = 200;

errors! {
    other_result(text: &str) = 17053, "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned {text}";
    too_deep() = Overflow, "BSONObj exceeds maximum nested object depth: {DEPTH_MAX}";
}

/// A parsed `$redact`.
#[derive(Debug)]
pub(super) struct Redact {
    expression: Expression,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let expression = Expression::parse(value, &mut Scope::for_redact(parser.context))?;
    parser.push(Redact { expression });
    Ok(())
}

impl Stage for Redact {
    fn name(&self) -> &'static str {
        "$redact"
    }

    fn print(&self) -> ValueBuf {
        self.expression.print()
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.expression.optimize(context)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let context = Arc::clone(&env.context);
        Ok(Box::new(Redacting {
            input,
            stage: self,
            context,
            arena: Arena::new(),
            out: Vec::new(),
        }))
    }
}

struct Redacting {
    input: Box<dyn Source>,
    stage: Arc<Redact>,
    context: Arc<Context>,
    arena: Arena,
    out: Vec<u8>,
}

impl Source for Redacting {
    fn pull(&mut self) -> Result<Step> {
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            self.arena.reset();
            let doc = self.input.doc();
            let frame = Frame::new(doc, &self.arena, &self.context).with_known(self.input.known());
            self.out.clear();
            let expression = &self.stage.expression;
            match decide(expression, doc, &frame)? {
                Decision::Prune => continue,
                Decision::Keep => self.out.extend_from_slice(doc.as_bytes()),
                Decision::Descend => {
                    let mut out = DocWriter::new(&mut self.out);
                    descend(expression, doc, &frame, &mut out, 0)?;
                    out.finish();
                }
            }
            return Ok(Step::Document);
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

enum Decision {
    Keep,
    Prune,
    Descend,
}

fn decide<'a>(expression: &'a Expression, doc: Doc<'a>, frame: &Frame<'a>) -> Result<Decision> {
    let frame = frame.bind(Some(Value::Document(doc)));
    let result = expression.eval(&frame)?;
    match result.and_then(|value| value.as_str()).map(|text| &**text) {
        Some(b"keep") => Ok(Decision::Keep),
        Some(b"prune") => Ok(Decision::Prune),
        Some(b"descend") => Ok(Decision::Descend),
        _ => Err(other_result(&print::optional(result))),
    }
}

fn descend<'a>(
    expression: &'a Expression,
    doc: Doc<'a>,
    frame: &Frame<'a>,
    out: &mut DocWriter<'_>,
    depth: usize,
) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    for element in doc {
        match element.value.kind() {
            Type::Document => {
                let inner = Doc::trusted(element.value.bytes());
                match decide(expression, inner, frame)? {
                    Decision::Prune => {}
                    Decision::Keep => {
                        out.append_raw(element.name, element.value);
                    }
                    Decision::Descend => {
                        let mut out = out.begin_doc(element.name);
                        descend(expression, inner, frame, &mut out, depth + 1)?;
                    }
                }
            }
            Type::Array => {
                let mut list = out.begin_array(element.name);
                redact_items(expression, element.value, frame, &mut list, depth + 1)?;
            }
            _ => {
                out.append_raw(element.name, element.value);
            }
        }
    }
    Ok(())
}

fn redact_items<'a>(
    expression: &'a Expression,
    items: RawValue<'a>,
    frame: &Frame<'a>,
    out: &mut ArrayWriter<'_>,
    depth: usize,
) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    for item in Doc::trusted(items.bytes()) {
        match item.value.kind() {
            Type::Document => {
                let inner = Doc::trusted(item.value.bytes());
                match decide(expression, inner, frame)? {
                    Decision::Prune => {}
                    Decision::Keep => {
                        out.push_raw(item.value);
                    }
                    Decision::Descend => {
                        let mut out = out.begin_doc();
                        descend(expression, inner, frame, &mut out, depth + 1)?;
                    }
                }
            }
            Type::Array => {
                let mut list = out.begin_array();
                redact_items(expression, item.value, frame, &mut list, depth + 1)?;
            }
            _ => {
                out.push_raw(item.value);
            }
        }
    }
    Ok(())
}

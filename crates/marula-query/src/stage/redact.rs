//! `$redact`: keeps or removes parts of a document by the value of an expression for each level.

use std::sync::Arc;

use marula_bson::path::array_index;
use marula_bson::{ArrayWriter, Doc, DocWriter, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::optimize::matching;
use super::{Env, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::filter::{Node, PathNode, Predicate};
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
    /// The number of conditions after the stage that were also tried before it, as far as possible.
    tried: usize,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let expression = Expression::parse(value, &mut Scope::for_redact(parser.context))?;
    parser.push(Redact { expression, tried: 0 });
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

    /// Every value that a document has after the stage was there before it. So conditions that only
    /// a value can meet are evaluated on both sides: before the stage they can use an index.
    fn taking_in(
        self: Arc<Self>,
        conditions: &[Node],
        context: &Context,
    ) -> Option<Vec<Arc<dyn Stage>>> {
        let before: Vec<_> = conditions.iter().filter_map(of_values).collect();
        if conditions.len() == self.tried || before.is_empty() {
            return None;
        }
        let redact = Redact { expression: self.expression.clone(), tried: conditions.len() };
        let behind = matching(conditions.to_vec(), context);
        Some(vec![matching(before, context), Arc::new(redact), behind])
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

/// Returns the part of a condition that holds for a document if it holds for one with fewer fields
/// or elements.
///
/// A missing field meets none of it, and a document or an array, of which parts may be missing, is
/// compared with nothing. The place of an element may be another before.
fn of_values(node: &Node) -> Option<Node> {
    match node {
        Node::And(children) => {
            let kept: Vec<_> = children.iter().filter_map(of_values).collect();
            (!kept.is_empty()).then_some(Node::And(kept))
        }
        Node::Or(children) => {
            let kept: Option<Vec<_>> = children.iter().map(of_values).collect();
            kept.filter(|kept| !kept.is_empty()).map(Node::Or)
        }
        Node::Path(at) if at.path.parts().iter().all(|part| array_index(part).is_none()) => {
            let predicate = of_value(&at.predicate)?;
            Some(Node::Path(PathNode { path: at.path.clone(), predicate }))
        }
        _ => None,
    }
}

/// The same of a predicate.
fn of_value(predicate: &Predicate) -> Option<Predicate> {
    let is_whole =
        |kind: Type| !matches!(kind, Type::Null | Type::Undefined | Type::Document | Type::Array);
    let all = |list: &[Predicate]| {
        let kept: Vec<_> = list.iter().filter_map(of_value).collect();
        (!kept.is_empty()).then_some(kept)
    };
    match predicate {
        Predicate::Compare(constant) if is_whole(constant.value.kind()) => Some(predicate.clone()),
        Predicate::In(list) if list.values().iter().all(|value| is_whole(value.kind())) => {
            Some(predicate.clone())
        }
        Predicate::Regex(_) | Predicate::Type(_) | Predicate::Mod { .. } | Predicate::Bits(_) => {
            Some(predicate.clone())
        }
        Predicate::ElemMatchObject(node) => {
            of_values(node).map(|node| Predicate::ElemMatchObject(Box::new(node)))
        }
        Predicate::ElemMatchValue(list) => all(list).map(Predicate::ElemMatchValue),
        Predicate::All(list) => all(list).map(Predicate::All),
        _ => None,
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

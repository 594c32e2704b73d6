//! `$documents`: documents that are written in the pipeline itself.

use std::sync::Arc;

use marula_bson::doc::Iter;
use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::{Context, Subject};
use crate::expression::{Arena, Expression, Frame, print};
use crate::feature_version::FeatureVersion;
use crate::projection::{Policy, Projection};

pub(super) const ROW: StageRow =
    StageRow { name: "$documents", since: FeatureVersion::V6_0, place: StagePlace::First, parse };

errors! {
    has_collection() = InvalidNamespace, "'$documents' can only be run with {{aggregate: 1}}";
    not_array() = 5858203, "an array is expected";
    not_object(text: &str, kind: &str) = 40228, "elements within the array passed to $documents must evaluate to an object, but resulting value was: {text}. Type of resulting value: '{kind}'. Input document: {{_tempDocumentsField: {text}}}";
}

/// A parsed `$documents`.
#[derive(Debug)]
pub(super) struct DocumentsStage {
    documents: Expression,
}

/// Checks that a pipeline with this stage at its start runs on no collection.
pub(super) fn check_subject(context: &Context) -> Result<()> {
    match context.subject.as_deref() {
        Some(Subject { collection: Some(_), .. }) => Err(has_collection()),
        _ => Ok(()),
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let documents =
        parse_documents(value, parser).map_err(|error| error.caused_by("Invalid $documents"))?;
    parser.push(DocumentsStage { documents });
    Ok(())
}

/// Parses the documents as the value of a projection's field, because an object there need not be
/// an expression.
fn parse_documents(value: Value<'_>, parser: &Parser<'_>) -> Result<Expression> {
    let parsed = Expression::parse(value, &mut parser.scope());
    if value.as_doc().is_none() {
        return parsed;
    }
    let spec = DocBuf::build(|out| {
        out.append("_tempDocumentsField", value);
    });
    Projection::parse(spec.as_doc(), Policy::Aggregate, parser.context)?;
    // A value that only a projection accepts, such as an object with a dotted name, is not an array
    // in any case.
    Ok(parsed.unwrap_or_else(|_| Value::Null.into()))
}

impl Stage for DocumentsStage {
    fn name(&self) -> &'static str {
        "$documents"
    }

    fn print(&self) -> ValueBuf {
        self.documents.print()
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.documents.optimize(context)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Origin
    }

    fn start(self: Arc<Self>, _: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let context = Arc::clone(&env.context);
        let items = None;
        Ok(Box::new(Spelled { stage: self, context, items, at: 0, current: DocBuf::new() }))
    }
}

/// Produces the documents; they are computed when the first is pulled.
struct Spelled {
    stage: Arc<DocumentsStage>,
    context: Arc<Context>,
    /// The array, once it is computed.
    items: Option<DocBuf>,
    /// The number of bytes of the array that were read.
    at: usize,
    current: DocBuf,
}

impl Source for Spelled {
    fn pull(&mut self) -> Result<Step> {
        let Spelled { stage, context, items, at, current } = self;
        let items = match items {
            Some(items) => items,
            None => {
                let arena = Arena::new();
                let frame = Frame::new(Doc::EMPTY, &arena, context);
                match stage.documents.eval(&frame)? {
                    Some(Value::Array(array)) => items.insert(array.to_buf()),
                    _ => return Err(not_array()),
                }
            }
        };
        let elements = items.as_doc().elements_bytes();
        let mut rest = Iter::over(&elements[*at..]);
        let Some(element) = rest.next() else { return Ok(Step::End) };
        *at = elements.len() - rest.rest().len();
        match element.value.get() {
            Value::Document(doc) => *current = doc.to_buf(),
            item => return Err(not_object(&print::value(item), item.kind().alias())),
        }
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}

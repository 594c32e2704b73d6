//! `$documents`: documents that the pipeline itself spells.

use std::sync::Arc;

use marula_bson::{DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::source::Documents;
use super::{Env, Kind, Parser, Place, Row, Source, Stage};
use crate::context::{Context, Subject};
use crate::expression::{Arena, Expression, Frame, print};
use crate::feature_version::FeatureVersion;

pub(super) const ROW: Row =
    Row { name: "$documents", since: FeatureVersion::V6_0, place: Place::First, parse };

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

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    if let Some(Subject { collection: Some(_), .. }) = parser.context.subject.as_deref()
        && parser.is_outermost()
    {
        return Err(has_collection());
    }
    let documents = Expression::parse(value, &mut parser.scope())?;
    parser.push(DocumentsStage { documents });
    Ok(())
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
        let arena = Arena::new();
        let frame = Frame::new(marula_bson::Doc::EMPTY, &arena, &env.context);
        let Some(Value::Array(items)) = self.documents.eval(&frame)? else {
            return Err(not_array());
        };
        let documents: Result<Vec<DocBuf>> = items.values().map(document).collect();
        Ok(Box::new(Documents::new(documents?)))
    }
}

fn document(item: Value<'_>) -> Result<DocBuf> {
    match item {
        Value::Document(doc) => Ok(doc.to_buf()),
        _ => Err(not_object(&print::value(item), item.kind().alias())),
    }
}

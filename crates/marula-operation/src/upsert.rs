//! The document that an upsert inserts if nothing matches its filter.

use marula_bson::{Collator, Doc, DocBuf, Element, Value, order};
use marula_db::session::Done;
use marula_db::write::{check_id_type, new_id};
use marula_db::{Collection, WriteOp};
use marula_error::{Error, Result, codes};
use marula_query::context::Context as QueryContext;
use marula_query::filter::{CompareOp, Filter, Node, PathNode, Predicate};
use marula_query::update::Update;

/// Inserts the document of an upsert, and returns it.
pub fn upsert(
    collection: &Collection,
    update: &Update,
    query: &Filter,
    context: &QueryContext,
    op: &mut WriteOp<'_>,
    done: &dyn Fn(Doc<'_>) -> Option<(i32, Done)>,
) -> Result<DocBuf> {
    let doc = upserted_document(update, query, context, op.now_ms)?;
    let statement = done(doc.as_doc());
    op.upsert(collection, doc.as_doc(), statement)?;
    Ok(doc)
}

/// Returns the document that an upsert inserts, with its `_id` at the front.
///
/// Errors: those of the update, and of an `_id` that cannot be one.
pub fn upserted_document(
    update: &Update,
    query: &Filter,
    context: &QueryContext,
    now_ms: i64,
) -> Result<DocBuf> {
    let mut made = Vec::new();
    update.upsert(query, context, &mut made)?;
    with_id_first(Doc::trusted(&made), now_ms)
}

/// Returns a document with its first `_id` at the front, which is generated if it is missing.
pub(crate) fn with_id_first(made: Doc<'_>, now_ms: i64) -> Result<DocBuf> {
    let id = made.get("_id");
    if let Some(id) = id {
        check_id_type(id)?;
    }
    Ok(DocBuf::build(|doc| {
        match id {
            Some(id) => doc.append("_id", id),
            None => doc.append("_id", new_id(now_ms)),
        };
        let id_at = made.iter().position(|element| element.name == "_id");
        for (_, element) in made.iter().enumerate().filter(|(at, _)| Some(*at) != id_at) {
            doc.append_raw(element.name, element.value);
        }
    }))
}

/// Returns whether the document that made an upsert's insert fail is one that the upsert's filter
/// names by equality: then another attempt finds it.
pub(crate) fn may_match_now(error: &Error, filter: &Filter) -> bool {
    if error.code() != codes::DuplicateKey {
        return false;
    }
    let fields = [error.fields(), &[0]].concat();
    let length = i32::try_from(fields.len() + 4).unwrap_or(i32::MAX).to_le_bytes();
    let fields = [&length[..], &fields].concat();
    let Some(Value::Document(key)) = Doc::trusted(&fields).get("keyValue") else { return false };
    // Another condition may be the one that did not match: then another attempt would not help.
    let conditions = match filter.root() {
        Node::And(children) => children.as_slice(),
        only => std::slice::from_ref(only),
    };
    let collator = filter.collator();
    conditions.len() == key.iter().count()
        && key.iter().all(|field| conditions.iter().any(|node| asks_for(node, field, collator)))
}

/// Returns whether a condition is equality with the value of a field of a key.
fn asks_for(node: &Node, field: Element<'_>, collator: Option<&dyn Collator>) -> bool {
    match node {
        Node::Path(PathNode { path, predicate: Predicate::Compare(compare) }) => {
            compare.op == CompareOp::Eq
                && path.to_string().as_bytes() == field.name
                && order::equal(compare.value.get(), field.value.get(), collator)
        }
        _ => false,
    }
}

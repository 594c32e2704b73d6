//! Replies of commands that list things: a first batch of documents in memory, and a cursor for the
//! rest.

use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use crate::context::Context;
use crate::cursor::{Documents, Filled, Parked};
use crate::fields::{self, Field, Types};
use crate::request::Request;

errors! {
    batch_size_negative(value: i64) = 51_024, "BSON field 'batchSize' value must be >= 0, actual value '{value}'";
}

const CURSOR_FIELDS: &[Field] = &[Field::optional("batchSize", Types::NUMBER)];

/// Writes `cursor: { id, ns, firstBatch }` with `documents`; `cursor.batchSize` of the request
/// limits their number.
pub(crate) fn reply(
    context: &Context<'_>,
    request: &Request<'_>,
    namespace: Namespace,
    documents: Vec<DocBuf>,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    let batch_size = batch_size(request)?;
    let mut batch = Vec::new();
    let mut source = Documents::new(documents);
    let (filled, returned) = {
        let mut array = marula_bson::ArrayWriter::new(&mut batch);
        let filled = source.fill_now(batch_size, &mut array);
        (filled, array.count())
    };
    let ns = namespace.to_string();
    let id = match filled {
        Filled::Exhausted => 0,
        Filled::More => {
            let (lsid, origin) = (request.lsid, request.body.to_buf());
            let cursor = Parked::new(context, Box::new(source), namespace, lsid, origin, returned);
            context.server.cursors.open(cursor, context.now_ms)?
        }
    };
    let mut cursor = out.begin_doc("cursor");
    cursor.append("id", id).append("ns", ns.as_str());
    cursor.append("firstBatch", Value::Array(Doc::trusted(&batch)));
    Ok(())
}

/// Returns the size of the first batch; without one, everything that fits.
fn batch_size(request: &Request<'_>) -> Result<usize> {
    let Some(Value::Document(cursor)) = request.arg("cursor") else { return Ok(usize::MAX) };
    fields::check_doc(&format!("{}.cursor", request.command.name), CURSOR_FIELDS, cursor)?;
    let Some(size) = cursor.get("batchSize").and_then(|size| size.as_f64()) else {
        return Ok(usize::MAX);
    };
    #[allow(clippy::cast_possible_truncation)]
    let size = size as i64;
    usize::try_from(size).map_err(|_| batch_size_negative(size))
}

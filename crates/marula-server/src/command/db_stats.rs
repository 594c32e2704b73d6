//! `dbStats`: the number and the size of a database's collections, documents and indexes.

use marula_bson::{BStr, DocWriter, Value};
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::{host, storage_size};

errors! {
    /// The value of the command is a name; it should be a number.
    pub(super) invalid_name(db: &str, name: &BStr) = InvalidNamespace, "Invalid db name: {db}.{name}";
}

pub(super) static COMMAND: Command = Command {
    name: "dbStats",
    aliases: &["dbstats"],
    help: "Returns the number and the size of a database's collections, documents and indexes.",
    place: CommandPlace::Reserved,
    auth: Auth::Database(&["dbStats"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if let Value::String(name) = request.first.value.get() {
        return Err(invalid_name(request.db, name));
    }
    let scale = match request.arg("scale") {
        None => 1.0,
        // `false` means the default scale.
        Some(Value::Boolean(false)) => 1.0,
        Some(scale) => match scale_of(scale) {
            None => return Ok(Outcome::Failed("scale has to be a number > 0".to_owned())),
            Some(..1) => return Ok(Outcome::Failed("scale has to be > 0".to_owned())),
            Some(scale) => f64::from(scale),
        },
    };
    let server = context.server;
    let collections = server.db.catalog().collections(request.db);
    reply.append("db", request.db);
    if collections.is_empty() {
        // As in mongod, all numbers are ints if the database does not exist, sizes included.
        for name in EMPTY_NAMES {
            reply.append(name, i32::from(*name == "scaleFactor"));
        }
        return Ok(Outcome::Done);
    }
    let (mut real, mut views, mut indexes) = (0, 0, 0_usize);
    let (mut objects, mut data_size, mut storage, mut index_size) = (0_i64, 0_i64, 0_i64, 0_i64);
    for collection in &collections {
        let state = collection.state();
        if state.options.view.is_some() {
            views += 1;
            continue;
        }
        real += 1;
        indexes += state.indexes.len();
        objects += collection.count();
        data_size += collection.size_bytes();
        storage += storage_size::of_documents(&server.db, collection)?;
        index_size += storage_size::of_indexes(&server.db, collection)?;
    }
    #[allow(clippy::cast_precision_loss)]
    let scaled = |bytes: i64| bytes as f64 / scale;
    reply.append("collections", real);
    reply.append("views", views);
    reply.append("objects", Value::whole(objects));
    #[allow(clippy::cast_precision_loss)]
    let average = if objects == 0 { 0.0 } else { data_size as f64 / objects as f64 };
    reply.append("avgObjSize", average);
    reply.append("dataSize", scaled(data_size));
    reply.append("storageSize", scaled(storage));
    let asks_free = request.flag("freeStorage");
    if asks_free {
        reply.append("freeStorageSize", 0.0);
    }
    reply.append("indexes", Value::whole(indexes));
    reply.append("indexSize", scaled(index_size));
    if asks_free {
        reply.append("indexFreeStorageSize", 0.0);
    }
    reply.append("totalSize", scaled(storage + index_size));
    if asks_free {
        reply.append("totalFreeStorageSize", 0.0);
    }
    reply.append("scaleFactor", scale);
    let path = server.options.dbpath.as_deref().unwrap_or(".");
    let (used, total) = host::file_system(path).unwrap_or_default();
    #[allow(clippy::cast_precision_loss)]
    reply.append("fsUsedSize", used as f64 / scale).append("fsTotalSize", total as f64 / scale);
    Ok(Outcome::Done)
}

/// Returns a scale as an int: 0, which is rejected, if it is too large; `None` if it is not a
/// number.
fn scale_of(scale: Value<'_>) -> Option<i32> {
    let number = scale.as_f64().filter(|_| scale.kind().is_number())?;
    let is_int = number < f64::from(i32::MAX) + 1.0;
    #[allow(clippy::cast_possible_truncation)]
    Some(if is_int { number as i32 } else { 0 })
}

const EMPTY_NAMES: &[&str] = &[
    "collections",
    "views",
    "objects",
    "avgObjSize",
    "dataSize",
    "storageSize",
    "indexes",
    "indexSize",
    "totalSize",
    "scaleFactor",
    "fsUsedSize",
    "fsTotalSize",
];

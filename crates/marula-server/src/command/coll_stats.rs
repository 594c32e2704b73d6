//! `collStats`: the number of documents of a collection, and the sizes of the collection and its
//! indexes.

use marula_bson::{DocWriter, Value, doc_fields};
use marula_db::{Collection, Db, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Named, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::{storage_size, time_series};

errors! {
    scale_too_small(scale: i64) = 51_024, "BSON field 'scale' value must be >= 1, actual value '{scale}'";
}

pub(super) static COMMAND: Command = Command {
    name: "collStats",
    aliases: &["collstats"],
    help: "Returns the number of documents of a collection, and the sizes of the collection and its indexes.",
    place: CommandPlace::Reserved,
    fields: Fields::Known {
        place: "collStats",
        fields: &[
            Field::optional("waitForLock", Types::Switch),
            Field::optional("numericOnly", Types::Switch),
            Field::optional("scale", Types::NUMBER),
        ],
    },
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["collStats"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let scale = scale(request)?;
    write(&context.server.db, &ns, scale, reply)?;
    Ok(Outcome::Done)
}

/// The largest scale: mongod reads a larger one as this.
const SCALE_MAX: i64 = i32::MAX as i64;

fn scale(request: &Request<'_>) -> Result<i64> {
    let Some(scale) = request.arg("scale").and_then(|scale: Value<'_>| scale.as_f64()) else {
        return Ok(1);
    };
    #[allow(clippy::cast_possible_truncation)]
    let scale = scale as i64;
    if scale < 1 { Err(scale_too_small(scale)) } else { Ok(scale) }
}

/// Writes the statistics of `ns`; sizes are divided by `scale`.
pub(crate) fn write(db: &Db, ns: &Namespace, scale: i64, out: &mut DocWriter<'_>) -> Result<()> {
    out.append("ns", ns.as_str());
    let Some(collection) = db.collection(&time_series::data_namespace(db, ns)?) else {
        write_absent(scale, out);
        return Ok(());
    };
    targets::check_not_view(&collection)?;
    write_present(db, &collection, scale, out)
}

/// Writes the fields of WiredTiger that tools read and this engine has an equivalent for.
fn write_storage(bytes: i64, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "type": "lsm",
        "block-manager": { "file bytes available for reuse": 0_i64, "file size in bytes": bytes },
    );
}

fn write_absent(scale: i64, out: &mut DocWriter<'_>) {
    let scale = scale.min(SCALE_MAX);
    for name in
        ["size", "count", "numOrphanDocs", "storageSize", "totalSize", "nindexes", "totalIndexSize"]
    {
        out.append(name, 0);
    }
    out.begin_doc("indexDetails").finish();
    out.begin_doc("indexSizes").finish();
    out.append("scaleFactor", Value::whole(scale));
}

/// Writes the statistics of an existing collection, without its name.
pub(crate) fn write_present(
    db: &Db,
    collection: &Collection,
    scale: i64,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    let scale = scale.min(SCALE_MAX);
    let state = collection.state();
    let (count, size) = (collection.count(), collection.size_bytes());
    out.append("size", Value::whole(size / scale));
    if state.options.time_series.is_some() {
        time_series::write_statistics(collection, out);
    } else {
        out.append("count", Value::whole(count));
        if count > 0 {
            out.append("avgObjSize", Value::whole(size / count));
        }
    }
    out.append("numOrphanDocs", 0);
    let storage = storage_size::of_documents(db, collection)?;
    out.append("storageSize", Value::whole(storage / scale));
    out.append("freeStorageSize", 0);
    out.append("capped", state.options.capped.is_some());
    if let Some(capped) = state.options.capped {
        out.append("max", Value::whole(capped.documents_max.unwrap_or(0)));
        out.append("maxSize", Value::whole(capped.size_bytes_max / scale));
    }
    let building: Vec<_> = state.building.iter().flat_map(|build| &build.indexes).collect();
    let indexes = state.indexes.len() + building.len();
    out.append("nindexes", Value::whole(i64::try_from(indexes).expect("at most 64 indexes")));
    write_storage(storage, &mut out.begin_doc("wiredTiger"));
    let mut details = out.begin_doc("indexDetails");
    for index in &state.indexes {
        let mut detail = details.begin_doc(&index.spec.name);
        detail.append("type", "lsm");
    }
    drop(details);
    let mut builds = out.begin_array("indexBuilds");
    for index in building {
        builds.push(index.spec.name.as_str());
    }
    drop(builds);
    let indexes = storage_size::of_indexes(db, collection)?;
    out.append("totalIndexSize", Value::whole(indexes / scale));
    out.append("totalSize", Value::whole((storage + indexes) / scale));
    let mut sizes = out.begin_doc("indexSizes");
    for index in &state.indexes {
        let size = storage_size::of_index(db, collection, index)? / scale;
        sizes.append(&index.spec.name, Value::whole(size));
    }
    drop(sizes);
    out.append("scaleFactor", Value::whole(scale));
    Ok(())
}

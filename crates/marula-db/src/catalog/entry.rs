//! A collection's entry in the store.
//!
//! ```text
//! { ns: <string>, uuid: <binData 4>, options: <document>,
//!   indexes: [ { ident: <int>, spec: <document>, coarsest: <int> }, … ],
//!   building: [ { uuid: <binData 4>, owner: <long>, scratch: <int>, generation: <int>,
//!                 closed: <bool>, indexes: [ … ] }, … ],
//!   sharding: { key: <document>, unique: <bool>, at: <date> } }
//! ```
//! `building` exists where several processes serve the store: writers of each note their changes
//! for the indexes that any of them builds.
//! `sharding` exists where the collection has a shard key.
//! `coarsest` exists in 2dsphere indexes: the level of the largest cells that they hold. The key of
//! the entry holds the collection's ident. Multikey marks have keys of their own (see `index`).

use std::sync::Arc;

use marula_bson::validate::Limits;
use marula_bson::{ArrayWriter, Binary, Doc, DocBuf, Value, doc_fields};
use marula_error::{Result, errors};
use marula_storage::View;

use super::options::CollectionOptions;
use crate::build::Build;
use crate::collection::{Sharding, State};
use crate::index::{Geography, Index, IndexKind, IndexSpec};
use crate::keys::Ident;
use crate::namespace::Namespace;

errors! {
    too_large(size: usize) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and 16793600(16MB)";
    damaged_entry(what: &str) = 8_000_003, "the catalogue entry is damaged: {what}";
}

/// A collection's UUID, which drivers and change streams may refer to.
pub type Uuid = [u8; 16];

/// A decoded entry.
pub struct Entry {
    /// The collection's namespace.
    pub ns: Namespace,
    /// The collection's UUID.
    pub uuid: Uuid,
    /// The collection's options and indexes.
    pub state: State,
}

/// Encodes an entry that is to be stored.
///
/// Errors: `too_large`.
pub fn encode(ns: &Namespace, uuid: &Uuid, state: &State) -> Result<DocBuf> {
    let entry = DocBuf::build(|out| {
        out.append("ns", ns.as_str());
        out.append("uuid", Binary { subtype: 4, bytes: uuid });
        out.append("options", &state.options.document);
        put_indexes(&state.indexes, &mut out.begin_array("indexes"));
        if let Some(Sharding { key, is_unique, at_ms }) = &state.sharding {
            doc_fields!(out;
                "sharding": { "key": key, "unique": *is_unique, "at": Value::DateTime(*at_ms) }
            );
        }
        let mut shared = state.building.iter().filter(|build| build.owner().is_some()).peekable();
        if shared.peek().is_none() {
            return;
        }
        let mut building = out.begin_array("building");
        for build in shared {
            let mut item = building.begin_doc();
            item.append("uuid", Binary { subtype: 4, bytes: build.uuid() });
            item.append("owner", build.owner().unwrap_or_default());
            item.append("scratch", i64::from(build.scratch().0));
            item.append("generation", i64::from(build.generation()));
            item.append("closed", build.is_closed());
            put_indexes(&build.indexes, &mut item.begin_array("indexes"));
        }
    });
    let size = entry.as_doc().as_bytes().len();
    if size > Limits::MESSAGE.bytes_max { Err(too_large(size)) } else { Ok(entry) }
}

fn put_indexes(indexes: &[Arc<Index>], out: &mut ArrayWriter<'_>) {
    for index in indexes {
        let mut item = out.begin_doc();
        item.append("ident", i64::from(index.ident.0));
        item.append("spec", &index.spec.document);
        if let IndexKind::Places(Geography::Sphere { coarsest, .. }) = index.spec.kind {
            item.append("coarsest", i32::from(coarsest));
        }
    }
}

/// The limits of an entry that is read: it was checked when it was written, and its fields are
/// around values that commands have had.
const STORED: Limits = Limits { bytes_max: usize::MAX, depth_max: 2 * Limits::MESSAGE.depth_max };

/// Decodes an entry; reads the multikey marks of its indexes.
pub fn decode(bytes: &[u8], store: &dyn View) -> Result<Entry> {
    let doc = marula_bson::validate::validate(bytes, STORED)
        .map_err(|malformed| damaged_entry(&malformed.to_string()))?;
    let ns =
        doc.get("ns").and_then(|ns| ns.as_str()).ok_or_else(|| damaged_entry("no namespace"))?;
    let ns = Namespace::parse(&ns.to_string())?;
    let uuid = match doc.get("uuid") {
        Some(Value::Binary(Binary { subtype: 4, bytes })) => bytes.try_into().ok(),
        _ => None,
    };
    let uuid = uuid.ok_or_else(|| damaged_entry("no uuid"))?;
    let options = doc.get("options").and_then(|options| options.as_doc()).unwrap_or(Doc::EMPTY);
    let options = CollectionOptions::parse(options)?;
    let indexes = indexes_of(doc, store)?;
    let mut building = Vec::new();
    for item in doc.get("building").and_then(|all| all.as_array()).unwrap_or(Doc::EMPTY).values() {
        let item = item.as_doc().ok_or_else(|| damaged_entry("a build is not a document"))?;
        let number = |name: &str| item.get(name).and_then(|number| number.as_exact_i64());
        let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
        let uuid = match item.get("uuid") {
            Some(Value::Binary(Binary { subtype: 4, bytes })) => bytes.try_into().ok(),
            _ => None,
        };
        let (Some(uuid), Some(owner), Some(scratch), Some(generation)) =
            (uuid, number("owner"), small("scratch"), small("generation"))
        else {
            return Err(damaged_entry("a build lacks a field"));
        };
        let build = Build::new(uuid, indexes_of(item, store)?, Ident(scratch), Some(owner));
        build.set_stage(generation, item.get("closed").is_some_and(|closed| closed.is_truthy()));
        building.push(Arc::new(build));
    }
    let sharding = doc.get("sharding").map(sharding_of).transpose()?;
    Ok(Entry { ns, uuid, state: State { options, indexes, building, sharding } })
}

fn sharding_of(value: Value<'_>) -> Result<Sharding> {
    let doc = value.as_doc().ok_or_else(|| damaged_entry("the sharding is not a document"))?;
    let key = doc.get("key").and_then(|key| key.as_doc());
    let (Some(key), Some(Value::DateTime(at_ms))) = (key, doc.get("at")) else {
        return Err(damaged_entry("the sharding lacks a field"));
    };
    let is_unique = doc.get("unique").is_some_and(|unique| unique.is_truthy());
    Ok(Sharding { key: key.to_buf(), is_unique, at_ms })
}

/// The `indexes` of an entry or a build.
fn indexes_of(doc: Doc<'_>, store: &dyn View) -> Result<Vec<Arc<Index>>> {
    let mut indexes = Vec::new();
    let items = doc.get("indexes").and_then(|indexes| indexes.as_array()).unwrap_or(Doc::EMPTY);
    for item in items.values() {
        let item = item.as_doc().ok_or_else(|| damaged_entry("an index is not a document"))?;
        let ident = item.get("ident").and_then(|ident| ident.as_exact_i64());
        let ident = ident.and_then(|ident| u32::try_from(ident).ok());
        let ident = ident.ok_or_else(|| damaged_entry("an index has no ident"))?;
        let spec = item.get("spec").and_then(|spec| spec.as_doc());
        let spec = spec.ok_or_else(|| damaged_entry("an index has no specification"))?;
        let mut spec = IndexSpec::parse(spec, None)?;
        if item.get("coarsest").and_then(|level| level.as_exact_i64()).unwrap_or(0) == 0 {
            spec.kind = spec.kind.with_all_cells();
        }
        indexes.push(Arc::new(Index::load(Ident(ident), spec, store)?));
    }
    Ok(indexes)
}

//! Index filters: for a shape of queries, the indexes that its plans may use.
//!
//! They are an operator's means (`planCacheSetFilter`), kept in memory with their collection, and
//! go before a hint. A filter whose indexes are of no use leaves the walk over all documents.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use marula_db::index::IndexSpec;
use marula_db::index::spec::same_pattern;
use parking_lot::RwLock;

use crate::query::Query;
use crate::shape::query_shape;

/// How many filters a collection has at most; one more takes the place of the oldest.
const FILTERS_MAX: usize = 10_000;

/// The indexes that plans of a shape may use.
#[derive(Debug, Default)]
pub struct AllowedIndexes {
    keys: Vec<DocBuf>,
    names: Vec<String>,
}

impl AllowedIndexes {
    /// Those that an array names, by key pattern or by name; other values are passed over.
    pub fn new(indexes: Doc<'_>) -> Self {
        let mut allowed = AllowedIndexes::default();
        for index in indexes.values() {
            match index {
                Value::Document(key) if !allowed.has_key(key) => allowed.keys.push(key.to_buf()),
                Value::String(name) if !allowed.has_name(&name.to_string()) => {
                    allowed.names.push(name.to_string());
                }
                _ => {}
            }
        }
        allowed
    }

    fn has_key(&self, key: Doc<'_>) -> bool {
        self.keys.iter().any(|known| same_pattern(known.as_doc(), key))
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Whether an index is among them.
    pub fn allows(&self, index: &IndexSpec) -> bool {
        self.has_key(index.key.as_doc()) || self.has_name(&index.name)
    }
}

/// The filter of one shape.
struct IndexFilter {
    shape: u64,
    /// Query, sort, projection and collation, as they were given.
    asked: DocBuf,
    allowed: Arc<AllowedIndexes>,
}

/// The filters of a collection.
#[derive(Default)]
pub struct IndexFilters {
    filters: RwLock<Vec<IndexFilter>>,
}

impl IndexFilters {
    /// What the filter for the shape of `query` allows, where there is one.
    pub fn find(&self, query: &Query) -> Option<Arc<AllowedIndexes>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = query_shape(query);
        filters.iter().find(|filter| filter.shape == shape).map(|filter| filter.allowed.clone())
    }

    /// Sets the filter for a shape. `asked` is how the shape was given.
    pub fn set(&self, shape: u64, asked: DocBuf, allowed: AllowedIndexes) {
        let mut filters = self.filters.write();
        filters.retain(|filter| filter.shape != shape);
        if filters.len() >= FILTERS_MAX {
            filters.remove(0);
        }
        filters.push(IndexFilter { shape, asked, allowed: Arc::new(allowed) });
    }

    /// Removes the filter of a shape, or all.
    pub fn clear(&self, shape: Option<u64>) {
        self.filters.write().retain(|filter| shape.is_some_and(|shape| filter.shape != shape));
    }

    /// The filters.
    ///
    /// Shape: `{ query, sort, projection, [collation,] indexes: [ <key pattern>, …, <name>, … ] }`.
    pub fn list(&self) -> Vec<DocBuf> {
        let filters = self.filters.read();
        filters
            .iter()
            .map(|filter| {
                DocBuf::build(|out| {
                    out.append_elements(filter.asked.as_doc().elements_bytes());
                    let mut indexes = out.begin_array("indexes");
                    filter.allowed.keys.iter().for_each(|key| {
                        indexes.push(key);
                    });
                    filter.allowed.names.iter().for_each(|name| {
                        indexes.push(name.as_str());
                    });
                })
            })
            .collect()
    }
}

//! Index filters: for a shape of queries, the indexes that its plans may use.
//!
//! An operator sets them with `planCacheSetFilter`. They are kept in memory with their collection,
//! and take precedence over a hint. If no index of a filter can serve a query, all documents are
//! scanned.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use parking_lot::RwLock;

use crate::index::IndexSpec;
use crate::index::spec::same_pattern;

/// The largest number of filters of a collection; one more replaces the oldest.
const FILTERS_MAX: usize = 10_000;

/// The indexes that plans of a shape may use.
#[derive(Debug, Default)]
pub struct AllowedIndexes {
    keys: Vec<DocBuf>,
    names: Vec<String>,
}

impl AllowedIndexes {
    /// The indexes that an array names, by key pattern or by name; other values are ignored.
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

    /// Returns whether an index is among them.
    pub fn allows(&self, index: &IndexSpec) -> bool {
        self.has_key(index.key.as_doc()) || self.has_name(&index.name)
    }
}

/// The filter of one shape.
struct IndexFilter {
    shape: u64,
    /// Query, sort, projection and collation, as the operator gave them.
    asked: DocBuf,
    allowed: Arc<AllowedIndexes>,
}

/// The filters of a collection.
#[derive(Default)]
pub struct IndexFilters {
    filters: RwLock<Vec<IndexFilter>>,
}

impl IndexFilters {
    /// The indexes that the filter of a shape allows, if there is one. `shape` is called only if
    /// the collection has filters.
    pub fn find(&self, shape: impl FnOnce() -> u64) -> Option<Arc<AllowedIndexes>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = shape();
        filters.iter().find(|filter| filter.shape == shape).map(|filter| filter.allowed.clone())
    }

    /// Sets the filter for a shape. `asked` describes the shape as the operator gave it.
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

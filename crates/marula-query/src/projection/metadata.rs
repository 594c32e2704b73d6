//! What a query knows of a document beside its fields, for `$meta`.

use marula_bson::{Doc, Value};

/// The metadata of one document; what was not asked for is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metadata<'a> {
    /// How well it matches `$text`.
    pub text_score: Option<f64>,
    /// The values the results are sorted by, as an array.
    pub sort_key: Option<Value<'a>>,
    /// The index entry that led to it, with field names.
    pub index_key: Option<Doc<'a>>,
    /// Its record id.
    pub record_id: Option<i64>,
    /// A random number for each document.
    pub rand_val: Option<f64>,
    /// How far it is, by `$geoNear`.
    pub geo_near_distance: Option<f64>,
    /// The point that was measured to, by `$geoNear`.
    pub geo_near_point: Option<Value<'a>>,
}

//! What a query knows of a document beside its fields, for `$meta`.

use marula_bson::{Doc, Value};

use crate::known::Known;

/// The kinds of metadata that `$meta` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Meta {
    TextScore,
    RandVal,
    SearchScore,
    SearchHighlights,
    SearchScoreDetails,
    GeoNearDistance,
    GeoNearPoint,
    RecordId,
    IndexKey,
    SortKey,
    TimeseriesBucketMinTime,
    TimeseriesBucketMaxTime,
}

/// Every kind by its name.
static NAMES: &[(&str, Meta)] = &[
    ("textScore", Meta::TextScore),
    ("randVal", Meta::RandVal),
    ("searchScore", Meta::SearchScore),
    ("searchHighlights", Meta::SearchHighlights),
    ("searchScoreDetails", Meta::SearchScoreDetails),
    ("geoNearDistance", Meta::GeoNearDistance),
    ("geoNearPoint", Meta::GeoNearPoint),
    ("recordId", Meta::RecordId),
    ("indexKey", Meta::IndexKey),
    ("sortKey", Meta::SortKey),
    ("timeseriesBucketMinTime", Meta::TimeseriesBucketMinTime),
    ("timeseriesBucketMaxTime", Meta::TimeseriesBucketMaxTime),
];

impl Meta {
    /// The name.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, meta)| *meta == self).map_or("", |(name, _)| name)
    }

    /// The kind of this name.
    pub fn from_name(name: &[u8]) -> Option<Meta> {
        NAMES.iter().find(|(other, _)| other.as_bytes() == name).map(|&(_, meta)| meta)
    }
}

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

impl<'a> Metadata<'a> {
    /// The same as expressions read it; `None` where they would find nothing.
    pub(crate) fn to_known(self) -> Option<Known> {
        let nearest = self.geo_near_distance.zip(self.geo_near_point);
        let known = Known {
            text_score: self.text_score,
            nearest: nearest.map(|(distance, place)| (distance, place.to_buf())),
            index_key: self.index_key.map(|key| key.to_buf()),
        };
        (known != Known::default()).then_some(known)
    }

    /// The value of one kind, if it is known.
    pub fn get(&self, meta: Meta) -> Option<Value<'a>> {
        match meta {
            Meta::TextScore => self.text_score.map(Value::Double),
            Meta::RandVal => self.rand_val.map(Value::Double),
            Meta::GeoNearDistance => self.geo_near_distance.map(Value::Double),
            Meta::GeoNearPoint => self.geo_near_point,
            Meta::RecordId => self.record_id.map(Value::Int64),
            Meta::IndexKey => self.index_key.map(Value::Document),
            Meta::SortKey => self.sort_key,
            Meta::SearchScore
            | Meta::SearchHighlights
            | Meta::SearchScoreDetails
            | Meta::TimeseriesBucketMinTime
            | Meta::TimeseriesBucketMaxTime => None,
        }
    }
}

//! The metadata of a document in a query, for `$meta`.

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
    VectorSearchScore,
    GeoNearDistance,
    GeoNearPoint,
    RecordId,
    IndexKey,
    SortKey,
    TimeseriesBucketMinTime,
    TimeseriesBucketMaxTime,
}

/// All kinds by name.
static NAMES: &[(&str, Meta)] = &[
    ("textScore", Meta::TextScore),
    ("randVal", Meta::RandVal),
    ("searchScore", Meta::SearchScore),
    ("searchHighlights", Meta::SearchHighlights),
    ("searchScoreDetails", Meta::SearchScoreDetails),
    ("vectorSearchScore", Meta::VectorSearchScore),
    ("geoNearDistance", Meta::GeoNearDistance),
    ("geoNearPoint", Meta::GeoNearPoint),
    ("recordId", Meta::RecordId),
    ("indexKey", Meta::IndexKey),
    ("sortKey", Meta::SortKey),
    ("timeseriesBucketMinTime", Meta::TimeseriesBucketMinTime),
    ("timeseriesBucketMaxTime", Meta::TimeseriesBucketMaxTime),
];

impl Meta {
    /// Returns the kind's name.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, meta)| *meta == self).map_or("", |(name, _)| name)
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &[u8]) -> Option<Meta> {
        NAMES.iter().find(|(other, _)| other.as_bytes() == name).map(|&(_, meta)| meta)
    }
}

/// The metadata of one document; values that were not asked for are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metadata<'a> {
    /// The score of the match of `$text`.
    pub text_score: Option<f64>,
    /// The values that the results are sorted by, as an array.
    pub sort_key: Option<Value<'a>>,
    /// The index entry that led to the document, with field names.
    pub index_key: Option<Doc<'a>>,
    /// The record id: a number, or the bytes of a clustered collection's key.
    pub record_id: Option<Value<'a>>,
    /// A random number for each document.
    pub rand_val: Option<f64>,
    /// The distance that `$geoNear` measured.
    pub geo_near_distance: Option<f64>,
    /// The point that `$geoNear` measured to.
    pub geo_near_point: Option<Value<'a>>,
}

impl<'a> Metadata<'a> {
    /// Converts to the form that expressions read; `None` if all values are absent.
    pub(crate) fn to_known(self) -> Option<Known> {
        let nearest = self.geo_near_distance.zip(self.geo_near_point);
        let known = Known {
            text_score: self.text_score,
            nearest: nearest.map(|(distance, place)| (distance, place.to_buf())),
            index_key: self.index_key.map(|key| key.to_buf()),
            record_id: self.record_id.map(|id| id.to_buf()),
            sort_key: self.sort_key.and_then(|key| key.as_array()).map(|key| key.to_buf()),
            bound_ms: None,
        };
        (known != Known::default()).then_some(known)
    }

    /// Returns the value of one kind, if it is known.
    pub fn get(&self, meta: Meta) -> Option<Value<'a>> {
        match meta {
            Meta::TextScore => self.text_score.map(Value::Double),
            Meta::RandVal => self.rand_val.map(Value::Double),
            Meta::GeoNearDistance => self.geo_near_distance.map(Value::Double),
            Meta::GeoNearPoint => self.geo_near_point,
            Meta::RecordId => self.record_id,
            Meta::IndexKey => self.index_key.map(Value::Document),
            Meta::SortKey => self.sort_key,
            Meta::SearchScore
            | Meta::SearchHighlights
            | Meta::SearchScoreDetails
            | Meta::VectorSearchScore
            | Meta::TimeseriesBucketMinTime
            | Meta::TimeseriesBucketMaxTime => None,
        }
    }
}

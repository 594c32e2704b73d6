//! The metadata of a document in a pipeline, for `$meta`.
//!
//! It goes with the document from stage to stage, and through sorts as bytes.

use marula_bson::{Doc, DocBuf, Value, ValueBuf};

use crate::projection::Metadata;
use crate::sort::DocMeta;

/// The metadata of one document. Most documents have none.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Known {
    /// The score of the text search at the front.
    pub text_score: Option<f64>,
    /// The distance from the point that `$geoNear` searched from, and the point that was measured
    /// to.
    pub nearest: Option<(f64, ValueBuf)>,
    /// The index entry that led to the document, with field names.
    pub index_key: Option<DocBuf>,
    /// The record id, as far as the query's own projection shows it.
    pub record_id: Option<ValueBuf>,
    /// The values that the query sorted by, an array; it is empty if the query has no order.
    pub sort_key: Option<DocBuf>,
    /// For a measurement of ordered buckets, the time that neither it nor any later one is ahead
    /// of. It is not kept with documents that wait.
    pub bound_ms: Option<i64>,
}

impl Known {
    /// Converts to a projection's metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata {
            text_score: self.text_score,
            geo_near_distance: self.nearest.as_ref().map(|(distance, _)| *distance),
            geo_near_point: self.nearest.as_ref().map(|(_, place)| place.get()),
            index_key: self.index_key.as_ref().map(DocBuf::as_doc),
            record_id: self.record_id.as_ref().map(ValueBuf::get),
            sort_key: self.sort_key.as_ref().map(|key| Value::Array(key.as_doc())),
            ..Metadata::default()
        }
    }

    /// Converts to a sort's metadata.
    pub(crate) fn sort_meta(&self) -> DocMeta {
        let geo_near_distance = self.nearest.as_ref().map(|(distance, _)| *distance);
        DocMeta { text_score: self.text_score, geo_near_distance, ..DocMeta::default() }
    }

    /// Converts to a document, which is stored next to a document that waits.
    pub(crate) fn to_doc(&self) -> DocBuf {
        DocBuf::build(|out| {
            if let Some(score) = self.text_score {
                out.append("score", score);
            }
            if let Some((distance, place)) = &self.nearest {
                out.append("distance", *distance).append_raw("place", place.as_raw());
            }
            if let Some(key) = &self.index_key {
                out.append("key", key);
            }
            if let Some(id) = &self.record_id {
                out.append_raw("record", id.as_raw());
            }
            if let Some(key) = &self.sort_key {
                out.append("sorted", Value::Array(key.as_doc()));
            }
        })
    }

    /// Reads the form that [`to_doc`](Known::to_doc) writes; returns `None` if it is empty.
    pub(crate) fn from_doc(doc: Doc<'_>) -> Option<Known> {
        if doc.is_empty() {
            return None;
        }
        let distance = doc.get("distance").and_then(|distance| distance.as_f64());
        Some(Known {
            text_score: doc.get("score").and_then(|score| score.as_f64()),
            nearest: distance.zip(doc.get("place").map(|place| place.to_buf())),
            index_key: doc.get("key").and_then(|key| key.as_doc()).map(|key| key.to_buf()),
            record_id: doc.get("record").map(|id| id.to_buf()),
            sort_key: doc.get("sorted").and_then(|key| key.as_array()).map(|key| key.to_buf()),
            bound_ms: None,
        })
    }
}

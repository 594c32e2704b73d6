//! The order of buckets, and the measurements that come out of them in the order of their time.
//!
//! Buckets are read in the order of their least or their greatest time, from the clustered index or
//! from one on the meta value and the time, if that costs nothing. All measurements of a bucket lie
//! within its span, so the time of one bucket bounds those of all that follow, and a sort by time
//! need not wait for the last of them.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, FieldPath, Value};
use marula_error::Result;

use super::UnpackBucket;
use super::digest::Digest;
use super::push::{MAX, MIN};
use crate::context::Context;
use crate::sort::SortPattern;
use crate::stage::bounded_sort::BoundedSort;
use crate::stage::{Kind, Pipeline, Stage};

/// The order in which buckets come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::stage) struct TimeOrder {
    /// The time of a bucket that they are ordered by.
    pub(in crate::stage) base: Base,
    /// Whether later buckets come first.
    pub(in crate::stage) is_descending: bool,
    /// The offset from that time to the first that a bucket's measurement may have, in seconds.
    pub(in crate::stage) offset_seconds: i64,
}

/// The time of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::stage) enum Base {
    /// The least one, rounded down.
    Min,
    /// The greatest one.
    Max,
}

impl Base {
    /// Returns the name that `explain` shows.
    pub(in crate::stage) fn name(self) -> &'static str {
        match self {
            Base::Min => "min",
            Base::Max => "max",
        }
    }
}

impl TimeOrder {
    /// Returns the time that no measurement of a bucket, or of one after it, is ahead of.
    pub(super) fn bound_ms(&self, bucket: Doc<'_>, time_field: &[u8]) -> Option<i64> {
        let control = bucket.get("control")?.as_doc()?;
        let time = control.get(self.base.name())?.as_doc()?.get(time_field)?;
        let Value::DateTime(time_ms) = time else { return None };
        Some(time_ms.saturating_add(self.offset_seconds.saturating_mul(1_000)))
    }
}

/// The times that buckets are ordered by in each of [`UnpackBucket::orders`].
const BASES: [Base; 3] = [Base::Min, Base::Max, Base::Min];

/// The buckets that have the latest measurement of each meta value.
pub struct LatestOfEach {
    /// The path of the meta value in buckets.
    pub key: FieldPath,
    /// The order in which the first bucket of each value has its latest measurement.
    pub order: SortPattern,
}

impl UnpackBucket {
    /// Returns the orders of buckets of which each lets a sort of their measurements in `after`
    /// return its first documents early.
    ///
    /// The numbers of the orders are those of [`with_order`](UnpackBucket::with_order).
    pub fn orders(&self, after: &[Arc<dyn Stage>], context: &Context) -> Result<Vec<SortPattern>> {
        let (true, Some((_, is_descending))) =
            (matches!(self.digest, Digest::Whole), self.sort_by_time_in(after))
        else {
            return Ok(Vec::new());
        };
        let Some(time) = self.plain_time_field() else { return Ok(Vec::new()) };
        let direction = if is_descending { -1 } else { 1 };
        let of = |path: String| {
            let order = DocBuf::build(|out| {
                out.append(&path, direction);
            });
            SortPattern::parse(order.as_doc(), context)
        };
        let mut orders = vec![of(format!("{MIN}.{time}"))?, of(format!("{MAX}.{time}"))?];
        // The first seconds of an `_id` are those of the least time, if they can hold it.
        if !self.uses_extended_range {
            orders.push(of("_id".into())?);
        }
        Ok(orders)
    }

    /// Returns the stages with a sort that relies on the order of buckets with this number;
    /// `stages` are this stage and those after it.
    pub(in crate::stage) fn with_order(
        &self,
        stages: &[Arc<dyn Stage>],
        number: usize,
    ) -> Vec<Arc<dyn Stage>> {
        let mut whole = stages.to_vec();
        let Some((at, is_descending)) = self.sort_by_time_in(&stages[1..]) else { return whole };
        let Kind::Sort(sort) = stages[at + 1].kind() else { return whole };
        let base = BASES[number];
        let offset_seconds = match (base, is_descending) {
            (Base::Min, true) => self.span_seconds,
            (Base::Max, false) => -self.span_seconds,
            _ => 0,
        };
        let order = TimeOrder { base, is_descending, offset_seconds };
        let bounded = BoundedSort::new(sort.clone(), self.time_field.clone(), order);
        whole[at + 1] = Arc::new(bounded);
        whole[0] = Arc::new(UnpackBucket { time_order: Some(order), ..self.clone() });
        whole
    }

    /// Returns the buckets that suffice, if `after` takes only the latest measurement of each meta
    /// value.
    pub fn latest_of_each(
        &self,
        after: &[Arc<dyn Stage>],
        context: &Context,
    ) -> Result<Option<LatestOfEach>> {
        let (Some(key), Some(time)) = (self.key_of_latest(after), self.plain_time_field()) else {
            return Ok(None);
        };
        let order = DocBuf::build(|out| {
            out.append(key.to_string(), 1);
            out.append(format!("{MAX}.{time}"), -1);
        });
        let order = SortPattern::parse(order.as_doc(), context)?;
        Ok(Some(LatestOfEach { key, order }))
    }

    /// Returns the position of a sort by only the time, and whether it is descending; `None` if
    /// stages before it change the order or the time.
    fn sort_by_time_in(&self, after: &[Arc<dyn Stage>]) -> Option<(usize, bool)> {
        if !self.shown.has(&self.time_field) {
            return None;
        }
        for (at, stage) in after.iter().enumerate() {
            match stage.kind() {
                Kind::Match(_) => {}
                Kind::Sort(sort) => {
                    let (is_descending, None) = self.sort_by_time(sort)? else { return None };
                    return Some((at, is_descending));
                }
                _ if stage.is_one_to_one() && stage.passage().keeps(&self.time_field) => {}
                _ => return None,
            }
        }
        None
    }

    /// Returns the time field, if it can be part of a path.
    pub(super) fn plain_time_field(&self) -> Option<&str> {
        let time = std::str::from_utf8(&self.time_field).ok()?;
        (!time.is_empty() && !time.starts_with('$')).then_some(time)
    }
}

impl Pipeline {
    /// Returns a pipeline that begins with buckets, for buckets that come in the order with this
    /// number of [`UnpackBucket::orders`].
    #[must_use]
    pub fn over_ordered_buckets(self, number: usize) -> Pipeline {
        let Some(Kind::Unpack(unpack)) = self.stages().first().map(|stage| stage.kind()) else {
            return self;
        };
        Pipeline::from_stages(unpack.with_order(self.stages(), number)).asking(self.asked())
    }
}

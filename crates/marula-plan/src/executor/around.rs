//! A scan of part of a clustered collection, with the counts of mongod.
//!
//! mongod starts at a bound by seeking to the record there or, if there is none, to the record
//! before it, and ends by reading the record after the range. A normal scan reads neither. A scan
//! whose counts are reported or compared with other plans' units of work uses this module.

use std::cmp::Ordering;

use marula_db::collection::RecordCursor;
use marula_error::Result;
use marula_storage::Direction;

use super::run::Stats;
use super::scan::{Open, Position, ScanState};
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::clustered::{ClusteredScan, ScanEnd};
use crate::plan::Collscan;

impl Collscan {
    /// Reads one record, which may be one next to the range.
    pub(super) fn work_around(
        &self,
        records: &ClusteredScan,
        (stats, scan): (&mut Stats, &mut ScanState),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Collscan { direction, filter, .. } = self;
        let open = &mut env.open[scan.number];
        let there_is_one = if let Open::Records(cursor) = open {
            scan.is_held || cursor.advance()?
        } else {
            let mut cursor = env.collection.scan(env.view, *direction)?;
            let there_is_one = match &scan.position {
                Position::At(record) => scan.go_on(record, &mut cursor)?,
                Position::Start | Position::End => {
                    let mut in_front = env.collection.scan(env.view, direction.reversed())?;
                    begin(records, *direction, &mut in_front, &mut cursor)?
                }
            };
            *open = Open::Records(cursor);
            there_is_one
        };
        let cursor = match open {
            Open::Records(cursor) if there_is_one => cursor,
            _ => return Ok(scan.end(open)),
        };
        let was_held = std::mem::replace(&mut scan.is_held, false);
        stats.docs += u64::from(!was_held);
        let (record, doc) = (cursor.record(), cursor.doc());
        let is_walked = *records.range.start <= *record && *record < *records.range.end;
        let is_met = is_walked && filter.as_ref().map_or(Ok(true), |filter| filter.matches(doc))?;
        if !is_met {
            return Ok(match records.ends_at(record, *direction) {
                true => scan.end(open),
                false => Step::NeedTime,
            });
        }
        let answer = out(Found::fetched(doc, record))?;
        scan.is_held = answer == Emit::Full;
        Ok(Step::Advanced(answer))
    }
}

/// Moves to mongod's start: the record at the bound, the nearest one before it, or the first one
/// after it.
fn begin(
    records: &ClusteredScan,
    direction: Direction,
    in_front: &mut RecordCursor<'_>,
    cursor: &mut RecordCursor<'_>,
) -> Result<bool> {
    let bound = match direction {
        Direction::Forward => &records.low,
        Direction::Backward => &records.high,
    };
    let Some(ScanEnd { key, .. }) = bound else { return cursor.advance() };
    let from = match in_front.seek(key)? {
        true => in_front.record(),
        false => key,
    };
    cursor.seek(from)
}

impl ClusteredScan {
    /// Returns whether mongod ends a scan at a record that is not returned. It uses the
    /// inclusiveness of the greatest `_id` for the last record, in either direction.
    fn ends_at(&self, record: &[u8], direction: Direction) -> bool {
        let is_last_in = self.high.as_ref().is_none_or(|high| high.is_inclusive);
        let (end, behind) = match direction {
            Direction::Forward => (&self.high, Ordering::Greater),
            Direction::Backward => (&self.low, Ordering::Less),
        };
        end.as_ref().is_some_and(|end| match record.cmp(&end.key) {
            Ordering::Equal => !is_last_in,
            order => order == behind,
        })
    }
}

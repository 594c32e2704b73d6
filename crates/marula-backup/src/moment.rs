//! Selects the backup and the part of the log for a restore to a point in time.

use crate::log::{Run, Segment};
use crate::manifest::Manifest;
use crate::{Error, Result, log};

/// The point in time to restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The latest point in time.
    Latest,
    /// This time, in microseconds since 1970: every commit acknowledged before it, and none that
    /// started after it.
    At(i64),
}

/// A backup, and the log to apply to it.
#[derive(Debug)]
pub struct Way<'l> {
    /// The backup to start with.
    pub backup: &'l Manifest,
    /// The segments to apply, in order. Writes that are already in the backup are skipped.
    pub segments: Vec<&'l Segment>,
    /// The end of these segments, in microseconds since 1970.
    pub until_us: i64,
    /// Whether a segment after them is missing.
    is_cut: bool,
}

/// A range of time to which a restore is possible, in microseconds since 1970, both ends inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoreRange {
    /// The start.
    pub from_us: i64,
    /// The end.
    pub until_us: i64,
}

/// Selects the newest backup before a point in time whose log reaches it.
///
/// Errors: `Refused` if none reaches it; the text describes the possible points in time.
pub fn way_to<'l>(wanted: Wanted, backups: &'l [Manifest], runs: &'l [Run]) -> Result<Way<'l>> {
    let ways = backups.iter().map(|backup| longest_way(backup, runs));
    match wanted {
        Wanted::Latest => {
            let way = ways
                .max_by_key(|way| (way.until_us, way.backup.moment.until_us))
                .ok_or_else(|| Error::Refused("there are no backups".to_owned()))?;
            // An incomplete log must not be mistaken for the latest state.
            match way.is_cut {
                false => Ok(way),
                true => Err(Error::Damaged(format!(
                    "a part of the log is missing: the newest moment before it is --at '{}'",
                    exact_time(way.until_us)
                ))),
            }
        }
        Wanted::At(at_us) => {
            let mut way = ways
                .filter(|way| way.backup.moment.until_us <= at_us && way.until_us >= at_us)
                .max_by_key(|way| way.backup.moment.until_us)
                .ok_or_else(|| Error::Refused(not_reached(at_us, backups, runs)))?;
            // A segment that is complete until that time has, together with those before it, all
            // commits that were acknowledged before.
            let needed = way.segments.iter().position(|segment| segment.until_us >= at_us);
            way.segments.truncate(needed.map_or(way.segments.len(), |last| last + 1));
            way.until_us = at_us;
            Ok(way)
        }
    }
}

/// Returns the ranges of time to which a restore is possible, oldest first.
pub fn restore_ranges(backups: &[Manifest], runs: &[Run]) -> Vec<RestoreRange> {
    let mut all: Vec<RestoreRange> = backups
        .iter()
        .map(|backup| {
            let until_us = longest_way(backup, runs).until_us;
            RestoreRange { from_us: backup.moment.until_us, until_us }
        })
        .collect();
    all.sort_by_key(|range| range.from_us);
    let mut merged: Vec<RestoreRange> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if range.from_us <= last.until_us => {
                last.until_us = last.until_us.max(range.until_us);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Formats a time for messages.
pub fn shown_time(us: i64) -> String {
    match jiff::Timestamp::from_microsecond(us) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => format!("{us} µs"),
    }
}

/// Returns the last time to which a backup and its log can be restored, in microseconds since 1970.
pub(crate) fn reach_us(backup: &Manifest, runs: &[Run]) -> i64 {
    longest_way(backup, runs).until_us
}

fn longest_way<'l>(backup: &'l Manifest, runs: &'l [Run]) -> Way<'l> {
    let until_us = backup.moment.until_us;
    let own = Way { backup, segments: Vec::new(), until_us, is_cut: false };
    let Some(start) = &backup.log else { return own };
    let Some(run) = runs.iter().find(|run| run.id == start.run) else { return own };
    let log::Continuation { segments, until_us, is_whole } = run.from(start.sequence);
    Way { segments, until_us: own.until_us.max(until_us.unwrap_or(0)), is_cut: !is_whole, ..own }
}

/// Formats a time to the microsecond, as `--at` accepts it.
fn exact_time(us: i64) -> String {
    match jiff::Timestamp::from_microsecond(us) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => us.to_string(),
    }
}

fn not_reached(at_us: i64, backups: &[Manifest], runs: &[Run]) -> String {
    let restore_ranges = restore_ranges(backups, runs);
    let at = shown_time(at_us);
    if restore_ranges.is_empty() {
        return "there are no backups".to_owned();
    }
    let listed: Vec<String> = restore_ranges
        .iter()
        .map(|RestoreRange { from_us, until_us }| match from_us == until_us {
            true => format!("of {}", shown_time(*from_us)),
            false => format!("from {} to {}", shown_time(*from_us), shown_time(*until_us)),
        })
        .collect();
    format!("the backups do not reach {at}: there are moments {}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{put_segment, put_until, runs};
    use crate::manifest::LogStart;
    use crate::manifest::tests::manifest;
    use crate::work::tests::{folder, repository_in};

    #[test]
    fn the_newest_backup_whose_log_reaches_a_moment_is_the_way() {
        let folder = folder();
        let repository = repository_in(&folder);
        for (first, last, until) in [(1, 5, 110), (6, 9, 120), (10, 20, 130)] {
            put_segment(&repository, "r", (first, last), until, &[]).expect("it is put");
        }
        put_until(&repository, "r", 20, 150).expect("it is put");
        put_segment(&repository, "s", (1, 4), 210, &[]).expect("it is put");
        let backup = |id: &str, until_us, log: Option<(&str, u64)>| {
            let mut backup = manifest(id, until_us, Vec::new());
            backup.log = log.map(|(run, sequence)| LogStart { run: run.to_owned(), sequence });
            backup
        };
        let backups = [
            backup("a", 100, Some(("r", 2))),
            backup("b", 125, Some(("r", 9))),
            backup("alone", 140, None),
            backup("c", 200, Some(("s", 1))),
            backup("lost", 300, Some(("gone", 7))),
        ];
        let runs = runs(&repository).expect("they are listed");
        let way = |wanted| {
            let way = way_to(wanted, &backups, &runs).map_err(|error: Error| error.to_string())?;
            let segments: Vec<u64> = way.segments.iter().map(|segment| segment.first).collect();
            Ok::<_, String>((way.backup.id.clone(), segments, way.until_us))
        };
        for (at, id, segments) in [
            (100, "a", vec![1]),
            (110, "a", vec![1]),
            (111, "a", vec![1, 6]),
            (124, "a", vec![1, 6, 10]),
            (125, "b", vec![10]),
            (140, "alone", vec![]),
            (141, "b", vec![10]),
            (150, "b", vec![10]),
            (205, "c", vec![1]),
            (300, "lost", vec![]),
        ] {
            assert_eq!(way(Wanted::At(at)), Ok((id.to_owned(), segments, at)), "{at}");
        }
        for at in [0, 99, 151, 199, 211, 299, 301] {
            let refused = way(Wanted::At(at)).expect_err("nothing reaches it");
            assert!(refused.contains("do not reach"), "{refused}");
        }
        assert_eq!(way(Wanted::Latest), Ok(("lost".to_owned(), vec![], 300)));
        let expected = [(100, 150), (200, 210), (300, 300)];
        let expected = expected.map(|(from_us, until_us)| RestoreRange { from_us, until_us });
        assert_eq!(restore_ranges(&backups, &runs), expected);
        assert!(way_to(Wanted::Latest, &[], &runs).is_err());
        let cut = runs.iter().cloned().map(|mut run| {
            run.segments.retain(|segment| segment.first != 6);
            run
        });
        let cut: Vec<Run> = cut.collect();
        let refused = way_to(Wanted::Latest, &backups[..1], &cut).expect_err("there is a hole");
        assert!(refused.to_string().contains("is missing: the newest moment"), "{refused}");
        assert!(way_to(Wanted::At(105), &backups[..1], &cut).is_ok());
    }
}

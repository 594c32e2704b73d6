//! Removes old backups, and the objects and log that only they needed.
//!
//! ```text
//!   old manifests ─► objects without a manifest ─► log before the oldest backup
//! ```
//!
//! If a pruning is killed, it leaves objects without a manifest; the next pruning removes them.

use std::collections::HashSet;

use crate::log::{self, Run};
use crate::manifest::{Manifest, place_of};
use crate::repository::Repository;
use crate::underway::{Announcement, Work};
use crate::{Progress, Result, moment, work};

/// The number of concurrent removals; each is a request.
const THREADS: usize = 8;

/// The backups that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// The time in microseconds within which a restore to every point in time stays possible. So
    /// the newest backup before this window is kept too.
    pub window_us: i64,
    /// The number of newest backups that are kept whatever their age; at least one is kept.
    pub count_min: usize,
}

/// The result of a pruning, or with `is_trial` of a trial.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Pruned {
    /// The removed backups, oldest first.
    pub backups: Vec<String>,
    /// The number of backups that are kept.
    pub kept: usize,
    /// The number of removed objects.
    pub objects: usize,
    /// The size of the removed objects in bytes.
    pub bytes: u64,
    /// The number of removed log segments.
    pub segments: usize,
    /// The reason why objects and log were not pruned, if they were not.
    pub left: Option<String>,
}

/// Removes the backups that `retention` does not keep; `now_us` is the current time in microseconds
/// since 1970. With `is_trial` it removes nothing and only returns what it would remove.
///
/// Errors: `Target`; `Ended`.
pub fn prune(
    repository: &Repository,
    retention: Retention,
    now_us: i64,
    is_trial: bool,
    progress: &Progress,
) -> Result<Pruned> {
    let id = format!("{now_us}-{}", std::process::id());
    let announcement = match is_trial {
        true => None,
        false => Some(Announcement::make(repository, Work::Pruning, &id)?),
    };
    // This check comes before the listing of backups, so that a backup that ends after it is in the
    // listing. In the other order, a backup that ends in between would be neither in progress nor
    // listed, and its objects would be removed.
    let meets_backup = match &announcement {
        Some(announcement) => {
            announcement.clear_old()?;
            announcement.meets(Work::Backup)?
        }
        None => false,
    };
    let listing = repository.list()?;
    let runs = log::runs(repository)?;
    let (gone, kept) = parted(&listing.backups, &runs, retention, now_us);
    let mut pruned = Pruned {
        backups: gone.iter().map(|backup| backup.id.clone()).collect(),
        kept: kept.len(),
        ..Pruned::default()
    };
    if announcement.is_some() {
        for backup in &gone {
            repository.forget(&backup.id)?;
        }
    }
    if meets_backup {
        let reason = "a backup is being made; the next pruning removes what nobody needs";
        pruned.left = Some(reason.to_owned());
        return Ok(pruned);
    }
    if let Some((name, _)) = listing.unreadable.first() {
        pruned.left = Some(format!("'{name}' cannot be read, so what it needs is not known"));
        return Ok(pruned);
    }
    let named: HashSet<&str> = kept.iter().flat_map(|backup| backup.objects()).collect();
    let mut objects: Vec<(String, u64)> = repository.objects()?.into_iter().collect();
    objects.retain(|(object, _)| !named.contains(object.as_str()));
    pruned.objects = objects.len();
    pruned.bytes = objects.iter().map(|(_, bytes)| bytes).sum();
    let segments = outdated(&runs, &kept, now_us, retention);
    pruned.segments = segments.iter().map(|(_, segments, _)| segments.len()).sum();
    let Some(announcement) = &announcement else { return Ok(pruned) };
    work::each(&objects, THREADS, progress, |(object, _)| {
        announcement.renew()?;
        repository.target().delete(&place_of(object))
    })?;
    for (run, segments, is_whole) in segments {
        work::each(&segments, THREADS, progress, |segment| {
            announcement.renew()?;
            log::delete(repository, segment)
        })?;
        if is_whole {
            log::delete_until(repository, &run.id)?;
        }
    }
    Ok(pruned)
}

/// Returns the backups to remove and those to keep; `backups` is sorted by time.
fn parted<'l>(
    backups: &'l [Manifest],
    runs: &'l [Run],
    retention: Retention,
    now_us: i64,
) -> (Vec<&'l Manifest>, Vec<&'l Manifest>) {
    let begin_us = now_us.saturating_sub(retention.window_us);
    let young = backups.iter().filter(|backup| backup.moment.until_us > begin_us).count();
    // The newest backup before the window is needed to restore the start of the window.
    let kept_min = (young + 1).max(retention.count_min).max(1).min(backups.len());
    let old = &backups[..backups.len() - young];
    let newest = &old[(backups.len() - kept_min).min(old.len())..];
    let reach = |backup: &Manifest| moment::reach_us(backup, runs);
    let mut reached_us = newest.iter().map(reach).fold(begin_us, i64::max);
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    kept.extend(backups[backups.len() - kept_min..].iter().rev());
    // That backup may have no log, or a log that ends early. Then the window also needs the older
    // backup whose log reaches further.
    for backup in backups[..backups.len() - kept_min].iter().rev() {
        let until_us = reach(backup);
        if until_us > reached_us {
            reached_us = until_us;
            kept.push(backup);
        } else {
            gone.push(backup);
        }
    }
    gone.reverse();
    kept.reverse();
    (gone, kept)
}

/// Returns the segments that no kept backup needs, by run, and whether they are the whole run.
fn outdated<'r>(
    runs: &'r [Run],
    kept: &[&Manifest],
    now_us: i64,
    retention: Retention,
) -> Vec<(&'r Run, Vec<&'r log::Segment>, bool)> {
    let mut all = Vec::new();
    for run in runs {
        let starts = kept.iter().filter_map(|backup| backup.log.as_ref());
        let first = starts.filter(|start| start.run == run.id).map(|start| start.sequence).min();
        // A run whose first backup is in progress, or failed, is young.
        let is_old = now_us / 1000 - run.put_ms > (retention.window_us / 1000).max(DAY_MS);
        let is_whole = first.is_none() && is_old;
        let is_outdated = |segment: &&log::Segment| match first {
            Some(first) => segment.last <= first,
            None => is_whole,
        };
        let outdated: Vec<_> = run.segments.iter().filter(is_outdated).collect();
        // A run of a server that nobody wrote to has no segments.
        if is_whole || !outdated.is_empty() {
            all.push((run, outdated, is_whole));
        }
    }
    all
}

/// The minimum age of a run that no backup needs before it is removed.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Error;
    use crate::create::tests::source;
    use crate::create::{Extent, Known, create};
    use crate::fetch::compare;
    use crate::log::{put_segment, put_until, runs};
    use crate::manifest::LogStart;
    use crate::work::tests::{folder, repository_in};

    const HOUR: i64 = 3_600_000_000;

    fn keep(hours: i64, count_min: usize) -> Retention {
        Retention { window_us: hours * HOUR, count_min }
    }

    #[test]
    fn what_nobody_needs_goes_and_the_rest_stays_whole() {
        let (data, target) = (folder(), folder());
        let repository = repository_in(&target);
        let progress = Progress::default();
        let mut backups = Vec::new();
        for hour in 1..=5_i64 {
            fs::write(data.path().join("1.sst"), b"common").expect("it is written");
            fs::write(data.path().join("2.sst"), hour.to_string()).expect("it is written");
            let mut source = source(data.path(), hour * HOUR);
            source.log = Some(LogStart { run: "r".to_owned(), sequence: hour as u64 * 10 });
            let known = Known::default();
            let made = create(&repository, &source, Extent::Incremental, &known, 1, &progress);
            backups.push(made.expect("it is made"));
            let numbers = (hour as u64 * 10 + 1, hour as u64 * 10 + 10);
            put_segment(&repository, "r", numbers, (hour + 1) * HOUR, &[]).expect("it is put");
        }
        repository
            .put(&place_of(&"0".repeat(64)), b"of a backup that was killed")
            .expect("it is put");
        let now_us = 5 * HOUR + HOUR / 2;
        let pruned = |retention, is_trial| {
            prune(&repository, retention, now_us, is_trial, &progress).expect("it is pruned")
        };
        let trial = pruned(keep(2, 0), true);
        assert_eq!((trial.backups.len(), trial.kept, trial.segments), (2, 3, 2));
        assert_eq!(repository.list().expect("it is listed").backups.len(), 5);
        // The window is the last two hours, from 3.5 on; it needs the backup of 3.
        assert_eq!(pruned(keep(2, 0), false), trial);
        assert_eq!(trial.objects, 3, "those of two backups, and one of none");
        let left = repository.list().expect("it is listed").backups;
        assert_eq!(left, backups[2..]);
        for backup in &left {
            compare(&repository, backup, 1, &progress).expect("it is whole");
        }
        assert_eq!(runs(&repository).expect("they are listed")[0].segments.len(), 3);
        assert_eq!(pruned(keep(0, 2), false).kept, 2);
        assert_eq!(pruned(keep(0, 0), false).kept, 1, "the newest one always stays");
    }

    #[test]
    fn a_backup_without_log_does_not_replace_one_with_it() {
        let (data, target) = (folder(), folder());
        let repository = repository_in(&target);
        let progress = Progress::default();
        fs::write(data.path().join("1.sst"), b"x").expect("it is written");
        let mut made = Vec::new();
        for (hour, sequence) in [(1, Some(10)), (2, Some(20)), (3, None), (6, Some(60))] {
            let mut source = source(data.path(), hour * HOUR);
            source.log = sequence.map(|sequence| LogStart { run: "r".to_owned(), sequence });
            let known = Known::default();
            let backup = create(&repository, &source, Extent::Incremental, &known, 1, &progress);
            made.push(backup.expect("it is made"));
        }
        for (numbers, until) in [((11, 20), 2), ((21, 60), 6), ((61, 70), 7)] {
            put_segment(&repository, "r", numbers, until * HOUR, &[]).expect("it is put");
        }
        // The window begins at 4. The newest backup before it, of 3, has no log: the moments up to
        // 6 need the backup of 2 and its log.
        let pruned = prune(&repository, keep(3, 0), 7 * HOUR, false, &progress);
        let pruned = pruned.expect("it is pruned");
        assert_eq!(pruned.backups, [made[0].id.clone()]);
        assert_eq!((pruned.kept, pruned.segments), (3, 1));
        let left = repository.list().expect("it is listed").backups;
        let runs = runs(&repository).expect("they are listed");
        let way = moment::way_to(moment::Wanted::At(5 * HOUR), &left, &runs).expect("it is there");
        assert_eq!(way.backup.id, made[1].id);
    }

    #[test]
    fn a_run_that_no_backup_needs_goes_whole_when_it_is_old() {
        let target = folder();
        let repository = repository_in(&target);
        let progress = Progress::default();
        put_segment(&repository, "written", (1, 2), HOUR, &[]).expect("it is put");
        put_until(&repository, "written", 2, HOUR).expect("it is put");
        put_until(&repository, "idle", 0, HOUR).expect("it is put");
        let now_us = 1000 * runs(&repository).expect("they are listed")[0].put_ms;
        for (hours, left) in [(23, 2), (25, 0)] {
            prune(&repository, keep(0, 0), now_us + hours * HOUR, false, &progress)
                .expect("it is pruned");
            assert_eq!(runs(&repository).expect("they are listed").len(), left);
        }
        assert_eq!(repository.target().list("log/").expect("it is listed"), []);
    }

    #[test]
    fn objects_stay_while_a_backup_is_made_or_a_manifest_cannot_be_read() {
        let (data, target) = (folder(), folder());
        let repository = repository_in(&target);
        let progress = Progress::default();
        for hour in [1, 2] {
            fs::write(data.path().join("2.sst"), hour.to_string()).expect("it is written");
            let source = source(data.path(), hour * HOUR);
            create(&repository, &source, Extent::Incremental, &Known::default(), 1, &progress)
                .expect("it is made");
        }
        let pruned =
            || prune(&repository, keep(0, 0), 3 * HOUR, false, &progress).expect("it is pruned");
        let other = Announcement::make(&repository, Work::Backup, "x").expect("it is announced");
        let first = pruned();
        assert_eq!((first.backups.len(), first.objects), (1, 0));
        assert!(first.left.is_some());
        drop(other);
        let manifest = target.path().join("t/backups/broken.json");
        fs::write(&manifest, b"{}").expect("it is written");
        assert!(pruned().left.is_some_and(|why| why.contains("broken")));
        fs::remove_file(manifest).expect("it is removed");
        assert_eq!(pruned().objects, 1);
    }

    #[test]
    fn a_backup_waits_for_a_pruning() {
        let (data, target) = (folder(), folder());
        let repository = repository_in(&target);
        fs::write(data.path().join("1.sst"), b"x").expect("it is written");
        let pruning = Announcement::make(&repository, Work::Pruning, "x").expect("it is announced");
        let progress = Progress::default();
        let source = source(data.path(), HOUR);
        let known = Known::default();
        std::thread::scope(|scope| {
            let backup = scope.spawn(|| {
                let (repository, source) = (&repository, &source);
                create(repository, source, Extent::Incremental, &known, 1, &progress)
            });
            let announced = || repository.target().list("underway/backup/").expect("it is listed");
            while announced().is_empty() {
                std::thread::yield_now();
            }
            assert!(repository.objects().expect("they are listed").is_empty());
            drop(pruning);
            backup.join().expect("it ends").expect("it is made");
        });
        progress.end();
        let pruning = Announcement::make(&repository, Work::Pruning, "x").expect("it is announced");
        let ended = create(&repository, &source, Extent::Incremental, &known, 1, &progress);
        assert!(matches!(ended, Err(Error::Ended)));
        drop(pruning);
    }
}

//! The log of a server, sent while the server runs: every write, in commit order.
//!
//! A *run* is a part of the log without gaps. A *segment* has some of its writes:
//!
//! ```text
//! log/<run>/<first>-<last>-<until>   sealed; 20 digits each
//!   head    24 bytes   first, last, until; little-endian
//!   writes             each its length u32, then the write in the form of the engine's log
//! log/<run>/until      sealed: last, until; 16 bytes
//! ```
//!
//! `first` and `last` are the sequence numbers of writes. `until` is a time in microseconds since
//! 1970: all writes acknowledged before it are in this segment or an earlier one. The file `until`
//! is updated while there are no new writes, and after each segment, so that a missing last segment
//! is detected.

use crate::repository::Repository;
use crate::target::Stored;
use crate::{Error, Result};

const HEAD_BYTES: usize = 24;
/// The maximum size of a segment; a single write is at most one gigabyte.
const SEGMENT_BYTES_MAX: usize = 2 << 30;

/// A segment, as its name describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The sequence number of its first write.
    pub first: u64,
    /// The sequence number of its last write.
    pub last: u64,
    /// All writes acknowledged before this time are in this segment or an earlier one, in
    /// microseconds since 1970.
    pub until_us: i64,
    name: String,
}

/// A run of the log.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Run {
    /// The name of the run.
    pub id: String,
    /// Its segments in order.
    pub segments: Vec<Segment>,
    /// The contents of `until`: the last write, and the time until which it is the last.
    pub until: Option<(u64, i64)>,
    /// The error of reading `until`. Then `until` is unknown, and writes may be missing at the end.
    pub damage: Option<String>,
    /// The time when an object of it was last written, in milliseconds since 1970 by the target's
    /// clock.
    pub(crate) put_ms: i64,
}

/// The part of a run that continues from a backup.
#[derive(Debug)]
pub struct Continuation<'r> {
    /// Its segments, without gaps.
    pub segments: Vec<&'r Segment>,
    /// The time until which the segments are complete; `None` if no segment continues from the
    /// backup.
    pub until_us: Option<i64>,
    /// Whether the run ends with these segments. Otherwise a segment is missing, or may be missing.
    pub is_whole: bool,
}

/// Stores a segment. `writes` has the writes from `first` to `last`, appended with [`push_write`].
pub fn put_segment(
    repository: &Repository,
    run: &str,
    (first, last): (u64, u64),
    until_us: i64,
    writes: &[u8],
) -> Result<()> {
    let mut content = Vec::with_capacity(HEAD_BYTES + writes.len());
    content.extend_from_slice(&head(first, last, until_us));
    content.extend_from_slice(writes);
    repository.put(&segment_name(run, first, last, until_us), &content).map(drop)
}

/// Records that the log up to `last` is complete until `until_us`.
pub fn put_until(repository: &Repository, run: &str, last: u64, until_us: i64) -> Result<()> {
    let content = [last.to_le_bytes(), until_us.to_le_bytes()].concat();
    repository.put(&until_name(run), &content).map(drop)
}

/// Appends a write to the writes of a segment.
pub fn push_write(writes: &mut Vec<u8>, write: &[u8]) {
    let bytes = u32::try_from(write.len()).expect("a write is bounded by a gigabyte");
    writes.extend_from_slice(&bytes.to_le_bytes());
    writes.extend_from_slice(write);
}

/// Returns all runs.
///
/// If the time of a run is damaged, [`Run::damage`] has the error.
///
/// Errors: `Target`.
pub fn runs(repository: &Repository) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for stored in repository.target().list("log/")? {
        let Some((id, rest)) =
            stored.name.strip_prefix("log/").and_then(|name| name.split_once('/'))
        else {
            continue;
        };
        if runs.last().is_none_or(|last| last.id != id) {
            runs.push(Run { id: id.to_owned(), ..Run::default() });
        }
        runs.last_mut().expect("one was just pushed").add(rest, &stored, repository)?;
    }
    Ok(runs)
}

/// Returns one run.
///
/// Errors: those of [`runs`].
pub fn run(repository: &Repository, id: &str) -> Result<Run> {
    let prefix = format!("log/{id}/");
    let mut run = Run { id: id.to_owned(), ..Run::default() };
    for stored in repository.target().list(&prefix)? {
        let rest = stored.name.strip_prefix(&prefix).unwrap_or_default();
        run.add(rest, &stored, repository)?;
    }
    Ok(run)
}

/// Returns the number of the write after which the backups of a run need its log: the oldest
/// backup's. `None` if no backup continues with this run.
///
/// Errors: `Target`.
pub fn first_needed_after(repository: &Repository, run: &str) -> Result<Option<u64>> {
    let starts = repository.list()?.backups.into_iter().filter_map(|backup| backup.log);
    Ok(starts.filter(|start| start.run == run).map(|start| start.sequence).min())
}

/// Returns the writes of a segment.
///
/// Errors: `Damaged`; `Target`.
pub fn read_segment(repository: &Repository, segment: &Segment) -> Result<Vec<Vec<u8>>> {
    let name = &segment.name;
    let damaged = |what: &str| Error::Damaged(format!("log '{name}' {what}"));
    let content = repository.get(name, SEGMENT_BYTES_MAX)?.ok_or_else(|| damaged("is missing"))?;
    let Some((found, mut rest)) = content.split_first_chunk::<HEAD_BYTES>() else {
        return Err(damaged("is cut off"));
    };
    if *found != head(segment.first, segment.last, segment.until_us) {
        return Err(damaged("is of another name"));
    }
    let mut writes = Vec::new();
    while let Some((bytes, behind)) = rest.split_first_chunk() {
        let bytes = u32::from_le_bytes(*bytes) as usize;
        let (write, behind) =
            behind.split_at_checked(bytes).ok_or_else(|| damaged("is cut off"))?;
        writes.push(write.to_vec());
        rest = behind;
    }
    if rest.is_empty() { Ok(writes) } else { Err(damaged("is cut off")) }
}

/// Removes a segment.
pub(crate) fn delete(repository: &Repository, segment: &Segment) -> Result<()> {
    repository.target().delete(&segment.name)
}

/// Removes the file `until` of a run.
pub(crate) fn delete_until(repository: &Repository, run: &str) -> Result<()> {
    repository.target().delete(&until_name(run))
}

impl Run {
    /// Adds an object of the run, whose name ends with `rest`.
    fn add(&mut self, rest: &str, stored: &Stored, repository: &Repository) -> Result<()> {
        self.put_ms = self.put_ms.max(stored.put_ms);
        if rest == "until" {
            return self.read_until(repository);
        }
        self.segments.extend(Segment::of(rest, stored));
        Ok(())
    }

    fn read_until(&mut self, repository: &Repository) -> Result<()> {
        match until(repository, &self.id) {
            Ok(until) => self.until = until,
            Err(error @ Error::Damaged(_)) => self.damage = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the segments that continue after the write `sequence`.
    pub fn from(&self, sequence: u64) -> Continuation<'_> {
        let mut next = sequence + 1;
        let mut segments: Vec<&Segment> = Vec::new();
        let mut until = None;
        for segment in self.segments.iter().filter(|segment| segment.last > sequence) {
            if segment.first > next {
                break;
            }
            // Skip segments that were sent twice: a server was killed before it had recorded the
            // first one.
            if segment.last >= next {
                next = segment.last + 1;
                segments.push(segment);
            }
            until = until.max(Some(segment.until_us));
        }
        // The file `until` only counts if it is about the last write in the segments.
        if let Some((last, until_us)) = self.until
            && last < next
            && last >= sequence
        {
            until = until.max(Some(until_us));
        }
        // The continuation is whole if every known write is in it.
        let known = self.segments.iter().map(|segment| segment.last);
        let known = known.chain(self.until.map(|(last, _)| last)).max().unwrap_or(0);
        let is_whole = known < next && self.damage.is_none();
        Continuation { segments, until_us: until, is_whole }
    }
}

impl Segment {
    fn of(name: &str, stored: &Stored) -> Option<Segment> {
        let mut parts = name.split('-');
        let (first, last, until) = (parts.next()?, parts.next()?, parts.next()?);
        let segment = Segment {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            until_us: until.parse().ok()?,
            name: stored.name.clone(),
        };
        (parts.next().is_none() && segment.first <= segment.last).then_some(segment)
    }
}

fn until(repository: &Repository, run: &str) -> Result<Option<(u64, i64)>> {
    let name = until_name(run);
    let Some(content) = repository.get(&name, 16)? else { return Ok(None) };
    match content.split_first_chunk::<8>() {
        Some((last, until)) if until.len() == 8 => {
            let until = until.try_into().expect("it was just measured");
            Ok(Some((u64::from_le_bytes(*last), i64::from_le_bytes(until))))
        }
        _ => Err(Error::Damaged(format!("'{name}' is no time"))),
    }
}

fn head(first: u64, last: u64, until_us: i64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&first.to_le_bytes());
    head[8..16].copy_from_slice(&last.to_le_bytes());
    head[16..].copy_from_slice(&until_us.to_le_bytes());
    head
}

fn segment_name(run: &str, first: u64, last: u64, until_us: i64) -> String {
    format!("log/{run}/{first:020}-{last:020}-{until_us:020}")
}

fn until_name(run: &str) -> String {
    format!("log/{run}/until")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::LogStart;
    use crate::manifest::tests::manifest;
    use crate::work::tests::{folder, repository_in};

    fn reach(run: &Run, sequence: u64) -> Option<(Vec<u64>, i64)> {
        let Continuation { segments, until_us, is_whole } = run.from(sequence);
        let last = segments.last().map_or(sequence, |last| last.last);
        assert_eq!(is_whole, last >= 30, "{sequence}");
        Some((segments.iter().map(|segment| segment.first).collect(), until_us?))
    }

    #[test]
    fn segments_go_on_from_a_write_without_a_hole() {
        let folder = folder();
        let repository = repository_in(&folder);
        let mut writes = Vec::new();
        push_write(&mut writes, b"one");
        push_write(&mut writes, b"");
        for (first, last, until) in [(5, 8, 100), (9, 9, 200), (20, 30, 300)] {
            put_segment(&repository, "r", (first, last), until, &writes).expect("it is put");
        }
        let all = runs(&repository).expect("they are listed");
        assert_eq!(all, [run(&repository, "r").expect("it is read")]);
        let own = &all[0];
        let read = read_segment(&repository, &own.segments[0]).expect("it is read");
        assert_eq!(read, [b"one".to_vec(), Vec::new()]);
        assert_eq!(reach(own, 3), None, "write 4 is missing");
        assert_eq!(reach(own, 4), Some((vec![5, 9], 200)));
        assert_eq!(reach(own, 6), Some((vec![5, 9], 200)));
        assert_eq!(reach(own, 8), Some((vec![9], 200)));
        assert_eq!(reach(own, 9), None);
        put_until(&repository, "r", 30, 400).expect("it is put");
        let own = run(&repository, "r").expect("it is read");
        assert_eq!(reach(&own, 4), Some((vec![5, 9], 200)), "there is a hole before it");
        assert_eq!(reach(&own, 19), Some((vec![20], 400)));
        assert_eq!(reach(&own, 30), Some((Vec::new(), 400)));
        assert_eq!(reach(&own, 40), None, "it is older than that");
        repository.target().put("log/r/until", b"damaged".to_vec()).expect("it is put");
        let own = run(&repository, "r").expect("it is read");
        assert_eq!(runs(&repository).expect("they are listed"), std::slice::from_ref(&own));
        assert!(own.damage.is_some() && own.until.is_none());
        let continuation = own.from(19);
        assert_eq!((continuation.until_us, continuation.is_whole), (Some(300), false));
    }

    #[test]
    fn a_log_is_needed_from_the_oldest_backup_of_its_run() {
        let folder = folder();
        let repository = repository_in(&folder);
        for (id, run, sequence) in [("1", "r", 7), ("2", "r", 5), ("3", "s", 2)] {
            let mut backup = manifest(id, 0, Vec::new());
            backup.log = Some(LogStart { run: run.to_owned(), sequence });
            repository.put_manifest(&backup).expect("it is put");
        }
        let needed = |run| first_needed_after(&repository, run).expect("they are listed");
        assert_eq!([needed("r"), needed("s"), needed("t")], [Some(5), Some(2), None]);
    }
}

//! The log of a server, sent while it runs: every write, in the order of the commits.
//!
//! A *run* is a stretch of log without a hole. A *segment* holds some of its writes:
//!
//! ```text
//! log/<run>/<first>-<last>-<until>   sealed; 20 digits each
//!   head    24 bytes   first, last, until; little-endian
//!   writes             each its length u32, then the write as the engine's log has it
//! log/<run>/until      sealed: last, until; 16 bytes
//! ```
//!
//! `first` and `last` are the numbers of writes, `until` a time in microseconds since 1970: all
//! that was acknowledged before it is in this segment or an earlier one. `until` alone is put again
//! while nothing is written; after a segment, too, so that the last one cannot be lost unnoticed.

use crate::repository::Repository;
use crate::target::Stored;
use crate::{Error, Result};

const HEAD_BYTES: usize = 24;
/// The largest segment that is read: a write is bounded by a gigabyte.
const SEGMENT_BYTES_MAX: usize = 2 << 30;

/// A segment, as its name tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The number of its first write.
    pub first: u64,
    /// The number of its last write.
    pub last: u64,
    /// All that was acknowledged before this time is in it or an earlier one.
    pub until_us: i64,
    name: String,
    put_ms: i64,
}

/// A run of log.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// Its segments, in their order.
    pub segments: Vec<Segment>,
    /// The last write, and up to when that is known to be the last.
    pub until: Option<(u64, i64)>,
    /// The error of reading `until`; it then says nothing, and writes may be missing at the end.
    pub damage: Option<String>,
}

/// A part of a run that goes on from a backup.
#[derive(Debug)]
pub struct Stretch<'r> {
    /// Its segments, without a hole between them.
    pub segments: Vec<&'r Segment>,
    /// Up to when they are complete; nothing where nothing goes on.
    pub until_us: Option<i64>,
    /// Whether nothing of the run comes after them. Otherwise a segment is missing, or may be.
    pub is_whole: bool,
}

/// Stores a segment: `writes` are those from `first` to `last`, as [`push_write`] put them.
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

/// Says that nothing but what was stored was acknowledged before `until_us`.
pub fn put_until(repository: &Repository, run: &str, last: u64, until_us: i64) -> Result<()> {
    let content = [last.to_le_bytes(), until_us.to_le_bytes()].concat();
    repository.put(&until_name(run), &content).map(drop)
}

/// Appends a write to those of a segment.
pub fn push_write(writes: &mut Vec<u8>, write: &[u8]) {
    let bytes = u32::try_from(write.len()).expect("a write is bounded by a gigabyte");
    writes.extend_from_slice(&bytes.to_le_bytes());
    writes.extend_from_slice(write);
}

/// Every run.
///
/// A run whose time is damaged says so in [`Run::damage`].
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
        let run = runs.last_mut().expect("one was just pushed");
        if rest == "until" {
            run.read_until(repository)?;
        } else if let Some(segment) = Segment::of(rest, &stored) {
            run.segments.push(segment);
        }
    }
    Ok(runs)
}

/// One run.
///
/// Errors: as [`runs`].
pub fn run(repository: &Repository, id: &str) -> Result<Run> {
    let prefix = format!("log/{id}/");
    let stored = repository.target().list(&prefix)?;
    let segments =
        stored.iter().filter_map(|stored| Segment::of(stored.name.strip_prefix(&prefix)?, stored));
    let segments = segments.collect();
    let mut run = Run { id: id.to_owned(), segments, ..Run::default() };
    run.read_until(repository)?;
    Ok(run)
}

/// The writes of a segment.
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

/// Removes what says up to when a run is complete.
pub(crate) fn delete_until(repository: &Repository, run: &str) -> Result<()> {
    repository.target().delete(&until_name(run))
}

impl Run {
    fn read_until(&mut self, repository: &Repository) -> Result<()> {
        match until(repository, &self.id) {
            Ok(until) => self.until = until,
            Err(error @ Error::Damaged(_)) => self.damage = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// What goes on from the write `sequence`.
    pub fn from(&self, sequence: u64) -> Stretch<'_> {
        let mut next = sequence + 1;
        let mut segments: Vec<&Segment> = Vec::new();
        let mut until = None;
        for segment in self.segments.iter().filter(|segment| segment.last > sequence) {
            if segment.first > next {
                break;
            }
            // One that was put twice, by a server that was killed before it noted the first.
            if segment.last >= next {
                next = segment.last + 1;
                segments.push(segment);
            }
            until = until.max(Some(segment.until_us));
        }
        // It counts only where it is about the last write that is there.
        if let Some((last, until_us)) = self.until
            && last < next
            && last >= sequence
        {
            until = until.max(Some(until_us));
        }
        // Each write that is known of is there.
        let known = self.segments.iter().map(|segment| segment.last);
        let known = known.chain(self.until.map(|(last, _)| last)).max().unwrap_or(0);
        let is_whole = known < next && self.damage.is_none();
        Stretch { segments, until_us: until, is_whole }
    }

    /// When something was last put into it, by the target's clock.
    pub(crate) fn put_ms(&self) -> i64 {
        self.segments.iter().map(|segment| segment.put_ms).max().unwrap_or(0)
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
            put_ms: stored.put_ms,
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
    use crate::work::tests::folder;

    fn reach(run: &Run, sequence: u64) -> Option<(Vec<u64>, i64)> {
        let Stretch { segments, until_us, is_whole } = run.from(sequence);
        let last = segments.last().map_or(sequence, |last| last.last);
        assert_eq!(is_whole, last >= 30, "{sequence}");
        Some((segments.iter().map(|segment| segment.first).collect(), until_us?))
    }

    #[test]
    fn segments_go_on_from_a_write_without_a_hole() {
        let folder = folder();
        let address = folder.path().join("t").display().to_string();
        let repository = Repository::open_or_make(&address, None).expect("it is made");
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
        let stretch = own.from(19);
        assert_eq!((stretch.until_us, stretch.is_whole), (Some(300), false));
    }
}

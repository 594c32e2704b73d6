//! Gaps: ranges without keys, which scans step over.
//!
//! A deleted key stays in the memtable and the tables as a tombstone until a compaction removes it,
//! and a scan that begins among tombstones walks over each of them. The head of a queue consists of
//! them: ten thousand jobs, each taken from there, would cost fifty million steps over tombstones.
//! So a scan whose first step took long reports the range in which it found no key, and the next
//! scan begins at its end.
//!
//! ```text
//!   scan     slow first step over [a, b) ─► candidate ─► all writers since have looked ─► gap
//!   writer   enter ─► put a key: remove the gaps and candidates around it ─► commit ─► leave
//! ```
//!
//! **A gap never hides a key.** A writer looks at the list before it commits, but one that looked
//! before a candidate was added may still commit a key in it. So a candidate becomes a gap only
//! once all writers that entered before it have left, and only if a view that is not older than
//! that shows no key in it. It serves views of that moment and later ones: a writer removes it from
//! the list before its key can be seen.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use marula_storage::{KeyRange, Space};
use parking_lot::RwLock;

/// The maximum number of gaps and candidates of a space. The oldest are forgotten.
const GAPS_MAX: usize = 32;

/// The maximum length of the ends of a gap: longer keys take long to compare, with or without
/// tombstones, and would fill memory.
const KEY_BYTES_MAX: usize = 1024;

/// The gaps of all spaces.
#[derive(Default)]
pub(crate) struct Gaps {
    spaces: [SpaceGaps; Space::ALL.len()],
    writers: Writers,
}

#[derive(Default)]
struct SpaceGaps {
    /// The length of the list, read without its lock.
    count: AtomicUsize,
    /// In the order in which they were found.
    list: RwLock<Vec<Gap>>,
}

struct Gap {
    range: KeyRange,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Writers that entered before the end of this epoch may still put a key into it.
    Candidate { epoch: u64 },
    /// Those writers had left at this sequence number.
    Settled { at: u64 },
    /// There is no key in it in views of this sequence number and later ones.
    Known { since: u64 },
}

/// The writers that have not committed yet, by the epoch in which they entered. There are two
/// epochs with writers at most, the current one and the one before.
#[derive(Default)]
struct Writers {
    epoch: AtomicU64,
    counts: [AtomicU64; 2],
}

/// A writer that may put keys; dropped after its commit.
pub(crate) struct Writing<'g> {
    count: &'g AtomicU64,
}

impl Gaps {
    /// Enters a writer: before its first key.
    #[inline]
    pub(crate) fn enter(&self) -> Writing<'_> {
        self.writers.enter()
    }

    /// Removes the gaps around a key, which a writer that has entered is going to put.
    #[inline]
    pub(crate) fn fill(&self, space: Space, key: &[u8]) {
        let gaps = &self.spaces[space as usize];
        if gaps.count.load(Ordering::SeqCst) > 0 {
            gaps.remove(|gap| gap.contains(key));
        }
    }

    /// Enters a writer of unknown keys of a space, and removes all its gaps.
    pub(crate) fn fill_all(&self, space: Space) -> Writing<'_> {
        let writing = self.enter();
        self.spaces[space as usize].remove(|_| true);
        writing
    }

    /// The gap around `key` in a view of the sequence number `moment`, with those that continue it.
    #[inline]
    pub(crate) fn around(&self, space: Space, key: &[u8], moment: u64) -> Option<KeyRange> {
        self.joined(space, moment, |gap, found| gap.contains(found.map_or(key, |found| &found.end)))
    }

    /// The gap just before `key` in a view of the sequence number `moment`, with those that it
    /// continues.
    #[inline]
    pub(crate) fn before(&self, space: Space, key: &[u8], moment: u64) -> Option<KeyRange> {
        self.joined(space, moment, |gap, found| {
            gap.contains_before(found.map_or(key, |found| &found.start))
        })
    }

    /// The range of the gaps that `is_next` accepts one after another; it gets the range of those
    /// before.
    #[inline]
    fn joined(
        &self,
        space: Space,
        moment: u64,
        is_next: impl Fn(&Gap, Option<&KeyRange>) -> bool,
    ) -> Option<KeyRange> {
        let gaps = &self.spaces[space as usize];
        if gaps.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let list = gaps.list.read();
        let mut found: Option<KeyRange> = None;
        while let Some(gap) =
            list.iter().find(|gap| gap.serves(moment) && is_next(gap, found.as_ref()))
        {
            let KeyRange { start, end } = gap.range.clone();
            found = Some(match found {
                None => KeyRange { start, end },
                Some(found) => KeyRange { start: found.start.min(start), end: found.end.max(end) },
            });
        }
        found
    }

    /// Notes that a view of the sequence number `moment` shows no key in `range`. `newest` returns
    /// the sequence number of the newest commit.
    pub(crate) fn note_empty(
        &self,
        space: Space,
        range: KeyRange,
        moment: u64,
        newest: impl Fn() -> u64,
    ) {
        if range.start.len().max(range.end.len()) > KEY_BYTES_MAX {
            return;
        }
        let gaps = &self.spaces[space as usize];
        let mut list = gaps.list.write();
        if !list.iter().any(|gap| gap.range == range) {
            if list.len() == GAPS_MAX {
                list.remove(0);
            }
            let epoch = self.writers.epoch.load(Ordering::SeqCst);
            list.push(Gap { range: range.clone(), state: State::Candidate { epoch } });
            gaps.count.store(list.len(), Ordering::SeqCst);
        }
        // With no writer in between, the candidate can be a gap at once.
        let epoch = self.writers.advance_twice();
        let mut known = None;
        for gap in list.iter_mut() {
            if let State::Candidate { epoch: its_epoch } = gap.state
                && epoch >= its_epoch + 2
            {
                gap.state = State::Settled { at: newest() };
            }
            if let State::Settled { at } = gap.state
                && at <= moment
                && range.start <= gap.range.start
                && gap.range.end <= range.end
            {
                gap.state = State::Known { since: moment };
                known = Some(gap.range.clone());
            }
        }
        // A gap makes the smaller ones in it superfluous for all but views of the past.
        if let Some(known) = known {
            list.retain(|gap| gap.range == known || !gap.is_within(&known));
            gaps.count.store(list.len(), Ordering::SeqCst);
        }
    }
}

impl SpaceGaps {
    fn remove(&self, is_wanted: impl Fn(&Gap) -> bool) {
        if !self.list.read().iter().any(&is_wanted) {
            return;
        }
        let mut list = self.list.write();
        list.retain(|gap| !is_wanted(gap));
        self.count.store(list.len(), Ordering::SeqCst);
    }
}

impl Gap {
    fn contains(&self, key: &[u8]) -> bool {
        *self.range.start <= *key && *key < *self.range.end
    }

    fn contains_before(&self, key: &[u8]) -> bool {
        *self.range.start < *key && *key <= *self.range.end
    }

    fn is_within(&self, range: &KeyRange) -> bool {
        range.start <= self.range.start && self.range.end <= range.end
    }

    fn serves(&self, moment: u64) -> bool {
        matches!(self.state, State::Known { since } if since <= moment)
    }
}

impl Writers {
    #[inline]
    fn enter(&self) -> Writing<'_> {
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let count = &self.counts[(epoch % 2) as usize];
            count.fetch_add(1, Ordering::SeqCst);
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return Writing { count };
            }
            // The epoch has ended in the meantime.
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Begins new epochs, two at most, each if no writer of the one before the current is left.
    /// Returns the current one: once it is two beyond an earlier one, all writers that had entered
    /// by then have left.
    fn advance_twice(&self) -> u64 {
        for _ in 0..2 {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if self.counts[((epoch + 1) % 2) as usize].load(Ordering::SeqCst) > 0 {
                break;
            }
            // Another thread may have done it.
            let _ =
                self.epoch.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.epoch.load(Ordering::SeqCst)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space::Indexes;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange { start: start.into(), end: end.into() }
    }

    /// The gap around a key in a view of the sequence number 9.
    fn around(gaps: &Gaps, key: &str) -> Option<KeyRange> {
        gaps.around(SPACE, key.as_bytes(), 9)
    }

    #[test]
    fn a_gap_serves_views_of_its_moment_and_later_ones() {
        let gaps = Gaps::default();
        gaps.note_empty(SPACE, range("b", "d"), 5, || 5);
        assert_eq!(around(&gaps, "b"), Some(range("b", "d")));
        assert_eq!(around(&gaps, "cc"), Some(range("b", "d")));
        assert_eq!((around(&gaps, "a"), around(&gaps, "d")), (None, None));
        assert_eq!(gaps.around(SPACE, b"c", 5), Some(range("b", "d")));
        assert_eq!(gaps.around(SPACE, b"c", 4), None);
        assert_eq!(gaps.around(Space::Records, b"c", 9), None);
        assert_eq!(gaps.before(SPACE, b"d", 5), Some(range("b", "d")));
        assert_eq!(gaps.before(SPACE, b"b", 9), None);
    }

    #[test]
    fn a_view_from_before_the_last_commit_makes_no_gap() {
        let gaps = Gaps::default();
        gaps.note_empty(SPACE, range("b", "d"), 5, || 6);
        assert_eq!(around(&gaps, "c"), None);
        // A view of that commit does, of what the first one saw too.
        gaps.note_empty(SPACE, range("a", "e"), 6, || 7);
        assert_eq!(around(&gaps, "a"), None);
        assert_eq!(around(&gaps, "c"), Some(range("b", "d")));
    }

    #[test]
    fn a_candidate_waits_for_the_writers_that_have_entered_before() {
        let gaps = Gaps::default();
        let early = gaps.enter();
        gaps.fill(SPACE, b"c");
        gaps.note_empty(SPACE, range("b", "d"), 5, || 5);
        gaps.note_empty(SPACE, range("b", "d"), 5, || 5);
        assert_eq!(
            around(&gaps, "c"),
            None,
            "the writer has looked before the candidate was there"
        );
        // A writer that enters now looks at the candidate, so nobody waits for it.
        let late = gaps.enter();
        drop(early);
        gaps.note_empty(SPACE, range("b", "d"), 6, || 6);
        assert_eq!(around(&gaps, "c"), Some(range("b", "d")));
        gaps.fill(SPACE, b"c");
        drop(late);
        assert_eq!(around(&gaps, "c"), None);
    }

    #[test]
    fn a_key_removes_the_gaps_and_the_candidates_around_it() {
        let gaps = Gaps::default();
        gaps.note_empty(SPACE, range("b", "d"), 5, || 5);
        gaps.note_empty(SPACE, range("f", "h"), 5, || 5);
        gaps.note_empty(SPACE, range("a", "i"), 5, || 6);
        let writer = gaps.enter();
        gaps.fill(SPACE, b"c");
        gaps.fill(Space::Records, b"g");
        drop(writer);
        assert_eq!((around(&gaps, "b"), around(&gaps, "g")), (None, Some(range("f", "h"))));
        gaps.note_empty(SPACE, range("g", "gg"), 7, || 7);
        assert_eq!(around(&gaps, "a"), None, "the large candidate is gone");
        drop(gaps.fill_all(SPACE));
        assert_eq!(around(&gaps, "g"), None);
    }

    #[test]
    fn neighbouring_gaps_are_one_step() {
        let gaps = Gaps::default();
        for (start, end) in [("d", "f"), ("b", "d"), ("e", "h")] {
            gaps.note_empty(SPACE, range(start, end), 5, || 5);
        }
        assert_eq!(around(&gaps, "c"), Some(range("b", "h")));
        assert_eq!(gaps.before(SPACE, b"g", 9), Some(range("b", "h")));
    }

    #[test]
    fn the_list_is_bounded() {
        let gaps = Gaps::default();
        let long = "b".repeat(KEY_BYTES_MAX);
        gaps.note_empty(SPACE, range("a", &format!("{long}b")), 5, || 5);
        assert_eq!(around(&gaps, "a"), None);
        gaps.note_empty(SPACE, range("a", &long), 5, || 5);
        assert_eq!(around(&gaps, "a"), Some(range("a", &long)));
        let name = |number: usize| format!("{number:04}");
        for number in 0..2 * GAPS_MAX {
            gaps.note_empty(SPACE, range(&name(2 * number), &name(2 * number + 1)), 5, || 5);
        }
        assert_eq!(around(&gaps, &name(0)), None);
        let last = 2 * (2 * GAPS_MAX - 1);
        assert_eq!(around(&gaps, &name(last)), Some(range(&name(last), &name(last + 1))));
        assert_eq!(gaps.spaces[SPACE as usize].list.read().len(), GAPS_MAX);
    }
}

//! Counts work where it is done, so that every operation checks regularly whether it must end.
//!
//! Each unit of work (a document pulled, an operator called, an element written, bytes copied)
//! [`spend`]s some of a credit that the thread holds, which is one subtraction. When the credit is
//! used up, the thread's operation is [checked](Interrupt::check) and the thread gets a new credit.
//! Before a large allocation, [`check_room`] checks that the server has the memory.
//!
//! The operation belongs to the thread and is no argument: the code that runs a command calls
//! [`begin`], and all work for the command is counted, in a filter, an expression, a stage, or a
//! comparison deep in a sort. A thread without an operation counts too, and is never ended.
//!
//! An operation that must end fails at every check from then on. So a function that cannot return
//! an error may return any value: the next function that can fails.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;

use marula_error::Result;

use crate::context::Interrupt;

/// The work between two checks: about a tenth of a millisecond.
pub const CREDIT: usize = 16 * 1024;

/// The cost of pulling a document.
pub const DOCUMENT: usize = 16;
/// The cost of calling an operator, or of trying a condition.
pub const CALL: usize = 2;
/// The cost of reading an element.
pub const ELEMENT: usize = 1;
/// The cost of a match of a regular expression: it may take [milliseconds](crate::regex).
pub const MATCH: usize = CREDIT / 4;

/// The number of bytes that are copied or searched for the cost of an element.
const BYTES: usize = 64;

/// The smallest allocation that is checked one by one.
const ASKED_BYTES_MIN: usize = 64 * 1024;

/// The total up to which an operation gets all memory it asks for, so that small operations go on
/// where large ones cannot.
const ASKED_IN_ALL_BYTES_MIN: usize = 16 * 1024 * 1024;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(CREDIT) };
    /// The number of bytes that were asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static OPERATION: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Counts `work`. Fails once the thread's operation must end.
#[inline]
pub fn spend(work: usize) -> Result<()> {
    match LEFT.get().checked_sub(work) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => settle(),
    }
}

/// Counts the copying or searching of `bytes`. Fails once the thread's operation must end.
#[inline]
pub fn spend_bytes(bytes: usize) -> Result<()> {
    spend(bytes / BYTES)
}

/// Fails if an earlier check failed in a function that could not return an error.
#[inline]
pub fn recall() -> Result<()> {
    if LEFT.get() == 0 { settle() } else { Ok(()) }
}

/// Fails if the operation must end, or if the server does not have `bytes` left for it.
#[inline]
pub fn check_room(bytes: usize) -> Result<()> {
    if bytes < ASKED_BYTES_MIN { Ok(()) } else { check_room_of_operation(bytes) }
}

/// Reserves room in `buffer` for `more` bytes. Fails if the server does not have the memory.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    if buffer.capacity() - buffer.len() < more {
        // The buffer at least doubles, and both copies exist while it is copied.
        check_room(buffer.len().saturating_add(buffer.capacity().max(more)))?;
        buffer.reserve(more);
    }
    Ok(())
}

/// Fails once the thread's operation must end.
#[cold]
#[inline(never)]
pub fn settle() -> Result<()> {
    let outcome = operation().map_or(Ok(()), |operation| operation.check());
    LEFT.set(if outcome.is_ok() { CREDIT } else { 0 });
    outcome
}

#[cold]
fn check_room_of_operation(bytes: usize) -> Result<()> {
    let asked = ASKED.get().saturating_add(bytes);
    ASKED.set(asked);
    match asked < ASKED_IN_ALL_BYTES_MIN {
        true => Ok(()),
        false => check_room_always(bytes),
    }
}

/// Fails if the server does not have `bytes` left, however little the operation has asked for.
pub(crate) fn check_room_always(bytes: usize) -> Result<()> {
    operation().map_or(Ok(()), |operation| operation.check_room(bytes))
}

/// Returns whether the thread's operation should do with less than `bytes` more, if it can: on the
/// disk, or later.
pub fn is_short_of(bytes: usize) -> bool {
    operation().is_some_and(|operation| operation.is_short_of(bytes))
}

fn operation() -> Option<Interrupt> {
    OPERATION.with_borrow(Clone::clone)
}

/// A guard: the thread works for an operation until it is dropped.
#[must_use]
pub struct Metered {
    before: Option<Interrupt>,
}

/// Starts to count the thread's work for `operation`.
pub fn begin(operation: Interrupt) -> Metered {
    LEFT.set(CREDIT);
    ASKED.set(0);
    Metered { before: OPERATION.replace(Some(operation)) }
}

impl Drop for Metered {
    fn drop(&mut self) {
        LEFT.set(CREDIT);
        OPERATION.set(self.before.take());
    }
}

/// The number of values sorted between two checks if a comparison may be slow.
const RUN: usize = 2 * 1024;
/// The number of values sorted between two checks if comparisons are fast.
const RUN_OF_KEYS: usize = 64 * 1024;

/// Sorts like [`slice::sort_by`]. Fails once the thread's operation must end; the order is
/// undefined then.
pub fn sort_by<T: Copy>(values: &mut [T], compare: impl FnMut(&T, &T) -> Ordering) -> Result<()> {
    check_room(size_of_val(values))?;
    sort_in_runs(values, RUN, compare)
}

/// [`sort_by`] for values that compare quickly.
pub fn sort_keys_by<T: Copy>(
    keys: &mut [T],
    compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    check_room(size_of_val(keys))?;
    sort_in_runs(keys, RUN_OF_KEYS, compare)
}

/// [`sort_keys_by`] where the caller's share includes the memory for merging.
pub(crate) fn sort_shared_keys_by<T: Copy>(
    keys: &mut [T],
    compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    sort_in_runs(keys, RUN_OF_KEYS, compare)
}

fn sort_in_runs<T: Copy>(
    values: &mut [T],
    length: usize,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    for run in values.chunks_mut(length) {
        spend(run.len() * ELEMENT)?;
        run.sort_by(&mut compare);
    }
    let mut width = length;
    let mut merged = Vec::new();
    while width < values.len() {
        for pair in values.chunks_mut(2 * width) {
            let Some((left, right)) = pair.split_at_mut_checked(width) else { continue };
            merge(left, right, &mut merged, &mut compare)?;
            pair.copy_from_slice(&merged);
        }
        width *= 2;
    }
    Ok(())
}

/// Merges two sorted runs; of equal values those of the left run come first.
fn merge<T: Copy>(
    mut left: &[T],
    mut right: &[T],
    merged: &mut Vec<T>,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    merged.clear();
    merged.reserve(left.len() + right.len());
    while let (Some((a, left_rest)), Some((b, right_rest))) =
        (left.split_first(), right.split_first())
    {
        spend(ELEMENT)?;
        if compare(a, b).is_le() {
            merged.push(*a);
            left = left_rest;
        } else {
            merged.push(*b);
            right = right_rest;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering as AtomicOrdering};
    use std::time::Duration;

    use marula_bson::{DocBuf, Value};
    use marula_error::{Error, codes};
    use parking_lot::Mutex;

    use super::*;
    use crate::context::Check;

    /// An operation that must end after a number of checks.
    pub(crate) struct EndsAfter(pub(crate) AtomicU32);

    impl EndsAfter {
        pub(crate) fn questions(count: u32) -> Interrupt {
            Interrupt::new(EndsAfter(AtomicU32::new(count)))
        }
    }

    impl Check for EndsAfter {
        fn check(&self) -> Result<()> {
            let left = self.0.load(AtomicOrdering::Relaxed);
            self.0.store(left.saturating_sub(1), AtomicOrdering::Relaxed);
            match left {
                0 => Err(Error::new(codes::Interrupted, "operation was interrupted")),
                _ => Ok(()),
            }
        }
    }

    /// Measures the longest gap between two checks of an operation that may go on for `RUN_MS`.
    #[derive(Clone)]
    pub(crate) struct Gaps(Arc<Mutex<GapsSoFar>>);

    struct GapsSoFar {
        began: Duration,
        last: Duration,
        longest: Duration,
    }

    /// The time that an operation with timed checks may go on.
    const RUN_MS: u64 = 30;
    /// The longest time by which an operation may overrun. Code without optimisation, as in most
    /// runs of this test, takes several times as long.
    const LATE_MS: u64 = if cfg!(debug_assertions) { 500 } else { 100 };

    impl Gaps {
        fn note(&self) -> bool {
            let mut gaps = self.0.lock();
            let now = cpu_time();
            gaps.longest = gaps.longest.max(now - gaps.last);
            gaps.last = now;
            now - gaps.began > Duration::from_millis(RUN_MS)
        }
    }

    impl Check for Gaps {
        fn check(&self) -> Result<()> {
            match self.note() {
                true => Err(Error::new(codes::Interrupted, "operation was interrupted")),
                false => Ok(()),
            }
        }
    }

    /// Returns the CPU time of this thread, which the machine's other work does not affect.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    fn cpu_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Returns a document with long values: the lists `list` (1 and on) and `zeros`, `pairs` (`k`,
    /// a text, and `v`), `text` (two megabytes of 'ab') and `date`.
    pub(crate) fn long_document() -> DocBuf {
        const COUNT: i32 = 200_000;
        DocBuf::build(|out| {
            let mut list = out.begin_array("list");
            (1..=COUNT).for_each(|at| {
                list.push(at);
            });
            drop(list);
            let mut zeros = out.begin_array("zeros");
            (1..=COUNT).for_each(|_| {
                zeros.push(0);
            });
            drop(zeros);
            let mut pairs = out.begin_array("pairs");
            (1..=COUNT).for_each(|at| {
                pairs.begin_doc().append("k", at.to_string().as_str()).append("v", at);
            });
            drop(pairs);
            out.append("text", "ab".repeat(1 << 20).as_str());
            out.append("date", Value::DateTime(0));
        })
    }

    /// Returns whether `run` checks so often that it ends in time wherever its limit lies: in the
    /// best of three runs.
    pub(crate) fn is_in_time(mut run: impl FnMut()) -> bool {
        (0..3).any(|_| {
            let began = cpu_time();
            let gaps = GapsSoFar { began, last: began, longest: Duration::ZERO };
            let gaps = Gaps(Arc::new(Mutex::new(gaps)));
            {
                let _metered = begin(Interrupt::new(gaps.clone()));
                run();
            }
            gaps.note();
            let longest = gaps.0.lock().longest;
            longest < Duration::from_millis(LATE_MS)
        })
    }

    #[test]
    fn an_operation_that_must_end_fails_at_every_question_from_then_on() {
        let metered = begin(EndsAfter::questions(1));
        let spent = (0..).take_while(|_| spend(1).is_ok()).count();
        assert_eq!(spent, 2 * CREDIT + 1);
        assert!(spend(1).is_err());
        drop(metered);
        assert!(spend(1).is_ok());
    }

    #[test]
    fn operations_are_nested() {
        let _outer = begin(EndsAfter::questions(0));
        drop(begin(EndsAfter::questions(u32::MAX)));
        assert!(settle().is_err());
    }

    #[test]
    fn sorts_as_the_standard_library_does() {
        for count in [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN + 7, 10 * RUN] {
            let values: Vec<(usize, usize)> =
                (0..count).map(|at| (at.wrapping_mul(2_654_435_761) % 97, at)).collect();
            let (mut ours, mut theirs) = (values.clone(), values);
            sort_by(&mut ours, |a, b| a.0.cmp(&b.0)).unwrap();
            theirs.sort_by_key(|pair| pair.0);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_sort_ends() {
        let _metered = begin(EndsAfter::questions(2));
        let mut values: Vec<u32> = (0..1_000_000).rev().collect();
        assert!(sort_by(&mut values, u32::cmp).is_err());
    }
}

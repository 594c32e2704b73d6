//! Work is counted where it is done, so that nothing goes on for long without being asked whether
//! it may.
//!
//! A document that is pulled, an operator that is called, an element that is written, bytes that
//! are copied: each [`spend`]s a little of a credit that the thread holds, which is a subtraction.
//! When the credit is used up, what ends the thread's operation is [asked](Interrupt::check), and a
//! new credit is given. Before something large grows, that is asked too, by [`ask`].
//!
//! The operation is the thread's, not an argument's: whoever runs a command says so by [`begin`],
//! and everything that is computed for the command is counted, be it a filter, an expression, a
//! stage, or a comparison deep in a sort. A thread without an operation counts too, and is never
//! ended.
//!
//! An operation that must end fails at every question from then on. So a place that cannot answer
//! an error may answer anything: the next one that can will fail.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;

use marula_error::Result;

use crate::context::Interrupt;

/// How much may be spent between two questions: a tenth of a millisecond, or some.
pub const CREDIT: usize = 16 * 1024;

/// What pulling a document costs.
pub const DOCUMENT: usize = 16;
/// What calling an operator, or trying a condition, costs.
pub const CALL: usize = 2;
/// What looking at an element costs.
pub const ELEMENT: usize = 1;
/// What a match of a regular expression costs: it may take [milliseconds](crate::regex).
pub const MATCH: usize = CREDIT / 4;

/// So many bytes are copied or searched for the price of an element.
const BYTES: usize = 64;

/// What is smaller than this is not asked for one by one.
const ASKED_BYTES_MIN: usize = 64 * 1024;

/// An operation that has asked for no more than this is given it, so that small ones go on where
/// large ones cannot.
const ASKED_IN_ALL_BYTES_MIN: usize = 16 * 1024 * 1024;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(CREDIT) };
    /// How many bytes were asked for.
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

/// Fails where the operation was found to have to end, in a place that could not say so.
#[inline]
pub fn recall() -> Result<()> {
    if LEFT.get() == 0 { settle() } else { Ok(()) }
}

/// Fails where the operation must end, or the server has not so many bytes left for it.
#[inline]
pub fn ask(bytes: usize) -> Result<()> {
    if bytes < ASKED_BYTES_MIN { Ok(()) } else { ask_operation(bytes) }
}

/// Makes room in `buffer` for `more` bytes. Fails where the server has not so many left.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    if buffer.capacity() - buffer.len() < more {
        // It grows to twice its size at least, and is there twice while it is copied.
        ask(buffer.len().saturating_add(buffer.capacity().max(more)))?;
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
fn ask_operation(bytes: usize) -> Result<()> {
    let asked = ASKED.get().saturating_add(bytes);
    ASKED.set(asked);
    match asked < ASKED_IN_ALL_BYTES_MIN {
        true => Ok(()),
        false => operation().map_or(Ok(()), |operation| operation.ask(bytes)),
    }
}

fn operation() -> Option<Interrupt> {
    OPERATION.with_borrow(Clone::clone)
}

/// The thread works for an operation until this is dropped.
#[must_use]
pub struct Metered {
    before: Option<Interrupt>,
}

/// Has the thread work for `operation`.
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

/// How many values are sorted between two questions where comparing two may take long.
const RUN: usize = 2 * 1024;
/// As many where it does not.
const RUN_OF_KEYS: usize = 64 * 1024;

/// Sorts as [`slice::sort_by`] does. Fails once the thread's operation must end; the order is none
/// then.
pub fn sort_by<T: Copy>(values: &mut [T], compare: impl FnMut(&T, &T) -> Ordering) -> Result<()> {
    sort_in_runs(values, RUN, compare)
}

/// [`sort_by`] for what is compared quickly.
pub fn sort_keys_by<T: Copy>(
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

/// Puts two sorted runs together; of equals those of the left come first.
fn merge<T: Copy>(
    mut left: &[T],
    mut right: &[T],
    merged: &mut Vec<T>,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    merged.clear();
    ask((left.len() + right.len()) * size_of::<T>())?;
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

    use marula_error::{Error, codes};
    use parking_lot::Mutex;

    use super::*;
    use crate::context::Check;

    /// An operation that must end once it has been asked so often.
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

    /// How late the question is that comes latest, of an operation that may go on for `RUN_MS`.
    #[derive(Clone)]
    pub(crate) struct Gaps(Arc<Mutex<GapsSoFar>>);

    struct GapsSoFar {
        began: Duration,
        last: Duration,
        longest: Duration,
    }

    /// How long an operation whose questions are timed may go on.
    const RUN_MS: u64 = 30;
    /// How late an operation may be at its end. Code that was not optimised, as it is in most runs
    /// of this test, takes several times as long.
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

    /// How long this thread has been at work: what else the machine does is not in it.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    fn cpu_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Whether `run` is asked so often that it ends in time wherever its limit lies: in the best of
    /// three runs.
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

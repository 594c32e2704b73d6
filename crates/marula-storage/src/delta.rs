//! The difference between two versions of a value, for engines that keep large values by their
//! changes.
//!
//! A *delta* is a list of splices. Each replaces `removed` bytes from `start` on by other bytes, in
//! a value of `size` bytes:
//!
//! ```text
//! splice    size u32, start u32, removed u32, inserted u32, the inserted bytes; little-endian
//! ```
//!
//! The splices of a delta are applied one after another, each to the result of the one before. So
//! two deltas one after the other are a delta, too. The size shows when one is missing.

/// The minimum size of a value that is worth a delta: a smaller one is read sooner than put
/// together.
const VALUE_BYTES_MIN: usize = 4 << 10;

/// A delta has at most this part of the value's size: reading a value applies several of them.
const SHARE_MAX: usize = 16;

/// Equal bytes that are repeated rather than ending a splice: the size of its head.
const EQUAL_BYTES_MAX: usize = 16;

/// The number of bytes that are compared at once.
const STEP: usize = 32;

/// Returns whether a value is worth a delta.
pub fn is_large(value: &[u8]) -> bool {
    value.len() >= VALUE_BYTES_MIN
}

/// Computes the delta from `old` to `new` into `delta`; returns whether it is worth keeping instead
/// of `new`.
pub fn between(old: &[u8], new: &[u8], delta: &mut Vec<u8>) -> bool {
    delta.clear();
    if !is_large(new) || u32::try_from(old.len().max(new.len())).is_err() {
        return false;
    }
    let bytes_max = new.len() / SHARE_MAX;
    let suffix = common_suffix(old, new);
    let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);
    // Before the part that has another size, changed bytes have the same places.
    let aligned = old_end.min(new_end);
    let mut at = 0;
    loop {
        at += common_prefix(&old[at..aligned], &new[at..aligned]);
        if at == aligned {
            break;
        }
        let end = changed_end(&old[..aligned], &new[..aligned], at, bytes_max);
        push_splice([old.len(), at, end - at], &new[at..end], delta);
        if delta.len() > bytes_max {
            return false;
        }
        at = end;
    }
    if old_end != new_end {
        let inserted = &new[aligned..new_end];
        if delta.len() + inserted.len() > bytes_max {
            return false;
        }
        push_splice([old.len(), aligned, old_end - aligned], inserted, delta);
    }
    true
}

/// Applies a delta to a value; `None` if it is not of this value.
pub fn apply(value: &mut Vec<u8>, mut delta: &[u8]) -> Option<()> {
    while !delta.is_empty() {
        if take(&mut delta)? != value.len() {
            return None;
        }
        let (start, removed, inserted) = (take(&mut delta)?, take(&mut delta)?, take(&mut delta)?);
        let (inserted, rest) = delta.split_at_checked(inserted)?;
        delta = rest;
        let range = start..start.checked_add(removed)?;
        let place = value.get_mut(range.clone())?;
        match place.len() == inserted.len() {
            true => place.copy_from_slice(inserted),
            false => drop(value.splice(range, inserted.iter().copied())),
        }
    }
    Some(())
}

fn push_splice([size, start, removed]: [usize; 3], inserted: &[u8], delta: &mut Vec<u8>) {
    for number in [size, start, removed, inserted.len()] {
        let number = u32::try_from(number).expect("both values were measured");
        delta.extend_from_slice(&number.to_le_bytes());
    }
    delta.extend_from_slice(inserted);
}

fn take(delta: &mut &[u8]) -> Option<usize> {
    let (number, rest) = delta.split_first_chunk()?;
    *delta = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// The end of the changed bytes that begin at `start`: where more than a few are equal again, or
/// where they are too many for a delta.
fn changed_end(old: &[u8], new: &[u8], start: usize, bytes_max: usize) -> usize {
    let mut end = start + 1;
    while end - start <= bytes_max {
        let next = (end + EQUAL_BYTES_MAX).min(old.len());
        match old[end..next].iter().zip(&new[end..next]).rposition(|(old, new)| old != new) {
            Some(last) => end += last + 1,
            None => break,
        }
    }
    end
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let steps = a.chunks_exact(STEP).zip(b.chunks_exact(STEP));
    let whole = steps.take_while(|(a, b)| a == b).count() * STEP;
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let steps = a.rchunks_exact(STEP).zip(b.rchunks_exact(STEP));
    let whole = steps.take_while(|(a, b)| a == b).count() * STEP;
    let rest = a[..a.len() - whole].iter().rev().zip(b[..b.len() - whole].iter().rev());
    whole + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Random;

    /// The delta from `old` to `new`, if it is worth keeping; it leads there.
    fn delta(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let mut delta = Vec::new();
        if !between(old, new, &mut delta) {
            return None;
        }
        let mut value = old.to_vec();
        apply(&mut value, &delta).expect("it is of this value");
        assert!(value == new);
        Some(delta)
    }

    #[test]
    fn small_changes_have_small_deltas() {
        let old = Random::new(1).bytes(10_000);
        assert_eq!(delta(&old, &old), Some(Vec::new()));
        let mut new = old.clone();
        for (place, count) in [(0, 1), (9, 4), (5000, 8), (9_999, 1)] {
            new[place..place + count].iter_mut().for_each(|byte| *byte ^= 1);
        }
        // The first two changes are one splice.
        assert_eq!(delta(&old, &new).expect("it is small").len(), 3 * 16 + 13 + 8 + 1);
        // A length at the start, and bytes in the middle, at the end, or gone from there.
        for (place, removed, inserted) in [(5000, 0, 3), (5000, 9, 0), (5000, 2, 7), (10_000, 0, 5)]
        {
            let mut new = old.clone();
            new[0] ^= 1;
            new.splice(place..place + removed, vec![7; inserted]);
            assert!(delta(&old, &new).expect("it is small").len() < 60);
        }
    }

    #[test]
    fn large_changes_and_small_values_have_none() {
        let old = Random::new(2).bytes(10_000);
        assert_eq!(delta(&old, &Random::new(3).bytes(10_000)), None);
        assert_eq!(delta(&old, &[&old[..], &old[..]].concat()), None);
        assert_eq!(delta(&old[..4000], &old[..4001]), None);
        assert_eq!(delta(&[], &old), None);
    }

    #[test]
    fn random_changes_come_back_and_lists_are_joined() {
        let mut random = Random::new(4);
        let mut kept = 0;
        for _ in 0..2000 {
            let base = random.bytes(4_500);
            let (mut newest, mut joined) = (base.clone(), Vec::new());
            for _ in 0..1 + random.below(3) {
                let mut next = newest.clone();
                for _ in 0..random.below(4) {
                    let place = random.below(next.len());
                    let removed = random.below(40).min(next.len() - place);
                    let count = match random.below(2) {
                        0 => removed,
                        _ => random.below(40),
                    };
                    // Of few kinds, so that equal bytes meet at the edges.
                    let inserted: Vec<u8> = (0..count).map(|_| random.below(2) as u8).collect();
                    next.splice(place..place + removed, inserted);
                }
                match delta(&newest, &next) {
                    Some(delta) => joined.extend(delta),
                    None => continue,
                }
                kept += 1;
                newest = next;
            }
            let mut value = base;
            apply(&mut value, &joined).expect("they are of this value");
            assert!(value == newest);
        }
        assert!(kept > 1000, "{kept}");
    }

    #[test]
    fn deltas_of_other_values_are_refused() {
        let old = Random::new(5).bytes(5000);
        let mut new = old.clone();
        new.drain(4000..4100);
        let delta = delta(&old, &new).expect("it is small");
        assert_eq!(apply(&mut old[..4999].to_vec(), &delta), None);
        for end in 1..delta.len() {
            assert_eq!(apply(&mut old.clone(), &delta[..end]), None, "cut at {end}");
        }
        assert_eq!(apply(&mut old.clone(), &[0xFF; 16]), None);
    }
}

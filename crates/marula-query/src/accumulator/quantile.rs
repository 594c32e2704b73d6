//! Percentiles of many numbers: exact for few numbers, by t-digest for many.
//!
//! The percentile `p` of `n` numbers in order is the one at position `max(1, ⌈p·n⌉)`: always one of
//! the numbers. More than [`EXACT_MAX`] numbers are gathered into centroids, small at both ends and
//! larger in the middle, and a percentile is interpolated between their means. Source: T. Dunning,
//! O. Ertl, "Computing Extremely Accurate Quantiles Using t-Digests", 2019; the scale function is
//! its k₁.

use std::f64::consts::PI;

use marula_bson::Value;

/// The maximum number of exact numbers: 128 KB.
const EXACT_MAX: usize = 16 * 1024;
/// The resolution of a digest; it has about this many centroids.
const DELTA: f64 = 1_000.0;

/// The position, from 0, of a percentile among `count` sorted numbers.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn position(p: f64, count: usize) -> usize {
    let at = (p * count as f64).ceil() as usize;
    at.clamp(1, count.max(1)) - 1
}

/// A percentile of sorted numbers; `None` if there are none.
pub(crate) fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    sorted.get(position(p, sorted.len())).copied()
}

/// The number of a value; `None` for NaN and values that are not numbers.
pub(crate) fn counted(value: Value<'_>) -> Option<f64> {
    value.as_f64().filter(|number| !number.is_nan())
}

/// A collection of numbers for percentiles.
#[derive(Default)]
pub(crate) struct Digest {
    /// The numbers since the last compression.
    buffer: Vec<f64>,
    /// The centroids of earlier finite numbers, in order.
    centroids: Vec<Centroid>,
    negative_infinities: usize,
    positive_infinities: usize,
    least: f64,
    greatest: f64,
}

#[derive(Clone, Copy)]
struct Centroid {
    mean: f64,
    weight: usize,
}

impl Digest {
    /// Adds a number. Returns by how many bytes the digest has grown.
    pub(crate) fn add(&mut self, number: f64) -> usize {
        match number {
            f64::INFINITY => self.positive_infinities += 1,
            f64::NEG_INFINITY => self.negative_infinities += 1,
            _ => {
                self.buffer.push(number);
                if self.buffer.len() > EXACT_MAX {
                    self.compress();
                    return 0;
                }
                return if self.centroids.is_empty() { size_of::<f64>() } else { 0 };
            }
        }
        0
    }

    /// The requested percentiles in the given order; `None` if there are no numbers.
    pub(crate) fn percentiles(&self, wanted: &[f64]) -> Option<Vec<f64>> {
        let mut sorted = self.buffer.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let merged: Vec<Centroid> = match self.centroids.is_empty() {
            true => Vec::new(),
            false => merge(&self.centroids, &sorted),
        };
        let finite: usize = match merged.is_empty() {
            true => sorted.len(),
            false => merged.iter().map(|centroid| centroid.weight).sum(),
        };
        let count = self.negative_infinities + finite + self.positive_infinities;
        if count == 0 {
            return None;
        }
        let one = |&p: &f64| {
            let at = position(p, count);
            let Some(at) = at.checked_sub(self.negative_infinities) else {
                return f64::NEG_INFINITY;
            };
            match at {
                at if at >= finite => f64::INFINITY,
                at if merged.is_empty() => sorted[at],
                at => self.between(&merged, &sorted, at, finite),
            }
        };
        Some(wanted.iter().map(one).collect())
    }

    /// The number at a position, interpolated between centroids.
    #[allow(clippy::cast_precision_loss)]
    fn between(&self, merged: &[Centroid], sorted: &[f64], at: usize, finite: usize) -> f64 {
        let (first, last) = (sorted.first(), sorted.last());
        if at == 0 {
            return first.map_or(self.least, |first| first.min(self.least));
        }
        if at + 1 == finite {
            return last.map_or(self.greatest, |last| last.max(self.greatest));
        }
        // A centroid's mean is in the middle of the positions that it covers.
        let middle =
            |start: usize, centroid: &Centroid| start as f64 + (centroid.weight as f64 - 1.0) / 2.0;
        let at = at as f64;
        let (mut start, mut before) = (0, (0.0, self.least));
        for centroid in merged {
            let here = (middle(start, centroid), centroid.mean);
            if at <= here.0 {
                let span = here.0 - before.0;
                let part = if span > 0.0 { (at - before.0) / span } else { 1.0 };
                return before.1 + (here.1 - before.1) * part;
            }
            before = here;
            start += centroid.weight;
        }
        before.1
    }

    fn compress(&mut self) {
        self.buffer.sort_unstable_by(f64::total_cmp);
        let (Some(&first), Some(&last)) = (self.buffer.first(), self.buffer.last()) else { return };
        let is_first = self.centroids.is_empty();
        self.least = if is_first { first } else { self.least.min(first) };
        self.greatest = if is_first { last } else { self.greatest.max(last) };
        self.centroids = merge(&self.centroids, &self.buffer);
        self.buffer.clear();
    }
}

/// The centroids of `centroids` and the numbers in `sorted` together.
#[allow(clippy::cast_precision_loss)]
fn merge(centroids: &[Centroid], sorted: &[f64]) -> Vec<Centroid> {
    let mut all: Vec<Centroid> = Vec::with_capacity(centroids.len() + sorted.len());
    all.extend_from_slice(centroids);
    all.extend(sorted.iter().map(|&mean| Centroid { mean, weight: 1 }));
    // Both parts are sorted, so a stable sort merges them.
    all.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let count = all.iter().map(|centroid| centroid.weight).sum::<usize>() as f64;
    let mut merged: Vec<Centroid> = Vec::new();
    let (mut done, mut limit) = (0.0, greatest_quantile(0.0));
    for next in all {
        if let Some(last) = merged.last_mut() {
            let together = last.weight + next.weight;
            if (done + together as f64) / count <= limit {
                last.mean += (next.mean - last.mean) * next.weight as f64 / together as f64;
                last.weight = together;
                continue;
            }
            done += last.weight as f64;
            limit = greatest_quantile(done / count);
        }
        merged.push(next);
    }
    merged
}

/// The maximum quantile of a centroid that starts at `quantile`.
fn greatest_quantile(quantile: f64) -> f64 {
    let scale = DELTA / (2.0 * PI);
    let next = (scale * (2.0 * quantile - 1.0).clamp(-1.0, 1.0).asin() + 1.0) / scale;
    if next >= PI / 2.0 { 1.0 } else { f64::midpoint(next.sin(), 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(numbers: &[f64], p: f64, expected: Option<f64>) {
        let mut digest = Digest::default();
        for &number in numbers {
            digest.add(number);
        }
        let found = digest.percentiles(&[p]).map(|found| found[0]);
        assert_eq!(found, expected, "{p} of {numbers:?}");
    }

    #[test]
    fn few_numbers_give_one_of_them() {
        const UP: f64 = f64::INFINITY;
        check(&[], 0.5, None);
        check(&[7.0], 0.0, Some(7.0));
        check(&[7.0], 1.0, Some(7.0));
        check(&[2.0, 1.0], 0.5, Some(1.0));
        check(&[3.0, 1.0, 2.0], 0.5, Some(2.0));
        check(&[4.0, 3.0, 2.0, 1.0], 0.25, Some(1.0));
        check(&[4.0, 3.0, 2.0, 1.0], 0.26, Some(2.0));
        check(&[62.0, 60.0, 67.0, 64.0, 60.0], 0.95, Some(67.0));
        check(&[UP, 1.0, -UP], 0.5, Some(1.0));
        check(&[UP, 1.0, -UP], 0.0, Some(-UP));
        check(&[UP, 1.0, -UP], 1.0, Some(UP));
        check(&[UP], 0.3, Some(UP));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.9), Some(3.0));
    }

    #[test]
    fn many_numbers_take_little_room_and_are_near() {
        let mut digest = Digest::default();
        // Every number from 0 to 199,999 once, shuffled.
        let count = 200_000_usize;
        let mut held = 0;
        for at in 0..count {
            held += digest.add(((at * 7_919) % count) as f64);
        }
        assert!(held <= (EXACT_MAX + 1) * 8, "{held}");
        assert!(digest.centroids.len() < 2_000, "{}", digest.centroids.len());
        let wanted = [0.0, 0.001, 0.25, 0.5, 0.75, 0.999, 1.0];
        let found = digest.percentiles(&wanted).unwrap();
        assert_eq!((found[0], found[6]), (0.0, 199_999.0));
        for (p, found) in wanted.iter().zip(found) {
            let error = (found - p * count as f64).abs() / count as f64;
            assert!(error < 0.002, "{p}: {found}");
        }
    }
}

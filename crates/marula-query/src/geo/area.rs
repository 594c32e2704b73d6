//! Sets of index keys as ranges of numbers: the keys that a search reads.

/// Ranges of numbers, inclusive, ascending and disjoint. There is one range per cell: adjacent
/// ranges are not joined.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Area(Vec<(i64, i64)>);

impl Area {
    /// The union of the ranges.
    pub fn new(mut ranges: Vec<(i64, i64)>) -> Area {
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1 => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Area(joined)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(i64, i64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_order_and_share_nothing() {
        let area = Area::new(vec![(5, 9), (0, 4), (20, 20), (8, 12), (20, 20)]);
        assert_eq!(area.ranges(), [(0, 4), (5, 12), (20, 20)]);
    }
}

//! Sets of index keys as ranges of numbers: what a search looks at.

/// Ranges of numbers, both ends included, ascending and disjoint.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Area(Vec<(i64, i64)>);

impl Area {
    /// The numbers in any of the ranges.
    pub fn new(mut ranges: Vec<(i64, i64)>) -> Area {
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Area(joined)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// What is in this area and not in the other.
    #[must_use]
    pub fn without(&self, other: &Area) -> Area {
        let mut rest = Vec::new();
        let mut removed = other.0.iter().copied().peekable();
        for &(mut low, high) in &self.0 {
            while removed.peek().is_some_and(|range| range.1 < low) {
                removed.next();
            }
            let mut is_gone = false;
            while let Some(&(from, to)) = removed.peek()
                && from <= high
            {
                if from > low {
                    rest.push((low, from - 1));
                }
                if to >= high {
                    is_gone = true;
                    break;
                }
                low = to + 1;
                removed.next();
            }
            if !is_gone {
                rest.push((low, high));
            }
        }
        Area(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &[(i64, i64)], without: &[(i64, i64)], rest: &[(i64, i64)]) {
        let area = Area::new(from.to_vec()).without(&Area::new(without.to_vec()));
        assert_eq!(area.ranges(), rest, "{from:?} without {without:?}");
    }

    #[test]
    fn areas_are_joined_and_subtracted() {
        check(&[(5, 9), (0, 4)], &[], &[(0, 9)]);
        check(&[(0, 9)], &[(0, 9)], &[]);
        check(&[(0, 9)], &[(3, 5)], &[(0, 2), (6, 9)]);
        check(&[(0, 9), (20, 29)], &[(5, 24)], &[(0, 4), (25, 29)]);
        check(
            &[(0, 9), (20, 29), (40, 49)],
            &[(2, 3), (22, 45)],
            &[(0, 1), (4, 9), (20, 21), (46, 49)],
        );
        check(&[(i64::MIN, i64::MAX)], &[(0, 0)], &[(i64::MIN, -1), (1, i64::MAX)]);
    }
}

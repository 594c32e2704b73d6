//! Coverings: few cells that hold a region between them, and little else.
//!
//! Cells of the globe and squares of the plane are alike in that each is cut into four, again and
//! again. A covering begins with large cells and cuts them until there are as many as are allowed.
//! The order in which they are cut is that of S2's region coverer: the largest first, of these the
//! one with the fewest quarters that meet the region, of these the one with the fewest quarters
//! that need no more cutting. mongod's index bounds show that it cuts both so.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What is cut into four.
pub(super) trait Cell: Copy + Ord {
    /// How often the largest cell was cut to come to this one.
    fn level(&self) -> u8;

    /// The four that it is cut into, in ascending order; it may be cut.
    fn quarters(&self) -> [Self; 4];

    /// The one that it is a quarter of; `None` for the largest.
    fn parent(&self) -> Option<Self>;

    /// Whether the other lies in it or is the same.
    fn contains(&self, other: &Self) -> bool;
}

/// What is covered, as far as a covering asks.
pub(super) trait Region<C> {
    /// Whether the cell may share something with the region.
    fn meets(&self, cell: &C) -> bool;

    /// Whether the cell surely lies in the region as a whole.
    fn holds(&self, cell: &C) -> bool;
}

/// How far cells are cut.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Cells at most, unless the first are more.
    pub cells_max: usize,
    /// The level of the smallest cells.
    pub level_max: u8,
}

/// Cells that cover the region, in no order; `first` cover it already.
pub(super) fn cover<C: Cell>(first: &[C], limits: Limits, region: &dyn Region<C>) -> Vec<C> {
    let mut covering = Covering { limits, region, done: Vec::new(), waiting: BinaryHeap::new() };
    for cell in first {
        if let Some(part) = covering.part(*cell) {
            covering.add(part);
        }
    }
    while let Some(next) = covering.waiting.pop() {
        let count = covering.done.len() + covering.waiting.len() + next.parts.len();
        if next.parts.len() == 1 || count <= limits.cells_max {
            next.parts.into_iter().for_each(|part| covering.add(part));
        } else {
            covering.done.push(next.cell);
        }
    }
    covering.done
}

/// The cells in ascending order, with a larger one where all its quarters are.
pub(super) fn merged<C: Cell>(mut cells: Vec<C>) -> Vec<C> {
    cells.sort_unstable();
    let mut merged: Vec<C> = Vec::with_capacity(cells.len());
    for mut cell in cells {
        while let [.., a, b, c] = merged.as_slice()
            && let Some(parent) = cell.parent()
            && parent.quarters() == [*a, *b, *c, cell]
        {
            merged.truncate(merged.len() - 3);
            cell = parent;
        }
        merged.push(cell);
    }
    merged
}

/// The cells without what lies in the others, which cut them where they must.
pub(super) fn without<C: Cell>(cells: &[C], others: &[C]) -> Vec<C> {
    let mut rest = Vec::with_capacity(cells.len());
    cells.iter().for_each(|cell| add_rest(*cell, others, &mut rest));
    rest
}

fn add_rest<C: Cell>(cell: C, others: &[C], rest: &mut Vec<C>) {
    if others.iter().any(|other| other.contains(&cell)) {
        return;
    }
    let within: Vec<C> = others.iter().filter(|other| cell.contains(other)).copied().collect();
    if within.is_empty() {
        rest.push(cell);
    } else {
        cell.quarters().into_iter().for_each(|quarter| add_rest(quarter, &within, rest));
    }
}

/// A covering under way.
struct Covering<'a, C> {
    limits: Limits,
    region: &'a dyn Region<C>,
    done: Vec<C>,
    /// What may be cut. Of equal candidates the heap's own order decides: it sifts as that of C++
    /// does, whose order the bounds of mongod show.
    waiting: BinaryHeap<Candidate<C>>,
}

/// A cell that meets the region.
struct Part<C> {
    cell: C,
    /// Whether it is cut no more.
    is_done: bool,
}

/// A cell that may be cut, and what it is cut into.
struct Candidate<C> {
    cell: C,
    parts: Vec<Part<C>>,
    /// What comes first is least: the level, how many parts there are, how many of them are done.
    rank: (u8, usize, usize),
}

impl<C> Ord for Candidate<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl<C> PartialOrd for Candidate<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> PartialEq for Candidate<C> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<C> Eq for Candidate<C> {}

impl<C: Cell> Covering<'_, C> {
    fn part(&self, cell: C) -> Option<Part<C>> {
        self.region.meets(&cell).then(|| {
            let is_done = cell.level() >= self.limits.level_max || self.region.holds(&cell);
            Part { cell, is_done }
        })
    }

    fn add(&mut self, Part { cell, is_done }: Part<C>) {
        if is_done {
            self.done.push(cell);
            return;
        }
        let parts: Vec<_> = cell.quarters().into_iter().filter_map(|it| self.part(it)).collect();
        match parts.iter().filter(|part| part.is_done).count() {
            4 => self.done.push(cell),
            _ if parts.is_empty() => {}
            done => {
                let rank = (cell.level(), parts.len(), done);
                self.waiting.push(Candidate { cell, parts, rank });
            }
        }
    }
}

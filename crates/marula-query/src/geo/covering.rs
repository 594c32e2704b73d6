//! Coverings: few cells that together contain a region with little excess.
//!
//! Cells of the globe and squares of the plane are both divided into four repeatedly. A covering
//! starts with large cells and divides them until the maximum number is reached. The order of
//! division is that of S2's region coverer: the largest first, of these the one with the fewest
//! quarters that meet the region, of these the one with the fewest quarters that need no further
//! division. The index bounds of mongod show that it divides both in this order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A cell that can be divided into four.
pub(super) trait Cell: Copy + Ord {
    /// The number of divisions that lead from the largest cell to this one.
    fn level(&self) -> u8;

    /// The four quarters in ascending order; the cell must be divisible.
    fn quarters(&self) -> [Self; 4];

    /// The cell that contains this one as a quarter; `None` for the largest.
    fn parent(&self) -> Option<Self>;

    /// Returns whether the other cell equals this one or lies in it.
    fn contains(&self, other: &Self) -> bool;
}

/// A region to be covered.
pub(super) trait Region<C> {
    /// Returns whether the cell may intersect the region.
    fn meets(&self, cell: &C) -> bool;

    /// Returns whether the cell certainly lies entirely in the region.
    fn holds(&self, cell: &C) -> bool;
}

/// The limits of a covering.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The maximum number of cells, unless there are more at the start.
    pub cells_max: usize,
    /// The level of the smallest cells.
    pub level_max: u8,
}

/// The cells that cover the region, unordered; `first` must cover it.
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

/// The cells in ascending order; four quarters are replaced by their parent.
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

/// The cells without the parts in `others`; cells are divided as needed.
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

/// A covering in progress.
struct Covering<'a, C> {
    limits: Limits,
    region: &'a dyn Region<C>,
    done: Vec<C>,
    /// The cells that may be divided. Among equal candidates the heap's own order decides: it sifts
    /// like that of C++, whose order is visible in mongod's bounds.
    waiting: BinaryHeap<Candidate<C>>,
}

/// A cell that meets the region.
struct Part<C> {
    cell: C,
    /// Whether it is not divided further.
    is_done: bool,
}

/// A cell that may be divided, and its parts.
struct Candidate<C> {
    cell: C,
    parts: Vec<Part<C>>,
    /// The least rank comes first: the level, the number of parts, the number of finished parts.
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

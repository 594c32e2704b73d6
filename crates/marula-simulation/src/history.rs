//! Histories of registers: checks that the outcomes have an order in which each operation takes
//! effect between its begin and its end (linearizability).

use std::collections::HashSet;

/// An operation of a client on one register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) begin: u64,
    /// `None` where the outcome is unknown: it may take effect at any later time, or never.
    pub(crate) end: Option<u64>,
    pub(crate) what: What,
}

/// An operation and its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Read(i32),
    Write(i32),
    /// From a value to another; whether the register had the first.
    Swap(i32, i32, Option<bool>),
}

impl What {
    /// The value afterwards; `None` if the outcome cannot be at this value.
    fn apply(self, value: i32) -> Option<i32> {
        match self {
            What::Read(seen) => (seen == value).then_some(value),
            What::Write(new) => Some(new),
            What::Swap(from, to, outcome) => {
                let swaps = from == value;
                let after = if swaps { to } else { value };
                outcome.is_none_or(|outcome| outcome == swaps).then_some(after)
            }
        }
    }
}

/// Whether the operations on a register that begins with `first` have an order.
pub(crate) fn is_linearizable(first: i32, operations: &[Operation]) -> bool {
    assert!(operations.len() < 64, "the operations that are placed are bits of a number");
    place(0, first, operations, &mut HashSet::new())
}

/// Places one operation after another; `placed` are those that have been.
fn place(placed: u64, value: i32, all: &[Operation], seen: &mut HashSet<(u64, i32)>) -> bool {
    let is_open = |number: usize| placed & 1 << number == 0;
    let open = || (0..all.len()).filter(|number| is_open(*number));
    if open().all(|number| all[number].end.is_none()) {
        return true;
    }
    if !seen.insert((placed, value)) {
        return false;
    }
    // The next one has begun before any other that is open has ended.
    let first_end = open().filter_map(|number| all[number].end).min().unwrap_or(u64::MAX);
    open().filter(|number| all[*number].begin < first_end).any(|number| {
        let after = all[number].what.apply(value);
        after.is_some_and(|value| place(placed | 1 << number, value, all, seen))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(begin: u64, end: u64, what: What) -> Operation {
        Operation { begin, end: Some(end), what }
    }

    #[test]
    fn operations_at_the_same_time_have_any_order() {
        let write = operation(1, 6, What::Write(1));
        let reads = |first, second| {
            [write.clone(), operation(2, 3, What::Read(first)), operation(4, 5, What::Read(second))]
        };
        assert!(is_linearizable(0, &reads(0, 0)));
        assert!(is_linearizable(0, &reads(0, 1)));
        assert!(is_linearizable(0, &reads(1, 1)));
        assert!(!is_linearizable(0, &reads(1, 0)), "the second read goes back");
    }

    #[test]
    fn anomalies_are_found() {
        let stale = [operation(1, 2, What::Write(1)), operation(3, 4, What::Read(0))];
        assert!(!is_linearizable(0, &stale));
        let lost = [
            operation(1, 3, What::Swap(0, 1, Some(true))),
            operation(2, 4, What::Swap(0, 2, Some(true))),
        ];
        assert!(!is_linearizable(0, &lost));
        let missed =
            [operation(1, 2, What::Write(1)), operation(3, 4, What::Swap(1, 2, Some(false)))];
        assert!(!is_linearizable(0, &missed));
    }

    #[test]
    fn an_unknown_outcome_may_come_later_or_never() {
        let unknown = Operation { begin: 1, end: None, what: What::Write(1) };
        let later =
            [unknown.clone(), operation(2, 3, What::Read(0)), operation(4, 5, What::Read(1))];
        assert!(is_linearizable(0, &later));
        assert!(is_linearizable(0, &later[..2]));
        let early = [operation(1, 2, What::Read(1)), Operation { begin: 3, ..unknown }];
        assert!(!is_linearizable(0, &early), "it is seen before it begins");
    }
}

//! Accumulators over moving windows whose result is made of values of the window: `$push`,
//! `$addToSet`, `$firstN`, `$top` and similar ones.
//!
//! The values of a partition are computed once. If the result depends on the order of the values,
//! they are also sorted once: a window is then the set of the ranks of its values, to which a rank
//! is added, and from which it is removed, without a comparison of values.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use marula_bson::{Value, ValueBuf, order};
use marula_error::Result;

use super::{Partition, kept};
use crate::accumulator::{Accumulator, Keep, Listed, Top};
use crate::expression::{Arena, Frame};
use crate::meter;

/// Returns one value per window, whose ends never move back; `None` for an accumulator whose result
/// is not made of values of the window.
pub(super) fn values(
    accumulator: &Accumulator,
    windows: &[Range<usize>],
    partition: &Partition<'_>,
) -> Result<Option<Vec<ValueBuf>>> {
    let context = partition.context;
    let Some(listed) = accumulator.listed(context)? else { return Ok(None) };
    let inputs = partition.values_in(accumulator.argument(), windows)?;
    let keys = match listed {
        Listed::Top(top, _) => sort_keys(top, windows, partition)?,
        _ => Vec::new(),
    };
    let mut contents = Contents::of(&listed, &inputs, &keys, partition)?;
    let is_one = matches!(listed, Listed::Top(top, _) if !top.is_many());
    let value_at = |at: usize| inputs[at].as_ref().map_or(Value::Null, ValueBuf::get);
    let size_at = |at: usize| {
        let value = inputs[at].as_ref().map_or(0, |value| value.as_raw().bytes().len());
        value + keys.get(at).map_or(0, |key| key.len())
    };
    let mut arena = Arena::new();
    let mut results: Vec<ValueBuf> = Vec::with_capacity(windows.len());
    let mut chosen = Vec::new();
    let mut held = 0..0;
    for window in windows {
        meter::spend(meter::CALL)?;
        if *window == held
            && let Some(last) = results.last()
        {
            results.push(kept(last.get())?);
            continue;
        }
        contents.slide(&held, window)?;
        held = window.clone();
        chosen.clear();
        contents.choose(&listed, window, &inputs, &mut chosen);
        let bytes = chosen.iter().map(|&at| size_at(at)).sum();
        accumulator.check_listed(chosen.len(), bytes, &context.limits)?;
        let result = match is_one {
            true => chosen.first().map_or(Value::Null, |&at| value_at(at)),
            false => arena.array(chosen.iter().map(|&at| value_at(at)))?,
        };
        results.push(kept(result)?);
        arena.reset();
    }
    Ok(Some(results))
}

/// The keys by which documents in windows are sorted; empty for others.
fn sort_keys(
    top: &Top,
    windows: &[Range<usize>],
    partition: &Partition<'_>,
) -> Result<Vec<Box<[u8]>>> {
    let seen = Partition::seen(windows);
    let mut arena = Arena::new();
    let mut key = Vec::new();
    let mut keys = Vec::with_capacity(partition.documents.len());
    for (at, document) in partition.documents.iter().enumerate() {
        key.clear();
        if seen.contains(&at) {
            meter::spend(meter::CALL)?;
            arena.reset();
            let frame = Frame::new(document.as_doc(), &arena, partition.context);
            top.sort_by().write_key(&frame, &mut key)?;
        }
        keys.push(key.as_slice().into());
    }
    Ok(keys)
}

/// The values in a window, as far as their order matters.
enum Contents {
    /// The order is that of the documents.
    Plain,
    /// The ranks of the values.
    Ranks { order: Order, held: BTreeSet<usize> },
    /// The positions of each distinct value, by the number of the value.
    Distinct { numbers: Vec<Option<usize>>, held: BTreeMap<usize, VecDeque<usize>> },
}

/// Positions in the order of their values. Of equal values the earlier one is less.
struct Order {
    /// The positions by rank.
    positions: Vec<usize>,
    /// The rank of each position; none of a position whose value does not count.
    ranks: Vec<Option<usize>>,
}

impl Order {
    fn of(
        count: usize,
        counts: impl Fn(usize) -> bool,
        compare: impl Fn(usize, usize) -> Ordering,
    ) -> Result<Order> {
        let mut positions: Vec<usize> = (0..count).filter(|&at| counts(at)).collect();
        meter::sort_by(&mut positions, |&a, &b| compare(a, b).then(a.cmp(&b)))?;
        let mut ranks = vec![None; count];
        for (rank, &at) in positions.iter().enumerate() {
            ranks[at] = Some(rank);
        }
        Ok(Order { positions, ranks })
    }
}

impl Contents {
    fn of(
        listed: &Listed<'_>,
        inputs: &[Option<ValueBuf>],
        keys: &[Box<[u8]>],
        partition: &Partition<'_>,
    ) -> Result<Contents> {
        let collator = partition.context.collator();
        let value = |at: usize| inputs[at].as_ref().map_or(Value::Null, ValueBuf::get);
        let compare = |a: usize, b: usize| order::compare(value(a), value(b), collator);
        let order = match listed {
            Listed::All | Listed::Kept(Keep::First | Keep::Last, _) => return Ok(Contents::Plain),
            Listed::Kept(Keep::Least | Keep::Greatest, _) => {
                Order::of(inputs.len(), |at| !value(at).is_nullish(), compare)?
            }
            Listed::Distinct => {
                let Order { positions, .. } =
                    Order::of(inputs.len(), |at| inputs[at].is_some(), compare)?;
                let mut numbers = vec![None; inputs.len()];
                let mut number = 0;
                for (rank, &at) in positions.iter().enumerate() {
                    meter::spend(meter::CALL)?;
                    let is_new = rank == 0 || compare(positions[rank - 1], at).is_ne();
                    number += usize::from(is_new);
                    numbers[at] = Some(number);
                }
                return Ok(Contents::Distinct { numbers, held: BTreeMap::new() });
            }
            Listed::Top(..) => Order::of(keys.len(), |_| true, |a, b| keys[a].cmp(&keys[b]))?,
        };
        Ok(Contents::Ranks { order, held: BTreeSet::new() })
    }

    /// Adds the values that one window has more than another, and removes those that it has less.
    fn slide(&mut self, from: &Range<usize>, to: &Range<usize>) -> Result<()> {
        let (added, removed) = (from.end..to.end, from.start..to.start);
        meter::spend(meter::CALL * (added.len() + removed.len()))?;
        match self {
            Contents::Plain => {}
            Contents::Ranks { order, held } => {
                held.extend(added.filter_map(|at| order.ranks[at]));
                removed.filter_map(|at| order.ranks[at]).for_each(|rank| {
                    held.remove(&rank);
                });
            }
            Contents::Distinct { numbers, held } => {
                for (at, number) in added.filter_map(|at| Some((at, numbers[at]?))) {
                    held.entry(number).or_default().push_back(at);
                }
                // The positions leave in the order in which they came.
                for number in removed.filter_map(|at| numbers[at]) {
                    let Some(positions) = held.get_mut(&number) else { continue };
                    positions.pop_front();
                    if positions.is_empty() {
                        held.remove(&number);
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends the positions of the values in the result, in its order.
    fn choose(
        &self,
        listed: &Listed<'_>,
        window: &Range<usize>,
        inputs: &[Option<ValueBuf>],
        chosen: &mut Vec<usize>,
    ) {
        match (self, listed) {
            (Contents::Distinct { held, .. }, _) => {
                chosen.extend(held.values().filter_map(VecDeque::front));
            }
            (Contents::Ranks { order, held }, listed) => {
                let at = |rank: &usize| order.positions[*rank];
                match *listed {
                    Listed::Kept(Keep::Greatest, count) => {
                        chosen.extend(held.iter().rev().take(count).map(at));
                    }
                    Listed::Top(top, count) if top.is_bottom() => {
                        chosen.extend(held.iter().rev().take(count).map(at));
                        chosen.reverse();
                    }
                    Listed::Kept(_, count) | Listed::Top(_, count) => {
                        chosen.extend(held.iter().take(count).map(at));
                    }
                    Listed::All | Listed::Distinct => {}
                }
            }
            (Contents::Plain, Listed::Kept(Keep::First, count)) => {
                chosen.extend(window.clone().take(*count));
            }
            (Contents::Plain, Listed::Kept(_, count)) => {
                chosen.extend(window.clone().skip(window.len().saturating_sub(*count)));
            }
            (Contents::Plain, _) => {
                chosen.extend(window.clone().filter(|&at| inputs[at].is_some()))
            }
        }
    }
}

//! Accumulators as expression operators: over a list of values, or over the elements of one array.

use marula_bson::{Value, order};
use marula_error::Result;

use crate::accumulator::Deviation;
use crate::accumulator::sum::Sum;
use crate::expression::{Expression, Frame, Operator};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::any("$avg", |args, frame| {
        let mut sum = Sum::default();
        for_each(args, frame, |value| sum.add(value))?;
        Ok(Some(sum.mean()))
    }),
    Operator::any("$max", |args, frame| extreme(args, true, frame)),
    Operator::any("$min", |args, frame| extreme(args, false, frame)),
    Operator::any("$stdDevPop", |args, frame| deviation(args, false, frame)),
    Operator::any("$stdDevSamp", |args, frame| deviation(args, true, frame)),
    Operator::any("$sum", |args, frame| {
        let mut sum = Sum::default();
        for_each(args, frame, |value| sum.add(value))?;
        Ok(Some(sum.total().into()))
    }),
];

/// Visits each value; a single array argument is replaced by its elements.
fn for_each<'a>(
    args: &'a [Expression],
    frame: &Frame<'a>,
    mut visit: impl FnMut(Value<'a>),
) -> Result<()> {
    if let [only] = args {
        match only.eval(frame)? {
            Some(Value::Array(items)) => {
                for item in items.values() {
                    meter::spend(meter::ELEMENT)?;
                    visit(item);
                }
            }
            Some(value) => visit(value),
            None => {}
        }
        return Ok(());
    }
    for arg in args {
        if let Some(value) = arg.eval(frame)? {
            visit(value);
        }
    }
    Ok(())
}

fn extreme<'a>(
    args: &'a [Expression],
    greatest: bool,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let mut best: Option<Value<'a>> = None;
    for_each(args, frame, |value| {
        if value.is_nullish() {
            return;
        }
        let is_better = best.is_none_or(|best| {
            let order = order::compare(value, best, frame.context.collator());
            if greatest { order.is_gt() } else { order.is_lt() }
        });
        if is_better {
            best = Some(value);
        }
    })?;
    Ok(Some(best.unwrap_or(Value::Null)))
}

fn deviation<'a>(
    args: &'a [Expression],
    sample: bool,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let mut deviation = Deviation::default();
    for_each(args, frame, |value| deviation.add(value))?;
    Ok(Some(deviation.value(sample)))
}

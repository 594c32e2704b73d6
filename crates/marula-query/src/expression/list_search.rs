//! A search for a value in a constant list, by `$in` or `$indexOfArray`: the list is hashed once,
//! and the value looked up for each document.

use marula_bson::{Type, Value};
use marula_error::Result;

use super::operators::{Part, index_of};
use super::set::ValueSet;
use super::{Call, Expression, Frame};
use crate::context::Context;
use crate::meter;

/// The number of values from which on a look-up is cheaper than comparisons.
const VALUES_MIN: usize = 8;

/// A search in a constant list.
#[derive(Clone, Debug)]
pub struct ListSearch {
    /// The original call.
    call: Call,
    values: ValueSet,
    /// The positions of each distinct value, ascending.
    positions: Vec<Vec<usize>>,
    /// The place of undefined among the distinct values, which is equal to a missing value.
    undefined: Option<usize>,
}

impl ListSearch {
    /// Converts an `$in` or `$indexOfArray`; returns other calls, and those whose list is not a
    /// constant or is short.
    pub(super) fn of(call: Call, context: &Context) -> std::result::Result<ListSearch, Call> {
        let Some((value, list)) = value_and_list(&call) else { return Err(call) };
        let (false, Some(Value::Array(items))) = (value.needs_no_document(), list.as_constant())
        else {
            return Err(call);
        };
        if items.iter().take(VALUES_MIN).count() < VALUES_MIN {
            return Err(call);
        }
        let (mut values, mut undefined) = (ValueSet::default(), None);
        let mut positions: Vec<Vec<usize>> = Vec::new();
        for (position, item) in items.values().enumerate() {
            let at = values.position(item, context.collator()).unwrap_or_else(|| {
                values.insert(item, context.collator());
                positions.push(Vec::new());
                positions.len() - 1
            });
            positions[at].push(position);
            if item.kind() == Type::Undefined {
                undefined = Some(at);
            }
        }
        Ok(ListSearch { call, values, positions, undefined })
    }

    /// The original call.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the result of the call.
    ///
    /// Errors: those of its arguments.
    pub(super) fn eval<'a>(&'a self, frame: &Frame<'a>) -> Result<Value<'a>> {
        meter::spend(meter::CALL)?;
        if self.call.operator.name == "$in" {
            return Ok(self.positions_of(&self.call.args[0], frame)?.is_some().into());
        }
        let part = Part::of(&self.call.args, frame)?;
        let positions = self.positions_of(&self.call.args[1], frame)?.unwrap_or_default();
        let first = positions.partition_point(|&at| at < part.start);
        Ok(index_of(positions.get(first).copied().filter(|&at| at < part.end)))
    }

    /// The positions of an expression's value in the list.
    fn positions_of<'a>(
        &'a self,
        wanted: &'a Expression,
        frame: &Frame<'a>,
    ) -> Result<Option<&'a [usize]>> {
        let at = match wanted.eval(frame)? {
            Some(wanted) => self.values.position(wanted, frame.context.collator()),
            None => self.undefined,
        };
        Ok(at.map(|at| &*self.positions[at]))
    }
}

/// The searched value and the list.
fn value_and_list(call: &Call) -> Option<(&Expression, &Expression)> {
    match (call.operator.name, &call.args[..]) {
        ("$in", [value, list]) | ("$indexOfArray", [list, value, ..]) => Some((value, list)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{ArrayWriter, Doc, DocBuf, doc};

    use super::*;
    use crate::expression::{Arena, Scope};

    /// A list and a value in it or not; the look-up must find what comparisons find.
    #[test]
    fn a_look_up_finds_what_comparisons_find() {
        let context = Context::default();
        let inner = doc! { "a": [1, 2], "b": { "x": 1 }, "c": { "x": 1.0 } };
        let mut items: Vec<Value<'_>> = vec![
            Value::Int32(1),
            Value::Double(2.0),
            Value::Int64(1 << 60),
            Value::from("a"),
            Value::Null,
            Value::Boolean(true),
            Value::Double(f64::NAN),
            Value::Double(-0.0),
            Value::DateTime(5),
            Value::Timestamp(5),
            inner.as_doc().get("a").unwrap(),
            inner.as_doc().get("b").unwrap(),
        ];
        for has_undefined in [false, true] {
            items.extend(has_undefined.then_some(Value::Undefined));
            let list = |args: &mut ArrayWriter<'_>| {
                let mut list = args.begin_array();
                items.iter().chain(&items[3..5]).for_each(|item| {
                    list.push(*item);
                });
            };
            let is_in = DocBuf::build(|out| list(out.begin_array("$in").push("$v")));
            let index_of = |range: &[i32]| {
                DocBuf::build(|out| {
                    let mut args = out.begin_array("$indexOfArray");
                    list(&mut args);
                    args.push("$v");
                    range.iter().for_each(|&end| {
                        args.push(end);
                    });
                })
            };
            let ranges: [&[i32]; 6] = [&[], &[0], &[4], &[3, 4], &[4, 100], &[9, 2]];
            for spec in ranges.into_iter().map(index_of).chain([is_in]) {
                check(spec.as_doc(), &items, inner.as_doc(), &context);
            }
        }
    }

    fn check(spec: Doc<'_>, items: &[Value<'_>], inner: Doc<'_>, context: &Context) {
        let parse = || Expression::parse_object(spec, &mut Scope::new(context)).unwrap();
        let (plain, mut prepared) = (parse(), parse());
        prepared.optimize(context).unwrap();
        assert!(matches!(prepared, Expression::ListSearch(_)));
        let others = [Value::Int64(2), Value::Int32(3), Value::from("b"), Value::Undefined];
        let others = others.into_iter().chain(inner.values());
        for value in items.iter().copied().chain(others).map(Some).chain([None]) {
            let document = DocBuf::build(|out| {
                if let Some(value) = value {
                    out.append("v", value);
                }
            });
            let arena = Arena::new();
            let frame = Frame::new(document.as_doc(), &arena, context);
            let found = prepared.eval(&frame).unwrap();
            assert_eq!(found, plain.eval(&frame).unwrap(), "{value:?} {spec:?}");
        }
    }
}

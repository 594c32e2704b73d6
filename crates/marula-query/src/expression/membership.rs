//! An `$in` of a constant list: the values are hashed once, and looked up for each document.

use marula_bson::{Type, Value};
use marula_error::Result;

use super::set::ValueSet;
use super::{Call, Expression, Frame};
use crate::context::Context;
use crate::meter;

/// The number of values from which on a look-up is cheaper than comparisons.
const VALUES_MIN: usize = 8;

/// An `$in` of a constant list.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The original call: the value, and the list.
    call: Call,
    values: ValueSet,
    /// Whether undefined is in the list, which is equal to a missing value.
    has_undefined: bool,
}

impl Membership {
    /// Converts an `$in`; returns the call if its list is not a constant or is short.
    pub(super) fn of(call: Call, context: &Context) -> std::result::Result<Membership, Call> {
        let [value, list] = &call.args[..] else { return Err(call) };
        let (false, Some(Value::Array(items))) = (value.needs_no_document(), list.as_constant())
        else {
            return Err(call);
        };
        if items.iter().take(VALUES_MIN).count() < VALUES_MIN {
            return Err(call);
        }
        let mut values = ValueSet::default();
        let mut has_undefined = false;
        for item in items.values() {
            has_undefined |= item.kind() == Type::Undefined;
            values.insert(item, context.collator());
        }
        Ok(Membership { call, values, has_undefined })
    }

    /// The original call.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// Returns whether the value is in the list.
    ///
    /// Errors: those of the value.
    pub(super) fn eval<'a>(&'a self, frame: &Frame<'a>) -> Result<bool> {
        meter::spend(meter::CALL)?;
        let wanted: &Expression = &self.call.args[0];
        Ok(match wanted.eval(frame)? {
            Some(wanted) => self.values.contains(wanted, frame.context.collator()),
            None => self.has_undefined,
        })
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

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
            let spec = DocBuf::build(|out| {
                let mut args = out.begin_array("$in");
                args.push("$v");
                let mut list = args.begin_array();
                items.iter().for_each(|item| {
                    list.push(*item);
                });
            });
            let parse =
                || Expression::parse_object(spec.as_doc(), &mut Scope::new(&context)).unwrap();
            let (plain, mut prepared) = (parse(), parse());
            prepared.optimize(&context).unwrap();
            assert!(matches!(prepared, Expression::Membership(_)));
            let others = [Value::Int64(2), Value::Int32(3), Value::from("b"), Value::Undefined];
            let others = others.into_iter().chain(inner.as_doc().values());
            for value in items.iter().copied().chain(others).map(Some).chain([None]) {
                let document = DocBuf::build(|out| {
                    if let Some(value) = value {
                        out.append("v", value);
                    }
                });
                let arena = Arena::new();
                let frame = Frame::new(document.as_doc(), &arena, &context);
                let found = prepared.eval(&frame).unwrap();
                assert_eq!(found, plain.eval(&frame).unwrap(), "{value:?} {has_undefined}");
            }
            items.push(Value::Undefined);
        }
    }
}

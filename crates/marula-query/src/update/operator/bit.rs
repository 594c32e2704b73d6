//! `$bit`: and, or, xor of integers.

use bstr::{BStr, ByteSlice};
use marula_bson::{Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::{IdOf, Operation};
use crate::context::Context;
use crate::update::trail::Trail;
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// The operand is not an object.
    not_an_object(kind: &str) = BadValue, "The $bit modifier is not compatible with a {kind}. You must pass in an embedded document: {{$bit: {{field: {{and/or/xor: #}}}}";
    /// The operand is empty.
    empty() = BadValue, "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: {{and/or/xor: #}}}}";
    /// An unknown operation.
    unknown(name: &BStr, element: Element<'_>) = BadValue, "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: {{{element}}}";
    /// An operation's number is not an integer.
    not_an_integer(kind: &str, element: Element<'_>) = BadValue, "The $bit modifier field must be an Integer(32/64 bit); a '{kind}' is not supported here: {{{element}}}";
    /// The value is not an integer.
    value_not_an_integer(id: IdOf<'_>, name: &BStr, kind: &str) = BadValue, "Cannot apply $bit to a value of non-integral type.{id} has the field {name} of non-integer type {kind}";
}

/// The operations of one `$bit`, in order.
#[derive(Debug)]
pub(in crate::update) struct Bit {
    steps: Vec<(BitStep, Integer)>,
}

#[derive(Clone, Copy, Debug)]
enum BitStep {
    And,
    Or,
    Xor,
}

/// An int or a long: the result of an operation on both is a long.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Integer {
    value: i64,
    is_long: bool,
}

impl Integer {
    fn of(value: Value<'_>) -> Option<Integer> {
        match value {
            Value::Int32(value) => Some(Integer { value: i64::from(value), is_long: false }),
            Value::Int64(value) => Some(Integer { value, is_long: true }),
            _ => None,
        }
    }

    fn write(self, out: &mut Vec<u8>) -> Type {
        let value = match i32::try_from(self.value) {
            Ok(value) if !self.is_long => Value::Int32(value),
            _ => Value::Int64(self.value),
        };
        value.write(out);
        value.kind()
    }
}

pub(super) fn parse(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let Value::Document(doc) = field.value.get() else {
        return Err(not_an_object(field.value.kind().alias()));
    };
    let steps: Vec<_> = doc.iter().map(parse_step).collect::<Result<_>>()?;
    if steps.is_empty() {
        return Err(empty());
    }
    Ok(Operation::Bit(Bit { steps }))
}

fn parse_step(element: Element<'_>) -> Result<(BitStep, Integer)> {
    let step = match element.name.as_bytes() {
        b"and" => BitStep::And,
        b"or" => BitStep::Or,
        b"xor" => BitStep::Xor,
        _ => return Err(unknown(element.name, element)),
    };
    let integer = Integer::of(element.value.get())
        .ok_or_else(|| not_an_integer(element.value.kind().alias(), element))?;
    Ok((step, integer))
}

impl Bit {
    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Some(current) = Integer::of(old.get()) else {
            let id = IdOf { doc: walk.root, missing: "INVALID-MUTABLE-ELEMENT" };
            return Err(value_not_an_integer(id, at.name().into(), old.kind().alias()));
        };
        let result = self.run(current);
        Ok(if result == current { WriteStep::Keep } else { WriteStep::Write(result.write(out)) })
    }

    pub(super) fn make(&self, out: &mut Vec<u8>) -> Type {
        self.run(Integer { value: 0, is_long: false }).write(out)
    }

    fn run(&self, start: Integer) -> Integer {
        self.steps.iter().fold(start, |current, &(step, operand)| {
            let value = match step {
                BitStep::And => current.value & operand.value,
                BitStep::Or => current.value | operand.value,
                BitStep::Xor => current.value ^ operand.value,
            };
            Integer { value, is_long: current.is_long || operand.is_long }
        })
    }
}

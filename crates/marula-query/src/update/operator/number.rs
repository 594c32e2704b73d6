//! `$inc` and `$mul`: arithmetic in the wider type of the two numbers.
//!
//! An int that overflows becomes a long; a long that overflows is an error.

use bstr::BStr;
use marula_bson::{Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::{IdOf, Operation};
use crate::context::Context;
use crate::expression::number::{Number, Pair, decimal_product, decimal_sum, int_or_long};
use crate::update::trail::Trail;
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// The operand is not a number.
    operand_not_a_number(verb: &str, field: Element<'_>) = TypeMismatch, "Cannot {verb} with non-numeric argument: {{{field}}}";
    /// The value is not a number.
    value_not_a_number(operator: &str, id: IdOf<'_>, name: &BStr, kind: &str) = TypeMismatch, "Cannot apply {operator} to a value of non-numeric type. {{{id}}} has the field '{name}' of non-numeric type {kind}";
    /// The result is out of the range of a long.
    overflow(operator: &str, current: &str, id: IdOf<'_>) = BadValue, "Failed to apply {operator} operations to current value ({current}) for document {{{id}}}";
}

/// `$inc` or `$mul`.
#[derive(Debug)]
pub(in crate::update) struct Arithmetic {
    operand: Number,
    kind: ArithmeticKind,
}

#[derive(Clone, Copy, Debug)]
enum ArithmeticKind {
    Inc,
    Mul,
}

pub(super) fn parse_inc(field: Element<'_>, _context: &Context) -> Result<Operation> {
    parse(field, ArithmeticKind::Inc)
}

pub(super) fn parse_mul(field: Element<'_>, _context: &Context) -> Result<Operation> {
    parse(field, ArithmeticKind::Mul)
}

fn parse(field: Element<'_>, kind: ArithmeticKind) -> Result<Operation> {
    let operand =
        Number::of(field.value.get()).ok_or_else(|| operand_not_a_number(kind.verb(), field))?;
    Ok(Operation::Arithmetic(Arithmetic { operand, kind }))
}

impl ArithmeticKind {
    fn name(self) -> &'static str {
        match self {
            ArithmeticKind::Inc => "$inc",
            ArithmeticKind::Mul => "$mul",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            ArithmeticKind::Inc => "increment",
            ArithmeticKind::Mul => "multiply",
        }
    }

    /// Returns the result, or `None` if it is out of the range of a long.
    fn combine(self, a: Number, b: Number) -> Option<Number> {
        Some(match (Number::pair(a, b), self) {
            (Pair::Int(a, b), ArithmeticKind::Inc) => int_or_long(i64::from(a) + i64::from(b)),
            (Pair::Int(a, b), ArithmeticKind::Mul) => int_or_long(i64::from(a) * i64::from(b)),
            (Pair::Long(a, b), ArithmeticKind::Inc) => Number::Long(a.checked_add(b)?),
            (Pair::Long(a, b), ArithmeticKind::Mul) => Number::Long(a.checked_mul(b)?),
            (Pair::Double(a, b), ArithmeticKind::Inc) => Number::Double(a + b),
            (Pair::Double(a, b), ArithmeticKind::Mul) => Number::Double(a * b),
            (Pair::Decimal(a, b), ArithmeticKind::Inc) => Number::Decimal(decimal_sum(a, b)),
            (Pair::Decimal(a, b), ArithmeticKind::Mul) => Number::Decimal(decimal_product(a, b)),
        })
    }
}

impl Arithmetic {
    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Some(current) = Number::of(old.get()) else {
            let (id, kind) = (IdOf::of(walk.root), old.kind().alias());
            return Err(value_not_a_number(self.kind.name(), id, at.name().into(), kind));
        };
        let Some(result) = self.kind.combine(current, self.operand) else {
            let id = IdOf::of(walk.root);
            return Err(overflow(self.kind.name(), &debug_text(current), id));
        };
        if is_identical(current, result) {
            return Ok(WriteStep::Keep);
        }
        Ok(WriteStep::Write(write(result, out)))
    }

    /// Writes the result for a missing field: the operand, or zero times the operand.
    pub(super) fn make(&self, out: &mut Vec<u8>) -> Type {
        let result = match self.kind {
            ArithmeticKind::Inc => Some(self.operand),
            ArithmeticKind::Mul => self.kind.combine(Number::Int(0), self.operand),
        };
        write(result.expect("zero times a number does not overflow"), out)
    }
}

/// Returns whether a result is the same as before: the same type and an equal number, so that
/// zero's sign and a decimal's trailing zeros do not count, and a NaN is always new.
fn is_identical(current: Number, result: Number) -> bool {
    match (current, result) {
        (Number::Decimal(a), Number::Decimal(b)) => !a.is_nan() && a.compare(b).is_eq(),
        _ => current == result,
    }
}

pub(super) fn write(number: Number, out: &mut Vec<u8>) -> Type {
    let value = match number {
        Number::Int(number) => Value::Int32(number),
        Number::Long(number) => Value::Int64(number),
        Number::Double(number) => Value::Double(number),
        Number::Decimal(number) => Value::Decimal128(number),
    };
    value.write(out);
    value.kind()
}

/// Returns an integer in the form of the overflow message; other numbers do not overflow.
fn debug_text(number: Number) -> String {
    match number {
        Number::Int(number) => format!("(NumberInt){number}"),
        Number::Long(number) => format!("(NumberLong){number}"),
        Number::Double(number) => format!("(NumberDouble){number}"),
        Number::Decimal(number) => format!("(NumberDecimal){number}"),
    }
}

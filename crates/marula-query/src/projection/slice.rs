//! `$slice` of the query language: some elements of an array.

use marula_bson::{ArrayWriter, Doc, Type, Value};

use crate::expression::saturated_long;

/// Which elements of an array are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    /// Where they begin; a negative number counts from the end.
    skip: i64,
    /// How many they are at most.
    limit: usize,
}

impl Slice {
    /// Reads `n` or `[skip, limit]`; an error says what is wrong.
    pub(super) fn parse(operand: Value<'_>) -> Result<Slice, Mismatch> {
        let saturated = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match operand {
            Value::Array(array) => {
                let mut items = array.values();
                let (Some(skip), Some(limit), None) = (items.next(), items.next(), items.next())
                else {
                    return Err(Mismatch::ArrayShape);
                };
                let skip_number = saturated_long(skip).ok_or(Mismatch::Skip(skip.kind()))?;
                let limit_number =
                    saturated_long(limit).ok_or(Mismatch::LimitType(limit.kind()))?;
                if limit_number <= 0 {
                    return Err(Mismatch::Limit(limit_number));
                }
                Ok(Slice { skip: skip_number, limit: saturated(limit_number.unsigned_abs()) })
            }
            number => match saturated_long(number) {
                Some(count) if count < 0 => {
                    Ok(Slice { skip: count, limit: saturated(count.unsigned_abs()) })
                }
                Some(count) => Ok(Slice { skip: 0, limit: saturated(count.unsigned_abs()) }),
                None => Err(Mismatch::Type),
            },
        }
    }

    /// Appends the elements that are shown of an array.
    pub(super) fn write(self, array: Doc<'_>, out: &mut ArrayWriter<'_>) {
        let skip = if self.skip < 0 {
            let from_end = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
            array.iter().count().saturating_sub(from_end)
        } else {
            usize::try_from(self.skip).unwrap_or(usize::MAX)
        };
        for element in array.iter().skip(skip).take(self.limit) {
            out.push_raw(element.value);
        }
    }
}

/// Why an operand is not that of the query language's `$slice`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mismatch {
    /// It is neither a number nor an array.
    Type,
    /// It is an array of another shape.
    ArrayShape,
    /// The first of two is no number.
    Skip(Type),
    /// The second of two is no number.
    LimitType(Type),
    /// It asks for no elements, or for less.
    Limit(i64),
}

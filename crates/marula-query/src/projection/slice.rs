//! `$slice` of the query language: some elements of an array.

use marula_bson::{ArrayWriter, Doc, Type, Value};

use crate::expression::saturated_long;

/// The shown elements of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    /// The position of the first element; a negative number counts from the end.
    skip: i64,
    /// The maximum number of elements.
    limit: usize,
}

impl Slice {
    /// Reads `n` or `[skip, limit]`; an error names the reason.
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

    /// Appends the shown elements of an array.
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

/// The reason why an operand does not fit the query language's `$slice`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mismatch {
    /// It is neither a number nor an array.
    Type,
    /// It is an array of a different form.
    ArrayShape,
    /// The first of two is not a number.
    Skip(Type),
    /// The second of two is not a number.
    LimitType(Type),
    /// It asks for no elements, or for less.
    Limit(i64),
}

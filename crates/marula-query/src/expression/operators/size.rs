//! The size of a value in bytes: `$binarySize`, `$bsonSize`.

use marula_bson::{Binary, Value};
use marula_error::{Result, errors};

use super::known;
use crate::expression::{Expression, Frame, Operator};
use crate::stage::source::check_result;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$binarySize", 1, binary_size),
    Operator::exactly("$bsonSize", 1, bson_size),
];

errors! {
    binary_size_wrong_type(kind: &str) = 51276, "$binarySize requires a string or BinData argument, found: {kind}";
    bson_size_wrong_type(kind: &str) = 31393, "$bsonSize requires a document input, found: {kind}";
}

fn binary_size<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let size = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::String(text)) => text.len(),
        Some(Value::Binary(Binary { bytes, .. })) => bytes.len(),
        Some(value) => return Err(binary_size_wrong_type(value.kind().alias())),
    };
    Ok(Some(i32::try_from(size).unwrap_or(i32::MAX).into()))
}

fn bson_size<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Document(doc)) => {
            check_result(doc)?;
            Ok(Some(i32::try_from(doc.as_bytes().len()).unwrap_or(i32::MAX).into()))
        }
        Some(value) => Err(bson_size_wrong_type(value.kind().alias())),
    }
}

//! String operators that measure, cut and compare; `text` has those that search and replace.

use std::borrow::Cow;

use bstr::ByteSlice;
use dec::Rounding;
use marula_bson::Value;
use marula_error::{Error, Result, errors};

use super::arithmetic::round_decimal;
use super::array::{exact_i32, search_index};
use super::{kind, known};
use crate::expression::number::{check_fits_long, double_text, short_double_text};
use crate::expression::operator::Operator as OperatorRow;
use crate::expression::{Expression, Frame, Operator, print};
use crate::meter;

/// The number of bytes of the longest character that `$substrCP` accepts.
const LONGEST_CHARACTER: usize = 4;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::any("$concat", concat),
    Operator::between("$indexOfBytes", 2, 4, index_of_bytes),
    Operator::between("$indexOfCP", 2, 4, index_of_cp),
    Operator::exactly("$strLenBytes", 1, str_len_bytes),
    Operator::exactly("$strLenCP", 1, str_len_cp),
    Operator::exactly("$strcasecmp", 2, strcasecmp),
    // The old name; its errors use the new one.
    Operator::special("$substr", parse_substr, substr_bytes),
    Operator::exactly("$substrBytes", 3, substr_bytes),
    Operator::exactly("$substrCP", 3, substr_cp),
    Operator::exactly("$toLower", 1, |args, frame| {
        recase(args, <[u8]>::make_ascii_lowercase, frame)
    }),
    Operator::exactly("$toUpper", 1, |args, frame| {
        recase(args, <[u8]>::make_ascii_uppercase, frame)
    }),
];

errors! {
    concat_wrong_type(kind: &str) = 16702, "$concat only supports strings, not {kind}";
    not_a_string(kind: &str) = 16007, "can't convert from BSON type {kind} to String";
    index_bytes_first(kind: &str) = 40091, "$indexOfBytes requires a string as the first argument, found: {kind}";
    index_bytes_second(kind: &str) = 40092, "$indexOfBytes requires a string as the second argument, found: {kind}";
    index_cp_first(kind: &str) = 40093, "$indexOfCP requires a string as the first argument, found: {kind}";
    index_cp_second(kind: &str) = 40094, "$indexOfCP requires a string as the second argument, found: {kind}";
    len_bytes_wrong_type(kind: &str) = 34473, "$strLenBytes requires a string argument, found: {kind}";
    len_cp_wrong_type(kind: &str) = 34471, "$strLenCP requires a string argument, found: {kind}";
    substr_start_not_number(kind: &str) = 16034, "$substrBytes:  starting index must be a numeric type (is BSON type {kind})";
    substr_length_not_number(kind: &str) = 16035, "$substrBytes:  length must be a numeric type (is BSON type {kind})";
    substr_start_negative(start: i64) = 50752, "$substrBytes:  starting index must be non-negative (got: {start})";
    substr_start_inside() = 28656, "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.";
    substr_end_inside() = 28657, "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.";
    cp_start_not_number(kind: &str) = 34450, "$substrCP: starting index must be a numeric type (is BSON type {kind})";
    cp_start_not_int(text: &str) = 34451, "$substrCP: starting index cannot be represented as a 32-bit integral value: {text}";
    cp_length_not_number(kind: &str) = 34452, "$substrCP: length must be a numeric type (is BSON type {kind})";
    cp_length_not_int(text: &str) = 34453, "$substrCP: length cannot be represented as a 32-bit integral value: {text}";
    index_cp_invalid() = 40095, "$indexOfCP found bad UTF-8 in the input";
    cp_inside_before() = 34456, "$substrCP: invalid UTF-8 string";
    cp_too_long_before() = 34457, "$substrCP: invalid UTF-8 string";
    cp_inside() = 34458, "$substrCP: invalid UTF-8 string";
    cp_too_long() = 34459, "$substrCP: invalid UTF-8 string";
    cp_length_negative() = 34454, "$substrCP: length must be a nonnegative integer.";
    cp_start_negative() = 34455, "$substrCP: the starting index must be nonnegative integer.";
}

/// A value converted to text for string operators: numbers and dates are formatted, null is empty.
pub(super) fn coerced(value: Option<Value<'_>>) -> Result<Cow<'_, [u8]>> {
    let Some(value) = value else {
        return Ok(Cow::Borrowed(b""));
    };
    Ok(match value {
        Value::Null | Value::Undefined => Cow::Borrowed(b""),
        Value::String(text) | Value::Symbol(text) | Value::Code(text) => Cow::Borrowed(&**text),
        Value::Int32(number) => number.to_string().into_bytes().into(),
        Value::Int64(number) => number.to_string().into_bytes().into(),
        Value::Double(number) => short_double_text(number).into_bytes().into(),
        Value::Decimal128(number) => number.to_string().into_bytes().into(),
        Value::DateTime(ms) => super::date::iso_text(ms)
            .map_err(|error| error.caused_by("failed while coercing date to string"))?
            .into_bytes()
            .into(),
        Value::Timestamp(bits) => super::date::timestamp_text(bits).into_bytes().into(),
        _ => return Err(not_a_string(value.kind().alias())),
    })
}

/// A double as converted to a string.
pub(super) fn spelled_double(number: f64) -> String {
    match number {
        number if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => double_text(number),
    }
}

fn concat<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut parts = frame.arena.list();
    for arg in args {
        match known(arg, frame)? {
            None => return Ok(Some(Value::Null)),
            Some(Value::String(text)) => parts.push(text),
            Some(value) => return Err(concat_wrong_type(value.kind().alias())),
        }
    }
    frame.arena.string_of(parts.into_iter().map(|part| &**part)).map(Some)
}

fn index_of_bytes<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(text) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Value::String(text) = text else {
        return Err(index_bytes_first(text.kind().alias()));
    };
    let wanted = args[1].eval(frame)?;
    let Some(Value::String(wanted)) = wanted else {
        return Err(index_bytes_second(kind(wanted)));
    };
    let start = search_index("$indexOfBytes", "starting", args.get(2), frame)?.unwrap_or(0);
    let end = search_index("$indexOfBytes", "ending", args.get(3), frame)?;
    let end = end.unwrap_or(text.len()).min(text.len());
    let found = text.get(start..end).and_then(|part| part.find(&**wanted));
    Ok(Some(index_value(found.map(|at| at + start))))
}

fn index_value<'a>(found: Option<usize>) -> Value<'a> {
    found.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1).into()
}

fn index_of_cp<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(text) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Value::String(text) = text else {
        return Err(index_cp_first(text.kind().alias()));
    };
    let wanted = args[1].eval(frame)?;
    let Some(Value::String(wanted)) = wanted else {
        return Err(index_cp_second(kind(wanted)));
    };
    let start = search_index("$indexOfCP", "starting", args.get(2), frame)?.unwrap_or(0);
    check_characters(text)?;
    let end = search_index("$indexOfCP", "ending", args.get(3), frame)?.unwrap_or(usize::MAX);
    if text.is_empty() && wanted.is_empty() && start == 0 {
        return Ok(Some(index_value(Some(0))));
    }
    let mut places = text.find_iter(&**wanted).peekable();
    let mut next = 0;
    for index in 0..end {
        meter::spend(meter::ELEMENT)?;
        let at = next;
        let Some(byte) = text.get(at) else { break };
        next += character_length(*byte);
        // A position inside a character does not count, nor does one before the start.
        while places.next_if(|&place| place < at).is_some() {}
        if index >= start && places.peek() == Some(&at) {
            return Ok(Some(index_value(Some(index))));
        }
    }
    Ok(Some(index_value(None)))
}

/// Checks that a character begins wherever the one before it ends.
fn check_characters(text: &[u8]) -> Result<()> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        meter::spend(meter::ELEMENT)?;
        if is_inside_character(*byte) {
            return Err(index_cp_invalid());
        }
        at += character_length(*byte);
    }
    Ok(())
}

/// The length of a character, by its first byte alone, as mongod counts it in any bytes.
fn character_length(first: u8) -> usize {
    match first.leading_ones() {
        0 | 1 => 1,
        length => length as usize,
    }
}

/// Returns whether a byte is one after the first of a UTF-8 character.
fn is_inside_character(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

fn str_len_bytes<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match args[0].eval(frame)? {
        Some(Value::String(text)) => Ok(Some(index_value(Some(text.len())))),
        other => Err(len_bytes_wrong_type(kind(other))),
    }
}

fn str_len_cp<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match args[0].eval(frame)? {
        Some(Value::String(text)) => {
            let first_bytes = text.iter().filter(|byte| !is_inside_character(**byte));
            Ok(Some(index_value(Some(first_bytes.count()))))
        }
        other => Err(len_cp_wrong_type(kind(other))),
    }
}

fn strcasecmp<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let left = args[0].eval(frame)?;
    let right = args[1].eval(frame)?;
    let left = coerced(left)?.to_ascii_uppercase();
    let right = coerced(right)?.to_ascii_uppercase();
    Ok(Some((left.cmp(&right) as i32).into()))
}

fn recase<'a>(
    args: &'a [Expression],
    change: fn(&mut [u8]),
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let value = args[0].eval(frame)?;
    let text = coerced(value)?;
    let text = frame.arena.string(|out| {
        out.extend_from_slice(&text);
        change(out);
    })?;
    Ok(Some(text))
}

fn parse_substr(
    _: &'static Operator,
    value: Value<'_>,
    scope: &mut crate::expression::Scope<'_>,
) -> Result<Expression> {
    OperatorRow::find(b"$substrBytes", scope.context.version)?.parse(value, scope)
}

/// Returns whether a UTF-8 character starts at `at`, or `at` is at or after the end.
fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| !is_inside_character(*byte))
}

fn substr_bytes<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let text = args[0].eval(frame)?;
    let start = args[1].eval(frame)?;
    let length = args[2].eval(frame)?;
    let text = coerced(text)?;
    let is_number = |value: &Value<'_>| value.kind().is_number();
    let number = start.filter(is_number).ok_or_else(|| substr_start_not_number(kind(start)))?;
    let length = length.filter(is_number).ok_or_else(|| substr_length_not_number(kind(length)))?;
    let start = whole(number)?;
    let first = usize::try_from(start).map_err(|_| substr_start_negative(start))?;
    let length = whole(length)?;
    if !is_boundary(&text, first) {
        return Err(substr_start_inside());
    }
    // A negative length means up to the end.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let end = first.saturating_add(length).min(text.len());
    if first < text.len() && !is_boundary(&text, end) {
        return Err(substr_end_inside());
    }
    let part = text.get(first..end).unwrap_or(b"");
    frame.arena.string(|out| out.extend_from_slice(part)).map(Some)
}

/// A number as a long: a double is truncated and must fit; a decimal is rounded, and one that does
/// not fit becomes the least long.
#[allow(clippy::cast_possible_truncation)]
fn whole(value: Value<'_>) -> Result<i64> {
    check_fits_long(value)?;
    Ok(match value {
        Value::Int32(number) => number.into(),
        Value::Int64(number) => number,
        Value::Decimal128(number) => {
            round_decimal(number, Rounding::HalfEven).to_exact_i64().unwrap_or(i64::MIN)
        }
        _ => value.as_f64().unwrap_or_default() as i64,
    })
}

fn substr_cp<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let text = args[0].eval(frame)?;
    let start = args[1].eval(frame)?;
    let length = args[2].eval(frame)?;
    let text = coerced(text)?;
    let number = |value: Option<Value<'a>>| value.filter(|value| value.kind().is_number());
    let start = number(start).ok_or_else(|| cp_start_not_number(kind(start)))?;
    let start = exact_i32(start).ok_or_else(|| cp_start_not_int(&print::value(start)))?;
    let length = number(length).ok_or_else(|| cp_length_not_number(kind(length)))?;
    let length = exact_i32(length).ok_or_else(|| cp_length_not_int(&print::value(length)))?;
    let length = usize::try_from(length).map_err(|_| cp_length_negative())?;
    let start = usize::try_from(start).map_err(|_| cp_start_negative())?;
    let first = end_of(&text, start, cp_inside_before, cp_too_long_before)?;
    let rest = text.get(first..).unwrap_or_default();
    let length = end_of(rest, length, cp_inside, cp_too_long)?;
    let part = rest.get(..length).unwrap_or(rest);
    frame.arena.string(|out| out.extend_from_slice(part)).map(Some)
}

/// The end of the first `count` characters, or of the text. A last character that is cut short
/// ends after the text.
fn end_of(
    text: &[u8],
    count: usize,
    inside: fn() -> Error,
    too_long: fn() -> Error,
) -> Result<usize> {
    let mut end = 0;
    for _ in 0..count {
        let Some(first) = text.get(end) else { break };
        if is_inside_character(*first) {
            return Err(inside());
        }
        let length = character_length(*first);
        if length > LONGEST_CHARACTER {
            return Err(too_long());
        }
        end += length;
    }
    Ok(end)
}

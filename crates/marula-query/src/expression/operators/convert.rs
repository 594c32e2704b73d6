//! Type operators: `$convert`, its short forms, `$type`, `$isNumber`.

use bstr::{BStr, ByteSlice};
use marula_bson::{Decimal128, Doc, ObjectId, Type, Value};
use marula_error::codes::ConversionFailure;
use marula_error::{Error, Result, errors};

use super::array::exact_i32;
use super::binary::{self, Form, Format};
use super::{kind, known};
use crate::expression::number::short_double_text;
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::feature_version::FeatureVersion;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named(
        "$convert",
        &["input", "to", "onError", "onNull", "format", "byteOrder"],
        parse_convert,
        convert,
    ),
    Operator::exactly("$isNumber", 1, |args, frame| {
        Ok(Some(args[0].eval(frame)?.is_some_and(|value| value.kind().is_number()).into()))
    }),
    to("$toBool", |args, frame| short(args, Type::Boolean, frame)),
    to("$toDate", |args, frame| short(args, Type::DateTime, frame)),
    to("$toDecimal", |args, frame| short(args, Type::Decimal128, frame)),
    to("$toDouble", |args, frame| short(args, Type::Double, frame)),
    to("$toInt", |args, frame| short(args, Type::Int32, frame)),
    to("$toLong", |args, frame| short(args, Type::Int64, frame)),
    to("$toObjectId", |args, frame| short(args, Type::ObjectId, frame)),
    to("$toString", |args, frame| short(args, Type::String, frame)),
    to("$toUUID", |args, frame| match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(input) => {
            let no = || unsupported(input.kind().alias(), Type::Binary.alias());
            let form = Form { subtype: 4, format: Some(Format::Uuid), ..AUTO };
            match input {
                Value::String(_) | Value::Binary(_) => {
                    binary::convert(input, Type::Binary, form, &no, frame).map(Some)
                }
                _ => Err(no()),
            }
        }
    })
    .since(FeatureVersion::V8_0),
    Operator::exactly("$type", 1, |args, frame| Ok(Some(kind(args[0].eval(frame)?).into()))),
];

errors! {
    not_object(kind: &str) = FailedToParse, "$convert expects an object of named arguments but found: {kind}";
    unknown_argument(name: &str) = FailedToParse, "$convert found an unknown argument: {name}";
    missing_input() = FailedToParse, "Missing 'input' parameter to $convert";
    missing_type() = FailedToParse, "Missing 'type' parameter to the 'to' argument of $convert";
    unknown_to(name: &str) = FailedToParse, "$convert found an unknown argument in 'to': {name}";
    missing_to() = FailedToParse, "Missing 'to' parameter to $convert";
    one_argument(name: &str, count: usize) = 50723, "{name} requires a single argument, got {count}";
    to_not_integer() = FailedToParse, "In $convert, numeric 'to' argument is not an integer";
    to_not_a_type(number: i32) = FailedToParse, "In $convert, numeric value for 'to' does not correspond to a BSON type: {number}";
    to_wrong_type(kind: &str) = FailedToParse, "$convert's 'to' argument must be a string or number, but is {kind}";
    unknown_type(name: &str) = BadValue, "Unknown type name: {name}";
    unsupported(from: &str, to: &str) = ConversionFailure, "Unsupported conversion from {from} to {to} in $convert with no onError value";
    nan_to_integer() = ConversionFailure, "Attempt to convert NaN value to integer type in $convert with no onError value";
    infinity_to_integer() = ConversionFailure, "Attempt to convert infinity value to integer type in $convert with no onError value";
    overflow(text: &str) = ConversionFailure, "Conversion would overflow target type in $convert with no onError value: {text}";
    hexadecimal(text: &str) = ConversionFailure, "Illegal hexadecimal input in $convert with no onError value: {text}";
    bad_number(text: &str, why: &str) = ConversionFailure, "Failed to parse number '{text}' in $convert with no onError value: {why}";
    bad_object_id(text: &str, why: &str) = ConversionFailure, "Failed to parse objectId '{text}' in $convert with no onError value: {why}";
}

/// The parameters of the short forms for binary data.
const AUTO: Form = Form { subtype: 0, format: Some(Format::Auto), is_big_endian: false };

const fn to(name: &'static str, eval: crate::expression::operator::Eval) -> Operator {
    Operator::special(name, parse_short, eval)
}

/// Parses `{ $toInt: <expression> }`; an array must have exactly one element.
fn parse_short(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let args = crate::expression::operator::parse_list(value, scope)?;
    match args.len() {
        1 => Ok(operator.call(args)),
        count => Err(one_argument(operator.name, count)),
    }
}

fn short<'a>(args: &'a [Expression], to: Type, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(input) if is_binary(input, to, frame) => {
            let no = || unsupported(input.kind().alias(), to.alias());
            binary::convert(input, to, AUTO, &no, frame).map(Some)
        }
        Some(input) => converted(input, to, frame).map(Some),
    }
}

/// Returns whether a conversion is one of those from or to binary data introduced in 8.0.
fn is_binary(input: Value<'_>, to: Type, frame: &Frame<'_>) -> bool {
    frame.context.version >= FeatureVersion::V8_0
        && to != Type::Boolean
        && (to == Type::Binary || input.kind() == Type::Binary)
}

fn parse_convert(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut input, mut to, mut on_error, mut on_null) = (None, None, None, None);
    let (mut format, mut byte_order) = (None, None);
    let is_newer = scope.context.version >= FeatureVersion::V8_0;
    for element in doc {
        let slot = match &**element.name {
            b"input" => &mut input,
            b"to" => &mut to,
            b"onError" => &mut on_error,
            b"onNull" => &mut on_null,
            b"format" if is_newer => &mut format,
            b"byteOrder" if is_newer => &mut byte_order,
            _ => return Err(unknown_argument(&element.name.to_string())),
        };
        *slot = Some(Expression::parse(element.value.get(), scope)?);
    }
    let input = input.ok_or_else(missing_input)?;
    let to = to.ok_or_else(missing_to)?;
    // It matters whether onError is given, even if its value is missing, so it is a list of zero or
    // one expressions.
    let on_error = Expression::Array(on_error.into_iter().collect());
    let on_null = on_null.unwrap_or_else(|| Value::Null.into());
    let mut args = vec![input, to, on_error, on_null];
    if format.is_some() || byte_order.is_some() {
        args.push(format.unwrap_or(Expression::Missing));
        args.push(byte_order.unwrap_or(Expression::Missing));
    }
    Ok(operator.call(args))
}

fn convert<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let to = known(&args[1], frame)?;
    let input = known(&args[0], frame)?;
    let mut form = Form { format: None, ..AUTO };
    let to = match to {
        Some(Value::Document(parts)) if frame.context.version >= FeatureVersion::V8_0 => {
            to_of_parts(parts, &mut form)?
        }
        to => to,
    };
    let target = match to {
        None => None,
        Some(to) => Some(target(to)?),
    };
    let is_null = match args.get(4..) {
        Some([format, byte_order]) => !read_form(&mut form, format, byte_order, frame)?,
        _ => false,
    };
    let Some(input) = input else {
        return args[3].eval(frame);
    };
    let Some(target) = target.filter(|_| !is_null) else {
        return Ok(Some(Value::Null));
    };
    let result = match target {
        Some(target) if is_binary(input, target, frame) => {
            let no = || unsupported(input.kind().alias(), target.alias());
            binary::convert(input, target, form, &no, frame)
        }
        Some(target) => converted(input, target, frame),
        None => Err(unsupported(input.kind().alias(), "missing")),
    };
    match result {
        Err(error) if error.code() == ConversionFailure => match &args[2] {
            Expression::Array(items) if items.is_empty() => Err(error),
            Expression::Array(items) => items[0].eval(frame),
            // Computed during parsing.
            other => match other.as_constant() {
                Some(Value::Array(items)) => {
                    items.values().next().map_or(Err(error), |v| Ok(Some(v)))
                }
                _ => Err(error),
            },
        },
        result => result.map(Some),
    }
}

/// Parses `to: { type: …, subtype: … }`; returns the type and stores the subtype in the form.
fn to_of_parts<'a>(parts: Doc<'a>, form: &mut Form) -> Result<Option<Value<'a>>> {
    let mut to = None;
    for element in parts {
        let value = element.value.get();
        match &**element.name {
            b"type" => to = Some(value),
            b"subtype" if value.is_nullish() => {}
            b"subtype" => form.subtype = binary::read_subtype(value)?,
            _ => return Err(unknown_to(&element.name.to_string())),
        }
    }
    match to {
        None => Err(missing_type()),
        Some(value) if value.is_nullish() => Ok(None),
        to => Ok(to),
    }
}

/// Parses `format` and `byteOrder`; returns whether neither is null.
fn read_form<'a>(
    form: &mut Form,
    format: &'a Expression,
    byte_order: &'a Expression,
    frame: &Frame<'a>,
) -> Result<bool> {
    if !matches!(format, Expression::Missing) {
        let Some(format) = known(format, frame)? else { return Ok(false) };
        form.format = Some(Format::read(format)?);
    }
    if !matches!(byte_order, Expression::Missing) {
        let Some(byte_order) = known(byte_order, frame)? else { return Ok(false) };
        form.is_big_endian = binary::read_order(byte_order)?;
    }
    Ok(true)
}

/// The type in `to`; `None` is the type "missing", to which nothing converts.
fn target(to: Value<'_>) -> Result<Option<Type>> {
    match to {
        Value::String(name) => {
            let name = name.to_string();
            if name == "missing" {
                return Ok(None);
            }
            all_types()
                .find(|kind| kind.alias() == name)
                .map(Some)
                .ok_or_else(|| unknown_type(&name))
        }
        _ if to.kind().is_number() => {
            let number = exact_i32(to).ok_or_else(to_not_integer)?;
            let tag = match number {
                -1 => Some(0xFF),
                0 => return Ok(None),
                number => u8::try_from(number).ok().filter(|&tag| tag != 0xFF),
            };
            tag.and_then(Type::from_tag).map(Some).ok_or_else(|| to_not_a_type(number))
        }
        _ => Err(to_wrong_type(to.kind().alias())),
    }
}

fn all_types() -> impl Iterator<Item = Type> {
    (0..=u8::MAX).filter_map(Type::from_tag)
}

/// Converts a value to a type.
///
/// Errors: code `ConversionFailure` if the value cannot be converted.
fn converted<'a>(input: Value<'a>, to: Type, frame: &Frame<'a>) -> Result<Value<'a>> {
    let no = || unsupported(input.kind().alias(), to.alias());
    match to {
        Type::Double => to_double(input).ok_or_else(no)?.map(Value::Double),
        Type::String => to_string(input, frame, &no),
        Type::ObjectId => match input {
            Value::ObjectId(_) => Ok(input),
            Value::String(text) => parse_object_id(text).map(Value::ObjectId),
            _ => Err(no()),
        },
        Type::Boolean => Ok(Value::Boolean(input.is_truthy())),
        Type::DateTime => to_date(input, &no).map(Value::DateTime),
        Type::Int32 => to_integer(input, &no, i64::from(i32::MIN), i64::from(i32::MAX))
            .map(|number| Value::Int32(i32::try_from(number).unwrap_or(0))),
        Type::Int64 => match input {
            Value::DateTime(ms) => Ok(Value::Int64(ms)),
            _ => to_integer(input, &no, i64::MIN, i64::MAX).map(Value::Int64),
        },
        Type::Decimal128 => to_decimal(input, &no).map(Value::Decimal128),
        _ => Err(no()),
    }
}

/// `None` if the type cannot be converted.
fn to_double(input: Value<'_>) -> Option<Result<f64>> {
    Some(match input {
        Value::Double(number) => Ok(number),
        Value::Int32(number) => Ok(number.into()),
        #[allow(clippy::cast_precision_loss)]
        Value::Int64(number) | Value::DateTime(number) => Ok(number as f64),
        Value::Decimal128(number) => {
            let double = number.to_f64();
            let is_too_large = double.is_infinite() && !number.is_infinite();
            let is_too_small = is_too_small(double) && !number.is_zero();
            // mongod takes the exception of a signalling NaN for an overflow.
            if is_too_large || is_too_small || number.is_signalling_nan() {
                return Some(Err(overflow(&number.to_string())));
            }
            Ok(double)
        }
        Value::Boolean(flag) => Ok(f64::from(u8::from(flag))),
        Value::String(text) => parse_double(&text.to_string()),
        _ => return None,
    })
}

/// Whether a double is so small that it has lost digits: mongod rejects it where it converts
/// decimal digits. (Some 700 of them can be exact; they are rejected here, too.)
fn is_too_small(number: f64) -> bool {
    number.abs() < f64::MIN_POSITIVE
}

fn to_string<'a>(input: Value<'a>, frame: &Frame<'a>, no: &dyn Fn() -> Error) -> Result<Value<'a>> {
    let text = match input {
        Value::String(_) => return Ok(input),
        Value::Double(number) => super::string::spelled_double(number),
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Decimal128(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::ObjectId(id) => id.to_string(),
        Value::DateTime(ms) => super::date::iso_text(ms)?,
        _ => return Err(no()),
    };
    frame.arena.string(|out| out.extend_from_slice(text.as_bytes()))
}

fn to_date(input: Value<'_>, no: &dyn Fn() -> Error) -> Result<i64> {
    match input {
        Value::DateTime(ms) | Value::Int64(ms) => Ok(ms),
        Value::Double(_) | Value::Decimal128(_) => to_integer(input, no, i64::MIN, i64::MAX),
        // As in mongod, the seconds are signed.
        Value::ObjectId(id) => Ok(i64::from(id.unix_seconds().cast_signed()) * 1000),
        Value::Timestamp(bits) => Ok(i64::try_from(bits >> 32).unwrap_or(0) * 1000),
        Value::String(text) => super::date_text::parse(text),
        _ => Err(no()),
    }
}

/// Converts a value to a whole number from `min` to `max`.
fn to_integer(input: Value<'_>, no: &dyn Fn() -> Error, min: i64, max: i64) -> Result<i64> {
    let whole = match input {
        Value::Int32(number) => Some(i64::from(number)),
        Value::Int64(number) => {
            // mongod's message is empty for a long that overflows.
            return if (min..=max).contains(&number) { Ok(number) } else { Err(overflow("")) };
        }
        Value::Boolean(flag) => Some(i64::from(flag)),
        Value::Double(number) if number.is_nan() => return Err(nan_to_integer()),
        Value::Double(number) if number.is_infinite() => return Err(infinity_to_integer()),
        // Even a fraction beyond the limit of int is out of range.
        #[allow(clippy::cast_precision_loss)]
        Value::Double(number) if !(min as f64..=max as f64).contains(&number) => None,
        Value::Double(number) => marula_bson::value::exact_i64_of_double(number.trunc()),
        Value::Decimal128(number) if number.is_nan() => return Err(nan_to_integer()),
        Value::Decimal128(number) if number.is_infinite() => return Err(infinity_to_integer()),
        Value::Decimal128(number) => {
            // A decimal with more than 34 integer digits is out of range of both types.
            super::arithmetic::round_decimal(number, dec::Rounding::Down).to_exact_i64()
        }
        Value::String(text) => return parse_integer(&text.to_string(), min, max),
        _ => return Err(no()),
    };
    let text = || match input {
        Value::Double(number) => short_double_text(number),
        other => print::value(other),
    };
    whole.filter(|whole| (min..=max).contains(whole)).ok_or_else(|| overflow(&text()))
}

fn to_decimal(input: Value<'_>, no: &dyn Fn() -> Error) -> Result<Decimal128> {
    Ok(match input {
        Value::Decimal128(number) => number,
        Value::Int32(number) => Decimal128::from_i64(number.into()),
        Value::Int64(number) | Value::DateTime(number) => Decimal128::from_i64(number),
        Value::Double(number) => Decimal128::from_f64(number),
        Value::Boolean(flag) => Decimal128::from_i64(flag.into()),
        Value::String(text) => return parse_decimal(&text.to_string()),
        _ => return Err(no()),
    })
}

fn is_hexadecimal(text: &str) -> bool {
    text.starts_with("0x")
}

fn parse_integer(text: &str, min: i64, max: i64) -> Result<i64> {
    if is_hexadecimal(text) {
        return Err(hexadecimal(text));
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() {
        return Err(bad_number(text, "No digits"));
    }
    if let Some(end) = digits.bytes().position(|byte| !byte.is_ascii_digit()) {
        // The digits are read before what follows them, into 64 bits without a sign.
        let overflows = end > 0 && digits[..end].parse::<u64>().is_err();
        let why = if overflows { "Overflow" } else { "Did not consume whole string." };
        return Err(bad_number(text, why));
    }
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(bad_number(text, "Overflow")),
    }
}

/// Parses numbers at the front of `text` that C's `strtod` accepts in addition to plain ones:
/// signed hexadecimal digits with an optional point and power of two, `inf`, and `nan` with an
/// optional bracketed part. Returns the number and the rest of the text.
fn uncommon_double(text: &str) -> Option<(f64, &str)> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let starts = |word: &str| {
        unsigned.get(..word.len()).is_some_and(|front| front.eq_ignore_ascii_case(word))
    };
    if starts("nan") {
        let rest = &unsigned[3..];
        let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let bracket = rest.strip_prefix('(').map(|inner| inner.trim_start_matches(is_inside));
        return Some((f64::NAN, bracket.and_then(|end| end.strip_prefix(')')).unwrap_or(rest)));
    }
    if let Some(word) = ["infinity", "inf"].into_iter().find(|word| starts(word)) {
        return Some((sign * f64::INFINITY, &unsigned[word.len()..]));
    }
    let digits = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"))?;
    let behind = |text| str::trim_start_matches(text, |c: char| c.is_ascii_hexdigit());
    let mut rest = behind(digits);
    let whole = &digits[..digits.len() - rest.len()];
    let mut fraction = "";
    if let Some(behind_point) = rest.strip_prefix('.') {
        let end = behind(behind_point);
        fraction = &behind_point[..behind_point.len() - end.len()];
        rest = end;
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digit =
        |number: f64, digit: char| number.mul_add(16.0, digit.to_digit(16).map_or(0.0, f64::from));
    let mantissa = whole.chars().chain(fraction.chars()).fold(0.0, digit);
    let mut power = -4 * i32::try_from(fraction.len()).unwrap_or(i32::MAX / 8);
    if let Some(exponent) = rest.strip_prefix(['p', 'P']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let end = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
        let written = &exponent[..exponent.len() - end.len()];
        if end.len() < unsigned.len() {
            let far = if written.starts_with('-') { i32::MIN / 2 } else { i32::MAX / 2 };
            power = power.saturating_add(written.parse().unwrap_or(far));
            rest = end;
        }
    }
    // Two steps, so that a small number does not underflow in between.
    let half = power / 2;
    Some((sign * mantissa * 2.0_f64.powi(half) * 2.0_f64.powi(power - half), rest))
}

fn parse_double(text: &str) -> Result<f64> {
    if is_hexadecimal(text) {
        return Err(hexadecimal(text));
    }
    if text.is_empty() {
        return Err(bad_number(text, "Empty string"));
    }
    if text.starts_with(|c: char| c.is_ascii_whitespace()) {
        return Err(bad_number(text, "Leading whitespace"));
    }
    match uncommon_double(text) {
        Some((_, rest)) if !rest.is_empty() => {
            return Err(bad_number(text, "Did not consume whole string."));
        }
        Some((number, _)) if number.is_infinite() && text.contains(['x', 'X']) => {
            return Err(bad_number(text, "Out of range"));
        }
        Some((number, _)) => return Ok(number),
        None => {}
    }
    let Ok(number) = text.parse::<f64>() else {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let unsigned = unsigned.strip_prefix('.').unwrap_or(unsigned);
        let has_digits = unsigned.starts_with(|c: char| c.is_ascii_digit());
        return Err(bad_number(
            text,
            match has_digits {
                true => "Did not consume whole string.",
                false => "Did not consume any digits",
            },
        ));
    };
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let has_digit = mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if number.is_infinite() || is_too_small(number) && has_digit {
        return Err(bad_number(text, "Out of range"));
    }
    Ok(number)
}

fn parse_decimal(text: &str) -> Result<Decimal128> {
    if is_hexadecimal(text) {
        return Err(hexadecimal(text));
    }
    if text.is_empty() {
        return Err(bad_number(text, "Empty string"));
    }
    text.parse::<Decimal128>().map_err(|error| {
        bad_number(
            text,
            match error {
                marula_bson::decimal128::TextError::Malformed => {
                    "Failed to parse string to decimal"
                }
                marula_bson::decimal128::TextError::Underflow => {
                    "Conversion from string to decimal would underflow"
                }
                _ => "Conversion from string to decimal would overflow",
            },
        )
    })
}

fn parse_object_id(bytes: &BStr) -> Result<ObjectId> {
    let text = &*bytes.to_str_lossy();
    if bytes.len() != 24 {
        let count = bytes.len();
        let why =
            format!("Invalid string length for parsing to OID, expected 24 but found {count}");
        return Err(bad_object_id(text, &why));
    }
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(bad_object_id(text, &format!("Invalid character found in hex string: {bad}")));
    }
    ObjectId::parse_hex(text).ok_or_else(|| bad_object_id(text, ""))
}

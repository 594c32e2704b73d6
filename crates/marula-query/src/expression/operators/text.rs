//! String operators that search: `$trim`, `$split`, `$replaceOne`, and regular expressions.

use bstr::ByteSlice;
use marula_bson::Value;
use marula_error::{Result, errors};

use super::{kind, known, named};
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named("$ltrim", TRIM, parse_trim, |args, frame| {
        trim("$ltrim", true, false, args, frame)
    }),
    Operator::named("$replaceAll", REPLACE, parse_replace, |args, frame| {
        replace("$replaceAll", usize::MAX, args, frame)
    })
    .not_foldable(),
    Operator::named("$replaceOne", REPLACE, parse_replace, |args, frame| {
        replace("$replaceOne", 1, args, frame)
    })
    .not_foldable(),
    Operator::named("$rtrim", TRIM, parse_trim, |args, frame| {
        trim("$rtrim", false, true, args, frame)
    }),
    Operator::exactly("$split", 2, split),
    Operator::named("$trim", TRIM, parse_trim, |args, frame| {
        trim("$trim", true, true, args, frame)
    }),
];

const TRIM: &[&str] = &["input", "chars"];
const REPLACE: &[&str] = &["input", "find", "replacement"];

errors! {
    trim_unknown(name: &str, argument: &str) = 50694, "{name} found an unknown argument: {argument}";
    trim_no_input(name: &str) = 50695, "{name} requires an 'input' field";
    trim_not_object(name: &str, kind: &str) = 50696, "{name} only supports an object as an argument, found {kind}";
    trim_input_not_string(name: &str, text: &str, kind: &str) = 50699, "{name} requires its input to be a string, got {text} (of type {kind}) instead.";
    trim_chars_not_string(name: &str, text: &str, kind: &str) = 50700, "{name} requires 'chars' to be a string, got {text} (of type {kind}) instead.";
    replace_replacement_not_string(name: &str, text: &str) = 51744, "{name} requires that 'replacement' be a string, found: {text}";
    replace_find_not_string(name: &str, text: &str) = 51745, "{name} requires that 'find' be a string, found: {text}";
    replace_input_not_string(name: &str, text: &str) = 51746, "{name} requires that 'input' be a string, found: {text}";
    replace_no_replacement(name: &str) = 51747, "{name} requires 'replacement' to be specified";
    replace_no_find(name: &str) = 51748, "{name} requires 'find' to be specified";
    replace_no_input(name: &str) = 51749, "{name} requires 'input' to be specified";
    replace_unknown(name: &str, argument: &str) = 51750, "{name} found an unknown argument: {argument}";
    replace_not_object(name: &str, kind: &str) = 51751, "{name} requires an object as an argument, found: {kind}";
    split_first(kind: &str) = 40085, "$split requires an expression that evaluates to a string as a first argument, found: {kind}";
    split_second(kind: &str) = 40086, "$split requires an expression that evaluates to a string as a second argument, found: {kind}";
    split_empty_separator() = 40087, "$split requires a non-empty separator";
}

/// The characters that are trimmed by default.
const WHITESPACE: &str = "\0\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\
    \u{2005}\u{2006}\u{2007}\u{2008}\u{2009}\u{200a}";

fn parse_trim(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let name = operator.name;
    let Value::Document(doc) = value else {
        return Err(trim_not_object(name, value.kind().alias()));
    };
    let unknown = |argument: &str| trim_unknown(name, argument);
    let [input, chars] = named::parsed(doc, ["input", "chars"], scope, unknown)?;
    let input = input.ok_or_else(|| trim_no_input(name))?;
    let chars = match chars {
        // A missing value here is null, which differs from an omitted argument.
        Some(chars) => {
            Operator::find(b"$ifNull", scope.context.version)?.call([chars, Value::Null.into()])
        }
        None => Expression::Missing,
    };
    Ok(operator.call([input, chars]))
}

fn trim<'a>(
    name: &str,
    left: bool,
    right: bool,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let Some(input) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Value::String(text) = input else {
        return Err(trim_input_not_string(name, &print::value(input), input.kind().alias()));
    };
    let chars = match args[1].eval(frame)? {
        None => WHITESPACE.as_bytes(),
        Some(Value::String(chars)) => &**chars,
        Some(value) if value.is_nullish() => return Ok(Some(Value::Null)),
        Some(value) => {
            return Err(trim_chars_not_string(name, &print::value(value), value.kind().alias()));
        }
    };
    let is_cut = |c: char| chars.chars().any(|cut| cut == c);
    let mut rest: &'a [u8] = text;
    while left
        && let Some((_, end, c)) = rest.char_indices().next()
        && is_cut(c)
    {
        meter::spend(meter::ELEMENT + chars.len())?;
        rest = &rest[end..];
    }
    while right
        && let Some((start, _, c)) = rest.char_indices().next_back()
        && is_cut(c)
    {
        meter::spend(meter::ELEMENT + chars.len())?;
        rest = &rest[..start];
    }
    Ok(Some(Value::String(rest.into())))
}

fn parse_replace(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let name = operator.name;
    let Value::Document(doc) = value else {
        return Err(replace_not_object(name, value.kind().alias()));
    };
    let unknown = |argument: &str| replace_unknown(name, argument);
    let names = ["input", "find", "replacement"];
    let [input, find, replacement] = named::parsed(doc, names, scope, unknown)?;
    let input = input.ok_or_else(|| replace_no_input(name))?;
    let find = find.ok_or_else(|| replace_no_find(name))?;
    let replacement = replacement.ok_or_else(|| replace_no_replacement(name))?;
    Ok(operator.call([input, find, replacement]))
}

fn replace<'a>(
    name: &str,
    count: usize,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let input = known(&args[0], frame)?;
    let find = known(&args[1], frame)?;
    let replacement = known(&args[2], frame)?;
    // Types are checked before nulls.
    let text = |value: Option<Value<'a>>, wrong: fn(&str, &str) -> marula_error::Error| match value
    {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(wrong(name, &print::value(value))),
    };
    let input = text(input, replace_input_not_string)?;
    let find = text(find, replace_find_not_string)?;
    let replacement = text(replacement, replace_replacement_not_string)?;
    let (Some(input), Some(find), Some(replacement)) = (input, find, replacement) else {
        return Ok(Some(Value::Null));
    };
    let mut rest = 0;
    let places = input.find_iter(&**find).take(count).map(Some).chain([None]);
    let parts = places.flat_map(|place| {
        let before: &[u8] = &input[rest..place.unwrap_or(input.len())];
        rest = place.map_or(input.len(), |place| place + find.len());
        let behind: &[u8] = if place.is_some() { replacement } else { b"" };
        [before, behind]
    });
    frame.arena.string_of(parts).map(Some)
}

fn split<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let text = args[0].eval(frame)?;
    let separator = args[1].eval(frame)?;
    let is_nothing = |value: Option<Value<'_>>| value.is_none_or(|value| value.is_nullish());
    if is_nothing(text) || is_nothing(separator) {
        return Ok(Some(Value::Null));
    }
    let Some(Value::String(text)) = text else {
        return Err(split_first(kind(text)));
    };
    let Some(Value::String(separator)) = separator else {
        return Err(split_second(kind(separator)));
    };
    if separator.is_empty() {
        return Err(split_empty_separator());
    }
    let parts = text.split_str(&**separator).map(|part| Value::String(part.into()));
    frame.arena.array(parts).map(Some)
}

//! Regular expressions in expressions: `$regexMatch`, `$regexFind`, `$regexFindAll`.

use std::cell::RefCell;
use std::rc::Rc;

use bstr::ByteSlice;
use marula_bson::{BStr, Value};
use marula_error::{Error, Result, errors};
use pcre2::bytes::{Captures, RegexBuilder};

use crate::expression::{Expression, Frame, Operator, Scope};
use crate::regex::Regex;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named("$regexFind", NAMES, parse, find)
        .not_foldable()
        .checked(|args| check("$regexFind", args)),
    Operator::named("$regexFindAll", NAMES, parse, find_all)
        .not_foldable()
        .checked(|args| check("$regexFindAll", args)),
    Operator::named("$regexMatch", NAMES, parse, is_match)
        .not_foldable()
        .checked(|args| check("$regexMatch", args)),
];

const NAMES: &[&str] = &["input", "regex", "options"];

/// How many compiled expressions a thread keeps: those of one operation, and some.
const KEPT_MAX: usize = 16;

errors! {
    no_input(name: &str) = 31022, "{name} requires 'input' parameter";
    no_regex(name: &str) = 31023, "{name} requires 'regex' parameter";
    unknown_argument(name: &str, argument: &str) = 31024, "{name} found an unknown argument: {argument}";
    not_object(name: &str, kind: &str) = 51103, "{name} expects an object of named arguments but found: {kind}";
    input_not_string(name: &str) = 51104, "{name} needs 'input' to be of type string";
    regex_wrong_type(name: &str) = 51105, "{name} needs 'regex' to be of type string or regex";
    options_not_string(name: &str) = 51106, "{name} needs 'options' to be of type string";
    options_twice(name: &str) = 51107, "{name}: found regex option(s) specified in both 'regex' and 'option' fields";
    bad_option(name: &str, option: char) = 51108, "{name} invalid flag in regex options: {option}";
    pattern_has_nul(name: &str) = 51109, "{name}: regular expression cannot contain an embedded null byte";
    options_have_nul(name: &str) = 51110, "{name}: regular expression options cannot contain an embedded null byte";
    invalid(name: &str, reason: &str) = 51111, "Invalid Regex in {name}: {reason}";
    too_much_work(name: &str, reason: &str) = 51156, "Error occurred while executing the regular expression in {name}. Result code: {reason}";
}

fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let name = operator.name;
    let Value::Document(doc) = value else {
        return Err(not_object(name, value.kind().alias()));
    };
    let (mut input, mut regex, mut options) = (None, None, Expression::Missing);
    for element in doc {
        let value = element.value.get();
        match &**element.name {
            b"input" => input = Some(Expression::parse(value, scope)?),
            b"regex" => regex = Some(Expression::parse(value, scope)?),
            b"options" => options = Expression::parse(value, scope)?,
            _ => return Err(unknown_argument(name, &element.name.to_string())),
        }
    }
    let input = input.ok_or_else(|| no_input(name))?;
    let regex = regex.ok_or_else(|| no_regex(name))?;
    Ok(operator.call([input, regex, options]))
}

/// A constant pattern that is wrong is wrong before the first document.
fn check(name: &str, args: &[Expression]) -> Result<()> {
    let options_known = matches!(args[2], Expression::Missing | Expression::Constant(_));
    if let (Some(regex), true) = (args[1].as_constant(), options_known) {
        read_pattern(name, Some(regex), args[2].as_constant())?
            .map(|(pattern, options)| compiled(name, pattern, options))
            .transpose()?;
    }
    Ok(())
}

/// Pattern and options; `None` where there is no pattern.
fn read_pattern<'a>(
    name: &str,
    regex: Option<Value<'a>>,
    options: Option<Value<'a>>,
) -> Result<Option<(&'a BStr, &'a BStr)>> {
    let (pattern, own) = match regex {
        None | Some(Value::Null | Value::Undefined) => (None, None),
        Some(Value::String(pattern)) => (Some(pattern), None),
        Some(Value::Regex { pattern, options }) => (Some(pattern), Some(options)),
        Some(_) => return Err(regex_wrong_type(name)),
    };
    let given = match options {
        None | Some(Value::Null | Value::Undefined) => None,
        Some(Value::String(_)) if own.is_some_and(|own| !own.is_empty()) => {
            return Err(options_twice(name));
        }
        Some(Value::String(options)) => Some(options),
        Some(_) => return Err(options_not_string(name)),
    };
    let options = given.or(own).unwrap_or_default();
    if pattern.is_some_and(|pattern| pattern.contains(&0)) {
        return Err(pattern_has_nul(name));
    }
    if options.contains(&0) {
        return Err(options_have_nul(name));
    }
    if let Some(bad) = options.chars().find(|option| !"imsx".contains(*option)) {
        return Err(bad_option(name, bad));
    }
    Ok(pattern.map(|pattern| (pattern, options)))
}

/// An expression that was compiled: for matching, and for finding where.
struct Compiled {
    matcher: Regex,
    finder: pcre2::bytes::Regex,
}

thread_local! {
    /// Patterns come as values, so that they cannot be compiled when the operator is parsed.
    static KEPT: RefCell<Vec<Rc<Compiled>>> = const { RefCell::new(Vec::new()) };
}

fn compiled(name: &str, pattern: &BStr, options: &BStr) -> Result<Rc<Compiled>> {
    let is_same = |kept: &&Rc<Compiled>| {
        kept.matcher.pattern() == pattern && kept.matcher.options() == options
    };
    let kept = KEPT.with_borrow(|kept| kept.iter().find(is_same).cloned());
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let matcher = Regex::new(pattern, options).map_err(|error| reason(name, &error))?;
    let finder = RegexBuilder::new()
        .utf(true)
        .caseless(options.contains(&b'i'))
        .multi_line(options.contains(&b'm'))
        .dotall(options.contains(&b's'))
        .extended(options.contains(&b'x'))
        .jit_if_available(true)
        .build(&pattern.to_str_lossy())
        .map_err(|error| invalid(name, &error.to_string()))?;
    let new = Rc::new(Compiled { matcher, finder });
    KEPT.with_borrow_mut(|kept| {
        kept.truncate(KEPT_MAX - 1);
        kept.insert(0, Rc::clone(&new));
    });
    Ok(new)
}

/// The error of the filter's expressions in this operator's words.
fn reason(name: &str, error: &Error) -> Error {
    let message = error.message();
    invalid(name, message.strip_prefix("Regular expression is invalid: ").unwrap_or(message))
}

/// Text and expression; `None` where one of them is null.
fn evaluated<'a>(
    name: &str,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<(&'a BStr, Rc<Compiled>)>> {
    let input = args[0].eval(frame)?;
    let regex = args[1].eval(frame)?;
    let options = args[2].eval(frame)?;
    let text = match input {
        None | Some(Value::Null | Value::Undefined) => None,
        Some(Value::String(text)) => Some(text),
        Some(_) => return Err(input_not_string(name)),
    };
    let Some((pattern, options)) = read_pattern(name, regex, options)? else {
        return Ok(None);
    };
    let compiled = compiled(name, pattern, options)?;
    Ok(text.map(|text| (text, compiled)))
}

fn is_match<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let found = evaluated("$regexMatch", args, frame)?;
    Ok(Some(found.is_some_and(|(text, regex)| regex.matcher.is_match(text)).into()))
}

fn find<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$regexFind";
    let Some((text, regex)) = evaluated(NAME, args, frame)? else {
        return Ok(Some(Value::Null));
    };
    match regex.finder.captures(text).map_err(|error| too_much_work(NAME, &error.to_string()))? {
        None => Ok(Some(Value::Null)),
        Some(captures) => {
            let start = captures.get(0).map_or(0, |found| found.start());
            let index = text[..start].chars().count();
            description(&captures, index, frame).map(Some)
        }
    }
}

fn find_all<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$regexFindAll";
    let mut found = frame.arena.values(0);
    if let Some((text, regex)) = evaluated(NAME, args, frame)? {
        // The index counts characters: those before the last match are counted once.
        let (mut counted_to, mut index) = (0, 0);
        for captures in regex.finder.captures_iter(text) {
            let captures = captures.map_err(|error| too_much_work(NAME, &error.to_string()))?;
            let start = captures.get(0).map_or(0, |found| found.start());
            // mongod does not look for an empty match behind the last character.
            if start == text.len() && !text.is_empty() {
                break;
            }
            index += text[counted_to..start].chars().count();
            counted_to = start;
            found.push(description(&captures, index, frame)?);
        }
    }
    frame.arena.array(found).map(Some)
}

/// `{ match: <text>, idx: <character>, captures: [ <text or null>, … ] }`.
fn description<'a>(captures: &Captures<'_>, index: usize, frame: &Frame<'a>) -> Result<Value<'a>> {
    let doc = frame.arena.build(|out| {
        let whole = captures.get(0).map_or(&b""[..], |found| found.as_bytes());
        out.append("match", whole.as_bstr());
        out.append("idx", i32::try_from(index).unwrap_or(i32::MAX));
        let mut list = out.begin_array("captures");
        for group in 1..captures.len() {
            match captures.get(group) {
                Some(found) => list.push(found.as_bytes().as_bstr()),
                None => list.push(Value::Null),
            };
        }
    })?;
    Ok(Value::Document(doc))
}

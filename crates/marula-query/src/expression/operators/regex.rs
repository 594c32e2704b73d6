//! Regular expression operators: `$regexMatch`, `$regexFind`, `$regexFindAll`.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{BStr, Value};
use marula_error::{Error, Result, errors};

use super::named;
use crate::expression::{Expression, Frame, Operator, Scope};
use crate::meter;
use crate::regex::{self, Failure, Pcre, Places, Regex, Text};

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

/// The maximum number of compiled expressions that a thread caches: a `$switch` may have a pattern
/// in each of its branches, and tries all of them for each document.
const KEPT_MAX: usize = 256;
/// The maximum length of their patterns in total, which bounds the memory of their compiled forms.
const KEPT_PATTERN_BYTES_MAX: usize = 256 * 1024;

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
    failed(name: &str, code: i32) = 51156, "Error occurred while executing the regular expression in {name}. Result code: {code}";
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
    let unknown = |argument: &str| unknown_argument(name, argument);
    let names = ["input", "regex", "options"];
    let [input, regex, options] = named::parsed(doc, names, scope, unknown)?;
    let input = input.ok_or_else(|| no_input(name))?;
    let regex = regex.ok_or_else(|| no_regex(name))?;
    Ok(operator.call([input, regex, options.unwrap_or(Expression::Missing)]))
}

/// An invalid constant pattern is reported before the first document.
fn check(name: &str, args: &[Expression]) -> Result<()> {
    let options_known = matches!(args[2], Expression::Missing | Expression::Constant(_));
    let regex_known = matches!(args[1], Expression::Missing | Expression::Constant(_));
    if regex_known && options_known {
        read_pattern(name, args[1].as_constant(), args[2].as_constant())?
            .map(|(pattern, options)| compiled(name, pattern, options))
            .transpose()?;
    }
    Ok(())
}

/// The pattern and the options; `None` if there is no pattern.
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
    if let Some(bad) = options.chars().find(|option| !"imsxu".contains(*option)) {
        // mongod shows the first byte of the character, which is invalid by itself if there are
        // more.
        return Err(bad_option(name, if bad.is_ascii() { bad } else { '\u{fffd}' }));
    }
    Ok(pattern.map(|pattern| (pattern, options)))
}

/// A compiled expression: one for matching, one for finding positions.
struct Compiled {
    matcher: Regex,
    finder: Pcre,
}

/// Compiled expressions by pattern and options.
#[derive(Default)]
struct Kept {
    compiled: HashTable<Rc<Compiled>>,
    hashing: DefaultHashBuilder,
    pattern_bytes: usize,
}

impl Kept {
    fn find(&self, pattern: &BStr, options: &BStr) -> Option<Rc<Compiled>> {
        let hash = self.hashing.hash_one((pattern, options));
        let is_same = |kept: &Rc<Compiled>| {
            kept.matcher.pattern() == pattern && kept.matcher.options() == options
        };
        self.compiled.find(hash, is_same).cloned()
    }

    fn insert(&mut self, new: Rc<Compiled>) {
        self.pattern_bytes += new.matcher.pattern().len();
        if self.compiled.len() >= KEPT_MAX || self.pattern_bytes > KEPT_PATTERN_BYTES_MAX {
            self.compiled.clear();
            self.pattern_bytes = new.matcher.pattern().len();
        }
        let hashing = self.hashing.clone();
        let hash = move |kept: &Rc<Compiled>| {
            hashing.hash_one((kept.matcher.pattern().as_bstr(), kept.matcher.options().as_bstr()))
        };
        self.compiled.insert_unique(hash(&new), new, hash);
    }
}

thread_local! {
    /// Patterns are values, so they cannot be compiled when the operator is parsed.
    static KEPT: RefCell<Kept> = RefCell::default();
}

fn compiled(name: &str, pattern: &BStr, options: &BStr) -> Result<Rc<Compiled>> {
    if let Some(kept) = KEPT.with_borrow(|kept| kept.find(pattern, options)) {
        return Ok(kept);
    }
    let matcher = Regex::new(pattern, options).map_err(|error| reason(name, &error))?;
    let finder = regex::compile(pattern, options).map_err(|error| reason(name, &error))?;
    let new = Rc::new(Compiled { matcher, finder });
    KEPT.with_borrow_mut(|kept| kept.insert(Rc::clone(&new)));
    Ok(new)
}

/// An error of the filter's regular expressions in the form of this operator.
fn reason(name: &str, error: &Error) -> Error {
    let message = error.message();
    invalid(name, message.strip_prefix("Regular expression is invalid: ").unwrap_or(message))
}

/// The text and the expression; `None` if one of them is null.
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

/// A PCRE2 error as the number of the corresponding PCRE1 error.
fn execution(name: &str, failure: Failure) -> Error {
    failed(
        name,
        match failure.0 {
            // The limits of matching, depth and memory, and the stack of compiled code.
            -47 => -8,
            -53 | -63 => -21,
            -46 => -27,
            // PCRE2 has a separate number for each kind of invalid UTF-8.
            -23..=-3 => BAD_UTF8,
            code => code,
        },
    )
}

/// PCRE1's number for a text that is not UTF-8.
const BAD_UTF8: i32 = -10;

fn is_match<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$regexMatch";
    let Some((text, regex)) = evaluated(NAME, args, frame)? else {
        return Ok(Some(false.into()));
    };
    // A plain search of bytes would accept invalid UTF-8.
    if text.to_str().is_err() {
        return Err(failed(NAME, BAD_UTF8));
    }
    let matched = regex.matcher.try_match(text).map_err(|failure| execution(NAME, failure))?;
    meter::recall()?;
    Ok(Some(matched.into()))
}

/// Returns the start and end of the first match at `from` or later.
fn next_match(
    name: &str,
    regex: &Compiled,
    text: Text<'_>,
    from: usize,
    places: &mut Places,
) -> Result<Option<(usize, usize)>> {
    meter::spend(meter::MATCH)?;
    let found = regex.finder.find(text, from, places);
    let found = found.map_err(|failure| execution(name, failure))?;
    meter::recall()?;
    Ok(found)
}

fn find<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$regexFind";
    let Some((text, regex)) = evaluated(NAME, args, frame)? else {
        return Ok(Some(Value::Null));
    };
    let mut places = regex.finder.places();
    let Some((start, _)) = next_match(NAME, &regex, Text::new(text), 0, &mut places)? else {
        return Ok(Some(Value::Null));
    };
    let index = text[..start].chars().count();
    description(text, &places, index, frame).map(Some)
}

fn find_all<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$regexFindAll";
    let mut found = frame.arena.values_growing();
    if let Some((text, regex)) = evaluated(NAME, args, frame)? {
        // The index counts characters: those before the last match have been counted.
        let (mut counted_to, mut index) = (0, 0);
        let mut places = regex.finder.places();
        let searched = Text::new(text);
        let mut from = 0;
        while let Some((start, end)) = next_match(NAME, &regex, searched, from, &mut places)? {
            index += text[counted_to..start].chars().count();
            counted_to = start;
            found.push(description(text, &places, index, frame)?)?;
            // After an empty match, continue one character later; there is no match after the last
            // character.
            from = match start == end {
                true => end + text[end..].chars().next().map_or(1, char::len_utf8),
                false => end,
            };
            if from >= text.len() {
                break;
            }
        }
    }
    frame.arena.array(found.into_values()).map(Some)
}

/// `{ match: <text>, idx: <character>, captures: [ <text or null>, … ] }`.
fn description<'a>(
    text: &BStr,
    places: &Places,
    index: usize,
    frame: &Frame<'a>,
) -> Result<Value<'a>> {
    let group = |at: usize| places.get(at).map(|(start, end)| &text[start..end]);
    let doc = frame.arena.build(|out| {
        out.append("match", group(0).unwrap_or_default());
        out.append("idx", i32::try_from(index).unwrap_or(i32::MAX));
        let mut list = out.begin_array("captures");
        for at in 1..places.count() {
            match group(at) {
                Some(found) => list.push(found),
                None => list.push(Value::Null),
            };
        }
    })?;
    Ok(Value::Document(doc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_compiled_up_to_a_bound() {
        let pattern = |n: usize| format!("^x{n}$");
        let get = |n| compiled("$regexMatch", pattern(n).as_str().into(), "".into()).unwrap();
        let first = get(0);
        for n in 1..KEPT_MAX {
            assert_eq!(get(n).matcher.pattern(), pattern(n).as_bytes());
        }
        assert!(Rc::ptr_eq(&first, &get(0)));
        assert!(!Rc::ptr_eq(&first, &compiled("", "^x0$".into(), "i".into()).unwrap()));
        assert!(!Rc::ptr_eq(&first, &get(0)));
        for n in 0..40 {
            let long = format!("{n}{}", "x".repeat(20_000));
            compiled("$regexMatch", long.as_str().into(), "".into()).unwrap();
            KEPT.with_borrow(|kept| {
                let bytes = kept.compiled.iter().map(|kept| kept.matcher.pattern().len());
                assert_eq!(kept.pattern_bytes, bytes.sum::<usize>());
                assert!(kept.pattern_bytes <= KEPT_PATTERN_BYTES_MAX);
            });
        }
    }
}

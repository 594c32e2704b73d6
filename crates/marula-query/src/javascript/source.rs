//! The forms of source text: a function, an expression, statements.
//!
//! Text that starts with `function` is a function. In any other text the last statement, if it is
//! an expression, is the result of the function: `a = 1; a == this.x` returns a comparison. The
//! engine has no syntax tree, so the start of the last expression is guessed and tried.

use bstr::ByteSlice;
use marula_error::{Result, errors};
use rquickjs::Value as JsValue;

use super::engine::{Call, options};
use super::failure;

errors! {
    /// The text has no statement.
    no_statement() = JSInterpreterFailure, "TypeError: parseTree.body[lastStatement] is undefined";
}

/// The maximum number of guesses for the start of the last statement.
const TRIES_MAX: usize = 8;

/// The function value of `source`.
pub(super) fn compile<'js>(call: &Call<'_, 'js>, source: &str) -> Result<JsValue<'js>> {
    let source = without_frame(source);
    if source.is_empty() {
        return Err(no_statement());
    }
    let evaluate = |text: String| -> Result<JsValue<'js>> {
        call.ctx.eval_with_options(text, options("")).map_err(|error| failure::of(call, error))
    };
    if is_function(source) {
        let outcome = evaluate(format!("({source})"));
        // A named function may be followed by statements that use it.
        if outcome.is_ok() || is_anonymous(source) {
            return outcome;
        }
    }
    for start in starts(source) {
        let (before, last) = source.split_at(start);
        if last.starts_with(['{', '}']) {
            continue;
        }
        // The parentheses ensure that it is one expression; printed code has none.
        if let Ok(function) = evaluate(format!("(function() {{ {before}return ({last}) }})")) {
            let starts_with_comment = last.starts_with("//") || last.starts_with("/*");
            return match starts_with_comment {
                true => Ok(function),
                false => evaluate(format!("({})", returning(before, last))),
            };
        }
    }
    evaluate(format!("({})", wrapped(source)))
}

/// Returns whether `text` is that of a function that [`compile`] could make of `source`.
pub(super) fn may_become(source: &[u8], text: &[u8]) -> bool {
    let (source, text) = (source.to_str_lossy(), text.to_str_lossy());
    let source = without_frame(&source);
    let returns = |start: usize| {
        let (before, last) = source.split_at(start);
        returning(before, last) == text
    };
    source == text || wrapped(source) == text || starts(source).into_iter().any(returns)
}

/// The function whose result is that of the last statement.
fn returning(before: &str, last: &str) -> String {
    format!("function() {{ {before}return {last} }}")
}

/// The function of statements without a result.
fn wrapped(source: &str) -> String {
    format!("function() {{ {source} }}")
}

/// The text without comments at the front, surrounding white space, and semicolons at the end.
fn without_frame(source: &str) -> &str {
    after_comments(source).trim_end_matches(|c: char| c == ';' || c.is_whitespace())
}

/// The text after leading white space and comments.
fn after_comments(mut source: &str) -> &str {
    loop {
        source = source.trim_start();
        let end = if source.starts_with("//") {
            source.find('\n').map_or(source.len(), |at| at + 1)
        } else if source.starts_with("/*") {
            source.find("*/").map_or(source.len(), |at| at + 2)
        } else {
            return source;
        };
        source = &source[end..];
    }
}

/// Returns whether the text starts with the word `function`.
fn is_function(source: &str) -> bool {
    source.strip_prefix("function").is_some_and(|rest| {
        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')
    })
}

/// Returns whether a function has no name.
fn is_anonymous(source: &str) -> bool {
    source["function".len()..].trim_start().starts_with(['(', '*'])
}

/// The possible starts of the last statement, the likeliest first.
///
/// A statement starts after a semicolon, a closing brace or the end of a line, outside of brackets,
/// strings and comments. A word, a number, a quote or an opening bracket can start an expression;
/// after a brace or on a new line a bracket continues the previous statement.
fn starts(source: &str) -> Vec<usize> {
    let bytes = source.as_bytes();
    let mut found = vec![0];
    let mut depth = 0_usize;
    let mut at = 0;
    // The possible end of a statement, and the end of the preceding text without white space.
    let mut boundary: Option<u8> = None;
    let mut solid_end = 0;
    let mut line_ended = false;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            line_ended |= byte == b'\n';
            at += 1;
            continue;
        }
        if depth == 0 && byte != b';' {
            if line_ended && !goes_on(&bytes[..solid_end], &bytes[at..]) {
                boundary = boundary.or(Some(b'\n'));
            }
            if boundary.take().is_some_and(|after| starts_statement(byte, after)) {
                found.push(at);
            }
        }
        line_ended = false;
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' | b'\'' | b'`' => at = skip_string(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = skip_past(bytes, at, b"\n");
                line_ended = true;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => at = skip_past(bytes, at + 2, b"*/"),
            _ => {}
        }
        if depth == 0 && matches!(byte, b'}' | b';') {
            boundary = Some(byte);
        }
        at += 1;
        solid_end = at.min(bytes.len());
    }
    found.reverse();
    found.truncate(TRIES_MAX);
    if found.last() != Some(&0) {
        found.push(0);
    }
    found
}

/// Returns whether a statement may start with `byte` after this end of another.
fn starts_statement(byte: u8, after: u8) -> bool {
    let is_word = byte.is_ascii_alphanumeric() || byte >= 0x80;
    is_word
        || matches!(byte, b'_' | b'$' | b'"' | b'\'')
        || (after == b';' && matches!(byte, b'(' | b'[' | b'!' | b'-' | b'+' | b'~' | b'/' | b'`'))
}

/// Returns whether a statement continues after the end of a line: a token before or after it
/// requires more.
fn goes_on(before: &[u8], after: &[u8]) -> bool {
    const OPERATORS: &[u8] = b"+-*/%&|^=<>?:,.!~";
    let is_operator = |byte: Option<&u8>| byte.is_some_and(|byte| OPERATORS.contains(byte));
    let asks = is_operator(before.last()) && !before.ends_with(b"++") && !before.ends_with(b"--");
    asks || is_operator(after.first())
        || after.starts_with(b"instanceof ")
        || after.starts_with(b"in ")
}

/// The position of the quote that closes the string at `at`.
fn skip_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let mut place = at + 1;
    while let Some(&byte) = bytes.get(place) {
        match byte {
            b'\\' => place += 1,
            byte if byte == quote => return place,
            _ => {}
        }
        place += 1;
    }
    bytes.len()
}

/// The position of the last byte of `end`, searched from `from`.
fn skip_past(bytes: &[u8], from: usize, end: &[u8]) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    memchr::memmem::find(rest, end).map_or(bytes.len(), |place| from + place + end.len() - 1)
}

//! The plain text in a pattern: a text to search for, or a prefix.

/// How far a pattern is plain text.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum PlainText {
    /// The pattern is only text, which may occur anywhere.
    Contains(Box<[u8]>),
    /// The pattern is anchored at the start and begins with text; `exact` if at most `.*` follows.
    StartsWith { text: Box<[u8]>, exact: bool },
    /// Anything else.
    Other,
}

/// Finds out how far a pattern is plain text.
pub(super) fn shape(pattern: &[u8], options: &[u8]) -> PlainText {
    // With `i` and `x` characters do not match themselves; with `m` an anchor is not the start.
    if options.iter().any(|option| matches!(option, b'i' | b'x')) || pattern.contains(&b'|') {
        return PlainText::Other;
    }
    if std::str::from_utf8(pattern).is_err() {
        return PlainText::Other;
    }
    let multi_line = options.contains(&b'm');
    let (anchored, body) = match pattern {
        [b'^', body @ ..] if !multi_line => (true, body),
        [b'\\', b'A', body @ ..] => (true, body),
        body => (false, body),
    };
    let (text, rest) = plain_text(body);
    match (anchored, rest) {
        (true, b"") => PlainText::StartsWith { text, exact: true },
        // Without `s` the dot stops at the end of a line, but the rest may be anything.
        (true, b".*") => PlainText::StartsWith { text, exact: true },
        (true, _) if !text.is_empty() => PlainText::StartsWith { text, exact: false },
        (false, b"") => PlainText::Contains(text),
        _ => PlainText::Other,
    }
}

/// Splits a pattern into its leading plain text and the rest.
fn plain_text(pattern: &[u8]) -> (Box<[u8]>, &[u8]) {
    let mut text = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    // Where the last character began, in text and pattern: a quantifier after it removes it from
    // the text.
    let (mut text_before, mut rest_before) = (0, rest);
    loop {
        match rest {
            [b'*' | b'?' | b'{', ..] => {
                text.truncate(text_before);
                return (text.into(), rest_before);
            }
            // The character occurs at least once.
            [b'+', ..] => return (text.into(), rest),
            [] | [b'.' | b'^' | b'$' | b'[' | b'(' | b')' | b'|', ..] => {
                return (text.into(), rest);
            }
            [b'\\', escaped, after @ ..] if escaped.is_ascii_punctuation() => {
                (text_before, rest_before) = (text.len(), rest);
                text.push(*escaped);
                rest = after;
            }
            [b'\\', ..] => return (text.into(), rest),
            [first, ..] => {
                let size = character_size(*first).min(rest.len());
                (text_before, rest_before) = (text.len(), rest);
                text.extend_from_slice(&rest[..size]);
                rest = &rest[size..];
            }
        }
    }
}

/// Returns the size of a UTF-8 character from its first byte.
fn character_size(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

//! What a pattern says in plain characters: a text to search for, or one to begin with.

/// What is plain about a pattern.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// The pattern is only text: it is found anywhere.
    Contains(Box<[u8]>),
    /// The pattern is anchored at the start and begins with text; `exact` when nothing but `.*`
    /// follows.
    StartsWith { text: Box<[u8]>, exact: bool },
    /// Anything else.
    Other,
}

/// Finds out what is plain about a pattern.
pub(super) fn shape(pattern: &[u8], options: &[u8]) -> Shape {
    // With `i` and `x` characters do not stand for themselves; with `m` an anchor is not the start.
    if options.iter().any(|option| matches!(option, b'i' | b'x')) || pattern.contains(&b'|') {
        return Shape::Other;
    }
    if std::str::from_utf8(pattern).is_err() {
        return Shape::Other;
    }
    let multi_line = options.contains(&b'm');
    let (anchored, body) = match pattern {
        [b'^', body @ ..] if !multi_line => (true, body),
        [b'\\', b'A', body @ ..] => (true, body),
        body => (false, body),
    };
    let (text, rest) = plain_text(body);
    match (anchored, rest) {
        (true, b"") => Shape::StartsWith { text, exact: true },
        // Without `s` the dot stops at a line's end, but no more is asked of what follows.
        (true, b".*") => Shape::StartsWith { text, exact: true },
        (true, _) if !text.is_empty() => Shape::StartsWith { text, exact: false },
        (false, b"") => Shape::Contains(text),
        _ => Shape::Other,
    }
}

/// Splits a pattern into its leading plain text and the rest, which begins where the text may end.
fn plain_text(pattern: &[u8]) -> (Box<[u8]>, &[u8]) {
    let mut text = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    // Where the last character began, in text and pattern: a quantifier behind it takes it away
    // again.
    let (mut text_before, mut rest_before) = (0, rest);
    loop {
        match rest {
            [b'*' | b'?' | b'{', ..] => {
                text.truncate(text_before);
                return (text.into(), rest_before);
            }
            // At least one of the character must be there.
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

/// The bytes of a UTF-8 character, by its first.
fn character_size(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

//! Regular expressions, by PCRE2.

/// A compiled regular expression with its source.
#[derive(Clone, Debug)]
pub struct Regex {
    pattern: Box<[u8]>,
    options: Box<[u8]>,
}

/// What strings a pattern can only match, as far as it says so in its first characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<'a> {
    /// Every match begins with these bytes.
    pub text: &'a [u8],
    /// Whether every string that begins with `text` matches, so that nothing is left to check.
    pub exact: bool,
}

impl Regex {
    /// The pattern, as the client sent it.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The options, as the client sent them.
    pub fn options(&self) -> &[u8] {
        &self.options
    }

    /// The literal text that anchors the pattern at the start, if it is case-sensitive and anchored.
    pub fn prefix(&self) -> Option<Prefix<'_>> {
        None
    }
}

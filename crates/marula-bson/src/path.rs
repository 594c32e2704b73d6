//! Dotted field paths, split once.

/// A dotted path such as `a.b.0`, split at parse time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldPath {
    parts: Vec<Box<[u8]>>,
}

impl FieldPath {
    /// Splits `text` at its dots. Empty parts are kept: what they mean is the caller's to say.
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        FieldPath { parts: text.as_ref().split(|&byte| byte == b'.').map(Into::into).collect() }
    }

    /// The parts in order; at least one.
    pub fn parts(&self) -> &[Box<[u8]>] {
        &self.parts
    }
}

//! The position of a walk in a document: a chain of names on the stack, written out only for
//! messages.

use std::fmt;

use bstr::ByteSlice;

/// The path to a value, its last part first.
#[derive(Clone, Copy)]
pub(super) struct Trail<'t> {
    parent: Option<&'t Trail<'t>>,
    name: &'t [u8],
    depth: usize,
    under_id: bool,
}

impl<'t> Trail<'t> {
    /// Returns the path one part longer than `parent`.
    #[inline]
    pub(super) fn below(parent: Option<&'t Trail<'t>>, name: &'t [u8]) -> Self {
        match parent {
            None => Trail { parent, name, depth: 1, under_id: name == b"_id" },
            Some(above) => Trail { parent, name, depth: above.depth + 1, under_id: above.under_id },
        }
    }

    /// Returns the last part.
    pub(super) fn name(&self) -> &'t [u8] {
        self.name
    }

    /// Returns the number of parts.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns whether the path is `_id` or inside it.
    pub(super) fn is_under_id(&self) -> bool {
        self.under_id
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        write!(f, "{}", self.name.as_bstr())
    }
}

//! The sort key of `$top`, `$bottom`, `$topN` and `$bottomN`: each path is read as an expression
//! reads it.
//!
//! So a number in a path is only a field name, and an array inside an array is one value. If a path
//! gives an array, its least element counts, and only one path may give one.

use marula_bson::key_string::encode_part;
use marula_bson::{Doc, Value};
use marula_error::Result;

use super::array::parallel_arrays;
use super::{DocMeta, SortPart, SortPattern, without_arrays};
use crate::context::Context;
use crate::expression::{Frame, Path, Scope};
use crate::known::Known;

/// A sort pattern whose paths are expressions.
#[derive(Clone, Debug)]
pub(crate) struct ValuePattern {
    pattern: SortPattern,
    /// The pattern's paths; metadata has an empty one.
    paths: Vec<Path>,
}

impl ValuePattern {
    /// Parses like [`SortPattern::parse`]; the paths are checked in [`check`](ValuePattern::check).
    pub(crate) fn parse(doc: Doc<'_>, context: &Context) -> Result<ValuePattern> {
        let pattern = SortPattern::parse(doc, context)?;
        let path = |part: &SortPart| match part {
            SortPart::Path { path, .. } => Path::split(&path.parts().join(&b'.')),
            SortPart::Meta(_) => Path::default(),
        };
        let paths = pattern.parts.iter().map(path).collect();
        Ok(ValuePattern { pattern, paths })
    }

    /// Checks that each path is valid as an expression: after a dollar sign, which makes `$id` at
    /// its front a variable.
    pub(crate) fn check(&self, scope: &Scope<'_>) -> Result<()> {
        for path in self.paths.iter().filter(|path| !path.is_empty()) {
            let text = path.text();
            match text.strip_prefix(b"$".as_slice()) {
                Some(variable) => scope.variable(variable).map(|_| ())?,
                None => Path::parse_of_expression(&text).map(|_| ())?,
            }
        }
        Ok(())
    }

    /// Returns the pattern that a sort uses.
    pub(crate) fn pattern(&self) -> &SortPattern {
        &self.pattern
    }

    /// Writes the sort key of the frame's document into `key`, which is cleared first.
    ///
    /// Errors: `parallel_arrays`.
    pub(crate) fn write_key(&self, frame: &Frame<'_>, key: &mut Vec<u8>) -> Result<()> {
        key.clear();
        let collator = self.pattern.collator();
        let mut has_array = false;
        for (part, path) in self.pattern.parts.iter().zip(&self.paths) {
            let (value, descending) = match part {
                SortPart::Meta(name) => {
                    let meta = frame.known.map_or_else(DocMeta::default, Known::sort_meta);
                    (meta.get(*name), true)
                }
                SortPart::Path { path: plain, descending } => {
                    let value = match without_arrays(plain, frame.root) {
                        Some(value) => value.get(),
                        None => path.eval(frame.root, frame.arena)?.unwrap_or(Value::Null),
                    };
                    (value, *descending)
                }
            };
            let Value::Array(items) = value else {
                encode_part(value, descending, collator, key);
                continue;
            };
            if std::mem::replace(&mut has_array, true) {
                return Err(parallel_arrays());
            }
            let start = key.len();
            let mut least = Vec::new();
            encode_part(Value::Undefined, descending, collator, &mut least);
            for (index, item) in items.values().enumerate() {
                encode_part(item, descending, collator, key);
                if index == 0 || key[start..] < *least {
                    least.clear();
                    least.extend_from_slice(&key[start..]);
                }
                key.truncate(start);
            }
            key.append(&mut least);
        }
        Ok(())
    }
}

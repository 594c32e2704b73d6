//! What an expression is evaluated in: the document, the variables' values, the arena.

use std::cell::Cell;

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use marula_bson::{ArrayWriter, Doc, DocWriter, RawValue, Value};
use marula_error::{Error, Result, errors};

use crate::context::Context;

/// How much memory one evaluation may use for the values it computes: the limit mongod documents for
/// `$push`, `$range` and other operators that collect values.
pub const ARENA_BYTES_MAX: usize = 100 * 1024 * 1024;

/// How long a computed string may be: a byte less than 16 MiB, as mongod 6.0 bounds it.
const STRING_BYTES_MAX: usize = 16 * 1024 * 1024 - 1;

errors! {
    /// An expression computes a string that no document could hold.
    string_too_long() = 16493, "Tried to create string longer than 16MB";
    /// An expression computes more than fits the arena.
    too_much_memory() = ExceededMemoryLimit, "expression would use too much memory and cannot spill to disk. Memory limit: {ARENA_BYTES_MAX} bytes";
}

/// Where computed values live: reset per document or batch, bounded by [`ARENA_BYTES_MAX`].
#[derive(Default)]
pub struct Arena {
    bump: Bump,
    /// A buffer for documents and strings while they grow; its content moves to `bump`.
    scratch: Cell<Vec<u8>>,
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Arena::default()
    }

    /// Forgets all values and keeps the memory.
    pub fn reset(&mut self) {
        self.bump.reset();
    }

    /// The bytes that the arena holds from the system.
    pub fn size(&self) -> usize {
        self.bump.allocated_bytes()
    }

    /// Fills the scratch buffer and keeps what was written.
    ///
    /// `fill` must not evaluate expressions: they would find no scratch buffer and allocate one.
    pub fn bytes(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<&[u8]> {
        let mut scratch = self.scratch.take();
        scratch.clear();
        fill(&mut scratch);
        let kept = self.copy(&scratch);
        self.scratch.set(scratch);
        kept
    }

    /// Keeps a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> Result<&[u8]> {
        self.check(bytes.len())?;
        Ok(self.bump.alloc_slice_copy(bytes))
    }

    /// Keeps a copy of a value that lives elsewhere.
    pub fn keep(&self, value: Value<'_>) -> Result<Value<'_>> {
        let bytes = self.bytes(|out| value.write(out))?;
        Ok(RawValue::new(value.kind(), bytes).get())
    }

    /// A string value of the bytes that `fill` writes.
    pub fn string(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Value<'_>> {
        let text = self.bytes(fill)?;
        if text.len() > STRING_BYTES_MAX {
            Err(string_too_long())
        } else {
            Ok(Value::String(text.into()))
        }
    }

    /// A document that `fill` writes.
    pub fn build(&self, fill: impl FnOnce(&mut DocWriter<'_>)) -> Result<Doc<'_>> {
        self.bytes(|out| fill(&mut DocWriter::new(out))).map(Doc::trusted)
    }

    /// An array value that `fill` writes.
    pub fn build_array(&self, fill: impl FnOnce(&mut ArrayWriter<'_>)) -> Result<Value<'_>> {
        let bytes = self.bytes(|out| fill(&mut ArrayWriter::new(out)))?;
        Ok(Value::Array(Doc::trusted(bytes)))
    }

    /// A document value of these fields.
    pub fn document<'n, 'v>(
        &self,
        fields: impl IntoIterator<Item = (&'n [u8], Value<'v>)>,
    ) -> Result<Value<'_>> {
        let doc = self.build(|writer| {
            for (name, value) in fields {
                writer.append(name, value);
            }
        })?;
        Ok(Value::Document(doc))
    }

    /// An array value of these elements.
    pub fn array<'v>(&self, values: impl IntoIterator<Item = Value<'v>>) -> Result<Value<'_>> {
        self.build_array(|writer| {
            for value in values {
                writer.push(value);
            }
        })
    }

    /// An empty list of values with room for `count`.
    pub fn values<'a>(&'a self, count: usize) -> ArenaVec<'a, Value<'a>> {
        ArenaVec::with_capacity_in(count, &self.bump)
    }

    /// An empty list of named values with room for `count`.
    pub fn fields<'a>(&'a self, count: usize) -> ArenaVec<'a, (&'a [u8], Value<'a>)> {
        ArenaVec::with_capacity_in(count, &self.bump)
    }

    /// An empty list of anything.
    pub fn list<T>(&self) -> ArenaVec<'_, T> {
        ArenaVec::new_in(&self.bump)
    }

    /// Whether another `size` bytes may be used.
    pub fn check(&self, size: usize) -> Result<(), Error> {
        if size.saturating_add(self.bump.allocated_bytes())
            > ARENA_BYTES_MAX + self.bump.chunk_capacity()
        {
            return Err(too_much_memory());
        }
        Ok(())
    }
}

/// One variable's value, and the binding outside it.
struct Binding<'a> {
    value: Cell<Option<Value<'a>>>,
    outer: Option<&'a Binding<'a>>,
}

/// What an expression is evaluated in. A frame is a few words; binding a variable makes a new one.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The document at hand: `$$ROOT`.
    pub root: Doc<'a>,
    /// Where computed values live.
    pub arena: &'a Arena,
    /// Collation, time and the like.
    pub context: &'a Context,
    /// How well the document at hand meets a text search.
    pub text_score: Option<f64>,
    bindings: Option<&'a Binding<'a>>,
}

impl<'a> Frame<'a> {
    /// A frame for `root` with no variables bound.
    pub fn new(root: Doc<'a>, arena: &'a Arena, context: &'a Context) -> Self {
        Frame { root, arena, context, text_score: None, bindings: None }
    }

    /// The frame of a document that has this score.
    #[must_use]
    pub fn with_text_score(self, text_score: Option<f64>) -> Self {
        Frame { text_score, ..self }
    }

    /// The frame with one more variable: the counterpart of [`Scope::bind`](crate::expression::Scope::bind).
    #[must_use]
    pub fn bind(&self, value: Option<Value<'a>>) -> Frame<'a> {
        let binding = Binding { value: Cell::new(value), outer: self.bindings };
        Frame { bindings: Some(self.arena.bump.alloc(binding)), ..*self }
    }

    /// Gives the innermost variable another value, as a loop over an array does.
    pub fn rebind(&self, value: Option<Value<'a>>) {
        if let Some(binding) = self.bindings {
            binding.value.set(value);
        }
    }

    /// The value of the variable `up` bindings outside the innermost.
    pub(crate) fn bound(&self, up: usize) -> Option<Value<'a>> {
        let mut binding = self.bindings;
        for _ in 0..up {
            binding = binding.and_then(|inner| inner.outer);
        }
        binding.and_then(|binding| binding.value.get())
    }
}

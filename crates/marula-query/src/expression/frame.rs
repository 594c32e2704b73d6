//! What an expression is evaluated in: the document, the variables' values, the arena.

use std::cell::Cell;

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use marula_bson::{ArrayWriter, Doc, DocWriter, RawValue, Value};
use marula_error::{Error, Result, errors};

use crate::context::Context;
use crate::known::Known;
use crate::meter;

/// How much memory one evaluation may use for the values it computes: the limit mongod documents
/// for `$push`, `$range` and other operators that collect values.
pub const ARENA_BYTES_MAX: usize = 100 * 1024 * 1024;

/// How long a computed string may be: a byte less than 16 MiB, as mongod 6.0 bounds it.
const STRING_BYTES_MAX: usize = 16 * 1024 * 1024 - 1;

errors! {
    /// An expression computes a string that no document could hold.
    string_too_long() = 16493, "Tried to create string longer than 16MB";
    /// A value grows beyond what may be in memory.
    pub(crate) value_too_large(size: usize) = 13548, "BufBuilder attempted to grow() to {size} bytes, past the 64MB limit.";
    /// An expression computes more than fits the arena.
    too_much_memory() = ExceededMemoryLimit, "expression would use too much memory and cannot spill to disk. Memory limit: {ARENA_BYTES_MAX} bytes";
}

/// How long a string may be while it is computed: mongod 6.0 tells apart those that are longer
/// still.
const STRING_BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

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

    /// Keeps the bytes that `fill` writes.
    ///
    /// `fill` writes no more than a small part of what may be in memory; what may be large is
    /// written by [`string_of`](Arena::string_of), [`array`](Arena::array) and
    /// [`document`](Arena::document), which look before they write. It must not evaluate
    /// expressions: they would find no scratch buffer and allocate one.
    pub fn bytes(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<&[u8]> {
        self.filled(|out| {
            fill(out);
            Ok(())
        })
    }

    /// Fills the scratch buffer and keeps what was written.
    fn filled(&self, fill: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<&[u8]> {
        let mut scratch = self.scratch.take();
        scratch.clear();
        let filled = fill(&mut scratch);
        let kept = filled.and_then(|()| self.copy(&scratch));
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch.set(scratch);
        }
        kept
    }

    /// Keeps a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> Result<&[u8]> {
        self.check(bytes.len())?;
        Ok(self.bump.alloc_slice_copy(bytes))
    }

    /// Keeps a copy of a value that lives elsewhere.
    pub fn keep(&self, value: Value<'_>) -> Result<Value<'_>> {
        self.check(size_of_value(value))?;
        let bytes = self.bytes(|out| value.write(out))?;
        Ok(RawValue::new(value.kind(), bytes).get())
    }

    /// A string value of the bytes that `fill` writes, which are not many more than some value that
    /// is there already.
    pub fn string(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Value<'_>> {
        let text = self.bytes(fill)?;
        check_string(text.len())?;
        Ok(Value::String(text.into()))
    }

    /// A string value of these parts.
    pub fn string_of<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> Result<Value<'_>> {
        let text = self.filled(|out| {
            for part in parts {
                meter::spend(meter::ELEMENT)?;
                meter::spend_bytes(part.len())?;
                let length = out.len() + part.len();
                if length > STRING_BUFFER_BYTES_MAX {
                    return Err(value_too_large(length));
                }
                meter::reserve(out, part.len())?;
                out.extend_from_slice(part);
            }
            check_string(out.len())
        })?;
        Ok(Value::String(text.into()))
    }

    /// A document that `fill` writes: a few fields.
    pub fn build(&self, fill: impl FnOnce(&mut DocWriter<'_>)) -> Result<Doc<'_>> {
        self.bytes(|out| fill(&mut DocWriter::new(out))).map(Doc::trusted)
    }

    /// A document value of these fields.
    pub fn document<'n, 'v>(
        &self,
        fields: impl IntoIterator<Item = (&'n [u8], Value<'v>)>,
    ) -> Result<Value<'_>> {
        let bytes = self.filled(|out| {
            let mut writer = DocWriter::new(out);
            let mut size = 0;
            for (name, value) in fields {
                self.check_growth(&mut size, name.len() + size_of_value(value))?;
                writer.append(name, value);
            }
            Ok(())
        })?;
        Ok(Value::Document(Doc::trusted(bytes)))
    }

    /// An array value of these elements.
    pub fn array<'v>(&self, values: impl IntoIterator<Item = Value<'v>>) -> Result<Value<'_>> {
        let bytes = self.filled(|out| {
            let mut writer = ArrayWriter::new(out);
            let mut size = 0;
            for value in values {
                self.check_growth(&mut size, size_of_value(value))?;
                writer.push(value);
            }
            Ok(())
        })?;
        Ok(Value::Array(Doc::trusted(bytes)))
    }

    /// An array value of these elements, as they are written.
    pub fn array_of_raw<'v>(
        &self,
        values: impl IntoIterator<Item = RawValue<'v>>,
    ) -> Result<Value<'_>> {
        let bytes = self.filled(|out| {
            let mut writer = ArrayWriter::new(out);
            let mut size = 0;
            for value in values {
                self.check_growth(&mut size, value.bytes().len())?;
                writer.push_raw(value);
            }
            Ok(())
        })?;
        Ok(Value::Array(Doc::trusted(bytes)))
    }

    /// Counts an element of `bytes` that a value of `size` bytes is about to have more.
    #[inline]
    fn check_growth(&self, size: &mut usize, bytes: usize) -> Result<()> {
        meter::spend(meter::ELEMENT)?;
        meter::spend_bytes(bytes)?;
        meter::ask(bytes)?;
        *size += bytes + ELEMENT_BYTES;
        match *size > ARENA_BYTES_MAX {
            true => Err(value_too_large(*size)),
            false => Ok(()),
        }
    }

    /// A list of values that grows to any length.
    pub fn values_growing(&self) -> Growing<'_> {
        Growing { arena: self, values: self.values(0) }
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
        meter::ask(size)
    }
}

/// A list of values in an arena that grows to any length the arena has room for.
pub struct Growing<'a> {
    arena: &'a Arena,
    values: ArenaVec<'a, Value<'a>>,
}

impl<'a> Growing<'a> {
    /// Adds a value.
    #[inline]
    pub fn push(&mut self, value: Value<'a>) -> Result<()> {
        meter::spend(meter::ELEMENT)?;
        if self.values.len() == self.values.capacity() {
            self.arena.check(2 * self.values.len() * size_of::<Value<'_>>())?;
        }
        self.values.push(value);
        Ok(())
    }

    /// Adds the values of an iterator.
    pub fn extend(&mut self, values: impl IntoIterator<Item = Value<'a>>) -> Result<()> {
        values.into_iter().try_for_each(|value| self.push(value))
    }

    /// The list.
    pub fn into_values(self) -> ArenaVec<'a, Value<'a>> {
        self.values
    }
}

/// What an element takes beside its value, at least: a type, a name, a zero byte.
const ELEMENT_BYTES: usize = 3;

/// How large a document may grow while a stage writes it.
const DOCUMENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A scratch buffer that was larger is not kept.
const SCRATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many bytes a value takes, where they may be many.
#[inline]
pub(crate) fn size_of_value(value: Value<'_>) -> usize {
    match value {
        Value::Document(doc) | Value::Array(doc) => doc.as_bytes().len(),
        Value::String(text) | Value::Symbol(text) | Value::Code(text) => text.len(),
        Value::Binary(binary) => binary.bytes.len(),
        Value::Regex { pattern, .. } => pattern.len(),
        Value::CodeWithScope { code, scope } => code.len() + scope.as_bytes().len(),
        _ => size_of::<u64>(),
    }
}

/// Looks before `value` is written behind `written` bytes of a document.
///
/// Errors: those of an operation that must end, of a document that grows too large, of a server
/// without memory for it.
#[inline]
pub(crate) fn check_room(written: usize, value: Value<'_>) -> Result<()> {
    let bytes = size_of_value(value);
    meter::spend_bytes(bytes)?;
    let size = written + bytes;
    if size > DOCUMENT_BYTES_MAX {
        return Err(value_too_large(size));
    }
    if bytes > 0 { meter::ask(size) } else { Ok(()) }
}

fn check_string(length: usize) -> Result<()> {
    if length > STRING_BYTES_MAX { Err(string_too_long()) } else { Ok(()) }
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
    /// What is known of the document at hand beside its fields.
    pub known: Option<&'a Known>,
    bindings: Option<&'a Binding<'a>>,
}

impl<'a> Frame<'a> {
    /// A frame for `root` with no variables bound.
    pub fn new(root: Doc<'a>, arena: &'a Arena, context: &'a Context) -> Self {
        Frame { root, arena, context, known: None, bindings: None }
    }

    /// The frame of a document of which this is known.
    #[must_use]
    pub fn with_known(self, known: Option<&'a Known>) -> Self {
        Frame { known, ..self }
    }

    /// The frame with one more variable: the counterpart of
    /// [`Scope::bind`](crate::expression::Scope::bind).
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

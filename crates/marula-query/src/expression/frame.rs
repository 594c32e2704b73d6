//! The environment of an evaluation: the document, the values of variables, the arena.

use std::cell::{Cell, RefCell};

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use marula_bson::{ArrayWriter, Collator, Doc, DocWriter, RawValue, Value, doc::Iter};
use marula_error::{Error, Result, errors};

use super::positions::Positions;
use crate::context::Context;
use crate::known::Known;
use crate::meter;

/// The memory limit of one evaluation: mongod's documented limit for `$push`, `$range` and other
/// operators that collect values.
pub const ARENA_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The maximum length of a computed string: one byte less than 16 MiB, as in mongod 6.0.
const STRING_BYTES_MAX: usize = 16 * 1024 * 1024 - 1;

errors! {
    /// An expression computes a string that does not fit into a document.
    string_too_long() = 16493, "Tried to create string longer than 16MB";
    /// A value exceeds the memory limit.
    pub(crate) value_too_large(size: usize) = 13548, "BufBuilder attempted to grow() to {size} bytes, past the 64MB limit.";
    /// An expression exceeds the memory limit of the arena.
    too_much_memory() = ExceededMemoryLimit, "expression would use too much memory and cannot spill to disk. Memory limit: {ARENA_BYTES_MAX} bytes";
}

/// The maximum length of a string during its computation: mongod 6.0 reports longer ones with
/// another error.
const STRING_BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The memory of computed values: reset per document or batch, bounded by [`ARENA_BYTES_MAX`].
#[derive(Default)]
pub struct Arena {
    bump: Bump,
    /// Buffers for growing documents and strings, one per level of nesting; the result is copied to
    /// `bump`.
    scratch: RefCell<Vec<Vec<u8>>>,
    positions: Positions,
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Arena::default()
    }

    /// Frees all values and keeps the memory.
    pub fn reset(&mut self) {
        self.bump.reset();
    }

    /// The number of bytes that the arena has allocated.
    pub fn size(&self) -> usize {
        self.bump.allocated_bytes()
    }

    /// Keeps the bytes that `fill` writes.
    ///
    /// `fill` must write far less than the memory limit; [`string_of`](Arena::string_of),
    /// [`array`](Arena::array) and [`document`](Arena::document) check the limit while they write.
    pub fn bytes(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<&[u8]> {
        self.filled(|out| {
            fill(out);
            Ok(())
        })
    }

    /// Fills the scratch buffer and keeps a copy of its content.
    fn filled(&self, fill: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<&[u8]> {
        let mut scratch = self.scratch.borrow_mut().pop().unwrap_or_default();
        scratch.clear();
        let filled = fill(&mut scratch);
        let kept = filled.and_then(|()| self.copy(&scratch));
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch.borrow_mut().push(scratch);
        }
        kept
    }

    /// Keeps a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> Result<&[u8]> {
        self.check(bytes.len())?;
        Ok(self.bump.alloc_slice_copy(bytes))
    }

    /// Keeps a copy of a value from elsewhere.
    pub fn keep(&self, value: Value<'_>) -> Result<Value<'_>> {
        self.check(size_of_value(value))?;
        let bytes = self.bytes(|out| value.write(out))?;
        Ok(RawValue::new(value.kind(), bytes).get())
    }

    /// A string value of the bytes that `fill` writes, which must not be much longer than an
    /// existing value.
    pub fn string(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Value<'_>> {
        let text = self.bytes(fill)?;
        check_string(text.len())?;
        Ok(Value::String(text.into()))
    }

    /// A string value that concatenates these parts.
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

    /// A document with a few fields that `fill` writes.
    pub fn build(&self, fill: impl FnOnce(&mut DocWriter<'_>)) -> Result<Doc<'_>> {
        self.bytes(|out| fill(&mut DocWriter::new(out))).map(Doc::trusted)
    }

    /// A document value with the fields that `fill` writes; it may evaluate expressions.
    pub fn document_of(
        &self,
        fill: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<Value<'_>> {
        let bytes = self.filled(|out| {
            fill(&mut Fields { arena: self, writer: DocWriter::new(out), size: 0 })
        })?;
        Ok(Value::Document(Doc::trusted(bytes)))
    }

    /// An array value with the elements that `fill` writes; it may evaluate expressions.
    pub fn array_of(&self, fill: impl FnOnce(&mut Items<'_>) -> Result<()>) -> Result<Value<'_>> {
        let bytes = self.filled(|out| {
            fill(&mut Items { arena: self, writer: ArrayWriter::new(out), size: 0 })
        })?;
        Ok(Value::Array(Doc::trusted(bytes)))
    }

    /// A document value with these fields.
    pub fn document<'n, 'v>(
        &self,
        fields: impl IntoIterator<Item = (&'n [u8], Value<'v>)>,
    ) -> Result<Value<'_>> {
        self.document_of(|out| {
            fields.into_iter().try_for_each(|(name, value)| out.push(name, value))
        })
    }

    /// An array value with these elements.
    pub fn array<'v>(&self, values: impl IntoIterator<Item = Value<'v>>) -> Result<Value<'_>> {
        self.array_of(|out| values.into_iter().try_for_each(|value| out.push(value)))
    }

    /// An array with the elements of these arrays.
    pub fn array_of_arrays(&self, arrays: &[Doc<'_>]) -> Result<Doc<'_>> {
        let bytes = self.filled(|out| {
            let (mut writer, mut size) = (ArrayWriter::new(out), 0);
            for array in arrays {
                meter::check_room(array.elements_bytes().len())?;
                let mut elements = array.iter();
                loop {
                    let written = writer.size();
                    let pushed = writer.push_elements(&mut elements, ELEMENTS_AT_ONCE);
                    let bytes = writer.size() - written;
                    meter::spend(pushed * meter::ELEMENT)?;
                    meter::spend_bytes(bytes)?;
                    // The limit does not count the names, except for one digit of each.
                    let more_digits = writer.count().checked_ilog10().unwrap_or(0) as usize;
                    size += bytes - bytes.min(pushed * more_digits);
                    if size > ARENA_BYTES_MAX {
                        return Err(value_too_large(size));
                    }
                    if pushed < ELEMENTS_AT_ONCE {
                        break;
                    }
                }
            }
            Ok(())
        })?;
        Ok(Doc::trusted(bytes))
    }

    /// Checks the limits before a value of `size` bytes grows by an element of `bytes`.
    #[inline]
    fn check_growth(&self, size: &mut usize, bytes: usize) -> Result<()> {
        meter::spend(meter::ELEMENT)?;
        meter::spend_bytes(bytes)?;
        meter::check_room(bytes)?;
        *size += bytes + ELEMENT_BYTES;
        match *size > ARENA_BYTES_MAX {
            true => Err(value_too_large(*size)),
            false => Ok(()),
        }
    }

    /// The elements of an array from a position on, which is found fast if the evaluation asks for
    /// several.
    ///
    /// Errors: the server is short of memory.
    pub fn elements_from<'v>(&self, items: Doc<'v>, at: usize) -> Result<Iter<'v>> {
        self.positions.elements_from(items, at)
    }

    /// The position of an array's first element that equals a value, if the evaluation has searched
    /// the array so often that its values are noted.
    ///
    /// Errors: the server is short of memory.
    pub(super) fn noted_position(
        &self,
        items: Doc<'_>,
        wanted: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> Result<Option<Option<usize>>> {
        self.positions.first(items, wanted, collator)
    }

    /// A list of values without a fixed length.
    pub fn values_growing(&self) -> Growing<'_> {
        Growing { arena: self, values: self.values(0) }
    }

    /// An empty list of values with a capacity of `count`.
    pub fn values<'a>(&'a self, count: usize) -> ArenaVec<'a, Value<'a>> {
        ArenaVec::with_capacity_in(count, &self.bump)
    }

    /// An empty list of named values with a capacity of `count`.
    pub fn fields<'a>(&'a self, count: usize) -> ArenaVec<'a, (&'a [u8], Value<'a>)> {
        ArenaVec::with_capacity_in(count, &self.bump)
    }

    /// An empty list of any type.
    pub fn list<T>(&self) -> ArenaVec<'_, T> {
        ArenaVec::new_in(&self.bump)
    }

    /// Checks that another `size` bytes may be used.
    pub fn check(&self, size: usize) -> Result<(), Error> {
        if size.saturating_add(self.bump.allocated_bytes())
            > ARENA_BYTES_MAX + self.bump.chunk_capacity()
        {
            return Err(too_much_memory());
        }
        meter::check_room(size)
    }
}

/// A document that is being computed, bounded by the arena's limit.
pub struct Fields<'w> {
    arena: &'w Arena,
    writer: DocWriter<'w>,
    size: usize,
}

impl Fields<'_> {
    /// Appends a field.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: Value<'_>) -> Result<()> {
        self.arena.check_growth(&mut self.size, name.len() + size_of_value(value))?;
        self.writer.append(name, value);
        Ok(())
    }
}

/// An array that is being computed, bounded by the arena's limit.
pub struct Items<'w> {
    arena: &'w Arena,
    writer: ArrayWriter<'w>,
    size: usize,
}

impl Items<'_> {
    /// Appends an element.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) -> Result<()> {
        self.arena.check_growth(&mut self.size, size_of_value(value))?;
        self.writer.push(value);
        Ok(())
    }

    /// Appends an undecoded element.
    #[inline]
    pub fn push_raw(&mut self, value: RawValue<'_>) -> Result<()> {
        self.arena.check_growth(&mut self.size, value.bytes().len())?;
        self.writer.push_raw(value);
        Ok(())
    }
}

/// A list of values in an arena, bounded by the arena's limit.
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

/// The minimum size of an element in addition to its value: a type, a name, a NUL.
const ELEMENT_BYTES: usize = 3;

/// The number of elements that are copied between two checks for an interruption.
const ELEMENTS_AT_ONCE: usize = 1024;

/// The maximum size of a document while a stage writes it.
const DOCUMENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A larger scratch buffer is not kept.
const SCRATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The size of a value, or zero for types of small size.
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

/// Checks the limits before `value` is appended to `written` bytes of a document.
///
/// Errors: the operation was interrupted; the document is too large; the server is out of memory.
#[inline]
pub(crate) fn check_room(written: usize, value: Value<'_>) -> Result<()> {
    let bytes = size_of_value(value);
    meter::spend_bytes(bytes)?;
    let size = written + bytes;
    if size > DOCUMENT_BYTES_MAX {
        return Err(value_too_large(size));
    }
    if bytes > 0 { meter::check_room(size) } else { Ok(()) }
}

fn check_string(length: usize) -> Result<()> {
    if length > STRING_BYTES_MAX { Err(string_too_long()) } else { Ok(()) }
}

/// The value of a variable, and the next outer binding.
struct Binding<'a> {
    value: Cell<Option<Value<'a>>>,
    outer: Option<&'a Binding<'a>>,
}

impl<'a> Binding<'a> {
    fn moved_to<'b>(&self, arena: &'b Arena) -> &'b Binding<'b>
    where
        'a: 'b,
    {
        let outer = self.outer.map(|outer| outer.moved_to(arena));
        arena.bump.alloc(Binding { value: Cell::new(self.value.get()), outer })
    }
}

/// The environment of an evaluation. A frame is a few words; binding a variable creates a new one.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The current document: `$$ROOT`.
    pub root: Doc<'a>,
    /// The memory of computed values.
    pub arena: &'a Arena,
    /// Collation, time and so on.
    pub context: &'a Context,
    /// Metadata of the current document.
    pub known: Option<&'a Known>,
    bindings: Option<&'a Binding<'a>>,
}

impl<'a> Frame<'a> {
    /// A frame for `root` without bound variables.
    pub fn new(root: Doc<'a>, arena: &'a Arena, context: &'a Context) -> Self {
        arena.positions.forget();
        Frame { root, arena, context, known: None, bindings: None }
    }

    /// The frame of a document with this metadata.
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

    /// The same frame with another arena for computed values.
    pub(crate) fn moved_to<'b>(&self, arena: &'b Arena) -> Frame<'b>
    where
        'a: 'b,
    {
        arena.positions.forget();
        let bindings = self.bindings.map(|binding| binding.moved_to(arena));
        Frame { root: self.root, arena, context: self.context, known: self.known, bindings }
    }

    /// Sets the innermost variable to another value, for a loop over an array.
    pub fn rebind(&self, value: Option<Value<'a>>) {
        if let Some(binding) = self.bindings {
            binding.value.set(value);
        }
    }

    /// The value of the variable `up` bindings outside the innermost one.
    pub(crate) fn bound(&self, up: usize) -> Option<Value<'a>> {
        let mut binding = self.bindings;
        for _ in 0..up {
            binding = binding.and_then(|inner| inner.outer);
        }
        binding.and_then(|binding| binding.value.get())
    }
}

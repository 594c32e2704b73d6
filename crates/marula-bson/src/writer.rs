//! Writes documents directly into a byte buffer, each byte once.
//!
//! A [`DocWriter`] reserves the length, appends elements, and patches the length when it is
//! finished; a nested writer borrows its parent, so that the compiler enforces their order. The
//! [`doc!`](crate::doc!) macro writes a literal document.

use crate::{Doc, DocBuf, RawValue, Type, Value};

/// Appends the elements of one document to a buffer.
///
/// Dropping the writer finishes the document, as [`DocWriter::finish`] does.
pub struct DocWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> DocWriter<'b> {
    /// Begins a document at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        DocWriter { out, start }
    }

    /// Appends a field.
    pub fn append<'v>(&mut self, name: impl AsRef<[u8]>, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.name(value.kind(), name.as_ref());
        value.write(self.out);
        self
    }

    /// Appends a field with an undecoded value.
    pub fn append_raw(&mut self, name: impl AsRef<[u8]>, value: RawValue<'_>) -> &mut Self {
        self.name(value.kind(), name.as_ref());
        self.out.extend_from_slice(value.bytes());
        self
    }

    /// Appends a field whose value `write` encodes; `write` returns its type, or `None` to remove
    /// the field again.
    pub(crate) fn append_with(
        &mut self,
        name: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Option<Type>,
    ) -> Option<()> {
        let start = self.out.len();
        self.name(Type::Null, name);
        let kind = write(self.out);
        match (kind, self.out.get_mut(start)) {
            (Some(kind), Some(tag)) => {
                *tag = kind.tag();
                Some(())
            }
            _ => {
                self.out.truncate(start);
                None
            }
        }
    }

    /// Appends elements (tag, name, value, …) that are already encoded.
    pub fn append_elements(&mut self, elements: &[u8]) -> &mut Self {
        self.out.extend_from_slice(elements);
        self
    }

    /// Begins a field that is a document.
    pub fn begin_doc(&mut self, name: impl AsRef<[u8]>) -> DocWriter<'_> {
        self.name(Type::Document, name.as_ref());
        DocWriter::new(self.out)
    }

    /// Begins a field that is an array.
    pub fn begin_array(&mut self, name: impl AsRef<[u8]>) -> ArrayWriter<'_> {
        self.name(Type::Array, name.as_ref());
        ArrayWriter::new(self.out)
    }

    /// The number of bytes written so far by this document, its length field included.
    pub fn size(&self) -> usize {
        self.out.len() - self.start
    }

    /// The number of bytes in the underlying buffer, including those of the enclosing documents.
    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Finishes the document. Dropping the writer does the same; the call makes it explicit.
    pub fn finish(self) {}

    fn name(&mut self, kind: Type, name: &[u8]) {
        debug_assert!(!name.contains(&0), "a field name holds no NUL");
        self.out.push(kind.tag());
        self.out.extend_from_slice(name);
        self.out.push(0);
    }
}

impl Drop for DocWriter<'_> {
    fn drop(&mut self) {
        self.out.push(0);
        let length = i32::try_from(self.out.len() - self.start)
            .expect("a document that Marula writes is shorter than 2 GiB");
        let prefix = self.out.get_mut(self.start..).and_then(<[u8]>::first_chunk_mut);
        *prefix.expect("the length was reserved when the document was begun") =
            length.to_le_bytes();
    }
}

/// Appends the elements of one array to a buffer; the names are the indexes.
pub struct ArrayWriter<'b> {
    doc: DocWriter<'b>,
    count: usize,
}

impl<'b> ArrayWriter<'b> {
    /// Begins an array at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        ArrayWriter { doc: DocWriter::new(out), count: 0 }
    }

    /// Begins an array at the end of `out` with a copy of the elements of `array`.
    pub fn continued(out: &'b mut Vec<u8>, array: Doc<'_>) -> Self {
        let mut doc = DocWriter::new(out);
        doc.append_elements(array.elements_bytes());
        ArrayWriter { doc, count: array.iter().count() }
    }

    /// Appends an element.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.next_name(value.kind());
        value.write(self.doc.out);
        self
    }

    /// Appends an element with an undecoded value.
    pub fn push_raw(&mut self, value: RawValue<'_>) -> &mut Self {
        self.next_name(value.kind());
        self.doc.out.extend_from_slice(value.bytes());
        self
    }

    /// Appends an element that `write` encodes: it must append exactly one value of type `kind`.
    pub fn push_with(&mut self, kind: Type, write: impl FnOnce(&mut Vec<u8>)) {
        self.next_name(kind);
        write(self.doc.out);
    }

    /// Begins an element that is a document.
    pub fn begin_doc(&mut self) -> DocWriter<'_> {
        self.next_name(Type::Document);
        DocWriter::new(self.doc.out)
    }

    /// Begins an element that is an array.
    pub fn begin_array(&mut self) -> ArrayWriter<'_> {
        self.next_name(Type::Array);
        ArrayWriter::new(self.doc.out)
    }

    /// The number of elements so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of bytes written so far by this array, its length field included.
    pub fn size(&self) -> usize {
        self.doc.size()
    }

    /// Finishes the array. Dropping the writer does the same; the call makes it explicit.
    pub fn finish(self) {}

    fn next_name(&mut self, kind: Type) {
        self.doc.out.push(kind.tag());
        write_decimal(self.count, self.doc.out);
        self.doc.out.push(0);
        self.count += 1;
    }
}

/// Appends `number` in decimal, the form of array element names.
pub(crate) fn write_decimal(number: usize, out: &mut Vec<u8>) {
    if number >= 10 {
        write_decimal(number / 10, out);
    }
    // A single digit.
    #[allow(clippy::cast_possible_truncation)]
    out.push(b'0' + (number % 10) as u8);
}

impl DocBuf {
    /// Writes a document with `fill`.
    pub fn build(fill: impl FnOnce(&mut DocWriter<'_>)) -> Self {
        let mut bytes = Vec::new();
        let mut writer = DocWriter::new(&mut bytes);
        fill(&mut writer);
        writer.finish();
        DocBuf::trusted(bytes)
    }

    /// Appends a field to a finished document, in place.
    pub fn push<'v>(&mut self, name: impl AsRef<[u8]>, value: impl Into<Value<'v>>) {
        let mut bytes = std::mem::take(self).into_bytes();
        bytes.pop();
        let mut writer = DocWriter { out: &mut bytes, start: 0 };
        writer.append(name, value);
        writer.finish();
        *self = DocBuf::trusted(bytes);
    }
}

/// Writes a literal document: `doc! { "ok": 1.0, "cursor": { "id": 0_i64, "firstBatch": [] } }`.
///
/// Keys are string literals; values are nested literals (`{…}`, `[…]`), `null`, or expressions that
/// become a [`Value`]. The result is a [`DocBuf`].
#[macro_export]
macro_rules! doc {
    ($($body:tt)*) => {
        $crate::DocBuf::build(|writer| { let _ = &writer; $crate::doc_fields!(writer; $($body)*); })
    };
}

/// Appends the fields of a literal document to a [`DocWriter`]; see [`doc!`](crate::doc!).
#[macro_export]
macro_rules! doc_fields {
    ($w:expr;) => {};
    ($w:expr; $key:literal : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        { let mut inner = $w.begin_doc($key); let inner = &mut inner; let _ = &inner; $crate::doc_fields!(inner; $($inner)*); }
        $($crate::doc_fields!($w; $($rest)*);)?
    };
    ($w:expr; $key:literal : [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        { let mut inner = $w.begin_array($key); let inner = &mut inner; let _ = &inner; $crate::array_items!(inner; $($inner)*); }
        $($crate::doc_fields!($w; $($rest)*);)?
    };
    ($w:expr; $key:literal : null $(, $($rest:tt)*)?) => {
        $w.append($key, $crate::Value::Null);
        $($crate::doc_fields!($w; $($rest)*);)?
    };
    ($w:expr; $key:literal : $value:expr $(, $($rest:tt)*)?) => {
        $w.append($key, $value);
        $($crate::doc_fields!($w; $($rest)*);)?
    };
}

/// Appends the items of a literal array to an [`ArrayWriter`]; see [`doc!`](crate::doc!).
#[macro_export]
macro_rules! array_items {
    ($w:expr;) => {};
    ($w:expr; { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        { let mut inner = $w.begin_doc(); let inner = &mut inner; let _ = &inner; $crate::doc_fields!(inner; $($inner)*); }
        $($crate::array_items!($w; $($rest)*);)?
    };
    ($w:expr; [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        { let mut inner = $w.begin_array(); let inner = &mut inner; let _ = &inner; $crate::array_items!(inner; $($inner)*); }
        $($crate::array_items!($w; $($rest)*);)?
    };
    ($w:expr; null $(, $($rest:tt)*)?) => {
        $w.push($crate::Value::Null);
        $($crate::array_items!($w; $($rest)*);)?
    };
    ($w:expr; $value:expr $(, $($rest:tt)*)?) => {
        $w.push($value);
        $($crate::array_items!($w; $($rest)*);)?
    };
}

#[cfg(test)]
mod tests {
    use crate::Value;

    #[test]
    fn a_literal_document_reads_back() {
        let built = doc! { "a": 1, "b": { "c": [1.5, null, { "d": "x" }, []] }, "e": null };
        let doc = built.as_doc();
        assert_eq!(doc.get("a"), Some(Value::Int32(1)));
        let inner = doc.get("b").and_then(|b| b.as_doc()).and_then(|b| b.get("c")).unwrap();
        let items: Vec<_> = inner.as_array().unwrap().values().collect();
        assert_eq!(items[0], Value::Double(1.5));
        assert_eq!(items[2].as_doc().unwrap().get("d"), Some("x".into()));
        assert_eq!(items.len(), 4);
        assert_eq!(doc.get("e"), Some(Value::Null));
        assert_eq!(doc.iter().count(), 3);
    }

    #[test]
    fn a_field_is_pushed_onto_a_finished_document() {
        let mut built = doc! { "a": 1 };
        built.push("b", true);
        assert_eq!(built, doc! { "a": 1, "b": true });
    }
}

//! Writes documents directly into a byte buffer, each byte once.
//!
//! A [`DocWriter`] reserves the length, appends elements, and patches the length when it is
//! finished; a nested writer borrows its parent, so that the compiler enforces their order. The
//! [`doc!`](crate::doc!) macro writes a literal document.

use crate::doc::Iter;
use crate::{Doc, DocBuf, Element, RawValue, Type, Value};

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

    /// Continues the document that `out` holds, and nothing else.
    fn resumed(out: &'b mut Vec<u8>) -> Self {
        out.pop();
        DocWriter { out, start: 0 }
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

    /// Appends the fields of `doc`. If `change` returns a change for a field, `write` appends the
    /// changed field or none. Unchanged neighbours are copied at once.
    ///
    /// Errors: those of `change` and `write`.
    pub fn append_changed<T, E>(
        &mut self,
        doc: Doc<'_>,
        mut change: impl FnMut(Element<'_>) -> Result<Option<T>, E>,
        mut write: impl FnMut(T, Element<'_>, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut fields = doc.iter();
        // The fields not yet copied, and the fields from the next one on.
        let (mut copied, mut next) = (fields.rest(), fields.rest());
        while let Some(field) = fields.next() {
            if let Some(changed) = change(field)? {
                self.append_elements(front(copied, next));
                write(changed, field, self)?;
                copied = fields.rest();
            }
            next = fields.rest();
        }
        self.append_elements(front(copied, next));
        Ok(())
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
    next: ElementName,
}

impl<'b> ArrayWriter<'b> {
    /// Begins an array at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        ArrayWriter { doc: DocWriter::new(out), next: ElementName::of(0) }
    }

    /// Begins an array at the end of `out` with a copy of the elements of `array`.
    pub fn continued(out: &'b mut Vec<u8>, array: Doc<'_>) -> Self {
        let mut doc = DocWriter::new(out);
        doc.append_elements(array.elements_bytes());
        ArrayWriter { doc, next: ElementName::of(array.iter().count()) }
    }

    /// Continues the array that `out` holds, and nothing else, with `count` elements.
    pub fn resumed(out: &'b mut Vec<u8>, count: usize) -> Self {
        ArrayWriter { doc: DocWriter::resumed(out), next: ElementName::of(count) }
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

    /// Appends up to `max` elements of another array. Returns their number.
    ///
    /// Neighbours whose names are those that they get here are copied at once.
    pub fn push_elements(&mut self, elements: &mut Iter<'_>, max: usize) -> usize {
        let start = self.next.count;
        // The elements not yet copied, and the elements from the next one on.
        let (mut copied, mut next) = (elements.rest(), elements.rest());
        while self.next.count - start < max
            && let Some(element) = elements.next()
        {
            if **element.name != *self.next.digits() {
                self.doc.append_elements(front(copied, next));
                self.doc.append_raw(self.next.digits(), element.value);
                copied = elements.rest();
            }
            next = elements.rest();
            self.next.advance();
        }
        self.doc.append_elements(front(copied, next));
        self.next.count - start
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
        self.next.count
    }

    /// The number of bytes written so far by this array, its length field included.
    pub fn size(&self) -> usize {
        self.doc.size()
    }

    /// Finishes the array. Dropping the writer does the same; the call makes it explicit.
    pub fn finish(self) {}

    fn next_name(&mut self, kind: Type) {
        self.doc.name(kind, self.next.digits());
        self.next.advance();
    }
}

/// The name of an array's element: its index in decimal.
#[derive(Clone, Copy)]
struct ElementName {
    count: usize,
    /// The digits, at the end.
    digits: [u8; ElementName::DIGITS_MAX],
    start: usize,
}

impl ElementName {
    /// The digits of the greatest index.
    const DIGITS_MAX: usize = 20;

    fn of(count: usize) -> ElementName {
        let mut digits = [b'0'; Self::DIGITS_MAX];
        let (mut start, mut rest) = (Self::DIGITS_MAX, count);
        for digit in digits.iter_mut().rev() {
            // A single digit.
            #[allow(clippy::cast_possible_truncation)]
            let last = (rest % 10) as u8;
            *digit += last;
            start -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        ElementName { count, digits, start }
    }

    fn digits(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }

    fn advance(&mut self) {
        self.count += 1;
        for (at, digit) in self.digits.iter_mut().enumerate().rev() {
            self.start = self.start.min(at);
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}

/// The bytes of `all` before its end `rest`.
fn front<'a>(all: &'a [u8], rest: &[u8]) -> &'a [u8] {
    all.get(..all.len().saturating_sub(rest.len())).unwrap_or_default()
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
        let mut writer = DocWriter::resumed(&mut bytes);
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
    use std::convert::Infallible;

    use super::*;

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

    #[test]
    fn fields_are_copied_except_those_that_change() {
        let doc = doc! { "a": 1, "b": "x", "c": { "d": 2 }, "b": null, "e": [] };
        let change = |names: &[&str]| {
            DocBuf::build(|out| {
                let Ok(()) = out.append_changed::<_, Infallible>(
                    doc.as_doc(),
                    |field| Ok(names.iter().position(|name| field.name == *name)),
                    |at, field, out| {
                        if at == 0 {
                            out.append(field.name, 7);
                        }
                        Ok(())
                    },
                );
            })
        };
        assert_eq!(change(&[]), doc);
        assert_eq!(change(&["b"]), doc! { "a": 1, "b": 7, "c": { "d": 2 }, "b": 7, "e": [] });
        assert_eq!(change(&["e", "a"]), doc! { "b": "x", "c": { "d": 2 }, "b": null, "e": 7 });
        assert_eq!(change(&["x", "a", "b", "c", "e"]), doc! {});
    }

    #[test]
    fn elements_of_other_arrays_get_new_names() {
        let odd = doc! { "0": 0, "x": 1, "2": 2, "02": 3, "4": 4 };
        for (before, max) in [(0, 100), (1, 100), (9, 100), (99, 1), (998, 3), (9_999, 2)] {
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            let mut pushed = 0;
            let mut one_by_one = ArrayWriter::new(&mut expected);
            let mut at_once = ArrayWriter::new(&mut found);
            for number in 0..before {
                one_by_one.push(number);
                at_once.push(number);
            }
            let mut elements = odd.as_doc().iter();
            while pushed < 5 {
                pushed += at_once.push_elements(&mut elements, max);
            }
            odd.as_doc().values().for_each(|value| {
                one_by_one.push(value);
            });
            assert_eq!(at_once.count(), one_by_one.count());
            one_by_one.finish();
            at_once.finish();
            assert_eq!(found, expected, "{before} {max}");
            let continued = Doc::trusted(&found);
            let mut again = Vec::new();
            ArrayWriter::continued(&mut again, continued).push(true);
            let last = Doc::trusted(&again).iter().last().unwrap();
            assert_eq!(last.name, (before + 5).to_string().as_str());
        }
    }
}

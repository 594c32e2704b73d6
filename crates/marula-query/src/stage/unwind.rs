//! `$unwind`: outputs a document per element of an array.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::doc::Iter;
use marula_bson::{Doc, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};

use super::fields::write_with;
use super::needs::{Gives, Needs};
use super::passage::Passage;
use super::source::check_size;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step, deep_path};
use crate::expression::Path;
use crate::feature_version::FeatureVersion;
use crate::known::Known;

pub(super) const ROW: StageRow =
    StageRow { name: "$unwind", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    path_has_nul() = 16419, "field path must not contain embedded null characters";
    wrong_type(kind: &str) = 15981, "expected either a string or an object as specification for $unwind stage, got {kind}";
    path_not_string(kind: &str) = 28808, "expected a string as the path for $unwind stage, got {kind}";
    preserve_not_bool(kind: &str) = 28809, "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {kind}";
    index_not_string(kind: &str) = 28810, "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {kind}";
    unknown_option(name: &str) = 28811, "unrecognized option to $unwind stage: {name}";
    no_path() = 28812, "no path specified to $unwind stage";
    path_without_dollar(path: &str) = 28818, "path option to $unwind stage should be prefixed with a '$': {path}";
    index_is_path(path: &str) = 28822, "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {path}";
}

/// A parsed `$unwind`.
#[derive(Clone, Debug)]
pub struct Unwind {
    path: Path,
    preserve: bool,
    index: Option<Path>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let mut path = None;
    let mut preserve = false;
    let mut index = None;
    match value {
        Value::String(text) => path = Some(text),
        Value::Document(spec) => {
            for element in spec {
                let value = element.value.get();
                let kind = value.kind().alias();
                match &**element.name {
                    b"path" => path = Some(value.as_str().ok_or_else(|| path_not_string(kind))?),
                    b"preserveNullAndEmptyArrays" => match value {
                        Value::Boolean(flag) => preserve = flag,
                        _ => return Err(preserve_not_bool(kind)),
                    },
                    b"includeArrayIndex" => {
                        let text = value.as_str().filter(|text| !text.is_empty());
                        let text = text.ok_or_else(|| index_not_string(kind))?;
                        if text.starts_with(b"$") {
                            return Err(index_is_path(&text.to_str_lossy()));
                        }
                        index = Some(text);
                    }
                    _ => return Err(unknown_option(&element.name.to_string())),
                }
            }
        }
        _ => return Err(wrong_type(value.kind().alias())),
    }
    let text = path.filter(|path| !path.is_empty()).ok_or_else(no_path)?;
    let Some(path) = text.strip_prefix(b"$") else {
        return Err(path_without_dollar(&text.to_str_lossy()));
    };
    if path.contains(&0) {
        return Err(path_has_nul());
    }
    let path = Path::parse(path)?;
    let index = index.map(|text| Path::parse(text)).transpose()?;
    parser.push(Unwind { path, preserve, index });
    Ok(())
}

impl Unwind {
    /// Returns the field whose array is unwound.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The field whose array is unwound, and the one that an element's index is written to.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path).chain(&self.index)
    }

    /// Returns whether a document without elements is output too.
    pub(super) fn preserves(&self) -> bool {
        self.preserve
    }

    /// Returns whether it outputs the elements unchanged, and nothing else.
    pub(super) fn leaves_all(&self) -> bool {
        !self.preserve && self.index.is_none()
    }

    /// Returns how conditions after the stage translate to its input.
    pub(super) fn passage_of_conditions(&self) -> Passage {
        let mut passage = Passage::all_but_named();
        passage.name_top_of(&self.path);
        if let Some(index) = &self.index {
            passage.name_top_of(index);
        }
        passage
    }

    /// Writes the form that `explain` shows if another stage includes the unwinding.
    pub(super) fn print_unwinding(&self, out: &mut DocWriter<'_>) {
        let mut unwinding = out.begin_doc("unwinding");
        unwinding.append("preserveNullAndEmptyArrays", self.preserve);
        if let Some(index) = &self.index {
            unwinding.append("includeArrayIndex", index.text().as_bstr());
        }
    }

    /// Writes into `out` the result of unwinding `doc` with an array that has `joined` as its
    /// element at `index`; `None` is an empty array. `indexed` is a reusable buffer.
    pub(super) fn write_joined(
        &self,
        doc: Doc<'_>,
        joined: Option<Doc<'_>>,
        index: i64,
        out: &mut Vec<u8>,
        indexed: &mut Vec<u8>,
    ) {
        out.clear();
        let value = joined.map(Value::Document);
        write_with(doc, self.path.parts(), value, &mut DocWriter::new(out));
        let index = joined.map_or(Value::Null, |_| Value::Int64(index));
        self.write_index(index, out, indexed);
    }

    /// Writes the index into the document that `out` holds.
    fn write_index(&self, index: Value<'_>, out: &mut Vec<u8>, indexed: &mut Vec<u8>) {
        let Some(path) = &self.index else {
            return;
        };
        indexed.clear();
        let doc = Doc::trusted(out);
        write_with(doc, path.parts(), Some(index), &mut DocWriter::new(indexed));
        std::mem::swap(out, indexed);
    }
}

impl Stage for Unwind {
    fn name(&self) -> &'static str {
        "$unwind"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            let path = [b"$", &*self.path.text()].concat();
            out.append("path", path.as_bstr());
            if self.preserve {
                out.append("preserveNullAndEmptyArrays", true);
            }
            if let Some(index) = &self.index {
                out.append("includeArrayIndex", index.text().as_bstr());
            }
        })
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.path(&self.path);
        Gives::Input
    }

    fn passage(&self) -> Passage {
        self.passage_of_conditions().letting_sorts_pass()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Unwind(self)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        let stage = Arc::clone(&self);
        let unwinding = Unwinding {
            input: deep_path::guard(input, [&self.path]),
            stage: self,
            rest: None,
            is_unchanged: false,
            out: Vec::new(),
            indexed: Vec::new(),
        };
        Ok(deep_path::guard(Box::new(unwinding), &stage.index))
    }
}

/// The remaining elements of the input's array.
struct RemainingElements {
    /// The offset of the next element in the input's bytes.
    offset: usize,
    /// The end of the elements.
    end: usize,
    index: i64,
    /// The start and end of the field, if it is at the top and its name is unique.
    field: Option<(usize, usize)>,
}

struct Unwinding {
    input: Box<dyn Source>,
    stage: Arc<Unwind>,
    rest: Option<RemainingElements>,
    /// Whether the input's document is the result itself.
    is_unchanged: bool,
    out: Vec<u8>,
    indexed: Vec<u8>,
}

impl Unwinding {
    /// Writes the document for the next element of the array, if there is one.
    fn next_element(&mut self) -> bool {
        let Some(RemainingElements { offset, end, index, field }) = self.rest.take() else {
            return false;
        };
        let doc = self.input.doc();
        let elements = doc.as_bytes().get(offset..end).unwrap_or(&[]);
        let mut items = Iter::over(elements);
        let Some(item) = items.next() else {
            return false;
        };
        self.rest = Some(RemainingElements {
            offset: end - items.rest().len(),
            end,
            index: index + 1,
            field,
        });
        self.out.clear();
        let parts = self.stage.path.parts();
        match (field.and_then(|field| around(doc, field)), parts) {
            (Some((before, behind)), [name]) => {
                let mut out = DocWriter::new(&mut self.out);
                out.append_elements(before).append_raw(name, item.value).append_elements(behind);
            }
            _ => {
                let value = Some(item.value.get());
                write_with(doc, parts, value, &mut DocWriter::new(&mut self.out));
            }
        }
        self.stage.write_index(Value::Int64(index), &mut self.out, &mut self.indexed);
        true
    }

    /// Handles a new input document. Returns whether it gives a result that is not an array's
    /// element.
    fn begin(&mut self) -> bool {
        let doc = self.input.doc();
        let found = find(doc, self.stage.path.parts());
        if let Some(Value::Array(items)) = found
            && !items.is_empty()
        {
            let elements = items.elements_bytes();
            // The elements are part of the document's bytes, so the difference is their offset.
            let offset = elements.as_ptr().addr() - doc.as_bytes().as_ptr().addr();
            let field = field_of(doc, self.stage.path.parts(), offset);
            self.rest =
                Some(RemainingElements { offset, end: offset + elements.len(), index: 0, field });
            return false;
        }
        let is_nothing = found.is_none_or(|value| value.is_nullish() || value.as_array().is_some());
        if is_nothing && !self.stage.preserve {
            return false;
        }
        let is_empty_array = found.is_some_and(|value| value.as_array().is_some());
        self.is_unchanged = !is_empty_array && self.stage.index.is_none();
        if self.is_unchanged {
            return true;
        }
        self.out.clear();
        if is_empty_array {
            write_with(doc, self.stage.path.parts(), None, &mut DocWriter::new(&mut self.out));
        } else {
            self.out.extend_from_slice(doc.as_bytes());
        }
        self.stage.write_index(Value::Null, &mut self.out, &mut self.indexed);
        true
    }
}

/// Returns the start and end of the field `path` in the document's bytes; its array's elements
/// begin at `offset`. `None` if it is not at the top or not the only one of its name.
fn field_of(doc: Doc<'_>, path: &[Box<[u8]>], offset: usize) -> Option<(usize, usize)> {
    let [name] = path else { return None };
    let array = offset - size_of::<i32>();
    // The tag and the name, which ends with NUL, come before the array.
    let begin = array.checked_sub(name.len() + 2)?;
    let (length, _) = doc.as_bytes().get(array..)?.split_first_chunk()?;
    let end = array + usize::try_from(i32::from_le_bytes(*length)).ok()?;
    let (_, behind) = around(doc, (begin, end))?;
    let is_only = Iter::over(behind).all(|element| **element.name != **name);
    is_only.then_some((begin, end))
}

/// Returns the elements before and after a part of a document's bytes.
fn around(doc: Doc<'_>, (begin, end): (usize, usize)) -> Option<(&[u8], &[u8])> {
    let bytes = doc.as_bytes();
    Some((bytes.get(size_of::<i32>()..begin)?, bytes.get(end..bytes.len().checked_sub(1)?)?))
}

/// Returns the value at a path through documents only.
fn find<'a>(doc: Doc<'a>, parts: &[Box<[u8]>]) -> Option<Value<'a>> {
    let (last, init) = parts.split_last()?;
    init.iter().try_fold(doc, |doc, part| doc.get(part)?.as_doc())?.get(last)
}

impl Source for Unwinding {
    fn pull(&mut self) -> Result<Step> {
        loop {
            self.is_unchanged = false;
            if self.next_element() {
                check_size(self.out.len())?;
                return Ok(Step::Document);
            }
            match self.input.advance()? {
                Step::Document if self.begin() => return Ok(Step::Document),
                Step::Document => {}
                step => return Ok(step),
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        if self.is_unchanged { self.input.doc() } else { Doc::trusted(&self.out) }
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

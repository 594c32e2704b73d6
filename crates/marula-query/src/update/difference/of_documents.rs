//! The difference of two documents, for updates by pipelines.
//!
//! Fields are compared in order. From the first differing name on, the rest of the old document
//! counts as removed, and the rest of the new one as added at the end. Of the removed fields those
//! at the end come first, then those skipped, by name.

use marula_bson::{Doc, RawValue, Type};

use super::{Change, Elements, InnerChange, Sections};

/// The size of an entry in addition to the difference. Source: sizes at which mongod 6.0 begins to
/// write the whole document.
const ENTRY_BYTES: usize = 15;
/// The size of a document's length and end.
const DOCUMENT_BYTES: usize = 5;
/// The size of an element's type and the end of its name.
const ELEMENT_BYTES: usize = 2;

/// Returns whether the difference is shorter than the whole document.
pub(super) fn is_worth_it(sections: &Sections<'_>, new: Doc<'_>) -> bool {
    sections.size() + ENTRY_BYTES < new.as_bytes().len()
}

/// Returns the difference of two documents.
pub(super) fn sections<'d>(old: Doc<'d>, new: Doc<'d>) -> Sections<'d> {
    let mut sections = Sections::default();
    let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
    let mut passed = Vec::new();
    while let (Some(before), Some(after)) = (olds.peek(), news.peek()) {
        let name: &[u8] = before.name;
        if before.name != after.name {
            passed.push(name);
            olds.next();
            continue;
        }
        match change(before.value, after.value) {
            None => {}
            Some(Change::Set(value)) => sections.set.push((name, value)),
            Some(Change::InnerChange(inside)) => sections.inside.push((name, inside)),
        }
        olds.next();
        news.next();
    }
    sections.gone.extend(olds.map(|element| -> &[u8] { element.name }));
    for element in news {
        let name: &[u8] = element.name;
        passed.retain(|gone| *gone != name);
        sections.added.push((name, element.value));
    }
    passed.sort_unstable();
    sections.gone.append(&mut passed);
    sections
}

fn elements<'d>(old: Doc<'d>, new: Doc<'d>) -> Elements<'d> {
    let mut elements = Elements::default();
    let (mut olds, mut news) = (old.iter(), new.iter());
    for place in 0.. {
        match (olds.next(), news.next()) {
            (Some(before), Some(after)) => {
                let change = change(before.value, after.value);
                elements.changes.extend(change.map(|change| (place, change)));
            }
            (None, Some(after)) => elements.changes.push((place, Change::Set(after.value))),
            (Some(_), None) => {
                elements.length = Some(place);
                break;
            }
            (None, None) => break,
        }
    }
    elements
}

/// Returns the difference of two values; `None` if they are equal.
fn change<'d>(old: RawValue<'d>, new: RawValue<'d>) -> Option<Change<'d>> {
    if old.kind() == new.kind() && old.bytes() == new.bytes() {
        return None;
    }
    let both = || (Doc::trusted(old.bytes()), Doc::trusted(new.bytes()));
    let inside = match (old.kind(), new.kind()) {
        (Type::Document, Type::Document) => {
            let (old, new) = both();
            InnerChange::Document(sections(old, new))
        }
        (Type::Array, Type::Array) => {
            let (old, new) = both();
            InnerChange::Array(elements(old, new))
        }
        _ => return Some(Change::Set(new)),
    };
    let is_shorter = inside.size() < new.bytes().len();
    Some(if is_shorter { Change::InnerChange(inside) } else { Change::Set(new) })
}

impl Sections<'_> {
    /// Returns the size of the document with the difference.
    fn size(&self) -> usize {
        let mut size = DOCUMENT_BYTES;
        let section = |inner: usize| ELEMENT_BYTES + 1 + DOCUMENT_BYTES + inner;
        if !self.gone.is_empty() {
            // A name and a boolean for each.
            size += section(self.gone.iter().map(|name| ELEMENT_BYTES + name.len() + 1).sum());
        }
        for fields in [&self.set, &self.added] {
            if !fields.is_empty() {
                let fields = fields.iter();
                size += section(fields.map(|(name, value)| element(name, *value)).sum());
            }
        }
        let inside = self.inside.iter();
        size + inside
            .map(|(name, inside)| ELEMENT_BYTES + 1 + name.len() + inside.size())
            .sum::<usize>()
    }
}

impl InnerChange<'_> {
    fn size(&self) -> usize {
        match self {
            InnerChange::Document(sections) => sections.size(),
            InnerChange::Array(elements) => elements.size(),
        }
    }
}

impl Elements<'_> {
    fn size(&self) -> usize {
        let header = ELEMENT_BYTES + 1 + 1;
        let length = self.length.map_or(0, |_| ELEMENT_BYTES + 1 + 4);
        let changes = self.changes.iter().map(|(place, change)| {
            let name = 1 + place.checked_ilog10().unwrap_or(0) as usize + 1;
            let value = match change {
                Change::Set(value) => value.bytes().len(),
                Change::InnerChange(inside) => inside.size(),
            };
            ELEMENT_BYTES + name + value
        });
        DOCUMENT_BYTES + header + length + changes.sum::<usize>()
    }
}

fn element(name: &[u8], value: RawValue<'_>) -> usize {
    ELEMENT_BYTES + name.len() + value.bytes().len()
}

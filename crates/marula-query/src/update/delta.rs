//! An update in the form of an oplog: the difference between a document before and after, `{ $v: 2,
//! diff: <difference> }`.
//!
//! Form of a difference of documents: `d: { <field>: false }` for removed fields, `u: { <field>:
//! <value> }` for fields set in place, `i: { <field>: <value> }` for fields added at the end,
//! `s<field>: <difference>` for changes inside a field. Of arrays: `a: true`, `l: <new length>`,
//! `u<index>: <value>`, `s<index>: <difference>`.
//!
//! An entry may be applied to a document that has its change already, or is newer. A field with
//! changes inside that is no longer a document or array becomes null, as in mongod: a later entry
//! sets it whole. Source: entries that mongod 6.0 writes, and the results of its `applyOps`.

use std::collections::{BTreeMap, HashMap, HashSet};

use marula_bson::{ArrayWriter, BStr, ByteSlice, Doc, DocBuf, DocWriter, Element, RawValue, Value};
use marula_error::{Result, errors};

use super::replacement::check_id_of_entry;
use super::stored;

errors! {
    no_difference(kind: &str) = 4_772_601, "Expected 'diff' field to be an object, instead got type: {kind}";
    not_an_object() = 4_770_507, "Expected diff section to be type object";
    empty() = 4_770_500, "Expected diff to be non-empty";
    unknown_section(name: &BStr) = 4_770_503, "Unexpected section: {name} in document diff";
    wrong_section(name: &str, kind: &str) = 4_770_507, "Expected {name} section to be type {kind}";
    not_a_place(name: &BStr) = 4_770_512, "Expected integer but got {name}";
    unknown_array_section(name: &BStr) = 4_770_521, "expected field name to be at least two characters long, but found: {name}";
    array_header(header: &Element<'_>) = 4_770_520, "Expected array header to be value true but got {header}";
    repeated_field(name: &BStr) = 4_728_000, "duplicate field name in diff: {name}";
    too_long(length: i64) = 13_548, "BufBuilder attempted to grow() for an array of {length} elements, past the 64MB limit.";
}

/// The longest array that a difference may create: filled with nulls it fills a document.
const LENGTH_MAX: usize = 2 * 1024 * 1024;
/// The maximum nesting of sections: that of documents.
const DEPTH_MAX: u32 = 200;

/// A checked difference.
#[derive(Debug)]
pub(super) struct Delta(DocBuf);

impl Delta {
    /// Checks the form of a difference.
    ///
    /// Errors: all of this module's.
    pub(super) fn parse(diff: Option<Value<'_>>) -> Result<Delta> {
        let kind = diff.map_or("missing", |diff| diff.kind().alias());
        let diff = match diff {
            Some(Value::Document(diff)) => diff,
            _ => return Err(no_difference(kind)),
        };
        check(diff, 0)?;
        Ok(Delta(diff.to_buf()))
    }

    /// Appends the new document, with the `_id` of the old one where the difference takes it away;
    /// whether it differs.
    pub(super) fn apply(&self, old: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        self.write(old, out);
        check_id_of_entry(old.get_raw(b"_id"), Doc::trusted(&out[start..]).get_raw(b"_id"))?;
        let new = Doc::trusted(&out[start..]);
        stored::check_depth(new)?;
        Ok(new != old)
    }

    /// Appends the document to insert that the difference makes of `base`. It may have another
    /// `_id`.
    pub(super) fn insert(&self, base: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        self.write(base, out);
        stored::check_depth(Doc::trusted(&out[start..]))
    }

    fn write(&self, old: Doc<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut writer = DocWriter::new(out);
        change_document(old, self.0.as_doc(), &mut writer);
        writer.finish();
        let new = Doc::trusted(&out[start..]);
        let Some(id) = old.get_raw(b"_id").filter(|_| new.get_raw(b"_id").is_none()) else {
            return;
        };
        let with_id = DocBuf::build(|fields| {
            fields.append_raw("_id", id).append_elements(new.elements_bytes());
        });
        out.truncate(start);
        out.extend_from_slice(with_id.as_doc().as_bytes());
    }
}

fn is_of_array(diff: Doc<'_>) -> bool {
    diff.get("a") == Some(Value::Boolean(true))
}

fn check(diff: Doc<'_>, depth: u32) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(not_an_object());
    }
    let Some(first) = diff.iter().next() else { return Err(empty()) };
    match first.name == "a" {
        true if is_of_array(diff) => check_array(diff, depth),
        true => Err(array_header(&first)),
        false => check_document(diff, depth),
    }
}

fn check_document(diff: Doc<'_>, depth: u32) -> Result<()> {
    let mut seen = HashSet::new();
    for section in diff {
        match (section.name.as_bytes(), section.value.get()) {
            (b"d" | b"u" | b"i", Value::Document(fields)) => {
                for field in fields {
                    if !seen.insert(field.name) {
                        return Err(repeated_field(field.name));
                    }
                }
            }
            (b"d" | b"u" | b"i", _) => {
                return Err(wrong_section(&section.name.to_str_lossy(), "object"));
            }
            ([b's', name @ ..], Value::Document(inner)) => {
                if !seen.insert(name.as_bstr()) {
                    return Err(repeated_field(name.as_bstr()));
                }
                check(inner, depth + 1)?;
            }
            ([b's', ..], _) => return Err(wrong_section("s", "object")),
            (name, _) => return Err(unknown_section(name[..name.len().min(1)].as_bstr())),
        }
    }
    Ok(())
}

fn check_array(diff: Doc<'_>, depth: u32) -> Result<()> {
    for section in diff.iter().skip(1) {
        match (section.name.as_bytes(), section.value.get()) {
            (b"l", length) => match length.as_exact_i64() {
                Some(length)
                    if usize::try_from(length).is_ok_and(|length| length <= LENGTH_MAX) => {}
                Some(length) => return Err(too_long(length)),
                None => return Err(wrong_section("l", "int")),
            },
            ([_] | [], _) => return Err(unknown_array_section(section.name)),
            ([b'u' | b's', name @ ..], _) if place(name).is_none() => {
                return Err(not_a_place(name.as_bstr()));
            }
            ([b'u', ..], _) => {}
            ([b's', ..], Value::Document(inner)) => check(inner, depth + 1)?,
            ([b's', ..], _) => return Err(wrong_section("s", "object")),
            _ => return Err(unknown_section(section.name)),
        }
    }
    Ok(())
}

/// Returns the array index in a section's name.
fn place(name: &[u8]) -> Option<usize> {
    let place = str::from_utf8(name).ok()?.parse().ok()?;
    (place < LENGTH_MAX).then_some(place)
}

/// The change of one field or element.
#[derive(Clone, Copy)]
enum Section<'d> {
    /// It is removed, or added at the end.
    Gone,
    Set(RawValue<'d>),
    Inside(Doc<'d>),
}

/// The sections of a difference of documents, by field.
fn fields(diff: Doc<'_>) -> HashMap<&[u8], Section<'_>> {
    let mut sections = HashMap::new();
    for section in diff {
        match (section.name.as_bytes(), section.value.get()) {
            (b"d" | b"i", Value::Document(gone)) => {
                sections.extend(gone.iter().map(|gone| (gone.name.as_bytes(), Section::Gone)));
            }
            (b"u", Value::Document(set)) => {
                let set = set.iter().map(|set| (set.name.as_bytes(), Section::Set(set.value)));
                sections.extend(set);
            }
            ([b's', name @ ..], Value::Document(inner)) => {
                sections.insert(name, Section::Inside(inner));
            }
            _ => {}
        }
    }
    sections
}

fn change_document(old: Doc<'_>, diff: Doc<'_>, out: &mut DocWriter<'_>) {
    let mut sections = fields(diff);
    for element in old {
        match (sections.remove(element.name.as_bytes()), element.value.get()) {
            (Some(Section::Gone), _) => {}
            (Some(Section::Set(value)), _) => {
                out.append_raw(element.name, value);
            }
            (Some(Section::Inside(inner)), Value::Document(old)) if !is_of_array(inner) => {
                change_document(old, inner, &mut out.begin_doc(element.name));
            }
            (Some(Section::Inside(inner)), Value::Array(old)) if is_of_array(inner) => {
                change_array(old, inner, &mut out.begin_array(element.name));
            }
            // It was a document or an array when the entry was written; what comes later sets it
            // whole.
            (Some(Section::Inside(_)), _) => {
                out.append(element.name, Value::Null);
            }
            (None, _) => {
                out.append_raw(element.name, element.value);
            }
        }
    }
    let part = |name: &str| diff.get(name).and_then(|part| part.as_doc()).unwrap_or(Doc::EMPTY);
    for element in part("u") {
        if let Some(Section::Set(value)) = sections.remove(element.name.as_bytes()) {
            out.append_raw(element.name, value);
        }
    }
    out.append_elements(part("i").elements_bytes());
}

fn change_array(old: Doc<'_>, diff: Doc<'_>, out: &mut ArrayWriter<'_>) {
    let mut sections = BTreeMap::new();
    for section in diff {
        match (section.name.as_bytes(), section.value.get()) {
            ([b'u', name @ ..], _) => {
                sections.extend(place(name).map(|place| (place, Section::Set(section.value))));
            }
            ([b's', name @ ..], Value::Document(inner)) => {
                sections.extend(place(name).map(|place| (place, Section::Inside(inner))));
            }
            _ => {}
        }
    }
    let reach = sections.keys().next_back().map_or(0, |last| last + 1);
    let given = diff.get("l").and_then(|length| length.as_exact_i64());
    let given = given.and_then(|length| usize::try_from(length).ok());
    let mut old = old.iter().map(|element| element.value);
    for place in 0.. {
        let before = old.next();
        if given.map_or(before.is_none() && place >= reach, |length| place >= length) {
            break;
        }
        match (sections.get(&place), before.map(|before| before.get())) {
            (Some(Section::Set(value)), _) => {
                out.push_raw(*value);
            }
            (Some(Section::Inside(inner)), Some(Value::Document(old))) if !is_of_array(*inner) => {
                change_document(old, *inner, &mut out.begin_doc());
            }
            (Some(Section::Inside(inner)), Some(Value::Array(old))) if is_of_array(*inner) => {
                change_array(old, *inner, &mut out.begin_array());
            }
            (None, Some(_)) => {
                out.push_raw(before.expect("the array goes as far"));
            }
            _ => {
                out.push(Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    fn check(old: &DocBuf, diff: &DocBuf, expected: &DocBuf) {
        let mut out = Vec::new();
        let delta = Delta::parse(Some(Value::Document(diff.as_doc()))).unwrap();
        delta.apply(old.as_doc(), &mut out).unwrap();
        assert_eq!(DocBuf::trusted(out), *expected, "{old:?} {diff:?}");
    }

    #[test]
    fn fields_are_removed_set_and_added() {
        let old = doc! { "_id": 1, "a": 1, "b": 2, "c": { "x": 1, "y": 2 } };
        check(
            &old,
            &doc! { "d": { "a": false } },
            &doc! { "_id": 1, "b": 2, "c": { "x": 1, "y": 2 } },
        );
        check(
            &old,
            &doc! { "u": { "a": 5, "z": 6 }, "i": { "b": 7, "n": 8 } },
            &doc! { "_id": 1, "a": 5, "c": { "x": 1, "y": 2 }, "z": 6, "b": 7, "n": 8 },
        );
        check(
            &old,
            &doc! { "sc": { "d": { "x": false }, "u": { "y": 3 } }, "sb": { "u": { "q": 1 } } },
            &doc! { "_id": 1, "a": 1, "b": Value::Null, "c": { "y": 3 } },
        );
    }

    #[test]
    fn arrays_change_by_place_and_length() {
        let old = doc! { "_id": 1, "a": [1, { "x": 1 }, 3] };
        check(&old, &doc! { "sa": { "a": true, "l": 1 } }, &doc! { "_id": 1, "a": [1] });
        check(
            &old,
            &doc! { "sa": { "a": true, "u4": 9, "s1": { "u": { "x": 2 } } } },
            &doc! { "_id": 1, "a": [1, { "x": 2 }, 3, Value::Null, 9] },
        );
        check(&doc! { "a": 1 }, &doc! { "sa": { "a": true, "l": 1 } }, &doc! { "a": Value::Null });
    }

    #[test]
    fn malformed_differences_are_rejected() {
        for bad in [
            doc! { "x": { "a": 1 } },
            doc! { "d": 1 },
            doc! { "sa": 1 },
            doc! { "sa": { "a": true, "l": 100_000_000 } },
            doc! { "sa": { "a": true, "ux": 1 } },
        ] {
            assert!(Delta::parse(Some(Value::Document(bad.as_doc()))).is_err(), "{bad:?}");
        }
    }
}

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
//! sets it whole. So a difference is checked as far as it is applied: the part for such a field
//! only up to its first inner difference. Source: entries that mongod 6.0 writes, and the results
//! of its `applyOps`.

use std::collections::{BTreeMap, HashMap, HashSet};

use marula_bson::{ArrayWriter, BStr, ByteSlice, Doc, DocBuf, DocWriter, Element, RawValue, Value};
use marula_error::{Result, errors};

use super::replacement::check_id_of_entry;
use super::stored;

errors! {
    no_difference(kind: &str) = 4_772_601, "Expected 'diff' field to be an object, instead got type: {kind}";
    empty() = 4_770_500, "Expected diff to be non-empty";
    unnamed_section() = 4_770_505, "Expected sections field names in diff to be non-empty ";
    unknown_section(kind: char) = 4_770_503, "Unexpected section: {kind} in document diff";
    wrong_section(kind: char, expected: &str) = 4_770_507, "Expected {kind} section to be type {expected}";
    section_after_inner(name: &BStr) = 4_770_514, "Did not expect more sections in diff but found one: {name}";
    inner_not_an_object(section: &Element<'_>) = 470_510, "Subdiffs should be objects, got {section}";
    repeated_field(name: &BStr) = 4_728_000, "duplicate field name in diff: {name}";
    header_type(header: &Element<'_>) = 4_770_519, "Expected array header to be bool but got {header}";
    header_value(header: &Element<'_>) = 4_770_520, "Expected array header to be value true but got {header}";
    short_name(name: &BStr) = 4_770_521, "expected field name to be at least two characters long, but found: {name}";
    not_a_place(name: &BStr) = 4_770_512, "Expected integer but got {name}";
    element_not_an_object(place: usize, section: &Element<'_>) = 4_770_501, "expected sub diff at index {place} but got {section}";
    unknown_element(place: usize, section: &Element<'_>) = 4_770_502, "Expected either 'u' (update) or 's' (sub diff) at index {place} but got {section}";
    too_long(length: i64) = 13_548, "BufBuilder attempted to grow() for an array of {length} elements, past the 64MB limit.";
    places_not_in_order(place: usize) = 13_548, "BufBuilder attempted to grow() to reach element {place} again, past the 64MB limit.";
}

/// The longest array that a difference may create: filled with nulls it fills a document.
const LENGTH_MAX: usize = 2 * 1024 * 1024;
/// A difference, not checked yet.
#[derive(Debug)]
pub(super) struct Delta(DocBuf);

impl Delta {
    /// Takes the `diff` of an entry.
    ///
    /// Errors: `no_difference`.
    pub(super) fn parse(diff: Option<Value<'_>>) -> Result<Delta> {
        match diff {
            Some(Value::Document(diff)) => Ok(Delta(diff.to_buf())),
            _ => Err(no_difference(diff.map_or("missing", |diff| diff.kind().alias()))),
        }
    }

    /// Appends the new document, with the `_id` of the old one where the difference takes it away;
    /// whether it differs.
    ///
    /// Errors: those of the form of a difference; another `_id`; nested too deep.
    pub(super) fn apply(&self, old: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        check_document(self.0.as_doc(), Some(old))?;
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
        check_document(self.0.as_doc(), Some(base))?;
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
    diff.iter().next().is_some_and(|header| header.name == "a")
}

/// A difference of documents by its sections.
struct Sections<'d> {
    removed: Doc<'d>,
    set: Doc<'d>,
    added: Doc<'d>,
    /// The first section with a difference inside a field, and those after it.
    inside: Vec<Element<'d>>,
}

impl<'d> Sections<'d> {
    /// Reads the sections, each of which is named by its first letter, in this order.
    fn read(diff: Doc<'d>) -> Result<Self> {
        if diff.is_empty() {
            return Err(empty());
        }
        let mut plain = [Doc::EMPTY; 3];
        let mut next = 0;
        let mut inside = Vec::new();
        let mut sections = diff.iter();
        for section in sections.by_ref() {
            let first = section.name.chars().next().ok_or_else(unnamed_section)?;
            let at = ['d', 'u', 'i'].iter().skip(next).position(|kind| *kind == first);
            match (at, section.value.get()) {
                (None, _) if first != 's' => return Err(unknown_section(first)),
                (Some(at), Value::Document(fields)) => {
                    plain[next + at] = fields;
                    next += at + 1;
                }
                (None, Value::Document(_)) => {
                    inside.push(section);
                    break;
                }
                _ => return Err(wrong_section(first, "object")),
            }
        }
        inside.extend(sections);
        let [removed, set, added] = plain;
        Ok(Sections { removed, set, added, inside })
    }

    /// Returns the fields with a difference inside of them.
    fn inner(&self) -> impl Iterator<Item = (&'d [u8], Doc<'d>)> {
        let inside = self.inside.iter();
        inside.filter_map(|section| {
            let name: &'d [u8] = section.name;
            Some((name.get(1..)?, section.value.get().as_doc()?))
        })
    }
}

/// Checks a difference inside a value; `old` is the value, if there is one.
fn check_inner(diff: Doc<'_>, old: Option<Value<'_>>) -> Result<()> {
    match is_of_array(diff) {
        true => check_array(diff, old.and_then(|old| old.as_array())),
        false => check_document(diff, old.and_then(|old| old.as_doc())),
    }
}

/// Checks a difference of documents; the inner ones only if it is applied to a document.
fn check_document(diff: Doc<'_>, old: Option<Doc<'_>>) -> Result<()> {
    let sections = Sections::read(diff)?;
    let Some(old) = old else { return Ok(()) };
    let mut seen = HashSet::new();
    let mut see = |name| if seen.insert(name) { Ok(()) } else { Err(repeated_field(name)) };
    for field in [sections.removed, sections.set].into_iter().flatten() {
        see(field.name)?;
    }
    let mut inside = Vec::new();
    for section in &sections.inside {
        let Some(name) = section.name.strip_prefix(b"s") else {
            return Err(section_after_inner(section.name));
        };
        let Value::Document(inner) = section.value.get() else {
            return Err(inner_not_an_object(section));
        };
        see(name.as_bstr())?;
        inside.push((name, inner));
    }
    sections.added.iter().try_for_each(|field| see(field.name))?;
    let mut inside = inside.into_iter();
    inside.try_for_each(|(name, inner)| check_inner(inner, old.get_raw(name).map(|old| old.get())))
}

/// Checks a difference of arrays; the elements only if it is applied to an array.
fn check_array(diff: Doc<'_>, old: Option<Doc<'_>>) -> Result<()> {
    let mut sections = diff.iter();
    let header = sections.next().ok_or_else(empty)?;
    match header.value.get() {
        Value::Boolean(true) => {}
        Value::Boolean(false) => return Err(header_value(&header)),
        _ => return Err(header_type(&header)),
    }
    let mut sections = sections.peekable();
    let length = sections.next_if(|section| section.name == "l").map(|length| length.value.get());
    let length = match length {
        None => 0,
        Some(Value::Int32(length)) => i64::from(length),
        Some(_) => return Err(wrong_section('l', "int")),
    };
    let Some(old) = old else { return Ok(()) };
    if usize::try_from(length).is_err() {
        return Err(too_long(length));
    }
    let old: Vec<_> = old.values().collect();
    let mut next = 0;
    for section in sections {
        let [kind, name @ ..] = section.name.as_bytes() else {
            return Err(short_name(section.name));
        };
        if name.is_empty() {
            return Err(short_name(section.name));
        }
        let place = place(name).ok_or_else(|| not_a_place(name.as_bstr()))?;
        match (kind, section.value.get()) {
            (b'u', _) => {}
            (b's', Value::Document(inner)) => check_inner(inner, old.get(place).copied())?,
            (b's', _) => return Err(element_not_an_object(place, &section)),
            _ => return Err(unknown_element(place, &section)),
        }
        if place < next {
            return Err(places_not_in_order(place));
        }
        next = place + 1;
    }
    Ok(())
}

/// Returns the array index in a section's name.
fn place(name: &[u8]) -> Option<usize> {
    let is_number = name.iter().all(u8::is_ascii_digit);
    let place = str::from_utf8(name).ok().filter(|_| is_number)?.parse().ok()?;
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

/// Returns the changes of a difference of documents, by field.
fn changes<'d>(sections: &Sections<'d>) -> HashMap<&'d [u8], Section<'d>> {
    let mut changes = HashMap::new();
    for gone in sections.removed.iter().chain(sections.added) {
        changes.insert(gone.name.as_bytes(), Section::Gone);
    }
    for set in sections.set {
        changes.insert(set.name.as_bytes(), Section::Set(set.value));
    }
    changes.extend(sections.inner().map(|(name, inner)| (name, Section::Inside(inner))));
    changes
}

fn change_document(old: Doc<'_>, diff: Doc<'_>, out: &mut DocWriter<'_>) {
    let sections = Sections::read(diff).expect("the difference was checked");
    let mut changes = changes(&sections);
    for element in old {
        match (changes.remove(element.name.as_bytes()), element.value.get()) {
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
    for element in sections.set {
        if let Some(Section::Set(value)) = changes.remove(element.name.as_bytes()) {
            out.append_raw(element.name, value);
        }
    }
    out.append_elements(sections.added.elements_bytes());
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
            &doc! { "sa": { "a": true, "s1": { "u": { "x": 2 } }, "u4": 9 } },
            &doc! { "_id": 1, "a": [1, { "x": 2 }, 3, Value::Null, 9] },
        );
        check(&doc! { "a": 1 }, &doc! { "sa": { "a": true, "l": 1 } }, &doc! { "a": Value::Null });
    }

    #[test]
    fn malformed_differences_are_rejected() {
        let old = doc! { "_id": 1, "a": [1, { "x": 1 }, [7]], "s": { "x": 1 } };
        for (bad, code) in [
            (doc! {}, 4_770_500),
            (doc! { "x": { "a": 1 } }, 4_770_503),
            (doc! { "": 1 }, 4_770_505),
            (doc! { "a": true }, 4_770_503),
            (doc! { "i": { "a": 1 }, "u": { "b": 1 } }, 4_770_503),
            (doc! { "d": 1 }, 4_770_507),
            (doc! { "sa": 1 }, 4_770_507),
            (doc! { "ss": { "u": {} }, "sa": 1 }, 470_510),
            (doc! { "ss": { "u": {} }, "u": {} }, 4_770_514),
            (doc! { "sq": { "a": 5 } }, 4_770_519),
            (doc! { "sa": { "a": false } }, 4_770_520),
            (doc! { "sa": { "a": true, "x": 1 } }, 4_770_521),
            (doc! { "sa": { "a": true, "u0": 1, "l": 2 } }, 4_770_521),
            (doc! { "sa": { "a": true, "l": 2_i64 } }, 4_770_507),
            (doc! { "sa": { "a": true, "l": -1 } }, 13_548),
            (doc! { "sa": { "a": true, "u1": 1, "u0": 1 } }, 13_548),
            (doc! { "sa": { "a": true, "u+1": 1 } }, 4_770_512),
            (doc! { "sa": { "a": true, "s1": 5 } }, 4_770_501),
            (doc! { "sa": { "a": true, "x1": 5 } }, 4_770_502),
            (doc! { "u": { "q": 1 }, "i": { "q": 1 } }, 4_728_000),
        ] {
            let delta = Delta::parse(Some(Value::Document(bad.as_doc()))).unwrap();
            let error = delta.apply(old.as_doc(), &mut Vec::new()).unwrap_err();
            assert_eq!(error.code().number(), code, "{bad:?}");
        }
    }

    #[test]
    fn a_difference_for_another_value_is_read_up_to_its_first_inner_one() {
        let old = doc! { "a": 1, "l": [{ "x": 1 }] };
        check(
            &old,
            &doc! { "sa": { "sq": { "zz": 1 } } },
            &doc! { "a": Value::Null, "l": [{ "x": 1 }] },
        );
        check(&old, &doc! { "sq": { "u": { "x": 1 }, "i": { "x": 1 } } }, &old);
        check(
            &old,
            &doc! { "sl": { "a": true, "s0": { "a": true, "zz": 1 } } },
            &doc! { "a": 1, "l": [Value::Null] },
        );
        check(&old, &doc! { "ux": { "a": 2 } }, &doc! { "a": 2, "l": [{ "x": 1 }] });
    }
}

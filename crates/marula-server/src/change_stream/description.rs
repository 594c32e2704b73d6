//! The description of an update: what the difference in its entry of the oplog changes, by path.
//!
//! A path is a text, in which a number is an element of an array or a field of a document, and a
//! dot separates parts or belongs to a name. Since 6.1 `disambiguatedPaths` has the parts of the
//! paths with such names: names are strings there, and numbers of elements ints.
//!
//! Source: manual "Change Events", `update`.

use marula_bson::{BStr, ByteSlice, Doc, DocWriter, Element, Value};

/// Writes the description into `out`; with `disambiguates` also the parts of ambiguous paths.
pub(super) fn write(diff: Doc<'_>, disambiguates: bool, out: &mut DocWriter<'_>) {
    let mut description = Description::default();
    description.document(diff, &mut Path::default());
    let Description { updated, removed, truncated } = description;
    let mut fields = out.begin_doc("updatedFields");
    for (path, value) in &updated {
        fields.append(path.text(), *value);
    }
    drop(fields);
    let mut list = out.begin_array("removedFields");
    for path in &removed {
        list.push(path.text().as_str());
    }
    drop(list);
    let mut list = out.begin_array("truncatedArrays");
    for (path, length) in &truncated {
        let mut array = list.begin_doc();
        array.append("field", path.text().as_str()).append("newSize", *length);
    }
    drop(list);
    if disambiguates {
        let paths = updated.iter().map(|(path, _)| path).chain(&removed);
        let paths = paths.chain(truncated.iter().map(|(path, _)| path));
        let mut fields = out.begin_doc("disambiguatedPaths");
        for path in paths.filter(|path| path.is_ambiguous()) {
            let mut parts = fields.begin_array(path.text());
            for part in &path.0 {
                match part {
                    Part::Field(name) => parts.push(*name),
                    Part::Element(number) => parts.push(number.parse::<i32>().unwrap_or(i32::MAX)),
                };
            }
        }
    }
}

/// A path into a document.
#[derive(Clone, Default)]
struct Path<'d>(Vec<Part<'d>>);

#[derive(Clone)]
enum Part<'d> {
    /// A field of a document.
    Field(&'d BStr),
    /// An element of an array, by its number.
    Element(&'d str),
}

impl<'d> Path<'d> {
    fn with(&self, part: Part<'d>) -> Path<'d> {
        Path([&self.0[..], &[part]].concat())
    }

    fn text(&self) -> String {
        let part = |part: &Part<'_>| match part {
            Part::Field(name) => name.to_str_lossy().into_owned(),
            Part::Element(number) => (*number).to_owned(),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(".")
    }

    /// Returns whether a name in it may be taken for the number of an element, or for two parts.
    fn is_ambiguous(&self) -> bool {
        self.0.iter().any(|part| match part {
            Part::Field(name) => {
                let is_number = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
                is_number || name.contains(&b'.')
            }
            Part::Element(_) => false,
        })
    }
}

#[derive(Default)]
struct Description<'d> {
    updated: Vec<(Path<'d>, Value<'d>)>,
    removed: Vec<Path<'d>>,
    truncated: Vec<(Path<'d>, Value<'d>)>,
}

impl<'d> Description<'d> {
    fn document(&mut self, diff: Doc<'d>, path: &mut Path<'d>) {
        if diff.get("a") == Some(Value::Boolean(true)) {
            return self.array(diff, path);
        }
        for Element { name, value } in diff {
            let fields = value.get().as_doc().unwrap_or(Doc::EMPTY);
            match &**name {
                b"d" => {
                    self.removed.extend(fields.iter().map(|it| path.with(Part::Field(it.name))));
                }
                b"u" | b"i" => {
                    let changed =
                        |it: Element<'d>| (path.with(Part::Field(it.name)), it.value.get());
                    self.updated.extend(fields.iter().map(changed));
                }
                [b's', inner @ ..] => self.inside(fields, path, Part::Field(BStr::new(inner))),
                _ => {}
            }
        }
    }

    fn array(&mut self, diff: Doc<'d>, path: &mut Path<'d>) {
        for Element { name, value } in diff {
            let element = || Part::Element(name[1..].to_str().unwrap_or_default());
            match (&**name, value.get()) {
                (b"l", length) => self.truncated.push((path.clone(), length)),
                ([b'u', ..], value) => self.updated.push((path.with(element()), value)),
                ([b's', ..], Value::Document(inner)) => self.inside(inner, path, element()),
                _ => {}
            }
        }
    }

    fn inside(&mut self, diff: Doc<'d>, path: &mut Path<'d>, part: Part<'d>) {
        path.0.push(part);
        self.document(diff, path);
        path.0.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_bson::{DocBuf, doc};

    fn described(diff: &DocBuf) -> String {
        DocBuf::build(|out| write(diff.as_doc(), true, out)).as_doc().to_string()
    }

    #[test]
    fn names_like_numbers_and_with_dots_are_told_from_elements() {
        let diff = doc! {
            "u": { "a.b": 1, "c": 2 },
            "d": { "7": false },
            "sx": { "a": true, "u0": 5, "s1": { "u": { "0": 6 } }, "l": 3 },
        };
        assert_eq!(
            described(&diff),
            "{ updatedFields: { a.b: 1, c: 2, x.0: 5, x.1.0: 6 }, removedFields: [ \"7\" ], \
             truncatedArrays: [ { field: \"x\", newSize: 3 } ], disambiguatedPaths: \
             { a.b: [ \"a.b\" ], x.1.0: [ \"x\", 1, \"0\" ], 7: [ \"7\" ] } }"
        );
    }

    #[test]
    fn an_unambiguous_update_has_no_such_paths() {
        let diff = doc! { "u": { "a": 1 }, "sx": { "a": true, "u0": 5 } };
        assert!(described(&diff).ends_with("truncatedArrays: [], disambiguatedPaths: {} }"));
    }
}

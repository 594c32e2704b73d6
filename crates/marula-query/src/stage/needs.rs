//! The fields of its input that a pipeline reads, so that only those are passed through it.
//!
//! Each [`Stage`](super::Stage) records the fields it reads itself and returns what its documents
//! are made of. The stages are visited in order until one makes its documents only of recorded
//! fields: later stages read no other field of the input. Documents carry the top-level fields of
//! the paths, a set that may be too large without harm; the paths themselves determine whether an
//! index has all fields that are read. A stage without this information needs the whole document,
//! and so does a pipeline that outputs documents of its input.

use marula_bson::{DocBuf, FieldPath, FieldSet};
use marula_error::{Error, Result};

use super::Pipeline;
use crate::expression::path::check_field_name;
use crate::expression::{Expression, Path};
use crate::filter::{Filter, Node};
use crate::sort::{SortPart, SortPattern};

/// The sources of a stage's output documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// The input's fields, possibly with others or with fewer.
    Input,
    /// Only the fields that the stage has recorded.
    Noted,
    /// Unknown.
    Unknown,
}

/// The fields that a pipeline reads.
#[derive(Clone, Debug)]
pub struct Needed {
    /// The top-level fields.
    pub fields: FieldSet,
    /// The paths, in order; none is a prefix of another.
    pub paths: Vec<FieldPath>,
}

impl Needed {
    fn of(needs: Needs) -> Self {
        let Needs { fields, mut paths, .. } = needs;
        paths.sort_by(|one, other| one.parts().cmp(other.parts()));
        paths.dedup_by(|below, path| below.starts_with(path));
        Needed { fields, paths }
    }

    /// Returns the projection of just these fields, in the form of mongod.
    pub fn projection(&self) -> DocBuf {
        let is_id = |path: &FieldPath| path.first() == b"_id";
        DocBuf::build(|out| {
            for path in &self.paths {
                out.append(path.to_string(), 1);
            }
            if !self.paths.is_empty() && !self.paths.iter().any(is_id) {
                out.append("_id", 0);
            }
        })
    }
}

/// The recorded fields.
#[derive(Debug, Default)]
pub struct Needs {
    fields: FieldSet,
    paths: Vec<FieldPath>,
    /// Whether a part of a pipeline reads the document as a whole.
    is_whole: bool,
    /// The error of a filter's path, which may have names that are invalid in the path of an
    /// expression.
    failure: Option<Error>,
}

impl Needs {
    /// Records a top-level field.
    pub fn field(&mut self, name: &[u8]) {
        self.field_path(FieldPath::new(name));
    }

    /// Records a path that is not empty.
    pub fn field_path(&mut self, path: FieldPath) {
        self.is_whole |= !self.fields.insert(path.first());
        self.paths.push(path);
    }

    /// Records a path; one without parts is the whole document.
    pub fn path(&mut self, path: &Path) {
        match path.is_empty() {
            false => self.field_path(FieldPath::new(path.text())),
            true => self.is_whole = true,
        }
    }

    /// Records the fields that an expression reads.
    pub fn expression(&mut self, expression: &Expression) {
        self.is_whole |= expression.uses_sort_key();
        expression.for_each_path(&mut |path| self.path(path));
    }

    /// Records the fields that a sort reads.
    pub fn sort(&mut self, pattern: &SortPattern) {
        for part in pattern.parts() {
            if let SortPart::Path { path, .. } = part {
                self.field_path(path.clone());
            }
        }
    }

    /// Records the fields that a filter reads.
    pub fn filter(&mut self, filter: &Filter) {
        self.node(filter.root());
    }

    /// Records that all fields of a name are needed if a document has several.
    pub fn every_field(&mut self) {
        self.fields.want_every();
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::And(children) | Node::Or(children) | Node::Nor(children) => {
                children.iter().for_each(|child| self.node(child));
            }
            Node::Not(child) => self.node(child),
            Node::Path(at) => {
                // Parts after an element's index are not recorded.
                let parts = at.path.parts();
                let places = parts.iter().skip(1).position(|name| is_place(name));
                let named = &parts[..places.map_or(parts.len(), |at| at + 1)];
                let mut names = named.iter().filter(|name| name.starts_with(b"$"));
                let failure = names.find_map(|name| check_field_name(name).err());
                self.failure = self.failure.take().or(failure);
                self.field_path(at.path.clone());
            }
            Node::Expr(expr) => self.expression(expr.expression()),
            Node::AlwaysTrue | Node::AlwaysFalse => {}
            Node::Schema(_) | Node::Where(_) | Node::Text(_) => self.is_whole = true,
        }
    }

    /// Records the fields that a pipeline over the same documents reads.
    pub fn pipeline(&mut self, pipeline: &Pipeline) {
        match pipeline.needs() {
            Some(needed) => {
                self.is_whole |= !self.fields.extend(&needed.fields);
                self.paths.extend(needed.paths);
            }
            None => self.is_whole = true,
        }
    }
}

impl Pipeline {
    /// Returns the fields of its input that the pipeline reads; `None` if it may read any.
    pub fn needs(&self) -> Option<Needed> {
        let mut needs = Needs::default();
        for stage in self.stages() {
            match stage.reads(&mut needs) {
                _ if needs.is_whole => return None,
                Gives::Input => {}
                Gives::Noted => return Some(Needed::of(needs)),
                Gives::Unknown => return None,
            }
        }
        None
    }

    /// Checks the paths of filters if a later stage makes its documents only of recorded fields:
    /// mongod then makes a list of paths, in which some names are invalid.
    ///
    /// Errors: those of a path of an expression.
    pub fn check_needs(&self) -> Result<()> {
        let mut needs = Needs::default();
        for stage in self.stages() {
            match stage.reads(&mut needs) {
                _ if needs.is_whole => break,
                Gives::Input => {}
                Gives::Noted => return needs.failure.map_or(Ok(()), Err),
                Gives::Unknown => break,
            }
        }
        Ok(())
    }
}

/// Returns whether a part of a path is an element's index: digits that do not begin with zero.
fn is_place(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_digit)
        && (name == b"0" || name.first().is_some_and(|first| *first != b'0'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use marula_bson::{Value, ext_json};

    use super::*;
    use crate::context::Context;

    /// Checks the names that a pipeline needs, in any order; `None` means any.
    fn check(stages: &str, expected: Option<&[&str]>) {
        let text = format!("{{\"pipeline\": {stages}}}");
        let spec = ext_json::parse(&text).expect("it is JSON");
        let stages = spec.as_doc().get("pipeline").and_then(|value: Value<'_>| value.as_array());
        let stages = stages.expect("it is an array");
        let pipeline = Pipeline::parse(stages, &Context::default()).expect("it is right");
        let needs = pipeline.needs();
        let names: Option<BTreeSet<&[u8]>> =
            needs.as_ref().map(|needed| needed.fields.names().collect());
        let expected: Option<BTreeSet<&[u8]>> =
            expected.map(|names| names.iter().map(|name| name.as_bytes()).collect());
        assert_eq!(names, expected, "{text}");
    }

    #[test]
    fn a_group_needs_what_it_reads() {
        check(r#"[{"$group": {"_id": "$a.b", "n": {"$sum": "$c"}}}]"#, Some(&["a", "c"]));
        check(r#"[{"$group": {"_id": null, "n": {"$sum": 1}}}]"#, Some(&[]));
        check(r#"[{"$count": "n"}]"#, Some(&[]));
        check(r#"[{"$sortByCount": "$tags"}]"#, Some(&["tags"]));
        let top = r#"{"$top": {"sortBy": {"x.y": 1}, "output": "$z"}}"#;
        check(&format!(r#"[{{"$group": {{"_id": 1, "t": {top}}}}}]"#), Some(&["z", "x"]));
        check(r#"[{"$group": {"_id": 1, "all": {"$push": "$$ROOT"}}}]"#, None);
        check(
            r#"[{"$group": {"_id": "$$CURRENT.a", "b": {"$max": "$$ROOT.b.c"}}}]"#,
            Some(&["a", "b"]),
        );
    }

    #[test]
    fn what_stands_before_a_group_is_needed_too() {
        let group = r#"{"$group": {"_id": "$k"}}"#;
        let check = |before: &str, expected: Option<&[&str]>| {
            check(&format!("[{before}, {group}]"), expected);
        };
        check(
            r#"{"$match": {"a.b": 1, "$or": [{"c": 2}, {"$expr": {"$gt": ["$d", 1]}}]}}"#,
            Some(&["a", "c", "d", "k"]),
        );
        check(r#"{"$match": {"$jsonSchema": {"required": ["a"]}}}"#, None);
        check(r#"{"$unwind": {"path": "$a.b", "includeArrayIndex": "i"}}"#, Some(&["a", "k"]));
        check(r#"{"$unwind": {"path": "$a", "includeArrayIndex": "i.j"}}"#, Some(&["a", "k"]));
        check(r#"{"$sort": {"x": 1}}, {"$limit": 3}, {"$skip": 1}"#, Some(&["x", "k"]));
        check(r#"{"$addFields": {"k": "$a", "n.m": "$b"}}"#, Some(&["a", "n", "b", "k"]));
        check(r#"{"$project": {"k": "$a", "c.d": 1}}"#, Some(&["_id", "a", "c"]));
        check(
            r#"{"$project": {"c": {"b": []}, "d": {"$add": [1, "$e"]}}}"#,
            Some(&["_id", "c", "e"]),
        );
        check(r#"{"$project": {"c": 0}}"#, Some(&["k"]));
        check(r#"{"$replaceRoot": {"newRoot": "$a"}}"#, Some(&["a"]));
        check(r#"{"$replaceWith": {"$mergeObjects": ["$a", "$$ROOT"]}}"#, None);
        check(
            r#"{"$lookup": {"from": "o", "localField": "a", "foreignField": "b", "as": "c"}}"#,
            Some(&["a", "k"]),
        );
        check(
            r#"{"$lookup": {"from": "o", "let": {"x": "$y"}, "pipeline": [], "as": "c.d"}}"#,
            Some(&["y", "k"]),
        );
    }

    #[test]
    fn facets_need_what_each_of_them_does() {
        let group = |key: &str| format!(r#"[{{"$group": {{"_id": "{key}"}}}}]"#);
        let facet = |a: &str, b: &str| format!(r#"[{{"$facet": {{"x": {a}, "y": {b}}}}}]"#);
        check(&facet(&group("$a"), &group("$b")), Some(&["a", "b"]));
        check(&facet(&group("$a"), r#"[{"$limit": 1}]"#), None);
    }

    /// Read from `explain` of mongod 6.0.27.
    #[test]
    fn what_is_needed_is_projected_as_mongod_does() {
        let check = |stages: &str, expected: &str| {
            let spec = ext_json::parse(&format!("{{\"pipeline\": {stages}}}")).expect("it is JSON");
            let stages =
                spec.as_doc().get("pipeline").and_then(|value: Value<'_>| value.as_array());
            let stages = stages.expect("it is an array");
            let pipeline = Pipeline::parse(stages, &Context::default()).expect("it is right");
            let projection = pipeline.needs().expect("it is known").projection();
            assert_eq!(projection.as_doc().to_string(), expected, "{stages}");
        };
        check(
            r#"[{"$group": {"_id": "$d.e", "m": {"$sum": "$da"}, "n": {"$sum": "$d.f"}, "o": {"$sum": "$d-a"}}}]"#,
            "{ d.e: 1, d.f: 1, d-a: 1, da: 1, _id: 0 }",
        );
        check(r#"[{"$group": {"_id": "$d.e", "x": {"$first": "$d"}}}]"#, "{ d: 1, _id: 0 }");
        check(
            r#"[{"$group": {"_id": "$A", "x": {"$first": "$a"}, "y": {"$first": "$_id"}}}]"#,
            "{ A: 1, _id: 1, a: 1 }",
        );
        check(r#"[{"$count": "n"}]"#, "{}");
        check(
            r#"[{"$unwind": {"path": "$arr", "includeArrayIndex": "i.j"}}, {"$match": {"arr.x": 3}}, {"$group": {"_id": "$b"}}]"#,
            "{ arr: 1, b: 1, _id: 0 }",
        );
        check(
            r#"[{"$addFields": {"q.z": 1}}, {"$group": {"_id": "$b"}}]"#,
            "{ b: 1, q: 1, _id: 0 }",
        );
        check(
            r#"[{"$sort": {"q": 1, "z.0": 1}}, {"$group": {"_id": "$b"}}]"#,
            "{ b: 1, q: 1, z.0: 1, _id: 0 }",
        );
    }

    #[test]
    fn what_reaches_the_end_is_whole() {
        check("[]", None);
        check(r#"[{"$match": {"a": 1}}, {"$limit": 2}]"#, None);
        check(r#"[{"$unwind": "$a"}]"#, None);
    }
}

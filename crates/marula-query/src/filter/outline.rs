//! A filter's tree in the form of mongod's messages: one line per condition, indented by depth.
//!
//! Some conditions do not end their line; the next one follows directly. Source: the messages of
//! mongod 6.0 for each kind of condition, of queries that cannot be planned and of partial indexes
//! that cannot be built.

use std::fmt::{self, Display, Formatter};

use bstr::{BString, ByteSlice};
use marula_bson::Value;

use super::expr::internal_name;
use super::node::{CompareOp, Node, Predicate, TypeSet};
use super::types::code_of;
use crate::expression::{print, short_double_text};

/// The indentation of each level.
const INDENT: usize = 4;

/// A tree that displays as its outline.
pub struct Outline<'n> {
    root: &'n Node,
    /// Whether a `$not` of operators is shown with its implicit `$and`.
    is_as_written: bool,
}

impl Node {
    /// The outline of the tree as evaluated.
    pub fn outline(&self) -> Outline<'_> {
        Outline { root: self, is_as_written: false }
    }

    /// The outline of the tree as parsed.
    pub fn outline_as_written(&self) -> Outline<'_> {
        Outline { root: self, is_as_written: true }
    }
}

impl Display for Outline<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.node(self.root, 0, f)
    }
}

impl Outline<'_> {
    fn node(&self, node: &Node, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        let join = |name: &str, children: &[Node], f: &mut Formatter<'_>| {
            writeln!(f, "{name}")?;
            children.iter().try_for_each(|child| self.node(child, depth + 1, f))
        };
        if let Node::Path(at) = node {
            let path = at.path.parts().join(&b'.').into();
            return self.predicate(&path, &at.predicate, depth, f);
        }
        indent(depth, f)?;
        match node {
            Node::And(children) => join("$and", children, f),
            Node::Or(children) => join("$or", children, f),
            Node::Nor(children) => join("$nor", children, f),
            Node::Not(child) => join("$not", std::slice::from_ref(&**child), f),
            Node::Path(_) => Ok(()),
            Node::Expr(expr) => write!(f, "$expr {}", print::value(expr.to_value().get())),
            Node::Schema(schema) => writeln!(f, "$jsonSchema {}", schema.text()),
            Node::Where(node) => {
                writeln!(f, "$where")?;
                indent(depth + 1, f)?;
                let code = match node.code.get() {
                    Value::Code(code) => code,
                    _ => Default::default(),
                };
                writeln!(f, "code: {code}")
            }
            Node::Text(text) => {
                let query = &text.query;
                let language = match text.matcher() {
                    Some(matcher) if query.language.is_empty() => matcher.reading().name(),
                    _ => &query.language,
                };
                let (case, diacritic) =
                    (u8::from(query.is_case_sensitive), u8::from(query.is_diacritic_sensitive));
                writeln!(
                    f,
                    "TEXT : query={}, language={language}, caseSensitive={case}, diacriticSensitive={diacritic}, tag=NULL",
                    query.search
                )
            }
            Node::AlwaysTrue => writeln!(f, "$alwaysTrue: 1"),
            Node::AlwaysFalse => writeln!(f, "$alwaysFalse: 1"),
        }
    }

    /// A condition on a path; within `$elemMatch` on elements the path is empty.
    fn predicate(
        &self,
        path: &BString,
        predicate: &Predicate,
        depth: usize,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        indent(depth, f)?;
        match predicate {
            Predicate::Compare(compare) => {
                writeln!(f, "{path} {} {}", compare.op.name(), compare.value.get())
            }
            Predicate::InternalExpr(compare) => {
                writeln!(f, "{path} {} {}", internal_name(compare.op), compare.value.get())
            }
            Predicate::In(list) => {
                write!(f, "{path} $in [ ")?;
                list.values().iter().try_for_each(|value| write!(f, "{} ", value.get()))?;
                for regex in list.regexes() {
                    write!(f, "/{}/{} ", regex.pattern().as_bstr(), regex.options().as_bstr())?;
                }
                writeln!(f, "]")
            }
            Predicate::Regex(regex) => {
                let (pattern, options) = (regex.pattern().as_bstr(), regex.options().as_bstr());
                writeln!(f, "{path} regex /{pattern}/{options}")
            }
            Predicate::Exists => writeln!(f, "{path} exists"),
            Predicate::Type(types) => writeln!(f, "{path} $type: {}", type_list(*types)),
            Predicate::Mod { divisor, remainder } => {
                writeln!(f, "{path} mod {divisor} % x == {remainder}")
            }
            Predicate::Size(size) => writeln!(f, "{path} $size : {size}"),
            Predicate::Bits(test) => {
                write!(f, "{path} {}: {:?}", test.op.name(), test.positions)
            }
            Predicate::Geo(test) | Predicate::BucketGeo(test) => {
                writeln!(f, "GEO raw = {{ {path}: {} }}", test.text.as_doc())
            }
            Predicate::Near(test) => {
                writeln!(
                    f,
                    "GEONEAR  field={path} maxdist={} isNearSphere={}",
                    short_double_text(test.near.max),
                    u8::from(test.near.is_near_sphere)
                )
            }
            Predicate::ElemMatchObject(filter) => {
                writeln!(f, "{path} $elemMatch (obj)")?;
                self.node(filter, depth + 1, f)
            }
            Predicate::ElemMatchValue(list) => {
                writeln!(f, "{path} $elemMatch (value)")?;
                let nameless = BString::default();
                list.iter().try_for_each(|inner| self.predicate(&nameless, inner, depth + 1, f))
            }
            Predicate::Not(inner) => {
                writeln!(f, "$not")?;
                if !self.is_as_written || stands_alone_under_not(inner) {
                    return self.predicate(path, inner, depth + 1, f);
                }
                indent(depth + 1, f)?;
                writeln!(f, "$and")?;
                self.predicate(path, inner, depth + 2, f)
            }
            Predicate::All(list) => {
                writeln!(f, "$and")?;
                list.iter().try_for_each(|inner| self.predicate(path, inner, depth + 1, f))
            }
            Predicate::AlwaysFalse => writeln!(f, "$alwaysFalse: 1"),
        }
    }
}

/// Returns whether a negation contains one operator (`$ne`, `$nin`, `$exists: false`, `$not` with a
/// pattern) rather than several.
fn stands_alone_under_not(inner: &Predicate) -> bool {
    match inner {
        Predicate::Compare(compare) => compare.op == CompareOp::Eq,
        Predicate::In(_) | Predicate::Exists | Predicate::Regex(_) | Predicate::All(_) => true,
        _ => false,
    }
}

fn indent(depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{:1$}", "", depth * INDENT)
}

/// Types in the form of an array that is shown as an object: `{ 0: "number", 1: 2 }`.
fn type_list(types: TypeSet) -> String {
    let all = types.names_all_numbers().then(|| "\"number\"".to_owned());
    let singles = types.singles().map(|kind| code_of(kind).to_string());
    let shown: Vec<String> = (all.into_iter().chain(singles).enumerate())
        .map(|(number, kind)| format!("{number}: {kind}"))
        .collect();
    if shown.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, Value, doc};

    use crate::context::Context;
    use crate::filter::{Filter, Purpose};

    #[track_caller]
    fn check(filter: &DocBuf, outline: &str) {
        let filter = Filter::parse(filter.as_doc(), &Context::default()).unwrap();
        assert_eq!(filter.root().outline().to_string(), outline);
    }

    #[test]
    fn conditions_are_shown_in_mongods_words() {
        check(&doc! { "a": { "$gte": 1, "$lt": 5.0 } }, "$and\n    a $lt 5.0\n    a $gte 1\n");
        check(&doc! { "a": { "$nin": [1, "x"] } }, "$not\n    a $in [ 1 \"x\" ]\n");
        check(&doc! { "a": { "$in": [] } }, "a $in [ ]\n");
        check(&doc! { "a.b": { "$exists": false } }, "$not\n    a.b exists\n");
        check(&doc! { "a": { "$type": ["int", "number"] } }, "a $type: { 0: \"number\", 1: 16 }\n");
        check(&doc! { "a": { "$mod": [4.5, 1] } }, "a mod 4 % x == 1\n");
        check(&doc! { "a": { "$size": 2 } }, "a $size : 2\n");
        check(
            &doc! { "a": { "$elemMatch": { "$gt": 1, "$not": { "$lt": 5 } } } },
            "a $elemMatch (value)\n     $gt 1\n    $not\n         $lt 5\n",
        );
        check(
            &doc! { "a": { "$elemMatch": { "b": 1, "c": 2 } } },
            "a $elemMatch (obj)\n    $and\n        b $eq 1\n        c $eq 2\n",
        );
        check(&doc! { "$nor": [{ "a": 1 }, { "b": 1 }] }, "$nor\n    a $eq 1\n    b $eq 1\n");
        let code = Value::Code("f()".into());
        check(
            &doc! { "$where": (code), "b": 1 },
            "$and\n    b $eq 1\n    $where\n        code: f()\n",
        );
        check(
            &doc! { "a": { "$near": [1, 2], "$maxDistance": 123_456_789 } },
            "GEONEAR  field=a maxdist=1.23457e+08 isNearSphere=0\n",
        );
        let point = doc! { "type": "Point", "coordinates": [1, 2] };
        check(
            &doc! { "a": { "$nearSphere": (point.as_doc()), "$maxDistance": 5 } },
            "GEONEAR  field=a maxdist=5 isNearSphere=1\n",
        );
        check(
            &doc! { "a": { "$nearSphere": { "$geometry": (point.as_doc()), "$maxDistance": 5 } } },
            "GEONEAR  field=a maxdist=5 isNearSphere=0\n",
        );
        check(
            &doc! { "a": { "$within": { "$box": [[0, 0], [1, 1]] } } },
            "GEO raw = { a: { $within: { $box: [ [ 0, 0 ], [ 1, 1 ] ] } } }\n",
        );
        check(
            &doc! { "$text": { "$search": "x \"y\"", "$language": "fr", "$caseSensitive": true } },
            "TEXT : query=x \"y\", language=fr, caseSensitive=1, diacriticSensitive=0, tag=NULL\n",
        );
    }

    #[test]
    fn tests_of_bits_and_expressions_end_no_line() {
        check(
            &doc! { "$nor": [{ "a": { "$bitsAllSet": 5 } }, { "b": 1 }] },
            "$nor\n    b $eq 1\n    a $bitsAllSet: [0, 2]",
        );
        let mut filter =
            Filter::parse(doc! { "$expr": { "$eq": ["$a", 1] } }.as_doc(), &Context::default())
                .unwrap();
        filter.add_index_conditions(&Context::default());
        assert_eq!(
            filter.root().outline().to_string(),
            "$and\n    $expr {$eq: [\"$a\", {$const: 1}]}    a $_internalExprEq 1\n"
        );
    }

    #[test]
    fn what_was_read_shows_the_and_below_a_not() {
        let check = |filter: &DocBuf, outline: &str| {
            let draft = Filter::draft(filter.as_doc(), Purpose::Any, &Context::default()).unwrap();
            assert_eq!(draft.root().outline_as_written().to_string(), outline);
        };
        check(&doc! { "a": { "$not": { "$gt": 1 } } }, "$not\n    $and\n        a $gt 1\n");
        check(
            &doc! { "a": { "$not": { "$gt": 1, "$lt": 5 } } },
            "$not\n    $and\n        a $gt 1\n        a $lt 5\n",
        );
        check(&doc! { "a": { "$nin": [1, 2] } }, "$not\n    a $in [ 1 2 ]\n");
        check(&doc! { "$nor": [{ "a": 1 }] }, "$nor\n    a $eq 1\n");
    }
}

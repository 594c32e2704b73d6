//! Prints a filter as BSON in the form of `explain`, and hashes its shape.

use std::hash::{DefaultHasher, Hash, Hasher};

use bstr::ByteSlice;
use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, FieldPath, Type, Value};

use super::expr;
use super::geo::GeoTest;
use super::in_list::InList;
use super::node::{Bits, Node, PathNode, Predicate, TypeSet};
use super::number::narrow;
use super::types::code_of;

/// The document for the node.
pub(super) fn to_doc(node: &Node) -> DocBuf {
    DocBuf::build(|out| write_node(node, out))
}

fn write_node(node: &Node, out: &mut DocWriter<'_>) {
    match node {
        Node::And(children) if children.is_empty() => {}
        Node::And(children) => write_children("$and", children, out),
        Node::Or(children) => write_children("$or", children, out),
        Node::Nor(children) => write_children("$nor", children, out),
        Node::Not(child) if matches!(&**child, Node::And(none) if none.is_empty()) => {
            out.append("$alwaysFalse", 1);
        }
        Node::Not(child) => write_children("$nor", std::slice::from_ref(&**child), out),
        Node::Path(PathNode { path, predicate: Predicate::BucketGeo(test) }) => {
            write_bucket_geo(path, test, out);
        }
        Node::Path(at) => write_path(&at.path, &at.predicate, out),
        Node::Expr(expr) => {
            out.append_raw("$expr", expr.to_value().as_raw());
        }
        Node::Schema(schema) => {
            out.append("$jsonSchema", schema.text());
        }
        Node::Where(node) => {
            out.append_raw("$where", node.code.as_raw());
        }
        Node::Text(text) => text.write(out),
        Node::AlwaysTrue => {
            out.append("$alwaysTrue", 1);
        }
        Node::AlwaysFalse => {
            out.append("$alwaysFalse", 1);
        }
    }
}

fn write_children(name: &str, children: &[Node], out: &mut DocWriter<'_>) {
    let mut array = out.begin_array(name);
    for child in children {
        write_node(child, &mut array.begin_doc());
    }
}

fn write_path(path: &FieldPath, predicate: &Predicate, out: &mut DocWriter<'_>) {
    write_predicate(predicate, &mut out.begin_doc(path.parts().join(&b'.')));
}

fn write_bucket_geo(path: &FieldPath, test: &GeoTest, out: &mut DocWriter<'_>) {
    let mut inner = out.begin_doc("$_internalBucketGeoWithin");
    if let Some(operator) = test.text.as_doc().iter().next() {
        inner.append_raw("withinRegion", operator.value);
    }
    // The first part is the bucket's `data`.
    inner.append("field", Value::String(path.parts()[1..].join(&b'.').as_bstr()));
}

/// Writes the predicate's operators into the object under the path.
fn write_predicate(predicate: &Predicate, out: &mut DocWriter<'_>) {
    match predicate {
        Predicate::Compare(constant) => {
            out.append_raw(constant.op.name(), constant.value.as_raw());
        }
        Predicate::InternalExpr(constant) => {
            out.append_raw(expr::internal_name(constant.op), constant.value.as_raw());
        }
        Predicate::In(list) => write_in(list, out),
        Predicate::Regex(regex) => {
            out.append("$regex", Value::String(regex.pattern().into()));
            if !regex.options().is_empty() {
                out.append("$options", Value::String(regex.options().into()));
            }
        }
        Predicate::Exists => {
            out.append("$exists", true);
        }
        Predicate::Type(types) => write_types(*types, out),
        Predicate::Mod { divisor, remainder } => {
            let mut array = out.begin_array("$mod");
            array.push(*divisor).push(*remainder);
        }
        Predicate::Size(size) => {
            out.append("$size", &narrow(*size));
        }
        Predicate::Bits(test) => write_bits(test, out),
        Predicate::Geo(test) | Predicate::BucketGeo(test) => append_all(&test.text, out),
        Predicate::Near(test) => append_all(&test.text, out),
        Predicate::ElemMatchObject(filter) => write_node(filter, &mut out.begin_doc("$elemMatch")),
        Predicate::ElemMatchValue(list) => {
            let mut inner = out.begin_doc("$elemMatch");
            list.iter().for_each(|predicate| write_predicate(predicate, &mut inner));
        }
        Predicate::Not(inner) => match &**inner {
            Predicate::All(list) => {
                let mut inner = out.begin_doc("$not");
                list.iter().for_each(|predicate| write_predicate(predicate, &mut inner));
            }
            inner => write_predicate(inner, &mut out.begin_doc("$not")),
        },
        Predicate::All(list) => {
            let mut array = out.begin_array("$and");
            list.iter().for_each(|inner| write_predicate(inner, &mut array.begin_doc()));
        }
        Predicate::AlwaysFalse => {
            out.append("$alwaysFalse", 1);
        }
    }
}

fn append_all(operators: &DocBuf, out: &mut DocWriter<'_>) {
    for element in operators.as_doc() {
        out.append_raw(element.name, element.value);
    }
}

fn write_in(list: &InList, out: &mut DocWriter<'_>) {
    let mut array: ArrayWriter<'_> = out.begin_array("$in");
    for value in list.values() {
        array.push_raw(value.as_raw());
    }
    for regex in list.regexes() {
        array.push(Value::Regex {
            pattern: regex.pattern().into(),
            options: regex.options().into(),
        });
    }
}

fn write_types(types: TypeSet, out: &mut DocWriter<'_>) {
    let mut array = out.begin_array("$type");
    if types.names_all_numbers() {
        array.push("number");
    }
    for kind in types.singles() {
        array.push(code_of(kind));
    }
}

fn write_bits(test: &Bits, out: &mut DocWriter<'_>) {
    let mut array = out.begin_array(test.op.name());
    for &position in &test.positions {
        array.push(&narrow(i64::from(position)));
    }
}

/// A hash of the node's shape: operators and paths, without constants.
pub(super) fn shape_hash(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_doc(to_doc(node).as_doc(), &mut hasher);
    hasher.finish()
}

/// Hashes a printed filter without its constants: names, and whether an `$in` contains patterns.
/// The order of conditions is irrelevant.
fn hash_doc(doc: Doc<'_>, hasher: &mut DefaultHasher) {
    for element in doc {
        element.name.hash(hasher);
        match (element.name.as_bytes(), element.value.get()) {
            (b"$and" | b"$or" | b"$nor", Value::Array(children)) => {
                let mut hashes: Vec<u64> = children
                    .values()
                    .filter_map(|child| child.as_doc())
                    .map(|child| {
                        let mut hasher = DefaultHasher::new();
                        hash_doc(child, &mut hasher);
                        hasher.finish()
                    })
                    .collect();
                hashes.sort_unstable();
                hashes.hash(hasher);
            }
            (b"$in", Value::Array(values)) => {
                values.values().any(|value| value.kind() == Type::Regex).hash(hasher);
            }
            (name, Value::Document(inner))
                if !name.starts_with(b"$") || matches!(name, b"$not" | b"$elemMatch") =>
            {
                hash_doc(inner, hasher);
            }
            (b"$expr" | b"$jsonSchema", value) => {
                let value = value.to_buf();
                (value.kind(), value.as_raw().bytes()).hash(hasher);
            }
            _ => {}
        }
    }
    // Ends a level, to distinguish siblings from children.
    0_u8.hash(hasher);
}

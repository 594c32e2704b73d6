//! Cases as text for mongosh.

use std::fmt::Write;

use marula_bson::ext_json::{Mode, value_to_string};
use marula_bson::{ByteSlice, Value};

use crate::case::Case;
use crate::tree::Tree;

/// Returns the text to paste into mongosh to see the difference.
pub(crate) fn text(case: &Case) -> String {
    let mut out = String::from("db.c.drop(); db.other.drop();\n");
    for index in case.indexes.iter() {
        let options: Vec<_> =
            index.fields().iter().filter(|(name, _)| name != "key").cloned().collect();
        let _ = match index.get("key") {
            Some(key) => {
                writeln!(out, "db.c.createIndex({}, {});", value(key), value(&Tree::Doc(options)))
            }
            None => writeln!(out, "db.c.createIndex({});", value(index)),
        };
    }
    for (name, documents) in [("c", &case.documents), ("other", &case.others)] {
        if !documents.is_empty() {
            let list: Vec<String> = documents.iter().map(value).collect();
            let _ = writeln!(out, "db.{name}.insertMany([\n  {}\n]);", list.join(",\n  "));
        }
    }
    if !case.view.is_empty() {
        let stages = Tree::Array(case.view.to_vec());
        let _ = writeln!(out, "db.v.drop(); db.createView(\"v\", \"c\", {});", value(&stages));
    }
    let _ = writeln!(out, "db.runCommand({});", value(&case.command));
    for step in case.steps.iter() {
        let _ = writeln!(out, "db.runCommand({});", value(step));
    }
    if case.writes() {
        out.push_str("db.c.find();\n");
    }
    out
}

/// One value.
pub(crate) fn value(tree: &Tree) -> String {
    match tree {
        Tree::Array(items) => {
            format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        Tree::Doc(fields) if fields.is_empty() => "{}".to_owned(),
        Tree::Doc(fields) => {
            let field = |(name, inner): &(String, Tree)| format!("{}: {}", key(name), value(inner));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Tree::Leaf(leaf) => scalar(leaf.get()),
    }
}

fn key(name: &str) -> String {
    let is_plain = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if is_plain { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    // White space that looks like another, or like nothing, is shown by its code.
    let is_hidden = |c: char| {
        !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}'))
    };
    let text = value_to_string(Value::from(text), Mode::Relaxed);
    let shown = |c: char| match is_hidden(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

fn scalar(value: Value<'_>) -> String {
    let text = |text: &[u8]| quoted(&text.to_str_lossy());
    match value {
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => format!("Long(\"{number}\")"),
        Value::Double(number) if number.is_finite() && number.fract() != 0.0 => number.to_string(),
        Value::Double(number) if number == 0.0 && number.is_sign_negative() => {
            "Double(-0)".to_owned()
        }
        Value::Double(number) if number.is_nan() => "NaN".to_owned(),
        Value::Double(number) if number.is_infinite() => {
            if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Value::Double(number) => format!("Double({number:e})"),
        Value::Decimal128(number) => format!("Decimal128(\"{number}\")"),
        Value::String(string) => text(string),
        Value::Boolean(flag) => flag.to_string(),
        Value::Null => "null".to_owned(),
        Value::Undefined => "undefined".to_owned(),
        Value::MinKey => "MinKey()".to_owned(),
        Value::MaxKey => "MaxKey()".to_owned(),
        Value::DateTime(ms) => format!("new Date({ms})"),
        Value::Timestamp(bits) => {
            format!("Timestamp({{ t: {}, i: {} }})", bits >> 32, bits & 0xFFFF_FFFF)
        }
        Value::ObjectId(id) => format!("ObjectId(\"{id}\")"),
        Value::Regex { pattern, options } => {
            format!("BSONRegExp({}, {})", text(pattern), text(options))
        }
        Value::Symbol(string) => format!("BSONSymbol({})", text(string)),
        Value::Code(code) => format!("Code({})", text(code)),
        Value::CodeWithScope { code, scope } => {
            format!("Code({}, {})", text(code), self::value(&Tree::of_doc(scope)))
        }
        Value::DbPointer { ns, id } => format!("DBPointer({}, ObjectId(\"{id}\"))", text(ns)),
        Value::Binary(binary) => {
            let hex: String = binary.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("HexData({}, \"{hex}\")", binary.subtype)
        }
        Value::Document(_) | Value::Array(_) => self::value(&Tree::of(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_keep_apart_in_text() {
        let check = |tree: Tree, expected: &str| assert_eq!(value(&tree), expected);
        check(Tree::of(1), "1");
        check(Tree::of(1.0), "Double(1e0)");
        check(Tree::of(-0.0), "Double(-0)");
        check(Tree::of(1_i64), "Long(\"1\")");
        check(Tree::of("a\"b\n"), "\"a\\\"b\\n\"");
        check(Tree::of("é\u{a0}\u{feff}"), "\"é\\u00a0\\ufeff\"");
        check(Tree::field("a.b", Tree::field("$gt", Tree::of(2.5))), "{ \"a.b\": { $gt: 2.5 } }");
    }
}

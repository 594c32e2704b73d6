//! Prints expressions as BSON for `explain`, and values as text for messages.

use std::fmt::Write;

use bstr::ByteSlice;
use hashbrown::HashMap;
use marula_bson::{ArrayWriter, Binary, Doc, DocBuf, DocWriter, Value, ValueBuf};

use super::operator::Shape;
use super::{Call, Expression, Variable};

impl Expression {
    /// The expression in the form of `explain`: constants as `{ $const: … }`, paths as strings.
    pub fn print(&self) -> ValueBuf {
        match self {
            Expression::Constant(value) => field("$const", value),
            Expression::Missing => Value::from("$$REMOVE").to_buf(),
            Expression::Field(path) => dollar("$", &path.text()),
            Expression::Variable(variable, path) => {
                let mut text = variable.name().as_bytes().to_vec();
                if !path.is_empty() {
                    text.push(b'.');
                    text.extend_from_slice(&path.text());
                }
                dollar("$$", &text)
            }
            Expression::Object(fields) => document_with(|out| {
                for (name, field) in fields {
                    out.append(name, &field.print());
                }
            }),
            Expression::Array(items) => list(items),
            Expression::Call(call) => print_call(call),
            Expression::Ranges(ranges) => print_call(ranges.call()),
            Expression::ListSearch(search) => print_call(search.call()),
        }
    }
}

fn document_with(fill: impl FnOnce(&mut DocWriter<'_>)) -> ValueBuf {
    Value::Document(DocBuf::build(fill).as_doc()).to_buf()
}

fn field(name: &str, value: &ValueBuf) -> ValueBuf {
    document_with(|out| {
        out.append(name, value);
    })
}

fn dollar(sign: &str, text: &[u8]) -> ValueBuf {
    let text = [sign.as_bytes(), text].concat();
    Value::String(text.as_bstr()).to_buf()
}

pub(super) fn list(items: &[Expression]) -> ValueBuf {
    let mut bytes = Vec::new();
    let mut out = ArrayWriter::new(&mut bytes);
    for item in items {
        out.push(&item.print());
    }
    out.finish();
    Value::Array(Doc::trusted(&bytes)).to_buf()
}

/// Arguments that are no expressions: a name, an order.
const AS_WRITTEN: &[&str] = &["as", "sortBy"];

fn print_call(call: &Call) -> ValueBuf {
    let argument = match call.operator.shape {
        Shape::Named(names, _) => document_with(|out| {
            for (name, arg) in names.iter().zip(&call.args) {
                match arg {
                    Expression::Missing => {}
                    Expression::Constant(value) if AS_WRITTEN.contains(name) => {
                        out.append(name, value);
                    }
                    arg => {
                        out.append(name, &arg.print());
                    }
                }
            }
        }),
        Shape::Exactly(_) | Shape::Between(..) | Shape::Any => list(&call.args),
        Shape::Special(_, print) => print(&call.args),
    };
    field(call.operator.name, &argument)
}

impl Variable {
    fn name(&self) -> &str {
        match self {
            Variable::Now => "NOW",
            Variable::ClusterTime => "CLUSTER_TIME",
            Variable::Root { name } | Variable::Unavailable(name) => name,
            Variable::Bound { name, .. } => name,
        }
    }
}

/// A document from the client in mongod's messages: `{ a: 1, b: [ "x" ] }`.
pub(crate) fn document(doc: Doc<'_>) -> String {
    doc.to_string()
}

/// A value from the client in mongod's messages.
pub(crate) fn element(value: Value<'_>) -> String {
    value.to_string()
}

/// A computed value in mongod's messages: `{a: 1, b: ["x"]}`.
pub(crate) fn value(value: Value<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// A computed value, possibly missing, in mongod's messages.
pub(crate) fn optional(found: Option<Value<'_>>) -> String {
    found.map_or_else(|| "MISSING".to_owned(), value)
}

/// As in mongod, which looks for the value of each name, fields of one name show the first one's.
fn write_fields(out: &mut String, doc: Doc<'_>) {
    let mut first = HashMap::new();
    out.push('{');
    for (index, element) in doc.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(out, "{comma}{}: ", element.name);
        write_value(out, first.entry(element.name).or_insert(element.value).get());
    }
    out.push('}');
}

fn write_items(out: &mut String, items: Doc<'_>) {
    out.push('[');
    for (index, item) in items.values().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        write_value(out, item);
    }
    out.push(']');
}

fn write_value(out: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::Double(number) => write!(out, "{}", super::number::short_double_text(number)),
        Value::String(text) => write!(out, "\"{text}\""),
        Value::Symbol(text) => write!(out, "Symbol(\"{text}\")"),
        Value::Document(doc) => return write_fields(out, doc),
        Value::Array(items) => return write_items(out, items),
        Value::Binary(Binary { subtype, bytes }) => {
            write!(out, "BinData({subtype}, \"{:X}\")", Hex(bytes))
        }
        Value::Undefined => write!(out, "undefined"),
        Value::ObjectId(id) => write!(out, "{id}"),
        Value::Boolean(flag) => write!(out, "{flag}"),
        Value::DateTime(ms) => match super::operators::iso_text(ms) {
            Ok(text) => write!(out, "{text}"),
            Err(_) => write!(out, "illegal date"),
        },
        Value::Null => write!(out, "null"),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { ns, id } => write!(out, "DBRef(\"{ns}\", {id})"),
        Value::Code(code) => write!(out, "Code(\"{code}\")"),
        Value::CodeWithScope { code, scope } => {
            write!(out, "CodeWScope(\"{code}\", {scope})")
        }
        Value::Int32(number) => write!(out, "{number}"),
        Value::Timestamp(bits) => write!(out, "Timestamp({}, {})", bits >> 32, bits & 0xFFFF_FFFF),
        Value::Int64(number) => write!(out, "{number}"),
        Value::Decimal128(number) => write!(out, "{number}"),
        Value::MinKey => write!(out, "MinKey"),
        Value::MaxKey => write!(out, "MaxKey"),
    };
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::UpperHex for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

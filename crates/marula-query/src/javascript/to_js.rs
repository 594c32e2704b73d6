//! Converts BSON values to JavaScript.
//!
//! int32 and double become numbers, every other type an object of its own. A document is a plain
//! object; if it may be returned, it records which of its fields were int32, since mongod keeps
//! their type.

use bstr::ByteSlice;
use marula_bson::{Doc, Element, Type, Value, hex};
use rquickjs::object::Property;
use rquickjs::{Array, BigInt, Object, Result, String as JsString, Value as JsValue};

use super::engine::{self, Call};
use super::originals;
use crate::meter;

/// The treatment of a document's integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Integers {
    /// The document cannot be returned.
    Forget,
    /// The document may be returned: the names of int32 fields are recorded.
    Note,
}

/// The value that is converted as a whole.
#[derive(Clone, Copy)]
struct Root<'a> {
    bytes: &'a [u8],
    integers: Integers,
}

/// Documents of a client are nested at most 200 deep, and computed ones hardly more.
const DEPTH_MAX: u32 = 250;

/// A value in JavaScript.
pub(super) fn value<'js>(
    call: &Call<'_, 'js>,
    value: Value<'_>,
    integers: Integers,
) -> Result<JsValue<'js>> {
    call.originals.borrow_mut().begin();
    let (Value::Document(inner) | Value::Array(inner)) = value else {
        return convert(call, value, Root { bytes: &[], integers }, 0);
    };
    convert(call, value, Root { bytes: inner.as_bytes(), integers }, 0)
}

/// A document in JavaScript.
pub(super) fn document<'js>(
    call: &Call<'_, 'js>,
    doc: Doc<'_>,
    integers: Integers,
) -> Result<JsValue<'js>> {
    self::value(call, Value::Document(doc), integers)
}

fn convert<'js>(
    call: &Call<'_, 'js>,
    value: Value<'_>,
    root: Root<'_>,
    depth: u32,
) -> Result<JsValue<'js>> {
    let ctx = call.ctx;
    let kit = &call.kit;
    if let Err(error) = meter::spend(meter::CALL) {
        engine::note_end(error);
        return Err(rquickjs::Exception::throw_message(ctx, "interrupted"));
    }
    Ok(match value {
        // `new_number` makes an integer of a number that equals one, and so of -0 a 0.
        Value::Double(number) if number == 0.0 => JsValue::new_float(ctx.clone(), number),
        Value::Double(number) => JsValue::new_number(ctx.clone(), number),
        Value::Int32(number) => JsValue::new_int(ctx.clone(), number),
        Value::String(text) | Value::Symbol(text) => string(call, text)?,
        Value::Boolean(flag) => JsValue::new_bool(ctx.clone(), flag),
        Value::Null => JsValue::new_null(ctx.clone()),
        Value::Undefined => JsValue::new_undefined(ctx.clone()),
        Value::Document(_) | Value::Array(_) if depth > DEPTH_MAX => JsValue::new_null(ctx.clone()),
        Value::Document(doc) => fields(call, doc, root, depth)?,
        Value::Array(doc) => {
            let array = Array::new(ctx.clone())?;
            for (index, item) in doc.values().enumerate() {
                array.set(index, convert(call, item, root, depth + 1)?)?;
            }
            array.into_value()
        }
        Value::Int64(number) => {
            kit.function("long")?.call((BigInt::from_i64(ctx.clone(), number)?,))?
        }
        Value::Decimal128(number) => kit.function("decimal")?.call((number.to_string(),))?,
        Value::ObjectId(id) => kit.function("objectId")?.call((id.to_string(),))?,
        Value::Binary(binary) => {
            kit.function("binary")?.call((binary.subtype, hex::text(binary.bytes)))?
        }
        #[allow(clippy::cast_precision_loss)]
        Value::DateTime(ms) => kit.function("date")?.call((ms as f64,))?,
        Value::Timestamp(bits) => {
            let seconds = f64::from((bits >> 32) as u32);
            #[allow(clippy::cast_possible_truncation)]
            let ordinal = f64::from(bits as u32);
            kit.function("timestamp")?.call((seconds, ordinal))?
        }
        Value::Regex { pattern, options } => {
            kit.function("regex")?.call((string(call, pattern)?, string(call, options)?))?
        }
        Value::DbPointer { ns, id } => {
            let id: JsValue<'js> = kit.function("objectId")?.call((id.to_string(),))?;
            kit.function("pointer")?.call((string(call, ns)?, id))?
        }
        // Code passed as a value is a function, whatever its text.
        Value::Code(code) | Value::CodeWithScope { code, .. } => {
            match super::source::compile(call, &code.to_str_lossy()) {
                Ok(function) => function,
                Err(error) => return Err(rquickjs::Exception::throw_syntax(ctx, error.message())),
            }
        }
        Value::MinKey => kit.value("minKey")?,
        Value::MaxKey => kit.value("maxKey")?,
    })
}

fn fields<'js>(
    call: &Call<'_, 'js>,
    doc: Doc<'_>,
    root: Root<'_>,
    depth: u32,
) -> Result<JsValue<'js>> {
    let prototype = if is_reference(doc) { &call.kit.reference } else { &call.kit.document };
    let object = Object::new_proto(call.ctx.clone(), Some(prototype))?;
    let mut ints: Option<String> = None;
    let (mut has_numbers, mut is_lossy) = (false, false);
    let notes = root.integers == Integers::Note;
    for element in doc {
        let name = element.name.to_str_lossy();
        has_numbers |= name.bytes().all(|byte| byte.is_ascii_digit());
        is_lossy = is_lossy || notes && originals::is_lossy(element.value.get());
        if notes && element.value.kind() == Type::Int32 {
            let ints = ints.get_or_insert_default();
            ints.push_str(&name);
            ints.push('\0');
        }
        let value = convert(call, element.value.get(), root, depth + 1)?;
        // Defining, unlike setting, does not invoke the setter of `__proto__`.
        object.prop(&*name, Property::from(value).writable().enumerable().configurable())?;
    }
    if let Some(ints) = ints {
        object.prop(call.kit.ints.clone(), ints)?;
    }
    if is_lossy {
        let number = call.originals.borrow_mut().note(root.bytes, doc);
        object.prop(call.kit.original.clone(), number)?;
    }
    if !has_numbers {
        return Ok(object.into_value());
    }
    let names = Array::new(call.ctx.clone())?;
    for (index, element) in doc.iter().enumerate() {
        names.set(index, string(call, element.name)?)?;
    }
    call.kit.function("ordered")?.call((object, names))
}

/// Returns whether a document is a `DBRef` in JavaScript: one that begins with the name of a
/// collection and an `_id`.
fn is_reference(doc: Doc<'_>) -> bool {
    let mut fields = doc.iter();
    let is_name = |field: &Element<'_>| field.name == "$ref" && field.value.kind() == Type::String;
    fields.next().is_some_and(|field| is_name(&field))
        && fields.next().is_some_and(|field| field.name == "$id")
}

fn string<'js>(call: &Call<'_, 'js>, text: &[u8]) -> Result<JsValue<'js>> {
    JsString::from_str(call.ctx.clone(), &text.to_str_lossy()).map(JsString::into_value)
}

//! Object operators, and conversions between objects and arrays.

use std::convert::Infallible;

use bstr::ByteSlice;
use bumpalo::collections::Vec as ArenaVec;
use hashbrown::HashMap;
use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::known;
use crate::accumulator::{MergedFields, merged};
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$arrayToObject", 1, array_to_object),
    Operator::named("$getField", &["field", "input"], parse_get_field, get_field).late(),
    Operator::any("$mergeObjects", merge_objects),
    Operator::exactly("$objectToArray", 1, object_to_array),
    Operator::named("$setField", &["field", "input", "value"], parse_set_field, set_field).late(),
    Operator::named("$unsetField", &["field", "input"], parse_unset_field, set_field).late(),
];

errors! {
    merge_not_object(text: &str, kind: &str) = 40400, "$mergeObjects requires object inputs, but input {text} is of type {kind}";
    to_array_not_object(kind: &str) = 40390, "$objectToArray requires a document input, found: {kind}";
    to_object_not_array(kind: &str) = 40386, "$arrayToObject requires an array input, found: {kind}";
    to_object_array_after_object(kind: &str) = 40391, "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects. Object was detected, now found: {kind}";
    to_object_key_count(count: usize) = 40392, "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}";
    to_object_no_k_or_v(which: &str) = 40393, "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {which}";
    to_object_k_not_string(kind: &str) = 40394, "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {kind}";
    to_object_key_not_string(kind: &str) = 40395, "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {kind}";
    to_object_object_after_array(kind: &str) = 40396, "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects. Array was detected, now found: {kind}";
    to_object_pair_size(count: usize) = 40397, "$arrayToObject requires an array of size 2 arrays,found array of size: {count}";
    to_object_element(kind: &str) = 40398, "Unrecognised input type format for $arrayToObject: {kind}";
    key_has_nul() = 4940400, "Key field cannot contain an embedded null byte";
    k_has_nul() = 4940401, "Key field cannot contain an embedded null byte";
    get_field_unknown(name: &str) = 3041701, "$getField found an unknown argument: {name}";
    get_field_no_field() = 3041702, "$getField requires 'field' to be specified";
    get_field_no_input() = 3041703, "$getField requires 'input' to be specified";
    get_field_is_path(path: &str) = 5654600, "'{path}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '{path}'}}?";
    get_field_not_constant() = 5654601, "$getField requires 'field' to evaluate to a constant, but got a non-constant argument";
    get_field_not_string(kind: &str) = 5654602, "$getField requires 'field' to evaluate to type String, but got {kind}";
    set_field_not_object(name: &str) = 4161100, "{name} only supports an object as its argument";
    set_field_unknown(name: &str, argument: &str) = 4161101, "{name} found an unknown argument: {argument}";
    set_field_no_field(name: &str) = 4161102, "{name} requires 'field' to be specified";
    set_field_no_value(name: &str) = 4161103, "{name} requires 'value' to be specified";
    set_field_input_not_object() = 4161105, "$setField requires 'input' to evaluate to type Object";
    set_field_not_constant() = 4161106, "$setField requires 'field' to evaluate to a constant, but got a non-constant argument";
    set_field_not_string(kind: &str) = 4161107, "$setField requires 'field' to evaluate to type String, but got {kind}";
    set_field_has_nul() = 9534700, "$setField: 'field' cannot contain an embedded null byte";
    set_field_is_path(path: &str) = 4161108, "'{path}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '{path}'}}?";
    set_field_no_input(name: &str) = 4161109, "{name} requires 'input' to be specified";
}

fn merge_objects<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut all = marula_bson::DocBuf::new();
    for arg in args {
        let value = arg.eval(frame)?;
        // A single array argument is replaced by its elements.
        if let (Some(Value::Array(items)), [_]) = (value, args) {
            let mut all = MergedFields::default();
            for item in items.values() {
                if let Some(doc) = merged_part(Some(item))? {
                    all.merge(doc)?;
                }
            }
            return all.value(frame.arena).map(Some);
        }
        if let Some(doc) = merged_part(value)? {
            all = merged(all.as_doc(), doc)?;
        }
    }
    frame.arena.keep(Value::Document(all.as_doc())).map(Some)
}

/// A document to merge; `None` if it is null.
fn merged_part(value: Option<Value<'_>>) -> Result<Option<Doc<'_>>> {
    match value.filter(|value| !value.is_nullish()) {
        None => Ok(None),
        Some(Value::Document(doc)) => Ok(Some(doc)),
        Some(value) => Err(merge_not_object(&print::value(value), value.kind().alias())),
    }
}

fn object_to_array<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let doc = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Document(doc)) => doc,
        Some(value) => return Err(to_array_not_object(value.kind().alias())),
    };
    let pairs = frame.arena.array_of(|out| {
        doc.iter().try_for_each(|field| {
            let name = Value::String(field.name);
            out.push(frame.arena.document([(&b"k"[..], name), (b"v", field.value.get())])?)
        })
    });
    pairs.map(Some)
}

/// The number of names up to which comparing is faster than hashing.
const COMPARED_MAX: usize = 16;

fn array_to_object<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Array(items)) => items,
        Some(value) => return Err(to_object_not_array(value.kind().alias())),
    };
    let mut fields = frame.arena.fields(0);
    let mut positions: HashMap<&[u8], usize> = HashMap::new();
    let mut pairs = None;
    for item in items.values() {
        let (key, value) = match item {
            Value::Array(pair) if pairs != Some(false) => {
                pairs = Some(true);
                pair_of_array(pair)?
            }
            Value::Document(pair) if pairs != Some(true) => {
                pairs = Some(false);
                pair_of_object(pair)?
            }
            other => {
                let kind = other.kind().alias();
                return Err(match pairs {
                    None => to_object_element(kind),
                    Some(true) => to_object_object_after_array(kind),
                    Some(false) => to_object_array_after_object(kind),
                });
            }
        };
        if key.contains(&0) {
            return Err(if pairs == Some(true) { key_has_nul() } else { k_has_nul() });
        }
        meter::spend(meter::CALL)?;
        // The last value of a key wins, at the position of the first.
        if fields.len() == COMPARED_MAX && positions.is_empty() {
            positions.extend(fields.iter().enumerate().map(|(at, (name, _))| (*name, at)));
        }
        let position = match positions.is_empty() {
            true => fields.iter().position(|(name, _)| *name == key),
            false => positions.get(key).copied(),
        };
        if let Some(at) = position {
            fields[at].1 = value;
            continue;
        }
        if !positions.is_empty() {
            positions.insert(key, fields.len());
        }
        fields.push((key, value));
    }
    frame.arena.document(fields).map(Some)
}

fn pair_of_array(pair: Doc<'_>) -> Result<(&[u8], Value<'_>)> {
    let count = pair.iter().count();
    let mut values = pair.values();
    let (Some(key), Some(value), 2) = (values.next(), values.next(), count) else {
        return Err(to_object_pair_size(count));
    };
    match key {
        Value::String(key) => Ok((key, value)),
        _ => Err(to_object_key_not_string(key.kind().alias())),
    }
}

fn pair_of_object(pair: Doc<'_>) -> Result<(&[u8], Value<'_>)> {
    let count = pair.iter().count();
    if count != 2 {
        return Err(to_object_key_count(count));
    }
    let (Some(key), Some(value)) = (pair.get("k"), pair.get("v")) else {
        return Err(to_object_no_k_or_v(&print::value(Value::Document(pair))));
    };
    match key {
        Value::String(key) => Ok((key, value)),
        _ => Err(to_object_k_not_string(key.kind().alias())),
    }
}

/// Parses `{ $getField: <name> }`, whose input is the document, or `{ $getField: { field, input }
/// }`.
fn parse_get_field(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let is_operator = |doc: Doc<'_>| doc.iter().next().is_some_and(|f| f.name.starts_with(b"$"));
    let (field, input) = match value {
        Value::Document(doc) if !is_operator(doc) => {
            let (mut field, mut input) = (None, None);
            for element in doc {
                match &**element.name {
                    b"field" => field = Some(element.value.get()),
                    b"input" => input = Some(Expression::parse(element.value.get(), scope)?),
                    _ => return Err(get_field_unknown(&element.name.to_string())),
                }
            }
            let field = field.ok_or_else(get_field_no_field)?;
            (field, input.ok_or_else(get_field_no_input)?)
        }
        value => (value, scope.variable(b"CURRENT")?),
    };
    let parsed = Expression::parse(field, scope)?;
    if let Some(path) = as_path(field) {
        return Err(get_field_is_path(&path));
    }
    let Expression::Constant(name) = parsed else {
        return Err(get_field_not_constant());
    };
    match name.get() {
        Value::String(_) => Ok(operator.call([Expression::Constant(name), input])),
        other => Err(get_field_not_string(other.kind().alias())),
    }
}

/// The full name of a path, if the value is one.
fn as_path(value: Value<'_>) -> Option<String> {
    let text = value.as_str()?;
    let name = text.strip_prefix(b"$")?;
    let name = name.to_str_lossy();
    Some(if name.starts_with('$') { name.into_owned() } else { format!("$CURRENT.{name}") })
}

fn get_field<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let input = args[1].eval(frame)?;
    let name = args[0].as_constant().and_then(|name| name.as_str());
    match input {
        None => Ok(None),
        Some(Value::Document(doc)) => Ok(name.and_then(|name| doc.get(name))),
        Some(value) if value.is_nullish() => Ok(Some(Value::Null)),
        Some(_) => Ok(None),
    }
}

fn parse_set_field(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let (field, input, new) = parse_fields(operator.name, true, value, scope)?;
    let new = new.ok_or_else(|| set_field_no_value(operator.name))?;
    Ok(operator.call([field, input, new]))
}

fn parse_unset_field(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let (field, input, _) = parse_fields(operator.name, false, value, scope)?;
    Ok(operator.call([field, input]))
}

fn parse_fields(
    name: &str,
    takes_value: bool,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<(Expression, Expression, Option<Expression>)> {
    let Value::Document(doc) = value else {
        return Err(set_field_not_object(name));
    };
    let (mut field, mut input, mut new) = (None, None, None);
    for element in doc {
        let value = element.value.get();
        match &**element.name {
            b"field" => field = Some(value),
            b"input" => input = Some(Expression::parse(value, scope)?),
            b"value" if takes_value => new = Some(Expression::parse(value, scope)?),
            _ => return Err(set_field_unknown(name, &element.name.to_string())),
        }
    }
    let field = field.ok_or_else(|| set_field_no_field(name))?;
    if takes_value && new.is_none() {
        return Err(set_field_no_value(name));
    }
    let input = input.ok_or_else(|| set_field_no_input(name))?;
    let parsed = Expression::parse(field, scope)?;
    if let Some(path) = as_path(field) {
        return Err(set_field_is_path(&path));
    }
    let Expression::Constant(field) = parsed else {
        return Err(set_field_not_constant());
    };
    match field.get() {
        Value::String(name) if name.contains(&0) => Err(set_field_has_nul()),
        Value::String(_) => Ok((Expression::Constant(field), input, new)),
        other => Err(set_field_not_string(other.kind().alias())),
    }
}

/// The fields of a document under construction; a missing field keeps its position until the
/// document is written.
type FieldSlots<'a> = ArenaVec<'a, (&'a [u8], Option<Value<'a>>)>;

/// Returns whether an expression produces a document in which a missing field may have a position.
fn has_slots(input: &Expression) -> bool {
    match input {
        Expression::Object(_) => true,
        Expression::Call(call) => matches!(call.operator.name, "$setField" | "$unsetField"),
        _ => false,
    }
}

/// The fields of the input of `$setField`; `None` if it is null.
fn slots<'a>(input: &'a Expression, frame: &Frame<'a>) -> Result<Option<FieldSlots<'a>>> {
    let mut slots = frame.arena.list();
    match input {
        Expression::Object(fields) => {
            for (name, field) in fields {
                slots.push((&**name, field.eval(frame)?));
            }
        }
        Expression::Call(call) if has_slots(input) => return changed(&call.args, frame),
        input => match known(input, frame)? {
            None => return Ok(None),
            Some(Value::Document(doc)) => {
                let fields = doc.iter().map(|field| (&**field.name, Some(field.value.get())));
                slots.extend(fields);
            }
            Some(_) => return Err(set_field_input_not_object()),
        },
    }
    Ok(Some(slots))
}

/// The fields after a `$setField` or `$unsetField`.
fn changed<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<FieldSlots<'a>>> {
    let Some(mut slots) = slots(&args[1], frame)? else {
        return Ok(None);
    };
    let name = args[0].as_constant().and_then(|name| name.as_str()).unwrap_or_default();
    let new = match args.get(2) {
        Some(value) => value.eval(frame)?,
        None => None,
    };
    match slots.iter_mut().find(|(field, _)| **field == **name) {
        Some((_, value)) => *value = new,
        None => slots.push((&**name, new)),
    }
    Ok(Some(slots))
}

/// `$setField`, and `$unsetField`, which has no value.
fn set_field<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    if has_slots(&args[1]) {
        let Some(slots) = changed(args, frame)? else {
            return Ok(Some(Value::Null));
        };
        let fields = slots.into_iter().filter_map(|(name, value)| Some((name, value?)));
        return frame.arena.document(fields).map(Some);
    }
    let doc = match known(&args[1], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Document(doc)) => doc,
        Some(_) => return Err(set_field_input_not_object()),
    };
    let name = args[0].as_constant().and_then(|name| name.as_str()).unwrap_or_default();
    let new = match args.get(2) {
        Some(value) => value.eval(frame)?,
        None => None,
    };
    let mut found = false;
    let doc = frame.arena.build(|out| {
        let Ok(()) = out.append_changed::<_, Infallible>(
            doc,
            |field| Ok((field.name == name).then_some(())),
            |(), _, out| {
                found = true;
                if let Some(new) = new {
                    out.append(name, new);
                }
                Ok(())
            },
        );
        if let Some(new) = new
            && !found
        {
            out.append(name, new);
        }
    })?;
    Ok(Some(Value::Document(doc)))
}

//! Array operators that visit elements: `$map`, `$filter`, `$sortArray`, `$zip`.

use std::cmp::Ordering;

use bstr::{BStr, ByteSlice};
use marula_bson::{Collator, Value, order};
use marula_error::{Result, errors};

use super::{known, named};
use crate::expression::number::whole_number;
use crate::expression::scope::check_user_variable;
use crate::expression::{Expression, Frame, Operator, Path, Scope, print};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named("$filter", &["input", "as", "cond", "limit"], parse_filter, filter)
        .not_foldable(),
    Operator::named("$map", &["input", "as", "in"], parse_map, map).not_foldable(),
    Operator::named("$sortArray", &["input", "sortBy"], parse_sort_array, sort_array)
        .not_foldable(),
    Operator::named("$zip", &["inputs", "defaults", "useLongestLength"], parse_zip, zip)
        .not_foldable(),
];

errors! {
    map_not_object() = 16878, "$map only supports an object as its argument";
    map_unknown(name: &str) = 16879, "Unrecognized parameter to $map: {name}";
    map_missing_input() = 16880, "Missing 'input' parameter to $map";
    map_missing_in() = 16882, "Missing 'in' parameter to $map";
    map_not_array(kind: &str) = 16883, "input to $map must be an array not {kind}";
    filter_not_object() = 28646, "$filter only supports an object as its argument";
    filter_unknown(name: &str) = 28647, "Unrecognized parameter to $filter: {name}";
    filter_missing_input() = 28648, "Missing 'input' parameter to $filter";
    filter_missing_cond() = 28650, "Missing 'cond' parameter to $filter";
    filter_not_array(kind: &str) = 28651, "input to $filter must be an array not {kind}";
    filter_limit_not_int(text: &str) = 327391, "$filter: limit must be represented as a 32-bit integral value: {text}";
    filter_limit_not_positive(limit: &str) = 327392, "$filter: limit must be greater than 0: {limit}";
    sort_not_object(kind: &str) = 2942500, "$sortArray requires an object as an argument, found: {kind}";
    sort_unknown(name: &str) = 2942501, "$sortArray found an unknown argument: {name}";
    sort_missing_input() = 2942502, "$sortArray requires 'input' to be specified";
    sort_missing_sort_by() = 2942503, "$sortArray requires 'sortBy' to be specified";
    sort_not_array(kind: &str) = 2942504, "The input argument to $sortArray must be an array, but was of type: {kind}";
    sort_empty_part(name: &BStr) = 2942505, "BadValue: The sort field is a dotted field but has an empty part: {name}";
    sort_bad_direction() = 2942506, "The $sort element value must be either 1 or -1";
    sort_not_pattern() = 2942507, "The $sort is invalid: use 1/-1 to sort the whole element, or {{field:1/-1}} to sort embedded fields";
    sort_bad_pattern(why: &str) = 2942505, "BadValue: {why}";
    zip_not_object(kind: &str) = 34460, "$zip only supports an object as an argument, found {kind}";
    zip_inputs_not_array(kind: &str) = 34461, "inputs must be an array of expressions, found {kind}";
    zip_defaults_not_array(kind: &str) = 34462, "defaults must be an array of expressions, found {kind}";
    zip_longest_not_bool(kind: &str) = 34463, "useLongestLength must be a bool, found {kind}";
    zip_unknown(name: &str) = 34464, "$zip found an unknown argument: {name}";
    zip_no_inputs() = 34465, "$zip requires at least one input array";
    zip_defaults_alone() = 34466, "cannot specify defaults unless useLongestLength is true";
    zip_defaults_count() = 34467, "defaults and inputs must have the same length";
    zip_not_array(text: &str) = 34468, "$zip found a non-array expression in input: {text}";
}

fn name_of(value: Option<Value<'_>>) -> Result<String> {
    let name = match value {
        None => return Ok("this".to_owned()),
        Some(Value::String(name)) => name.to_string(),
        Some(_) => String::new(),
    };
    check_user_variable(&name)?;
    Ok(name)
}

/// Parses `body` with the variable `name`.
fn bound(name: &str, body: Value<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
    scope.bind(name);
    let parsed = Expression::parse(body, scope);
    scope.unbind(1);
    parsed
}

fn parse_map(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(map_not_object());
    };
    let [input, name, body] = named::unparsed(doc, ["input", "as", "in"], map_unknown)?;
    let input = Expression::parse(input.ok_or_else(map_missing_input)?, scope)?;
    let name = name_of(name)?;
    let body = bound(&name, body.ok_or_else(map_missing_in)?, scope)?;
    Ok(operator.call([input, Value::from(&*name).into(), body]))
}

fn map<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Array(items)) => items,
        Some(value) => return Err(map_not_array(value.kind().alias())),
    };
    let inner = frame.bind(None);
    let mapped = frame.arena.array_of(|out| {
        items.values().try_for_each(|item| {
            inner.rebind(Some(item));
            out.push(args[2].eval(&inner)?.unwrap_or(Value::Null))
        })
    });
    mapped.map(Some)
}

fn parse_filter(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(filter_not_object());
    };
    let names = ["input", "as", "cond", "limit"];
    let [input, name, condition, limit] = named::unparsed(doc, names, filter_unknown)?;
    let input = Expression::parse(input.ok_or_else(filter_missing_input)?, scope)?;
    let name = name_of(name)?;
    let condition = bound(&name, condition.ok_or_else(filter_missing_cond)?, scope)?;
    let limit = match limit {
        Some(limit) => Expression::parse(limit, scope)?,
        None => Expression::Missing,
    };
    Ok(operator.call([input, Value::from(&*name).into(), condition, limit]))
}

fn filter<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Array(items)) => items,
        Some(value) => return Err(filter_not_array(value.kind().alias())),
    };
    if items.is_empty() {
        return frame.arena.array([]).map(Some);
    }
    let limit = match known(&args[3], frame)? {
        None => usize::MAX,
        Some(value) => {
            let limit = super::array::exact_i32(value)
                .ok_or_else(|| filter_limit_not_int(&print::value(value)))?;
            let positive = usize::try_from(limit).ok().filter(|&limit| limit > 0);
            positive.ok_or_else(|| filter_limit_not_positive(&print::value(value)))?
        }
    };
    let inner = frame.bind(None);
    let kept = frame.arena.array_of(|out| {
        let mut count = 0;
        for item in items.values() {
            meter::spend(meter::ELEMENT)?;
            inner.rebind(Some(item));
            if args[2].eval_truth(&inner)? {
                out.push(item)?;
                count += 1;
                if count >= limit {
                    break;
                }
            }
        }
        Ok(())
    });
    kept.map(Some)
}

fn parse_sort_array(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(sort_not_object(value.kind().alias()));
    };
    let (mut input, mut sort_by) = (None, None);
    for element in doc {
        match &**element.name {
            b"input" => input = Some(Expression::parse(element.value.get(), scope)?),
            b"sortBy" => {
                check_pattern(element.value.get())?;
                sort_by = Some(element.value.get());
            }
            _ => return Err(sort_unknown(&element.name.to_string())),
        }
    }
    let input = input.ok_or_else(sort_missing_input)?;
    let sort_by = sort_by.ok_or_else(sort_missing_sort_by)?;
    Ok(operator.call([input, sort_by.into()]))
}

fn check_pattern(sort_by: Value<'_>) -> Result<()> {
    let is_direction = |value: Value<'_>| matches!(whole_number(value), Some(1 | -1));
    match sort_by {
        Value::Document(doc) if doc.is_empty() => {
            Err(sort_bad_pattern("The sort pattern is empty when it should be a set of fields."))
        }
        Value::Document(doc) => {
            for element in doc {
                if element.name.is_empty() {
                    return Err(sort_bad_pattern("The 'sortBy' field name must not be empty"));
                }
                if !is_direction(element.value.get()) {
                    return Err(sort_bad_pattern("The sort element value must be either 1 or -1"));
                }
                let name = element.name.as_bytes();
                if name.split(|&byte| byte == b'.').any(<[u8]>::is_empty) {
                    return Err(sort_empty_part(element.name));
                }
            }
            Ok(())
        }
        value if is_direction(value) => Ok(()),
        value if value.kind().is_number() => Err(sort_bad_direction()),
        _ => Err(sort_not_pattern()),
    }
}

/// Sorts by the elements themselves, or by the values at paths in them. An element that is not a
/// document has null at every path.
fn sort_array<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Array(items)) => items,
        Some(value) => return Err(sort_not_array(value.kind().alias())),
    };
    let mut values = frame.arena.values_growing();
    values.extend(items.values())?;
    let mut values = values.into_values();
    let collator = frame.context.collator();
    match args[1].as_constant() {
        Some(Value::Document(pattern)) => {
            let keys = pattern.iter().map(|part| {
                let is_descending = part.value.get().as_exact_i64() == Some(-1);
                (Path::split(part.name), is_descending)
            });
            let keys: Vec<(Path, bool)> = keys.collect();
            meter::sort_by(&mut values, |a, b| compare_by(&keys, *a, *b, collator))?;
        }
        Some(direction) if direction.as_exact_i64() == Some(-1) => {
            meter::sort_by(&mut values, |a, b| order::compare(*b, *a, collator))?;
        }
        _ => meter::sort_by(&mut values, |a, b| order::compare(*a, *b, collator))?,
    }
    frame.arena.array(values).map(Some)
}

/// Compares two elements by the values at paths, each ascending or descending.
fn compare_by(
    keys: &[(Path, bool)],
    a: Value<'_>,
    b: Value<'_>,
    collator: Option<&dyn Collator>,
) -> Ordering {
    for (path, is_descending) in keys {
        let order = order::compare(value_at(path, a), value_at(path, b), collator);
        if order.is_ne() {
            return if *is_descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

fn value_at<'v>(path: &Path, value: Value<'v>) -> Value<'v> {
    let Value::Document(doc) = value else {
        return Value::Null;
    };
    let parts = path.parts().split_last();
    parts
        .and_then(|(last, init)| {
            init.iter().try_fold(doc, |doc, part| doc.get(part)?.as_doc())?.get(last)
        })
        .unwrap_or(Value::Null)
}

fn parse_zip(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(zip_not_object(value.kind().alias()));
    };
    let mut inputs = Vec::new();
    let mut defaults: Option<Vec<Expression>> = None;
    let mut longest = false;
    for element in doc {
        let value = element.value.get();
        match &**element.name {
            b"inputs" => {
                let Value::Array(items) = value else {
                    return Err(zip_inputs_not_array(value.kind().alias()));
                };
                for item in items.values() {
                    inputs.push(Expression::parse(item, scope)?);
                }
            }
            b"defaults" => {
                let Value::Array(items) = value else {
                    return Err(zip_defaults_not_array(value.kind().alias()));
                };
                let defaults = defaults.get_or_insert_default();
                for item in items.values() {
                    defaults.push(Expression::parse(item, scope)?);
                }
            }
            b"useLongestLength" => match value {
                Value::Boolean(flag) => longest = flag,
                // mongod reports the type of the whole argument here.
                _ => return Err(zip_longest_not_bool("object")),
            },
            _ => return Err(zip_unknown(&element.name.to_string())),
        }
    }
    if inputs.is_empty() {
        return Err(zip_no_inputs());
    }
    if let Some(defaults) = &defaults {
        if !longest && !defaults.is_empty() {
            return Err(zip_defaults_alone());
        }
        if !defaults.is_empty() && defaults.len() != inputs.len() {
            return Err(zip_defaults_count());
        }
    }
    let defaults = defaults.map_or(Expression::Missing, |list| Expression::Array(list.into()));
    let longest = Expression::from(Value::Boolean(longest));
    Ok(operator.call([Expression::Array(inputs.into()), defaults, longest]))
}

fn zip<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut lists = frame.arena.list();
    let mut add = |input: Option<Value<'a>>| match input {
        None | Some(Value::Null | Value::Undefined) => Ok(false),
        Some(Value::Array(items)) => {
            let mut values = frame.arena.values_growing();
            values.extend(items.values())?;
            lists.push(values.into_values());
            Ok(true)
        }
        Some(value) => Err(zip_not_array(&print::value(value))),
    };
    // If any of the inputs before an invalid one is null, the result is null.
    let is_known = match &args[0] {
        Expression::Array(inputs) => {
            let mut inputs = inputs.iter();
            inputs.try_fold(true, |all, input| match all {
                true => add(input.eval(frame)?),
                false => Ok(false),
            })?
        }
        constant => {
            let Some(Value::Array(inputs)) = constant.eval(frame)? else {
                return Ok(Some(Value::Null));
            };
            let mut inputs = inputs.values();
            inputs.try_fold(true, |all, input| match all {
                true => add(Some(input)),
                false => Ok::<bool, marula_error::Error>(false),
            })?
        }
    };
    if !is_known {
        return Ok(Some(Value::Null));
    }
    let mut defaults = frame.arena.list();
    match &args[1] {
        Expression::Array(items) => {
            for item in items {
                defaults.push(item.eval(frame)?);
            }
        }
        constant => {
            if let Some(Value::Array(items)) = constant.eval(frame)? {
                defaults.extend(items.values().map(Some));
            }
        }
    }
    let longest = args[2].eval_truth(frame)?;
    let lengths = lists.iter().map(|list| list.len());
    let length = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let rows = frame.arena.array_of(|out| {
        for row in 0..length {
            // A missing default produces no element.
            let values = lists.iter().enumerate().filter_map(|(column, list)| {
                let default = || defaults.get(column).copied().unwrap_or(Some(Value::Null));
                list.get(row).copied().or_else(default)
            });
            out.push(frame.arena.array(values)?)?;
        }
        Ok(())
    });
    rows.map(Some)
}

//! Parses BSON into an [`Expression`].

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::path::check_field_name;
use super::{Expression, Operator, Scope, print};

errors! {
    /// An operator is not the only field.
    not_one_field(spec: &str) = 15983, "An object representing an expression must have exactly one field: {spec}";
    /// A field name of an object expression contains a dot.
    dotted_field() = 16412, "FieldPath field names may not contain '.'. Consider using $getField or $setField.";
    /// A field name of an object expression is repeated.
    duplicate_field(spec: &str) = 16406, "duplicate field name specified in object literal: {spec}";
    /// `"$"` alone.
    dollar_alone() = 16872, "'$' by itself is not a valid FieldPath";
}

impl Expression {
    /// Parses an expression: a constant, a `"$path"`, an object, an array, or an operator.
    pub fn parse(value: Value<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
        match value {
            Value::String(text) => parse_string(text, value, scope),
            Value::Document(doc) => scope.nested(|scope| Expression::parse_object(doc, scope)),
            Value::Array(items) => scope.nested(|scope| {
                let items: Result<Vec<_>> =
                    items.values().map(|item| Expression::parse(item, scope)).collect();
                Ok(Expression::Array(items?.into()))
            }),
            value => Ok(value.into()),
        }
    }

    /// Parses `{ $operator: … }` or `{ field: <expression>, … }`.
    pub fn parse_object(doc: Doc<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
        let mut fields: Vec<(Box<[u8]>, Expression)> = Vec::new();
        for (index, element) in doc.iter().enumerate() {
            if index == 0 && element.name.starts_with(b"$") {
                if doc.iter().nth(1).is_some() {
                    return Err(not_one_field(&print::document(doc)));
                }
                return Operator::find(element.name, scope.context.version)?
                    .parse(element.value.get(), scope);
            }
            check_field_name(element.name)?;
            if element.name.contains(&b'.') {
                return Err(dotted_field());
            }
            if fields.iter().any(|(name, _)| **name == **element.name) {
                return Err(duplicate_field(&print::document(doc)));
            }
            fields.push((
                element.name.to_vec().into(),
                Expression::parse(element.value.get(), scope)?,
            ));
        }
        if fields.is_empty() {
            return Ok(Value::Document(Doc::EMPTY).into());
        }
        Ok(Expression::Object(fields.into()))
    }
}

fn parse_string(text: &[u8], value: Value<'_>, scope: &Scope<'_>) -> Result<Expression> {
    match text {
        b"$" => Err(dollar_alone()),
        [b'$', b'$', name @ ..] => scope.variable(name),
        [b'$', path @ ..] => scope.field(path),
        _ => Ok(value.into()),
    }
}

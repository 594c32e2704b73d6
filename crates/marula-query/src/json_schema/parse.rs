//! Parses schemas.
//!
//! A schema's keywords are rows of [`KEYWORDS`], each with the function that parses its operand
//! into rules. The table has the order in which rules are evaluated and reported, which is not that
//! of the text.

use std::cell::Cell;
use std::collections::HashSet;

use bstr::{BStr, ByteSlice};
use marula_bson::{Decimal128, Doc, FieldPath, RawValue, Type, Value};
use marula_error::{Error, Result, codes, errors};

use super::encrypt::{self, Encryption};
use super::{Additional, Dependency, OtherProperties, Property, Rule, Schema, unordered};
use crate::field_map::FieldMap;
use crate::filter::{Compare, CompareOp, TypeSet, insert_type_alias, parse_non_negative_i64};
use crate::regex::Regex;

errors! {
    /// A keyword does not exist.
    unknown_keyword(name: &BStr) = FailedToParse, "Unknown $jsonSchema keyword: {name}";
    /// A keyword exists in JSON Schema but not in MongoDB.
    unsupported_keyword(name: &BStr) = FailedToParse, "$jsonSchema keyword '{name}' is not currently supported";
    /// A keyword is repeated.
    duplicate_keyword(name: &BStr) = FailedToParse, "Duplicate $jsonSchema keyword: {name}";
    /// `title` or `description` is not a string.
    not_text(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be of type string";
    /// Two alternative keywords are used together.
    both(first: &str, second: &str) = FailedToParse, "Cannot specify both $jsonSchema keywords '{first}' and '{second}'";
    /// A type is given together with `encrypt`.
    encrypt_with_type(keyword: &str) = FailedToParse, "$jsonSchema keyword 'encrypt' cannot be used in conjunction with '{keyword}', 'encrypt' implies type 'bsonType::BinData'";
    /// A type is neither a string nor an array of strings.
    type_bad_operand(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be either a string or an array of strings";
    /// An element of an array of types is not a string.
    type_not_a_string(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' array elements must be strings";
    /// The array of types is empty.
    type_empty(keyword: &str) = FailedToParse, "$jsonSchema keyword '{keyword}' must name at least one type";
    /// A type is repeated.
    type_twice(keyword: &str, name: &BStr) = FailedToParse, "$jsonSchema keyword '{keyword}' has duplicate value: {name}";
    /// The type is JSON Schema's `integer`, which corresponds to two types in BSON.
    type_integer() = FailedToParse, "$jsonSchema type 'integer' is not currently supported.";
    /// A type does not exist in JSON Schema.
    type_unknown(name: &BStr) = BadValue, "Unknown type name alias: {name}";
    /// A bound is not a number.
    not_a_number(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be a number";
    /// A flag is not a boolean.
    not_a_boolean(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be a boolean";
    /// `exclusiveMinimum` is used without `minimum`, or `exclusiveMaximum` without `maximum`.
    exclusive_alone(bound: &str, exclusive: &str) = FailedToParse, "$jsonSchema keyword '{bound}' must be a present if {exclusive} is present";
    /// `multipleOf` is zero or negative.
    multiple_not_positive() = FailedToParse, "$jsonSchema keyword 'multipleOf' must have a positive value";
    /// `multipleOf` is NaN or infinite.
    divisor_not_finite(what: &str) = BadValue, "divisor cannot be {what}";
    /// `pattern` is not a string.
    not_a_string(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be a string";
    /// The operand of a keyword is not an object.
    not_an_object(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be an object";
    /// The schema of a property is not an object.
    property_not_an_object(name: &BStr) = TypeMismatch, "Nested schema for $jsonSchema property '{name}' must be an object";
    /// The schema of a pattern is not an object.
    pattern_not_an_object(name: &BStr) = TypeMismatch, "$jsonSchema keyword 'patternProperties' has property '{name}' which is not an object";
    /// A pattern for names is not a valid regular expression.
    pattern_invalid(reason: &str) = BadValue, "Invalid regular expression: {reason}";
    /// `additionalProperties` has the wrong type.
    additional_properties_bad_operand() = TypeMismatch, "$jsonSchema keyword 'additionalProperties' must be an object or a boolean";
    /// `items` has the wrong type.
    items_bad_operand(kind: &str) = TypeMismatch, "$jsonSchema keyword 'items' must be an array or an object, not {kind}";
    /// The schema of a position in `items` is not an object.
    item_not_an_object(kind: &str) = TypeMismatch, "$jsonSchema keyword 'items' requires that each element of the array is an object, but found a {kind}";
    /// `additionalItems` has the wrong type.
    additional_items_bad_operand(kind: &str) = TypeMismatch, "$jsonSchema keyword 'additionalItems' must be either an object or a boolean, but got a {kind}";
    /// `required` or `enum` has the wrong type.
    not_an_array_but(keyword: &str, kind: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be an array, but found an element of type {kind}";
    /// `required` or `enum` is empty.
    empty_array(keyword: &str) = FailedToParse, "$jsonSchema keyword '{keyword}' cannot be an empty array";
    /// A required property is not a string.
    required_not_strings(kind: &str) = TypeMismatch, "$jsonSchema keyword 'required' must be an array of strings, but found an element of type: {kind}";
    /// A required property is repeated.
    required_twice() = FailedToParse, "$jsonSchema keyword 'required' array cannot contain duplicate values";
    /// A value in `enum` is repeated.
    enum_twice() = FailedToParse, "$jsonSchema keyword 'enum' array cannot contain duplicate values.";
    /// A list of schemas is not an array.
    not_an_array(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be an array";
    /// A list of schemas is empty.
    no_schemas(keyword: &str) = BadValue, "$jsonSchema keyword '{keyword}' must be a non-empty array";
    /// An element of a list of schemas is not an object.
    not_schemas(keyword: &str, kind: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be an array of objects, but found an element of type {kind}";
    /// The operand of `not` is not an object.
    not_not_an_object(kind: &str) = TypeMismatch, "$jsonSchema keyword 'not' must be an object, but found an element of type {kind}";
    /// A dependency is neither an array nor an object.
    dependency_bad_operand(name: &BStr) = TypeMismatch, "property '{name}' in $jsonSchema keyword 'dependencies' must be either an object or an array";
    /// A dependency is an empty array.
    dependency_empty(name: &BStr) = FailedToParse, "property '{name}' in $jsonSchema keyword 'dependencies' cannot be an empty array";
    /// An element of a dependency is not a string.
    dependency_not_strings(name: &BStr, kind: &str) = TypeMismatch, "array '{name}' in $jsonSchema keyword 'dependencies' can only contain strings, but found element of type: {kind}";
    /// A property in a dependency is repeated.
    dependency_twice(name: &BStr, property: &BStr) = FailedToParse, "array '{name}' in $jsonSchema keyword 'dependencies' contains duplicate element: {property}";
}

/// A keyword and the function that parses it. A keyword that is parsed with another one has no
/// function.
struct Keyword {
    name: &'static str,
    /// The types that the keyword applies to: if the schema names only other types, the keyword has
    /// no effect.
    of: Subject,
    read: Option<Read>,
}

type Read = fn(&Reader<'_>, RawValue<'_>) -> Result<Option<Rule>>;

/// The type of values that a keyword applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Anything,
    Number,
    String,
    Array,
    Object,
}

const fn row(name: &'static str, of: Subject, read: Read) -> Keyword {
    Keyword { name, of, read: Some(read) }
}

const fn part(name: &'static str) -> Keyword {
    Keyword { name, of: Subject::Anything, read: None }
}

static KEYWORDS: &[Keyword] = &[
    part("title"),
    part("description"),
    row("multipleOf", Subject::Number, multiple_of),
    row("maximum", Subject::Number, |reader, operand| {
        bound(reader, operand, "maximum", "exclusiveMaximum", [CompareOp::Lte, CompareOp::Lt])
    }),
    row("exclusiveMaximum", Subject::Number, |reader, _| {
        exclusive(reader, "maximum", "exclusiveMaximum")
    }),
    row("minimum", Subject::Number, |reader, operand| {
        bound(reader, operand, "minimum", "exclusiveMinimum", [CompareOp::Gte, CompareOp::Gt])
    }),
    row("pattern", Subject::String, pattern),
    row("maxLength", Subject::String, |_, operand| limit("maxLength", operand, Rule::MaxLength)),
    row("minLength", Subject::String, |_, operand| limit("minLength", operand, Rule::MinLength)),
    row("exclusiveMinimum", Subject::Number, |reader, _| {
        exclusive(reader, "minimum", "exclusiveMinimum")
    }),
    row("minItems", Subject::Array, |_, operand| limit("minItems", operand, Rule::MinItems)),
    row("maxItems", Subject::Array, |_, operand| limit("maxItems", operand, Rule::MaxItems)),
    row("uniqueItems", Subject::Array, unique_items),
    row("items", Subject::Array, items),
    row("additionalItems", Subject::Array, additional_items),
    row("properties", Subject::Object, properties),
    row("patternProperties", Subject::Object, other_properties),
    row("additionalProperties", Subject::Object, additional_properties),
    row("required", Subject::Object, required),
    row("minProperties", Subject::Object, |_, operand| {
        limit("minProperties", operand, Rule::MinProperties)
    }),
    row("maxProperties", Subject::Object, |_, operand| {
        limit("maxProperties", operand, Rule::MaxProperties)
    }),
    // Unlike the other keywords for objects, these also apply together with another type.
    row("dependencies", Subject::Anything, dependencies),
    row("allOf", Subject::Anything, |reader, operand| {
        reader.schemas("allOf", operand).map(Rule::AllOf).map(Some)
    }),
    row("anyOf", Subject::Anything, |reader, operand| {
        reader.schemas("anyOf", operand).map(Rule::AnyOf).map(Some)
    }),
    row("oneOf", Subject::Anything, |reader, operand| {
        reader.schemas("oneOf", operand).map(Rule::OneOf).map(Some)
    }),
    row("not", Subject::Anything, negation),
    row("enum", Subject::Anything, enumeration),
    row("encrypt", Subject::Anything, |reader, operand| {
        reader.mentions_encryption.set(true);
        Encryption::parse(operand).map(Rule::Encrypt).map(Some)
    }),
    row("encryptMetadata", Subject::Anything, |reader, operand| {
        reader.mentions_encryption.set(true);
        encrypt::check_metadata(operand).map(|()| None)
    }),
    part("type"),
    part("bsonType"),
];

/// Keywords of JSON Schema, draft 4, that MongoDB refuses.
static UNSUPPORTED: [&str; 6] = ["$ref", "$schema", "default", "definitions", "format", "id"];

/// The state of parsing a schema.
struct Reader<'d> {
    text: Doc<'d>,
    /// Whether the schema describes a whole document.
    is_root: bool,
    /// Set when a keyword of encryption is found, in this schema or a nested one.
    mentions_encryption: &'d Cell<bool>,
}

/// Parses a schema for a whole document; also returns whether it mentions encryption.
pub(super) fn root(text: Doc<'_>) -> Result<(Schema, bool)> {
    let mentions_encryption = Cell::new(false);
    let reader = Reader { text, is_root: true, mentions_encryption: &mentions_encryption };
    let schema = reader.schema()?;
    Ok((schema, mentions_encryption.get()))
}

impl Reader<'_> {
    fn schema(&self) -> Result<Schema> {
        self.check_names()?;
        for keyword in ["title", "description"] {
            match self.text.get(keyword) {
                None | Some(Value::String(_)) => {}
                Some(_) => return Err(not_text(keyword)),
            }
        }
        let types = self.types()?;
        let mut rules = Vec::new();
        for keyword in KEYWORDS {
            let (Some(read), Some(operand)) =
                (keyword.read, self.text.get_raw(keyword.name.as_bytes()))
            else {
                continue;
            };
            let rule = read(self, operand)?;
            let speaks = types.is_none_or(|(_, types)| keyword.of.is_among(types));
            rules.extend(rule.filter(|_| speaks && self.is_heard(keyword.of)));
        }
        if self.is_root && self.text.get_raw(b"encrypt").is_some() {
            return Ok(Schema::Never);
        }
        match types {
            Some((_, types)) if self.is_root && !types.contains(Type::Document) => {
                return Ok(Schema::Never);
            }
            // Every document is an object.
            Some(_) if self.is_root => {}
            Some((keyword, types)) => rules.push(Rule::Types { keyword, types }),
            None => {}
        }
        Ok(Schema::Rules(rules))
    }

    /// At the root, only keywords for objects have an effect.
    fn is_heard(&self, of: Subject) -> bool {
        !self.is_root || matches!(of, Subject::Anything | Subject::Object)
    }

    fn check_names(&self) -> Result<()> {
        let mut seen = 0_u64;
        for element in self.text {
            let name = element.name;
            let Some(place) = KEYWORDS.iter().position(|row| name == row.name) else {
                let is_refused = UNSUPPORTED.iter().any(|refused| name == refused);
                return Err(if is_refused {
                    unsupported_keyword(name)
                } else {
                    unknown_keyword(name)
                });
            };
            if seen >> place & 1 != 0 {
                return Err(duplicate_keyword(name));
            }
            seen |= 1 << place;
        }
        Ok(())
    }

    /// The types that the schema names, and the keyword.
    fn types(&self) -> Result<Option<(&'static str, TypeSet)>> {
        let (json, bson) = (self.text.get_raw(b"type"), self.text.get_raw(b"bsonType"));
        let named = match (json, bson) {
            (Some(_), Some(_)) => return Err(both("type", "bsonType")),
            (Some(operand), None) => Some(("type", types("type", operand, true)?)),
            (None, Some(operand)) => Some(("bsonType", types("bsonType", operand, true)?)),
            (None, None) => None,
        };
        if self.text.get_raw(b"encrypt").is_some() {
            if self.text.get_raw(b"encryptMetadata").is_some() {
                return Err(both("encrypt", "encryptMetadata"));
            }
            if let Some((keyword, _)) = named {
                return Err(encrypt_with_type(keyword));
            }
        }
        Ok(named)
    }

    /// Parses a schema for the same value as this one.
    fn same_value(&self, text: Doc<'_>) -> Result<Schema> {
        Reader { text, ..*self }.schema()
    }

    /// Parses a schema for a value under a name, an item or a pattern.
    fn nested(&self, text: Doc<'_>) -> Result<Schema> {
        Reader { text, is_root: false, ..*self }.schema()
    }

    fn schemas(&self, keyword: &str, operand: RawValue<'_>) -> Result<Vec<Schema>> {
        let Value::Array(array) = operand.get() else { return Err(not_an_array(keyword)) };
        if array.is_empty() {
            return Err(no_schemas(keyword));
        }
        array
            .values()
            .map(|value| match value {
                Value::Document(text) => self.same_value(text),
                _ => Err(not_schemas(keyword, value.kind().alias())),
            })
            .collect()
    }
}

impl Subject {
    /// Returns whether the keyword applies to one of the types.
    fn is_among(self, types: TypeSet) -> bool {
        match self {
            Subject::Anything => true,
            Subject::Number => [Type::Int32, Type::Int64, Type::Double, Type::Decimal128]
                .into_iter()
                .any(|kind| types.contains(kind)),
            Subject::String => types.contains(Type::String),
            Subject::Array => types.contains(Type::Array),
            Subject::Object => types.contains(Type::Document),
        }
    }
}

/// Parses the names of one or more types. For `encrypt` they are optional.
pub(super) fn types(keyword: &str, operand: RawValue<'_>, must_name: bool) -> Result<TypeSet> {
    let mut set = TypeSet::EMPTY;
    match operand.get() {
        Value::String(name) => insert_type(keyword, &mut set, name)?,
        Value::Array(names) => {
            if names.is_empty() && must_name {
                return Err(type_empty(keyword));
            }
            check_type_names(keyword, names)?;
            for name in names.values().filter_map(|name| name.as_str()) {
                insert_type(keyword, &mut set, name)?;
            }
        }
        _ => return Err(type_bad_operand(keyword)),
    }
    Ok(set)
}

fn check_type_names(keyword: &str, names: Doc<'_>) -> Result<()> {
    let mut seen: Vec<&BStr> = Vec::new();
    for name in names.values() {
        let name = name.as_str().ok_or_else(|| type_not_a_string(keyword))?;
        if seen.contains(&name) {
            return Err(type_twice(keyword, name));
        }
        seen.push(name);
        // More names than types must contain a duplicate or an unknown name, which is found when
        // they are parsed.
        if seen.len() > 64 {
            break;
        }
    }
    Ok(())
}

fn insert_type(keyword: &str, set: &mut TypeSet, name: &BStr) -> Result<()> {
    if name == "integer" {
        return Err(type_integer());
    }
    if keyword == "bsonType" {
        return insert_type_alias(set, name);
    }
    match name.as_bytes() {
        b"object" => set.insert(Type::Document),
        b"array" => set.insert(Type::Array),
        b"string" => set.insert(Type::String),
        b"boolean" => set.insert(Type::Boolean),
        b"null" => set.insert(Type::Null),
        b"number" => set.insert_numbers(),
        _ => return Err(type_unknown(name)),
    }
    Ok(())
}

fn multiple_of(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let divisor = match operand.get() {
        Value::Int32(number) => Decimal128::from_i64(i64::from(number)),
        Value::Int64(number) => Decimal128::from_i64(number),
        Value::Double(number) => Decimal128::from_f64(number),
        Value::Decimal128(number) => number,
        _ => return Err(not_a_number("multipleOf")),
    };
    if divisor.is_zero() || (divisor.is_negative() && !divisor.is_nan()) {
        return Err(multiple_not_positive());
    }
    if !reader.is_root && divisor.is_nan() {
        return Err(divisor_not_finite("NaN"));
    }
    if !reader.is_root && divisor.is_infinite() {
        return Err(divisor_not_finite("infinite"));
    }
    Ok(Some(Rule::MultipleOf(divisor)))
}

fn bound(
    reader: &Reader<'_>,
    operand: RawValue<'_>,
    keyword: &str,
    exclusive: &str,
    [with, without]: [CompareOp; 2],
) -> Result<Option<Rule>> {
    if !operand.kind().is_number() {
        return Err(not_a_number(keyword));
    }
    let op = match reader.text.get(exclusive) {
        Some(Value::Boolean(true)) => without,
        Some(Value::Boolean(false)) | None => with,
        Some(_) => return Err(not_a_boolean(exclusive)),
    };
    Ok(Some(Rule::Bound(Compare { op, value: operand.to_buf() })))
}

/// Checks that the bound exists; the flag is parsed with it.
fn exclusive(reader: &Reader<'_>, bound: &str, exclusive: &str) -> Result<Option<Rule>> {
    reader.text.get(bound).map(|_| None).ok_or_else(|| exclusive_alone(bound, exclusive))
}

fn pattern(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let pattern = operand.get().as_str().ok_or_else(|| not_a_string("pattern"))?;
    if reader.is_root {
        return Ok(None);
    }
    let is_strict = match reader.types()? {
        Some((_, types)) => !types.names_all_numbers() && types.singles().eq([Type::String]),
        None => false,
    };
    let regex = Regex::new(pattern, BStr::new(""))?;
    Ok(Some(Rule::Pattern { regex, is_strict }))
}

fn limit(keyword: &str, operand: RawValue<'_>, rule: fn(u64) -> Rule) -> Result<Option<Rule>> {
    let number = parse_non_negative_i64(keyword.as_bytes(), operand.get())
        .map_err(|reason| Error::new(codes::FailedToParse, reason))?;
    Ok(Some(rule(number.unsigned_abs())))
}

fn unique_items(_: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    match operand.get() {
        Value::Boolean(is_asked) => Ok(is_asked.then_some(Rule::UniqueItems)),
        _ => Err(not_a_boolean("uniqueItems")),
    }
}

fn items(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    match operand.get() {
        Value::Document(text) => reader.nested(text).map(Rule::Items).map(Some),
        Value::Array(array) => {
            let schemas = array.values().map(|value| match value {
                Value::Document(text) => reader.nested(text),
                _ => Err(item_not_an_object(value.kind().alias())),
            });
            schemas.collect::<Result<_>>().map(Rule::ItemsByPlace).map(Some)
        }
        value => Err(items_bad_operand(value.kind().alias())),
    }
}

fn additional_items(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let allowed = match operand.get() {
        Value::Boolean(true) => return Ok(None),
        Value::Boolean(false) => None,
        Value::Document(text) => Some(reader.nested(text)?),
        value => return Err(additional_items_bad_operand(value.kind().alias())),
    };
    // If `items` applies to all items alike, there are no additional ones.
    Ok(match reader.text.get("items") {
        Some(Value::Array(places)) => {
            Some(Rule::AdditionalItems { from: places.iter().count(), allowed })
        }
        _ => None,
    })
}

fn properties(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let object = operand.get().as_doc().ok_or_else(|| not_an_object("properties"))?;
    let required = reader.text.get("required").and_then(|required| required.as_array());
    let required: HashSet<&BStr> =
        required.unwrap_or(Doc::EMPTY).values().filter_map(|name| name.as_str()).collect();
    let properties = object.iter().map(|element| {
        let text = element.value.get().as_doc();
        let text = text.ok_or_else(|| property_not_an_object(element.name))?;
        let is_required = required.contains(element.name);
        Ok(Property {
            path: FieldPath::new(element.name),
            schema: reader.nested(text)?,
            is_required,
        })
    });
    properties.collect::<Result<_>>().map(Rule::Properties).map(Some)
}

fn other_properties(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let object = operand.get().as_doc().ok_or_else(|| not_an_object("patternProperties"))?;
    let mut patterns = Vec::new();
    for element in object {
        let text = element.value.get().as_doc();
        let text = text.ok_or_else(|| pattern_not_an_object(element.name))?;
        let regex = Regex::new(element.name, BStr::new("")).map_err(|error| {
            let reason = error.message().rsplit_once(": ").map_or("", |(_, reason)| reason);
            pattern_invalid(reason)
        })?;
        patterns.push((regex, reader.nested(text)?));
    }
    let additional = match reader.text.get_raw(b"additionalProperties") {
        Some(operand) => additional(reader, operand)?,
        None => Additional::Anything,
    };
    Ok(Some(others(reader, patterns, additional)))
}

fn additional_properties(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    // Together with patterns, it was parsed with them.
    if reader.text.get_raw(b"patternProperties").is_some() {
        return Ok(None);
    }
    Ok(match additional(reader, operand)? {
        Additional::Anything => None,
        additional => Some(others(reader, Vec::new(), additional)),
    })
}

fn additional(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Additional> {
    match operand.get() {
        Value::Boolean(true) => Ok(Additional::Anything),
        Value::Boolean(false) => Ok(Additional::Nothing),
        Value::Document(text) => reader.nested(text).map(Box::new).map(Additional::Schema),
        _ => Err(additional_properties_bad_operand()),
    }
}

fn others(reader: &Reader<'_>, patterns: Vec<(Regex, Schema)>, additional: Additional) -> Rule {
    let mut names = FieldMap::default();
    let properties = reader.text.get("properties").and_then(|properties| properties.as_doc());
    for property in properties.unwrap_or(Doc::EMPTY) {
        if names.find(property.name).is_none() {
            names.push(property.name, ());
        }
    }
    Rule::OtherProperties(OtherProperties { names, patterns, additional })
}

fn required(_: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let array = non_empty_array("required", operand)?;
    let mut names = Vec::new();
    for name in array.values() {
        let kind = name.kind();
        names.push(name.as_str().ok_or_else(|| required_not_strings(kind.alias()))?);
    }
    // The order in which missing properties are reported.
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(required_twice());
    }
    Ok(Some(Rule::Required(names.into_iter().map(FieldPath::new).collect())))
}

fn dependencies(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let object = operand.get().as_doc().ok_or_else(|| not_an_object("dependencies"))?;
    let dependencies = object.iter().map(|element| {
        let dependency = match element.value.get() {
            Value::Document(text) => Dependency::Schema(reader.same_value(text)?),
            Value::Array(names) => dependency_on(element.name, names)?,
            _ => return Err(dependency_bad_operand(element.name)),
        };
        Ok((FieldPath::new(element.name), dependency))
    });
    dependencies.collect::<Result<_>>().map(Rule::Dependencies).map(Some)
}

fn dependency_on(property: &BStr, names: Doc<'_>) -> Result<Dependency> {
    if names.is_empty() {
        return Err(dependency_empty(property));
    }
    let mut paths = Vec::new();
    for name in names.values() {
        let kind = name.kind();
        let name = name.as_str().ok_or_else(|| dependency_not_strings(property, kind.alias()))?;
        paths.push(FieldPath::new(name));
    }
    match unordered::first_duplicate(names).map(|name| name.get()) {
        Some(Value::String(name)) => Err(dependency_twice(property, name)),
        _ => Ok(Dependency::Properties(paths)),
    }
}

fn negation(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    match operand.get() {
        Value::Document(text) => {
            reader.same_value(text).map(|schema| Some(Rule::Not(Box::new(schema))))
        }
        value => Err(not_not_an_object(value.kind().alias())),
    }
}

fn enumeration(reader: &Reader<'_>, operand: RawValue<'_>) -> Result<Option<Rule>> {
    let array = non_empty_array("enum", operand)?;
    if unordered::first_duplicate(array).is_some() {
        return Err(enum_twice());
    }
    // A whole document equals objects only.
    let values = array
        .iter()
        .filter(|element| !reader.is_root || element.value.kind() == Type::Document)
        .map(|element| element.value.to_buf())
        .collect();
    Ok(Some(Rule::Enum(values)))
}

fn non_empty_array<'a>(keyword: &str, operand: RawValue<'a>) -> Result<Doc<'a>> {
    match operand.get() {
        Value::Array(array) if array.is_empty() => Err(empty_array(keyword)),
        Value::Array(array) => Ok(array),
        value => Err(not_an_array_but(keyword, value.kind().alias())),
    }
}

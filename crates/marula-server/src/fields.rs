//! The fields that a command permits, and the errors for others.
//!
//! mongod rejects unknown fields, and checks types as it reads. A row's [`Fields`] has names and
//! types, so that the command's own code receives checked fields.
//!
//! Source: mongod 6.0, recorded errors 14, 40414 and 40415.

use marula_bson::{BStr, Binary, Doc, Element, Type, Value};
use marula_error::{Error, Result, errors};
use marula_operation::args::{bad_hint, not_an_object};
use marula_query::feature_version::FeatureVersion;
use marula_query::once::{duplicate_field, unknown_field};
use marula_query::update::bad_update;

use crate::session;

errors! {
    /// A field has a type that the command does not permit.
    pub wrong_type(place: &str, field: &BStr, kind: &str, expected: &str) = TypeMismatch,
        "BSON field '{place}.{field}' is the wrong type '{kind}', expected {expected}";
    /// A required field is missing.
    pub missing_field(place: &str, field: &str) = IDLFailedToParse,
        "BSON field '{place}.{field}' is missing but a required field";
    /// Null in place of an array of documents.
    pub expected_object(field: &BStr) = 10_065, "invalid parameter: expected an object ({field})";
    /// A value is not a boolean, and no other type is permitted.
    pub not_a_switch(field: &str, kind: &str) = TypeMismatch,
        "Field '{field}' should be a boolean value, but found: {kind}";
    /// A command that names the encrypted fields of its collection.
    pub no_encrypted_schema() = 6_371_205, "Expected an object for schema in EncryptionInformation";
    /// An element of an array has another type than the others.
    pub element_type(place: &str, field: &str, at: usize, kind: &str, expected: &str) = TypeMismatch,
        "BSON field '{place}.{field}.{at}' is the wrong type '{kind}', expected type '{expected}'";
}

/// The fields that a command permits.
#[derive(Clone, Copy)]
pub enum Fields {
    /// Any: the command reads those that it knows.
    Any,
    /// Checked by type; other fields are ignored.
    Known {
        /// The command's name in messages.
        place: &'static str,
        /// The fields.
        fields: &'static [Field],
    },
    /// Only these.
    Strict {
        /// The command's name in messages: its own, or that of its request.
        place: &'static str,
        /// The fields.
        fields: &'static [Field],
    },
}

/// A field of a command.
#[derive(Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The permitted types.
    pub types: Types,
    /// Whether it is required.
    pub is_required: bool,
    /// The first release with this field.
    pub since: FeatureVersion,
    /// The error for a value of another type, including null; `None` is the usual error.
    pub refusal: Option<fn(&str) -> Error>,
    /// A further check of a value of the right type.
    pub form: Option<fn(FeatureVersion, Value<'_>) -> Result<()>>,
    /// The fields of a document in this field, if they are checked with it.
    pub within: &'static [Field],
}

impl Field {
    /// Returns an optional field; null is the same as absence.
    pub const fn optional(name: &'static str, types: Types) -> Field {
        Field {
            name,
            types,
            is_required: false,
            since: FeatureVersion::V6_0,
            refusal: None,
            form: None,
            within: &[],
        }
    }

    /// Returns a required field.
    pub const fn required(name: &'static str, types: Types) -> Field {
        Field { is_required: true, ..Field::optional(name, types) }
    }

    /// Returns whether `value` counts as absent for a required field. Null does, unless the command
    /// checks the type itself.
    pub(crate) fn is_missing(&self, value: Option<Value<'_>>) -> bool {
        value.is_none_or(|value| value.is_nullish() && self.types != Types::Any)
    }

    /// Returns the field with its own error for values of another type, including null; `refusal`
    /// receives their type.
    pub const fn or(mut self, refusal: fn(&str) -> Error) -> Field {
        self.refusal = Some(refusal);
        self
    }

    /// Returns the field with a further check of its values, before the fields that follow it.
    pub const fn checked(mut self, form: fn(FeatureVersion, Value<'_>) -> Result<()>) -> Field {
        self.form = Some(form);
        self
    }

    /// Returns the field with the fields of its document.
    pub const fn of(mut self, within: &'static [Field]) -> Field {
        self.within = within;
        self
    }

    /// Returns the field with the release that added it.
    pub const fn since(mut self, version: FeatureVersion) -> Field {
        self.since = version;
        self
    }
}

/// `isTimeseriesNamespace`: a router has replaced the name of a time-series collection by that of
/// its buckets.
pub(crate) const IS_TIME_SERIES_NAMESPACE: Field =
    Field::optional("isTimeseriesNamespace", Types::Switch);

/// `runtimeConstants`: values that a router has computed for all members.
pub(crate) const RUNTIME_CONSTANTS: Field = Field::optional("runtimeConstants", Types::DOCUMENT)
    .of(&[
        Field::required("localNow", Types::One(Type::DateTime)),
        Field::required("clusterTime", Types::One(Type::Timestamp)),
        Field::optional("jsScope", Types::DOCUMENT),
        Field::optional("isMapReduce", Types::BOOLEAN),
    ]);

/// `encryptionInformation`: added by drivers to commands on collections with encrypted fields,
/// which are not supported.
pub(crate) const ENCRYPTION_INFORMATION: Field =
    Field::optional("encryptionInformation", Types::DOCUMENT)
        .of(&[
            Field::optional("type", Types::NUMBER),
            Field::required("schema", Types::DOCUMENT),
            Field::optional("deleteTokens", Types::DOCUMENT),
            Field::optional("crudProcessed", Types::BOOLEAN),
        ])
        .checked(|_, _| Err(no_encrypted_schema()));

/// The types that a field permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Types {
    /// Any type: the command checks it itself.
    Any,
    /// One type.
    One(Type),
    /// Any of these; messages list them in this order.
    Of(&'static [Type]),
    /// Only a boolean, not null.
    Switch,
    /// Only a document, not null.
    Object,
    /// A name or a key pattern, not null.
    Hint,
    /// An update: a document or a pipeline, not null.
    Update,
    /// A UUID.
    Uuid,
    /// An array of documents; null is none.
    Documents,
}

impl Types {
    /// A string.
    pub const STRING: Types = Types::One(Type::String);
    /// A document.
    pub const DOCUMENT: Types = Types::One(Type::Document);
    /// An array, not null.
    pub const ARRAY: Types = Types::One(Type::Array);
    /// Only an int.
    pub const INT: Types = Types::One(Type::Int32);
    /// Only a boolean.
    pub const BOOLEAN: Types = Types::One(Type::Boolean);
    /// A number of any type.
    pub const NUMBER: Types =
        Types::Of(&[Type::Int64, Type::Int32, Type::Decimal128, Type::Double]);
    /// A boolean, or a number as one.
    pub const FLAG: Types =
        Types::Of(&[Type::Boolean, Type::Int64, Type::Int32, Type::Decimal128, Type::Double]);

    /// Returns whether this type is permitted.
    pub fn accepts(self, kind: Type) -> bool {
        match self {
            Types::Any => true,
            Types::One(only) => only == kind,
            Types::Of(several) => several.contains(&kind),
            Types::Switch => kind == Type::Boolean,
            Types::Object => kind == Type::Document,
            Types::Hint => matches!(kind, Type::String | Type::Document),
            Types::Update => matches!(kind, Type::Document | Type::Array),
            Types::Uuid => kind == Type::Binary,
            Types::Documents => kind == Type::Array,
        }
    }

    /// Returns whether a second field of this name is refused whatever its type. Other types are
    /// checked before it is.
    fn is_refused_twice(self) -> bool {
        matches!(self, Types::Any | Types::Hint | Types::Update)
    }

    /// Returns the types as messages list them.
    pub fn expected(self) -> String {
        match self {
            Types::Any => "any type".to_owned(),
            Types::One(only) => format!("type '{}'", only.alias()),
            Types::Switch => Types::BOOLEAN.expected(),
            Types::Object => Types::DOCUMENT.expected(),
            Types::Hint => Types::Of(&[Type::String, Type::Document]).expected(),
            Types::Update => Types::Of(&[Type::Document, Type::Array]).expected(),
            Types::Uuid => Types::One(Type::Binary).expected(),
            Types::Documents => Types::ARRAY.expected(),
            // mongod closes the bracket inside the quotes.
            Types::Of(several) => {
                let names: Vec<_> = several.iter().map(|kind| kind.alias()).collect();
                format!("types '[{}']", names.join(", "))
            }
        }
    }
}

/// Checks one field of `place` against its permitted fields in 6.0.
///
/// Errors: `unknown_field`, `wrong_type`.
pub(crate) fn check(place: &str, fields: &[Field], name: &BStr, kind: Type) -> Result<()> {
    check_in(FeatureVersion::V6_0, place, fields, name, kind).map(drop)
}

/// Checks one field of a command as it is read: its type and its form.
///
/// Errors: as [`check`], and those of the field's own check.
pub(crate) fn check_read<'f>(
    version: FeatureVersion,
    place: &str,
    fields: &'f [Field],
    name: &BStr,
    value: Value<'_>,
) -> Result<&'f Field> {
    let field = check_in(version, place, fields, name, value.kind())?;
    if let (Types::Uuid, Value::Binary(binary)) = (field.types, value) {
        check_uuid(place, name, binary)?;
    }
    if let (Types::Documents, Value::Array(elements)) = (field.types, value) {
        check_documents(&format!("{place}.{name}"), elements)?;
    }
    if let Some(inner) = value.as_doc().filter(|_| !field.within.is_empty()) {
        check_doc_in(version, &format!("{place}.{name}"), field.within, inner)?;
    }
    match field.form {
        Some(form) if !value.is_nullish() => form(version, value)?,
        _ => {}
    }
    Ok(field)
}

/// Checks that the elements of the array at `place` are documents.
///
/// Errors: `wrong_type`.
fn check_documents(place: &str, elements: Doc<'_>) -> Result<()> {
    let is_other = |element: &Element<'_>| {
        !matches!(element.value.kind(), Type::Document | Type::Null | Type::Undefined)
    };
    match elements.iter().find(is_other) {
        Some(Element { name, value }) => {
            Err(wrong_type(place, name, value.kind().alias(), &Types::DOCUMENT.expected()))
        }
        None => Ok(()),
    }
}

/// Checks that a binary value is a UUID.
///
/// Errors: `wrong_binary`, `bad_uuid`.
pub(crate) fn check_uuid(place: &str, field: &BStr, binary: Binary<'_>) -> Result<()> {
    match binary {
        Binary { subtype: 4, bytes } if bytes.len() == 16 => Ok(()),
        Binary { subtype: 4, .. } => Err(session::bad_uuid()),
        Binary { subtype, .. } => {
            Err(session::wrong_binary(place, field, session::subtype_name(subtype)))
        }
    }
}

/// Checks one field of `place` against its permitted fields in a release; returns its row.
///
/// Errors: as [`check`].
fn check_in<'f>(
    version: FeatureVersion,
    place: &str,
    fields: &'f [Field],
    name: &BStr,
    kind: Type,
) -> Result<&'f Field> {
    let known = fields.iter().find(|field| name == field.name && field.since <= version);
    let Some(field) = known else {
        return Err(unknown_field(place, name));
    };
    let is_accepted = field.types.accepts(kind);
    if let (Some(refusal), false) = (field.refusal, is_accepted) {
        return Err(refusal(kind.alias()));
    }
    match field.types {
        Types::Switch if !is_accepted => return Err(not_a_switch(field.name, kind.alias())),
        Types::Object if !is_accepted => return Err(not_an_object(field.name)),
        Types::Hint if !is_accepted => return Err(bad_hint()),
        Types::Update if !is_accepted => return Err(bad_update()),
        _ => {}
    }
    // Null and undefined count as absence.
    let is_nullish = matches!(kind, Type::Null | Type::Undefined);
    if is_nullish && matches!(field.types, Types::ARRAY | Types::Documents) {
        return Err(expected_object(name));
    }
    if is_accepted || is_nullish {
        return Ok(field);
    }
    Err(wrong_type(place, name, kind.alias(), &field.types.expected()))
}

/// Checks a whole document, such as one that is nested in a command.
///
/// Errors: `unknown_field`, `wrong_type`, `duplicate_field`, `missing_field`.
pub(crate) fn check_doc(place: &str, fields: &[Field], doc: Doc<'_>) -> Result<()> {
    check_doc_in(FeatureVersion::V6_0, place, fields, doc)
}

/// Checks a whole document with the fields of a release.
///
/// Errors: as [`check_doc`].
pub(crate) fn check_doc_in(
    version: FeatureVersion,
    place: &str,
    fields: &[Field],
    doc: Doc<'_>,
) -> Result<()> {
    for (at, element) in doc.iter().enumerate() {
        let known = fields.iter().find(|field| element.name == field.name);
        let is_early = |field: &&Field| {
            field.types.is_refused_twice()
                // Of an array the elements are looked at last.
                || field.types == Types::Documents && element.value.kind() == Type::Array
        };
        if let Some(field) = known.filter(is_early) {
            check_once(place, field, element, doc.iter().take(at))?;
        }
        let field = check_read(version, place, fields, element.name, element.value.get())?;
        check_once(place, field, element, doc.iter().take(at))?;
    }
    check_required(place, fields, doc)
}

/// Checks that a field is not among those before it. Null counts as absent, except for a field
/// whose type is not checked first.
///
/// Errors: `duplicate_field`.
pub(crate) fn check_once<'d>(
    place: &str,
    field: &Field,
    element: Element<'_>,
    mut before: impl Iterator<Item = Element<'d>>,
) -> Result<()> {
    let is_given = |it: Element<'_>| {
        it.name == element.name && (field.types.is_refused_twice() || !it.value.get().is_nullish())
    };
    match is_given(element) && before.any(is_given) {
        true => Err(duplicate_field(place, element.name)),
        false => Ok(()),
    }
}

/// Returns the value of a field of a document that was checked. Null counts as absent, also next to
/// a value.
pub(crate) fn given<'d>(doc: Doc<'d>, name: &str) -> Option<Value<'d>> {
    let mut values = doc.iter().filter(|element| element.name == name);
    values.find_map(|element| Some(element.value.get()).filter(|value| !value.is_nullish()))
}

/// Checks that no required field is missing.
///
/// Errors: `missing_field`.
pub(crate) fn check_required(place: &str, fields: &[Field], doc: Doc<'_>) -> Result<()> {
    let is_given = |field: &Field| {
        let mut values = doc.iter().filter(|element| element.name == field.name);
        values.any(|element| !field.is_missing(Some(element.value.get())))
    };
    match fields.iter().find(|field| field.is_required && !is_given(field)) {
        Some(field) => Err(missing_field(place, field.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    const FIELDS: &[Field] = &[
        Field::required("a", Types::STRING),
        Field::optional("b", Types::NUMBER),
        Field::optional("c", Types::Any),
    ];

    fn check_case(doc: marula_bson::DocBuf, expected: Result<(), &str>) {
        let outcome =
            check_doc("x", FIELDS, doc.as_doc()).map_err(|error| error.message().to_owned());
        assert_eq!(outcome.as_ref().map_err(String::as_str).copied(), expected);
    }

    #[test]
    fn fields_are_checked_as_mongod_does() {
        check_case(doc! { "a": "s", "b": 1, "c": {} }, Ok(()));
        check_case(doc! { "a": "s", "b": null }, Ok(()));
        check_case(doc! { "b": 1 }, Err("BSON field 'x.a' is missing but a required field"));
        check_case(doc! { "a": null }, Err("BSON field 'x.a' is missing but a required field"));
        check_case(doc! { "a": "s", "z": 1 }, Err("BSON field 'x.z' is an unknown field."));
        check_case(
            doc! { "a": 1 },
            Err("BSON field 'x.a' is the wrong type 'int', expected type 'string'"),
        );
        check_case(
            doc! { "a": "s", "b": "t" },
            Err(
                "BSON field 'x.b' is the wrong type 'string', expected types '[long, int, decimal, double']",
            ),
        );
        let any = [Field::required("index", Types::Any)];
        assert!(check_doc("x", &any, doc! { "index": null }.as_doc()).is_ok());
        assert!(check_doc("x", &any, Doc::EMPTY).is_err());
        let newer = [Field::optional("sort", Types::DOCUMENT).since(FeatureVersion::V8_0)];
        let sorted = doc! { "sort": {} };
        assert!(check_doc("x", &newer, sorted.as_doc()).is_err());
        assert!(check_doc_in(FeatureVersion::V8_0, "x", &newer, sorted.as_doc()).is_ok());
        check_case(doc! { "a": "s", "a": "t" }, Err("BSON field 'x.a' is a duplicate field"));
    }
}

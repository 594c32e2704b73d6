//! `$jsonSchema`: documents described by JSON Schema, draft 4, with MongoDB's `bsonType`.
//!
//! A [`Schema`] is a list of [`Rule`]s, in the order in which a failed validation reports them. A
//! rule restricts values of one type and holds for all others. A schema is either at the *root*,
//! where it describes a whole document, or under a name, an item or a pattern; at the root, rules
//! on numbers, strings and arrays have no effect and are dropped.
//!
//! `parse` parses keywords, `matching` evaluates rules on a value's bytes, `unordered` is the
//! equality that ignores the order of fields, `encrypt` is the keyword of that name.

mod encrypt;
pub(crate) mod matching;
mod parse;
pub(crate) mod unordered;

use std::sync::Arc;

use marula_bson::{Decimal128, Doc, DocBuf, FieldPath, RawValue, Type, ValueBuf};
use marula_error::{Result, errors};

pub(crate) use encrypt::Encryption;

use crate::context::Context;
use crate::field_map::FieldMap;
use crate::filter::{Compare, Node, TypeSet};
use crate::regex::Regex;

errors! {
    /// The operand of `$jsonSchema` is not an object.
    schema_not_an_object() = TypeMismatch, "$jsonSchema must be an object";
}

/// A schema as a node of a filter: its rules, and its text for printing.
#[derive(Clone, Debug)]
pub struct SchemaNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    schema: Schema,
    text: DocBuf,
    mentions_encryption: bool,
}

/// The conditions on a value.
#[derive(Debug)]
pub(crate) enum Schema {
    /// No value satisfies it: a type at the root that no document has.
    Never,
    /// Every rule must hold.
    Rules(Vec<Rule>),
}

/// The condition of one keyword, or of two related ones.
#[derive(Debug)]
pub(crate) enum Rule {
    /// `multipleOf`, of numbers.
    MultipleOf(Decimal128),
    /// `maximum` or `minimum` with its `exclusive…`, of numbers.
    Bound(Compare),
    /// `pattern`, of strings.
    Pattern {
        /// The pattern.
        regex: Regex,
        /// Whether it also applies to regular expressions, as it does if the schema names no type
        /// except `string`; they then fail by their type and by the pattern.
        is_strict: bool,
    },
    /// `maxLength`, of strings, in code points.
    MaxLength(u64),
    /// `minLength`, of strings, in code points.
    MinLength(u64),
    /// `minItems`, of arrays.
    MinItems(u64),
    /// `maxItems`, of arrays.
    MaxItems(u64),
    /// `uniqueItems`, of arrays.
    UniqueItems,
    /// `items` with one schema for all elements.
    Items(Schema),
    /// `items` with a schema for each position.
    ItemsByPlace(Vec<Schema>),
    /// `additionalItems`: the elements after the positions of `items`.
    AdditionalItems {
        /// The first such position.
        from: usize,
        /// The schema that they must satisfy; `None` allows none.
        allowed: Option<Schema>,
    },
    /// `properties`, of objects.
    Properties(Vec<Property>),
    /// `patternProperties` and `additionalProperties`, of objects.
    OtherProperties(OtherProperties),
    /// `required`, of objects.
    Required(Vec<FieldPath>),
    /// `minProperties`, of objects.
    MinProperties(u64),
    /// `maxProperties`, of objects.
    MaxProperties(u64),
    /// `dependencies`, of objects.
    Dependencies(Vec<(FieldPath, Dependency)>),
    /// `allOf`.
    AllOf(Vec<Schema>),
    /// `anyOf`.
    AnyOf(Vec<Schema>),
    /// `oneOf`.
    OneOf(Vec<Schema>),
    /// `not`.
    Not(Box<Schema>),
    /// `enum`.
    Enum(Vec<ValueBuf>),
    /// `encrypt`.
    Encrypt(Encryption),
    /// `type` or `bsonType`.
    Types {
        /// The name of the keyword.
        keyword: &'static str,
        /// The named types.
        types: TypeSet,
    },
}

/// Represents a missing value: a type that no keyword refers to, with bytes that no value of that
/// type has.
pub(crate) const MISSING: RawValue<'static> = RawValue::new(Type::Undefined, b"missing");

/// A property and its schema.
#[derive(Debug)]
pub(crate) struct Property {
    /// The path: dots lead into documents here too. An empty name is the object itself.
    pub(crate) path: FieldPath,
    /// The schema for its value if it exists.
    pub(crate) schema: Schema,
    /// Whether `required` names it too.
    pub(crate) is_required: bool,
}

/// Schemas for properties by pattern, and for properties that neither a name nor a pattern covers.
#[derive(Debug)]
pub(crate) struct OtherProperties {
    /// The names in `properties`.
    pub(crate) names: FieldMap<()>,
    /// `patternProperties`.
    pub(crate) patterns: Vec<(Regex, Schema)>,
    /// `additionalProperties`.
    pub(crate) additional: Additional,
}

/// The condition on properties that nothing else covers.
#[derive(Debug)]
pub(crate) enum Additional {
    /// Any value is allowed.
    Anything,
    /// None are allowed.
    Nothing,
    /// They must satisfy a schema.
    Schema(Box<Schema>),
}

/// The condition if a property exists.
#[derive(Debug)]
pub(crate) enum Dependency {
    /// These properties must exist too.
    Properties(Vec<FieldPath>),
    /// The object must satisfy a schema.
    Schema(Schema),
}

impl SchemaNode {
    /// Parses the operand of `$jsonSchema`.
    pub fn parse(operand: RawValue<'_>) -> Result<SchemaNode> {
        let text = operand.get().as_doc().ok_or_else(schema_not_an_object)?;
        let (schema, mentions_encryption) = parse::root(text)?;
        Ok(SchemaNode(Arc::new(Inner { schema, text: text.to_buf(), mentions_encryption })))
    }

    /// Returns whether the document satisfies the schema.
    pub fn matches(&self, doc: Doc<'_>) -> bool {
        self.0.schema.matches(RawValue::new(Type::Document, doc.as_bytes()))
    }

    /// The array index for the positional `$` if the document satisfies the schema.
    pub(crate) fn position(&self, doc: Doc<'_>) -> Option<usize> {
        self.0.schema.position(doc)
    }

    /// Returns whether the schema only restricts the number and names of fields.
    pub(crate) fn is_of_names(&self) -> bool {
        self.0.schema.is_of_names()
    }

    /// Returns whether the schema consists only of `required`.
    pub(crate) fn is_of_required(&self) -> bool {
        self.0.schema.is_of_required()
    }

    /// Returns whether the schema has more than one condition on the document.
    pub(crate) fn is_of_several(&self) -> bool {
        self.0.schema.is_of_several()
    }

    /// The schema as written by the client.
    pub fn text(&self) -> Doc<'_> {
        self.0.text.as_doc()
    }

    /// Returns whether the schema, or one nested in it, has `encrypt` or `encryptMetadata`.
    pub fn mentions_encryption(&self) -> bool {
        self.0.mentions_encryption
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.0.schema
    }
}

/// Parses a schema into a filter node.
pub(crate) fn parse(operand: RawValue<'_>, _context: &Context) -> Result<Node> {
    SchemaNode::parse(operand).map(Node::Schema)
}

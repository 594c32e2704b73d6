//! `$jsonSchema`: documents described by JSON Schema, draft 4, with MongoDB's `bsonType`.
//!
//! A [`Schema`] is a list of [`Rule`]s, in the order in which a failed validation reports them. A
//! rule speaks of values of one type and holds for all others. A schema stands either at the
//! *root*, where it speaks of a whole document, or under a name, an item or a pattern; at the root,
//! rules on numbers, strings and arrays say nothing and are dropped.
//!
//! `parse` reads keywords, `matching` tries rules on a value's bytes, `unordered` is the equality
//! that does not see the order of fields, `encrypt` is the keyword of that name.

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
    /// The operand is no object.
    schema_not_an_object() = TypeMismatch, "$jsonSchema must be an object";
}

/// A schema as a node of a filter: what it says, and its text to print.
#[derive(Clone, Debug)]
pub struct SchemaNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    schema: Schema,
    text: DocBuf,
    mentions_encryption: bool,
}

/// What a value must satisfy.
#[derive(Debug)]
pub(crate) enum Schema {
    /// No value does: a type at the root that no document has.
    Never,
    /// Every rule holds.
    Rules(Vec<Rule>),
}

/// What one keyword says, or two that belong together.
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
        /// Whether it is tried on regular expressions too, as it is where the schema names no type
        /// but `string`; they fail by their type then, and by the pattern beside it.
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
    /// `items` with one schema for all.
    Items(Schema),
    /// `items` with a schema for each place.
    ItemsByPlace(Vec<Schema>),
    /// `additionalItems`: what stands behind the places that `items` speaks of.
    AdditionalItems {
        /// The first such place.
        from: usize,
        /// What they must satisfy; `None` allows none.
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
        /// Which of the two.
        keyword: &'static str,
        /// The types named.
        types: TypeSet,
    },
}

/// What stands for a value that is not there: of a type that no keyword speaks of, with bytes that
/// no value of that type has.
pub(crate) const MISSING: RawValue<'static> = RawValue::new(Type::Undefined, b"missing");

/// A property and its schema.
#[derive(Debug)]
pub(crate) struct Property {
    /// Where it is: dots lead into documents here too. An empty name is the object itself.
    pub(crate) path: FieldPath,
    /// What it must satisfy where it is there.
    pub(crate) schema: Schema,
    /// Whether `required` names it too.
    pub(crate) is_required: bool,
}

/// Schemas for properties by pattern, and for those that neither a name nor a pattern covers.
#[derive(Debug)]
pub(crate) struct OtherProperties {
    /// The names in `properties`.
    pub(crate) names: FieldMap<()>,
    /// `patternProperties`.
    pub(crate) patterns: Vec<(Regex, Schema)>,
    /// `additionalProperties`.
    pub(crate) additional: Additional,
}

/// What properties that nothing else speaks of must satisfy.
#[derive(Debug)]
pub(crate) enum Additional {
    /// Nothing.
    Anything,
    /// They must not be there.
    Nothing,
    /// A schema.
    Schema(Box<Schema>),
}

/// What must hold where a property is there.
#[derive(Debug)]
pub(crate) enum Dependency {
    /// These properties are there too.
    Properties(Vec<FieldPath>),
    /// The object satisfies a schema.
    Schema(Schema),
}

impl SchemaNode {
    /// Parses the operand of `$jsonSchema`.
    pub fn parse(operand: RawValue<'_>) -> Result<SchemaNode> {
        let text = operand.get().as_doc().ok_or_else(schema_not_an_object)?;
        let (schema, mentions_encryption) = parse::root(text)?;
        Ok(SchemaNode(Arc::new(Inner { schema, text: text.to_buf(), mentions_encryption })))
    }

    /// Whether the document satisfies the schema.
    pub fn matches(&self, doc: Doc<'_>) -> bool {
        self.0.schema.matches(RawValue::new(Type::Document, doc.as_bytes()))
    }

    /// The array index that the positional `$` stands for where the document satisfies the schema.
    pub(crate) fn position(&self, doc: Doc<'_>) -> Option<usize> {
        self.0.schema.position(doc)
    }

    /// Whether the schema only counts and names the document's fields.
    pub(crate) fn is_of_names(&self) -> bool {
        self.0.schema.is_of_names()
    }

    /// Whether the schema only says which fields must be there.
    pub(crate) fn is_of_required(&self) -> bool {
        self.0.schema.is_of_required()
    }

    /// Whether the schema asks for more than one thing of the document.
    pub(crate) fn is_of_several(&self) -> bool {
        self.0.schema.is_of_several()
    }

    /// The schema as the client wrote it.
    pub fn text(&self) -> Doc<'_> {
        self.0.text.as_doc()
    }

    /// Whether the schema or one within it has `encrypt` or `encryptMetadata`.
    pub fn mentions_encryption(&self) -> bool {
        self.0.mentions_encryption
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.0.schema
    }
}

/// Parses a schema into the filter node that says the same.
pub(crate) fn parse(operand: RawValue<'_>, _context: &Context) -> Result<Node> {
    SchemaNode::parse(operand).map(Node::Schema)
}

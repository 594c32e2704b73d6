//! Rules of `$jsonSchema` that a document violates.
//!
//! A schema's rules are reported together with its text, which has the operands as the client wrote
//! them.

use marula_bson::{ArrayWriter, Doc, DocWriter, FieldPath, RawValue, Type, Value};

use super::Report;
use super::clause::Leaf;
use crate::filter::{CompareOp, Node};
use crate::json_schema::matching::{count, exists, object};
use crate::json_schema::{
    Additional, Dependency, MISSING, OtherProperties, Property, Rule, Schema, unordered,
};

const ALWAYS_FALSE: &str = "expression always evaluates to false";
const LENGTH: &str = "specified string length was not satisfied";
const COUNT_OF_ITEMS: &str = "array did not match specified length";
const COUNT_OF_PROPERTIES: &str = "specified number of properties was not satisfied";

/// Writes a schema's `title` and `description`.
pub(super) fn write_annotations(text: Doc<'_>, out: &mut DocWriter<'_>) {
    for name in ["title", "description"] {
        if let Some(value @ Value::String(_)) = text.get(name) {
            out.append(name, value);
        }
    }
}

/// Returns the schema in the text of another under a keyword and, if the keyword has several, at a
/// name or index.
fn inner<'a>(text: Doc<'a>, keyword: &str, name: Option<&[u8]>) -> Doc<'a> {
    let value = text.get_raw(keyword.as_bytes());
    let value = match (name, value) {
        (Some(name), Some(parent)) => Doc::trusted(parent.bytes()).get_raw(name),
        (_, value) => value,
    };
    value.and_then(|value| value.get().as_doc()).unwrap_or(Doc::EMPTY)
}

/// The schemas in a list, in order.
fn listed<'a>(text: Doc<'a>, keyword: &str) -> impl Iterator<Item = Doc<'a>> {
    let list = text.get(keyword).and_then(|list| list.as_array()).unwrap_or(Doc::EMPTY);
    list.values().map(|schema| schema.as_doc().unwrap_or(Doc::EMPTY))
}

/// The items of an array to which a schema applies: all, or those without a schema for their index.
struct Items<'a> {
    schema: &'a Schema,
    array: Doc<'a>,
    /// The number of first items to which it does not apply.
    from: usize,
}

impl Report<'_> {
    /// Reports a whole `$jsonSchema`.
    pub(super) fn json_schema(&mut self, leaf: &Leaf, inverted: bool, out: &mut DocWriter<'_>) {
        let Node::Schema(node) = leaf.filter.root() else { return };
        let text = node.text();
        match node.schema() {
            _ if inverted => {
                out.append("operatorName", "$jsonSchema");
                out.append("reason", "schema matched");
            }
            Schema::Never => self.never(text, out),
            Schema::Rules(rules) => {
                out.append("operatorName", "$jsonSchema");
                write_annotations(text, out);
                let value = RawValue::new(Type::Document, self.doc.as_bytes());
                self.rules(rules, text, value, out.begin_array("schemaRulesNotSatisfied"));
            }
        }
    }

    fn never(&mut self, text: Doc<'_>, out: &mut DocWriter<'_>) {
        out.append("operatorName", "$jsonSchema");
        self.specified(out, |out| {
            out.append("$jsonSchema", text);
        });
        out.append("reason", ALWAYS_FALSE);
    }

    /// Writes the `details` of a schema that the value does not satisfy.
    fn details(
        &mut self,
        schema: &Schema,
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        match schema {
            Schema::Never => self.never(text, &mut out.begin_doc("details")),
            Schema::Rules(rules) => self.rules(rules, text, value, out.begin_array("details")),
        }
    }

    fn rules(
        &mut self,
        rules: &[Rule],
        text: Doc<'_>,
        value: RawValue<'_>,
        mut out: ArrayWriter<'_>,
    ) {
        for rule in rules {
            if self.is_full() {
                return;
            }
            match rule {
                Rule::OtherProperties(others) => self.others(others, text, value, &mut out),
                Rule::Properties(properties) => self.properties(properties, text, value, &mut out),
                rule if is_reported(rule, value) => {
                    self.rule(rule, text, value, &mut out.begin_doc());
                }
                _ => {}
            }
        }
    }

    fn rule(&mut self, rule: &Rule, text: Doc<'_>, value: RawValue<'_>, out: &mut DocWriter<'_>) {
        let object = Doc::trusted(value.bytes());
        match rule {
            Rule::MultipleOf(_) => {
                let reason = "considered value is not a multiple of the specified value";
                self.scalar(&["multipleOf"], reason, text, value, out);
            }
            Rule::Bound(bound) => {
                let keywords: &[&str] = match bound.op {
                    CompareOp::Lt => &["maximum", "exclusiveMaximum"],
                    CompareOp::Gt => &["minimum", "exclusiveMinimum"],
                    CompareOp::Gte => &["minimum"],
                    _ => &["maximum"],
                };
                self.scalar(keywords, "comparison failed", text, value, out);
            }
            Rule::Pattern { .. } => {
                self.scalar(&["pattern"], "regular expression did not match", text, value, out);
            }
            Rule::MaxLength(_) => self.scalar(&["maxLength"], LENGTH, text, value, out),
            Rule::MinLength(_) => self.scalar(&["minLength"], LENGTH, text, value, out),
            Rule::MinItems(_) => self.item_count("minItems", text, value, out),
            Rule::MaxItems(_) => self.item_count("maxItems", text, value, out),
            Rule::UniqueItems => {
                self.begin(&["uniqueItems"], text, out);
                out.append("reason", "found a duplicate item");
                self.value("consideredValue", value, out);
                if let Some(duplicate) = unordered::first_duplicate(object) {
                    self.value("duplicatedValue", duplicate, out);
                }
            }
            Rule::Items(schema) => {
                let reason = "At least one item did not match the sub-schema";
                let items = Items { schema, array: object, from: 0 };
                self.item("items", reason, items, text, out);
            }
            Rule::ItemsByPlace(schemas) => self.items_by_place(schemas, text, object, out),
            Rule::AdditionalItems { from, allowed: Some(schema) } => {
                let reason = "At least one additional item did not match the sub-schema";
                let items = Items { schema, array: object, from: *from };
                self.item("additionalItems", reason, items, text, out);
            }
            Rule::AdditionalItems { from, allowed: None } => {
                // These are shown in full in a truncated report too.
                out.append("operatorName", "additionalItems");
                out.begin_doc("specifiedAs").append("additionalItems", false);
                out.append("reason", "found additional items");
                let mut items = out.begin_array("additionalItems");
                for item in object.iter().skip(*from) {
                    if self.spend(item.value.bytes().len()) {
                        items.push_raw(item.value);
                    }
                }
            }
            // These may have no report or two, so the caller writes them.
            Rule::Properties(_) | Rule::OtherProperties(_) => {}
            Rule::Required(paths) => {
                self.begin(&["required"], text, out);
                write_missing(paths, object, out);
            }
            Rule::MinProperties(_) => self.property_count("minProperties", text, object, out),
            Rule::MaxProperties(_) => self.property_count("maxProperties", text, object, out),
            Rule::Dependencies(list) => self.dependencies(list, text, value, out),
            Rule::AllOf(schemas) => self.failing("allOf", schemas, text, value, out),
            Rule::AnyOf(schemas) => self.failing("anyOf", schemas, text, value, out),
            Rule::OneOf(schemas) => self.one_of(schemas, text, value, out),
            Rule::Not(_) => {
                out.append("operatorName", "not");
                out.append("reason", "child expression matched");
            }
            Rule::Enum(values) if values.is_empty() => {
                self.begin(&["enum"], text, out);
                out.append("reason", ALWAYS_FALSE);
            }
            Rule::Enum(_) => {
                self.scalar(&["enum"], "value was not found in enum", text, value, out);
            }
            Rule::Encrypt(encryption) => {
                out.append("operatorName", "encrypt");
                if let Some(reason) = encryption.failure(value) {
                    out.append("reason", reason);
                }
            }
            Rule::Types { keyword, .. } => {
                self.scalar(&[keyword], "type did not match", text, value, out);
                out.append("consideredType", value.kind().alias());
            }
        }
    }

    /// Writes the rule's name, which is the first of `keywords`, and the values of all of them.
    fn begin(&mut self, keywords: &[&str], text: Doc<'_>, out: &mut DocWriter<'_>) {
        if let Some(name) = keywords.first() {
            out.append("operatorName", *name);
        }
        self.specified(out, |out| {
            for keyword in keywords {
                if let Some(operand) = text.get_raw(keyword.as_bytes()) {
                    out.append_raw(keyword, operand);
                }
            }
        });
    }

    fn scalar(
        &mut self,
        keywords: &[&str],
        reason: &str,
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        self.begin(keywords, text, out);
        out.append("reason", reason);
        self.considered_value(value, out);
    }

    fn item_count(
        &mut self,
        keyword: &str,
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        self.begin(&[keyword], text, out);
        out.append("reason", COUNT_OF_ITEMS);
        // Shown in a truncated report too.
        self.value("consideredValue", value, out);
        out.append("numberOfItems", number(count(Doc::trusted(value.bytes()))));
    }

    fn property_count(
        &mut self,
        keyword: &str,
        text: Doc<'_>,
        object: Doc<'_>,
        out: &mut DocWriter<'_>,
    ) {
        self.begin(&[keyword], text, out);
        out.append("reason", COUNT_OF_PROPERTIES);
        out.append("numberOfProperties", number(count(object)));
    }

    /// Reports the first of the items that does not satisfy the schema.
    fn item(
        &mut self,
        keyword: &str,
        reason: &str,
        items: Items<'_>,
        text: Doc<'_>,
        out: &mut DocWriter<'_>,
    ) {
        let Items { schema, array, from } = items;
        let text = inner(text, keyword, None);
        out.append("operatorName", keyword);
        write_annotations(text, out);
        out.append("reason", reason);
        let mut items = (0_i32..).zip(array).skip(from);
        if let Some((index, item)) = items.find(|(_, item)| !schema.matches(item.value)) {
            out.append("itemIndex", index);
            self.details(schema, text, item.value, out);
        }
    }

    fn items_by_place(
        &mut self,
        schemas: &[Schema],
        text: Doc<'_>,
        array: Doc<'_>,
        out: &mut DocWriter<'_>,
    ) {
        out.append("operatorName", "items");
        let mut details = out.begin_array("details");
        let places = (0_i64..).zip(schemas).zip(listed(text, "items")).zip(array);
        for (((index, schema), text), item) in places {
            if !schema.matches(item.value) {
                let mut entry = details.begin_doc();
                entry.append("itemIndex", index);
                self.details(schema, text, item.value, &mut entry);
            }
        }
    }

    fn properties(
        &mut self,
        properties: &[Property],
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut ArrayWriter<'_>,
    ) {
        let Some(object) = object(value) else { return };
        let texts = text.get("properties").and_then(|texts| texts.as_doc()).unwrap_or(Doc::EMPTY);
        let mut failing = properties
            .iter()
            .zip(texts)
            .filter_map(|(property, element)| {
                let value = property.failing(object).or_else(|| missing(property, object))?;
                Some((property, element, value))
            })
            .peekable();
        if failing.peek().is_none() {
            return;
        }
        let mut out = out.begin_doc();
        out.append("operatorName", "properties");
        let mut entries = out.begin_array("propertiesNotSatisfied");
        for (property, element, value) in failing {
            let text = element.value.get().as_doc().unwrap_or(Doc::EMPTY);
            let mut entry = entries.begin_doc();
            entry.append("propertyName", element.name);
            write_annotations(text, &mut entry);
            self.details(&property.schema, text, value, &mut entry);
        }
    }

    /// Reports `additionalProperties`, `patternProperties` or both.
    fn others(
        &mut self,
        others: &OtherProperties,
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut ArrayWriter<'_>,
    ) {
        let Some(object) = object(value) else { return };
        let mut additional = object.iter().filter(|element| others.is_additional(element.name));
        match &others.additional {
            Additional::Anything => {}
            Additional::Nothing => {
                let mut additional = additional.peekable();
                if additional.peek().is_some() {
                    let mut entry = out.begin_doc();
                    entry.append("operatorName", "additionalProperties");
                    entry.begin_doc("specifiedAs").append("additionalProperties", false);
                    let mut names = entry.begin_array("additionalProperties");
                    for element in additional {
                        if self.spend(element.name.len()) {
                            names.push(element.name);
                        }
                    }
                }
            }
            Additional::Schema(schema) => {
                if let Some(element) = additional.find(|element| !schema.matches(element.value)) {
                    let text = inner(text, "additionalProperties", None);
                    let mut entry = out.begin_doc();
                    entry.append("operatorName", "additionalProperties");
                    write_annotations(text, &mut entry);
                    let reason = "at least one additional property did not match the subschema";
                    entry.append("reason", reason);
                    if self.spend(element.name.len()) {
                        entry.append("failingProperty", element.name);
                    }
                    self.details(schema, text, element.value, &mut entry);
                }
            }
        }
        self.patterns(others, text, object, out);
    }

    /// Reports, of each pattern, the first property that does not satisfy its schema.
    fn patterns(
        &mut self,
        others: &OtherProperties,
        text: Doc<'_>,
        object: Doc<'_>,
        out: &mut ArrayWriter<'_>,
    ) {
        let fails = |at: usize| {
            let (regex, schema) = &others.patterns[at];
            object
                .iter()
                .find(|element| regex.is_match(element.name) && !schema.matches(element.value))
        };
        let failing: Vec<_> =
            (0..others.patterns.len()).filter_map(|at| Some((at, fails(at)?))).collect();
        if failing.is_empty() {
            return;
        }
        let mut entry = out.begin_doc();
        entry.append("operatorName", "patternProperties");
        let mut details = entry.begin_array("details");
        for (at, element) in failing {
            let (regex, schema) = &others.patterns[at];
            let text = inner(text, "patternProperties", Some(regex.pattern()));
            let mut entry = details.begin_doc();
            if self.spend(element.name.len()) {
                entry.append("propertyName", element.name);
            }
            write_annotations(text, &mut entry);
            entry.append("regexMatched", Value::String(regex.pattern().into()));
            self.details(schema, text, element.value, &mut entry);
        }
    }

    fn dependencies(
        &mut self,
        list: &[(FieldPath, Dependency)],
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        let object = Doc::trusted(value.bytes());
        let texts = text.get("dependencies").and_then(|texts| texts.as_doc()).unwrap_or(Doc::EMPTY);
        out.append("operatorName", "dependencies");
        let mut entries = out.begin_array("failingDependencies");
        for ((path, dependency), element) in list.iter().zip(texts) {
            if !exists(path, object) || dependency.holds(object) {
                continue;
            }
            let mut entry = entries.begin_doc();
            entry.append("conditionalProperty", element.name);
            match dependency {
                Dependency::Properties(paths) => write_missing(paths, object, &mut entry),
                Dependency::Schema(schema) => {
                    let text = element.value.get().as_doc().unwrap_or(Doc::EMPTY);
                    self.details(schema, text, value, &mut entry);
                }
            }
        }
    }

    /// Reports the schemas of a list that the value does not satisfy.
    fn failing(
        &mut self,
        keyword: &str,
        schemas: &[Schema],
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        out.append("operatorName", keyword);
        let mut entries = out.begin_array("schemasNotSatisfied");
        for ((index, schema), text) in (0_i32..).zip(schemas).zip(listed(text, keyword)) {
            if !schema.matches(value) {
                let mut entry = entries.begin_doc();
                entry.append("index", index);
                write_annotations_unless_never(schema, text, &mut entry);
                self.details(schema, text, value, &mut entry);
            }
        }
    }

    fn one_of(
        &mut self,
        schemas: &[Schema],
        text: Doc<'_>,
        value: RawValue<'_>,
        out: &mut DocWriter<'_>,
    ) {
        if !schemas.iter().any(|schema| schema.matches(value)) {
            return self.failing("oneOf", schemas, text, value, out);
        }
        out.append("operatorName", "oneOf");
        out.append("reason", "more than one subschema matched");
        let mut indexes = out.begin_array("matchingSchemaIndexes");
        for (index, schema) in (0_i32..).zip(schemas) {
            if schema.matches(value) {
                indexes.push(index);
            }
        }
    }
}

/// Returns whether the rule has a report: for a missing value, its type and its equality have none.
fn is_reported(rule: &Rule, value: RawValue<'_>) -> bool {
    let is_silent = value == MISSING && matches!(rule, Rule::Types { .. } | Rule::Enum(_));
    !is_silent && !rule.holds(value)
}

/// Returns a property that is required and missing, if its schema has a report for that.
fn missing(property: &Property, object: Doc<'_>) -> Option<RawValue<'static>> {
    if !property.is_required || exists(&property.path, object) {
        return None;
    }
    let Schema::Rules(rules) = &property.schema else { return None };
    rules.iter().any(|rule| is_reported(rule, MISSING)).then_some(MISSING)
}

/// A schema that no document satisfies is shown whole, so its annotations are not repeated.
fn write_annotations_unless_never(schema: &Schema, text: Doc<'_>, out: &mut DocWriter<'_>) {
    if !matches!(schema, Schema::Never) {
        write_annotations(text, out);
    }
}

fn write_missing(paths: &[FieldPath], object: Doc<'_>, out: &mut DocWriter<'_>) {
    let mut missing = out.begin_array("missingProperties");
    for path in paths.iter().filter(|path| !exists(path, object)) {
        missing.push(&path.to_string());
    }
}

/// Converts a count of elements, which a document's size keeps far below the limit of an int.
fn number(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

//! The parser of projection documents.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, DocBuf, Element, Type, Value};
use marula_error::{Error, Result, errors};

use super::Policy;
use super::metadata::Meta;
use super::slice::{Mismatch, Slice};
use super::tree::{Child, Collision, Computed, Node};
use crate::context::Context;
use crate::expression::operators::meta::{no_near_distance, no_near_point};
use crate::expression::path::{PARTS_MAX, may_start_with_dollar, path_too_long};
use crate::expression::{Expression, Operator, Path, Scope};
use crate::filter::{Filter, Purpose};

errors! {
    no_text_score() = 40_218, "query requires text score metadata, but it is not available";
    /// A stage's projection has no fields.
    empty() = 51272, "projection specification must have at least one field";
    /// A field's value is an empty object.
    empty_object() = 51270, "An empty sub-projection is not a valid value. Found empty object at path";
    /// A path leads into a value that another path names.
    collision_below(path: &str, rest: &str) = 31249, "Path collision at {path} remaining portion {rest}";
    /// A path names a value that another path leads into, or the same value.
    collision_above(path: &str) = 31250, "Path collision at {path}";
    /// A field is included where others are excluded.
    inclusion_in_exclusion(name: &BStr) = 31253, "Cannot do inclusion on field {name} in exclusion projection";
    /// A field is excluded where others are included.
    exclusion_in_inclusion(name: &BStr) = 31254, "Cannot do exclusion on field {name} in inclusion projection";
    /// A field is computed where others are excluded.
    expression_in_exclusion() = 31252, "Cannot use expression other than $meta in exclusion projection";
    /// A field gets a literal where others are excluded.
    literal_in_exclusion(element: Element<'_>) = 31310, "Cannot use an expression {element} in an exclusion projection";
    /// An object names no operator.
    unknown_expression(name: &BStr) = 31325, "Unknown expression {name}";
    /// `$` in the middle of a path.
    positional_in_the_middle() = 31394, "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.";
    /// `a.$: 0`.
    positional_exclusion() = 31395, "positional projection cannot be used with exclusion";
    /// `a.$: { … }`.
    positional_object() = 31271, "positional projection cannot be used with an expression or sub object";
    /// `a.$: "text"`.
    positional_literal() = 31308, "positional projection cannot be used with a literal";
    /// `.$: 1`, without a path.
    positional_nothing(name: &BStr) = 5_392_900, "Projection on field {name} is invalid";
    /// Two positional paths.
    positional_twice() = 31276, "Cannot specify more than one positional projection per query.";
    /// `$elemMatch` after a positional path.
    elem_match_after_positional() = 31255, "Cannot specify positional operator and $elemMatch.";
    /// A positional path after `$elemMatch`.
    positional_after_elem_match() = 31256, "Cannot specify positional operator and $elemMatch.";
    /// A positional path in a stage.
    positional_in_stage() = 31324, "Cannot use positional projection in aggregation projection";
    /// `$elemMatch` in a stage.
    elem_match_in_stage() = InvalidPipelineOperator, "Cannot use $elemMatch in this context";
    /// `$elemMatch` at a path with dots.
    elem_match_nested() = 31275, "Cannot use $elemMatch projection on a nested field.";
    /// `$elemMatch` with an operand that is not an object.
    elem_match_operand(kind: &str) = 31274, "elemMatch: Invalid argument, object required, but got {kind}";
    /// `$where` in `$elemMatch`.
    where_not_allowed() = BadValue, "$where is not allowed in this context";
    /// `$slice` with neither a number nor an array.
    slice_type() = 31273, "$slice only supports numbers and [skip, limit] arrays";
    /// `$slice` with a skip that is not a number.
    slice_skip(kind: &str) = 31257, "$slice expects the skip argument to be a number, got {kind}";
    /// `$slice` with a limit that is not a number.
    slice_limit_type(kind: &str) = 31258, "$slice expects the limit argument to be a number, got {kind}";
    /// `$slice` with a limit that is not positive.
    slice_limit(limit: i64) = 31259, "$slice limit must be positive, got {limit}";
    /// `$slice` with another array.
    slice_array_shape() = 31272, "$slice array argument should be of form [skip, limit]";
    /// A field of an object is deeper than a path may be.
    nested_too_long() = Overflow, "FieldPath concat would be too long";
    /// `$meta` with an operand that is not a string.
    meta_not_a_string() = 17307, "$meta only supports string arguments";
    /// `$meta` with an unknown name.
    meta_unknown(name: &BStr) = 17308, "Unsupported argument to $meta: {name}";
}

/// The result of the parser.
pub(super) struct Parsed {
    pub(super) root: Node,
    pub(super) inclusion: bool,
    pub(super) positional: Option<Vec<Box<[u8]>>>,
    pub(super) metadata: Vec<Meta>,
}

/// Whether a projection includes or excludes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProjectionKind {
    Inclusion,
    Exclusion,
}

struct Parser<'c> {
    policy: Policy,
    /// The query whose array positions a positional path shows; `None` if there is none.
    query: Option<Doc<'c>>,
    context: &'c Context,
    scope: Scope<'c>,
    root: Node,
    /// Decided by the first field other than `_id` that includes or excludes.
    kind: Option<ProjectionKind>,
    /// Whether `_id` itself is included or excluded.
    id: Option<bool>,
    positional: Option<Vec<Box<[u8]>>>,
    has_elem_match: bool,
    has_slice: bool,
    metadata: Vec<Meta>,
    /// The error of a path that nested objects make too long, which is reported after all others.
    too_long: Option<Error>,
}

pub(super) fn parse(
    doc: Doc<'_>,
    policy: Policy,
    query: Option<Doc<'_>>,
    context: &Context,
) -> Result<Parsed> {
    if policy == Policy::Aggregate && doc.is_empty() {
        return Err(empty());
    }
    let mut parser = Parser {
        policy,
        query,
        context,
        scope: Scope::new(context),
        root: Node::default(),
        kind: None,
        id: None,
        positional: None,
        has_elem_match: false,
        has_slice: false,
        metadata: Vec::new(),
        too_long: None,
    };
    for element in doc {
        parser.element(&[], element)?;
    }
    parser.finish()
}

impl Parser<'_> {
    fn finish(mut self) -> Result<Parsed> {
        match self.too_long {
            // The stage makes its exclusion in a second step, and says so twice.
            Some(error)
                if self.policy == Policy::Aggregate
                    && self.kind == Some(ProjectionKind::Exclusion) =>
            {
                return Err(error.caused_by("Invalid $project"));
            }
            Some(error) => return Err(error),
            None => {}
        }
        // If no field includes or excludes, `_id` decides. Computed fields alone are all that is
        // shown, except for `$meta` in a find, which adds to the document.
        let undecided = match self.policy {
            _ if self.id == Some(true) => ProjectionKind::Inclusion,
            Policy::Find if self.has_elem_match && !self.has_slice => ProjectionKind::Inclusion,
            Policy::Aggregate if !self.metadata.is_empty() => ProjectionKind::Inclusion,
            _ => ProjectionKind::Exclusion,
        };
        let inclusion = self.kind.unwrap_or(undecided) == ProjectionKind::Inclusion;
        if inclusion && self.root.children.find(b"_id").is_none() {
            self.root.children.push(b"_id", Child::Keep);
        }
        self.root.note_actions();
        Ok(Parsed {
            root: self.root,
            inclusion,
            positional: self.positional,
            metadata: self.metadata,
        })
    }

    /// Parses one field of the projection, or of an object in it with the path `prefix`.
    fn element(&mut self, prefix: &[Box<[u8]>], element: Element<'_>) -> Result<()> {
        let (text, is_positional) = self.split_positional(element.name)?;
        let value = element.value.get();
        // These errors come before those of the path.
        let literal = match value {
            Value::Document(doc) if doc.is_empty() && !is_positional => return Err(empty_object()),
            Value::Document(_) | Value::Boolean(_) => None,
            _ if value.kind().is_number() || is_positional => None,
            literal => Some(Expression::parse(literal, &mut self.scope)?),
        };
        if is_positional {
            check_positional(element.name, value)?;
        }
        let path = Path::parse(text)?;
        // A field that is too deep counts, as far as it may nest, for the errors of the others.
        let parts = &path.parts()[..path.parts().len().min(PARTS_MAX - prefix.len())];
        if parts.len() < path.parts().len() {
            let is_nested = value.as_doc().is_some_and(|doc| !is_operator(doc));
            self.too_long = Some(if is_nested { nested_too_long() } else { path_too_long() });
        }
        let at = ProjectionPath { prefix, parts };
        match (value, literal) {
            (_, Some(expression)) => self.literal(&at, expression, element),
            (Value::Document(doc), _) => self.object(&at, doc, element),
            (choice, _) => self.choice(&at, choice.is_truthy(), is_positional, element.name),
        }
    }

    /// `field: "text"` and `field: "$path"`.
    fn literal(
        &mut self,
        at: &ProjectionPath<'_>,
        expression: Expression,
        element: Element<'_>,
    ) -> Result<()> {
        self.add(at, Child::Computed(Computed::Expression(expression)))?;
        if self.kind == Some(ProjectionKind::Exclusion) {
            return Err(literal_in_exclusion(element));
        }
        self.kind = Some(ProjectionKind::Inclusion);
        Ok(())
    }

    /// Returns the path without its `.$`, and whether it had one.
    fn split_positional<'n>(&self, name: &'n BStr) -> Result<(&'n [u8], bool)> {
        let name = name.as_bytes();
        if name.contains_str(".$.") && !name.starts_with(b"$.$") {
            return Err(positional_in_the_middle());
        }
        match (name.strip_suffix(b".$"), self.policy) {
            (None, _) => Ok((name, false)),
            (Some(_), Policy::Aggregate) => Err(positional_in_stage()),
            (Some(path), Policy::Find) => Ok((path, true)),
        }
    }

    /// `field: 1` and `field: 0`.
    fn choice(
        &mut self,
        at: &ProjectionPath<'_>,
        include: bool,
        is_positional: bool,
        name: &BStr,
    ) -> Result<()> {
        let is_id = at.prefix.is_empty() && matches!(at.parts, [only] if **only == *b"_id");
        if is_positional {
            // The error of a query without array positions is reported at the positional path.
            if let Some(query) = self.query {
                Filter::draft(query, Purpose::Positional, self.context)?;
            }
            if self.positional.is_some() {
                return Err(positional_twice());
            }
            if self.has_elem_match {
                return Err(positional_after_elem_match());
            }
        }
        self.add(at, if include { Child::Keep } else { Child::Drop })?;
        if is_id && !is_positional {
            self.id = Some(include);
            return Ok(());
        }
        match (include, self.kind) {
            (true, Some(ProjectionKind::Exclusion)) => return Err(inclusion_in_exclusion(name)),
            (false, Some(ProjectionKind::Inclusion)) => return Err(exclusion_in_inclusion(name)),
            (true, _) => self.kind = Some(ProjectionKind::Inclusion),
            (false, _) => self.kind = Some(ProjectionKind::Exclusion),
        }
        if is_positional {
            self.positional = Some(at.full());
        }
        Ok(())
    }

    /// `field: { … }`.
    fn object(
        &mut self,
        at: &ProjectionPath<'_>,
        doc: Doc<'_>,
        element: Element<'_>,
    ) -> Result<()> {
        let Some(first) = doc.iter().next() else { return Err(empty_object()) };
        if !is_operator(doc) {
            self.node(at.prefix)?.below(at.parts).map_err(|collision| at.collides(&collision))?;
            let prefix = at.full();
            return doc.iter().try_for_each(|inner| self.element(&prefix, inner));
        }
        let operand = first.value.get();
        match (first.name.as_bytes(), self.policy) {
            (b"$meta", _) => {
                let meta = parse_meta(operand)?;
                if meta == Meta::TextScore && !self.context.has_text_score {
                    return Err(no_text_score());
                }
                if !self.context.has_distance {
                    match meta {
                        Meta::GeoNearDistance => return Err(no_near_distance()),
                        Meta::GeoNearPoint => return Err(no_near_point()),
                        _ => {}
                    }
                }
                self.metadata.push(meta);
                self.add(at, Child::Computed(Computed::Meta(meta)))
            }
            (b"$elemMatch", Policy::Aggregate) => Err(elem_match_in_stage()),
            (b"$elemMatch", Policy::Find) => self.elem_match(at, operand),
            (b"$slice", Policy::Find) => {
                let Err(mismatch) = self.slice(at, operand) else { return Ok(()) };
                self.expression(at, first.name, element)
                    .map_err(|error| explain_slice(error, &mismatch, doc))
            }
            _ => self.expression(at, first.name, element),
        }
    }

    /// `$slice` of the query language.
    fn slice(&mut self, at: &ProjectionPath<'_>, operand: Value<'_>) -> Result<()> {
        let slice = Slice::parse(operand).map_err(|mismatch| match mismatch {
            Mismatch::Type => slice_type(),
            Mismatch::ArrayShape => slice_array_shape(),
            Mismatch::Skip(kind) => slice_skip(kind.alias()),
            Mismatch::LimitType(kind) => slice_limit_type(kind.alias()),
            Mismatch::Limit(limit) => slice_limit(limit),
        })?;
        self.has_slice = true;
        self.add(at, Child::Slice(slice))
    }

    fn expression(
        &mut self,
        at: &ProjectionPath<'_>,
        operator: &BStr,
        element: Element<'_>,
    ) -> Result<()> {
        if Operator::find(operator, self.scope.context.version).is_err() {
            return Err(unknown_expression(operator));
        }
        if self.kind == Some(ProjectionKind::Exclusion) {
            return Err(expression_in_exclusion());
        }
        self.kind = Some(ProjectionKind::Inclusion);
        let expression = Expression::parse(element.value.get(), &mut self.scope)?;
        self.add(at, Child::Computed(Computed::Expression(expression)))
    }

    fn elem_match(&mut self, at: &ProjectionPath<'_>, operand: Value<'_>) -> Result<()> {
        let Value::Document(condition) = operand else {
            return Err(elem_match_operand(operand.kind().alias()));
        };
        let ([], [name]) = (at.prefix, at.parts) else { return Err(elem_match_nested()) };
        if self.positional.is_some() {
            return Err(elem_match_after_positional());
        }
        if condition.get_raw(b"$where").is_some() {
            return Err(where_not_allowed());
        }
        let query = DocBuf::build(|query| {
            query.begin_doc(name).append("$elemMatch", condition);
        });
        let filter = Filter::draft(query.as_doc(), Purpose::Positional, self.context)?
            .finish(self.context)?;
        self.has_elem_match = true;
        let computed = Computed::ElemMatch { name: name.clone(), filter };
        self.add(at, Child::Computed(computed))
    }

    /// Returns the node for the fields of an object of the projection. It exists since the object
    /// was parsed.
    fn node(&mut self, prefix: &[Box<[u8]>]) -> Result<&mut Node> {
        let whole = ProjectionPath { prefix: &[], parts: prefix };
        self.root.below(prefix).map_err(|collision| whole.collides(&collision))
    }

    fn add(&mut self, at: &ProjectionPath<'_>, child: Child) -> Result<()> {
        if at.parts.is_empty() {
            // It is too deep.
            return Ok(());
        }
        if let Child::Computed(Computed::Expression(expression)) = &child {
            find_metadata(expression, &mut self.metadata);
        }
        self.node(at.prefix)?.add(at.parts, child).map_err(|collision| at.collides(&collision))
    }
}

/// Collects the metadata that an expression uses.
fn find_metadata(expression: &Expression, found: &mut Vec<Meta>) {
    found.extend(expression.metadata().and_then(Meta::from_name));
    expression.for_each_child(&mut |child| find_metadata(child, found));
}

/// The position of a field in the projection.
struct ProjectionPath<'p> {
    /// The path of the object that contains it.
    prefix: &'p [Box<[u8]>],
    /// Its own path inside that, as far as it is not too deep.
    parts: &'p [Box<[u8]>],
}

impl ProjectionPath<'_> {
    fn full(&self) -> Vec<Box<[u8]>> {
        [self.prefix, self.parts].concat()
    }

    /// Returns the error of two paths that collide; it shows the path inside the object.
    fn collides(&self, collision: &Collision) -> Error {
        let text = |parts: &[Box<[u8]>]| parts.join(&b'.').to_str_lossy().into_owned();
        match collision {
            Collision::Above => collision_above(&text(self.parts)),
            Collision::Below => collision_below(&text(self.parts), &text(&self.parts[1..])),
        }
    }
}

/// Returns whether an object is an operator with its operand, not fields.
fn is_operator(doc: Doc<'_>) -> bool {
    let mut fields = doc.iter();
    fields.next().is_some_and(|it| it.name.starts_with(b"$") && !is_dollar_path(it.name))
        && fields.next().is_none()
}

/// Checks the value of a positional field: its errors come before those of the path.
fn check_positional(name: &BStr, value: Value<'_>) -> Result<()> {
    match value {
        Value::Document(_) => Err(positional_object()),
        _ if !value.kind().is_number() && value.kind() != Type::Boolean => {
            Err(positional_literal())
        }
        _ if !value.is_truthy() => Err(positional_exclusion()),
        _ if name == ".$" => Err(positional_nothing(name)),
        _ => Ok(()),
    }
}

/// Returns whether a name that begins with a dollar sign is not an operator but a path: `$id`,
/// `$recordId.a`.
fn is_dollar_path(name: &BStr) -> bool {
    match name.split_once_str(".") {
        None => may_start_with_dollar(name),
        Some((first, rest)) => may_start_with_dollar(first) && !rest.is_empty(),
    }
}

fn parse_meta(operand: Value<'_>) -> Result<Meta> {
    let Value::String(name) = operand else { return Err(meta_not_a_string()) };
    Meta::from_name(name).ok_or_else(|| meta_unknown(name))
}

/// Returns the error of a `$slice` that is valid neither in the query language nor as an
/// expression.
fn explain_slice(error: Error, mismatch: &Error, spec: Doc<'_>) -> Error {
    let (name, reason) = (mismatch.code().name(), mismatch.message());
    let context = format!(
        "Invalid $slice syntax. The given syntax {spec} did not match the find() syntax because :: \
         {name}: {reason} :: The given syntax did not match the expression $slice syntax."
    );
    error.caused_by(&context)
}

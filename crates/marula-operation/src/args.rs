//! The arguments that `find`, `update`, `delete`, `count` and similar commands share: filter, sort,
//! hint, collation, `let`.
//!
//! Source: manual "find", "update", "delete"; messages recorded from mongod 6.0.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use marula_db::{Collection, Namespace};
use marula_error::{Error, Result, errors};
use marula_plan::planner::{has_text_index, index_required};
use marula_plan::{Hint, Query};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::expression::scope::check_let_variable;
use marula_query::expression::{Arena, Expression, Frame, Scope, saturated_long};
use marula_query::filter::Filter;
use marula_query::sort::SortPattern;
use marula_query::text;

errors! {
    /// A value is not a document, and no other type is permitted.
    pub not_an_object(field: &str) = TypeMismatch, "Expected field {field}to be of type object";
    /// A hint that is neither a name nor a key pattern.
    pub bad_hint() = FailedToParse, "Hint must be a string or an object";
    negative(field: &str, value: i64) = 51_024, "BSON field '{field}' value must be >= 0, actual value '{value}'";
    natural_in_compound_hint(hint: &Doc<'_>) = BadValue, "Cannot include '$natural' in compound hint: {hint}";
    natural_in_compound(sort: &str) = BadValue, "Cannot include '$natural' in compound sort: {sort}";
    /// A text search on a collection that does not exist.
    pub no_text_index(ns: &Namespace) = IndexNotFound, "text index required for $text query (no such collection '{ns}')";
    let_reads_document() = 4_890_500, "Command let Expression tried to access a field, but this is not allowed because Command let Expressions run before the query examines any documents.";
    hint_against_natural_sort() = BadValue, "$natural hint must be in the same direction as $natural sort order";
    hint_with_natural_sort() = BadValue, "index hint not allowed with $natural sort order";
}

/// The fields of a command, by their names.
pub trait Arguments<'a> {
    /// The field of this name; `None` if it is missing or null.
    fn arg(&self, name: &str) -> Option<Value<'a>>;

    /// The field of this name as it was sent, which may be null.
    fn given(&self, name: &str) -> Option<Value<'a>>;

    /// Returns whether a field is present and true.
    fn flag(&self, name: &str) -> bool {
        self.arg(name).is_some_and(|value| value.is_truthy())
    }

    /// A field that is a document; the empty document if it is missing.
    ///
    /// Errors: `not_an_object`.
    fn doc(&self, name: &str) -> Result<Doc<'a>> {
        doc_or_empty(name, self.arg(name))
    }

    /// A field that is a whole number and not negative; zero if it is missing.
    ///
    /// Errors: `negative`.
    fn count(&self, name: &str) -> Result<u64> {
        count_or_zero(name, self.arg(name))
    }
}

/// Returns `base` with the collation and the variables that a client gives, for an operation on
/// `collection`. Without a collation from the client, the collection's own applies.
///
/// Errors: those of a collation, and of variables that cannot be computed.
pub fn context(
    base: QueryContext,
    collection: Option<&Collection>,
    collation: Option<Value<'_>>,
    let_variables: Option<Value<'_>>,
) -> Result<QueryContext> {
    let collation = match collation {
        Some(Value::Document(spec)) if !spec.is_empty() => Collation::parse(spec, "collation")?,
        _ => collection.and_then(|collection| collection.state().options.collation.clone()),
    };
    let mut context = QueryContext { collation, ..base };
    if let Some(Value::Document(variables)) = let_variables {
        evaluate_let(variables, &mut context)?;
    }
    Ok(context)
}

/// Evaluates a command's `let`, whose expressions must not read fields of documents. A variable may
/// have no value, as `$$REMOVE` has none.
fn evaluate_let(variables: Doc<'_>, context: &mut QueryContext) -> Result<()> {
    let mut values = DocBuf::new();
    for element in variables {
        let name = element.name.to_string();
        check_let_variable(&name)?;
        let arena = Arena::new();
        // A variable may refer to earlier ones.
        context.let_variables = Some(values.clone());
        let expression = Expression::parse(element.value.get(), &mut Scope::new(context))?;
        let mut reads = false;
        expression.for_each_path(&mut |_| reads = true);
        if reads {
            return Err(let_reads_document());
        }
        let frame = Frame::new(Doc::EMPTY, &arena, context);
        let value = expression.eval(&frame)?.map(|value| value.to_buf());
        // Of several variables with the same name the last counts.
        if values.as_doc().get(element.name).is_some() {
            values = DocBuf::build(|out| {
                for other in values.as_doc().iter().filter(|other| other.name != element.name) {
                    out.append_raw(other.name, other.value);
                }
            });
        }
        context.missing_variables.retain(|missing| *missing != name);
        match value {
            Some(value) => {
                values.push(element.name, &value);
            }
            None => context.missing_variables.push(name),
        }
    }
    context.let_variables = Some(values);
    Ok(())
}

/// Returns an argument that is a document; the empty document if it is missing.
///
/// Errors: `not_an_object`.
pub fn doc_or_empty<'a>(field: &str, value: Option<Value<'a>>) -> Result<Doc<'a>> {
    match value {
        None => Ok(Doc::EMPTY),
        Some(Value::Document(doc)) => Ok(doc),
        Some(_) => Err(not_an_object(field)),
    }
}

/// Returns an argument that is a whole number and not negative; zero if it is missing.
///
/// Errors: `negative`.
pub fn count_or_zero(field: &str, value: Option<Value<'_>>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let number = saturated_long(value).unwrap_or(0);
    u64::try_from(number).map_err(|_| negative(field, number))
}

/// Reads a hint: an index's name or key pattern, or `{ $natural: ±1 }`.
///
/// Errors: `bad_hint`, `natural_in_compound_hint`.
pub fn parse_hint(value: Option<Value<'_>>) -> Result<Option<Hint>> {
    match value {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(Hint::Name(name.to_string()))),
        Some(Value::Document(key)) => hint_document(key),
        Some(_) => Err(bad_hint()),
    }
}

/// Reads a hint that is a document: a key pattern, a scan in record order, or `{ $hint: <name> }`,
/// the form in which mongod passes the name of an index on.
fn hint_document(hint: Doc<'_>) -> Result<Option<Hint>> {
    let Some(first) = hint.iter().next() else { return Ok(None) };
    if let (b"$hint", Value::String(name)) = (&**first.name, first.value.get()) {
        return Ok(Some(Hint::Name(name.to_string())));
    }
    match hint.get("$natural") {
        Some(_) if hint.iter().count() > 1 => Err(natural_in_compound_hint(&hint)),
        Some(_) => Ok(natural(hint).map(|backward| Hint::Natural { backward })),
        None => Ok(Some(Hint::Key(hint.to_buf()))),
    }
}

/// Adds a sort to a query. `{ $natural: ±1 }` is a direction of the scan, not an order of values.
///
/// Errors: as of [`Order::parse`].
pub fn apply_sort(query: &mut Query, sort: Doc<'_>) -> Result<()> {
    if !sort.is_empty() {
        let order = Order::parse(query.hint.take(), sort, &query.context)?;
        (query.hint, query.sort) = (order.hint, order.sort);
    }
    Ok(())
}

/// The hint and the sort of an operation, parsed: what decides the order in which its documents are
/// found.
#[derive(Clone, Default)]
pub struct Order {
    /// The index to use.
    pub hint: Option<Hint>,
    /// The order of values.
    pub sort: Option<SortPattern>,
    /// Whether the sort is by the score of a text search.
    pub wants_score: bool,
    /// Whether a sort was given, of values or in natural order.
    pub has_sort: bool,
}

impl Order {
    /// Adds a sort, which may be empty, to a hint.
    ///
    /// Errors: as of [`check_natural_sort`], and those of a sort pattern.
    pub fn parse(hint: Option<Hint>, sort: Doc<'_>, context: &QueryContext) -> Result<Self> {
        if sort.is_empty() {
            return Ok(Order { hint, ..Order::default() });
        }
        check_natural_sort(sort, hint.as_ref())?;
        let wants_score = text::asks_for(sort, "textScore");
        let (hint, sort) = match natural(sort) {
            Some(backward) => (Some(Hint::Natural { backward }), None),
            None => (hint, Some(SortPattern::parse(sort, context)?)),
        };
        Ok(Order { hint, sort, wants_score, has_sort: true })
    }

    /// Returns whether the operation may find its documents in any order, by any index.
    pub fn is_free(&self) -> bool {
        self.hint.is_none() && self.sort.is_none()
    }

    /// Makes the query that finds the documents of `filter` in this order.
    pub fn query(self, filter: Filter, context: QueryContext) -> Query {
        let Order { hint, sort, wants_score, .. } = self;
        Query { hint, sort, wants_score, ..Query::new(filter, context) }
    }

    /// Makes the query that finds the first document of `filter`, for a write, which stops there:
    /// only a sort has to know the limit.
    pub fn query_of_one(self, filter: Filter, context: QueryContext) -> Query {
        let limit = self.has_sort.then_some(1);
        Query { limit, ..self.query(filter, context) }
    }
}

/// Checks that a sort in natural order has neither other fields nor a hint of an index or of the
/// other direction.
///
/// Errors: `natural_in_compound`, `hint_with_natural_sort`, `hint_against_natural_sort`.
pub fn check_natural_sort(sort: Doc<'_>, hint: Option<&Hint>) -> Result<()> {
    match natural(sort) {
        Some(_) if sort.iter().count() > 1 => Err(natural_in_compound(&sort.to_string())),
        Some(_) if matches!(hint, Some(Hint::Name(_) | Hint::Key(_))) => {
            Err(hint_with_natural_sort())
        }
        Some(backward) if is_natural(hint, !backward) => Err(hint_against_natural_sort()),
        _ => Ok(()),
    }
}

fn is_natural(hint: Option<&Hint>, asked: bool) -> bool {
    matches!(hint, Some(Hint::Natural { backward }) if *backward == asked)
}

/// Returns whether the scan that `{ $natural: <value> }` means is backward: of a number that is
/// negative as a whole one, not of anything else.
fn natural(doc: Doc<'_>) -> Option<bool> {
    let number = saturated_long(doc.get("$natural")?);
    Some(number.is_some_and(|number| number < 0))
}

/// The error of a text search in a filter, if the collection has no text index.
///
/// It is made for text searches alone: this is on the way of a find by `_id` too.
pub fn missing_text_index(filter: Doc<'_>, collection: &Collection) -> Option<Arc<Error>> {
    (text::has_search(filter) && !has_text_index(&collection.state()))
        .then(|| Arc::new(index_required()))
}

/// Refuses a text search of a collection that does not exist and so has no text index.
///
/// Errors: `no_text_index`.
pub fn check_text_without_collection(filter: &Filter, ns: &Namespace) -> Result<()> {
    filter.text().map_or(Ok(()), |_| Err(no_text_index(ns)))
}

/// Parses a filter into a query without any other conditions.
pub fn parse_query(filter: Doc<'_>, context: QueryContext) -> Result<Query> {
    let filter = Filter::parse(filter, &context)?;
    Ok(Query::new(filter, context))
}

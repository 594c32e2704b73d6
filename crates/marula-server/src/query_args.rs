//! What `find`, `update`, `delete`, `count` and their siblings say alike: filter, sort, hint,
//! collation, `let`.
//!
//! Source: manual "find", "update", "delete"; messages recorded from mongod 6.0.

use marula_bson::{Doc, DocBuf, Value, ValueBuf, doc_fields};
use marula_db::{Collection, Namespace};
use marula_error::{Result, errors};
use marula_plan::{Hint, Query};
use marula_query::collation::Collation;
use marula_query::context::{Context as QueryContext, Interrupt as QueryInterrupt};
use marula_query::expression::scope::check_let_variable;
use marula_query::expression::{Arena, Expression, Frame, Scope, saturated_long};
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::Filter;
use marula_query::sort::SortPattern;
use marula_query::spill::Limits;

use crate::context::{Context, Watch};
use crate::request::Request;

errors! {
    invalid_collection_name(ns: &str) = InvalidNamespace, "Invalid collection name specified '{ns}";
    not_an_object(field: &str) = TypeMismatch, "Expected field {field}to be of type object";
    bad_hint() = FailedToParse, "Hint must be a string or an object";
    negative(field: &str, value: i64) = 51_024, "BSON field '{field}' value must be >= 0, actual value '{value}'";
    natural_in_compound_hint(hint: &Doc<'_>) = BadValue, "Cannot include '$natural' in compound hint: {hint}";
    natural_in_compound(sort: &str) = BadValue, "Cannot include '$natural' in compound sort: {sort}";
    no_text_index(ns: &Namespace) = IndexNotFound, "text index required for $text query (no such collection '{ns}')";
    let_reads_document() = 4_890_500, "Command let Expression tried to access a field, but this is not allowed because Command let Expressions run before the query examines any documents.";
    hint_with_natural_sort() = BadValue, "index hint not allowed with $natural sort order";
}

/// The collection that a query names: no name of one that documents cannot be in.
pub fn readable_namespace(request: &Request<'_>) -> Result<Namespace> {
    let ns = request.namespace()?;
    match ns.collection().contains('$') && ns.as_str() != "local.oplog.$main" {
        true => Err(invalid_collection_name(ns.as_str())),
        false => Ok(ns),
    }
}

/// The surroundings of the language for one operation on `collection`.
pub fn query_context(
    ctx: &Context<'_>,
    collection: Option<&Collection>,
    collation: Option<Value<'_>>,
    let_variables: Option<Value<'_>>,
) -> Result<QueryContext> {
    let collation = match collation {
        Some(Value::Document(spec)) if !spec.is_empty() => Collation::parse(spec, "collation")?,
        _ => collection.and_then(|collection| collection.state().options.collation.clone()),
    };
    let mut context = QueryContext {
        version: ctx.server.db.feature_version(),
        collation,
        now_ms: ctx.now_ms,
        cluster_time: cluster_time(ctx),
        let_variables: None,
        user_roles: user_roles(ctx),
        missing_variables: Vec::new(),
        unknown_variables: Vec::new(),
        interrupt: Some(QueryInterrupt::new(Watch::new(ctx))),
        limits: Limits::default(),
        has_text_score: false,
        has_distance: false,
        keeps_calls: false,
        is_stored: false,
        subject: None,
    };
    if let Some(Value::Document(variables)) = let_variables {
        evaluate_let(variables, &mut context)?;
    }
    Ok(context)
}

/// The roles of the user who asks, and those that they inherit from, where the language has a
/// variable for them.
fn user_roles(ctx: &Context<'_>) -> Option<ValueBuf> {
    let access = ctx.connection.access.as_deref()?;
    if ctx.server.db.feature_version() < FeatureVersion::V7_0 {
        return None;
    }
    let roles = DocBuf::build(|out| {
        let mut list = out.begin_array("roles");
        for role in &access.roles {
            let mut one = list.begin_doc();
            doc_fields!(one; "_id": role.id().as_str(), "role": role.name.as_str(), "db": role.db.as_str());
        }
    });
    roles.as_doc().get("roles").map(|roles| roles.to_buf())
}

/// How much memory the sorts and groups of an operation may use, and whether they go on on the
/// disk: the server's parameters, and the request's `allowDiskUse`.
pub fn limits(ctx: &Context<'_>, request: &Request<'_>) -> Limits {
    let parameters = &ctx.server.parameters;
    let bytes = |name: &str| usize::try_from(parameters.number(name)).unwrap_or(usize::MAX);
    let may_use_disk = match request.arg("allowDiskUse") {
        Some(flag) => flag.is_truthy(),
        None => parameters.flag("allowDiskUseByDefault"),
    };
    Limits {
        sort_bytes_max: bytes("internalQueryMaxBlockingSortMemoryUsageBytes"),
        group_bytes_max: bytes("internalDocumentSourceGroupMaxMemoryBytes"),
        window_bytes_max: bytes("internalDocumentSourceSetWindowFieldsMaxMemoryBytes"),
        push_bytes_max: bytes("internalQueryMaxPushBytes"),
        add_to_set_bytes_max: bytes("internalQueryMaxAddToSetBytes"),
        list_bytes_max: bytes("internalQueryTopNAccumulatorBytes"),
        facet_bytes_max: bytes("internalQueryFacetMaxOutputDocSizeBytes"),
        densify_bytes_max: bytes("internalDocumentSourceDensifyMaxMemoryBytes"),
        densify_documents_max: u64::try_from(
            parameters.number("internalQueryMaxAllowedDensifyDocs"),
        )
        .unwrap_or(u64::MAX),
        lookup_bytes_max: bytes("internalLookupStageIntermediateDocumentMaxSizeBytes"),
        disk: may_use_disk.then(|| ctx.server.disk.clone()),
    }
}

/// `$$CLUSTER_TIME`: a member of a replica set has one.
fn cluster_time(ctx: &Context<'_>) -> Option<u64> {
    let server = ctx.server;
    server.options.repl_set.as_ref().map(|_| server.db.newest_timestamp(ctx.now_ms))
}

/// Brings a command's `let` into sight, which may hold expressions but no fields of documents. A
/// variable may be without a value, as `$$REMOVE` is.
fn evaluate_let(variables: Doc<'_>, context: &mut QueryContext) -> Result<()> {
    let mut values = DocBuf::new();
    for element in variables {
        let name = element.name.to_string();
        check_let_variable(&name)?;
        let arena = Arena::new();
        // A variable may refer to those before it.
        context.let_variables = Some(values.clone());
        let expression = Expression::parse(element.value.get(), &mut Scope::new(context))?;
        let mut reads = false;
        expression.for_each_path(&mut |_| reads = true);
        if reads {
            return Err(let_reads_document());
        }
        let frame = Frame::new(Doc::EMPTY, &arena, context);
        match expression.eval(&frame)? {
            Some(value) => {
                values.push(element.name, value);
            }
            None => context.missing_variables.push(name),
        }
    }
    context.let_variables = Some(values);
    Ok(())
}

/// The document of an argument; the empty one where it is left out.
pub fn doc_or_empty<'a>(field: &str, value: Option<Value<'a>>) -> Result<Doc<'a>> {
    match value {
        None => Ok(Doc::EMPTY),
        Some(Value::Document(doc)) => Ok(doc),
        Some(_) => Err(not_an_object(field)),
    }
}

/// A whole number that is not negative.
pub fn count_or_zero(field: &str, value: Option<Value<'_>>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let number = saturated_long(value).unwrap_or(0);
    u64::try_from(number).map_err(|_| negative(field, number))
}

/// Reads a hint: an index's name or key pattern, or `{ $natural: 1 }`.
pub fn parse_hint(value: Option<Value<'_>>) -> Result<Option<Hint>> {
    match value {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(Hint::Name(name.to_string()))),
        Some(Value::Document(key)) => hint_document(key),
        Some(_) => Err(bad_hint()),
    }
}

/// The hint that a document gives: a key pattern, a walk, or the name of an index, which mongod
/// makes `{ $hint: <name> }` of.
fn hint_document(hint: Doc<'_>) -> Result<Option<Hint>> {
    let Some(first) = hint.iter().next() else { return Ok(None) };
    if let (b"$hint", Value::String(name)) = (&**first.name, first.value.get()) {
        return Ok(Some(Hint::Name(name.to_string())));
    }
    match hint.get("$natural") {
        Some(_) if hint.iter().count() > 1 => Err(natural_in_compound_hint(&hint)),
        // What is no number is not negative.
        Some(_) => Ok(Some(natural(hint).unwrap_or(Hint::Natural { backward: false }))),
        None => Ok(Some(Hint::Key(hint.to_buf()))),
    }
}

/// Adds a sort to a query; `{ $natural: ±1 }` is a direction of the walk, not an order of values.
pub fn apply_sort(query: &mut Query, sort: Doc<'_>) -> Result<()> {
    if sort.is_empty() {
        return Ok(());
    }
    check_natural_sort(sort, query.hint.as_ref())?;
    match natural(sort) {
        Some(hint) => query.hint = Some(hint),
        None => query.sort = Some(SortPattern::parse(sort, &query.context)?),
    }
    Ok(())
}

/// Checks that a walk in natural order is asked for alone.
///
/// Errors: `natural_in_compound`, `hint_with_natural_sort`.
pub fn check_natural_sort(sort: Doc<'_>, hint: Option<&Hint>) -> Result<()> {
    match natural(sort) {
        Some(_) if sort.iter().count() > 1 => Err(natural_in_compound(&sort.to_string())),
        Some(_) if matches!(hint, Some(Hint::Name(_) | Hint::Key(_))) => {
            Err(hint_with_natural_sort())
        }
        _ => Ok(()),
    }
}

/// The walk that `{ $natural: <number> }` asks for: a negative number is against the order.
fn natural(doc: Doc<'_>) -> Option<Hint> {
    let number = doc.get("$natural")?.as_f64()?;
    Some(Hint::Natural { backward: number < 0.0 })
}

/// Refuses a text search where there is no collection, and so no index to search in.
pub fn check_text_without_collection(filter: &Filter, ns: &Namespace) -> Result<()> {
    filter.text().map_or(Ok(()), |_| Err(no_text_index(ns)))
}

/// Parses a filter in a context.
pub fn parse_query(filter: Doc<'_>, context: QueryContext) -> Result<Query> {
    let filter = Filter::parse(filter, &context)?;
    Ok(Query::new(filter, context))
}

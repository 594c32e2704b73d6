//! Stages whose documents the server writes: `$indexStats`, `$currentOp` and their like.
//!
//! A stage here says in a [`Report`] what it wants to know. Who runs the pipeline writes the
//! documents and gives them to the stage as its input.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::coll_stats::CollectionStats;
use super::{Env, Kind, Parser, Place, Row, Source, Stage};
use crate::context::{Context, Subject};
use crate::feature_version::FeatureVersion;

errors! {
    index_stats_not_empty() = 28803, "The $indexStats stage specification must be an empty object";
    value_type(name: &str, kind: &str) = FailedToParse, "{name} value must be an object. Found: {kind}";
    plan_cache_not_empty() = FailedToParse, "$planCacheStats parameters object must be empty. Found: object";
    unknown_field(name: &str, field: &str) = IDLUnknownField, "BSON field '{name}.{field}' is an unknown field.";
    options_type(name: &str, kind: &str) = TypeMismatch, "{name} options must be specified in an object, but found: {kind}";
    not_in_admin(name: &str) = InvalidNamespace, "{name} must be run against the 'admin' database with {{aggregate: 1}}";
    catalog_not_empty() = 6_200_600, "The $listCatalog stage specification must be an empty object";
    catalog_not_in_admin() = InvalidNamespace, "Collectionless $listCatalog must be run against the 'admin' database with {{aggregate: 1}}";
    not_collectionless() = InvalidNamespace, "$listLocalSessions must be run against the database with {{aggregate: 1}}, not a collection";
    not_transactions() = InvalidNamespace, "$_internalListTransactions may only be run against config.transactions";
    not_sessions() = InvalidNamespace, "$listSessions may only be run against config.system.sessions";
    flag_type(field: &str, kind: &str) = TypeMismatch, "The '{field}' parameter of the $currentOp stage must be a boolean value, but found: {kind}";
    idle_type(field: &str, kind: &str) = FailedToParse, "The '{field}' parameter of the $currentOp stage must be a boolean value, but found: {kind}";
    unknown_option(field: &str) = FailedToParse, "Unrecognized option '{field}' in $currentOp stage.";
    field_type(name: &str, field: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '{name}.{field}' is the wrong type '{kind}', expected type '{expected}'";
    users_incomplete(name: &str, field: &str) = IDLFailedToParse, "BSON field '{name}.users.{field}' is missing but a required field";
    users_and_all(name: &str) = UnsupportedFormat, "{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time";
    no_resource_consumption() = CommandNotSupported, "The aggregateOperationResourceConsumption server parameter is not set";
    /// Full-text search runs in a service beside mongod, which there is none of.
    no_search(name: &str) = 6047401, "{name} stage is only allowed on MongoDB Atlas";
    /// The same, as later releases tell it.
    search_not_enabled() = SearchNotEnabled, "Using $search and $vectorSearch aggregation stages requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs";
    /// The same of the stage that tells of search indexes.
    search_indexes_not_enabled() = SearchNotEnabled, "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs";
    sharded_not_empty() = 6789100, "The $shardedDataDistribution stage specification must be an empty object";
    not_sharded() = 6789101, "The $shardedDataDistribution stage can only be run on mongoS";
}

/// What a stage wants to know of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Sizes and counts of the collection.
    CollectionStats(CollectionStats),
    /// How often each index of the collection was used.
    IndexStats,
    /// The plans that are kept for the collection.
    PlanCacheStats,
    /// What runs now.
    CurrentOp {
        /// Whether connections at rest are told of too.
        idle_connections: bool,
        /// Whether open transactions at rest are told of too.
        idle_sessions: bool,
        /// Whether long commands are cut.
        cuts_long: bool,
    },
    /// The sessions that are known; of these users, unless all are meant.
    Sessions {
        /// User and database; `None` means everyone's.
        users: Option<Vec<(String, String)>>,
    },
    /// The newest numbered write of each session, as `config.transactions` shows it.
    SessionRecords,
    /// The catalogue's entry of the collection, or of all.
    Catalog,
    /// What this server keeps nothing of: statistics by the shape of queries, sampled queries,
    /// query settings.
    Nothing,
}

impl Report {
    /// Whether the stage is about a collection, and not about the server.
    pub fn needs_collection(&self) -> bool {
        use Report::{CollectionStats, IndexStats, PlanCacheStats};
        matches!(self, CollectionStats(_) | IndexStats | PlanCacheStats)
    }
}

const fn row(name: &'static str, parse: fn(Value<'_>, &mut Parser<'_>) -> Result<()>) -> Row {
    Row { name, since: FeatureVersion::V6_0, place: Place::First, parse }
}

/// The stages.
pub(super) const ROWS: &[Row] = &[
    row("$indexStats", index_stats),
    row("$planCacheStats", plan_cache_stats),
    row("$currentOp", current_op),
    row("$listCatalog", list_catalog),
    row("$listLocalSessions", list_local_sessions),
    row("$listSessions", list_sessions),
    row("$_internalListTransactions", list_transactions),
    row("$queryStats", query_stats),
    row("$operationMetrics", |_, _| Err(no_resource_consumption())),
    row("$search", |_, parser| Err(search_refused("$search", parser.context))),
    row("$searchMeta", |_, parser| Err(search_refused("$searchMeta", parser.context))),
    row("$vectorSearch", |_, parser| Err(search_refused("$vectorSearch", parser.context))),
    row("$listSearchIndexes", |_, parser| {
        Err(search_refused("$listSearchIndexes", parser.context))
    }),
    row("$shardedDataDistribution", sharded),
    Row {
        name: "$listSampledQueries",
        since: FeatureVersion::V7_0,
        place: Place::First,
        parse: list_sampled_queries,
    },
    Row {
        name: "$querySettings",
        since: FeatureVersion::V8_0,
        place: Place::First,
        parse: query_settings,
    },
];

/// A parsed stage.
#[derive(Debug)]
pub(super) struct Reporting {
    name: &'static str,
    report: Report,
    argument: ValueBuf,
}

impl Reporting {
    /// A stage that gives what `report` asks for.
    pub(super) fn new(name: &'static str, report: Report, argument: Doc<'_>) -> Self {
        Reporting { name, report, argument: Value::Document(argument).to_buf() }
    }
}

fn index_stats(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(doc) if doc.is_empty() => {
            parser.push(Reporting::new("$indexStats", Report::IndexStats, doc));
            Ok(())
        }
        _ => Err(index_stats_not_empty()),
    }
}

fn plan_cache_stats(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(doc) if doc.is_empty() => {
            parser.push(Reporting::new("$planCacheStats", Report::PlanCacheStats, doc));
            Ok(())
        }
        Value::Document(_) => Err(plan_cache_not_empty()),
        _ => Err(value_type("$planCacheStats", value.kind().alias())),
    }
}

/// Checks the argument of one of these stages as far as that is done before any stage is parsed.
///
/// Errors: those of the argument's form.
pub(super) fn check(name: &str, value: Value<'_>, context: &Context) -> Result<()> {
    match name {
        "$currentOp" => check_all_users(value),
        "$listSessions" | "$listLocalSessions" => users_of(name, value).map(drop),
        "$queryStats" => no_options(name, value).map(drop),
        "$search" | "$searchMeta" | "$vectorSearch" | "$listSearchIndexes" => {
            Err(search_refused(name, context))
        }
        _ => Ok(()),
    }
}

/// Whether all users are meant tells which privileges a `$currentOp` needs.
fn check_all_users(value: Value<'_>) -> Result<()> {
    let doc = value.as_doc().ok_or_else(|| options_type("$currentOp", value.kind().alias()))?;
    match doc.get("allUsers").map(|flag| flag.kind()) {
        None | Some(Type::Boolean) => Ok(()),
        Some(kind) => Err(flag_type("allUsers", kind.alias())),
    }
}

/// The argument of a stage that has no options.
fn no_options<'v>(name: &str, value: Value<'v>) -> Result<Doc<'v>> {
    let doc = value.as_doc().ok_or_else(|| value_type(name, value.kind().alias()))?;
    match doc.iter().next() {
        Some(first) => Err(unknown_field(name, &first.name.to_str_lossy())),
        None => Ok(doc),
    }
}

fn query_stats(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$queryStats";
    let doc = no_options(name, value)?;
    check_admin(name, parser.context)?;
    parser.push(Reporting::new(name, Report::Nothing, doc));
    Ok(())
}

/// Tells of queries that are sampled to choose a shard key: there are none.
fn list_sampled_queries(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let field = ("namespace", Type::String);
    nothing("$listSampledQueries", field, value, parser)
}

/// Tells of settings by the shape of queries, which cannot be made.
fn query_settings(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let field = ("showDebugQueryShape", Type::Boolean);
    nothing("$querySettings", field, value, parser)
}

/// A stage of the database `admin` that gives nothing, with the one field that it may have.
fn nothing(
    name: &'static str,
    (known, kind): (&str, Type),
    value: Value<'_>,
    parser: &mut Parser<'_>,
) -> Result<()> {
    let doc = value.as_doc().ok_or_else(|| value_type(name, value.kind().alias()))?;
    for element in doc {
        let found = element.value.kind();
        if element.name != known {
            return Err(unknown_field(name, &element.name.to_str_lossy()));
        }
        if found != kind {
            return Err(field_type(name, known, found.alias(), kind.alias()));
        }
    }
    check_admin(name, parser.context)?;
    parser.push(Reporting::new(name, Report::Nothing, doc));
    Ok(())
}

/// Why a stage of full-text search is refused.
fn search_refused(name: &str, context: &Context) -> Error {
    match name {
        _ if context.version < FeatureVersion::V7_0 => no_search(name),
        "$listSearchIndexes" => search_indexes_not_enabled(),
        _ => search_not_enabled(),
    }
}

fn current_op(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$currentOp";
    let doc = value.as_doc().ok_or_else(|| options_type(name, value.kind().alias()))?;
    check_admin(name, parser.context)?;
    let (mut idle_connections, mut idle_sessions, mut cuts_long) = (false, true, false);
    for element in doc {
        let (field, value) = (element.name.to_str_lossy(), element.value.get());
        let kind = value.kind().alias();
        match (&*field, value) {
            ("idleConnections", Value::Boolean(flag)) => idle_connections = flag,
            ("idleSessions", Value::Boolean(flag)) => idle_sessions = flag,
            ("truncateOps", Value::Boolean(flag)) => cuts_long = flag,
            ("allUsers" | "localOps" | "idleCursors" | "backtrace", Value::Boolean(_)) => {}
            ("idleConnections", _) => return Err(idle_type(&field, kind)),
            (
                "allUsers" | "idleSessions" | "localOps" | "truncateOps" | "idleCursors"
                | "backtrace",
                _,
            ) => return Err(flag_type(&field, kind)),
            _ => return Err(unknown_option(&field)),
        }
    }
    let report = Report::CurrentOp { idle_connections, idle_sessions, cuts_long };
    parser.push(Reporting::new(name, report, doc));
    Ok(())
}

fn check_admin(name: &str, context: &Context) -> Result<()> {
    match context.subject.as_deref() {
        Some(Subject { database, collection: None }) if database == "admin" => Ok(()),
        _ => Err(not_in_admin(name)),
    }
}

fn list_catalog(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let doc = value.as_doc().filter(|doc| doc.is_empty()).ok_or_else(catalog_not_empty)?;
    if let Some(Subject { database, collection: None }) = parser.context.subject.as_deref()
        && database != "admin"
    {
        return Err(catalog_not_in_admin());
    }
    parser.push(Reporting::new("$listCatalog", Report::Catalog, doc));
    Ok(())
}

fn list_local_sessions(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$listLocalSessions";
    let (users, doc) = users_of(name, value)?;
    match parser.context.subject.as_deref() {
        Some(Subject { collection: None, .. }) => {}
        _ => return Err(not_collectionless()),
    }
    parser.push(Reporting::new(name, Report::Sessions { users }, doc));
    Ok(())
}

fn list_sessions(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$listSessions";
    let (users, doc) = users_of(name, value)?;
    match parser.context.subject.as_deref() {
        Some(Subject { database, collection: Some(collection) })
            if database == "config" && collection == "system.sessions" => {}
        _ => return Err(not_sessions()),
    }
    parser.push(Reporting::new(name, Report::Sessions { users }, doc));
    Ok(())
}

/// What the view `config.transactions` is made of.
fn list_transactions(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$_internalListTransactions";
    let doc = value.as_doc().ok_or_else(|| options_type(name, value.kind().alias()))?;
    match parser.context.subject.as_deref() {
        Some(Subject { database, collection: Some(collection) })
            if database == "config" && collection == "transactions" => {}
        _ => return Err(not_transactions()),
    }
    parser.push(Reporting::new(name, Report::SessionRecords, doc));
    Ok(())
}

/// User and database of everyone whose sessions are meant.
type Users = Option<Vec<(String, String)>>;

/// Whose sessions are meant: everyone's unless users are named, for nobody has to say who he is.
fn users_of<'v>(name: &str, value: Value<'v>) -> Result<(Users, Doc<'v>)> {
    let doc = value.as_doc().ok_or_else(|| options_type(name, value.kind().alias()))?;
    let (mut all, mut users) = (false, None);
    for element in doc {
        let (field, value) = (element.name.to_str_lossy(), element.value.get());
        let wrong = |expected: &str| field_type(name, &field, value.kind().alias(), expected);
        match &*field {
            "allUsers" => match value {
                Value::Boolean(flag) => all = flag,
                _ => return Err(wrong("bool")),
            },
            "users" => users = Some(value.as_array().ok_or_else(|| wrong("array"))?),
            _ => return Err(unknown_field(name, &field)),
        }
    }
    let mut named = Vec::new();
    for (at, user) in users.unwrap_or(Doc::EMPTY).values().enumerate() {
        let kind = user.kind().alias();
        let place = format!("users.{at}");
        let user = user.as_doc().ok_or_else(|| field_type(name, &place, kind, "object"))?;
        named.push(user_of(name, user)?);
    }
    if all && !named.is_empty() {
        return Err(users_and_all(name));
    }
    Ok((Some(named).filter(|named| !named.is_empty()), doc))
}

/// The user and the database that an element of `users` names.
fn user_of(name: &str, spec: Doc<'_>) -> Result<(String, String)> {
    let (mut user, mut database) = (None, None);
    for element in spec {
        let (field, value) = (element.name.to_str_lossy(), element.value.get());
        let slot = match &*field {
            "user" => &mut user,
            "db" => &mut database,
            _ => return Err(unknown_field(name, &format!("users.{field}"))),
        };
        let kind = value.kind().alias();
        let text = value.as_str();
        let wrong = || field_type(name, &format!("users.{field}"), kind, "string");
        *slot = Some(text.ok_or_else(wrong)?.to_string());
    }
    let user = user.ok_or_else(|| users_incomplete(name, "user"))?;
    Ok((user, database.ok_or_else(|| users_incomplete(name, "db"))?))
}

fn sharded(value: Value<'_>, _: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(doc) if doc.is_empty() => Err(not_sharded()),
        _ => Err(sharded_not_empty()),
    }
}

impl Stage for Reporting {
    fn name(&self) -> &'static str {
        self.name
    }

    fn print(&self) -> ValueBuf {
        self.argument.clone()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Report(&self.report)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(input)
    }
}

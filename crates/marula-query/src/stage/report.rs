//! Stages whose documents the server writes, such as `$indexStats` and `$currentOp`.
//!
//! Each stage describes the documents in a [`Report`]. The caller that runs the pipeline writes the
//! documents and gives them to the stage as its input.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::coll_stats::CollectionStats;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow};
use crate::context::{Context, Subject};
use crate::feature_version::FeatureVersion;
use crate::once::unknown_field;

errors! {
    index_stats_not_empty() = 28803, "The $indexStats stage specification must be an empty object";
    value_type(name: &str, kind: &str) = FailedToParse, "{name} value must be an object. Found: {kind}";
    plan_cache_not_empty() = FailedToParse, "$planCacheStats parameters object must be empty. Found: object";
    options_type(name: &str, kind: &str) = TypeMismatch, "{name} options must be specified in an object, but found: {kind}";
    not_in_admin(name: &str) = InvalidNamespace, "{name} must be run against the 'admin' database with {{aggregate: 1}}";
    catalog_not_empty() = 6_200_600, "The $listCatalog stage specification must be an empty object";
    catalog_not_in_admin() = InvalidNamespace, "Collectionless $listCatalog must be run against the 'admin' database with {{aggregate: 1}}";
    not_collectionless() = InvalidNamespace, "$listLocalSessions must be run against the database with {{aggregate: 1}}, not a collection";
    not_transactions() = InvalidNamespace, "$_internalListTransactions may only be run against config.transactions";
    not_cluster() = InvalidNamespace, "$_internalListCluster may only be run against the collections of the database config that show a cluster";
    not_sessions() = InvalidNamespace, "$listSessions may only be run against config.system.sessions";
    flag_type(field: &str, kind: &str) = TypeMismatch, "The '{field}' parameter of the $currentOp stage must be a boolean value, but found: {kind}";
    idle_type(field: &str, kind: &str) = FailedToParse, "The '{field}' parameter of the $currentOp stage must be a boolean value, but found: {kind}";
    unknown_option(field: &str) = FailedToParse, "Unrecognized option '{field}' in $currentOp stage.";
    field_type(name: &str, field: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '{name}.{field}' is the wrong type '{kind}', expected type '{expected}'";
    users_incomplete(name: &str, field: &str) = IDLFailedToParse, "BSON field '{name}.users.{field}' is missing but a required field";
    users_and_all(name: &str) = UnsupportedFormat, "{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time";
    no_resource_consumption() = CommandNotSupported, "The aggregateOperationResourceConsumption server parameter is not set";
    /// Full-text search needs a service that Marula does not have.
    no_search(name: &str) = 6047401, "{name} stage is only allowed on MongoDB Atlas";
    /// The same error in later releases.
    search_not_enabled() = SearchNotEnabled, "Using $search and $vectorSearch aggregation stages requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs";
    /// The same error of the stage that lists search indexes.
    search_indexes_not_enabled() = SearchNotEnabled, "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs";
    sharded_not_empty() = 6789100, "The $shardedDataDistribution stage specification must be an empty object";
    not_sharded() = 6789101, "The $shardedDataDistribution stage can only be run on mongoS";
}

/// The users whose sessions a stage lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionUsers {
    /// The user who asks; without access control, everybody.
    Own,
    /// User and database of each.
    Named(Vec<(String, String)>),
    /// Everybody.
    All,
}

/// The server data that a stage asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Sizes and counts of the collection.
    CollectionStats(CollectionStats),
    /// The number of uses of each index of the collection.
    IndexStats,
    /// The cached plans of the collection.
    PlanCacheStats,
    /// The running operations.
    CurrentOp {
        /// Whether idle connections are included.
        idle_connections: bool,
        /// Whether cursors are shown that no command reads.
        idle_cursors: bool,
        /// Whether idle open transactions are included.
        idle_sessions: bool,
        /// Whether long commands are truncated.
        cuts_long: bool,
        /// Whether operations of this node alone are shown.
        is_local: bool,
    },
    /// The cached sessions.
    Sessions {
        /// The users that have them.
        users: SessionUsers,
    },
    /// The newest numbered write of each session, as `config.transactions` shows it.
    SessionRecords,
    /// The collection of the database `config` that shows a part of the cluster.
    Cluster,
    /// The catalogue's entry of the collection, or of all collections.
    Catalog,
    /// Data that this server does not have: statistics by query shape, sampled queries, query
    /// settings.
    Nothing,
}

impl Report {
    /// Returns whether the stage runs on a collection, and not on the server.
    pub fn needs_collection(&self) -> bool {
        use Report::{CollectionStats, IndexStats, PlanCacheStats};
        matches!(self, CollectionStats(_) | IndexStats | PlanCacheStats)
    }

    /// Returns whether it is about the namespace that it is on, a view too, and not about the
    /// collection under a view. Within a stage, such as `$lookup`, views are resolved before.
    pub fn is_of_namespace(&self) -> bool {
        matches!(self, Report::CollectionStats(_))
    }
}

const fn row(name: &'static str, parse: fn(Value<'_>, &mut Parser<'_>) -> Result<()>) -> StageRow {
    StageRow { name, since: FeatureVersion::V6_0, place: StagePlace::First, parse }
}

/// The stages.
pub(super) const ROWS: &[StageRow] = &[
    row("$indexStats", index_stats),
    row("$planCacheStats", plan_cache_stats),
    row("$currentOp", current_op),
    row("$listCatalog", list_catalog),
    row("$listLocalSessions", list_local_sessions),
    row("$listSessions", list_sessions),
    row("$_internalListTransactions", list_transactions),
    row("$_internalListCluster", list_cluster),
    row("$queryStats", query_stats),
    row("$operationMetrics", |_, _| Err(no_resource_consumption())),
    row("$search", |_, parser| Err(search_refused("$search", parser.context))),
    row("$searchMeta", |_, parser| Err(search_refused("$searchMeta", parser.context))),
    row("$vectorSearch", |_, parser| Err(search_refused("$vectorSearch", parser.context))),
    row("$listSearchIndexes", |_, parser| {
        Err(search_refused("$listSearchIndexes", parser.context))
    }),
    row("$shardedDataDistribution", sharded),
    StageRow {
        name: "$listSampledQueries",
        since: FeatureVersion::V7_0,
        place: StagePlace::First,
        parse: list_sampled_queries,
    },
    StageRow {
        name: "$querySettings",
        since: FeatureVersion::V8_0,
        place: StagePlace::First,
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
    /// Creates a stage for `report`.
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

/// Checks the argument of one of these stages as far as possible before any stage is parsed.
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

/// Checks `allUsers`, which determines the privileges that a `$currentOp` needs.
fn check_all_users(value: Value<'_>) -> Result<()> {
    let doc = value.as_doc().ok_or_else(|| options_type("$currentOp", value.kind().alias()))?;
    match doc.get("allUsers").map(|flag| flag.kind()) {
        None | Some(Type::Boolean) => Ok(()),
        Some(kind) => Err(flag_type("allUsers", kind.alias())),
    }
}

/// Returns the argument of a stage without options.
fn no_options<'v>(name: &str, value: Value<'v>) -> Result<Doc<'v>> {
    let doc = value.as_doc().ok_or_else(|| value_type(name, value.kind().alias()))?;
    match doc.iter().next() {
        Some(first) => Err(unknown_field(name, first.name)),
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

/// Parses `$listSampledQueries`: no queries are sampled, so it has no documents.
fn list_sampled_queries(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let field = ("namespace", Type::String);
    nothing("$listSampledQueries", field, value, parser)
}

/// Parses `$querySettings`: no settings can be made, so it has no documents.
fn query_settings(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let field = ("showDebugQueryShape", Type::Boolean);
    nothing("$querySettings", field, value, parser)
}

/// Adds a stage of the database `admin` without documents; its argument may have one field.
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
            return Err(unknown_field(name, element.name));
        }
        if found != kind {
            return Err(field_type(name, known, found.alias(), kind.alias()));
        }
    }
    check_admin(name, parser.context)?;
    parser.push(Reporting::new(name, Report::Nothing, doc));
    Ok(())
}

/// Returns the error of a stage of full-text search.
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
    let (mut idle_connections, mut idle_sessions, mut idle_cursors) = (false, true, false);
    let (mut cuts_long, mut is_local) = (false, false);
    for element in doc {
        let (field, value) = (element.name.to_str_lossy(), element.value.get());
        let kind = value.kind().alias();
        match (&*field, value) {
            ("idleConnections", Value::Boolean(flag)) => idle_connections = flag,
            ("idleSessions", Value::Boolean(flag)) => idle_sessions = flag,
            ("idleCursors", Value::Boolean(flag)) => idle_cursors = flag,
            ("truncateOps", Value::Boolean(flag)) => cuts_long = flag,
            ("localOps", Value::Boolean(flag)) => is_local = flag,
            ("allUsers" | "backtrace", Value::Boolean(_)) => {}
            ("idleConnections", _) => return Err(idle_type(&field, kind)),
            (
                "allUsers" | "idleSessions" | "localOps" | "truncateOps" | "idleCursors"
                | "backtrace",
                _,
            ) => return Err(flag_type(&field, kind)),
            _ => return Err(unknown_option(&field)),
        }
    }
    let report =
        Report::CurrentOp { idle_connections, idle_sessions, idle_cursors, cuts_long, is_local };
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

/// Parses the source of the view `config.transactions`.
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

/// Parses the source of the views that show a cluster, such as `config.shards`.
fn list_cluster(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let name = "$_internalListCluster";
    let doc = value.as_doc().ok_or_else(|| options_type(name, value.kind().alias()))?;
    match parser.context.subject.as_deref() {
        Some(Subject { database, collection: Some(_) }) if database == "config" => {}
        _ => return Err(not_cluster()),
    }
    parser.push(Reporting::new(name, Report::Cluster, doc));
    Ok(())
}

/// Returns the users whose sessions are listed.
fn users_of<'v>(name: &str, value: Value<'v>) -> Result<(SessionUsers, Doc<'v>)> {
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
            _ => return Err(unknown_field(name, element.name)),
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
    let users = match named.is_empty() {
        true if all => SessionUsers::All,
        true => SessionUsers::Own,
        false => SessionUsers::Named(named),
    };
    Ok((users, doc))
}

/// Returns the user and the database that an element of `users` names.
fn user_of(name: &str, spec: Doc<'_>) -> Result<(String, String)> {
    let (mut user, mut database) = (None, None);
    for element in spec {
        let (field, value) = (element.name.to_str_lossy(), element.value.get());
        let slot = match &*field {
            "user" => &mut user,
            "db" => &mut database,
            _ => return Err(unknown_field(&format!("{name}.users"), element.name)),
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

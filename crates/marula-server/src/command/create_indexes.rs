//! `createIndexes`: builds the indexes that do not exist yet.

use std::time::{Duration, Instant};

use marula_bson::{ByteSlice, Doc, DocWriter, Type, Value};
use marula_db::build::{BuildOptions, Phase, Progress};
use marula_db::catalog::indexes::check_new;
use marula_db::index::spec::IndexRequest;
use marula_db::{Collection, IndexSpec, Namespace};
use marula_error::{Result, codes, errors};
use marula_operation::targets;
use marula_operation::time_series::index;
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::collection_uuid;
use crate::context::Context;
use crate::operation;
use crate::request::Request;
use crate::time_series;
use crate::writes;

/// The interval at which the progress of a build is logged.
const LOG_EVERY: Duration = Duration::from_secs(3);

/// The maximum number in `commitQuorum`: that of the members of a set.
const QUORUM_MAX: i64 = 50;

errors! {
    younger_than_transaction(name: &str) = IndexBuildAlreadyInProgress, "Identical index already exists: {name}";
    system_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot write to system collection {ns} within a transaction.";
    existing_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot create new indexes on existing collection {ns} in a multi-document transaction.";
    non_empty_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot create new indexes on non-empty collection {ns} in a multi-document transaction.";
    no_indexes() = BadValue, "Must specify at least one index to create";
    ttl_capped() = CannotCreateIndex, "Cannot create TTL index on a capped collection";
    quorum_range() = FailedToParse, "commitQuorum has to be a non-negative number and not greater than 50";
    quorum_standalone() = BadValue, "Standalones can't specify commitQuorum";
    quorum_empty() = FailedToParse, "commitQuorum can't be an empty string";
    quorum_mode(mode: &str) = UnknownReplWriteConcern, "No write concern mode named '{mode}' found in replica set configuration";
    quorum_unsatisfiable() = UnsatisfiableCommitQuorum, "Not enough data-bearing nodes to satisfy commit quorum";
}

pub(super) static COMMAND: Command = Command {
    name: "createIndexes",
    help: "Builds the indexes that do not exist yet; creates the collection if it does not exist.",
    writes: true,
    takes_write_concern: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "createIndexes",
        fields: &[
            Field::optional("v", Types::NUMBER),
            Field::optional("collectionUUID", Types::Uuid),
            Field::required("indexes", Types::ARRAY),
            Field::optional("ignoreUnknownIndexOptions", Types::FLAG),
            Field::optional("isTimeseriesNamespace", Types::FLAG),
            Field::optional(
                "commitQuorum",
                Types::Of(&[
                    Type::Int64,
                    Type::Int32,
                    Type::Decimal128,
                    Type::Double,
                    Type::String,
                ]),
            ),
        ],
    },
    auth: Auth::Collection(&["createIndex"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    loop {
        if let Some(outcome) = build_in_present_collection(context, request, reply)? {
            return Ok(outcome);
        }
        context.check_interrupt()?;
    }
}

/// Builds the indexes in the collection that has the name now; `None`, with nothing in the reply,
/// if another command dropped it before the build began.
fn build_in_present_collection(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Option<Outcome>> {
    let ns = request.namespace()?;
    writes::check_writable(&ns)?;
    let quorum = request.arg("commitQuorum");
    let server = context.server.clone();
    let existing = context.unit.collection(&ns);
    let buckets = match &existing {
        Some(collection) => server.db.buckets_of(collection)?,
        None => None,
    };
    let version = server.db.feature_version();
    let collection = buckets.as_deref().or(existing.as_deref());
    if context.entered.is_some() {
        let target = buckets.as_ref().map_or_else(|| ns.clone(), |buckets| buckets.namespace());
        if writes::is_system(&target) {
            return Err(system_in_transaction(&target));
        }
    }
    let specs = specs(request, collection, buckets.is_some(), version, || {
        if let Some(quorum) = quorum {
            if server.options.repl_set.is_none() {
                return Err(quorum_standalone());
            }
            check_quorum(quorum)?;
        }
        if let Some(collection) = existing.as_ref().filter(|_| buckets.is_none()) {
            targets::check_not_view(collection)?;
        }
        collection_uuid::check_ordinary(context, request, &ns)
    })?;
    let is_capped =
        existing.as_ref().is_some_and(|collection| collection.state().options.capped.is_some());
    if is_capped && specs.iter().any(|spec| spec.expire_after_seconds.is_some()) {
        return Err(ttl_capped());
    }
    let is_new = existing.is_none();
    let has = |spec: &IndexSpec| {
        let state = collection.map(|collection| collection.state());
        state.is_some_and(|state| state.indexes.iter().any(|index| index.spec.same_signature(spec)))
    };
    if !specs.iter().all(has) {
        context.check_user_writes(ns.db())?;
    }
    if is_new {
        // The collection is not created for invalid indexes.
        check_new(&ns, &specs)?;
    }
    if let (Some(transaction), Some(existing)) = (context.unit.transaction(), &existing) {
        let is_own = transaction.has_created(existing);
        if !is_own {
            context.unit.touch(existing)?;
            if !server.db.has_indexes(existing, &specs)? {
                return Err(existing_in_transaction(&ns));
            }
            let seen = context.unit.state(existing);
            let is_seen = |spec: &&IndexSpec| seen.index(&spec.name).is_some();
            if let Some(young) = specs.iter().find(|spec| !is_seen(spec)) {
                return Err(younger_than_transaction(&young.name));
            }
        }
        if is_own && transaction.has_documents_in(existing) {
            return Err(non_empty_in_transaction(&ns));
        }
    }
    let collection = match buckets {
        Some(buckets) => buckets,
        None => context.unit.collection_or_create(&ns)?,
    };
    let (before, after) = match context.unit.transaction() {
        Some(transaction) => transaction.create_indexes(&collection, &specs)?,
        None => {
            let built = with_progress(context, &ns, |options| {
                let options = BuildOptions { is_collection_new: is_new, ..options };
                server.db.build_indexes(&collection, &specs, options)
            });
            match built {
                Err(error)
                    if error.code() == codes::NamespaceNotFound && collection.is_dropped() =>
                {
                    return Ok(None);
                }
                built => built?,
            }
        }
    };
    let count = |count: usize| i32::try_from(count).expect("a collection has at most 64 indexes");
    reply.append("numIndexesBefore", count(before));
    reply.append("numIndexesAfter", count(after));
    if before == after {
        if is_new {
            reply.append("createdCollectionAutomatically", true);
        }
        reply.append("note", "all indexes already exist");
        return Ok(Some(Outcome::Done));
    }
    // A collection that the same transaction created counts as created by this command.
    let transaction = context.unit.transaction();
    let is_own = transaction.is_some_and(|transaction| transaction.has_created(&collection));
    reply.append("createdCollectionAutomatically", is_new || is_own);
    if server.options.repl_set.is_some() {
        match quorum {
            Some(number @ (Value::Double(_) | Value::Decimal128(_))) => {
                #[allow(clippy::cast_possible_truncation)]
                reply.append("commitQuorum", count_of(number) as i32);
            }
            other => {
                reply.append("commitQuorum", other.unwrap_or("votingMembers".into()));
            }
        }
    }
    if after - before < specs.len() {
        reply.append("note", "index already exists");
    }
    Ok(Some(Outcome::Done))
}

/// Runs `build` with the permitted memory, and reports its progress in `currentOp` and the log.
pub(super) fn with_progress<T>(
    context: &Context<'_>,
    ns: &Namespace,
    build: impl FnOnce(BuildOptions<'_>) -> Result<T>,
) -> Result<T> {
    let megabytes = context.server.parameters.number("maxIndexBuildMemoryUsageMegabytes");
    let memory_bytes_max = usize::try_from(megabytes).unwrap_or(0).saturating_mul(1 << 20);
    let mut logged = Instant::now();
    let mut watch = |progress: Progress| {
        let Progress { phase, done, total } = progress;
        let what = phase_text(phase);
        context.connection.operation.set_progress(operation::Progress { what, done, total });
        if logged.elapsed() >= LOG_EVERY {
            logged = Instant::now();
            tracing::info!(target: "INDEX", namespace = %ns, phase = what, done, total, "Index build: progress");
        }
        context.check_interrupt()
    };
    build(BuildOptions { memory_bytes_max, is_collection_new: false, watch: &mut watch })
}

/// Returns the name of a phase for `currentOp` and the log.
fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Scan => "Index Build: scanning collection",
        Phase::Load => "Index Build: inserting keys from external sorter into index",
        Phase::Drain => "Index Build: draining writes received during build",
    }
}

/// Checks `commitQuorum` for a set of one member. The server does not wait for a quorum: a
/// completed build here is the whole quorum.
fn check_quorum(quorum: Value<'_>) -> Result<()> {
    check_quorum_form(quorum)?;
    match quorum {
        Value::String(mode) if !matches!(mode.as_bytes(), b"majority" | b"votingMembers") => {
            Err(quorum_mode(&mode.to_string()))
        }
        Value::String(_) => Ok(()),
        number if count_of(number) > 1 => Err(quorum_unsatisfiable()),
        _ => Ok(()),
    }
}

/// Checks that `commitQuorum` is a mode, or a valid number of members.
pub(super) fn check_quorum_form(quorum: Value<'_>) -> Result<()> {
    match quorum {
        Value::String(mode) if mode.is_empty() => Err(quorum_empty()),
        Value::String(_) => Ok(()),
        number if !(0..=QUORUM_MAX).contains(&count_of(number)) => Err(quorum_range()),
        _ => Ok(()),
    }
}

/// Returns a numeric quorum as an integer; 0 for other types.
fn count_of(quorum: Value<'_>) -> i64 {
    saturated_long(quorum).unwrap_or(0)
}

/// Parses the specifications, with `check_collection` where mongod checks the collection.
fn specs(
    request: &Request<'_>,
    collection: Option<&Collection>,
    is_of_measurements: bool,
    version: FeatureVersion,
    check_collection: impl FnOnce() -> Result<()>,
) -> Result<Vec<IndexSpec>> {
    let documents = request.documents("indexes").ok_or_else(no_indexes)?;
    let documents: Vec<Doc<'_>> = documents.collect::<Result<_>>()?;
    if documents.is_empty() {
        return Err(no_indexes());
    }
    let state = collection.map(|collection| collection.state());
    let options = state.as_ref().map(|state| &state.options);
    let time_series = options.and_then(|options| options.time_series.as_ref());
    let asked = IndexRequest {
        collation: options.and_then(|options| options.collation.as_ref()),
        clustered: options
            .filter(|_| !is_of_measurements)
            .and_then(|options| options.clustered.as_ref())
            .map(|clustered| clustered.as_doc()),
        // mongod reads the specifications of an index on measurements without the flag.
        ignores_unknown: !is_of_measurements && request.flag("ignoreUnknownIndexOptions"),
        version,
    };
    let mut specs = Vec::with_capacity(documents.len());
    for document in documents {
        let form = asked.form(document);
        specs.push(match time_series.filter(|_| is_of_measurements) {
            Some(options) => index::of_buckets(options, form.as_doc(), asked.collation)
                .map_err(|error| time_series::quoting(error, request))?,
            None => form,
        });
    }
    asked.specs_of(&specs, check_collection)
}

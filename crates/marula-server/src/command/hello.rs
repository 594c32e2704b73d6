//! `hello` and its old name `isMaster`: describe the server, and start a connection.
//!
//! The first `hello` of a connection carries the client's metadata and its compressors. A `hello`
//! with `maxAwaitTimeMS` waits for a change of the topology, which a single node has only when it
//! steps down; with the flag for several replies it repeats that.
//! Source: driver specifications "MongoDB Handshake", "Server Discovery and Monitoring",
//! "OP_COMPRESSED"; errors recorded from mongod 6.0.

use std::time::Duration;

use marula_bson::{BStr, Doc, DocWriter, Type, Value, doc_fields};
use marula_error::{Result, errors};
use marula_query::feature_version::FeatureVersion;
use marula_wire::{Compressor, Form, message::MESSAGE_BYTES_MAX};

use super::build_info::DOCUMENT_BYTES_MAX;
use super::fields::{Field, Fields, Types};
use super::{Auth, Command, CommandPlace, Outcome, sasl};
use crate::context::{Context, ELECTION_ID};
use crate::dispatch;
use crate::log::attributes;
use crate::net::service::Reason;
use crate::request::Request;
use crate::server::Server;
use crate::session;

/// Returns the newest wire version of a release, by which drivers select features.
///
/// Source: driver specification "Wire Version Min/Max".
fn wire_version_max(version: FeatureVersion) -> i32 {
    match version {
        FeatureVersion::V6_0 => 17,
        FeatureVersion::V7_0 => 21,
        FeatureVersion::V8_0 => 25,
    }
}

/// The maximum number of statements in one write command.
pub(crate) const WRITE_BATCH_MAX: i32 = 100_000;
/// The maximum size of an application's name. Source: driver specification "MongoDB Handshake".
const APP_NAME_BYTES_MAX: usize = 128;
/// The maximum size of a client's metadata. Source: as above.
const METADATA_BYTES_MAX: usize = 512;

errors! {
    mechs_type(kind: &str) = TypeMismatch, "BSON field 'hello.saslSupportedMechs' is the wrong type '{kind}', expected types '[string, object']";
    metadata_twice() = ClientMetadataCannotBeMutated, "The client metadata document may only be sent in the first hello";
    /// The metadata of a client is not a document.
    pub metadata_type() = TypeMismatch, "The client metadata document must be a document";
    metadata_too_large(max: usize) = ClientMetadataDocumentTooLarge, "The client metadata document must be less then or equal to {max} bytes";
    metadata_no_doc(field: &str) = ClientMetadataMissingField, "Missing required sub-document '{field}' in the client metadata document";
    metadata_no_field(field: &str) = ClientMetadataMissingField, "Missing required field '{field}' in the client metadata document";
    metadata_not_doc(field: &str) = TypeMismatch, "The '{field}' field is required to be a BSON document in the client metadata document";
    metadata_not_string(field: &str) = TypeMismatch, "The '{field}' field must be a string in the client metadata document";
    app_name_too_long(max: usize) = ClientMetadataAppNameTooLarge, "The 'application.name' field must be less then or equal to {max} bytes in the client metadata document";
    compressor_type(at: &BStr, kind: &str) = TypeMismatch, "BSON field 'hello.compression.{at}' is the wrong type '{kind}', expected type 'string'";
    await_without_version() = 31_368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'";
    version_without_await() = 31_368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'";
    await_negative(ms: i64) = 51_024, "BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{ms}'";
    version_negative() = 31_372, "topologyVersion must have a non-negative counter";
    version_from_the_future(counter: i64, ours: i64) = 51_764, "Received a topology version with counter: {counter} which is greater than the server topology version counter: {ours}";
    bad_user_name() = BadValue, "UserName must contain a '.' separated database.user pair";
    empty_authenticate() = BadValue, "hello.speculativeAuthenticate must be a non-empty Object";
    exhaust_without_await() = 51_756, "An exhaust hello request must specify 'maxAwaitTimeMS'";
}

const FIELDS: &[Field] = &[
    Field::optional("compression", Types::ARRAY),
    Field::optional("topologyVersion", Types::DOCUMENT).of(VERSION_FIELDS),
    Field::optional("maxAwaitTimeMS", Types::NUMBER).checked(check_await),
    Field::optional("saslSupportedMechs", Types::Of(&[Type::String, Type::Document]))
        .or(mechs_type),
    Field::optional("speculativeAuthenticate", Types::DOCUMENT),
    Field::optional("hostInfo", Types::STRING),
    Field::optional("internalClient", Types::DOCUMENT).of(INTERNAL_FIELDS),
    Field::optional("loadBalanced", Types::BOOLEAN),
    Field::optional("helloOk", Types::FLAG),
    Field::optional("hangUpOnStepDown", Types::FLAG),
    Field::optional("forShell", Types::FLAG),
];

const INTERNAL_FIELDS: &[Field] = &[
    Field::optional("minWireVersion", Types::NUMBER),
    Field::required("maxWireVersion", Types::NUMBER),
];

const VERSION_FIELDS: &[Field] = &[
    Field::required("processId", Types::One(Type::ObjectId)),
    Field::required("counter", Types::One(Type::Int64)),
];

pub(super) static HELLO: Command = Command {
    name: "hello",
    help: "Starts a connection: returns the server's state and features, and receives the client's metadata.",
    place: CommandPlace::Inline,
    ends_with_client: true,
    in_api_v1: true,
    fields: Fields::Known { place: "hello", fields: FIELDS },
    secrets: &["speculativeAuthenticate"],
    run: |context, request, reply| run(context, request, reply, "isWritablePrimary"),
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

pub(super) static IS_MASTER: Command = Command {
    name: "isMaster",
    aliases: &["ismaster"],
    help: "The old name of hello.",
    place: CommandPlace::Inline,
    ends_with_client: true,
    // mongod names the fields by the new name in the errors of both.
    fields: Fields::Known { place: "hello", fields: FIELDS },
    secrets: &["speculativeAuthenticate"],
    run: |context, request, reply| run(context, request, reply, "ismaster"),
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
    primary: &str,
) -> Result<Outcome> {
    if dispatch::is_first(context.call) {
        greet(context, request)?;
        if let Some((seen, wait)) = awaited(context, request)? {
            let server = context.server.clone();
            let by = dispatch::after(wait);
            let by = server.primacy.secondary_until().map_or(by, |until| until.min(by));
            let gone = context.connection.peer.disconnected.clone();
            let arm = move |wake| server.primacy.on_change(seen, by, gone, wake);
            return Ok(Outcome::Retry(Box::new(arm), by));
        }
    }
    context.connection.told_topology = context.server.primacy.changes();
    write(context, request, reply, primary);
    sasl::append_to_hello(context, request, reply)?;
    let streams = request.message.exhaust_allowed() && request.arg("maxAwaitTimeMS").is_some();
    Ok(if streams { Outcome::Stream } else { Outcome::Done })
}

/// Records the metadata and the compressors of the client.
fn greet(context: &mut Context<'_>, request: &Request<'_>) -> Result<()> {
    if context.call.reason == Reason::Streaming {
        return Ok(());
    }
    context.connection.knows_hello |= request.flag("helloOk");
    let metadata = client_metadata(request, context.connection.has_said_hello)?;
    if let Some(metadata) = metadata {
        context.connection.set_metadata(metadata);
    }
    take_compressors(context, request)?;
    // One that is misread does not count as the first.
    context.connection.has_said_hello = true;
    match request.arg("saslSupportedMechs") {
        Some(Value::String(user)) if !user.contains(&b'.') => return Err(bad_user_name()),
        Some(user) => {
            sasl::hello_user(user)?;
        }
        None => {}
    }
    if request
        .arg("speculativeAuthenticate")
        .is_some_and(|value| value.as_doc() == Some(Doc::EMPTY))
    {
        return Err(empty_authenticate());
    }
    if let Some(Value::Document(speculation)) = request.arg("speculativeAuthenticate") {
        sasl::check_speculation(speculation)?;
    }
    if metadata.is_some() {
        log_metadata(context);
    }
    Ok(())
}

/// Records the compressors that both ends support.
fn take_compressors(context: &mut Context<'_>, request: &Request<'_>) -> Result<()> {
    let compression = request.arg("compression").and_then(|value| value.as_array());
    let Some(compression) = compression else { return Ok(()) };
    context.connection.compressors.clear();
    for element in compression {
        if element.value.get().is_nullish() {
            continue;
        }
        let Value::String(name) = element.value.get() else {
            let kind = element.value.kind().alias();
            return Err(compressor_type(element.name, kind));
        };
        let offered = context.server.options.compressors;
        let known = Compressor::from_name(name).filter(|&found| offered.has(found));
        if let Some(compressor) = known
            && !context.connection.compressors.contains(&compressor)
        {
            context.connection.compressors.push(compressor);
        }
    }
    Ok(())
}

/// Returns the client's metadata, if a request is a `hello` that has them. `has_said_hello` is
/// whether there has been a `hello` before.
///
/// Errors: metadata that are not those of a client, or not in the first `hello`.
pub(crate) fn client_metadata<'r>(
    request: &Request<'r>,
    has_said_hello: bool,
) -> Result<Option<Doc<'r>>> {
    let client = request.args.iter().find(|element| element.name == "client");
    let Some(client) = client.filter(|_| is_hello(request)) else { return Ok(None) };
    if has_said_hello {
        return Err(metadata_twice());
    }
    let Value::Document(metadata) = client.value.get() else { return Err(metadata_type()) };
    check_metadata(metadata)?;
    Ok(Some(metadata))
}

/// Returns whether a request is a `hello`, by whatever name.
pub(crate) fn is_hello(request: &Request<'_>) -> bool {
    matches!(request.command.name, "hello" | "isMaster")
}

/// Logs the client of a connection, in the log and the audit log.
fn log_metadata(context: &Context<'_>) {
    let (server, connection) = (context.server, &*context.connection);
    let Some(metadata) = &connection.metadata else { return };
    if let (Some(audit), Some(actor)) = (&server.options.audit, &connection.actor) {
        audit.write(actor, "clientMetadata", 0, |param| {
            actor.write_end("localEndpoint", param);
            param.append("clientMetadata", metadata);
        });
    }
    if server.log.is_quiet() {
        return;
    }
    let attr = attributes(|out| {
        out.append("remote", dispatch::address_text(connection.peer.remote).as_str());
        out.append("client", format!("conn{}", connection.id).as_str());
        let mut names = out.begin_array("negotiatedCompressors");
        connection.compressors.iter().for_each(|compressor| {
            names.push(compressor.name());
        });
        drop(names);
        out.append("doc", metadata);
    });
    tracing::info!(target: "NETWORK", id = 51_800, attr, "client metadata");
}

/// Checks the metadata of a client.
pub(crate) fn check_metadata(metadata: Doc<'_>) -> Result<()> {
    if metadata.as_bytes().len() > METADATA_BYTES_MAX && metadata.get("mongos").is_none() {
        // Metadata up to twice the limit is accepted: mongod truncates its long optional fields,
        // and the required ones are small.
        tracing::debug!(target: "NETWORK", bytes = metadata.as_bytes().len(), "long client metadata");
    }
    if metadata.as_bytes().len() > METADATA_BYTES_MAX * 2 {
        return Err(metadata_too_large(METADATA_BYTES_MAX));
    }
    if let Some(application) = metadata.get("application") {
        let Value::Document(application) = application else {
            return Err(metadata_not_doc("application"));
        };
        match application.get("name") {
            None => {}
            Some(Value::String(name)) if name.len() <= APP_NAME_BYTES_MAX => {}
            Some(Value::String(_)) => return Err(app_name_too_long(APP_NAME_BYTES_MAX)),
            Some(_) => return Err(metadata_not_string("application.name")),
        }
    }
    check_part(metadata, "driver", &["name", "version"])?;
    check_part(metadata, "os", &["type"])
}

fn check_part(metadata: Doc<'_>, part: &str, names: &[&str]) -> Result<()> {
    let fields = match metadata.get(part) {
        None => return Err(metadata_no_doc(part)),
        Some(Value::Document(fields)) => fields,
        Some(_) => return Err(metadata_not_doc(part)),
    };
    for name in names {
        match fields.get(name) {
            None => return Err(metadata_no_field(&format!("{part}.{name}"))),
            Some(Value::String(_)) => {}
            Some(_) => return Err(metadata_not_string(&format!("{part}.{name}"))),
        }
    }
    Ok(())
}

/// Checks the time that a client wants to wait.
fn check_await(_: FeatureVersion, wait: Value<'_>) -> Result<()> {
    #[allow(clippy::cast_possible_truncation)]
    match wait.as_f64().unwrap_or(0.0) as i64 {
        negative @ ..0 => Err(await_negative(negative)),
        _ => Ok(()),
    }
}

/// Returns the change that the client knows and the time that it wants to wait for the next one, if
/// it does.
fn awaited(context: &Context<'_>, request: &Request<'_>) -> Result<Option<(i64, Duration)>> {
    let version = request.arg("topologyVersion").and_then(|value| value.as_doc());
    let wait = request.arg("maxAwaitTimeMS").and_then(|value| value.as_f64());
    let (version, wait) = match (version, wait) {
        (None, None) if request.message.exhaust_allowed() => return Err(exhaust_without_await()),
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(await_without_version()),
        (Some(_), None) => return Err(version_without_await()),
        (Some(version), Some(wait)) => (version, wait),
    };
    #[allow(clippy::cast_possible_truncation)]
    let wait_ms = wait as i64;
    let wait_ms_u64 = u64::try_from(wait_ms).map_err(|_| await_negative(wait_ms))?;
    let counter = version.get("counter").and_then(|counter| counter.as_exact_i64()).unwrap_or(0);
    if counter < 0 {
        return Err(version_negative());
    }
    // The topology version of another process is out of date: the reply is sent immediately.
    if version.get("processId") != Some(Value::ObjectId(context.server.process_id)) {
        return Ok(None);
    }
    // A stream of replies is one request: each waits for a change since the one before.
    let seen = match context.call.reason {
        Reason::Streaming => context.connection.told_topology,
        _ => counter,
    };
    let changes = context.server.primacy.changes();
    if seen > changes {
        return Err(version_from_the_future(seen, changes));
    }
    Ok((seen == changes).then_some((seen, Duration::from_millis(wait_ms_u64))))
}

fn write(context: &Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>, primary: &str) {
    let server = context.server;
    if request.arg("helloOk").is_some() {
        reply.append("helloOk", true);
    }
    match &server.options.repl_set {
        Some(name) => write_member(server, reply, name, primary),
        None => {
            reply.append(primary, true);
            // Drivers recognise a mongos by this: they do not look for a replica set, and use
            // sessions and retryable writes.
            reply.append("msg", "isdbgrid");
            write_topology_version(server, reply);
        }
    }
    let newest = wire_version_max(request.version);
    // Another server of a cluster is not an old driver: it must speak the newest version.
    let oldest = if request.arg("internalClient").is_some() { newest } else { 0 };
    doc_fields!(reply;
        "maxBsonObjectSize": DOCUMENT_BYTES_MAX,
        "maxMessageSizeBytes": i32::try_from(MESSAGE_BYTES_MAX).expect("the limit is 48 MB"),
        "maxWriteBatchSize": WRITE_BATCH_MAX,
        "localTime": Value::DateTime(context.server.now_ms()),
        "logicalSessionTimeoutMinutes": session::TIMEOUT_MINUTES,
        "connectionId": i32::try_from(context.connection.id).unwrap_or(i32::MAX),
        "minWireVersion": oldest,
        "maxWireVersion": newest,
        "readOnly": false,
    );
    if request.arg("compression").is_some() && !context.connection.compressors.is_empty() {
        let mut compression = reply.begin_array("compression");
        for compressor in &context.connection.compressors {
            compression.push(compressor.name());
        }
    }
    debug_assert!(matches!(request.message.reply_to().form, Form::Msg | Form::QueryReply));
}

/// Writes the process and the number of changes of its topology.
pub(crate) fn write_topology_version(server: &Server, reply: &mut DocWriter<'_>) {
    doc_fields!(reply;
        "topologyVersion": {
            "processId": server.process_id,
            "counter": server.primacy.changes(),
        },
    );
}

/// Writes the fields of the only member of a replica set.
pub(super) fn write_member(server: &Server, reply: &mut DocWriter<'_>, name: &str, primary: &str) {
    let config = server.replica_set.config();
    let host = config.host(&server.options.host);
    write_topology_version(server, reply);
    doc_fields!(reply;
        "hosts": [host],
        "setName": name,
        "setVersion": Value::whole(config.version),
    );
    let is_primary = server.primacy.is_primary();
    reply.append(primary, is_primary).append("secondary", !is_primary);
    if is_primary {
        reply.append("primary", host);
    }
    reply.append("me", host);
    if !config.tags().is_empty() {
        reply.append("tags", config.tags());
    }
    if is_primary {
        reply.append("electionId", ELECTION_ID);
    }
    let newest = server.db.last_write_timestamp(server.now_ms());
    let at_ms = i64::try_from(newest >> 32).expect("a second fits 32 bits") * 1000;
    let mut last_write = reply.begin_doc("lastWrite");
    for (time, date) in [("opTime", "lastWriteDate"), ("majorityOpTime", "majorityWriteDate")] {
        let mut op_time = last_write.begin_doc(time);
        op_time.append("ts", Value::Timestamp(newest)).append("t", 1_i64);
        drop(op_time);
        last_write.append(date, Value::DateTime(at_ms));
    }
}

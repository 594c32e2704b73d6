//! Authentication: `saslStart`, `saslContinue`, `authenticate`, and the speculative authentication
//! of `hello`.
//!
//! A connection has at most one conversation; a failure ends it. After success the connection
//! belongs to the user until `logout`.
//! Source: driver specification "Authentication"; errors recorded from mongod 6.0.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use marula_bson::{Binary, ByteSlice, Doc, DocBuf, DocWriter, Type, Value};
use marula_error::{Error, Result, codes, errors};

use super::fields::{self, Field, Types};
use super::update_user::no_such_user;
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::auth::EXTERNAL;
use crate::auth::access::Access;
use crate::auth::attempt::Attempt;
use crate::auth::credentials::Mechanism;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::scram::{Conversation, Rejected, failed};
use crate::context::Context;
use crate::dispatch;
use crate::log::attributes;
use crate::request::Request;

errors! {
    not_enabled(mechanism: &str) = MechanismUnavailable, "Received authentication for mechanism {mechanism} which is not enabled";
    no_mechanism() = BadValue, "Auth mechanism not specified";
    not_there(mechanism: &str, db: &str) = MechanismUnavailable, "Unsupported mechanism '{mechanism}' on authentication database '{db}'";
    no_conversation() = ProtocolError, "No SASL session state found";
    other_conversation() = ProtocolError, "sasl: Mismatched conversation id";
    no_certificate() = AuthenticationFailed, "No verified subject name available from client";
    other_certificate() = AuthenticationFailed, "There is no x.509 client certificate matching the user.";
    not_external() = ProtocolError, "X.509 authentication must always use the $external database.";
    unsupported(mechanism: &str) = BadValue, "Unsupported mechanism: {mechanism}";
    payload_type(kind: &str) = BadValue, "Invalid SASLPayload type. Expected Base64 or BinData, got: {kind}";
    payload_subtype(kind: &str) = BadValue, "Invalid SASLPayload subtype. Expected BinDataGeneral, got: {kind}";
    not_base64() = 10_270, "Failed decoding SASL payload: invalid base64";
    skip_type() = BadValue, "skipEmptyExchange must be boolean";
    unknown_speculation(name: &str) = 51_769, "hello.speculativeAuthenticate unknown command: {name}";
}

/// The mechanism that authenticates by the client's TLS certificate.
const X509: &str = "MONGODB-X509";

/// The mechanisms that mongod enables by default. Certificates need TLS.
pub(crate) const MECHANISMS: &[&str] = &[X509, "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// The parameter for the delay of the reply to a failed login, in milliseconds.
const DELAY_PARAMETER: &str = "authFailedDelayMs";

/// The id of every conversation: a connection has at most one at a time.
const CONVERSATION_ID: i32 = 1;

const START_FIELDS: &[Field] = &[
    Field::required("mechanism", Types::STRING),
    Field::required("payload", Types::Any),
    Field::optional("autoAuthorize", Types::FLAG),
    Field::optional("options", Types::DOCUMENT),
];

pub(super) static START: Command = Command {
    name: "saslStart",
    help: "Starts a conversation by which the client authenticates as a user.",
    place: CommandPlace::Inline,
    ends_with_client: true,
    in_api_v1: true,
    fields: Fields::Strict { place: "saslStart", fields: START_FIELDS },
    secrets: &["payload"],
    run: |ctx, request, reply| {
        if let Some(refused) = delayed(ctx) {
            return Err(refused);
        }
        let start = Start {
            mechanism: request.text("mechanism").map(|name| name.to_string()).unwrap_or_default(),
            payload: Payload::parse(request.arg("payload"))?,
            options: request.arg("options").and_then(|options| options.as_doc()),
            db: request.db,
            is_speculative: false,
        };
        start.run(ctx, reply).map(|()| Outcome::Done).or_else(|error| refuse(ctx, error))
    },
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

pub(super) static CONTINUE: Command = Command {
    name: "saslContinue",
    help: "Continues the conversation that saslStart began.",
    place: CommandPlace::Inline,
    ends_with_client: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "saslContinue",
        fields: &[
            Field::required("conversationId", Types::One(Type::Int32)),
            Field::required("payload", Types::Any),
        ],
    },
    secrets: &["payload"],
    run: |ctx, request, reply| match delayed(ctx) {
        Some(refused) => Err(refused),
        None => go_on(ctx, request, reply).or_else(|error| refuse(ctx, error)),
    },
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

pub(super) static AUTHENTICATE: Command = Command {
    name: "authenticate",
    help: "Authenticates the client by its TLS certificate.",
    place: CommandPlace::Inline,
    ends_with_client: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "authenticate",
        fields: &[
            Field::required("mechanism", Types::STRING),
            Field::optional("user", Types::STRING),
        ],
    },
    run: |ctx, request, reply| match request.text("mechanism") {
        Some(mechanism) if mechanism.is_empty() => Err(no_mechanism()),
        Some(mechanism) if mechanism != X509 => {
            let name = mechanism.to_string();
            let is_known = MECHANISMS.contains(&name.as_str());
            Err(if is_known { unsupported(&name) } else { not_enabled(&name) })
        }
        _ => {
            let user = request.text("user").map(|user| user.to_string());
            by_certificate(ctx, request.db, user.as_deref(), reply)?;
            Ok(Outcome::Done)
        }
    },
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

/// A message of a conversation. A message in base64 gets a reply in base64.
struct Payload {
    bytes: Vec<u8>,
    is_base64: bool,
}

impl Payload {
    fn parse(value: Option<Value<'_>>) -> Result<Self> {
        match value {
            Some(Value::Binary(Binary { subtype: 0, bytes })) => {
                Ok(Payload { bytes: bytes.to_vec(), is_base64: false })
            }
            Some(Value::Binary(Binary { subtype, .. })) => {
                Err(payload_subtype(subtype_name(subtype)))
            }
            Some(Value::String(text)) => {
                let bytes = BASE64.decode(text.as_bytes()).map_err(|_| not_base64())?;
                Ok(Payload { bytes, is_base64: true })
            }
            other => Err(payload_type(other.map_or("null", |other| other.kind().alias()))),
        }
    }

    fn append(&self, bytes: &[u8], reply: &mut DocWriter<'_>) {
        match self.is_base64 {
            true => reply.append("payload", BASE64.encode(bytes).as_str()),
            false => reply.append("payload", Binary { subtype: 0, bytes }),
        };
    }
}

fn subtype_name(subtype: u8) -> &'static str {
    match subtype {
        1 => "function",
        2 => "byte(deprecated)",
        3 => "UUID(deprecated)",
        4 => "UUID",
        5 => "MD5",
        6 => "encrypt",
        7 => "column",
        8 => "sensitive",
        128 => "Custom",
        _ => "invalid",
    }
}

/// The fields of `saslStart`.
struct Start<'a> {
    mechanism: String,
    payload: Payload,
    options: Option<Doc<'a>>,
    db: &'a str,
    /// Whether the request is part of the client's first `hello`.
    is_speculative: bool,
}

impl Start<'_> {
    /// Records an attempt with a mechanism that is not available; returns the error.
    fn unavailable(&self, error: Error, ctx: &Context<'_>) -> Error {
        let (mechanism, user) = (self.mechanism.as_str(), &Name::new("", self.db));
        let is_speculative = self.is_speculative;
        Attempt { mechanism, user, is_speculative, cause: Some(&error) }.record(ctx);
        error
    }

    fn run(&self, ctx: &mut Context<'_>, reply: &mut DocWriter<'_>) -> Result<()> {
        ctx.connection.conversation = None;
        let name = self.mechanism.as_str();
        let mechanism = match Mechanism::of_name(name) {
            Some(_) if !ctx.server.parameters.takes_mechanism(name) => {
                return Err(self.unavailable(not_enabled(name), ctx));
            }
            Some(mechanism) if self.db != EXTERNAL => mechanism,
            _ if MECHANISMS.contains(&name) => {
                return Err(self.unavailable(not_there(name, self.db), ctx));
            }
            _ => return Err(self.unavailable(not_enabled(name), ctx)),
        };
        let skips_empty = match self.options.and_then(|options| options.get("skipEmptyExchange")) {
            None => false,
            Some(Value::Boolean(skips)) => skips,
            Some(_) => return Err(skip_type()),
        };
        if let Some(logins) = ctx.server.logins.of(name) {
            logins.all.received.add(1);
            if self.is_speculative {
                logins.speculative.received.add(1);
            }
        }
        let documents = Documents::new(&ctx.server.db, ctx.now_ms);
        let bytes = &self.payload.bytes;
        let begun = Conversation::begin(&documents, mechanism, self.db, bytes, skips_empty);
        let (mut conversation, answer) = begun.map_err(|Rejected { user, cause }| {
            let (user, is_speculative) = (&user, self.is_speculative);
            Attempt { mechanism: name, user, is_speculative, cause: Some(&cause) }.record(ctx);
            shown(cause)
        })?;
        conversation.is_speculative = self.is_speculative;
        ctx.connection.conversation = Some(Box::new(conversation));
        reply.append("conversationId", CONVERSATION_ID).append("done", false);
        self.payload.append(&answer, reply);
        Ok(())
    }
}

fn go_on(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    // The conversation is put back only if it continues: a failure ends it.
    let conversation = ctx.connection.conversation.take();
    let payload = Payload::parse(request.given("payload"))?;
    let mut conversation = conversation.ok_or_else(no_conversation)?;
    if request.arg("conversationId") != Some(Value::Int32(CONVERSATION_ID)) {
        return Err(other_conversation());
    }
    let (mechanism, is_speculative) = (conversation.mechanism.name(), conversation.is_speculative);
    let answer = conversation.go_on(&payload.bytes).and_then(|answer| {
        if conversation.is_done() {
            let user = &conversation.user;
            sign_in(ctx, user)?;
            Attempt { mechanism, user, is_speculative, cause: None }.record(ctx);
            if let Some(logins) = ctx.server.logins.of(conversation.mechanism.name()) {
                logins.all.successful.add(1);
                if conversation.is_speculative {
                    logins.speculative.successful.add(1);
                }
            }
        }
        Ok(answer)
    });
    let answer = answer.map_err(|cause| {
        let user = &conversation.user;
        Attempt { mechanism, user, is_speculative, cause: Some(&cause) }.record(ctx);
        shown(cause)
    })?;
    reply.append("conversationId", CONVERSATION_ID).append("done", conversation.is_done());
    payload.append(&answer, reply);
    if !conversation.is_done() {
        ctx.connection.conversation = Some(conversation);
    }
    Ok(Outcome::Done)
}

/// Authenticates the connection as the user whom the subject of the client's certificate names.
fn by_certificate(
    ctx: &mut Context<'_>,
    db: &str,
    named: Option<&str>,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let seen = ctx.connection.peer.tls.as_ref().and_then(|seen| seen.get());
    let subject = seen.and_then(|client| client.subject.clone()).ok_or_else(no_certificate)?;
    if !ctx.server.parameters.takes_mechanism(X509) {
        return Err(not_enabled(X509));
    }
    if db != EXTERNAL {
        return Err(not_external());
    }
    if named.is_some_and(|named| !named.is_empty() && named != subject) {
        return Err(other_certificate());
    }
    let logins = ctx.server.logins.of(X509);
    logins.inspect(|logins| logins.all.received.add(1));
    let user = Name::new(&subject, EXTERNAL);
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    let signed_in = match documents.find(Of::User, &user)? {
        None => Err(no_such_user(&subject, EXTERNAL)),
        Some(_) => sign_in(ctx, &user),
    };
    let cause = signed_in.as_ref().err();
    Attempt { mechanism: X509, user: &user, is_speculative: false, cause }.record(ctx);
    signed_in?;
    logins.inspect(|logins| logins.all.successful.add(1));
    reply.append("dbname", EXTERNAL).append("user", subject.as_str());
    Ok(())
}

/// Replies to a failed login after `authFailedDelayMs`, without blocking a thread.
fn refuse(ctx: &mut Context<'_>, error: Error) -> Result<Outcome> {
    let delay_ms = u64::try_from(ctx.server.parameters.number(DELAY_PARAMETER)).unwrap_or(0);
    if delay_ms == 0 || error.code() != codes::AuthenticationFailed {
        return Err(error);
    }
    ctx.connection.refused = Some(error);
    Ok(dispatch::pause(Duration::from_millis(delay_ms)))
}

/// Returns the error of a failed login after its delay.
fn delayed(ctx: &mut Context<'_>) -> Option<Error> {
    if dispatch::is_first(ctx.call) { None } else { ctx.connection.refused.take() }
}

/// Returns the error that the client sees. It does not reveal why authentication failed; other
/// errors are unchanged.
fn shown(cause: Error) -> Error {
    if matches!(cause.code(), codes::AuthenticationFailed | codes::UserNotFound) {
        failed()
    } else {
        cause
    }
}

/// Makes this user the authenticated user of the connection.
fn sign_in(ctx: &mut Context<'_>, user: &Name) -> Result<()> {
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    if let Some(access) = &ctx.connection.access {
        // If the current user was dropped, or created again, the connection is not authenticated
        // any more.
        match access.renewed(&documents, &ctx.connection.peer) {
            Some(access) => access.check_same(user)?,
            None => ctx.connection.set_access(None),
        }
    }
    let loaded = Access::load(&documents, user, &ctx.connection.peer);
    // A stored restriction that cannot be read is not met.
    let access = loaded.ok().flatten().ok_or_else(failed)?;
    ctx.connection.set_access(Some(access));
    Ok(())
}

/// Appends the fields of `hello` about authentication: the mechanisms of the named user, and the
/// reply to the first message of a speculative conversation. If that conversation fails, the reply
/// is the same as without it.
pub(super) fn append_to_hello(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    if let Some(user) = request.arg("saslSupportedMechs") {
        ctx.server.logins.mechanisms_asked.add(1);
        let user = hello_user(user)?;
        let documents = Documents::new(&ctx.server.db, ctx.now_ms);
        let doc = documents.find(Of::User, &user)?;
        if doc.is_none() {
            let attr = attributes(|out| {
                let mut out = out.begin_doc("user");
                out.append("user", user.name.as_str()).append("db", user.db.as_str());
            });
            tracing::info!(target: "ACCESS", id = 20_251, attr, "Supported SASL mechanisms requested for unknown user");
        }
        if let Some(doc) = doc {
            let credentials = doc.as_doc().get("credentials").and_then(|all| all.as_doc());
            let has = |name: &str| {
                credentials.is_some_and(|all| all.get(name).is_some())
                    && ctx.server.parameters.takes_mechanism(name)
            };
            let mut out = reply.begin_array("saslSupportedMechs");
            Mechanism::ALL.iter().filter(|mechanism| has(mechanism.name())).for_each(|mechanism| {
                out.push(mechanism.name());
            });
        }
    }
    let speculation = request.arg("speculativeAuthenticate").and_then(|value| value.as_doc());
    if let Some(speculation) = speculation
        && let Some(answer) = speculate(ctx, speculation)
    {
        reply.append("speculativeAuthenticate", &answer);
    }
    Ok(())
}

/// Returns the user in `hello.saslSupportedMechs`.
///
/// Errors: the value is not a user name.
pub(super) fn hello_user(value: Value<'_>) -> Result<Name> {
    match value {
        Value::String(name) => {
            let name = name.to_string();
            let (db, user) = name.split_once('.').unwrap_or_default();
            Ok(Name::new(user, db))
        }
        other => Name::parse(Of::User, other, ""),
    }
}

/// Checks that `hello.speculativeAuthenticate` is an authentication command.
pub(super) fn check_speculation(speculation: Doc<'_>) -> Result<()> {
    match speculation.iter().next() {
        Some(first) if first.name == "saslStart" || first.name == "authenticate" => Ok(()),
        first => {
            let name = first.map_or_else(String::new, |first| first.name.to_string());
            Err(unknown_speculation(&name))
        }
    }
}

fn speculate(ctx: &mut Context<'_>, speculation: Doc<'_>) -> Option<DocBuf> {
    if speculation.get("authenticate").is_some() {
        return speculate_by_certificate(ctx, speculation);
    }
    speculation.get("saslStart")?;
    let fields = DocBuf::build(|out| {
        for field in
            speculation.iter().filter(|field| field.name != "saslStart" && field.name != "db")
        {
            out.append_raw(field.name, field.value);
        }
    });
    fields::check_doc("saslStart", START_FIELDS, fields.as_doc()).ok()?;
    let start = Start {
        mechanism: speculation.get("mechanism")?.as_str()?.to_string(),
        payload: Payload::parse(speculation.get("payload")).ok()?,
        options: speculation.get("options").and_then(|options| options.as_doc()),
        db: speculation.get("db")?.as_str()?.to_str().ok()?,
        is_speculative: true,
    };
    let mut answer = Vec::new();
    let mut out = DocWriter::new(&mut answer);
    start.run(ctx, &mut out).ok()?;
    drop(out);
    Some(DocBuf::trusted(answer))
}

fn speculate_by_certificate(ctx: &mut Context<'_>, speculation: Doc<'_>) -> Option<DocBuf> {
    if speculation.get("mechanism")?.as_str()? != X509 {
        return None;
    }
    let db = speculation.get("db")?.as_str()?.to_str().ok()?;
    let user = match speculation.get("user") {
        None => None,
        Some(user) => Some(user.as_str()?.to_string()),
    };
    let mut answer = Vec::new();
    let mut out = DocWriter::new(&mut answer);
    by_certificate(ctx, db, user.as_deref(), &mut out).ok()?;
    drop(out);
    Some(DocBuf::trusted(answer))
}

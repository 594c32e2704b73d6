//! The commands of logical sessions: `startSession`, `refreshSessions`, `endSessions`,
//! `killSessions`, `killAllSessions`, `killAllSessionsByPattern`.
//!
//! The end of a session closes its cursors; a kill ends its operations, too.
//! Source: driver specification "Sessions"; manual "Sessions Commands"; errors recorded from mongod
//! 6.0.

use marula_bson::{BStr, Binary, Doc, DocWriter, Type, Value};
use marula_error::{Result, errors};

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::auth::access;
use crate::auth::check::Check;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::context::Context;
use crate::nodes;
use crate::request::Request;
use crate::server::Server;
use crate::session::{self, Lsid, TIMEOUT_MINUTES};

errors! {
    not_an_array(place: &str, field: &str, kind: &str) = TypeMismatch, "BSON field '{place}.{field}' is the wrong type '{kind}', expected type 'array'";
    not_a_document(place: &str, at: &BStr, kind: &str) = TypeMismatch, "BSON field '{place}.{at}' is the wrong type '{kind}', expected type 'object'";
    no_impersonation() = Unauthorized, "Not authorized to impersonate in killAllSessionsByPattern";
    no_user(user: &str, db: &str) = UserNotFound, "Could not find user \"{user}\" for db \"{db}\"";
}

const SESSION: Command =
    Command { place: CommandPlace::Inline, auth: Auth::Content(of_user), ..Command::DEFAULT };

pub(super) static START: Command = Command {
    name: "startSession",
    help: "Creates a logical session and returns its id; drivers create their ids themselves.",
    run: start,
    ..SESSION
};

pub(super) static REFRESH: Command = Command {
    name: "refreshSessions",
    help: "Refreshes sessions, so that they do not expire.",
    in_api_v1: true,
    fields: Fields::Strict { place: "refreshSessions", fields: &[] },
    run: refresh,
    ..SESSION
};

pub(super) static END: Command = Command {
    name: "endSessions",
    help: "Ends sessions and closes their cursors.",
    in_api_v1: true,
    fields: Fields::Strict { place: "endSessions", fields: &[] },
    run: end,
    ..SESSION
};

pub(super) static KILL: Command = Command {
    name: "killSessions",
    help: "Kills sessions of the user, with their cursors and operations.",
    place: CommandPlace::Reserved,
    run: kill,
    ..SESSION
};

pub(super) static KILL_ALL: Command = Command {
    name: "killAllSessions",
    help: "Kills the sessions of these users, or all sessions, with their cursors and operations.",
    place: CommandPlace::Reserved,
    run: kill_all,
    auth: Auth::Cluster(&["killAnySession"]),
    ..SESSION
};

pub(super) static KILL_ALL_BY_PATTERN: Command = Command {
    name: "killAllSessionsByPattern",
    help: "Kills the sessions that match a pattern, or all sessions, with their cursors and operations.",
    place: CommandPlace::Reserved,
    run: kill_all_by_pattern,
    auth: Auth::Cluster(&["killAnySession"]),
    ..SESSION
};

const USER_FIELDS: &[Field] =
    &[Field::required("user", Types::STRING), Field::required("db", Types::STRING)];

const PATTERN_FIELDS: &[Field] = &[
    Field::optional("lsid", Types::DOCUMENT),
    Field::optional("uid", Types::One(Type::Binary)),
    Field::optional("users", Types::ARRAY),
    Field::optional("roles", Types::ARRAY),
];

const ROLE_FIELDS: &[Field] =
    &[Field::required("role", Types::STRING), Field::required("db", Types::STRING)];

const PATTERN_LSID_FIELDS: &[Field] = &[
    Field::required("id", Types::One(Type::Binary)),
    Field::required("uid", Types::One(Type::Binary)),
];

fn start(context: &mut Context<'_>, _: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    const VERSION: u8 = 0x40;
    const VARIANT: u8 = 0x80;
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0F | VERSION;
    uuid[8] = uuid[8] & 0x3F | VARIANT;
    let lsid = context.own_session(Lsid::of_uuid(uuid))?;
    context.server.sessions.touch(&lsid, context.now_ms)?;
    let mut id = reply.begin_doc("id");
    id.append("id", Binary { subtype: 4, bytes: &uuid });
    drop(id);
    reply.append("timeoutMinutes", TIMEOUT_MINUTES);
    Ok(Outcome::Done)
}

fn refresh(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    for lsid in
        lsids(context, request, "refreshSessions", "refreshSessions.refreshSessionsFromClient")?
    {
        context.server.sessions.touch(&lsid, context.now_ms)?;
    }
    Ok(Outcome::Done)
}

fn end(context: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let ended = lsids(context, request, "endSessions", "endSessions.endSessionsFromClient")?;
    for lsid in &ended {
        context.server.sessions.end(lsid);
    }
    if !ended.is_empty() {
        close_cursors(context.server, &|lsid| ended.contains(lsid));
    }
    Ok(Outcome::Done)
}

fn kill(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let killed = lsids(context, request, "KillSessionsCmd", "KillSessionsCmd.killSessions")?;
    let of_one = |lsid| SessionPattern { lsid: Some(lsid), uid: None };
    let mut patterns: Vec<SessionPattern> = killed.into_iter().map(of_one).collect();
    // An empty list means all of the user's own sessions; without access control, all sessions.
    if let (true, Some(access)) = (patterns.is_empty(), context.restrained()) {
        patterns.push(SessionPattern { lsid: None, uid: Some(access.digest()) });
    }
    nodes::requests::kill_sessions(context.server, &patterns)?;
    Ok(Outcome::Done)
}

fn kill_all(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    const PLACE: &str = "KillAllSessionsCmd.killAllSessions";
    let users = Documents::new(&context.server.db, context.now_ms);
    let mut patterns = Vec::new();
    for user in documents(request, "KillAllSessionsCmd", PLACE)? {
        fields::check_doc(PLACE, USER_FIELDS, user)?;
        let text = |name: &str| {
            user.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_string()
        };
        let name = Name { name: text("user"), db: text("db") };
        if users.find(Of::User, &name)?.is_none() {
            return Err(no_user(&name.name, &name.db));
        }
        patterns.push(SessionPattern { lsid: None, uid: Some(access::digest(&name)) });
    }
    nodes::requests::kill_sessions(context.server, &patterns)?;
    Ok(Outcome::Done)
}

fn kill_all_by_pattern(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    const PLACE: &str = "KillAllSessionsByPatternCmd.killAllSessionsByPattern";
    let patterns = documents(request, "KillAllSessionsByPatternCmd", PLACE)?;
    let mut condemned = Vec::new();
    for pattern in &patterns {
        fields::check_doc(PLACE, PATTERN_FIELDS, *pattern)?;
        let lsid = match pattern.get("lsid") {
            Some(Value::Document(lsid)) => {
                let place = format!("{PLACE}.lsid");
                let parsed = Lsid::parse(&place, lsid)?;
                fields::check_doc(&place, PATTERN_LSID_FIELDS, lsid)?;
                Some(parsed)
            }
            _ => None,
        };
        let uid = match pattern.get("uid") {
            Some(Value::Binary(uid)) => session::check_uid(PLACE, uid)?.try_into().ok(),
            _ => None,
        };
        for (list, of_each) in [("users", USER_FIELDS), ("roles", ROLE_FIELDS)] {
            let Some(Value::Array(list_given)) = pattern.get(list) else { continue };
            for item in list_given.iter().filter(|item| !item.value.get().is_nullish()) {
                let place = format!("{PLACE}.{list}");
                let Value::Document(one) = item.value.get() else {
                    return Err(not_a_document(&place, item.name, item.value.kind().alias()));
                };
                fields::check_doc(&place, of_each, one)?;
            }
            // Only members of a cluster may act for other users.
            if context.restrained().is_some() {
                return Err(no_impersonation());
            }
        }
        condemned.push(SessionPattern { lsid, uid });
    }
    nodes::requests::kill_sessions(context.server, &condemned)?;
    Ok(Outcome::Done)
}

/// The sessions of which all that is named here is true.
#[derive(Clone, Default, Debug)]
pub(crate) struct SessionPattern {
    /// The session with this id.
    pub(crate) lsid: Option<Lsid>,
    /// Those of the user with this digest.
    pub(crate) uid: Option<[u8; 32]>,
}

impl SessionPattern {
    fn matches(&self, lsid: &Lsid) -> bool {
        self.lsid.is_none_or(|wanted| wanted == *lsid)
            && self.uid.is_none_or(|uid| lsid.uid() == Some(&uid))
    }
}

/// Kills the sessions of this node that match one of the patterns; all sessions without patterns.
pub(crate) fn kill_here(server: &Server, patterns: &[SessionPattern]) {
    let condemned =
        |lsid: &Lsid| patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(lsid));
    for session in server.sessions.all() {
        if condemned(&session.lsid) {
            server.sessions.end(&session.lsid);
        }
    }
    server.operations.kill_sessions(condemned);
    server.transactions.abort_of(&condemned);
    close_cursors(server, &condemned);
}

fn close_cursors(server: &Server, condemned: &dyn Fn(&Lsid) -> bool) {
    server.cursors.kill_where(|_, lsid| lsid.is_some_and(condemned));
}

/// Returns the session ids in the array that is the command's value.
///
/// Errors: `not_an_array`, `not_a_document`, and an invalid session id.
fn lsids(
    context: &Context<'_>,
    request: &Request<'_>,
    place: &str,
    item_place: &str,
) -> Result<Vec<Lsid>> {
    let documents = documents(request, place, item_place)?;
    let own = |lsid| context.own_session(Lsid::parse(item_place, lsid)?);
    documents.into_iter().map(own).collect()
}

/// Returns the documents in the array that is the command's value.
///
/// Errors: `not_an_array`, `not_a_document`.
fn documents<'a>(request: &Request<'a>, place: &str, item_place: &str) -> Result<Vec<Doc<'a>>> {
    if request.first.value.get().is_nullish() {
        return Err(fields::expected_object(request.command.name.into()));
    }
    let Value::Array(items) = request.first.value.get() else {
        return Err(not_an_array(place, request.command.name, request.first.value.kind().alias()));
    };
    let items = items.iter().filter(|item| !item.value.get().is_nullish());
    items
        .map(|item| match item.value.get() {
            Value::Document(doc) => Ok(doc),
            other => Err(not_a_document(item_place, item.name, other.kind().alias())),
        })
        .collect()
}

/// Requires an authenticated user, because every session belongs to one.
fn of_user(_: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.refuse_anonymous();
    Ok(())
}

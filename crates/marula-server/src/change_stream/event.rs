//! Converts an operation of the oplog to an event.
//!
//! Source: manual "Change Events"; order of fields and forms as mongod 6.0 has them.

use marula_bson::{Binary, ByteSlice, Doc, DocBuf, DocWriter, Value, doc};
use marula_db::oplog::{PreImage, Scope};
use marula_error::{Result, errors};
use marula_query::context::Context as QueryContext;
use marula_query::stage::{ChangeStream, EventConditions, Shows};
use marula_query::update::{Matched, Origin, Update, UpdateOptions};

use super::description;
use super::token::{Position, Token, Version};

errors! {
    no_post_image(event: &str) = NoMatchingDocument, "Change stream was configured to require a post-image for all update events, but the post-image was not found for event: {event}";
    no_pre_image(event: &str) = NoMatchingDocument, "Change stream was configured to require a pre-image for all update, delete and replace events, but the pre-image was not found for event: {event}";
}

/// One operation of an oplog's entry.
#[derive(Clone, Copy)]
pub(super) struct Operation<'e> {
    /// `op`, `ns`, `ui`, `o`, `o2`.
    pub(super) fields: Doc<'e>,
    /// The entry, if the operation belongs to a transaction.
    pub(super) transaction: Option<Doc<'e>>,
    pub(super) time: u64,
    pub(super) wall: Value<'e>,
    /// The number of the operation in its transaction.
    pub(super) number: u64,
}

/// An event with its token.
pub(super) struct Event {
    pub(super) token: Token,
    pub(super) document: DocBuf,
    /// Whether the conditions of the stream's pipeline reject it, so that it has no looked-up
    /// documents and only its token counts.
    pub(super) is_rejected: bool,
    /// Whether the stream ends with it, because its collection or database no longer exists.
    pub(super) ends: bool,
}

/// The states of the changed document that an event shows; `Some(None)` is shown as null.
#[derive(Default)]
struct States {
    before: Option<Option<DocBuf>>,
    after: Option<Option<DocBuf>>,
}

/// The settings for making events.
pub(super) struct Maker<'m> {
    pub(super) stream: &'m ChangeStream,
    pub(super) scope: &'m Scope,
    pub(super) version: Version,
    pub(super) conditions: Option<&'m EventConditions>,
    /// Returns the current document of this collection with this `_id`.
    pub(super) look_up: &'m dyn Fn(&[u8; 16], Value<'_>) -> Result<Option<DocBuf>>,
    /// Returns the document before a change.
    pub(super) image: &'m dyn Fn(PreImage) -> Result<Option<DocBuf>>,
}

/// An operation on the catalogue.
struct Command<'e> {
    kind: &'static str,
    /// The collection; `None` for a database.
    collection: Option<&'e str>,
    /// The description, for streams with `showExpandedEvents`.
    description: Option<DocBuf>,
    /// Whether only streams with `showExpandedEvents` show it.
    is_expanded: bool,
    /// The new name of a rename.
    to: Option<(&'e str, &'e str)>,
    /// The state before.
    before: Option<DocBuf>,
}

impl<'e> Operation<'e> {
    fn text(&self, name: &str) -> &'e str {
        let text = self.fields.get(name).and_then(|text| text.as_str());
        text.and_then(|text| text.to_str().ok()).unwrap_or_default()
    }

    fn document(&self, name: &str) -> Doc<'e> {
        self.fields.get(name).and_then(|doc| doc.as_doc()).unwrap_or(Doc::EMPTY)
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        match self.fields.get("ui") {
            Some(Value::Binary(Binary { bytes, .. })) => bytes.try_into().ok(),
            _ => None,
        }
    }

    fn command(&self) -> Option<Command<'e>> {
        let o = self.document("o");
        let first = o.iter().next()?;
        let name = first.value.get().as_str().and_then(|name| name.to_str().ok());
        let rest = || without(o, &first.name.to_string());
        let indexes = |spec: Doc<'_>| doc! { "indexes": [spec] };
        let plain = |kind: &'static str| Command {
            kind,
            collection: name,
            description: None,
            is_expanded: false,
            to: None,
            before: None,
        };
        let expanded = |kind: &'static str, description: DocBuf| Command {
            description: Some(description),
            is_expanded: true,
            ..plain(kind)
        };
        Some(match &**first.name {
            b"create" => expanded("create", rest()),
            b"drop" => plain("drop"),
            b"dropDatabase" => Command { collection: None, ..plain("dropDatabase") },
            b"renameCollection" => {
                let (_, from) = name?.split_once('.')?;
                let to = o.get("to")?.as_str()?.to_str().ok()?.split_once('.')?;
                let description = DocBuf::build(|out| {
                    write_ns("to", to.0, Some(to.1), out);
                    if let Some(target) = o.get("dropTarget") {
                        out.append("dropTarget", target);
                    }
                });
                Command {
                    collection: Some(from),
                    description: Some(description),
                    to: Some(to),
                    ..plain("rename")
                }
            }
            b"createIndexes" => expanded("createIndexes", indexes(rest().as_doc())),
            b"commitIndexBuild" => {
                let list = o.get("indexes").unwrap_or(Value::Null);
                expanded("createIndexes", doc! { "indexes": list })
            }
            b"dropIndexes" => expanded("dropIndexes", indexes(self.document("o2"))),
            b"collMod" => {
                let o2 = self.document("o2");
                let before = DocBuf::build(|out| {
                    for (name, shown) in [
                        ("collectionOptions_old", "collectionOptions"),
                        ("indexOptions_old", "indexOptions"),
                    ] {
                        if let Some(value) = o2.get(name) {
                            out.append(shown, value);
                        }
                    }
                });
                Command { before: Some(before), ..expanded("modify", rest()) }
            }
            _ => return None,
        })
    }
}

impl Maker<'_> {
    /// Returns the event of an operation; `None` if the stream does not show it.
    pub(super) fn event(&self, operation: &Operation<'_>) -> Result<Option<Event>> {
        let (db, collection) = operation.text("ns").split_once('.').unwrap_or_default();
        if self.scope == &Scope::Everything && matches!(db, "admin" | "config" | "local") {
            return Ok(None);
        }
        if operation.fields.get("fromMigrate").is_some_and(|copied| copied.is_truthy()) {
            return Ok(None);
        }
        match operation.text("op") {
            "i" if collection == "system.views" => Ok(self.view_defined("create", operation, db)),
            "u" if collection == "system.views" => Ok(self.view_defined("modify", operation, db)),
            "d" if collection == "system.views" => Ok(self.view_dropped(operation, db)),
            "i" => self.change("insert", operation, db, collection),
            "d" => self.change("delete", operation, db, collection),
            "u" if operation.document("o").get("$v").is_some() => {
                self.change("update", operation, db, collection)
            }
            "u" => self.change("replace", operation, db, collection),
            "c" => Ok(self.of_command(operation, db)),
            _ => Ok(None),
        }
    }

    fn is_in_scope(&self, db: &str, collection: &str) -> bool {
        match self.scope {
            Scope::Everything => true,
            Scope::Database(followed) => followed == db,
            Scope::Collection(followed, full) => {
                followed == db && full.get(db.len() + 1..) == Some(collection)
            }
        }
    }

    /// Returns whether a collection's changes are shown to streams that do not name it.
    fn is_shown(&self, collection: &str) -> bool {
        self.stream.shows_system || !collection.starts_with("system.")
    }

    fn position(operation: &Operation<'_>) -> Position {
        Position {
            time: operation.time,
            is_event: true,
            operation: operation.number,
            is_end: false,
        }
    }

    fn change(
        &self,
        kind: &'static str,
        operation: &Operation<'_>,
        db: &str,
        collection: &str,
    ) -> Result<Option<Event>> {
        let is_shown = self.is_in_scope(db, collection) && self.is_shown(collection);
        let Some(uuid) = operation.uuid().filter(|_| is_shown) else { return Ok(None) };
        let o = operation.document("o");
        let key = if kind == "delete" { o } else { operation.document("o2") };
        let before = || {
            (self.image)(PreImage {
                uuid,
                time: operation.time,
                operation: usize::try_from(operation.number).unwrap_or(usize::MAX),
            })
        };
        let shown = |event: &str| {
            format!(
                "{{operationType: \"{event}\", ns: {{db: \"{db}\", coll: \"{collection}\"}}, clusterTime: {}}}",
                Value::Timestamp(operation.time)
            )
        };
        let what = key.to_buf();
        let token =
            Token::of_event(Self::position(operation), self.version, Some(&uuid), Some(&what));
        let build = |states: &States| {
            self.build(operation, &token, kind, Some(&uuid), |out| {
                if let Some(after) = &states.after {
                    append_or_null("fullDocument", after.as_ref(), out);
                }
                write_ns("ns", db, Some(collection), out);
                out.append("documentKey", Value::Document(key));
                self.describe(kind, o, out);
                if let Some(before) = &states.before {
                    append_or_null("fullDocumentBeforeChange", before.as_ref(), out);
                }
            })
        };
        let event = |document, is_rejected| Event {
            token: token.clone(),
            document,
            is_rejected,
            ends: false,
        };
        let (shows_after, shows_before) = match kind {
            "insert" => (Shows::Nothing, Shows::Nothing),
            "update" => (self.stream.full_document, self.stream.before_change),
            _ => (Shows::Nothing, self.stream.before_change),
        };
        let mut states = States::default();
        if matches!(kind, "insert" | "replace") {
            states.after = Some(Some(o.to_buf()));
        }
        let conditions = self
            .conditions
            .filter(|_| (shows_after, shows_before) != (Shows::Nothing, Shows::Nothing));
        if let Some(conditions) = conditions {
            let bare = build(&states);
            if !conditions.accept_change(bare.as_doc())? {
                return Ok(Some(event(bare, true)));
            }
        }
        if shows_before != Shows::Nothing {
            let image = before()?;
            if image.is_none() && shows_before == Shows::Required {
                return Err(no_pre_image(&shown(kind)));
            }
            states.before = Some(image);
            if let Some(conditions) = conditions.filter(|_| shows_after != Shows::Nothing) {
                let incomplete = build(&states);
                if !conditions.accept_before(incomplete.as_doc())? {
                    return Ok(Some(event(incomplete, true)));
                }
            }
        }
        match shows_after {
            Shows::Nothing => {}
            Shows::Present => {
                let id = key.get("_id").unwrap_or(Value::Null);
                states.after = Some((self.look_up)(&uuid, id)?);
            }
            Shows::WhenAvailable | Shows::Required => {
                let looked_up;
                let image = match &states.before {
                    Some(image) => image,
                    None => {
                        looked_up = before()?;
                        &looked_up
                    }
                };
                let after = match image {
                    Some(image) => updated(image.as_doc(), o)?,
                    None => None,
                };
                if after.is_none() && shows_after == Shows::Required {
                    return Err(no_post_image(&shown(kind)));
                }
                states.after = Some(after);
            }
        }
        Ok(Some(event(build(&states), false)))
    }

    /// Appends the description of an update.
    fn describe(&self, kind: &str, o: Doc<'_>, out: &mut DocWriter<'_>) {
        if kind != "update" {
            return;
        }
        let diff = o.get("diff").and_then(|diff| diff.as_doc()).unwrap_or(Doc::EMPTY);
        if self.stream.is_raw {
            out.append("rawUpdateDescription", Value::Document(diff));
            return;
        }
        let disambiguates = self.stream.disambiguates_paths;
        description::write(diff, disambiguates, &mut out.begin_doc("updateDescription"));
    }

    fn of_command(&self, operation: &Operation<'_>, db: &str) -> Option<Event> {
        let command = operation.command()?;
        let is_of_source = match (self.scope, command.collection) {
            // The drop of a database is shown only to streams on the whole database.
            (Scope::Collection(..), None) => false,
            (_, None) => self.is_in_scope(db, ""),
            (_, Some(collection)) => self.is_in_scope(db, collection) && self.is_shown(collection),
        };
        let is_of_target = command.to.is_some_and(|(to_db, to)| self.is_in_scope(to_db, to));
        if !(is_of_source || is_of_target) || (command.is_expanded && !self.stream.is_expanded) {
            return None;
        }
        let uuid = operation.uuid();
        let what = command.description.as_ref().filter(|_| command.is_expanded);
        let what = what.map(|description| {
            doc! { "operationType": command.kind, "operationDescription": description.as_doc() }
        });
        let position = Self::position(operation);
        let token = Token::of_event(position, self.version, uuid.as_ref(), what.as_ref());
        let document =
            self.build_with(operation, &token, command.kind, uuid.as_ref(), command.to, |out| {
                write_ns("ns", db, command.collection, out);
                if let Some(description) =
                    command.description.as_ref().filter(|_| self.stream.is_expanded)
                {
                    out.append("operationDescription", Value::Document(description.as_doc()));
                }
                if let Some(before) = &command.before {
                    out.append("stateBeforeChange", Value::Document(before.as_doc()));
                }
            });
        let ends = match self.scope {
            Scope::Everything => false,
            Scope::Database(_) => command.kind == "dropDatabase",
            Scope::Collection(..) => matches!(command.kind, "drop" | "rename"),
        };
        Some(Event { token, document, is_rejected: false, ends })
    }

    fn view_defined(
        &self,
        kind: &'static str,
        operation: &Operation<'_>,
        db: &str,
    ) -> Option<Event> {
        let o = operation.document("o");
        self.of_view(kind, operation, db, Some(without(o, "_id")))
    }

    fn view_dropped(&self, operation: &Operation<'_>, db: &str) -> Option<Event> {
        self.of_view("drop", operation, db, None)
    }

    fn of_view(
        &self,
        kind: &'static str,
        operation: &Operation<'_>,
        db: &str,
        description: Option<DocBuf>,
    ) -> Option<Event> {
        let id = operation.document("o").get("_id")?.as_str()?.to_str().ok()?;
        let (_, name) = id.split_once('.')?;
        if !self.stream.is_expanded || !self.is_in_scope(db, name) {
            return None;
        }
        let uuid = operation.uuid();
        let what = DocBuf::build(|out| {
            out.append("operationType", kind);
            if let Some(description) = &description {
                out.append("operationDescription", Value::Document(description.as_doc()));
            }
        });
        let position = Self::position(operation);
        let token = Token::of_event(position, self.version, uuid.as_ref(), Some(&what));
        let document = self.build(operation, &token, kind, None, |out| {
            write_ns("ns", db, Some(name), out);
            if let Some(description) = &description {
                out.append("operationDescription", Value::Document(description.as_doc()));
            }
        });
        Some(Event { token, document, is_rejected: false, ends: false })
    }

    /// Returns the invalidate event that follows an event.
    pub(super) fn end(&self, event: &Event, operation: &Operation<'_>) -> Event {
        let position = Position { is_end: true, ..event.token.position };
        let token = Token::of_event(position, self.version, operation.uuid().as_ref(), None);
        let document = DocBuf::build(|out| {
            write_id(&token, out);
            out.append("operationType", "invalidate");
            out.append("clusterTime", Value::Timestamp(operation.time));
            out.append("wallTime", operation.wall);
        });
        Event { token, document, is_rejected: false, ends: true }
    }

    fn build(
        &self,
        operation: &Operation<'_>,
        token: &Token,
        kind: &str,
        uuid: Option<&[u8; 16]>,
        rest: impl FnOnce(&mut DocWriter<'_>),
    ) -> DocBuf {
        self.build_with(operation, token, kind, uuid, None, rest)
    }

    fn build_with(
        &self,
        operation: &Operation<'_>,
        token: &Token,
        kind: &str,
        uuid: Option<&[u8; 16]>,
        to: Option<(&str, &str)>,
        rest: impl FnOnce(&mut DocWriter<'_>),
    ) -> DocBuf {
        DocBuf::build(|out| {
            if let Some(entry) = operation.transaction {
                for name in ["txnNumber", "lsid"] {
                    if let Some(value) = entry.get(name) {
                        out.append(name, value);
                    }
                }
            }
            if let Some((db, collection)) = to {
                write_ns("to", db, Some(collection), out);
            }
            write_id(token, out);
            out.append("operationType", kind);
            out.append("clusterTime", Value::Timestamp(operation.time));
            if let Some(uuid) = uuid.filter(|_| self.stream.is_expanded) {
                out.append("collectionUUID", Binary { subtype: 4, bytes: uuid });
            }
            out.append("wallTime", operation.wall);
            rest(out);
        })
    }
}

/// Returns a document without one of its fields.
fn without(doc: Doc<'_>, name: &str) -> DocBuf {
    DocBuf::build(|out| {
        for field in doc.iter().filter(|field| field.name != name) {
            out.append_raw(field.name, field.value);
        }
    })
}

fn write_id(token: &Token, out: &mut DocWriter<'_>) {
    out.begin_doc("_id").append("_data", token.data.as_str());
}

fn write_ns(name: &str, db: &str, collection: Option<&str>, out: &mut DocWriter<'_>) {
    let mut ns = out.begin_doc(name);
    ns.append("db", db);
    if let Some(collection) = collection {
        ns.append("coll", collection);
    }
}

fn append_or_null(name: &str, document: Option<&DocBuf>, out: &mut DocWriter<'_>) {
    match document {
        Some(document) => out.append(name, Value::Document(document.as_doc())),
        None => out.append(name, Value::Null),
    };
}

/// Returns the document after an update of `before`.
fn updated(before: Doc<'_>, update: Doc<'_>) -> Result<Option<DocBuf>> {
    let context = QueryContext::default();
    let options = UpdateOptions { origin: Origin::OplogUpdate, ..UpdateOptions::default() };
    let update = Update::parse(Value::Document(update), &options, &context)?;
    let mut out = Vec::new();
    let applied = update.apply(before, &Matched::default(), &context, &mut out)?;
    Ok(Some(if applied.changed { DocBuf::trusted(out) } else { before.to_buf() }))
}

//! One request: the fields that all commands share, parsed once from the message.
//!
//! ```text
//!   { find: "c", filter: {}, lsid: {}, maxTimeMS: 5, $db: "d" }
//!     │          │           │         │             │
//!     first      args        └── fields of the Request ──┘
//! ```
//!
//! [`Request::parse`] reads the body once. Fields that any command may have become typed fields of
//! the [`Request`]; the others are checked against the command's row and stored in
//! [`Request::args`] for the command's own code.
//! Source: manual "Database Commands"; driver specification "OP_MSG"; errors recorded from mongod
//! 6.0.

use std::time::Duration;

use marula_bson::{
    BStr, Binary, ByteSlice, Doc, DocBuf, DocWriter, Element, RawValue, Type, Value, uuid,
};
use marula_db::{Db, Namespace};
use marula_error::{Error, Result, codes, errors};
use marula_operation::args::not_an_object;
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;
use marula_wire::{Message, message::Docs};
use smallvec::SmallVec;

use crate::cluster_fields;
use crate::command;
use crate::command::hello::{check_metadata, metadata_type};
use crate::concern::{ReadConcern, WriteConcern};
use crate::fields::Fields;
use crate::fields::{self, Field, Types};
use crate::read_preference::ReadPreference;
use crate::repeated::{self, API_FIELDS, API_PLACE, Names};
use crate::row::{Auth, Command, Kind, Named};
use crate::session::{self, Lsid};
use crate::stable_api;

errors! {
    pub(crate) no_such_command(name: &BStr) = CommandNotFound, "no such command: '{name}'";
    no_db() = 40_571, "OP_MSG requests require a $db argument";
    /// `$db` is not a string.
    pub db_not_a_string(kind: &str) = 13_111, "wrong type for field ($db) {kind} != string";
    dot_in_db(db: &str) = InvalidNamespace, "'.' is an invalid character in the database name: {db}";
    no_sequences(name: &str) = 40_472, "The {name} command does not support document sequences.";
    invalid_db(db: &BStr) = InvalidNamespace, "Invalid database name: '{db}'";
    not_admin(name: &str) = Unauthorized, "{name} may only be run against the admin database.";
    max_time_not_a_number() = BadValue, "maxTimeMS must be a number";
    max_time_not_integral() = BadValue, "maxTimeMS has non-integral value";
    max_time_negative(value: i64) = 51_024, "BSON field 'maxTimeMS' value must be >= 0, actual value '{value}'";
    max_time_range(value: i64) = BadValue, "{value} value for maxTimeMS is out of range";
    internal_max_time() = InvalidOptions, "Can not specify maxTimeMSOpOnly for non internal clients";
    pub(crate) no_explained_concern() = FailedToParse, "Aggregation explain does not support the'writeConcern' option";
    no_write_concern() = InvalidOptions, "Command does not support writeConcern";
    api_version(version: &BStr) = APIVersionError, "Cannot accept API version {version}";
    api_version_unknown() = APIVersionError, "API version must be \"1\"";
    /// A command without a version of the API, while `requireApiVersion` is set.
    pub(crate) api_version_required() = 498_870, "The apiVersion parameter is required, please configure your MongoClient's API version";
    api_without_version() = 4_886_600, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion";
    api_strict(name: &str) = APIStrictError, "Provided apiStrict:true, but the command {name} is not in API Version 1. Information on supported commands and migrations in API Version 1 can be found at https://dochub.mongodb.org/core/manual-versioned-api";
    txn_number_without_session() = InvalidOptions, "Transaction number requires a session ID to also be specified";
    txn_number_negative() = InvalidOptions, "Transaction number cannot be negative";
    autocommit_without_number() = InvalidOptions, "'autocommit' field requires a transaction number to also be specified";
    autocommit_true() = InvalidOptions, "Specifying autocommit=true is not allowed.";
    start_without_autocommit() = InvalidOptions, "'startTransaction' field requires 'autocommit' field to also be specified";
    start_false() = InvalidOptions, "Specifying startTransaction=false is not allowed.";
    not_retryable(name: &str) = NotARetryableWriteCommand, "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and {name} is not a retryable write command.";
    no_txn_number() = 50_889, "It is illegal to provide a txnNumber for this command";
    not_run_in_transaction(name: &str) = OperationNotSupportedInTransaction, "Cannot run '{name}' in a multi-document transaction.";
    no_count_in_transaction() = OperationNotSupportedInTransaction, "Cannot run 'count' in a multi-document transaction. Please see http://dochub.mongodb.org/core/transaction-count for a recommended alternative.";
    not_in_transaction() = OperationNotSupportedInTransaction, "This command is not supported in transactions";
    collection_type(kind: &str) = BadValue, "collection name has invalid type {kind}";
    missing_expected(field: &str) = NoSuchKey, "Missing expected field \"{field}\"";
    expected_type(field: &str, expected: &str, kind: &str) = TypeMismatch, "\"{field}\" had the wrong type. Expected {expected}, found {kind}";
    name_not_uuid() = BadValue, "Collection name must be provided. UUID is not valid in this context";
    unresolved(uuid: &str) = NamespaceNotFound, "Unable to resolve {uuid}";
    of_other_database(uuid: &str, db: &str, ns: &Namespace) = NamespaceNotFound, "UUID {uuid} specified in {db} resolved to a collection in a different database: {ns}";
    not_a_document(place: &str, field: &str, at: usize, kind: &str) = TypeMismatch, "BSON field '{place}.{field}.{at}' is the wrong type '{kind}', expected type 'object'";
}

/// The name in messages for the fields of sessions and transactions.
const SESSION_PLACE: &str = "OperationSessionInfo";

const SESSION_FIELDS: &[Field] = &[
    Field::optional("lsid", Types::DOCUMENT),
    Field::optional("txnNumber", Types::One(Type::Int64)),
    Field::optional("txnRetryCounter", Types::One(Type::Int32)),
    Field::optional("stmtId", Types::Any),
    Field::optional("autocommit", Types::BOOLEAN),
    Field::optional("startTransaction", Types::BOOLEAN),
    Field::optional("coordinator", Types::BOOLEAN),
];

const CONCERNS: &[Field] = &[
    Field::optional("readConcern", Types::DOCUMENT),
    Field::optional("writeConcern", Types::DOCUMENT),
];

/// The Stable API parameters of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Whether it names version 1, the only one.
    pub is_version_1: bool,
    /// Whether features outside that version are rejected.
    pub is_strict: bool,
    /// Whether deprecated features of that version are rejected.
    pub deprecation_errors: bool,
}

/// A request: the command's row, its database, the fields that every command may have, and its own
/// fields.
pub struct Request<'a> {
    /// The command.
    pub command: &'static Command,
    /// The release with whose language it is parsed.
    pub version: FeatureVersion,
    /// Its index in the table of commands.
    pub index: usize,
    /// The first field: the command's name as the client wrote it, and its value.
    pub first: Element<'a>,
    /// The database.
    pub db: &'a str,
    /// The whole body.
    pub body: Doc<'a>,
    /// The command's own fields in order, without the first; checked by name and type if its row
    /// lists them.
    pub args: SmallVec<[Element<'a>; 12]>,
    /// The message, with its document sequences and flags.
    pub message: Message<'a>,
    /// The user's comment, for logs and `currentOp`.
    pub comment: Option<RawValue<'a>>,
    /// The time limit.
    pub max_time: Option<Duration>,
    /// Whether `maxTimeMS` is present, even if it is zero.
    pub names_max_time: bool,
    /// Whether it has `apiStrict` or `apiDeprecationErrors`, even if false.
    names_api_options: bool,
    /// Whether it has fields of a sharded cluster.
    names_shard: bool,
    /// Whether it is nested in another.
    is_nested: bool,
    /// The session it belongs to.
    pub lsid: Option<Lsid>,
    /// The number of this write in its session.
    pub txn_number: Option<i64>,
    /// Whether it belongs to a multi-document transaction.
    pub transaction: Option<Transaction>,
    /// The read concern.
    pub read_concern: ReadConcern,
    /// The members of a set from which the client wants to read.
    pub read_preference: ReadPreference,
    /// The write concern, if the request has one.
    pub write_concern: Option<WriteConcern>,
    /// The Stable API.
    pub api: Api,
    /// The form of the collection's name.
    pub named: Named,
    /// The collection that a UUID names.
    by_uuid: Option<Result<Namespace>>,
}

/// The position of a request in its multi-document transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    /// The first.
    Starts,
    /// A further one, or the end.
    GoesOn,
}

/// The fields of sessions and transactions, as they are read.
#[derive(Default)]
struct SessionFields<'a> {
    lsid: Option<Doc<'a>>,
    txn_number: Option<i64>,
    autocommit: Option<bool>,
    start_transaction: Option<bool>,
}

impl<'a> Request<'a> {
    /// Parses the fields that every command shares, and checks the command's own against its row.
    pub fn parse(message: &Message<'a>, version: FeatureVersion) -> Result<Self> {
        let body = message.body();
        let db = database(message, body)?;
        let Some(first) = body.iter().next() else {
            return Err(no_such_command("".into()));
        };
        let (index, command) =
            command::find(first.name, version).ok_or_else(|| no_such_command(first.name))?;
        let mut request = Request {
            command,
            version,
            index,
            first,
            db: "",
            body,
            args: SmallVec::new(),
            message: *message,
            comment: None,
            max_time: None,
            names_max_time: false,
            names_api_options: false,
            names_shard: false,
            is_nested: false,
            lsid: None,
            txn_number: None,
            transaction: None,
            read_concern: ReadConcern::default(),
            read_preference: ReadPreference::default(),
            write_concern: None,
            api: Api::default(),
            named: command.named,
            by_uuid: None,
        };
        let mut session = SessionFields::default();
        let mut write_concern = None;
        let read = request.read_fields(&mut session, &mut write_concern);
        if !matches!(read, Ok(Names::Unlike)) {
            repeated::check(body)?;
        }
        read?;
        request.check_api()?;
        request.read_session(&session)?;
        request.db = database_name(db)?;
        if command.admin_only && request.db != "admin" {
            return Err(not_admin(command.name));
        }
        if let Some(value) = write_concern {
            if !command.permits_write_concern(body) {
                return Err(no_write_concern());
            }
            // Null is not one of the command's own fields.
            let is_wrong = value.kind() != Type::Document && !value.is_nullish();
            if command.write_concern_is_field && is_wrong {
                let (place, kind) = (command.name, value.kind().alias());
                return Err(fields::wrong_type(
                    place,
                    "writeConcern".into(),
                    kind,
                    "type 'object'",
                ));
            }
            request.write_concern = Some(WriteConcern::parse(value)?);
        }
        if request.transaction.is_none() {
            // In a transaction it is checked when that is known.
            request.read_concern.check(command)?;
        }
        request.check_fields()?;
        if request.api.is_strict {
            stable_api::check_strict(&request)?;
        }
        if request.names_shard {
            return Err(cluster_fields::no_shard());
        }
        Ok(request)
    }

    /// Reads the fields after the first; returns what it has seen of their names.
    fn read_fields(
        &mut self,
        session: &mut SessionFields<'a>,
        write_concern: &mut Option<Value<'a>>,
    ) -> Result<Names> {
        let (mut seen, mut names) = (repeated::mark(self.first.name), Names::Unlike);
        for element in self.body.iter().skip(1) {
            let mark = repeated::mark(element.name);
            if seen & mark != 0 {
                names = Names::Alike;
            }
            seen |= mark;
            if !self.read_generic(element, session, write_concern)? {
                self.args.push(element);
            }
        }
        Ok(names)
    }

    /// Reads a field that any command may have; returns whether it was one.
    fn read_generic(
        &mut self,
        element: Element<'a>,
        session: &mut SessionFields<'a>,
        write_concern: &mut Option<Value<'a>>,
    ) -> Result<bool> {
        let Element { name, value } = element;
        match name.as_bytes() {
            b"$db" => {}
            b"lsid" | b"txnNumber" | b"autocommit" | b"startTransaction" | b"coordinator"
            | b"txnRetryCounter" | b"stmtId" => {
                // A retryable write reads the numbers of its statements with its other fields.
                if name == "stmtId" && self.command.is_retryable_write {
                    let fields = &[Field::optional("stmtId", Types::INT)];
                    fields::check(self.command.name, fields, name, value.kind())?;
                }
                fields::check(SESSION_PLACE, SESSION_FIELDS, name, value.kind())?;
                session.read(name, value.get());
            }
            b"$clusterTime" => match value.get() {
                Value::Document(time) | Value::Array(time) => {
                    time.get_raw(b"clusterTime").ok_or_else(|| missing_expected("clusterTime"))?;
                }
                _ => return Err(fields::expected_object("$clusterTime".into())),
            },
            b"clientOperationKey" => match value.get() {
                Value::Binary(Binary { subtype: 4, bytes }) if bytes.len() == 16 => {}
                _ => return Err(session::bad_uuid()),
            },
            b"$client" => match value.get() {
                Value::Document(metadata) | Value::Array(metadata) => check_metadata(metadata)?,
                _ => return Err(metadata_type()),
            },
            b"$audit" => cluster_fields::check_audit(value.get())?,
            b"$queryOptions" => match self.command.name {
                // Commands that read it with their other fields check its type.
                "find" if value.kind() != Type::Document => {
                    return Err(not_an_object("$queryOptions"));
                }
                "aggregate" => {
                    let fields = &[Field::optional("$queryOptions", Types::DOCUMENT)];
                    fields::check("aggregate", fields, name, value.kind())?;
                }
                _ => {}
            },
            b"$configServerState"
            | b"$configTime"
            | b"$topologyTime"
            | b"$oplogQueryData"
            | b"$replData"
            | b"allowImplicitCollectionCreation"
            | b"mayBypassWriteBlocking" => {}
            b"databaseVersion" => {
                cluster_fields::check_database_version(value.get())?;
                self.names_shard = true;
            }
            b"shardVersion" => {
                cluster_fields::check_shard_version(value.get())?;
                self.names_shard = true;
            }
            b"$readPreference" => self.read_preference = ReadPreference::parse(value.get())?,
            b"comment" => self.comment = Some(value),
            b"maxTimeMS" => {
                self.names_max_time = true;
                self.max_time = parse_max_time(value.get(), self.command.name)?;
            }
            b"maxTimeMSOpOnly" => return Err(internal_max_time()),
            b"readConcern" if self.is_nested => self.check_nested_concern(name, value.get())?,
            b"readConcern" => {
                // Only this command checks the type as it checks its own fields.
                if self.command.name == "aggregate" {
                    let fields = &[Field::optional("readConcern", Types::DOCUMENT)];
                    fields::check("aggregate", fields, name, value.kind())?;
                }
                self.read_concern = ReadConcern::parse(value.get())?;
            }
            b"writeConcern" => {
                if self.is_nested {
                    self.check_nested_concern(name, value.get())?;
                }
                *write_concern = Some(value.get());
            }
            b"apiVersion" | b"apiStrict" | b"apiDeprecationErrors" => {
                fields::check(API_PLACE, API_FIELDS, name, value.kind())?;
                self.read_api(name, value.get())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks a concern of a nested command, as far as its kind checks it; the concern has no
    /// effect.
    fn check_nested_concern(&self, name: &BStr, value: Value<'a>) -> Result<()> {
        let kind = value.kind();
        match (self.command.name, name.as_bytes()) {
            ("distinct", b"readConcern") if kind != Type::Document => {
                Err(expected_type("readConcern", "object", kind.alias()))
            }
            ("find", b"readConcern") => fields::check("FindCommandRequest", CONCERNS, name, kind),
            ("count" | "aggregate", b"readConcern")
            | ("aggregate" | "findAndModify", b"writeConcern") => {
                fields::check(self.command.name, CONCERNS, name, kind)
            }
            _ => Ok(()),
        }
    }

    fn read_api(&mut self, name: &BStr, value: Value<'a>) -> Result<()> {
        match value {
            Value::String(version) if version == "1" => self.api.is_version_1 = true,
            Value::String(version) if version.to_string().parse::<i32>().is_ok() => {
                return Err(api_version(version));
            }
            Value::String(_) => return Err(api_version_unknown()),
            other if name == "apiStrict" => self.api.is_strict = other.is_truthy(),
            other => self.api.deprecation_errors = other.is_truthy(),
        }
        self.names_api_options |= name != "apiVersion" && !value.is_nullish();
        Ok(())
    }

    fn check_api(&self) -> Result<()> {
        let Api { is_version_1, is_strict, .. } = self.api;
        if !is_version_1 && self.names_api_options {
            return Err(api_without_version());
        }
        if is_strict && !self.command.in_api_v1 {
            return Err(api_strict(self.command.name));
        }
        Ok(())
    }

    fn is_for_anyone(&self) -> bool {
        matches!(self.command.auth, Auth::Anyone)
    }

    fn read_session(&mut self, session: &SessionFields<'a>) -> Result<()> {
        self.lsid =
            session.lsid.map(|lsid| Lsid::parse("OperationSessionInfo.lsid", lsid)).transpose()?;
        self.txn_number = session.txn_number;
        match (session.txn_number, session.autocommit, session.start_transaction) {
            (None, None, None) => return Ok(()),
            // Commands that need no user reject all fields of transactions.
            (_, Some(_), _) if self.is_for_anyone() => return Err(not_in_transaction()),
            (Some(_), ..) if self.is_for_anyone() => return Err(no_txn_number()),
            (Some(_), ..) if self.lsid.is_none() => return Err(txn_number_without_session()),
            (Some(..0), ..) => return Err(txn_number_negative()),
            (_, None, Some(_)) => return Err(start_without_autocommit()),
            (None, ..) => return Err(autocommit_without_number()),
            (_, Some(true), _) => return Err(autocommit_true()),
            (_, _, Some(false)) => return Err(start_false()),
            (Some(_), None, None) if !self.command.is_retryable_write => {
                return Err(not_retryable(self.command.name));
            }
            (Some(_), None, None) => return Ok(()),
            (Some(_), Some(false), _) => {}
        }
        if !self.command.in_transaction {
            return Err(match self.command.name {
                "count" => no_count_in_transaction(),
                name => not_run_in_transaction(name),
            });
        }
        self.transaction = Some(match session.start_transaction {
            Some(_) => Transaction::Starts,
            None => Transaction::GoesOn,
        });
        Ok(())
    }

    /// Returns `body`, a document inside this request, as a request of its own, with the same
    /// database and session.
    ///
    /// Errors: those of a request's shape; `None` for an unknown command.
    pub fn nested(&self, body: Doc<'a>) -> Result<Option<Request<'a>>> {
        let Some(first) = body.iter().next() else { return Ok(None) };
        let Some((index, command)) = command::find(first.name, self.version) else {
            return Ok(None);
        };
        let mut request = Request {
            command,
            version: self.version,
            index,
            first,
            db: self.db,
            body,
            args: SmallVec::new(),
            message: self.message,
            comment: None,
            max_time: None,
            names_max_time: false,
            names_api_options: false,
            names_shard: false,
            is_nested: true,
            lsid: self.lsid,
            txn_number: None,
            transaction: None,
            read_concern: ReadConcern::default(),
            read_preference: ReadPreference::default(),
            write_concern: None,
            api: self.api,
            // A nested command is checked as older commands are.
            named: match command.named.may_be_uuid {
                true => Named { refused_as: codes::InvalidNamespace, ..command.named },
                false => command.named,
            },
            by_uuid: None,
        };
        let (mut session, mut write_concern) = (SessionFields::default(), None);
        for element in body.iter().skip(1) {
            // The fields of sessions are those of the outer command.
            if matches!(&**element.name, b"lsid" | b"txnNumber") {
                continue;
            }
            if !request.read_generic(element, &mut session, &mut write_concern)? {
                request.args.push(element);
            }
        }
        if command.name == "aggregate"
            && let Some(concern) = write_concern
        {
            if !concern.is_nullish() {
                WriteConcern::parse(concern)?;
            }
            return Err(no_explained_concern());
        }
        request.check_fields()?;
        Ok(Some(request))
    }

    fn check_fields(&self) -> Result<()> {
        let name = self.command.name;
        let reads_sequences =
            matches!(self.command.kind, Kind::Insert | Kind::Update | Kind::Delete)
                || name == "bulkWrite";
        let has_others = !reads_sequences && self.message.sequences().next().is_some();
        if has_others && WITHOUT_SEQUENCES.contains(&name) {
            return Err(no_sequences(name));
        }
        let (place, fields, is_strict) = match self.command.fields {
            Fields::Any => return Ok(()),
            Fields::Known { place, fields } => (place, fields, false),
            Fields::Strict { place, fields } => (place, fields, true),
        };
        for (at, element) in self.args.iter().enumerate() {
            if !is_strict && fields.iter().all(|field| element.name != field.name) {
                continue;
            }
            let field =
                fields::check_read(self.version, place, fields, element.name, element.value.get())?;
            // Of another, all names have been compared.
            if self.is_nested {
                fields::check_once(place, field, *element, self.args[..at].iter().copied())?;
            }
        }
        // Other commands ignore them.
        for sequence in self.message.sequences().filter(|_| is_strict && reads_sequences) {
            fields::check(place, fields, sequence.name, Type::Array)?;
        }
        for field in fields.iter().filter(|field| field.is_required) {
            let given = self.args.iter().find(|element| element.name == field.name);
            let is_missing = field.is_missing(given.map(|element| element.value.get()));
            if is_missing && self.message.sequence(field.name).is_none() {
                return Err(fields::missing_field(place, field.name));
            }
        }
        Ok(())
    }

    /// Calls `look` with the body as others may see it, without secrets.
    pub fn with_shown_body<R>(&self, look: impl FnOnce(Doc<'_>) -> R) -> R {
        if let Some(explained) = self.explained_with_secrets() {
            let (first, rest) = (self.first.name, self.body.iter().skip(1));
            let shown = DocBuf::build(|out| {
                let mut inner = out.begin_doc(first);
                write_without(explained.secrets, self.first.value.get().as_doc(), &mut inner);
                inner.finish();
                rest.for_each(|field| {
                    out.append_raw(field.name, field.value);
                });
            });
            return look(shown.as_doc());
        }
        let secrets = self.command.secrets;
        if secrets.is_empty() {
            return look(self.body);
        }
        look(DocBuf::build(|out| write_without(secrets, Some(self.body), out)).as_doc())
    }

    /// Returns the command with secrets that the request is to explain.
    fn explained_with_secrets(&self) -> Option<&'static Command> {
        if self.command.name != "explain" {
            return None;
        }
        let first = self.first.value.get().as_doc()?.iter().next()?;
        let (_, command) = command::find(first.name, FeatureVersion::NEWEST)?;
        (!command.secrets.is_empty()).then_some(command)
    }

    /// Returns the field of this name; null and undefined count as absent.
    pub fn arg(&self, name: &str) -> Option<Value<'a>> {
        let element = self.args.iter().find(|element| element.name == name)?;
        Some(element.value.get()).filter(|value| !value.is_nullish())
    }

    /// Returns the field of this name as it was sent, including null.
    pub fn given(&self, name: &str) -> Option<Value<'a>> {
        self.args.iter().find(|element| element.name == name).map(|element| element.value.get())
    }

    /// Returns the field of this name as a boolean; false if it is absent.
    pub fn flag(&self, name: &str) -> bool {
        self.arg(name).is_some_and(|value| value.is_truthy())
    }

    /// Returns the field of this name as a string.
    pub fn text(&self, name: &str) -> Option<&'a BStr> {
        self.arg(name).and_then(|value| value.as_str())
    }

    /// Returns the name of the operation's collection, if it has one: as the client wrote it,
    /// unchecked.
    pub fn concerned(&self) -> Option<&BStr> {
        match (self.command.kind, &self.by_uuid) {
            (Kind::GetMore, _) => self.text("collection"),
            (_, Some(Ok(ns))) => Some(ns.collection().into()),
            _ => self.first.value.get().as_str(),
        }
    }

    /// Returns whether a UUID replaces the collection's name.
    pub fn is_by_uuid(&self) -> bool {
        self.named.may_be_uuid && self.uuid().is_some()
    }

    /// Returns the write concern that the reply waits for. A pipeline that only reads ignores it.
    pub fn awaited_concern(&self) -> Option<&WriteConcern> {
        let concern = self.write_concern.as_ref()?;
        if self.command.name != "aggregate" {
            return Some(concern);
        }
        let last = self.arg("pipeline")?.as_array()?.values().last()?.as_doc()?.iter().next()?;
        matches!(&**last.name, b"$out" | b"$merge").then_some(concern)
    }

    /// Returns whether the client does not want to know the result of a write.
    pub fn is_unacknowledged(&self) -> bool {
        self.write_concern.as_ref().is_some_and(WriteConcern::is_unacknowledged)
    }

    /// Looks up the collection of a UUID that replaces its name.
    pub fn resolve(&mut self, db: &Db) {
        if !self.named.may_be_uuid {
            return;
        }
        let Some(uuid) = self.uuid() else {
            if let Value::Binary(Binary { subtype: 4, .. }) = self.first.value.get() {
                self.by_uuid = Some(Err(session::bad_uuid()));
            }
            return;
        };
        let text = || uuid::text(&uuid);
        self.by_uuid = Some(match db.catalog().of_uuid(&uuid) {
            None => Err(unresolved(&text())),
            Some(ns) if ns.db() != self.db => Err(of_other_database(&text(), self.db, &ns)),
            Some(ns) => Ok(ns),
        });
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        match self.first.value.get() {
            Value::Binary(Binary { subtype: 4, bytes }) => bytes.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the namespace of the operation in the log, the profiler and `currentOp`.
    pub fn shown_namespace(&self) -> String {
        let first = self.first.value.get();
        let collection = match self.command.name {
            "dbStats" => return self.db.to_string(),
            "dataSize" => return first.as_str().unwrap_or_default().to_string(),
            "explain" => {
                first.as_doc().and_then(|command| command.iter().next()?.value.get().as_str())
            }
            "aggregate" | "currentOp" => self.concerned().or(Some("$cmd.aggregate".into())),
            _ => self.concerned(),
        };
        format!("{}.{}", self.db, collection.unwrap_or("$cmd".into()))
    }

    /// Returns whether the operation is on data, a collection's or others, so that the profiler of
    /// its database records it.
    pub fn is_profiled(&self) -> bool {
        self.concerned().is_some()
            || matches!(self.command.name, "aggregate" | "dbStats" | "explain")
    }

    /// Returns the collection that the first field names.
    ///
    /// Errors: `collection_type`, and the rules of names.
    pub fn namespace(&self) -> Result<Namespace> {
        match &self.by_uuid {
            Some(resolved) => resolved.clone(),
            None => Namespace::new(self.db, self.collection_name()?),
        }
    }

    /// Returns the string of the first field, without a check of the name.
    pub fn collection_name(&self) -> Result<&'a str> {
        let refused = match self.first.value.get() {
            Value::String(name) => match name.to_str() {
                Ok(name) => return Ok(name),
                Err(_) => collection_type("string"),
            },
            Value::Symbol(name) => match name.to_str() {
                Ok(name) => return Ok(name),
                Err(_) => collection_type("symbol"),
            },
            Value::Binary(Binary { subtype: 4, .. }) => name_not_uuid(),
            other => collection_type(other.kind().alias()),
        };
        Err(Error::new(self.named.refused_as, refused.message()))
    }

    /// Returns the documents of the field `name`, from an array in the body or from a document
    /// sequence. `None` if there is no such field.
    pub fn documents(&self, name: &'static str) -> Option<Documents<'a>> {
        if let Some(sequence) = self.message.sequence(name) {
            return Some(Documents::Sequence(sequence.docs));
        }
        let array = self.arg(name)?.as_array()?;
        Some(Documents::Array { rest: array.iter(), at: 0, place: self.command.name, name })
    }
}

/// An iterator over the documents of a field.
#[derive(Clone)]
pub enum Documents<'a> {
    /// Over an array in the body; an element that is not a document is an error.
    Array {
        /// The elements not yet yielded.
        rest: marula_bson::doc::Iter<'a>,
        /// The index of the next element.
        at: usize,
        /// The command's name, for messages.
        place: &'static str,
        /// The field's name, for messages.
        name: &'static str,
    },
    /// From a document sequence.
    Sequence(Docs<'a>),
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<Doc<'a>>;

    fn next(&mut self) -> Option<Result<Doc<'a>>> {
        match self {
            Documents::Sequence(docs) => docs.next().map(Ok),
            Documents::Array { rest, at, place, name } => {
                let element = rest.next()?;
                let index = *at;
                *at += 1;
                Some(match element.value.get() {
                    // mongod skips nulls in arrays.
                    Value::Null | Value::Undefined => return self.next(),
                    Value::Document(doc) => Ok(doc),
                    other => Err(not_a_document(place, name, index, other.kind().alias())),
                })
            }
        }
    }
}

impl<'a> SessionFields<'a> {
    fn read(&mut self, name: &BStr, value: Value<'a>) {
        match (name.as_bytes(), value) {
            (b"lsid", Value::Document(lsid)) => self.lsid = Some(lsid),
            (b"txnNumber", Value::Int64(number)) => self.txn_number = Some(number),
            (b"autocommit", Value::Boolean(flag)) => self.autocommit = Some(flag),
            (b"startTransaction", Value::Boolean(flag)) => self.start_transaction = Some(flag),
            _ => {}
        }
    }
}

/// Returns the database's name, unchecked: for an OP_MSG from its body, for an OP_QUERY from its
/// namespace.
fn database<'a>(message: &Message<'a>, body: Doc<'a>) -> Result<&'a BStr> {
    if let Some(db) = message.query_db() {
        return Ok(db);
    }
    match body.get("$db") {
        Some(Value::String(db)) => Ok(db),
        Some(other) => Err(db_not_a_string(other.kind().alias())),
        None => Err(no_db()),
    }
}

fn database_name(db: &BStr) -> Result<&str> {
    let name = db.to_str().map_err(|_| invalid_db(db))?;
    // The pseudo-database of authentication by X.509 and LDAP, whose name is otherwise not
    // permitted.
    match marula_db::namespace::is_database_name(name) || name == "$external" {
        true => Ok(name),
        false if name.contains('.') => Err(dot_in_db(name)),
        false => Err(invalid_db(db)),
    }
}

/// The commands that refuse a message with document sequences. Recorded from mongod 6.0.
const WITHOUT_SEQUENCES: &[&str] = &[
    "appendOplogNote",
    "availableQueryOptions",
    "buildInfo",
    "checkShardingIndex",
    "collMod",
    "collStats",
    "compact",
    "connPoolStats",
    "connPoolSync",
    "count",
    "currentOp",
    "dataSize",
    "dbHash",
    "dbStats",
    "distinct",
    "driverOIDTest",
    "explain",
    "getDiagnosticData",
    "getLastError",
    "getLog",
    "getParameter",
    "getnonce",
    "hello",
    "isMaster",
    "listCommands",
    "mapReduce",
    "planCacheClear",
    "planCacheClearFilters",
    "planCacheListFilters",
    "planCacheSetFilter",
    "profile",
    "reIndex",
    "renameCollection",
    "serverStatus",
    "shardingState",
    "splitVector",
    "startSession",
    "top",
    "validate",
    "whatsmyuri",
];

/// Writes a command without its secrets.
fn write_without(secrets: &[&str], command: Option<Doc<'_>>, out: &mut DocWriter<'_>) {
    for field in command.into_iter().flatten() {
        if secrets.iter().any(|secret| field.name == *secret) {
            out.append(field.name, "xxx");
        } else {
            out.append_raw(field.name, field.value);
        }
    }
}

/// Parses a time limit. `aggregate` has its own message for a negative one.
fn parse_max_time(value: Value<'_>, command: &str) -> Result<Option<Duration>> {
    if !value.kind().is_number() {
        // Commands that read it with their other fields have the message of those.
        if matches!(command, "aggregate" | "getMore") && !value.is_nullish() {
            let expected = Types::NUMBER.expected();
            let kind = value.kind().alias();
            return Err(fields::wrong_type(command, "maxTimeMS".into(), kind, &expected));
        }
        return Err(max_time_not_a_number());
    }
    let ms = match value {
        #[allow(clippy::cast_possible_truncation)]
        Value::Decimal128(_) => value.as_f64().unwrap_or(0.0).round_ties_even() as i64,
        _ => saturated_long(value).unwrap_or_default(),
    };
    if ms < 0 && command == "aggregate" {
        return Err(max_time_negative(ms));
    }
    if !(0..=i64::from(i32::MAX)).contains(&ms) {
        return Err(max_time_range(ms));
    }
    // For a double the range is checked before the fraction.
    if matches!(value, Value::Double(_)) && value.as_exact_i64().is_none() {
        return Err(max_time_not_integral());
    }
    // Zero is no limit.
    Ok(u64::try_from(ms).ok().filter(|&ms| ms > 0).map(Duration::from_millis))
}

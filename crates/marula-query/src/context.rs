//! The environment of an operation.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use marula_bson::{Collator, DocBuf, ValueBuf};
use marula_error::{Error, Result};

use crate::collation::Collation;
use crate::feature_version::FeatureVersion;
use crate::spill::Limits;

/// The environment of one operation: collation, time, `let` variables. Parsing uses it to encode
/// constants; evaluation uses it for `$$NOW` and similar variables.
#[derive(Clone, Default, Debug)]
pub struct Context {
    /// The feature version; used by parsing, not by evaluation.
    pub version: FeatureVersion,
    /// The collation of the operation or its collection; `None` is the simple binary order.
    pub collation: Option<Collation>,
    /// `$$NOW`: milliseconds since the epoch, the same for the whole operation.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, if the deployment has one.
    pub cluster_time: Option<u64>,
    /// The command's `let` variables, evaluated to constants; `None` if there are none.
    pub let_variables: Option<DocBuf>,
    /// `$$USER_ROLES`: an array of `{ _id, role, db }`; `None` without roles.
    pub user_roles: Option<ValueBuf>,
    /// Known variables without a value: `$lookup` variables whose expression is missing for a
    /// document.
    pub missing_variables: Vec<String>,
    /// Variables whose values depend on the document: those of a `$lookup` during parsing.
    pub unknown_variables: Vec<String>,
    /// Ends the operation early; `None` if nothing does.
    pub interrupt: Option<Interrupt>,
    /// The memory limits of sorts and groups, and where they spill to.
    pub limits: Limits,
    /// Whether documents have a text search score.
    pub has_text_score: bool,
    /// The error of a text search on a collection that has no index for it; `None` if it has one,
    /// or that is not known.
    pub text_search_error: Option<Arc<Error>>,
    /// Whether documents have a distance from the point of a search.
    pub has_distance: bool,
    /// Whether all documents are taken to have all metadata, to find what else is wrong.
    pub assumes_metadata: bool,
    /// Whether calls stay as written, as in a filter and an update: elsewhere mongod replaces some
    /// by variants for constants, whose errors have codes of their own.
    pub keeps_calls: bool,
    /// Whether the parsed text is stored: it was accepted when it was created and is parsed
    /// whatever the length of its paths.
    pub is_stored: bool,
    /// Whether the parsed stages and operators count as used, see [`usage`](crate::usage): those
    /// that a client wrote for this operation, and those of the views that it reads.
    pub counts_uses: bool,
    /// The target of a pipeline; `None` outside a command's pipeline.
    pub subject: Option<Arc<Subject>>,
}

/// The target of a command's pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The database.
    pub database: String,
    /// The collection; `None` for `{ aggregate: 1 }`.
    pub collection: Option<String>,
}

/// The server's condition for ending an operation.
pub trait Check: Any + Send + Sync {
    /// Returns an error once the operation must end: it was killed, or its time limit has passed.
    fn check(&self) -> Result<()>;

    /// Returns an error if `_bytes` more memory is not available.
    fn check_room(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// Returns whether `bytes` more are better kept on the disk, by a stage that can do so.
    fn is_short_of(&self, bytes: usize) -> bool {
        self.check_room(bytes).is_err()
    }

    /// The stored code of the database for `$where` and `mapReduce`: functions and other values by
    /// the name of their global variable.
    fn stored_code(&self) -> Result<DocBuf> {
        Ok(DocBuf::new())
    }

    /// Returns a time of the server's clock that it returns only once, in the second of `now_ms` or
    /// later; `None` without a clock.
    fn next_timestamp(&self, _now_ms: i64) -> Option<u64> {
        None
    }
}

/// Signals to long-running code that its operation must end. Clones belong to the same operation
/// and are equal.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Check>);

impl Interrupt {
    /// Creates an interrupt for a new operation.
    pub fn new(check: impl Check) -> Self {
        Interrupt(Arc::new(check))
    }

    /// Returns an error once the operation must end.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Returns an error if `bytes` more memory is not available.
    pub fn check_room(&self, bytes: usize) -> Result<()> {
        self.0.check_room(bytes)
    }

    /// Returns whether `bytes` more are better kept on the disk.
    pub fn is_short_of(&self, bytes: usize) -> bool {
        self.0.is_short_of(bytes)
    }

    /// The stored code of the database.
    pub fn stored_code(&self) -> Result<DocBuf> {
        self.0.stored_code()
    }

    /// Returns a time that the server's clock returns only once, if it has a clock.
    pub fn next_timestamp(&self, now_ms: i64) -> Option<u64> {
        self.0.next_timestamp(now_ms)
    }

    /// The check it was created from, if that is a `T`.
    pub fn made_of<T: Check>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }
}

impl PartialEq for Interrupt {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Interrupt {}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

impl Context {
    /// The database of a command's pipeline; empty if there is none.
    pub fn database(&self) -> &str {
        self.subject.as_ref().map_or("", |subject| &subject.database)
    }

    /// Runs a parser whose stages and operators count as used if `counts`.
    pub fn counting<T>(&mut self, counts: bool, parse: impl FnOnce(&Context) -> T) -> T {
        self.counts_uses = counts;
        let parsed = parse(self);
        self.counts_uses = false;
        parsed
    }

    /// The context in which all documents have all metadata.
    pub(crate) fn with_all_metadata(&self) -> Context {
        let known = Context { has_text_score: true, has_distance: true, ..self.clone() };
        Context { assumes_metadata: true, ..known }
    }

    /// The context of a nested pipeline over `collection`; `None` if it produces its own documents.
    #[must_use]
    pub(crate) fn within(mut self, collection: Option<&str>) -> Context {
        if let (Some(subject), Some(collection)) = (&self.subject, collection) {
            let (database, collection) = (subject.database.clone(), Some(collection.to_owned()));
            self.subject = Some(Arc::new(Subject { database, collection }));
        }
        self
    }

    /// The collator for the order of BSON values.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }
}

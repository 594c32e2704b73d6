//! What an operation brings to the language from outside.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use marula_bson::{Collator, DocBuf, ValueBuf};
use marula_error::Result;

use crate::collation::Collation;
use crate::feature_version::FeatureVersion;
use crate::spill::Limits;

/// The surroundings of one operation: collation, time, `let` variables. Parsing borrows it to
/// encode constants; evaluation borrows it for `$$NOW` and the like.
#[derive(Clone, Default, Debug)]
pub struct Context {
    /// The release whose language is there; parsing looks at it, evaluation does not.
    pub version: FeatureVersion,
    /// The collation of the operation, or the collection's; `None` is the simple binary order.
    pub collation: Option<Collation>,
    /// `$$NOW`: milliseconds since the epoch, one moment for the whole operation.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, where the deployment has one.
    pub cluster_time: Option<u64>,
    /// The command's `let`, its values already evaluated to constants; `None` when it has none.
    pub let_variables: Option<DocBuf>,
    /// `$$USER_ROLES`: an array of `{ _id, role, db }`; `None` where nobody has a role.
    pub user_roles: Option<ValueBuf>,
    /// Variables that are known and have no value: those of a `$lookup` whose expression is missing
    /// on a document.
    pub missing_variables: Vec<String>,
    /// Variables whose values are not known before there is a document: those of a `$lookup` that
    /// is parsed.
    pub unknown_variables: Vec<String>,
    /// What ends the operation early; `None` where nothing does.
    pub interrupt: Option<Interrupt>,
    /// How much memory sorts and groups may use, and where they go on beyond.
    pub limits: Limits,
    /// Whether documents come with the score of a text search.
    pub has_text_score: bool,
    /// Whether documents come with how far they are from where was searched.
    pub has_distance: bool,
    /// Whether calls stay as they are written, as in a filter and an update: elsewhere mongod
    /// replaces some by others that are made for constants, and whose errors have codes of their
    /// own.
    pub keeps_calls: bool,
    /// Whether what is parsed is stored: it was taken when it was made, and is read however long
    /// its paths are.
    pub is_stored: bool,
    /// What a pipeline runs on; `None` where there is no pipeline of a command.
    pub subject: Option<Arc<Subject>>,
}

/// What a command's pipeline runs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The database.
    pub database: String,
    /// The collection; `None` for `{ aggregate: 1 }`.
    pub collection: Option<String>,
}

/// What ends an operation, as the server knows it.
pub trait Check: Any + Send + Sync {
    /// Fails once the operation must end: it was killed, or its time is over.
    fn check(&self) -> Result<()>;

    /// Fails where so many bytes more are not to be had.
    fn ask(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// What the operation's database keeps for the code of `$where` and of `mapReduce`: functions
    /// and other values, each under the name of its global variable.
    fn stored_code(&self) -> Result<DocBuf> {
        Ok(DocBuf::new())
    }
}

/// Tells code that runs long when its operation must end. Clones belong to one operation and are
/// equal.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Check>);

impl Interrupt {
    /// An interrupt for a new operation.
    pub fn new(check: impl Check) -> Self {
        Interrupt(Arc::new(check))
    }

    /// Fails once the operation must end.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Fails where so many bytes more are not to be had.
    pub fn ask(&self, bytes: usize) -> Result<()> {
        self.0.ask(bytes)
    }

    /// What the database keeps for code.
    pub fn stored_code(&self) -> Result<DocBuf> {
        self.0.stored_code()
    }

    /// What it was made of, where that is a `T`.
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
    /// The database that a command's pipeline runs in; empty where there is none.
    pub fn database(&self) -> &str {
        self.subject.as_ref().map_or("", |subject| &subject.database)
    }

    /// The context of a pipeline inside another, which runs on `collection`; `None` where it makes
    /// its own documents.
    #[must_use]
    pub(crate) fn within(mut self, collection: Option<&str>) -> Context {
        if let (Some(subject), Some(collection)) = (&self.subject, collection) {
            let (database, collection) = (subject.database.clone(), Some(collection.to_owned()));
            self.subject = Some(Arc::new(Subject { database, collection }));
        }
        self
    }

    /// The collation as the order of BSON values takes it.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }
}

//! `insert`: adds documents to a collection, which is created if it does not exist.

use marula_bson::Doc;
use marula_db::index::is_about_keys;
use marula_db::write::{InsertReport, check_id, check_in_transaction};
use marula_db::{Collection, Namespace, WriteOp};
use marula_error::{Error, Result, codes, errors};

use crate::env::Env;
use crate::statements;
use crate::targets::check_not_view;

errors! {
    measurements_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot insert into a time-series collection in a multi-document transaction: {ns}";
}

/// The actions on the collection that the user must be allowed.
pub const ACTIONS: &[&str] = &["insert"];

/// The number of documents that an insert writes on a thread that may not wait; more would delay
/// the other connections.
const INLINE_DOCUMENTS_MAX: usize = 8;

/// The size of all documents that an insert writes on a thread that may not wait.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// An insert whose form is checked: every document is a statement of the write.
#[derive(Clone, Copy)]
pub struct InsertOp<'a> {
    /// The documents, as the client wrote them.
    pub documents: &'a [Doc<'a>],
    /// Whether the first error ends the insert.
    pub is_ordered: bool,
    /// Checks that the collection is the one with the UUID that the client gives.
    pub check_uuid: Option<&'a dyn Fn() -> Result<()>>,
}

/// The result of an insert.
pub struct Inserted {
    /// The number of inserted documents, and the errors and retries by statement.
    pub report: InsertReport,
    /// The number of documents for the reply. An ordered insert of measurements has all that the
    /// client sent here, as in mongod.
    pub counted: usize,
}

impl Inserted {
    fn of(report: InsertReport) -> Self {
        Inserted { counted: report.inserted, report }
    }

    /// Returns the first document's error, if one failed.
    pub fn into_result(self) -> Result<()> {
        self.report.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl<'a> InsertOp<'a> {
    /// The insert of these documents, which ends with the first error.
    pub fn ordered(documents: &'a [Doc<'a>]) -> Self {
        InsertOp { documents, is_ordered: true, check_uuid: None }
    }

    /// Executes the insert on the collection of this name.
    ///
    /// Errors: those of the name and of the store. An error of the collection (a view, blocked
    /// writes) is each document's own, as a duplicate key is.
    pub fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<Inserted> {
        let mut report = InsertReport::default();
        loop {
            let (commits, attempted) = (op.commits(), report.attempted);
            match self.run_once(env, ns, op, &mut report) {
                // The collection was dropped or renamed; the rest belongs into that which has its
                // name now.
                Err(error)
                    if error.code() == codes::QueryPlanKilled
                        && (op.commits() == commits || report.attempted > attempted) =>
                {
                    statements::begin_again(env, op)?;
                }
                Err(error) => return Err(error),
                Ok(counted) => {
                    let counted = counted.unwrap_or(report.inserted);
                    return Ok(Inserted { report, counted });
                }
            }
        }
    }

    /// Inserts the documents that `report` is not about yet. Returns the number for the reply, if
    /// it is not that of the inserted ones.
    fn run_once(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        op: &mut WriteOp<'_>,
        report: &mut InsertReport,
    ) -> Result<Option<usize>> {
        let known = op.look_up(ns);
        if !op.may_wait && (known.is_none() || self.is_long()) {
            return Err(Error::postponed());
        }
        ns.check_creatable()?;
        if let Err(error) = op.user_writes.check(env.unit.db(), ns.db()) {
            self.refuse(&error, report);
            return Ok(None);
        }
        let collection = match known {
            Some(collection) => collection,
            None => {
                // A collection is not created for documents that it cannot have.
                let errors = self.refused_by_id(report.attempted);
                let rest = self.documents.len() - report.attempted;
                if errors.len() == rest || self.is_ordered && !errors.is_empty() {
                    report.errors.extend(errors);
                    return Ok(None);
                }
                if let Err(error) = self.check_uuid() {
                    self.refuse(&error, report);
                    return Ok(None);
                }
                op.look_up_or_create(ns)?
            }
        };
        if let Some(buckets) = env.unit.db().buckets_of(&collection)? {
            let may_write = match env.unit.transaction() {
                Some(_) => Err(measurements_in_transaction(ns)),
                None => self.check_uuid(),
            };
            if let Err(error) = may_write {
                return Err(error.caused_by(&format!("time-series insert failed: {ns}")));
            }
            if !op.may_wait {
                return Err(Error::postponed());
            }
            // Several measurements share buckets, which are written one after the other.
            if let Some(parking) = env.unit.parking() {
                parking.forbid();
            }
            return self.add_measurements(&buckets, op, report).map(Some);
        }
        let may_write = check_not_view(&collection)
            .and_then(|()| self.check_uuid())
            .and_then(|()| check_in_transaction(env.unit, &collection));
        match may_write {
            Ok(()) => self.add(&collection, op, report)?,
            Err(error) => self.refuse(&error, report),
        }
        Ok(None)
    }

    /// Inserts into a collection that has documents of its own.
    ///
    /// Errors: those of the store.
    pub fn insert_into(&self, collection: &Collection, op: &mut WriteOp<'_>) -> Result<Inserted> {
        let mut report = InsertReport::default();
        self.add(collection, op, &mut report)?;
        Ok(Inserted::of(report))
    }

    fn add(
        &self,
        collection: &Collection,
        op: &mut WriteOp<'_>,
        report: &mut InsertReport,
    ) -> Result<()> {
        let mut documents = self.documents[report.attempted..].iter().copied();
        // A capped collection takes them one by one.
        let is_capped = || collection.state().options.capped.is_some();
        if !op.may_wait && self.documents.len() > 1 && is_capped() {
            return Err(Error::postponed());
        }
        op.insert(collection, &mut documents, self.is_ordered, report)
    }

    /// Inserts measurements into the buckets of a time-series collection.
    ///
    /// Errors: those of a bucket and of the store.
    pub fn insert_measurements(
        &self,
        buckets: &Collection,
        op: &mut WriteOp<'_>,
    ) -> Result<Inserted> {
        let mut report = InsertReport::default();
        let counted = self.add_measurements(buckets, op, &mut report)?;
        Ok(Inserted { report, counted })
    }

    fn add_measurements(
        &self,
        buckets: &Collection,
        op: &mut WriteOp<'_>,
        report: &mut InsertReport,
    ) -> Result<usize> {
        // Of an insert that fails as a whole the report has nothing, so that it can begin again.
        let mut whole = InsertReport { attempted: report.attempted, ..InsertReport::default() };
        let mut documents = self.documents[report.attempted..].iter().copied();
        op.insert_measurements(buckets, &mut documents, self.is_ordered, &mut whole)?;
        let is_refused = whole.errors.iter().any(|(_, error)| is_about_keys(error));
        let counts_all = self.is_ordered && !is_refused;
        report.append(whole);
        Ok(if counts_all { self.documents.len() } else { report.inserted })
    }

    /// The result of an insert into a collection that takes no document: the error is each
    /// document's, unless its `_id` cannot be one.
    pub fn refused(&self, error: &Error) -> Inserted {
        let mut report = InsertReport::default();
        self.refuse(error, &mut report);
        Inserted::of(report)
    }

    /// Adds the error to the report, for those that it is not about yet.
    fn refuse(&self, error: &Error, report: &mut InsertReport) {
        let error_of = |(position, doc): (usize, &Doc<'_>)| {
            (position, id_error(*doc).unwrap_or_else(|| error.clone()))
        };
        report.errors.extend(self.attempted(report.attempted).map(error_of));
    }

    fn check_uuid(&self) -> Result<()> {
        self.check_uuid.map_or(Ok(()), |check| check())
    }

    /// The documents from position `from` that are attempted if all fail: of an ordered insert only
    /// the first.
    fn attempted(&self, from: usize) -> impl Iterator<Item = (usize, &Doc<'a>)> {
        let count = if self.is_ordered { 1 } else { self.documents.len() };
        self.documents.iter().enumerate().skip(from).take(count)
    }

    /// Returns whether the documents take too long for a thread that may not wait.
    fn is_long(&self) -> bool {
        let bytes = || self.documents.iter().map(|doc| doc.as_bytes().len()).sum::<usize>();
        self.documents.len() > INLINE_DOCUMENTS_MAX || bytes() > INLINE_BYTES_MAX
    }

    /// Returns the errors of the documents from position `from` with an `_id` that cannot be one.
    fn refused_by_id(&self, from: usize) -> Vec<(usize, Error)> {
        let failure = |(position, doc): (usize, &Doc<'_>)| Some((position, id_error(*doc)?));
        self.attempted(from).filter_map(failure).collect()
    }
}

/// Returns the error of a document with an `_id` that cannot be one, or with two.
fn id_error(doc: Doc<'_>) -> Option<Error> {
    check_id(doc).err()
}

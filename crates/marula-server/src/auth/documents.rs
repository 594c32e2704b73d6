//! The documents of users and roles: `admin.system.users` and `admin.system.roles`.
//!
//! Both are ordinary collections; `_id` is `<database>.<name>`. Changes hold the lock of
//! [`Users`](super::Users), so that the documents that a command decides by do not change until it
//! has written.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Type, Value, ValueBuf, doc};
use marula_db::write::Written;
use marula_db::{Change, Collection, Db, IndexSpec, Namespace, Unit, WriteOp};
use marula_error::{Error, Result, codes};
use marula_query::update::Touched;
use marula_storage::Direction;

use super::name::{Name, Of};

impl Of {
    /// Returns the collection with the documents.
    fn namespace(self) -> Namespace {
        let collection = match self {
            Of::User => "system.users",
            Of::Role => "system.roles",
        };
        Namespace::new("admin", collection).expect("a name of the server's own")
    }
}

/// The documents of users and roles.
pub(crate) struct Documents<'s> {
    db: &'s Db,
    now_ms: i64,
}

/// A change of a field: its new value, or its removal.
pub(crate) type Edit = (&'static str, Option<ValueBuf>);

/// Returns an array with these elements.
pub(crate) fn array(fill: impl FnOnce(&mut ArrayWriter<'_>)) -> ValueBuf {
    let mut bytes = Vec::new();
    fill(&mut ArrayWriter::new(&mut bytes));
    ValueBuf::from_parts(Type::Array, bytes)
}

impl<'s> Documents<'s> {
    /// Returns the documents in these databases, at this time.
    pub(crate) fn new(db: &'s Db, now_ms: i64) -> Self {
        Documents { db, now_ms }
    }

    fn collection(&self, of: Of) -> Option<Arc<Collection>> {
        self.db.collection(&of.namespace())
    }

    fn unit(&self) -> Unit<'_> {
        Unit::new(self.db)
    }

    /// Returns the document of a user or a role.
    pub(crate) fn find(&self, of: Of, name: &Name) -> Result<Option<DocBuf>> {
        let Some(collection) = self.collection(of) else { return Ok(None) };
        let (view, mut scratch) = (self.unit().view(), Vec::new());
        let id = name.id();
        let Some(record) = collection.find_id(view, Value::from(id.as_str()), &mut scratch)? else {
            return Ok(None);
        };
        let mut found = None;
        collection
            .get(view, record.as_bytes(), &mut scratch, &mut |doc| found = Some(doc.to_buf()))?;
        // The collection can be written directly, with any `_id`.
        Ok(found.filter(|doc| name_of(of, doc.as_doc()).is_some_and(|own| own == *name)))
    }

    /// Returns whether there is any user.
    pub(crate) fn has_users(&self) -> Result<bool> {
        match self.collection(Of::User) {
            None => Ok(false),
            Some(collection) => collection.scan(self.unit().view(), Direction::Forward)?.advance(),
        }
    }

    /// Returns the documents for which `is_wanted` is true, by name and then by database.
    pub(crate) fn list(&self, of: Of, is_wanted: &dyn Fn(&Name) -> bool) -> Result<Vec<DocBuf>> {
        let mut found = Vec::new();
        self.each(&of.namespace(), &mut |doc| {
            if let Some(name) = name_of(of, doc).filter(|name| is_wanted(name)) {
                found.push((name, doc.to_buf()));
            }
        })?;
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found.into_iter().map(|(_, doc)| doc).collect())
    }

    /// Returns all documents of another collection.
    pub(crate) fn all(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let mut found = Vec::new();
        self.each(ns, &mut |doc| found.push(doc.to_buf()))?;
        Ok(found)
    }

    fn each(&self, ns: &Namespace, visit: &mut dyn FnMut(Doc<'_>)) -> Result<()> {
        let Some(collection) = self.db.collection(ns) else { return Ok(()) };
        let mut cursor = collection.scan(self.unit().view(), Direction::Forward)?;
        while cursor.advance()? {
            visit(cursor.doc());
        }
        Ok(())
    }

    /// Inserts a document; returns false if its user or role exists already.
    pub(crate) fn insert(&self, of: Of, doc: Doc<'_>) -> Result<bool> {
        let collection = match self.collection(of) {
            Some(collection) => collection,
            None => self.create(of)?,
        };
        let inserted = WriteOp::new(self.unit(), self.now_ms).upsert(&collection, doc, None);
        match inserted {
            Ok(()) => Ok(true),
            Err(error) if error.code() == codes::DuplicateKey => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates the collection with its index, and stores the version of the schema.
    fn create(&self, of: Of) -> Result<Arc<Collection>> {
        let collection = self.db.collection_or_create(&of.namespace())?;
        let field = of.field();
        let spec = DocBuf::build(|spec| {
            spec.append("v", 2);
            spec.begin_doc("key").append(field, 1).append("db", 1);
            spec.append("name", format!("{field}_1_db_1").as_str()).append("unique", true);
        });
        let spec = IndexSpec::parse(spec.as_doc(), None)?;
        self.db.create_indexes(&collection, vec![spec], &mut || Ok(()))?;
        self.note_schema()?;
        Ok(collection)
    }

    fn note_schema(&self) -> Result<()> {
        const SCHEMA_VERSION: i32 = 5;
        let ns = Namespace::new("admin", "system.version").expect("a name of the server's own");
        let collection = self.db.collection_or_create(&ns)?;
        let doc = doc! { "_id": "authSchema", "currentVersion": SCHEMA_VERSION };
        match WriteOp::new(self.unit(), self.now_ms).upsert(&collection, doc.as_doc(), None) {
            Err(error) if error.code() != codes::DuplicateKey => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes fields of a document: existing ones in their positions, new ones at the end. Returns
    /// whether there is a document.
    pub(crate) fn edit(&self, of: Of, name: &Name, edits: &[Edit]) -> Result<bool> {
        self.edit_by(of, name, &|_| edits.to_vec())
    }

    /// The same with changes that depend on the document. Processes that share a store change
    /// documents at the same time, so `edits` is called with the document as it is at the commit.
    pub(crate) fn edit_by(
        &self,
        of: Of,
        name: &Name,
        edits: &dyn Fn(Doc<'_>) -> Vec<Edit>,
    ) -> Result<bool> {
        self.rewrite(of, name, &|old, out| write_edited(old, &edits(old), out))
    }

    /// Replaces a document by one with the same `_id`. Returns whether there is a document.
    pub(crate) fn replace(&self, of: Of, name: &Name, by: Doc<'_>) -> Result<bool> {
        self.rewrite(of, name, &|_, out| {
            out.append_elements(by.elements_bytes());
        })
    }

    fn rewrite(
        &self,
        of: Of,
        name: &Name,
        write: &dyn Fn(Doc<'_>, &mut DocWriter<'_>),
    ) -> Result<bool> {
        let Some(collection) = self.collection(of) else { return Ok(false) };
        let id = name.id();
        let record =
            collection.find_id(self.unit().view(), Value::from(id.as_str()), &mut Vec::new())?;
        let Some(record) = record else { return Ok(false) };
        let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| {
            out.clear();
            write(doc, &mut DocWriter::new(out));
            Ok::<_, Error>(Change::Replace(Touched::All))
        };
        let mut op = WriteOp::new(self.unit(), self.now_ms);
        Ok(op.update(&collection, &record, &mut change, None)? != Written::Skipped)
    }

    /// Removes a document; returns whether there was one.
    pub(crate) fn remove(&self, of: Of, name: &Name) -> Result<bool> {
        let Some(collection) = self.collection(of) else { return Ok(false) };
        let id = name.id();
        let record =
            collection.find_id(self.unit().view(), Value::from(id.as_str()), &mut Vec::new())?;
        let Some(record) = record else { return Ok(false) };
        WriteOp::new(self.unit(), self.now_ms).delete(&collection, &record, &mut |_| Ok(true), None)
    }

    /// Removes the documents of all users, or all roles, of a database; returns their number.
    pub(crate) fn remove_all(&self, of: Of, db: &str) -> Result<i32> {
        let mut removed = 0;
        for doc in self.list(of, &|name| name.db == db)? {
            if let Some(name) = name_of(of, doc.as_doc()) {
                removed += i32::from(self.remove(of, &name)?);
            }
        }
        Ok(removed)
    }
}

/// Returns the user or role of a document.
pub(crate) fn name_of(of: Of, doc: Doc<'_>) -> Option<Name> {
    let text = |field: &str| Some(doc.get(field)?.as_str()?.to_string());
    Some(Name { name: text(of.field())?, db: text("db")? })
}

fn write_edited(doc: Doc<'_>, edits: &[Edit], out: &mut DocWriter<'_>) {
    let mut done = vec![false; edits.len()];
    for field in doc {
        match edits.iter().position(|(name, _)| field.name == *name) {
            Some(at) if !done[at] => {
                done[at] = true;
                if let Some(value) = &edits[at].1 {
                    out.append_raw(field.name, value.as_raw());
                }
            }
            Some(_) => {}
            None => {
                out.append_raw(field.name, field.value);
            }
        }
    }
    for ((name, value), _) in edits.iter().zip(done).filter(|(_, is_done)| !is_done) {
        if let Some(value) = value {
            out.append_raw(name, value.as_raw());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_changed_in_place_and_new_ones_go_behind() {
        let doc = doc! { "_id": 1, "a": 2, "b": 3 };
        let edits: [Edit; 3] =
            [("b", None), ("c", Some(ValueBuf::from(5))), ("a", Some(ValueBuf::from(4)))];
        let edited = DocBuf::build(|out| write_edited(doc.as_doc(), &edits, out));
        assert_eq!(edited.as_doc().to_string(), "{ _id: 1, a: 4, c: 5 }");
    }
}

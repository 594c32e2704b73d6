//! RocksDB with the column family handle of each space.
//!
//! RocksDB finds a column family by name in a hash table. Every key that is read or written would
//! pay for that, several times per write, so the handles are looked up once, when the database is
//! opened.

use std::ops::Deref;

use marula_storage::Space;
use rust_rocksdb::{ColumnFamily, DB};

use crate::options::name_of;

/// The column families in the order of the spaces.
struct Columns<'d>([&'d ColumnFamily; Space::ALL.len()]);

self_cell::self_cell! {
    /// An open database with its column families; dereferences to [`DB`].
    pub(crate) struct Opened {
        owner: DB,
        #[covariant]
        dependent: Columns,
    }
}

impl Opened {
    /// Wraps a database that was opened with a column family for every space.
    pub(crate) fn of(db: DB) -> Opened {
        Opened::new(db, |db| {
            Columns(
                Space::ALL
                    .map(|space| db.cf_handle(name_of(space)).expect("every space was opened")),
            )
        })
    }

    /// The column family of a space.
    pub(crate) fn column(&self, space: Space) -> &ColumnFamily {
        self.borrow_dependent().0[space as usize]
    }
}

impl Deref for Opened {
    type Target = DB;

    fn deref(&self) -> &DB {
        self.borrow_owner()
    }
}

//! Fixed views over RocksDB snapshots.
//!
//! RocksDB retains the data of a snapshot, except files that are deleted as files. So open views
//! are counted: a range dropped while a view is open is hidden by a range tombstone alone, and
//! compactions free its space once the last view is closed.

use std::sync::Arc;

use marula_storage::{Cursor, Direction, KeyRange, Result, Space, Stamp, Values, View};
use rust_rocksdb::{ReadOptions, Snapshot};

use crate::engine::{Embedded, Engine, get_with};
use crate::many;
use crate::scan::open_cursor;

/// The open fixed views.
#[derive(Default)]
pub(crate) struct OpenViews {
    pub(crate) count: usize,
    /// The ranges dropped while a view was open.
    pub(crate) dropped: Vec<(Space, KeyRange)>,
}

/// A view of one moment. It keeps its store alive.
pub(crate) struct FixedView {
    /// Refers to `snapshot`, which outlives it.
    options: ReadOptions,
    /// Borrows from `store`; declared before it, so that it is dropped first.
    snapshot: Snapshot<'static>,
    /// The sequence number of the snapshot.
    moment: u64,
    store: Arc<Embedded>,
}

impl FixedView {
    #[allow(unsafe_code)]
    pub(crate) fn new(store: Arc<Embedded>) -> Self {
        let engine: &Engine = &store.engine;
        // SAFETY: the engine lives in an `Arc` that `store` owns and never replaces, and `store` is
        // kept next to the snapshot and dropped after it; the 'static lifetime does not leave this
        // type.
        let engine: &'static Engine = unsafe { &*std::ptr::from_ref(engine) };
        // Counted first: ranges dropped from here on stay readable.
        engine.views.lock().count += 1;
        let snapshot = engine.db.snapshot();
        let mut options = many::read_options();
        options.set_snapshot(&snapshot);
        // Without a number, no cached record counts as old enough.
        let moment = snapshot.sequence_number().unwrap_or(0);
        FixedView { options, snapshot, moment, store }
    }
}

impl View for FixedView {
    fn moment(&self) -> Stamp {
        Stamp::of_version(self.moment)
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let engine = &*self.store.engine;
        if space == Space::Records
            && let Some(bytes) = engine.records.lookup_at(key, self.moment)
        {
            visit(&bytes);
            return Ok(true);
        }
        get_with(engine, &self.options, space, key, visit)
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        many::get_many_at(&self.store.engine, (self.moment, &self.options), space, keys)
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        let moment = self.moment;
        Ok(open_cursor(&self.store.engine, (moment, options), space, range, direction))
    }
}

impl Drop for FixedView {
    fn drop(&mut self) {
        let engine = &self.store.engine;
        let dropped = {
            let mut views = engine.views.lock();
            views.count -= 1;
            if views.count > 0 {
                return;
            }
            std::mem::take(&mut views.dropped)
        };
        for (space, KeyRange { start, end }) in dropped {
            // Only a hint: ranges that are not marked are compacted later.
            let _ =
                engine.db.suggest_compact_range_cf(engine.column(space), Some(start), Some(end));
        }
    }
}

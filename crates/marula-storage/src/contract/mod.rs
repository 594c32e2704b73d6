//! The tests that every engine passes.
//!
//! A *promise* is a function that takes an [`Open`], a function that opens the engine under test on
//! a folder, and panics when the engine breaks the promise. The tests of an engine generate one
//! `#[test]` per promise with [`for_each_promise!`](crate::for_each_promise):
//!
//! ```ignore
//! macro_rules! tests {
//!     ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open) })* };
//! }
//! marula_storage::for_each_promise!(tests);
//! ```

mod durability;
mod guards;
mod model;
mod reads;
mod upkeep;
mod writes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Direction, KeyRange, Looked, Space, Stamp, Store, Txn, View};

pub use durability::{
    close_ends_it, commits_survive_reopening, on_sync_calls_back, stamps_ascend, sync_returns,
};
pub use guards::{
    a_visit_may_read_more, counters_commute, guarded_keys_stay_in_the_view, guards_exclude,
    guards_in_opposite_orders_end, guards_of_one_key_starve_nobody, guards_release,
    guards_show_the_newest, guards_since_a_view_conflict_on_changed_keys,
    guards_without_timeout_conflict_at_once,
};
pub use model::random_writes_match_a_model;
pub use reads::{
    cursors_go_both_ways, cursors_keep_to_their_range, cursors_pass_keys, cursors_see_one_moment,
    cursors_seek, fixed_views_never_move, get_many_holds_what_it_read, get_many_keeps_positions,
    keys_are_ordered_bytes, queues_lose_no_key, reads_never_go_back, spaces_are_apart,
};
pub use upkeep::{
    check_finds_nothing_wrong, compaction_keeps_the_data, compaction_stops_on_request,
    dropped_ranges_are_gone, dropped_ranges_stay_in_older_views, ingested_keys_are_there,
    ranges_are_estimated, split_points_cut_a_range, statistics_have_names,
};
pub use writes::{
    clear_range_clears_what_it_should, commits_are_atomic, deltas_lead_to_the_value,
    empty_keys_and_values_are_kept, large_values_are_kept, later_writes_win, undone_when_dropped,
    write_sizes_add_up,
};

/// Calls a macro with the names of all promises.
#[macro_export]
macro_rules! for_each_promise {
    ($callback:ident) => {
        $callback! {
            keys_are_ordered_bytes spaces_are_apart get_many_keeps_positions
            get_many_holds_what_it_read
            cursors_pass_keys reads_never_go_back queues_lose_no_key
            cursors_go_both_ways cursors_keep_to_their_range cursors_seek cursors_see_one_moment
            fixed_views_never_move
            commits_are_atomic undone_when_dropped later_writes_win clear_range_clears_what_it_should
            empty_keys_and_values_are_kept large_values_are_kept write_sizes_add_up
            deltas_lead_to_the_value
            guards_exclude guards_release guards_show_the_newest guards_in_opposite_orders_end
            guards_of_one_key_starve_nobody guards_without_timeout_conflict_at_once
            guards_since_a_view_conflict_on_changed_keys guarded_keys_stay_in_the_view
            a_visit_may_read_more counters_commute
            stamps_ascend sync_returns on_sync_calls_back commits_survive_reopening close_ends_it
            ingested_keys_are_there dropped_ranges_are_gone
            dropped_ranges_stay_in_older_views compaction_keeps_the_data compaction_stops_on_request ranges_are_estimated split_points_cut_a_range
            statistics_have_names check_finds_nothing_wrong
            random_writes_match_a_model
        }
    };
}

/// Opens the engine under test on an existing folder, empty or filled by the same engine before.
pub type Open<'o> = &'o (dyn Fn(&Path) -> Arc<dyn Store> + Sync);

/// A folder for one test; dropping it removes it with its contents.
pub struct Folder {
    path: PathBuf,
}

impl Default for Folder {
    fn default() -> Self {
        Folder::new()
    }
}

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("marula-contract-{}-{count}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Folder { path }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A store opened for one promise.
struct Fixture {
    store: Arc<dyn Store>,
    _folder: Folder,
}

impl Fixture {
    fn new(open: Open) -> Self {
        let folder = Folder::new();
        Fixture { store: open(folder.path()), _folder: folder }
    }

    /// A view of this moment.
    fn view(&self) -> Arc<dyn View> {
        self.store.clone().view().expect("a view opens")
    }
}

impl std::ops::Deref for Fixture {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        &*self.store
    }
}

/// Keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A repeatable random number generator (xorshift64*).
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 33) % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn everything() -> KeyRange {
    KeyRange { start: Vec::new(), end: vec![0xFF; 32] }
}

fn range(start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> KeyRange {
    KeyRange { start: start.as_ref().to_vec(), end: end.as_ref().to_vec() }
}

/// Commits the writes of `fill`.
fn commit(store: &dyn Store, fill: impl FnOnce(&mut dyn Txn)) -> Stamp {
    let mut txn = store.begin();
    fill(&mut *txn);
    txn.commit().expect("a commit succeeds")
}

/// Commits records with these keys; the value of each record is its key.
fn put_records<K: AsRef<[u8]>>(store: &dyn Store, keys: impl IntoIterator<Item = K>) {
    commit(store, |txn| {
        for key in keys {
            txn.put(Space::Records, key.as_ref(), key.as_ref());
        }
    });
}

fn get(read: &dyn View, space: Space, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let mut found = None;
    let is_there = read
        .get(space, key.as_ref(), &mut |value| found = Some(value.to_vec()))
        .expect("a read succeeds");
    assert_eq!(is_there, found.is_some(), "get answers whether it showed a value");
    found
}

fn counter(read: &dyn View, key: &str) -> i64 {
    let value = get(read, Space::Catalog, key);
    value.map_or(0, |value| i64::from_le_bytes(value.try_into().expect("a counter has 8 bytes")))
}

fn scan(read: &dyn View, space: Space, range: &KeyRange, direction: Direction) -> Entries {
    let mut cursor = read.cursor(space, range, direction).expect("a cursor opens");
    let mut entries = Entries::new();
    while cursor.advance().expect("a cursor advances") {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    assert!(!cursor.advance().expect("a cursor advances"), "a cursor at its end stays there");
    entries
}

/// The keys of a space as text.
fn keys(read: &dyn View, space: Space) -> Vec<String> {
    scan(read, space, &everything(), Direction::Forward)
        .into_iter()
        .map(|(key, _)| String::from_utf8_lossy(&key).into_owned())
        .collect()
}

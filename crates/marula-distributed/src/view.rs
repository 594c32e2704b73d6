//! Views: of one version, of the newest state, and of a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use marula_storage::{
    Cursor, Direction, Error, KeyRange, Looked, Result, Space, Stamp, Values, View,
};
use parking_lot::Mutex;

use crate::cursor::RemoteCursor;
use crate::kv::{self, Version};
use crate::shared::{Shared, shown_at, store_error};

/// The view of one version. The store keeps it for some seconds; reads fail with
/// [`Error::TooOld`] after that.
pub(crate) struct FixedView {
    pub(crate) shared: Arc<Shared>,
    pub(crate) at: Version,
}

/// Guarded keys that are read together, at most.
const TOGETHER_MAX: usize = 64;

/// The view of a transaction: the version at which it has claimed its first keys, or the newest
/// state before that.
///
/// Keys are guarded to be read. The first one that is requested brings the others along, in one
/// round trip.
pub(crate) struct TxnView<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) at: Option<Version>,
    /// Guarded keys that have not been read.
    unread: Mutex<Vec<(Space, Vec<u8>)>>,
    read: Mutex<HashMap<(Space, Vec<u8>), Option<Arc<[u8]>>>>,
}

impl<'s> TxnView<'s> {
    pub(crate) fn new(shared: &'s Shared) -> Self {
        TxnView { shared, at: None, unread: Mutex::default(), read: Mutex::default() }
    }

    /// Notes that keys are guarded.
    pub(crate) fn expect(&self, keys: &[(Space, &[u8])]) {
        let mut unread = self.unread.lock();
        for (space, key) in keys {
            if unread.len() < TOGETHER_MAX {
                unread.push((*space, key.to_vec()));
            }
        }
    }

    /// Reads the guarded keys of `space`, if `key` is one of them. Values in parts are left out.
    fn read_guarded(&self, at: Version, space: Space, key: &[u8]) -> kv::Result<()> {
        let mut unread = self.unread.lock();
        if !unread.iter().any(|(of, guarded)| *of == space && guarded == key) {
            return Ok(());
        }
        let wanted: Vec<(Space, Vec<u8>)> = unread.extract_if(.., |(of, _)| *of == space).collect();
        drop(unread);
        let keys: Vec<&[u8]> = wanted.iter().map(|(_, key)| key.as_slice()).collect();
        let found = self.shared.get_many_at(at, space, &keys)?;
        let mut read = self.read.lock();
        for (place, key) in wanted.into_iter().enumerate() {
            match found.get(place) {
                Looked::Found(value) => drop(read.insert(key, Some(value.into()))),
                Looked::Absent => drop(read.insert(key, None)),
                Looked::Unread => {}
            }
        }
        Ok(())
    }
}

impl View for FixedView {
    fn moment(&self) -> Stamp {
        shown_at(self.at)
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn is_far(&self) -> bool {
        true
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.shared, Some(self.at), space, key, visit)
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        get_many(&self.shared, Some(self.at), space, keys)
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        cursor(&self.shared, Some(self.at), (space, range, direction))
    }
}

impl View for TxnView<'_> {
    fn moment(&self) -> Stamp {
        self.at.map_or_else(|| self.shared.moment(), shown_at)
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn is_far(&self) -> bool {
        true
    }

    fn still_moment(&self) -> Option<Stamp> {
        self.at.map(shown_at)
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if let Some(at) = self.at {
            self.read_guarded(at, space, key).map_err(store_error).map_err(again)?;
            // Visited without the lock: the visit may read this view too.
            let known = self.read.lock().get(&(space, key.to_vec())).cloned();
            if let Some(known) = known {
                known.iter().for_each(|value| visit(value));
                return Ok(known.is_some());
            }
        }
        get(self.shared, self.at, space, key, visit).map_err(again)
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        get_many(self.shared, self.at, space, keys).map_err(again)
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        cursor(self.shared, self.at, (space, range, direction))
    }
}

/// A transaction that has taken longer than the store keeps its version is begun again, as one that
/// meets another.
fn again(error: Error) -> Error {
    match error {
        Error::TooOld => Error::Conflict,
        error => error,
    }
}

/// Shows a value, at a version or of the newest state.
pub(crate) fn get(
    shared: &Shared,
    at: Option<Version>,
    space: Space,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let value = match at {
        Some(at) => shared.get_at(at, space, key).map_err(store_error)?,
        None => shared.get_newest(space, key)?,
    };
    if let Some(value) = &value {
        visit(value.as_slice());
    }
    Ok(value.is_some())
}

/// Reads several values, at a version or of the newest state.
pub(crate) fn get_many<'r>(
    shared: &'r Shared,
    at: Option<Version>,
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let found = match at {
        Some(at) => shared.get_many_at(at, space, keys).map_err(store_error)?,
        None => shared.read(|at| shared.get_many_at(at, space, keys))?,
    };
    Ok(Box::new(found))
}

/// Opens a cursor, at a version or of the newest state.
pub(crate) fn cursor<'r>(
    shared: &'r Shared,
    at: Option<Version>,
    walk: (Space, &KeyRange, Direction),
) -> Result<Box<dyn Cursor + 'r>> {
    let (at, moving) = match at {
        Some(at) => (at, None),
        None => {
            let at = shared.reading_moment()?;
            (at.version, Some(at.epoch))
        }
    };
    Ok(Box::new(RemoteCursor::new(shared, at, moving, walk)))
}

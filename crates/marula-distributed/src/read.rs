//! Reading keys at a version: values in parts are joined, long keys are compared.

use marula_storage::{Looked, Space, Values};

use crate::kv::{KvError, Result, Version};
use crate::layout::{self, PartsRef, Stored};
use crate::pin;
use crate::shared::{Shared, store_error};

/// Bytes of values in parts that a look-up of several keys joins; one is joined whatever its size.
const JOINED_BYTES_MAX: usize = 8 << 20;

/// A value: the tail of the bytes that came from the store.
pub(crate) struct Value {
    bytes: Vec<u8>,
    from: usize,
}

impl Value {
    /// The value.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn tail(bytes: Vec<u8>, length: usize) -> Self {
        let from = bytes.len() - length;
        Value { bytes, from }
    }
}

/// A stored value, as far as one read shows it.
pub(crate) enum Found {
    /// The rest of a long key, empty for others, and the value.
    Whole(Vec<u8>, Value),
    /// It lies in parts.
    Parts(PartsRef),
}

/// Looks at a stored value.
pub(crate) fn open(stored: Vec<u8>) -> Result<Found> {
    Ok(match layout::decode(&stored)? {
        Stored::Here(value) => {
            let length = value.len();
            Found::Whole(Vec::new(), Value::tail(stored, length))
        }
        Stored::Long(bytes) => {
            let (rest, value) = layout::split_long(bytes)?;
            let (rest, length) = (rest.to_vec(), value.len());
            Found::Whole(rest, Value::tail(stored, length))
        }
        Stored::Parts(parts) | Stored::LongParts(parts) => Found::Parts(parts),
    })
}

impl Shared {
    /// The value of a key at a version.
    pub(crate) fn get_at(&self, at: Version, space: Space, key: &[u8]) -> Result<Option<Value>> {
        let stored = self.kv_get(at, &self.layout.key(space, key))?;
        self.value_of(at, space, key, stored)
    }

    /// The value of a key in the newest state, or at the moment of this thread's operation.
    pub(crate) fn get_newest(
        &self,
        space: Space,
        key: &[u8],
    ) -> marula_storage::Result<Option<Value>> {
        let place = self.layout.key(space, key);
        if let Some((at, stored)) = self.first_read(&place).map_err(store_error)? {
            match self.value_of(at, space, key, stored) {
                Err(KvError::TooOld) => pin::forget_moment(self),
                outcome => return outcome.map_err(store_error),
            }
        }
        self.read(|at| self.get_at(at, space, key))
    }

    fn value_of(
        &self,
        at: Version,
        space: Space,
        key: &[u8],
        stored: Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        let Some(stored) = stored else { return Ok(None) };
        match open(stored)? {
            Found::Whole(rest, value) => Ok(is_of(key, &rest).then_some(value)),
            Found::Parts(parts) => self.join(at, space, key, parts).map(Some),
        }
    }

    /// The values of several keys at a version.
    pub(crate) fn get_many_at(
        &self,
        at: Version,
        space: Space,
        keys: &[&[u8]],
    ) -> Result<RemoteValues> {
        let places: Vec<Vec<u8>> = keys.iter().map(|key| self.layout.key(space, key)).collect();
        let mut values = Vec::with_capacity(keys.len());
        let mut in_parts = Vec::new();
        let mut joined_bytes = 0;
        for (number, stored) in self.kv_get_many(at, &places)?.into_iter().enumerate() {
            values.push(match stored.map(open).transpose()? {
                None => RemoteValue::Absent,
                Some(Found::Whole(rest, value)) if is_of(keys[number], &rest) => {
                    RemoteValue::Found(value)
                }
                Some(Found::Whole(..)) => RemoteValue::Absent,
                Some(Found::Parts(parts)) => {
                    if joined_bytes == 0 || joined_bytes + parts.length <= JOINED_BYTES_MAX {
                        joined_bytes += parts.length;
                        in_parts.push((number, parts));
                    }
                    RemoteValue::Unread
                }
            });
        }
        let wanted: Vec<Vec<u8>> = in_parts
            .iter()
            .flat_map(|&(number, parts)| self.places_of(space, keys[number], parts))
            .collect();
        let mut pieces = self.kv_get_many(at, &wanted)?.into_iter();
        for (number, parts) in in_parts {
            self.note_in_parts(space, keys[number], parts.id);
            let pieces = pieces.by_ref().take(parts.count());
            values[number] = RemoteValue::Found(joined(keys[number], parts, pieces)?);
        }
        Ok(RemoteValues(values))
    }

    /// Joins the parts of a key's value, all of which are read at once.
    pub(crate) fn join(
        &self,
        at: Version,
        space: Space,
        key: &[u8],
        parts: PartsRef,
    ) -> Result<Value> {
        self.note_in_parts(space, key, parts.id);
        let places: Vec<Vec<u8>> = self.places_of(space, key, parts).collect();
        joined(key, parts, self.kv_get_many(at, &places)?)
    }

    fn places_of<'s>(
        &'s self,
        space: Space,
        key: &'s [u8],
        parts: PartsRef,
    ) -> impl Iterator<Item = Vec<u8>> + 's {
        (0..parts.count()).map(move |number| self.layout.part(space, key, parts.id, number))
    }

    /// Joins the parts of a value of a long key of which only the place is known; answers the rest
    /// of the key too.
    pub(crate) fn join_long(
        &self,
        at: Version,
        places: &[Vec<u8>],
        parts: PartsRef,
    ) -> Result<(Vec<u8>, Value)> {
        let bytes = concatenated(parts, self.kv_get_many(at, places)?)?;
        let (rest, value) = layout::split_long(&bytes)?;
        let (rest, length) = (rest.to_vec(), value.len());
        Ok((rest, Value::tail(bytes, length)))
    }
}

/// Whether a stored key with this rest is `key`, and not another of the same hash.
fn is_of(key: &[u8], rest: &[u8]) -> bool {
    !layout::is_long(key) || key[layout::SHORT_KEY_BYTES_MAX..] == *rest
}

fn concatenated(
    parts: PartsRef,
    pieces: impl IntoIterator<Item = Option<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(parts.length);
    for piece in pieces {
        let piece = piece.ok_or_else(|| KvError::Corrupt("a part of a value is missing".into()))?;
        bytes.extend_from_slice(&piece);
    }
    if bytes.len() != parts.length {
        return Err(KvError::Corrupt("the parts of a value have another length".into()));
    }
    Ok(bytes)
}

fn joined(
    key: &[u8],
    parts: PartsRef,
    pieces: impl IntoIterator<Item = Option<Vec<u8>>>,
) -> Result<Value> {
    let bytes = concatenated(parts, pieces)?;
    if !layout::is_long(key) {
        return Ok(Value { bytes, from: 0 });
    }
    let (rest, value) = layout::split_long(&bytes)?;
    if !is_of(key, rest) {
        return Err(KvError::Corrupt("two long keys have one hash".into()));
    }
    let length = value.len();
    Ok(Value::tail(bytes, length))
}

/// The values of several keys.
pub(crate) struct RemoteValues(Vec<RemoteValue>);

enum RemoteValue {
    Found(Value),
    Absent,
    Unread,
}

impl Values for RemoteValues {
    fn get(&self, place: usize) -> Looked<'_> {
        match &self.0[place] {
            RemoteValue::Found(value) => Looked::Found(value.as_slice()),
            RemoteValue::Absent => Looked::Absent,
            RemoteValue::Unread => Looked::Unread,
        }
    }
}

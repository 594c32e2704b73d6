//! Logical sessions: the known ones, and the time of their last use.
//!
//! A driver creates an id and sends it with every command; the server records its use, ends its
//! cursors and transactions at the client's request, and removes it after thirty minutes. The
//! results of retryable writes are stored elsewhere (see `marula_db::session`).
//!
//! Source: driver specification "Sessions"; manual "Server Sessions".

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use marula_bson::{BStr, Binary, ByteSlice, Doc, DocWriter, Type, Value};
use marula_error::{Result, errors};
use parking_lot::Mutex;

use crate::fields::{self, Field, Types};

/// The idle timeout of a session in minutes: `logicalSessionTimeoutMinutes` of `hello`.
pub(crate) const TIMEOUT_MINUTES: i32 = 30;
/// The maximum number of sessions: the default of mongod's parameter `maxSessions`.
const SESSIONS_MAX: usize = 1_000_000;
const SHARDS: usize = 16;
const UUID_BYTES: usize = 16;
const UID_BYTES: usize = 32;

errors! {
    too_many() = TooManyLogicalSessions, "Unable to add session into the cache because the number of active sessions is too high";
    /// A binary value has not the length or the subtype of a UUID.
    pub(crate) bad_uuid() = InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype";
    /// A binary value of another subtype than that of UUIDs.
    pub(crate) wrong_binary(place: &str, field: &BStr, kind: &str) = TypeMismatch, "BSON field '{place}.{field}' is the wrong binData type '{kind}', expected type 'UUID'";
    not_general(place: &str, kind: &str) = TypeMismatch, "BSON field '{place}.uid' is the wrong binData type '{kind}', expected type 'general'";
    bad_uid(length: usize) = 12, "Unsupported SHA256Block hash length: {length}";
}

/// A session's id: a UUID, and the digest of its user if the client sent one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Lsid {
    bytes: [u8; UUID_BYTES + UID_BYTES],
    has_uid: bool,
}

const FIELDS: &[Field] = &[
    Field::required("id", Types::One(Type::Binary)),
    Field::optional("uid", Types::One(Type::Binary)),
    Field::optional("txnNumber", Types::One(Type::Int64)),
    Field::optional("txnUUID", Types::One(Type::Binary)),
];

/// Checks that a binary value is a user's digest.
///
/// Errors: `not_general`, `bad_uid`.
pub(crate) fn check_uid<'a>(place: &str, uid: Binary<'a>) -> Result<&'a [u8]> {
    match uid {
        Binary { subtype: 0, bytes } if bytes.len() == UID_BYTES => Ok(bytes),
        Binary { subtype: 0, bytes } => Err(bad_uid(bytes.len())),
        Binary { subtype, .. } => Err(not_general(place, subtype_name(subtype))),
    }
}

impl Lsid {
    /// Returns the id with this UUID and no user.
    pub fn of_uuid(uuid: [u8; UUID_BYTES]) -> Self {
        let mut bytes = [0; UUID_BYTES + UID_BYTES];
        bytes[..UUID_BYTES].copy_from_slice(&uuid);
        Lsid { bytes, has_uid: false }
    }

    /// Parses `{ id: <UUID>, uid: <digest> }`; `place` is its name in messages.
    pub fn parse(place: &str, doc: Doc<'_>) -> Result<Self> {
        const UUID_SUBTYPE: u8 = 4;
        // A document of 30 bytes, whose only field is an id of 16 bytes: what drivers send.
        const FRONT: &[u8] = b"\x1e\0\0\0\x05id\0\x10\0\0\0\x04";
        if let Some(uuid) = doc.as_bytes().strip_prefix(FRONT).and_then(<[u8]>::first_chunk) {
            return Ok(Lsid::of_uuid(*uuid));
        }
        let mut lsid = Lsid::of_uuid([0; UUID_BYTES]);
        for element in doc {
            match (element.name.as_bytes(), element.value.get()) {
                (b"id", Value::Binary(Binary { subtype, bytes })) => {
                    if subtype != UUID_SUBTYPE {
                        return Err(wrong_binary(place, element.name, subtype_name(subtype)));
                    }
                    let uuid: [u8; UUID_BYTES] = bytes.try_into().map_err(|_| bad_uuid())?;
                    lsid.bytes[..UUID_BYTES].copy_from_slice(&uuid);
                }
                (b"uid", Value::Binary(binary)) => {
                    let uid = check_uid(place, binary)?;
                    lsid.bytes[UUID_BYTES..].copy_from_slice(uid);
                    lsid.has_uid = true;
                }
                _ => {}
            }
        }
        fields::check_doc(place, FIELDS, doc)?;
        Ok(lsid)
    }

    /// Returns the id of this user's session with the same UUID.
    pub fn of_user(mut self, digest: [u8; UID_BYTES]) -> Self {
        self.bytes[UUID_BYTES..].copy_from_slice(&digest);
        self.has_uid = true;
        self
    }

    /// Returns the id that is stored under `key`.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let (uuid, digest) = key.split_first_chunk()?;
        let lsid = Lsid::of_uuid(*uuid);
        match digest {
            [] => Some(lsid),
            digest => digest.try_into().ok().map(|digest| lsid.of_user(digest)),
        }
    }

    /// Returns the UUID.
    pub fn uuid(&self) -> &[u8; UUID_BYTES] {
        self.bytes.first_chunk().expect("the UUID is the front of the id")
    }

    /// Returns the digest of the user, if there is one.
    pub fn uid(&self) -> Option<&[u8; UID_BYTES]> {
        self.bytes.last_chunk().filter(|_| self.has_uid)
    }

    /// Returns the key in the store: UUID, and digest if there is one.
    pub fn key(&self) -> &[u8] {
        if self.has_uid { &self.bytes } else { &self.bytes[..UUID_BYTES] }
    }

    /// Returns the id as error messages print it.
    pub fn shown(&self) -> String {
        marula_db::session::text(self.key())
    }

    /// Writes `{ id, uid }`; without a user, the digest is that of an empty name.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        out.append("id", Binary { subtype: 4, bytes: self.uuid() });
        out.append(
            "uid",
            Binary { subtype: 0, bytes: self.uid().unwrap_or(&marula_db::session::NOBODY) },
        );
    }
}

pub(crate) fn subtype_name(subtype: u8) -> &'static str {
    match subtype {
        0 => "general",
        1 => "function",
        2 => "binary(deprecated)",
        3 => "UUID(deprecated)",
        4 => "UUID",
        5 => "MD5",
        6 => "encrypt",
        7 => "column",
        128.. => "Custom",
        _ => "invalid",
    }
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub lsid: Lsid,
    last_use_ms: AtomicI64,
    /// Set when it is removed from the known sessions: a connection that has used it may still
    /// hold it.
    has_ended: AtomicBool,
}

impl Session {
    /// Records a use of the session.
    pub fn touch(&self, now_ms: i64) {
        self.last_use_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns the time of its last use, in milliseconds since 1970.
    pub fn last_use_ms(&self) -> i64 {
        self.last_use_ms.load(Ordering::Relaxed)
    }

    /// Returns whether it has ended: its next use begins it again.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// The known sessions.
pub struct Sessions {
    shards: [Mutex<HashMap<Lsid, Arc<Session>>>; SHARDS],
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { shards: std::array::from_fn(|_| Mutex::new(HashMap::new())) }
    }
}

impl Sessions {
    fn shard(&self, lsid: &Lsid) -> &Mutex<HashMap<Lsid, Arc<Session>>> {
        // A UUID's last byte is random.
        &self.shards[usize::from(lsid.uuid()[UUID_BYTES - 1]) % SHARDS]
    }

    /// Returns the session with this id and records its use; creates it if it was not known.
    ///
    /// Errors: `too_many`.
    pub fn touch(&self, lsid: &Lsid, now_ms: i64) -> Result<Arc<Session>> {
        let mut shard = self.shard(lsid).lock();
        if let Some(session) = shard.get(lsid) {
            session.touch(now_ms);
            return Ok(session.clone());
        }
        if shard.len() >= SESSIONS_MAX / SHARDS {
            return Err(too_many());
        }
        let session = Arc::new(Session {
            lsid: *lsid,
            last_use_ms: AtomicI64::new(now_ms),
            has_ended: AtomicBool::new(false),
        });
        shard.insert(*lsid, session.clone());
        Ok(session)
    }

    /// Returns whether a session with this id is known.
    pub fn knows(&self, lsid: &Lsid) -> bool {
        self.shard(lsid).lock().contains_key(lsid)
    }

    /// Removes a session.
    pub fn end(&self, lsid: &Lsid) {
        if let Some(session) = self.shard(lsid).lock().remove(lsid) {
            session.has_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the sessions that were last used before `before_ms`; returns them.
    pub fn expire(&self, before_ms: i64) -> Vec<Lsid> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|lsid, session| {
                let is_live = session.last_use_ms() >= before_ms;
                if !is_live {
                    session.has_ended.store(true, Ordering::Relaxed);
                    expired.push(*lsid);
                }
                is_live
            });
        }
        expired
    }

    /// Returns the number of sessions.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns every session.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    fn check(doc: &marula_bson::DocBuf, expected: Result<usize, &str>) {
        let outcome =
            Lsid::parse("OperationSessionInfo.lsid", doc.as_doc()).map(|lsid| lsid.key().len());
        assert_eq!(
            outcome.as_ref().map_err(|error| error.message()),
            expected.as_ref().map_err(|text| *text)
        );
    }

    #[test]
    fn ids_are_checked() {
        let binary = |subtype, bytes| Binary { subtype, bytes };
        check(&doc! { "id": binary(4, &[1; 16]) }, Ok(16));
        check(&doc! { "id": binary(4, &[1; 16]), "uid": binary(0, &[2; 32]) }, Ok(48));
        check(
            &doc! { "id": binary(4, &[1; 2]) },
            Err("uuid must be a 16-byte binary field with UUID (4) subtype"),
        );
        check(
            &doc! { "id": binary(3, &[1; 16]) },
            Err(
                "BSON field 'OperationSessionInfo.lsid.id' is the wrong binData type 'UUID(deprecated)', expected type 'UUID'",
            ),
        );
        check(
            &doc! {},
            Err("BSON field 'OperationSessionInfo.lsid.id' is missing but a required field"),
        );
        check(
            &doc! { "id": 5 },
            Err(
                "BSON field 'OperationSessionInfo.lsid.id' is the wrong type 'int', expected type 'binData'",
            ),
        );
        check(
            &doc! { "id": binary(4, &[1; 16]), "x": 1 },
            Err("BSON field 'OperationSessionInfo.lsid.x' is an unknown field."),
        );
        check(
            &doc! { "id": binary(4, &[1; 16]), "uid": binary(0, &[2; 3]) },
            Err("Unsupported SHA256Block hash length: 3"),
        );
    }

    #[test]
    fn idle_sessions_are_forgotten() {
        let sessions = Sessions::default();
        let (old, new) = (Lsid::of_uuid([1; 16]), Lsid::of_uuid([2; 16]));
        sessions.touch(&old, 1_000).unwrap();
        sessions.touch(&new, 1_000).unwrap();
        sessions.touch(&new, 9_000).unwrap();
        assert_eq!(sessions.expire(5_000), [old]);
        assert_eq!(sessions.count(), 1);
        sessions.end(&new);
        assert_eq!(sessions.count(), 0);
    }
}

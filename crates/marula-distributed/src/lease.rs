//! One process serves a store: the *owner*, which holds a lease.
//!
//! Its name is in the owner's key, which every commit of it claims to have read, so that a commit
//! fails once another process has taken the store over, however long the first one was stopped.
//! While it lives it counts up a *heartbeat*. Another process that finds an owner watches the
//! heartbeat: if it goes on, the store is in use; if it stands still for [`LeaseOptions::expiry`],
//! the store is taken over. Clocks of different machines are never compared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_storage::Direction;
use rand::RngExt;

use crate::heartbeat::{self, Heartbeat};
use crate::kv::{BlockLimit, Commit, Conflict, KvError, Mutation, Result, Version};
use crate::layout;
use crate::nodes;
use crate::shared::Shared;
use crate::txn::parse_note;

/// How an owner shows that it lives.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The name of the owner, for the message that others get: host and process.
    pub name: String,
    /// Host and port at which clients reach it.
    pub host: String,
    /// The release of its software.
    pub version: String,
    /// The interval of the heartbeat.
    pub beat: Duration,
    /// The time that it stands still before the store is taken over.
    pub expiry: Duration,
}

impl LeaseOptions {
    /// A beat a second; a store is taken over after ten seconds without one.
    pub fn new(name: String) -> Self {
        LeaseOptions {
            name,
            host: String::new(),
            version: String::new(),
            beat: Duration::from_secs(1),
            expiry: Duration::from_secs(10),
        }
    }
}

/// The lease of this process. The store is given up when it is dropped.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    owner: Vec<u8>,
    heartbeat: Heartbeat,
}

impl Lease {
    /// Takes the store over, or finds out that it is in use.
    ///
    /// Errors: [`KvError::Unavailable`] with who has it.
    pub(crate) fn take(shared: &Arc<Shared>, options: &LeaseOptions) -> Result<Lease> {
        let lease = Lease::hold(shared, options)?;
        shared.fence_in(shared.layout.owner(), lease.owner.clone());
        clean_up(shared)?;
        Ok(lease)
    }

    /// Takes the store over, and holds it.
    fn hold(shared: &Arc<Shared>, options: &LeaseOptions) -> Result<Lease> {
        let id: u64 = rand::rng().random();
        let owner = [&id.to_be_bytes()[..], options.name.as_bytes()].concat();
        let mut watch = Watch::default();
        loop {
            let (at, found, beat) = read(shared)?;
            if found.as_ref() == Some(&owner) {
                break;
            }
            if let Some(found) = found
                && !watch.has_ended(shared, &found, beat.as_deref(), options)?
            {
                continue;
            }
            if let Some(name) = nodes::find_living(shared, options)? {
                return Err(in_use(&name));
            }
            let commit = Commit {
                read_version: Some(at),
                reads: vec![
                    Conflict::Key(shared.layout.owner()),
                    Conflict::Key(shared.layout.heartbeat()),
                    Conflict::Key(shared.layout.registry()),
                ],
                writes: Vec::new(),
                mutations: vec![
                    Mutation::Set(shared.layout.owner(), owner.clone()),
                    Mutation::Set(shared.layout.heartbeat(), heartbeat::value(0)),
                ],
            };
            match shared.kv_commit(&commit) {
                // Whatever came of it shows when the owner is read again.
                Ok(_) | Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => {}
                Err(error) => return Err(error),
            }
        }
        let own = owner.clone();
        let run = move |shared: &Shared| beat(shared, &own);
        let heartbeat = Heartbeat::start("lease", options.beat, shared, run);
        Ok(Lease { shared: shared.clone(), owner, heartbeat })
    }

    /// Gives the store up, so that another process need not wait. Idempotent.
    pub(crate) fn give_up(&self) {
        if !self.heartbeat.stop() {
            return;
        }
        // Another process waits a little longer where this fails.
        if let Ok((at, Some(found), _)) = read(&self.shared)
            && found == self.owner
        {
            let layout = &self.shared.layout;
            let _ = self.shared.kv_commit(&Commit {
                read_version: Some(at),
                reads: vec![Conflict::Key(layout.owner())],
                writes: Vec::new(),
                mutations: vec![
                    Mutation::Clear(layout.owner()),
                    Mutation::Clear(layout.heartbeat()),
                ],
            });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The name in an owner's key, after its number.
fn name_of(owner: &[u8]) -> String {
    String::from_utf8_lossy(owner.get(8..).unwrap_or_default()).into_owned()
}

fn in_use(name: &str) -> KvError {
    KvError::Unavailable(format!(
        "the store is in use by another Marula process ({name}): only one may serve it at a time"
    ))
}

/// The name of the owner, and its heartbeat.
pub(crate) fn owner(shared: &Shared) -> Result<Option<(String, Vec<u8>)>> {
    let (_, owner, beat) = read(shared)?;
    Ok(owner.map(|owner| (name_of(&owner), beat.unwrap_or_default())))
}

/// The newest version, the owner and the heartbeat.
fn read(shared: &Shared) -> Result<(Version, Option<Vec<u8>>, Option<Vec<u8>>)> {
    let keys = [shared.layout.owner(), shared.layout.heartbeat()];
    let (at, values) = shared.at_newest(|at| Ok((at, shared.kv_get_many(at, &keys)?)))?;
    let mut values = values.into_iter();
    Ok((at, values.next().flatten(), values.next().flatten()))
}

/// One beat; returns whether the store is still this owner's.
fn beat(shared: &Shared, owner: &[u8]) -> Result<bool> {
    let (at, found, beat) = read(shared)?;
    if found.as_deref() != Some(owner) {
        return Ok(false);
    }
    let layout = &shared.layout;
    heartbeat::count_up(shared, at, layout.owner(), layout.heartbeat(), beat)?;
    Ok(true)
}

/// Sees to it that the store has no owner.
///
/// Errors: [`KvError::Unavailable`] with the name of the one that it has.
pub(crate) fn free(shared: &Shared, options: &LeaseOptions) -> Result<()> {
    let mut watch = Watch::default();
    while let (at, Some(found), beat) = read(shared)? {
        if !watch.has_ended(shared, &found, beat.as_deref(), options)? {
            continue;
        }
        let (owner, heartbeat) = (shared.layout.owner(), shared.layout.heartbeat());
        let outcome = shared.kv_commit(&Commit {
            read_version: Some(at),
            reads: vec![Conflict::Key(owner.clone()), Conflict::Key(heartbeat.clone())],
            writes: Vec::new(),
            mutations: vec![Mutation::Clear(owner), Mutation::Clear(heartbeat)],
        });
        match outcome {
            // Whatever came of it shows when the owner is read again.
            Ok(_) | Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The owner as a process that waits has seen it: its key, its heartbeat, and since when.
#[derive(Default)]
struct Watch(Option<(Vec<u8>, Option<Vec<u8>>, Instant)>);

impl Watch {
    /// Returns whether the owner's heartbeat has stood still for long enough; waits a little if
    /// not.
    ///
    /// Errors: [`KvError::Unavailable`] with its name if it lives.
    fn has_ended(
        &mut self,
        shared: &Shared,
        owner: &[u8],
        beat: Option<&[u8]>,
        options: &LeaseOptions,
    ) -> Result<bool> {
        match &self.0 {
            Some((known, last, since)) if known == owner => {
                if last.as_deref() != beat {
                    return Err(in_use(&name_of(owner)));
                }
                if since.elapsed() >= options.expiry {
                    return Ok(true);
                }
            }
            _ => {
                tracing::info!(
                    owner = name_of(owner),
                    "the store has an owner; waiting to see whether it lives"
                );
                self.0 = Some((owner.to_vec(), beat.map(<[u8]>::to_vec), Instant::now()));
            }
        }
        shared.kv.watch(&shared.layout.heartbeat(), beat, options.beat.min(options.expiry))?;
        Ok(false)
    }
}

/// Removes what processes that died have left: slots, and values that were being staged. Nobody
/// else uses the store.
pub(crate) fn clean_up(shared: &Shared) -> Result<()> {
    let layout = &shared.layout;
    let limit = BlockLimit { entries_max: 100, bytes_max: 1 << 20 };
    loop {
        let (at, notes) = shared.at_newest(|at| {
            Ok((at, shared.kv_range(at, &layout.all_staged(), Direction::Forward, limit)?))
        })?;
        let mut mutations = vec![Mutation::ClearRange(layout.slots())];
        for (key, note) in &notes.entries {
            let wrong = || KvError::Corrupt("a note of a staged value has no known form".into());
            let (place, parts) = parse_note(note).ok_or_else(wrong)?;
            let id = key.last_chunk::<8>().copied().map(u64::from_be_bytes).ok_or_else(wrong)?;
            if shared.kv_get(at, place)?.is_none_or(|stored| !layout::names_parts(&stored, id)) {
                let end = [parts, &[0xFF; 5][..]].concat();
                let range = marula_storage::KeyRange { start: parts.to_vec(), end };
                mutations.push(Mutation::ClearRange(range));
            }
            mutations.push(Mutation::Clear(key.clone()));
        }
        let commit = Commit {
            read_version: Some(at),
            reads: Vec::from_iter(shared.fence_at(at)?),
            writes: Vec::new(),
            mutations,
        };
        match shared.kv_commit(&commit) {
            Ok(_) if !notes.has_more => return Ok(()),
            Ok(_) | Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => {}
            Err(error) => return Err(error),
        }
    }
}

//! Commits: what a transaction of etcd compares for them, and which of them share one.
//!
//! etcd has no additions. A counter is compared in the transaction that sets it, so that of two
//! transactions that add to one counter at the same time one fails. For that reason there is one
//! lane (see `gather`) for commits that add: those that arrive while one is in progress are made
//! together by the next transaction, as long as they have nothing else in common. Other commits
//! have several lanes.

use std::collections::{BTreeMap, HashMap, HashSet};

use marula_storage::{KeyRange, Stamp};
use serde_json::{Value, json};

use super::plan::Plan;
use super::{
    COMMIT_BYTES_MAX, Effect, Entry, Etcd, KNOWN_MAX, MUTATIONS_MAX, compare, counter_of,
    entries_of_responses, get_operation, revision_of,
};
use crate::kv::{Commit, Conflict, KvError, Result, Version};

/// Lanes of commits that add to no counter.
pub(super) const LANES: usize = 4;

/// The number of times that a transaction is tried again whose counters have changed.
const COUNTER_TRIES_MAX: usize = 50;

/// Commits that share a transaction, at most, and their bytes.
const SHARED_MAX: usize = 1_000;
const SHARED_BYTES_MAX: usize = COMMIT_BYTES_MAX / 8;

/// A commit that is to be made.
pub(super) struct Proposal {
    at: Version,
    guards: Vec<Vec<u8>>,
    /// The revisions of the guards at `at`.
    guesses: Vec<Guess>,
    plan: Plan,
    bytes: usize,
}

/// The revision that a key had at a version.
#[derive(Clone, Copy)]
struct Guess {
    revision: u64,
    /// Whether it was read so.
    is_sure: bool,
}

/// The effects of the commits of a transaction, for the choice of further ones.
#[derive(Default)]
struct Together<'p> {
    guards: HashMap<&'p [u8], u64>,
    changed: HashSet<&'p [u8]>,
    added: HashSet<&'p [u8]>,
    cleared: Vec<&'p KeyRange>,
    count: usize,
    changes: usize,
    bytes: usize,
}

impl<'p> Together<'p> {
    /// Takes a commit in. Returns whether it can be made together with those before: none changes
    /// what another one changes or has read, except that several may add to a counter.
    fn take(&mut self, proposal: &'p Proposal) -> bool {
        let plan = &proposal.plan;
        let changes = proposal.guards.len() + plan.len();
        let has_room = self.count < SHARED_MAX
            && self.changes + changes <= MUTATIONS_MAX
            && self.bytes + proposal.bytes <= SHARED_BYTES_MAX;
        let may_join = has_room && self.is_apart(proposal);
        if self.count > 0 && !may_join {
            return false;
        }
        self.count += 1;
        self.changes += changes;
        self.bytes += proposal.bytes;
        let guards = proposal.guards.iter().zip(&proposal.guesses);
        self.guards.extend(guards.map(|(key, guess)| (&key[..], guess.revision)));
        self.changed.extend(plan.changed().map(|key| &key[..]));
        self.added.extend(plan.added().map(|(key, _)| &key[..]));
        self.cleared.extend(plan.cleared());
        true
    }

    fn is_apart(&self, proposal: &Proposal) -> bool {
        let is_cleared =
            |key: &[u8]| self.cleared.iter().any(|range| *range.start <= *key && *key < *range.end);
        let is_free = |key: &[u8]| !self.changed.contains(key) && !is_cleared(key);
        let plan = &proposal.plan;
        // Ranges are cleared when something is dropped, which need not be fast.
        plan.cleared().is_empty()
            && proposal.guards.iter().zip(&proposal.guesses).all(|(key, guess)| {
                is_free(key)
                    && !self.added.contains(&key[..])
                    && self.guards.get(&key[..]).is_none_or(|known| *known == guess.revision)
            })
            && plan.changed().all(|key| {
                is_free(key)
                    && !self.added.contains(&key[..])
                    && !self.guards.contains_key(&key[..])
            })
            && plan.added().all(|(key, _)| is_free(key) && !self.guards.contains_key(&key[..]))
    }
}

/// The commits that can be made with the first of those that wait.
pub(super) fn choose(waiting: &mut dyn Iterator<Item = &Proposal>) -> Vec<bool> {
    let mut together = Together::default();
    waiting.map(|proposal| together.take(proposal)).collect()
}

impl Etcd {
    /// Makes a commit whose limits have been checked.
    pub(super) fn make(&self, commit: &Commit) -> Result<Stamp> {
        let plan = Plan::of(&commit.mutations);
        let guards: Vec<Vec<u8>> = commit
            .reads
            .iter()
            .map(|read| match read {
                Conflict::Key(key) => Ok(key.clone()),
                Conflict::Range(_) => {
                    Err(KvError::Unavailable("etcd cannot guard a range of keys".to_owned()))
                }
            })
            .collect::<Result<_>>()?;
        let at = commit.read_version.unwrap_or(0);
        let guesses = self.revisions_at(at, &guards)?;
        let proposal = Proposal { at, guards, guesses, plan, bytes: commit.bytes() };
        let lanes = match proposal.plan.added().next() {
            Some(_) => &self.additions,
            None => &self.commits,
        };
        lanes.pass(proposal, |proposals| self.transact(proposals))
    }

    /// Makes commits by one transaction of etcd: those that conflict with what others have written
    /// are left out of the next try.
    fn transact(&self, proposals: Vec<Proposal>) -> Vec<Result<Stamp>> {
        let mut outcomes = vec![Err(KvError::Conflict); proposals.len()];
        let mut left: Vec<(usize, Proposal)> = proposals.into_iter().enumerate().collect();
        for _ in 0..COUNTER_TRIES_MAX {
            if left.is_empty() {
                break;
            }
            match self.try_once(&left) {
                Ok(Tried::Made(revision)) => {
                    for (order, (number, proposal)) in left.iter().enumerate() {
                        self.note_own(&proposal.guards, &proposal.plan, revision);
                        let order = u16::try_from(order).expect("a thousand at most");
                        outcomes[*number] = Ok(Stamp { version: revision, order });
                    }
                    break;
                }
                Ok(Tried::Changed(found)) => left.retain_mut(|(number, proposal)| {
                    let judged = self.judge(proposal, &found);
                    let is_left = judged.is_ok();
                    if let Err(error) = judged {
                        outcomes[*number] = Err(error);
                    }
                    is_left
                }),
                // The servers may take less than they should, and each commit by itself.
                Err(KvError::TooLarge) if left.len() > 1 => {
                    for (number, proposal) in left {
                        outcomes[number] = self.transact(vec![proposal]).remove(0);
                    }
                    break;
                }
                Err(error) => {
                    left.iter().for_each(|(number, _)| outcomes[*number] = Err(error.clone()));
                    break;
                }
            }
        }
        outcomes
    }

    fn try_once(&self, proposals: &[(usize, Proposal)]) -> Result<Tried> {
        let proposals = || proposals.iter().map(|(_, proposal)| proposal);
        let mut guards: BTreeMap<&[u8], u64> = BTreeMap::new();
        let mut sums: BTreeMap<&[u8], i64> = BTreeMap::new();
        for proposal in proposals() {
            let own = proposal.guards.iter().zip(&proposal.guesses);
            guards.extend(own.map(|(key, guess)| (&key[..], guess.revision)));
            for (key, delta) in proposal.plan.added() {
                let sum = sums.entry(key).or_default();
                *sum = sum.wrapping_add(delta);
            }
        }
        let counters = self.counters_of(sums.keys().copied())?;
        let mut compares: Vec<Value> =
            guards.iter().map(|(key, revision)| compare(key, *revision)).collect();
        let mut otherwise: Vec<Value> = guards.keys().map(|key| get_operation(key, None)).collect();
        let mut changes: Vec<Value> =
            proposals().flat_map(|proposal| proposal.plan.operations()).collect();
        let mut values = Vec::with_capacity(sums.len());
        for ((key, sum), (value, revision)) in sums.iter().zip(counters) {
            compares.push(compare(key, revision));
            otherwise.push(get_operation(key, None));
            let value = value.wrapping_add(*sum);
            changes.push(super::operation_of(key, Some(&value.to_le_bytes())));
            values.push(value);
        }
        let request = json!({ "compare": compares, "success": changes, "failure": otherwise });
        let reply = match self.call("/v3/kv/txn", &request, Effect::Writes) {
            Ok(reply) => reply,
            Err(error) => {
                let mut counters = self.counters.lock();
                for key in sums.keys() {
                    counters.remove(*key);
                }
                return Err(error);
            }
        };
        let revision = revision_of(&reply["header"])?;
        let mut counters = self.counters.lock();
        if reply["succeeded"].as_bool() == Some(true) {
            for (key, value) in sums.keys().zip(values) {
                counters.insert(key.to_vec(), (value, revision));
            }
            return Ok(Tried::Made(revision));
        }
        let mut found = entries_of_responses(&reply, otherwise.len())?.into_iter();
        let of_guards = guards.keys().zip(found.by_ref());
        let revisions = of_guards.map(|(key, entry)| (key.to_vec(), revision_now(entry.as_ref())));
        let revisions = revisions.collect();
        for (key, entry) in sums.keys().zip(found) {
            counters.insert(key.to_vec(), counter_of(entry.as_ref()));
        }
        Ok(Tried::Changed(revisions))
    }

    /// The values and revisions of counters, as they were seen last.
    fn counters_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<(i64, u64)>> {
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        {
            let mut counters = self.counters.lock();
            if counters.len() > KNOWN_MAX {
                counters.clear();
            }
            for key in keys {
                let known = counters.get(key).copied();
                if known.is_none() {
                    unknown.push(key.to_vec());
                }
                found.push(known);
            }
        }
        if !unknown.is_empty() {
            let mut read = self.read_keys(None, &unknown)?.into_iter();
            for counter in found.iter_mut().filter(|counter| counter.is_none()) {
                *counter = Some(counter_of(read.next().flatten().as_ref()));
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The modification revisions that keys had at a version; zero where there was none. Those that
    /// this process has written itself are guessed to be as it left them.
    fn revisions_at(&self, at: Version, keys: &[Vec<u8>]) -> Result<Vec<Guess>> {
        let mut guesses: Vec<Option<Guess>> = {
            let (known, own) = (self.known.lock(), self.own.lock());
            let guess = |key: &Vec<u8>| {
                let seen = known.revisions.get(&(at, key.clone()));
                let own = own.get(key).filter(|revision| **revision <= at);
                match (seen, own) {
                    (Some(revision), _) => Some(Guess { revision: *revision, is_sure: true }),
                    (None, Some(revision)) => Some(Guess { revision: *revision, is_sure: false }),
                    (None, None) => None,
                }
            };
            keys.iter().map(guess).collect()
        };
        let is_missing = |(_, guess): &(&Vec<u8>, &Option<Guess>)| guess.is_none();
        let missing: Vec<Vec<u8>> =
            keys.iter().zip(&guesses).filter(is_missing).map(|(key, _)| key.clone()).collect();
        if !missing.is_empty() {
            let mut found = self.read_keys(Some(at), &missing)?.into_iter();
            for guess in guesses.iter_mut().filter(|guess| guess.is_none()) {
                let revision = revision_now(found.next().flatten().as_ref());
                *guess = Some(Guess { revision, is_sure: true });
            }
        }
        Ok(guesses.into_iter().flatten().collect())
    }

    /// Looks at what guarded keys are now, where a transaction did not find them as guessed.
    /// Corrects guesses that were wrong from the start.
    ///
    /// Errors: [`KvError::Conflict`] where a key has changed since the commit's version.
    fn judge(&self, proposal: &mut Proposal, found: &HashMap<Vec<u8>, u64>) -> Result<()> {
        for (key, guess) in proposal.guards.iter().zip(&mut proposal.guesses) {
            let now = found[key];
            if now == guess.revision {
                continue;
            }
            if guess.is_sure || now > proposal.at {
                return Err(KvError::Conflict);
            }
            let then = match now {
                // It may have been deleted before or since.
                0 => self
                    .read_keys(Some(proposal.at), std::slice::from_ref(key))?
                    .into_iter()
                    .next()
                    .flatten(),
                _ => None,
            };
            if then.is_some() {
                return Err(KvError::Conflict);
            }
            *guess = Guess { revision: now, is_sure: true };
        }
        Ok(())
    }

    /// Notes the revision of keys that a commit has both guarded and set, as it does with the keys
    /// by which the adapter finds out how commits ended: the next one guards them too.
    fn note_own(&self, guards: &[Vec<u8>], plan: &Plan, revision: Version) {
        let mut own = self.own.lock();
        if own.len() > KNOWN_MAX {
            own.clear();
        }
        for key in guards.iter().filter(|key| plan.sets(key)) {
            own.insert(key.clone(), revision);
        }
    }
}

/// The result of one try of a transaction.
enum Tried {
    /// It was made, and has this revision.
    Made(Version),
    /// Something was not as expected: the revisions that the guarded keys have.
    Changed(HashMap<Vec<u8>, u64>),
}

fn revision_now(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| entry.revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Mutation;

    fn proposal(guards: &[(&str, u64)], mutations: Vec<Mutation>) -> Proposal {
        let guess = |revision: u64| Guess { revision, is_sure: true };
        Proposal {
            at: 10,
            guards: guards.iter().map(|(key, _)| key.as_bytes().to_vec()).collect(),
            guesses: guards.iter().map(|(_, revision)| guess(*revision)).collect(),
            plan: Plan::of(&mutations),
            bytes: 100,
        }
    }

    #[test]
    fn what_has_only_counters_in_common_is_made_together() {
        let set = |key: &str| Mutation::Set(key.into(), b"x".to_vec());
        let add = || Mutation::Add(b"n".to_vec(), 1);
        let clear = || Mutation::ClearRange(KeyRange { start: b"x".to_vec(), end: b"y".to_vec() });
        let cases = [
            (true, "the first", proposal(&[("a", 1), ("f", 3)], vec![set("a"), add()])),
            (true, "other keys", proposal(&[("b", 1), ("f", 3)], vec![set("b"), add()])),
            (false, "reads what is changed", proposal(&[("a", 1)], vec![set("c"), add()])),
            (false, "changes what is changed", proposal(&[], vec![set("b"), add()])),
            (false, "changes what is read", proposal(&[], vec![set("f"), add()])),
            (false, "has read another state", proposal(&[("f", 2)], vec![set("d"), add()])),
            (false, "sets the counter", proposal(&[], vec![set("n")])),
            (false, "reads the counter", proposal(&[("n", 4)], vec![set("e")])),
            (false, "adds from zero", proposal(&[], vec![Mutation::Clear(b"n".to_vec()), add()])),
            (false, "clears a range", proposal(&[], vec![clear(), add()])),
            (true, "nothing but the counter", proposal(&[], vec![add()])),
            (true, "a key more", proposal(&[("g", 2)], vec![set("g"), add()])),
        ];
        let mut together = Together::default();
        for (is_taken, name, proposal) in &cases {
            assert_eq!(together.take(proposal), *is_taken, "{name}");
        }
        // Nothing joins a commit in a range that it clears, and what is too large is made alone.
        let large = Proposal { bytes: SHARED_BYTES_MAX, ..proposal(&[], vec![add()]) };
        let cases = [
            (true, proposal(&[], vec![clear(), add()])),
            (false, proposal(&[], vec![set("x1"), add()])),
            (true, proposal(&[], vec![set("y1"), add()])),
            (false, large),
        ];
        let mut together = Together::default();
        for (is_taken, proposal) in &cases {
            assert_eq!(together.take(proposal), *is_taken);
        }
        assert!(Together::default().take(&cases[3].1));
    }
}

//! Walking an access path: the candidates, one after the other, from where the last batch ended.

use std::collections::HashSet;

use marula_bson::Doc;
use marula_db::index::entry::Entry;
use marula_db::{Collection, Db, Index, RecordKey};
use marula_error::Result;
use marula_storage::{Direction, KeyRange};

use super::{Emit, End, Examined, Found, INTERRUPT_INTERVAL, collection_dropped};
use crate::plan::{Access, Ixscan};

/// Where a walk stands.
pub(super) struct Scan {
    position: Position,
    /// The documents given so far, where an index may lead to one twice.
    given: Option<HashSet<RecordKey>>,
    /// Whether documents that an index leads to are given without being read.
    is_unread: bool,
    key: Vec<u8>,
}

enum Position {
    Start,
    /// Behind this record.
    BehindRecord(RecordKey),
    /// In this range, behind the entry with this stored key.
    BehindEntry(usize, Vec<u8>),
    End,
}

/// Calls the interrupt check every so often.
struct Pace<'p> {
    steps: u64,
    interrupt: &'p mut dyn FnMut() -> Result<()>,
}

impl Pace<'_> {
    #[inline]
    fn step(&mut self, collection: &Collection) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(INTERRUPT_INTERVAL) {
            (self.interrupt)()?;
            if collection.is_dropped() {
                return Err(collection_dropped());
            }
        }
        Ok(())
    }
}

impl Scan {
    pub(super) fn new(access: &Access) -> Self {
        let given = match access {
            Access::Ixscan(scan) if scan.may_repeat => Some(HashSet::new()),
            _ => None,
        };
        Scan { position: Position::Start, given, is_unread: false, key: Vec::new() }
    }

    /// From now on no document is given twice.
    pub(super) fn remember(&mut self) {
        self.given.get_or_insert_default();
    }

    /// From now on documents that an index leads to are not read: an empty one is given in their place.
    pub(super) fn skip_documents(&mut self) {
        self.is_unread = true;
    }

    /// Shows `take` the document of `record`, if it is there.
    fn fetch(
        &mut self,
        db: &Db,
        collection: &Collection,
        record: &[u8],
        entry: Option<(&Index, Entry<'_>)>,
        examined: &mut Examined,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Emit> {
        if self.is_unread {
            return take(Found { doc: Doc::EMPTY, record, entry });
        }
        let mut answer = Ok(Emit::Taken);
        collection.get(db.store(), record, &mut self.key, &mut |doc| {
            examined.docs += 1;
            answer = take(Found { doc, record, entry });
        })?;
        answer
    }

    /// Lets a walk that has ended look for what came since.
    pub(super) fn reopen(&mut self) {
        if let Position::End = self.position {
            self.position = Position::Start;
        }
    }

    pub(super) fn run(
        &mut self,
        db: &Db,
        collection: &Collection,
        access: &Access,
        examined: &mut Examined,
        interrupt: &mut dyn FnMut() -> Result<()>,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        if collection.is_dropped() {
            return Err(collection_dropped());
        }
        let mut pace = Pace { steps: 0, interrupt };
        match access {
            Access::Nothing => Ok(End::Exhausted),
            Access::IdHack(id) => self.one(db, collection, id.get(), examined, take),
            Access::Collscan(direction) => {
                self.records(db, collection, None, *direction, examined, &mut pace, take)
            }
            Access::Clustered(scan) => {
                let range = Some(&scan.range);
                self.records(db, collection, range, scan.direction, examined, &mut pace, take)
            }
            Access::Ixscan(scan) => self.entries(db, collection, scan, examined, &mut pace, take),
        }
    }

    fn one(
        &mut self,
        db: &Db,
        collection: &Collection,
        id: marula_bson::Value<'_>,
        examined: &mut Examined,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        if let Position::End = self.position {
            return Ok(End::Exhausted);
        }
        let Some(record) = collection.find_id(db.store(), id, &mut self.key)? else {
            self.position = Position::End;
            return Ok(End::Exhausted);
        };
        examined.keys += 1;
        if self.fetch(db, collection, record.as_bytes(), None, examined, take)? == Emit::Full {
            return Ok(End::Paused);
        }
        self.position = Position::End;
        Ok(End::Exhausted)
    }

    fn records(
        &mut self,
        db: &Db,
        collection: &Collection,
        range: Option<&KeyRange>,
        direction: Direction,
        examined: &mut Examined,
        pace: &mut Pace<'_>,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        let mut cursor = match range {
            Some(range) => collection.scan_between(db.store(), range, direction)?,
            None => collection.scan(db.store(), direction)?,
        };
        let mut last = match std::mem::replace(&mut self.position, Position::Start) {
            Position::BehindRecord(last) => Some(last),
            _ => None,
        };
        let mut there_is_one = match &last {
            Some(last) => {
                let last = last.as_bytes();
                cursor.seek(last)? && (cursor.record() != last || cursor.advance()?)
            }
            None => cursor.advance()?,
        };
        let mut end = End::Exhausted;
        while there_is_one {
            pace.step(collection)?;
            examined.docs += 1;
            let answer = take(Found { doc: cursor.doc(), record: cursor.record(), entry: None })?;
            if answer != Emit::Full {
                last = Some(RecordKey::new(cursor.record()));
            }
            if answer != Emit::Taken {
                end = End::Paused;
                break;
            }
            there_is_one = cursor.advance()?;
        }
        self.position = last.map_or(Position::Start, Position::BehindRecord);
        Ok(end)
    }

    fn entries(
        &mut self,
        db: &Db,
        collection: &Collection,
        scan: &Ixscan,
        examined: &mut Examined,
        pace: &mut Pace<'_>,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        let (mut number, mut behind) = match std::mem::replace(&mut self.position, Position::Start)
        {
            Position::BehindEntry(number, key) => (number, Some(key)),
            Position::End => return Ok(End::Exhausted),
            Position::Start | Position::BehindRecord(_) => (0, None),
        };
        while number < scan.ranges.len() {
            let range = match scan.direction {
                Direction::Forward => &scan.ranges[number],
                Direction::Backward => &scan.ranges[scan.ranges.len() - 1 - number],
            };
            let rest =
                self.range(db, collection, scan, range, behind.take(), examined, pace, take)?;
            if let Some(stopped_at) = rest {
                self.position = match stopped_at {
                    Some(key) => Position::BehindEntry(number, key),
                    None if number == 0 => Position::Start,
                    // Nothing of this range was taken: go on behind nothing, at its start.
                    None => Position::BehindEntry(number, Vec::new()),
                };
                return Ok(End::Paused);
            }
            number += 1;
        }
        self.position = Position::End;
        Ok(End::Exhausted)
    }

    /// Walks one range. Answers `None` at its end; where the taker had enough, the stored key of the last entry
    /// that is done with, if there is one.
    fn range(
        &mut self,
        db: &Db,
        collection: &Collection,
        scan: &Ixscan,
        range: &KeyRange,
        behind: Option<Vec<u8>>,
        examined: &mut Examined,
        pace: &mut Pace<'_>,
        take: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let mut cursor =
            collection.scan_index(db.store(), scan.index.clone(), range, scan.direction)?;
        let mut last = behind.filter(|key| !key.is_empty());
        let mut there_is_one = match &last {
            Some(key) => {
                cursor.seek(key)? && (cursor.position() != key.as_slice() || cursor.advance()?)
            }
            None => cursor.advance()?,
        };
        while there_is_one {
            pace.step(collection)?;
            examined.keys += 1;
            let entry = cursor.entry()?;
            let seen = self.given.as_ref().map(|_| RecordKey::new(entry.record));
            let is_new = seen.as_ref().is_none_or(|record| {
                !self.given.as_ref().is_some_and(|given| given.contains(record))
            });
            if is_new {
                let found = Some((cursor.index(), entry));
                let answer = self.fetch(db, collection, entry.record, found, examined, take)?;
                if answer == Emit::Full {
                    return Ok(Some(last));
                }
                if let (Some(given), Some(record)) = (&mut self.given, seen) {
                    given.insert(record);
                }
                if answer == Emit::Enough {
                    return Ok(Some(Some(cursor.position().to_vec())));
                }
            }
            match &mut last {
                Some(key) => {
                    key.clear();
                    key.extend_from_slice(cursor.position());
                }
                None => last = Some(cursor.position().to_vec()),
            }
            there_is_one = cursor.advance()?;
        }
        Ok(None)
    }
}

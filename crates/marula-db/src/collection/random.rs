//! Documents chosen at random: record ids are drawn until one has a document, so that every
//! document is as likely as another.

use std::collections::HashSet;

use marula_bson::Doc;
use marula_error::Result;
use marula_storage::{Direction, View};

use super::{Collection, Shape};

/// The most documents that are chosen: their ids are in memory.
const SIZE_MAX: u64 = 10_000;
/// The documents that a collection must have; in a smaller one all are read.
const DOCUMENTS_MIN: i64 = 100;
/// The collection must have this many times the documents that are chosen. Source: mongod 6.0 reads
/// at random up to 5 % of a collection.
const TIMES_MIN: u64 = 20;
/// One of this number of record ids must have a document.
const IDS_PER_DOCUMENT_MAX: i64 = 4;
/// The draws for each document before the choice ends early: documents have been removed meanwhile.
const DRAWS_MAX: u64 = 100;

/// A choice of documents at random, each at most once.
pub struct RandomDocuments {
    first: i64,
    last: i64,
    drawn: HashSet<i64>,
    draws_left: u64,
    scratch: Vec<u8>,
}

impl RandomDocuments {
    /// Returns the choice of `size` documents of a collection; `None` if it is better to read all:
    /// they are few, or many record ids between the first and the last have no document.
    pub fn of(collection: &Collection, store: &dyn View, size: u64) -> Result<Option<Self>> {
        let count = collection.count();
        let is_few = u64::try_from(count).is_ok_and(|count| count / TIMES_MIN >= size);
        let is_worth = is_few && count >= DOCUMENTS_MIN && size <= SIZE_MAX;
        if !is_worth || collection.shape() != Shape::RecordId {
            return Ok(None);
        }
        let end = |direction| {
            let mut cursor = collection.scan(store, direction)?;
            let id = if cursor.advance()? { cursor.record().try_into().ok() } else { None };
            Ok::<_, marula_error::Error>(id.map(i64::from_be_bytes))
        };
        let (Some(first), Some(last)) = (end(Direction::Forward)?, end(Direction::Backward)?)
        else {
            return Ok(None);
        };
        let is_dense = last - first < count.saturating_mul(IDS_PER_DOCUMENT_MAX);
        let draws_left = size * DRAWS_MAX;
        let (drawn, scratch) = (HashSet::new(), Vec::new());
        let random = RandomDocuments { first, last, drawn, draws_left, scratch };
        Ok((is_dense && first <= last).then_some(random))
    }

    /// Draws once; returns whether a document that was not chosen before was visited, or `None` if
    /// the choice has ended.
    pub fn draw(
        &mut self,
        collection: &Collection,
        store: &dyn View,
        visit: &mut dyn FnMut(Doc<'_>),
    ) -> Result<Option<bool>> {
        if self.draws_left == 0 {
            return Ok(None);
        }
        self.draws_left -= 1;
        let id = rand::random_range(self.first..=self.last);
        if !self.drawn.insert(id) {
            return Ok(Some(false));
        }
        collection.get(store, &id.to_be_bytes(), &mut self.scratch, visit).map(Some)
    }
}

//! The rows of index lookups: no document, many documents of one value, a range, an order, an
//! array's element.
//!
//! They share one collection, the shelf: product pages with a number, a group of eleven, a position
//! and labels, each indexed.

use crate::bson::{self, Doc};
use crate::documents;
use crate::load::Work;
use crate::message::{self, Random, Template, oid};

/// The collection's name.
pub(crate) const SHELF: &str = "shelf";

/// The number of groups of products: of 100,000 products each has 9,090 or 9,091.
const GROUPS: usize = 11;
/// The number of products that share a label.
const LABELLED: usize = 38;
/// The size of the range, the skipped part and the wanted part.
const RANGE: (usize, usize, usize) = (500, 100, 10);
/// The skipped and the wanted part of the order.
const ORDER: (usize, usize) = (5_000, 10);
/// A batch that ends only where a reply is full.
const BATCH_MAX: i32 = 100_000;

/// The query of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lookup {
    /// A value that no document has.
    None,
    /// All documents of one group. They fill more than one reply, so that one find is two requests,
    /// each counted.
    Group,
    /// The number of documents of a group.
    CountGroup,
    /// A range, sorted by another field, skipped and limited.
    Range,
    /// The order of an index, skipped and limited.
    Order,
    /// The documents that have a label.
    Label,
}

/// The indexes of the shelf.
pub(crate) fn indexes() -> Vec<(&'static str, Doc, bool)> {
    let names = ["number", "group", "position", "labels"];
    names.into_iter().map(|name| (name, Doc::new().int(name, 1), false)).collect()
}

/// The documents of the shelf from `begin` to `end`; there are `count` in all.
pub(crate) fn documents_of(begin: usize, end: usize, count: usize) -> Vec<Vec<u8>> {
    let document = |number: usize| {
        // Neighbours in the order of positions are not neighbours in the order of insertion.
        let position = number * 7_919 % count.max(1);
        let doc = Doc::new()
            .oid("_id", oid(number as u64))
            .int("number", number as i32)
            .int("group", (number % GROUPS) as i32)
            .int("position", position as i32)
            .strings("labels", &["all", &label(number % labels(count))]);
        documents::product_from(doc, number as u64).finish()
    };
    (begin..end).map(document).collect()
}

fn labels(count: usize) -> usize {
    (count / LABELLED).max(1)
}

fn label(number: usize) -> String {
    format!("label {number}")
}

/// One row's requests.
pub(crate) struct Lookups {
    lookup: Lookup,
    count: usize,
    random: Random,
    request: Vec<u8>,
    /// The cursor of a find with more documents, and the number received.
    open: Option<(i64, usize)>,
    /// The expected number of documents.
    expected: usize,
}

impl Lookups {
    /// Requests to a shelf of `count` documents.
    pub(crate) fn new(lookup: Lookup, count: usize) -> Lookups {
        Lookups {
            lookup,
            count,
            random: Random::new(9),
            request: Vec::new(),
            open: None,
            expected: 0,
        }
    }

    fn body(&mut self) -> Doc {
        let (count, random) = (self.count, &mut self.random);
        let find = |filter: Doc| Doc::new().str("find", SHELF).doc("filter", filter);
        let in_group = |group: usize| count / GROUPS + usize::from(group < count % GROUPS);
        match self.lookup {
            Lookup::None => {
                self.expected = 0;
                find(Doc::new().int("number", -1 - random.below(1_000_000) as i32))
            }
            Lookup::Group => {
                let group = random.below(GROUPS);
                self.expected = in_group(group);
                find(Doc::new().int("group", group as i32)).int("batchSize", BATCH_MAX)
            }
            Lookup::CountGroup => {
                let group = random.below(GROUPS);
                self.expected = in_group(group);
                Doc::new().str("count", SHELF).doc("query", Doc::new().int("group", group as i32))
            }
            Lookup::Range => {
                let (wide, skip, limit) = RANGE;
                let wide = wide.min(count);
                let from = random.below(count - wide + 1);
                self.expected = wide.saturating_sub(skip).min(limit);
                let range = Doc::new().int("$gte", from as i32).int("$lt", (from + wide) as i32);
                find(Doc::new().doc("number", range))
                    .doc("sort", Doc::new().int("price", 1))
                    .int("skip", skip as i32)
                    .int("limit", limit as i32)
            }
            Lookup::Order => {
                let (skip, limit) = ORDER;
                self.expected = count.saturating_sub(skip).min(limit);
                find(Doc::new())
                    .doc("sort", Doc::new().int("position", 1))
                    .int("skip", skip as i32)
                    .int("limit", limit as i32)
            }
            Lookup::Label => {
                let (kinds, wanted) = (labels(count), random.below(labels(count)));
                self.expected = count / kinds + usize::from(wanted < count % kinds);
                find(Doc::new().str("labels", &label(wanted)))
            }
        }
    }
}

impl Work for Lookups {
    fn request(&mut self, _: usize) -> Option<&[u8]> {
        let body = match self.open {
            Some((cursor, _)) => Doc::new()
                .long("getMore", cursor)
                .str("collection", SHELF)
                .int("batchSize", BATCH_MAX),
            None => self.body(),
        };
        self.request = Template::new(body.str("$db", "bench"), None).bytes;
        Some(&self.request)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        let body = message::succeeded(reply)?;
        if self.lookup == Lookup::CountGroup {
            return match bson::number(body, "n") {
                Some(n) if n as usize == self.expected => Ok(()),
                n => Err(format!("the count is {n:?}, not {}", self.expected)),
            };
        }
        let (_, cursor) = bson::field(body, "cursor").ok_or("a reply without a cursor")?;
        let batch = bson::field(cursor, "firstBatch").or_else(|| bson::field(cursor, "nextBatch"));
        let (_, batch) = batch.ok_or("a reply without a batch")?;
        let before = self.open.map_or(0, |(_, found)| found);
        let found = before + bson::documents(batch).count();
        let more = bson::field(cursor, "id")
            .and_then(|(_, id)| id.get(..8)?.try_into().ok())
            .map_or(0, i64::from_le_bytes);
        self.open = (more != 0).then_some((more, found));
        if more == 0 && found != self.expected {
            return Err(format!("{found} documents came, not {}", self.expected));
        }
        Ok(())
    }
}

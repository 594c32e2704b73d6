//! The rows of pipelines: groups, buckets, joins and sorts over two hundred thousand small
//! documents, and a group over product pages.
//!
//! The expected results are computed here from the same documents, with integers and quarters so
//! that sums are exact in any order.

use std::collections::BTreeMap;

use crate::bson::{self, Doc};
use crate::documents;
use crate::load::Work;
use crate::message::{self, Random, Template, oid};

/// The collection of small documents.
pub(crate) const SMALL: &str = "small";
/// The two sides of the join.
pub(crate) const ORDERS: &str = "joined";
pub(crate) const CUSTOMERS: &str = "others";

/// Groups that small documents fall into.
const GROUPS: usize = 100;
/// Values of `v` are below this.
const VALUES: usize = 1_000_000;
/// The number of tags.
const TAGS: usize = 50;
/// The number of documents that the short sort returns.
const LIMIT: usize = 100;
/// The boundaries of the buckets, over values of `v`; greater values go to the default.
const BOUNDARIES: [i32; 7] = [0, 50_000, 150_000, 300_000, 500_000, 700_000, 900_000];
/// The default bucket.
const ABOVE: i32 = 1_000_000;
/// A batch that holds every answer.
const BATCH_MAX: i32 = 100_000;

/// The pipeline of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pipeline {
    /// Half of the documents, counted and summed by a hundred keys.
    MatchGroup,
    /// Tags unwound, counted and summed, sorted.
    Unwind,
    /// Each order with its customer, by an index.
    Join,
    /// The first of all by a value.
    SortLimit,
    /// All in order, then the first and the last of each key.
    SortGroup,
    /// Ranges of a value.
    Bucket,
    /// A group and buckets over the same documents.
    Facet,
    /// Product pages, summed and averaged by brand.
    Brand,
}

/// Returns the number of small documents for `documents` products.
pub(crate) fn small_count(documents: usize) -> usize {
    2 * documents
}

/// Returns the number of documents on each side of the join.
pub(crate) fn join_count(documents: usize) -> usize {
    documents / 10
}

/// The small documents from `begin` to `end`.
pub(crate) fn small(begin: usize, end: usize) -> Vec<Vec<u8>> {
    let document = |number: usize| {
        let mut random = Random::new(number as u64 + 1);
        let tag = |random: &mut Random| format!("tag {}", random.below(TAGS));
        let tags = [tag(&mut random), tag(&mut random), tag(&mut random)];
        Doc::new()
            .oid("_id", oid(number as u64))
            .str("name", &format!("document {number}"))
            .int("k", random.below(GROUPS) as i32)
            .int("v", random.below(VALUES) as i32)
            .double("amount", random.below(40_000) as f64 / 4.0)
            .bool("active", random.below(2) == 0)
            .date("created", 1_700_000_000_000 + number as i64 * 1000)
            .strings("tags", &tags.each_ref().map(String::as_str))
            .str("note", documents::passage(&mut random, 40))
            .finish()
    };
    (begin..end).map(document).collect()
}

/// The orders from `begin` to `end`, each with a customer out of `count`.
pub(crate) fn orders(begin: usize, end: usize, count: usize) -> Vec<Vec<u8>> {
    let document = |number: usize| {
        Doc::new()
            .oid("_id", oid(number as u64))
            .int("customer", (number * 7_919 % count.max(1)) as i32)
            .double("total", (number % 1_000) as f64 / 4.0)
            .finish()
    };
    (begin..end).map(document).collect()
}

/// The customers from `begin` to `end`.
pub(crate) fn customers(begin: usize, end: usize) -> Vec<Vec<u8>> {
    let document = |number: usize| {
        let mut random = Random::new(number as u64 + 1);
        Doc::new()
            .oid("_id", oid(number as u64))
            .int("number", number as i32)
            .str("name", &format!("customer {number}"))
            .int("credit", random.below(1_000) as i32)
            .str("address", documents::passage(&mut random, 60))
            .finish()
    };
    (begin..end).map(document).collect()
}

fn field(name: &str) -> String {
    format!("${name}")
}

fn sum_of(name: &str) -> Doc {
    Doc::new().str("$sum", &field(name))
}

fn count() -> Doc {
    Doc::new().int("$sum", 1)
}

fn by_key() -> Doc {
    let group = Doc::new().str("_id", "$k").doc("n", count()).doc("total", sum_of("amount"));
    Doc::new().doc("$group", group)
}

fn buckets() -> Doc {
    let output = Doc::new().doc("n", count()).doc("total", sum_of("amount"));
    let bucket = Doc::new()
        .str("groupBy", "$v")
        .ints("boundaries", &BOUNDARIES)
        .int("default", ABOVE)
        .doc("output", output);
    Doc::new().doc("$bucket", bucket)
}

impl Pipeline {
    /// The collection it runs on.
    fn collection(self) -> &'static str {
        match self {
            Pipeline::Join => ORDERS,
            Pipeline::Brand => "products",
            _ => SMALL,
        }
    }

    fn stages(self) -> Vec<Doc> {
        let by =
            |name: &str, direction: i32| Doc::new().doc("$sort", Doc::new().int(name, direction));
        match self {
            Pipeline::MatchGroup => {
                let lower = Doc::new().int("$lt", VALUES as i32 / 2);
                vec![Doc::new().doc("$match", Doc::new().doc("v", lower)), by_key()]
            }
            Pipeline::Unwind => {
                let group =
                    Doc::new().str("_id", "$tags").doc("n", count()).doc("total", sum_of("amount"));
                vec![
                    Doc::new().str("$unwind", "$tags"),
                    Doc::new().doc("$group", group),
                    by("n", -1),
                ]
            }
            Pipeline::Join => {
                let lookup = Doc::new()
                    .str("from", CUSTOMERS)
                    .str("localField", "customer")
                    .str("foreignField", "number")
                    .str("as", "found");
                let found = Doc::new().doc("$sum", Doc::new().str("$size", "$found"));
                let credit = Doc::new().doc("$sum", Doc::new().str("$sum", "$found.credit"));
                let group = Doc::new().int("_id", 0).doc("n", found).doc("total", credit);
                vec![Doc::new().doc("$lookup", lookup), Doc::new().doc("$group", group)]
            }
            Pipeline::SortLimit => vec![by("v", 1), Doc::new().int("$limit", LIMIT as i32)],
            Pipeline::SortGroup => {
                let first = Doc::new().str("$first", "$v");
                let last = Doc::new().str("$last", "$v");
                let group = Doc::new().str("_id", "$k").doc("n", first).doc("total", last);
                vec![by("v", 1), Doc::new().doc("$group", group)]
            }
            Pipeline::Bucket => vec![buckets()],
            Pipeline::Facet => {
                let facet =
                    Doc::new().array("groups", vec![by_key()]).array("buckets", vec![buckets()]);
                vec![Doc::new().doc("$facet", facet)]
            }
            Pipeline::Brand => {
                let average = Doc::new().str("$avg", "$rating");
                let group =
                    Doc::new().str("_id", "$brand").doc("n", sum_of("stock")).doc("total", average);
                vec![Doc::new().doc("$group", group)]
            }
        }
    }
}

/// The compared fields of a result's document: its `_id`, its `n` and its `total`.
type Answer = (String, f64, f64);

/// The request of one row, sent a number of times.
pub(crate) struct Pipelines {
    left: usize,
    pipeline: Pipeline,
    template: Template,
    expected: Vec<Answer>,
}

impl Pipelines {
    /// Creates a request to the collections of a run with this number of products.
    pub(crate) fn new(pipeline: Pipeline, documents: usize) -> Pipelines {
        let body = Doc::new()
            .str("aggregate", pipeline.collection())
            .array("pipeline", pipeline.stages())
            .doc("cursor", Doc::new().int("batchSize", BATCH_MAX))
            .str("$db", "bench");
        let mut expected = expected(pipeline, documents);
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        Pipelines { left: 1, pipeline, template: Template::new(body, None), expected }
    }

    /// Sets the number of requests.
    pub(crate) fn repeat(&mut self, times: usize) {
        self.left = times;
    }
}

/// Adds to a group: its count, and its sum.
type Groups = BTreeMap<String, (f64, f64)>;

fn add(groups: &mut Groups, key: String, n: f64, total: f64) {
    let group = groups.entry(key).or_default();
    group.0 += n;
    group.1 += total;
}

fn answers(groups: Groups) -> Vec<Answer> {
    groups.into_iter().map(|(key, (n, total))| (key, n, total)).collect()
}

fn expected(pipeline: Pipeline, documents: usize) -> Vec<Answer> {
    let number = |doc: &[u8], name: &str| bson::number(doc, name).expect("it was written");
    let mut groups = Groups::new();
    let bucket = |value: f64| {
        let place = BOUNDARIES.partition_point(|bound| f64::from(*bound) <= value);
        let is_above = place == BOUNDARIES.len();
        f64::from(if is_above { ABOVE } else { BOUNDARIES[place - 1] })
    };
    match pipeline {
        Pipeline::Join => {
            let customers = customers(0, join_count(documents));
            let credit = customers.iter().map(|customer| number(customer, "credit")).sum();
            return vec![("0".into(), customers.len() as f64, credit)];
        }
        Pipeline::Brand => {
            let mut rated = BTreeMap::<String, (f64, f64, f64)>::new();
            for number_of in 0..documents {
                let product = documents::product(number_of as u64);
                let brand = bson::text(&product, "brand").expect("it was written");
                let group = rated.entry(brand).or_default();
                group.0 += number(&product, "stock");
                group.1 += number(&product, "rating");
                group.2 += 1.0;
            }
            let mean = |(brand, (stock, rating, count))| (brand, stock, rating / count);
            return rated.into_iter().map(mean).collect();
        }
        _ => {}
    }
    let mut order = Vec::new();
    for (place, doc) in small(0, small_count(documents)).iter().enumerate() {
        let (key, value) = (number(doc, "k"), number(doc, "v"));
        let amount = number(doc, "amount");
        match pipeline {
            Pipeline::MatchGroup if value >= VALUES as f64 / 2.0 => {}
            Pipeline::MatchGroup => add(&mut groups, key.to_string(), 1.0, amount),
            Pipeline::Unwind => {
                let (_, tags) = bson::field(doc, "tags").expect("it was written");
                for index in ["0", "1", "2"] {
                    let tag = bson::text(tags, index).expect("there are three");
                    add(&mut groups, tag, 1.0, amount);
                }
            }
            Pipeline::SortLimit => order.push((value as u64, place, amount)),
            Pipeline::SortGroup => {
                let ends = groups.entry(key.to_string()).or_insert((value, value));
                *ends = (ends.0.min(value), ends.1.max(value));
            }
            Pipeline::Bucket => add(&mut groups, bucket(value).to_string(), 1.0, amount),
            Pipeline::Facet => {
                add(&mut groups, format!("groups {key}"), 1.0, amount);
                add(&mut groups, format!("buckets {}", bucket(value)), 1.0, amount);
            }
            Pipeline::Join | Pipeline::Brand => {}
        }
    }
    // Of equal values any may be among the first, so only the values are compared.
    order.sort_unstable_by_key(|(value, ..)| *value);
    order.truncate(LIMIT);
    let place = |(place, (value, ..)): (usize, &(u64, usize, f64))| {
        (format!("{place:03}"), *value as f64, 0.0)
    };
    if pipeline == Pipeline::SortLimit {
        return order.iter().enumerate().map(place).collect();
    }
    answers(groups)
}

/// The documents of an array, as answers whose names begin with `prefix`.
fn read(array: &[u8], prefix: &str, out: &mut Vec<Answer>) {
    for doc in bson::documents(array) {
        let key = bson::text(doc, "_id")
            .or_else(|| bson::number(doc, "_id").map(|number| number.to_string()));
        let number = |name: &str| bson::number(doc, name).unwrap_or(f64::NAN);
        out.push((format!("{prefix}{}", key.unwrap_or_default()), number("n"), number("total")));
    }
}

impl Work for Pipelines {
    fn request(&mut self, _: usize) -> Option<&[u8]> {
        self.left = self.left.checked_sub(1)?;
        Some(&self.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        let body = message::succeeded(reply)?;
        let (_, cursor) = bson::field(body, "cursor").ok_or("a reply without a cursor")?;
        let (_, batch) = bson::field(cursor, "firstBatch").ok_or("a reply without a batch")?;
        let mut found = Vec::new();
        match self.pipeline {
            Pipeline::Facet => {
                let facets = bson::documents(batch).next().ok_or("a facet without a document")?;
                for name in ["groups", "buckets"] {
                    let (_, list) = bson::field(facets, name).ok_or("a facet lacks a field")?;
                    read(list, &format!("{name} "), &mut found);
                }
            }
            Pipeline::SortLimit => {
                for (place, doc) in bson::documents(batch).enumerate() {
                    let value = bson::number(doc, "v").unwrap_or(f64::NAN);
                    found.push((format!("{place:03}"), value, 0.0));
                }
            }
            _ => read(batch, "", &mut found),
        }
        if self.pipeline == Pipeline::Unwind && !found.is_sorted_by(|a, b| a.1 >= b.1) {
            return Err("the tags are not in order".into());
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let same = |(a, b): (&Answer, &Answer)| a.0 == b.0 && near(a.1, b.1) && near(a.2, b.2);
        if found.len() == self.expected.len() && found.iter().zip(&self.expected).all(same) {
            return Ok(());
        }
        let differs = found.iter().zip(&self.expected).find(|pair| !same(*pair));
        Err(format!("{} answers, not {}; {differs:?}", found.len(), self.expected.len()))
    }
}

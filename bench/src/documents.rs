//! The documents that the rows store: small records, hot records and product pages of a shop.
//!
//! Text is drawn from a vocabulary with few frequent and many rare words, so that it compresses as
//! prose does.

use std::sync::LazyLock;

use crate::bson::Doc;
use crate::message::{Random, oid};

const WORDS: &str = "the and of to a in for with is on by from this that are or as at it your our \
 light steel water home table glass cotton leather wooden garden kitchen travel winter summer classic modern compact \
 durable portable soft warm cool quick easy clean fresh bright dark natural organic recycled handmade premium \
 quality design finish surface handle cover frame base storage space weight size colour length width height \
 suitable includes features comes made designed keeps holds fits works offers protects provides resists allows \
 every day family children outdoor office kitchenware furniture lighting textile bedding cookware cutlery ceramic \
 stainless brushed polished matte oiled washed woven knitted padded insulated waterproof breathable adjustable \
 removable foldable stackable dishwasher machine hand wash dry store indoors temperature degrees litres grams \
 centimetres hours minutes years guarantee delivery return package instructions screws tools assembly required \
 battery charger cable adapter plug switch sensor motor filter cartridge refill replacement spare part model series";

/// Rare words are made of these: a vocabulary of several thousand.
const SYLLABLES: [&str; 24] = [
    "ka", "ren", "to", "vel", "mi", "sor", "ban", "du", "lin", "fer", "go", "pra", "ste", "nor",
    "hul", "wex", "ju", "cal", "bro", "tin", "ep", "os", "ax", "yl",
];

/// Prose of about `length` bytes.
pub(crate) fn prose(random: &mut Random, words: &[&str], length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        if !text.is_empty() {
            text.push(' ');
        }
        match random.below(10) {
            // A frequent word: the square makes the first ones most frequent.
            0..8 => {
                let place = random.below(words.len()) * random.below(words.len()) / words.len();
                text.push_str(words[place]);
            }
            8 => (0..2 + random.below(2))
                .for_each(|_| text.push_str(SYLLABLES[random.below(SYLLABLES.len())])),
            _ => text.push_str(&random.below(2_000).to_string()),
        }
    }
    text.truncate(length);
    text
}

/// Returns prose of `length` bytes out of a text that is generated once: for documents that are
/// generated while time is measured.
pub(crate) fn passage(random: &mut Random, length: usize) -> &'static str {
    const BOOK_BYTES: usize = 1 << 20;
    static BOOK: LazyLock<String> =
        LazyLock::new(|| prose(&mut Random::new(1_848), words(), BOOK_BYTES));
    let from = random.below(BOOK_BYTES - length);
    &BOOK[from..from + length]
}

/// The vocabulary's plain words, the frequent ones first.
pub(crate) fn words() -> &'static [&'static str] {
    static SPLIT: LazyLock<Vec<&str>> = LazyLock::new(|| WORDS.split_whitespace().collect());
    &SPLIT
}

/// A record of about 300 bytes, found by `_id`.
pub(crate) fn record(number: u64) -> Vec<u8> {
    let mut random = Random::new(number + 1);
    let text = prose(&mut random, words(), 120);
    Doc::new()
        .oid("_id", oid(number))
        .str("name", &format!("record {number}"))
        .str("email", &format!("user{number}@example.com"))
        .int("visits", random.below(10_000) as i32)
        .date("since", 1_600_000_000_000 + random.below(100_000_000) as i64 * 1000)
        .bool("active", random.below(2) == 0)
        .double("score", random.below(100_000) as f64 / 7.0)
        .str("note", &text)
        .finish()
}

/// The fields that the update rows set: fifteen strings.
pub(crate) const HOT_FIELDS: [&str; 15] = [
    "status",
    "owner",
    "stage",
    "channel",
    "region",
    "priority",
    "carrier",
    "tracking",
    "warehouse",
    "shelf",
    "batch",
    "label",
    "reviewer",
    "comment",
    "checksum",
];

/// The unique key of a hot record, always eight bytes.
pub(crate) fn code(number: usize) -> String {
    format!("P{number:07}")
}

/// Returns a record that is updated continuously: 15 strings, a few other fields, about 1 KB.
pub(crate) fn hot(number: usize) -> Vec<u8> {
    hot_from(Doc::new().oid("_id", oid(number as u64)), number).finish()
}

/// Adds the same fields after an existing `_id`.
pub(crate) fn hot_from(doc: Doc, number: usize) -> Doc {
    let mut random = Random::new(number as u64 + 1);
    let mut doc = doc.str("code", &code(number));
    for field in HOT_FIELDS {
        doc = doc.str(field, &prose(&mut random, words(), 24));
    }
    doc.int("quantity", 5)
        .date("created", 1_700_000_000_000)
        .str("text", &prose(&mut random, words(), 300))
}

/// An order with three fields worth an index, about 350 bytes.
pub(crate) fn order() -> Doc {
    let mut random = Random::new(77);
    Doc::new()
        .oid("_id", [0xEE; 12])
        .str("customer", "CCCCCCCC")
        .date("created", 0x0DDD_DDDD_DDDD_DDDD)
        .str("status", "open")
        .double("total", f64::from_le_bytes([0xEF; 8]))
        .doc(
            "address",
            Doc::new().str("street", "Harbour Road 12").str("city", "Oldtown").str("zip", "12345"),
        )
        .str("note", &prose(&mut random, words(), 140))
}

/// A product page: 41 fields, about 2.6 KB.
pub(crate) fn product(number: u64) -> Vec<u8> {
    product_from(Doc::new().oid("_id", oid(number)), number).finish()
}

/// Adds the same fields after the existing ones.
pub(crate) fn product_from(doc: Doc, number: u64) -> Doc {
    let words = words();
    let mut random = Random::new(number + 1_000_003);
    let random = &mut random;
    let pick = |random: &mut Random, list: &[&'static str]| list[random.below(list.len())];
    let brands =
        ["Norvel", "Kastin", "Brolin & Sons", "Hultex", "Prado Home", "Wexler", "Julin", "Calbro"];
    let colours = ["black", "white", "oak", "walnut", "sand", "forest green", "navy", "terracotta"];
    let categories =
        ["kitchen", "garden", "lighting", "furniture", "textile", "travel", "office", "children"];
    let price = random.below(90_000) as f64 / 100.0 + 1.0;
    let mut doc = doc
        .str("sku", &format!("SKU-{number:08}"))
        .str("ean", &format!("40{:011}", random.next() % 100_000_000_000))
        .str("name", &prose(random, words, 48))
        .str("brand", pick(random, &brands))
        .str("category", pick(random, &categories))
        .double("price", price)
        .double("priceBefore", price * 1.25)
        .str("currency", "EUR")
        .int("stock", random.below(500) as i32)
        .int("sold", random.below(20_000) as i32)
        .double("rating", random.below(50) as f64 / 10.0)
        .int("reviews", random.below(900) as i32)
        .bool("active", random.below(10) > 0)
        .bool("giftWrap", random.below(2) == 0)
        .date("created", 1_550_000_000_000 + random.below(150_000_000) as i64 * 1000)
        .date("updated", 1_700_000_000_000 + random.below(20_000_000) as i64 * 1000)
        .strings(
            "tags",
            &[pick(random, words), pick(random, words), pick(random, words), pick(random, words)],
        )
        .str("colour", pick(random, &colours))
        .str("material", pick(random, words))
        .int("weightGrams", random.below(30_000) as i32)
        .doc(
            "size",
            Doc::new()
                .int("length", random.below(2_000) as i32)
                .int("width", random.below(2_000) as i32)
                .int("height", random.below(2_000) as i32),
        )
        .str("summary", &prose(random, words, 140))
        .str("description", &prose(random, words, 720))
        .str("care", &prose(random, words, 120))
        .str("delivery", &prose(random, words, 90))
        .str("supplier", &format!("supplier {}", random.below(300)))
        .str("supplierSku", &format!("{:010x}", random.next() & 0xFF_FFFF_FFFF))
        .str("origin", pick(random, &["DE", "FR", "PL", "SE", "PT", "IT"]))
        .str("taxClass", "standard");
    for place in 0..3 {
        doc = doc.str(
            &format!("image{place}"),
            &format!("https://img.example.com/{:016x}/{place}.webp", random.next()),
        );
    }
    for place in 0..8 {
        doc = doc.str(&format!("attribute{place}"), &prose(random, words, 30 + 4 * place));
    }
    let warehouses = (0..2)
        .map(|place| {
            Doc::new()
                .str("warehouse", pick(random, &["north", "south", "east"]))
                .int("shelf", place)
                .int("pieces", random.below(90) as i32)
        })
        .collect();
    doc.array("stockAt", warehouses)
}

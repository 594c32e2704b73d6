//! Values and documents that cover the edge cases of every type.
//!
//! A [`Maker`] generates everything at random. It knows the documents of a case, so that half of
//! the values in a filter or an update exist.

use marula_bson::{Binary, Decimal128, ObjectId, Value};

use crate::random::Random;
use crate::tree::{Tree, tree};

/// Names of fields at the top of documents.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "x"];
/// Names of fields in subdocuments; numbers are names here and indexes in arrays.
const INNER_NAMES: [&str; 6] = ["a", "b", "c", "x", "0", "1"];

/// Names that few applications give to fields.
const ODD_NAMES: [&str; 14] = [
    "",
    "$a",
    "00",
    "-1",
    "é",
    "a.b",
    " ",
    "_id",
    "2147483648",
    "$",
    "$id",
    ".",
    "a.",
    "99999999999",
];

const INTS: [i32; 16] = [0, 1, -1, 2, 3, 4, 5, 7, -3, 10, 64, 100, 1000, -100, i32::MAX, i32::MIN];
const LONGS: [i64; 19] = [
    0,
    1,
    -1,
    2,
    3,
    5,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    i32::MIN as i64 - 1,
    1 << 53,
    (1 << 53) + 1,
    1_577_836_800_000,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
    u32::MAX as i64,
    1 << 62,
    -(1 << 53) - 1,
];
const DOUBLES: [f64; 36] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    3.0,
    0.5,
    1.5,
    2.5,
    -1.5,
    0.1,
    0.3,
    -0.7,
    1e10,
    123.456,
    2_147_483_647.0,
    2_147_483_648.0,
    -2_147_483_649.0,
    9_007_199_254_740_992.0,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    1e19,
    1e100,
    1e300,
    -1e308,
    f64::MAX,
    f64::MIN_POSITIVE,
    -5e-324,
    2_147_483_647.5,
    4_294_967_296.0,
    9_223_372_036_854_774_784.0,
    -9_223_372_036_854_777_856.0,
    5e-324,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const DECIMALS: [&str; 34] = [
    "0",
    "-0",
    "0.00",
    "0E+3",
    "1",
    "1.0",
    "-1",
    "1.50",
    "2.5",
    "-2.5",
    "3",
    "0.1",
    "10",
    "1E+2",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "123456789012345678901234567890.1234",
    "9.999999999999999999999999999999999E+6144",
    "1E-6176",
    "1E+20",
    "-0E-6176",
    "0E+6111",
    "-9.999999999999999999999999999999999E+6144",
    "1.000000000000000000000000000000001",
    "0.1000000000000000055511151231257827",
    "9007199254740993",
    "-9223372036854775808",
    "-2147483648.5",
    "4.9E-324",
    "1.7976931348623158E+308",
    "NaN",
    "Infinity",
    "-Infinity",
];
const STRINGS: [&str; 34] = [
    "",
    "a",
    "b",
    "c",
    "A",
    "ab",
    "abc",
    "aB",
    "Abc",
    "z",
    "a b",
    "a,b,c",
    "  x ",
    "é",
    "e\u{301}",
    "ß",
    "日本",
    "😀a",
    "a.b",
    "$a",
    "$$ROOT",
    "0",
    "1",
    "12",
    "-7",
    "1.5",
    "1e3",
    "true",
    "2020-01-01",
    "2020-02-29T12:34:56.789Z",
    "2021-03-04T05:06:07+02:00",
    "5ca4bbcea2dd94ee58162a68",
    "a\0b",
    "a\nb",
];
/// Strings with white space of Unicode: collations, `$trim` and texts of numbers count other
/// characters as such.
const SPACED: [&str; 16] = [
    "\u{a0}",
    "a\u{a0}b",
    "\u{a0}a",
    "a\u{a0}",
    "a b",
    "a\tb",
    "a\u{85}b",
    "a\u{1680}b",
    "a\u{2003}b",
    "a\u{2028}b",
    "a\u{202f}b",
    "a\u{3000}",
    "\u{feff}a",
    "a\u{200b}b",
    "a\u{180e}b",
    "a\u{0b}b",
];

/// Strings that are numbers, or nearly; the last one is none.
pub(crate) const NUMERIC: [&str; 48] = [
    "+5",
    "-5",
    "+-5",
    " 12",
    "12 ",
    "\t12",
    "\u{a0}12",
    "0x1F",
    "0X1f",
    "+0xff",
    "-0x10",
    "0x",
    "0x1p3",
    "0b1",
    "1e3",
    "1E+3",
    "1e-2",
    "1e",
    "1_000",
    "1,000",
    "1.",
    ".5",
    "+.5e1",
    ".",
    "-0",
    "-0.0",
    "00012",
    "1.5",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "1e-400",
    "1e7000",
    "inf",
    "+inf",
    "-Infinity",
    "nan",
    "NaN",
    "1L",
    "1f",
    "12\0",
    "\u{ff11}",
    "0.1000000000000000055511151231257827021181583404541015625",
    "five",
];
const DATES: [i64; 14] = [
    0,
    1,
    -1,
    1_577_836_800_000,
    1_582_979_696_789,
    1_604_188_799_999,
    -62_135_596_800_000,
    -62_167_219_200_000,
    253_402_300_799_999,
    253_402_300_800_000,
    1_000_000_000_000,
    951_782_400_000,
    i64::MAX,
    i64::MIN,
];

/// Object ids of cases consist of one byte twelve times; any other in a reply was made by a server.
pub(crate) fn is_of_case(id: ObjectId) -> bool {
    let bytes = id.bytes();
    bytes.iter().all(|byte| *byte == bytes[0])
        || bytes == *b"\x5c\xa4\xbb\xce\xa2\xdd\x94\xee\x58\x16\x2a\x68"
}

/// Generates values, documents and commands.
pub(crate) struct Maker {
    pub(crate) random: Random,
    /// The content of the documents: dotted paths and their values.
    pub(crate) seen: Vec<(String, Tree)>,
    /// Variables of expressions that are in scope, without their `$$`.
    pub(crate) variables: Vec<&'static str>,
    /// Whether strings and collations of the round are mostly about white space.
    pub(crate) is_spaced: bool,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Maker {
        let mut random = Random::new(seed);
        let is_spaced = random.percent(8);
        Maker { random, seen: Vec::new(), variables: Vec::new(), is_spaced }
    }

    /// Returns `count` documents, with `_id`s from 1 on, and records their content.
    pub(crate) fn documents(&mut self, count: usize) -> Vec<Tree> {
        self.seen.clear();
        let documents: Vec<Tree> = (1..=count).map(|number| self.document(number)).collect();
        let mut seen = Vec::new();
        documents.iter().for_each(|document| remember("", document, &mut seen));
        self.seen = seen;
        documents
    }

    fn document(&mut self, number: usize) -> Tree {
        let mut fields = vec![("_id".to_owned(), Tree::of(number as i32))];
        // Some documents have a plain form, so that operators find the types they expect.
        let plain = self.random.percent(30);
        for name in NAMES {
            if self.random.percent(55) {
                let value = if plain { self.plain(name) } else { self.value(3) };
                fields.push((name.to_owned(), value));
            }
        }
        if self.random.percent(3) {
            let name = *self.random.pick(&ODD_NAMES);
            let value = self.value(2);
            fields.push((name.to_owned(), value));
        }
        if self.random.percent(15) {
            let by = self.random.below(fields.len());
            fields[1..].rotate_left(by);
        }
        Tree::Doc(fields)
    }

    /// Returns a value of the type that an application would store under the name.
    fn plain(&mut self, name: &str) -> Tree {
        match name {
            "a" => Tree::of(*self.random.pick(&INTS[..10])),
            "b" => Tree::of(*self.random.pick(&STRINGS[..12])),
            "c" => {
                let count = self.random.below(5);
                Tree::Array((0..count).map(|_| Tree::of(*self.random.pick(&INTS[..8]))).collect())
            }
            "d" => Tree::of(Value::DateTime(*self.random.pick(&DATES[3..6]))),
            _ => {
                let count = self.random.below(4);
                let item = |maker: &mut Maker| {
                    tree! { "a" => maker.random.below(4) as i32, "b" => *maker.random.pick(&STRINGS[1..7]) }
                };
                Tree::Array((0..count).map(|_| item(self)).collect())
            }
        }
    }

    /// Returns any value, nested at most `depth` deep.
    pub(crate) fn value(&mut self, depth: usize) -> Tree {
        match self.random.below(100) {
            0..64 => self.scalar(),
            _ if depth == 0 => self.scalar(),
            64..84 => {
                let count = self.random.below(5);
                if self.random.percent(5) {
                    return Tree::Array((0..count).map(|_| self.extreme()).collect());
                }
                if self.random.percent(6) {
                    return self.nested(count);
                }
                let alike = self.random.percent(40);
                let first = self.value(depth - 1);
                let item = |maker: &mut Maker| match (&first, alike) {
                    (Tree::Leaf(leaf), true) if leaf.kind().is_number() => maker.number(),
                    (Tree::Leaf(leaf), true) if leaf.get().as_str().is_some() => maker.string(),
                    (Tree::Doc(_), true) => maker.inner(depth - 1),
                    _ => maker.value(depth - 1),
                };
                Tree::Array((0..count).map(|_| item(self)).collect())
            }
            _ => self.inner(depth - 1),
        }
    }

    /// An array in an array, as deep as five, with another element at one level.
    fn nested(&mut self, depth: usize) -> Tree {
        let mut value = if self.random.percent(60) { self.scalar() } else { self.inner(0) };
        for _ in 0..=depth {
            let mut items = vec![value];
            if self.random.percent(25) {
                let other = self.scalar();
                items.insert(self.random.below(2), other);
            }
            value = Tree::Array(items);
        }
        value
    }

    /// Returns the least or the greatest value, or an array of it: bounds of an index end at them.
    pub(crate) fn extreme(&mut self) -> Tree {
        let end = Tree::of(if self.random.percent(50) { Value::MinKey } else { Value::MaxKey });
        if self.random.percent(20) { Tree::Array(vec![end]) } else { end }
    }

    /// Returns a subdocument.
    pub(crate) fn inner(&mut self, depth: usize) -> Tree {
        if self.random.percent(3) {
            let mut reference = tree! { "$ref" => "other", "$id" => self.value(depth) };
            if let (Tree::Doc(fields), true) = (&mut reference, self.random.percent(30)) {
                fields.push(("$db".to_owned(), Tree::of("d")));
            }
            return reference;
        }
        let mut fields: Vec<(String, Tree)> = Vec::new();
        for _ in 0..self.random.below(4) {
            let name = self.inner_name();
            if fields.iter().all(|(field, _)| field != name) {
                let value = self.value(depth);
                fields.push((name.to_owned(), value));
            }
        }
        Tree::Doc(fields)
    }

    pub(crate) fn number(&mut self) -> Tree {
        match self.random.below(10) {
            0..4 => Tree::of(*self.random.pick(&INTS)),
            4..6 => Tree::of(*self.random.pick(&LONGS)),
            6..9 => Tree::of(*self.random.pick(&DOUBLES)),
            _ => self.decimal(),
        }
    }

    /// A small whole number, of any type of numbers.
    pub(crate) fn small(&mut self) -> Tree {
        let number = self.random.below(9) as i32 - 3;
        match self.random.below(20) {
            0 => Tree::of(i64::from(number)),
            1 => Tree::of(f64::from(number)),
            2 => Tree::of(Decimal128::from_i64(i64::from(number))),
            _ => Tree::of(number),
        }
    }

    fn decimal(&mut self) -> Tree {
        let text = self.random.pick(&DECIMALS);
        Tree::of(text.parse::<Decimal128>().expect("the table holds decimals"))
    }

    pub(crate) fn string(&mut self) -> Tree {
        match self.random.below(20) {
            0 => Tree::of(*self.random.pick(&SPACED)),
            2..12 if self.is_spaced => Tree::of(*self.random.pick(&SPACED)),
            1 => Tree::of(*self.random.pick(&NUMERIC)),
            _ => Tree::of(*self.random.pick(&STRINGS)),
        }
    }

    pub(crate) fn date(&mut self) -> Tree {
        Tree::of(Value::DateTime(*self.random.pick(&DATES)))
    }

    pub(crate) fn object_id(&mut self) -> Tree {
        Tree::of(ObjectId::from_bytes([*self.random.pick(&[0, 1, 2, 0xFF]); 12]))
    }

    pub(crate) fn regex(&mut self) -> Tree {
        let pattern =
            *self.random.pick(&["a", "^a", "b$", "^$", "A", "a.c", "[0-9]+", "^ab?", "é", "."]);
        let options = *self.random.pick(&["", "", "i", "s", "m", "im"]);
        Tree::of(Value::Regex { pattern: pattern.into(), options: options.into() })
    }

    /// A value that is neither document nor array.
    pub(crate) fn scalar(&mut self) -> Tree {
        match self.random.below(100) {
            0..45 => self.number(),
            45..68 => self.string(),
            68..73 => Tree::of(self.random.percent(50)),
            73..79 => Tree::of(Value::Null),
            79..84 => self.date(),
            84..87 => self.object_id(),
            _ => self.rare(),
        }
    }

    fn rare(&mut self) -> Tree {
        let id = ObjectId::from_bytes([3; 12]);
        let scope = tree! { "x" => 1 }.to_doc();
        Tree::of(match self.random.below(16) {
            0..2 => Value::Undefined,
            2..4 => Value::MinKey,
            4..6 => Value::MaxKey,
            6 => Value::Timestamp((1 << 32) | 1),
            7 => Value::Timestamp(u64::MAX),
            8..10 => return self.regex(),
            10 => Value::Symbol("a".into()),
            11 => Value::Code("a".into()),
            12 => Value::CodeWithScope { code: "a".into(), scope: scope.as_doc() },
            13 => Value::DbPointer { ns: "a.b".into(), id },
            _ => {
                let contents: [(u8, &[u8]); 7] = [
                    (0, b""),
                    (0, b"a"),
                    (0, b"\x05\x80"),
                    (2, b"\x01\0\0\0a"),
                    (4, b"0123456789abcdef"),
                    (5, b"0123456789abcdef"),
                    (128, b"a"),
                ];
                let (subtype, bytes) = *self.random.pick(&contents);
                return Tree::of(Binary { subtype, bytes });
            }
        })
    }

    /// Returns a path and a value, usually existing ones.
    pub(crate) fn place(&mut self) -> (String, Tree) {
        if !self.seen.is_empty() && self.random.percent(60) {
            let at = self.random.below(self.seen.len());
            let (path, value) = self.seen[at].clone();
            let value = if self.random.percent(70) { value } else { self.value(2) };
            return (path, value);
        }
        (self.path(), self.value(2))
    }

    /// Returns a path near `path` at which an update creates elements or fields: the position `end`
    /// of an array or a later one, and often a field of the new element.
    pub(crate) fn beyond(&mut self, path: &str, end: usize) -> String {
        let position = end + self.random.below(3);
        if self.random.percent(50) {
            return format!("{path}.{position}");
        }
        format!("{path}.{position}.{}", self.random.pick::<&str>(&INNER_NAMES))
    }

    /// Returns a dotted path, which may exist or not.
    pub(crate) fn path(&mut self) -> String {
        if !self.seen.is_empty() && self.random.percent(50) {
            let at = self.random.below(self.seen.len());
            return self.seen[at].0.clone();
        }
        let mut path = (*self.random.pick(&NAMES)).to_owned();
        if self.random.below(400) == 0 {
            // Near one of the bounds: of a filter, of a path, of a field path of an expression.
            let count = *self.random.pick(&[98, 100, 179, 180, 181, 198, 199, 200, 201, 254]);
            path.push_str(&".a".repeat(count - 1));
            return path;
        }
        while self.random.percent(35) {
            path.push('.');
            path.push_str(self.inner_name());
        }
        path
    }

    fn inner_name(&mut self) -> &'static str {
        if self.random.percent(2) {
            return self.random.pick::<&str>(&ODD_NAMES);
        }
        self.random.pick::<&str>(&INNER_NAMES)
    }
}

/// Lists the values by path: with the positions of arrays in the path, and without them.
fn remember(at: &str, value: &Tree, seen: &mut Vec<(String, Tree)>) {
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    if !at.is_empty() && at != "_id" {
        seen.push((at.to_owned(), value.clone()));
    }
    for (name, value) in value.fields() {
        remember(&below(name), value, seen);
    }
    for (index, item) in value.items().iter().enumerate() {
        if index % 2 == 0 {
            remember(&below(&index.to_string()), item, seen);
        } else {
            remember(at, item, seen);
        }
    }
}

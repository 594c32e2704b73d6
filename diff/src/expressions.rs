//! Expressions, from a table of the operators' argument and result types.
//!
//! A requested type is a *wish*: `num`, `int` (a small whole number), `str`, `arr`, `nums` (an
//! array of numbers), `date`, `bool`, `obj`, `any`, or one of the constants (`unit`, `zone`,
//! `format`, `type`, `pattern`, `day`, `numeric`, `direction`). Wishes are fulfilled only most of
//! the time: an operator must handle other types too.

use marula_bson::Value;

use crate::tree::{Tree, tree};
use crate::values::{Maker, NUMERIC};

/// Operators by result type: name, result, argument. An argument is one wish, `[wish …]` for a list
/// of exactly these, `[wish*]` for a list of any length, or `{name:wish …}` in which `name?` is
/// optional.
const OPERATORS: &[(&str, &str, &str)] = &[
    ("$abs", "num", "num"),
    ("$add", "num", "[num*]"),
    ("$add", "date", "[date int]"),
    ("$ceil", "num", "num"),
    ("$divide", "num", "[num num]"),
    ("$floor", "num", "num"),
    ("$ln", "num", "num"),
    ("$log10", "num", "num"),
    ("$log", "num", "[num int]"),
    ("$exp", "num", "int"),
    ("$mod", "num", "[num int]"),
    ("$multiply", "num", "[num*]"),
    ("$pow", "num", "[num int]"),
    ("$round", "num", "[num int]"),
    ("$round", "num", "num"),
    ("$sqrt", "num", "num"),
    ("$subtract", "num", "[num num]"),
    ("$subtract", "num", "[date date]"),
    ("$subtract", "date", "[date int]"),
    ("$trunc", "num", "[num int]"),
    ("$trunc", "num", "num"),
    ("$sin", "num", "num"),
    ("$cos", "num", "num"),
    ("$tan", "num", "num"),
    ("$asin", "num", "num"),
    ("$acos", "num", "num"),
    ("$atan", "num", "num"),
    ("$atan2", "num", "[num num]"),
    ("$sinh", "num", "num"),
    ("$cosh", "num", "num"),
    ("$tanh", "num", "num"),
    ("$asinh", "num", "num"),
    ("$acosh", "num", "num"),
    ("$atanh", "num", "num"),
    ("$degreesToRadians", "num", "num"),
    ("$radiansToDegrees", "num", "num"),
    ("$binarySize", "num", "str"),
    ("$bsonSize", "num", "obj"),
    ("$arrayElemAt", "any", "[arr int]"),
    ("$first", "any", "arr"),
    ("$last", "any", "arr"),
    ("$arrayToObject", "obj", "pairs"),
    ("$objectToArray", "arr", "obj"),
    ("$concatArrays", "arr", "[arr*]"),
    ("$in", "bool", "[any arr]"),
    ("$indexOfArray", "num", "[arr any]"),
    ("$indexOfArray", "num", "[arr any int]"),
    ("$indexOfArray", "num", "[arr any int int]"),
    ("$isArray", "bool", "any"),
    ("$range", "arr", "[int int]"),
    ("$range", "arr", "[int int int]"),
    ("$reverseArray", "arr", "arr"),
    ("$size", "num", "arr"),
    ("$slice", "arr", "[arr int]"),
    ("$slice", "arr", "[arr int int]"),
    ("$sortArray", "arr", "{input:arr sortBy:direction}"),
    ("$zip", "arr", "{inputs:arrays}"),
    ("$zip", "arr", "{inputs:arrays useLongestLength:flag defaults?:arr}"),
    ("$firstN", "arr", "{n:int input:arr}"),
    ("$lastN", "arr", "{n:int input:arr}"),
    ("$maxN", "arr", "{n:int input:arr}"),
    ("$minN", "arr", "{n:int input:arr}"),
    ("$sum", "num", "nums"),
    ("$sum", "num", "[num*]"),
    ("$avg", "num", "nums"),
    ("$avg", "num", "[num*]"),
    ("$max", "any", "arr"),
    ("$max", "any", "[any*]"),
    ("$min", "any", "arr"),
    ("$min", "any", "[any*]"),
    ("$stdDevPop", "num", "nums"),
    ("$stdDevSamp", "num", "[num*]"),
    ("$allElementsTrue", "bool", "[arr]"),
    ("$anyElementTrue", "bool", "[arr]"),
    ("$setDifference", "arr", "[arr arr]"),
    ("$setEquals", "bool", "[arr arr]"),
    ("$setIntersection", "arr", "[arr arr]"),
    ("$setIsSubset", "bool", "[arr arr]"),
    ("$setUnion", "arr", "[arr arr]"),
    ("$and", "bool", "[any*]"),
    ("$or", "bool", "[any*]"),
    ("$not", "bool", "[any]"),
    ("$eq", "bool", "[any any]"),
    ("$ne", "bool", "[any any]"),
    ("$gt", "bool", "[any any]"),
    ("$gte", "bool", "[any any]"),
    ("$lt", "bool", "[any any]"),
    ("$lte", "bool", "[any any]"),
    ("$cmp", "num", "[any any]"),
    ("$cond", "any", "[bool any any]"),
    ("$cond", "any", "{if:bool then:any else:any}"),
    ("$ifNull", "any", "[any any]"),
    ("$ifNull", "any", "[any any any]"),
    ("$concat", "str", "[str*]"),
    ("$indexOfBytes", "num", "[str str]"),
    ("$indexOfCP", "num", "[str str int]"),
    ("$indexOfCP", "num", "[str str int int]"),
    ("$ltrim", "str", "{input:str}"),
    ("$rtrim", "str", "{input:str chars:str}"),
    ("$trim", "str", "{input:str chars?:str}"),
    ("$split", "arr", "[str str]"),
    ("$strLenBytes", "num", "str"),
    ("$strLenCP", "num", "str"),
    ("$strcasecmp", "num", "[str str]"),
    ("$substrBytes", "str", "[str int int]"),
    ("$substrCP", "str", "[str int int]"),
    ("$substr", "str", "[str int int]"),
    ("$toLower", "str", "str"),
    ("$toUpper", "str", "str"),
    ("$replaceOne", "str", "{input:str find:str replacement:str}"),
    ("$replaceAll", "str", "{input:str find:str replacement:str}"),
    ("$regexMatch", "bool", "{input:str regex:pattern}"),
    ("$regexFind", "obj", "{input:str regex:pattern options?:options}"),
    ("$regexFindAll", "arr", "{input:str regex:pattern}"),
    ("$toBool", "bool", "any"),
    ("$toInt", "num", "any"),
    ("$toInt", "num", "num"),
    ("$toLong", "num", "any"),
    ("$toLong", "num", "num"),
    ("$toDouble", "num", "any"),
    ("$toDecimal", "num", "any"),
    ("$toDecimal", "num", "num"),
    ("$toDate", "date", "any"),
    ("$toDate", "date", "num"),
    ("$toString", "str", "any"),
    ("$toString", "str", "num"),
    ("$toString", "str", "date"),
    ("$toObjectId", "any", "str"),
    ("$convert", "any", "{input:any to:type onError?:any onNull?:any}"),
    ("$convert", "num", "{input:num to:type onError?:any}"),
    ("$toInt", "num", "numeric"),
    ("$toLong", "num", "numeric"),
    ("$toDouble", "num", "numeric"),
    ("$toDecimal", "num", "numeric"),
    ("$convert", "any", "{input:numeric to:type onError?:any}"),
    ("$isNumber", "bool", "any"),
    ("$type", "str", "any"),
    ("$year", "num", "date"),
    ("$month", "num", "date"),
    ("$dayOfMonth", "num", "date"),
    ("$dayOfWeek", "num", "date"),
    ("$dayOfYear", "num", "date"),
    ("$hour", "num", "{date:date timezone?:zone}"),
    ("$minute", "num", "{date:date timezone:zone}"),
    ("$second", "num", "date"),
    ("$millisecond", "num", "date"),
    ("$week", "num", "date"),
    ("$isoWeek", "num", "date"),
    ("$isoWeekYear", "num", "date"),
    ("$isoDayOfWeek", "num", "date"),
    ("$dateToParts", "obj", "{date:date timezone?:zone iso8601?:flag}"),
    ("$dateFromParts", "date", "{year:year month?:int day?:int hour?:num timezone?:zone}"),
    ("$dateFromParts", "date", "{isoWeekYear:year isoWeek?:int isoDayOfWeek?:int}"),
    ("$dateToString", "str", "{date:date format?:format timezone?:zone onNull?:any}"),
    ("$dateFromString", "date", "{dateString:str timezone?:zone onError?:any onNull?:any}"),
    ("$dateFromString", "date", "{dateString:dated timezone?:zone onError?:any}"),
    ("$dateFromString", "date", "{dateString:dated format:format timezone?:zone onError?:any}"),
    ("$dateToString", "str", "{date:date timezone?:zone}"),
    (
        "$dateFromParts",
        "date",
        "{year:year month?:int day?:int hour?:int minute?:num second?:int millisecond?:num timezone?:zone}",
    ),
    ("$toDate", "date", "dated"),
    ("$convert", "date", "{input:dated to:type onError?:any}"),
    ("$setUnion", "arr", "[arr*]"),
    ("$setIntersection", "arr", "[arr*]"),
    ("$setEquals", "bool", "[arr arr arr]"),
    ("$regexMatch", "bool", "{input:str regex:str options?:options}"),
    ("$regexFindAll", "arr", "{input:str regex:str options?:options}"),
    ("$indexOfBytes", "num", "[str str int int]"),
    ("$ltrim", "str", "{input:str chars?:str}"),
    ("$concatArrays", "arr", "[arr arr arr]"),
    ("$literal", "any", "any"),
    ("$toObjectId", "any", "any"),
    ("$ifNull", "any", "[any]"),
    ("$max", "num", "nums"),
    ("$min", "num", "[num num num]"),
    ("$stdDevPop", "num", "[num*]"),
    ("$stdDevSamp", "num", "nums"),
    ("$dateAdd", "date", "{startDate:date unit:unit amount:int timezone?:zone}"),
    ("$dateSubtract", "date", "{startDate:date unit:unit amount:int}"),
    ("$dateDiff", "num", "{startDate:date endDate:date unit:unit timezone?:zone startOfWeek?:day}"),
    ("$dateTrunc", "date", "{date:date unit:unit binSize?:int timezone?:zone startOfWeek?:day}"),
    ("$tsSecond", "num", "any"),
    ("$tsIncrement", "num", "any"),
    ("$getField", "any", "{field:name input:obj}"),
    ("$getField", "any", "name"),
    ("$setField", "obj", "{field:name input:obj value:any}"),
    ("$unsetField", "obj", "{field:name input:obj}"),
    ("$mergeObjects", "obj", "[obj*]"),
    ("$mergeObjects", "obj", "obj"),
];

const UNITS: [&str; 11] = [
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "Day",
    "x",
];
const ZONES: [&str; 9] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "+05:30",
    "-0330",
    "+01",
    "Asia/Kathmandu",
    "GMT",
    "Nowhere/City",
];
const FORMATS: [&str; 8] =
    ["%Y-%m-%d", "%H:%M:%S.%L", "%j %u %w %U %V %G", "%z %Z", "%d/%m/%Y %%", "%", "%q", "x"];
const TARGETS: [&str; 14] = [
    "double", "string", "objectId", "bool", "date", "int", "long", "decimal", "int", "array",
    "null", "regex", "missing", "x",
];
const DATED: [&str; 26] = [
    "2020-02-29",
    "2021-03-04T05:06:07",
    "2021-03-04T05:06:07.8Z",
    "2021-03-04T05:06:07.123456+02:30",
    "2021-03-04 05:06",
    "20210304",
    "20210304T050607",
    "2021-W09-4",
    "2021-063",
    "04/03/2021 %",
    "Mar 4 2021",
    "4 March 2021 05:06:07 EST",
    "2021-02-30",
    "2021-13-01",
    "05:06",
    "1969-12-31T23:59:59.999Z",
    "Mon, 15 Aug 2005 15:52:01 +0000",
    "Tue Mar  3 05:06:07 2020",
    "05/10/2020 11:27:26 PM",
    "10/Oct/2000:13:55:36 -0700",
    "@1234567890.5",
    "2020:02:29 11:22:33",
    "2020-02-29 +1 week 2 days ago",
    "last friday of feb 2020 noon",
    "29.02.20 1122",
    "yesterday noon x",
];
const DAYS: [&str; 6] = ["mon", "monday", "Sun", "fri", "sunday", "x"];

impl Maker {
    /// Returns an expression that should have the requested type, nested at most `depth` deep.
    pub(crate) fn expression(&mut self, wish: &str, depth: usize) -> Tree {
        if let Some(constant) = self.constant(wish) {
            return constant;
        }
        let wish = if self.random.percent(8) { "any" } else { wish };
        match self.random.below(100) {
            _ if depth == 0 => self.atom(wish),
            0..38 => self.atom(wish),
            38..50 => self.scoped(wish, depth),
            50..54 => self.constructed(depth),
            _ => {
                let fitting: Vec<_> = OPERATORS
                    .iter()
                    .filter(|(_, gives, _)| {
                        wish == "any" || *gives == wish || (wish == "int" && *gives == "num")
                    })
                    .collect();
                match fitting.as_slice() {
                    [] => self.atom(wish),
                    fitting => {
                        let (name, _, argument) = **self.random.pick(fitting);
                        Tree::field(name, self.argument(argument, depth - 1))
                    }
                }
            }
        }
    }

    fn argument(&mut self, form: &str, depth: usize) -> Tree {
        if let Some(list) = form.strip_prefix('[').and_then(|form| form.strip_suffix(']')) {
            if let Some(wish) = list.strip_suffix('*') {
                let count = self.random.between(0, 3);
                return Tree::Array((0..count).map(|_| self.expression(wish, depth)).collect());
            }
            let mut items: Vec<Tree> =
                list.split(' ').map(|wish| self.expression(wish, depth)).collect();
            if self.random.percent(1) {
                items.pop();
            }
            return Tree::Array(items);
        }
        if let Some(named) = form.strip_prefix('{').and_then(|form| form.strip_suffix('}')) {
            let mut fields = Vec::new();
            for part in named.split(' ') {
                let (name, wish) = part.split_once(':').expect("the table says name:wish");
                let optional = name.ends_with('?');
                if self.random.percent(if optional { 40 } else { 99 }) {
                    let value = self.expression(wish, depth);
                    fields.push((name.trim_end_matches('?').to_owned(), value));
                }
            }
            if self.random.percent(1) {
                fields.push(("z".to_owned(), Tree::of(1)));
            }
            return Tree::Doc(fields);
        }
        self.expression(form, depth)
    }

    /// Wishes that a constant fulfils most of the time.
    fn constant(&mut self, wish: &str) -> Option<Tree> {
        let text = |maker: &mut Maker, of: &[&str]| {
            // The last entry of each table is invalid.
            let of = if maker.random.percent(95) { &of[..of.len() - 1] } else { of };
            Tree::of(*maker.random.pick(of))
        };
        Some(match wish {
            "unit" => text(self, &UNITS),
            "zone" => text(self, &ZONES),
            "format" => text(self, &FORMATS),
            "type" if self.random.percent(10) => self.small(),
            "type" => text(self, &TARGETS),
            "day" => text(self, &DAYS),
            "dated" => text(self, &DATED),
            "numeric" => text(self, &NUMERIC),
            "flag" => Tree::of(self.random.percent(70)),
            "options" => text(self, &["i", "", "m", "s", "z", "u", "xi"]),
            "name" => {
                let name = *self.random.pick(&["a", "b", "c", "a.b", "$a", "", "x"]);
                if name.starts_with('$') {
                    Tree::field("$literal", Tree::of(name))
                } else {
                    Tree::of(name)
                }
            }
            "year" => Tree::of(*self.random.pick(&[2020, 1969, 1, 9999, 2021, 0, 10_000])),
            "pattern" => self.regex(),
            "direction" if self.random.percent(60) => {
                Tree::of(if self.random.percent(50) { 1 } else { -1 })
            }
            "direction" => tree! { "a" => 1, "b" => -1 },
            "arrays" => {
                let count = self.random.between(1, 3);
                Tree::Array((0..count).map(|_| self.expression("arr", 1)).collect())
            }
            "pairs" => {
                let pair = |maker: &mut Maker| {
                    let (key, value) = (maker.string(), maker.expression("any", 0));
                    if maker.random.percent(50) {
                        Tree::Array(vec![Tree::field("$literal", key), value])
                    } else {
                        tree! { "k" => Tree::field("$literal", key), "v" => value }
                    }
                };
                let count = self.random.below(3);
                if self.random.percent(80) {
                    // A single argument that is an array needs a list around it.
                    Tree::Array(vec![Tree::Array((0..count).map(|_| pair(self)).collect())])
                } else {
                    tree! { "$objectToArray" => self.expression("obj", 1) }
                }
            }
            _ => return None,
        })
    }

    /// Returns a path, a variable or a constant.
    fn atom(&mut self, wish: &str) -> Tree {
        if !self.variables.is_empty() && self.random.percent(40) {
            let variable = *self.random.pick(&self.variables);
            let below = if self.random.percent(20) { ".a" } else { "" };
            return Tree::of(&format!("$${variable}{below}"));
        }
        if self.random.percent(60) {
            return self.reference(wish);
        }
        match wish {
            "num" => self.number(),
            "int" => self.small(),
            "str" => {
                let text = self.string();
                let is_path = text.text().is_some_and(|text| text.starts_with('$'));
                if is_path { Tree::field("$literal", text) } else { text }
            }
            "arr" | "nums" => {
                let count = self.random.below(4);
                let item = |maker: &mut Maker| {
                    if wish == "nums" { maker.number() } else { maker.literal() }
                };
                Tree::Array((0..count).map(|_| item(self)).collect())
            }
            "date" => self.date(),
            "bool" => Tree::of(self.random.percent(50)),
            "obj" => {
                let inner = self.inner(1);
                Tree::field("$literal", inner)
            }
            _ => self.literal(),
        }
    }

    /// Returns a constant, wrapped if it would be parsed as something else.
    fn literal(&mut self) -> Tree {
        let value = self.value(1);
        match &value {
            Tree::Leaf(leaf) if leaf.get().as_str().is_none_or(|text| !text.starts_with(b"$")) => {
                value
            }
            _ => Tree::field("$literal", value),
        }
    }

    /// Returns `$a.b`, a field with a value of the requested type if there is one.
    pub(crate) fn reference(&mut self, wish: &str) -> Tree {
        if self.random.percent(4) {
            return Tree::of(*self.random.pick(&[
                "$$ROOT",
                "$$CURRENT",
                "$$REMOVE",
                "$_id",
                "$nothing",
                "$a.$id",
                "$$CURRENT.b.$ref",
            ]));
        }
        if !self.seen.is_empty() && self.random.percent(75) {
            for _ in 0..8 {
                let at = self.random.below(self.seen.len());
                let (path, value) = &self.seen[at];
                let fits = match wish {
                    "num" | "int" => value.kind().is_number(),
                    "str" => matches!(value, Tree::Leaf(leaf) if leaf.get().as_str().is_some()),
                    "arr" | "nums" => matches!(value, Tree::Array(_)),
                    "date" => {
                        matches!(value, Tree::Leaf(leaf) if matches!(leaf.get(), Value::DateTime(_)))
                    }
                    "obj" => matches!(value, Tree::Doc(_)),
                    _ => true,
                };
                if fits {
                    return Tree::of(&format!("${path}"));
                }
            }
        }
        let path = self.path();
        Tree::of(&format!("${path}"))
    }

    /// Returns operators that bind variables or have branches.
    fn scoped(&mut self, wish: &str, depth: usize) -> Tree {
        let inner = depth - 1;
        match self.random.below(6) {
            0 if self.random.percent(30) => {
                let input = self.expression("arr", inner);
                let body = self.with(&["v"], |maker| maker.expression(wish, inner));
                tree! { "$map" => tree! { "input" => input, "as" => "v", "in" => body } }
            }
            0 => {
                let input = self.expression("arr", inner);
                let body = self.with(&["this"], |maker| maker.expression("any", inner));
                tree! { "$map" => tree! { "input" => input, "in" => body } }
            }
            1 => {
                let input = self.expression("arr", inner);
                let body = self.with(&["v"], |maker| maker.expression("bool", inner));
                let mut fields = tree! { "input" => input, "as" => "v", "cond" => body };
                if let (true, Tree::Doc(fields)) = (self.random.percent(20), &mut fields) {
                    let limit = self.expression("int", 0);
                    fields.push(("limit".to_owned(), limit));
                }
                tree! { "$filter" => fields }
            }
            2 => {
                let input = self.expression("arr", inner);
                let first = self.expression(wish, 0);
                let body = self.with(&["this", "value"], |maker| maker.expression(wish, inner));
                tree! { "$reduce" => tree! { "input" => input, "initialValue" => first, "in" => body } }
            }
            3 => {
                let bound = self.expression("any", inner);
                let body = self.with(&["v"], |maker| maker.expression(wish, inner));
                tree! { "$let" => tree! { "vars" => Tree::field("v", bound), "in" => body } }
            }
            4 => {
                let count = self.random.between(1, 2);
                let branches = (0..count)
                    .map(|_| {
                        tree! {
                            "case" => self.expression("bool", inner),
                            "then" => self.expression(wish, inner),
                        }
                    })
                    .collect();
                let mut fields = vec![("branches".to_owned(), Tree::Array(branches))];
                if self.random.percent(80) {
                    fields.push(("default".to_owned(), self.expression(wish, 0)));
                }
                tree! { "$switch" => Tree::Doc(fields) }
            }
            _ => tree! { "$cond" => Tree::Array(vec![
                self.expression("bool", inner),
                self.expression(wish, inner),
                self.expression(wish, inner),
            ]) },
        }
    }

    /// Returns a document or an array of expressions.
    fn constructed(&mut self, depth: usize) -> Tree {
        let count = self.random.between(0, 3);
        if self.random.percent(50) {
            return Tree::Array((0..count).map(|_| self.expression("any", depth - 1)).collect());
        }
        let names = ["a", "b", "x"];
        Tree::Doc(
            names[..count]
                .iter()
                .map(|name| ((*name).to_owned(), self.expression("any", depth - 1)))
                .collect(),
        )
    }

    /// Returns the result of `make` with these variables in scope.
    pub(crate) fn with(
        &mut self,
        names: &[&'static str],
        make: impl FnOnce(&mut Maker) -> Tree,
    ) -> Tree {
        let outside = self.variables.len();
        self.variables.extend(names);
        let made = make(self);
        self.variables.truncate(outside);
        made
    }
}

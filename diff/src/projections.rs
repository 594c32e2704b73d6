//! Projections, sorts and collations.

use crate::tree::{Tree, tree};
use crate::values::{Maker, NAMES};

impl Maker {
    /// Returns a projection for `find`. `positional` permits `path.$`, for filters that name
    /// arrays.
    pub(crate) fn find_projection(&mut self, positional: bool) -> Tree {
        let mut projection = self.stage_projection();
        let Tree::Doc(fields) = &mut projection else { return projection };
        if self.random.percent(30) {
            let path = self.path();
            let value = match self.random.below(3) {
                0 => {
                    let both = vec![self.small(), self.small()];
                    Tree::field("$slice", Tree::Array(both))
                }
                1 => Tree::field("$slice", self.small()),
                _ => {
                    let (_, value) = self.place();
                    let element = value.items().first().unwrap_or(&value).clone();
                    let inner = if self.random.percent(60) {
                        self.operators(&element, 0)
                    } else {
                        self.filter(0)
                    };
                    Tree::field("$elemMatch", inner)
                }
            };
            let path = match value.get("$elemMatch") {
                Some(_) if self.random.percent(95) => (*self.random.pick(&NAMES)).to_owned(),
                _ => path,
            };
            if fields.iter().all(|(other, _)| *other != path) {
                fields.push((path, value));
            }
        }
        if positional && self.random.percent(25) {
            let path = format!("{}.$", self.path());
            *fields = vec![(path, Tree::of(1))];
        }
        projection
    }

    /// Returns a projection for `$project`.
    pub(crate) fn stage_projection(&mut self) -> Tree {
        let inclusion = self.random.percent(60);
        let mut fields: Vec<(String, Tree)> = Vec::new();
        if self.random.percent(25) {
            fields.push(("_id".to_owned(), self.flag(false)));
        }
        for _ in 0..self.random.between(1, 3) {
            let path = self.named_path();
            let flag = if self.random.percent(3) { !inclusion } else { inclusion };
            let value = match self.random.below(20) {
                0..14 => self.flag(flag),
                14..16 => {
                    let name = *self.random.pick(&NAMES);
                    let inner = self.flag(flag);
                    Tree::field(name, inner)
                }
                _ if inclusion => self.expression("any", 2),
                _ => self.flag(flag),
            };
            if fields.iter().all(|(other, _)| *other != path) {
                fields.push((path, value));
            }
        }
        Tree::Doc(fields)
    }

    fn flag(&mut self, on: bool) -> Tree {
        match (on, self.random.below(10)) {
            (true, 0) => Tree::of(2.5),
            (true, 1) => Tree::of(-1_i64),
            (true, 2..5) => Tree::of(true),
            (true, _) => Tree::of(1),
            (false, 0) => Tree::of(0.0),
            (false, 1..4) => Tree::of(false),
            (false, _) => Tree::of(0),
        }
    }

    /// Returns a sort that ends in `_id`, so that the order is defined.
    pub(crate) fn sort(&mut self) -> Tree {
        let mut fields: Vec<(String, Tree)> = Vec::new();
        for _ in 0..self.random.between(1, 2) {
            let path = self.named_path();
            if fields.iter().all(|(other, _)| *other != path) {
                let direction = match self.random.below(40) {
                    0 => self.scalar(),
                    1 => Tree::of(-1.0),
                    2 => Tree::of(1_i64),
                    3..20 => Tree::of(-1),
                    _ => Tree::of(1),
                };
                fields.push((path, direction));
            }
        }
        fields.push(("_id".to_owned(), Tree::of(1)));
        Tree::Doc(fields)
    }

    pub(crate) fn collation(&mut self) -> Tree {
        if self.random.percent(10) {
            return tree! { "locale" => "simple" };
        }
        if self.random.percent(if self.is_spaced { 70 } else { 5 }) {
            // White space counts as nothing, or only where all else is equal.
            let last = *self.random.pick(&["space", "space", "punct"]);
            let strength = *self.random.pick(&[1, 2, 3, 4]);
            return tree! {
                "locale" => "en", "strength" => strength, "alternate" => "shifted", "maxVariable" => last
            };
        }
        let locale = *self.random.pick(&["en", "en", "en", "de", "fr"]);
        let mut fields = vec![("locale".to_owned(), Tree::of(locale))];
        if self.random.percent(70) {
            let strength = Tree::of(self.random.between(1, 5) as i32);
            fields.push(("strength".to_owned(), self.spoiled(strength)));
        }
        for name in ["caseLevel", "numericOrdering", "backwards", "normalization"] {
            if self.random.percent(15) {
                fields.push((name.to_owned(), Tree::of(self.random.percent(70))));
            }
        }
        for (name, words) in [
            ("caseFirst", ["upper", "lower", "off"]),
            ("alternate", ["shifted", "shifted", "non-ignorable"]),
            ("maxVariable", ["space", "punct", "punct"]),
        ] {
            if self.random.percent(15) {
                let word = Tree::of(*self.random.pick(&words));
                fields.push((name.to_owned(), self.spoiled(word)));
            }
        }
        Tree::Doc(fields)
    }

    /// Returns a path for a stage or an expression: sometimes into a reference, or with an unusual
    /// part.
    pub(crate) fn named_path(&mut self) -> String {
        const PARTS: [&str; 12] =
            ["$id", "$id", "$id", "$ref", "$ref", "$db", "$x", "$", "", "$id.a", "$ID", "$[]"];
        let path = self.path();
        match self.random.below(100) {
            0..4 => format!("{path}.{}", self.random.pick(&PARTS)),
            4 => (*self.random.pick(&PARTS)).to_owned(),
            _ => path,
        }
    }
}

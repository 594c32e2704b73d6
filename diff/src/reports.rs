//! Pipelines that begin with a report of the server in place of documents, and code: `mapReduce`
//! and functions stored in `system.js`.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// A stage that reports, and the fields of its documents that two servers share.
const REPORTS: [(&str, &[&str]); 6] = [
    ("$indexStats", &["name", "key"]),
    ("$collStats", &["ns", "count", "storageStats.count", "storageStats.nindexes"]),
    ("$planCacheStats", &["isActive"]),
    ("$listLocalSessions", &["user"]),
    ("$listSessions", &["user"]),
    ("$currentOp", &["type"]),
];

const MAPS: [&str; 8] = [
    "function() { emit(this._id, this.b) }",
    "/* by type */ function() { emit(typeof this.a, 1) }",
    "// a comment\nfunction () { emit({k: typeof this.b}, [this._id]) }",
    "function() { for (var i = 0; i < 3; i++) emit(i, {n: 1}) }",
    "function() { if (this.a) emit(null, this._id) }",
    "function() { emit(twice(this._id), this.c) }",
    "function() { emit(s, this._id) }",
    "function() { emit(this.a, {id: this._id, s: typeof s}) }",
];

const REDUCES: [&str; 5] = [
    "function(k, v) { return v.length }",
    "function(k, v) { return v[0] }",
    "/* all */ function(k, v) { return {v: v} }",
    "function(k, v) { return Array.sum(v) }",
    "function(k, v) { var n = 0; v.forEach(function(each) { n += each.n || 1 }); return {n: n} }",
];

/// Returns whether a pipeline over a report ends with fields that two servers share.
pub(crate) fn shows_shared_fields(pipeline: &Tree) -> bool {
    let last = pipeline.items().last().and_then(|stage| stage.fields().first());
    last.is_some_and(|(stage, spec)| match stage.as_str() {
        "$count" => true,
        "$facet" => spec.fields().iter().all(|(_, inner)| shows_shared_fields(inner)),
        "$project" => {
            spec.fields().iter().any(|(name, shown)| name != "_id" && *shown == Tree::of(1))
        }
        _ => false,
    })
}

impl Maker {
    /// Returns an `aggregate` over a report.
    pub(crate) fn report_pipeline(&mut self) -> Tree {
        let (name, shared) = *self.random.pick(&REPORTS);
        let options = match (name, self.random.below(10)) {
            (_, 0) => self.value(1),
            ("$collStats", 1..8) => {
                let part = *self.random.pick(&["count", "storageStats"]);
                Tree::field(part, tree! {})
            }
            ("$listLocalSessions" | "$listSessions", 1) => tree! { "allUsers" => Tree::of(true) },
            _ => tree! {},
        };
        let mut stages = vec![Tree::field(name, options)];
        for _ in 0..self.random.below(3) {
            let field = *self.random.pick(shared);
            stages.push(match self.random.below(8) {
                0..4 => tree! { "$match" => tree! {} },
                4 => {
                    tree! { "$match" => Tree::field(field, tree! { "$exists" => Tree::of(true) }) }
                }
                5 => tree! { "$match" => Tree::field(field, Tree::of("i0")) },
                6 => tree! { "$match" => tree! { "$expr" => Tree::of(true) } },
                _ => tree! { "$addFields" => tree! { "added" => 1 } },
            });
        }
        let shown = shared.iter().map(|field| ((*field).to_owned(), Tree::of(1)));
        stages.push(match self.random.below(6) {
            0 => tree! { "$count" => "n" },
            1 => tree! { "$facet" => tree! { "f" => Tree::Array(vec![tree! { "$count" => "n" }]) } },
            _ => tree! { "$project" => Tree::Doc(shown.chain([("_id".to_owned(), Tree::of(0))]).collect()) },
        });
        let on = match name {
            "$listLocalSessions" | "$currentOp" if self.random.percent(90) => Tree::of(1),
            _ => Tree::of("c"),
        };
        tree! { "aggregate" => on, "pipeline" => Tree::Array(stages), "cursor" => tree! {} }
    }

    /// Returns the storing of a function, and commands with code.
    pub(crate) fn around_code(&mut self) -> (Tree, Vec<Tree>) {
        let body = *self
            .random
            .pick(&["function(x) { return x + x }", "/* x */ function (x) { return 'x' + x }"]);
        let stored = tree! { "_id" => "twice", "value" => Tree::of(marula_bson::Value::Code(body.as_bytes().into())) };
        let all = tree! { "q" => tree! {}, "limit" => 0 };
        let first = tree! { "delete" => "system.js", "deletes" => Tree::Array(vec![all]) };
        let mut steps = Vec::new();
        if self.random.percent(80) {
            steps.push(tree! { "insert" => "system.js", "documents" => Tree::Array(vec![stored]) });
        }
        for _ in 0..self.random.between(1, 3) {
            let step = self.with_code();
            steps.push(step);
        }
        steps.push(tree! { "find" => "m", "sort" => tree! { "_id" => 1 } });
        (first, steps)
    }

    fn with_code(&mut self) -> Tree {
        match self.random.below(10) {
            0 => {
                let code = *self.random.pick(&[
                    "twice(this._id) == 4",
                    "return typeof twice == 'function'",
                    "this.a",
                ]);
                return tree! { "find" => "c", "filter" => tree! { "$where" => code }, "sort" => tree! { "_id" => 1 } };
            }
            1 => {
                let function = tree! {
                    "body" => *self.random.pick(&["function(x) { return twice(x) }", "function(x) { return typeof x }"]),
                    "args" => Tree::Array(vec![Tree::of(*self.random.pick(&["$_id", "$a", "$b"]))]),
                    "lang" => "js",
                };
                let stages = vec![
                    tree! { "$sort" => tree! { "_id" => 1 } },
                    tree! { "$project" => tree! { "x" => tree! { "$function" => function } } },
                ];
                return tree! { "aggregate" => "c", "pipeline" => Tree::Array(stages), "cursor" => tree! {} };
            }
            _ => {}
        }
        let mut command = vec![
            ("mapReduce".to_owned(), Tree::of("c")),
            ("map".to_owned(), Tree::of(*self.random.pick(&MAPS))),
            ("reduce".to_owned(), Tree::of(*self.random.pick(&REDUCES))),
        ];
        let out = match self.random.below(12) {
            0 => Tree::of("m"),
            1 => tree! { "replace" => "m" },
            2 => tree! { "merge" => "m" },
            3 => tree! { "reduce" => "m" },
            4 => match self.value(1) {
                // A collection of any name would stay for later cases.
                Tree::Leaf(leaf) if leaf.get().as_str().is_some() => tree! { "inline" => 0 },
                other => other,
            },
            _ => tree! { "inline" => 1 },
        };
        command.push(("out".to_owned(), out));
        if self.random.percent(25) {
            command
                .push(("finalize".to_owned(), Tree::of("function(k, v) { return {k: k, v: v} }")));
        }
        if self.random.percent(50) {
            command.push(("scope".to_owned(), tree! { "s" => self.value(1) }));
        }
        if self.random.percent(25) {
            command.push(("query".to_owned(), self.filter(1)));
        }
        if self.random.percent(20) {
            command.push(("sort".to_owned(), tree! { "_id" => -1 }));
            command.push(("limit".to_owned(), Tree::of(self.random.between(0, 3) as i32)));
        }
        Tree::Doc(command)
    }
}

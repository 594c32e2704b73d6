//! Collections with options: capped, clustered, of time series, with a validator or a collation;
//! and sequences of commands on them, with pipelines that write.
//!
//! The collection of a case is `k`; pipelines write from `c` into it, and into `m`.

use crate::tree::{Tree, tree};
use crate::values::Maker;

const VALIDATION_LEVELS: [&str; 3] = ["off", "strict", "moderate"];
const VALIDATION_ACTIONS: [&str; 2] = ["error", "warn"];

/// The kinds of collections.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Capped,
    Clustered,
    TimeSeries,
}

/// Returns an `aggregate` on a collection.
fn pipeline_on(name: &str, stages: Vec<Tree>) -> Tree {
    let cursor = Tree::Doc(Vec::new());
    tree! { "aggregate" => name, "pipeline" => Tree::Array(stages), "cursor" => cursor }
}

impl Maker {
    /// Returns the command that creates a collection, and commands on it.
    pub(crate) fn on_a_collection(&mut self) -> (Tree, Vec<Tree>) {
        let form = match self.random.below(10) {
            0..4 => Form::Plain,
            4..6 => Form::Capped,
            6..8 => Form::Clustered,
            _ => Form::TimeSeries,
        };
        let create = self.create(form);
        let is_view = create.get("viewOn").is_some();
        let mut steps = vec![self.insert_into(form)];
        for _ in 0..self.random.between(2, 6) {
            let has_uuid = self.random.percent(12);
            let step = if self.random.percent(if has_uuid { 40 } else { 3 }) {
                self.command_for_uuid()
            } else {
                self.step_on(form)
            };
            // mongod ends with a segmentation fault when it is to change the limits of a view.
            let limits = ["cappedSize", "cappedMax"];
            if !is_view || limits.iter().all(|limit| step.get(limit).is_none()) {
                steps.extend(if has_uuid { self.with_uuid(step) } else { vec![step] });
            }
        }
        steps.push(self.all_of("k", form));
        steps.push(self.all_of("m", Form::Plain));
        steps.push(tree! { "listIndexes" => "k" });
        steps.push(tree! {
            "listCollections" => 1, "filter" => tree! { "name" => "k" }, "nameOnly" => Tree::of(false)
        });
        if form != Form::TimeSeries {
            steps.push(tree! { "validate" => "k" });
        }
        (create, steps)
    }

    fn create(&mut self, form: Form) -> Tree {
        let mut fields = vec![("create".to_owned(), Tree::of("k"))];
        let mut add = |name: &str, value: Tree| fields.push((name.to_owned(), value));
        match form {
            Form::Plain => {}
            Form::Capped => {
                add("capped", Tree::of(true));
                add("size", Tree::of(*self.random.pick(&[4096, 100_000, 1, 257])));
                if self.random.percent(60) {
                    add("max", Tree::of(self.random.between(1, 4) as i32));
                }
            }
            Form::Clustered => {
                let mut index = vec![
                    ("key".to_owned(), tree! { "_id" => 1 }),
                    ("unique".to_owned(), Tree::of(true)),
                ];
                if self.random.percent(30) {
                    index.push(("name".to_owned(), Tree::of("by_id")));
                }
                add("clusteredIndex", Tree::Doc(index));
            }
            Form::TimeSeries => {
                let mut series = vec![("timeField".to_owned(), Tree::of("t"))];
                if self.random.percent(60) {
                    series.push(("metaField".to_owned(), Tree::of("a")));
                }
                if self.random.percent(40) {
                    let unit = *self.random.pick(&["seconds", "minutes", "hours"]);
                    series.push(("granularity".to_owned(), Tree::of(unit)));
                }
                add("timeseries", Tree::Doc(series));
            }
        }
        if self.random.percent(35) && form != Form::TimeSeries {
            add("validator", self.validator());
            if self.random.percent(30) {
                add("validationLevel", Tree::of(*self.random.pick(&VALIDATION_LEVELS)));
            }
            if self.random.percent(30) {
                add("validationAction", Tree::of(*self.random.pick(&VALIDATION_ACTIONS)));
            }
        }
        if self.random.percent(15) {
            add("collation", self.collation());
        }
        if self.random.percent(6) {
            let (name, value) = match self.random.below(8) {
                5 => ("storageEngine", tree! { "wiredTiger" => Tree::Doc(Vec::new()) }),
                6 => ("indexOptionDefaults", tree! { "storageEngine" => self.inner(1) }),
                0 => ("capped", Tree::of(self.random.percent(50))),
                1 => ("size", self.number()),
                2 => ("max", self.number()),
                3 => ("expireAfterSeconds", self.number()),
                4 => ("changeStreamPreAndPostImages", tree! { "enabled" => Tree::of(true) }),
                _ => ("viewOn", Tree::of("c")),
            };
            if fields.iter().all(|(other, _)| other != name) {
                fields.push((name.to_owned(), value));
            }
        }
        Tree::Doc(fields)
    }

    fn insert_into(&mut self, form: Form) -> Tree {
        let count = self.random.between(1, 3);
        let documents = (0..count).map(|_| self.inserted(form)).collect();
        let mut fields = vec![
            ("insert".to_owned(), Tree::of("k")),
            ("documents".to_owned(), Tree::Array(documents)),
        ];
        if self.random.percent(50) {
            fields.push(("ordered".to_owned(), Tree::of(false)));
        }
        if self.random.percent(5) {
            fields.push(("bypassDocumentValidation".to_owned(), Tree::of(true)));
        }
        Tree::Doc(fields)
    }

    fn inserted(&mut self, form: Form) -> Tree {
        let id = match self.random.below(10) {
            0..6 => Tree::of(self.random.between(1, 9) as i32),
            6 | 7 => self.scalar(),
            _ => self.value(1),
        };
        let mut fields = vec![("_id".to_owned(), id)];
        if form == Form::TimeSeries {
            let time = if self.random.percent(92) { self.time() } else { self.scalar() };
            fields.push(("t".to_owned(), time));
        }
        for name in ["a", "b", "c"] {
            if self.random.percent(50) {
                fields.push((name.to_owned(), self.value(2)));
            }
        }
        if self.random.percent(3) {
            let at = self.random.below(fields.len());
            let again = fields[at].clone();
            fields.push(again);
        }
        Tree::Doc(fields)
    }

    /// A time within a few days, so that several measurements share a bucket.
    fn time(&mut self) -> Tree {
        const HOUR_MS: i64 = 3_600_000;
        let hours = self.random.between(0, 60) as i64 / 4;
        let ms = [0, 1, 999, 60_000][self.random.below(4)];
        Tree::of(marula_bson::Value::DateTime(1_577_836_800_000 + hours * HOUR_MS + ms))
    }

    fn step_on(&mut self, form: Form) -> Tree {
        match self.random.below(20) {
            0..5 => self.insert_into(form),
            5..8 => {
                let mut statement = self.update_statement();
                self.name_meta(&mut statement, form);
                tree! { "update" => "k", "updates" => Tree::Array(vec![statement]) }
            }
            8..10 => {
                let limit = Tree::of(i32::from(self.random.percent(40)));
                let mut statement = tree! { "q" => self.filter(1), "limit" => limit };
                self.name_meta(&mut statement, form);
                tree! { "delete" => "k", "deletes" => Tree::Array(vec![statement]) }
            }
            10..13 => {
                let mut find =
                    vec![("find".to_owned(), Tree::of("k")), ("filter".to_owned(), self.filter(2))];
                if self.random.percent(40) || form == Form::TimeSeries {
                    find.push(("sort".to_owned(), self.sort()));
                }
                find.push(("batchSize".to_owned(), Tree::of(1000)));
                Tree::Doc(find)
            }
            13 => self.coll_mod(form),
            14 => tree! { "count" => "k", "query" => self.filter(1) },
            15 | 16 => {
                let to = self.out_stage();
                let mut stages = vec![tree! { "$match" => self.filter(1) }];
                if self.random.percent(40) {
                    stages.push(tree! { "$project" => self.stage_projection() });
                }
                stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
                stages.push(to);
                pipeline_on("c", stages)
            }
            17 => {
                let mut fields = vec![
                    ("findAndModify".to_owned(), Tree::of("k")),
                    ("query".to_owned(), self.filter(1)),
                ];
                fields.push(("sort".to_owned(), self.sort()));
                self.update_fields(&mut fields, "update");
                Tree::Doc(fields)
            }
            18 if form == Form::TimeSeries => {
                let spec = self.index_on_measurements();
                tree! { "createIndexes" => "k", "indexes" => Tree::Array(vec![spec]) }
            }
            18 => {
                let key = if self.random.percent(30) {
                    self.key_of_text()
                } else {
                    Tree::field(self.path(), Tree::of(1))
                };
                let unique = Tree::of(self.random.percent(30));
                let spec = tree! { "key" => key, "name" => "later", "unique" => unique };
                tree! { "createIndexes" => "k", "indexes" => Tree::Array(vec![spec]) }
            }
            _ => {
                let sort = tree! { "$sort" => tree! { "_id" => 1 } };
                let mut stages = vec![tree! { "$match" => self.filter(1) }];
                stages.push(tree! { "$project" => self.stage_projection() });
                stages.push(sort);
                pipeline_on("k", stages)
            }
        }
    }

    /// Returns an index on a time series: of its meta value, its time and measured values.
    fn index_on_measurements(&mut self) -> Tree {
        let mut key: Vec<(String, Tree)> = Vec::new();
        for _ in 0..self.random.between(1, 2) {
            let path = *self.random.pick(&["a", "a.x", "t", "b", "b.x", "c"]);
            let kind = match self.random.below(12) {
                0 => Tree::of("2dsphere"),
                1 => Tree::of("hashed"),
                2..5 => Tree::of(-1),
                _ => Tree::of(1),
            };
            if key.iter().all(|(other, _)| other != path) {
                key.push((path.to_owned(), kind));
            }
        }
        let mut spec =
            vec![("key".to_owned(), Tree::Doc(key)), ("name".to_owned(), Tree::of("later"))];
        // One option: of two mistakes servers may report another first.
        match self.random.below(8) {
            0 | 1 => {
                let condition = self.filter(1);
                spec.push(("partialFilterExpression".to_owned(), condition));
                if self.random.percent(15) {
                    spec.push(("collation".to_owned(), tree! { "locale" => "en" }));
                }
            }
            2 => spec.push(("collation".to_owned(), tree! { "locale" => "en", "strength" => 2 })),
            3 => spec.push(("sparse".to_owned(), Tree::of(true))),
            4 => spec.push(("hidden".to_owned(), Tree::of(true))),
            _ => {}
        }
        Tree::Doc(spec)
    }

    /// Statements on a time series may name its meta field only; most of those here do.
    fn name_meta(&mut self, statement: &mut Tree, form: Form) {
        if form != Form::TimeSeries || self.random.percent(15) {
            return;
        }
        let value = self.value(1);
        let q = Tree::field("a", self.operators(&value, 1));
        if let Tree::Doc(fields) = statement {
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "q" => *value = q.clone(),
                    "u" => {
                        let number = Tree::of(self.random.below(4) as i32);
                        *value = tree! { "$set" => tree! { "a" => number } };
                    }
                    "limit" => *value = Tree::of(0),
                    _ => {}
                }
            }
            fields.retain(|(name, _)| name != "upsert" && name != "arrayFilters");
            if fields.iter().any(|(name, _)| name == "u") {
                fields.retain(|(name, _)| name != "multi");
                fields.push(("multi".to_owned(), Tree::of(true)));
            }
        }
    }

    fn coll_mod(&mut self, form: Form) -> Tree {
        let mut fields = vec![("collMod".to_owned(), Tree::of("k"))];
        let (name, value) = match self.random.below(10) {
            0..3 => ("validator", self.validator()),
            3 => ("validationLevel", Tree::of(*self.random.pick(&VALIDATION_LEVELS))),
            4 => ("validationAction", Tree::of(*self.random.pick(&VALIDATION_ACTIONS))),
            5 => ("cappedMax", self.number()),
            6 => ("cappedSize", self.number()),
            7 | 8 => ("index", self.changed_index()),
            _ if form == Form::TimeSeries => ("timeseries", tree! { "granularity" => "hours" }),
            _ => ("expireAfterSeconds", self.number()),
        };
        fields.push((name.to_owned(), value));
        Tree::Doc(fields)
    }

    /// Returns the change of one option of an index.
    fn changed_index(&mut self) -> Tree {
        let option = *self.random.pick(&["hidden", "prepareUnique", "expireAfterSeconds"]);
        let value = match option {
            "expireAfterSeconds" => Tree::of(*self.random.pick(&[1_000_000, i32::MAX])),
            _ => Tree::of(self.random.percent(70)),
        };
        tree! { "name" => "later", option => self.spoiled(value) }
    }

    fn out_stage(&mut self) -> Tree {
        let into = if self.random.percent(60) { "m" } else { "k" };
        if self.random.percent(25) {
            return tree! { "$out" => into };
        }
        let mut fields = vec![("into".to_owned(), Tree::of(into))];
        if self.random.percent(15) {
            fields.push(("on".to_owned(), Tree::of(*self.random.pick(&["_id", "a"]))));
        }
        if self.random.percent(75) {
            let action = match self.random.below(10) {
                0 => Tree::of("replace"),
                1 => Tree::of("keepExisting"),
                2 => Tree::of("merge"),
                3 => Tree::of("fail"),
                4 => Tree::of("delete"),
                _ => {
                    if self.random.percent(15) {
                        // It replaces the variable `new`, unless it defines that itself.
                        let name = if self.random.percent(50) { "new" } else { "l" };
                        let value = self.expression("any", 1);
                        fields.push(("let".to_owned(), Tree::field(name, value)));
                    }
                    self.with(&["new"], Maker::stages_when_matched)
                }
            };
            fields.push(("whenMatched".to_owned(), action));
        }
        if self.random.percent(50) {
            let action = *self.random.pick(&["insert", "discard", "fail"]);
            fields.push(("whenNotMatched".to_owned(), Tree::of(action)));
        }
        tree! { "$merge" => Tree::Doc(fields) }
    }

    /// Returns the pipeline of a `$merge` for a document that exists: of stages that are permitted
    /// there, and a few others. A `$fill` represents stages of which some are.
    fn stages_when_matched(&mut self) -> Tree {
        let stage = |maker: &mut Maker| match maker.random.below(20) {
            0..4 => tree! { "$set" => maker.computed_fields(1) },
            4..6 => tree! { "$addFields" => maker.computed_fields(1) },
            6..8 => maker.unset(),
            8 | 9 => tree! { "$replaceRoot" => tree! { "newRoot" => maker.expression("obj", 1) } },
            10 => tree! { "$replaceWith" => maker.expression("obj", 1) },
            11..14 => tree! { "$project" => maker.stage_projection() },
            14..17 => maker.fill_stage(),
            17 => tree! { "$group" => tree! { "_id" => "$_id" } },
            18 => tree! { "$match" => maker.filter(1) },
            _ => maker.unwind(),
        };
        let count = [0, 1, 1, 1, 1, 2, 2, 2][self.random.below(8)];
        Tree::Array((0..count).map(|_| stage(self)).collect())
    }

    /// Returns the condition of a validator; now and then one with a constant that cannot be
    /// computed, which servers find out when they store the condition, or with a document.
    pub(crate) fn validator(&mut self) -> Tree {
        if !self.random.percent(15) {
            return self.filter(1);
        }
        let failing = match self.random.below(5) {
            0 => tree! { "$mod" => Tree::Array(vec![Tree::of(1), Tree::of(0)]) },
            1 => tree! { "$toInt" => "x" },
            2 => tree! { "$ln" => -1 },
            _ => tree! { "$divide" => Tree::Array(vec![Tree::of(1), Tree::of(0)]) },
        };
        let pair = |first: Tree, second: Tree| Tree::Array(vec![first, second]);
        let path = Tree::of(*self.random.pick(&["$a", "$b", "$_id"]));
        let condition = match self.random.below(8) {
            0 => tree! { "$eq" => pair(path, failing) },
            1 => tree! { "$and" => pair(path, failing) },
            2 => tree! { "$or" => pair(path, failing) },
            3 => tree! { "$and" => pair(Tree::of(false), failing) },
            4 => {
                let branches = vec![path, failing, Tree::of(true)];
                tree! { "$cond" => Tree::Array(branches) }
            }
            5 => tree! { "$ifNull" => pair(path, failing) },
            _ => failing,
        };
        let condition = tree! { "$expr" => condition };
        match self.random.below(8) {
            0 => tree! { "$or" => pair(self.filter(0), condition) },
            1 => tree! { "$and" => pair(self.filter(0), condition) },
            2 => tree! { "$nor" => Tree::Array(vec![condition]) },
            3 => {
                let field = tree! { "a" => tree! { "$exists" => Tree::of(true) } };
                tree! { "$and" => pair(field, condition) }
            }
            _ => condition,
        }
    }

    /// Returns a `find` of everything, in the order of the collection if that is defined.
    fn all_of(&mut self, name: &str, form: Form) -> Tree {
        let mut find = vec![("find".to_owned(), Tree::of(name))];
        if form == Form::TimeSeries || name == "m" {
            find.push(("sort".to_owned(), tree! { "_id" => 1, "t" => 1 }));
        }
        find.push(("batchSize".to_owned(), Tree::of(1000)));
        Tree::Doc(find)
    }
}

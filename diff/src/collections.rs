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
            let step = self.step_on(form);
            // mongod ends with a segmentation fault when it is to change the limits of a view.
            let limits = ["cappedSize", "cappedMax"];
            if !is_view || limits.iter().all(|limit| step.get(limit).is_none()) {
                steps.push(step);
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
            add("validator", self.filter(1));
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
            let (name, value) = match self.random.below(6) {
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
            18 => {
                let path = self.path();
                let key = Tree::field(path.as_str(), Tree::of(1));
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
        let (name, value) = match self.random.below(8) {
            0..3 => ("validator", self.filter(1)),
            3 => ("validationLevel", Tree::of(*self.random.pick(&VALIDATION_LEVELS))),
            4 => ("validationAction", Tree::of(*self.random.pick(&VALIDATION_ACTIONS))),
            5 => ("cappedMax", self.number()),
            6 => ("cappedSize", self.number()),
            _ if form == Form::TimeSeries => ("timeseries", tree! { "granularity" => "hours" }),
            _ => ("expireAfterSeconds", self.number()),
        };
        fields.push((name.to_owned(), value));
        Tree::Doc(fields)
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
            let action = match self.random.below(7) {
                0 => Tree::of("replace"),
                1 => Tree::of("keepExisting"),
                2 => Tree::of("merge"),
                3 => Tree::of("fail"),
                4 => Tree::of("delete"),
                _ => {
                    let stage =
                        self.with(&["new"], |maker| tree! { "$set" => maker.computed_fields(1) });
                    Tree::Array(vec![stage])
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

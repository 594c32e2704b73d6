//! Metadata of documents, `{ $meta: … }`: in projections, sorts and stages, with and without the
//! index or the search that it comes from.

use marula_bson::Value;

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// The kinds of metadata; the last one does not exist. `randVal` is left out, since it is random.
const KINDS: [&str; 16] = [
    "indexKey",
    "indexKey",
    "geoNearDistance",
    "geoNearDistance",
    "geoNearPoint",
    "geoNearPoint",
    "recordId",
    "sortKey",
    "sortKey",
    "textScore",
    "textScore",
    "searchScore",
    "searchHighlights",
    "searchScoreDetails",
    "timeseriesBucketMinTime",
    "IndexKey",
];

impl Maker {
    /// Returns documents with a place in `p`, a text in `s` and a value in `a`.
    pub(crate) fn documents_with_metadata(&mut self, count: usize) -> Vec<Tree> {
        let document = |maker: &mut Maker, number: usize| {
            let mut fields = vec![("_id".to_owned(), Tree::of(number as i32))];
            // Different distances: the order of equal ones is open.
            let place = Tree::Array(vec![Tree::of(number as i32), Tree::of(0.5)]);
            fields.push(("p".to_owned(), place));
            if maker.random.percent(80) {
                fields.push(("s".to_owned(), maker.phrase(4)));
            }
            if maker.random.percent(80) {
                let value = if maker.random.percent(60) { maker.small() } else { maker.value(1) };
                fields.push(("a".to_owned(), value));
            }
            Tree::Doc(fields)
        };
        (1..=count).map(|number| document(self, number)).collect()
    }

    /// Returns some of the indexes that metadata comes from.
    pub(crate) fn indexes_with_metadata(&mut self) -> Vec<Tree> {
        let mut found = Vec::new();
        if self.random.percent(70) {
            found.push(match self.random.below(4) {
                0 => tree! { "p" => "2d", "a" => 1 },
                1 => tree! { "a" => 1, "p" => "2dsphere" },
                2 => tree! { "p" => "2d" },
                _ => tree! { "p" => "2dsphere" },
            });
        }
        if self.random.percent(60) {
            found.push(tree! { "s" => "text" });
        }
        if self.random.percent(70) {
            found.push(match self.random.below(4) {
                0 => tree! { "a" => -1, "_id" => 1 },
                1 => tree! { "a" => "hashed" },
                2 => tree! { "$**" => 1 },
                _ => tree! { "a" => 1 },
            });
        }
        found
    }

    /// Returns a `find` or an `aggregate` that uses metadata.
    pub(crate) fn with_metadata(&mut self, indexes: usize) -> Tree {
        let mut command =
            if self.random.percent(50) { self.find_metadata() } else { self.stages_of_metadata() };
        if self.random.percent(35)
            && let Tree::Doc(fields) = &mut command
        {
            let hint = match self.random.below(6) {
                0 => tree! { "$natural" => if self.random.percent(60) { 1 } else { -1 } },
                1 => tree! { "_id" => 1 },
                _ => Tree::of(format!("i{}", self.random.below(indexes.max(1))).as_str()),
            };
            fields.push(("hint".to_owned(), hint));
        }
        command
    }

    fn meta(&mut self) -> Tree {
        let kind = Tree::of(*self.random.pick(&KINDS));
        tree! { "$meta" => self.spoiled(kind) }
    }

    fn source_of_metadata(&mut self) -> Tree {
        match self.random.below(12) {
            0 | 1 => tree! {},
            2..5 => tree! { "a" => tree! { "$gte" => Tree::of(Value::MinKey) } },
            5 => tree! { "a" => self.small() },
            6..8 => tree! { "p" => self.nearness() },
            8..10 => {
                let words = *self.random.pick(&["dog", "run -the", "\"blue\"", "a cafe"]);
                tree! { "$text" => tree! { "$search" => words } }
            }
            10 => tree! { "p" => tree! { "$geoWithin" => self.area() } },
            _ => {
                let either = vec![tree! { "a" => self.small() }, tree! { "_id" => 1 }];
                tree! { "$or" => Tree::Array(either) }
            }
        }
    }

    fn sort_by_metadata(&mut self) -> Tree {
        let mut fields = Vec::new();
        if self.random.percent(30) {
            fields.push(("a".to_owned(), Tree::of(if self.random.percent(50) { 1 } else { -1 })));
        }
        if self.random.percent(60) {
            let meta = self.meta();
            fields.push(("m".to_owned(), meta));
        }
        if self.random.percent(8) {
            let meta = self.meta();
            fields.push(("n".to_owned(), meta));
        }
        fields.push(("_id".to_owned(), Tree::of(1)));
        Tree::Doc(fields)
    }

    fn shown_metadata(&mut self) -> Tree {
        let mut fields = Vec::new();
        match self.random.below(5) {
            0 => fields.push(("a".to_owned(), Tree::of(1))),
            1 => fields.push(("a".to_owned(), Tree::of(0))),
            2 => fields.push(("_id".to_owned(), Tree::of(0))),
            _ => {}
        }
        for name in ["m", "n"] {
            if name == "m" || self.random.percent(30) {
                let meta = self.meta();
                let place = match self.random.below(12) {
                    0 => "a",
                    1 => "_id",
                    2 => "p.x",
                    3 => "s",
                    _ => name,
                };
                let value = match self.random.below(8) {
                    0 => tree! { "x" => meta },
                    1 => tree! { "$add" => Tree::Array(vec![meta, Tree::of(1)]) },
                    2 => tree! { "$ifNull" => Tree::Array(vec![meta, Tree::of("none")]) },
                    _ => meta,
                };
                if fields.iter().all(|(other, _)| other != place) {
                    fields.push((place.to_owned(), value));
                }
            }
        }
        Tree::Doc(fields)
    }

    fn find_metadata(&mut self) -> Tree {
        let mut fields = vec![
            ("find".to_owned(), Tree::of("c")),
            ("filter".to_owned(), self.source_of_metadata()),
            ("batchSize".to_owned(), Tree::of(1000)),
        ];
        if self.random.percent(85) {
            fields.push(("projection".to_owned(), self.shown_metadata()));
        }
        if self.random.percent(40) {
            fields.push(("sort".to_owned(), self.sort_by_metadata()));
        }
        for name in ["returnKey", "showRecordId"] {
            if self.random.percent(8) {
                fields.push((name.to_owned(), Tree::of(true)));
            }
        }
        Tree::Doc(fields)
    }

    fn stages_of_metadata(&mut self) -> Tree {
        let mut stages = Vec::new();
        match self.random.below(8) {
            0 | 1 => {
                let near = tree! {
                    "near" => if self.random.percent(50) { self.json_point() } else { self.pair() },
                    "distanceField" => "d",
                    "key" => "p",
                    "spherical" => Tree::of(self.random.percent(70)),
                };
                stages.push(tree! { "$geoNear" => near });
            }
            2..6 => {
                let filter = self.source_of_metadata();
                stages.push(tree! { "$match" => filter });
            }
            _ => {}
        }
        for _ in 0..self.random.between(1, 2) {
            self.stage_of_metadata(&mut stages);
        }
        tree! { "aggregate" => "c", "pipeline" => Tree::Array(stages), "cursor" => tree! {} }
    }

    fn stage_of_metadata(&mut self, stages: &mut Vec<Tree>) {
        let stage = match self.random.below(20) {
            0..5 => tree! { "$project" => self.shown_metadata() },
            5..9 => {
                let name = *self.random.pick(&["$addFields", "$set"]);
                Tree::field(name, self.shown_metadata())
            }
            9..12 => tree! { "$sort" => self.sort_by_metadata() },
            12 => {
                let compared = vec![self.meta(), Tree::of(0)];
                let condition = tree! { "$gt" => Tree::Array(compared) };
                tree! { "$match" => tree! { "$expr" => condition } }
            }
            13 | 14 => {
                let (by, first) = (self.meta(), self.meta());
                let by = if self.random.percent(50) { by } else { Tree::of("$_id") };
                let group = tree! { "_id" => by, "m" => tree! { "$max" => first } };
                stages.push(tree! { "$group" => group });
                tree! { "$sort" => tree! { "_id" => 1 } }
            }
            15 => tree! { "$unwind" => "$a" },
            16 => {
                let inner = vec![tree! { "$addFields" => tree! { "m" => self.meta() } }];
                tree! { "$facet" => tree! { "f" => Tree::Array(inner) } }
            }
            17 => {
                let inner = vec![tree! { "$project" => tree! { "m" => self.meta() } }];
                let lookup = tree! { "from" => "c", "pipeline" => Tree::Array(inner), "as" => "j" };
                tree! { "$lookup" => lookup }
            }
            18 => tree! { "$replaceWith" => tree! { "i" => "$_id", "m" => self.meta() } },
            _ => tree! { "$match" => tree! {} },
        };
        stages.push(stage);
    }
}

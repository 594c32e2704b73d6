//! The options that a command takes in addition to its filter, and the commands `count`, `distinct`
//! and `delete`.
//!
//! An option has a right value most of the time and one of a wrong type now and then. A command
//! gets one option: of two mistakes servers may report another first.

use marula_bson::Value;

use crate::case::key_of;
use crate::tree::{Tree, tree};
use crate::values::Maker;

/// A list of options: the name, and the value that it usually has.
type Options = &'static [(&'static str, Usual)];

/// The usual value of an option.
#[derive(Clone, Copy)]
enum Usual {
    Flag,
    /// A small number of documents.
    Count,
    Text,
    Any,
    Document,
    ReadConcern,
    WriteConcern,
    /// Milliseconds; none of them ends a command.
    Time,
}

const OF_FIND: Options = &[
    ("returnKey", Usual::Flag),
    ("showRecordId", Usual::Flag),
    ("singleBatch", Usual::Flag),
    ("allowDiskUse", Usual::Flag),
    ("allowPartialResults", Usual::Flag),
    ("noCursorTimeout", Usual::Flag),
    ("oplogReplay", Usual::Flag),
    ("tailable", Usual::Flag),
    ("awaitData", Usual::Flag),
    ("mirrored", Usual::Flag),
    ("skip", Usual::Count),
    ("ntoreturn", Usual::Count),
    ("comment", Usual::Any),
    ("readConcern", Usual::ReadConcern),
    ("maxTimeMS", Usual::Time),
    ("let", Usual::Document),
    ("fields", Usual::Document),
];
const OF_UPDATE: Options = &[
    ("ordered", Usual::Flag),
    ("bypassDocumentValidation", Usual::Flag),
    ("bypassEmptyTsReplacement", Usual::Flag),
    ("comment", Usual::Any),
    ("writeConcern", Usual::WriteConcern),
    ("maxTimeMS", Usual::Time),
    ("let", Usual::Document),
    ("stmtId", Usual::Count),
    ("readConcern", Usual::ReadConcern),
    ("multi", Usual::Flag),
];
const OF_STATEMENT: Options = &[
    ("multi", Usual::Flag),
    ("upsert", Usual::Flag),
    ("c", Usual::Document),
    ("sort", Usual::Document),
    ("upsertSupplied", Usual::Flag),
    ("limit", Usual::Count),
    ("collation", Usual::Document),
];
const OF_FIND_AND_MODIFY: Options = &[
    ("upsert", Usual::Flag),
    ("new", Usual::Flag),
    ("remove", Usual::Flag),
    ("bypassDocumentValidation", Usual::Flag),
    ("comment", Usual::Any),
    ("writeConcern", Usual::WriteConcern),
    ("readConcern", Usual::ReadConcern),
    ("maxTimeMS", Usual::Time),
    ("let", Usual::Document),
    ("projection", Usual::Document),
    ("multi", Usual::Flag),
    ("arrayFilters", Usual::Any),
];
const OF_COUNT: Options = &[
    ("limit", Usual::Count),
    ("skip", Usual::Count),
    ("fields", Usual::Document),
    ("comment", Usual::Any),
    ("readConcern", Usual::ReadConcern),
    ("maxTimeMS", Usual::Time),
    ("sort", Usual::Document),
];
const OF_DISTINCT: Options = &[
    ("comment", Usual::Any),
    ("readConcern", Usual::ReadConcern),
    ("maxTimeMS", Usual::Time),
    ("hint", Usual::Text),
];
const OF_AGGREGATE: Options = &[
    ("allowDiskUse", Usual::Flag),
    ("bypassDocumentValidation", Usual::Flag),
    ("comment", Usual::Any),
    ("readConcern", Usual::ReadConcern),
    ("writeConcern", Usual::WriteConcern),
    ("maxTimeMS", Usual::Time),
    ("hint", Usual::Text),
    ("fromMongos", Usual::Flag),
    ("needsMerge", Usual::Flag),
    ("isMapReduceCommand", Usual::Flag),
];

impl Maker {
    /// Adds an option of a `find`. An index may find the documents in another order: then
    /// only options that do not depend on it are added.
    pub(crate) fn options_of_find(&mut self, command: &mut Tree, has_indexes: bool) {
        self.add_options(command, OF_FIND);
        if self.random.percent(20) {
            let count = self.small();
            add(command, "limit", count);
        }
        if let Tree::Doc(fields) = command
            && has_indexes
        {
            let has = |name: &str| fields.iter().any(|(field, _)| field == name);
            let (has_sort, has_hint) = (has("sort"), has("hint"));
            fields.retain(|(name, _)| match name.as_str() {
                "limit" | "skip" | "ntoreturn" => has_sort,
                "returnKey" => has_hint,
                _ => true,
            });
        }
    }

    /// Adds an option of an `aggregate`.
    pub(crate) fn options_of_aggregate(&mut self, command: &mut Tree) {
        self.add_options(command, OF_AGGREGATE);
    }

    /// Adds an option of an `update`, of the whole or of a statement.
    pub(crate) fn options_of_update(&mut self, command: &mut Tree) {
        if self.random.percent(50) {
            return self.add_options(command, OF_UPDATE);
        }
        self.options_of_statement(command, "updates");
    }

    /// Adds an option of a `findAndModify`.
    pub(crate) fn options_of_find_and_modify(&mut self, command: &mut Tree) {
        self.add_options(command, OF_FIND_AND_MODIFY);
    }

    /// A `delete` of one or two statements.
    pub(crate) fn delete(&mut self) -> Tree {
        let count = self.random.between(1, 2);
        let statements = (0..count)
            .map(|_| {
                let q = self.filter(1);
                let limit = match self.random.below(20) {
                    0 => self.small(),
                    1..12 => Tree::of(1),
                    _ => Tree::of(0),
                };
                let mut statement = tree! { "q" => q, "limit" => limit };
                if self.random.percent(8) {
                    let collation = self.collation();
                    add(&mut statement, "collation", collation);
                }
                statement
            })
            .collect();
        let mut command = tree! { "delete" => "c", "deletes" => Tree::Array(statements) };
        if self.random.percent(12) {
            match self.random.percent(50) {
                true => self.add_options(&mut command, OF_UPDATE),
                false => self.options_of_statement(&mut command, "deletes"),
            }
        }
        command
    }

    /// A `count`, with a limit or none.
    pub(crate) fn count_command(&mut self) -> Tree {
        let query = self.filter(2);
        let mut command = tree! { "count" => "c", "query" => query };
        if self.random.percent(10) {
            let collation = self.collation();
            add(&mut command, "collation", collation);
        }
        if self.random.percent(40) {
            self.add_options(&mut command, OF_COUNT);
        }
        command
    }

    /// A `distinct`, whose values come in the order of the documents where no index serves.
    pub(crate) fn distinct(&mut self) -> Tree {
        let (key, query) = (self.named_path(), self.filter(1));
        let mut command = tree! { "distinct" => "c", "key" => key.as_str(), "query" => query };
        if self.random.percent(10) {
            let collation = self.collation();
            add(&mut command, "collation", collation);
        }
        if self.random.percent(15) {
            self.add_options(&mut command, OF_DISTINCT);
        }
        command
    }

    /// The bounds `min` and `max` of a walk over one of the indexes, which they ask to be named.
    pub(crate) fn bounds_of_index(&mut self, command: &mut Tree, number: usize, index: &Tree) {
        for name in ["min", "max"] {
            if self.random.percent(60) {
                let mut bound = Vec::new();
                for (path, _) in key_of(index).fields() {
                    let value = match self.place() {
                        (other, value) if other == *path => value,
                        _ => self.value(1),
                    };
                    bound.push((path.clone(), value));
                }
                if self.random.percent(5) {
                    bound.truncate(1);
                }
                add(command, name, Tree::Doc(bound));
            }
        }
        if self.random.percent(95) {
            add(command, "hint", Tree::of(format!("i{number}").as_str()));
        }
    }

    /// Adds options to one of the statements of a write.
    fn options_of_statement(&mut self, command: &mut Tree, name: &str) {
        let Tree::Doc(fields) = command else { return };
        let statements = fields.iter_mut().find(|(field, _)| field == name);
        if let Some((_, Tree::Array(statements))) = statements
            && let Some(first) = statements.first_mut()
        {
            self.add_options(first, OF_STATEMENT);
        }
    }

    fn add_options(&mut self, command: &mut Tree, options: Options) {
        let (name, usual) = *self.random.pick(options);
        let value = self.usual(usual);
        let value = if self.random.percent(12) { self.value(1) } else { value };
        // A limit of time that is a number might end the command, on one server alone.
        let is_short = name == "maxTimeMS" && value.kind().is_number();
        let value = if is_short { Tree::of(60_000) } else { value };
        add(command, name, value);
    }

    fn usual(&mut self, usual: Usual) -> Tree {
        match usual {
            Usual::Flag => match self.random.below(10) {
                0 => self.small(),
                1 => Tree::of(Value::Null),
                _ => Tree::of(self.random.percent(60)),
            },
            Usual::Count => match self.random.below(4) {
                0 => self.number(),
                _ => self.small(),
            },
            Usual::Text => self.string(),
            Usual::Any => self.value(1),
            Usual::Document => self.inner(1),
            Usual::ReadConcern => {
                let level = *self.random.pick(&["local", "available", "majority", "x"]);
                let mut concern = tree! { "level" => level };
                if self.random.percent(15) {
                    add(&mut concern, "x", Tree::of(1));
                }
                concern
            }
            Usual::WriteConcern => match self.random.below(5) {
                0 => Tree::Doc(Vec::new()),
                1 => tree! { "w" => 1 },
                2 => tree! { "w" => "majority" },
                3 => tree! { "j" => Tree::of(true) },
                _ => Tree::field("wtimeout", self.small()),
            },
            Usual::Time => match self.random.below(4) {
                0 => self.string(),
                _ => Tree::of(60_000),
            },
        }
    }
}

/// Adds a field unless there is one of the name.
fn add(command: &mut Tree, name: &str, value: Tree) {
    if let Tree::Doc(fields) = command
        && fields.iter().all(|(other, _)| other != name)
    {
        fields.push((name.to_owned(), value));
    }
}

//! A case: documents, and one command that both servers run.
//!
//! Cases come in *rounds*: a round is a seed, one kind of command, and (unless its commands write)
//! one set of documents for all its cases.

use std::rc::Rc;

use marula_bson::{DocBuf, Value};

use crate::accepted::looks::commands;
use crate::reports::shows_shared_fields;
use crate::times::is_ended;
use crate::tree::{Tree, tree};
use crate::values::{Maker, NAMES};

/// The kinds of rounds.
pub(crate) const KINDS: [&str; 19] = [
    "find",
    "update",
    "findAndModify",
    "aggregate",
    "expression",
    "indexed",
    "getMore",
    "applyOps",
    "restart",
    "collection",
    "place",
    "text",
    "report",
    "code",
    "metadata",
    "repeated",
    "tail",
    "time",
    "variable",
];

/// The kinds whose cases are several commands, each of which depends on those before it.
const SEQUENCES: [&str; 9] = [
    "getMore",
    "applyOps",
    "restart",
    "collection",
    "code",
    "repeated",
    "tail",
    "time",
    "variable",
];

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) documents: Rc<Vec<Tree>>,
    /// The documents of the collection `other`, which `$lookup` and similar stages read.
    pub(crate) others: Rc<Vec<Tree>>,
    /// Indexes on the collection `c`: key patterns, or specifications with a `key` and options.
    pub(crate) indexes: Rc<Vec<Tree>>,
    /// The stages of the view `v` of the collection `c`; if there are none, there is no view.
    pub(crate) view: Rc<Vec<Tree>>,
    pub(crate) command: Tree,
    /// The commands after it, in kinds that are sequences.
    pub(crate) steps: Rc<Vec<Tree>>,
}

/// Returns the cases of one round.
pub(crate) fn round(kind: &'static str, seed: u64) -> Vec<Case> {
    let mut maker = Maker::new(seed);
    let count = if kind == "aggregate" { 25 } else { 40 };
    if matches!(kind, "update" | "findAndModify") {
        if kind == "update" && maker.random.percent(10) {
            return (0..12).map(|_| marking_case(&mut maker, kind)).collect();
        }
        let indexes = if maker.random.percent(40) {
            maker.documents(3);
            indexes(&mut maker)
        } else {
            Vec::new()
        };
        let indexes = Rc::new(indexes);
        return (0..count).map(|_| write_case(&mut maker, kind, &indexes)).collect();
    }
    if SEQUENCES.contains(&kind) {
        let count = match kind {
            "restart" => 3,
            "time" => 5,
            _ => 20,
        };
        return (0..count).map(|_| sequence(&mut maker, kind)).filter(Case::is_askable).collect();
    }
    let others = match kind {
        "aggregate" => maker.documents(4),
        _ => Vec::new(),
    };
    let documents = match kind {
        "place" => maker.located_documents(8),
        "text" => maker.written_documents(8),
        "metadata" => maker.documents_with_metadata(5),
        _ => maker.documents(10),
    };
    let indexes = match kind {
        "indexed" | "report" => indexes(&mut maker),
        "place" => maker.indexes_of_places(),
        "text" => vec![maker.index_of_text()],
        "metadata" => maker.indexes_with_metadata(),
        _ => Vec::new(),
    };
    let view = match kind {
        "aggregate" if maker.random.percent(30) => maker.view(),
        _ => Vec::new(),
    };
    let (documents, others, indexes) = (Rc::new(documents), Rc::new(others), Rc::new(indexes));
    let view = Rc::new(view);
    let case = |maker: &mut Maker| Case {
        kind,
        documents: documents.clone(),
        others: others.clone(),
        indexes: indexes.clone(),
        view: view.clone(),
        command: match kind {
            "expression" => {
                let pipeline = maker.expression_pipeline();
                aggregate(Tree::of("c"), pipeline)
            }
            "aggregate" => pipeline(maker, !view.is_empty()),
            "indexed" => find_indexed(maker, &indexes),
            "place" => maker.search_by_place(),
            "text" => maker.search_in_text(),
            "report" => maker.report_pipeline(),
            "metadata" => maker.with_metadata(indexes.len()),
            _ if maker.random.percent(4) => maker.count_command(),
            _ => find(maker, false),
        },
        steps: Rc::default(),
    };
    (0..count).map(|_| case(&mut maker)).filter(Case::is_askable).collect()
}

/// Returns a write that marks an index and fails, and what comes after it.
fn marking_case(maker: &mut Maker, kind: &'static str) -> Case {
    let (documents, indexes) = (maker.documents_without_marks(), maker.indexes_with_marks());
    let (command, steps) = maker.around_marks(kind == "restart");
    Case {
        kind,
        documents: Rc::new(documents),
        others: Rc::default(),
        indexes: Rc::new(indexes),
        view: Rc::default(),
        command,
        steps: Rc::new(steps),
    }
}

fn sequence(maker: &mut Maker, kind: &'static str) -> Case {
    if kind == "restart" && maker.random.percent(35) {
        return marking_case(maker, kind);
    }
    let merges = kind == "getMore" && maker.random.percent(40);
    let others = if kind == "variable" { maker.documents(3) } else { Vec::new() };
    let documents = Rc::new(match kind {
        "getMore" if merges => maker.documents_to_merge(9),
        "getMore" => maker.documents(8),
        "variable" => maker.documents_with_places(3),
        _ => maker.documents(3),
    });
    let indexes = match kind {
        "restart" => indexes(maker),
        "getMore" if merges => maker.indexes_to_merge(),
        "applyOps" if maker.random.percent(40) => indexes(maker),
        "repeated" if maker.random.percent(30) => indexes(maker),
        "variable" => vec![tree! { "p" => "2dsphere" }],
        _ => Vec::new(),
    };
    let (command, steps) = match kind {
        "getMore" if merges => maker.merged_batches(&indexes),
        "getMore" => maker.batches(true),
        "applyOps" => maker.lists_of_operations(),
        "collection" => maker.on_a_collection(),
        "code" => maker.around_code(),
        "repeated" => maker.with_repeated_fields(&mut |maker| any_command(maker)),
        "tail" => maker.around_a_tail(),
        "time" => maker.in_limited_time(),
        "variable" => maker.with_variables(),
        _ => maker.around_restart(),
    };
    Case {
        kind,
        documents,
        others: Rc::new(others),
        indexes: Rc::new(indexes),
        view: Rc::default(),
        command,
        steps: Rc::new(steps),
    }
}

/// Returns a command of one of the kinds that are one command.
fn any_command(maker: &mut Maker) -> Tree {
    match maker.random.below(20) {
        0..6 => {
            let statement = maker.update_statement();
            tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) }
        }
        6..9 => find_and_modify(maker),
        9 => maker.delete(),
        10 => maker.distinct(),
        11 => maker.count_command(),
        12..16 => find(maker, false),
        _ => pipeline(maker, false),
    }
}

fn write_case(maker: &mut Maker, kind: &'static str, indexes: &Rc<Vec<Tree>>) -> Case {
    let documents = Rc::new(maker.documents(3));
    let mut command = match kind {
        "update" if maker.random.percent(8) => maker.delete(),
        "update" => {
            let mut statements = vec![maker.update_statement()];
            if maker.random.percent(8) {
                statements.push(maker.update_statement());
            }
            let mut command = tree! { "update" => "c", "updates" => Tree::Array(statements) };
            if maker.random.percent(6) {
                maker.options_of_update(&mut command);
            }
            command
        }
        _ => find_and_modify(maker),
    };
    if !indexes.is_empty() {
        name_one(maker, &mut command);
    }
    if maker.random.percent(5) {
        let collation = maker.collation();
        let Tree::Doc(fields) = &mut command else { unreachable!("a command is a document") };
        let place = match fields.iter_mut().find(|(name, _)| name == "updates") {
            Some((_, Tree::Array(statements))) => statements.first_mut(),
            _ if kind == "update" => None,
            _ => Some(&mut command),
        };
        if let Some(Tree::Doc(fields)) = place {
            fields.push(("collation".to_owned(), collation));
        }
    }
    Case {
        kind,
        documents,
        others: Rc::default(),
        indexes: indexes.clone(),
        view: Rc::default(),
        command,
        steps: Rc::default(),
    }
}

/// Restricts the write's filter to one `_id`: with indexes the plan, which is open, decides which
/// of several documents comes first.
fn name_one(maker: &mut Maker, command: &mut Tree) {
    let id = Tree::of(maker.random.between(1, 4) as i32);
    let name_in = |fields: &mut Vec<(String, Tree)>, name: &str| {
        let filter = fields.iter_mut().find(|(field, _)| field == name);
        let Some((_, Tree::Doc(filter))) = filter else { return };
        filter.retain(|(field, _)| field != "_id");
        filter.insert(0, ("_id".to_owned(), id.clone()));
    };
    let Tree::Doc(fields) = command else { return };
    for (name, value) in fields.iter_mut() {
        if let ("updates" | "deletes", Tree::Array(statements)) = (name.as_str(), value) {
            for statement in statements {
                let Tree::Doc(statement) = statement else { continue };
                name_in(statement, "q");
            }
        }
    }
    name_in(fields, "query");
}

fn find(maker: &mut Maker, unordered: bool) -> Tree {
    let filter = maker.filter(2);
    let mut fields = vec![
        ("find".to_owned(), Tree::of("c")),
        ("filter".to_owned(), filter),
        ("batchSize".to_owned(), Tree::of(1000)),
    ];
    if maker.random.percent(30) {
        fields.push(("projection".to_owned(), maker.find_projection(!unordered)));
    }
    if maker.random.percent(25) {
        fields.push(("sort".to_owned(), maker.sort()));
        if maker.random.percent(30) {
            fields.push(("skip".to_owned(), Tree::of(maker.random.below(3) as i32)));
            fields.push(("limit".to_owned(), Tree::of(maker.random.below(5) as i32)));
        }
    }
    if maker.random.percent(if maker.is_spaced { 50 } else { 8 }) {
        fields.push(("collation".to_owned(), maker.collation()));
    }
    if !unordered && maker.random.percent(4) {
        return maker.distinct();
    }
    let mut command = Tree::Doc(fields);
    if !unordered && maker.random.percent(10) {
        maker.options_of_find(&mut command, false);
    }
    command
}

/// Returns a `find` that often names an index, or uses only fields of one.
fn find_indexed(maker: &mut Maker, indexes: &[Tree]) -> Tree {
    if maker.random.percent(5) {
        return maker.count_command();
    }
    let mut command = find(maker, true);
    let number = maker.random.below(indexes.len());
    if maker.random.percent(5) {
        maker.bounds_of_index(&mut command, number, &indexes[number]);
        return command;
    }
    let paths: Vec<String> =
        key_of(&indexes[number]).fields().iter().map(|(path, _)| path.clone()).collect();
    let Tree::Doc(fields) = &mut command else { return command };
    if maker.random.percent(12) {
        let count = maker.random.between(1, paths.len());
        let mut shown: Vec<_> =
            paths[..count].iter().map(|path| (path.clone(), Tree::of(1))).collect();
        shown.insert(0, ("_id".to_owned(), Tree::of(0)));
        let (path, condition) = match maker.place() {
            (path, value) if path == paths[0] => (path, maker.operators(&value, 1)),
            _ => (paths[0].clone(), tree! { "$gte" => maker.extreme() }),
        };
        fields.retain(|(name, _)| name != "projection" && name != "filter");
        fields.push(("filter".to_owned(), Tree::field(path, condition)));
        fields.push(("projection".to_owned(), Tree::Doc(shown)));
    }
    if maker.random.percent(12) {
        fields.push(("hint".to_owned(), Tree::of(format!("i{number}").as_str())));
        if maker.random.percent(25) {
            fields.retain(|(name, _)| name != "projection");
            let key = tree! { "m" => tree! { "$meta" => "indexKey" } };
            fields.push(("projection".to_owned(), key));
        }
    }
    if maker.random.percent(6) {
        maker.options_of_find(&mut command, true);
    }
    command
}

fn find_and_modify(maker: &mut Maker) -> Tree {
    let mut fields = vec![("findAndModify".to_owned(), Tree::of("c"))];
    let query = maker.filter(1);
    fields.push(("query".to_owned(), query));
    if maker.random.percent(60) {
        fields.push(("sort".to_owned(), maker.sort()));
    }
    if maker.random.percent(10) {
        fields.push(("remove".to_owned(), Tree::of(true)));
    } else {
        maker.update_fields(&mut fields, "update");
        if maker.random.percent(60) {
            fields.push(("new".to_owned(), Tree::of(true)));
        }
    }
    if maker.random.percent(30) {
        fields.push(("fields".to_owned(), maker.find_projection(false)));
    }
    let mut command = Tree::Doc(fields);
    if maker.random.percent(8) {
        maker.options_of_find_and_modify(&mut command);
    }
    command
}

fn aggregate(on: Tree, pipeline: Tree) -> Tree {
    tree! { "aggregate" => on, "pipeline" => pipeline, "cursor" => tree! { "batchSize" => 1000 } }
}

/// Returns an `aggregate` with further options.
fn pipeline(maker: &mut Maker, has_view: bool) -> Tree {
    // A variable of a command may not read documents: most often it is a constant.
    let variable = maker.random.percent(8).then(|| match maker.random.percent(90) {
        true => Tree::field("$literal", maker.value(1)),
        false => maker.expression("any", 1),
    });
    let names: &[&'static str] = if variable.is_some() { &["l"] } else { &[] };
    let mut pipeline = maker.with(names, Maker::pipeline);
    let mut on = Tree::of(if has_view && maker.random.percent(60) { "v" } else { "c" });
    if maker.random.percent(4) {
        on = Tree::of(1);
        let documents = maker.document_list();
        if let Tree::Array(stages) = &mut pipeline {
            stages.insert(0, tree! { "$documents" => documents });
        }
    }
    let mut command = aggregate(on, pipeline);
    if let Tree::Doc(fields) = &mut command {
        if let Some(variable) = variable {
            fields.push(("let".to_owned(), tree! { "l" => variable }));
        }
        if maker.random.percent(8) {
            fields.push(("collation".to_owned(), maker.collation()));
        }
    }
    if maker.random.percent(6) {
        maker.options_of_aggregate(&mut command);
    }
    command
}

fn indexes(maker: &mut Maker) -> Vec<Tree> {
    let mut indexes: Vec<Tree> = Vec::new();
    for _ in 0..maker.random.between(1, 3) {
        let mut key: Vec<(String, Tree)> = Vec::new();
        for _ in 0..maker.random.between(1, 2) {
            let path = if maker.random.percent(60) {
                (*maker.random.pick(&NAMES)).to_owned()
            } else {
                maker.path()
            };
            if key.iter().all(|(other, _)| *other != path) {
                key.push((path, Tree::of(if maker.random.percent(70) { 1 } else { -1 })));
            }
        }
        if maker.random.percent(20)
            && let Some((path, _)) = key.first().cloned()
        {
            // The path, a longer path, or the value in another indexed field.
            let more = match maker.random.below(3) {
                0 => (format!("{path}.a"), Tree::of(1)),
                1 => (path.split('.').next().unwrap_or("a").to_owned(), Tree::of(-1)),
                _ => (format!("{path}.a.b"), Tree::of(1)),
            };
            if key.iter().all(|(other, _)| *other != more.0) {
                key.push(more);
            }
        }
        let index = with_options(maker, key);
        if !indexes.contains(&index) {
            indexes.push(index);
        }
    }
    indexes
}

/// Returns an index of a rare kind, or with options, or just its key.
fn with_options(maker: &mut Maker, mut key: Vec<(String, Tree)>) -> Tree {
    let option = match maker.random.below(30) {
        0 => ("sparse", Tree::of(true)),
        1 => ("unique", Tree::of(true)),
        2 => {
            let (path, value) = maker.place();
            let condition = match maker.random.below(3) {
                0 => tree! { "$exists" => 1 },
                1 => tree! { "$gt" => value },
                _ => value,
            };
            ("partialFilterExpression", Tree::field(path, condition))
        }
        3 => {
            key.truncate(1);
            key[0].0.push_str(".$**");
            return tree! { "key" => Tree::Doc(key) };
        }
        4 => {
            key.truncate(1);
            key[0].1 = Tree::of("hashed");
            return tree! { "key" => Tree::Doc(key) };
        }
        5 => {
            key.truncate(1);
            ("expireAfterSeconds", Tree::of(i32::MAX))
        }
        6 if maker.is_spaced => ("collation", maker.collation()),
        6 => ("collation", tree! { "locale" => "en", "strength" => 2 }),
        _ => return Tree::Doc(key),
    };
    let mut spec = vec![("key".to_owned(), Tree::Doc(key))];
    spec.push((option.0.to_owned(), option.1));
    Tree::Doc(spec)
}

/// Returns the key pattern of an index.
pub(crate) fn key_of(index: &Tree) -> &Tree {
    index.get("key").unwrap_or(index)
}

impl Case {
    /// Returns the commands that bring both collections to the case's state. `fresh` drops the
    /// previous state, indexes included.
    pub(crate) fn setup(&self, fresh: bool) -> Vec<DocBuf> {
        let mut commands = Vec::new();
        if self.kind == "aggregate" {
            commands.push(tree! { "drop" => "v" });
        }
        let others: &[&str] = match self.kind {
            "applyOps" => &["n"],
            "collection" => &["k", "m"],
            "code" | "time" => &["m"],
            "tail" => &["t"],
            _ => &[],
        };
        commands.extend(others.iter().map(|name| tree! { "drop" => *name }));
        for (name, documents) in [("c", &self.documents), ("other", &self.others)] {
            // Creating a collection costs more than the case's command: a collection for documents
            // is emptied instead.
            let is_gone = documents.is_empty()
                || matches!(self.kind, "indexed" | "place" | "text" | "report" | "metadata")
                || self.is_sequence();
            let clear = if fresh && is_gone {
                tree! { "drop" => name }
            } else {
                let all = tree! { "q" => Tree::Doc(Vec::new()), "limit" => 0 };
                tree! { "delete" => name, "deletes" => Tree::Array(vec![all]) }
            };
            if name == "c" || fresh {
                commands.push(clear);
            }
            if fresh && !is_gone {
                commands.push(tree! { "dropIndexes" => name, "index" => "*" });
            }
            if fresh && name == "c" && !self.indexes.is_empty() {
                for (number, index) in self.indexes.iter().enumerate() {
                    let mut spec = match index.get("key") {
                        Some(_) => index.fields().to_vec(),
                        None => vec![("key".to_owned(), index.clone())],
                    };
                    spec.push(("name".to_owned(), Tree::of(format!("i{number}").as_str())));
                    let specs = Tree::Array(vec![Tree::Doc(spec)]);
                    // One by one: a rejected document does not prevent the others.
                    commands.push(tree! { "createIndexes" => name, "indexes" => specs });
                }
            }
            if !documents.is_empty() {
                commands.push(tree! {
                    "insert" => name,
                    "documents" => Tree::Array(documents.to_vec()),
                    "ordered" => Tree::of(false),
                });
            }
        }
        if !self.view.is_empty() {
            let view = Tree::Array(self.view.to_vec());
            commands.push(tree! { "create" => "v", "viewOn" => "c", "pipeline" => view });
        }
        commands.iter().map(Tree::to_doc).collect()
    }

    /// Returns the command, and the commands that show its effects.
    pub(crate) fn question(&self) -> Vec<DocBuf> {
        let mut commands = vec![self.command.to_doc()];
        commands.extend(self.steps.iter().map(Tree::to_doc));
        if self.kind == "applyOps" {
            commands.push(tree! { "find" => "n", "batchSize" => 1000 }.to_doc());
            commands.push(tree! { "listIndexes" => "c" }.to_doc());
        }
        if self.writes() {
            commands.push(tree! { "find" => "c", "batchSize" => 1000 }.to_doc());
            // Each index must match the documents, including their missing fields.
            for (number, index) in self.indexes.iter().enumerate() {
                let hint = format!("i{number}");
                let missing = key_of(index)
                    .fields()
                    .iter()
                    .filter(|(path, _)| !path.contains('$'))
                    .map(|(path, _)| Tree::field(path, Tree::of(Value::Null)));
                for filter in std::iter::once(Tree::Doc(Vec::new())).chain(missing) {
                    let find = tree! {
                        "find" => "c", "filter" => filter, "hint" => hint.as_str(), "batchSize" => 1000
                    };
                    if self.shows_marks() {
                        let explain =
                            tree! { "explain" => find.clone(), "verbosity" => "queryPlanner" };
                        commands.push(explain.to_doc());
                    }
                    commands.push(find.to_doc());
                }
            }
            if !self.indexes.is_empty() {
                commands.push(tree! { "validate" => "c" }.to_doc());
            }
        }
        commands
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self.kind, "update" | "findAndModify") || self.is_sequence()
    }

    /// Returns whether the plans are compared, which show the marks of arrays.
    fn shows_marks(&self) -> bool {
        self.kind == "restart" || self.kind == "update" && !self.steps.is_empty()
    }

    /// Returns whether the case has several commands, each of which depends on those before it.
    /// It begins with new indexes, which earlier cases have not marked.
    pub(crate) fn is_sequence(&self) -> bool {
        SEQUENCES.contains(&self.kind) || !self.steps.is_empty()
    }

    /// Returns whether the order of the result is open.
    pub(crate) fn is_unordered(&self) -> bool {
        // The sort of a findAndModify chooses a document, and orders no result.
        let is_sorted = self.kind != "findAndModify" && self.command.get("sort").is_some();
        self.is_series() || !self.indexes.is_empty() && !is_sorted
    }

    /// Returns whether the case is about a time series, whose measurements come in any order, and
    /// their fields as well.
    pub(crate) fn is_series(&self) -> bool {
        self.command.get("timeseries").is_some()
    }

    /// Returns whether a pipeline reads only the first documents.
    fn stops_early(&self) -> bool {
        count(&self.command, "$limit") + count(&self.command, "$skip") > 0
    }

    /// Returns the names of all operators and stages of the command, and the names of its options.
    pub(crate) fn operators(&self) -> std::collections::BTreeSet<String> {
        let mut found = std::collections::BTreeSet::new();
        for (name, _) in self.command.fields() {
            found.insert(name.clone());
        }
        for command in commands(self) {
            command.walk(&mut |name, _| {
                if name.starts_with('$') {
                    found.insert(name.to_owned());
                }
            });
        }
        found
    }

    /// Returns whether two servers must agree on the reply, and the command crashes neither of
    /// them.
    pub(crate) fn is_askable(&self) -> bool {
        let mut determined = true;
        let mut has_bits = false;
        for command in commands(self) {
            command.walk(&mut |name, value| {
                has_bits |= name.starts_with("$bits");
                determined &= !matches!(name, "sort" | "$sort")
                    || value.kind().is_number()
                    || names_id(value);
                // A pipeline of an update has one document.
                if let Tree::Array(stages) = value
                    && !matches!(name, "u" | "update" | "whenMatched")
                {
                    determined &= stages_are_determined(stages);
                }
            });
        }
        // mongod 6.0.27 crashes if the conditions of a new root are partly constant.
        let mut ends = false;
        let mut see = |name: &str, value: &Tree| {
            let root = if name == "$replaceRoot" { value.get("newRoot") } else { Some(value) };
            let has = |name| root.is_some_and(|root| root.get(name).is_some());
            ends |= matches!(name, "$replaceRoot" | "$replaceWith") && (has("$and") || has("$or"));
        };
        self.command.walk(&mut see);
        self.view.iter().for_each(|stage| stage.walk(&mut see));
        determined &= !ends;
        let multiplies = self.view.iter().any(|stage| stage.get("$unwind").is_some());
        determined &= !(multiplies && self.stops_early());
        // mongod 6.0.27 aborts on a positional projection with a filter by bits.
        let positional = ["projection", "fields"].iter().any(|name| {
            let fields = self.command.get(name).map_or(&[][..], Tree::fields);
            fields.iter().any(|(path, _)| path.ends_with(".$"))
        });
        let in_time = commands(self).all(is_ended);
        let is_shared =
            self.kind != "report" || self.command.get("pipeline").is_none_or(shows_shared_fields);
        determined && is_shared && !(positional && has_bits) && (self.kind != "time" || in_time)
    }
}

/// `$push` has a `$sort` of the elements too; it is distinguished by its parent's `$each`.
fn names_id(sort: &Tree) -> bool {
    sort.get("_id").is_some()
        || !sort.fields().iter().any(|(_, direction)| direction.kind().is_number())
}

fn stages_are_determined(stages: &[Tree]) -> bool {
    let name = |stage: &Tree| match stage.fields() {
        [(name, _)] => name.clone(),
        _ => String::new(),
    };
    stages.iter().enumerate().all(|(index, stage)| {
        let next = stages.get(index + 1);
        match name(stage).as_str() {
            "$group" => {
                let sets = count(stage, "$addToSet");
                let sorted: usize =
                    stages[index..].iter().take(4).map(|stage| count(stage, "$sortArray")).sum();
                next.is_some_and(|next| name(next) == "$sort") && sorted >= sets
            }
            "$sortByCount" => next.is_some_and(|next| {
                next.get("$sort").is_some_and(|sort| sort.get("count").is_some())
            }),
            // The windows' own sort makes a preceding one void.
            "$densify" | "$fill" => next.is_some_and(|next| name(next) == "$sort"),
            "$graphLookup" => next.is_some_and(|next| count(next, "$sortArray") > 0),
            "$setWindowFields" => {
                stage.fields()[0].1.get("sortBy").is_some()
                    && next.is_some_and(|next| name(next) == "$sort")
            }
            // Documents that were unwound from one have its `_id`, and may come in any order after
            // a sort with a limit.
            "$limit" | "$skip" => {
                let multiplies = ["$unwind", "$unionWith", "$densify"];
                index > 0
                    && name(&stages[index - 1]) == "$sort"
                    && !stages[..index].iter().any(|it| multiplies.contains(&name(it).as_str()))
            }
            _ => true,
        }
    })
}

fn count(tree: &Tree, operator: &str) -> usize {
    let mut found = 0;
    tree.walk(&mut |name, _| found += usize::from(name == operator));
    found
}

/// Returns the code of the first error in a reply, 0 if there is none, and its message.
pub(crate) fn failure(reply: &Tree) -> (i32, String) {
    let parts = |error: &Tree| {
        let code = match error.get("code") {
            Some(Tree::Leaf(code)) => match code.get() {
                Value::Int32(code) => code,
                _ => 0,
            },
            _ => 0,
        };
        (code, error.get("errmsg").and_then(Tree::text).unwrap_or_default())
    };
    match reply.get("writeErrors").and_then(|errors| errors.items().first()) {
        Some(error) => parts(error),
        None => parts(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything() {
        for kind in KINDS {
            let texts = |seed| -> Vec<DocBuf> {
                let cases = round(kind, seed);
                cases.iter().flat_map(|case| [case.setup(true), case.question()].concat()).collect()
            };
            assert_eq!(texts(7), texts(7));
            assert_ne!(texts(7), texts(8));
        }
    }

    #[test]
    fn every_command_is_well_formed() {
        for seed in 0..20 {
            for case in KINDS.iter().flat_map(|kind| round(kind, seed)) {
                for command in [case.setup(true), case.question()].concat() {
                    let checked = marula_bson::validate::validate(
                        &command,
                        marula_bson::validate::Limits::MESSAGE,
                    );
                    assert!(checked.is_ok(), "{command:?}");
                }
            }
        }
    }
}

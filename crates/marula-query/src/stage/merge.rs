//! `$merge`: writes each document into a collection, by the modes for a match and for no match.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, ObjectId, Value, ValueBuf, doc};
use marula_error::{Error, Result, codes, errors};

use super::out::{check_target_name, is_database};
use super::source::check_result;
use super::{
    Env, InsertStatement, Kind, Parser, Pipeline, Source, Stage, StagePlace, StageRow, Step,
};
use crate::context::Context;
use crate::expression::scope::check_user_variable;
use crate::expression::{Arena, Expression, Frame, Path};
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::once::{Once, unknown_field};

pub(super) const ROW: StageRow =
    StageRow { name: "$merge", since: FeatureVersion::V6_0, place: StagePlace::Last, parse };

errors! {
    wrong_type(kind: &str) = TypeMismatch, "$merge requires a string or object argument, but found {kind}";
    no_into() = IDLFailedToParse, "BSON field '$merge.into' is missing but a required field";
    into_wrong_type(kind: &str) = 51178, "$merge 'into' field  must be either a string or an object, but found {kind}";
    into_field_wrong_type(name: &str, kind: &str) = TypeMismatch, "BSON field 'into.{name}' is the wrong type '{kind}', expected type 'string'";
    into_empty() = 5786800, "$merge 'into' field cannot be an empty string";
    into_no_collection() = 5786801, "$merge 'into' field must specify a 'coll' that is not empty, null or undefined";
    invalid_target(name: &str) = InvalidNamespace, "Invalid $merge target namespace: '{name}'";
    on_wrong_type(kind: &str) = 51186, "$merge 'on' field  must be either a string or an array of strings, but found {kind}";
    on_empty() = 51187, "If explicitly specifying $merge 'on', must include at least one field";
    on_element_wrong_type(kind: &str) = 51134, "$merge 'on' array elements must be strings, but found {kind}";
    on_duplicate(name: &str) = 31465, "Found a duplicate field '{name}'";
    when_matched_wrong_type(kind: &str) = 51191, "$merge 'whenMatched' field  must be either a string or an array, but found {kind}";
    when_matched_unknown(text: &str) = BadValue, "Enumeration value '{text}' for field 'whenMatched' is not a valid value.";
    when_not_matched_unknown(text: &str) = BadValue, "Enumeration value '{text}' for field '$merge.whenNotMatched' is not a valid value.";
    when_not_matched_wrong_type(kind: &str) = TypeMismatch, "BSON field '$merge.whenNotMatched' is the wrong type '{kind}', expected type 'string'";
    modes_do_not_combine(matched: &str, not_matched: &str) = 51181, "Combination of $merge modes 'whenMatched: {matched}' and 'whenNotMatched: {not_matched}' is not supported";
    let_without_pipeline(mode: &str) = 51199, "Cannot use 'let' variables with 'whenMatched: {mode}' mode";
    let_wrong_type(kind: &str) = TypeMismatch, "BSON field '$merge.let' is the wrong type '{kind}', expected type 'object'";
    let_new_reserved() = 51273, "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'";
    no_unique_index() = 51183, "Cannot find index to verify that join fields will be unique";
    on_value_missing(field: &str) = 51132, "$merge write error: 'on' field '{field}' cannot be missing, null, undefined or an array";
    on_value_array(field: &str) = 51185, "$merge write error: 'on' field '{field}' is an array";
    special_collection(name: &str) = 31319, "Cannot $merge to special collection: {name}";
    internal_database(name: &str) = 31320, "Cannot $merge to internal database: {name}";
    not_matched() = MergeStageNoMatchingDocument, "$merge could not find a matching document in the target collection for at least one document in the source collection";
}

/// The error of an insert that finds an existing document.
const FOUND_EXISTING: &str = "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields";
/// The error of any other write that violates a unique index.
const DUPLICATE: &str = "$merge failed due to a DuplicateKey error";
/// The error of an update that would change the document's `_id`.
const CHANGES_ID: &str = "$merge failed to update the matching document, did you attempt to modify the _id or the shard key?";

/// The variable of an update pipeline that is the document.
const NEW: &str = "new";

/// The size limit of a batch of documents that are written together.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum number of documents that are written together.
const BATCH_DOCUMENTS_MAX: usize = 100_000;

/// The mode for a document of the target that matches.
#[derive(Debug)]
enum WhenMatched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    Pipeline(ValueBuf),
}

/// The mode for a document that matches none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

/// A parsed `$merge`.
#[derive(Debug)]
pub(super) struct Merge {
    database: String,
    collection: String,
    on: Vec<String>,
    /// Whether `on` was given: then a unique index must have its fields.
    has_on: bool,
    variables: Vec<(String, Expression)>,
    when_matched: WhenMatched,
    when_not_matched: WhenNotMatched,
}

impl WhenMatched {
    fn name(&self) -> &'static str {
        match self {
            WhenMatched::Replace => "replace",
            WhenMatched::KeepExisting => "keepExisting",
            WhenMatched::Merge => "merge",
            WhenMatched::Fail => "fail",
            WhenMatched::Pipeline(_) => "pipeline",
        }
    }

    fn parse(value: Value<'_>, version: FeatureVersion) -> Result<Self> {
        match value {
            Value::Array(stages) => {
                Pipeline::check_form(stages, version)?;
                Ok(WhenMatched::Pipeline(value.to_buf()))
            }
            Value::String(name) => match &**name {
                b"replace" => Ok(WhenMatched::Replace),
                b"keepExisting" => Ok(WhenMatched::KeepExisting),
                b"merge" => Ok(WhenMatched::Merge),
                b"fail" => Ok(WhenMatched::Fail),
                _ => Err(when_matched_unknown(&name.to_string())),
            },
            _ => Err(when_matched_wrong_type(value.kind().alias())),
        }
    }
}

impl WhenNotMatched {
    fn name(self) -> &'static str {
        match self {
            WhenNotMatched::Insert => "insert",
            WhenNotMatched::Discard => "discard",
            WhenNotMatched::Fail => "fail",
        }
    }

    fn parse(value: Value<'_>) -> Result<Self> {
        let Value::String(name) = value else {
            return Err(when_not_matched_wrong_type(value.kind().alias()));
        };
        match &**name {
            b"insert" => Ok(WhenNotMatched::Insert),
            b"discard" => Ok(WhenNotMatched::Discard),
            b"fail" => Ok(WhenNotMatched::Fail),
            _ => Err(when_not_matched_unknown(&name.to_string())),
        }
    }
}

/// A `$merge` of which the variables are not parsed yet.
pub(super) struct MergeSpec<'v> {
    merge: Merge,
    variables: Option<Doc<'v>>,
    /// The stages of `whenMatched`, if it has any.
    pub(super) stages: Option<Doc<'v>>,
}

/// Reads the argument: types, names and modes. Errors of fields and expressions are reported later.
pub(super) fn read<'v>(value: Value<'v>, context: &Context) -> Result<MergeSpec<'v>> {
    let (mut target, mut on) = (None, None);
    let (mut when_matched, mut stages) = (WhenMatched::Merge, None);
    let mut when_not_matched = WhenNotMatched::Insert;
    let mut variables = None;
    let spec = match value {
        Value::String(name) => {
            target = Some((None, name.to_string()));
            Doc::EMPTY
        }
        Value::Document(spec) => spec,
        _ => return Err(wrong_type(value.kind().alias())),
    };
    let mut once = Once::of("$merge");
    for element in spec {
        let value = element.value.get();
        match &**element.name {
            b"into" => target = Some(parse_target(value)?),
            b"on" => on = Some(parse_on(value)?),
            b"whenMatched" => {
                when_matched = WhenMatched::parse(value, context.version)?;
                stages = value.as_array();
            }
            // Null counts as absent.
            b"whenNotMatched" | b"let" if value.is_nullish() => {}
            b"whenNotMatched" => when_not_matched = WhenNotMatched::parse(value)?,
            b"let" => {
                let doc = value.as_doc();
                variables = Some(doc.ok_or_else(|| let_wrong_type(value.kind().alias()))?);
            }
            _ => return Err(unknown_field("$merge", element.name)),
        }
        once.note_given(element)?;
    }
    let (database, collection) = target.ok_or_else(no_into)?;
    // As in mongod, an empty name means the pipeline's own database.
    let database = database.filter(|name| !name.is_empty());
    let database = database.unwrap_or_else(|| context.database().to_owned());
    check_target_name(&database, &collection)?;
    if collection.is_empty() || !is_database(&database, context) {
        return Err(invalid_target(&format!("{database}.{collection}")));
    }
    let is_unsupported = matches!(
        (&when_matched, when_not_matched),
        (WhenMatched::KeepExisting, WhenNotMatched::Discard | WhenNotMatched::Fail)
            | (WhenMatched::Fail, WhenNotMatched::Discard | WhenNotMatched::Fail)
    );
    if is_unsupported {
        return Err(modes_do_not_combine(when_matched.name(), when_not_matched.name()));
    }
    let has_on = on.is_some();
    let on = on.unwrap_or_else(|| vec!["_id".to_owned()]);
    let merge = Merge {
        database,
        collection,
        on,
        has_on,
        variables: Vec::new(),
        when_matched,
        when_not_matched,
    };
    Ok(MergeSpec { merge, variables, stages })
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let MergeSpec { mut merge, variables, .. } = read(value, parser.context)?;
    check_on(&merge.on)?;
    // As in mongod, the first of the fields by name that a document lacks is the one in the error.
    merge.on.sort_unstable();
    if merge.collection.starts_with("system.") {
        return Err(special_collection(&merge.collection));
    }
    if matches!(&*merge.database, "admin" | "config" | "local") {
        return Err(internal_database(&merge.database));
    }
    merge.variables = match (variables, &merge.when_matched) {
        (doc, WhenMatched::Pipeline(_)) => {
            // mongod's update needs it to insert the document, and otherwise `let` replaces it.
            let has_new = doc.is_none() || merge.when_not_matched == WhenNotMatched::Insert;
            parse_variables(doc.unwrap_or(Doc::EMPTY), has_new, parser)?
        }
        (Some(_), mode) => return Err(let_without_pipeline(mode.name())),
        (None, _) => Vec::new(),
    };
    parser.push(merge);
    Ok(())
}

/// Parses the variables of an update pipeline. `$$new` is the document: if `let` has it, and after
/// the others if `has_new`.
fn parse_variables(
    doc: Doc<'_>,
    has_new: bool,
    parser: &Parser<'_>,
) -> Result<Vec<(String, Expression)>> {
    let new = || (NEW.to_owned(), Expression::Field(Path::default()));
    let mut variables = Vec::new();
    for element in doc {
        let name = element.name.to_string();
        check_user_variable(&name)?;
        let value = element.value.get();
        if name != NEW {
            variables.push((name, Expression::parse(value, &mut parser.scope())?));
        } else if value.as_str().is_none_or(|text| *text != "$$ROOT") {
            return Err(let_new_reserved());
        } else {
            variables.push(new());
        }
    }
    if has_new && doc.get(NEW).is_none() {
        variables.push(new());
    }
    Ok(variables)
}

fn parse_target(value: Value<'_>) -> Result<(Option<String>, String)> {
    match value {
        Value::String(name) if name.is_empty() => Err(into_empty()),
        Value::String(name) => Ok((None, name.to_string())),
        Value::Document(spec) => {
            let (mut database, mut collection) = (None, None);
            let mut once = Once::of("into");
            for element in spec {
                let name = element.name.to_str_lossy();
                let slot = match &*name {
                    "db" => &mut database,
                    "coll" => &mut collection,
                    _ => return Err(unknown_field("into", element.name)),
                };
                let value = element.value.get();
                if !value.is_nullish() {
                    once.note(element.name)?;
                    let text = value.as_str();
                    let wrong = || into_field_wrong_type(&name, value.kind().alias());
                    *slot = Some(text.ok_or_else(wrong)?.to_string());
                }
            }
            let collection = collection.filter(|name| !name.is_empty());
            Ok((database, collection.ok_or_else(into_no_collection)?))
        }
        _ => Err(into_wrong_type(value.kind().alias())),
    }
}

fn parse_on(value: Value<'_>) -> Result<Vec<String>> {
    match value {
        Value::String(name) => Ok(vec![name.to_string()]),
        Value::Array(items) if items.is_empty() => Err(on_empty()),
        Value::Array(items) => items
            .values()
            .map(|item| match item {
                Value::String(name) => Ok(name.to_string()),
                _ => Err(on_element_wrong_type(item.kind().alias())),
            })
            .collect(),
        _ => Err(on_wrong_type(value.kind().alias())),
    }
}

/// Checks that the fields are valid paths, and no two are equal.
fn check_on(fields: &[String]) -> Result<()> {
    for (at, field) in fields.iter().enumerate() {
        Path::parse(field.as_bytes())?;
        if fields[..at].contains(field) {
            return Err(on_duplicate(field));
        }
    }
    Ok(())
}

impl Stage for Merge {
    fn name(&self) -> &'static str {
        "$merge"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            let mut into = out.begin_doc("into");
            into.append("db", &self.database).append("coll", &self.collection);
            into.finish();
            match &*self.on {
                [only] => {
                    out.append("on", only);
                }
                several => {
                    let mut on = out.begin_array("on");
                    for field in several {
                        on.push(field);
                    }
                }
            }
            if matches!(self.when_matched, WhenMatched::Pipeline(_)) {
                let mut variables = out.begin_doc("let");
                for (name, value) in &self.variables {
                    match &**name {
                        NEW => variables.append(NEW, "$$ROOT"),
                        _ => variables.append(name, &value.print()),
                    };
                }
            }
            match &self.when_matched {
                WhenMatched::Pipeline(stages) => out.append("whenMatched", stages),
                mode => out.append("whenMatched", mode.name()),
            };
            out.append("whenNotMatched", self.when_not_matched.name());
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Writer
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        if self.has_on && !env.world.has_unique_index(&self.database, &self.collection, &self.on)? {
            return Err(no_unique_index());
        }
        Ok(Box::new(Merging { input, stage: self, env: env.clone(), batch: Batch::default() }))
    }
}

struct Merging {
    input: Box<dyn Source>,
    stage: Arc<Merge>,
    env: Env,
    batch: Batch,
}

/// Documents that are written together; each succeeds or fails on its own.
#[derive(Default)]
struct Batch {
    documents: Vec<Prepared>,
    bytes: usize,
}

/// A document that can be written. The errors that it has by itself are found before any document
/// of its batch is written.
struct Prepared {
    document: DocBuf,
    /// The filter for the target's document.
    filter: DocBuf,
    /// The variables of the update's pipeline.
    variables: DocBuf,
}

impl Batch {
    fn push(&mut self, prepared: Prepared) {
        self.bytes += prepared.document.len() + prepared.variables.len();
        self.documents.push(prepared);
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX || self.documents.len() >= BATCH_DOCUMENTS_MAX
    }
}

impl Merging {
    /// Writes all documents of the batch, then returns the first error. As in mongod, the documents
    /// without a match are counted only if all writes succeed.
    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let (mut outcome, mut all_match) = (Ok(()), true);
        for prepared in &batch.documents {
            meter::settle()?;
            let written = self.stage.write(prepared, &self.env);
            outcome = outcome.and(written.map(|is_written| all_match &= is_written));
        }
        outcome?;
        match self.stage.when_not_matched {
            WhenNotMatched::Fail if !all_match => Err(not_matched()),
            _ => Ok(()),
        }
    }
}

impl Merge {
    /// Returns the filter for the target's document that matches a document.
    fn filter(&self, document: Doc<'_>) -> Result<DocBuf> {
        let mut filter = DocBuf::new();
        for field in &self.on {
            let value = find(document, field);
            match value {
                Some(Value::Array(_)) => return Err(on_value_array(field)),
                Some(value) if !value.is_nullish() => filter.push(field, value),
                _ => return Err(on_value_missing(field)),
            }
        }
        Ok(filter)
    }

    fn prepare(&self, document: Doc<'_>, env: &Env) -> Result<Prepared> {
        // A document without the _id that it is matched by gets a new one, which matches nothing.
        let is_found_by_id = self.on.iter().any(|field| field == "_id");
        let document = if document.get("_id").is_some() || !is_found_by_id {
            document.to_buf()
        } else {
            let seconds = u32::try_from(env.context.now_ms / 1000).unwrap_or(0);
            DocBuf::build(|out| {
                out.append("_id", ObjectId::generate(seconds));
                out.append_elements(document.elements_bytes());
            })
        };
        let filter = self.filter(document.as_doc())?;
        let mut variables = DocBuf::new();
        let arena = Arena::new();
        let frame = Frame::new(document.as_doc(), &arena, &env.context);
        for (name, value) in &self.variables {
            // As in mongod, a missing value defines no variable.
            if let Some(value) = value.eval(&frame)? {
                variables.push(name, value);
            }
        }
        Ok(Prepared { document, filter, variables })
    }

    /// Returns whether a duplicate key is one of an index on just the `on` fields.
    fn is_on_fields(&self, error: &Error) -> bool {
        let fields = DocBuf::build(|out| {
            out.append_elements(error.fields());
        });
        let pattern = fields.as_doc().get("keyPattern").and_then(|pattern| pattern.as_doc());
        pattern.is_some_and(|pattern| {
            pattern.iter().count() == self.on.len()
                && self.on.iter().all(|path| pattern.get(path).is_some())
        })
    }

    /// Writes a document; returns whether it was written: it matches one, or is inserted.
    fn write(&self, prepared: &Prepared, env: &Env) -> Result<bool> {
        let Prepared { document, filter, variables } = prepared;
        let document = document.as_doc();
        check_result(document)?;
        if matches!(self.when_matched, WhenMatched::Fail) {
            let inserted = self.insert(document, InsertStatement::Insert, env);
            return inserted.map(|()| true).map_err(|error| {
                let words = if self.is_on_fields(&error) { FOUND_EXISTING } else { DUPLICATE };
                explained(error, words)
            });
        }
        let update = self.update(document);
        if self.is_upsert() {
            let (filter, update) = (filter.as_doc(), update.get());
            let written = env.world.upsert_one(&self.database, &self.collection, filter, update);
            return written.map(|()| true).map_err(explained_update);
        }
        if self.update_target(filter.as_doc(), &update, variables, env)? {
            return Ok(true);
        }
        if self.when_not_matched != WhenNotMatched::Insert {
            return Ok(false);
        }
        let inserted = self.insert(document, InsertStatement::Upsert, env);
        match inserted {
            // Another client may have inserted the matching document.
            Err(error)
                if error.code() == codes::DuplicateKey
                    && self.update_target(filter.as_doc(), &update, variables, env)? =>
            {
                Ok(true)
            }
            outcome => outcome.map(|()| true).map_err(|error| explained(error, DUPLICATE)),
        }
    }

    /// Returns whether the document is merged by an upsert. `replace` and pipelines insert the
    /// document as it is instead.
    fn is_upsert(&self) -> bool {
        matches!(self.when_matched, WhenMatched::Merge | WhenMatched::KeepExisting)
            && self.when_not_matched == WhenNotMatched::Insert
    }

    fn insert(&self, document: Doc<'_>, statement: InsertStatement, env: &Env) -> Result<()> {
        let (database, collection) = (&self.database, &self.collection);
        env.world.insert_one(database, collection, document, statement)
    }

    /// Updates the matching document of the target; returns whether there is one.
    fn update_target(
        &self,
        filter: Doc<'_>,
        update: &ValueBuf,
        variables: &DocBuf,
        env: &Env,
    ) -> Result<bool> {
        let (update, variables) = (update.get(), variables.as_doc());
        let creates = self.when_not_matched == WhenNotMatched::Insert;
        env.world
            .update_one(&self.database, &self.collection, filter, update, variables, creates)
            .map_err(explained_update)
    }

    /// Returns the update for a match.
    fn update(&self, document: Doc<'_>) -> ValueBuf {
        match &self.when_matched {
            WhenMatched::Replace => Value::Document(document).to_buf(),
            WhenMatched::Pipeline(stages) => stages.clone(),
            // The names of the document's fields are paths.
            WhenMatched::KeepExisting => {
                Value::Document(doc! { "$setOnInsert": document }.as_doc()).to_buf()
            }
            WhenMatched::Merge | WhenMatched::Fail => {
                Value::Document(doc! { "$set": document }.as_doc()).to_buf()
            }
        }
    }
}

/// Adds the explanation to a duplicate key's error; returns any other error unchanged.
fn explained(error: Error, words: &str) -> Error {
    if error.code() == codes::DuplicateKey { error.caused_by(words) } else { error }
}

/// Explains the error of an update.
fn explained_update(error: Error) -> Error {
    match error.code() {
        codes::ImmutableField => error.caused_by(CHANGES_ID),
        _ => explained(error, DUPLICATE),
    }
}

/// Returns the value at a dotted path through documents.
fn find<'d>(document: Doc<'d>, path: &str) -> Option<Value<'d>> {
    let mut parts = path.split('.');
    let first = document.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Document(doc) => doc.get(part),
        _ => None,
    })
}

impl Source for Merging {
    fn pull(&mut self) -> Result<Step> {
        loop {
            match self.input.advance()? {
                Step::Document => {
                    self.batch.push(self.stage.prepare(self.input.doc(), &self.env)?);
                    if self.batch.is_full() {
                        self.flush()?;
                    }
                }
                Step::Pause => return Ok(Step::Pause),
                Step::End => {
                    self.flush()?;
                    return Ok(Step::End);
                }
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::EMPTY
    }
}

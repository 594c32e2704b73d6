//! `$out`: replaces the content of a collection by the documents.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::source::check_result;
use super::{Env, Kind, Parser, Replacement, Source, Stage, StagePlace, StageRow, Step, World};
use crate::context::Context;
use crate::feature_version::FeatureVersion;

pub(super) const ROW: StageRow =
    StageRow { name: "$out", since: FeatureVersion::V6_0, place: StagePlace::Last, parse };

errors! {
    wrong_type(kind: &str) = 16990, "$out only supports a string or object argument, but found {kind}";
    wrong_fields() = 16994, "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'";
    time_series_wrong_type(kind: &str) = TypeMismatch, "BSON field '$out.timeseries' is the wrong type '{kind}', expected type 'object'";
    field_wrong_type(name: &str, kind: &str) = 13111, "wrong type for field ({name}) {kind} != string";
    invalid_target(db: &str, coll: &str) = InvalidNamespace, "Invalid $out target namespace, {db}.{coll}";
    special_collection(name: &str) = 17385, "Can't $out to special collection: {name}";
    embedded_nul() = InvalidNamespace, "namespaces cannot have embedded null characters";
    dot_in_database(name: &str) = InvalidNamespace, "'.' is an invalid character in the database name: {name}";
    leading_dot(name: &str) = InvalidNamespace, "Collection names cannot start with '.': {name}";
    internal_database(name: &str) = 31321, "Can't $out to internal database: {name}";
}

/// The longest name of a database, in bytes.
const DATABASE_NAME_BYTES_MAX: usize = 63;

/// A parsed `$out`.
#[derive(Debug)]
pub(super) struct Out {
    database: String,
    collection: String,
    /// The option `timeseries` of a time-series target.
    time_series: Option<DocBuf>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let out = read(value, parser.context)?;
    if out.collection.starts_with("system.") {
        return Err(special_collection(&out.collection));
    }
    if matches!(&*out.database, "admin" | "config" | "local") {
        return Err(internal_database(&out.database));
    }
    parser.push(out);
    Ok(())
}

/// Returns the target that an `$out` names: a namespace.
pub(super) fn read(value: Value<'_>, context: &Context) -> Result<Out> {
    let own = context.database();
    let mut time_series = None;
    let (database, collection) = match value {
        Value::String(name) => (own.to_owned(), name.to_string()),
        Value::Document(spec) => {
            if context.version >= FeatureVersion::V7_0
                && let Some(options) = spec.get("timeseries")
            {
                let kind = options.kind().alias();
                let options = options.as_doc().ok_or_else(|| time_series_wrong_type(kind))?;
                time_series = Some(options.to_buf());
            }
            if spec.iter().count() != 2 + usize::from(time_series.is_some()) {
                return Err(wrong_fields());
            }
            let part = |name: &str| {
                let value = spec.get(name).ok_or_else(wrong_fields)?;
                let text = value.as_str();
                let text = text.ok_or_else(|| field_wrong_type(name, value.kind().alias()))?;
                Ok(text.to_string())
            };
            // The collection is checked first, whatever the order of the fields.
            let (collection, database) = (part("coll")?, part("db")?);
            (database, collection)
        }
        _ => return Err(wrong_type(value.kind().alias())),
    };
    check_target_name(&database, &collection)?;
    if collection.is_empty() || !is_database(&database, context) {
        return Err(invalid_target(&database, &collection));
    }
    Ok(Out { database, collection, time_series })
}

/// Checks for characters that are invalid in any namespace.
pub(super) fn check_target_name(database: &str, collection: &str) -> Result<()> {
    if database.contains('\0') || collection.contains('\0') {
        return Err(embedded_nul());
    }
    if database.contains('.') {
        return Err(dot_in_database(database));
    }
    if collection.starts_with('.') { Err(leading_dot(collection)) } else { Ok(()) }
}

/// Returns whether a database may have this name. A pipeline outside a command has none, and is
/// rejected elsewhere.
pub(super) fn is_database(name: &str, context: &Context) -> bool {
    if name.is_empty() {
        return context.subject.is_none();
    }
    name.len() <= DATABASE_NAME_BYTES_MAX && !name.contains(['/', '\\', '.', ' ', '"', '$'])
}

impl Stage for Out {
    fn name(&self) -> &'static str {
        "$out"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("coll", &self.collection);
            out.append("db", &self.database);
            if let Some(options) = &self.time_series {
                out.append("timeseries", options);
            }
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Writer
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let world = Arc::clone(&env.world);
        Ok(Box::new(Writing { input, stage: self, world, progress: OutState::NotBegun }))
    }
}

struct Writing {
    input: Box<dyn Source>,
    stage: Arc<Out>,
    world: Arc<dyn World>,
    progress: OutState,
}

/// The state of the target. It is created by the first pull: a cursor whose first batch is empty
/// writes nothing yet.
enum OutState {
    NotBegun,
    Begun(Box<dyn Replacement>),
    /// Committed, or failed.
    Ended,
}

impl Writing {
    /// Writes while the input gives documents.
    fn write(&mut self) -> Result<Step> {
        let (database, collection) = (&*self.stage.database, &*self.stage.collection);
        let mut target = match std::mem::replace(&mut self.progress, OutState::Ended) {
            OutState::NotBegun => {
                let time_series = self.stage.time_series.as_ref().map(DocBuf::as_doc);
                self.world.replace_collection(database, collection, time_series)?
            }
            OutState::Begun(target) => target,
            OutState::Ended => return Ok(Step::End),
        };
        loop {
            match self.input.advance()? {
                Step::Document => {
                    check_result(self.input.doc())?;
                    target.insert(self.input.doc())?;
                }
                Step::Pause => {
                    self.progress = OutState::Begun(target);
                    return Ok(Step::Pause);
                }
                Step::End => {
                    target.commit()?;
                    return Ok(Step::End);
                }
            }
        }
    }
}

impl Source for Writing {
    fn pull(&mut self) -> Result<Step> {
        self.write()
    }

    fn doc(&self) -> Doc<'_> {
        Doc::EMPTY
    }
}

//! `$out`: the documents become a collection, in place of what it held.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Parser, Place, Replacement, Row, Source, Stage, Step};

pub(super) const ROW: Row = Row { name: "$out", place: Place::Last, parse };

errors! {
    wrong_type(kind: &str) = 16990, "$out only supports a string or object argument, but found {kind}";
    wrong_fields() = 16994, "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'";
    field_wrong_type(name: &str, kind: &str) = 13111, "wrong type for field ({name}) {kind} != string";
    invalid_target(db: &str, coll: &str) = InvalidNamespace, "Invalid $out target namespace, {db}.{coll}";
    special_collection(name: &str) = 17385, "Can't $out to special collection: {name}";
    internal_database(name: &str) = 31321, "Can't $out to internal database: {name}";
}

/// A parsed `$out`.
#[derive(Debug)]
pub(super) struct Out {
    database: Option<String>,
    collection: String,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let (database, collection) = match value {
        Value::String(name) => (None, name.to_string()),
        Value::Document(spec) => {
            if spec.iter().count() != 2 {
                return Err(wrong_fields());
            }
            let part = |name: &str| {
                let value = spec.get(name).ok_or_else(wrong_fields)?;
                let text = value.as_str();
                let text = text.ok_or_else(|| field_wrong_type(name, value.kind().alias()))?;
                Ok(text.to_string())
            };
            (Some(part("db")?), part("coll")?)
        }
        _ => return Err(wrong_type(value.kind().alias())),
    };
    if let Some(name @ ("admin" | "config" | "local")) = database.as_deref() {
        return Err(internal_database(name));
    }
    if collection.starts_with("system.") {
        return Err(special_collection(&collection));
    }
    if collection.is_empty() {
        return Err(invalid_target(database.as_deref().unwrap_or_default(), &collection));
    }
    parser.push(Out { database, collection });
    Ok(())
}

impl Stage for Out {
    fn name(&self) -> &'static str {
        "$out"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            if let Some(database) = &self.database {
                out.append("db", database);
            }
            out.append("coll", &self.collection);
        })
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let world = Arc::clone(&env.world);
        let target = world.replace_collection(self.database.as_deref(), &self.collection)?;
        Ok(Box::new(Writing { input, target: Some(target) }))
    }
}

struct Writing {
    input: Box<dyn Source>,
    /// Taken when it is committed.
    target: Option<Box<dyn Replacement>>,
}

impl Source for Writing {
    fn advance(&mut self) -> Result<Step> {
        while let Some(target) = &mut self.target {
            match self.input.advance()? {
                Step::Document => target.insert(self.input.doc())?,
                Step::Pause => return Ok(Step::Pause),
                Step::End => self.target.take().map_or(Ok(()), Replacement::commit)?,
            }
        }
        Ok(Step::End)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::EMPTY
    }
}

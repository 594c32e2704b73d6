//! Updates: how a document changes.
//!
//! [`Update::parse`] reads the update document or pipeline once. Operators (`$set`, `$push`, …) are
//! merged into one tree by path, so that [`Update::apply`] walks the tree and the document's bytes
//! together, rewrites the document once into one buffer and copies unchanged parts.
//! [`Update::upsert`] writes the document to insert if nothing matched.
//!
//! The caller handles storage, indexes and the reply's counters; [`Applied`] has the facts it
//! needs. `tree` and `walk` are the core, `operator` has a row for each operator.

mod array_filter;
mod delta;
mod difference;
mod field_order;
mod operator;
mod operators;
mod path;
mod pipeline;
mod replacement;
mod stored;
#[cfg(test)]
mod tests;
mod touched;
mod trail;
mod tree;
mod upsert;
mod walk;

use marula_bson::{Doc, DocBuf, Value};
use marula_error::{Result, errors};

use crate::context::Context;
use crate::filter::Filter;

pub use stored::{DEPTH_MAX, is_deeper};
pub use touched::Touched;

use array_filter::ArrayFilter;
use delta::Delta;
use operators::Operators;
use pipeline::PipelineUpdate;
use replacement::Replacement;

errors! {
    /// The update is neither a document nor an array.
    pub bad_update() = FailedToParse, "Update argument must be either an object or an array";
    /// A replacement document in an update of many documents.
    multi_replacement() = FailedToParse, "multi update is not supported for replacement-style update";
    /// Constants with an update that is not a pipeline.
    constants_without_pipeline() = 51198, "Constant values may only be specified for pipeline updates";
    /// An oplog's update with an unknown form.
    unknown_form(form: &str) = 4_772_600, "Expected _id field or $v field missing or $v:1/$v:2, but got: {form}";
    /// Array filters with a pipeline.
    array_filters_with_pipeline() = FailedToParse, "arrayFilters may not be specified for pipeline-style updates";
}

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: UpdateKind,
}

/// The treatment of an empty timestamp in a top-level field of a document that is stored whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmptyTimestamps {
    /// It is replaced by the current time.
    #[default]
    Filled,
    /// It is stored unchanged, as tools request that copy documents.
    Kept,
}

/// The author of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// A client, in an update command.
    #[default]
    Client,
    /// An oplog's insert: the document, whatever the names of its fields.
    OplogInsert,
    /// An oplog's update, which contains its form in `$v`.
    OplogUpdate,
}

/// The inputs of [`Update::parse`] in addition to the update itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateOptions<'a> {
    /// The command's `arrayFilters`, if it has any.
    pub array_filters: Option<Doc<'a>>,
    /// The update statement's `c`: constants for a pipeline.
    pub constants: Option<Doc<'a>>,
    /// Whether the statement is `multi`, in which a replacement is rejected.
    pub multi: bool,
    /// The treatment of empty timestamps in a replacement.
    pub empty_timestamps: EmptyTimestamps,
    /// The author of the update.
    pub origin: Origin,
}

/// The facts that a filter recorded about a document when it matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// The array index that the positional `$` represents.
    pub position: Option<usize>,
}

/// The result of applying an update to a document.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Whether the document counts as modified; if not, the output has no document.
    pub changed: bool,
    /// The paths that the update may have written.
    pub touched: Touched,
}

#[derive(Debug)]
enum UpdateKind {
    Operators(Operators),
    Replacement(Replacement),
    Pipeline(PipelineUpdate),
    Delta(Delta),
}

impl Update {
    /// Parses the `u` of an update statement or the `update` of `findAndModify`: a document of
    /// operators, a replacement document or a pipeline.
    pub fn parse(
        update: Value<'_>,
        options: &UpdateOptions<'_>,
        context: &Context,
    ) -> Result<Update> {
        let array_filters = match options.array_filters {
            Some(filters) if matches!(update, Value::Array(_)) && !filters.is_empty() => {
                return Err(array_filters_with_pipeline());
            }
            Some(filters) => ArrayFilter::parse_all(filters, context)?,
            None => Vec::new(),
        };
        if options.constants.is_some() && !matches!(update, Value::Array(_)) {
            return Err(constants_without_pipeline());
        }
        let kind = match update {
            Value::Document(doc) if options.origin == Origin::OplogUpdate => {
                Self::parse_entry(doc, context)?
            }
            Value::Document(doc) if options.origin == Origin::OplogInsert => {
                UpdateKind::Replacement(Replacement::of_entry(doc))
            }
            Value::Document(doc) if operators::begins_with_operator(doc) => {
                UpdateKind::Operators(Operators::parse(doc, array_filters, context)?)
            }
            Value::Document(_) if options.multi => return Err(multi_replacement()),
            Value::Document(doc) => {
                UpdateKind::Replacement(Replacement::new(doc, options.empty_timestamps))
            }
            Value::Array(stages) => {
                UpdateKind::Pipeline(PipelineUpdate::parse(stages, options.constants, context)?)
            }
            _ => return Err(bad_update()),
        };
        Ok(Update { kind })
    }

    /// Returns the context with the constants of a pipeline, which the statement's filter may use,
    /// too.
    pub fn context(&self) -> Option<&Context> {
        match &self.kind {
            UpdateKind::Pipeline(pipeline) => Some(pipeline.context()),
            _ => None,
        }
    }

    /// Parses the `o` of an entry: a whole document where it has an `_id`; otherwise `$v` says its
    /// form, 1 for operators, 2 for a difference. Without `$v` it is made of operators.
    fn parse_entry(doc: Doc<'_>, context: &Context) -> Result<UpdateKind> {
        if doc.get("_id").is_some() {
            return Ok(UpdateKind::Replacement(Replacement::of_entry(doc)));
        }
        let Some(form) = doc.get("$v") else {
            return Operators::parse(doc, Vec::new(), context).map(UpdateKind::Operators);
        };
        // A fraction is cut off.
        #[allow(clippy::cast_possible_truncation)]
        Ok(match form.as_f64().map(|form| form.trunc() as i64) {
            Some(2) => UpdateKind::Delta(Delta::parse(doc.get("diff"))?),
            Some(1) => {
                let operators = DocBuf::build(|out| {
                    for element in doc.iter().filter(|element| element.name != "$v") {
                        out.append_raw(element.name, element.value);
                    }
                });
                UpdateKind::Operators(Operators::parse(operators.as_doc(), Vec::new(), context)?)
            }
            _ => {
                let form = doc.iter().find(|element| element.name == "$v");
                return Err(unknown_form(&form.map(|form| form.to_string()).unwrap_or_default()));
            }
        })
    }

    /// Returns whether the update replaces the whole document.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, UpdateKind::Replacement(_))
    }

    /// Returns whether the update is a pipeline.
    pub fn is_pipeline(&self) -> bool {
        matches!(self.kind, UpdateKind::Pipeline(_))
    }

    /// Returns whether the update consists of operators such as `$set`.
    pub fn is_operators(&self) -> bool {
        matches!(self.kind, UpdateKind::Operators(_))
    }

    /// Returns whether the positional `$` is used, so that the filter has to record the array index
    /// that matched.
    pub fn needs_position(&self) -> bool {
        matches!(&self.kind, UpdateKind::Operators(operators) if operators.needs_position())
    }

    /// Appends the updated document to `out`, if it counts as modified.
    pub fn apply(
        &self,
        doc: Doc<'_>,
        matched: &Matched,
        context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<Applied> {
        let start = out.len();
        let (changed, touched) = match &self.kind {
            UpdateKind::Operators(operators) => {
                (operators.apply(doc, matched, context, out)?, operators.touched())
            }
            UpdateKind::Replacement(replacement) => {
                (replacement.apply(doc, context, out)?, Touched::All)
            }
            UpdateKind::Pipeline(pipeline) => (pipeline.apply(doc, context, out)?, Touched::All),
            UpdateKind::Delta(delta) => (delta.apply(doc, out)?, Touched::All),
        };
        if !changed {
            out.truncate(start);
        }
        stored::check_size(out.len() - start)?;
        Ok(Applied { changed, touched })
    }

    /// Appends the document that an upsert inserts if nothing matched the query. If neither query
    /// nor update contains an `_id`, the document has none: the caller adds one as the first field.
    pub fn upsert(&self, query: &Filter, context: &Context, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        match &self.kind {
            UpdateKind::Operators(operators) => {
                upsert::with_operators(operators, query, context, out)?
            }
            UpdateKind::Replacement(replacement) => {
                upsert::with_replacement(replacement, query, context, out)?;
            }
            UpdateKind::Pipeline(pipeline) => upsert::with_pipeline(pipeline, query, out)?,
            UpdateKind::Delta(delta) => upsert::with_delta(delta, query, out)?,
        }
        stored::check_insert_size(out.len() - start)
    }
}

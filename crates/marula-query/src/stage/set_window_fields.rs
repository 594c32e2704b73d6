//! `$setWindowFields`: to each document, values computed from the documents around it.
//!
//! All documents are taken in and sorted by partition and `sortBy`; then one partition after another is
//! computed.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::key_string::encode_part;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};

use super::fields::write_through;
use super::source::check_size;
use super::{Env, Parser, Place, Row, Source, Stage, Step};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Path, Variable};
use crate::feature_version::FeatureVersion;
use crate::sort::SortPattern;
use crate::spill::{ExternalSort, Front, Rows};
use crate::window::{Memory, Partition, WindowFunction};

pub(super) const ROW: Row =
    Row { name: "$setWindowFields", since: FeatureVersion::V6_0, place: Place::Anywhere, parse };

errors! {
    not_object(kind: &str) = FailedToParse, "the $setWindowFields stage specification must be an object, found {kind}";
    unknown_field(name: &str) = IDLUnknownField, "BSON field '$setWindowFields.{name}' is an unknown field.";
    unnamed_field() = IDLUnknownField, "BSON field '$setWindowFields' is an unknown field.";
    root_partition() = 16409, "FieldPath::tail() called on single element path";
    field_not_object(name: &str, kind: &str) = TypeMismatch, "BSON field '$setWindowFields.{name}' is the wrong type '{kind}', expected type 'object'";
    no_output() = IDLFailedToParse, "BSON field '$setWindowFields.output' is missing but a required field";
    conflicting_paths() = 6307900, "$setWindowFields 'output' specification contains two conflicting paths";
    partition_is_array() = TypeMismatch, "An expression used to partition cannot evaluate to value of type array";
    /// A partition is computed as a whole, in memory.
    partition_too_large(used: usize, limit: usize) = 5414201, "Exceeded memory limit in DocumentSourceSetWindowFields, used {used} bytes but max allowed is {limit}";
}

/// A parsed `$setWindowFields`.
#[derive(Debug)]
pub(super) struct SetWindowFields {
    partition_by: Option<Expression>,
    sort_by: Option<(SortPattern, DocBuf)>,
    /// By what all is sorted: the partition, then `sortBy`. None where a partition is computed: mongod does so between the
    /// sorts, and those that tie keep the order of an earlier one.
    order: Option<SortPattern>,
    output: Vec<(Path, WindowFunction)>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut partition_by, mut sort, mut output) = (None, None, None);
    for element in spec {
        let value = element.value.get();
        let object =
            |name: &str| value.as_doc().ok_or_else(|| field_not_object(name, value.kind().alias()));
        match &**element.name {
            b"partitionBy" => {
                partition_by = Some(Expression::parse(value, &mut parser.scope())?);
            }
            b"sortBy" | b"output" if value.is_nullish() => {}
            b"sortBy" => sort = Some(object("sortBy")?),
            b"output" => output = Some(object("output")?),
            b"" => return Err(unnamed_field()),
            name => return Err(unknown_field(&name.to_str_lossy())),
        }
    }
    let output = output.ok_or_else(no_output)?;
    let stage = SetWindowFields::new(partition_by, sort, output, parser)?;
    parser.push(stage);
    Ok(())
}

impl SetWindowFields {
    /// A stage of its parts, which `$fill` has too.
    pub(super) fn new(
        mut partition_by: Option<Expression>,
        sort: Option<Doc<'_>>,
        output: Doc<'_>,
        parser: &Parser<'_>,
    ) -> Result<Self> {
        let sort_by = match sort.filter(|sort| !sort.is_empty()) {
            Some(sort) => Some((SortPattern::read(sort, parser.context)?, sort.to_buf())),
            None => None,
        };
        let mut functions: Vec<(&[u8], WindowFunction)> = Vec::new();
        for element in output {
            if functions.iter().any(|(name, _)| conflict(name, element.name)) {
                return Err(conflicting_paths());
            }
            let value = element.value.get();
            let function = WindowFunction::parse(element.name, value, sort, &mut parser.scope())?;
            functions.push((element.name, function));
        }
        if let Some(expression) = &mut partition_by {
            // What makes all documents one partition is found before anything else is computed.
            expression
                .optimize(parser.context)
                .map_err(|error| error.caused_by("Failed to optimize partitionBy expression"))?;
            if matches!(expression, Expression::Variable(Variable::Root, path) if path.is_empty()) {
                return Err(root_partition());
            }
            let is_array = match &*expression {
                Expression::Array(_) => expression.needs_no_document(),
                other => other.as_constant().is_some_and(|value| value.as_array().is_some()),
            };
            if is_array {
                return Err(partition_is_array());
            }
        }
        let sorts_by = sort_by.as_ref().map_or(Doc::EMPTY, |(_, spec)| spec.as_doc());
        let spec = match &partition_by {
            Some(Expression::Field(path)) => Some(sort_spec(&path.text(), sorts_by)),
            Some(by) if by.as_constant().is_none() => None,
            _ => Some(sorts_by.to_buf()),
        };
        let order = match spec.filter(|spec| !spec.as_doc().is_empty()) {
            Some(spec) => Some(SortPattern::read(spec.as_doc(), parser.context)?),
            None => None,
        };
        let is_split = partition_by.as_ref().is_some_and(|by| by.as_constant().is_none());
        let sort_by = match sort_by {
            Some((pattern, spec)) => {
                pattern.check_score(parser.context)?;
                Some((if is_split { pattern.behind_others() } else { pattern }, spec))
            }
            None => None,
        };
        let output = functions
            .into_iter()
            .map(|(name, function)| Ok((Path::parse(name)?, function)))
            .collect::<Result<_>>()?;
        Ok(SetWindowFields { partition_by, sort_by, order, output })
    }
}

impl SetWindowFields {
    /// Checks that a document can be sorted by its partition, which is `value`, and by `sortBy`. A partition that is a path
    /// is sorted by as such, so that the arrays on its way count; another is one field more.
    fn check_sort_key(&self, document: Doc<'_>, value: Value<'_>, context: &Context) -> Result<()> {
        const COMPUTED: &[u8] = b"__internal_setWindowFields_partition_key";
        if let Some(order) = &self.order {
            return order.write_key(document, &mut Vec::new());
        }
        let mut document = document.to_buf();
        document.push(COMPUTED.as_bstr(), value);
        let rest = self.sort_by.as_ref().map_or(Doc::EMPTY, |(_, spec)| spec.as_doc());
        let order = SortPattern::read(sort_spec(COMPUTED, rest).as_doc(), context)?;
        order.write_key(document.as_doc(), &mut Vec::new())
    }
}

/// A sort by a partition's path, and then by `rest`.
fn sort_spec(partition: &[u8], rest: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        out.append(partition, 1);
        for part in rest.iter().filter(|part| part.name != partition) {
            out.append_raw(part.name, part.value);
        }
    })
}

/// Whether two paths of the output are one, or one leads into the other.
fn conflict(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

impl Stage for SetWindowFields {
    fn name(&self) -> &'static str {
        "$setWindowFields"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            if let Some(partition_by) = &self.partition_by {
                out.append("partitionBy", &partition_by.print());
            }
            if let Some((_, spec)) = &self.sort_by {
                out.append("sortBy", spec);
            }
            let mut output = out.begin_doc("output");
            for (path, function) in &self.output {
                output.append(path.text(), &function.print());
            }
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.output.iter_mut().try_for_each(|(_, function)| function.optimize(context))
    }

    fn sorts_by(&self) -> Option<&SortPattern> {
        self.order.as_ref()
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let context = &env.context;
        let sort = ExternalSort::new(context, context.limits.sort_bytes_max, None);
        Ok(Box::new(Windowing {
            input,
            has_begun: false,
            has_array_partition: false,
            memories: self.output.iter().map(|_| Memory::default()).collect(),
            stage: self,
            context: Arc::clone(context),
            rows: Rows::Coming(sort),
            arena: Arena::new(),
            key: Vec::new(),
            order: Vec::new(),
            ready: Vec::new().into_iter(),
            current: DocBuf::new(),
        }))
    }
}

struct Windowing {
    input: Box<dyn Source>,
    /// Whether a document was asked for.
    has_begun: bool,
    /// Whether a document's partition is an array.
    has_array_partition: bool,
    stage: Arc<SetWindowFields>,
    context: Arc<Context>,
    /// Documents by partition and `sortBy`. A key is that of the partition, then that of the sort; a value is the length
    /// of the partition's key (4 bytes), then the document.
    rows: Rows<Front>,
    arena: Arena,
    key: Vec<u8>,
    order: Vec<u8>,
    /// What the functions of the output remember of earlier partitions.
    memories: Vec<Memory>,
    /// The partition that has been computed.
    ready: std::vec::IntoIter<DocBuf>,
    current: DocBuf,
}

impl Windowing {
    fn take_in(&mut self) -> Result<Step> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(Step::End) };
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let document = self.input.doc();
            self.arena.reset();
            let frame = Frame::new(document, &self.arena, &self.context);
            let partition = match &self.stage.partition_by {
                Some(expression) => expression.eval(&frame)?,
                None => None,
            };
            if let Some(value @ Value::Array(_)) = partition {
                // It is sorted like any other, and refused when the partitions are looked at.
                self.stage.check_sort_key(document, value, &self.context)?;
                self.has_array_partition = true;
            }
            self.key.clear();
            // A missing key of a partition is null.
            let partition = partition.unwrap_or(Value::Null);
            encode_part(partition, false, self.context.collator(), &mut self.key);
            let len = u32::try_from(self.key.len()).expect("a key is of a document's size");
            if let Some((pattern, _)) = &self.stage.sort_by {
                pattern.write_key(document, &mut self.order)?;
                self.key.extend_from_slice(&self.order);
            }
            sort.push(&self.key, &[&len.to_le_bytes(), document.as_bytes()])?;
        }
    }

    /// The documents of the next partition; none where there is no more.
    fn next_partition(&mut self) -> Result<Vec<DocBuf>> {
        let limit = self.context.limits.window_bytes_max;
        let Rows::Sorted(front) = &mut self.rows else { return Ok(Vec::new()) };
        let mut documents = Vec::new();
        let mut size = 0;
        self.key.clear();
        while let Some((key, value)) = front.row() {
            let (len, document) = value.split_at(size_of::<u32>());
            let len = u32::from_le_bytes(len.try_into().expect("split at four bytes"));
            let partition = &key[..len as usize];
            if documents.is_empty() {
                self.key.extend_from_slice(partition);
            } else if partition != self.key {
                break;
            }
            size += document.len() + size_of::<DocBuf>();
            if size > limit {
                return Err(partition_too_large(size, limit));
            }
            documents.push(Doc::trusted(document).to_buf());
            front.advance()?;
        }
        Ok(documents)
    }

    /// Computes the next partition.
    fn compute(&mut self) -> Result<bool> {
        let documents = self.next_partition()?;
        if documents.is_empty() {
            return Ok(false);
        }
        let mut columns = Vec::with_capacity(self.stage.output.len());
        for ((_, function), memory) in self.stage.output.iter().zip(&self.memories) {
            let partition = Partition { documents: &documents, context: &self.context, memory };
            columns.push(function.values(&partition)?);
        }
        let mut ready = Vec::with_capacity(documents.len());
        for (at, document) in documents.iter().enumerate() {
            let mut result = document.clone();
            for ((path, _), column) in self.stage.output.iter().zip(&columns) {
                let mut bytes = Vec::with_capacity(result.len() + 32);
                let value = column[at].get();
                write_through(
                    result.as_doc(),
                    path.parts(),
                    value,
                    &mut DocWriter::new(&mut bytes),
                );
                check_size(bytes.len())?;
                result = DocBuf::trusted(bytes);
            }
            ready.push(result);
        }
        self.ready = ready.into_iter();
        Ok(true)
    }
}

impl Source for Windowing {
    fn advance(&mut self) -> Result<Step> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut functions = self.stage.output.iter().map(|(_, function)| function);
            functions.try_for_each(|function| function.check_start(&self.context))?;
        }
        if self.take_in()? == Step::Pause {
            return Ok(Step::Pause);
        }
        if std::mem::take(&mut self.has_array_partition) {
            return Err(partition_is_array());
        }
        self.rows.settle(Front::new)?;
        loop {
            if let Some(document) = self.ready.next() {
                self.current = document;
                return Ok(Step::Document);
            }
            if !self.compute()? {
                return Ok(Step::End);
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}

//! `$setWindowFields`: adds to each document values computed from neighbouring documents.
//!
//! It becomes a `$sort` by partition and `sortBy`, which an index may provide, and the stage here,
//! which reads one partition after another and computes it as a whole. A partition expression that
//! is neither a path nor a constant is computed into a field before the sort, which is removed at
//! the end.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::add_fields::AddFields;
use super::fields::write_through;
use super::needs::{Gives, Needs};
use super::project::Project;
use super::sort::Sort;
use super::source::check_size;
use super::{Env, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Path, Variable};
use crate::feature_version::FeatureVersion;
use crate::once::{Once, unknown_field};
use crate::sort::{SortPart, SortPattern, write_shown};
use crate::spill::Share;
use crate::window::{FunctionState, Partition, WindowFunction};

pub(super) const ROW: StageRow = StageRow {
    name: "$setWindowFields",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    not_object(kind: &str) = FailedToParse, "the $setWindowFields stage specification must be an object, found {kind}";
    root_partition() = 16409, "FieldPath::tail() called on single element path";
    field_not_object(name: &str, kind: &str) = TypeMismatch, "BSON field '$setWindowFields.{name}' is the wrong type '{kind}', expected type 'object'";
    no_output() = IDLFailedToParse, "BSON field '$setWindowFields.output' is missing but a required field";
    conflicting_paths() = 6307900, "$setWindowFields 'output' specification contains two conflicting paths";
    partition_is_array() = TypeMismatch, "An expression used to partition cannot evaluate to value of type array";
    /// A partition is computed as a whole, in memory.
    partition_too_large(used: usize, limit: usize) = 5414201, "Exceeded memory limit in DocumentSourceSetWindowFields, used {used} bytes but max allowed is {limit}";
}

/// The name of the field for a computed partition while the stages run.
const COMPUTED: &str = "__internal_setWindowFields_partition_key";

/// A parsed `$setWindowFields`, without the stages around it.
#[derive(Debug)]
struct SetWindowFields {
    /// The path that determines the partition; none if there is only one.
    partition_by: Option<Expression>,
    sort_by: Option<DocBuf>,
    /// The order of its input: by partition, then `sortBy`; none without both.
    order: Option<SortPattern>,
    /// Whether its input is always in that order.
    is_order_known: bool,
    output: Vec<(Path, WindowFunction)>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut partition_by, mut sort, mut output) = (None, None, None);
    let mut once = Once::of("$setWindowFields");
    for element in spec {
        let value = element.value.get();
        let object =
            |name: &str| value.as_doc().ok_or_else(|| field_not_object(name, value.kind().alias()));
        match &**element.name {
            b"partitionBy" => partition_by = Some(value),
            b"sortBy" | b"output" if value.is_nullish() => {}
            b"sortBy" => sort = Some(object("sortBy")?),
            b"output" => output = Some(object("output")?),
            _ => return Err(unknown_field("$setWindowFields", element.name)),
        }
        // A partition may be null, and is given all the same.
        if !value.is_nullish() || element.name == "partitionBy" {
            once.note(element.name)?;
        }
    }
    // The form of all fields is checked before an expression is read.
    let output = output.ok_or_else(no_output)?;
    let read = |value: Value<'_>| Expression::parse(value, &mut parser.scope());
    let partition_by = partition_by.map(read).transpose()?;
    push(partition_by, sort, output, parser)
}

/// Adds the stages of a `$setWindowFields`, which `$fill` uses too, to the parser.
pub(super) fn push(
    partition_by: Option<Expression>,
    sort_by: Option<Doc<'_>>,
    output: Doc<'_>,
    parser: &mut Parser<'_>,
) -> Result<()> {
    let context = parser.context;
    if let Some(sort) = sort_by {
        SortPattern::read(sort, context)?;
    }
    let functions = parse_functions(output, sort_by, parser)?;
    check_sort_by(sort_by.unwrap_or(Doc::EMPTY))?;
    let (partition_by, is_computed) = match partition_by {
        Some(expression) => match optimize_partition(expression, context)? {
            // A constant makes one partition.
            Expression::Constant(_) | Expression::Missing => (None, false),
            Expression::Field(path) => (Some(path), false),
            expression => {
                parser.push(AddFields::of_one("$addFields", COMPUTED, expression));
                (Some(Path::parse(COMPUTED.as_bytes())?), true)
            }
        },
        None => (None, false),
    };
    let order = |is_first| order_of(partition_by.as_ref(), sort_by.unwrap_or(Doc::EMPTY), is_first);
    // As in mongod, `explain` shows the sort with the direction of `sortBy`, and a query sorts by
    // that; a stage sorts by the partition's.
    let (spec, shown) = (order(true), order(false));
    let is_one = spec == shown;
    let order = match spec.as_doc().is_empty() {
        true => None,
        false => {
            let order = SortPattern::parse(spec.as_doc(), context)?;
            let in_query = match is_one {
                true => None,
                false => Some(SortPattern::parse(shown.as_doc(), context)?),
            };
            let sort = Sort::new(order.clone(), shown);
            parser.push(match in_query {
                Some(in_query) => sort.with_order_in_query(in_query),
                None => sort,
            });
            Some(order)
        }
    };
    let output = functions
        .into_iter()
        .map(|(name, function)| Ok((Path::parse(name)?, function)))
        .collect::<Result<_>>()?;
    let partition_by = partition_by.map(Expression::Field);
    let sort_by = sort_by.map(Doc::to_buf);
    parser.push(SetWindowFields { partition_by, sort_by, order, is_order_known: is_one, output });
    if is_computed {
        let spec = DocBuf::build(|out| {
            out.append(COMPUTED, false);
        });
        parser.push(Project::parse("$project", spec.as_doc(), context)?);
    }
    Ok(())
}

/// Checks the path of a sort by one field: it is an expression, too, which windows compare.
fn check_sort_by(sort_by: Doc<'_>) -> Result<()> {
    let mut fields = sort_by.iter();
    if let (Some(field), None) = (fields.next(), fields.next())
        && field.value.get().as_doc().is_none()
    {
        Path::parse_of_expression(field.name)?;
    }
    Ok(())
}

/// Parses the output's functions and the paths of their values.
fn parse_functions<'o>(
    output: Doc<'o>,
    sort_by: Option<Doc<'_>>,
    parser: &Parser<'_>,
) -> Result<Vec<(&'o [u8], WindowFunction)>> {
    let mut functions: Vec<(&[u8], WindowFunction)> = Vec::new();
    for element in output {
        if functions.iter().any(|(name, _)| conflict(name, element.name)) {
            return Err(conflicting_paths());
        }
        let value = element.value.get();
        let function = WindowFunction::parse(element.name, value, sort_by, &mut parser.scope())?;
        functions.push((element.name, function));
    }
    Ok(functions)
}

/// Computes the constant parts of the partition expression: a constant partition is found before
/// anything else is computed.
fn optimize_partition(mut expression: Expression, context: &Context) -> Result<Expression> {
    expression
        .optimize(context)
        .map_err(|error| error.caused_by("Failed to optimize partitionBy expression"))?;
    if matches!(&expression, Expression::Variable(Variable::Root { .. }, path) if path.is_empty()) {
        return Err(root_partition());
    }
    let is_array = match &expression {
        Expression::Array(_) => expression.needs_no_document(),
        other => other.as_constant().is_some_and(|value| value.as_array().is_some()),
    };
    if is_array { Err(partition_is_array()) } else { Ok(expression) }
}

/// Returns the keys of the order, each once: the partition's path, then those of `sort_by`, which
/// may contain that path again. `is_first` chooses between the two directions.
fn order_of(partition_by: Option<&Path>, sort_by: Doc<'_>, is_first: bool) -> DocBuf {
    let path = partition_by.map(Path::text);
    let is_partition = |name: &[u8]| path.as_deref() == Some(name);
    let again = sort_by.iter().find(|key| is_partition(key.name)).filter(|_| !is_first);
    DocBuf::build(|out| {
        if let Some(path) = &path {
            out.append(path, again.map_or(Value::Int32(1), |key| key.value.get()));
        }
        for key in sort_by.iter().filter(|key| !is_partition(key.name)) {
            out.append_raw(key.name, key.value);
        }
    })
}

/// Returns whether two paths are equal, or one leads into the other.
fn conflict(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

impl SetWindowFields {
    /// Returns the order of its documents, as far as it is known.
    fn known_order(&self) -> Option<&SortPattern> {
        self.order.as_ref().filter(|_| self.is_order_known)
    }

    /// Returns whether the stage writes none of the fields in the pattern.
    fn leaves(&self, pattern: &SortPattern) -> bool {
        pattern.parts().iter().all(|part| match part {
            SortPart::Path { path, .. } => {
                let path = path.to_string();
                !self.output.iter().any(|(to, _)| conflict(&to.text(), path.as_bytes()))
            }
            SortPart::Meta(_) => false,
        })
    }
}

impl Stage for SetWindowFields {
    fn name(&self) -> &'static str {
        "$_internalSetWindowFields"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            if let Some(partition_by) = &self.partition_by {
                out.append("partitionBy", &partition_by.print());
            }
            if let Some(sort_by) = &self.sort_by {
                write_shown(sort_by.as_doc(), &mut out.begin_doc("sortBy"));
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

    fn gives_order(&self, pattern: &SortPattern) -> bool {
        self.known_order().is_some_and(|order| pattern.is_front_of(order)) && self.leaves(pattern)
    }

    fn takes_order(&self, pattern: &SortPattern) -> bool {
        self.known_order().is_some_and(|order| order.is_front_of(pattern)) && self.leaves(pattern)
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        if let Some(partition_by) = &self.partition_by {
            needs.expression(partition_by);
        }
        if let Some(order) = &self.order {
            needs.sort(order);
        }
        for (path, function) in &self.output {
            function.reads(needs);
            if let [first, _, ..] = path.parts() {
                needs.field(first);
            }
        }
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Windowing {
            input,
            has_begun: false,
            has_ended: false,
            memories: self.output.iter().map(|_| FunctionState::default()).collect(),
            stage: self,
            context: Arc::clone(&env.context),
            arena: Arena::new(),
            partition: ValueBuf::from(Value::Null),
            documents: Vec::new(),
            size: 0,
            share: Share::default(),
            next: None,
            ready: Vec::new().into_iter(),
            current: DocBuf::new(),
        }))
    }
}

struct Windowing {
    input: Box<dyn Source>,
    /// Whether the first document was pulled.
    has_begun: bool,
    /// Whether the input has ended.
    has_ended: bool,
    stage: Arc<SetWindowFields>,
    context: Arc<Context>,
    arena: Arena,
    /// The state of the output's functions from earlier partitions.
    memories: Vec<FunctionState>,
    /// The partition's value.
    partition: ValueBuf,
    /// The documents of the partition being read.
    documents: Vec<DocBuf>,
    /// Their size.
    size: usize,
    /// The memory of the partition that is read or returned, twice: the computed documents are
    /// copies.
    share: Share,
    /// The first document of the next partition, and its value.
    next: Option<(ValueBuf, DocBuf)>,
    /// The computed partition.
    ready: std::vec::IntoIter<DocBuf>,
    current: DocBuf,
}

impl Windowing {
    /// Reads the documents of a partition; none at the end of the input.
    fn take_in(&mut self) -> Result<Step> {
        if let Some((value, document)) = self.next.take() {
            self.partition = value;
            self.share.clear();
            self.take(document)?;
        }
        while !self.has_ended {
            match self.input.advance()? {
                Step::Document => {}
                Step::Pause => return Ok(Step::Pause),
                Step::End => {
                    self.has_ended = true;
                    break;
                }
            }
            let document = self.input.doc();
            self.arena.reset();
            let frame = Frame::new(document, &self.arena, &self.context);
            let value = match &self.stage.partition_by {
                Some(expression) => expression.eval(&frame)?,
                None => None,
            };
            // A missing value is null.
            let value = value.unwrap_or(Value::Null);
            if value.as_array().is_some() {
                return Err(partition_is_array());
            }
            let is_same = order::equal(self.partition.get(), value, self.context.collator());
            if !self.documents.is_empty() && !is_same {
                self.next = Some((value.to_buf(), document.to_buf()));
                return Ok(Step::Document);
            }
            if self.documents.is_empty() {
                self.partition = value.to_buf();
            }
            let document = document.to_buf();
            self.take(document)?;
        }
        Ok(if self.documents.is_empty() { Step::End } else { Step::Document })
    }

    fn take(&mut self, document: DocBuf) -> Result<()> {
        let limit = self.context.limits.window_bytes_max;
        self.size += document.len() + size_of::<DocBuf>();
        if self.size > limit {
            return Err(partition_too_large(self.size, limit));
        }
        self.share.require(2 * self.size)?;
        self.documents.push(document);
        Ok(())
    }

    /// Computes the partition that was read.
    fn compute(&mut self) -> Result<()> {
        let documents = std::mem::take(&mut self.documents);
        self.size = 0;
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
                )?;
                check_size(bytes.len())?;
                result = DocBuf::trusted(bytes);
            }
            ready.push(result);
        }
        self.ready = ready.into_iter();
        Ok(())
    }
}

impl Source for Windowing {
    fn pull(&mut self) -> Result<Step> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut functions = self.stage.output.iter().map(|(_, function)| function);
            functions.try_for_each(|function| function.check_start(&self.context))?;
        }
        loop {
            if let Some(document) = self.ready.next() {
                self.current = document;
                return Ok(Step::Document);
            }
            match self.take_in()? {
                Step::Document => self.compute()?,
                step => return Ok(step),
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }

    fn order(&self) -> Option<&SortPattern> {
        self.stage.known_order().filter(|order| self.stage.leaves(order))
    }
}

//! `$setWindowFields`: to each document, values computed from the documents around it.
//!
//! All documents are taken in and sorted by partition and `sortBy`; then one partition after another is
//! computed.

use std::cmp::Ordering;
use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::fields::write_with;
use super::source::check_size;
use super::{Env, Parser, Place, Row, Source, Stage, Step};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Path};
use crate::sort::SortPattern;
use crate::window::{Partition, WindowFunction};

pub(super) const ROW: Row = Row { name: "$setWindowFields", place: Place::Anywhere, parse };

errors! {
    not_object(kind: &str) = FailedToParse, "the $setWindowFields stage specification must be an object, found {kind}";
    unknown_field(name: &str) = IDLUnknownField, "BSON field '$setWindowFields.{name}' is an unknown field.";
    field_not_object(name: &str, kind: &str) = TypeMismatch, "BSON field '$setWindowFields.{name}' is the wrong type '{kind}', expected type 'object'";
    no_output() = IDLFailedToParse, "BSON field '$setWindowFields.output' is missing but a required field";
    conflicting_paths() = 6307900, "$setWindowFields 'output' specification contains two conflicting paths";
    partition_is_array() = TypeMismatch, "An expression used to partition cannot evaluate to value of type array";
    too_much_memory(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting.";
}

/// A parsed `$setWindowFields`.
#[derive(Debug)]
pub(super) struct SetWindowFields {
    partition_by: Option<Expression>,
    sort_by: Option<(SortPattern, DocBuf)>,
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
            b"sortBy" => sort = Some(object("sortBy")?),
            b"output" => output = Some(object("output")?),
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
        partition_by: Option<Expression>,
        sort: Option<Doc<'_>>,
        output: Doc<'_>,
        parser: &Parser<'_>,
    ) -> Result<Self> {
        let sort_by = match sort.filter(|sort| !sort.is_empty()) {
            Some(sort) => Some((SortPattern::parse(sort, parser.context)?, sort.to_buf())),
            None => None,
        };
        let output = output
            .iter()
            .map(|element| {
                let path = Path::parse(element.name)?;
                let value = element.value.get();
                let function =
                    WindowFunction::parse(element.name, value, sort, &mut parser.scope())?;
                Ok((path, function))
            })
            .collect::<Result<Vec<_>>>()?;
        check_paths(&output)?;
        Ok(SetWindowFields { partition_by, sort_by, output })
    }
}

/// Checks that no path of the output leads into another.
fn check_paths(output: &[(Path, WindowFunction)]) -> Result<()> {
    let leads_into = |inner: &Path, outer: &Path| {
        inner.parts().len() > outer.parts().len() && inner.parts().starts_with(outer.parts())
    };
    let conflicts = |(path, _): &(Path, WindowFunction)| {
        output.iter().any(|(other, _)| leads_into(path, other))
    };
    if output.iter().any(conflicts) { Err(conflicting_paths()) } else { Ok(()) }
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
        self.partition_by.iter_mut().try_for_each(|expression| expression.optimize(context))
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Windowing {
            input,
            stage: self,
            context: Arc::clone(&env.context),
            bytes_max: env.stage_bytes_max,
            entries: Vec::new(),
            size: 0,
            is_sorted: false,
            ready: Vec::new().into_iter(),
            current: DocBuf::new(),
        }))
    }
}

/// A document with what it is sorted by.
struct Entry {
    partition: Option<ValueBuf>,
    key: Box<[u8]>,
    document: DocBuf,
}

struct Windowing {
    input: Box<dyn Source>,
    stage: Arc<SetWindowFields>,
    context: Arc<Context>,
    bytes_max: usize,
    /// Not yet computed; once sorted, the last partition comes first, so that it can be cut from the end.
    entries: Vec<Entry>,
    size: usize,
    is_sorted: bool,
    ready: std::vec::IntoIter<DocBuf>,
    current: DocBuf,
}

impl Windowing {
    fn take_in(&mut self) -> Result<()> {
        let document = self.input.doc();
        let arena = Arena::new();
        let frame = Frame::new(document, &arena, &self.context);
        let partition = match &self.stage.partition_by {
            Some(expression) => expression.eval(&frame)?,
            None => None,
        };
        if partition.is_some_and(|value| value.as_array().is_some()) {
            return Err(partition_is_array());
        }
        let mut key = Vec::new();
        if let Some((pattern, _)) = &self.stage.sort_by {
            pattern.write_key(document, &mut key)?;
        }
        let entry = Entry {
            partition: partition.map(|value| value.to_buf()),
            key: key.into(),
            document: document.to_buf(),
        };
        self.size += entry.document.len() + entry.key.len() + size_of::<Entry>();
        if self.size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        self.entries.push(entry);
        Ok(())
    }

    fn sort(&mut self) {
        let context = Arc::clone(&self.context);
        self.entries
            .sort_by(|a, b| compare_partitions(a, b, &context).then_with(|| a.key.cmp(&b.key)));
        self.is_sorted = true;
        self.entries.reverse();
    }

    /// Computes the next partition.
    fn compute(&mut self) -> Result<bool> {
        let Some(first) = self.entries.last() else {
            return Ok(false);
        };
        let is_same = |entry: &&Entry| compare_partitions(entry, first, &self.context).is_eq();
        let count = self.entries.iter().rev().take_while(is_same).count();
        let documents: Vec<DocBuf> = self
            .entries
            .drain(self.entries.len() - count..)
            .rev()
            .map(|entry| entry.document)
            .collect();
        let partition = Partition { documents: &documents, context: &self.context };
        let mut columns = Vec::with_capacity(self.stage.output.len());
        for (_, function) in &self.stage.output {
            columns.push(function.values(&partition)?);
        }
        let mut ready = Vec::with_capacity(count);
        for (at, document) in documents.iter().enumerate() {
            let mut result = document.clone();
            for ((path, _), column) in self.stage.output.iter().zip(&columns) {
                let mut bytes = Vec::with_capacity(result.len() + 32);
                let value = Some(column[at].get());
                write_with(result.as_doc(), path.parts(), value, &mut DocWriter::new(&mut bytes));
                check_size(bytes.len())?;
                result = DocBuf::trusted(bytes);
            }
            ready.push(result);
        }
        self.ready = ready.into_iter();
        Ok(true)
    }
}

/// A missing key of a partition is null.
fn compare_partitions(a: &Entry, b: &Entry, context: &Context) -> Ordering {
    let value = |entry: &Entry| entry.partition.as_ref().map_or(Value::Null.to_buf(), Clone::clone);
    order::compare(value(a).get(), value(b).get(), context.collator())
}

impl Source for Windowing {
    fn advance(&mut self) -> Result<Step> {
        while !self.is_sorted {
            match self.input.advance()? {
                Step::Document => self.take_in()?,
                Step::Pause => return Ok(Step::Pause),
                Step::End => self.sort(),
            }
        }
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

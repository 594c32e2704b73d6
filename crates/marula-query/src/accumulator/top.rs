//! `$top`, `$topN`, `$bottom`, `$bottomN`: the first or last documents of a group in an order.

use marula_bson::{DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::n::ListMemory;
use super::{Accumulator, AccumulatorRow, Settings, State, document};
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::sort::by_value::ValuePattern;
use crate::sort::write_shown;
use crate::stage::needs::Needs;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow { name: "$bottom", since: FeatureVersion::V6_0, parse, start: nothing },
    AccumulatorRow { name: "$bottomN", since: FeatureVersion::V6_0, parse, start: nothing },
    AccumulatorRow { name: "$top", since: FeatureVersion::V6_0, parse, start: nothing },
    AccumulatorRow { name: "$topN", since: FeatureVersion::V6_0, parse, start: nothing },
];

errors! {
    not_object(name: &str, text: &str) = 5788001, "specification must be an object; found {name}: {text}";
    unknown_argument(name: &str, argument: &str) = 5788002, "Unknown argument to {name} '{argument}'";
    missing_n() = 5788003, "Missing value for 'n'";
    missing_output() = 5788004, "Missing value for 'output'";
    missing_sort_by() = 5788005, "Missing value for 'sortBy'";
    sort_by_not_object() = 10065, "invalid parameter: expected an object (sortBy)";
}

/// The settings of these accumulators.
#[derive(Debug)]
pub(crate) struct Top {
    count: Expression,
    sort_by: ValuePattern,
    sort_doc: DocBuf,
    /// Whether the last documents are kept.
    bottom: bool,
    /// Whether the result is an array.
    many: bool,
}

fn nothing() -> Box<dyn State> {
    super::n::state("$top", super::Keep::First, 0)
}

fn parse(
    row: &'static AccumulatorRow,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let name = row.name;
    let many = name.ends_with('N');
    let Value::Document(doc) = value else {
        return Err(not_object(name, &print::element(value)));
    };
    let mut count = None;
    let mut output = None;
    let mut sort_by = None;
    for element in doc {
        match &**element.name {
            b"n" if many => count = Some(Expression::parse(element.value.get(), scope)?),
            b"output" => output = Some(element.value.get()),
            b"sortBy" => match element.value.get() {
                Value::Document(doc) | Value::Array(doc) => sort_by = Some(doc),
                _ => return Err(sort_by_not_object()),
            },
            _ => return Err(unknown_argument(name, &element.name.to_string())),
        }
    }
    // Missing arguments are reported before invalid ones.
    if many && count.is_none() {
        return Err(missing_n());
    }
    let output = output.ok_or_else(missing_output)?;
    let sort_doc = sort_by.ok_or_else(missing_sort_by)?;
    let top = Top {
        count: count.unwrap_or_else(|| Value::Int32(1).into()),
        sort_by: ValuePattern::parse(sort_doc, scope.context)?,
        sort_doc: sort_doc.to_buf(),
        bottom: name.starts_with("$bottom"),
        many,
    };
    let argument = Expression::parse(output, scope)?;
    top.sort_by.check(scope)?;
    Ok(Accumulator { row, argument, settings: Settings::Top(top) })
}

impl Top {
    /// The number of documents to keep.
    pub(super) fn count(&self) -> &Expression {
        &self.count
    }

    /// The number of documents to keep, for optimization.
    pub(super) fn count_mut(&mut self) -> &mut Expression {
        &mut self.count
    }

    /// The order of the documents.
    pub(crate) fn sort_by(&self) -> &ValuePattern {
        &self.sort_by
    }

    /// Whether the last documents are kept.
    pub(crate) fn is_bottom(&self) -> bool {
        self.bottom
    }

    /// Whether the result is an array.
    pub(crate) fn is_many(&self) -> bool {
        self.many
    }

    /// Adds the paths that the order reads from each document.
    pub(super) fn reads(&self, needs: &mut Needs) {
        needs.sort(self.sort_by.pattern());
    }

    /// Starts a group that keeps `count` documents.
    pub(super) fn start(&self, name: &'static str, count: usize) -> Result<Box<dyn State>> {
        let room = ListMemory::of(name);
        let (bottom, many) = (self.bottom, self.many);
        let sort_by = self.sort_by.clone();
        let (kept, key) = (Vec::new(), Vec::new());
        Ok(Box::new(TopState { room, sort_by, bottom, many, count, kept, key }))
    }

    /// The form of the argument in `explain`.
    pub(super) fn print(&self, output: &Expression) -> ValueBuf {
        document(|out| {
            if self.many {
                out.append("n", &self.count.print());
            }
            out.append("output", &output.print());
            write_shown(self.sort_doc.as_doc(), &mut out.begin_doc("sortBy"));
        })
    }
}

struct TopState {
    room: ListMemory,
    sort_by: ValuePattern,
    bottom: bool,
    many: bool,
    count: usize,
    /// Sort keys and values, sorted.
    kept: Vec<(Box<[u8]>, ValueBuf)>,
    key: Vec<u8>,
}

impl State for TopState {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        self.sort_by.write_key(frame, &mut self.key)?;
        let at = self.kept.partition_point(|(key, _)| **key <= *self.key);
        let full = self.kept.len() >= self.count;
        let is_beyond = match (self.bottom, self.kept.first()) {
            (true, Some((least, _))) => *self.key <= **least,
            _ => at == self.kept.len(),
        };
        if full && is_beyond {
            return Ok(0);
        }
        let before = self.room.taken();
        let size = |key: &[u8], value: &ValueBuf| key.len() + value.as_raw().bytes().len();
        let value = value.unwrap_or(Value::Null).to_buf();
        self.room.take(size(&self.key, &value), frame)?;
        self.kept.insert(at, (self.key.as_slice().into(), value));
        if full {
            let gone = if self.bottom { Some(self.kept.remove(0)) } else { self.kept.pop() };
            self.room.give_back(gone.map_or(0, |(key, value)| size(&key, &value)));
        }
        Ok(self.room.taken().saturating_sub(before))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        if self.many {
            return arena.array(self.kept.iter().map(|(_, value)| value.get()));
        }
        self.kept.first().map_or(Ok(Value::Null), |(_, value)| arena.keep(value.get()))
    }
}

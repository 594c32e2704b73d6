//! `$sort`: all documents in an order, or the first ones if a `$limit` follows.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, ValueBuf, long};
use marula_error::{Result, errors};

use super::needs::{Gives, Needs};
use super::passage::Passage;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::known::Known;
use crate::sort::{DocMeta, SortPart, SortPattern, write_shown};
use crate::spill::{ExternalSort, Rows};

pub(super) const ROW: StageRow =
    StageRow { name: "$sort", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object() = 15973, "the $sort key specification must be an object";
    empty() = 15976, "$sort stage must have at least one sort key";
}

/// A parsed `$sort`.
#[derive(Clone, Debug)]
pub struct Sort {
    pattern: SortPattern,
    spec: DocBuf,
    limit: Option<u64>,
    /// The order if a query runs the sort and that order differs.
    in_query: Option<SortPattern>,
}

impl Sort {
    /// Creates a sort by `spec`, which parses to `pattern`.
    pub(super) fn new(pattern: SortPattern, spec: DocBuf) -> Self {
        Sort { pattern, spec, limit: None, in_query: None }
    }

    /// Sets the order for a query that runs the sort.
    pub(super) fn with_order_in_query(self, pattern: SortPattern) -> Self {
        Sort { in_query: Some(pattern), ..self }
    }

    /// Returns the order.
    pub fn pattern(&self) -> &SortPattern {
        &self.pattern
    }

    /// Returns the order for a query that runs the sort.
    pub fn pattern_in_query(&self) -> &SortPattern {
        self.in_query.as_ref().unwrap_or(&self.pattern)
    }

    /// Returns the maximum number of documents, if a `$limit` follows.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the sort without a limit.
    pub(super) fn without_limit(&self) -> Sort {
        self.with_limit(None)
    }

    /// Returns the sort with this limit.
    pub(super) fn with_limit(&self, limit: Option<u64>) -> Sort {
        Sort { limit, ..self.clone() }
    }

    /// Returns the order as a document.
    pub(super) fn spec(&self) -> &DocBuf {
        &self.spec
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object());
    };
    if spec.is_empty() {
        return Err(empty());
    }
    let pattern = SortPattern::parse(spec, parser.context)?;
    parser.push(Sort::new(pattern, spec.to_buf()));
    Ok(())
}

impl Stage for Sort {
    fn name(&self) -> &'static str {
        "$sort"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            write_shown(self.spec.as_doc(), &mut out.begin_doc("sortKey"));
            if let Some(limit) = self.limit {
                out.append("limit", long(limit));
            }
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Sort(self)
    }

    fn limited(&self, limit: u64) -> Option<Arc<dyn Stage>> {
        let is_news = self.limit.is_none_or(|own| limit < own);
        is_news.then(|| -> Arc<dyn Stage> { Arc::new(Sort { limit: Some(limit), ..self.clone() }) })
    }

    fn passage(&self) -> Passage {
        match self.limit {
            None => Passage::all_but_named(),
            Some(_) => Passage::closed(),
        }
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.sort(&self.pattern);
        Gives::Input
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Sorting::new(input, self, &env.context)))
    }
}

pub(super) struct Sorting {
    input: Box<dyn Source>,
    stage: Arc<Sort>,
    /// The metadata of the document, as a document of its own; then the document.
    rows: Rows,
    key: Vec<u8>,
    /// The metadata of the current document.
    known: Option<Known>,
}

impl Sorting {
    /// Sorts the documents of `input` that are still to come.
    pub(super) fn new(input: Box<dyn Source>, stage: Arc<Sort>, context: &Context) -> Self {
        let sort = ExternalSort::new(context, context.limits.sort_bytes_max, stage.limit);
        Sorting { input, stage, rows: Rows::Coming(sort), key: Vec::new(), known: None }
    }

    fn take_in(&mut self) -> Result<Step> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(Step::End) };
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let (doc, known) = (self.input.doc(), self.input.known());
            add(&self.stage.pattern, sort, doc, known, &mut self.key)?;
        }
    }

    /// Adds the current document of the input.
    pub(super) fn take_current(&mut self) -> Result<()> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(()) };
        let (doc, known) = (self.input.doc(), self.input.known());
        add(&self.stage.pattern, sort, doc, known, &mut self.key)
    }

    /// Adds a document without metadata.
    pub(super) fn push(&mut self, doc: Doc<'_>) -> Result<()> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(()) };
        add(&self.stage.pattern, sort, doc, None, &mut self.key)
    }
}

/// Adds a document to a sort, with its metadata, unless it cannot be in the result.
fn add(
    pattern: &SortPattern,
    sort: &mut ExternalSort,
    doc: Doc<'_>,
    known: Option<&Known>,
    key: &mut Vec<u8>,
) -> Result<()> {
    let mut meta = DocMeta::default();
    if pattern.parts().iter().any(|part| matches!(part, SortPart::Meta(_))) {
        meta = known.map_or(meta, Known::sort_meta);
    }
    let greatest = sort.greatest_head();
    if !pattern.write_key_up_to(greatest, doc, &meta, key)? || !sort.wants(key) {
        return Ok(());
    }
    let known = known.map(Known::to_doc);
    let head = known.as_ref().map_or(Doc::EMPTY, DocBuf::as_doc);
    sort.push(key, &[head.as_bytes(), doc.as_bytes()])
}

impl Source for Sorting {
    fn pull(&mut self) -> Result<Step> {
        if self.take_in()? == Step::Pause {
            return Ok(Step::Pause);
        }
        self.rows.settle(Ok)?;
        if !self.rows.advance()? {
            return Ok(Step::End);
        }
        if let Rows::Sorted(sorted) = &self.rows {
            self.known = Known::from_doc(Doc::trusted(split_head(sorted.value()).0));
        }
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        match &self.rows {
            Rows::Sorted(sorted) => Doc::trusted(split_head(sorted.value()).1),
            _ => Doc::EMPTY,
        }
    }

    fn order(&self) -> Option<&SortPattern> {
        Some(&self.stage.pattern)
    }

    fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }
}

/// Splits a row into the metadata and the document.
fn split_head(row: &[u8]) -> (&[u8], &[u8]) {
    let (length, _) = row.split_first_chunk().expect("a row begins with a document");
    row.split_at(u32::from_le_bytes(*length) as usize)
}

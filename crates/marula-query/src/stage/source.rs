//! Sources: sequences of documents that are pulled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::{Doc, DocBuf};
use marula_error::{Result, errors};

use super::Env;
use crate::context::Context;
use crate::expression::{Arena, Frame};
use crate::known::Known;
use crate::meter;
use crate::sort::SortPattern;

/// The size limit of a pipeline's result: the maximum of a document in a reply, and room for the
/// fields that the reply adds.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;
/// The size limit of a document between stages: no stage may gather more than 100 MB.
const STAGE_DOCUMENT_BYTES_MAX: usize = 128 * 1024 * 1024;
/// The size up to which the first field of a too large document is shown.
const FIRST_BYTES_MAX: usize = 16 * 1024;

errors! {
    /// A document of the result is larger than BSON permits.
    document_too_large(size: usize, first: &str) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {DOCUMENT_BYTES_MAX}(16MB) First element: {first}";
    /// A stage produces a document that is larger than any stage may gather.
    stage_document_too_large(size: usize) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {STAGE_DOCUMENT_BYTES_MAX}(128MB)";
}

/// The result of a pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A document: [`Source::doc`] returns it until the next pull.
    Document,
    /// No document for now; a later pull may return more. A stage passes it on.
    Pause,
    /// The end.
    End,
}

/// A sequence of documents. A source lends its document, so that a stage that does not change it
/// copies nothing.
pub trait Source: Send {
    /// Implements [`advance`](Source::advance).
    fn pull(&mut self) -> Result<Step>;

    /// Moves to the next document. Every stage calls this for every document, and so every pipeline
    /// ends when its operation must.
    fn advance(&mut self) -> Result<Step> {
        meter::spend(meter::DOCUMENT)?;
        self.pull()
    }

    /// Returns the current document; valid after [`Step::Document`].
    fn doc(&self) -> Doc<'_>;

    /// Returns the order of the documents, if it is known.
    fn order(&self) -> Option<&SortPattern> {
        None
    }

    /// Returns the current document's metadata, if there is any.
    fn known(&self) -> Option<&Known> {
        None
    }
}

/// A source that counts its documents.
pub(super) struct Counted {
    input: Box<dyn Source>,
    count: Arc<AtomicU64>,
}

impl Counted {
    /// Counts the documents of `input` from here on.
    pub(super) fn new(input: Box<dyn Source>) -> (Counted, Arc<AtomicU64>) {
        let count = Arc::<AtomicU64>::default();
        (Counted { input, count: count.clone() }, count)
    }
}

impl Source for Counted {
    fn pull(&mut self) -> Result<Step> {
        let step = self.input.advance()?;
        if step == Step::Document {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(step)
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }

    fn order(&self) -> Option<&SortPattern> {
        self.input.order()
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

/// A stage that computes one document from another.
pub(super) trait Transform: Send + Sync {
    /// Writes the new document into `out`, which may hold the previous one.
    fn write<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()>;
}

/// A source of the documents of a [`Transform`].
pub(super) struct Map<T> {
    input: Box<dyn Source>,
    transform: Arc<T>,
    context: Arc<Context>,
    arena: Arena,
    out: Vec<u8>,
}

impl<T: Transform> Map<T> {
    /// Creates a source that applies `transform` to `input`.
    pub(super) fn new(input: Box<dyn Source>, transform: Arc<T>, env: &Env) -> Self {
        let context = Arc::clone(&env.context);
        Map { input, transform, context, arena: Arena::new(), out: Vec::new() }
    }
}

impl<T: Transform> Source for Map<T> {
    fn pull(&mut self) -> Result<Step> {
        match self.input.advance()? {
            Step::Document => {}
            step => return Ok(step),
        }
        self.arena.reset();
        let frame =
            Frame::new(self.input.doc(), &self.arena, &self.context).with_known(self.input.known());
        self.transform.write(&frame, &mut self.out)?;
        check_size(self.out.len())?;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}

/// Returns an error if a document of `size` bytes is too large even between stages.
pub(super) fn check_size(size: usize) -> Result<()> {
    if size > STAGE_DOCUMENT_BYTES_MAX { Err(stage_document_too_large(size)) } else { Ok(()) }
}

/// Returns an error if a document is too large for a pipeline's result.
pub fn check_result(document: Doc<'_>) -> Result<()> {
    let size = document.as_bytes().len();
    if size <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let mut first = document.iter().next().map(|first| first.to_string()).unwrap_or_default();
    first.truncate(first.floor_char_boundary(FIRST_BYTES_MAX));
    Err(document_too_large(size, &first))
}

/// Documents, one after another in a buffer.
#[derive(Default)]
pub(super) struct Batch {
    pub bytes: Vec<u8>,
    /// The end of each document.
    pub ends: Vec<usize>,
    /// The metadata of the first documents; the others have none.
    known: Vec<Option<Known>>,
}

impl Batch {
    pub(super) fn push(&mut self, document: Doc<'_>) {
        self.bytes.extend_from_slice(document.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// Sets the metadata of the last document.
    pub(super) fn note(&mut self, known: Option<&Known>) {
        if let Some(known) = known {
            self.known.resize(self.ends.len() - 1, None);
            self.known.push(Some(known.clone()));
        }
    }

    pub(super) fn known(&self, at: usize) -> Option<&Known> {
        self.known.get(at)?.as_ref()
    }

    pub(super) fn doc(&self, at: usize) -> Doc<'_> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Doc::trusted(&self.bytes[start..self.ends[at]])
    }
}

/// A source that returns the documents of a batch.
pub(super) struct Batched {
    batch: Arc<Batch>,
    next: usize,
}

impl Batched {
    pub(super) fn new(batch: Arc<Batch>) -> Self {
        Batched { batch, next: 0 }
    }
}

impl Source for Batched {
    fn pull(&mut self) -> Result<Step> {
        if self.next == self.batch.ends.len() {
            return Ok(Step::End);
        }
        self.next += 1;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        self.next.checked_sub(1).map_or(Doc::EMPTY, |at| self.batch.doc(at))
    }
}

/// A source of documents in memory.
pub struct Documents {
    rest: std::vec::IntoIter<DocBuf>,
    current: DocBuf,
}

impl Documents {
    /// Creates a source that returns `documents`.
    pub fn new(documents: Vec<DocBuf>) -> Self {
        Documents { rest: documents.into_iter(), current: DocBuf::new() }
    }
}

impl Source for Documents {
    fn pull(&mut self) -> Result<Step> {
        match self.rest.next() {
            Some(next) => {
                self.current = next;
                Ok(Step::Document)
            }
            None => Ok(Step::End),
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}

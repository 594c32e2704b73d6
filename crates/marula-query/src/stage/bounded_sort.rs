//! `$_internalBoundedSort`: a sort of measurements by time whose buckets come in the order of their
//! times.
//!
//! Each measurement comes with a bound: the time that no later one is ahead of. A measurement that
//! the bound has reached can be returned, so that only those of buckets that overlap wait. If they
//! need too much memory, the rest is sorted as by a `$sort`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf, long};
use marula_error::Result;

use super::pipeline::printed;
use super::sort::{Sort, Sorting};
use super::unpack_bucket::TimeOrder;
use super::{Env, Source, Stage, Step};
use crate::context::Context;
use crate::known::Known;
use crate::sort::{SortPattern, write_shown};
use crate::spill::{Pieces, Share};

/// A sort by time of measurements from ordered buckets.
#[derive(Debug)]
pub(super) struct BoundedSort {
    sort: Sort,
    time_field: Box<[u8]>,
    order: TimeOrder,
}

impl BoundedSort {
    /// Creates the stage in the place of `sort`, which is by the time alone.
    pub(super) fn new(sort: Sort, time_field: Box<[u8]>, order: TimeOrder) -> Self {
        BoundedSort { sort, time_field, order }
    }
}

impl Stage for BoundedSort {
    fn name(&self) -> &'static str {
        "$_internalBoundedSort"
    }

    fn print(&self) -> ValueBuf {
        printed(|out| {
            write_shown(self.sort.spec().as_doc(), &mut out.begin_doc("sortKey"));
            let mut bound = out.begin_doc("bound");
            bound.append("base", self.order.base.name());
            bound.append("offsetSeconds", self.order.offset_seconds);
            bound.finish();
            out.append("limit", long(self.sort.limit().unwrap_or(0)));
        })
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(BoundedSorting {
            input: Some(input),
            context: Arc::clone(&env.context),
            left: self.sort.limit(),
            stage: self,
            waiting: BinaryHeap::new(),
            bytes: Vec::new(),
            share: Share::new(Pieces::Large),
            dead_bytes: 0,
            pulled: 0,
            bound: i64::MIN,
            rest: None,
            out: Vec::new(),
        }))
    }
}

/// A measurement that waits: its place in the order, and where it is in the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Its time, negated for a descending order.
    at: i64,
    /// Its number, so that equal times keep their order.
    number: u64,
    start: usize,
    end: usize,
}

struct BoundedSorting {
    /// The measurements; taken by the full sort.
    input: Option<Box<dyn Source>>,
    context: Arc<Context>,
    stage: Arc<BoundedSort>,
    /// The number that may still be returned, if it is limited.
    left: Option<u64>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// The bytes of those that wait, and of some that no longer do.
    bytes: Vec<u8>,
    share: Share,
    dead_bytes: usize,
    pulled: u64,
    /// Nothing that comes later is ahead of this.
    bound: i64,
    /// The full sort that takes over if too many wait.
    rest: Option<Sorting>,
    out: Vec<u8>,
}

impl BoundedSorting {
    /// Returns the place of a time in the order.
    fn place(&self, time_ms: i64) -> i64 {
        if self.stage.order.is_descending { !time_ms } else { time_ms }
    }

    /// Takes in the input's document; returns false if it has no time to be sorted by.
    fn take_in(&mut self, doc: Doc<'_>, bound_ms: Option<i64>) -> bool {
        let Some(Value::DateTime(time_ms)) = doc.get(&self.stage.time_field) else { return false };
        if let Some(bound_ms) = bound_ms {
            self.bound = self.bound.max(self.place(bound_ms));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(doc.as_bytes());
        let (at, end) = (self.place(time_ms), self.bytes.len());
        self.waiting.push(Reverse(Waiting { at, number: self.pulled, start, end }));
        self.pulled += 1;
        true
    }

    /// Drops those beyond the limit, and the bytes of those that no longer wait.
    fn tidy(&mut self) {
        /// Below this, nothing is worth a copy.
        const DEAD_BYTES_MIN: usize = 64 * 1024;
        let left = self.left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
        let is_crowded = self.waiting.len() / 2 > left;
        if !is_crowded
            && (self.dead_bytes < DEAD_BYTES_MIN || self.dead_bytes < self.bytes.len() / 2)
        {
            return;
        }
        let mut kept: Vec<_> = std::mem::take(&mut self.waiting).into_vec();
        if is_crowded {
            kept.select_nth_unstable_by_key(left, |waiting| waiting.0);
            kept.truncate(left);
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.dead_bytes);
        for Reverse(waiting) in &mut kept {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[waiting.start..waiting.end]);
            (waiting.start, waiting.end) = (start, bytes.len());
        }
        (self.bytes, self.dead_bytes, self.waiting) = (bytes, 0, kept.into());
    }

    fn has_room(&mut self) -> bool {
        let bytes = self.bytes.len();
        bytes <= self.context.limits.sort_bytes_max && self.share.has_room(bytes)
    }

    /// Makes the first of those that wait the current document, if nothing can come before it.
    fn take_settled(&mut self) -> bool {
        let settled =
            self.waiting.peek().filter(|first| self.input.is_none() || first.0.at <= self.bound);
        if settled.is_none() {
            return false;
        }
        let Some(Reverse(Waiting { start, end, .. })) = self.waiting.pop() else { return false };
        self.out.clear();
        self.out.extend_from_slice(&self.bytes[start..end]);
        self.dead_bytes += end - start;
        self.left = self.left.map(|left| left - 1);
        true
    }

    /// Leaves those that wait and those that are still to come to a full sort.
    fn sort_fully(&mut self, input: Box<dyn Source>, has_taken_current: bool) -> Result<()> {
        let sort = Arc::new(self.stage.sort.with_limit(self.left));
        let mut rest = Sorting::new(input, sort, &self.context);
        let mut waiting = std::mem::take(&mut self.waiting).into_vec();
        waiting.sort_unstable_by_key(|waiting| waiting.0.number);
        for Reverse(Waiting { start, end, .. }) in waiting {
            rest.push(Doc::trusted(&self.bytes[start..end]))?;
        }
        if !has_taken_current {
            rest.take_current()?;
        }
        self.bytes = Vec::new();
        self.share.clear();
        self.rest = Some(rest);
        Ok(())
    }
}

impl Source for BoundedSorting {
    fn pull(&mut self) -> Result<Step> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.pull();
            }
            if self.left == Some(0) {
                return Ok(Step::End);
            }
            if self.take_settled() {
                return Ok(Step::Document);
            }
            let Some(mut input) = self.input.take() else { return Ok(Step::End) };
            let bound_ms = |input: &dyn Source| input.known().and_then(|known| known.bound_ms);
            match input.advance()? {
                Step::Document if self.take_in(input.doc(), bound_ms(&*input)) => {
                    self.tidy();
                    match self.has_room() {
                        true => self.input = Some(input),
                        false => self.sort_fully(input, true)?,
                    }
                }
                Step::Document => self.sort_fully(input, false)?,
                Step::End => {}
                Step::Pause => {
                    self.input = Some(input);
                    return Ok(Step::Pause);
                }
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        match &self.rest {
            Some(rest) => rest.doc(),
            None => Doc::trusted(&self.out),
        }
    }

    fn order(&self) -> Option<&SortPattern> {
        Some(self.stage.sort.pattern())
    }

    fn known(&self) -> Option<&Known> {
        None
    }
}

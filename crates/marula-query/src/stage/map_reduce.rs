//! The core of `mapReduce`: JavaScript emits keys and values for each document, and each key is
//! output with one value.
//!
//! No pipeline contains this stage by name; the command inserts it between the query and the stages
//! that write the result. Values of a key are reduced at the end, all at once; if they take too
//! much memory, also before, as `mapReduce` allows.

use std::sync::Arc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::source::check_result;
use super::{Env, Source, Stage, Step};
use crate::context::Context;
use crate::expression::set::hash;
use crate::javascript::{self, Globals};
use crate::spill::Share;

/// The size limit of a list of values, and the size of each value in addition to its bytes.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
const VALUE_BYTES: usize = 16;

errors! {
    value_too_large() = 31392, "Value too large to reduce";
    too_much_memory(limit: usize) = ExceededMemoryLimit, "mapReduce used too much memory and cannot spill to disk. Memory limit: {limit} bytes";
}

/// The size limit of the documents that JavaScript gets in one call.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// The functions of a `mapReduce` as source text, and the variables that they see.
#[derive(Debug)]
pub struct MapReduce {
    /// Called with each document as `this`; emits.
    pub map: String,
    /// Reduces a key's values to one value.
    pub reduce: String,
    /// Computes the result from the last value.
    pub finalize: Option<String>,
    /// The global variables.
    pub scope: DocBuf,
}

impl Stage for MapReduce {
    fn name(&self) -> &'static str {
        "$_internalMapReduce"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("map", Value::Code(self.map.as_bytes().as_bstr()));
            out.append("reduce", Value::Code(self.reduce.as_bytes().as_bstr()));
            if let Some(finalize) = &self.finalize {
                out.append("finalize", Value::Code(finalize.as_bytes().as_bstr()));
            }
        })
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Reducing {
            input,
            stage: self,
            context: Arc::clone(&env.context),
            bytes_max: env.stage_bytes_max,
            share: Share::default(),
            waiting: Vec::new(),
            ends: Vec::new(),
            groups: EmittedGroups::default(),
            next: None,
            out: Vec::new(),
        }))
    }
}

/// The values of each key, in the order in which the keys were emitted.
#[derive(Default)]
struct EmittedGroups {
    all: Vec<(ValueBuf, Vec<ValueBuf>)>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    size: usize,
}

impl EmittedGroups {
    fn add(&mut self, key: ValueBuf, value: ValueBuf, context: &Context) {
        let collator = context.collator();
        let (all, hashing) = (&self.all, &self.hashing);
        let hashed = hash(hashing, key.get(), collator);
        let is_same = |&at: &usize| order::equal(all[at].0.get(), key.get(), collator);
        self.size += value.as_raw().bytes().len() + size_of::<ValueBuf>();
        if let Some(&at) = self.table.find(hashed, is_same) {
            self.all[at].1.push(value);
            return;
        }
        self.size += key.as_raw().bytes().len() + 2 * size_of::<ValueBuf>();
        let at = self.all.len();
        self.all.push((key, vec![value]));
        let all = &self.all;
        let rehash = |&at: &usize| hash(hashing, all[at].0.get(), collator);
        self.table.insert_unique(hashed, at, rehash);
    }
}

struct Reducing {
    input: Box<dyn Source>,
    stage: Arc<MapReduce>,
    context: Arc<Context>,
    bytes_max: usize,
    /// The memory of the groups.
    share: Share,
    /// Documents that were not mapped yet, and the end of each.
    waiting: Vec<u8>,
    ends: Vec<usize>,
    groups: EmittedGroups,
    /// The group that the next pull writes; `None` while the input is read.
    next: Option<usize>,
    out: Vec<u8>,
}

impl Reducing {
    fn map(&mut self) -> Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let documents =
            starts.zip(&self.ends).map(|(start, &end)| Doc::trusted(&self.waiting[start..end]));
        let (groups, context) = (&mut self.groups, &*self.context);
        let mut take = |key, value| {
            groups.add(key, value, context);
            Ok(())
        };
        javascript::emit(&self.stage.map, documents, context.interrupt.as_ref(), &mut take)?;
        self.waiting.clear();
        self.ends.clear();
        if self.groups.size > self.bytes_max || !self.share.has_room(self.groups.size) {
            return self.shrink();
        }
        Ok(())
    }

    /// Reduces the values of each key to one, so that they take less memory.
    fn shrink(&mut self) -> Result<()> {
        let mut size = 0;
        for (key, values) in &mut self.groups.all {
            if values.len() > 1 {
                let reduced = self.stage.reduce(key.get(), values, &self.context)?;
                *values = vec![reduced];
            }
            let value = values.first().map_or(0, |value| value.as_raw().bytes().len());
            size += key.as_raw().bytes().len() + value + 3 * size_of::<ValueBuf>();
        }
        self.groups.size = size;
        if size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        self.share.require(size)
    }

    fn write(&mut self, at: usize) -> Result<()> {
        let (key, values) = &mut self.groups.all[at];
        let values = std::mem::take(values);
        let value = self.stage.reduce(key.get(), &values, &self.context)?;
        let value = self.stage.finalize(key.get(), value, &self.context)?;
        self.out.clear();
        let mut out = DocWriter::new(&mut self.out);
        out.append("_id", &*key).append("value", &value);
        out.finish();
        check_result(Doc::trusted(&self.out))
    }
}

impl MapReduce {
    /// Reduces values to one: as many at once as a document may hold, then the result with those
    /// that follow.
    fn reduce(&self, key: Value<'_>, values: &[ValueBuf], context: &Context) -> Result<ValueBuf> {
        let size = |value: &ValueBuf| value.as_raw().bytes().len() + VALUE_BYTES;
        let mut rest = values;
        let mut reduced: Option<ValueBuf> = None;
        loop {
            let mut taken = reduced.as_ref().map_or(0, size);
            let fits = |value: &&ValueBuf| {
                taken += size(value);
                taken <= DOCUMENT_BYTES_MAX
            };
            let count = rest.iter().take_while(fits).count();
            if count == rest.len() {
                return self.reduce_list(key, reduced.as_ref(), rest, context);
            }
            if count + usize::from(reduced.is_some()) < 2 {
                return Err(value_too_large());
            }
            let (now, later) = rest.split_at(count);
            reduced = Some(self.reduce_list(key, reduced.as_ref(), now, context)?);
            rest = later;
        }
    }

    fn reduce_list(
        &self,
        key: Value<'_>,
        first: Option<&ValueBuf>,
        values: &[ValueBuf],
        context: &Context,
    ) -> Result<ValueBuf> {
        let mut bytes = Vec::new();
        let mut args = ArrayWriter::new(&mut bytes);
        args.push(key);
        let mut list = args.begin_array();
        // The value emitted last comes first, as in mongod.
        for value in first.into_iter().chain(values).rev() {
            list.push(value);
        }
        list.finish();
        args.finish();
        javascript::call(
            &self.reduce,
            Doc::trusted(&bytes),
            Globals::Stored,
            context.interrupt.as_ref(),
        )
    }

    fn finalize(&self, key: Value<'_>, value: ValueBuf, context: &Context) -> Result<ValueBuf> {
        let Some(finalize) = &self.finalize else { return Ok(value) };
        let mut bytes = Vec::new();
        let mut args = ArrayWriter::new(&mut bytes);
        args.push(key).push(&value);
        args.finish();
        javascript::call(
            finalize,
            Doc::trusted(&bytes),
            Globals::Stored,
            context.interrupt.as_ref(),
        )
    }
}

impl Source for Reducing {
    fn pull(&mut self) -> Result<Step> {
        let at = match self.next {
            Some(at) => at,
            None => {
                let scope = self.stage.scope.as_doc();
                if !scope.is_empty() {
                    javascript::declare(scope, self.context.interrupt.as_ref())?;
                }
                loop {
                    match self.input.advance()? {
                        Step::Document => {
                            self.waiting.extend_from_slice(self.input.doc().as_bytes());
                            self.ends.push(self.waiting.len());
                            if self.waiting.len() >= BATCH_BYTES_MAX {
                                self.map()?;
                            }
                        }
                        Step::Pause => return Ok(Step::Pause),
                        Step::End => break,
                    }
                }
                self.map()?;
                0
            }
        };
        self.next = Some(at + 1);
        if at >= self.groups.all.len() {
            return Ok(Step::End);
        }
        self.write(at)?;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}

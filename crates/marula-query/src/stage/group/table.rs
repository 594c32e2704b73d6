//! The groups of a `$group`, and what becomes of documents when the groups fill the memory.
//!
//! Groups that are there stay, and grow while there is room. Once there is little, documents of new groups go to the
//! disk; once there is none, all do: as *rows*, which hold the key and what each accumulator takes of the document.
//! Rows are parted by a hash of the key. At the end each part takes in its rows, with the groups of that part that are
//! there already, and may itself go to the disk again, parted by further bits. So no more is in memory at once than the
//! limit and one part, and nothing that an accumulator has gathered ever has to be written.

use std::sync::Arc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Doc, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::{Field, Group};
use crate::accumulator::State;
use crate::context::{Context, Interrupt};
use crate::expression::set::hash;
use crate::expression::{Arena, Expression, Frame};
use crate::spill::stream::{Reader, SpillFile, Stream, Writer};
use crate::stage::source::check_size;

errors! {
    too_much_memory() = QueryExceededMemoryLimitNoDiskUseAllowed, "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in.";
}

/// A table's rows are parted in so many by bits of the hash.
const PART_BITS: u32 = 5;
const PARTS: usize = 1 << PART_BITS;
/// So often parts are parted again. What still meets then is one group, or keys that no hash tells apart.
const DEPTH_MAX: u32 = 8;
/// Rows taken in between two looks at whether to go on.
const INTERRUPT_INTERVAL: u64 = 1_024;

/// What a group and a state take beside their content.
const GROUP_BYTES: usize = size_of::<ValueBuf>() + 3 * size_of::<usize>();
const STATE_BYTES: usize = 64;

/// Groups, and rows of further ones.
pub(super) struct Table {
    stage: Arc<Group>,
    context: Arc<Context>,
    held: Held,
}

/// What a table holds.
#[derive(Default)]
struct Held {
    groups: Groups,
    size: usize,
    depth: u32,
    spilled: Option<Spilled>,
    row: Vec<u8>,
}

/// The groups in the order in which they were met.
#[derive(Default)]
struct Groups {
    keys: Vec<ValueBuf>,
    /// So many states for each group as there are fields.
    states: Vec<Box<dyn State>>,
    /// The bytes of each group.
    sizes: Vec<usize>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
}

/// Rows on the disk, by part.
struct Spilled {
    file: SpillFile,
    writers: Vec<Writer>,
}

/// A table whose rows are all in, or the parts of one.
pub(super) enum Whole {
    Table(Table),
    Parts(Vec<Part>),
}

/// Some of the groups of a table, and the rows that are still to go to them.
pub(super) struct Part {
    table: Table,
    rows: (Arc<SpillFile>, Stream),
}

impl Groups {
    fn find(&self, hash: u64, key: Value<'_>, collator: Option<&dyn Collator>) -> Option<usize> {
        let same = |&at: &usize| order::equal(self.keys[at].get(), key, collator);
        self.table.find(hash, same).copied()
    }

    /// The states of a group.
    fn states(&mut self, stage: &Group, at: usize) -> &mut [Box<dyn State>] {
        let count = stage.fields.len();
        &mut self.states[at * count..][..count]
    }

    /// Adds a group; its states are the caller's.
    fn insert(
        &mut self,
        hash: u64,
        key: ValueBuf,
        size: usize,
        collator: Option<&dyn Collator>,
    ) -> usize {
        let at = self.keys.len();
        self.keys.push(key);
        self.sizes.push(size);
        let (keys, hashing) = (&self.keys, &self.hashing);
        let rehash = |&at: &usize| self::hash(hashing, keys[at].get(), collator);
        self.table.insert_unique(hash, at, rehash);
        at
    }
}

impl Table {
    pub(super) fn new(stage: Arc<Group>, context: Arc<Context>) -> Self {
        Table { stage, context, held: Held::default() }
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.held.groups.keys.len()
    }

    /// Adds a document to its group, or writes a row of it.
    ///
    /// Errors: those of the expressions and accumulators; `too_much_memory`; those of the disk.
    pub(super) fn take_in(
        &mut self,
        document: Doc<'_>,
        text_score: Option<f64>,
        arena: &mut Arena,
    ) -> Result<()> {
        arena.reset();
        let Table { stage, context, held } = self;
        let frame = Frame::new(document, arena, context).with_text_score(text_score);
        let key = match &stage.key {
            // A key of one field is null where the field is missing; of several, the field is left out.
            Expression::Object(fields) if fields.len() == 1 => {
                let (name, field) = &fields[0];
                let value = field.eval(&frame)?.unwrap_or(Value::Null);
                arena.document([(&**name, value)])?
            }
            key => key.eval(&frame)?.unwrap_or(Value::Null),
        };
        let hash = hash(&held.groups.hashing, key, context.collator());
        let Some(at) = held.group_of(stage, context, hash, key)? else {
            return held.write_row(&stage.fields, hash, key, &frame);
        };
        let mut grown = 0;
        for ((_, accumulator), state) in stage.fields.iter().zip(held.groups.states(stage, at)) {
            grown += accumulator.add(&mut **state, &frame)?;
        }
        held.grow(context, at, grown)
    }

    /// Adds a row that was written before.
    fn take_in_row(&mut self, row: Doc<'_>, arena: &mut Arena) -> Result<()> {
        arena.reset();
        let Table { stage, context, held } = self;
        let key = row.get("k").unwrap_or(Value::Null);
        let hash = hash(&held.groups.hashing, key, context.collator());
        let Some(at) = held.group_of(stage, context, hash, key)? else {
            return held.push_row(hash, row.as_bytes());
        };
        let document = row.get("d").and_then(|document| document.as_doc()).unwrap_or(Doc::EMPTY);
        let frame = Frame::new(document, arena, context);
        let mut grown = 0;
        let states = held.groups.states(stage, at);
        for (number, ((_, accumulator), state)) in stage.fields.iter().zip(states).enumerate() {
            let value = row.get(number.to_string());
            grown += accumulator.add_value(&mut **state, value, &frame)?;
        }
        held.grow(context, at, grown)
    }

    /// The table as it is, or its parts where it has rows on the disk.
    pub(super) fn into_parts(mut self) -> Result<Whole> {
        let Some(Spilled { mut file, writers }) = self.held.spilled.take() else {
            return Ok(Whole::Table(self));
        };
        let streams: Vec<Stream> =
            writers.into_iter().map(|writer| writer.finish(&mut file)).collect::<Result<_>>()?;
        let file = Arc::new(file);
        let Table { stage, context, held } = self;
        let Groups { keys, states, sizes, hashing, .. } = held.groups;
        let part = || Held {
            groups: Groups { hashing: hashing.clone(), ..Groups::default() },
            depth: held.depth + 1,
            ..Held::default()
        };
        let mut parts: Vec<Held> = (0..PARTS).map(|_| part()).collect();
        let collator = context.collator();
        let mut states = states.into_iter();
        for (key, size) in keys.into_iter().zip(sizes) {
            let hash = hash(&hashing, key.get(), collator);
            let part = &mut parts[part_of(hash, held.depth)];
            part.groups.states.extend(states.by_ref().take(stage.fields.len()));
            part.groups.insert(hash, key, size, collator);
            part.size += size;
        }
        // The last is taken first: the parts come in their order.
        let parts = parts.into_iter().zip(streams).rev().map(|(held, stream)| Part {
            table: Table { stage: Arc::clone(&stage), context: Arc::clone(&context), held },
            rows: (Arc::clone(&file), stream),
        });
        Ok(Whole::Parts(parts.collect()))
    }

    /// Writes the document of a group into `out`.
    pub(super) fn write(&self, at: usize, arena: &mut Arena, out: &mut Vec<u8>) -> Result<()> {
        arena.reset();
        out.clear();
        let fields = &self.stage.fields;
        let groups = &self.held.groups;
        let mut document = DocWriter::new(out);
        document.append_raw("_id", groups.keys[at].as_raw());
        let states = &groups.states[at * fields.len()..][..fields.len()];
        for ((name, _), state) in fields.iter().zip(states) {
            document.append(name.as_bstr(), state.result(arena)?);
        }
        document.finish();
        check_size(out.len())
    }
}

impl Held {
    /// The group of a key, which begins here where there is room for it; `None` sends the document to the disk.
    fn group_of(
        &mut self,
        stage: &Group,
        context: &Context,
        hash: u64,
        key: Value<'_>,
    ) -> Result<Option<usize>> {
        let collator = context.collator();
        if let Some(at) = self.groups.find(hash, key, collator) {
            // A group that is there goes on growing until nothing more fits.
            let goes_on = self.spilled.is_none() || self.size <= context.limits.group_bytes_max;
            return Ok(goes_on.then_some(at));
        }
        if self.spilled.is_some() {
            return Ok(None);
        }
        let owned = key.to_buf();
        let content = owned.as_raw().bytes().len();
        for (_, accumulator) in &stage.fields {
            self.groups.states.push(accumulator.start(key, context)?);
        }
        let at = self.groups.insert(hash, owned, 0, collator);
        self.grow(context, at, content + GROUP_BYTES + stage.fields.len() * STATE_BYTES)?;
        Ok(Some(at))
    }

    /// Notes that a group has grown, and begins to use the disk where there is little room left.
    fn grow(&mut self, context: &Context, at: usize, bytes: usize) -> Result<()> {
        self.size += bytes;
        self.groups.sizes[at] += bytes;
        let limit = context.limits.group_bytes_max;
        let Some(disk) = &context.limits.disk else {
            return if self.size > limit { Err(too_much_memory()) } else { Ok(()) };
        };
        // Room is left for the groups that are there. One group alone cannot be parted.
        let can_part = self.depth < DEPTH_MAX && self.groups.keys.len() > 1;
        if self.spilled.is_none() && can_part && self.size > limit / 4 * 3 {
            let mut writers = Vec::new();
            writers.resize_with(PARTS, Writer::default);
            self.spilled = Some(Spilled { file: SpillFile::create(disk)?, writers });
        }
        Ok(())
    }

    /// Writes a row: `{ k: <key>, d: <document, where an accumulator needs it>, "0": <value of field 0>, … }`.
    fn write_row<'a>(
        &mut self,
        fields: &'a [Field],
        hash: u64,
        key: Value<'_>,
        frame: &Frame<'a>,
    ) -> Result<()> {
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        let mut out = DocWriter::new(&mut row);
        out.append("k", key);
        if fields.iter().any(|(_, accumulator)| accumulator.needs_document()) {
            out.append("d", frame.root);
        }
        for (number, (_, accumulator)) in fields.iter().enumerate() {
            if let Some(value) = accumulator.evaluate(frame)? {
                out.append(number.to_string(), value);
            }
        }
        out.finish();
        let pushed = self.push_row(hash, &row);
        self.row = row;
        pushed
    }

    fn push_row(&mut self, hash: u64, row: &[u8]) -> Result<()> {
        let part = part_of(hash, self.depth);
        let Spilled { file, writers } =
            self.spilled.as_mut().expect("rows are written once the disk is used");
        writers[part].push(file, &[row])
    }
}

impl Part {
    /// Takes in the rows of the part.
    pub(super) fn take_in(mut self, arena: &mut Arena) -> Result<Table> {
        let (file, stream) = self.rows;
        let mut reader = Reader::new(stream);
        let mut count = 0u64;
        while reader.advance(&file)? {
            count += 1;
            if count.is_multiple_of(INTERRUPT_INTERVAL) {
                self.table.context.interrupt.as_ref().map_or(Ok(()), Interrupt::check)?;
            }
            self.table.take_in_row(Doc::trusted(reader.record()), arena)?;
        }
        Ok(self.table)
    }
}

/// The part of a hash at a depth. The bits are not those that the hash table looks at first.
fn part_of(hash: u64, depth: u32) -> usize {
    let bits = hash >> (u64::BITS - 7 - PART_BITS * (depth + 1));
    usize::try_from(bits & (PARTS as u64 - 1)).unwrap_or(0)
}

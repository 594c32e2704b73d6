//! The groups of a `$group`, and what happens to documents when the groups fill the memory.
//!
//! Groups in memory stay there, and grow while there is room. When little room is left, documents
//! of new groups go to the disk; when none is left, all documents do. They go as *rows*, which hold
//! the key and each accumulator's input from the document. Rows are partitioned by a hash of the
//! key. At the end each partition reads its rows, together with the groups of that partition in
//! memory, and may itself go to the disk again, partitioned by further bits. So memory holds at
//! most the limit and one partition, and the state of an accumulator never has to be written.

use std::sync::Arc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{
    Collator, Doc, DocBuf, DocWriter, Element, RawValue, Type, Value, ValueBuf, order,
};
use marula_error::{Result, errors};

use super::inputs::{Input, Inputs, SLOTS};
use super::{Field, Group};
use crate::accumulator::State;
use crate::context::Context;
use crate::expression::set::hash;
use crate::expression::{Arena, Expression, Frame};
use crate::known::Known;
use crate::meter;
use crate::spill::Share;
use crate::spill::stream::{Reader, SpillFile, Stream, Writer};
use crate::stage::source::check_size;

errors! {
    too_much_memory() = QueryExceededMemoryLimitNoDiskUseAllowed, "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in.";
}

/// The rows of a table are partitioned by this number of bits of the hash.
const PART_BITS: u32 = 5;
const PARTS: usize = 1 << PART_BITS;
/// The number of times a partition is partitioned again. Rows that are still together then belong
/// to one group, or have equal hashes.
const DEPTH_MAX: u32 = 8;
/// The number of groups that are output together if documents come in the order of the key.
const SETTLED: usize = 1_024;
/// The size of a group and of a state in addition to their content.
const GROUP_BYTES: usize = size_of::<ValueBuf>() + 3 * size_of::<usize>();
const STATE_BYTES: usize = 64;

/// Groups in memory, and rows of further groups on the disk.
pub(super) struct Table {
    stage: Arc<Group>,
    inputs: Arc<Inputs>,
    context: Arc<Context>,
    held: TableContent,
}

/// The content of a table.
#[derive(Default)]
struct TableContent {
    groups: Groups,
    size: usize,
    share: Share,
    depth: u32,
    spilled: Option<Spilled>,
    row: Vec<u8>,
    /// Recently found groups, indexed by a hash of the bytes of their keys.
    recent: Vec<u32>,
}

/// The number of recently found groups that are stored.
const RECENT: usize = 256;
/// No group.
const NOWHERE: u32 = u32::MAX;

/// The groups in the order in which they were found.
#[derive(Default)]
struct Groups {
    keys: Vec<ValueBuf>,
    /// The states of each group, one per field.
    states: Vec<Box<dyn State>>,
    /// The bytes of each group.
    sizes: Vec<usize>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    /// Whether keys have several fields. An undefined field then counts as missing.
    are_compound: bool,
}

/// Rows on the disk, by partition.
struct Spilled {
    file: SpillFile,
    writers: Vec<Writer>,
}

/// A table whose rows are all in memory, or the partitions of one.
pub(super) enum Whole {
    Table(Box<Table>),
    Parts(Vec<Part>),
}

/// Some of the groups of a table, and the rows still to be added to them.
pub(super) struct Part {
    table: Table,
    rows: (Arc<SpillFile>, Stream),
}

impl Groups {
    fn of(stage: &Group) -> Self {
        let are_compound = matches!(&stage.key, Expression::Object(fields) if fields.len() > 1);
        Groups { are_compound, ..Groups::default() }
    }

    /// Returns an empty set of groups with the same kind of keys.
    fn empty(&self) -> Self {
        Groups {
            hashing: self.hashing.clone(),
            are_compound: self.are_compound,
            ..Groups::default()
        }
    }

    /// Removes the newest group, which has this number of states.
    fn split_newest(&mut self, states: usize, collator: Option<&dyn Collator>) -> Groups {
        let at = self.keys.len() - 1;
        let mut newest = Groups { states: self.states.split_off(at * states), ..self.empty() };
        let size = self.sizes.split_off(at).into_iter().sum();
        for key in self.keys.split_off(at) {
            let hash = newest.hash(key.get(), collator);
            newest.insert(hash, key, size, collator);
        }
        newest
    }

    fn hash(&self, key: Value<'_>, collator: Option<&dyn Collator>) -> u64 {
        match self.defined(key) {
            Some(defined) => hash(&self.hashing, Value::Document(defined.as_doc()), collator),
            None => hash(&self.hashing, key, collator),
        }
    }

    fn find(&self, hash: u64, key: Value<'_>, collator: Option<&dyn Collator>) -> Option<usize> {
        let defined = self.defined(key);
        let wanted = defined.as_ref().map_or(key, |defined| Value::Document(defined.as_doc()));
        let same = |&at: &usize| {
            let known = self.keys[at].get();
            match self.defined(known) {
                Some(known) => order::equal(Value::Document(known.as_doc()), wanted, collator),
                None => order::equal(known, wanted, collator),
            }
        };
        self.table.find(hash, same).copied()
    }

    /// Returns a key of several fields without the undefined ones, if it has any.
    fn defined(&self, key: Value<'_>) -> Option<DocBuf> {
        let doc = key.as_doc().filter(|_| self.are_compound)?;
        let is_undefined = |field: &Element<'_>| field.value.kind() == Type::Undefined;
        doc.iter().any(|field| is_undefined(&field)).then(|| {
            DocBuf::build(|out| {
                for field in doc.iter().filter(|field| !is_undefined(field)) {
                    out.append_raw(field.name, field.value);
                }
            })
        })
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
        let mut table = std::mem::take(&mut self.table);
        table.insert_unique(hash, at, |&at| self.hash(self.keys[at].get(), collator));
        self.table = table;
        at
    }
}

impl Table {
    pub(super) fn new(stage: Arc<Group>, context: Arc<Context>) -> Self {
        let inputs = Arc::new(Inputs::of(&stage.key, &stage.fields));
        let held = TableContent { groups: Groups::of(&stage), ..TableContent::default() };
        Table { stage, inputs, context, held }
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.held.groups.keys.len()
    }

    /// Adds a document to its group, or writes a row of it.
    ///
    /// Errors: those of the expressions and accumulators; `too_much_memory`; those of the disk.
    pub(super) fn take_in(
        &mut self,
        document: Doc<'_>,
        known: Option<&Known>,
        arena: &mut Arena,
    ) -> Result<()> {
        arena.reset();
        let Table { stage, inputs, context, held } = self;
        let frame = Frame::new(document, arena, context).with_known(known);
        let mut found = [None; SLOTS];
        inputs.find(document, &mut found);
        let known = match (inputs.key(), &stage.key) {
            (Input::Field(slot), _) => Some(found[slot].unwrap_or(NULL)),
            (_, Expression::Ranges(ranges)) => ranges.choose(&frame)?.as_raw_constant(),
            _ => None,
        };
        let at = match known.and_then(|key| held.recent_group(key)) {
            Some(at) => at,
            None => {
                let key = match (known, &stage.key) {
                    (Some(key), _) => key.get(),
                    // In a key of one field a missing field is null; in a key of several it is
                    // omitted.
                    (None, Expression::Object(fields)) if fields.len() == 1 => {
                        let (name, field) = &fields[0];
                        let value = field.eval(&frame)?.unwrap_or(Value::Null);
                        arena.document([(&**name, value)])?
                    }
                    (None, key) => key.eval(&frame)?.unwrap_or(Value::Null),
                };
                let hash = held.groups.hash(key, context.collator());
                let Some(at) = held.group_of(stage, context, hash, key)? else {
                    return held.write_row(&stage.fields, hash, key, &frame);
                };
                if let Some(key) = known {
                    held.note_group(key, at);
                }
                at
            }
        };
        let mut grown = 0;
        let states = held.groups.states(stage, at);
        for (((_, accumulator), input), state) in stage.fields.iter().zip(inputs.args()).zip(states)
        {
            grown += match *input {
                Input::Field(slot) => state.add_raw(found[slot], &frame)?,
                Input::Constant => {
                    state.add_raw(accumulator.argument().as_raw_constant(), &frame)?
                }
                Input::Computed => accumulator.add(&mut **state, &frame)?,
            };
        }
        if grown > 0 { held.grow(context, at, grown) } else { Ok(()) }
    }

    /// Returns whether the table holds enough memory to output complete groups.
    pub(super) fn is_worth_settling(&self) -> bool {
        let limit = self.context.limits.group_bytes_max;
        self.len() > 1 && (self.len() >= SETTLED || self.held.size > limit / 4)
    }

    /// Removes all groups but the newest: those are complete if documents come in the order of the
    /// key. Returns `None` if a key may occur again after other keys.
    pub(super) fn settle(&mut self) -> Option<Table> {
        let Table { stage, inputs, context, held } = self;
        let is_of_one = |key: &ValueBuf| {
            let key = match (&stage.key, key.get()) {
                (Expression::Object(_), Value::Document(key)) => key.values().next(),
                (_, key) => Some(key),
            };
            // An array is sorted by one of its elements; and a collation may order symbols among
            // the strings.
            !matches!(key, None | Some(Value::Array(_) | Value::Document(_) | Value::Symbol(_)))
        };
        if held.spilled.is_some() || !held.groups.keys.iter().all(is_of_one) {
            return None;
        }
        let newest = held.groups.split_newest(stage.fields.len(), context.collator());
        let size = newest.sizes.iter().sum();
        let share = Share::of_small_pieces(size);
        let rest = TableContent { groups: newest, size, share, ..TableContent::default() };
        let settled = std::mem::replace(held, rest);
        let (stage, inputs, context) = (Arc::clone(stage), Arc::clone(inputs), Arc::clone(context));
        Some(Table { stage, inputs, context, held: settled })
    }

    /// Adds a row that was written to the disk.
    fn take_in_row(&mut self, row: Doc<'_>, arena: &mut Arena) -> Result<()> {
        arena.reset();
        let Table { stage, context, held, .. } = self;
        let key = row.get("k").unwrap_or(Value::Null);
        let hash = held.groups.hash(key, context.collator());
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

    /// Returns the table, or its partitions if it has rows on the disk.
    pub(super) fn into_parts(mut self) -> Result<Whole> {
        let Some(Spilled { mut file, writers }) = self.held.spilled.take() else {
            return Ok(Whole::Table(Box::new(self)));
        };
        let streams: Vec<Stream> =
            writers.into_iter().map(|writer| writer.finish(&mut file)).collect::<Result<_>>()?;
        let file = Arc::new(file);
        let Table { stage, inputs, context, held } = self;
        let known = held.groups.empty();
        let part = || TableContent {
            groups: known.empty(),
            depth: held.depth + 1,
            ..TableContent::default()
        };
        let mut parts: Vec<TableContent> = (0..PARTS).map(|_| part()).collect();
        let Groups { keys, states, sizes, .. } = held.groups;
        let collator = context.collator();
        let mut states = states.into_iter();
        for (key, size) in keys.into_iter().zip(sizes) {
            let hash = known.hash(key.get(), collator);
            let part = &mut parts[part_of(hash, held.depth)];
            part.groups.states.extend(states.by_ref().take(stage.fields.len()));
            part.groups.insert(hash, key, size, collator);
            part.size += size;
        }
        for part in &mut parts {
            part.share = Share::of_small_pieces(part.size);
        }
        // The last is popped first, so the partitions come in their order.
        let parts = parts.into_iter().zip(streams).rev().map(|(held, stream)| Part {
            table: Table {
                stage: Arc::clone(&stage),
                inputs: Arc::clone(&inputs),
                context: Arc::clone(&context),
                held,
            },
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

/// The key of documents without one.
const NULL: RawValue<'static> = RawValue::new(Type::Null, &[]);

/// Returns the slot of a key among the recent groups, from its type, its length and its first and
/// last bytes, which differ most often.
#[inline]
fn recent_place(key: RawValue<'_>) -> usize {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    let bytes = key.bytes();
    let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first).wrapping_mul(MIX) ^ u64::from_le_bytes(*last).rotate_left(32)
        }
        _ => bytes.iter().fold(0, |ends, byte| ends << 8 | u64::from(*byte)),
    };
    let mixed = (ends ^ u64::from(key.kind().tag())).wrapping_mul(MIX);
    usize::try_from(mixed >> (u64::BITS - RECENT.ilog2())).unwrap_or(0)
}

impl TableContent {
    /// Returns the group of a key with exactly these bytes, if it was found recently and may grow.
    #[inline]
    fn recent_group(&self, key: RawValue<'_>) -> Option<usize> {
        let at = *self.recent.get(recent_place(key))? as usize;
        let is_it = self.groups.keys.get(at).is_some_and(|known| known.as_raw() == key);
        (is_it && self.spilled.is_none()).then_some(at)
    }

    /// Stores the group of a key as recent, unless the group's key has other bytes.
    fn note_group(&mut self, key: RawValue<'_>, at: usize) {
        if self.recent.is_empty() {
            self.recent.resize(RECENT, NOWHERE);
        }
        self.recent[recent_place(key)] = u32::try_from(at).unwrap_or(NOWHERE);
    }

    /// Returns the group of a key; creates it if there is room. `None` sends the document to the
    /// disk.
    fn group_of(
        &mut self,
        stage: &Group,
        context: &Context,
        hash: u64,
        key: Value<'_>,
    ) -> Result<Option<usize>> {
        let collator = context.collator();
        if let Some(at) = self.groups.find(hash, key, collator) {
            // An existing group may grow until the memory is full.
            let limit = context.limits.group_bytes_max;
            let goes_on =
                self.spilled.is_none() || self.size <= limit && self.share.has_room(self.size + 1);
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

    /// Adds to a group's size, and starts to use the disk if little room is left.
    fn grow(&mut self, context: &Context, at: usize, bytes: usize) -> Result<()> {
        self.size += bytes;
        self.groups.sizes[at] += bytes;
        let limit = context.limits.group_bytes_max;
        let Some(disk) = &context.limits.disk else {
            if self.size > limit {
                return Err(too_much_memory());
            }
            return self.share.require(self.size);
        };
        // Some room stays for the existing groups. A single group cannot be partitioned.
        let can_part = self.depth < DEPTH_MAX && self.groups.keys.len() > 1;
        if !can_part {
            return self.share.require(self.size);
        }
        let has_room = self.share.has_room(self.size);
        if self.spilled.is_none() && (!has_room || self.size > limit / 4 * 3) {
            let mut writers = Vec::new();
            writers.resize_with(PARTS, Writer::default);
            self.spilled = Some(Spilled { file: SpillFile::create(disk)?, writers });
        }
        Ok(())
    }

    /// Writes a row: `{ k: <key>, d: <document, if an accumulator needs it>, "0": <value of field
    /// 0>, … }`.
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
    /// Reads the rows of the partition.
    pub(super) fn take_in(mut self, arena: &mut Arena) -> Result<Table> {
        let (file, stream) = self.rows;
        let mut reader = Reader::new(stream);
        while reader.advance(&file)? {
            meter::spend(meter::DOCUMENT)?;
            self.table.take_in_row(Doc::trusted(reader.record()), arena)?;
        }
        Ok(self.table)
    }
}

/// Returns the partition of a hash at a depth. The bits differ from those that the hash table uses
/// first.
fn part_of(hash: u64, depth: u32) -> usize {
    let bits = hash >> (u64::BITS - 7 - PART_BITS * (depth + 1));
    usize::try_from(bits & (PARTS as u64 - 1)).unwrap_or(0)
}

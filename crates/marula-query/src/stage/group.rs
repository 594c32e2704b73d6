//! `$group`: one document per value of an expression, with what accumulators make of the group.

use std::sync::Arc;

use bstr::ByteSlice;
use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Doc, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::source::check_size;
use super::{Env, Parser, Place, Row, Source, Stage, Step};
use crate::accumulator::{Accumulator, State};
use crate::context::Context;
use crate::expression::set::hash;
use crate::expression::{Arena, Expression, Frame};

pub(super) const ROW: Row = Row { name: "$group", place: Place::Anywhere, parse };

errors! {
    not_object() = 15947, "a group's fields must be specified in an object";
    two_ids() = 15948, "a group's _id may only be specified once";
    inclusion() = 17390, "$group does not support inclusion-style expressions";
    no_id() = 15955, "a group specification must include an _id";
    too_much_memory(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in. Memory limit: {limit} bytes";
}

/// A field of the result and its accumulator.
pub(super) type Field = (Box<[u8]>, Accumulator);

/// A parsed `$group`.
#[derive(Debug)]
pub(super) struct Group {
    key: Expression,
    fields: Vec<Field>,
}

impl Group {
    /// Groups by `key`.
    pub(super) fn new(key: Expression, fields: Vec<Field>) -> Self {
        Group { key, fields }
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object());
    };
    let mut key = None;
    let mut fields = Vec::new();
    for element in spec {
        if **element.name == *b"_id" {
            if key.is_some() {
                return Err(two_ids());
            }
            key = Some(parse_key(element.value.get(), parser)?);
        } else {
            fields.push(parse_field(element.name, element.value.get(), parser)?);
        }
    }
    parser.push(Group::new(key.ok_or_else(no_id)?, fields));
    Ok(())
}

fn parse_key(value: Value<'_>, parser: &Parser<'_>) -> Result<Expression> {
    if let Value::Document(doc) = value
        && !doc.iter().any(|field| field.name.starts_with(b"$"))
        && doc.iter().any(|field| {
            let value = field.value.get();
            value.kind().is_number() || matches!(value, Value::Boolean(_))
        })
    {
        return Err(inclusion());
    }
    Ok(match Expression::parse(value, &mut parser.scope())? {
        // The one field of such a key is null where it is missing, and `$$REMOVE` always is.
        Expression::Object(mut fields) if fields.len() == 1 => {
            if matches!(fields[0].1, Expression::Missing) {
                fields[0].1 = Value::Null.into();
            }
            Expression::Object(fields)
        }
        key => key,
    })
}

/// Parses one field of the result.
pub(super) fn parse_field(name: &[u8], value: Value<'_>, parser: &Parser<'_>) -> Result<Field> {
    let accumulator = Accumulator::parse_field(name, value, &mut parser.scope())?;
    Ok((name.into(), accumulator))
}

impl Stage for Group {
    fn name(&self) -> &'static str {
        "$group"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("_id", &self.key.print());
            for (name, accumulator) in &self.fields {
                out.append(name, &accumulator.print());
            }
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.key.optimize(context)?;
        self.fields.iter_mut().try_for_each(|(_, accumulator)| accumulator.optimize(context))
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Grouping {
            input,
            stage: self,
            context: Arc::clone(&env.context),
            bytes_max: env.stage_bytes_max,
            arena: Arena::new(),
            groups: Groups::default(),
            size: 0,
            next: None,
            out: Vec::new(),
        }))
    }
}

struct Grouping {
    input: Box<dyn Source>,
    stage: Arc<Group>,
    context: Arc<Context>,
    bytes_max: usize,
    arena: Arena,
    groups: Groups,
    size: usize,
    /// The group that the next pull writes; `None` while documents come in.
    next: Option<usize>,
    out: Vec<u8>,
}

/// The groups in the order in which they were met.
#[derive(Default)]
struct Groups {
    keys: Vec<ValueBuf>,
    /// So many states for each group as there are fields.
    states: Vec<Box<dyn State>>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
}

impl Groups {
    fn find(&self, hash: u64, key: Value<'_>, collator: Option<&dyn Collator>) -> Option<usize> {
        let same = |&at: &usize| order::equal(self.keys[at].get(), key, collator);
        self.table.find(hash, same).copied()
    }

    fn insert(&mut self, hash: u64, key: ValueBuf, collator: Option<&dyn Collator>) -> usize {
        let at = self.keys.len();
        self.keys.push(key);
        let (keys, hashing) = (&self.keys, &self.hashing);
        let rehash = |&at: &usize| self::hash(hashing, keys[at].get(), collator);
        self.table.insert_unique(hash, at, rehash);
        at
    }
}

impl Grouping {
    fn take_in(&mut self) -> Result<()> {
        self.arena.reset();
        let frame = Frame::new(self.input.doc(), &self.arena, &self.context);
        let collator = self.context.collator();
        let key = match &self.stage.key {
            // A key of one field is null where the field is missing; of several, the field is left out.
            Expression::Object(fields) if fields.len() == 1 => {
                let (name, field) = &fields[0];
                let value = field.eval(&frame)?.unwrap_or(Value::Null);
                self.arena.document([(&**name, value)])?
            }
            key => key.eval(&frame)?.unwrap_or(Value::Null),
        };
        let hash = hash(&self.groups.hashing, key, collator);
        let fields = &self.stage.fields;
        let at = match self.groups.find(hash, key, collator) {
            Some(at) => at,
            None => {
                let owned = key.to_buf();
                self.size +=
                    owned.as_raw().bytes().len() + GROUP_BYTES + fields.len() * STATE_BYTES;
                for (_, accumulator) in fields {
                    self.groups.states.push(accumulator.start(key, &self.context)?);
                }
                self.groups.insert(hash, owned, collator)
            }
        };
        let states = &mut self.groups.states[at * fields.len()..][..fields.len()];
        for ((_, accumulator), state) in fields.iter().zip(states) {
            self.size += accumulator.add(&mut **state, &frame)?;
        }
        if self.size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        Ok(())
    }

    fn write(&mut self, at: usize) -> Result<()> {
        self.arena.reset();
        self.out.clear();
        let fields = &self.stage.fields;
        let mut out = DocWriter::new(&mut self.out);
        out.append_raw("_id", self.groups.keys[at].as_raw());
        let states = &self.groups.states[at * fields.len()..][..fields.len()];
        for ((name, _), state) in fields.iter().zip(states) {
            out.append(name.as_bstr(), state.result(&self.arena)?);
        }
        out.finish();
        check_size(self.out.len())
    }
}

/// What a group and a state take beside their content.
const GROUP_BYTES: usize = size_of::<ValueBuf>() + 2 * size_of::<usize>();
const STATE_BYTES: usize = 64;

impl Source for Grouping {
    fn advance(&mut self) -> Result<Step> {
        let at = match self.next {
            Some(at) => at,
            None => loop {
                match self.input.advance()? {
                    Step::Document => self.take_in()?,
                    Step::Pause => return Ok(Step::Pause),
                    Step::End => break 0,
                }
            },
        };
        self.next = Some(at + 1);
        if at >= self.groups.keys.len() {
            return Ok(Step::End);
        }
        self.write(at)?;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}

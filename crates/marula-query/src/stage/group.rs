//! `$group`: one document per value of an expression, with the accumulators' results.
//!
//! This file has the parser and the walk over the input; `table` holds the groups, in memory and on
//! disk; `inputs` reads their inputs. If documents come in the order of the key, groups are output
//! before the input ends. If an index gives one document of each group, `first_of_each` replaces
//! the stage.

mod first_of_each;
mod inputs;
mod table;

use std::sync::Arc;

use marula_bson::{Doc, FieldPath, Value, ValueBuf};
use marula_error::{Result, errors};

use super::needs::{Gives, Needs};
use super::passage::Passage;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::accumulator::Accumulator;
use crate::context::Context;
use crate::expression::{Arena, Expression};
use crate::feature_version::FeatureVersion;
use crate::sort::{SortPart, SortPattern};
pub use first_of_each::FirstOfEach;
use table::{Part, Table, Whole};

pub(super) const ROW: StageRow =
    StageRow { name: "$group", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object() = 15947, "a group's fields must be specified in an object";
    two_ids() = 15948, "a group's _id may only be specified once";
    inclusion() = 17390, "$group does not support inclusion-style expressions";
    no_id() = 15955, "a group specification must include an _id";
}

/// A field of the result and its accumulator.
pub(super) type Field = (Box<[u8]>, Accumulator);

/// A parsed `$group`.
#[derive(Debug)]
pub struct Group {
    key: Expression,
    fields: Vec<Field>,
}

impl Group {
    /// Creates a stage that groups by `key`.
    pub(super) fn new(key: Expression, fields: Vec<Field>) -> Self {
        Group { key, fields }
    }

    /// Returns the key of the groups.
    pub(super) fn key(&self) -> &Expression {
        &self.key
    }

    /// Returns the fields of the result.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the path that the key is, also if it is the only field of a document.
    pub(super) fn key_path(&self) -> Option<FieldPath> {
        let key = match &self.key {
            Expression::Object(fields) if fields.len() == 1 => &fields[0].1,
            key => key,
        };
        let Expression::Field(path) = key else { return None };
        Some(FieldPath::new(path.text()))
    }

    /// Returns whether documents in this order are sorted by the key first.
    fn is_in_order(&self, order: &SortPattern) -> bool {
        let first = order.parts().first();
        let Some(SortPart::Path { path, .. }) = first else { return false };
        self.key_path().is_some_and(|key| key == *path)
    }
}

/// Parses `{ _id: <expression>, <field>: { <accumulator>: <argument> }, … }`.
pub(super) fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
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
        // The only field of such a key is null if it is missing, and `$$REMOVE` always is.
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

    fn kind(&self) -> Kind<'_> {
        Kind::Group(self)
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.key.optimize(context)?;
        self.fields.iter_mut().try_for_each(|(_, accumulator)| accumulator.optimize(context))
    }

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.expression(&self.key);
        self.fields.iter().for_each(|(_, accumulator)| accumulator.reads(needs));
        Gives::Noted
    }

    fn passage(&self) -> Passage {
        Passage::of_group(&self.key)
    }

    fn first_of_each(self: Arc<Self>) -> Option<FirstOfEach> {
        FirstOfEach::of(self)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let context = Arc::clone(&env.context);
        Ok(Box::new(Grouping {
            is_in_order: input.order().is_some_and(|order| self.is_in_order(order)),
            input,
            table: Some(Table::new(Arc::clone(&self), context)),
            later: Vec::new(),
            ready: None,
            arena: Arena::new(),
            out: Vec::new(),
        }))
    }
}

struct Grouping {
    input: Box<dyn Source>,
    /// Whether the documents come in the order of the key.
    is_in_order: bool,
    /// The groups that documents of the input are added to; `None` once the input has ended.
    table: Option<Table>,
    /// Partitions of the groups whose rows on the disk are not read yet.
    later: Vec<Part>,
    /// The groups to write, and how many of them are written.
    ready: Option<(Table, usize)>,
    arena: Arena,
    out: Vec<u8>,
}

impl Grouping {
    /// Reads the input to its end or until groups are complete.
    fn take_in(&mut self) -> Result<Step> {
        let Some(table) = &mut self.table else { return Ok(Step::End) };
        loop {
            match self.input.advance()? {
                Step::Document => {
                    let known = self.input.known();
                    table.take_in(self.input.doc(), known, &mut self.arena)?;
                    if self.is_in_order && table.is_worth_settling() {
                        match table.settle() {
                            Some(settled) => {
                                self.ready = Some((settled, 0));
                                return Ok(Step::Document);
                            }
                            None => self.is_in_order = false,
                        }
                    }
                }
                Step::Pause => return Ok(Step::Pause),
                Step::End => break,
            }
        }
        if let Some(table) = self.table.take() {
            self.ready = self.whole(table)?;
        }
        Ok(Step::Document)
    }

    /// Returns the table if all its rows are in memory. A table with rows on the disk is returned
    /// one partition after another.
    fn whole(&mut self, table: Table) -> Result<Option<(Table, usize)>> {
        match table.into_parts()? {
            Whole::Table(table) => Ok(Some((*table, 0))),
            Whole::Parts(parts) => {
                self.later.extend(parts);
                Ok(None)
            }
        }
    }

    /// Writes the next group; returns `false` if there is none.
    fn write_next(&mut self) -> Result<bool> {
        loop {
            if let Some((table, next)) = &mut self.ready {
                if *next < table.len() {
                    table.write(*next, &mut self.arena, &mut self.out)?;
                    *next += 1;
                    return Ok(true);
                }
                self.ready = None;
            }
            let Some(part) = self.later.pop() else { return Ok(false) };
            let table = part.take_in(&mut self.arena)?;
            self.ready = self.whole(table)?;
        }
    }
}

impl Source for Grouping {
    fn pull(&mut self) -> Result<Step> {
        while !self.write_next()? {
            match self.take_in()? {
                Step::Document => {}
                step => return Ok(step),
            }
        }
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}

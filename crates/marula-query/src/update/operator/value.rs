//! Operators that set or remove a value: `$set`, `$setOnInsert`, `$unset`, `$currentDate`, `$min`,
//! `$max`.

use std::cmp::Ordering;

use bstr::BStr;
use marula_bson::{Doc, Element, RawValue, Type, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::Operation;
use crate::context::Context;
use crate::update::stored;
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// `$currentDate` with neither a boolean nor an object.
    bad_current_date(kind: &str) = BadValue, "{kind} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: 'timestamp/date'}}).";
    /// `$currentDate` with a field other than `$type`.
    unknown_current_date_option(name: &BStr) = BadValue, "Unrecognized $currentDate option: {name}";
    /// `$currentDate` with another type.
    bad_current_date_type() = BadValue, "The '$type' string field is required to be 'date' or 'timestamp': {{$currentDate: {{field : {{$type: 'date'}}}}}}";
}

/// A value to set, as the client wrote it.
#[derive(Debug)]
pub(in crate::update) struct Operand {
    value: ValueBuf,
    /// The number of parts of the longest path in the value.
    pub(super) inner_depth: usize,
}

impl Operand {
    pub(super) fn new(value: RawValue<'_>) -> Self {
        Operand { inner_depth: stored::inner_depth(value), value: value.to_buf() }
    }

    /// Replaces `old`, unless it has the same type and content.
    #[inline]
    pub(super) fn change(&self, old: RawValue<'_>, out: &mut Vec<u8>) -> WriteStep {
        if self.value.as_raw() == old {
            return WriteStep::Keep;
        }
        WriteStep::Write(self.write(out))
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Type {
        out.extend_from_slice(self.value.as_raw().bytes());
        self.value.kind()
    }
}

pub(super) fn parse_set(field: Element<'_>, _context: &Context) -> Result<Operation> {
    Ok(Operation::Set(Operand::new(field.value)))
}

pub(super) fn parse_set_on_insert(field: Element<'_>, _context: &Context) -> Result<Operation> {
    Ok(Operation::SetOnInsert(Operand::new(field.value)))
}

pub(super) fn parse_unset(_field: Element<'_>, _context: &Context) -> Result<Operation> {
    Ok(Operation::Unset)
}

/// The value that `$currentDate` writes.
#[derive(Clone, Copy, Debug)]
pub(in crate::update) enum CurrentDate {
    Date,
    Timestamp,
}

pub(super) fn parse_current_date(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let moment = match field.value.get() {
        Value::Boolean(_) => CurrentDate::Date,
        Value::Document(doc) => parse_moment(doc)?,
        other => return Err(bad_current_date(other.kind().alias())),
    };
    Ok(Operation::CurrentDate(moment))
}

fn parse_moment(doc: Doc<'_>) -> Result<CurrentDate> {
    let mut moment = None;
    for element in doc {
        if element.name != "$type" {
            return Err(unknown_current_date_option(element.name));
        }
        // Of several types the last that is one counts.
        match element.value.get().as_str().map(AsRef::<[u8]>::as_ref) {
            Some(b"date") => moment = Some(CurrentDate::Date),
            Some(b"timestamp") => moment = Some(CurrentDate::Timestamp),
            _ => {}
        }
    }
    moment.ok_or_else(bad_current_date_type)
}

impl CurrentDate {
    pub(super) fn write(self, walk: &Walk<'_>, out: &mut Vec<u8>) -> Type {
        let value = match self {
            CurrentDate::Date => Value::DateTime(walk.context.now_ms),
            CurrentDate::Timestamp => Value::Timestamp(now_timestamp(walk.context)),
        };
        value.write(out);
        value.kind()
    }
}

/// Returns the current time as a timestamp: each field gets its own from the server's clock.
pub(in crate::update) fn now_timestamp(context: &Context) -> u64 {
    let clock = context.interrupt.as_ref();
    clock.and_then(|clock| clock.next_timestamp(context.now_ms)).unwrap_or_else(|| {
        let seconds = u64::try_from(context.now_ms / 1000).unwrap_or(0);
        seconds << 32 | 1
    })
}

/// `$min` or `$max`.
#[derive(Debug)]
pub(in crate::update) struct Extreme {
    pub(super) operand: Operand,
    /// The order of operand and value in which the operand replaces the value.
    replaces_when: Ordering,
}

pub(super) fn parse_min(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let operand = Operand::new(field.value);
    Ok(Operation::Extreme(Extreme { operand, replaces_when: Ordering::Less }))
}

pub(super) fn parse_max(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let operand = Operand::new(field.value);
    Ok(Operation::Extreme(Extreme { operand, replaces_when: Ordering::Greater }))
}

impl Extreme {
    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        old: RawValue<'_>,
        out: &mut Vec<u8>,
    ) -> WriteStep {
        let ordering =
            order::compare_raw(self.operand.value.as_raw(), old, walk.context.collator());
        if ordering == self.replaces_when {
            WriteStep::Write(self.operand.write(out))
        } else {
            WriteStep::Keep
        }
    }
}

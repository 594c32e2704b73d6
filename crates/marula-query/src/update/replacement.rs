//! An update that replaces the whole document.

use marula_bson::order;
use marula_bson::{Doc, DocBuf, DocWriter, Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::operator::now_timestamp;
use super::{EmptyTimestamps, stored};
use crate::context::Context;

errors! {
    /// An entry of an oplog gives a document another `_id`.
    id_of_entry_altered() = 13_596, "in Collection::updateDocument _id mismatch";
    /// The new document has another `_id`.
    id_altered(id: Element<'_>) = ImmutableField, "After applying the update, the (immutable) field '_id' was found to have been altered to {id}";
}

/// A replacement document.
#[derive(Debug)]
pub(super) struct Replacement {
    doc: DocBuf,
    /// Whether a top-level field is the zero timestamp, which means the current time.
    has_zero_timestamp: bool,
    /// Whether it is from an oplog, where what a document may hold has been checked before.
    is_entry: bool,
}

impl Replacement {
    pub(super) fn new(doc: Doc<'_>, empty_timestamps: EmptyTimestamps) -> Replacement {
        let has_zero_timestamp =
            empty_timestamps == EmptyTimestamps::Filled && doc.iter().any(is_zero_timestamp);
        Replacement { doc: doc.to_buf(), has_zero_timestamp, is_entry: false }
    }

    /// The replacement that an entry of an oplog holds.
    pub(super) fn of_entry(doc: Doc<'_>) -> Replacement {
        Replacement { doc: doc.to_buf(), has_zero_timestamp: false, is_entry: true }
    }

    /// Appends the new document; returns whether it counts as modified, which it does unless every
    /// byte is the same.
    pub(super) fn apply(&self, old: Doc<'_>, context: &Context, out: &mut Vec<u8>) -> Result<bool> {
        if self.doc.as_doc() == old && !self.has_zero_timestamp {
            return Ok(false);
        }
        self.write(old.get_raw(b"_id"), false, context, out)?;
        Ok(true)
    }

    /// Appends the new document with an `_id` as its first field: its own, or else the given one.
    pub(super) fn write(
        &self,
        id: Option<RawValue<'_>>,
        is_insert: bool,
        context: &Context,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let doc = self.doc.as_doc();
        let own_id = doc.get_raw(b"_id");
        match self.is_entry {
            _ if is_insert => {}
            true => check_id_of_entry(id, own_id)?,
            false => stored::check_dollar_names(doc)?,
        }
        if let Some(id) = own_id.or(id).filter(|_| is_insert) {
            stored::check_id_no_array(id)?;
        }
        // There may be several.
        for element in doc.iter().filter(|element| element.name == "_id") {
            self.check_id(element.value)?;
        }
        if !self.is_entry {
            check_same_id(id, own_id)?;
        }
        stored::check_depth(doc)?;
        let mut writer = DocWriter::new(out);
        if let Some(id) = own_id.or(id) {
            writer.append_raw("_id", id);
        }
        if own_id.is_none() && !self.has_zero_timestamp {
            writer.append_elements(doc.elements_bytes());
            return Ok(());
        }
        let mut is_first_id = own_id.is_some();
        for element in doc {
            if is_first_id && element.name == "_id" {
                is_first_id = false;
            } else if self.has_zero_timestamp && is_zero_timestamp(element) {
                writer.append(element.name, Value::Timestamp(now_timestamp(context)));
            } else {
                writer.append_raw(element.name, element.value);
            }
        }
        Ok(())
    }

    /// Checks the `_id` of the new document.
    pub(super) fn check_id(&self, id: RawValue<'_>) -> Result<()> {
        if self.is_entry { stored::check_id_kind(id) } else { stored::check_id(id) }
    }
}

/// Checks that an existing `_id` does not change. An equal number of another type counts as the
/// same.
pub(super) fn check_same_id(
    fixed: Option<RawValue<'_>>,
    given: Option<RawValue<'_>>,
) -> Result<()> {
    match (fixed, given) {
        (Some(fixed), Some(given)) if order::compare_raw(fixed, given, None).is_ne() => {
            Err(id_altered(Element { name: "_id".into(), value: given }))
        }
        _ => Ok(()),
    }
}

/// The same for what an entry of an oplog makes of a document.
pub(super) fn check_id_of_entry(
    fixed: Option<RawValue<'_>>,
    given: Option<RawValue<'_>>,
) -> Result<()> {
    check_same_id(fixed, given).map_err(|_| id_of_entry_altered())
}

fn is_zero_timestamp(element: Element<'_>) -> bool {
    let is_zero = element.value.kind() == Type::Timestamp && element.value.bytes() == [0; 8];
    is_zero && element.name != "_id"
}

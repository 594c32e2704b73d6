//! Fields of a command or stage: each has a known name and may be given once.

use bstr::{BStr, ByteSlice};
use marula_bson::Element;
use marula_error::{Error, Result, errors};

errors! {
    unknown(path: &str) = IDLUnknownField, "BSON field '{path}' is an unknown field.";
    /// The command is one that a driver sends to mongocryptd, the process that encrypts for it.
    meant_for_mongocryptd(place: &str) = 4_662_500, "BSON field '{place}.jsonSchema' is an unknown field. This command may be meant for a mongocryptd process.";
    /// A field is given a second time.
    pub duplicate_field(place: &str, field: &BStr) = IDLDuplicateField, "BSON field '{place}.{field}' is a duplicate field";
}

/// The error for a field that the document that messages call `place` does not have. As in mongod
/// it names the place alone if the field's name is empty.
pub fn unknown_field(place: &str, name: &BStr) -> Error {
    match name.as_bytes() {
        b"" => unknown(place),
        b"jsonSchema" => meant_for_mongocryptd(place),
        _ => unknown(&format!("{place}.{name}")),
    }
}

/// The fields of a document that have been read. Each is noted after its type has been checked, as
/// mongod does: of two mistakes in one field, the wrong type is the one that is reported.
pub struct Once<'d> {
    place: &'static str,
    names: Vec<&'d BStr>,
}

impl<'d> Once<'d> {
    /// No field of the document that messages call `place`.
    pub fn of(place: &'static str) -> Self {
        Once { place, names: Vec::new() }
    }

    /// Notes a field, unless it is null, which counts as absent. All others that have been noted
    /// are compared with it, so that only fields of known names should be.
    ///
    /// Errors: `duplicate_field`.
    pub fn note_given(&mut self, field: Element<'d>) -> Result<()> {
        if field.value.get().is_nullish() { Ok(()) } else { self.note(field.name) }
    }

    /// Notes a field that may be null.
    ///
    /// Errors: `duplicate_field`.
    pub fn note(&mut self, name: &'d BStr) -> Result<()> {
        if self.names.contains(&name) {
            return Err(duplicate_field(self.place, name));
        }
        self.names.push(name);
        Ok(())
    }
}

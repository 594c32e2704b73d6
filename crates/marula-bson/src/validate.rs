//! Checks that bytes from a client are a well-formed document.
//!
//! [`validate`] runs once over every incoming document; all other code relies on it. It checks
//! lengths, terminators, type tags, boolean bytes and nesting, as mongod does, and nothing else:
//! text need not be UTF-8, names may repeat, array names may be anything. [`Malformed`] displays as
//! mongod's message.
//!
//! As in mongod, elements are read in order up to the end of the outermost document, and a nested
//! document must end where its length says.

use std::fmt;

use crate::ext_json::escape;
use crate::nul::find_nul;
use crate::value::{FIXED_SIZES, SIZE_VARIES, read_length};
use crate::{BStr, ByteSlice, Doc, Type};

/// The size limits of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum size in bytes.
    pub bytes_max: usize,
    /// The maximum nesting below the outermost document. Code with scope counts twice.
    pub depth_max: u32,
}

impl Limits {
    /// The limits of a message: 16 MiB plus 16 KiB for the fields around a document, 200 levels.
    ///
    /// Source: mongod 6.0 ("Size must be between 0 and 16793600(16MB)"; 201 levels are refused).
    pub const MESSAGE: Limits = Limits { bytes_max: 16 * 1024 * 1024 + 16 * 1024, depth_max: 200 };
}

/// The kind of malformation of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// There are fewer bytes than the smallest document has, or its length says so.
    TooShort,
    /// The length exceeds the available bytes.
    LengthPastEnd,
    /// The last byte is not NUL.
    NotTerminated,
    /// The length exceeds [`Limits::bytes_max`].
    TooLarge {
        /// The length that the document claims.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The type tag does not exist.
    UnknownType(u8),
    /// A value exceeds the end of the document.
    ValuePastEnd,
    /// A document does not end where its length says.
    WrongLength,
    /// A nested document's length is less than that of the smallest document.
    NestedTooShort,
    /// A string's last byte is not NUL.
    StringNotTerminated,
    /// A boolean is neither 0 nor 1.
    NotBoolean,
    /// Documents are nested deeper than [`Limits::depth_max`].
    TooDeep,
}

/// An error for bytes that are not a document; displays as mongod's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The kind of malformation.
    pub fault: Fault,
    /// The dotted path of the element, as far as it was parsed.
    path: Option<Vec<u8>>,
    /// The document's `_id` as text, if it was parsed before the fault and is neither a document
    /// nor an array.
    id: Option<String>,
}

impl Malformed {
    /// MongoDB's code for the fault: InvalidBSON, Overflow (too deep) or BSONObjectTooLarge.
    pub const fn code(&self) -> i32 {
        match self.fault {
            Fault::TooDeep => 15,
            Fault::TooLarge { .. } => 10334,
            _ => 22,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.fault {
            Fault::TooLarge { bytes, bytes_max } => {
                return write!(
                    f,
                    "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and \
                     {bytes_max}({}MB)",
                    bytes_max >> 20
                );
            }
            Fault::UnknownType(tag) => {
                return self.write_place(f, format_args!("Unrecognized BSON type {tag}"));
            }
            Fault::TooShort => "BSON data has to be at least 5 bytes",
            Fault::LengthPastEnd => "Incorrect BSON length",
            Fault::NotTerminated => "BSON object not terminated with EOO",
            Fault::ValuePastEnd => "BSON size is larger than buffer size",
            Fault::WrongLength => "incorrect BSON length",
            Fault::NestedTooShort => "Nested BSON object has to be at least 5 bytes",
            Fault::StringNotTerminated => "Not null terminated string",
            Fault::NotBoolean => "BSON bool is neither false nor true",
            Fault::TooDeep => "BSONObj exceeds maximum nested object depth",
        })?;
        self.write_place(f, format_args!(""))
    }
}

impl Malformed {
    fn write_place(&self, f: &mut fmt::Formatter<'_>, start: fmt::Arguments<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or(b"?").as_bstr();
        write!(f, "{start} in element with field name '{path}' in object with ")?;
        match &self.id {
            Some(id) => write!(f, "_id: {id}"),
            None => f.write_str("unknown _id"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Checks the document at the front of `bytes`; bytes after it are ignored.
///
/// Errors: [`Malformed`], boxed, since a result is returned for each document.
pub fn validate(bytes: &[u8], limits: Limits) -> Result<Doc<'_>, Box<Malformed>> {
    let outer = |fault| Box::new(Malformed { fault, path: None, id: None });
    let length = bytes.first_chunk().map(|prefix| i32::from_le_bytes(*prefix));
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if length < DOC_BYTES_MIN {
        return Err(outer(Fault::TooShort));
    }
    if length > limits.bytes_max {
        let bytes_max = limits.bytes_max;
        return Err(outer(Fault::TooLarge { bytes: length, bytes_max }));
    }
    let bytes = bytes.get(..length).ok_or_else(|| outer(Fault::LengthPastEnd))?;
    if bytes.last() != Some(&0) {
        return Err(outer(Fault::NotTerminated));
    }
    let mut check = Check { rest: bytes.get(4..).unwrap_or(&[]), depth_left: limits.depth_max };
    match check.elements(0, None) {
        Ok(()) => Ok(Doc::trusted(bytes)),
        Err(broken) => Err(Box::new(broken.explain(bytes))),
    }
}

const DOC_BYTES_MIN: usize = 5;

impl Broken<'_> {
    fn explain(self, bytes: &[u8]) -> Malformed {
        let names: Vec<&[u8]> = self.names.iter().rev().map(|name| name.as_bytes()).collect();
        let path = (!names.is_empty()).then(|| names.join(&b'.'));
        let good_size = bytes.len() - self.outer_rest;
        let mut fields = Doc::trusted(bytes).iter();
        let mut id = None;
        while let Some(element) = fields.next() {
            // `rest` excludes the terminator, `outer_rest` includes it.
            if bytes.len() - fields.rest().len() - 1 > good_size {
                break;
            }
            let is_nested = matches!(element.value.kind(), Type::Document | Type::Array);
            if element.name == "_id" && !is_nested {
                id = Some(escape(&element.value.get().to_string()));
                break;
            }
        }
        Malformed { fault: self.fault, path, id }
    }
}

/// The rest of the outermost document's bytes, and the remaining nesting levels.
struct Check<'a> {
    rest: &'a [u8],
    depth_left: u32,
}

/// A fault while it is returned; it collects the names that lead to it, innermost first.
struct Broken<'a> {
    fault: Fault,
    names: Vec<&'a BStr>,
    /// The number of bytes left at the outermost element that contains the fault.
    outer_rest: usize,
}

impl<'a> Check<'a> {
    /// Checks elements up to and including the NUL that ends their document, which must leave `end`
    /// bytes.
    ///
    /// A fault before the first name is attributed to `last_name`.
    fn elements(
        &mut self,
        end: usize,
        mut last_name: Option<&'a BStr>,
    ) -> Result<(), Box<Broken<'a>>> {
        loop {
            let element_rest = self.rest.len();
            let broken = |fault, name: Option<&'a BStr>| {
                let names = name.into_iter().collect();
                Err(Box::new(Broken { fault, names, outer_rest: element_rest }))
            };
            let Some((&tag, rest)) = self.rest.split_first() else {
                return broken(Fault::ValuePastEnd, last_name);
            };
            if tag == 0 {
                self.rest = rest;
                return match rest.len() == end {
                    true => Ok(()),
                    false => broken(Fault::WrongLength, last_name),
                };
            }
            let Some(name_size) = find_nul(rest) else {
                return broken(Fault::ValuePastEnd, last_name);
            };
            let (name, rest) = rest.split_at_checked(name_size).unwrap_or((rest, &[]));
            let name = name.as_bstr();
            last_name = Some(name);
            self.rest = rest.get(1..).unwrap_or(&[]);
            let size = FIXED_SIZES.get(usize::from(tag)).copied().unwrap_or(SIZE_VARIES);
            if size != SIZE_VARIES {
                let Some((value, rest)) = self.rest.split_at_checked(usize::from(size)) else {
                    return broken(Fault::ValuePastEnd, last_name);
                };
                if tag == Type::Boolean.tag() && value.first().is_none_or(|&flag| flag > 1) {
                    return broken(Fault::NotBoolean, last_name);
                }
                self.rest = rest;
                continue;
            }
            if let Err(mut fault) = self.sized(tag, name) {
                let is_innermost = fault.names.is_empty();
                fault.names.push(name);
                if is_innermost && fault.fault == Fault::NestedTooShort {
                    // mongod names such a document as if it were inside a document with an empty
                    // name.
                    fault.names.push(BStr::new(b""));
                }
                fault.outer_rest = element_rest;
                return Err(fault);
            }
        }
    }

    /// Checks a value whose size is in its bytes.
    fn sized(&mut self, tag: u8, name: &'a BStr) -> Result<(), Box<Broken<'a>>> {
        let start = self.rest;
        let fault = |fault| Box::new(Broken { fault, names: Vec::new(), outer_rest: 0 });
        match Type::from_tag(tag) {
            None => Err(fault(Fault::UnknownType(tag))),
            Some(Type::String | Type::Code | Type::Symbol) => self.string().map_err(fault),
            Some(Type::Document | Type::Array) => self.document(name),
            Some(Type::Binary) => self.take_sized(5).map(|_| ()).map_err(fault),
            Some(Type::DbPointer) => {
                self.string().map_err(fault)?;
                self.take(12).map(|_| ()).map_err(fault)
            }
            Some(Type::CodeWithScope) => {
                let size = self.length().ok_or_else(|| fault(Fault::ValuePastEnd))?;
                self.take(4).map_err(fault)?;
                self.string().map_err(fault)?;
                // The scope is one level deeper, in a field with an empty name.
                self.depth_left =
                    self.depth_left.checked_sub(1).ok_or_else(|| fault(Fault::TooDeep))?;
                let nameless = BStr::new(b"");
                self.document(nameless).map_err(|mut broken| {
                    broken.names.push(nameless);
                    broken
                })?;
                self.depth_left += 1;
                match start.len() - self.rest.len() == size {
                    true => Ok(()),
                    false => Err(fault(Fault::WrongLength)),
                }
            }
            Some(Type::Regex) => {
                self.c_string().map_err(fault)?;
                self.c_string().map_err(fault)
            }
            // All other types have a fixed size.
            Some(_) => Ok(()),
        }
    }

    fn document(&mut self, name: &'a BStr) -> Result<(), Box<Broken<'a>>> {
        let fault = |fault| Box::new(Broken { fault, names: Vec::new(), outer_rest: 0 });
        let length = self.length().ok_or_else(|| fault(Fault::ValuePastEnd))?;
        if length < DOC_BYTES_MIN {
            return Err(fault(Fault::NestedTooShort));
        }
        self.depth_left = self.depth_left.checked_sub(1).ok_or_else(|| fault(Fault::TooDeep))?;
        // When the length exceeds the end, no number of remaining bytes is right.
        let end = self.rest.len().checked_sub(length).unwrap_or(usize::MAX);
        self.take(4).map_err(fault)?;
        self.elements(end, Some(name))?;
        self.depth_left += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        // The last byte of an empty string without its NUL would be part of the length.
        match (self.length(), self.take_sized(4)?) {
            (Some(1..), [.., 0]) => Ok(()),
            _ => Err(Fault::StringNotTerminated),
        }
    }

    fn length(&self) -> Option<usize> {
        read_length(self.rest)
    }

    /// Consumes the number of bytes in the length prefix plus `extra`, for the prefix itself and
    /// other fields.
    fn take_sized(&mut self, extra: usize) -> Result<&'a [u8], Fault> {
        let length = self.length().ok_or(Fault::ValuePastEnd)?;
        self.take(length.checked_add(extra).ok_or(Fault::ValuePastEnd)?)
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(Fault::ValuePastEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    fn c_string(&mut self) -> Result<(), Fault> {
        let end = memchr::memchr(0, self.rest).ok_or(Fault::ValuePastEnd)?;
        self.take(end + 1).map(|_| ())
    }
}

#[cfg(test)]
mod tests;

//! The part of BSON that is needed to write requests and to read the top level of a reply.
//!
//! The product's crate is not used: a benchmark must not share an error with the code that it
//! measures.

/// A document under construction.
#[derive(Clone)]
pub(crate) struct Doc {
    bytes: Vec<u8>,
}

impl Doc {
    pub(crate) fn new() -> Doc {
        Doc { bytes: vec![0; 4] }
    }

    fn element(mut self, kind: u8, name: &str, value: &[u8]) -> Doc {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.bytes.extend_from_slice(value);
        self
    }

    pub(crate) fn str(self, name: &str, value: &str) -> Doc {
        let mut doc = self.element(2, name, &(value.len() as i32 + 1).to_le_bytes());
        doc.bytes.extend_from_slice(value.as_bytes());
        doc.bytes.push(0);
        doc
    }

    pub(crate) fn long(self, name: &str, value: i64) -> Doc {
        self.element(0x12, name, &value.to_le_bytes())
    }

    pub(crate) fn int(self, name: &str, value: i32) -> Doc {
        self.element(0x10, name, &value.to_le_bytes())
    }

    pub(crate) fn double(self, name: &str, value: f64) -> Doc {
        self.element(1, name, &value.to_le_bytes())
    }

    pub(crate) fn bool(self, name: &str, value: bool) -> Doc {
        self.element(8, name, &[value as u8])
    }

    pub(crate) fn date(self, name: &str, millis: i64) -> Doc {
        self.element(9, name, &millis.to_le_bytes())
    }

    pub(crate) fn oid(self, name: &str, value: [u8; 12]) -> Doc {
        self.element(7, name, &value)
    }

    pub(crate) fn uuid(self, name: &str, value: [u8; 16]) -> Doc {
        let mut bytes = vec![16, 0, 0, 0, 4];
        bytes.extend_from_slice(&value);
        self.element(5, name, &bytes)
    }

    pub(crate) fn binary(self, name: &str, value: &[u8]) -> Doc {
        let mut doc = self.element(5, name, &(value.len() as i32).to_le_bytes());
        doc.bytes.push(0);
        doc.bytes.extend_from_slice(value);
        doc
    }

    pub(crate) fn doc(self, name: &str, value: Doc) -> Doc {
        let bytes = value.finish();
        self.element(3, name, &bytes)
    }

    pub(crate) fn array(self, name: &str, values: Vec<Doc>) -> Doc {
        let mut list = Doc::new();
        for (i, value) in values.into_iter().enumerate() {
            list = list.doc(&i.to_string(), value);
        }
        let bytes = list.finish();
        self.element(4, name, &bytes)
    }

    pub(crate) fn ints(self, name: &str, values: &[i32]) -> Doc {
        let list = values
            .iter()
            .enumerate()
            .fold(Doc::new(), |list, (place, value)| list.int(&place.to_string(), *value));
        let bytes = list.finish();
        self.element(4, name, &bytes)
    }

    pub(crate) fn longs(self, name: &str, values: &[i64]) -> Doc {
        let list = values
            .iter()
            .enumerate()
            .fold(Doc::new(), |list, (place, value)| list.long(&place.to_string(), *value));
        let bytes = list.finish();
        self.element(4, name, &bytes)
    }

    pub(crate) fn strings(self, name: &str, values: &[&str]) -> Doc {
        let mut list = Doc::new();
        for (i, value) in values.iter().enumerate() {
            list = list.str(&i.to_string(), value);
        }
        let bytes = list.finish();
        self.element(4, name, &bytes)
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        let length = (self.bytes.len() as i32).to_le_bytes();
        self.bytes[..4].copy_from_slice(&length);
        self.bytes
    }
}

/// Returns a number at the top level of a reply, of any numeric type.
pub(crate) fn number(doc: &[u8], name: &str) -> Option<f64> {
    let (kind, value) = field(doc, name)?;
    match kind {
        1 => Some(f64::from_le_bytes(value.get(..8)?.try_into().ok()?)),
        0x10 => Some(i32::from_le_bytes(value.get(..4)?.try_into().ok()?) as f64),
        0x12 => Some(i64::from_le_bytes(value.get(..8)?.try_into().ok()?) as f64),
        _ => None,
    }
}

/// A whole number of 64 bits, which a double would not hold.
pub(crate) fn number_long(doc: &[u8], name: &str) -> Option<i64> {
    let (0x12, value) = field(doc, name)? else { return None };
    Some(i64::from_le_bytes(value.get(..8)?.try_into().ok()?))
}

/// A field of a document; its value is a slice from the value's start on.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) kind: u8,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Returns the fields of a document in order, up to the first malformed one.
pub(crate) fn fields(doc: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut at = 4;
    std::iter::from_fn(move || {
        let kind = *doc.get(at)?;
        let end = at + 1 + doc.get(at + 1..)?.iter().position(|byte| *byte == 0)?;
        let (name, value) = (doc.get(at + 1..end)?, doc.get(end + 1..)?);
        let length = || Some(i32::from_le_bytes(value.get(..4)?.try_into().ok()?) as usize);
        at = end
            + 1
            + match kind {
                1 | 9 | 0x11 | 0x12 => 8,
                2 => 4 + length()?,
                3 | 4 => length()?,
                5 => 5 + length()?,
                7 => 12,
                8 => 1,
                0x0a => 0,
                0x10 => 4,
                _ => return None,
            };
        Some(Field { kind, name, value })
    })
}

/// Returns the type of a field's value and the bytes from its start on; `None` for a missing field
/// or malformed bytes.
pub(crate) fn field<'a>(doc: &'a [u8], name: &str) -> Option<(u8, &'a [u8])> {
    let found = fields(doc).find(|field| field.name == name.as_bytes())?;
    Some((found.kind, found.value))
}

/// The documents of an array of documents, from the start of the array's value on.
pub(crate) fn documents(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 4;
    std::iter::from_fn(move || {
        if *array.get(at)? != 3 {
            return None;
        }
        let start = at + 2 + array.get(at + 1..)?.iter().position(|byte| *byte == 0)?;
        let length = i32::from_le_bytes(array.get(start..start + 4)?.try_into().ok()?) as usize;
        let document = array.get(start..start + length.max(5))?;
        at = start + length.max(5);
        Some(document)
    })
}

/// A string field, for error messages.
pub(crate) fn text(doc: &[u8], name: &str) -> Option<String> {
    let (2, value) = field(doc, name)? else { return None };
    string(value)
}

/// The string that starts at `value`.
pub(crate) fn string(value: &[u8]) -> Option<String> {
    let length = i32::from_le_bytes(value.get(..4)?.try_into().ok()?) as usize;
    Some(String::from_utf8_lossy(value.get(4..4 + length.checked_sub(1)?)?).into_owned())
}

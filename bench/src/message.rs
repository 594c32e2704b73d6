//! Requests as prepared bytes: an OP_MSG, and the places in it that change from one request to the
//! next.

use crate::bson::{self, Doc};

/// Numbers that need to be cheap and different, not unpredictable.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Eight characters that differ every time.
    pub(crate) fn letters(&mut self) -> [u8; 8] {
        let bits = self.next();
        std::array::from_fn(|i| {
            b"abcdefghijklmnopqrstuvwxyz012345"[(bits >> (5 * i)) as usize & 31]
        })
    }
}

/// An ObjectId that follows from a number and grows with it, as those of one client do.
pub(crate) fn oid(number: u64) -> [u8; 12] {
    let mut id = [0x65, 0x10, 0, 0, 0xAB, 0xCD, 0xEF, 1, 2, 0, 0, 0];
    id[1..4].copy_from_slice(&((number >> 24) as u32 + 0x10_0000).to_be_bytes()[1..]);
    id[9..].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
    id
}

/// One message whose marked places are overwritten before each sending.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
}

impl Template {
    /// An OP_MSG with a body and, when there are any, documents as a second section.
    pub(crate) fn new(body: Doc, documents: Option<(&str, &[Vec<u8>])>) -> Template {
        let mut bytes = vec![0; 16];
        bytes[12..16].copy_from_slice(&2013i32.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(0);
        bytes.extend_from_slice(&body.finish());
        if let Some((name, documents)) = documents {
            bytes.push(1);
            let size = 4 + name.len() + 1 + documents.iter().map(Vec::len).sum::<usize>();
            bytes.extend_from_slice(&(size as i32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
            documents.iter().for_each(|document| bytes.extend_from_slice(document));
        }
        let length = (bytes.len() as i32).to_le_bytes();
        bytes[..4].copy_from_slice(&length);
        Template { bytes }
    }

    /// Every place that holds `marker`.
    pub(crate) fn places(&self, marker: &[u8]) -> Vec<usize> {
        let mut places = Vec::new();
        let mut at = 0;
        while at + marker.len() <= self.bytes.len() {
            if self.bytes[at..].starts_with(marker) {
                places.push(at);
                at += marker.len();
            } else {
                at += 1;
            }
        }
        assert!(!places.is_empty(), "the template lacks its marker");
        places
    }

    pub(crate) fn put(&mut self, place: usize, value: &[u8]) {
        self.bytes[place..place + value.len()].copy_from_slice(value);
    }
}

/// Whether these bytes are a whole message.
pub(crate) fn whole(bytes: &[u8]) -> bool {
    let Some(length) = bytes.get(..4) else { return false };
    let length = i32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    bytes.len() >= length
}

/// The document of an OP_MSG reply.
pub(crate) fn body(reply: &[u8]) -> Result<&[u8], String> {
    let op_code =
        reply.get(12..16).map(|bytes| i32::from_le_bytes(bytes.try_into().expect("four bytes")));
    if op_code != Some(2013) || reply.get(20) != Some(&0) {
        return Err(format!(
            "the reply is not a plain OP_MSG: {:?}",
            &reply[..reply.len().min(32)]
        ));
    }
    Ok(&reply[21..])
}

/// Refuses a reply that is an error, of the command or of one of its writes.
pub(crate) fn succeeded(reply: &[u8]) -> Result<&[u8], String> {
    let doc = body(reply)?;
    if bson::number(doc, "ok") != Some(1.0) {
        let message = bson::text(doc, "errmsg").unwrap_or_else(|| format!("{doc:?}"));
        return Err(format!("the server answered an error: {message}"));
    }
    if bson::field(doc, "writeErrors").is_some() {
        return Err("the server answered writeErrors".into());
    }
    Ok(doc)
}

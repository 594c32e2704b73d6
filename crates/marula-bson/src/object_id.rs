//! ObjectId: twelve unique bytes, made by a driver, or by Marula when none is given.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds (4 bytes, big-endian), a random value of the process (5), a counter (3, big-endian).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 12]);

impl ObjectId {
    /// Generates an id for the moment `unix_seconds`, unique in this process and very likely
    /// globally.
    pub fn generate(unix_seconds: u32) -> Self {
        static PROCESS: OnceLock<[u8; 5]> = OnceLock::new();
        static COUNTER: OnceLock<AtomicU32> = OnceLock::new();
        let process = PROCESS.get_or_init(rand::random);
        let counter = COUNTER.get_or_init(|| AtomicU32::new(rand::random()));
        let count = counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&unix_seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(process);
        bytes[9..].copy_from_slice(&count[1..]);
        ObjectId(bytes)
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 12]) -> Self {
        ObjectId(bytes)
    }

    /// The twelve bytes.
    pub const fn bytes(self) -> [u8; 12] {
        self.0
    }

    /// Parses 24 hexadecimal digits.
    pub fn parse_hex(text: &str) -> Option<Self> {
        if text.len() != 24 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 12];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        // `from_str_radix` accepts a sign, which is not a hexadecimal digit.
        text.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(ObjectId(bytes))
    }

    /// The moment in the first four bytes.
    pub fn unix_seconds(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

//! Type bits: the type information that a key loses, written during encoding and read during
//! decoding.

use crate::Decimal128;
use crate::decimal128::{EXPONENT_MAX, EXPONENT_MIN, Parts};

/// How a value differs from the value that its key decodes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A long in the range of int.
    Long,
    /// A double that is an integer.
    Double,
    /// The double −0.
    NegativeZero,
    /// A decimal with this exponent.
    Decimal {
        /// The exponent of its coefficient; 0 for NaN and infinities.
        exponent: i32,
        /// The sign, which matters for zero.
        negative: bool,
    },
    /// A symbol.
    Symbol,
}

const LONG: u8 = 0;
const DOUBLE: u8 = 1;
const NEGATIVE_ZERO: u8 = 2;
const DECIMAL: u8 = 3;
const SYMBOL: u8 = 4;

const KIND_BITS: u32 = 3;
const SKIPPED_MAX: u8 = u8::MAX >> KIND_BITS;
const DECIMAL_NEGATIVE: u16 = 1 << 15;

impl Kind {
    pub(super) fn of_decimal(number: Decimal128) -> Kind {
        match number.parts() {
            Parts::Finite { negative, exponent, .. } => Kind::Decimal { exponent, negative },
            Parts::Infinity { negative } => Kind::Decimal { exponent: 0, negative },
            Parts::Nan => Kind::Decimal { exponent: 0, negative: false },
        }
    }
}

/// Writes type bits.
#[derive(Clone, Default)]
pub(super) struct TypeBits {
    bytes: Vec<u8>,
    /// The number of strings and numbers of their usual type since the last entry.
    skipped: u32,
}

impl TypeBits {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.skipped = 0;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    pub(super) fn push(&mut self, kind: Kind) {
        let code = match kind {
            Kind::Long => LONG,
            Kind::Double => DOUBLE,
            Kind::NegativeZero => NEGATIVE_ZERO,
            Kind::Decimal { .. } => DECIMAL,
            Kind::Symbol => SYMBOL,
        };
        match u8::try_from(self.skipped) {
            Ok(skipped) if skipped < SKIPPED_MAX => self.bytes.push(skipped << KIND_BITS | code),
            _ => {
                self.bytes.push(SKIPPED_MAX << KIND_BITS | code);
                self.bytes.extend_from_slice(&self.skipped.to_le_bytes());
            }
        }
        self.skipped = 0;
        if let Kind::Decimal { exponent, negative } = kind {
            let biased = u16::try_from(exponent - EXPONENT_MIN)
                .expect("the exponent of a decimal is in range");
            let sign = if negative { DECIMAL_NEGATIVE } else { 0 };
            self.bytes.extend_from_slice(&(biased | sign).to_le_bytes());
        }
    }
}

/// Reads type bits.
#[derive(Clone)]
pub(super) struct TypeBitsReader<'a> {
    rest: &'a [u8],
    /// The next entry, and the number of values before it.
    next: Option<(u32, Kind)>,
}

impl<'a> TypeBitsReader<'a> {
    /// Starts reading; `None` when the bytes are malformed.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = TypeBitsReader { rest: bytes, next: None };
        reader.advance()?;
        Some(reader)
    }

    /// The entry of the next string or number; `Some(None)` when it has its usual type.
    pub(super) fn read(&mut self) -> Option<Option<Kind>> {
        match self.next {
            None => Some(None),
            Some((0, kind)) => {
                self.advance()?;
                Some(Some(kind))
            }
            Some((skipped, kind)) => {
                self.next = Some((skipped - 1, kind));
                Some(None)
            }
        }
    }

    fn advance(&mut self) -> Option<()> {
        self.next = None;
        let Some((head, rest)) = self.rest.split_first() else { return Some(()) };
        self.rest = rest;
        let skipped = match head >> KIND_BITS {
            SKIPPED_MAX => u32::from_le_bytes(self.take()?),
            skipped => u32::from(skipped),
        };
        let kind = match head & !(u8::MAX << KIND_BITS) {
            LONG => Kind::Long,
            DOUBLE => Kind::Double,
            NEGATIVE_ZERO => Kind::NegativeZero,
            SYMBOL => Kind::Symbol,
            DECIMAL => {
                let bits = u16::from_le_bytes(self.take()?);
                let exponent = i32::from(bits & !DECIMAL_NEGATIVE) + EXPONENT_MIN;
                if exponent > EXPONENT_MAX {
                    return None;
                }
                Kind::Decimal { exponent, negative: bits & DECIMAL_NEGATIVE != 0 }
            }
            _ => return None,
        };
        self.next = Some((skipped, kind));
        Some(())
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }
}

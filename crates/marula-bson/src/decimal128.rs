//! IEEE 754-2008 decimal128 in the BID encoding that BSON uses.

/// A decimal128 number by its sixteen bytes, little-endian, as BSON stores them.
///
/// `PartialEq` is identity of encoding: 1.0 is not 1.00 and a NaN is itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Decimal128([u8; 16]);

impl Decimal128 {
    /// The number with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Decimal128(bytes)
    }

    /// The sixteen bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The integer that the number is exactly, if it is one in the range of i64.
    pub fn to_exact_i64(self) -> Option<i64> {
        todo!()
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        todo!()
    }

    /// Whether the number is zero, of either sign and any exponent.
    pub fn is_zero(self) -> bool {
        todo!()
    }
}

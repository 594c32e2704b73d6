//! The order and equality of BSON values, as used by sorts, comparisons, groups and indexes.
//!
//! Values are ordered by [`canonical_class`] first; within a class, numbers of the four types by
//! their exact value (NaN lowest, −0 equal to 0), strings and symbols by bytes or collator,
//! documents field by field, arrays element by element, binary data by length, subtype, bytes.
//! [`hash`] agrees with [`equal`]; [`key_string`](crate::key_string) has the same order in bytes.

use std::cmp::Ordering;
use std::hash::Hasher;

use crate::value::{LONG_END, exact_i64_of_double, string_content};
use crate::{Binary, Decimal128, Doc, RawValue, Type, Value};

/// Compares strings by the rules of a language. ICU implements it outside this crate.
pub trait Collator: Send + Sync {
    /// Compares two strings.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Appends a key to `out`; the byte order of keys is the order of the strings.
    fn sort_key(&self, text: &[u8], out: &mut Vec<u8>);
}

/// The maximum depth of comparison; validation rejects deeper documents, so this only bounds
/// malformed bytes.
const DEPTH_MAX: u32 = 256;

/// The rank of a type: values of a lower class come first, whatever they are.
///
/// Source: manual "Comparison/Sort Order"; the order of undefined and null, of date and timestamp
/// and of the JavaScript types as mongod 6.0 sorts them.
#[inline]
pub const fn canonical_class(kind: Type) -> u8 {
    match kind {
        Type::MinKey => 0,
        Type::Undefined => 1,
        Type::Null => 2,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => 3,
        Type::String | Type::Symbol => 4,
        Type::Document => 5,
        Type::Array => 6,
        Type::Binary => 7,
        Type::ObjectId => 8,
        Type::Boolean => 9,
        Type::DateTime => 10,
        Type::Timestamp => 11,
        Type::Regex => 12,
        Type::DbPointer => 13,
        Type::Code => 14,
        Type::CodeWithScope => 15,
        Type::MaxKey => 16,
    }
}

/// Compares two values of any types.
#[inline]
pub fn compare(a: Value<'_>, b: Value<'_>, collator: Option<&dyn Collator>) -> Ordering {
    compare_at(a, b, collator, 0)
}

/// Compares two documents field by field: type class, then name, then value; a prefix comes first.
pub fn compare_docs(a: Doc<'_>, b: Doc<'_>, collator: Option<&dyn Collator>) -> Ordering {
    compare_docs_at(a, b, collator, 0)
}

/// Compares two arrays element by element; a prefix comes first.
pub fn compare_arrays(a: Doc<'_>, b: Doc<'_>, collator: Option<&dyn Collator>) -> Ordering {
    compare_arrays_at(a, b, collator, 0)
}

/// Returns whether `compare` finds two values equal.
#[inline]
pub fn equal(a: Value<'_>, b: Value<'_>, collator: Option<&dyn Collator>) -> bool {
    match (a, b) {
        // Strings of different lengths are not read.
        (Value::String(a), Value::String(b)) if collator.is_none() => a == b,
        _ => compare_at(a, b, collator, 0).is_eq(),
    }
}

/// Returns whether `compare` finds a raw value equal to another. It is decoded only if its type
/// does not decide.
#[inline]
pub fn equal_raw(a: RawValue<'_>, b: &Value<'_>, collator: Option<&dyn Collator>) -> bool {
    match (a.kind(), b) {
        (Type::Int32, Value::Int32(b)) => a.bytes() == b.to_le_bytes(),
        (Type::Int64, Value::Int64(b)) => a.bytes() == b.to_le_bytes(),
        (Type::DateTime, Value::DateTime(b)) => a.bytes() == b.to_le_bytes(),
        (Type::ObjectId, Value::ObjectId(b)) => a.bytes() == b.bytes().as_slice(),
        (Type::String, Value::String(b)) if collator.is_none() => {
            string_content(a.bytes()).is_some_and(|a| a == *b)
        }
        (kind, b) => {
            canonical_class(kind) == canonical_class(b.kind()) && equal(a.get(), *b, collator)
        }
    }
}

/// Compares two raw values. Without a collator, equal bytes of one type need no decoding.
pub fn compare_raw(a: RawValue<'_>, b: RawValue<'_>, collator: Option<&dyn Collator>) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    compare(a.get(), b.get(), collator)
}

fn compare_at(a: Value<'_>, b: Value<'_>, collator: Option<&dyn Collator>, depth: u32) -> Ordering {
    use Value::*;
    match (a, b) {
        (Int32(a), Int32(b)) => a.cmp(&b),
        (Int64(a), Int64(b)) => a.cmp(&b),
        (Double(a), Double(b)) => compare_doubles(a, b),
        (ObjectId(a), ObjectId(b)) => a.cmp(&b),
        (DateTime(a), DateTime(b)) => a.cmp(&b),
        (Timestamp(a), Timestamp(b)) => a.cmp(&b),
        (Boolean(a), Boolean(b)) => a.cmp(&b),
        (String(a) | Symbol(a), String(b) | Symbol(b)) => match collator {
            Some(collator) => collator.compare(a, b),
            None => a.cmp(b),
        },
        (Document(a), Document(b)) => compare_docs_at(a, b, collator, depth),
        (Array(a), Array(b)) => compare_arrays_at(a, b, collator, depth),
        (Binary(a), Binary(b)) => compare_binaries(a, b),
        (Regex { pattern: a, options: a_options }, Regex { pattern: b, options: b_options }) => {
            a.cmp(b).then_with(|| a_options.cmp(b_options))
        }
        // The length comes first in the bytes of the value, so it is compared first.
        (DbPointer { ns: a, id: a_id }, DbPointer { ns: b, id: b_id }) => {
            a.len().cmp(&b.len()).then_with(|| a.cmp(b)).then_with(|| a_id.cmp(&b_id))
        }
        (Code(a), Code(b)) => a.cmp(b),
        // A scope is code, not data in a language: it is compared without the collator.
        (CodeWithScope { code: a, scope: a_scope }, CodeWithScope { code: b, scope: b_scope }) => {
            a.cmp(b).then_with(|| compare_docs_at(a_scope, b_scope, None, depth))
        }
        _ => {
            let classes = canonical_class(a.kind()).cmp(&canonical_class(b.kind()));
            classes.then_with(|| compare_numbers(a, b))
        }
    }
}

/// Compares numbers of different types; other values that get here are equal by their class alone.
fn compare_numbers(a: Value<'_>, b: Value<'_>) -> Ordering {
    use Value::*;
    match (a, b) {
        (Int32(a), Int64(b)) => i64::from(a).cmp(&b),
        (Int64(a), Int32(b)) => a.cmp(&i64::from(b)),
        (Int32(a), Double(b)) => compare_doubles(f64::from(a), b),
        (Double(a), Int32(b)) => compare_doubles(a, f64::from(b)),
        (Int64(a), Double(b)) => compare_i64_f64(a, b),
        (Double(a), Int64(b)) => compare_i64_f64(b, a).reverse(),
        (Decimal128(a), Decimal128(b)) => a.compare(b),
        (Decimal128(a), Double(b)) => a.compare_f64(b),
        (Double(a), Decimal128(b)) => b.compare_f64(a).reverse(),
        (Decimal128(a), Int64(b)) => a.compare_i64(b),
        (Int64(a), Decimal128(b)) => b.compare_i64(a).reverse(),
        (Decimal128(a), Int32(b)) => a.compare_i64(i64::from(b)),
        (Int32(a), Decimal128(b)) => b.compare_i64(i64::from(a)).reverse(),
        _ => Ordering::Equal,
    }
}

/// Compares doubles: NaN equals NaN and is below all others.
#[inline]
pub fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Compares an integer with the exact value of a double.
pub fn compare_i64_f64(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b < -LONG_END {
        return Ordering::Greater;
    }
    if b >= LONG_END {
        return Ordering::Less;
    }
    // The integer part is within i64; the fraction decides only between equal integer parts.
    #[allow(clippy::cast_possible_truncation)]
    let integer = b.trunc() as i64;
    a.cmp(&integer).then_with(|| compare_doubles(0.0, b.fract()))
}

fn compare_binaries(a: Binary<'_>, b: Binary<'_>) -> Ordering {
    a.bytes
        .len()
        .cmp(&b.bytes.len())
        .then_with(|| a.subtype.cmp(&b.subtype))
        .then_with(|| a.bytes.cmp(b.bytes))
}

fn compare_docs_at(
    a: Doc<'_>,
    b: Doc<'_>,
    collator: Option<&dyn Collator>,
    depth: u32,
) -> Ordering {
    if depth >= DEPTH_MAX || a == b {
        return Ordering::Equal;
    }
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let ordering = canonical_class(a.value.kind())
            .cmp(&canonical_class(b.value.kind()))
            .then_with(|| a.name.cmp(b.name))
            .then_with(|| compare_elements(a.value, b.value, collator, depth));
        if ordering.is_ne() {
            return ordering;
        }
    }
}

fn compare_arrays_at(
    a: Doc<'_>,
    b: Doc<'_>,
    collator: Option<&dyn Collator>,
    depth: u32,
) -> Ordering {
    if depth >= DEPTH_MAX || a == b {
        return Ordering::Equal;
    }
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let ordering = compare_elements(a.value, b.value, collator, depth);
        if ordering.is_ne() {
            return ordering;
        }
    }
}

fn compare_elements(
    a: RawValue<'_>,
    b: RawValue<'_>,
    collator: Option<&dyn Collator>,
    depth: u32,
) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    compare_at(a.get(), b.get(), collator, depth + 1)
}

/// Feeds a value to a hasher so that [`equal`] values give equal hashes.
pub fn hash(value: Value<'_>, collator: Option<&dyn Collator>, hasher: &mut impl Hasher) {
    hash_at(value, collator, hasher, 0);
}

fn hash_at(
    value: Value<'_>,
    collator: Option<&dyn Collator>,
    hasher: &mut impl Hasher,
    depth: u32,
) {
    hasher.write_u8(canonical_class(value.kind()));
    match value {
        Value::MinKey | Value::Undefined | Value::Null | Value::MaxKey => {}
        Value::Int32(number) => hasher.write_i64(i64::from(number)),
        Value::Int64(number) => hasher.write_i64(number),
        Value::Double(number) => hash_double(number, hasher),
        Value::Decimal128(number) => hash_decimal(number, hasher),
        Value::String(text) | Value::Symbol(text) => match collator {
            None => hash_bytes(text, hasher),
            Some(collator) => {
                let mut key = Vec::new();
                collator.sort_key(text, &mut key);
                hash_bytes(&key, hasher);
            }
        },
        Value::Document(doc) => hash_doc(doc, collator, hasher, depth),
        Value::Array(array) => {
            if depth < DEPTH_MAX {
                array.values().for_each(|value| hash_at(value, collator, hasher, depth + 1));
            }
            hasher.write_u8(u8::MAX);
        }
        Value::Binary(Binary { subtype, bytes }) => {
            hasher.write_u8(subtype);
            hash_bytes(bytes, hasher);
        }
        Value::ObjectId(id) => hasher.write(&id.bytes()),
        Value::Boolean(flag) => hasher.write_u8(u8::from(flag)),
        Value::DateTime(ms) => hasher.write_i64(ms),
        Value::Timestamp(bits) => hasher.write_u64(bits),
        Value::Regex { pattern, options } => {
            hash_bytes(pattern, hasher);
            hash_bytes(options, hasher);
        }
        Value::DbPointer { ns, id } => {
            hash_bytes(ns, hasher);
            hasher.write(&id.bytes());
        }
        Value::Code(code) => hash_bytes(code, hasher),
        Value::CodeWithScope { code, scope } => {
            hash_bytes(code, hasher);
            hash_doc(scope, None, hasher, depth);
        }
    }
}

fn hash_doc(doc: Doc<'_>, collator: Option<&dyn Collator>, hasher: &mut impl Hasher, depth: u32) {
    if depth < DEPTH_MAX {
        for element in doc {
            hash_bytes(element.name, hasher);
            hash_at(element.value.get(), collator, hasher, depth + 1);
        }
    }
    hasher.write_u8(u8::MAX);
}

/// The length separates consecutive byte strings.
fn hash_bytes(bytes: &[u8], hasher: &mut impl Hasher) {
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
}

/// A double that is an integer hashes like the integer; any other by its bits, with one NaN.
fn hash_double(number: f64, hasher: &mut impl Hasher) {
    match exact_i64_of_double(number) {
        Some(integer) => hasher.write_i64(integer),
        None if number.is_nan() => hasher.write_u64(f64::NAN.to_bits()),
        None => hasher.write_u64(number.to_bits()),
    }
}

/// A decimal hashes like the nearest double, so equal numbers have the same hash.
fn hash_decimal(number: Decimal128, hasher: &mut impl Hasher) {
    match number.to_exact_i64() {
        Some(integer) => hasher.write_i64(integer),
        // A decimal outside i64 or with a fraction may round to an integer; it equals no integer,
        // so any bits are correct, and an equal double has these bits.
        None if number.is_nan() => hasher.write_u64(f64::NAN.to_bits()),
        None => hasher.write_u64(number.to_f64().to_bits()),
    }
}

#[cfg(test)]
mod tests;

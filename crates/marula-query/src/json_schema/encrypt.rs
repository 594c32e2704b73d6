//! `encrypt` and `encryptMetadata`: fields that a driver encrypts on the client.
//!
//! The server sees binary data of subtype 6, whose first bytes contain the kind of encryption
//! and the type of the value:
//!
//! ```text
//! field     bytes  content
//! kind      1      0 a marking, 1 deterministic, 2 random, …
//! key       16     the UUID of the key
//! type      1      the tag of the value's BSON type
//! data      …      the encrypted value
//! ```

use bstr::{BStr, ByteSlice};
use marula_bson::{Binary, Doc, RawValue, Value};
use marula_error::{Result, errors};

use super::parse::types;
use crate::filter::TypeSet;
use crate::once::unknown_field;

errors! {
    /// The operand of `encrypt` or `encryptMetadata` is not an object.
    not_an_object(keyword: &str) = TypeMismatch, "$jsonSchema keyword '{keyword}' must be an object ";
    /// `encryptMetadata` is empty.
    metadata_empty() = FailedToParse, "$jsonSchema keyword 'encryptMetadata' cannot be an empty object ";
    /// An algorithm does not exist.
    unknown_algorithm(keyword: &str, name: &BStr) = BadValue, "Enumeration value '{name}' for field '{keyword}.algorithm' is not a valid value.";
    /// An algorithm is not a string.
    algorithm_not_a_string(keyword: &str, kind: &str) = TypeMismatch, "BSON field '{keyword}.algorithm' is the wrong type '{kind}', expected type 'string'";
    /// A key is neither a pointer nor an array of identifiers.
    key_bad_type(kind: &str) = 51085, "Expected either string or array of UUID for EncryptSchemaKeyId, found {kind}";
    /// A key identifier is not binary data.
    key_not_binary(kind: &str) = 51088, "Encryption schema 'keyId' array elements must have type BinData, found {kind}";
    /// A key identifier is not a UUID.
    key_not_uuid(subtype: u8) = 51084, "Encryption schema 'keyId' array elements must have BinData type UUID, found {subtype}";
    /// A key identifier has the wrong length.
    key_bad_length() = InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype";
}

const ALGORITHMS: [&str; 2] =
    ["AEAD_AES_256_CBC_HMAC_SHA_512-Deterministic", "AEAD_AES_256_CBC_HMAC_SHA_512-Random"];

/// The subtype of encrypted binary data.
const SUBTYPE: u8 = 6;

/// The position of the value's type in encrypted data.
const TYPE_AT: usize = 17;

/// The operand of `encrypt`: the value must be encrypted, and of a certain type if one is named.
#[derive(Debug)]
pub(crate) struct Encryption {
    types: Option<TypeSet>,
}

impl Encryption {
    /// Parses the operand of `encrypt`.
    pub(super) fn parse(operand: RawValue<'_>) -> Result<Encryption> {
        let doc = check("encrypt", operand)?;
        let named = doc.get_raw(b"bsonType");
        Ok(Encryption { types: named.map(|named| types("bsonType", named, false)).transpose()? })
    }

    /// Returns whether the value is encrypted and of the right type.
    pub(crate) fn holds(&self, value: RawValue<'_>) -> bool {
        self.failure(value).is_none()
    }

    /// Why the value does not satisfy the rule, in mongod's words.
    pub(crate) fn failure(&self, value: RawValue<'_>) -> Option<&'static str> {
        let Value::Binary(Binary { subtype: SUBTYPE, bytes }) = value.get() else {
            return Some("value was not encrypted");
        };
        let types = self.types?;
        let kind = bytes.get(TYPE_AT).and_then(|&tag| marula_bson::Type::from_tag(tag));
        match kind {
            Some(kind) if types.contains(kind) => None,
            _ => Some("encrypted value has wrong type"),
        }
    }
}

/// Checks the operand of `encryptMetadata`, which does not restrict documents.
pub(super) fn check_metadata(operand: RawValue<'_>) -> Result<()> {
    let doc = check("encryptMetadata", operand)?;
    if doc.is_empty() { Err(metadata_empty()) } else { Ok(()) }
}

fn check<'a>(keyword: &str, operand: RawValue<'a>) -> Result<Doc<'a>> {
    let doc = operand.get().as_doc().ok_or_else(|| not_an_object(keyword))?;
    for element in doc {
        let value = element.value.get();
        match element.name.as_bytes() {
            b"algorithm" => match value {
                Value::String(name) if ALGORITHMS.iter().any(|known| name == known) => {}
                Value::String(name) => return Err(unknown_algorithm(keyword, name)),
                _ => return Err(algorithm_not_a_string(keyword, value.kind().alias())),
            },
            b"keyId" => check_key(value)?,
            b"bsonType" if keyword == "encrypt" => {}
            _ => return Err(unknown_field(keyword, element.name)),
        }
    }
    Ok(doc)
}

fn check_key(key: Value<'_>) -> Result<()> {
    let identifiers = match key {
        Value::String(_) => return Ok(()),
        Value::Array(identifiers) => identifiers,
        _ => return Err(key_bad_type(key.kind().alias())),
    };
    for identifier in identifiers.values() {
        match identifier {
            Value::Binary(Binary { subtype: 4, bytes }) if bytes.len() == 16 => {}
            Value::Binary(Binary { subtype: 4, .. }) => return Err(key_bad_length()),
            Value::Binary(Binary { subtype, .. }) => return Err(key_not_uuid(subtype)),
            _ => return Err(key_not_binary(identifier.kind().alias())),
        }
    }
    Ok(())
}

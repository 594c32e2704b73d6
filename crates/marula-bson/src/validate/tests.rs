use proptest::prelude::*;

use super::*;
use crate::{DocBuf, ObjectId, doc, generated};

/// Wraps elements into a document.
fn wrap(elements: &[u8]) -> Vec<u8> {
    let mut bytes = i32::try_from(elements.len() + 5).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(elements);
    bytes.push(0);
    bytes
}

fn element(tag: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[tag], name.as_bytes(), &[0], value].concat()
}

fn message(bytes: &[u8]) -> String {
    match validate(bytes, Limits::MESSAGE) {
        Ok(doc) => format!("ok {}", doc.as_bytes().len()),
        Err(malformed) => malformed.to_string(),
    }
}

fn check(tag: u8, value: &[u8], expected: &str) {
    let expected = format!("{expected} in element with field name 'a' in object with unknown _id");
    assert_eq!(message(&wrap(&element(tag, "a", value))), expected, "{tag} {value:?}");
}

#[test]
fn broken_values_are_answered_as_mongod_does() {
    let past_end = "BSON size is larger than buffer size";
    let not_terminated = "Not null terminated string";
    check(0x14, &[0; 4], "Unrecognized BSON type 20");
    check(0x80, &[0; 4], "Unrecognized BSON type 128");
    check(8, &[2], "BSON bool is neither false nor true");
    check(2, &[0, 0, 0, 0], not_terminated);
    check(2, &[0, 0, 0, 0, 0], not_terminated);
    check(2, &[0xFF; 4], past_end);
    check(2, b"\x02\0\0\0xy", not_terminated);
    check(2, b"\xC8\0\0\0x\0", past_end);
    check(5, &[0xFF, 0xFF, 0xFF, 0xFF, 0], past_end);
    check(5, &[0xFF, 0xFF, 0xFF, 0x7F, 0], past_end);
    check(5, &[100, 0, 0, 0, 0], past_end);
    check(11, b"abc\0", past_end);
    check(12, b"\x02\0\0\0x\x00123", past_end);
    check(16, &[1, 2], past_end);
}

#[test]
fn broken_frames_are_answered_as_mongod_does() {
    let place =
        |name: &str| format!(" in element with field name '{name}' in object with unknown _id");
    let check = |bytes: &[u8], fault: &str, name: &str| {
        assert_eq!(message(bytes), format!("{fault}{}", place(name)), "{bytes:?}");
    };
    check(&[], "BSON data has to be at least 5 bytes", "?");
    check(&[4, 0, 0, 0], "BSON data has to be at least 5 bytes", "?");
    check(&[0xFF, 0xFF, 0xFF, 0xFF, 0], "BSON data has to be at least 5 bytes", "?");
    check(&[0xF4, 1, 0, 0, 0], "Incorrect BSON length", "?");
    check(&[5, 0, 0, 0, 1], "BSON object not terminated with EOO", "?");
    check(&wrap(&[0, 0, 0]), "incorrect BSON length", "?");
    let nested = |value: &[u8]| wrap(&element(3, "a", value));
    check(&nested(&[4, 0, 0, 0]), "Nested BSON object has to be at least 5 bytes", ".a");
    check(&nested(&[5, 0, 0, 0, 1]), "BSON size is larger than buffer size", "a.");
    check(&nested(&[50, 0, 0, 0, 0]), "incorrect BSON length", "a.a");
    check(&nested(b"\x06\0\0\0\x10a\0\x01\0\0\0\0"), "incorrect BSON length", "a.a");
    check(&wrap(b"\x10aaaa"), "BSON size is larger than buffer size", "aaaa");
    let deep = wrap(&element(3, "b", &wrap(&element(3, "a", &[4, 0, 0, 0]))));
    check(&deep, "Nested BSON object has to be at least 5 bytes", "b..a");
    let scoped = wrap(&element(15, "o", &cws(&wrap(&element(2, "a", b"\x02\0\0\0xy")))));
    check(&scoped, "Not null terminated string", "o..a");
    assert!(
        message(&wrap(&element(15, "a", &[5, 0, 0, 0, 2, 0, 0, 0, b'a', 0, 5, 0, 0, 0, 0])))
            .starts_with("incorrect BSON length")
    );
    assert_eq!(message(&[5, 0, 0, 0, 0, b'z']), "ok 5");
}

fn cws(scope: &[u8]) -> Vec<u8> {
    let length = i32::try_from(4 + 6 + scope.len()).unwrap().to_le_bytes();
    [&length, &b"\x02\0\0\0a\0"[..], scope].concat()
}

#[test]
fn the_id_is_told_when_it_was_read() {
    let broken = element(2, "a", b"\x02\0\0\0xy");
    let check = |doc: DocBuf, expected: &str| {
        let fields = doc.as_doc().elements_bytes();
        let text = message(&wrap(&[fields, &broken].concat()));
        let expected = format!("'a' in object with {expected}");
        assert!(text.ends_with(&expected), "{text}");
    };
    check(doc! { "_id": 5 }, "_id: 5");
    check(doc! { "z": 1, "_id": "x\"" }, "_id: \\\"x\\\"\\\"");
    check(
        doc! { "_id": ObjectId::from_bytes([1; 12]) },
        "_id: ObjectId('010101010101010101010101')",
    );
    check(doc! { "_id": { "q": 1 } }, "unknown _id");
    check(doc! { "o": { "_id": 1 } }, "unknown _id");
    let after = [&broken[..], &element(16, "_id", &[5, 0, 0, 0])].concat();
    assert!(message(&wrap(&after)).ends_with("unknown _id"));
    let nested =
        [&element(16, "_id", &[5, 0, 0, 0])[..], &element(3, "o", &wrap(&broken))].concat();
    assert!(message(&wrap(&nested)).ends_with("'o.a' in object with _id: 5"));
}

#[test]
fn nesting_is_limited() {
    let nested = |levels: usize, tag: u8, scoped: bool| {
        let mut bytes = wrap(&[]);
        for _ in 0..levels {
            let value = if scoped { cws(&bytes) } else { bytes };
            bytes = wrap(&element(tag, "a", &value));
        }
        bytes
    };
    let too_deep = |bytes: &[u8]| {
        let malformed = *validate(bytes, Limits::MESSAGE).unwrap_err();
        assert_eq!((malformed.fault, malformed.code()), (Fault::TooDeep, 15));
        malformed.to_string()
    };
    for tag in [3, 4] {
        assert!(validate(&nested(200, tag, false), Limits::MESSAGE).is_ok());
        assert_eq!(too_deep(&nested(201, tag, false)).matches("a.").count(), 200);
    }
    assert!(validate(&nested(100, 15, true), Limits::MESSAGE).is_ok());
    assert_eq!(too_deep(&nested(101, 15, true)).matches("a..").count(), 100);
    too_deep(&nested(10_000, 3, false));
}

#[test]
fn size_is_limited() {
    let limits = Limits { bytes_max: 100, depth_max: 200 };
    let sized = |size: usize| {
        let bytes = wrap(&element(
            5,
            "",
            &[&u32::try_from(size - 12).unwrap().to_le_bytes()[..], &vec![0; size - 11]].concat(),
        ));
        assert_eq!(bytes.len(), size);
        validate(&bytes, limits).map(|_| ()).map_err(|malformed| malformed.code())
    };
    assert_eq!(sized(100), Ok(()));
    assert_eq!(sized(101), Err(10334));
}

#[test]
fn what_mongod_stores_is_accepted() {
    for elements in [
        element(2, "a", b"\x03\0\0\0\xFF\xFE\0"),
        b"\x0A\xFF\0".to_vec(),
        element(2, "a", b"\x04\0\0\0a\0b\0"),
        element(5, "a", b"\x02\0\0\0\x02zz"),
        element(5, "a", b"\0\0\0\0\xFF"),
        element(4, "a", &wrap(&[element(10, "x", &[]), element(10, "x", &[])].concat())),
        element(11, "a", b"\0\0"),
    ] {
        assert!(message(&wrap(&elements)).starts_with("ok"), "{elements:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn written_documents_are_valid(value in generated::value()) {
        let doc = doc! { "a": &value };
        let valid = validate(&doc, Limits::MESSAGE).unwrap();
        prop_assert_eq!(valid.as_bytes(), &doc[..]);
    }

    #[test]
    fn damaged_documents_are_read_without_a_panic(value in generated::value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = doc! { "a": &value }.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        match validate(&bytes, Limits::MESSAGE) {
            Ok(doc) => {
                let _ = (doc.to_string(), crate::order::compare_docs(doc, doc, None));
            }
            Err(malformed) => prop_assert!(!malformed.to_string().is_empty()),
        }
        let doc = Doc::trusted(&bytes);
        let _ = (doc.to_string(), crate::order::compare_docs(doc, Doc::EMPTY, None));
    }
}

//! Any bytes as documents: checked, walked, shown and read back.
//!
//! Bytes that are not valid are used too: the views must end early on them, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marula_bson::ext_json::{self, Mode};
use marula_bson::validate::{Limits, validate};
use marula_bson::{Doc, FieldPath, Value, order};

fuzz_target!(|bytes: &[u8]| {
    look_at(Doc::trusted(bytes));
    match validate(bytes, Limits::MESSAGE) {
        Err(malformed) => drop(malformed.to_string()),
        Ok(doc) => {
            // Extended JSON keeps every value.
            let text = ext_json::to_string(doc, Mode::Canonical);
            if let Ok(read) = ext_json::parse_value(&text) {
                let shown = ext_json::value_to_string(read.get(), Mode::Canonical);
                let again = ext_json::parse_value(&shown).expect("own text is read");
                assert_eq!(ext_json::value_to_string(again.get(), Mode::Canonical), shown);
            }
            assert!(order::equal(Value::Document(doc), Value::Document(doc), None));
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(value) = ext_json::parse_value(text)
    {
        let _ = ext_json::value_to_string(value.get(), Mode::Relaxed);
    }
});

fn look_at(doc: Doc<'_>) {
    let _ = (doc.to_string(), format!("{doc:?}"));
    let _ = (ext_json::to_string(doc, Mode::Canonical), order::compare_docs(doc, Doc::EMPTY, None));
    for path in ["a", "a.b", "a.0", "a.0.b", "a.", "0.0.0"] {
        let path = FieldPath::new(path);
        let _ = path.any_value(doc, |value| value.is_none());
        let _ = path.keys(doc, |_| {});
    }
}

//! Strings that are not UTF-8, with the results of mongod 6.0.
//!
//! Drivers can store such strings. mongod takes the length of a character from its first byte.

use marula_bson::{BStr, Value};
use marula_error::Result;

use super::super::{Arena, Expression, Frame, Scope};
use crate::context::Context;

/// Calls an operator with the text `$text` and other arguments in extended JSON.
fn call(operator: &str, text: &[u8], others: &str) -> Result<i64> {
    let context = Context::default();
    let spec = format!(r#"{{ "e": {{ "{operator}": ["$text"{others}] }} }}"#);
    let spec = marula_bson::ext_json::parse(&spec).expect("it is JSON");
    let spec = spec.as_doc().get("e").expect("it is there");
    let doc = marula_bson::doc! { "text": (Value::String(BStr::new(text))) };
    let expression = Expression::parse(spec, &mut Scope::new(&context))?;
    let arena = Arena::new();
    let value = expression.eval(&Frame::new(doc.as_doc(), &arena, &context))?;
    Ok(match value.expect("there is a result") {
        // A part of the text is compared by its length.
        Value::String(part) => i64::try_from(part.len()).expect("it is short"),
        value => value.as_exact_i64().expect("it is a number"),
    })
}

fn check(operator: &str, text: &[u8], others: &str, expected: std::result::Result<i64, u32>) {
    let found = call(operator, text, others).map_err(|error| error.code().number());
    let found = found.map_err(|code| u32::try_from(code).expect("it is positive"));
    assert_eq!(found, expected, "{operator} of {text:x?}{others}");
}

#[test]
fn a_length_counts_the_bytes_that_begin_a_character() {
    check("$strLenCP", b"\xED\xA0\xBD\xED\xA0\xBD", "", Ok(2));
    check("$strLenCP", b"\x80\x80\x80a\xC3a", "", Ok(3));
    check("$strLenCP", b"\x80\x80", "", Ok(0));
    check("$strLenCP", b"\xE2a\xFF", "", Ok(3));
}

#[test]
fn a_part_begins_and_ends_where_characters_do_by_their_first_bytes() {
    check("$substrCP", b"a\xED\xA0\xBD", ", 1, 4", Ok(3));
    check("$substrCP", b"a\xF5ba\xC3a\xC3", ", 1, 3", Ok(6));
    check("$substrCP", b"\xC0\x80", ", 11, 2", Ok(0));
    check("$substrCP", b"\xC3", ", 9, 3", Ok(0));
    check("$substrCP", b"\xC0\x80\x80\x80", ", 4, 3", Err(34_456));
    check("$substrCP", b"\xFF\x80", ", 1, 2", Err(34_457));
    check("$substrCP", b"\x80a", ", 0, 1", Err(34_458));
    check("$substrCP", b"a\xFC", ", 1, 2", Err(34_459));
    check("$substrCP", b"a\xFC", ", 1, 0", Ok(0));
}

#[test]
fn a_search_checks_where_characters_begin() {
    check("$indexOfCP", b"\xC3\xFCb", r#", "b""#, Ok(1));
    check("$indexOfCP", b"\xFC", r#", """#, Ok(0));
    check("$indexOfCP", b"ab\x80", r#", "a""#, Err(40_095));
    check("$indexOfCP", b"ab\x80", r#", "a", 2147483647"#, Err(40_095));
    // The start is checked before the text, and the end after it.
    check("$indexOfCP", b"ab\x80", r#", "a", 1.5"#, Err(40_096));
    check("$indexOfCP", b"ab\x80", r#", "a", 1, 1.5"#, Err(40_095));
}

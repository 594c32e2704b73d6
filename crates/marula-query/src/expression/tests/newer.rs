//! Expressions introduced in 7.0 and 8.0: available in their version, unknown in an older one.

use marula_bson::{Binary, DocBuf, Value, doc};

use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Scope};
use crate::feature_version::FeatureVersion::{self, V6_0, V7_0, V8_0};

/// The result of the expression in `e`: its text, or the code and the message of its error.
fn answer(version: FeatureVersion, case: &DocBuf) -> String {
    let uuid = [0x0e, 0x3b, 0x90, 0x63, 0x8a, 0xbd, 0x4e, 0xb3, 0x9f, 0x9f, 1, 2, 3, 4, 5, 6];
    let document = doc! {
        "i": 12, "j": 10, "l": 10_i64, "d": 1.5, "s": "text", "n": null,
        "a": [4, 1, 3, 2], "mixed": [1, "x", null, 2.5],
        "bytes": Value::Binary(Binary { subtype: 0, bytes: b"hi \xC3\xA9" }),
        "wild": Value::Binary(Binary { subtype: 0, bytes: &[0xFB, 0xFF] }),
        "old": Value::Binary(Binary { subtype: 2, bytes: b"\x02\0\0\0hi" }),
        "uuid": Value::Binary(Binary { subtype: 4, bytes: &uuid }),
        "when": Value::DateTime(1_709_164_800_000),
    };
    let context = Context { version, ..Context::default() };
    let arena = Arena::new();
    let spec = case.as_doc().get("e").expect("a case has an expression");
    let parsed = Expression::parse(spec, &mut Scope::new(&context)).and_then(|mut expression| {
        expression.optimize(&context)?;
        Ok(expression)
    });
    let found = match &parsed {
        Ok(expression) => expression.eval(&Frame::new(document.as_doc(), &arena, &context)),
        Err(error) => Err(error.clone()),
    };
    match found {
        Ok(Some(value)) => format!("{} {value}", value.kind().alias()),
        Ok(None) => "missing".to_owned(),
        Err(error) => format!("{} {}", error.code().number(), error.message()),
    }
}

fn check(case: DocBuf, expected: &str) {
    assert_eq!(answer(V8_0, &case), expected, "{case:?}");
}

#[test]
fn each_is_there_since_its_version() {
    for (name, since) in [
        ("$bitAnd", V7_0),
        ("$bitNot", V7_0),
        ("$bitOr", V7_0),
        ("$bitXor", V7_0),
        ("$median", V7_0),
        ("$percentile", V7_0),
        ("$toUUID", V8_0),
    ] {
        let mut operator = DocBuf::new();
        operator.push(name, Value::Null);
        let case = doc! { "e": &operator };
        for version in FeatureVersion::ALL {
            let is_unknown =
                answer(version, &case) == format!("168 Unrecognized expression '{name}'");
            assert_eq!(is_unknown, version < since, "{name} under {version:?}");
        }
    }
}

#[test]
fn bits_are_joined() {
    check(doc! { "e": { "$bitAnd": ["$i", "$j"] } }, "int 8");
    check(doc! { "e": { "$bitAnd": ["$i", "$l"] } }, "long 8");
    check(doc! { "e": { "$bitOr": ["$i", "$j", 1] } }, "int 15");
    check(doc! { "e": { "$bitXor": ["$i", "$j"] } }, "int 6");
    check(doc! { "e": { "$bitOr": [-1, "$l"] } }, "long -1");
    check(doc! { "e": { "$bitAnd": [] } }, "int -1");
    check(doc! { "e": { "$bitOr": [] } }, "int 0");
    check(doc! { "e": { "$bitXor": [] } }, "int 0");
    check(doc! { "e": { "$bitAnd": "$i" } }, "int 12");
    check(doc! { "e": { "$bitAnd": ["$i", "$n"] } }, "null null");
    check(doc! { "e": { "$bitOr": ["$i", "$gone"] } }, "null null");
    check(doc! { "e": { "$bitNot": "$i" } }, "int -13");
    check(doc! { "e": { "$bitNot": ["$l"] } }, "long -11");
    check(doc! { "e": { "$bitNot": "$n" } }, "null null");
    check(
        doc! { "e": { "$bitAnd": ["$i", "$d"] } },
        "14 $bitAnd takes values of the types int and long alone",
    );
    check(
        doc! { "e": { "$bitOr": "$s" } },
        "14 $bitOr takes values of the types int and long alone",
    );
    check(
        doc! { "e": { "$bitNot": "$d" } },
        "14 $bitNot takes a value of the type int or long, not double",
    );
    check(
        doc! { "e": { "$bitNot": "$s" } },
        "28765 $bitNot only supports numeric types, not string",
    );
    check(
        doc! { "e": { "$bitNot": [1, 2] } },
        "16020 Expression $bitNot takes exactly 1 arguments. 2 were passed in.",
    );
}

#[test]
fn percentiles_are_of_the_numbers_of_an_array() {
    let median =
        |input: &str| doc! { "e": { "$median": { "input": input, "method": "approximate" } } };
    check(median("$a"), "double 2.0");
    check(median("$mixed"), "double 1.0");
    check(median("$i"), "double 12.0");
    check(median("$s"), "null null");
    check(median("$gone"), "null null");
    let percentile = |p: DocBuf| {
        let p = p.as_doc().get("p").expect("a p").to_buf();
        doc! { "e": { "$percentile": { "input": "$a", "p": &p, "method": "approximate" } } }
    };
    check(percentile(doc! { "p": [0, 0.26, 0.5, 1.0] }), "array [ 1.0, 2.0, 2.0, 4.0 ]");
    check(percentile(doc! { "p": { "$concatArrays": [[0.5], [1]] } }), "array [ 2.0, 4.0 ]");
    check(
        doc! { "e": { "$percentile": { "input": "$s", "p": [0.1, 0.2], "method": "approximate" } } },
        "array [ null, null ]",
    );
    check(
        percentile(doc! { "p": "$a" }),
        "7750300 'p' of $percentile is an array of constants, not \"$a\"",
    );
    check(
        percentile(doc! { "p": [1.5] }),
        "7750303 'p' of $percentile is made of numbers from 0 to 1, and 1.5 is none",
    );
    check(
        doc! { "e": { "$median": { "input": "$a" } } },
        "40414 BSON field '$median.method' is missing but a required field",
    );
    check(
        doc! { "e": { "$median": { "input": "$a", "method": "exact" } } },
        "2 the 'method' of a percentile is 'approximate'; there is no other",
    );
    check(
        doc! { "e": { "$median": { "input": "$a", "p": [0.5], "method": "approximate" } } },
        "40415 BSON field '$median.p' is an unknown field.",
    );
}

#[test]
fn binary_data_is_converted_since_8_0() {
    let text = |input: &str, format: &str| {
        doc! { "e": { "$convert": { "input": input, "to": "string", "format": format } } }
    };
    check(text("$bytes", "utf8"), "string \"hi é\"");
    check(text("$bytes", "base64"), "string \"aGkgw6k=\"");
    check(text("$bytes", "hex"), "string \"686920c3a9\"");
    check(text("$old", "utf8"), "string \"hi\"");
    check(text("$wild", "base64"), "string \"+/8=\"");
    check(text("$wild", "base64url"), "string \"-_8\"");
    check(text("$uuid", "uuid"), "string \"0e3b9063-8abd-4eb3-9f9f-010203040506\"");
    check(text("$uuid", "auto"), "string \"0e3b9063-8abd-4eb3-9f9f-010203040506\"");
    check(doc! { "e": { "$toString": "$wild" } }, "string \"+/8=\"");
    assert!(answer(V8_0, &text("$wild", "utf8")).starts_with("241 "));
    assert!(answer(V8_0, &text("$bytes", "uuid")).starts_with("241 "));
    assert!(answer(V8_0, &text("$bytes", "utf16")).starts_with("9 "));
    let back = |format: &str, text: &str| {
        doc! { "e": { "$toString": {
            "$convert": { "input": text, "to": "binData", "format": format, "onError": "$s" }
        } } }
    };
    check(back("utf8", "hi é"), "string \"aGkgw6k=\"");
    check(back("hex", "FBff"), "string \"+/8=\"");
    check(back("base64url", "-_8"), "string \"+/8=\"");
    check(back("base64url", "-_8="), "string \"+/8=\"");
    check(back("base64", "+/8="), "string \"+/8=\"");
    for (format, bad) in [("hex", "abc"), ("hex", "zz"), ("base64", "+/8"), ("base64", "?")] {
        check(back(format, bad), "string \"text\"");
    }
    let uuid = "0e3b9063-8abd-4eb3-9f9f-010203040506";
    let shown = format!("binData UUID(\"{uuid}\")");
    check(doc! { "e": { "$toUUID": uuid } }, &shown);
    check(doc! { "e": { "$toUUID": "$uuid" } }, &shown);
    check(doc! { "e": { "$toUUID": "$n" } }, "null null");
    for bad in ["0e3b90638abd4eb39f9f010203040506", "", "0e3b9063-8abd-4eb3-9f9f-01020304050g"] {
        assert!(answer(V8_0, &doc! { "e": { "$toUUID": bad } }).starts_with("241 "), "{bad}");
    }
    assert!(answer(V8_0, &doc! { "e": { "$toUUID": "$i" } }).starts_with("241 Unsupported"));
    check(
        doc! { "e": { "$convert": {
            "input": uuid, "to": { "type": "binData", "subtype": 4 }, "format": "uuid"
        } } },
        &shown,
    );
    check(
        doc! { "e": { "$convert": {
            "input": uuid, "to": { "type": "binData", "subtype": 0 }, "format": "uuid", "onError": 1
        } } },
        "int 1",
    );
    check(
        doc! { "e": { "$convert": { "input": "$s", "to": "binData" } } },
        "9 Format must be specified when converting from 'string' to 'binData' in $convert",
    );
    check(
        doc! { "e": { "$convert": { "input": "$s", "to": "binData", "format": "$n" } } },
        "null null",
    );
    check(
        doc! { "e": { "$convert": { "input": "$i", "to": { "type": "long", "subtype": 12 } } } },
        "9 In $convert, numeric value for 'subtype' does not correspond to a BinData type: 12",
    );
    // An older version has neither the field nor the conversion.
    assert_eq!(
        answer(V7_0, &text("$bytes", "utf8")),
        "9 $convert found an unknown argument: format"
    );
    let plain = doc! { "e": { "$toString": "$bytes" } };
    assert!(answer(V7_0, &plain).starts_with("241 Unsupported conversion from binData to string"));
}

#[test]
fn numbers_are_bytes_in_either_order() {
    let round = |input: &str, to: &str, order: &str| {
        doc! { "e": { "$convert": {
            "input": { "$convert": { "input": input, "to": "binData", "byteOrder": order } },
            "to": to, "byteOrder": order
        } } }
    };
    for order in ["big", "little"] {
        check(round("$i", "int", order), "int 12");
        check(round("$i", "long", order), "long 12");
        check(round("$l", "long", order), "long 10");
        check(round("$d", "double", order), "double 1.5");
        assert!(answer(V8_0, &round("$l", "int", order)).starts_with("241 "));
    }
    let big = doc! { "e": { "$toString": {
        "$convert": { "input": "$i", "to": "binData", "byteOrder": "big" }
    } } };
    check(big, "string \"AAAADA==\"");
    assert!(answer(V8_0, &round("$i", "int", "middle")).starts_with("9 "));
    assert!(answer(V8_0, &round("$when", "long", "big")).starts_with("241 Unsupported"));
}

#[test]
fn months_have_names_since_7_0() {
    let text = doc! { "e": { "$dateToString": { "date": "$when", "format": "%d %b %Y, %B" } } };
    check(text.clone(), "string \"29 Feb 2024, February\"");
    let bad = "18536 Invalid format character '%b' in format string";
    assert_eq!(answer(V6_0, &text), bad);
    for (format, date) in [("%d %b %Y", "29 feb 2024"), ("%B %d, %Y", "February 29, 2024")] {
        let case = doc! { "e": { "$dateFromString": { "dateString": date, "format": format } } };
        check(case.clone(), "date new Date(1709164800000)");
        assert!(answer(V6_0, &case).starts_with("18536 "));
    }
}

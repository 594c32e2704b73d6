//! Results and errors of code, recorded from mongod 6.0 unless stated otherwise.

use std::sync::atomic::{AtomicU32, Ordering};

use marula_bson::{Binary, Decimal128, Doc, DocBuf, ObjectId, Value, ValueBuf, doc};

use super::*;
use crate::context::Check;

struct When<F>(F);

impl<F: Fn() -> Result<()> + Send + Sync + 'static> Check for When<F> {
    fn check(&self) -> Result<()> {
        (self.0)()
    }
}

/// The result of `source` in a `$function`.
fn call(source: &str, args: Doc<'_>, interrupt: Option<&Interrupt>) -> Result<ValueBuf> {
    super::call(source, args, Globals::Own, interrupt)
}

/// An operation with this interrupt check.
fn operation(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Interrupt {
    Interrupt::new(When(check))
}

/// The result of `source` with these arguments, or its error's code and first line.
fn run(source: &str, args: &DocBuf) -> std::result::Result<ValueBuf, (i32, String)> {
    let interrupt = operation(|| Ok(()));
    call(source, args.as_doc(), Some(&interrupt)).map_err(|error| {
        (error.code().number(), error.message().lines().next().unwrap_or_default().to_owned())
    })
}

/// Checks the result of `expression`.
fn check<'v>(expression: &str, want: impl Into<Value<'v>>) {
    let got = run(&format!("function() {{ return {expression} }}"), &DocBuf::new());
    assert_eq!(got, Ok(want.into().to_buf()), "{expression}");
}

/// Checks that `expression` fails.
fn check_error(expression: &str, code: i32, message: &str) {
    let got = run(&format!("function() {{ return {expression} }}"), &DocBuf::new());
    assert_eq!(got, Err((code, message.to_owned())), "{expression}");
}

/// `source` as a `$where` for a document with `i: 5`.
fn truth(source: &str) -> std::result::Result<bool, (i32, String)> {
    let interrupt = operation(|| Ok(()));
    let doc = doc! { "_id": 1, "i": 5, "o": { "x": 1 }, "arr": ["a", 2] };
    let check = check(source);
    return check.and_then(|()| is_true_of(source, doc.as_doc(), Some(&interrupt))).map_err(|e| {
        (e.code().number(), e.message().lines().next().unwrap_or_default().to_owned())
    });

    fn check(source: &str) -> Result<()> {
        super::check(source, None)
    }
}

#[test]
fn source_is_a_function_an_expression_or_statements() {
    for (source, want) in [
        ("this.i == 5", true),
        ("obj.i == 5", true),
        ("return this.i == 6", false),
        ("function() { return this.i == 5 }", true),
        ("  function() { return true }", true),
        ("function f() { return true }", true),
        ("function() { return false };", false),
        ("function foo() { return false }; true", true),
        ("() => false", true),
        ("(function() { return false })()", false),
        ("var a = 1; a == 1", true),
        ("var a = 1\na == 1", true),
        ("var a = 1; return a == 1", true),
        ("if (true) return true; else return false", true),
        ("true; false", false),
        ("true;", true),
        ("5\n;", true),
        ("// comment\ntrue", true),
        ("true /* c */", true),
        ("while (0) {}", false),
        ("if (true) { 5 }", false),
        ("{ return true }", true),
        ("{a:1}", false),
        ("return a\n+b;var a=1,b=2", false),
        ("var x = {a: 1}; x.a == 1", true),
        ("if (1) {} true", true),
        ("switch (1) { case 1: return true }", true),
        ("return", false),
        ("this.arr.length == 2 && this.o.x == 1", true),
        ("/a/.test(this.arr[0])", true),
        ("''", false),
        ("NaN", false),
        ("-0", false),
        ("null", false),
        ("({})", true),
        ("NumberLong(0)", true),
        ("0n", false),
    ] {
        assert_eq!(truth(source), Ok(want), "{source}");
    }
}

#[test]
fn errors_have_the_codes_of_mongod() {
    for (source, code, message) in [
        ("throw new Error('x')", 139, "Error: x :"),
        ("throw 'x'", 8, "uncaught exception: x"),
        ("throw 5", 8, "uncaught exception: 5"),
        ("throw null", 8, "uncaught exception: null"),
        ("throw {a: 1}", 139, "uncaught exception: [object Object] :"),
        ("throw {toString: function() { return 'q' }}", 139, "uncaught exception: q :"),
        ("throw Symbol('s')", 139, "TypeError: can't convert symbol to string"),
        ("nosuch", 139, "ReferenceError: nosuch is not defined :"),
        ("   ", 139, "TypeError: parseTree.body[lastStatement] is undefined"),
        ("function() { return true }()", 10232, "not a function"),
        (
            "(function() { function r() { return r() + 1 } return r() })()",
            139,
            "InternalError: too much recursion :",
        ),
    ] {
        assert_eq!(truth(source), Err((code, message.to_owned())), "{source}");
    }
    for source in [
        "}{",
        "syntax error(",
        "a b",
        "1 +",
        "(",
        "'abc",
        "return 1; }",
        "true //c",
        "1)+(2;",
        "\0",
    ] {
        assert_eq!(truth(source).map_err(|(code, _)| code), Err(139), "{source}");
    }
}

#[test]
fn a_stack_is_written_as_mongod_writes_it() {
    let error =
        call("function a() { return b(); function b() { return nosuch } }", Doc::EMPTY, None)
            .expect_err("nosuch is not defined");
    let lines: Vec<&str> = error.message().lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with("b@:1:") && lines[2].starts_with("a@:1:"), "{lines:?}");
}

#[test]
fn values_become_bson() {
    check("5", 5.0);
    check("-0", -0.0);
    check("'a'", "a");
    check("undefined", Value::Null);
    check("null", Value::Null);
    check("NumberInt(5)", 5);
    check("NumberLong('9223372036854775807')", i64::MAX);
    check("NumberLong(1, 2, 3)", 8_589_934_595_i64);
    check("NumberDecimal('1.10')", Decimal128::parse(b"1.10").unwrap());
    check("new Date(5)", Value::DateTime(5));
    check("new Date(NaN)", Value::DateTime(0));
    check("Timestamp(1, 2)", Value::Timestamp(1 << 32 | 2));
    check("MinKey", Value::MinKey);
    check("new MaxKey()", Value::MaxKey);
    check("BinData(0, 'YWJj')", Value::Binary(Binary { subtype: 0, bytes: b"abc" }));
    check("function() { return 1 }", Value::Code("function() { return 1 }".into()));
    check("/a/gi", Value::Regex { pattern: "a/".into(), options: "gi".into() });
    check("'\\ud800'", "\u{fffd}");
    check(
        "ObjectId('0123456789abcdef01234567')",
        ObjectId::parse_hex("0123456789abcdef01234567").unwrap(),
    );
    check("({a: undefined, b: [1, , 3]})", &doc! { "a": (Value::Undefined), "b": [1.0, 3.0] });
    check("Object.create({a: 1})", &doc! {});
    check("DBRef('c', 1, 'd')", &doc! { "$ref": "c", "$id": 1.0, "$db": "d" });
    check("this", &doc! {});
    check_error("Symbol('x')", 2, "unable to get type");
    check_error("5n", 2, "unable to get type");
    check_error(
        "({'a\\0b': 1})",
        16985,
        "JavaScript property (name) contains a null char which is not allowed in BSON. ",
    );
    check_error("({get a() { throw new Error('q') }})", 1, "Error: q");
    let cycle =
        "Exceeded depth limit of 150 when converting js object to BSON. Do you have a cycle?";
    check_error("(function() { var a = {}; a.a = a; return a })()", 17279, cycle);
    check_error("(function() { var a = []; a[0] = a; return a })()", 17279, cycle);
}

#[test]
fn bson_becomes_values() {
    let tell = "function(x) { return typeof x + '|' + x + '|' + tojson(x) }";
    let id = ObjectId::parse_hex("0123456789abcdef01234567").unwrap();
    let object = doc! { "x": 1 };
    let cases: &[(Value<'_>, &str)] = &[
        (Value::Int32(5), "number|5|5"),
        (Value::Int64(7), "object|7|NumberLong(7)"),
        (Value::Int64(1 << 40), "object|1099511627776|NumberLong(\"1099511627776\")"),
        (Value::Null, "object|null|null"),
        (Value::Document(object.as_doc()), "object|[object BSON]|{ \"x\" : 1 }"),
        (
            Value::DateTime(5),
            "object|Thu Jan 01 1970 00:00:00 GMT+0000 (UTC)|ISODate(\"1970-01-01T00:00:00.005Z\")",
        ),
        (
            Value::ObjectId(id),
            "object|0123456789abcdef01234567|ObjectId(\"0123456789abcdef01234567\")",
        ),
        (Value::Timestamp(3 << 32 | 4), "object|Timestamp(3, 4)|Timestamp(3, 4)"),
        (Value::MinKey, "function|[object MinKey]|{ \"$minKey\" : 1 }"),
        (
            Value::Code("function(){return 1}".into()),
            "function|function(){return 1}|function(){return 1}",
        ),
        (Value::Code("x".into()), "function|function() { return x }|function() { return x }"),
        (Value::Regex { pattern: "a".into(), options: "i".into() }, "object|/a/i|/a/i"),
        (
            Value::Binary(Binary { subtype: 0, bytes: b"abc" }),
            "object|BinData(0,\"YWJj\")|BinData(0,\"YWJj\")",
        ),
    ];
    for &(value, want) in cases {
        let mut args = DocBuf::new();
        args.push("0", value);
        assert_eq!(run(tell, &args), Ok(want.into()), "{value:?}");
    }
}

#[test]
fn a_document_keeps_the_order_of_its_fields() {
    let fields = doc! { "b": 1, "1": true, "0": "x", "a": { "z": 1, "5": 2 } };
    for (source, want) in [
        ("function(x) { return {x: x}.x }", fields.clone()),
        (
            "function(x) { x.a.z = 3; x['7'] = 1; x.c = 2; delete x['1']; return x }",
            doc! { "b": 1, "0": "x", "a": { "z": 3, "5": 2 }, "7": 1.0, "c": 2.0 },
        ),
        (
            "function(x) { delete x.b; x.b = 5.5; return x }",
            doc! { "1": true, "0": "x", "a": { "z": 1, "5": 2 }, "b": 5.5 },
        ),
        (
            "function(x) { return {k: Object.keys(x), n: JSON.stringify(x.a)} }",
            doc! { "k": ["b", "1", "0", "a"], "n": r#"{"z":1,"5":2}"# },
        ),
        (
            "function(x) { let s = ''; for (const k in x) s += k; return {s, has: '1' in x} }",
            doc! { "s": "b10a", "has": true },
        ),
    ] {
        let args = doc! { "0": (fields.as_doc()) };
        assert_eq!(run(source, &args), Ok(Value::Document(want.as_doc()).to_buf()), "{source}");
    }
}

#[test]
fn a_document_that_is_not_changed_keeps_its_types_within_another() {
    let inner =
        doc! { "l": [1, [2], { "x": 3 }], "o": { "p": [4] }, "s": (Value::Symbol("y".into())) };
    let args = doc! { "0": (inner.as_doc()) };
    let changed = |first: f64, p: Value<'_>| doc! { "l": [first, [2.0], { "x": 3 }], "o": { "p": [p] }, "s": "y" };
    let (as_it_was, kept) = (inner.as_doc(), changed(9.0, 4.into()));
    let deep = doc! { "l": [1.0, [2.0], { "x": 3 }], "o": { "p": [5.0] }, "s": "y" };
    for (source, want) in [
        ("function(c) { return {x: c} }", doc! { "x": as_it_was }),
        ("function(c) { return {x: [c, c]} }", doc! { "x": [as_it_was, as_it_was] }),
        (
            "function(c) { return {x: c.o, y: c.l} }",
            doc! { "x": { "p": [4] }, "y": [1.0, [2.0], { "x": 3 }] },
        ),
        // The documents that are not on the way to the change are as they were.
        ("function(c) { c.l[0] = 9; return {x: c} }", doc! { "x": (kept.as_doc()) }),
        ("function(c) { c.o.p[0] = 5; return {x: c} }", doc! { "x": (deep.as_doc()) }),
    ] {
        assert_eq!(run(source, &args), Ok(Value::Document(want.as_doc()).to_buf()), "{source}");
    }
}

#[test]
fn a_document_that_is_not_changed_keeps_dates_that_javascript_does_not_have() {
    let (early, late) = (Value::DateTime(i64::MIN), Value::DateTime(8_640_000_000_000_001));
    let inner = doc! { "d": early, "l": [late] };
    let args = doc! { "0": (inner.as_doc()) };
    let epoch = Value::DateTime(0);
    for (source, want) in [
        ("function(c) { return {x: c} }", doc! { "x": (inner.as_doc()) }),
        ("function(c) { c.n = 1; return c }", doc! { "d": epoch, "l": [epoch], "n": 1.0 }),
        ("function(c) { return {x: c.d} }", doc! { "x": epoch }),
    ] {
        assert_eq!(run(source, &args), Ok(Value::Document(want.as_doc()).to_buf()), "{source}");
    }
}

#[test]
fn a_document_that_is_not_changed_keeps_its_code() {
    let scope = doc! { "x": 1 };
    let scoped = Value::CodeWithScope { code: "  b; ".into(), scope: scope.as_doc() };
    let inner = doc! { "c": (Value::Code("a".into())), "l": [scoped, 1], "i": 2 };
    let args = doc! { "0": (inner.as_doc()) };
    let became = Value::Code("function() { return a }".into());
    for (source, want) in [
        ("function(c) { return {x: c} }", doc! { "x": (inner.as_doc()) }),
        ("function(c) { return {x: c.c} }", doc! { "x": became }),
        ("function(c) { c.l = 0; return c }", doc! { "c": became, "l": 0.0, "i": 2 }),
        (
            "function(c) { c.c = function() { return 1 }; delete c.l; return c }",
            doc! { "c": (Value::Code("function() { return 1 }".into())), "i": 2 },
        ),
    ] {
        assert_eq!(run(source, &args), Ok(Value::Document(want.as_doc()).to_buf()), "{source}");
    }
}

#[test]
fn a_negative_zero_keeps_its_sign() {
    let args = doc! { "0": [-0.0] };
    let want = |number: f64| Ok(Value::Double(number).to_buf());
    assert_eq!(run("function(l) { return l[0] }", &args), want(-0.0));
    assert_eq!(run("function(l) { return 1 / l[0] }", &args), want(f64::NEG_INFINITY));
}

#[test]
fn a_pointer_is_a_document_alone_and_keeps_its_type_within_one() {
    let id = ObjectId::parse_hex("0123456789abcdef01234567").unwrap();
    let pointer = Value::DbPointer { ns: "a.b".into(), id };
    let args = doc! { "0": pointer };
    let document = doc! { "ns": "a.b", "id": id };
    let cases = [
        ("function(p) { return p }", document.clone()),
        ("function(p) { return {x: p} }", doc! { "x": pointer }),
        ("function(p) { return {x: [DBPointer('a.b', p.id)]} }", doc! { "x": [pointer] }),
        ("function(p) { p.ns = 1; return {x: p} }", doc! { "x": { "ns": 1.0, "id": id } }),
    ];
    for (source, want) in cases {
        assert_eq!(run(source, &args), Ok(Value::Document(want.as_doc()).to_buf()), "{source}");
    }
}

#[test]
fn integers_of_a_document_keep_their_type() {
    let z = doc! { "i": 1, "arr": [1, 2], "o": { "p": 4 } };
    for (source, want) in [
        ("function(x) { return x }", z.clone()),
        (
            "function(x) { x.q = 9; return x }",
            doc! { "i": 1, "arr": [1.0, 2.0], "o": { "p": 4 }, "q": 9.0 },
        ),
        ("function(x) { x.i = 7; return x }", doc! { "i": 7, "arr": [1.0, 2.0], "o": { "p": 4 } }),
        (
            "function(x) { x.i = 7.5; return x }",
            doc! { "i": 7.5, "arr": [1.0, 2.0], "o": { "p": 4 } },
        ),
        ("function(x) { return {...x.o} }", doc! { "p": 4.0 }),
    ] {
        assert_eq!(run(source, &doc! { "0": (&z) }), Ok((&want).into()), "{source}");
    }
}

#[test]
fn a_field_called_proto_is_a_field() {
    let args = doc! { "0": { "__proto__": { "a": 1 } } };
    assert_eq!(
        run("function(x) { return String(x.a) + Object.keys(x) }", &args),
        Ok("undefined__proto__".into())
    );
}

#[test]
fn types_complain_as_in_mongod() {
    let long = "number passed to NumberLong must be representable as an int64_t :";
    check_error("NumberLong(5.7)", 2, long);
    check_error("NumberLong(1e19)", 2, long);
    check_error("NumberLong('abc')", 2, "could not convert string to long long :");
    check_error("NumberDecimal('abc')", 2, "Input is not a valid Decimal128 value. :");
    check_error("ObjectId('bad')", 10448, "invalid object id: length :");
    check_error("BinData(0, '@@')", 10270, "invalid base64 :");
    check_error("UUID('zz')", 207, "Invalid UUID string: zz :");
    check_error("HexData(0, 'zz')", 9, "The character \\x7a failed to parse from hex. :");
    check_error(
        "Timestamp(-1, 1)",
        2,
        "Timestamp time (seconds) must be non-negative and not greater than 4294967295, got -1 :",
    );
    check_error(
        "sleep('a')",
        16259,
        "sleep takes a single numeric argument -- sleep(milliseconds) :",
    );
    check_error("hex_md5(5)", 10261, "hex_md5 takes a single string argument -- hex_md5(string) :");
    check_error("ISODate('bad')", 139, "Error: invalid ISO date: bad :");
}

/// A document that begins with a name and an `_id` is a `DBRef`.
#[test]
fn references_have_their_functions() {
    let shown = |reference: DocBuf| {
        let args = doc! { "0": (Value::Document(reference.as_doc())) };
        let source = "function(v) { return String(v) + typeof v.getId + tojson(v) }";
        call(source, args.as_doc(), None).unwrap()
    };
    let is =
        |reference: DocBuf, want: &str| assert_eq!(shown(reference), Value::from(want).to_buf());
    is(doc! { "$ref": "c", "$id": 1 }, "DBRef(\"c\", 1)functionDBRef(\"c\", 1)");
    is(
        doc! { "$ref": "c", "$id": 1, "$db": "d", "x": 1 },
        "DBRef(\"c\", 1, \"d\")functionDBRef(\"c\", 1, \"d\")",
    );
    let plain = "[object BSON]undefined";
    is(doc! { "$ref": "c" }, &format!("{plain}{{ \"$ref\" : \"c\" }}"));
    is(doc! { "$ref": 1, "$id": 1 }, &format!("{plain}{{ \"$ref\" : 1, \"$id\" : 1 }}"));
    is(doc! { "$id": 1, "$ref": "c" }, &format!("{plain}{{ \"$id\" : 1, \"$ref\" : \"c\" }}"));
}

#[test]
fn global_functions_answer() {
    check("hex_md5('abc')", "900150983cd24fb0d6963f7d28e17f72");
    check("isNumber(NumberLong(5))", false);
    check(
        "tojson({a: {b: 1}, c: [1, NumberLong(2)]})",
        "{ \"a\" : { \"b\" : 1 }, \"c\" : [ 1, NumberLong(2) ] }",
    );
    check("tojson({a: 1, c: []}, '', false)", "{\n\t\"a\" : 1,\n\t\"c\" : [ ]\n}");
    check("tojson({})", "{ }");
    check("tojson([])", "[ ]");
    check("tojson({a: {}}, '', true)", "{ \"a\" : {  } }");
    check("tojson([[{}]], '', true)", "[ [ {  } ] ]");
    check("tojson({a: [1]}, '  ')", "{\n  \t\"a\" : [\n  \t\t1\n \t\t]\n \t}");
    check("tojson({'a\"b': 1}, '', null)", "{ \"a\"b\" : 1 }");
    // The length counts the indentation, which is then removed.
    check("tojson({a: 'x'.repeat(66)}).indexOf('\\n')", -1.0);
    check("tojson({a: 'x'.repeat(67)}).indexOf('\\n')", 1.0);
    check("tojson({a: {b: ['x'.repeat(45)]}}).indexOf('\\n')", 1.0);
    check("tojsononeline({a: [1, {b: 2}]})", "{  \"a\" : [ 1, { \"b\" : 2 } ] }");
    check("tojsononeline({a: {b: {}}})", "{  \"a\" : {  \"b\" : {   } } }");
    check("tojsononeline(MinKey)", "{ \"$minKey\" : 1 }");
    check("tojson(new Date(5))", "ISODate(\"1970-01-01T00:00:00.005Z\")");
    check("ISODate('2020-01-02T03:04:05+02:00')", Value::DateTime(1_577_927_045_000));
    check("Object.bsonsize({a: 1})", 16.0);
    check("bsonWoCompare({a: 1}, {a: 2})", -1.0);
    check("Array.stdDev([1, 2])", 0.5);
    check("(5).zeroPad(3)", "005");
    check(
        "BinData(4, 'AAECAwQFBgcICQoLDA0ODw==') + ''",
        "UUID(\"00010203-0405-0607-0809-0a0b0c0d0e0f\")",
    );
    check("NumberLong(5) + 1", 6.0);
    check("NumberLong(-5).top", 4_294_967_295.0);
    check(
        "JSON.stringify([NumberLong(1), MinKey, /x/i])",
        r#"[{"$numberLong":"1"},{"$minKey":1},{"$regex":"x","$options":"i"}]"#,
    );
    check(
        "typeof require + typeof load + typeof std + typeof console + typeof Reflect",
        "undefinedundefinedundefinedundefinedundefined",
    );
    check("print('x')", Value::Null);
    check_error("assert(false)", 139, "Error: assert failed :");
}

/// Each operation has its own globals, which persist during the operation.
#[test]
fn operations_do_not_see_each_other() {
    let (one, other) = (operation(|| Ok(())), operation(|| Ok(())));
    let count =
        "n = typeof n == 'undefined' ? 1 : n + 1; Object.prototype.seen = n; return ({}).seen";
    let run = |interrupt| call(count, Doc::EMPTY, Some(interrupt)).unwrap();
    assert_eq!(run(&one), 1.0.into());
    assert_eq!(run(&one), 2.0.into());
    assert_eq!(run(&other), 1.0.into());
}

#[test]
fn what_runs_long_is_ended() {
    marula_error::errors! { over() = MaxTimeMSExpired, "operation exceeded time limit"; }
    for source in [
        "while (true) {}",
        "for (;;) { try { for (;;) {} } catch (e) {} }",
        "sleep(1e9)",
        "try { sleep(1e9) } catch (e) {} return 5",
        "/(a+)+$/.test('a'.repeat(64) + 'b')",
        "for (;;) 'a'.repeat(1e5).indexOf('a'.repeat(5e4) + 'b')",
        "for (;;) 'a'.repeat(1e5).lastIndexOf('b' + 'a'.repeat(5e4))",
        "for (;;) 'a'.repeat(1e5).split('a'.repeat(5e4) + 'b')",
        "for (;;) 'a'.repeat(2e6).replaceAll('a', 'bb')",
        "var a = new Array(1e6).fill(1); for (;;) a.includes(2)",
        "var a = new Uint8Array(1e7); for (;;) a.fill(1)",
        "var a = ' '.repeat(1e7); for (;;) a.trim()",
    ] {
        let looks = AtomicU32::new(0);
        let interrupt = operation(move || match looks.fetch_add(1, Ordering::Relaxed) {
            0..3 => Ok(()),
            _ => Err(over()),
        });
        let error = call(source, Doc::EMPTY, Some(&interrupt)).expect_err(source);
        assert_eq!(error.code().number(), 50, "{source}");
    }
}

/// Searches in long texts find the correct positions.
#[test]
fn long_texts_are_searched_as_short_ones_are() {
    for (source, want) in [
        ("('a'.repeat(3e5) + 'b').indexOf('a'.repeat(100) + 'b')", 299_900.0),
        ("('a'.repeat(2e4) + 'b').repeat(3).indexOf('a'.repeat(1e4) + 'b', 25000)", 30_001.0),
        ("'a'.repeat(2e4).indexOf('a'.repeat(1e4) + 'b')", -1.0),
        ("('ab'.repeat(1e5) + 'c').indexOf('bababababababababababc')", 199_979.0),
        ("('x' + '-'.repeat(2e6)).lastIndexOf('x')", 0.0),
        ("('x' + '-'.repeat(2e6)).lastIndexOf('-', 5)", 5.0),
        ("('-'.repeat(4e5) + 'xyz').lastIndexOf('xyz')", 400_000.0),
        ("('-'.repeat(4e5) + 'xyz' + '-'.repeat(70000)).lastIndexOf('xyz')", 400_000.0),
        ("('xyz' + '-'.repeat(131072)).repeat(9).lastIndexOf('xyz-', 600000)", 524_300.0),
        ("('x'.repeat(30) + '-'.repeat(9)).repeat(9e3).lastIndexOf('x'.repeat(20), 50)", 49.0),
        ("('cd' + 'ab'.repeat(6e5)).replaceAll('c', '$&x').length", 1_200_003.0),
        ("'abc'.repeat(1e6).lastIndexOf('abcabc')", 2_999_994.0),
        ("'abc'.repeat(700001.9).length", 2_100_003.0),
        ("'abc'.padEnd(3e6 + 1, 'xyz').lastIndexOf('zx')", 2_999_999.0),
        ("'abc'.padStart(3e6, 'xyz').indexOf('zabc')", 2_999_996.0),
        ("'ab'.padStart(3e6).trim().length", 2.0),
        (
            "('ab'.repeat(1e4) + '-'.repeat(1.1e6)).replaceAll('a', (m, at) => at % 4 ? 'xyz' : '').length",
            1_125_000.0,
        ),
        ("('-'.repeat(1.1e6) + ',').split(',')[0].length", 1_100_000.0),
        ("('a,'.repeat(1e4) + '-'.repeat(1.1e6)).split(',').length", 10_001.0),
        ("('a,'.repeat(1e4) + '-'.repeat(1.1e6)).split(',', 3).length", 3.0),
        ("[10, 9, 1, undefined, 'b'].sort().indexOf('b')", 3.0),
    ] {
        check(source, want);
    }
}

/// Hostile scripts end with an error.
#[test]
fn hostile_scripts_fail() {
    let deep = |open: &str, count: usize| open.repeat(count);
    for source in [
        "var a = []; while (true) a.push(new Array(100000).fill(1.5))".to_owned(),
        "var a = 'x'; while (true) a += a".to_owned(),
        "return new Array(4294967295).join('x')".to_owned(),
        "return Array(17 * 1024 * 1024).join('x')".to_owned(),
        "return new Uint8Array(1e9)".to_owned(),
        "var a = []; for (var i = 0; i < 100000; i++) a = [a]; return JSON.stringify(a)".to_owned(),
        "return JSON.parse('['.repeat(1000000))".to_owned(),
        "return new RegExp('('.repeat(1000000))".to_owned(),
        "return eval('('.repeat(1000000))".to_owned(),
        "throw {toString: function() { throw 1 }, get stack() { throw 2 }}; 1".to_owned(),
        "var e = new Error(); Object.defineProperty(e, 'message', {get() { throw 3 }}); throw e"
            .to_owned(),
        "return Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)".to_owned(),
        deep("(", 100_000),
        deep("[", 100_000),
        deep("{", 100_000),
        deep("a?", 100_000),
        deep("!", 100_000) + "1;throw 1",
        deep("function(){", 100_000),
        deep("`${", 100_000),
    ] {
        let outcome = run(&source, &DocBuf::new());
        assert!(outcome.is_err(), "{}", &source[..source.len().min(80)]);
    }
    // The engine still works.
    check("1 + 1", 2.0);
}

#[test]
fn an_expression_runs_code() {
    use crate::context::Context;
    use crate::expression::{Arena, Expression, Frame, Scope};

    let answer = |spec: &DocBuf| -> Result<ValueBuf> {
        let context = Context::default();
        let expression = Expression::parse(spec.into(), &mut Scope::new(&context))?;
        let arena = Arena::new();
        let doc = doc! { "i": 5, "arr": [1, 2] };
        let result = expression.eval(&Frame::new(doc.as_doc(), &arena, &context))?;
        Ok(result.unwrap_or(Value::Undefined).to_buf())
    };
    for (spec, want) in [
        (
            doc! { "body": "function(a, b) { return a + b }", "args": ["$i", 2], "lang": "js" },
            Ok(7.0),
        ),
        (doc! { "body": "function(a, b) { return a + b }", "args": "$arr", "lang": "js" }, Ok(3.0)),
        (doc! { "body": "5", "args": [], "lang": "js", "more": 1 }, Ok(5.0)),
        (doc! {}, Err(31261)),
        (doc! { "body": 5, "args": [], "lang": "js" }, Err(31262)),
        (doc! { "body": "$i", "args": [], "lang": "js" }, Err(31432)),
        (doc! { "body": "5", "lang": "js" }, Err(31263)),
        (doc! { "body": "5", "args": [] }, Err(31418)),
        (doc! { "body": "5", "args": [], "lang": "py" }, Err(31419)),
        (doc! { "body": "5", "args": "$i", "lang": "js" }, Err(31266)),
        (doc! { "body": "", "args": [], "lang": "js" }, Err(139)),
        (doc! { "body": "throw 1", "args": [], "lang": "js" }, Err(8)),
    ] {
        let got = answer(&doc! { "$function": (&spec) }).map_err(|error| error.code().number());
        assert_eq!(got, want.map(ValueBuf::from), "{spec:?}");
    }
}

#[test]
fn an_accumulator_runs_code() {
    use crate::accumulator::Accumulator;
    use crate::context::Context;
    use crate::expression::{Arena, Frame, Scope};

    let answer = |spec: &DocBuf| -> Result<ValueBuf> {
        let context = Context::default();
        let accumulator =
            Accumulator::parse(b"$accumulator", spec.into(), &mut Scope::new(&context))?;
        let key = doc! { "k": 10 };
        let mut state = accumulator.start((&key).into(), &context)?;
        let docs = [doc! { "i": 1 }, doc! { "i": 2 }];
        for doc in &docs {
            let arena = Arena::new();
            accumulator.add(&mut *state, &Frame::new(doc.as_doc(), &arena, &context))?;
        }
        let arena = Arena::new();
        state.result(&arena).map(|value| value.to_buf())
    };
    let sum = "function(s, x) { return s + x }";
    let spec = |init: &str, accumulate: &str, finalize: &str| {
        doc! {
            "init": init, "initArgs": ["$k"], "accumulate": accumulate, "accumulateArgs": ["$i"],
            "merge": "function(a, b) { return a + b }", "finalize": finalize, "lang": "js",
        }
    };
    let same = "function(s) { return s }";
    for (spec, want) in [
        (spec("function() { return 0 }", sum, same), Ok(3.0)),
        (spec(same, sum, "function(s) { return s * 2 }"), Ok(26.0)),
        (spec("bad(", sum, same), Err(139)),
        (spec(same, "bad(", same), Err(139)),
        (spec(same, "function() { throw 1 }", same), Err(8)),
        (spec("$s", sum, same), Err(4544701)),
        (doc! { "lang": "js" }, Err(4544707)),
        (doc! { "lang": "py" }, Err(4544705)),
        (doc! { "lang": 5 }, Err(4544704)),
        (doc! { "init": 5 }, Err(4544702)),
        (doc! { "x": 5 }, Err(4544706)),
    ] {
        let got = answer(&spec).map_err(|error| error.code().number());
        assert_eq!(got, want.map(ValueBuf::from), "{spec:?}");
    }
}

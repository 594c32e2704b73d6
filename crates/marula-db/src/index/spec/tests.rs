//! Mistakes in a specification are reported at mongod's stage and with its messages. Recorded from
//! mongod 6.0.27.

use marula_bson::{DocBuf, Value, doc};

use marula_query::feature_version::FeatureVersion;

use super::{IndexRequest, IndexSpec};

const VERSION: FeatureVersion = FeatureVersion::V6_0;

const STAGE: &str = "Error in specification ";

fn parse(option: &str, value: &DocBuf) -> marula_error::Result<IndexSpec> {
    let mut spec = doc! { "key": { "a": 1 }, "name": "n" };
    spec.push(option, value.as_doc().get("v").unwrap());
    asked(spec)
}

fn asked(spec: DocBuf) -> marula_error::Result<IndexSpec> {
    asked_since(spec, VERSION)
}

fn asked_since(spec: DocBuf, version: FeatureVersion) -> marula_error::Result<IndexSpec> {
    let asked = IndexRequest { version, ..IndexRequest::default() };
    asked.specs(&[spec]).map(|mut specs| specs.remove(0))
}

#[track_caller]
fn check_error(option: &str, value: DocBuf, code: i32, message: &str) {
    let error = parse(option, &value).err().expect("the option is refused");
    let message = match message.strip_prefix('!') {
        Some(whole) => whole.to_owned(),
        None => format!("{STAGE}{message}"),
    };
    assert_eq!((error.code().number(), error.message()), (code, message.as_str()));
}

#[test]
fn odd_values_are_refused_in_mongods_words() {
    let quoted =
        |option: &str| format!("{{ key: {{ a: 1 }}, name: \"n\", {option} }} :: caused by :: ");
    for (option, value, code, shown, reason) in [
        (
            "v",
            doc! { "v": 2_147_483_648_i64 },
            2,
            "v: 2147483648",
            "Index version must be representable as a 32-bit integer, but got 2147483648",
        ),
        (
            "storageEngine",
            doc! { "v": true },
            67,
            "storageEngine: true, v: 2",
            "\"storageEngine\" options must be a document if present",
        ),
        (
            "bucketSize",
            doc! { "v": "x" },
            14,
            "bucketSize: \"x\"",
            "The field 'bucketSize' must be a number, but got string",
        ),
        (
            "clustered",
            doc! { "v": "x" },
            14,
            "clustered: \"x\"",
            "The field 'clustered has value clustered: \"x\", which is not convertible to bool",
        ),
        (
            "dropDups",
            doc! { "v": [1] },
            14,
            "dropDups: [ 1 ]",
            "The field 'dropDups has value dropDups: [ 1 ], which is not convertible to bool",
        ),
        (
            "finestIndexedLevel",
            doc! { "v": null },
            14,
            "finestIndexedLevel: null",
            "The field 'finestIndexedLevel has value finestIndexedLevel: null, which is not convertible to bool",
        ),
        (
            "originalSpec",
            doc! { "v": 1 },
            14,
            "originalSpec: 1",
            "The field 'originalSpec' must be an object, but got int",
        ),
        (
            "originalSpec",
            doc! { "v": {} },
            2,
            "originalSpec: {}",
            "The field 'originalSpec' cannot be an empty object.",
        ),
        (
            "originalSpec",
            doc! { "v": { "a": 1 } },
            197,
            "originalSpec: { a: 1 }",
            "The field 'a' is not valid for an index specification. Specification: { a: 1 }",
        ),
    ] {
        check_error(option, value, code, &format!("{}{reason}", quoted(shown)));
    }
    check_error(
        "collation",
        doc! { "v": { "a": 1 } },
        40_415,
        "!failed to add collation information to index spec for index creation: { key: { a: 1 }, name: \"n\", collation: { a: 1 }, v: 2 } :: caused by :: BSON field 'collation.a' is an unknown field.",
    );
    let unnamed = doc! { "key": { "a": 1 }, "name": "" };
    let error = asked(unnamed).err().unwrap();
    assert_eq!(
        error.message(),
        "Error in specification { key: { a: 1 }, name: \"\", v: 2 } :: caused by :: index name cannot be empty"
    );
}

#[test]
fn options_are_shown_as_mongod_keeps_them() {
    for (option, value, wanted) in [
        ("sparse", doc! { "v": 0 }, "false"),
        ("background", doc! { "v": (-0.0) }, "false"),
        ("bucketSize", doc! { "v": (f64::NAN) }, "0.0"),
        ("expireAfterSeconds", doc! { "v": 1.5 }, "1"),
    ] {
        let spec = parse(option, &value).unwrap();
        let shown = spec.document.as_doc().get(option).unwrap();
        assert_eq!(shown.to_string(), wanted, "{option}");
    }
    let decimal = "1.5".parse().expect("a decimal");
    let spec = parse("expireAfterSeconds", &doc! { "v": (Value::Decimal128(decimal)) }).unwrap();
    assert_eq!(spec.expire_after_seconds, Some(2));
}

#[test]
fn errors_quote_the_flags_first() {
    let spec =
        doc! { "key": { "a": 1 }, "name": "n", "sparse": true, "hidden": true, "unique": true };
    let spec = asked(spec).unwrap();
    let wanted = "{ v: 2, unique: true, hidden: true, key: { a: 1 }, name: \"n\", sparse: true }";
    assert_eq!(spec.quoted().as_doc().to_string(), wanted);
}

#[test]
fn arrays_side_by_side_are_an_option_of_ordinary_indexes() {
    for (given, shown) in [
        (Value::Boolean(true), Some("true")),
        (Value::Int32(1), Some("true")),
        (Value::Double(0.0), None),
        (Value::Boolean(false), None),
    ] {
        let spec = parse("parallelArrays", &doc! { "v": given }).unwrap();
        assert_eq!(spec.parallel_arrays, shown.is_some());
        let listed = spec.listed();
        let kept = listed.as_doc().get("parallelArrays").map(|kept| kept.to_string());
        assert_eq!(kept.as_deref(), shown);
    }
    check_error(
        "parallelArrays",
        doc! { "v": "x" },
        14,
        "{ key: { a: 1 }, name: \"n\", parallelArrays: \"x\" } :: caused by :: The field 'parallelArrays has value parallelArrays: \"x\", which is not convertible to bool",
    );
    for (kind, key) in [
        ("text", doc! { "a": "text" }),
        ("2d", doc! { "a": "2d" }),
        ("2dsphere", doc! { "b": 1, "a": "2dsphere" }),
        ("hashed", doc! { "a": "hashed", "b": 1 }),
        ("wildcard", doc! { "a.$**": 1 }),
    ] {
        let spec = doc! { "key": (&key), "name": "n", "parallelArrays": true };
        let error = asked(spec).err().expect("the option is refused");
        let reason = format!("Index type '{kind}' does not support the parallelArrays option");
        assert!(error.message().ends_with(&reason), "{error}");
        assert_eq!(error.code().number(), 67);
    }
    let id = doc! { "key": { "_id": 1 }, "name": "_id_", "parallelArrays": true };
    let error = asked(id).err().expect("the option is refused");
    assert_eq!(error.code().number(), 197);
}

#[test]
fn a_wildcard_sees_nothing_of_the_fields_beside_it() {
    let parse = |key: DocBuf, projection: Option<DocBuf>, version| {
        let mut spec = doc! { "key": (&key), "name": "n" };
        if let Some(projection) = projection {
            spec.push("wildcardProjection", &projection);
        }
        asked_since(spec, version)
    };
    let since = FeatureVersion::V7_0;
    for (key, projection) in [
        (doc! { "a": 1, "$**": 1 }, Some(doc! { "a": 0 })),
        (doc! { "a.x": 1, "$**": 1 }, Some(doc! { "a": 0 })),
        (doc! { "$**": 1, "b": 1 }, Some(doc! { "c": 1, "d.e": 1 })),
        (doc! { "a": 1, "sub.$**": 1, "b": 1 }, None),
        (doc! { "_id": 1, "$**": 1 }, Some(doc! { "x": 0 })),
    ] {
        assert!(parse(key.clone(), projection.clone(), since).is_ok(), "{key:?}");
        let error = parse(key, projection, VERSION).err().expect("6.0 knows none");
        assert!(error.message().ends_with("wildcard indexes do not allow compounding"), "{error}");
    }
    for (key, projection, message) in [
        (doc! { "a": 1, "$**": 1 }, None, "needs a 'wildcardProjection'"),
        (doc! { "a": 1, "$**": 1 }, Some(doc! { "b": 0 }), "'a' of a compound wildcard index"),
        (doc! { "a": 1, "$**": 1 }, Some(doc! { "a.x": 0 }), "'a' of a compound wildcard index"),
        (doc! { "a": 1, "$**": 1 }, Some(doc! { "a.x": 1 }), "'a' of a compound wildcard index"),
        (doc! { "a.x": 1, "$**": 1 }, Some(doc! { "a": 1 }), "'a.x' of a compound wildcard index"),
        (doc! { "sub.$**": 1, "sub.a": 1 }, None, "'sub.a' of a compound wildcard index"),
        (doc! { "sub": 1, "sub.a.$**": 1 }, None, "'sub' of a compound wildcard index"),
        (doc! { "_id": 1, "$**": 1 }, Some(doc! { "_id": 1, "b": 1 }), "'_id' of a compound"),
        (doc! { "a": 1, "b.$**": 1 }, Some(doc! { "b": 1 }), "only allowed when 'key'"),
    ] {
        let error = parse(key, projection, since).err().expect("the specification is refused");
        assert!(error.message().contains(message), "{error}");
    }
    for option in ["unique", "sparse", "expireAfterSeconds"] {
        let mut spec = doc! { "key": { "sub.$**": 1, "b": 1 }, "name": "n" };
        spec.push(option, 1);
        assert!(asked_since(spec, since).is_err(), "{option}");
    }
}

#[test]
fn of_two_mistakes_the_first_in_mongods_order_is_told() {
    let check = |spec: DocBuf, code: i32, message: &str| {
        let error = asked(spec.clone()).err().expect("the specification is refused");
        assert_eq!(error.code().number(), code, "{spec:?}");
        assert!(error.message().contains(message), "{spec:?}: {}", error.message());
    };
    // Options are checked in document order.
    check(doc! { "bits": "x", "key": { "a": 0 }, "name": "n" }, 14, "'bits' must be a number");
    check(doc! { "key": { "a": 0 }, "name": "n", "bits": "x" }, 67, "cannot be 0");
    // An unknown option comes before all others, a missing option after all present ones.
    check(doc! { "key": { "a": 0 }, "x": 1 }, 197, "The field 'x' is not valid");
    check(doc! { "name": "n", "sparse": "x" }, 14, "not convertible to bool");
    check(doc! { "v": 1, "key": { "a": 1 }, "collation": { "locale": "fr" } }, 9, "'name'");
    // Few options are allowed together with `clustered`.
    check(
        doc! { "key": { "a": 0 }, "name": "n", "min": 1, "clustered": "x" },
        197,
        "The field 'min' is not valid for a clustered index specification",
    );
    // The whole, then its name, its collation, its kind, and its expiry.
    let (both, xx) = (doc! { "a": 1 }, doc! { "locale": "xx" });
    check(
        doc! { "key": { "a": 1 }, "name": "*", "unique": true, "prepareUnique": true },
        67,
        "'unique' option and the 'prepareUnique' option",
    );
    check(doc! { "key": { "a": 1 }, "name": "*", "collation": &xx }, 2, "name '*' is not valid");
    check(
        doc! { "key": { "a": 1 }, "name": "", "collation": &xx },
        2,
        "caused by :: Field 'locale' is invalid in: { locale: \"xx\" }",
    );
    check(
        doc! { "key": { "$**": 1 }, "name": "n", "sparse": true, "partialFilterExpression": &both },
        67,
        "does not support the sparse option",
    );
    check(
        doc! { "key": { "a": 1 }, "name": "n", "expireAfterSeconds": "x", "sparse": true, "partialFilterExpression": &both },
        67,
        "cannot mix",
    );
    check(
        doc! { "key": { "a": "text" }, "name": "n", "expireAfterSeconds": (-1), "default_language": "x" },
        67,
        "default_language is not valid",
    );
    check(
        doc! { "key": { "a": 1 }, "name": "n", "expireAfterSeconds": (-1) },
        67,
        "TTL index 'expireAfterSeconds' option cannot be less than 0. Index spec: { key: { a: 1 }",
    );
    assert!(asked(doc! { "key": { "a": 1 }, "name": "n", "expireAfterSeconds": (-0.5) }).is_ok());
}

#[test]
fn the_form_of_each_specification_comes_before_the_kind_of_any() {
    let (a, b) = (doc! { "a": 1 }, doc! { "a": 0 });
    let mixed = doc! { "key": &a, "name": "n", "sparse": true, "partialFilterExpression": &a };
    let error = |specs: &[DocBuf]| {
        IndexRequest { version: VERSION, ..IndexRequest::default() }
            .specs(specs)
            .err()
            .expect("one is refused")
            .message()
            .to_owned()
    };
    let malformed = doc! { "key": &b, "name": "m" };
    assert!(error(&[mixed.clone(), malformed]).ends_with("cannot be 0."));
    let expiring = doc! { "key": &a, "name": "m", "expireAfterSeconds": (-1) };
    assert!(error(&[expiring, mixed]).contains("cannot mix"));
}

#[test]
fn unknown_options_and_those_of_other_kinds_may_be_passed_over() {
    let asked = IndexRequest { ignores_unknown: true, ..IndexRequest::default() };
    let spec = doc! { "key": { "a": 1 }, "name": "n", "x": 1, "bits": "x", "clustered": 1, "sparse": true };
    let wanted = "{ key: { a: 1 }, name: \"n\", sparse: true }";
    assert_eq!(asked.form(spec.as_doc()).as_doc().to_string(), wanted);
    let places = doc! { "key": { "a": "2d" }, "name": "n", "bits": 20, "weights": 1 };
    let wanted = "{ key: { a: \"2d\" }, name: \"n\", bits: 20 }";
    assert_eq!(asked.form(places.as_doc()).as_doc().to_string(), wanted);
}

#[test]
fn what_a_partial_filter_may_not_hold_is_shown_as_it_was_read() {
    let check = |filter: DocBuf, outline: &str| {
        let spec = doc! { "key": { "a": 1 }, "name": "n", "partialFilterExpression": &filter };
        let message = asked(spec).err().expect("the filter is refused").message().to_owned();
        let told = message.split_once("Expression not supported in partial index: ");
        assert_eq!(told.map(|told| told.1), Some(outline), "{filter:?}");
    };
    check(doc! { "a": { "$not": { "$gt": 1 } } }, "$not\n    $and\n        a $gt 1\n");
    check(doc! { "$or": [{ "a": 1 }, { "b": { "$size": 1 } }] }, "b $size : 1\n");
    check(doc! { "$alwaysTrue": 1 }, "$alwaysTrue: 1\n");
}

#[test]
fn a_longer_path_than_filters_have_is_read_where_it_is_stored() {
    let path = ["a"; 181].join(".");
    let filter = DocBuf::build(|out| {
        out.append(path.as_str(), 1);
    });
    let spec = doc! { "key": { "b": 1 }, "name": "b", "partialFilterExpression": filter.as_doc() };
    let refused = asked(spec.clone()).err().map(|error| error.code().number());
    assert_eq!(refused, Some(5_729_100));
    let stored = IndexSpec::parse(spec.as_doc(), None).unwrap();
    assert!(stored.partial.is_some());
}

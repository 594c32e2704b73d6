use std::cmp::Ordering;

use marula_bson::{DocBuf, doc};

use super::Collation;

fn order(spec: &DocBuf, a: &str, b: &str) -> Ordering {
    let collation = Collation::parse(spec.as_doc(), "find.collation").unwrap().unwrap();
    let order = collation.collator().compare(a.as_bytes(), b.as_bytes());
    let key = |text: &str| {
        let mut key = Vec::new();
        collation.collator().sort_key(text.as_bytes(), &mut key);
        key
    };
    assert_eq!(order, key(a).cmp(&key(b)), "keys of {a:?} and {b:?} under {}", spec.as_doc());
    order
}

fn check(spec: &DocBuf, ascending: &[&str]) {
    for pair in ascending.windows(2) {
        assert_eq!(
            order(spec, pair[0], pair[1]),
            Ordering::Less,
            "{pair:?} under {}",
            spec.as_doc()
        );
    }
}

fn error(spec: &DocBuf) -> (i32, String) {
    let error = Collation::parse(spec.as_doc(), "create.collation").unwrap_err();
    (error.code().number(), error.message().to_owned())
}

#[test]
fn languages_and_options_order_strings() {
    check(&doc! { "locale": "en" }, &["", "10", "9", "a", "A", "b", "B", "é", "f"]);
    check(&doc! { "locale": "en", "numericOrdering": true }, &["9", "10", "a"]);
    check(&doc! { "locale": "en", "caseFirst": "upper" }, &["A", "a", "B", "b"]);
    check(&doc! { "locale": "sv" }, &["z", "å", "ä", "ö"]);
    check(&doc! { "locale": "de@collation=phonebook" }, &["ad", "ä", "af"]);
    check(&doc! { "locale": "da" }, &["a", "A", "z", "æ", "ø", "å"]);
    check(&doc! { "locale": "fr_CA" }, &["cote", "côte", "coté", "côté"]);
    check(&doc! { "locale": "fr" }, &["cote", "coté", "côte", "côté"]);
    check(&doc! { "locale": "en", "backwards": true }, &["cote", "côte", "coté", "côté"]);
    check(&doc! { "locale": "fr_CA", "backwards": false }, &["cote", "coté", "côte"]);
    let equal = |spec: &DocBuf, a: &str, b: &str| assert_eq!(order(spec, a, b), Ordering::Equal);
    equal(&doc! { "locale": "en", "strength": 1 }, "é", "E");
    equal(&doc! { "locale": "en", "strength": 2 }, "e", "E");
    equal(&doc! { "locale": "en", "strength": 3, "alternate": "shifted" }, "a b", "ab");
    check(&doc! { "locale": "en", "strength": 1, "caseLevel": true }, &["e", "E", "f"]);
}

#[test]
fn the_whole_document_is_printed() {
    let parse = |spec: DocBuf| Collation::parse(spec.as_doc(), "x").unwrap();
    let expected = doc! {
        "locale": "en", "caseLevel": false, "caseFirst": "off", "strength": 3,
        "numericOrdering": false, "alternate": "non-ignorable", "maxVariable": "punct",
        "normalization": false, "backwards": false, "version": "57.1",
    };
    assert_eq!(parse(doc! { "locale": "en" }).unwrap().to_doc(), expected.as_doc());
    assert_eq!(
        parse(doc! { "locale": "en", "strength": 3.7 }).unwrap().to_doc(),
        expected.as_doc()
    );
    assert!(parse(doc! { "locale": "simple", "strength": 2 }).is_none());
    let canadian = parse(doc! { "locale": "fr_CA" }).unwrap();
    assert_eq!(canadian.to_doc().get("backwards"), Some(true.into()));
}

#[test]
fn wrong_documents_are_refused_in_the_words_of_mongod() {
    let cases = [
        (
            doc! {},
            40414,
            "BSON field 'create.collation.locale' is missing but a required field".to_owned(),
        ),
        (
            doc! { "locale": "xx", "strength": 2 },
            2,
            "Field 'locale' is invalid in: { locale: \"xx\", strength: 2 }".to_owned(),
        ),
        (
            doc! { "locale": "pt_BR" },
            2,
            "Field 'locale' is invalid in: { locale: \"pt_BR\" }. Did you mean 'pt'?".to_owned(),
        ),
        (
            doc! { "locale": 1 },
            14,
            "BSON field 'create.collation.locale' is the wrong type 'int', expected type 'string'"
                .to_owned(),
        ),
        (
            doc! { "locale": "en", "strength": 6 },
            51024,
            "BSON field 'strength' value must be <= 5, actual value '6'".to_owned(),
        ),
        (
            doc! { "locale": "en", "strength": 0 },
            2,
            "Enumeration value '0' for field 'collation.strength' is not a valid value.".to_owned(),
        ),
        (
            doc! { "locale": "en", "foo": 1 },
            40415,
            "BSON field 'create.collation.foo' is an unknown field.".to_owned(),
        ),
        (
            doc! { "locale": "en", "backwards": 1 },
            14,
            "Field 'backwards' should be a boolean value, but found: int".to_owned(),
        ),
    ];
    for (spec, code, message) in cases {
        assert_eq!(error(&spec), (code, message));
    }
}

#[test]
fn create_shows_the_document_with_its_defaults() {
    let spec = doc! { "locale": "xx" };
    let error = Collation::parse_completed(spec.as_doc(), "create.collation").unwrap_err();
    let wanted = "{ locale: \"xx\", caseLevel: false, caseFirst: \"off\", strength: 3, numericOrdering: \
                  false, alternate: \"non-ignorable\", maxVariable: \"punct\", normalization: false }";
    assert_eq!(error.message(), format!("Field 'locale' is invalid in: {wanted}"));
}

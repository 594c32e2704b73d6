use bstr::BStr;

use super::{Prefix, Regex};

fn check(pattern: &str, options: &str, matching: &[&str], other: &[&str]) {
    let regex = Regex::new(BStr::new(pattern), BStr::new(options)).unwrap();
    for text in matching {
        assert!(regex.is_match(text.as_bytes()), "{regex:?} on {text:?}");
    }
    for text in other {
        assert!(!regex.is_match(text.as_bytes()), "{regex:?} on {text:?}");
    }
}

#[test]
fn plain_patterns_match_as_pcre_matches_them() {
    check("abc", "", &["abc", "xabcx"], &["ab", "ABC", ""]);
    check("", "", &["", "x"], &[]);
    check("^ab", "", &["ab", "abc"], &["xab", "a"]);
    check("^ab", "m", &["x\nab"], &["xab"]);
    check("^ab.*", "", &["ab", "ab\nc"], &["b"]);
    check("^ab*", "", &["a", "abb"], &["b"]);
    check("^a\\.b", "", &["a.b"], &["axb"]);
    check("^ab+", "", &["abb"], &["a"]);
    check("é?x", "", &["x", "éx"], &["é"]);
    check("ÉX", "i", &["éx"], &["ex"]);
    check("a.c", "s", &["a\nc"], &["ac"]);
    check("a b # c", "x", &["ab"], &["a b # c"]);
}

#[test]
fn a_prefix_is_found_where_an_index_can_use_it() {
    let prefix = |pattern: &str, options: &str| {
        let regex = Regex::new(BStr::new(pattern), BStr::new(options)).unwrap();
        regex
            .prefix()
            .map(|Prefix { text, exact }| (String::from_utf8_lossy(text).into_owned(), exact))
    };
    assert_eq!(prefix("^abc", ""), Some(("abc".to_owned(), true)));
    assert_eq!(prefix("^abc.*", ""), Some(("abc".to_owned(), true)));
    assert_eq!(prefix("^abc*", ""), Some(("ab".to_owned(), false)));
    assert_eq!(prefix("^ab[c]", ""), Some(("ab".to_owned(), false)));
    assert_eq!(prefix("\\Aab", "m"), Some(("ab".to_owned(), true)));
    assert_eq!(prefix("^é?", ""), None);
    assert_eq!(prefix("^a|b", ""), None);
    assert_eq!(prefix("^a", "i"), None);
    assert_eq!(prefix("^a", "m"), None);
    assert_eq!(prefix("abc", ""), None);
}

#[test]
fn a_bad_pattern_is_refused_in_the_words_of_mongod() {
    let message = |pattern: &str, options: &str| {
        let error = Regex::new(BStr::new(pattern), BStr::new(options)).unwrap_err();
        (error.code().number(), error.message().to_owned())
    };
    let invalid = |reason: &str| (51091, format!("Regular expression is invalid: {reason}"));
    assert_eq!(message("(", ""), invalid("missing )"));
    assert_eq!(message("*a", ""), invalid("nothing to repeat"));
    assert_eq!(message("a\\", ""), invalid("\\ at end of pattern"));
    assert_eq!(message("[a", ""), invalid("missing terminating ] for character class"));
    assert_eq!(message("a", "q"), (51108, " invalid flag in regex options: q".to_owned()));
}

#[test]
fn catastrophic_backtracking_ends() {
    let text = format!("{}b", "a".repeat(60));
    check("^(?:(a+)+[xy]|zz)", "", &[], &[&text]);
    let regex = Regex::new(BStr::new("^(?:(a+)+[xy]|zz)"), BStr::new("")).unwrap();
    for _ in 0..4 {
        assert!(!regex.is_match(text.as_bytes()));
    }
}

use bstr::BStr;

use super::{Pcre, Prefix, Regex, Text};

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

/// The place of the first match, or the number of PCRE2's error.
fn place(pattern: &str, text: &str) -> Result<Option<(usize, usize)>, i32> {
    let pcre = Pcre::new(pattern, b"").unwrap();
    let mut places = pcre.places();
    let found = pcre.find(Text::new(text.as_bytes()), 0, &mut places);
    let found = found.map_err(|failure| failure.0)?;
    assert_eq!(pcre.is_match(text.as_bytes()), Ok(found.is_some()), "{pattern}");
    Ok(found)
}

#[test]
fn the_limits_are_those_of_mongod() {
    const STEPS: i32 = -47;
    const DEPTH: i32 = -53;
    let ab = |length: usize| "ab".repeat(length)[..length].to_owned();
    // The longest text for which mongod 6.0 finds an answer.
    for (pattern, longest, error) in [
        ("^(a|b)*$", 1998, DEPTH),
        ("^(?:a|b)*$", 2664, DEPTH),
        ("^(.)*$", 1998, DEPTH),
        ("^.*.*[cd]", 629, STEPS),
        ("^.*.*.*[cd]", 103, STEPS),
    ] {
        assert!(place(pattern, &ab(longest)).is_ok(), "{pattern}");
        let beyond = place(pattern, &ab(longest + 3));
        assert_eq!(beyond, Err(error), "{pattern}");
    }
    assert!(place("^.*$", &ab(100_000)).unwrap().is_some());
}

#[test]
fn a_match_is_found_wherever_it_is_in_a_long_text() {
    for at in [0, 1, 63, 64, 65, 4000, 9999] {
        for before in ["x", "é", "\n"] {
            let text = format!("{}abc{}", before.repeat(at), "y".repeat(10_000));
            let start = before.len() * at;
            let found = Ok(Some((start, start + 3)));
            assert_eq!(place("a[b]c", &text), found, "{at} {before:?}");
            assert_eq!(place("[ab][ab]c(?=y)", &text), found, "{at} {before:?}");
            assert_eq!(place("(?<=x{2}|)a[b]c", &text), found, "{at} {before:?}");
        }
    }
    // Each position before takes more than a short try has.
    let text = format!("{}abc{}", "x".repeat(300), "y".repeat(3000));
    assert_eq!(place("(?:x?x?x?x?x?x?x?x?x?x?x?x?x?z|a)[b]c", &text), Ok(Some((300, 303))));
    let text = format!("{}b", "a".repeat(20_000));
    assert_eq!(place("^b", &text), Ok(None));
    assert_eq!(place("\\Bb$", &text), Ok(Some((20_000, 20_001))));
    assert_eq!(place("b\\z|$", &text), Ok(Some((20_000, 20_001))));
    assert_eq!(place("$", &text), Ok(Some((20_001, 20_001))));
}

#[test]
fn a_pattern_that_determines_where_it_continues_does() {
    let text = format!("{}aac", "ab".repeat(5000));
    assert_eq!(place("\\Gaa", &text), Ok(None));
    assert_eq!(place("(?:ab)++(*SKIP)(*F)|b", &text), Ok(None));
    assert_eq!(place("(?:ab)++(*COMMIT)x|c", &text), Ok(None));
    assert_eq!(place("a(*PRUNE)a", &text), Ok(Some((10_000, 10_002))));
}

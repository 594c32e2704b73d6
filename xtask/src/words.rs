//! Words and openings that comments do not use any more. docs/glossary.md maps old words to new.
//!
//! The check covers the comments of all code in Rust.

use crate::source::Source;

/// The folders whose comments are checked.
const FOLDERS: &[&str] = &["bench/", "crates/", "diff/", "fuzz/", "xtask/"];

/// Openings of a sentence, and what to write instead.
const OPENINGS: &[(&str, &str)] = &[
    ("What", "begin with the noun: 'The documents that …', 'The state of …'"),
    ("Which", "begin with the noun: 'The fields that …', or 'Returns which …'"),
    ("Whose", "begin with the noun: 'The users whose …'"),
    ("Whom", "begin with the noun"),
    ("Who", "name the subject: the caller, the client, a writer"),
    ("Of what", "begin with the subject and its verb"),
    ("Of which", "begin with the subject and its verb"),
    ("Of whose", "begin with the subject and its verb"),
    ("Such", "name the thing again, or join the sentences"),
    ("So many", "'The number of …', 'The maximum number of …'"),
    ("How many", "'The number of …'"),
    ("How much", "'The size of …', 'The amount of …'"),
    ("How often", "'The number of times …'"),
    ("How long", "'The time …', 'The duration of …'"),
    ("Answers", "'Returns …'"),
    ("Tells", "'Reports …', 'Returns whether …'"),
];

/// Words anywhere in a sentence, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("whoever", "the caller, the client, a reader"),
    ("whomever", "the caller, the client, a reader"),
    ("so many", "'at most n', 'this number of'"),
    ("patience", "time budget, timeout"),
    ("behind", "after"),
    ("beside", "next to, in addition to, with"),
    ("stands for", "represents, means"),
    ("told", "reported, recorded, known"),
    ("tells", "reports, returns, determines"),
    ("told apart", "distinguished"),
    ("is asked", "is called, is checked, is queried"),
    ("are asked", "are called, are checked, are queried"),
    ("and the like", "'and similar …', 'such as …'"),
    ("and its kin", "'and similar …', 'such as …'"),
    ("and its like", "'and similar …', 'such as …'"),
    ("and kin", "'and similar …', 'such as …'"),
    ("under way", "in progress, running"),
    ("passed over", "skipped, ignored"),
    ("looked through", "scanned, checked"),
    ("looks through", "scans, checks"),
    ("carried out", "executed"),
    ("carries out", "executes"),
    ("held up", "delayed"),
];

/// Complains of old words in the comments of one file.
pub(crate) fn check(source: &Source, complaints: &mut Vec<String>) {
    if !source.path.ends_with(".rs")
        || !FOLDERS.iter().any(|folder| source.path.starts_with(folder))
    {
        return;
    }
    for (line, paragraph) in paragraphs(&source.text) {
        let text = without_quotes(&paragraph);
        let found = sentences(&text)
            .flat_map(|sentence| OPENINGS.iter().filter(move |(word, _)| opens(sentence, word)))
            .chain(WORDS.iter().filter(|(word, _)| contains(&text, word)));
        for (word, instead) in found {
            complaints.push(format!("{}:{line}: '{word}' in a comment: {instead}", source.path));
        }
    }
}

/// The paragraphs of the comments on lines of their own, each with its first line. Examples and
/// drawings are not included.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut is_drawing) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(words) =
            ["//!", "///", "//"].iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim)
        else {
            (is_open, is_drawing) = (false, false);
            continue;
        };
        if words.starts_with("```") {
            is_drawing = !is_drawing;
        }
        if is_drawing || words.is_empty() || words.starts_with("```") {
            is_open = false;
            continue;
        }
        match found.last_mut().filter(|_| is_open) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(words);
            }
            None => found.push((number + 1, words.to_owned())),
        }
        is_open = true;
    }
    found
}

/// The text without code and quotes, which may contain any words.
fn without_quotes(text: &str) -> String {
    let mut plain = String::new();
    let mut end = None;
    for letter in text.chars() {
        match end {
            Some(quote) if letter == quote => end = None,
            Some(_) => {}
            None if letter == '`' || letter == '"' => {
                end = Some(letter);
                plain.push(letter);
            }
            None => plain.push(letter),
        }
    }
    plain
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split(". ").map(|sentence| sentence.trim_start_matches(['-', '*', '|', ' ']))
}

fn opens(sentence: &str, word: &str) -> bool {
    sentence.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '))
}

fn contains(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices(word).any(|(start, _)| {
        let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        !is_letter(text[..start].chars().next_back())
            && !is_letter(text[start + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_of(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.into(), text: text.into() };
        let mut complaints = Vec::new();
        check(&source, &mut complaints);
        complaints
    }

    #[test]
    fn old_words_are_found_in_comments() {
        let check = |text: &str| complaints_of("crates/marula-db/src/x.rs", text).len();
        assert_eq!(check("/// What a reader sees.\nfn f() {}\n"), 1);
        assert_eq!(check("/// Reads it. What follows\n/// is skipped.\n"), 1);
        assert_eq!(check("/// The documents are read\n/// anew.\n"), 1);
        assert_eq!(check("    // Waits for so\n    // many writers.\n"), 1);
        assert_eq!(check("/// The name says what it is.\n"), 0);
        assert_eq!(check("/// Whatever the order, see `What`, \"anew\" and `renewed`.\n"), 0);
        assert_eq!(check("let anew = 1;\n"), 0);
        assert_eq!(check("//! ```text\n//! What is drawn\n//! ```\n"), 0);
        assert_eq!(complaints_of("tests/rust/src/x.rs", "/// What it is.\n").len(), 0);
    }
}

//! The words of dates: abbreviations of time zones, and errors for texts without digits.
//!
//! No date is written without digits. mongod's parser splits such a text into words and reports an
//! error or warning for each: errors come first, then warnings. The first surplus zone is a
//! warning, later ones are errors.

/// The offset of a time zone abbreviation from UTC in seconds; case is ignored.
///
/// Source: mongod 6.0, tested with every word of up to four letters.
pub(super) fn zone_seconds(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    let at = ZONES.binary_search_by_key(&&*word, |(name, _)| name).ok()?;
    Some(ZONES[at].1)
}

/// The text without surrounding blanks, which do not count as positions either. At least one byte
/// remains.
pub(super) fn without_blanks(text: &str) -> &str {
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    match text.trim_matches(is_blank) {
        "" => text.get(text.len().saturating_sub(1)..).unwrap_or(text),
        trimmed => trimmed,
    }
}

/// Why a text is not a date.
pub(super) enum Refusal {
    /// It has no errors, but is incomplete.
    Incomplete,
    /// The errors, by position.
    Wrong(String),
}

/// Why a text without digits is not a date; `None` if it has digits.
pub(super) fn refusal(text: &str) -> Option<Refusal> {
    if text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut scan = Scan { text: text.as_bytes(), ..Scan::default() };
    scan.run();
    let mut wrong = scan.errors;
    wrong.append(&mut scan.warnings);
    Some(match wrong.is_empty() {
        true => Refusal::Incomplete,
        false => Refusal::Wrong(wrong.join("; ")),
    })
}

#[derive(Default)]
struct Scan<'t> {
    text: &'t [u8],
    errors: Vec<String>,
    warnings: Vec<String>,
    zones: usize,
    months: usize,
}

impl Scan<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while at < self.text.len() {
            at += match self.text[at] {
                b' ' | b'.' | b',' | b'\t' | b'\n' | 0 => 1,
                _ => self.word(at),
            };
        }
        if self.months > 0 {
            // A month alone makes an invalid date.
            let end = self.text.len() + 1;
            self.warnings.push(format!("{end}: The parsed date was invalid '\0'"));
        }
    }

    /// Consumes the word at a position, or one byte if there is no word. Returns its length.
    fn word(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        let zone = zone_length(rest);
        if let Some(length) = relative_length(rest).filter(|length| *length >= zone) {
            return length;
        }
        if let Some(length) = longest(rest, &MONTHS).filter(|length| *length >= zone) {
            self.months += 1;
            if self.months > 1 {
                self.errors.push(self.note(at, "Double date specification"));
            }
            return length;
        }
        if zone == 0 {
            self.errors.push(self.note(at, "Unexpected character"));
            return 1;
        }
        self.zones += 1;
        match self.zones {
            1 => {
                let name = rest[..zone].trim_ascii_start();
                let name = name.strip_prefix(b"(").unwrap_or(name);
                let name = name.strip_suffix(b")").unwrap_or(name);
                if !std::str::from_utf8(name).is_ok_and(|name| zone_seconds(name).is_some()) {
                    let what =
                        "passing a time zone identifier as part of the string is not allowed";
                    self.errors.push(self.note(at, what));
                }
            }
            2 => self.warnings.push(self.note(at, "Double timezone specification")),
            _ => self.errors.push(self.note(at, "Double timezone specification")),
        }
        zone
    }

    fn note(&self, at: usize, what: &str) -> String {
        let byte = self.text[at];
        let shown = if byte.is_ascii() { char::from(byte) } else { char::REPLACEMENT_CHARACTER };
        format!("{at}: {what} '{shown}'")
    }
}

fn letters(text: &[u8], max: usize) -> usize {
    text.iter().take(max).take_while(|byte| byte.is_ascii_alphabetic()).count()
}

/// The length of the zone at the front of a text: up to six letters, optionally in parentheses, or
/// a region such as `Europe/Paris`; zero if there is none.
fn zone_length(text: &[u8]) -> usize {
    let open = usize::from(text.first() == Some(&b'('));
    let word = letters(&text[open..], 6);
    if word == 0 {
        return 0;
    }
    let close = usize::from(text.get(open + word) == Some(&b')'));
    (open + word + close).max(region_length(text))
}

fn region_length(text: &[u8]) -> usize {
    let small = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let first = usize::from(text.first().is_some_and(u8::is_ascii_uppercase));
    let mut length = first + small(&text[first..]);
    if first == 0 || length < 2 {
        return 0;
    }
    let mut parts = 1;
    while let [b'/' | b'_' | b'-', letter, ..] = &text[length..]
        && letter.is_ascii_alphabetic()
    {
        length += 1 + letters(&text[length + 1..], usize::MAX);
        parts += 1;
    }
    if parts > 1 { length } else { 0 }
}

/// The length of the words at the front of a text that modify a date, such as `monday`, `noon` or
/// `next day`.
fn relative_length(text: &[u8]) -> Option<usize> {
    let alone = longest(text, &RELATIVE);
    let ordinal = longest(text, &ORDINALS).and_then(|ordinal| {
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let gap = text[ordinal..].iter().take_while(blank).count();
        let unit = longest(&text[ordinal + gap..], &UNITS)?;
        (gap > 0).then_some(ordinal + gap + unit)
    });
    alone.max(ordinal)
}

/// The length of the longest of these words at the front of a text.
fn longest(text: &[u8], words: &[&str]) -> Option<usize> {
    let begins = |word: &&&str| {
        text.get(..word.len()).is_some_and(|front| front.eq_ignore_ascii_case(word.as_bytes()))
    };
    words.iter().filter(begins).map(|word| word.len()).max()
}

const RELATIVE: [&str; 30] = [
    "ago",
    "fri",
    "friday",
    "fridays",
    "midnight",
    "mon",
    "monday",
    "mondays",
    "noon",
    "now",
    "sat",
    "saturday",
    "saturdays",
    "sun",
    "sunday",
    "sundays",
    "thu",
    "thursday",
    "thursdays",
    "today",
    "tomorrow",
    "tue",
    "tuesday",
    "tuesdays",
    "wed",
    "wednesday",
    "wednesdays",
    "weekday",
    "weekdays",
    "yesterday",
];

const ORDINALS: [&str; 16] = [
    "eighth", "eleventh", "fifth", "first", "fourth", "last", "next", "ninth", "previous",
    "second", "seventh", "sixth", "tenth", "third", "this", "twelfth",
];

const UNITS: [&str; 34] = [
    "day",
    "days",
    "fortnight",
    "fortnights",
    "fri",
    "friday",
    "hour",
    "hours",
    "min",
    "minute",
    "minutes",
    "mon",
    "monday",
    "month",
    "months",
    "sat",
    "saturday",
    "sec",
    "second",
    "seconds",
    "sun",
    "sunday",
    "thu",
    "thursday",
    "tue",
    "tuesday",
    "wed",
    "wednesday",
    "week",
    "weekday",
    "weekdays",
    "weeks",
    "year",
    "years",
];

const MONTHS: [&str; 24] = [
    "apr",
    "april",
    "aug",
    "august",
    "dec",
    "december",
    "feb",
    "february",
    "jan",
    "january",
    "jul",
    "july",
    "jun",
    "june",
    "mar",
    "march",
    "may",
    "nov",
    "november",
    "oct",
    "october",
    "sep",
    "sept",
    "september",
];

/// The abbreviations, sorted, with their offsets in seconds.
const ZONES: [(&str, i64); 144] = [
    ("a", 3600),
    ("acdt", 37800),
    ("acst", 34200),
    ("addt", -7200),
    ("adt", -10800),
    ("aedt", 39600),
    ("aest", 36000),
    ("ahdt", -32400),
    ("ahst", -36000),
    ("akdt", -28800),
    ("akst", -32400),
    ("amt", -13840),
    ("apt", -10800),
    ("ast", -14400),
    ("awdt", 32400),
    ("awst", 28800),
    ("awt", -10800),
    ("b", 7200),
    ("bdst", 7200),
    ("bdt", -36000),
    ("bmt", -14309),
    ("bst", 3600),
    ("c", 10800),
    ("cast", 34200),
    ("cat", 7200),
    ("cddt", -14400),
    ("cdt", -18000),
    ("cemt", 10800),
    ("cest", 7200),
    ("cet", 3600),
    ("chst", 36000),
    ("cmt", -15408),
    ("cpt", -18000),
    ("cst", -21600),
    ("cwt", -18000),
    ("d", 14400),
    ("dmt", -1521),
    ("e", 18000),
    ("eat", 10800),
    ("eddt", -10800),
    ("edt", -14400),
    ("eest", 10800),
    ("eet", 7200),
    ("emt", -26248),
    ("ept", -14400),
    ("est", -18000),
    ("ewt", -14400),
    ("f", 21600),
    ("ffmt", -14660),
    ("fmt", -4056),
    ("g", 25200),
    ("gdt", 39600),
    ("gmt", 0),
    ("gst", 36000),
    ("h", 28800),
    ("hdt", -34200),
    ("hkst", 32400),
    ("hkt", 28800),
    ("hmt", -19776),
    ("hpt", -34200),
    ("hst", -36000),
    ("hwt", -34200),
    ("i", 32400),
    ("iddt", 14400),
    ("idt", 10800),
    ("imt", 25025),
    ("ist", 7200),
    ("jdt", 36000),
    ("jmt", 8440),
    ("jst", 32400),
    ("k", 36000),
    ("kdt", 36000),
    ("kmt", 5736),
    ("kst", 30600),
    ("l", 39600),
    ("lst", 9394),
    ("m", 43200),
    ("mddt", -18000),
    ("mdst", 16279),
    ("mdt", -21600),
    ("mest", 7200),
    ("met", 3600),
    ("mmt", 9017),
    ("mpt", -21600),
    ("msd", 14400),
    ("msk", 10800),
    ("mst", -25200),
    ("mwt", -21600),
    ("n", -3600),
    ("nddt", -5400),
    ("ndt", -9052),
    ("npt", -9000),
    ("nst", -12600),
    ("nwt", -9000),
    ("nzdt", 46800),
    ("nzmt", 41400),
    ("nzst", 43200),
    ("o", -7200),
    ("p", -10800),
    ("pddt", -21600),
    ("pdt", -25200),
    ("pkst", 21600),
    ("pkt", 18000),
    ("plmt", 25590),
    ("pmt", -13236),
    ("ppmt", -17340),
    ("ppt", -25200),
    ("pst", -28800),
    ("pwt", -25200),
    ("q", -14400),
    ("qmt", -18840),
    ("r", -18000),
    ("rmt", 5794),
    ("s", -21600),
    ("sast", 7200),
    ("sdmt", -16800),
    ("sjmt", -20173),
    ("smt", -13884),
    ("sst", -39600),
    ("t", -25200),
    ("tbmt", 10751),
    ("tmt", 12344),
    ("u", -28800),
    ("uct", 0),
    ("utc", 0),
    ("v", -32400),
    ("w", -36000),
    ("wast", 7200),
    ("wat", 3600),
    ("wemt", 7200),
    ("west", 3600),
    ("wet", 0),
    ("wib", 25200),
    ("wit", 32400),
    ("wita", 28800),
    ("wmt", 5040),
    ("x", -39600),
    ("y", -43200),
    ("yddt", -25200),
    ("ydt", -28800),
    ("ypt", -28800),
    ("yst", -32400),
    ("ywt", -28800),
    ("z", 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_of_as_mongod_tells() {
        for (text, expected) in [
            ("a", ""),
            ("z", ""),
            ("aB", "0: passing a time zone identifier as part of the string is not allowed 'a'"),
            ("abc", "0: passing a time zone identifier as part of the string is not allowed 'a'"),
            (
                "abcdefg",
                "0: passing a time zone identifier as part of the string is not allowed 'a'; 6: Double timezone specification 'g'",
            ),
            (
                "abcdefgh ij",
                "0: passing a time zone identifier as part of the string is not allowed 'a'; 9: Double timezone specification 'i'; 6: Double timezone specification 'g'",
            ),
            ("a b", "2: Double timezone specification 'b'"),
            ("a b c", "4: Double timezone specification 'c'; 2: Double timezone specification 'b'"),
            (
                "a b c d",
                "4: Double timezone specification 'c'; 6: Double timezone specification 'd'; 2: Double timezone specification 'b'",
            ),
            ("a,b,c", "4: Double timezone specification 'c'; 2: Double timezone specification 'b'"),
            ("a-b", "1: Unexpected character '-'; 2: Double timezone specification 'b'"),
            ("a_b", "1: Unexpected character '_'; 2: Double timezone specification 'b'"),
            (
                "Abc/Def",
                "0: passing a time zone identifier as part of the string is not allowed 'A'",
            ),
            ("Ab/cd", "0: passing a time zone identifier as part of the string is not allowed 'A'"),
            (
                "AB/Cd",
                "0: passing a time zone identifier as part of the string is not allowed 'A'; 2: Unexpected character '/'; 3: Double timezone specification 'C'",
            ),
            (
                "europe/paris",
                "0: passing a time zone identifier as part of the string is not allowed 'e'; 6: Unexpected character '/'; 7: Double timezone specification 'p'",
            ),
            ("utc", ""),
            ("j", "0: passing a time zone identifier as part of the string is not allowed 'j'"),
            ("$", "0: Unexpected character '$'"),
            ("a$b", "1: Unexpected character '$'; 2: Double timezone specification 'b'"),
            (" a", ""),
            ("a)", ""),
            ("(abc)", "0: passing a time zone identifier as part of the string is not allowed '('"),
            ("((a))", "0: Unexpected character '('; 4: Unexpected character ')'"),
            ("a(b)", "1: Double timezone specification '('"),
            (
                "-Infinity",
                "0: Unexpected character '-'; 1: passing a time zone identifier as part of the string is not allowed 'I'; 7: Double timezone specification 't'",
            ),
            (
                "undefined",
                "0: passing a time zone identifier as part of the string is not allowed 'u'; 6: Double timezone specification 'n'",
            ),
            ("mon", ""),
            ("mondays", ""),
            ("xmon", "0: passing a time zone identifier as part of the string is not allowed 'x'"),
            (
                "sun day",
                "4: passing a time zone identifier as part of the string is not allowed 'd'",
            ),
            ("jan", "4: The parsed date was invalid '\0'"),
            ("jan feb", "4: Double date specification 'f'; 8: The parsed date was invalid '\0'"),
            ("march a", "8: The parsed date was invalid '\0'"),
            ("noon noon", ""),
            ("first", "0: passing a time zone identifier as part of the string is not allowed 'f'"),
            ("first day", ""),
            ("last mon", ""),
            ("ago", ""),
            (
                "mon abc",
                "4: passing a time zone identifier as part of the string is not allowed 'a'",
            ),
            (
                "abc now",
                "0: passing a time zone identifier as part of the string is not allowed 'a'",
            ),
            ("weekdays", ""),
            (
                "sec a",
                "0: passing a time zone identifier as part of the string is not allowed 's'; 4: Double timezone specification 'a'",
            ),
            ("tuesday", ""),
            ("tues", "0: passing a time zone identifier as part of the string is not allowed 't'"),
            ("\"a\"", "0: Unexpected character '\"'; 2: Unexpected character '\"'"),
            ("@a", "0: Unexpected character '@'"),
            (";", "0: Unexpected character ';'"),
            ("..", ""),
            ("a b$", "3: Unexpected character '$'; 2: Double timezone specification 'b'"),
            (
                "foo bar baz",
                "0: passing a time zone identifier as part of the string is not allowed 'f'; 8: Double timezone specification 'b'; 4: Double timezone specification 'b'",
            ),
        ] {
            let said = match refusal(text) {
                Some(Refusal::Wrong(said)) => said,
                Some(Refusal::Incomplete) => String::new(),
                None => "it has digits".to_owned(),
            };
            assert_eq!(said, expected, "{text:?}");
        }
    }

    #[test]
    fn zones_are_found_in_any_case() {
        assert_eq!(zone_seconds("CET"), Some(3_600));
        assert_eq!(zone_seconds("est"), Some(-18_000));
        assert_eq!(zone_seconds("ndt"), Some(-9_052));
        assert_eq!(zone_seconds("j"), None);
        assert!(ZONES.is_sorted());
    }
}

//! The spellings of dates and times that are read without a format, and how they are found.
//!
//! They are those of timelib, mongod's library, which PHP documents as its date formats. A text is
//! a sequence of tokens. At each position the longest spelling counts, and of several that are
//! equally long the first in the table.

/// A part of a spelling.
pub(super) enum Piece {
    /// These bytes.
    Exact(&'static str),
    /// These letters, in any case.
    Word(&'static str),
    /// One of these bytes.
    One(&'static [u8]),
    /// One of these bytes or nothing.
    Maybe(&'static [u8]),
    /// Any number of these bytes.
    Any(&'static [u8]),
    /// A number of `min` to `max` digits that lies between the bounds.
    Number(usize, usize, u64, u64),
    /// The longest of these words, in any case.
    Of(&'static [&'static str]),
    /// The longest of these texts.
    OfExact(&'static [&'static str]),
    /// `min` to `max` letters.
    Letters(usize, usize),
    /// `min` to `max` small letters.
    Small(usize, usize),
    /// A capital letter.
    Capital,
    Optional(&'static [Piece]),
    Either(&'static [&'static [Piece]]),
    /// This sequence once or more often; it takes as much as there is.
    Repeated(&'static [Piece]),
}

use std::sync::LazyLock;

use super::date_words::{
    DIRECTIONS, MONTHS_LONG, MONTHS_ROMAN, MONTHS_SHORT, ORDINALS, UNITS, WEEKDAYS, WORKDAYS,
};

use Piece::*;

/// The longest run of blanks, signs or letters within a token. mongod has no limit; here it bounds
/// the work for a text that is one long run.
const LONGEST_RUN: usize = 256;

/// The byte at a position. The text ends with a NUL, which a token may include.
fn byte(text: &[u8], at: usize) -> Option<u8> {
    text.get(at).copied().or_else(|| (at == text.len()).then_some(0))
}

fn run(text: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().take(LONGEST_RUN).take_while(|byte| belongs(**byte)).count()
}

/// The length of the longest of these words at a position.
pub(super) fn longest(text: &[u8], at: usize, words: &[&str], exact: bool) -> Option<usize> {
    let begins = |word: &&&str| {
        let front = text.get(at..at + word.len());
        front.is_some_and(|front| match exact {
            true => front == word.as_bytes(),
            false => front.eq_ignore_ascii_case(word.as_bytes()),
        })
    };
    words.iter().filter(begins).map(|word| word.len()).max()
}

/// Where the longest text of these pieces ends that begins at a position, and can go on with
/// `next`.
fn end_of(
    pieces: &[Piece],
    text: &[u8],
    at: usize,
    next: &dyn Fn(usize) -> Option<usize>,
) -> Option<usize> {
    let Some((first, rest)) = pieces.split_first() else { return next(at) };
    let then = |at: usize| end_of(rest, text, at, next);
    let letters = |min: usize, max: usize, belongs: fn(u8) -> bool| {
        let count = run(text, at, belongs).min(max);
        (count >= min).then_some(at + count)
    };
    match first {
        Exact(word) => then(at + longest(text, at, &[word], true)?),
        Word(word) => then(at + longest(text, at, &[word], false)?),
        Of(words) => then(at + longest(text, at, words, false)?),
        OfExact(words) => then(at + longest(text, at, words, true)?),
        One(set) => byte(text, at).filter(|byte| set.contains(byte)).and_then(|_| then(at + 1)),
        Maybe(set) => {
            let with = byte(text, at).filter(|byte| set.contains(byte)).and_then(|_| then(at + 1));
            with.max(then(at))
        }
        Any(set) => then(at + run(text, at, |byte| set.contains(&byte))),
        Number(min, max, low, high) => {
            let digits = run(text, at, |byte| byte.is_ascii_digit()).min(*max);
            let fits = |count: &usize| {
                let number = text[at..at + count]
                    .iter()
                    .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
                (*low..=*high).contains(&number)
            };
            (*min..=digits).filter(fits).filter_map(|count| then(at + count)).max()
        }
        Letters(min, max) => then(letters(*min, *max, |byte| byte.is_ascii_alphabetic())?),
        Small(min, max) => then(letters(*min, *max, |byte| byte.is_ascii_lowercase())?),
        Capital => then(letters(1, 1, |byte| byte.is_ascii_uppercase())?),
        Optional(inner) => end_of(inner, text, at, &then).max(then(at)),
        Either(ways) => ways.iter().filter_map(|way| end_of(way, text, at, &then)).max(),
        Repeated(inner) => {
            let mut end = end_of(inner, text, at, &Some)?;
            for _ in 0..LONGEST_RUN {
                let Some(further) = end_of(inner, text, end, &Some) else { break };
                end = further;
            }
            then(end)
        }
    }
}

/// Whether a text of these pieces may begin with a byte.
fn may_begin(pieces: &[Piece], byte: u8) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return false };
    let exactly = |word: &str| word.as_bytes()[0] == byte;
    let either_case = |word: &str| word.as_bytes()[0].eq_ignore_ascii_case(&byte);
    match first {
        Exact(word) => exactly(word),
        OfExact(words) => words.iter().any(|word| exactly(word)),
        Word(word) => either_case(word),
        Of(words) => words.iter().any(|word| either_case(word)),
        One(set) => set.contains(&byte),
        Maybe(set) | Any(set) => set.contains(&byte) || may_begin(rest, byte),
        Number(..) => byte.is_ascii_digit(),
        Letters(..) | Small(..) | Capital => byte.is_ascii_alphabetic(),
        Optional(inner) => may_begin(inner, byte) || may_begin(rest, byte),
        Either(ways) => ways.iter().any(|way| may_begin(way, byte)),
        Repeated(inner) => may_begin(inner, byte),
    }
}

/// The tokens that may begin with each byte.
static BY_FIRST_BYTE: LazyLock<Vec<Vec<&(Form, &[Piece])>>> = LazyLock::new(|| {
    let beginning = |byte| TOKENS.iter().filter(|(_, pieces)| may_begin(pieces, byte)).collect();
    (0..=u8::MAX).map(beginning).collect()
});

/// Finds the token at a position: its form and its end.
pub(super) fn token(text: &[u8], at: usize) -> Option<(Form, usize)> {
    let mut found: Option<(Form, usize)> = None;
    for (form, pieces) in &BY_FIRST_BYTE[usize::from(*text.get(at)?)] {
        let end = end_of(pieces, text, at, &Some);
        if let Some(end) = end.filter(|end| found.is_none_or(|(_, longest)| *end > longest)) {
            found = Some((*form, end));
        }
    }
    found
}

/// The form of a token: the parts of a date that it consists of, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Yesterday,
    Now,
    Noon,
    Midnight,
    Tomorrow,
    /// Seconds since 1970, and their fraction.
    Timestamp,
    /// The first or the last day of the month.
    DayOf,
    /// A quarter before or after an hour.
    Around,
    /// A day of the week in the month.
    WeekdayOf,
    /// A time with `am` or `pm`.
    Time12,
    Time24,
    /// Four digits: a time, or the year after a time.
    TimeOrYear,
    TimeWithoutColons,
    MonthDayYear,
    YearMonthDay,
    YearMonth,
    DayMonthYear,
    DayNameYear,
    NameYear,
    YearName,
    NameDayYear,
    DayName,
    YearMonthDayTime,
    YearDay,
    IsoWeek,
    YearNameDay,
    /// The form of the logs of web servers.
    DayNameYearTime,
    Year,
    Ago,
    Weekday,
    RelativeWeek,
    RelativeText,
    Name,
    Zone,
    NameDayTime12,
    NameDayTime24,
    Relative,
}

pub(super) const BLANKS: &[u8] = b" \t";
const COLONS: &[u8] = b":.";
const GAP: &[u8] = b" \t.-";

const HOUR: Piece = Number(1, 2, 0, 24);
const TWO_HOUR: Piece = Number(2, 2, 0, 24);
const HOUR_12: Piece = Number(1, 2, 1, 12);
const MINUTE: Piece = Number(1, 2, 0, 59);
const TWO_MINUTE: Piece = Number(2, 2, 0, 59);
const SECOND: Piece = Number(1, 2, 0, 60);
const TWO_SECOND: Piece = Number(2, 2, 0, 60);
const MONTH: Piece = Number(1, 2, 0, 12);
const TWO_MONTH: Piece = Number(2, 2, 0, 12);
const BARE_DAY: Piece = Number(1, 2, 0, 31);
const TWO_DAY: Piece = Number(2, 2, 0, 31);
const DAY_OF_YEAR: Piece = Number(3, 3, 1, 366);
const YEAR: Piece = Number(1, 4, 0, 9999);
const YEAR_2: Piece = Number(2, 2, 0, 99);
const YEAR_4: Piece = Number(4, 4, 0, 9999);
const ISO_WEEK: Piece = Number(2, 2, 1, 53);
const DIGITS: &[u8] = b"0123456789";
const FRACTION: &[Piece] = &[One(b"."), One(DIGITS), Any(DIGITS)];

/// A day with or without its ending: `1st`.
const DAY: Piece = Either(&[&[BARE_DAY], &[BARE_DAY, OfExact(&["st", "nd", "rd", "th"])]]);
/// `am` or `pm`, and the end of the word.
const MERIDIAN: Piece =
    Either(&[&[Any(BLANKS), One(b"AaPp"), Maybe(b"."), One(b"Mm"), Maybe(b"."), One(b"\0\t ")]]);
const OFFSET: Piece = Either(&[&[Exact("GMT"), SIGNED_OFFSET], &[SIGNED_OFFSET]]);
const SIGNED_OFFSET: Piece = Either(&[
    &[One(b"+-"), HOUR],
    &[One(b"+-"), HOUR, Maybe(b":"), MINUTE],
    &[One(b"+-"), TWO_HOUR, TWO_MINUTE, TWO_SECOND],
    &[One(b"+-"), TWO_HOUR, One(b":"), TWO_MINUTE, One(b":"), TWO_SECOND],
]);
const ZONE: Piece = Either(&[
    &[Maybe(b"("), Letters(1, 6), Maybe(b")")],
    &[Capital, Small(1, LONGEST_RUN), Repeated(&[One(b"_/-"), Letters(1, LONGEST_RUN)])],
    &[OFFSET],
]);
const SHORT_NAME: Piece = Of(&MONTHS_SHORT);
const PLAIN_NAME: Piece = Either(&[&[Of(&MONTHS_LONG)], &[SHORT_NAME]]);
/// The name of a month, or its Roman number.
const NAME: Piece = Either(&[&[PLAIN_NAME], &[OfExact(&MONTHS_ROMAN)]]);

const TIME_24: Piece = Either(&[
    &[Maybe(b"tT"), HOUR, One(COLONS), MINUTE],
    &[Maybe(b"tT"), HOUR, One(COLONS), MINUTE, One(COLONS), SECOND],
]);
const TIME_24_FRACTION: Piece =
    Either(&[&[Maybe(b"tT"), HOUR, One(COLONS), MINUTE, One(COLONS), SECOND, Either(&[FRACTION])]]);
const TIME_24_ZONE: Piece = Either(&[&[
    Maybe(b"tT"),
    HOUR,
    One(COLONS),
    MINUTE,
    One(COLONS),
    TWO_SECOND,
    Any(BLANKS),
    ZONE,
]]);
const TIME_12: Piece = Either(&[
    &[HOUR_12, One(COLONS), TWO_MINUTE, MERIDIAN],
    &[HOUR_12, One(COLONS), MINUTE, One(COLONS), TWO_SECOND, MERIDIAN],
]);
/// The bytes that may separate a day from the year.
const AFTER_DAY: &[u8] = b",.stndrh\t ";
const DAY_NAME: Piece = Either(&[
    &[NAME, Any(GAP), DAY, One(AFTER_DAY), Any(AFTER_DAY)],
    &[NAME, Any(GAP), DAY, One(b"\0")],
]);
const NUMBER: Piece = Either(&[&[Any(b"+-"), Any(BLANKS), Number(1, 13, 0, u64::MAX)]]);

const ANY_WEEKDAY: Piece = Either(&[&[Of(&WEEKDAYS)], &[Of(&WORKDAYS)]]);
const UNIT: Piece = Either(&[&[Of(&UNITS)], &[ANY_WEEKDAY]]);

/// The tokens, by precedence among those of one length.
const TOKENS: &[(Form, &[Piece])] = &[
    (Form::Yesterday, &[Word("yesterday")]),
    (Form::Now, &[Word("now")]),
    (Form::Noon, &[Word("noon")]),
    (Form::Midnight, &[Of(&["midnight", "today"])]),
    (Form::Tomorrow, &[Word("tomorrow")]),
    (Form::Timestamp, &[One(b"@"), Maybe(b"-"), One(DIGITS), Any(DIGITS)]),
    (
        Form::Timestamp,
        &[
            One(b"@"),
            Maybe(b"-"),
            One(DIGITS),
            Any(DIGITS),
            One(b"."),
            Optional(&[Number(1, 6, 0, u64::MAX)]),
        ],
    ),
    (Form::DayOf, &[Of(&["first day of", "last day of"])]),
    (Form::Around, &[Of(&["back of ", "front of "]), HOUR, Optional(&[MERIDIAN])]),
    (
        Form::WeekdayOf,
        &[
            Either(&[&[Of(&ORDINALS)], &[Of(&DIRECTIONS)]]),
            One(BLANKS),
            Any(BLANKS),
            Of(&WEEKDAYS),
            One(BLANKS),
            Any(BLANKS),
            Word("of"),
        ],
    ),
    (Form::Time12, &[Either(&[&[HOUR_12, MERIDIAN], &[TIME_12]])]),
    (
        Form::Time12,
        &[
            HOUR_12,
            One(b":"),
            TWO_MINUTE,
            One(b":"),
            TWO_SECOND,
            One(COLONS),
            One(DIGITS),
            Any(DIGITS),
            One(b"AaPp"),
            Maybe(b"."),
            One(b"Mm"),
            Maybe(b"."),
            One(b"\0\t "),
        ],
    ),
    (Form::Time24, &[Either(&[&[One(b"tT"), HOUR], &[TIME_24], &[TIME_24_FRACTION]])]),
    (Form::TimeOrYear, &[Maybe(b"tT"), TWO_HOUR, TWO_MINUTE]),
    (Form::TimeWithoutColons, &[Maybe(b"tT"), TWO_HOUR, TWO_MINUTE, TWO_SECOND]),
    (Form::MonthDayYear, &[MONTH, One(b"/"), DAY, Optional(&[One(b"/"), YEAR])]),
    (
        Form::YearMonthDay,
        &[Either(&[
            &[Maybe(b"+-"), YEAR_4, One(b"-"), TWO_MONTH, One(b"-"), TWO_DAY],
            &[YEAR_4, One(b"/"), TWO_MONTH, One(b"/"), TWO_DAY, Maybe(b"/")],
            &[YEAR_4, One(b"/"), MONTH, One(b"/"), DAY],
            &[YEAR_2, One(b"-"), TWO_MONTH, One(b"-"), TWO_DAY],
            &[One(b"+-"), Number(5, 19, 0, u64::MAX), One(b"-"), TWO_MONTH, One(b"-"), TWO_DAY],
        ])],
    ),
    (Form::YearMonth, &[YEAR_4, One(b"-"), MONTH]),
    (Form::YearMonthDay, &[YEAR, One(b"-"), MONTH, One(b"-"), DAY]),
    (Form::DayNameYear, &[DAY, Any(GAP), NAME, Any(GAP), YEAR]),
    (
        Form::DayMonthYear,
        &[Either(&[
            &[DAY, One(b".\t-"), MONTH, One(b".-"), YEAR_4],
            &[DAY, One(b".\t"), MONTH, One(b"."), YEAR_2],
        ])],
    ),
    (Form::NameYear, &[NAME, Any(GAP), YEAR_4]),
    (Form::YearName, &[YEAR_4, Any(GAP), NAME]),
    (Form::NameDayYear, &[NAME, Any(GAP), DAY, One(AFTER_DAY), Any(AFTER_DAY), YEAR]),
    (Form::NameDayYear, &[DAY_NAME]),
    (Form::DayName, &[DAY, Any(GAP), NAME]),
    (Form::YearMonthDay, &[YEAR_4, TWO_MONTH, TWO_DAY]),
    (
        Form::YearMonthDayTime,
        &[Either(&[
            &[
                YEAR_4,
                TWO_MONTH,
                TWO_DAY,
                Exact("T"),
                HOUR,
                One(b":"),
                TWO_MINUTE,
                One(b":"),
                TWO_SECOND,
            ],
            &[YEAR_4, TWO_MONTH, TWO_DAY, One(b"tT"), HOUR, TWO_MINUTE, TWO_SECOND],
            &[
                YEAR_4,
                One(b"-"),
                TWO_MONTH,
                One(b"-"),
                TWO_DAY,
                Exact("T"),
                TWO_HOUR,
                One(b":"),
                TWO_MINUTE,
                One(b":"),
                TWO_SECOND,
                Either(&[FRACTION]),
                Optional(&[OFFSET]),
            ],
            &[
                YEAR_4,
                One(b":"),
                TWO_MONTH,
                One(b":"),
                TWO_DAY,
                One(b" "),
                TWO_HOUR,
                One(b":"),
                TWO_MINUTE,
                One(b":"),
                TWO_SECOND,
            ],
            &[
                YEAR_4,
                One(b"-"),
                MONTH,
                One(b"-"),
                DAY,
                Exact("T"),
                HOUR,
                One(b":"),
                MINUTE,
                One(b":"),
                SECOND,
            ],
        ])],
    ),
    (Form::YearDay, &[YEAR_4, Maybe(b".-"), DAY_OF_YEAR]),
    (
        Form::IsoWeek,
        &[YEAR_4, Maybe(b"-"), Exact("W"), ISO_WEEK, Optional(&[Maybe(b"-"), Number(1, 1, 0, 7)])],
    ),
    (Form::NameDayYear, &[SHORT_NAME, One(b"-"), TWO_DAY, One(b"-"), YEAR]),
    (Form::YearNameDay, &[YEAR, One(b"-"), SHORT_NAME, One(b"-"), TWO_DAY]),
    (
        Form::DayNameYearTime,
        &[
            DAY,
            One(b"/"),
            SHORT_NAME,
            One(b"/"),
            YEAR_4,
            One(b":"),
            TWO_HOUR,
            One(b":"),
            TWO_MINUTE,
            One(b":"),
            TWO_SECOND,
            One(BLANKS),
            Any(BLANKS),
            OFFSET,
        ],
    ),
    (Form::Year, &[YEAR_4]),
    (Form::Ago, &[Word("ago")]),
    (Form::Weekday, &[ANY_WEEKDAY]),
    (Form::RelativeWeek, &[Of(&DIRECTIONS), One(BLANKS), Any(BLANKS), Word("week")]),
    (
        Form::RelativeText,
        &[
            Repeated(&[Either(&[&[Of(&ORDINALS)], &[Of(&DIRECTIONS)]])]),
            One(BLANKS),
            Any(BLANKS),
            UNIT,
        ],
    ),
    (Form::Name, &[PLAIN_NAME]),
    (Form::Zone, &[ZONE]),
    (Form::NameDayTime12, &[DAY_NAME, TIME_12]),
    (Form::NameDayTime24, &[DAY_NAME, Either(&[&[TIME_24], &[TIME_24_ZONE]])]),
    (Form::Relative, &[NUMBER, Any(BLANKS), Either(&[&[UNIT], &[Word("week")]])]),
];

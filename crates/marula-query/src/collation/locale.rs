//! The locales that mongod 6.0 accepts, and their ICU4X counterparts.
//!
//! A name consists of a language, an optional script or region, and an optional kind of order:
//! `zh_Hant@collation=pinyin`. ICU4X's data omits the orders for searching (`search`, `searchjl`)
//! and those of two old character sets (`big5han`, `gb2312han`); these fall back to the language's
//! usual order.

use icu_locale_core::Locale as IcuLocale;

/// All languages and languages with region or script. Source: mongod 6.0, tested with every
/// two-letter code and the usual regions.
const LOCALES: &[&str] = &[
    "af",
    "am",
    "ar",
    "as",
    "az",
    "be",
    "bg",
    "bn",
    "bo",
    "bs",
    "bs_Cyrl",
    "ca",
    "chr",
    "cs",
    "cy",
    "da",
    "de",
    "de_AT",
    "dsb",
    "dz",
    "ee",
    "el",
    "en",
    "en_US",
    "en_US_POSIX",
    "eo",
    "es",
    "et",
    "fa",
    "fa_AF",
    "fi",
    "fil",
    "fo",
    "fr",
    "fr_CA",
    "ga",
    "gl",
    "gu",
    "ha",
    "haw",
    "he",
    "hi",
    "hr",
    "hsb",
    "hu",
    "hy",
    "id",
    "ig",
    "is",
    "it",
    "ja",
    "ka",
    "kk",
    "kl",
    "km",
    "kn",
    "ko",
    "kok",
    "ky",
    "lb",
    "lkt",
    "ln",
    "lo",
    "lt",
    "lv",
    "mk",
    "ml",
    "mn",
    "mr",
    "ms",
    "mt",
    "my",
    "nb",
    "ne",
    "nl",
    "nn",
    "om",
    "or",
    "pa",
    "pl",
    "ps",
    "pt",
    "ro",
    "ru",
    "se",
    "si",
    "sk",
    "sl",
    "smn",
    "sq",
    "sr",
    "sr_Latn",
    "sv",
    "sw",
    "ta",
    "te",
    "th",
    "to",
    "tr",
    "ug",
    "uk",
    "ur",
    "vi",
    "wae",
    "yi",
    "yo",
    "zh",
    "zh_Hant",
    "zu",
];

/// The kinds of order that every locale has.
const KINDS: &[&str] = &["emoji", "eor", "search"];

/// The additional kinds of order of some locales.
const OWN_KINDS: &[(&str, &[&str])] = &[
    ("ar", &["compat"]),
    ("bn", &["traditional"]),
    ("de", &["phonebook"]),
    ("de_AT", &["phonebook"]),
    ("es", &["traditional"]),
    ("fi", &["traditional"]),
    ("ja", &["unihan"]),
    ("kn", &["traditional"]),
    ("ko", &["searchjl", "unihan"]),
    ("ln", &["phonetic"]),
    ("si", &["dictionary"]),
    ("sv", &["standard"]),
    ("vi", &["traditional"]),
    ("zh", &["big5han", "gb2312han", "standard", "stroke", "unihan", "zhuyin"]),
    ("zh_Hant", &["big5han", "gb2312han", "pinyin", "standard", "unihan", "zhuyin"]),
];

/// Languages with the root's order, for which ICU4X supports a reversed second level.
const PLAIN: &[&str] =
    &["de", "en", "en_US", "fr", "fr_CA", "ga", "id", "it", "lb", "ms", "nl", "pt", "sw", "zu"];

/// A supported locale.
pub(super) struct Locale {
    base: &'static str,
    kind: Option<&'static str>,
}

impl Locale {
    /// The locale with exactly this name.
    pub(super) fn find(name: &str) -> Option<Locale> {
        let (base, kind) = split(name);
        let base = LOCALES.iter().find(|known| **known == base)?;
        match kind {
            None => Some(Locale { base, kind: None }),
            Some(kind) => Some(Locale { base, kind: Some(find_kind(base, kind)?) }),
        }
    }

    /// Returns whether the language reverses the second level by default.
    pub(super) fn is_backwards(&self) -> bool {
        self.base == "fr_CA"
    }

    /// The ICU4X locale; `None` if it cannot reverse the second level.
    pub(super) fn icu(&self, backwards: bool) -> Option<IcuLocale> {
        let plain = self.kind.is_none() && PLAIN.contains(&self.base);
        let base = match (self.base, backwards) {
            // Canadian French is the root's order with a reversed second level.
            (_, true) if plain || self.is_backwards() => "fr-CA",
            (_, true) => return None,
            ("fr_CA", false) => "fr",
            ("en_US_POSIX", false) => "en-US-u-va-posix",
            (base, false) => base,
        };
        let mut name = base.replace('_', "-");
        if let Some(kind) = self.kind {
            name.push_str(if name.contains("-u-") { "-co-" } else { "-u-co-" });
            name.push_str(unicode_kind(kind));
        }
        Some(name.parse().expect("every name in the tables is well-formed"))
    }
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once("@collation=") {
        Some((base, kind)) => (base, Some(kind)),
        None => (name, None),
    }
}

fn find_kind(base: &str, kind: &str) -> Option<&'static str> {
    let own = OWN_KINDS.iter().find(|(known, _)| *known == base).map_or(&[][..], |(_, own)| own);
    KINDS.iter().chain(own).find(|known| **known == kind).copied()
}

/// The short name of a kind of order in locale extensions.
fn unicode_kind(kind: &str) -> &str {
    match kind {
        "phonebook" => "phonebk",
        "traditional" => "trad",
        "dictionary" => "dict",
        "gb2312han" => "gb2312",
        "phonetic" => "phonetic",
        other => other,
    }
}

/// The closest valid name to an invalid locale: the same language, with region and kind if they
/// exist.
pub(super) fn similar(name: &str) -> Option<String> {
    let (base, kind) = split(name);
    let base = base.split('@').next().unwrap_or_default().replace('-', "_");
    let known = |name: &str| LOCALES.iter().find(|known| known.eq_ignore_ascii_case(name));
    let mut base = &*base;
    let found = loop {
        match known(base) {
            Some(found) => break found,
            None => base = &base[..base.rfind('_')?],
        }
    };
    match kind.map(str::trim).and_then(|kind| find_kind(found, kind)) {
        Some(kind) => Some(format!("{found}@collation={kind}")),
        None => Some((*found).to_owned()),
    }
}

//! Collations: the order of strings in a language, by ICU.
//!
//! [`Collation::parse`] parses the document of a command, with MongoDB's names and defaults, and
//! checks it as mongod 6.0 does. ICU4X implements it, with CLDR's data built in. Every option is
//! set explicitly on the collator, so that a locale's own defaults (Danish sorts upper case first)
//! have no effect, as in mongod.

mod locale;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use bstr::{BStr, ByteSlice};
use icu_collator::options::{
    AlternateHandling, CaseLevel, CollatorOptions, MaxVariable as IcuMaxVariable, Strength,
};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use marula_bson::{Collator, Doc, DocBuf, Element, Value};
use marula_error::{Result, errors};

use crate::expression::saturated_long;
use crate::once::{duplicate_field, unknown_field};

/// The collator version that mongod 6.0 prints and accepts: its ICU version.
const VERSION: &str = "57.1";

errors! {
    /// The locale is missing.
    locale_missing(field: &str) = 40414, "BSON field '{field}.locale' is missing but a required field";
    /// A field has a value of the wrong type.
    wrong_type(field: &str, name: &str, found: &str, wanted: &str) = TypeMismatch, "BSON field '{field}.{name}' is the wrong type '{found}', expected {wanted}";
    /// `backwards` is not a boolean.
    backwards_wrong_type(found: &str) = TypeMismatch, "Field 'backwards' should be a boolean value, but found: {found}";
    /// An option has an unknown value.
    not_a_value(value: &BStr, field: &str) = BadValue, "Enumeration value '{value}' for field '{field}' is not a valid value.";
    /// `strength` is above five.
    strength_too_great(value: i32) = 51024, "BSON field 'strength' value must be <= 5, actual value '{value}'";
    /// `strength` is negative.
    strength_negative(value: i32) = 51024, "BSON field 'strength' value must be >= 0, actual value '{value}'";
    /// The locale is the empty string.
    locale_empty(spec: &Doc<'_>) = BadValue, "Field 'locale' cannot be the empty string in: {spec}";
    /// The locale contains a NUL byte.
    locale_with_nul(spec: &Doc<'_>) = BadValue, "Field 'locale' cannot contain null byte. Collation spec: {spec}";
    /// ICU does not have the locale.
    locale_invalid(spec: &Doc<'_>, hint: &str) = BadValue, "Field 'locale' is invalid in: {spec}{hint}";
    /// The requested version differs.
    version_other(version: &BStr, spec: &Doc<'_>) = IncompatibleCollationVersion, "Requested collation version {version} but the only available collator version was {VERSION}. Requested collation spec: {spec}";
    /// `backwards` reverses the second level, which strength 1 ignores.
    backwards_without_accents(spec: &Doc<'_>) = BadValue, "'backwards' is invalid with 'strength' of 1 in: {spec}";
    /// `caseFirst` orders case, which the options ignore.
    case_first_without_case(spec: &Doc<'_>) = BadValue, "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: {spec}";
    /// ICU4X supports the reversed second level only for locales without rules of their own.
    backwards_not_implemented(locale: &str) = NotImplemented, "collation with 'backwards' is not implemented for locale '{locale}'";
}

/// A parsed collation document and its ICU collator.
#[derive(Clone)]
pub struct Collation(Arc<Inner>);

struct Inner {
    spec: DocBuf,
    icu: CollatorBorrowed<'static>,
}

impl Collation {
    /// Parses a collation document; `None` is the simple binary order, `{ locale: "simple" }`.
    ///
    /// Shape: `{ locale, caseLevel, caseFirst, strength, numericOrdering, alternate, maxVariable,
    /// normalization, backwards, version }`, of which only `locale` is required. `field` names the
    /// document in errors, such as `find.collation`. Errors about well-formed options quote the
    /// document as given.
    pub fn parse(doc: Doc<'_>, field: &str) -> Result<Option<Collation>> {
        Options::parse(doc, field)?.into_collation(doc)
    }

    /// [`Collation::parse`] for `create`: errors quote the document with its defaults filled in.
    pub fn parse_completed(doc: Doc<'_>, field: &str) -> Result<Option<Collation>> {
        let options = Options::parse(doc, field)?;
        let completed = options.to_doc(options.backwards, options.version);
        options.into_collation(completed.as_doc())
    }

    /// Checks only the names and the values of the options, not whether they can be combined, nor
    /// whether there is such a locale.
    ///
    /// Errors: those of [`Collation::parse`].
    pub fn check_form(doc: Doc<'_>, field: &str) -> Result<()> {
        Options::parse(doc, field).map(drop)
    }

    /// The whole document with all defaults, as printed by `listCollections`.
    pub fn to_doc(&self) -> Doc<'_> {
        self.0.spec.as_doc()
    }

    /// The collator for the order of BSON values.
    pub fn collator(&self) -> &dyn Collator {
        &*self.0
    }
}

impl Collator for Inner {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.icu.compare_utf8(a, b)
    }

    fn sort_key(&self, text: &[u8], out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let Ok(()) = self.icu.write_sort_key_utf8_to(text, out);
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        self.0.spec == other.0.spec
    }
}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collation({})", self.to_doc())
    }
}

/// The options with defaults filled in.
struct Options<'a> {
    locale: &'a BStr,
    case_level: bool,
    case_first: CaseFirst,
    strength: i32,
    numeric_ordering: bool,
    alternate: Alternate,
    max_variable: MaxVariable,
    normalization: bool,
    backwards: Option<bool>,
    version: Option<&'a BStr>,
}

/// Declares the values of an option with named values; the first is the default.
macro_rules! choice {
    ($name:ident { $($variant:ident = $text:literal),* }) => {
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum $name { $($variant),* }

        impl $name {
            const fn text(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            fn of(text: &[u8]) -> Option<Self> {
                [$($name::$variant),*].into_iter().find(|value| value.text().as_bytes() == text)
            }
        }
    };
}

choice!(CaseFirst { Off = "off", Upper = "upper", Lower = "lower" });
choice!(Alternate { NonIgnorable = "non-ignorable", Shifted = "shifted" });
choice!(MaxVariable { Punct = "punct", Space = "space" });

impl<'a> Options<'a> {
    fn parse(doc: Doc<'a>, field: &str) -> Result<Self> {
        let mut options = Options {
            locale: BStr::new(""),
            case_level: false,
            case_first: CaseFirst::Off,
            strength: 3,
            numeric_ordering: false,
            alternate: Alternate::NonIgnorable,
            max_variable: MaxVariable::Punct,
            normalization: false,
            backwards: None,
            version: None,
        };
        let mut locale = None;
        for (index, element) in doc.iter().enumerate() {
            let (name, value) = (element.name, element.value.get());
            // A null option counts as absent, but its name is checked; `backwards` is not nullable.
            let given = !value.is_nullish() || name == "backwards";
            // A wrong type is reported first, except for `backwards`. An option has one type, but
            // for numbers.
            let is_same = |earlier: &Element<'_>| {
                let kinds = [earlier.value.kind(), element.value.kind()];
                let is_of_type = kinds[0] == kinds[1]
                    || kinds.iter().all(|kind| kind.is_number())
                    || name == "backwards";
                earlier.name == name && is_of_type
            };
            if given && doc.iter().take(index).any(|earlier| is_same(&earlier)) {
                return Err(duplicate_field(field, name));
            }
            match name.as_bytes() {
                b"locale" if given => locale = Some(string(field, "locale", value)?),
                b"caseLevel" if given => options.case_level = boolean(field, "caseLevel", value)?,
                b"caseFirst" if given => {
                    options.case_first = word(field, "caseFirst", value, CaseFirst::of)?;
                }
                b"strength" if given => options.strength = strength(field, value)?,
                b"numericOrdering" if given => {
                    options.numeric_ordering = boolean(field, "numericOrdering", value)?;
                }
                b"alternate" if given => {
                    options.alternate = word(field, "alternate", value, Alternate::of)?;
                }
                b"maxVariable" if given => {
                    options.max_variable = word(field, "maxVariable", value, MaxVariable::of)?;
                }
                b"normalization" if given => {
                    options.normalization = boolean(field, "normalization", value)?;
                }
                b"backwards" => options.backwards = Some(backwards(value)?),
                b"version" if given => options.version = Some(string(field, "version", value)?),
                b"locale" | b"caseLevel" | b"caseFirst" | b"strength" | b"numericOrdering"
                | b"alternate" | b"maxVariable" | b"normalization" | b"version" => {}
                _ => return Err(unknown_field(field, name)),
            }
        }
        options.locale = locale.ok_or_else(|| locale_missing(field))?;
        Ok(options)
    }

    /// The collation; errors about the combination of options quote `spec`.
    fn into_collation(self, spec: Doc<'_>) -> Result<Option<Collation>> {
        if self.locale == "simple" {
            return Ok(None);
        }
        let locale = self.check(spec)?;
        let backwards = self.backwards.unwrap_or(locale.is_backwards());
        let icu = self.collator(&locale, backwards)?;
        let spec = self.to_doc(Some(backwards), Some(VERSION.into()));
        Ok(Some(Collation(Arc::new(Inner { spec, icu }))))
    }

    /// Checks the combination of options and finds the locale.
    fn check(&self, spec: Doc<'_>) -> Result<locale::Locale> {
        let spec = &spec;
        if self.locale.is_empty() {
            return Err(locale_empty(spec));
        }
        if self.locale.contains(&0) {
            return Err(locale_with_nul(spec));
        }
        let locale = self.locale.to_str().ok().and_then(locale::Locale::find);
        let Some(locale) = locale else {
            let hint = locale::similar(&self.locale.to_str_lossy());
            let hint = hint.map(|name| format!(". Did you mean '{name}'?")).unwrap_or_default();
            return Err(locale_invalid(spec, &hint));
        };
        if let Some(version) = self.version.filter(|version| *version != VERSION) {
            return Err(version_other(version, spec));
        }
        if self.backwards == Some(true) && self.strength == 1 {
            return Err(backwards_without_accents(spec));
        }
        if self.case_first != CaseFirst::Off && !self.case_level && self.strength < 3 {
            return Err(case_first_without_case(spec));
        }
        Ok(locale)
    }

    fn to_doc(&self, backwards: Option<bool>, version: Option<&BStr>) -> DocBuf {
        DocBuf::build(|out| {
            out.append("locale", Value::String(self.locale))
                .append("caseLevel", self.case_level)
                .append("caseFirst", self.case_first.text())
                .append("strength", self.strength)
                .append("numericOrdering", self.numeric_ordering)
                .append("alternate", self.alternate.text())
                .append("maxVariable", self.max_variable.text())
                .append("normalization", self.normalization);
            if let Some(backwards) = backwards {
                out.append("backwards", backwards);
            }
            if let Some(version) = version {
                out.append("version", Value::String(version));
            }
        })
    }

    fn collator(
        &self,
        locale: &locale::Locale,
        backwards: bool,
    ) -> Result<CollatorBorrowed<'static>> {
        let mut options = CollatorOptions::default();
        options.strength = Some(match self.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        options.case_level = Some(if self.case_level { CaseLevel::On } else { CaseLevel::Off });
        options.alternate_handling = Some(match self.alternate {
            Alternate::NonIgnorable => AlternateHandling::NonIgnorable,
            Alternate::Shifted => AlternateHandling::Shifted,
        });
        options.max_variable = Some(match self.max_variable {
            MaxVariable::Punct => IcuMaxVariable::Punctuation,
            MaxVariable::Space => IcuMaxVariable::Space,
        });
        let Some(locale) = locale.icu(backwards) else {
            return Err(backwards_not_implemented(&self.locale.to_str_lossy()));
        };
        let mut preferences = CollatorPreferences::from(&locale);
        preferences.case_first = Some(match self.case_first {
            CaseFirst::Off => CollationCaseFirst::False,
            CaseFirst::Upper => CollationCaseFirst::Upper,
            CaseFirst::Lower => CollationCaseFirst::Lower,
        });
        preferences.numeric_ordering = Some(match self.numeric_ordering {
            true => CollationNumericOrdering::True,
            false => CollationNumericOrdering::False,
        });
        Ok(CollatorBorrowed::try_new(preferences, options)
            .expect("the data of every locale is compiled in, the root's at least"))
    }
}

fn string<'a>(field: &str, name: &str, value: Value<'a>) -> Result<&'a BStr> {
    value.as_str().ok_or_else(|| wrong_type(field, name, value.kind().alias(), "type 'string'"))
}

fn boolean(field: &str, name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(flag) => Ok(flag),
        other => Err(wrong_type(field, name, other.kind().alias(), "type 'bool'")),
    }
}

fn backwards(value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(flag) => Ok(flag),
        other => Err(backwards_wrong_type(other.kind().alias())),
    }
}

fn word<T>(
    field: &str,
    name: &str,
    value: Value<'_>,
    of: impl Fn(&[u8]) -> Option<T>,
) -> Result<T> {
    let text = string(field, name, value)?;
    of(text).ok_or_else(|| not_a_value(text, &format!("{field}.{name}")))
}

fn strength(field: &str, value: Value<'_>) -> Result<i32> {
    let wanted = "types '[long, int, decimal, double']";
    let number = saturated_long(value)
        .ok_or_else(|| wrong_type(field, "strength", value.kind().alias(), wanted))?;
    let end = if number < 0 { i32::MIN } else { i32::MAX };
    match i32::try_from(number).unwrap_or(end) {
        0 => Err(not_a_value(BStr::new("0"), "collation.strength")),
        strength if strength < 0 => Err(strength_negative(strength)),
        strength if strength > 5 => Err(strength_too_great(strength)),
        strength => Ok(strength),
    }
}

#[cfg(test)]
mod tests;

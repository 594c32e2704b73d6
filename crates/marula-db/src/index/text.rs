//! Text indexes: the specification as mongod completes it, and a key for each term of a document.
//!
//! A pattern `{ p: 1, a: "text", b: "text", s: 1 }` becomes `{ p: 1, _fts: "text", _ftsx: 1, s: 1
//! }` with the fields in the weights. A key consists of the fields before, the term, its score, and
//! the fields after.

use std::collections::BTreeMap;
use std::sync::Arc;

use marula_bson::{BStr, ByteSlice, Doc, DocBuf, DocWriter, FieldPath, Value, hex};
use marula_error::{Result, errors};
use marula_query::text::{MalformedTexts, Reading, TextFields, TextScores, TextVersion};
use marula_query::update::Touched;
use md5::{Digest as _, Md5};

use super::keys::{KeyMaker, KeySet};
use super::spec::{IndexSpec, KeyPart};

errors! {
    not_adjacent() = CannotCreateIndex, "'text' fields in index must all be adjacent";
    reserved_fields() = CannotCreateIndex, "text index with reserved fields _fts/_ftsx not allowed";
    no_score_field() = CannotCreateIndex, "expected _ftsx after _fts";
    bad_score_field() = CannotCreateIndex, "expecting _ftsx:1";
    bad_direction() = CannotCreateIndex, "expected value 1 or -1 for non-text key in compound index";
    weights_not_object() = CannotCreateIndex, "text index option 'weights' must be an object";
    no_weights() = CannotCreateIndex, "text index option 'weights' must specify fields or the wildcard";
    weight_not_number() = CannotCreateIndex, "weight for text index needs numeric type";
    weight_range(weight: i32) = CannotCreateIndex, "text index weight must be in the exclusive interval (0,100000) but found: {weight}";
    weight_empty_field() = CannotCreateIndex, "weight cannot be on an empty field";
    weight_empty_component() = CannotCreateIndex, "weight cannot have empty path component";
    weight_dollar() = CannotCreateIndex, "weight cannot have path component with $ prefix";
    bad_language() = CannotCreateIndex, "default_language is not valid";
    bad_override() = CannotCreateIndex, "language_override is not valid";
    bad_version(version: i64) = CannotCreateIndex, "bad textIndexVersion: {version}";
    array_beside(path: &str, doc: &Doc<'_>) = CannotBuildIndexKeys, "Field '{path}' of text index contains an array in document: {doc}";
}

/// The field that represents the term.
const TERM_FIELD: &[u8] = b"_fts";

/// The field that represents the score.
const SCORE_FIELD: &[u8] = b"_ftsx";

/// Represents every field.
const EVERY_FIELD: &[u8] = b"$**";

/// A term of more bytes than this is shortened in a key.
const TERM_BYTES_MAX: usize = 64;

/// The bytes of a longer term that are kept before its digest.
const TERM_BYTES_KEPT: usize = 32;

/// The fields and options of a text index.
#[derive(Clone)]
pub struct TextIndex {
    /// The fields that are searched.
    pub fields: Arc<TextFields>,
    /// The number of fields before the term.
    pub prefix: usize,
    /// The weights as shown.
    weights: BTreeMap<Vec<u8>, i32>,
    /// The default language as shown.
    language: String,
}

impl TextIndex {
    /// Completes the specification of a text index: returns the index, its key pattern as shown,
    /// and its fields.
    ///
    /// Errors: this module's rows.
    pub(super) fn resolve(key: Doc<'_>, spec: Doc<'_>) -> Result<(Self, DocBuf, Vec<KeyPart>)> {
        let (shown, texts, prefix) = complete_pattern(key)?;
        let version = version(spec.get("textIndexVersion"));
        // An invalid version is reported later.
        let known = *version.as_ref().unwrap_or(&TextVersion::Three);
        let weights = weights(&texts, spec.get("weights"), known)?;
        let named = spec.get("default_language");
        let (name, reading) = match named {
            // In version 1 an empty name counts as none.
            Some(Value::String(name)) if !(name.is_empty() && known == TextVersion::One) => {
                (name.to_string(), Reading::find(name, known).ok_or_else(bad_language)?)
            }
            _ => {
                let reading = Reading::default_of(known);
                (reading.name().to_owned(), reading)
            }
        };
        let language_override = match spec.get("language_override") {
            Some(Value::String(field)) => field.as_bytes().to_vec(),
            _ => b"language".to_vec(),
        };
        let is_path = language_override.is_empty()
            || language_override.starts_with(b"$")
            || language_override.contains(&b'.');
        if is_path && known != TextVersion::One {
            return Err(bad_override());
        }
        version?;
        let fields = TextFields {
            wildcard: weights.get(EVERY_FIELD).copied().map(f64::from),
            weights: (weights.iter())
                .filter(|(path, _)| *path != EVERY_FIELD)
                .map(|(path, weight)| (path.clone(), f64::from(*weight)))
                .collect(),
            reading,
            language_override,
        };
        let parts = shown
            .as_doc()
            .iter()
            .map(|element| KeyPart {
                path: FieldPath::new(element.name),
                descending: element.value.get().as_f64().is_some_and(|number| number < 0.0),
            })
            .collect();
        let index = TextIndex { fields: Arc::new(fields), prefix, weights, language: name };
        Ok((index, shown, parts))
    }

    /// Returns whether [`TextIndex::write_options`] writes this option.
    pub(super) fn is_option(name: &[u8]) -> bool {
        matches!(
            name,
            b"weights" | b"default_language" | b"language_override" | b"textIndexVersion"
        )
    }

    /// Adds the options of the kind to the stored specification.
    pub(super) fn write_options(&self, out: &mut DocWriter<'_>) {
        let mut weights = out.begin_doc("weights");
        for (path, weight) in &self.weights {
            weights.append(path, *weight);
        }
        drop(weights);
        out.append("default_language", self.language.as_str());
        out.append("language_override", BStr::new(&self.fields.language_override));
        out.append("textIndexVersion", self.version().number());
    }

    /// Returns whether an update of these paths may change the terms of a document.
    pub(super) fn is_touched(&self, touched: &Touched) -> bool {
        if self.fields.wildcard.is_some() {
            return true;
        }
        let name = &self.fields.language_override;
        self.fields.weights.keys().any(|path| {
            let levels = path.iter().enumerate().filter(|(_, byte)| **byte == b'.');
            // The language may be given next to the text, or next to any document that contains it.
            let mut named = levels
                .map(|(end, _)| [&path[..=end], name].concat())
                .chain([name.clone(), path.clone()]);
            named.any(|path| touched.may_affect(&FieldPath::new(path)))
        })
    }

    /// The version, which determines tokens, case folding and languages.
    pub fn version(&self) -> TextVersion {
        self.fields.reading.version()
    }

    /// Returns whether weights, language and language field are equal.
    pub(super) fn same_options(&self, other: &TextIndex) -> bool {
        self.weights == other.weights
            && self.language == other.language
            && self.fields.language_override == other.fields.language_override
    }
}

/// The version in a specification.
fn version(named: Option<Value<'_>>) -> Result<TextVersion> {
    let Some(number) = named.and_then(|number| number.as_f64()) else {
        return Ok(TextVersion::Three);
    };
    #[allow(clippy::cast_possible_truncation)]
    let (version, nearest) = (TextVersion::find(number as i64), number as i32);
    // A number outside the range of int is reported as the nearest int.
    version.ok_or_else(|| bad_version(i64::from(nearest)))
}

/// The pattern as shown, the searched fields, and the number of fields before them.
fn complete_pattern(key: Doc<'_>) -> Result<(DocBuf, Vec<Vec<u8>>, usize)> {
    let is_text = |value: Value<'_>| matches!(value, Value::String(_));
    let prefix = key.values().take_while(|value| !is_text(*value)).count();
    let after = key.iter().skip(prefix);
    let is_complete = after.clone().next().is_some_and(|field| *field.name == *TERM_FIELD);
    let text_count = after.clone().take_while(|field| is_text(field.value.get())).count();
    if is_complete {
        match after.clone().nth(1) {
            Some(score) if *score.name == *SCORE_FIELD => {
                if score.value.get().as_f64() != Some(1.0) {
                    return Err(bad_score_field());
                }
            }
            Some(other) if !is_text(other.value.get()) => {
                check_direction(other.value.get())?;
                return Err(no_score_field());
            }
            _ => return Err(no_score_field()),
        }
    }
    let stand_ins = if is_complete { 2 } else { text_count };
    let mut texts = Vec::new();
    for (position, field) in key.iter().enumerate() {
        let value = field.value.get();
        let is_stand_in = is_complete && (prefix..prefix + stand_ins).contains(&position);
        if is_stand_in {
            continue;
        }
        if [TERM_FIELD, SCORE_FIELD].contains(&field.name.as_bytes()) {
            return Err(reserved_fields());
        }
        if !is_text(value) {
            check_direction(value)?;
        } else if (prefix..prefix + stand_ins).contains(&position) {
            texts.push(field.name.to_vec());
        } else {
            return Err(not_adjacent());
        }
    }
    let shown = DocBuf::build(|out| {
        for (position, field) in key.iter().enumerate() {
            if position == prefix && !is_complete {
                out.append(TERM_FIELD, "text");
                out.append(SCORE_FIELD, 1);
            }
            if is_complete || !(prefix..prefix + stand_ins).contains(&position) {
                out.append_raw(field.name, field.value);
            }
        }
    });
    Ok((shown, texts, prefix))
}

fn check_direction(value: Value<'_>) -> Result<()> {
    match value.as_f64() {
        Some(number) if number.abs() == 1.0 => Ok(()),
        _ => Err(bad_direction()),
    }
}

/// The weights of the fields in the pattern and in the option. Version 1 accepts any path, and
/// treats a non-number as 0.
fn weights(
    texts: &[Vec<u8>],
    option: Option<Value<'_>>,
    version: TextVersion,
) -> Result<BTreeMap<Vec<u8>, i32>> {
    let is_lax = version == TextVersion::One;
    let mut weights: BTreeMap<Vec<u8>, i32> = texts.iter().map(|path| (path.clone(), 1)).collect();
    match option {
        None => {}
        Some(Value::Document(given)) => {
            for field in given {
                let value = field.value.get();
                let weight = match value {
                    _ if !value.kind().is_number() && !is_lax => return Err(weight_not_number()),
                    Value::Decimal128(_) => value.as_f64().map(f64::round_ties_even),
                    _ => value.as_f64(),
                };
                #[allow(clippy::cast_possible_truncation)]
                let weight = weight.unwrap_or_default() as i32;
                if weight <= 0 || weight >= 100_000 {
                    return Err(weight_range(weight));
                }
                weights.insert(field.name.to_vec(), weight);
            }
        }
        Some(Value::String(text)) if *text == *EVERY_FIELD => {
            weights.insert(EVERY_FIELD.to_vec(), 1);
        }
        Some(_) => return Err(weights_not_object()),
    }
    if weights.is_empty() {
        return Err(no_weights());
    }
    for path in weights.keys().filter(|path| *path != EVERY_FIELD && !is_lax) {
        if path.is_empty() {
            return Err(weight_empty_field());
        }
        for part in path.split(|&byte| byte == b'.') {
            if part.is_empty() {
                return Err(weight_empty_component());
            }
            if part.starts_with(b"$") {
                return Err(weight_dollar());
            }
        }
    }
    Ok(weights)
}

/// A term in the form used in keys: a long term is shortened and followed by a digest.
pub fn key_term(term: &str) -> Vec<u8> {
    if term.len() <= TERM_BYTES_MAX {
        return term.as_bytes().to_vec();
    }
    let mut key = term.as_bytes()[..TERM_BYTES_KEPT].to_vec();
    key.extend_from_slice(hex::text(&Md5::digest(term)).as_bytes());
    key
}

impl KeyMaker {
    /// Writes the keys of `doc`, unsorted.
    pub(super) fn make_text(
        &mut self,
        spec: &IndexSpec,
        text: &TextIndex,
        doc: Doc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        let beside = |range: std::ops::Range<usize>| -> Result<Vec<Value<'_>>> {
            spec.parts[range].iter().map(|part| value_beside(part, doc)).collect()
        };
        let before = beside(0..text.prefix)?;
        let after = beside(text.prefix + 2..spec.parts.len())?;
        let mut scores = TextScores::new();
        let malformed =
            if self.is_stored { MalformedTexts::Replace } else { MalformedTexts::Reject };
        text.fields.scores(doc, malformed, &mut scores)?;
        for (term, score) in &scores {
            keys.check_room()?;
            self.writer.reset(&[]);
            for (part, value) in spec.parts.iter().zip(&before) {
                self.writer.push(*value, part.descending, None);
            }
            let term = key_term(term);
            self.writer.push(Value::String(term.as_slice().into()), false, None);
            self.writer.push(Value::Double(*score), false, None);
            for (part, value) in spec.parts[text.prefix + 2..].iter().zip(&after) {
                self.writer.push(*value, part.descending, None);
            }
            self.finish_key(keys);
        }
        if scores.len() > 1 {
            keys.multikey.parts[text.prefix] = 1;
        }
        Ok(())
    }
}

fn is_place(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// The value of a field other than the texts; null if missing.
fn value_beside<'a>(part: &KeyPart, doc: Doc<'a>) -> Result<Value<'a>> {
    let mut value = Value::Document(doc);
    for name in part.path.parts() {
        value = match value {
            Value::Document(inner) => match inner.get(name) {
                Some(found) => found,
                None => return Ok(Value::Null),
            },
            // A number is an array position; any other name would lead into several elements.
            Value::Array(elements) if is_place(name) => match elements.get(name) {
                Some(found) => found,
                None => return Ok(Value::Null),
            },
            Value::Array(_) => break,
            _ => return Ok(Value::Null),
        };
    }
    match value {
        Value::Array(_) => Err(array_beside(&part.path.to_string(), &doc)),
        value => Ok(value),
    }
}

//! `$changeStreamSplitLargeEvent`: splits an event that is too large to send into *fragments*.
//!
//! The fields of an event are distributed in their order, the smaller ones first, over as few
//! documents as possible. Each has the event's `_id` with the fragment's number in it, and contains
//! its number and the number of fragments. Source: manual "$changeStreamSplitLargeEvent"; behaviour
//! of mongod 6.0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::source::Step;
use super::{Env, Parser, Source, Stage, StagePlace, StageRow};
use crate::feature_version::FeatureVersion;

pub(super) const NAME: &str = "$changeStreamSplitLargeEvent";

pub(super) const ROW: StageRow =
    StageRow { name: NAME, since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_empty() = 7182800, "$changeStreamSplitLargeEvent spec should be an empty object";
    /// The pipeline does not begin with a change stream.
    pub(super) not_in_stream() = IllegalOperation, "$changeStreamSplitLargeEvent can only be used in a $changeStream pipeline";
    pub(super) not_last() = 7182802, "$changeStreamSplitLargeEvent must be the last stage in the pipeline";
    not_split() = ChangeStreamFatalError, "Attempted to resume from a split event fragment, but the event in the resumed stream was not large enough to be split";
    too_large_field() = BSONObjectTooLarge, "a field of the event is too large to be sent by itself";
}

static SPLIT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of events split so far.
pub fn split_events() -> u64 {
    SPLIT.load(Ordering::Relaxed)
}

/// The maximum size of a fragment. Source: the largest document that mongod sends.
const FRAGMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Room for the fragment's own fields.
const OWN_FIELDS_BYTES: usize = 4 * 1024;

#[derive(Debug)]
struct SplitLargeEvent {
    /// The token after which the stream resumes.
    resumed: Option<String>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(doc) if doc.is_empty() => {
            let resumed = parser.resumed().map(str::to_uppercase);
            parser.push(SplitLargeEvent { resumed });
            Ok(())
        }
        _ => Err(not_empty()),
    }
}

impl Stage for SplitLargeEvent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn print(&self) -> ValueBuf {
        Value::Document(Doc::EMPTY).to_buf()
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        let resumed = self.resumed.clone();
        Ok(Box::new(Split { input, resumed, fragments: Vec::new().into_iter(), current: None }))
    }
}

struct Split {
    input: Box<dyn Source>,
    /// The token after which the stream resumes, until the first event.
    resumed: Option<String>,
    fragments: std::vec::IntoIter<DocBuf>,
    /// The current fragment; `None` if the event itself is current.
    current: Option<DocBuf>,
}

impl Source for Split {
    fn pull(&mut self) -> Result<Step> {
        if let Some(next) = self.fragments.next() {
            self.current = Some(next);
            return Ok(Step::Document);
        }
        self.current = None;
        let step = self.input.advance()?;
        if step != Step::Document {
            return Ok(step);
        }
        let event = self.input.doc();
        // The fragments up to this one were sent before.
        let sent = self.resumed.take().filter(|resumed| {
            token_of(event).is_some_and(|token| resumed.starts_with(body_of(&token)))
        });
        if event.as_bytes().len() + OWN_FIELDS_BYTES <= FRAGMENT_BYTES_MAX {
            return if sent.is_some() { Err(not_split()) } else { Ok(step) };
        }
        let mut fragments = split(event)?;
        SPLIT.fetch_add(1, Ordering::Relaxed);
        if let Some(sent) = sent {
            let is_sent =
                |fragment: &DocBuf| token_of(fragment.as_doc()).is_some_and(|it| it <= sent);
            fragments.retain(|fragment| !is_sent(fragment));
        }
        self.fragments = fragments.into_iter();
        match self.fragments.next() {
            Some(first) => {
                self.current = Some(first);
                Ok(step)
            }
            None => self.pull(),
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_ref().map_or_else(|| self.input.doc(), DocBuf::as_doc)
    }
}

/// Returns the fragments of an event.
fn split(event: Doc<'_>) -> Result<Vec<DocBuf>> {
    let mut fields: Vec<_> = event.iter().filter(|field| field.name != "_id").collect();
    fields.sort_by_key(|field| field.value.bytes().len());
    let mut parts: Vec<Vec<_>> = vec![Vec::new()];
    let mut bytes = OWN_FIELDS_BYTES;
    for field in fields {
        let size = field.name.len() + field.value.bytes().len() + 2;
        if size + OWN_FIELDS_BYTES > FRAGMENT_BYTES_MAX + 64 * 1024 {
            return Err(too_large_field());
        }
        if bytes + size > FRAGMENT_BYTES_MAX && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
            bytes = OWN_FIELDS_BYTES;
        }
        bytes += size;
        parts.last_mut().expect("there is one").push(field);
    }
    let of = i32::try_from(parts.len()).unwrap_or(i32::MAX);
    let fragments = parts.into_iter().zip(1..).map(|(fields, number)| {
        DocBuf::build(|out| {
            if let Some(id) = event.get("_id") {
                write_id(id, number - 1, out);
            }
            let mut place = out.begin_doc("splitEvent");
            place.append("fragment", number).append("of", of);
            drop(place);
            for field in fields {
                out.append_raw(field.name, field.value);
            }
        })
    });
    Ok(fragments.collect())
}

/// Writes the `_id` of a fragment: the event's token with the fragment's number instead of its end.
fn write_id(id: Value<'_>, fragment: i32, out: &mut marula_bson::DocWriter<'_>) {
    let Some(data) = data_of(id) else {
        out.append("_id", id);
        return;
    };
    let body = body_of(&data);
    let fragment = match fragment {
        0 => "29".to_owned(),
        number => format!("2B{:02X}", number << 1),
    };
    out.begin_doc("_id").append("_data", format!("{body}{fragment}{TOKEN_END}").as_str());
}

fn data_of(id: Value<'_>) -> Option<String> {
    Some(id.as_doc()?.get("_data")?.as_str()?.to_string())
}

fn token_of(event: Doc<'_>) -> Option<String> {
    data_of(event.get("_id")?)
}

/// Returns a token without its end: the common prefix of its fragments' tokens.
fn body_of(data: &str) -> &str {
    data.strip_suffix(TOKEN_END).unwrap_or(data)
}

/// The end of every token.
const TOKEN_END: &str = "04";

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn the_fragments_together_have_all_fields() {
        let large = "x".repeat(10 << 20);
        let event = doc! {
            "_id": { "_data": "8204" }, "a": 1, "b": large.as_str(), "c": 2, "d": large.as_str()
        };
        let fragments = split(event.as_doc()).unwrap();
        assert_eq!(fragments.len(), 2);
        let shown: Vec<Vec<String>> = fragments
            .iter()
            .map(|it| it.as_doc().iter().map(|field| field.name.to_string()).collect())
            .collect();
        assert_eq!(shown[0], ["_id", "splitEvent", "a", "c", "b"]);
        assert_eq!(shown[1], ["_id", "splitEvent", "d"]);
        let token = |at: usize| fragments[at].as_doc().get("_id").unwrap().to_string();
        assert!(token(0).contains("822904") && token(1).contains("822B0204"));
    }
}

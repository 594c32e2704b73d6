//! The five published comparisons of document stores, as steps that a runner takes on every server
//! in turn.
//!
//! A [`Comparison`] is a row of [`COMPARISONS`]; its file says what was published and turns a scale
//! into [`Step`]s. Steps hold no state of a server: keys and values follow from numbers and the
//! seed, so that every server gets the same requests and what it must answer is known.

use crate::operation::{Collection, Index, Operation, Shape};

mod mixed;
mod news;
mod products;
mod rows;
mod stock;

/// One comparison.
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What was published, and what scale 1 is.
    pub(crate) about: &'static str,
    pub(crate) groups: &'static [Group],
    pub(crate) steps: fn(&Sizes) -> Vec<Step>,
    /// How much memory the servers that are started get for their caches; `None`: what they choose
    /// themselves.
    pub(crate) cache_bytes: fn(&Sizes) -> Option<u64>,
}

/// All of them, in the order of their publication here.
pub(crate) static COMPARISONS: &[&Comparison] = &[
    &products::COMPARISON,
    &stock::COMPARISON,
    &news::COMPARISON,
    &rows::COMPARISON,
    &mixed::COMPARISON,
];

/// Steps that stand in the same charts.
pub(crate) struct Group {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) axis: Axis,
}

/// What the horizontal axis of a group's charts is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Axis {
    Connections,
    Rows,
    /// No axis: every step has a chart of its own, with a bar for each server.
    Steps,
}

/// How large a comparison is.
pub(crate) struct Sizes {
    pub(crate) scale: f64,
    /// Seconds of a step that is limited by time.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

impl Sizes {
    /// `full` times the scale, but not less than `least`.
    pub(crate) fn scaled(&self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(least)
    }
}

/// One step.
pub(crate) struct Step {
    /// The group whose charts show it; `None` for preparations.
    pub(crate) group: Option<&'static str>,
    pub(crate) name: String,
    /// Its place on the group's axis.
    pub(crate) x: f64,
    pub(crate) action: Action,
}

pub(crate) enum Action {
    /// Makes the collection anew with these indexes.
    Create(Collection, &'static [Index]),
    /// Builds one index; measured.
    Build(Collection, Index),
    /// What an administrator does after a load: statistics, and waiting for background work.
    Settle(Collection),
    /// Bytes on disk, compacted.
    Sizes(Collection),
    /// Operations over connections; measured.
    Exercise(Exercise),
}

/// Fills in the next operation of a connection; false when there is none.
pub(crate) type Source = Box<dyn FnMut(usize, &mut Operation) -> bool>;

/// Operations over connections.
pub(crate) struct Exercise {
    pub(crate) collection: Collection,
    pub(crate) shapes: &'static [Shape],
    /// Writes wait for the disk.
    pub(crate) durable: bool,
    pub(crate) connections: usize,
    pub(crate) length: Length,
    /// What the latencies are of: the names of the operations' classes.
    pub(crate) classes: &'static [&'static str],
    pub(crate) source: Box<dyn Fn() -> Source>,
}

/// When an exercise ends.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    Seconds(f64),
    /// With its source.
    Source,
}

/// Documents number `from` up to `end`, `batch` of them in each insert.
pub(crate) fn inserts(
    from: u64,
    end: u64,
    batch: u64,
    document: impl Fn(u64) -> Vec<u8> + Copy + 'static,
) -> Box<dyn Fn() -> Source> {
    Box::new(move || {
        let mut next = from;
        Box::new(move |_, operation| {
            let last = end.min(next + batch);
            operation.documents.extend((next..last).map(document));
            let more = next < last;
            next = last;
            more
        })
    })
}

/// The comparison of a name.
pub(crate) fn by_name(name: &str) -> Result<&'static Comparison, String> {
    let found = COMPARISONS.iter().find(|comparison| comparison.name == name);
    found.copied().ok_or_else(|| format!("no comparison is called '{name}' (marula bench list)"))
}

//! The five published comparisons of document stores, as steps that a runner executes on every
//! server in turn.
//!
//! A [`Comparison`] is a row of [`COMPARISONS`]; its file describes the publication and turns a
//! scale into [`Step`]s. Steps have no state of a server: keys and values are derived from numbers
//! and the seed, so that every server gets the same requests and the correct results are known.

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
    /// The publication, and the meaning of scale 1.
    pub(crate) about: &'static str,
    pub(crate) groups: &'static [Group],
    pub(crate) steps: fn(&Sizes) -> Vec<Step>,
    /// The memory that the started servers get for their caches; `None`: their own choice.
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

/// Steps that share charts.
pub(crate) struct Group {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) axis: Axis,
}

/// The horizontal axis of a group's charts.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Axis {
    Connections,
    Rows,
    /// No axis: every step has its own chart, with a bar for each server.
    Steps,
}

/// The size of a comparison.
pub(crate) struct Sizes {
    pub(crate) scale: f64,
    /// The duration of a step that is limited by time, in seconds.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

impl Sizes {
    /// Returns `full` times the scale, but at least `least`.
    pub(crate) fn scaled(&self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(least)
    }
}

/// One step.
pub(crate) struct Step {
    /// The group whose charts show it; `None` for preparations.
    pub(crate) group: Option<&'static str>,
    pub(crate) name: String,
    /// Its position on the group's axis.
    pub(crate) x: f64,
    pub(crate) action: Action,
}

pub(crate) enum Action {
    /// Creates the collection again with these indexes.
    Create(Collection, &'static [Index]),
    /// Builds one index; measured.
    Build(Collection, Index),
    /// The maintenance that an administrator runs after a load: statistics, and waiting for
    /// background work.
    Settle(Collection),
    /// Bytes on disk, compacted.
    Sizes(Collection),
    /// Operations over connections; measured.
    Exercise(Exercise),
}

/// Fills in the next operation of a connection; returns false if there is none.
pub(crate) type Source = Box<dyn FnMut(usize, &mut Operation) -> bool>;

/// Operations over connections.
pub(crate) struct Exercise {
    pub(crate) collection: Collection,
    pub(crate) shapes: &'static [Shape],
    /// Writes wait for the disk.
    pub(crate) durable: bool,
    pub(crate) connections: usize,
    pub(crate) length: Length,
    /// The classes of the latencies: the names of the operations' classes.
    pub(crate) classes: &'static [&'static str],
    pub(crate) source: Box<dyn Fn() -> Source>,
}

/// The end of an exercise.
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

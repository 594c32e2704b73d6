//! Time-series collections in the catalogue: one entry for the view that clients see, one for its
//! buckets.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Element, Value};
use marula_error::{Result, errors};

use super::ddl::until_unchanged;
use super::options::CollectionOptions;
use super::views::SYSTEM_VIEWS;
use crate::collection::{Collection, State};
use crate::db::Db;
use crate::namespace::Namespace;
use crate::time_series::{BUCKETS_PREFIX, TimeSeries, buckets_namespace, shown_namespace};

errors! {
    /// The collection with the definitions of views cannot be one of them.
    views_are_locked() = 51_070, "Modifications to system.views must take an exclusive lock";
    no_view(buckets: &Namespace, ns: &Namespace, options: &Doc<'_>, reason: &str) = InvalidNamespace, "Failed to create view on {buckets} for time-series collection {ns} with options {options} :: caused by :: {reason}";
    /// A time-series collection has no bucket collection.
    pub no_buckets(ns: &Namespace) = 6_067_201, "expected time-series buckets collection {ns} to exist";
}

impl Db {
    /// Creates a time-series collection. `options` are those of its buckets, as checked by
    /// `create`.
    ///
    /// Errors: those of [`Db::create_collection`].
    pub fn create_time_series(&self, ns: &Namespace, options: CollectionOptions) -> Result<()> {
        let mut next_ident = self.lock_catalog()?;
        if let Some(known) = self.collection(ns) {
            return Err(super::ddl::exists(&known));
        }
        let view = view_options(ns, &options)?;
        let buckets = buckets_namespace(ns)?;
        check_shown(ns, &buckets, &view)?;
        // A crash between the two entries leaves buckets without a view; they are reused here.
        match self.collection(&buckets) {
            Some(known) if known.state().options.document != options.document => {
                return Err(super::ddl::exists(&known));
            }
            Some(_) => {}
            None => {
                self.create_locked(&mut next_ident, &buckets, options)?;
            }
        }
        self.create_locked(&mut next_ident, ns, view)?;
        self.show_view(&mut next_ident, ns)
    }

    /// The bucket collection of a time-series view; `None` for any other collection.
    ///
    /// Errors: `no_buckets`.
    pub fn buckets_of(&self, collection: &Collection) -> Result<Option<Arc<Collection>>> {
        let state = collection.state();
        if state.options.view.is_none() || state.options.time_series.is_none() {
            return Ok(None);
        }
        let ns = buckets_namespace(&collection.namespace())?;
        self.collection(&ns).map(Some).ok_or_else(|| no_buckets(&ns))
    }

    /// For the view of a time-series collection its buckets, for the buckets the view, if both
    /// exist.
    pub(super) fn other_half(&self, collection: &Collection) -> Option<Arc<Collection>> {
        collection.state().options.time_series.as_ref()?;
        let ns = collection.namespace();
        let other = match ns.collection().starts_with(BUCKETS_PREFIX) {
            true => shown_namespace(&ns)?,
            false => buckets_namespace(&ns).ok()?,
        };
        self.collection(&other).filter(|other| other.state().options.time_series.is_some())
    }

    /// Changes the options of the buckets of a time-series collection, and of its view. `before` is
    /// the state of the buckets that the new options were made from.
    ///
    /// Errors: those of [`Db::change_collection`].
    pub fn change_time_series(
        &self,
        buckets: &Collection,
        before: &Arc<State>,
        options: CollectionOptions,
        change_index: &dyn Fn(&crate::IndexSpec) -> Option<crate::IndexSpec>,
    ) -> Result<()> {
        let shown = self.other_half(buckets);
        if let Some(shown) = &shown {
            view_options(&shown.namespace(), &options)?;
        }
        self.change_collection(buckets, before, options, change_index)?;
        let Some(shown) = shown else { return Ok(()) };
        until_unchanged(|| {
            // The buckets may have been changed again, and the view after that: the state of the
            // view is read first, so that an older view never replaces a newer one.
            let before = shown.state();
            let view = view_options(&shown.namespace(), &buckets.state().options)?;
            self.change_collection(&shown, &before, view, &|_| None)
        })
    }

    /// Records, before the first such bucket is stored, that a bucket starts at a time outside the
    /// range of its `_id`.
    pub(crate) fn note_extended_range(&self, buckets: &Collection) -> Result<()> {
        until_unchanged(|| {
            let state: Arc<State> = buckets.state();
            let Some(time_series) = &state.options.time_series else { return Ok(()) };
            let extended = TimeSeries { extended_range: true, ..time_series.clone() };
            let document = with_time_series(&state.options.document, &extended);
            let options = CollectionOptions::parse(document.as_doc())?;
            self.change_time_series(buckets, &state, options, &|_| None)
        })
    }
}

/// The options of buckets with another `timeseries`.
pub fn with_time_series(document: &DocBuf, time_series: &TimeSeries) -> DocBuf {
    DocBuf::build(|out| {
        for Element { name, value } in document.as_doc() {
            match name == "timeseries" {
                true => out.append(name, &time_series.to_stored_doc()),
                false => out.append_raw(name, value),
            };
        }
    })
}

/// Checks the name of the view that shows the measurements before the buckets are created, so that
/// an error leaves nothing.
fn check_shown(ns: &Namespace, buckets: &Namespace, view: &CollectionOptions) -> Result<()> {
    ns.check_creatable()?;
    let Err(error) = ns.check_creatable_view() else { return Ok(()) };
    if ns.collection() == SYSTEM_VIEWS {
        return Err(views_are_locked());
    }
    let shown = DocBuf::build(|out| {
        for Element { name, value } in view.document.as_doc() {
            if name != "timeseries" {
                out.append_raw(name, value);
            }
        }
    });
    Err(no_view(buckets, ns, &shown.as_doc(), error.message()))
}

/// The options of the view over the buckets.
fn view_options(ns: &Namespace, buckets: &CollectionOptions) -> Result<CollectionOptions> {
    let time_series = buckets.time_series.as_ref().expect("these are options of buckets");
    let on = buckets_namespace(ns)?;
    let document = DocBuf::build(|out| {
        out.append("viewOn", on.collection());
        out.append("pipeline", Value::Array(time_series.pipeline().as_doc()));
        if let Some(collation) = &buckets.collation {
            out.append("collation", collation.to_doc());
        }
        out.append("timeseries", &time_series.to_stored_doc());
    });
    CollectionOptions::parse(document.as_doc())
}

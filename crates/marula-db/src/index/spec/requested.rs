//! A client's specifications of new indexes, checked in mongod's order.
//!
//! First the form of each specification, then the collection (by the caller), then the collations
//! of all, then the agreement of each with its kind, then the expiry options. Checks of the build
//! itself ([`IndexSpec::check_build`]) follow after all of these.

use marula_bson::{Doc, DocBuf};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;

use super::form::{Draft, with_version};
use super::{IndexSpec, expire_seconds};

/// The maximum size of the key pattern of a new index, as BSON.
const KEY_BYTES_MAX: usize = 2048;

errors! {
    key_too_large() = CannotCreateIndex, "Index key pattern too large.";
    ttl_negative(spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be less than 0. Index spec: {spec}";
    ttl_too_large(spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number. Index spec: {spec}";
    ttl_type(kind: &str, spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{kind}'. Index spec: {spec}";
    ttl_compound(spec: &Doc<'_>) = CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {spec}";
    name_star() = BadValue, "The index name '*' is not valid.";
    name_reserved(key: &Doc<'_>) = BadValue, "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, found key: {key}";
    id_collation(ours: &Doc<'_>, collections: &Doc<'_>) = BadValue, "The _id index must have the same collation as the collection. Index collation: {ours}, collection collation: {collections}";
    name_of_clustered(spec: &Doc<'_>, clustered: &Doc<'_>) = 6_100_906, "Cannot create an index where the name matches the clusteredIndex but the key does not - indexSpec: {spec}, clusteredIndex: {clustered}";
}

/// The properties of a collection that matter to its new indexes.
#[derive(Clone, Copy, Default)]
pub struct IndexRequest<'c> {
    /// The collection's collation, which an index inherits.
    pub collation: Option<&'c Collation>,
    /// The clustered index of the collection.
    pub clustered: Option<Doc<'c>>,
    /// Whether unknown options are ignored.
    pub ignores_unknown: bool,
    /// The feature compatibility version, which determines the allowed kinds of indexes.
    pub version: FeatureVersion,
}

impl IndexRequest<'_> {
    /// The specification without ignored options.
    pub fn form(&self, spec: Doc<'_>) -> DocBuf {
        if self.ignores_unknown { Draft::without_unknown(spec) } else { spec.to_buf() }
    }

    /// Parses specifications; none of the indexes is built yet.
    ///
    /// Errors: this module's rows, those of `form`, `pattern` and the kinds.
    pub fn specs(&self, specs: &[DocBuf]) -> Result<Vec<IndexSpec>> {
        self.specs_of(specs, || Ok(()))
    }

    /// Parses specifications for a collection that is checked with `check_collection` once each of
    /// them is well-formed, and before they are compared with the collection.
    ///
    /// Errors: those of [`IndexRequest::specs`] and of `check_collection`.
    pub fn specs_of(
        &self,
        specs: &[DocBuf],
        check_collection: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<IndexSpec>> {
        let mut drafts: Vec<Draft<'_>> =
            specs.iter().map(|spec| self.read(spec.as_doc())).collect::<Result<_>>()?;
        check_collection()?;
        for (draft, spec) in drafts.iter_mut().zip(specs) {
            self.collate(draft, spec.as_doc())?;
        }
        let mut indexes = Vec::with_capacity(specs.len());
        for draft in drafts {
            indexes.push(self.resolve(draft)?);
        }
        specs.iter().try_for_each(|spec| check_ttl(spec.as_doc()))?;
        Ok(indexes)
    }

    fn read<'s>(&self, spec: Doc<'s>) -> Result<Draft<'s>> {
        let context = Context { version: self.version, ..Context::default() };
        let draft = Draft::read(spec, &context).map_err(|error| within(error, spec))?;
        if draft.key.as_bytes().len() > KEY_BYTES_MAX {
            return Err(within(key_too_large(), spec));
        }
        if draft.is_on_id() {
            if !self.is_clustered_again(&draft) {
                draft.check_id()?;
            }
        } else if draft.name() == "*" {
            return Err(name_star());
        } else if draft.name() == "_id_" {
            return Err(name_reserved(&draft.key));
        }
        Ok(draft)
    }

    /// Returns whether the specification is that of the existing clustered index.
    fn is_clustered_again(&self, draft: &Draft<'_>) -> bool {
        self.clustered.is_some() && draft.is_on_id() && draft.is_clustered()
    }

    fn collate(&self, draft: &mut Draft<'_>, spec: Doc<'_>) -> Result<()> {
        draft.collate(self.collation).map_err(|error| {
            let spec = with_version(spec);
            error.caused_by(&format!(
                "failed to add collation information to index spec for index creation: {}",
                spec.as_doc()
            ))
        })?;
        if draft.is_on_id() && draft.collation.as_ref() != self.collation {
            let simple = marula_bson::doc! { "locale": "simple" };
            let shown = |collation: Option<&Collation>| match collation {
                Some(collation) => collation.to_doc().to_buf(),
                None => simple.clone(),
            };
            let (ours, collections) = (shown(draft.collation.as_ref()), shown(self.collation));
            return Err(id_collation(&ours.as_doc(), &collections.as_doc()));
        }
        Ok(())
    }

    fn resolve(&self, draft: Draft<'_>) -> Result<IndexSpec> {
        if self.is_clustered_again(&draft) {
            return IndexSpec::id_index(self.collation);
        }
        let completed = draft.completed();
        let spec = draft
            .resolve()
            .and_then(IndexSpec::without_collated_places)
            .map_err(|error| within(error, completed.as_doc()))?;
        if let Some(clustered) = self.clustered.filter(|_| !spec.is_id()) {
            let name = clustered.get("name").and_then(|name| name.as_str());
            if name.is_some_and(|name| name == spec.name.as_str()) {
                let shown = spec.document.as_doc();
                return Err(within(name_of_clustered(&shown, &clustered), shown));
            }
        }
        Ok(spec)
    }
}

fn within(error: marula_error::Error, spec: Doc<'_>) -> marula_error::Error {
    error.caused_by(&format!("Error in specification {spec}"))
}

fn check_ttl(spec: Doc<'_>) -> Result<()> {
    let Some(value) = spec.get("expireAfterSeconds") else { return Ok(()) };
    if !value.kind().is_number() {
        return Err(ttl_type(value.kind().alias(), &spec));
    }
    let seconds = expire_seconds(value);
    if seconds < 0 {
        return Err(ttl_negative(&spec));
    }
    if seconds > i64::from(i32::MAX) {
        return Err(ttl_too_large(&spec));
    }
    match spec.get("key").and_then(|key| key.as_doc()) {
        Some(key) if key.iter().count() > 1 => Err(ttl_compound(&spec)),
        _ => Ok(()),
    }
}

//! The changes of an index by `collMod`: the expiry of documents, visibility to queries,
//! uniqueness.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Element, Value, ValueBuf, doc};
use marula_db::index::spec::{expire_seconds, same_pattern};
use marula_db::{Collection, Index, IndexSpec, Namespace};
use marula_error::{Result, errors};
use marula_query::expression::saturated_long;

use super::ttl_negative;
use crate::command::fields::{self, Field, Types};

errors! {
    name_or_key() = InvalidOptions, "Must specify either index name or key pattern.";
    name_and_key() = InvalidOptions, "Cannot specify both key pattern and name.";
    no_index_change() = InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field";
    pub no_index(index: &str, ns: &Namespace) = IndexNotFound, "cannot find index {index} for ns {ns}";
    clustered_hidden() = 6_011_800, "The 'hidden' option is not supported for a clusteredIndex";
    ambiguous_key(key: &Doc<'_>, count: usize, found: &str) = AmbiguousIndexKeyPattern, "index keyPattern {key} matches {count} indexes, must use index name. Conflicting indexes:{found}";
    capped_expires() = InvalidOptions, "TTL indexes are not supported for capped collections.";
    buckets_expire() = InvalidOptions, "TTL indexes are not supported for time-series collections. Please refer to the documentation and use the top-level 'expireAfterSeconds' option instead";
    buckets_unique() = InvalidOptions, "cannot set 'prepareUnique' for indexes of a time-series collection.";
    id_expires() = InvalidOptions, "the _id field does not support TTL indexes";
    compound_expires() = InvalidOptions, "TTL indexes are single-field indexes, compound indexes do not support TTL";
    id_hidden() = BadValue, "can't hide _id index";
    unprepared() = InvalidOptions, "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.";
    non_unique() = BadValue, "Cannot make index non-unique";
    prepared_alone() = InvalidOptions, "prepareUnique cannot be combined with any other modification.";
}

const INDEX_FIELDS: &[Field] = &[
    Field::optional("name", Types::STRING),
    Field::optional("keyPattern", Types::DOCUMENT),
    Field::optional("expireAfterSeconds", Types::NUMBER),
    Field::optional("hidden", Types::FLAG),
    Field::optional("unique", Types::FLAG),
    Field::optional("prepareUnique", Types::FLAG),
];

/// The changes of one index.
pub(super) struct IndexChange {
    name: String,
    /// The old and the new value.
    expire_after: Option<(Option<ValueBuf>, ValueBuf)>,
    hidden: Option<(bool, bool)>,
    prepare_unique: Option<(bool, bool)>,
    /// The index becomes unique and is not yet.
    makes_unique: bool,
}

/// Checks the types of the fields.
pub(super) fn check_form(change: Doc<'_>) -> Result<()> {
    fields::check_doc("collMod.index", INDEX_FIELDS, change)
}

impl IndexChange {
    /// Parses the changes and checks them against the index. `is_alone` means that the request
    /// changes nothing else.
    pub(super) fn parse(
        change: Doc<'_>,
        collection: &Collection,
        ns: &Namespace,
        is_alone: bool,
    ) -> Result<Self> {
        let state = collection.state();
        let name = change.get("name").and_then(|name| name.as_str());
        let key = change.get("keyPattern").and_then(|key| key.as_doc());
        // A null field is absent.
        let given = |field: &str| change.get(field).filter(|value| !value.is_nullish());
        let flag = |field: &str| given(field).map(|value| value.is_truthy());
        let expire_after = given("expireAfterSeconds");
        let changes_nothing = expire_after.is_none()
            && ["hidden", "unique", "prepareUnique"].iter().all(|field| flag(field).is_none());
        match (name, key) {
            (None, None) => return Err(name_or_key()),
            (Some(_), Some(_)) => return Err(name_and_key()),
            _ if changes_nothing => return Err(no_index_change()),
            _ if expire_after.is_none() => {}
            _ if state.options.capped.is_some() => return Err(capped_expires()),
            _ if state.options.time_series.is_some() => return Err(buckets_expire()),
            _ => {}
        }
        let found = match (name, key) {
            (Some(name), _) => state.index(&name.to_string()),
            (None, None) => None,
            (None, Some(key)) => {
                let is_meant = |index: &&Arc<Index>| same_pattern(index.spec.key.as_doc(), key);
                let meant: Vec<&Arc<Index>> = state.indexes.iter().filter(is_meant).collect();
                if meant.len() > 1 {
                    let texts: Vec<String> = (meant.iter())
                        .map(|index| index.spec.quoted().as_doc().to_string())
                        .collect();
                    return Err(ambiguous_key(&key, meant.len(), &texts.join(", ")));
                }
                meant.first().copied()
            }
        };
        if expire_after.and_then(saturated_long).is_some_and(|seconds| seconds < 0) {
            return Err(ttl_negative());
        }
        let described = match name.filter(|name| !name.is_empty()) {
            Some(name) => name.to_string(),
            None => key.unwrap_or(Doc::EMPTY).to_string(),
        };
        let is_clustered = state.options.clustered.is_some()
            && state.options.time_series.is_none()
            && (name.is_some_and(|name| state.is_clustered_as(&name.to_string()))
                || key.is_some_and(|key| same_pattern(doc! { "_id": 1 }.as_doc(), key)));
        if flag("hidden").is_some() && is_clustered {
            return Err(clustered_hidden());
        }
        let index = found.ok_or_else(|| no_index(&described, ns))?;
        if state.options.time_series.is_some() && flag("prepareUnique").is_some() {
            return Err(buckets_unique());
        }
        let spec = index.spec.document.as_doc();
        if expire_after.is_some() && index.spec.is_id() {
            return Err(id_expires());
        }
        if expire_after.is_some() && index.spec.key.as_doc().iter().count() > 1 {
            return Err(compound_expires());
        }
        let is = |field: &str| spec.get(field).is_some_and(|value| value.is_truthy());
        let makes_unique = flag("unique") == Some(true) && !index.spec.unique;
        if makes_unique && !index.spec.prepare_unique {
            return Err(unprepared());
        }
        if flag("unique") == Some(false) {
            return Err(non_unique());
        }
        if flag("hidden").is_some() && index.spec.is_id() {
            return Err(id_hidden());
        }
        let changes = |field: &str| {
            let (old, new) = (is(field), flag(field)?);
            (old != new).then_some((old, new))
        };
        // A unique index needs no preparation.
        let prepare_unique = changes("prepareUnique").filter(|_| !index.spec.unique);
        let has_others = expire_after.is_some()
            || ["hidden", "unique"].iter().any(|other| flag(other).is_some());
        if prepare_unique.is_some() && (has_others || !is_alone) {
            return Err(prepared_alone());
        }
        Ok(IndexChange {
            name: index.spec.name.clone(),
            expire_after: expire_after
                .map(|new| (spec.get("expireAfterSeconds").map(|old| old.to_buf()), seconds(new))),
            hidden: changes("hidden"),
            prepare_unique,
            makes_unique,
        })
    }

    /// Returns the name of the index.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the index becomes unique and is not yet.
    pub(super) fn makes_unique(&self) -> bool {
        self.makes_unique
    }

    /// Returns the specification of the unique index, without the other changes.
    pub(super) fn unique_spec(spec: &IndexSpec) -> Result<IndexSpec> {
        let document = DocBuf::build(|out| {
            for Element { name, value } in spec.document.as_doc() {
                if name != "prepareUnique" {
                    out.append_raw(name, value);
                }
                if name == "name" {
                    out.append("unique", true);
                }
            }
        });
        IndexSpec::parse(document.as_doc(), None)
    }

    /// Returns the specification with the changes, except uniqueness.
    pub(super) fn apply(&self, spec: &IndexSpec) -> Result<IndexSpec> {
        let mut changes: Vec<(&str, Option<ValueBuf>)> = Vec::new();
        if let Some((_, new)) = &self.expire_after {
            changes.push(("expireAfterSeconds", Some(new.clone())));
        }
        for (name, change) in [("hidden", self.hidden), ("prepareUnique", self.prepare_unique)] {
            if let Some((_, new)) = change {
                changes.push((name, new.then(|| ValueBuf::from(true))));
            }
        }
        let document = DocBuf::build(|out| {
            for Element { name, value } in spec.document.as_doc() {
                match changes.iter().find(|(changed, _)| name == *changed) {
                    Some((_, Some(value))) => out.append(name, value),
                    Some((_, None)) => out,
                    None => out.append_raw(name, value),
                };
            }
            for (name, value) in &changes {
                if let Some(value) = value
                    && spec.document.as_doc().get_raw(name.as_bytes()).is_none()
                {
                    out.append(name, value);
                }
            }
        });
        // The document contains its collation already.
        IndexSpec::parse(document.as_doc(), None)
    }

    /// Writes the old and the new values.
    pub(super) fn report(&self, reply: &mut DocWriter<'_>) {
        if let Some((old, new)) = &self.expire_after {
            if let Some(old) = old {
                append_seconds(reply, "expireAfterSeconds_old", old);
            }
            append_seconds(reply, "expireAfterSeconds_new", new);
        }
        if let Some((old, new)) = self.hidden {
            reply.append("hidden_old", old).append("hidden_new", new);
        }
        if let Some((old, new)) = self.prepare_unique {
            reply.append("prepareUnique_old", old).append("prepareUnique_new", new);
        }
        if self.makes_unique {
            reply.append("unique_new", true);
        }
    }
}

/// Returns seconds in their stored form: at most an int, and 0 for NaN.
fn seconds(given: Value<'_>) -> ValueBuf {
    let seconds = match given.as_f64() {
        Some(number) if number.is_nan() => 0,
        _ => expire_seconds(given),
    };
    Value::Int32(i32::try_from(seconds).unwrap_or(i32::MAX)).to_buf()
}

fn append_seconds(reply: &mut DocWriter<'_>, name: &str, seconds: &ValueBuf) {
    #[allow(clippy::cast_possible_truncation)]
    let seconds = seconds.get().as_f64().unwrap_or(0.0) as i64;
    reply.append(name, seconds);
}

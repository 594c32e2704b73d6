//! Translates a condition on measurements to a condition on their buckets: buckets that it excludes
//! need not be unpacked.
//!
//! Conditions on the meta value hold for the whole bucket, under another name. Those on the time
//! bound the times in the bucket's `control` document, and the seconds in its `_id`. Comparisons of
//! another field bound its least and its greatest value in the `control` document: the values of a
//! field in one bucket are all of one type. Those on places can have an index of the places in a
//! bucket. Other conditions are evaluated only on the measurements.

use std::sync::Arc;

use marula_bson::{Doc, FieldPath, ObjectId, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};

use super::UnpackBucket;
use crate::collation::Collation;
use crate::context::Context;
use crate::filter::{Compare, CompareOp, Filter, Node, PathNode, Predicate};
use crate::stage::{Kind, Stage};

errors! {
    compares_null(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: can't handle comparison to null: {condition}";
    compares_composite(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: operand can't be an object or array: {condition}";
    compares_time(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: can't handle comparison of time field to a non-Date type: {condition}";
    null_in_list(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: can't handle {{$eq: null}} predicate (inside $in predicate): {condition}";
    regex_in_list(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: can't handle $regex predicate (inside $in predicate): {condition}";
    unknown_to_buckets(condition: &Doc<'_>) = 5_916_301, "Error translating non-metadata time-series predicate to operate on buckets: can't handle this predicate: {condition}";
}

/// The fields of a bucket with the least and the greatest values of its measurements.
pub(super) const MIN: &str = "control.min";
pub(super) const MAX: &str = "control.max";

/// The conditions on measurements that are translated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All; those with strings only if the buckets were made under the collation of the condition.
    All { strings: bool },
    /// Those whose translation a client can write, too.
    Stored,
}

impl UnpackBucket {
    /// Returns the condition that the buckets of all matching measurements meet; `collation` is
    /// that of the buckets' collection.
    pub fn bucket_filter(
        &self,
        filter: &Filter,
        collation: Option<&Collation>,
        context: &Context,
    ) -> Filter {
        let strings = context.collation.as_ref() == collation;
        self.filter_of(filter, Extent::All { strings }, context)
    }

    /// Same as [`bucket_filter`](UnpackBucket::bucket_filter), in the language of stored filters:
    /// from the conditions on the meta value and on the time.
    pub fn stored_bucket_filter(&self, filter: &Filter, context: &Context) -> Filter {
        self.filter_of(filter, Extent::Stored, context)
    }

    /// Checks that a condition is one of those that the filter of a partial index may have.
    ///
    /// Errors: this module's rows.
    pub fn check_stored_filter(&self, filter: &Filter, context: &Context) -> Result<()> {
        self.check_stored(filter.root(), context)
    }

    fn check_stored(&self, node: &Node, context: &Context) -> Result<()> {
        if self.on_meta(node).is_some() {
            return Ok(());
        }
        let refused = |error: fn(&Doc<'_>) -> Error, node: &Node| {
            Err(error(&Filter::from_node(node.clone(), context).to_doc().as_doc()))
        };
        let (path, predicate) = match node {
            Node::And(children) | Node::Or(children) => {
                return children.iter().try_for_each(|child| self.check_stored(child, context));
            }
            Node::Path(PathNode { path, predicate }) => (path, predicate),
            // Filters of indexes have none of these, which is reported later.
            Node::Expr(_) | Node::Schema(_) | Node::Where(_) | Node::Text(_) => return Ok(()),
            Node::Nor(_) | Node::Not(_) | Node::AlwaysTrue | Node::AlwaysFalse => {
                return refused(unknown_to_buckets, node);
            }
        };
        match predicate {
            Predicate::Compare(Compare { value, .. }) => match value.kind() {
                Type::Null => refused(compares_null, node),
                Type::Document | Type::Array => refused(compares_composite, node),
                kind if kind != Type::DateTime && self.is_time(path) => {
                    refused(compares_time, node)
                }
                _ => Ok(()),
            },
            Predicate::In(list) => {
                if list.values().iter().any(|value| value.kind() == Type::Null) {
                    return refused(null_in_list, node);
                }
                if !list.regexes().is_empty() {
                    return refused(regex_in_list, node);
                }
                list.values().iter().try_for_each(|value| {
                    let compare = Compare { op: CompareOp::Eq, value: value.clone() };
                    let predicate = Predicate::Compare(compare);
                    let equal = Node::Path(PathNode { path: path.clone(), predicate });
                    self.check_stored(&equal, context)
                })
            }
            Predicate::Exists | Predicate::Geo(_) | Predicate::Near(_) => Ok(()),
            _ => refused(unknown_to_buckets, node),
        }
    }

    fn is_time(&self, path: &FieldPath) -> bool {
        path.is_single() && *path.first() == *self.time_field
    }

    fn filter_of(&self, filter: &Filter, extent: Extent, context: &Context) -> Filter {
        let mut conditions = Vec::new();
        self.gather(filter.root(), extent, &mut conditions);
        Filter::from_node(Node::And(conditions), context)
    }

    /// Returns the stages after a condition that selects whole buckets, if `after` begins with one.
    pub fn after_meta_condition<'s>(&self, after: &'s [Arc<dyn Stage>]) -> &'s [Arc<dyn Stage>] {
        match after {
            [first, rest @ ..] if matches!(first.kind(), Kind::Match(filter) if self.tests_meta_only(filter)) => {
                rest
            }
            _ => after,
        }
    }

    /// Returns whether a condition on measurements depends on their meta value alone.
    pub(in crate::stage) fn tests_meta_only(&self, filter: &Filter) -> bool {
        self.on_meta(filter.root()).is_some()
    }

    fn gather(&self, node: &Node, extent: Extent, out: &mut Vec<Node>) {
        if let Node::And(children) = node {
            return children.iter().for_each(|child| self.gather(child, extent, out));
        }
        if let Some(on_meta) = self.on_meta(node) {
            return out.push(on_meta);
        }
        if let (Node::Or(branches), Extent::All { .. }) = (node, extent) {
            return out.extend(self.of_each(branches, extent));
        }
        let Node::Path(PathNode { path, predicate }) = node else { return };
        if self.is_time(path) {
            if let Predicate::Compare(Compare { op, value }) = predicate
                && let Value::DateTime(time_ms) = value.get()
            {
                self.gather_time(*op, time_ms, out);
            }
        } else if let Extent::All { strings } = extent {
            gather_measured(path, predicate, strings, out);
        }
    }

    /// Returns the condition on buckets that follows from one of several on measurements, if one
    /// follows from each.
    fn of_each(&self, branches: &[Node], extent: Extent) -> Option<Node> {
        let of_one = |branch: &Node| {
            let mut conditions = Vec::new();
            self.gather(branch, extent, &mut conditions);
            (!conditions.is_empty()).then_some(Node::And(conditions))
        };
        branches.iter().map(of_one).collect::<Option<Vec<_>>>().map(Node::Or)
    }

    /// Returns the node with the meta field's name in buckets; `None` if it tests another field.
    fn on_meta(&self, node: &Node) -> Option<Node> {
        let all = |children: &[Node]| {
            children.iter().map(|child| self.on_meta(child)).collect::<Option<Vec<_>>>()
        };
        match node {
            Node::And(children) => all(children).map(Node::And),
            Node::Or(children) => all(children).map(Node::Or),
            Node::Nor(children) => all(children).map(Node::Nor),
            Node::Not(child) => Some(Node::Not(Box::new(self.on_meta(child)?))),
            Node::Path(PathNode { path, predicate }) => {
                let path = self.meta_path(path)?;
                Some(Node::Path(PathNode { path, predicate: predicate.clone() }))
            }
            _ => None,
        }
    }

    /// Returns the path in a bucket of a path that begins with the meta field.
    pub(in crate::stage) fn meta_path(&self, path: &FieldPath) -> Option<FieldPath> {
        if *path.first() != **self.meta_field.as_ref()? {
            return None;
        }
        let text = path.to_string();
        let rest = text.get(path.first().len()..)?;
        Some(FieldPath::new(format!("meta{rest}").as_bytes()))
    }

    /// Adds the conditions that a bucket meets if one of its measurements compares so with
    /// `time_ms`. The measurements lie within `[min, max]`, which is at most the bucket's span.
    fn gather_time(&self, op: CompareOp, time_ms: i64, out: &mut Vec<Node>) {
        let Some(field) = self.plain_time_field() else { return };
        let span_ms = self.span_seconds.saturating_mul(1_000);
        let compare = |path: String, op: CompareOp, value: Value<'_>| {
            let predicate = Predicate::Compare(Compare { op, value: value.to_buf() });
            Node::Path(PathNode { path: FieldPath::new(path.as_bytes()), predicate })
        };
        let (min, max) = (format!("{MIN}.{field}"), format!("{MAX}.{field}"));
        let time = Value::DateTime(time_ms);
        let is_from = matches!(op, CompareOp::Gt | CompareOp::Gte | CompareOp::Eq);
        let is_to = matches!(op, CompareOp::Lt | CompareOp::Lte | CompareOp::Eq);
        let at_least = if op == CompareOp::Gt { CompareOp::Gt } else { CompareOp::Gte };
        let at_most = if op == CompareOp::Lt { CompareOp::Lt } else { CompareOp::Lte };
        if is_from {
            let start_ms = time_ms.saturating_sub(span_ms);
            out.push(compare(max.clone(), at_least, time));
            out.push(compare(min.clone(), at_least, Value::DateTime(start_ms)));
            if let Some(id) = self.id_at(start_ms, 0x00) {
                out.push(compare("_id".into(), CompareOp::Gte, Value::ObjectId(id)));
            }
        }
        if is_to {
            let end = Value::DateTime(time_ms.saturating_add(span_ms));
            out.push(compare(min, at_most, time));
            out.push(compare(max, at_most, end));
            if let Some(id) = self.id_at(time_ms, 0xFF) {
                out.push(compare("_id".into(), CompareOp::Lte, Value::ObjectId(id)));
            }
        }
    }

    /// Returns the ObjectId of this second whose other bytes are `rest`; `None` if buckets' `_id`s
    /// do not contain their start, or the time is out of their range.
    fn id_at(&self, time_ms: i64, rest: u8) -> Option<ObjectId> {
        if self.uses_extended_range {
            return None;
        }
        let seconds = u32::try_from(time_ms.div_euclid(1_000)).ok()?;
        let mut bytes = [rest; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        Some(ObjectId::from_bytes(bytes))
    }
}

/// Adds the conditions that a bucket meets if in one of its measurements the value at a path, which
/// is neither in the meta value nor the time, satisfies the predicate.
fn gather_measured(path: &FieldPath, predicate: &Predicate, strings: bool, out: &mut Vec<Node>) {
    /// The values of an `$in` that are worth a condition each.
    const VALUES_MAX: usize = 100;
    let at = |prefix: &str, predicate: Predicate| {
        let path = FieldPath::new(format!("{prefix}.{path}").as_bytes());
        Node::Path(PathNode { path, predicate })
    };
    let bound = |side: &str, op: CompareOp, value: &ValueBuf| {
        at(side, Predicate::InternalExpr(Compare { op, value: value.clone() }))
    };
    let around =
        |value: &ValueBuf| [bound(MAX, CompareOp::Gte, value), bound(MIN, CompareOp::Lte, value)];
    let is_bounded =
        |value: &ValueBuf| is_bounded(value.kind()) || (strings && value.kind() == Type::String);
    match predicate {
        Predicate::Compare(Compare { op, value }) if is_bounded(value) => match op {
            CompareOp::Eq => out.extend(around(value)),
            CompareOp::Gt | CompareOp::Gte => out.push(bound(MAX, *op, value)),
            CompareOp::Lt | CompareOp::Lte => out.push(bound(MIN, *op, value)),
        },
        Predicate::In(list)
            if list.regexes().is_empty()
                && list.values().len() <= VALUES_MAX
                && list.values().iter().all(is_bounded) =>
        {
            let each = list.values().iter().map(|value| Node::And(around(value).to_vec()));
            out.push(Node::Or(each.collect()));
        }
        Predicate::Exists => out.extend([at(MAX, Predicate::Exists), at(MIN, Predicate::Exists)]),
        Predicate::Geo(test) => out.push(at("data", Predicate::BucketGeo(test.clone()))),
        _ => {}
    }
}

/// Returns whether the values that compare in some way with one of this type lie between the least
/// and the greatest of a bucket. Null is also the value of measurements without the field, a
/// regular expression matches strings, the extremes of documents and arrays are put together from
/// several, and strings are compared under a collation, which may be another than the bucket's.
pub(super) fn is_bounded(kind: Type) -> bool {
    kind.is_number()
        || [Type::Boolean, Type::DateTime, Type::ObjectId, Type::Timestamp].contains(&kind)
}

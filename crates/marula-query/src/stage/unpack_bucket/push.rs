//! Translates a condition on measurements to a condition on their buckets: buckets that it excludes
//! need not be unpacked.
//!
//! Conditions on the meta value hold for the whole bucket, under another name. Those on the time
//! bound the times in the bucket's `control` document, and the seconds in its `_id`. Those on
//! places can have an index of the places in a bucket. Other conditions are evaluated only on the
//! measurements.

use marula_bson::{FieldPath, ObjectId, Value};

use super::UnpackBucket;
use crate::context::Context;
use crate::filter::{Compare, CompareOp, Filter, Node, PathNode, Predicate};

impl UnpackBucket {
    /// Returns the condition that the buckets of all matching measurements meet.
    pub fn bucket_filter(&self, filter: &Filter, context: &Context) -> Filter {
        let mut conditions = Vec::new();
        self.gather(filter.root(), &mut conditions);
        Filter::from_node(Node::And(conditions), context)
    }

    /// Returns whether a condition on measurements depends on their meta value alone.
    pub(in crate::stage) fn tests_meta_only(&self, filter: &Filter) -> bool {
        self.on_meta(filter.root()).is_some()
    }

    fn gather(&self, node: &Node, out: &mut Vec<Node>) {
        if let Node::And(children) = node {
            return children.iter().for_each(|child| self.gather(child, out));
        }
        if let Some(on_meta) = self.on_meta(node) {
            return out.push(on_meta);
        }
        let Node::Path(PathNode { path, predicate }) = node else { return };
        let is_time = path.is_single() && *path.first() == *self.time_field;
        match predicate {
            Predicate::Compare(compare) if is_time => {
                if let Value::DateTime(time_ms) = compare.value.get() {
                    self.gather_time(compare.op, time_ms, out);
                }
            }
            Predicate::Geo(test) if !is_time => {
                let path = FieldPath::new(format!("data.{path}").as_bytes());
                out.push(Node::Path(PathNode {
                    path,
                    predicate: Predicate::BucketGeo(test.clone()),
                }));
            }
            _ => {}
        }
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
        let Ok(field) = std::str::from_utf8(&self.time_field) else { return };
        if field.is_empty() || field.starts_with('$') {
            return;
        }
        let span_ms = self.span_seconds.saturating_mul(1_000);
        let compare = |path: String, op: CompareOp, value: Value<'_>| {
            let predicate = Predicate::Compare(Compare { op, value: value.to_buf() });
            Node::Path(PathNode { path: FieldPath::new(path.as_bytes()), predicate })
        };
        let (min, max) = (format!("control.min.{field}"), format!("control.max.{field}"));
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

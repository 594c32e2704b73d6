//! The values that an operator on a path tested.

use std::ops::ControlFlow;

use marula_bson::{Doc, DocWriter, FieldPath, RawValue, Type};

use super::Report;
use crate::geo;

/// The values at a path.
pub(super) struct Considered<'a> {
    /// The values, in order.
    pub(super) values: Vec<RawValue<'a>>,
    /// Whether an array was entered, so that there may be no value although the field exists.
    saw_array: bool,
}

impl<'a> Considered<'a> {
    /// Collects the values at `path`; with `expands`, the elements of an array instead of it.
    pub(super) fn find(path: &FieldPath, doc: Doc<'a>, expands: bool) -> Self {
        let mut found = Considered { values: Vec::new(), saw_array: false };
        let _stopped = path.walk(doc, |leaf| {
            match (leaf.expanding_array().filter(|_| expands), leaf.value) {
                (Some(array), _) => {
                    found.saw_array = true;
                    found.values.extend(array.iter().map(|element| element.value));
                }
                (None, Some(value)) => found.values.push(value),
                // mongod stops at the first branch without the field.
                (None, None) => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns whether there was nothing to test.
    pub(super) fn is_missing(&self) -> bool {
        self.values.is_empty() && !self.saw_array
    }

    /// Returns whether a value has one of the types.
    pub(super) fn has_type(&self, kinds: &[Type]) -> bool {
        self.values.iter().any(|value| kinds.contains(&value.kind()))
    }

    /// Returns whether a value is a geometry, or `field`, an array as a whole.
    pub(super) fn has_geometry(&self, field: Option<RawValue<'_>>) -> bool {
        let is_geometry = |value: &RawValue<'_>| geo::parse_stored("", value.get()).is_ok();
        self.values.iter().any(is_geometry) || field.as_ref().is_some_and(is_geometry)
    }

    /// Writes the values: one as `consideredValue`, several as `consideredValues`.
    pub(super) fn write_values(&self, report: &mut Report<'_>, out: &mut DocWriter<'_>) {
        if let [value] = *self.values {
            report.considered_value(value, out);
        } else if !report.is_truncated {
            let bytes = self.values.iter().map(|value| value.bytes().len()).sum();
            if report.spend(bytes) {
                let mut array = out.begin_array("consideredValues");
                for value in &self.values {
                    array.push_raw(*value);
                }
            }
        }
    }

    /// Writes the types of the values, by name: one as `consideredType`, several as
    /// `consideredTypes`.
    pub(super) fn write_types(&self, out: &mut DocWriter<'_>) {
        let mut names: Vec<&str> = self.values.iter().map(|value| value.kind().alias()).collect();
        names.sort_unstable();
        names.dedup();
        match *names {
            [] => {}
            [name] => {
                out.append("consideredType", name);
            }
            _ => {
                let mut array = out.begin_array("consideredTypes");
                for name in names {
                    array.push(name);
                }
            }
        }
    }
}

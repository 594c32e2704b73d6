//! The values that an operator on a path looked at.

use std::ops::ControlFlow;

use marula_bson::{Doc, DocWriter, FieldPath, RawValue, Type};

use super::Report;

/// What a path reached.
pub(super) struct Considered<'a> {
    /// The values, in order.
    pub(super) values: Vec<RawValue<'a>>,
    /// Whether an array was looked into, so that there may be no value though the field is there.
    saw_array: bool,
}

impl<'a> Considered<'a> {
    /// Collects what `path` reaches; with `expands`, the elements of an array in its place.
    pub(super) fn find(path: &FieldPath, doc: Doc<'a>, expands: bool) -> Self {
        let mut found = Considered { values: Vec::new(), saw_array: false };
        let _stopped = path.walk(doc, |leaf| {
            match (leaf.expanding_array().filter(|_| expands), leaf.value) {
                (Some(array), _) => {
                    found.saw_array = true;
                    found.values.extend(array.iter().map(|element| element.value));
                }
                (None, Some(value)) => found.values.push(value),
                // mongod looks no further than the first branch without the field.
                (None, None) => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Whether there was nothing to look at.
    pub(super) fn is_missing(&self) -> bool {
        self.values.is_empty() && !self.saw_array
    }

    /// Whether a value is of one of the types.
    pub(super) fn has_type(&self, kinds: &[Type]) -> bool {
        self.values.iter().any(|value| kinds.contains(&value.kind()))
    }

    /// Writes the values: one as `consideredValue`, others as `consideredValues`.
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

    /// Writes the types of the values: one as `consideredType`, others as `consideredTypes`, by
    /// name.
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

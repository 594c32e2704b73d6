//! A `$group` that reads only the first document of each group, over an index scan that returns
//! only those.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{DocWriter, FieldPath, Value, ValueBuf};
use marula_error::Result;

use super::Group;
use crate::expression::{Expression, Frame};
use crate::stage::pipeline::printed;
use crate::stage::source::{Map, Transform, check_size};
use crate::stage::{Env, Source, Stage};

/// A `$group` by a field that reads one document of each group.
pub struct FirstOfEach {
    /// The field.
    pub field: FieldPath,
    /// Whether it reads the values that documents are sorted by, which a scan that jumps from group
    /// to group does not have.
    pub uses_sort_key: bool,
    /// The stage that makes the group's document from that one.
    pub stage: Arc<dyn Stage>,
}

impl FirstOfEach {
    /// Converts a group, if it reads one document of each group.
    pub(super) fn of(group: Arc<Group>) -> Option<FirstOfEach> {
        let field = group.key_path()?;
        let takes_first = group.fields.iter().all(|(_, accumulator)| accumulator.takes_first());
        let mut arguments = group.fields.iter().map(|(_, accumulator)| accumulator.argument());
        let uses_sort_key = arguments.any(Expression::uses_sort_key);
        let stage = Arc::new(GroupByDistinctScan { group });
        takes_first.then_some(FirstOfEach { field, uses_sort_key, stage })
    }
}

/// A group stage whose input has only the first document of each group. As in mongod, a key of one
/// field that the document lacks is an empty document, where a `$group` has null in it.
#[derive(Debug)]
struct GroupByDistinctScan {
    group: Arc<Group>,
}

impl Stage for GroupByDistinctScan {
    fn name(&self) -> &'static str {
        "$groupByDistinctScan"
    }

    fn print(&self) -> ValueBuf {
        printed(|out| {
            let mut root = out.begin_doc("newRoot");
            root.append("_id", &self.group.key.print());
            for (name, accumulator) in &self.group.fields {
                root.append(name, &accumulator.argument().print());
            }
        })
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Map::new(input, self, env)))
    }
}

impl Transform for GroupByDistinctScan {
    fn write<'a>(&'a self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let mut document = DocWriter::new(out);
        document.append("_id", self.group.key.eval(frame)?.unwrap_or(Value::Null));
        for (name, accumulator) in &self.group.fields {
            let value = accumulator.argument().eval(frame)?;
            document.append(name.as_bstr(), value.unwrap_or(Value::Null));
        }
        document.finish();
        check_size(out.len())
    }
}

//! Prints a `$project` for `explain`: chosen fields before computed ones, and whether `_id` is
//! shown.

use marula_bson::{DocBuf, DocWriter};

use super::Projection;
use super::tree::{Child, Computed, Node};

impl Projection {
    /// Returns the projection in the form that `explain` shows.
    pub fn print(&self) -> DocBuf {
        let id = self.root.children.get(b"_id");
        DocBuf::build(|out| match (self.inclusion, id) {
            (true, Some(Child::Keep)) => {
                out.append("_id", true);
                write(&self.root, is_no_id, true, out);
            }
            (true, Some(Child::Drop)) => {
                write(&self.root, is_no_id, true, out);
                out.append("_id", false);
            }
            (false, Some(Child::Drop)) => {
                out.append("_id", false);
                write(&self.root, is_no_id, false, out);
            }
            (false, None | Some(Child::Keep)) => {
                write(&self.root, is_no_id, false, out);
                out.append("_id", true);
            }
            (inclusion, _) => write(&self.root, |_| true, inclusion, out),
        })
    }
}

fn is_no_id(name: &[u8]) -> bool {
    name != b"_id"
}

/// Writes the fields that `is_meant` selects: first those that are included or excluded.
fn write(node: &Node, is_meant: fn(&[u8]) -> bool, inclusion: bool, out: &mut DocWriter<'_>) {
    let fields = || node.children.entries().iter().filter(|(name, _)| is_meant(name));
    for (name, child) in fields() {
        if matches!(child, Child::Keep | Child::Drop) {
            out.append(name, inclusion);
        }
    }
    for (name, child) in fields() {
        match child {
            Child::Inner(inner) => write(inner, |_| true, inclusion, &mut out.begin_doc(name)),
            Child::Computed(Computed::Expression(expression)) => {
                out.append(name, &expression.print());
            }
            Child::Computed(Computed::Meta(meta)) => {
                out.begin_doc(name).append("$meta", meta.name());
            }
            // These exist only in the language of `find`, which is shown as it was given.
            Child::Computed(Computed::ElemMatch { .. }) | Child::Slice(_) => {}
            Child::Keep | Child::Drop => {}
        }
    }
}

//! Translates conditions on a stage's output to conditions on its input.
//!
//! A [`Passage`] lists the top-level fields that a stage leaves unchanged, and those that it only
//! renames. A condition on such fields holds after the stage exactly if it holds before, so it can
//! be evaluated before: a document that it rejects need not go through the stage, and an index may
//! find the others.
//!
//! Only whole top-level fields are tracked. A stage that writes `a.b` makes documents of scalars in
//! an array `a`, and then `{"a.c": null}` holds where it did not hold before.

use marula_bson::{FieldPath, FieldSet, Type};

use crate::expression::{Expression, Path};
use crate::filter::{Node, PathNode, Predicate};
use crate::sort::{SortPart, SortPattern};

/// The effect of a stage on the top-level fields of its documents.
#[derive(Debug, Default)]
pub struct Passage {
    /// The named fields: the unchanged ones if `keeps_named`, else the only ones that change.
    named: FieldSet,
    keeps_named: bool,
    /// Paths of the output and the input's path that each is a copy of.
    renamed: Vec<(FieldPath, FieldPath)>,
    /// Whether a copy is null if the field is missing, and represents all values equal to it.
    stands_for_equals: bool,
    /// Whether no condition can be translated.
    is_closed: bool,
    /// Whether documents may be sorted before the stage too.
    lets_sorts_pass: bool,
}

impl Passage {
    /// Every field except the named ones is unchanged.
    pub fn all_but_named() -> Self {
        Passage::default()
    }

    /// The named fields are unchanged; the others are unknown.
    pub fn only_named() -> Self {
        Passage { keeps_named: true, ..Passage::default() }
    }

    /// All fields are unknown.
    pub fn closed() -> Self {
        Passage { is_closed: true, ..Passage::default() }
    }

    /// Only the key of a group is known: one of equal values, null if there is none.
    pub fn of_group(key: &Expression) -> Self {
        let mut passage = Passage { stands_for_equals: true, ..Passage::only_named() };
        match key {
            Expression::Object(fields) => {
                for (name, value) in fields {
                    passage.renames_to([b"_id.", &**name].concat(), value);
                }
            }
            key => passage.renames_to(b"_id", key),
        }
        passage
    }

    /// Documents may be sorted before the stage too, by fields that it leaves unchanged: the
    /// documents that it makes of one stay together and in order.
    #[must_use]
    pub fn letting_sorts_pass(self) -> Self {
        Passage { lets_sorts_pass: true, ..self }
    }

    /// Names a field.
    pub fn name(&mut self, name: &[u8]) {
        self.is_closed |= !self.named.insert(name);
    }

    /// Names the field that a path begins with.
    pub fn name_top_of(&mut self, path: &Path) {
        match path.parts().first() {
            Some(name) => self.name(name),
            None => self.is_closed = true,
        }
    }

    /// Records that the value at `path` of the output is that of the expression, if that is a
    /// top-level field.
    pub fn renames_to(&mut self, path: impl AsRef<[u8]>, value: &Expression) {
        if let Expression::Field(from) = value
            && let [name] = from.parts()
        {
            self.renamed.push((FieldPath::new(path), FieldPath::new(name)));
        }
    }

    /// Returns the condition on the input that is equivalent to `node` on the output; `None` if
    /// there is none.
    pub fn before(&self, node: &Node) -> Option<Node> {
        if self.is_closed {
            // The stage may output documents that belong to no document of the input.
            return None;
        }
        // mongod moves no condition that names no field, and its optimized conditions have no
        // part that changes nothing.
        let all = |children: &[Node], nothing: fn(&Node) -> bool| -> Option<Vec<Node>> {
            let moved = |child: &Node| match nothing(child) {
                true => Some(child.clone()),
                false => self.before(child),
            };
            children.iter().map(moved).collect()
        };
        let is_true = |node: &Node| matches!(node, Node::AlwaysTrue);
        let is_false = |node: &Node| matches!(node, Node::AlwaysFalse);
        Some(match node {
            Node::And(children) => Node::And(all(children, is_true)?),
            Node::Or(children) if children.iter().all(is_false) => return None,
            Node::Or(children) => Node::Or(all(children, is_false)?),
            Node::Nor(children) => Node::Nor(all(children, is_false)?),
            Node::Not(child) => Node::Not(Box::new(self.before(child)?)),
            Node::Path(at) if holds_constant(&at.predicate) => return None,
            Node::Path(at) if self.stands_for_equals && !is_of_equals(&at.predicate) => {
                return None;
            }
            Node::Path(at) => {
                let path = self.path_before(&at.path)?;
                Node::Path(PathNode { path, predicate: at.predicate.clone() })
            }
            Node::Expr(expr) => {
                let expression = expr.expression();
                let mut is_kept = is_repeatable(expression);
                expression.for_each_path(&mut |path| {
                    is_kept &= path.parts().first().is_some_and(|name| self.keeps(name));
                });
                is_kept.then(|| node.clone())?
            }
            Node::Schema(_) if self.keeps_all() => node.clone(),
            Node::Schema(_)
            | Node::Where(_)
            | Node::Text(_)
            | Node::AlwaysTrue
            | Node::AlwaysFalse => return None,
        })
    }

    /// Returns whether documents may be sorted before the stage instead of after it.
    pub fn lets_pass(&self, pattern: &SortPattern) -> bool {
        self.lets_sorts_pass
            && pattern.parts().iter().all(|part| match part {
                SortPart::Path { path, .. } => self.keeps(path.first()),
                SortPart::Meta(_) => false,
            })
    }

    /// Returns whether every field is unchanged.
    fn keeps_all(&self) -> bool {
        !self.is_closed && !self.keeps_named && self.named.names().next().is_none()
    }

    /// Returns whether a top-level field is unchanged.
    pub fn keeps(&self, name: &[u8]) -> bool {
        let is_named = self.named.place(name).is_some();
        !self.is_closed && is_named == self.keeps_named
    }

    fn path_before(&self, path: &FieldPath) -> Option<FieldPath> {
        let from = self.renamed.iter().find(|(to, _)| path.starts_with(to));
        let Some((to, from)) = from else {
            return self.keeps(path.first()).then(|| path.clone());
        };
        let parts = from.parts().iter().chain(&path.parts()[to.parts().len()..]);
        Some(FieldPath::new(parts.map(|part| &**part).collect::<Vec<_>>().join(&b'.')))
    }
}

/// Returns whether a predicate has the same result for all equal values, and for missing and null.
fn is_of_equals(predicate: &Predicate) -> bool {
    let is_usual = |kind: Type| !matches!(kind, Type::MinKey | Type::MaxKey | Type::Undefined);
    match predicate {
        Predicate::Compare(constant) => is_usual(constant.value.kind()),
        Predicate::In(list) => {
            list.regexes().is_empty() && list.values().iter().all(|value| is_usual(value.kind()))
        }
        Predicate::Not(inner) => is_of_equals(inner),
        Predicate::All(list) => list.iter().all(is_of_equals),
        _ => false,
    }
}

/// Returns whether a predicate has a part that no value satisfies.
fn holds_constant(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::AlwaysFalse => true,
        Predicate::Not(inner) => holds_constant(inner),
        Predicate::All(list) | Predicate::ElemMatchValue(list) => list.iter().any(holds_constant),
        _ => false,
    }
}

/// Operators whose result depends on more than the fields of the document. `$meta` is none of them:
/// the only metadata that a `$match` may name is a search's, which no document has.
const NOT_REPEATABLE: [&str; 2] = ["$function", "$rand"];

/// Returns whether an expression always gives the same value for the same fields.
pub(super) fn is_repeatable(expression: &Expression) -> bool {
    let mut is_repeatable = match expression {
        Expression::Call(call) => !NOT_REPEATABLE.contains(&call.operator.name),
        _ => true,
    };
    expression.for_each_child(&mut |child| is_repeatable &= self::is_repeatable(child));
    is_repeatable
}

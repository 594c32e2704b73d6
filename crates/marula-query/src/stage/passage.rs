//! How a condition on the documents behind a stage reads on the documents before it.
//!
//! A [`Passage`] says which fields at the top a stage leaves as they are, and which it only gives
//! another name. What a condition says of such fields holds behind the stage exactly where it holds
//! before it, so the condition may be asked before: a document that it refuses need not go through
//! the stage, and an index may find the others.
//!
//! Only whole fields at the top are followed. Whoever writes `a.b` makes documents of scalars in an
//! array `a`, and then `{"a.c": null}` holds where it did not.

use marula_bson::{FieldPath, FieldSet, Type};

use crate::expression::{Expression, Path};
use crate::filter::{Node, PathNode, Predicate};
use crate::sort::{SortPart, SortPattern};

/// What a stage does to the fields at the top of its documents.
#[derive(Debug, Default)]
pub struct Passage {
    /// The fields that are named: left as they are where `keeps_named`, else all but these are.
    named: FieldSet,
    keeps_named: bool,
    /// Paths of the stage's documents and the input's path that each is a copy of.
    renamed: Vec<(FieldPath, FieldPath)>,
    /// Whether a copy is null where the field is missing, and stands for all values equal to it.
    stands_for_equals: bool,
    /// Whether nothing is known.
    is_closed: bool,
    /// Whether documents may be sorted before the stage as well.
    lets_sorts_pass: bool,
}

impl Passage {
    /// Every field is left as it is, but those that are named.
    pub fn all_but_named() -> Self {
        Passage::default()
    }

    /// The fields that are named are left as they are; of others nothing is known.
    pub fn only_named() -> Self {
        Passage { keeps_named: true, ..Passage::default() }
    }

    /// Nothing is known of any field.
    pub fn closed() -> Self {
        Passage { is_closed: true, ..Passage::default() }
    }

    /// Of a group, nothing but its key is known: one of values that are equal, null where there is
    /// none.
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

    /// Documents may be sorted before the stage as well, by fields that it leaves as they are: what
    /// becomes of one of them stays together and in order.
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

    /// Notes that the value at `path` of the stage's documents is that of the expression, where it
    /// is a field at the top.
    pub fn renames_to(&mut self, path: impl AsRef<[u8]>, value: &Expression) {
        if let Expression::Field(from) = value
            && let [name] = from.parts()
        {
            self.renamed.push((FieldPath::new(path), FieldPath::new(name)));
        }
    }

    /// The condition on the input that says what `node` says of the stage's documents; `None` where
    /// there is none.
    pub fn before(&self, node: &Node) -> Option<Node> {
        if self.is_closed {
            // The stage may give documents that no document of the input stands for.
            return None;
        }
        let all = |children: &[Node]| -> Option<Vec<Node>> {
            children.iter().map(|child| self.before(child)).collect()
        };
        Some(match node {
            Node::And(children) => Node::And(all(children)?),
            Node::Or(children) => Node::Or(all(children)?),
            Node::Nor(children) => Node::Nor(all(children)?),
            Node::Not(child) => Node::Not(Box::new(self.before(child)?)),
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
            Node::AlwaysTrue | Node::AlwaysFalse => node.clone(),
            Node::Schema(_) if self.keeps_all() => node.clone(),
            Node::Schema(_) | Node::Where(_) | Node::Text(_) => return None,
        })
    }

    /// Whether documents may be sorted before the stage in place of behind it.
    pub fn lets_pass(&self, pattern: &SortPattern) -> bool {
        self.lets_sorts_pass
            && pattern.parts().iter().all(|part| match part {
                SortPart::Path { path, .. } => self.keeps(path.first()),
                SortPart::Meta(_) => false,
            })
    }

    /// Whether every field is left as it is.
    fn keeps_all(&self) -> bool {
        !self.is_closed && !self.keeps_named && self.named.names().next().is_none()
    }

    /// Whether a field at the top is left as it is.
    fn keeps(&self, name: &[u8]) -> bool {
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

/// Whether a predicate holds of all values that are equal to one, and of what is missing as of
/// null.
fn is_of_equals(predicate: &Predicate) -> bool {
    let is_usual = |kind: Type| !matches!(kind, Type::MinKey | Type::MaxKey | Type::Undefined);
    match predicate {
        Predicate::Compare(constant) => is_usual(constant.value.kind()),
        Predicate::In(list) => {
            list.regexes().is_empty() && list.values().iter().all(|value| is_usual(value.kind()))
        }
        Predicate::Not(inner) => is_of_equals(inner),
        Predicate::All(list) => list.iter().all(is_of_equals),
        Predicate::AlwaysFalse => true,
        _ => false,
    }
}

/// Operators whose result is not decided by the fields of the document alone.
const NOT_REPEATABLE: [&str; 3] = ["$function", "$meta", "$rand"];

/// Whether an expression gives the same for the same fields whenever it is asked.
fn is_repeatable(expression: &Expression) -> bool {
    let mut is_repeatable = match expression {
        Expression::Call(call) => !NOT_REPEATABLE.contains(&call.operator.name),
        _ => true,
    };
    expression.for_each_child(&mut |child| is_repeatable &= self::is_repeatable(child));
    is_repeatable
}

//! The filter of a partial index, restricted so that the planner can decide which queries the index
//! serves.
//!
//! Comparisons, `$in`, `$exists: true`, `$type`, relations to places, and `$and` and `$or` of
//! these. Source: manual "Partial Indexes".

use marula_bson::{ByteSlice, Doc};
use marula_error::{Error, Result, codes, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::filter::{Draft, Filter, Node, Predicate, Purpose};
use marula_query::validation::allowed::near_not_allowed;

errors! {
    not_allowed_here(what: &str) = QueryFeatureNotAllowed, "{what} is not allowed in this context";
    special_not_allowed(what: &str) = BadValue, "{what} is not allowed in this context";
}

/// Parses the filter and refuses operators that are not conditions on a field.
pub(super) fn read(filter: Doc<'_>, context: &Context) -> Result<Draft> {
    check_operators(filter)?;
    let draft = Filter::draft(filter, Purpose::Any, context)?;
    check_near(draft.root())?;
    Ok(draft)
}

/// Parses the filter after checking that it has only allowed conditions.
///
/// Errors: the first condition that is not allowed, with its outline.
pub(super) fn finish(
    filter: Doc<'_>,
    draft: &Draft,
    collation: Option<&Collation>,
) -> Result<Filter> {
    check_conditions(draft.root())?;
    // Errors of the filter itself were reported when its draft was parsed.
    let collation = collation.cloned();
    let context = Context { collation, is_stored: true, ..Context::default() };
    Filter::parse(filter, &context)
}

fn check_operators(filter: Doc<'_>) -> Result<()> {
    for element in filter {
        let value = element.value.get();
        match element.name.as_bytes() {
            b"$expr" => return Err(not_allowed_here("$expr")),
            b"$jsonSchema" => return Err(not_allowed_here("$jsonSchema")),
            b"$where" => return Err(special_not_allowed("$where")),
            b"$text" => return Err(special_not_allowed("$text")),
            b"$and" | b"$or" | b"$nor" => {
                let children = value.as_array().unwrap_or(Doc::EMPTY);
                children
                    .values()
                    .filter_map(|child| child.as_doc())
                    .try_for_each(check_operators)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_near(node: &Node) -> Result<()> {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().try_for_each(check_near)
        }
        Node::Path(at) if matches!(at.predicate, Predicate::Near(_)) => Err(near_not_allowed()),
        _ => Ok(()),
    }
}

fn check_conditions(node: &Node) -> Result<()> {
    let is_allowed = |predicate: &Predicate| {
        matches!(
            predicate,
            Predicate::Compare(_)
                | Predicate::In(_)
                | Predicate::Exists
                | Predicate::Type(_)
                | Predicate::Geo(_)
        )
    };
    match node {
        Node::And(children) | Node::Or(children) => children.iter().try_for_each(check_conditions),
        Node::Path(at) => match &at.predicate {
            predicate if is_allowed(predicate) => Ok(()),
            Predicate::All(all) => {
                let each = all.iter().map(|one| Node::at(&at.path, one.clone()));
                each.into_iter().try_for_each(|one| check_conditions(&one))
            }
            _ => Err(unsupported(node)),
        },
        _ => Err(unsupported(node)),
    }
}

/// The error for a condition that is not allowed in the filter of a partial index.
fn unsupported(node: &Node) -> Error {
    let outline = node.outline_as_written();
    let text = format!("Expression not supported in partial index: {outline}");
    Error::new(codes::CannotCreateIndex, text)
}

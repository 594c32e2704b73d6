//! `$sortByCount`: groups by a value, the most frequent first; it becomes a `$group` and a `$sort`.

use marula_bson::{Value, doc};
use marula_error::{Result, errors};

use super::group::Group;
use super::sort::Sort;
use super::{Parser, StagePlace, StageRow};
use crate::accumulator::Accumulator;
use crate::expression::Expression;
use crate::feature_version::FeatureVersion;
use crate::sort::SortPattern;

pub(super) const ROW: StageRow = StageRow {
    name: "$sortByCount",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    object_without_operator() = 40147, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object";
    not_a_path() = 40148, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object";
    wrong_type() = 40149, "the sortByCount field must be specified as a string or as an object";
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(doc) => {
            if !doc.iter().next().is_some_and(|first| first.name.starts_with(b"$")) {
                return Err(object_without_operator());
            }
        }
        Value::String(text) if text.starts_with(b"$") => {}
        Value::String(_) => return Err(not_a_path()),
        _ => return Err(wrong_type()),
    }
    let key = Expression::parse(value, &mut parser.scope())?;
    let count = (b"count".to_vec().into(), Accumulator::counting());
    parser.push(Group::new(key, vec![count]));
    let by_count = doc! { "count": -1 };
    let pattern = SortPattern::parse(by_count.as_doc(), parser.context)?;
    parser.push(Sort::new(pattern, by_count));
    Ok(())
}

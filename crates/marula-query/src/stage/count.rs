//! `$count`: the number of documents; it becomes a `$group` and a `$project`.

use marula_bson::{DocBuf, Value, doc};
use marula_error::{Result, errors};

use super::project::Project;
use super::{Parser, StagePlace, StageRow, group};
use crate::feature_version::FeatureVersion;

pub(super) const ROW: StageRow =
    StageRow { name: "$count", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_string() = 40156, "the count field must be a non-empty string";
    empty() = 40157, "the count field must be a non-empty string";
    is_path() = 40158, "the count field cannot be a $-prefixed path";
    has_nul() = 40159, "the count field cannot contain a null byte";
    has_dot() = 40160, "the count field cannot contain '.'";
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::String(name) = value else {
        return Err(not_string());
    };
    match name.first() {
        None => return Err(empty()),
        Some(b'$') => return Err(is_path()),
        Some(_) if name.contains(&0) => return Err(has_nul()),
        Some(_) if name.contains(&b'.') => return Err(has_dot()),
        Some(_) => {}
    }
    let counted = DocBuf::build(|out| {
        out.append("_id", Value::Null);
        out.append(name, &doc! { "$sum": 1 });
    });
    group::parse(Value::Document(counted.as_doc()), parser)?;
    let shown = DocBuf::build(|out| {
        out.append(name, true).append("_id", false);
    });
    parser.push(Project::parse("$project", shown.as_doc(), parser.context)?);
    Ok(())
}

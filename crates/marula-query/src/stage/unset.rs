//! `$unset`: removes fields from the document; it becomes a `$project` that excludes.

use marula_bson::{DocBuf, Value};
use marula_error::{Result, errors};

use super::project::Project;
use super::{Parser, StagePlace, StageRow};

use crate::feature_version::FeatureVersion;

pub(super) const ROW: StageRow =
    StageRow { name: "$unset", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    wrong_type() = 31002, "$unset specification must be a string or an array";
    empty() = 31119, "$unset specification must be a string or an array with at least one field";
    embedded_nul() = 9527900, "illegal embedded NUL byte";
    not_strings() = 31120, "$unset specification must be a string or an array containing only string values";
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let names = match value {
        Value::String(name) => vec![name],
        Value::Array(items) if items.is_empty() => return Err(empty()),
        Value::Array(items) => items
            .values()
            .map(|item| item.as_str().ok_or_else(not_strings))
            .collect::<Result<_>>()?,
        _ => return Err(wrong_type()),
    };
    if names.iter().any(|name| name.contains(&0)) {
        return Err(embedded_nul());
    }
    let spec = DocBuf::build(|out| {
        for name in names {
            out.append(name, false);
        }
    });
    let project = Project::parse("$unset", spec.as_doc(), parser.context)?;
    parser.push(project);
    Ok(())
}

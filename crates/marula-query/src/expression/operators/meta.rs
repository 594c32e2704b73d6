//! `$meta`: metadata of a document.

use marula_bson::{Value, ValueBuf};
use marula_error::{Error, Result, errors};

use crate::context::Context;
use crate::expression::{Expression, Frame, Operator, Scope};
use crate::projection::Meta;

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special("$meta", parse_meta, meta).printed(print_meta).not_foldable()];

/// The code of the errors about metadata that documents do not have.
const LACK: i32 = 40_218;

errors! {
    meta_not_string() = 17307, "$meta only supports string arguments";
    meta_unknown(name: &str) = 17308, "Unsupported argument to $meta: {name}";
    no_text_score() = 40218, "query requires text score metadata, but it is not available";
    pub(crate) no_near_distance() = 40218, "query requires $geoNear distance metadata, but it is not available";
    pub(crate) no_sort_key() = BadValue, "cannot use sortKey $meta projection without a sort";
    pub(crate) no_near_point() = 40218, "query requires $geoNear point metadata, but it is not available";
}

/// Returns whether an error says that documents do not have some metadata.
pub(crate) fn is_lack(error: &Error) -> bool {
    error.code().number() == LACK
}

/// Parses the name of a kind of metadata. If the documents have none, some kinds are refused and
/// others are missing.
fn parse_meta(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::String(name) = value else {
        return Err(meta_not_string());
    };
    let Context { has_text_score, has_distance, .. } = scope.context;
    let lacks = |has: &bool| !has && !scope.filters();
    match &**name {
        b"textScore" if lacks(has_text_score) => Err(no_text_score()),
        b"geoNearDistance" if lacks(has_distance) => Err(no_near_distance()),
        b"geoNearPoint" if lacks(has_distance) => Err(no_near_point()),
        known if Meta::from_name(known).is_some() => Ok(operator.call([value.into()])),
        _ => Err(meta_unknown(&name.to_string())),
    }
}

fn print_meta(args: &[Expression]) -> ValueBuf {
    args[0].as_constant().unwrap_or(Value::Null).to_buf()
}

fn meta<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let name = args[0].as_constant().and_then(|name| name.as_str());
    let meta = name.and_then(|name| Meta::from_name(name));
    Ok(frame.known.zip(meta).and_then(|(known, meta)| known.metadata().get(meta)))
}

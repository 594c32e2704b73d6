//! `$percentile` and `$median` of the numbers of one array, always exact.

use marula_bson::Value;
use marula_error::Result;

use crate::accumulator::{Percentiles, Spec, counted, percentile};
use crate::expression::{Expression, Frame, Operator, Scope};
use crate::feature_version::FeatureVersion::V7_0;
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named("$median", &["input", "method"], parse, |args, frame| {
        eval(&args[0], &Percentiles::Median, frame)
    })
    .since(V7_0),
    Operator::named("$percentile", &["input", "p", "method"], parse, |args, frame| {
        let list = match args[1].as_constant() {
            Some(Value::Array(items)) => items.values().filter_map(|p| p.as_f64()).collect(),
            _ => Box::default(),
        };
        eval(&args[0], &Percentiles::List(list), frame)
    })
    .since(V7_0),
];

fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Spec { input, wanted } = Spec::parse(operator.name, value, scope)?;
    let method = Value::from("approximate").into();
    Ok(match wanted {
        Percentiles::Median => operator.call([input, method]),
        Percentiles::List(_) => {
            operator.call([input, Expression::Constant(wanted.array()), method])
        }
    })
}

/// The percentiles of an array's numbers; a number counts as itself, any other value as nothing.
fn eval<'a>(
    input: &'a Expression,
    wanted: &Percentiles,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let mut numbers: Vec<f64> = match input.eval(frame)? {
        Some(Value::Array(items)) => items.values().filter_map(counted).collect(),
        other => other.and_then(counted).into_iter().collect(),
    };
    meter::sort_keys_by(&mut numbers, f64::total_cmp)?;
    let found: Option<Vec<f64>> = wanted.list().iter().map(|&p| percentile(&numbers, p)).collect();
    wanted.value(found.as_deref(), frame.arena).map(Some)
}

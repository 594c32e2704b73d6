//! `$percentile` and `$median`: the numbers below which a fraction of a group's numbers lies.
//!
//! The expression operators of the same names share the argument's form and the arithmetic in
//! `quantile`. Source: manual "$percentile", "$median", new in 7.0.

use marula_bson::{ArrayWriter, Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use super::quantile::{Digest, counted};
use super::{Accumulator, AccumulatorRow, Settings, State, document};
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::once::unknown_field;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow { name: "$median", since: FeatureVersion::V7_0, parse, start: nothing },
    AccumulatorRow { name: "$percentile", since: FeatureVersion::V7_0, parse, start: nothing },
];

errors! {
    median_not_object(text: &str) = 7436100, "$median takes an object, not {text}";
    percentile_not_object(text: &str) = 7429703, "$percentile takes an object, not {text}";
    missing_field(name: &str, field: &str) = IDLFailedToParse, "BSON field '{name}.{field}' is missing but a required field";
    method_type(name: &str, kind: &str) = TypeMismatch, "BSON field '{name}.method' is the wrong type '{kind}', expected type 'string'";
    bad_method() = BadValue, "the 'method' of a percentile is 'approximate'; there is no other";
    p_not_constant(text: &str) = 7750300, "'p' of $percentile is an array of constants, not {text}";
    p_empty() = 7750301, "'p' of $percentile needs at least one number from 0 to 1";
    p_not_number(text: &str) = 7750302, "'p' of $percentile is made of numbers, not of {text}";
    p_out_of_range(text: &str) = 7750303, "'p' of $percentile is made of numbers from 0 to 1, and {text} is none";
}

/// The only supported method.
const METHOD: &str = "approximate";

/// The argument of either operator.
pub(crate) struct Spec {
    /// The expression whose numbers are used.
    pub(crate) input: Expression,
    /// The requested percentiles: for `$median`, the one at 0.5.
    pub(crate) wanted: Percentiles,
}

/// The requested percentiles and the form of the result.
#[derive(Clone, Debug)]
pub(crate) enum Percentiles {
    /// One number: the percentile at 0.5.
    Median,
    /// An array with one number per percentile.
    List(Box<[f64]>),
}

impl Percentiles {
    /// The percentiles, from 0 to 1.
    pub(crate) fn list(&self) -> &[f64] {
        match self {
            Percentiles::Median => &[0.5],
            Percentiles::List(list) => list,
        }
    }

    /// The result; null in place of each percentile if there are no numbers.
    pub(crate) fn value<'a>(&self, found: Option<&[f64]>, arena: &'a Arena) -> Result<Value<'a>> {
        let at = |at: usize| found.map_or(Value::Null, |found| Value::Double(found[at]));
        match self {
            Percentiles::Median => Ok(at(0)),
            Percentiles::List(list) => arena.array((0..list.len()).map(at)),
        }
    }

    /// Same as [`Percentiles::value`], as an owned value.
    pub(crate) fn to_value(&self, found: Option<&[f64]>) -> ValueBuf {
        let at = |at: usize| found.map_or(Value::Null, |found| Value::Double(found[at]));
        match self {
            Percentiles::Median => at(0).to_buf(),
            Percentiles::List(list) => array((0..list.len()).map(at)),
        }
    }

    /// The percentiles as an array.
    pub(crate) fn array(&self) -> ValueBuf {
        array(self.list().iter().map(|&p| Value::Double(p)))
    }
}

fn array<'v>(values: impl Iterator<Item = Value<'v>>) -> ValueBuf {
    let mut bytes = Vec::new();
    let mut out = ArrayWriter::new(&mut bytes);
    for value in values {
        out.push(value);
    }
    out.finish();
    Value::Array(Doc::trusted(&bytes)).to_buf()
}

impl Spec {
    /// Parses `{ input: <expression>, p: [ … ], method: "approximate" }`; `$median` has no `p`.
    pub(crate) fn parse(name: &str, value: Value<'_>, scope: &mut Scope<'_>) -> Result<Spec> {
        let is_median = name == "$median";
        let Value::Document(doc) = value else {
            let text = format!("{name}: {}", print::element(value));
            return Err(match is_median {
                true => median_not_object(&text),
                false => percentile_not_object(&text),
            });
        };
        let (mut input, mut p, mut method) = (None, None, None);
        for element in doc {
            let slot = match &**element.name {
                b"input" => &mut input,
                b"p" if !is_median => &mut p,
                b"method" => &mut method,
                _ => return Err(unknown_field(name, element.name)),
            };
            *slot = Some(element.value.get());
        }
        let input = input.ok_or_else(|| missing_field(name, "input"))?;
        if p.is_none() && !is_median {
            return Err(missing_field(name, "p"));
        }
        match method.ok_or_else(|| missing_field(name, "method"))? {
            Value::String(method) if method == METHOD => {}
            Value::String(_) => return Err(bad_method()),
            other => return Err(method_type(name, other.kind().alias())),
        }
        let input = Expression::parse(input, scope)?;
        let wanted = match p {
            None => Percentiles::Median,
            Some(p) => parse_p(p, scope)?,
        };
        Ok(Spec { input, wanted })
    }
}

/// The percentiles in `p`, which must be constant.
fn parse_p(value: Value<'_>, scope: &mut Scope<'_>) -> Result<Percentiles> {
    let mut expression = Expression::parse(value, scope)?;
    expression.optimize(scope.context)?;
    let Some(Value::Array(items)) = expression.as_constant() else {
        return Err(p_not_constant(&print::value(value)));
    };
    let read = |item: Value<'_>| {
        let Some(p) = item.as_f64() else {
            return Err(p_not_number(&print::value(item)));
        };
        match (0.0..=1.0).contains(&p) {
            true => Ok(p),
            false => Err(p_out_of_range(&print::value(item))),
        }
    };
    let list: Box<[f64]> = items.values().map(read).collect::<Result<_>>()?;
    if list.is_empty() {
        return Err(p_empty());
    }
    Ok(Percentiles::List(list))
}

fn parse(
    row: &'static AccumulatorRow,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let Spec { input, wanted } = Spec::parse(row.name, value, scope)?;
    Ok(Accumulator { row, argument: input, settings: Settings::Percentile(wanted) })
}

fn nothing() -> Box<dyn State> {
    start(&Percentiles::Median)
}

/// Starts a group.
pub(super) fn start(wanted: &Percentiles) -> Box<dyn State> {
    Box::new(Percentile { wanted: wanted.clone(), digest: Digest::default() })
}

/// The form of the argument in `explain`.
pub(super) fn print(wanted: &Percentiles, input: &Expression) -> ValueBuf {
    document(|out| {
        out.append("input", &input.print());
        if let Percentiles::List(_) = wanted {
            out.append("p", &wanted.array());
        }
        out.append("method", METHOD);
    })
}

struct Percentile {
    wanted: Percentiles,
    digest: Digest,
}

impl State for Percentile {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        Ok(value.and_then(counted).map_or(0, |number| self.digest.add(number)))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        let found = self.digest.percentiles(self.wanted.list());
        self.wanted.value(found.as_deref(), arena)
    }
}

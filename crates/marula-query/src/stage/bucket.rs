//! `$bucket`: groups by ranges of a value; it becomes a `$group` by a `$switch`, and a `$sort`.

use marula_bson::{Doc, Value, ValueBuf, doc, order};
use marula_error::{Result, errors};

use super::group::{Field, Group, parse_field};
use super::sort::Sort;
use super::{Parser, StagePlace, StageRow};
use crate::accumulator::Accumulator;
use crate::expression::{Expression, print};
use crate::feature_version::FeatureVersion;
use crate::sort::SortPattern;

pub(super) const ROW: StageRow =
    StageRow { name: "$bucket", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object(kind: &str) = 40201, "Argument to $bucket stage must be an object, but found type: {kind}.";
    group_by_not_expression(text: &str) = 40202, "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but found: {text}.";
    boundaries_not_array(kind: &str) = 40200, "The $bucket 'boundaries' field must be an array, but found type: {kind}.";
    boundary_not_constant(text: &str) = 40191, "The $bucket 'boundaries' field must be an array of constant values, but found value: {text}.";
    too_few_boundaries(count: usize) = 40192, "The $bucket 'boundaries' field must have at least 2 values, but found {count} value(s).";
    boundary_types_differ(left: &str, right: &str) = 40193, "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types {left} and {right}.";
    boundaries_not_sorted(at: usize, next: usize, left: &str, right: &str) = 40194, "The 'boundaries' option to $bucket must be sorted, but elements {at} and {next} are not in ascending order ({left} is not less than {right}).";
    default_not_constant(text: &str) = 40195, "The $bucket 'default' field must be a constant expression, but found: {text}.";
    output_not_object(kind: &str) = 40196, "The $bucket 'output' field must be an object, but found type: {kind}.";
    unknown_option(name: &str) = 40197, "Unrecognized option to $bucket: {name}.";
    missing_option() = 40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.";
    default_in_range() = 40199, "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.";
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let mut group_by = None;
    // Those of a field that is given twice follow each other.
    let mut boundaries = Vec::new();
    let mut default = None;
    let mut outputs = Vec::new();
    for element in spec {
        let value = element.value.get();
        match &**element.name {
            b"groupBy" if !is_expression(value) => {
                return Err(group_by_not_expression(&print::element(value)));
            }
            b"groupBy" => group_by = Some(value),
            b"boundaries" => parse_boundaries(value, parser, &mut boundaries)?,
            b"default" => {
                let constant = constant(value, parser)?;
                default =
                    Some(constant.ok_or_else(|| default_not_constant(&print::element(value)))?);
            }
            b"output" => {
                outputs
                    .push(value.as_doc().ok_or_else(|| output_not_object(value.kind().alias()))?);
            }
            _ => return Err(unknown_option(&element.name.to_string())),
        }
    }
    let Some(group_by) = group_by.filter(|_| !boundaries.is_empty()) else {
        return Err(missing_option());
    };
    check_default(&boundaries, default.as_ref(), parser)?;
    let fields = match &*outputs {
        [] => vec![(b"count".to_vec().into(), Accumulator::counting())],
        outputs => parse_outputs(outputs, parser)?,
    };
    // The group key is parsed last.
    let key = switch(group_by, &boundaries, default.as_ref(), parser)?;
    parser.push(Group::new(key, fields));
    let by_id = doc! { "_id": 1 };
    let pattern = SortPattern::parse(by_id.as_doc(), parser.context)?;
    parser.push(Sort::new(pattern, by_id));
    Ok(())
}

/// Returns whether a value is a path or an operator, as `groupBy` must be.
pub(super) fn is_expression(value: Value<'_>) -> bool {
    match value {
        Value::String(text) => text.starts_with(b"$"),
        Value::Document(doc) => doc.iter().next().is_some_and(|first| first.name.starts_with(b"$")),
        _ => false,
    }
}

/// Parses the fields of the result.
fn parse_outputs(outputs: &[Doc<'_>], parser: &Parser<'_>) -> Result<Vec<Field>> {
    let fields = outputs.iter().copied().flat_map(Doc::iter);
    fields.map(|element| parse_field(element.name, element.value.get(), parser)).collect()
}

/// Returns the constant value of an expression, if it is constant.
fn constant(value: Value<'_>, parser: &Parser<'_>) -> Result<Option<ValueBuf>> {
    let mut expression = Expression::parse(value, &mut parser.scope())?;
    expression.optimize(parser.context)?;
    Ok(expression.as_constant().map(|value| value.to_buf()))
}

fn parse_boundaries(
    value: Value<'_>,
    parser: &Parser<'_>,
    boundaries: &mut Vec<ValueBuf>,
) -> Result<()> {
    let Value::Array(items) = value else {
        return Err(boundaries_not_array(value.kind().alias()));
    };
    for item in items.values() {
        let constant = constant(item, parser)?;
        boundaries.push(constant.ok_or_else(|| boundary_not_constant(&print::element(item)))?);
    }
    if boundaries.len() < 2 {
        return Err(too_few_boundaries(boundaries.len()));
    }
    for (at, pair) in boundaries.windows(2).enumerate() {
        let (left, right) = (pair[0].get(), pair[1].get());
        let same_class =
            left.kind() == right.kind() || (left.kind().is_number() && right.kind().is_number());
        if !same_class {
            return Err(boundary_types_differ(left.kind().alias(), right.kind().alias()));
        }
        if order::compare(left, right, parser.context.collator()).is_ge() {
            return Err(boundaries_not_sorted(
                at,
                at + 1,
                &print::value(left),
                &print::value(right),
            ));
        }
    }
    Ok(())
}

fn check_default(
    boundaries: &[ValueBuf],
    default: Option<&ValueBuf>,
    parser: &Parser<'_>,
) -> Result<()> {
    let (Some(default), [first, .., last]) = (default, boundaries) else {
        return Ok(());
    };
    let collator = parser.context.collator();
    let is_below = order::compare(default.get(), first.get(), collator).is_lt();
    let is_above = order::compare(default.get(), last.get(), collator).is_ge();
    if is_below || is_above { Ok(()) } else { Err(default_in_range()) }
}

/// Returns the `$switch` that maps a value to its lower boundary.
fn switch(
    group_by: Value<'_>,
    boundaries: &[ValueBuf],
    default: Option<&ValueBuf>,
    parser: &Parser<'_>,
) -> Result<Expression> {
    let spec = marula_bson::DocBuf::build(|out| {
        let mut out = out.begin_doc("$switch");
        let mut branches = out.begin_array("branches");
        for pair in boundaries.windows(2) {
            let mut branch = branches.begin_doc();
            let mut case = branch.begin_doc("case");
            let mut both = case.begin_array("$and");
            for (operator, boundary) in [("$gte", &pair[0]), ("$lt", &pair[1])] {
                let mut comparison = both.begin_doc();
                let mut operands = comparison.begin_array(operator);
                operands.push(group_by);
                operands.begin_doc().append("$const", boundary);
            }
            both.finish();
            case.finish();
            branch.begin_doc("then").append("$const", &pair[0]);
        }
        branches.finish();
        if let Some(default) = default {
            out.begin_doc("default").append("$const", default);
        }
    });
    Expression::parse_object(spec.as_doc(), &mut parser.scope())
}

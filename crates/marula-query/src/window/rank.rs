//! Window functions of position: ranks, `$documentNumber`, `$shift`.

use marula_bson::{Doc, DocWriter, Type, Value, ValueBuf, long, order};
use marula_error::{Result, errors};

use super::function::{Function, FunctionRow, Part, Spec, only_sort_field, shown};
use super::{Partition, SortBy};
use crate::context::Context;
use crate::expression::number::int_or_long;
use crate::expression::{Expression, Scope};
use crate::meter;
use crate::stage::needs::Needs;

pub(super) static ROWS: &[FunctionRow] = &[
    FunctionRow { name: "$denseRank", parse: parse_rank },
    FunctionRow { name: "$documentNumber", parse: parse_rank },
    FunctionRow { name: "$rank", parse: parse_rank },
    FunctionRow { name: "$shift", parse: parse_shift },
];

errors! {
    rank_with_window() = 5371601, "Rank style window functions take no other arguments";
    rank_needs_one_field(name: &str) = 5371602, "{name} must be specified with a top level sortBy expression with exactly one element";
    rank_with_argument() = 5371603, "(None) must be specified with '{{}}' as the value";
    shift_with_window() = FailedToParse, "$shift does not accept a 'window' field";
    shift_needs_sort() = FailedToParse, "'$shift' requires a sortBy";
    shift_not_object() = FailedToParse, "Argument to $shift must be an object";
    shift_no_output() = FailedToParse, "$shift requires an 'output' expression.";
    shift_no_by() = FailedToParse, "$shift requires 'by' as an integer value.";
    shift_by_not_integer(field: &str) = FailedToParse, "'$shift:by' field must be an integer, but found  {field}";
    shift_default_not_constant() = FailedToParse, "'$shift:default' expression must yield a constant value.";
    shift_unknown() = FailedToParse, "Unknown argument in $shift";
}

#[derive(Clone, Copy, Debug)]
enum Style {
    Rank,
    Dense,
    Number,
}

#[derive(Debug)]
struct Rank {
    style: Style,
    sort_by: SortBy,
}

fn parse_rank(spec: &Spec<'_>, _: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    if spec.fields.iter().count() != 1 {
        return Err(rank_with_window());
    }
    if !spec.argument.as_doc().is_some_and(|doc| doc.is_empty()) {
        return Err(rank_with_argument());
    }
    let sort_by = only_sort_field(spec.sort, || rank_needs_one_field(spec.name))?;
    let style = match spec.name {
        "$rank" => Style::Rank,
        "$denseRank" => Style::Dense,
        _ => Style::Number,
    };
    Ok(Box::new(Rank { style, sort_by }))
}

impl Function for Rank {
    fn optimize(&mut self, _: &Context) -> Result<()> {
        Ok(())
    }

    fn reads(&self, _: &mut Needs) {}

    fn print(&self, out: &mut DocWriter<'_>) {
        let name = match self.style {
            Style::Rank => "$rank",
            Style::Dense => "$denseRank",
            Style::Number => "$documentNumber",
        };
        out.append(name, Doc::EMPTY);
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let collator = partition.context.collator();
        let sorted = partition.sort_values(&self.sort_by)?;
        let mut values = Vec::with_capacity(sorted.len());
        let (mut rank, mut dense) = (0, 0);
        for (at, value) in sorted.iter().enumerate() {
            meter::spend(meter::CALL)?;
            let number = long(at).saturating_add(1);
            let before = at.checked_sub(1).and_then(|before| sorted.get(before));
            let is_tie = before.is_some_and(|before| match (before, value) {
                (Some(before), Some(value)) => order::equal(before.get(), value.get(), collator),
                // Missing and undefined compare as equal.
                (before, value) => [before, value].into_iter().flatten().all(is_undefined),
            });
            if !is_tie {
                rank = number;
                dense += 1;
            }
            let chosen = match self.style {
                Style::Rank => rank,
                Style::Dense => dense,
                Style::Number => number,
            };
            values.push(Value::from(int_or_long(chosen)).to_buf());
        }
        Ok(values)
    }
}

#[derive(Debug)]
struct Shift {
    output: Expression,
    by: i64,
    default: ValueBuf,
}

fn is_undefined(value: &ValueBuf) -> bool {
    value.kind() == Type::Undefined
}

fn parse_shift(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let mut shift = None;
    spec.for_each(|part| match part {
        Part::Argument(argument) => {
            shift = Some(Shift::parse(argument, scope)?);
            Ok(())
        }
        Part::Window(_) => Err(shift_with_window()),
    })?;
    if spec.sort.is_none() {
        return Err(shift_needs_sort());
    }
    let shift = shift.ok_or_else(shift_not_object)?;
    Ok(Box::new(shift))
}

impl Shift {
    fn parse(argument: Value<'_>, scope: &mut Scope<'_>) -> Result<Self> {
        let doc = argument.as_doc().ok_or_else(shift_not_object)?;
        let (mut output, mut by) = (None, None);
        let mut default = Value::Null.to_buf();
        for element in doc {
            let value = element.value.get();
            match &**element.name {
                b"output" => output = Some(Expression::parse(value, scope)?),
                b"by" => {
                    let whole = value.as_exact_i64().filter(|by| i32::try_from(*by).is_ok());
                    by = Some(whole.ok_or_else(|| shift_by_not_integer(&shown("by", value)))?);
                }
                b"default" => {
                    let mut parsed = Expression::parse(value, scope)?;
                    parsed.optimize(scope.context)?;
                    let constant = parsed.as_constant().ok_or_else(shift_default_not_constant)?;
                    default = constant.to_buf();
                }
                _ => return Err(shift_unknown()),
            }
        }
        let output = output.ok_or_else(shift_no_output)?;
        Ok(Shift { output, by: by.ok_or_else(shift_no_by)?, default })
    }
}

impl Function for Shift {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.output.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.output);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        let mut argument = out.begin_doc("$shift");
        argument.append("by", int_or_long(self.by));
        argument.append("output", &self.output.print());
        argument.append("default", &self.default);
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let count = partition.documents.len();
        let source = |at: usize| {
            let from = i64::try_from(at).ok()?.checked_add(self.by)?;
            usize::try_from(from).ok().filter(|&from| from < count)
        };
        let mut wanted = vec![false; count];
        (0..count).filter_map(source).for_each(|from| wanted[from] = true);
        let values = partition.values_of(&self.output, &wanted)?;
        let value = |at: usize| source(at).and_then(|from| values[from].clone());
        Ok((0..count).map(|at| value(at).unwrap_or_else(|| self.default.clone())).collect())
    }
}

//! Conditional operators.

use marula_bson::{DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::named;
use crate::context::Context;
use crate::expression::operator::{parse_list, wrong_count};
use crate::expression::{Call, Expression, Frame, Operator, Scope};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::special("$cond", parse_cond, cond),
    Operator::special("$ifNull", parse_if_null, if_null),
    Operator::special("$switch", parse_switch, switch).printed(print_switch),
];

errors! {
    cond_missing_if() = 17080, "Missing 'if' parameter to $cond";
    cond_missing_then() = 17081, "Missing 'then' parameter to $cond";
    cond_missing_else() = 17082, "Missing 'else' parameter to $cond";
    cond_unknown(name: &str) = 17083, "Unrecognized parameter to $cond: {name}";
    if_null_too_few(count: usize) = 1257300, "$ifNull needs at least two arguments, had: {count}";
    switch_not_object(kind: &str) = 40060, "$switch requires an object as an argument, found: {kind}";
    switch_branches_not_array(kind: &str) = 40061, "$switch expected an array for 'branches', found: {kind}";
    switch_branch_not_object(kind: &str) = 40062, "$switch expected each branch to be an object, found: {kind}";
    switch_branch_unknown(name: &str) = 40063, "$switch found an unknown argument to a branch: {name}";
    switch_branch_no_case() = 40064, "$switch requires each branch have a 'case' expression";
    switch_branch_no_then() = 40065, "$switch requires each branch have a 'then' expression.";
    pub(in crate::expression) switch_no_match() = 40066, "$switch could not find a matching branch for an input, and no default was specified.";
    switch_never() = 40069, "Cannot execute a switch statement where all the cases evaluate to false without a default";
    switch_unknown(name: &str) = 40067, "$switch found an unknown argument: {name}";
    switch_no_branches() = 40068, "$switch requires at least one branch";
}

fn parse_cond(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        let args = parse_list(value, scope)?;
        return match args.len() {
            3 => Ok(operator.call(args)),
            count => Err(wrong_count("$cond", 3, count)),
        };
    };
    let [condition, then, other] = named::parsed(doc, ["if", "then", "else"], scope, cond_unknown)?;
    let condition = condition.ok_or_else(cond_missing_if)?;
    let then = then.ok_or_else(cond_missing_then)?;
    let other = other.ok_or_else(cond_missing_else)?;
    Ok(operator.call([condition, then, other]))
}

fn cond<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let chosen = if args[0].eval_truth(frame)? { &args[1] } else { &args[2] };
    chosen.eval(frame)
}

fn parse_if_null(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let args = parse_list(value, scope)?;
    match args.len() {
        0 | 1 => Err(if_null_too_few(args.len())),
        _ => Ok(operator.call(args)),
    }
}

fn if_null<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let (last, candidates) = args.split_last().expect("parsing asked for two arguments");
    for candidate in candidates {
        if let Some(value) = super::known(candidate, frame)? {
            return Ok(Some(value));
        }
    }
    last.eval(frame)
}

/// The arguments are case, then, case, then, …, followed by the default if there is one.
fn parse_switch(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(switch_not_object(value.kind().alias()));
    };
    let mut args = Vec::new();
    let mut default = None;
    for element in doc {
        match &**element.name {
            b"branches" => {
                let Value::Array(items) = element.value.get() else {
                    return Err(switch_branches_not_array(element.value.kind().alias()));
                };
                for item in items.values() {
                    args.extend(parse_branch(item, scope)?);
                }
            }
            b"default" => default = Some(Expression::parse(element.value.get(), scope)?),
            _ => return Err(switch_unknown(&element.name.to_string())),
        }
    }
    if args.is_empty() {
        return Err(switch_no_branches());
    }
    args.extend(default);
    Ok(operator.call(args))
}

fn parse_branch(item: Value<'_>, scope: &mut Scope<'_>) -> Result<[Expression; 2]> {
    let Value::Document(doc) = item else {
        return Err(switch_branch_not_object(item.kind().alias()));
    };
    let [case, then] = named::parsed(doc, ["case", "then"], scope, switch_branch_unknown)?;
    let case = case.ok_or_else(switch_branch_no_case)?;
    Ok([case, then.ok_or_else(switch_branch_no_then)?])
}

/// Folds the constants of a `$switch`: removes branches that are never taken, without optimizing
/// their `then`. Returns the result of the call if no branch is left.
pub(in crate::expression) fn optimize_switch(
    call: &mut Call,
    context: &Context,
) -> Result<Option<Expression>> {
    let (branches, default) = call.args.as_chunks_mut::<2>();
    // The default is optimized first, wherever it is written and whether or not it is used.
    default.iter_mut().try_for_each(|default| default.optimize(context))?;
    let mut kept = Vec::new();
    let mut decided = None;
    for (at, [case, then]) in branches.iter_mut().enumerate() {
        case.optimize(context)?;
        let truth = match &*case {
            Expression::Missing => Some(false),
            case => case.as_constant().map(|value| value.is_truthy()),
        };
        match truth {
            Some(false) => continue,
            Some(true) => {
                then.optimize(context)?;
                decided = Some(at);
                break;
            }
            None => then.optimize(context)?,
        }
        kept.push(at);
    }
    if decided.is_none() && kept.is_empty() && default.is_empty() {
        return Err(switch_never());
    }
    let last = if default.is_empty() { None } else { call.args.len().checked_sub(1) };
    let default = decided.map(|at| 2 * at + 1).or(last);
    let mut take = |at: usize| std::mem::replace(&mut call.args[at], Expression::Missing);
    if kept.is_empty() {
        return Ok(default.map(take));
    }
    let mut args: Vec<_> = kept.iter().flat_map(|at| [take(2 * at), take(2 * at + 1)]).collect();
    args.extend(default.map(take));
    call.args = args.into();
    Ok(None)
}

fn switch<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let (branches, default) = args.as_chunks::<2>();
    for [case, then] in branches {
        if case.eval_truth(frame)? {
            return then.eval(frame);
        }
    }
    match default {
        [default, ..] => default.eval(frame),
        [] => Err(switch_no_match()),
    }
}

fn print_switch(args: &[Expression]) -> ValueBuf {
    let (branches, default) = args.as_chunks::<2>();
    let doc = DocBuf::build(|out| {
        let mut list = out.begin_array("branches");
        for [case, then] in branches {
            list.begin_doc().append("case", &case.print()).append("then", &then.print());
        }
        list.finish();
        if let [default, ..] = default {
            out.append("default", &default.print());
        }
    });
    Value::Document(doc.as_doc()).to_buf()
}

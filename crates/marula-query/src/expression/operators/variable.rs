//! Operators that bind variables: `$let`.

use marula_bson::{DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::named;
use crate::expression::scope::check_user_variable;
use crate::expression::{Expression, Frame, Operator, Scope};

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special("$let", parse_let, eval_let).printed(print_let).not_foldable()];

errors! {
    let_not_object() = 16874, "$let only supports an object as its argument";
    let_unknown(name: &str) = 16875, "Unrecognized parameter to $let: {name}";
    let_missing_vars() = 16876, "Missing 'vars' parameter to $let";
    let_missing_in() = 16877, "Missing 'in' parameter to $let";
    vars_not_object() = 10065, "invalid parameter: expected an object (vars)";
}

/// The arguments are the body, followed by a name and a value for each variable.
fn parse_let(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(let_not_object());
    };
    let [vars, body] = named::unparsed(doc, ["vars", "in"], let_unknown)?;
    let vars = vars.ok_or_else(let_missing_vars)?;
    let body = body.ok_or_else(let_missing_in)?;
    // As in mongod, an array is an object here, whose names are no names of variables.
    let (Value::Document(vars) | Value::Array(vars)) = vars else {
        return Err(vars_not_object());
    };
    // The variables do not see each other, so all values are parsed before the first is bound.
    let mut args = vec![Expression::Missing];
    let mut names = Vec::new();
    for var in vars {
        let name = var.name.to_string();
        args.push(Value::from(&*name).into());
        args.push(Expression::parse(var.value.get(), scope)?);
        names.push(name);
    }
    names.iter().try_for_each(|name| check_user_variable(name))?;
    names.iter().for_each(|name| scope.bind(name));
    let body = Expression::parse(body, scope);
    scope.unbind(names.len());
    args[0] = body?;
    Ok(operator.call(args))
}

fn eval_let<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let (body, vars) = args.split_first().expect("parsing put the body first");
    body.eval(&bind_all(vars, frame)?)
}

/// The frame with the variables of these names and values.
pub(super) fn bind_all<'a>(vars: &'a [Expression], frame: &Frame<'a>) -> Result<Frame<'a>> {
    let mut inner = *frame;
    for [_, value] in vars.as_chunks::<2>().0 {
        inner = inner.bind(value.eval(frame)?);
    }
    Ok(inner)
}

fn print_let(args: &[Expression]) -> ValueBuf {
    let Some((body, vars)) = args.split_first() else {
        return Value::Null.to_buf();
    };
    let doc = DocBuf::build(|out| {
        let mut list = out.begin_doc("vars");
        for [name, value] in vars.as_chunks::<2>().0 {
            let name = name.as_constant().and_then(|name| name.as_str()).unwrap_or_default();
            list.append(name, &value.print());
        }
        list.finish();
        out.append("in", &body.print());
    });
    Value::Document(doc.as_doc()).to_buf()
}

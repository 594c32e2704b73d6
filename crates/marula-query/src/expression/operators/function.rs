//! `$function`: a JavaScript function that computes a value.
//!
//! Source: manual "$function (aggregation)"; behaviour and messages recorded from mongod 6.0.

use bstr::ByteSlice;
use marula_bson::{DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use crate::expression::{Expression, Frame, Operator, Scope};
use crate::javascript::{self, Globals};

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special("$function", parse, function).printed(print).not_foldable()];

errors! {
    not_an_object(kind: &str) = 31260, "$function requires an object as an argument, found: {kind}";
    no_body() = 31261, "The body function must be specified.";
    body_wrong_type() = 31262, "The body function must evaluate to type string or code";
    no_args() = 31263, "The args field must be specified.";
    args_not_an_array() = 31266, "The args field must be of type array";
    no_lang() = 31418, "The lang field must be specified.";
    lang_not_js() = 31419, "Currently the only supported language specifier is 'js'.";
    body_not_constant() = 31432, "The body function must be a constant expression";
}

/// Parses `{ body: <code>, args: <array>, lang: "js" }`.
fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else { return Err(not_an_object(value.kind().alias())) };
    let body = Expression::parse(doc.get("body").ok_or_else(no_body)?, scope)?;
    match body.as_constant().ok_or_else(body_not_constant)? {
        Value::String(_) | Value::Code(_) => {}
        _ => return Err(body_wrong_type()),
    }
    let args = Expression::parse(doc.get("args").ok_or_else(no_args)?, scope)?;
    match doc.get("lang").ok_or_else(no_lang)? {
        Value::String(lang) if lang == "js" => {}
        _ => return Err(lang_not_js()),
    }
    Ok(operator.call([body, args]))
}

fn function<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let [body, args] = args else { return Ok(None) };
    let Some(Value::String(body) | Value::Code(body)) = body.as_constant() else {
        return Err(body_wrong_type());
    };
    let Some(Value::Array(args)) = args.eval(frame)? else { return Err(args_not_an_array()) };
    let result = javascript::call(
        &body.to_str_lossy(),
        args,
        Globals::Own,
        frame.context.interrupt.as_ref(),
    )?;
    frame.arena.keep(result.get()).map(Some)
}

fn print(args: &[Expression]) -> ValueBuf {
    let doc = DocBuf::build(|out| {
        if let [body, args] = args {
            out.append("body", body.as_constant().unwrap_or(Value::Null));
            out.append("args", &args.print());
            out.append("lang", "js");
        }
    });
    Value::Document(doc.as_doc()).to_buf()
}

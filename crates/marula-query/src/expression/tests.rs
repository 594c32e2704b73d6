//! Expressions against answers recorded from mongod 6.0.
//!
//! A case is a document `{ e: <expression>, d: <document>, r: <result> }`; without `r` the result is
//! missing, with `code` and `msg` it is an error. The files are such documents one after another. More of
//! them can be named in the environment variable `MARULA_EXPRESSION_CASES`.

use marula_bson::{Doc, Value};

use super::{Arena, Expression, Frame, Scope};
use crate::context::Context;

/// Evaluates a case as mongod does: parse, compute constants, evaluate.
fn answer<'a>(
    parsed: &'a mut Option<Expression>,
    case: Doc<'_>,
    doc: Doc<'a>,
    arena: &'a Arena,
    context: &'a Context,
) -> marula_error::Result<Option<Value<'a>>> {
    let spec = case.get("e").expect("a case has an expression");
    let mut expression = Expression::parse(spec, &mut Scope::new(context))?;
    expression.optimize(context)?;
    parsed.insert(expression).eval(&Frame::new(doc, arena, context))
}

/// What a case got wrong, if anything.
fn check(case: Doc<'_>, context: &Context) -> Option<String> {
    let doc = case.get("d").and_then(|doc| doc.as_doc()).expect("a case has a document");
    let arena = Arena::new();
    let mut parsed = None;
    let got = answer(&mut parsed, case, doc, &arena, context);
    let spec = case.get("e").expect("a case has an expression");
    let code = case.get("code").map(|code| code.as_exact_i64().expect("a code is a number"));
    match (&got, code) {
        (Ok(got), None) if same(*got, case.get("r")) => None,
        (Err(error), Some(code)) if i64::from(error.code().number()) == code => {
            let message =
                case.get("msg").and_then(|text| text.as_str()).expect("an error has a text");
            (error.message().as_bytes() != &**message)
                .then(|| format!("{spec}\n  want {message}\n  got  {}", error.message()))
        }
        _ => {
            let want = match code {
                Some(code) => format!("error {code} {:?}", case.get("msg")),
                None => format!("{:?}", case.get("r")),
            };
            Some(format!("{spec}\n  want {want}\n  got  {got:?}"))
        }
    }
}

/// Whether two values have the same bytes; any NaN is NaN.
fn same(a: Option<Value<'_>>, b: Option<Value<'_>>) -> bool {
    match (a, b) {
        (Some(Value::Double(a)), Some(Value::Double(b))) if a.is_nan() => b.is_nan(),
        (Some(Value::Decimal128(a)), Some(Value::Decimal128(b))) if a.is_nan() => b.is_nan(),
        (Some(a), Some(b)) => a.to_buf() == b.to_buf(),
        (None, None) => true,
        _ => false,
    }
}

fn check_all(name: &str, mut cases: &[u8]) {
    let context = Context::default();
    let mut count = 0;
    let mut wrong = Vec::new();
    while let Some(size) = cases.first_chunk::<4>() {
        let size = usize::try_from(u32::from_le_bytes(*size)).expect("a size fits");
        let (case, rest) = cases.split_at(size);
        cases = rest;
        count += 1;
        wrong.extend(check(Doc::trusted(case), &context));
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} of {count} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn further_cases_answer_as_recorded() {
    let Ok(paths) = std::env::var("MARULA_EXPRESSION_CASES") else {
        return;
    };
    for path in paths.split(':') {
        check_all(path, &std::fs::read(path).expect("the cases can be read"));
    }
}

//! Expressions compared with results recorded from mongod 6.0.
//!
//! A case is a document `{ e: <expression>, r: <result> }`; without `r` the result is missing, with
//! `code` and `msg` it is an error; `d` is the document if it is not the common one.
//! `recorded.bson` holds the common document followed by the cases. The environment variable
//! `MARULA_EXPRESSION_CASES` can name more files.
//!
//! `edges.bson` holds every operator with unusual arguments: limits of ranges, other types, missing
//! values, as constants and as fields.
//!
//! `decimals.bson` holds logarithms, powers and trigonometry of decimals with the results of
//! mongod's library, which are not always the nearest numbers.

mod bytes;
mod ends;
mod newer;

use marula_bson::{Doc, Value};

use super::{Arena, Expression, Frame, Scope};
use crate::context::Context;

/// Evaluates a case like mongod: parse, fold constants, evaluate.
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

/// The difference from the recorded result, if any.
fn check(case: Doc<'_>, common: Doc<'_>, context: &Context) -> Option<String> {
    let doc = case.get("d").and_then(|doc| doc.as_doc()).unwrap_or(common);
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

/// Returns whether two values have the same bytes; any NaN equals NaN.
fn same(a: Option<Value<'_>>, b: Option<Value<'_>>) -> bool {
    match (a, b) {
        (Some(Value::Double(a)), Some(Value::Double(b))) if a.is_nan() => b.is_nan(),
        (Some(Value::Decimal128(a)), Some(Value::Decimal128(b))) if a.is_nan() => b.is_nan(),
        (Some(a), Some(b)) => a.to_buf() == b.to_buf(),
        (None, None) => true,
        _ => false,
    }
}

/// The consecutive documents of a file.
fn documents(mut bytes: &[u8]) -> impl Iterator<Item = Doc<'_>> {
    std::iter::from_fn(move || {
        let size = bytes.first_chunk::<4>()?;
        let size = usize::try_from(u32::from_le_bytes(*size)).expect("a size fits");
        let (doc, rest) = bytes.split_at(size);
        bytes = rest;
        Some(Doc::trusted(doc))
    })
}

fn check_all<'d>(name: &str, common: Doc<'_>, cases: impl Iterator<Item = Doc<'d>>) {
    let context = Context::default();
    let mut count = 0;
    let mut wrong = Vec::new();
    for case in cases {
        count += 1;
        wrong.extend(check(case, common, &context));
    }
    let text = wrong.join("\n");
    assert!(wrong.is_empty(), "{name}: {} of {count} cases differ\n{text}", wrong.len());
}

#[test]
fn cases_answer_as_recorded() {
    let mut cases = documents(include_bytes!("tests/recorded.bson"));
    let common = cases.next().expect("the file starts with the common document");
    check_all("recorded.bson", common, cases);
}

#[test]
fn odd_arguments_answer_as_recorded() {
    check_all("edges.bson", Doc::EMPTY, documents(include_bytes!("tests/edges.bson")));
}

#[test]
fn functions_of_decimals_answer_as_recorded() {
    let cases = documents(include_bytes!("tests/decimals.bson"));
    check_all("decimals.bson", Doc::EMPTY, cases);
}

#[test]
fn further_cases_answer_as_recorded() {
    let Ok(paths) = std::env::var("MARULA_EXPRESSION_CASES") else {
        return;
    };
    for path in paths.split(':') {
        let cases = std::fs::read(path).expect("the cases can be read");
        check_all(path, Doc::EMPTY, documents(&cases));
    }
}

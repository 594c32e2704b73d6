//! The Rust functions for the prelude.

use std::cell::RefCell;
use std::time::Duration;

use marula_bson::{Decimal128, ObjectId, decimal128, ext_json::base64, hex, order};
use marula_error::Error;
use md5::{Digest as _, Md5};
use rquickjs::{Ctx, Exception, Function, Null, Object, Result, Value as JsValue};

use super::engine::{Call, HEAP_BYTES_MAX, Kit, must_end};
use super::from_js;

/// The server version that code sees.
const VERSION: &str = "6.0.27";

/// The interval at which `sleep` checks the interrupt.
const SLEEP_MS: f64 = 5.0;

/// The functions, as properties of one object.
pub(super) fn functions<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set("version", VERSION)?;
    native.set("heapMegabytes", HEAP_BYTES_MAX / (1024 * 1024))?;
    native.set("check", Function::new(ctx.clone(), check)?)?;
    native.set("sleep", Function::new(ctx.clone(), sleep)?)?;
    native.set("md5", Function::new(ctx.clone(), md5_of)?)?;
    native.set("objectId", Function::new(ctx.clone(), object_id)?)?;
    native.set("uuid", Function::new(ctx.clone(), uuid)?)?;
    native.set("base64OfHex", Function::new(ctx.clone(), base64_of_hex)?)?;
    native.set("hexOfBase64", Function::new(ctx.clone(), hex_of_base64)?)?;
    native.set("decimalOfNumber", Function::new(ctx.clone(), decimal_of_number)?)?;
    native.set("decimalOfText", Function::new(ctx.clone(), decimal_of_text)?)?;
    native.set("compare", Function::new(ctx.clone(), compare)?)?;
    native.set("identical", Function::new(ctx.clone(), identical)?)?;
    native.set("bsonSize", Function::new(ctx.clone(), bson_size)?)?;
    Ok(native)
}

/// Throws if the operation must end.
fn check(ctx: Ctx<'_>) -> Result<()> {
    if must_end() { Err(Exception::throw_internal(&ctx, "interrupted")) } else { Ok(()) }
}

fn sleep(ctx: Ctx<'_>, ms: f64) -> Result<()> {
    let mut rest = ms;
    while rest > 0.0 {
        check(ctx.clone())?;
        let part = rest.min(SLEEP_MS);
        std::thread::sleep(Duration::from_secs_f64(part / 1000.0));
        rest -= part;
    }
    Ok(())
}

fn md5_of(text: String) -> String {
    hex::text(&Md5::digest(text))
}

fn object_id(ctx: Ctx<'_>) -> Result<String> {
    // The engine has a clock, this crate does not.
    let date: Object<'_> = ctx.globals().get("Date")?;
    let now: Function<'_> = date.get("now")?;
    let ms: f64 = now.call(())?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(ObjectId::generate((ms / 1000.0) as u32).to_string())
}

fn uuid() -> String {
    hex::text(&marula_bson::uuid::generate())
}

/// The digits are those of a `BinData`, which has checked them.
fn base64_of_hex(digits: String) -> String {
    let mut text = String::new();
    base64::encode(&hex::parse(digits.as_bytes()).unwrap_or_default(), &mut text);
    text
}

fn hex_of_base64<'js>(ctx: Ctx<'js>, text: String) -> Result<JsValue<'js>> {
    use rquickjs::IntoJs;

    match base64::decode(text.as_bytes()) {
        Some(bytes) => hex::text(&bytes).into_js(&ctx),
        None => Null.into_js(&ctx),
    }
}

fn decimal_of_number(number: f64) -> String {
    Decimal128::from_f64(number).to_string()
}

/// The error for a decimal's text, or an empty string; followed by the printed decimal.
fn decimal_of_text(text: String) -> Vec<String> {
    match Decimal128::parse(text.as_bytes()) {
        Ok(number) => vec![String::new(), number.to_string()],
        Err(decimal128::TextError::Overflow | decimal128::TextError::Underflow) => {
            vec!["Input out of range of Decimal128 value (inexact).".to_owned()]
        }
        Err(_) => vec!["Input is not a valid Decimal128 value.".to_owned()],
    }
}

fn compare<'js>(ctx: Ctx<'js>, kit: Object<'js>, a: JsValue<'js>, b: JsValue<'js>) -> Result<i32> {
    with_values(&ctx, kit, |call| {
        let a = from_js::value(call, &a)?;
        let b = from_js::value(call, &b)?;
        Ok(order::compare(a.get(), b.get(), None) as i32)
    })
}

fn identical<'js>(
    ctx: Ctx<'js>,
    kit: Object<'js>,
    a: JsValue<'js>,
    b: JsValue<'js>,
) -> Result<bool> {
    with_values(&ctx, kit, |call| Ok(from_js::value(call, &a)? == from_js::value(call, &b)?))
}

fn bson_size<'js>(ctx: Ctx<'js>, kit: Object<'js>, value: JsValue<'js>) -> Result<usize> {
    with_values(&ctx, kit, |call| Ok(from_js::value(call, &value)?.as_raw().bytes().len()))
}

/// Runs `work`, which reads values; its errors become exceptions with a code.
fn with_values<'js, R>(
    ctx: &Ctx<'js>,
    kit: Object<'js>,
    work: impl FnOnce(&Call<'_, 'js>) -> marula_error::Result<R>,
) -> Result<R> {
    let (functions, originals) = (RefCell::default(), RefCell::default());
    let call = Call::new(ctx, &functions, &originals, Kit::new(kit)?);
    work(&call).map_err(|error| exception(&call, &error))
}

fn exception(call: &Call<'_, '_>, error: &Error) -> rquickjs::Error {
    let make = || -> Result<rquickjs::Error> {
        let exception = Exception::from_message(call.ctx.clone(), error.message())?;
        exception.as_object().prop(call.kit.code.clone(), error.code().number())?;
        Ok(exception.throw())
    };
    make().unwrap_or_else(|error| error)
}

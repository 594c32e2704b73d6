//! From exceptions to errors.
//!
//! An `Error` object is `Name: message :` and the stack, a line per call, with code
//! JSInterpreterFailure; one that the prelude raised brings its own code. Anything else that is
//! thrown is an uncaught exception.

use marula_error::{Error, errors};
use rquickjs::{Object, Value as JsValue};

use super::engine::Call;

errors! {
    /// Code raised an error or did not compile.
    script_failed(text: &str) = JSInterpreterFailure, "{text}";
    /// Code threw an object that is no error.
    threw_object(text: &str, stack: &str) = JSInterpreterFailure, "uncaught exception: {text} :\n{stack}";
    /// Code threw a number, a string or the like.
    threw_value(text: &str) = UnknownError, "uncaught exception: {text}";
    /// A symbol has no text.
    threw_symbol() = JSInterpreterFailure, "TypeError: can't convert symbol to string";
}

/// How much of a thrown text a message shows.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// The error of a call that failed.
pub(super) fn of(call: &Call<'_, '_>, error: rquickjs::Error) -> Error {
    if !error.is_exception() {
        return script_failed(&format!("InternalError: {error}"));
    }
    let thrown = call.ctx.catch();
    if let Some(object) = thrown.as_object() {
        return if thrown.is_error() { raised(call, object) } else { uncaught(call, object) };
    }
    if thrown.is_symbol() {
        return threw_symbol();
    }
    threw_value(&text_of(call, &thrown).unwrap_or_default())
}

/// `Name: message`, for a place that shows no stack.
pub(super) fn headline(call: &Call<'_, '_>, error: rquickjs::Error) -> String {
    let message = of(call, error).message().to_owned();
    message.split(" :\n").next().unwrap_or_default().to_owned()
}

fn raised<'js>(call: &Call<'_, 'js>, error: &Object<'js>) -> Error {
    let part = |name: &str| {
        let value: Option<JsValue<'_>> = error.get(name).ok();
        value.filter(|value| !value.is_undefined()).and_then(|value| text_of(call, &value))
    };
    let name = part("name").unwrap_or_else(|| "Error".to_owned());
    let mut message = part("message").unwrap_or_default();
    let stack = part("stack").map(|stack| frames(&stack)).unwrap_or_default();
    // The end of the stack has a name of its own in MongoDB's engine.
    let name = match &*message {
        "Maximum call stack size exceeded" | "stack overflow" => {
            message = "too much recursion".to_owned();
            "InternalError".to_owned()
        }
        _ => name,
    };
    let tail = if stack.is_empty() { String::new() } else { format!(" :\n{stack}") };
    let code: Option<i32> = error.get(call.kit.code.clone()).ok().flatten();
    match code {
        Some(code) => Error::new(code, format!("{message}{tail}")),
        None => script_failed(&format!("{name}: {message}{tail}")),
    }
}

fn uncaught<'js>(call: &Call<'_, 'js>, object: &Object<'js>) -> Error {
    let stack: Option<JsValue<'_>> = object.get("stack").ok();
    let stack = stack.and_then(|stack| text_of(call, &stack));
    let text = text_of(call, object.as_value()).unwrap_or_default();
    threw_object(&text, stack.as_deref().unwrap_or("undefined"))
}

/// A value as `String(value)` shows it; `None` where that throws.
fn text_of(call: &Call<'_, '_>, value: &JsValue<'_>) -> Option<String> {
    let coerced: Result<rquickjs::Coerced<String>, _> = value.get();
    match coerced {
        Ok(text) => {
            let mut text = text.0;
            if text.len() > TEXT_BYTES_MAX {
                let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at));
                text.truncate(end.unwrap_or(0));
            }
            Some(text)
        }
        Err(_) => {
            // The second exception is not the one to tell of.
            call.ctx.catch();
            None
        }
    }
}

/// The engine's stack, `at name (file:line:column)`, as MongoDB's: `name@file:line:column`.
fn frames(stack: &str) -> String {
    let mut lines = String::new();
    for line in stack.lines() {
        let Some(frame) = line.trim_start().strip_prefix("at ") else {
            // A stack that code wrote itself.
            lines.push_str(line);
            continue;
        };
        let (name, place) = match frame.split_once(" (") {
            Some((name, place)) => (name, place.trim_end_matches(')')),
            None => ("", frame),
        };
        if place == "native" || place.starts_with("prelude") {
            continue;
        }
        let name = if name.starts_with('<') { "" } else { name };
        lines.push_str(&format!("{name}@{place}\n"));
    }
    lines
}

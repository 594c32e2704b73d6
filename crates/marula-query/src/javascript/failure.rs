//! Converts exceptions to errors.
//!
//! An `Error` object becomes `Name: message :` and the stack, one line per call, with code
//! JSInterpreterFailure; one raised by the prelude has its own code. Any other thrown value is an
//! uncaught exception.

use marula_error::{Error, errors};
use rquickjs::{Object, Value as JsValue};

use super::engine::Call;

errors! {
    /// The code raised an error or did not compile.
    script_failed(text: &str) = JSInterpreterFailure, "{text}";
    /// The code threw an object that is not an error.
    threw_object(text: &str, stack: &str) = JSInterpreterFailure, "uncaught exception: {text} :\n{stack}";
    /// The code threw a number, a string or a similar value.
    threw_value(text: &str) = UnknownError, "uncaught exception: {text}";
    /// The code threw a symbol, which has no text.
    threw_symbol() = JSInterpreterFailure, "TypeError: can't convert symbol to string";
}

/// The maximum length of a thrown text in a message.
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

/// `Name: message`, for messages without a stack.
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
    // MongoDB's engine has another name for a stack overflow.
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

/// The text of `String(value)`; `None` if that throws.
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
            // Discard the second exception.
            call.ctx.catch();
            None
        }
    }
}

/// Converts the engine's stack, `at name (file:line:column)`, to MongoDB's format:
/// `name@file:line:column`.
fn frames(stack: &str) -> String {
    let mut lines = String::new();
    for line in stack.lines() {
        let Some(frame) = line.trim_start().strip_prefix("at ") else {
            // A stack written by the code itself.
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

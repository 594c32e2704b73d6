//! `profile`: the level of the database profiler and the bounds of what counts as slow, by database.
//!
//! The level and its bounds are kept and told; what a level would record in `system.profile` is not recorded by this
//! server, whose log tells of slow operations instead.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{self, Types};
use super::{Auth, Command, Outcome, Place};
use crate::context::Context;
use crate::request::Request;

errors! {
    bad_sample_rate() = BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive";
    filter_type() = BadValue, "Expected an object, or the string 'unset'.";
    no_filter() = CommandNotSupported, "a filter for the profiler is not available on this server";
}

pub(super) static COMMAND: Command = Command {
    name: "profile",
    help: "Returns the level of a database's profiler, and changes it.",
    place: Place::Inline,
    auth: Auth::Database(&["enableProfiler"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let level = whole("profile", request.first.value.get())?;
    let slow_ms = request.arg("slowms").map(|ms| whole("slowms", ms)).transpose()?;
    let sample_rate = match request.arg("sampleRate") {
        None => None,
        Some(rate) => {
            let number = rate.as_f64().ok_or_else(|| wrong_type("sampleRate", rate))?;
            if !(0.0..=1.0).contains(&number) {
                return Err(bad_sample_rate());
            }
            Some(number)
        }
    };
    match request.arg("filter") {
        None => {}
        Some(Value::String(text)) if text == "unset" => {}
        Some(Value::Document(_)) => return Err(no_filter()),
        Some(_) => return Err(filter_type()),
    }
    let mut profiling = ctx.server.profiling.lock();
    let was = profiling.level(request.db);
    reply.append("was", was);
    reply.append("slowms", profiling.slow_ms);
    reply.append("sampleRate", profiling.sample_rate);
    // Any other number only asks.
    if let Ok(level @ 0..=2) = i32::try_from(level) {
        profiling.set_level(request.db, level);
    }
    if let Some(ms) = slow_ms {
        profiling.slow_ms = i32::try_from(ms).unwrap_or(i32::MAX);
    }
    if let Some(rate) = sample_rate {
        profiling.sample_rate = rate;
    }
    Ok(Outcome::Done)
}

fn wrong_type(field: &str, value: Value<'_>) -> marula_error::Error {
    let expected = Types::NUMBER.expected();
    fields::wrong_type("profile", field.into(), value.kind().alias(), &expected)
}

#[allow(clippy::cast_possible_truncation)]
fn whole(field: &str, value: Value<'_>) -> Result<i64> {
    value.as_f64().map(|number| number as i64).ok_or_else(|| wrong_type(field, value))
}

//! `getParameter` and `setParameter`: server parameters.

use marula_bson::{ByteSlice, DocWriter, Value};
use marula_error::Result;

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::parameters::{self, ROWS, Refused};
use crate::request::Request;

/// The prefix of the parameters that show fail points; the rest is the fail point's name.
const FAIL_POINT: &str = "failpoint.";

/// The fields of `getParameter: { … }`, which select parameters and details.
const HOW_FIELDS: &[Field] =
    &[Field::optional("showDetails", Types::FLAG), Field::optional("allParameters", Types::FLAG)];

pub(super) static GET: Command = Command {
    name: "getParameter",
    help: "Returns server parameters by name, or all of them.",
    place: CommandPlace::Reserved,
    admin_only: true,
    auth: Auth::Cluster(&["getParameter"]),
    run: get,
    ..Command::DEFAULT
};

pub(super) static SET: Command = Command {
    name: "setParameter",
    help: "Changes a server parameter while the server runs.",
    place: CommandPlace::Reserved,
    admin_only: true,
    auth: Auth::Cluster(&["setParameter"]),
    run: set,
    ..Command::DEFAULT
};

fn get(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let how = request.first.value.get();
    let option = |name: &str| {
        how.as_doc().and_then(|how| how.get(name)).is_some_and(|value| value.is_truthy())
    };
    if let Value::Document(how) = how {
        fields::check_doc("getParameter", HOW_FIELDS, how)?;
    }
    let shows_all = how == Value::String("*".into()) || option("allParameters");
    let shows_details = option("showDetails");
    let mut found = false;
    for row in ROWS.iter() {
        if shows_all || request.args.iter().any(|element| element.name == row.name) {
            let value = context.server.parameter(row);
            match shows_details {
                true => reply.append(row.name, &parameters::write_details(row, &value)),
                false => reply.append(row.name, &value),
            };
            found = true;
        }
    }
    for element in &request.args {
        let point = str::from_utf8(element.name.as_bytes()).ok();
        let point = point.and_then(|name| name.strip_prefix(FAIL_POINT));
        if let Some(point) = point.and_then(|name| context.server.fail_points.find(name)) {
            reply.append(element.name, &point.shown());
            found = true;
        }
    }
    if !found {
        return Ok(Outcome::Failed("no option found to get".to_owned()));
    }
    Ok(Outcome::Done)
}

fn set(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let mut was = None;
    for element in &request.args {
        let name = element.name;
        match context.server.set_parameter(name, element.value.get()) {
            Ok(value) => {
                tracing::info!(target: "COMMAND", id = 23_435, parameterName = %name, newValue = %element.value.get(), oldValue = %value.get(), "Successfully set parameter to new value");
                was.get_or_insert(value);
            }
            Err(Refused::Value(error)) => return Err(error),
            Err(Refused::Unknown) => {
                return Ok(Outcome::Failed(format!(
                    "attempted to set unrecognized parameter [{name}], use help:true to see options "
                )));
            }
            Err(Refused::NotNow) => {
                return Ok(Outcome::Failed(format!("not allowed to change [{name}] at runtime")));
            }
        }
    }
    match was {
        Some(was) => {
            reply.append("was", &was);
            Ok(Outcome::Done)
        }
        None => {
            let message = "no option found to set, use help:true to see options ";
            Ok(Outcome::Failed(message.to_owned()))
        }
    }
}

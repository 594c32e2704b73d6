//! The lane in which a request waits for a pool thread.

use marula_bson::ByteSlice;
use marula_query::quick::Cost;

use crate::inline;
use crate::net::service::{Call, Lane, Order};
use crate::request::Request;
use crate::row::CommandPlace;

/// Returns the lane, and the time after which the request is not started.
pub(super) fn order(request: &Request<'_>, call: &Call) -> Order {
    let max_time = request.max_time.filter(|_| !request.command.own_max_time);
    Order { lane: lane(request), deadline: max_time.map(|max| call.arrived + max) }
}

/// Returns the lane in which a request waits for a pool thread.
pub(super) fn lane(request: &Request<'_>) -> Lane {
    match request.command.place {
        CommandPlace::Inline => Lane::Reserved,
        CommandPlace::Reserved if inline::is_quick(request) => Lane::Reserved,
        CommandPlace::Pool if shows_operations(request) => Lane::Reserved,
        _ => Lane::Ordinary,
    }
}

/// Returns whether a pipeline is the shells' form of `currentOp`: that stage, and conditions that
/// are quick.
fn shows_operations(request: &Request<'_>) -> bool {
    let stages = || request.arg("pipeline")?.as_array();
    let Some(stages) = stages().filter(|_| request.command.name == "aggregate") else {
        return false;
    };
    let mut cost = Cost::default();
    !stages.is_empty()
        && stages.iter().enumerate().all(|(number, stage)| {
            let stage = stage.value.get().as_doc().and_then(|stage| stage.iter().next());
            stage.is_some_and(|stage| match (number, stage.name.as_bytes()) {
                (0, name) => name == b"$currentOp",
                (_, b"$match") => cost.add_filter(stage.value.get()),
                _ => false,
            })
        })
}

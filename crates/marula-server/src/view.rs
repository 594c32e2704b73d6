//! Views: what a definition must obey when it is made or changed.
//!
//! Source: manual "Views"; errors recorded from mongod 6.0.

use marula_bson::Doc;
use marula_db::Namespace;
use marula_error::{Error, Result, errors};
use marula_query::context::Context as QueryContext;
use marula_query::stage::pipeline::Pipeline;

use crate::server::Server;

/// The most views that one may stand upon. Source: manual "Views".
pub const DEPTH_MAX: usize = 20;

errors! {
    cycle(path: &str) = GraphContainsCycle, "View cycle detected: {path}";
    too_deep() = ViewDepthLimitExceeded, "View depth too deep or view cycle detected; maximum depth is 20";
    not_a_document(place: &str, at: usize, kind: &str) = TypeMismatch, "BSON field '{place}.pipeline.{at}' is the wrong type '{kind}', expected type 'object'";
}

/// Checks a view's pipeline and that it does not stand upon itself. `place` is the command that defines it.
pub fn check(
    server: &Server,
    place: &str,
    view: &Namespace,
    on: &str,
    pipeline: Doc<'_>,
) -> Result<()> {
    for (at, stage) in pipeline.values().enumerate() {
        if stage.as_doc().is_none() {
            return Err(not_a_document(place, at, stage.kind().alias()));
        }
    }
    Pipeline::parse(pipeline, &QueryContext::default())?;
    check_graph(server, view, on)
}

fn check_graph(server: &Server, view: &Namespace, on: &str) -> Result<(), Error> {
    let mut path = vec![view.to_string()];
    let mut next = Namespace::new(view.db(), on)?;
    for _ in 0..DEPTH_MAX {
        path.push(next.to_string());
        if next == *view {
            // mongod names the view that closes the cycle once more.
            path.push(view.to_string());
            return Err(cycle(&path.join(" => ")));
        }
        let Some(collection) = server.db.collection(&next) else { return Ok(()) };
        match &collection.state().options.view {
            Some(further) => next = Namespace::new(view.db(), &further.on)?,
            None => return Ok(()),
        }
    }
    Err(too_deep())
}

//! `--metrics-listen`: the server's numbers for Prometheus, and whether it lives and is ready.
//!
//! | path | what it answers |
//! | --- | --- |
//! | `/metrics` | every [family](families) in Prometheus' text format, version 0.0.4 |
//! | `/healthz` | 200: the process is up |
//! | `/readyz` | 200 while commands are accepted and the engine takes writes, else 503 and why |
//!
//! A thread of its own serves all of it ([`endpoint`]), with a parser that limits the resources of
//! clients ([`http`]); network workers and pool threads take no part. It listens before the data
//! folder is opened, so that a long recovery is visible as "not ready".
//!
//! Source: Prometheus' documentation, "Exposition formats" and "Metric and label naming".

mod endpoint;
mod exposition;
mod families;
mod http;
mod reading;

pub use endpoint::Endpoint;

use exposition::Exposition;
use families::ALL;
use http::Response;
use reading::Reading;

use crate::server::Server;

/// The media type of [`text`].
const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the response to a GET of `path`. `server` is absent until the data folder is open, and
/// after the shutdown has started.
fn answer(path: &str, server: Option<&Server>) -> Response {
    match (path, server) {
        ("/healthz", _) => Response::plain(200, "ok\n"),
        ("/readyz", server) => match unreadiness(server) {
            None => Response::plain(200, "ready\n"),
            Some(reason) => Response::plain(503, format!("{reason}\n")),
        },
        ("/metrics", Some(server)) => Response { status: 200, kind: TEXT_TYPE, body: text(server) },
        ("/metrics", None) => Response::plain(503, "the data folder is not open\n"),
        ("/", _) => Response::plain(200, "/metrics\n/healthz\n/readyz\n"),
        _ => Response::plain(404, "not found: the paths are /metrics, /healthz and /readyz\n"),
    }
}

/// Returns the reason for which commands would not be served; `None` if they are.
fn unreadiness(server: Option<&Server>) -> Option<String> {
    let Some(server) = server else { return Some("the data folder is not open".to_owned()) };
    if server.shutdown.is_requested() {
        return Some("the server is ending".to_owned());
    }
    if server.network.get().is_none() {
        return Some("the network has not started".to_owned());
    }
    server.db.engine_fault().map(|fault| format!("the engine refuses writes: {fault}"))
}

/// Returns every family with its samples.
fn text(server: &Server) -> String {
    let reading = Reading::take(server);
    let mut exposition = Exposition::default();
    for family in ALL.iter().copied().flatten() {
        exposition.family(family, &reading);
    }
    exposition.finish()
}

//! Replies of requests that fail points affect.

use marula_bson::DocWriter;
use marula_error::{Code, Error};
use marula_wire::reply::write_error;

use super::Failure;
use crate::command::hello::write_topology_version;
use crate::error_labels::{self, RETRYABLE};
use crate::request::Request;
use crate::server::Server;

impl Failure {
    /// Writes the reply of a request that fails with this error.
    pub(crate) fn write_error(
        &self,
        server: &Server,
        request: &Request<'_>,
        error: &Error,
        body: &mut DocWriter<'_>,
    ) {
        self.write_labels(error_labels::label_of(request, error.code()), body);
        if error_labels::sends_topology(error.code()) {
            write_topology_version(server, body);
        }
        write_error(body, error);
    }

    /// Writes the labels of a failed write concern.
    pub(crate) fn label_concern(&self, request: &Request<'_>, body: &mut DocWriter<'_>) {
        let Some(error) = &self.write_concern_error else { return };
        let code = error.as_doc().get("code").and_then(|code| code.as_exact_i64());
        let code = code.and_then(|code| i32::try_from(code).ok()).map(Code::from_number);
        let is_retryable = code.is_some_and(|code| error_labels::is_retryable(request, code));
        self.write_labels(is_retryable.then_some(RETRYABLE), body);
    }

    /// Writes the labels of the fail point, or else the request's own.
    fn write_labels(&self, own: Option<&str>, body: &mut DocWriter<'_>) {
        let said = self.labels.iter().flatten().map(String::as_str);
        let labels: Vec<&str> = match self.labels {
            Some(_) => said.collect(),
            None => own.into_iter().collect(),
        };
        if !labels.is_empty() {
            let mut list = body.begin_array("errorLabels");
            for label in labels {
                list.push(label);
            }
        }
    }
}

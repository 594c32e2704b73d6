//! The requests that a server refuses after it has stepped down, because only a primary executes
//! them.

use marula_error::{Result, errors};

use crate::connection::Connection;
use crate::request::Request;
use crate::row::OnSecondary;
use crate::server::Server;
use crate::transactions::TRANSIENT;

errors! {
    not_primary(primary: &str) = NotWritablePrimary, "not {primary}";
    not_primary_no_secondary_ok(primary: &str, secondary: &str) = NotPrimaryNoSecondaryOk, "not {primary} and {secondary}=false";
    linearizable_on_secondary() = NotWritablePrimary, "cannot satisfy linearizable read concern on non-primary node";
}

/// Checks whether the server executes a request while it is a secondary, if it is one. Clients that
/// do not know `hello` receive the words of old servers.
///
/// Errors: `not_primary`, `not_primary_no_secondary_ok`, `linearizable_on_secondary`.
pub(super) fn check(server: &Server, connection: &Connection, request: &Request<'_>) -> Result<()> {
    if server.primacy.is_primary() {
        return Ok(());
    }
    let (primary, secondary) = match connection.knows_hello {
        true => ("primary", "secondaryOk"),
        false => ("master", "slaveOk"),
    };
    let ends_transaction = matches!(request.command.name, "commitTransaction" | "abortTransaction");
    let is_statement = request.transaction.is_some() && !ends_transaction;
    match request.command.on_secondary() {
        _ if is_statement => Err(not_primary(primary).with_label(TRANSIENT)),
        OnSecondary::Never => Err(not_primary(primary)),
        OnSecondary::IfPreferred if !request.read_preference.permits_secondaries() => {
            Err(not_primary_no_secondary_ok(primary, secondary))
        }
        _ if request.read_concern.is_linearizable() => Err(linearizable_on_secondary()),
        _ => Ok(()),
    }
}

//! The environment of an operation, and how far the operation has come.

use marula_bson::Value;
use marula_db::{Collection, Unit};
use marula_error::Result;
use marula_plan::TimeBudget;
use marula_query::context::Context as QueryContext;
use marula_query::spill::Limits;

use crate::args;

/// The services that operations need from the server.
pub trait Host {
    /// Returns an error once the operation must end: it was killed, its time is over, or its client
    /// has disconnected.
    fn check_interrupt(&self) -> Result<()>;

    /// The time budget of a plan on this thread.
    fn time_budget(&self) -> TimeBudget;

    /// The environment of the query language: release, time, user. It has no collation and no
    /// variables.
    fn language(&self) -> QueryContext;

    /// The memory limits of sorts and groups, and where they spill to. `may_use_disk` is the
    /// client's choice; `None` is the server's default.
    fn limits(&self, may_use_disk: Option<bool>) -> Limits;
}

/// The environment of an operation.
#[derive(Clone, Copy)]
pub struct Env<'e> {
    /// The view and the transaction that the operation reads and writes.
    pub unit: Unit<'e>,
    /// The server.
    pub host: &'e dyn Host,
}

impl Env<'_> {
    /// Returns an error once the operation must end.
    pub fn check_interrupt(&self) -> Result<()> {
        self.host.check_interrupt()
    }

    /// The environment of the query language for an operation on `collection`, with the collation
    /// and the variables that the client gives.
    ///
    /// Errors: those of a collation, and of variables that cannot be computed.
    pub fn context(
        &self,
        collection: Option<&Collection>,
        collation: Option<Value<'_>>,
        let_variables: Option<Value<'_>>,
    ) -> Result<QueryContext> {
        args::context(self.host.language(), collection, collation, let_variables)
    }
}

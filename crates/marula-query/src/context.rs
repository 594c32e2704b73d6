//! What an operation brings to the language from outside.

use marula_bson::{Collator, DocBuf};

use crate::collation::Collation;

/// The surroundings of one operation: collation, time, `let` variables. Parsing borrows it to encode
/// constants; evaluation borrows it for `$$NOW` and the like.
#[derive(Clone, Default, Debug)]
pub struct Context {
    /// The collation of the operation, or the collection's; `None` is the simple binary order.
    pub collation: Option<Collation>,
    /// `$$NOW`: milliseconds since the epoch, one moment for the whole operation.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, where the deployment has one.
    pub cluster_time: Option<u64>,
    /// The command's `let`, its values already evaluated to constants; `None` when it has none.
    pub let_variables: Option<DocBuf>,
}

impl Context {
    /// The collation as the order of BSON values takes it.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }
}

//! Collations: the order of strings in a language, by ICU.

use std::fmt;
use std::sync::Arc;

/// A parsed collation document and the ICU collator that carries it out.
#[derive(Clone)]
pub struct Collation(Arc<CollationInner>);

struct CollationInner;

impl Collation {
    /// The collator, as the order of BSON values takes it.
    pub fn collator(&self) -> &dyn marula_bson::Collator {
        todo!()
    }
}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collation")
    }
}

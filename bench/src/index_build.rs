//! The row of index builds: one `createIndexes` over the products that a load has left.

use crate::bson::Doc;
use crate::load::Work;
use crate::message::{self, Template};

/// The index that is built.
const NAME: &str = "price";

/// Removes the index, where there is one.
pub(crate) fn drop_index() -> Doc {
    Doc::new().str("dropIndexes", "products").str("index", NAME).str("$db", "bench")
}

/// One build.
pub(crate) struct BuildIndex {
    template: Template,
    is_sent: bool,
}

impl BuildIndex {
    pub(crate) fn new() -> BuildIndex {
        let index = Doc::new().doc("key", Doc::new().int(NAME, 1)).str("name", NAME);
        let body = Doc::new()
            .str("createIndexes", "products")
            .array("indexes", vec![index])
            .str("$db", "bench");
        BuildIndex { template: Template::new(body, None), is_sent: false }
    }
}

impl Work for BuildIndex {
    fn request(&mut self, _: usize) -> Option<&[u8]> {
        let is_sent = std::mem::replace(&mut self.is_sent, true);
        (!is_sent).then_some(&self.template.bytes[..])
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        message::succeeded(reply).map(|_| ())
    }
}

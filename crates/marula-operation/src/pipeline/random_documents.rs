//! The documents of a `$sample` that begins a pipeline, if it wants few of many: only they are
//! read.

use std::sync::Arc;

use marula_bson::Doc;
use marula_db::Collection;
use marula_db::collection::RandomDocuments;
use marula_error::Result;
use marula_query::stage::{Kind, Pipeline, Source, Step, World};

use super::world::Surroundings;

/// Documents of a collection, chosen at random.
pub(super) struct Chosen {
    collection: Arc<Collection>,
    surroundings: Arc<Surroundings>,
    random: RandomDocuments,
    left: u64,
    document: Vec<u8>,
}

impl Chosen {
    /// Returns the documents for a pipeline; `None` if it begins with another stage, or if it is
    /// better to read all documents.
    pub(super) fn of(
        pipeline: &Pipeline,
        collection: &Arc<Collection>,
        surroundings: &Arc<Surroundings>,
    ) -> Result<Option<Self>> {
        let Some(Kind::Sample(size)) = pipeline.stages().first().map(|stage| stage.kind()) else {
            return Ok(None);
        };
        let work = surroundings.host.work();
        let random = RandomDocuments::of(collection, work.unit().view(), size)?;
        Ok(random.map(|random| Chosen {
            collection: collection.clone(),
            surroundings: surroundings.clone(),
            random,
            left: size,
            document: Vec::new(),
        }))
    }
}

impl Source for Chosen {
    fn pull(&mut self) -> Result<Step> {
        let work = self.surroundings.host.work();
        let (document, mut found) = (&mut self.document, false);
        let mut keep = |doc: Doc<'_>| {
            document.clear();
            document.extend_from_slice(doc.as_bytes());
        };
        while self.left > 0 && !found {
            self.surroundings.check_interrupt()?;
            match self.random.draw(&self.collection, work.unit().view(), &mut keep)? {
                Some(is_found) => found = is_found,
                None => break,
            }
        }
        self.left = self.left.saturating_sub(1);
        Ok(if found { Step::Document } else { Step::End })
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.document)
    }
}

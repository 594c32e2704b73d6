//! The density of locations around a point: the size of the smallest cells around the point that
//! contain a location.
//!
//! A few cells around the point are looked up in the index, the smallest first, then larger ones
//! until there is an entry.

use marula_db::Index;
use marula_db::index::{Geography, IndexKind};
use marula_error::Result;
use marula_query::geo::Near;
use marula_query::geo::area::Area;
use marula_query::geo::sight::Sight;

use super::Emit;
use super::run::StageRun;
use super::work::{Env, Step};
use crate::plan::Stage;

/// A search of cells of one size after the other.
pub(super) struct Density {
    sight: Sight,
    level: u8,
    /// The level of the largest cells that are searched.
    level_min: u8,
}

impl Density {
    pub(super) fn new(index: &Index, near: &Near) -> Density {
        let sight = match index.spec.kind {
            IndexKind::Places(Geography::Flat(grid)) => Sight::Plane(grid),
            _ => Sight::Globe,
        };
        Density { level: sight.level_max(), level_min: sight.level_min(near), sight }
    }

    /// Returns the cells that are searched.
    pub(super) fn cells(&self, near: &Near) -> Area {
        self.sight.around(near, self.level)
    }

    /// Continues the scan of the cells; once these are known to be empty, uses larger ones. Returns
    /// the width of the cells that contain an entry: in the unit of the search, or in metres for
    /// radians.
    pub(super) fn work(
        &mut self,
        (walk, run): (&Stage, &mut StageRun),
        near: &Near,
        env: &mut Env<'_>,
    ) -> Result<Option<f64>> {
        let step = run.work(walk, env, &mut |_| Ok(Emit::Taken))?;
        match step {
            Step::NeedTime => return Ok(None),
            Step::Eof if self.level > self.level_min => {
                self.level -= 1;
                return Ok(None);
            }
            Step::Eof | Step::Advanced(_) => {}
        }
        Ok(Some(self.sight.width(near, self.level)))
    }
}

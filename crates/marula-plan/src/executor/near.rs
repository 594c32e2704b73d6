//! The stage that searches by distance: ever wider rings around a point, each put in order before it is given.
//!
//! A round walks the part of the index that covers the next ring, reads the documents there and keeps them by their
//! distance. What lies within the ring's outer edge is then given in order; what was found beyond waits.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};
use std::f64::consts::PI;
use std::sync::Arc;

use marula_bson::{Doc, FieldPath};
use marula_db::index::{Geography, IndexKind};
use marula_db::{Index, RecordKey};
use marula_error::{Result, errors};
use marula_query::filter::NearTest;
use marula_query::geo::area::Area;
use marula_query::geo::{EARTH_RADIUS_METERS, Near, Unit, cells};
use marula_storage::Direction;

use super::scan::Open;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::bounds::places::intervals;
use crate::bounds::{IndexBounds, Interval, KeyBounds, PartView};
use crate::plan::{GeoNear, Ixscan, Node, ScanBounds, Stage};

/// Bytes of documents that wait for their ring at most.
const BYTES_MAX: usize = 100 * 1024 * 1024;

/// The first ring on the globe: a kilometre.
const FIRST_ANGLE: f64 = 1000.0 / EARTH_RADIUS_METERS;

/// The first ring in the plane is this part of the side of what the index holds.
const FIRST_PART: f64 = 1.0 / 1024.0;

errors! {
    near_too_large() = QueryExceededMemoryLimitNoDiskUseAllowed, "Executor error during find command :: caused by :: $geoNear exceeded memory limit of 104857600 bytes";
    near_outside(min: f64, max: f64, x: &str, y: &str) = 16_433, "Executor error during find command :: caused by :: point not in interval of [ {min}, {max} ] :: caused by :: {{ 0: {x}, 1: {y} }}";
}

/// What a search remembers while it runs.
#[derive(Default)]
pub(crate) struct Searching {
    /// How far the round under way looks: an angle on the globe, a distance in the plane.
    reach: f64,
    /// Whether nothing lies farther than the round under way looks.
    is_last: bool,
    /// What of the index has been looked at, with the round under way.
    seen: Area,
    given: HashSet<RecordKey>,
    rows: BinaryHeap<Row>,
    bytes: usize,
    /// How far away what may be given is at most.
    settled: f64,
    count_before: usize,
    count: usize,
}

/// A document that was found. The greatest row comes first.
struct Row {
    distance: f64,
    number: usize,
    record: Box<[u8]>,
    doc: Box<[u8]>,
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance.total_cmp(&self.distance).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row {}

impl GeoNear {
    /// A search of the places at `path` in `index`; `others` are the bounds of the index's other parts, in their
    /// order, and `place` says which part is searched.
    pub(crate) fn new(
        index: Arc<Index>,
        test: NearTest,
        path: FieldPath,
        place: usize,
        others: Vec<Vec<Interval>>,
    ) -> Self {
        let mut search = Searching { settled: f64::NEG_INFINITY, ..Searching::default() };
        search.reach = first_reach(&index, &test.near);
        let bounds = ScanBounds { fields: None, keys: KeyBounds::Nothing };
        let scan = Ixscan::new(index.clone(), bounds, Direction::Forward);
        let input = Box::new(Node::fetch(Node::new(Stage::Ixscan(scan)), None));
        let mut stage = GeoNear { index, test, path, place, others, input, search };
        stage.begin_round();
        stage
    }

    /// The stage as `explain` names it.
    pub fn stage_name(&self) -> &'static str {
        match self.index.spec.kind {
            IndexKind::Places(Geography::Flat(_)) => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        }
    }

    pub(super) fn work(
        &mut self,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        self.check_center()?;
        let is_settled = |row: &Row| row.distance <= self.search.settled;
        if self.search.rows.peek().is_some_and(is_settled)
            && let Some(row) = self.search.rows.pop()
        {
            let (doc, record) = (Doc::trusted(&row.doc), &*row.record);
            let answer = out(Found::fetched(doc, record))?;
            if answer == Emit::Full {
                self.search.rows.push(row);
            } else {
                self.search.bytes -= row.doc.len();
            }
            return Ok(Step::Advanced(answer));
        }
        if self.search.settled == f64::INFINITY {
            return Ok(Step::Eof);
        }
        let GeoNear { test, path, input, search, .. } = self;
        let step = input.work(env, &mut |found| {
            search.add(test, path, found)?;
            Ok(Emit::Taken)
        })?;
        if step == Step::Eof {
            self.end_round(env);
        }
        Ok(Step::NeedTime)
    }

    /// A point that the index cannot hold is none to search from.
    fn check_center(&self) -> Result<()> {
        let IndexKind::Places(Geography::Flat(grid)) = self.index.spec.kind else { return Ok(()) };
        let point = &self.test.near.point;
        if grid.contains(point.x, point.y) {
            return Ok(());
        }
        let shown = |number: f64| marula_bson::Value::Double(number).to_string();
        Err(near_outside(grid.min, grid.max, &shown(point.x), &shown(point.y)))
    }

    /// The round has found all that it could: gives what it settles, and turns to the next.
    fn end_round(&mut self, env: &mut Env<'_>) {
        let search = &mut self.search;
        if search.is_last {
            search.settled = f64::INFINITY;
            return;
        }
        search.settled = match self.test.near.unit {
            Unit::Meters => search.reach * EARTH_RADIUS_METERS,
            Unit::Radians | Unit::Plane => search.reach,
        };
        // Where nothing is, the next step is wider.
        let is_empty = search.count == search.count_before;
        search.reach *= if is_empty { 4.0 } else { 2.0 };
        search.count_before = search.count;
        self.begin_round();
        let number = self.scan().standing.number;
        env.open[number] = Open::Closed;
        self.input.stats.is_eof = false;
        self.input.inputs_mut().iter_mut().for_each(|input| input.stats.is_eof = false);
    }

    /// Has the index walked as far as the round reaches, but for what was walked before.
    fn begin_round(&mut self) {
        let near = &self.test.near;
        let farthest = farthest(&self.index, near);
        if self.search.reach >= farthest {
            (self.search.reach, self.search.is_last) = (farthest, true);
        }
        let reach = self.search.reach;
        let area = match self.index.spec.kind {
            IndexKind::Places(Geography::Flat(grid)) => grid.area_around(near, reach),
            _ => cells::area_around(near, reach),
        };
        let area = area.unwrap_or_default();
        let ring = area.without(&self.search.seen);
        self.search.seen = area;
        let mut fields = self.others.clone();
        fields.insert(self.place, intervals(&ring));
        let bounds = IndexBounds { fields };
        let index = self.index.clone();
        let keys = KeyBounds::new(&bounds, &PartView::of(&index, true));
        let bounds = ScanBounds { fields: Some(bounds), keys };
        let scan = self.scan();
        let number = scan.standing.number;
        *scan = Ixscan::new(index, bounds, Direction::Forward);
        scan.standing.number = number;
    }

    fn scan(&mut self) -> &mut Ixscan {
        match self.input.inputs_mut() {
            [Node { stage: Stage::Ixscan(scan), .. }] => scan,
            _ => unreachable!("the input was made so"),
        }
    }
}

impl Searching {
    /// Keeps a document, unless it was kept before or lies where it is not wanted.
    fn add(&mut self, test: &NearTest, path: &FieldPath, found: Found<'_>) -> Result<()> {
        if !self.given.insert(RecordKey::new(found.record)) {
            return Ok(());
        }
        let Some((distance, _)) = test.measure(path, found.doc) else { return Ok(()) };
        if !test.near.admits(distance) {
            return Ok(());
        }
        self.count += 1;
        self.bytes += found.doc.as_bytes().len();
        if self.bytes > BYTES_MAX {
            return Err(near_too_large());
        }
        self.rows.push(Row {
            distance,
            number: self.count,
            record: found.record.into(),
            doc: found.doc.as_bytes().into(),
        });
        Ok(())
    }
}

/// How far the first round looks.
fn first_reach(index: &Index, near: &Near) -> f64 {
    let least = match index.spec.kind {
        IndexKind::Places(Geography::Flat(grid)) if near.is_planar() => {
            (grid.max - grid.min) * FIRST_PART
        }
        _ => FIRST_ANGLE,
    };
    least.max(in_reach(near, near.min))
}

/// How far anything that is wanted can be.
fn farthest(index: &Index, near: &Near) -> f64 {
    let everything = match index.spec.kind {
        // From any point of a square, the whole of it lies within its diagonal.
        IndexKind::Places(Geography::Flat(grid)) if near.is_planar() => 1.5 * (grid.max - grid.min),
        _ => PI,
    };
    everything.min(in_reach(near, near.max))
}

/// A distance of the query as a search counts it.
fn in_reach(near: &Near, distance: f64) -> f64 {
    match near.unit {
        Unit::Meters => distance / EARTH_RADIUS_METERS,
        Unit::Radians | Unit::Plane => distance,
    }
}

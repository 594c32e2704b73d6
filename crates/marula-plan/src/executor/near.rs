//! The stage that searches by distance: rings of growing radius around a point, each sorted before
//! it is returned.
//!
//! ```text
//!             ·  ring 3  ·         a round: 1. scan the cells of the index that cover the ring
//!          ·   · ring 2 ·   ·               2. fetch the documents, store them by distance
//!         ·  ·  (ring 1) ·  ·               3. return those within the ring's outer edge in order;
//!          ·   ·   +    ·   ·                  documents beyond it wait for their ring
//!             ·          ·
//! ```
//!
//! The width of the first ring depends on the density of locations (`density`), that of the next
//! one on the number of documents in the last.
//! Source: `searchIntervals` of mongod 6.0's explain, over data of many densities.

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
use marula_query::geo::rings::Rings;
use marula_query::geo::{EARTH_RADIUS_METERS, Near, Unit};
use marula_query::spill::Share;
use marula_storage::Direction;

use super::density::Density;
use super::run::StageRun;
use super::scan::Open;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::bounds::places::intervals;
use crate::bounds::{IndexBounds, Interval, KeyBounds, PartView};
use crate::plan::{GeoNear, Ixscan, ScanBounds, Stage};

/// The maximum size in bytes of the documents that wait for their ring.
const BYTES_MAX: usize = 100 * 1024 * 1024;

/// The width of the first ring in cells that contain a location near the point.
const CELLS_ACROSS: f64 = 3.0;

/// With an index of the plane, the first ring of a search on the globe is at most this part of the
/// distance to the antipode.
const FIRST_PART: f64 = 1.0 / 1000.0;

/// After a ring with fewer documents the width is doubled.
const FEW: u64 = 300;

/// After a ring with more documents the width is halved.
const MANY: u64 = 600;

errors! {
    near_too_large() = QueryExceededMemoryLimitNoDiskUseAllowed, "$geoNear exceeded memory limit of 104857600 bytes";
    near_outside(min: f64, max: f64, x: &str, y: &str) = 16_433, "point not in interval of [ {min}, {max} ] :: caused by :: {{ 0: {x}, 1: {y} }}";
}

/// The state of a search during a run.
pub(crate) struct Searching {
    phase: Phase,
    /// The number of the current scan's cursor in the run.
    pub(super) number: usize,
    rings: Rings,
    /// The width of the current ring, unless it is cut off.
    width: f64,
    /// The rings so far, the current one last.
    pub(crate) rounds: Vec<Round>,
    given: HashSet<RecordKey>,
    rows: BinaryHeap<NearRow>,
    bytes: usize,
    share: Share,
    count: usize,
    /// The inputs that fetch the documents of the rounds so far, one each; before the first round,
    /// the search for the density.
    pub(super) inputs: Vec<(Stage, StageRun)>,
    /// The number of documents in the current ring that are nearer than the minimum distance.
    too_near: u64,
}

/// The phase of a search.
enum Phase {
    /// Determine the width of the first ring.
    Begin(Density),
    /// Find the documents in the ring.
    Find,
    /// Return them.
    Give,
    /// There are no more documents.
    End,
}

/// A ring, and its results. Distances are in metres, except in the plane.
pub(crate) struct Round {
    /// The inner radius.
    pub from: f64,
    /// The outer radius.
    pub to: f64,
    /// Whether it is the last ring, which includes its outer edge.
    pub is_last: bool,
    /// The number of documents found, in it or beyond.
    pub found: u64,
    /// The number of documents returned.
    pub given: u64,
}

/// A found document. The nearest row is the greatest, for the heap.
struct NearRow {
    distance: f64,
    number: usize,
    record: Box<[u8]>,
    doc: Box<[u8]>,
}

impl Ord for NearRow {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance.total_cmp(&self.distance).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for NearRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NearRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for NearRow {}

impl Searching {
    /// Returns a search that has not started.
    pub(super) fn new(stage: &GeoNear) -> Self {
        let GeoNear { index, test, .. } = stage;
        let rings = match index.spec.kind {
            IndexKind::Places(Geography::Flat(grid)) => Rings::of_plane(grid),
            IndexKind::Places(Geography::Sphere { coarsest, .. }) => Rings::of_globe(coarsest),
            _ => Rings::of_globe(0),
        };
        Searching {
            phase: Phase::Begin(Density::new(index, &test.near)),
            number: 0,
            rings,
            width: 0.0,
            rounds: Vec::new(),
            given: HashSet::new(),
            rows: BinaryHeap::new(),
            bytes: 0,
            share: Share::default(),
            count: 0,
            inputs: Vec::new(),
            too_near: 0,
        }
    }

    /// Makes it read everything that mongod would read.
    pub(super) fn examine_all(&mut self) {
        self.rings.examines_all = true;
    }

    /// Sets the number of the cursor that its scans use, one after the other.
    pub(super) fn take_number(&mut self, number: usize) {
        self.number = number;
        self.inputs.iter_mut().for_each(|(_, run)| {
            run.number_places_from(number);
        });
    }

    /// Returns the start and the width of the next ring; `None` after the last.
    fn next_ring(&self) -> Option<(f64, f64)> {
        let last = self.rounds.last().filter(|round| !round.is_last)?;
        let width = match last.given {
            ..FEW => 2.0 * self.width,
            FEW..=MANY => self.width,
            _ => self.width / 2.0,
        };
        Some((last.to, width))
    }
}

impl GeoNear {
    /// Returns the name of the stage in `explain`.
    pub fn stage_name(&self) -> &'static str {
        match self.index.spec.kind {
            IndexKind::Places(Geography::Flat(_)) => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        }
    }

    pub(super) fn work(
        &self,
        search: &mut Searching,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        self.check_center()?;
        match &mut search.phase {
            Phase::Begin(_) => self.look_around(search, env)?,
            Phase::Find => self.find(search, env)?,
            // As in mongod, each document below the minimum distance takes a unit of work.
            Phase::Give if search.too_near > 0 => search.too_near -= 1,
            Phase::Give => {
                if let Some(answer) = search.give(&self.test.near, out)? {
                    return Ok(Step::Advanced(answer));
                }
                match search.next_ring() {
                    Some((from, width)) => self.begin_round(search, env, from, width),
                    None => search.phase = Phase::End,
                }
            }
            Phase::End => return Ok(Step::Eof),
        }
        Ok(Step::NeedTime)
    }

    /// Searches for the density of locations around the point, and begins the first round once it
    /// is known.
    fn look_around(&self, search: &mut Searching, env: &mut Env<'_>) -> Result<()> {
        let Searching { phase: Phase::Begin(density), number, rings, inputs, .. } = search else {
            return Ok(());
        };
        let near = &self.test.near;
        let is_flat = matches!(self.index.spec.kind, IndexKind::Places(Geography::Flat(_)));
        let widest = match is_flat && !near.is_planar() {
            true => PI * EARTH_RADIUS_METERS * FIRST_PART,
            false => f64::INFINITY,
        };
        // A narrow ring does not need the search, but its counts are reported all the same.
        let width = if widest.is_finite() && !rings.examines_all {
            widest
        } else {
            if !matches!(&**inputs, [(_, run)] if !run.stats.is_eof) {
                let walk = scan(&self.index, &self.others, self.place, &density.cells(near));
                *inputs = vec![opened(Stage::Ixscan(walk), *number, env)];
            }
            let (walk, run) = &mut inputs[0];
            match density.work((walk, run), near, env)? {
                Some(width) => widest.min(CELLS_ACROSS * width),
                None => return Ok(()),
            }
        };
        inputs.clear();
        self.begin_round(search, env, self.bounds().0, width);
        Ok(())
    }

    /// Continues to search the current ring.
    fn find(&self, search: &mut Searching, env: &mut Env<'_>) -> Result<()> {
        let GeoNear { test, path, .. } = self;
        // It is put back after the scan's unit of work.
        let Some((input, mut run)) = search.inputs.pop() else { return Ok(()) };
        let mut is_left_out = false;
        let step = run.work(&input, env, &mut |found| {
            is_left_out = !search.add(test, path, found)?;
            Ok(Emit::Taken)
        });
        if is_left_out && test.near.is_planar() {
            // The stage below filters out the documents that are elsewhere.
            run.stats.advanced -= 1;
            run.stats.need_time += 1;
        }
        search.inputs.push((input, run));
        if step? == Step::Eof {
            search.phase = Phase::Give;
        }
        Ok(())
    }

    /// A point outside the index's range cannot be searched from.
    fn check_center(&self) -> Result<()> {
        let IndexKind::Places(Geography::Flat(grid)) = self.index.spec.kind else { return Ok(()) };
        let point = &self.test.near.point;
        if grid.contains(point.x, point.y) {
            return Ok(());
        }
        let shown = |number: f64| marula_bson::Value::Double(number).to_string();
        Err(near_outside(grid.min, grid.max, &shown(point.x), &shown(point.y)))
    }

    /// Starts a scan of the index up to the ring's outer radius, without the cells that were
    /// scanned before.
    fn begin_round(&self, search: &mut Searching, env: &mut Env<'_>, from: f64, width: f64) {
        let farthest = self.bounds().1;
        // The first ring may start slightly before the minimum distance.
        let near = &self.test.near;
        let to = from.max(near.in_metres(near.min)) + width;
        let is_last = to >= farthest;
        let to = if is_last { farthest } else { to };
        search.width = width;
        search.rounds.push(Round { from, to, is_last, found: 0, given: 0 });
        let measured = |distance: f64| match near.unit {
            Unit::Plane => distance,
            Unit::Meters | Unit::Radians => distance / EARTH_RADIUS_METERS,
        };
        let area = search.rings.next(near, measured(from), measured(to));
        let scan = scan(&self.index, &self.others, self.place, &area);
        let input = Stage::fetch(Stage::Ixscan(scan), None);
        let (input, mut run) = opened(input, search.number, env);
        run.expect(&input, u64::MAX);
        search.inputs.push((input, run));
        search.phase = Phase::Find;
    }

    /// Returns the minimum and maximum distance, in metres, except in the plane.
    fn bounds(&self) -> (f64, f64) {
        let near = &self.test.near;
        match (near.unit, &self.index.spec.kind) {
            (Unit::Plane, IndexKind::Places(Geography::Flat(grid))) => {
                // From any point of a square, the whole square is within its diagonal.
                let max = near.max.min(1.5 * (grid.max - grid.min));
                // A margin on both sides, for rounding errors.
                let more = f64::EPSILON * (near.point.x.abs().max(near.point.y.abs()) + max);
                ((near.min - more).max(0.0), max + more)
            }
            (Unit::Radians, _) => (near.in_metres(near.min), near.in_metres(near.max.min(PI))),
            _ => (near.min, near.max.min(PI * EARTH_RADIUS_METERS)),
        }
    }
}

/// Returns a scan of the part of an index with locations in the area, and bounds of the other
/// parts.
fn scan(index: &Arc<Index>, others: &[Vec<Interval>], place: usize, area: &Area) -> Ixscan {
    let mut fields = others.to_vec();
    fields.insert(place, intervals(area));
    let bounds = IndexBounds { fields };
    let keys = KeyBounds::new(&bounds, &PartView::of(index, true));
    Ixscan::new(index.clone(), ScanBounds { fields: Some(bounds), keys }, Direction::Forward)
}

/// Returns a stage with one scan, which takes over the cursor of the previous one, and its state.
fn opened(stage: Stage, number: usize, env: &mut Env<'_>) -> (Stage, StageRun) {
    env.open[number] = Open::Closed;
    let mut run = StageRun::new(&stage);
    run.number_places_from(number);
    (stage, run)
}

impl Searching {
    /// Stores a document, unless it was stored before; returns whether its distance is within the
    /// limits.
    fn add(&mut self, test: &NearTest, path: &FieldPath, found: Found<'_>) -> Result<bool> {
        let Some((distance, _)) = test.measure(path, found.doc) else { return Ok(false) };
        let is_wanted = test.near.admits(distance);
        if !is_wanted && test.near.is_planar() {
            return Ok(false);
        }
        if !self.given.insert(RecordKey::new(found.record)) {
            return Ok(true);
        }
        if let Some(round) = self.rounds.last_mut() {
            round.found += 1;
        }
        if !is_wanted {
            self.too_near += u64::from(distance < test.near.min);
            return Ok(false);
        }
        self.count += 1;
        self.bytes += found.doc.as_bytes().len();
        if self.bytes > BYTES_MAX {
            return Err(near_too_large());
        }
        self.share.require(self.bytes)?;
        self.rows.push(NearRow {
            distance,
            number: self.count,
            record: found.record.into(),
            doc: found.doc.as_bytes().into(),
        });
        Ok(true)
    }

    /// Passes on the nearest document in the ring; `None` if there is none left.
    fn give(
        &mut self,
        near: &Near,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Option<Emit>> {
        let Some(round) = self.rounds.last_mut() else { return Ok(None) };
        let is_in = |row: &NearRow| round.is_last || near.in_metres(row.distance) < round.to;
        if !self.rows.peek().is_some_and(is_in) {
            return Ok(None);
        }
        let Some(row) = self.rows.pop() else { return Ok(None) };
        let answer = out(Found::fetched(Doc::trusted(&row.doc), &row.record))?;
        if answer == Emit::Full {
            self.rows.push(row);
        } else {
            self.bytes -= row.doc.len();
            round.given += 1;
        }
        Ok(Some(answer))
    }
}

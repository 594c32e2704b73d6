//! Lines and polygons on the globe.
//!
//! The sphere is S2's: edges are the shortest paths between their ends, and a point on a border is
//! consistently inside or outside. A polygon is a shell with holes; its relations follow from those
//! of the rings, whose edges are indexed, so that large polygons do not cost the product of their
//! sizes.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use s2rst::s2::contains_point_query::{ContainsPointQuery, VertexModel};
use s2rst::s2::crossing_edge_query::{CrossingEdgeQuery, CrossingType};
use s2rst::s2::edge_crosser::EdgeCrosser;
use s2rst::s2::polyline::Polyline;
use s2rst::s2::shape_index::ShapeIndex;
use s2rst::s2::shape_index_region::ShapeIndexRegion;
use s2rst::s2::{Cap, Cell, LatLng, Loop, Point, Region};

/// Below this number of pairs of edges it is faster to test all of them than to index one side.
const PAIRS_TRIED: usize = 4096;

/// Up to this number of edges of a ring it is faster to test all of them than to use the index.
const VERTICES_TRIED: usize = 32;

/// A line on the globe.
pub struct Line {
    pub(super) polyline: Polyline,
    index: OnceLock<ShapeIndex>,
}

/// A polygon on the globe: the inside of its shell without its holes.
#[derive(Debug)]
pub struct Polygon {
    shell: Loop,
    holes: Vec<Loop>,
    is_strictly_wound: bool,
}

/// The vertices without consecutive duplicates.
pub(super) fn erase_repeated(mut vertices: Vec<Point>) -> Vec<Point> {
    vertices.dedup();
    vertices
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Line").field(&self.polyline).finish()
    }
}

impl Line {
    /// The line through these vertices, at least two, without consecutive duplicates.
    ///
    /// Errors: why they do not form a line, as text.
    pub(super) fn new(vertices: Vec<Point>) -> Result<Line, String> {
        let turn = vertices.windows(2).position(|edge| is_antipodal(edge[0], edge[1]));
        if let Some(at) = turn {
            return Err(format!("Vertices {at} and {} are identical or antipodal", at + 1));
        }
        Ok(Line { polyline: Polyline::new(vertices), index: OnceLock::new() })
    }

    /// The edges, in order.
    pub(super) fn edges(&self) -> impl Iterator<Item = (Point, Point)> + '_ {
        (1..self.polyline.num_vertices())
            .map(|at| (self.polyline.vertex(at - 1), self.polyline.vertex(at)))
    }

    /// Returns whether the lines cross or touch at a vertex.
    pub(super) fn intersects(&self, other: &Line) -> bool {
        if self.polyline.num_vertices() * other.polyline.num_vertices() <= PAIRS_TRIED {
            return self.polyline.intersects(&other.polyline);
        }
        let index = self.index();
        let mut query = CrossingEdgeQuery::new(index);
        other.edges().any(|edge| !crossed(&mut query, index, edge, CrossingType::All).is_empty())
    }

    /// The spatial index of its edges.
    pub(super) fn index(&self) -> &ShapeIndex {
        self.index.get_or_init(|| {
            let mut index = ShapeIndex::new();
            index.add(Box::new(self.polyline.clone()));
            index.build();
            index
        })
    }

    /// Returns whether the line lies entirely in the cap.
    pub(super) fn is_in_cap(&self, cap: &Cap) -> bool {
        is_path_in_cap(self.edges(), cap)
    }

    /// Returns whether the line touches the cell.
    pub(super) fn touches(&self, cell: &Cell) -> bool {
        self.polyline.intersects_cell(cell)
    }
}

impl Polygon {
    /// The polygon bounded by this ring, with the smaller side inside.
    ///
    /// Errors: why the vertices do not form a ring, as text.
    pub(super) fn new(vertices: Vec<Point>) -> Result<Polygon, String> {
        Ok(Polygon { shell: small_ring(vertices)?, holes: Vec::new(), is_strictly_wound: false })
    }

    /// The polygon to the left of this ring.
    ///
    /// Errors: why the vertices do not form a ring, as text.
    pub(super) fn strictly_wound(vertices: Vec<Point>) -> Result<Polygon, String> {
        Ok(Polygon { shell: ring(vertices)?, holes: Vec::new(), is_strictly_wound: true })
    }

    /// Removes the ring from the polygon. Returns whether it lies within the shell.
    ///
    /// Errors: why the vertices do not form a ring, as text.
    pub(super) fn add_hole(&mut self, vertices: Vec<Point>) -> Result<bool, String> {
        let hole = small_ring(vertices)?;
        let is_inside = encloses(&self.shell, &hole);
        self.holes.push(hole);
        Ok(is_inside)
    }

    /// A description of the conflict between two of its rings, if any.
    pub(super) fn clash_of_rings(&self) -> Option<String> {
        let mut edges: HashMap<[Bits; 2], (usize, usize)> = HashMap::new();
        for (at, ring) in self.rings().enumerate() {
            for edge in 0..ring.num_vertices() {
                let ends = [bits(ring.vertex(edge)), bits(ring.vertex(edge + 1))];
                // A hole has the same winding as the shell here, so an edge shared by both has one
                // direction in both; an edge shared by two holes has both directions.
                let reversed = edges.get(&[ends[1], ends[0]]).copied();
                if let Some((other, other_edge)) = edges.insert(ends, (at, edge)).or(reversed) {
                    return Some(format!(
                        "Duplicate edge: loop {at}, edge {edge} and loop {other}, edge {other_edge}"
                    ));
                }
            }
        }
        for (a, one) in self.holes.iter().enumerate() {
            for (b, other) in self.holes.iter().enumerate().skip(a + 1) {
                let apart = !meets(one, other);
                if !apart && !encloses(one, other) && !encloses(other, one) {
                    return Some(format!("Loop {} crosses loop {}", a + 1, b + 1));
                }
            }
        }
        None
    }

    /// The numbers, from one, of a hole and of the ring around it, if they share more than one
    /// vertex; the shell has the number zero.
    pub(super) fn hole_at_parent(&self) -> Option<(usize, usize)> {
        let vertices = |ring: &Loop| -> HashSet<Bits> {
            (0..ring.num_vertices()).map(|at| bits(ring.vertex(at))).collect()
        };
        let rings: Vec<HashSet<Bits>> = self.rings().map(vertices).collect();
        let numbers = 1..=self.holes.len();
        numbers
            .map(|hole| (hole, self.parent(hole)))
            .find(|(hole, parent)| rings[*hole].intersection(&rings[*parent]).count() > 1)
    }

    /// The number of the smallest ring around a hole.
    fn parent(&self, hole: usize) -> usize {
        let ring = |number: usize| &self.holes[number - 1];
        let around = (1..=self.holes.len())
            .filter(|other| *other != hole && encloses(ring(*other), ring(hole)));
        around
            .reduce(|one, other| if encloses(ring(one), ring(other)) { other } else { one })
            .unwrap_or(0)
    }

    /// Returns whether a hole lies in another.
    pub(super) fn has_nested_holes(&self) -> bool {
        (1..=self.holes.len()).any(|hole| self.parent(hole) != 0)
    }

    /// Returns whether the polygon has a strict winding order.
    pub(super) fn is_strictly_wound(&self) -> bool {
        self.is_strictly_wound
    }

    /// The outer border.
    pub(super) fn shell(&self) -> &Loop {
        &self.shell
    }

    /// The borders, the outer first.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Loop> {
        std::iter::once(&self.shell).chain(&self.holes)
    }

    /// Returns whether the point lies in it.
    pub(super) fn contains(&self, point: &Point) -> bool {
        holds(&self.shell, point) && !self.holes.iter().any(|hole| holds(hole, point))
    }

    /// Returns whether the line lies entirely in it: no part is outside, and it does not leave and
    /// return at a vertex.
    pub(super) fn contains_line(&self, line: &Line) -> bool {
        let last = line.polyline.num_vertices().saturating_sub(2);
        let mut is_inside = self.contains(&line.polyline.vertex(0));
        for (number, edge) in line.edges().enumerate() {
            let passes = self.passes(edge);
            is_inside ^= passes.is_at_start;
            let turns = passes.is_at_start && number > 0 || passes.is_at_end && number < last;
            if !is_inside || turns || passes.between > 0 {
                return false;
            }
        }
        true
    }

    /// Returns whether the other polygon lies entirely in it.
    pub(super) fn contains_polygon(&self, other: &Polygon) -> bool {
        encloses(&self.shell, &other.shell)
            && self.holes.iter().all(|hole| {
                !meets(hole, &other.shell) || other.holes.iter().any(|wider| encloses(wider, hole))
            })
    }

    /// Returns whether more than a point of the line lies in it.
    pub(super) fn intersects_line(&self, line: &Line) -> bool {
        let mut is_inside = self.contains(&line.polyline.vertex(0));
        line.edges().any(|edge| {
            let passes = self.passes(edge);
            is_inside ^= passes.is_at_start;
            let is_met = is_inside || passes.between > 0;
            is_inside ^= passes.is_at_end;
            is_met
        })
    }

    /// Returns whether the polygons overlap.
    pub(super) fn intersects_polygon(&self, other: &Polygon) -> bool {
        meets(&self.shell, &other.shell)
            && !self.holes.iter().any(|hole| encloses(hole, &other.shell))
            && !other.holes.iter().any(|hole| encloses(hole, &self.shell))
    }

    /// Returns whether the polygon touches the cell.
    pub(super) fn touches(&self, cell: &Cell) -> bool {
        if !self.shell.bound().intersects(cell.rect_bound()) {
            return false;
        }
        let ring = Loop::from_cell(cell);
        meets(&self.shell, &ring) && !self.holes.iter().any(|hole| encloses(hole, &ring))
    }

    /// Returns whether the polygon may touch the cell, by the index of its edges, which is slightly
    /// generous.
    pub(super) fn may_touch(&self, cell: &Cell) -> bool {
        ShapeIndexRegion::new(self.shell.shape_index()).intersects_cell(cell)
    }

    /// Returns whether the cell certainly lies entirely in the polygon, away from its borders.
    pub(super) fn holds_cell(&self, cell: &Cell) -> bool {
        let is_in_shell = ShapeIndexRegion::new(self.shell.shape_index()).contains_cell(cell);
        is_in_shell
            && (self.holes.is_empty() || {
                let ring = Loop::from_cell(cell);
                !self.holes.iter().any(|hole| meets(hole, &ring))
            })
    }

    /// Returns whether it lies in the cap.
    pub(super) fn is_in_cap(&self, cap: &Cap) -> bool {
        let ring = &self.shell;
        let edges = (0..ring.num_vertices()).map(|at| (ring.vertex(at), ring.vertex(at + 1)));
        cap.is_full() || is_path_in_cap(edges, cap) && !self.contains(&Point(-cap.center().0))
    }

    /// The points at which an edge enters or leaves the polygon.
    fn passes(&self, (a, b): (Point, Point)) -> Passes {
        let mut passes = Passes::default();
        for ring in self.rings() {
            let index = ring.shape_index();
            let mut query = CrossingEdgeQuery::new(index);
            let mut crosser = EdgeCrosser::new(a, b);
            for at in crossed(&mut query, index, (a, b), CrossingType::All) {
                let (c, d) = (ring.vertex(at), ring.vertex(at + 1));
                if !crosser.edge_or_vertex_crossing(c, d) {
                    continue;
                }
                if a == c || a == d {
                    passes.is_at_start = !passes.is_at_start;
                } else if b == c || b == d {
                    passes.is_at_end = !passes.is_at_end;
                } else {
                    passes.between += 1;
                }
            }
        }
        passes
    }
}

/// The points at which an edge crosses a polygon's border.
#[derive(Default)]
struct Passes {
    is_at_start: bool,
    is_at_end: bool,
    /// The number of crossings between its ends.
    between: usize,
}

/// Returns whether the point lies in the ring. The bounding box is not used, since its rounding may
/// exclude a point on an edge.
fn holds(ring: &Loop, point: &Point) -> bool {
    if ring.num_vertices() <= VERTICES_TRIED {
        return ring.brute_force_contains_point(*point);
    }
    ContainsPointQuery::new(ring.shape_index(), VertexModel::SemiOpen).contains(*point)
}

/// Returns whether the other ring lies in this one.
fn encloses(ring: &Loop, other: &Loop) -> bool {
    !cross(ring, other) && ring.contains_loop(other)
}

/// Returns whether the interiors of the rings overlap.
fn meets(ring: &Loop, other: &Loop) -> bool {
    ring.bound().intersects(other.bound()) && (cross(ring, other) || ring.intersects_loop(other))
}

/// Returns whether an edge of one ring crosses one of the other between their ends.
fn cross(ring: &Loop, other: &Loop) -> bool {
    let index = ring.shape_index();
    let mut query = CrossingEdgeQuery::new(index);
    (0..other.num_vertices()).any(|at| {
        let edge = (other.vertex(at), other.vertex(at + 1));
        !crossed(&mut query, index, edge, CrossingType::Interior).is_empty()
    })
}

fn is_path_in_cap(edges: impl Iterator<Item = (Point, Point)>, cap: &Cap) -> bool {
    let outside = cap.complement();
    let mut edges = edges;
    edges.all(|(a, b)| {
        if !cap.contains_point(&a) || !cap.contains_point(&b) {
            return false;
        }
        // A cap of more than half of the globe may contain both ends of an edge and not the rest of
        // it.
        let nearest = s2rst::s2::edge_distances::project(outside.center(), a, b);
        outside.is_empty() || !outside.interior_contains_point(nearest)
    })
}

type Bits = [u64; 3];

/// The coordinates as a map key; both zeros are equal.
fn bits(point: Point) -> Bits {
    [point.0.x, point.0.y, point.0.z].map(|number| (number + 0.0).to_bits())
}

fn is_antipodal(a: Point, b: Point) -> bool {
    a == Point(-b.0)
}

/// The ring through these vertices with the smaller side inside.
fn small_ring(vertices: Vec<Point>) -> Result<Loop, String> {
    let ring = ring(vertices)?;
    if ring.is_normalized() {
        return Ok(ring);
    }
    Ok(Loop::new(ring.vertices().iter().rev().copied().collect()))
}

/// The ring through these vertices, at least three, which must not intersect itself.
fn ring(vertices: Vec<Point>) -> Result<Loop, String> {
    let count = vertices.len();
    let mut places: HashMap<Bits, usize> = HashMap::with_capacity(count);
    for (at, &vertex) in vertices.iter().enumerate() {
        if let Some(first) = places.insert(bits(vertex), at) {
            return Err(format!("Duplicate vertices: {first} and {at}"));
        }
        if is_antipodal(vertex, vertices[(at + 1) % count]) {
            return Err(format!("Vertices {at} and {} are antipodal", (at + 1) % count));
        }
    }
    let ring = Loop::new(vertices);
    let mut query = CrossingEdgeQuery::new(ring.shape_index());
    for at in 0..count {
        let (a, b) = (ring.vertex(at), ring.vertex(at + 1));
        let others = crossed(&mut query, ring.shape_index(), (a, b), CrossingType::Interior);
        if let Some(other) = others.into_iter().min() {
            return Err(format!(
                "Edges {at} and {other} cross. Edge locations in degrees: {}-{} and {}-{}",
                shown(a),
                shown(b),
                shown(ring.vertex(other)),
                shown(ring.vertex(other + 1)),
            ));
        }
    }
    Ok(ring)
}

/// The numbers of the edges in an index of one shape that the edge crosses.
fn crossed(
    query: &mut CrossingEdgeQuery<'_>,
    index: &ShapeIndex,
    (a, b): (Point, Point),
    which: CrossingType,
) -> Vec<usize> {
    let Some(shape) = index.shape(0) else { return Vec::new() };
    let found = query.crossings(a, b, shape, 0, which);
    found.into_iter().filter_map(|edge| usize::try_from(edge).ok()).collect()
}

fn shown(point: Point) -> String {
    let place = LatLng::from_point(point);
    format!("[{:.7}, {:.7}]", place.lat.degrees() + 0.0, place.lng.degrees() + 0.0)
}

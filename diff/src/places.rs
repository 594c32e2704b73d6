//! Searches by place: points and geometries, with and without an index of each kind.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Degrees of longitude; the last ones lie on the edges of the map.
const LONGITUDES: [f64; 16] = [
    0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, -0.5, -1.0, -5.0, 45.0, 90.0, -120.25, 179.0, 180.0, -180.0,
];
const LATITUDES: [f64; 16] =
    [0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, -0.5, -1.0, -5.0, 45.0, 60.5, 89.0, -90.0, 90.0, 0.0001];

impl Maker {
    /// Returns documents with a place in `p` and a geometry in `g`.
    pub(crate) fn located_documents(&mut self, count: usize) -> Vec<Tree> {
        let document = |maker: &mut Maker, number: usize| {
            let mut fields = vec![("_id".to_owned(), Tree::of(number as i32))];
            if maker.random.percent(90) {
                let place = match maker.random.below(12) {
                    0 => Tree::Array((0..3).map(|_| maker.point()).collect()),
                    1 => tree! { "a" => maker.point() },
                    _ => maker.point(),
                };
                let place = maker.spoiled(place);
                fields.push(("p".to_owned(), place));
            }
            if maker.random.percent(70) {
                let geometry = maker.geometry(1);
                let geometry = maker.spoiled(geometry);
                fields.push(("g".to_owned(), geometry));
            }
            if maker.random.percent(60) {
                let value = maker.small();
                fields.push(("a".to_owned(), value));
            }
            Tree::Doc(fields)
        };
        (1..=count).map(|number| document(self, number)).collect()
    }

    /// Returns no index, one, or two.
    pub(crate) fn indexes_of_places(&mut self) -> Vec<Tree> {
        let count = self.random.below(3);
        let index = |maker: &mut Maker| match maker.random.below(8) {
            0 => tree! { "g" => "2dsphere" },
            1 => tree! { "p" => "2dsphere" },
            2 => tree! { "a" => 1, "p" => "2dsphere" },
            3 => tree! { "g" => "2dsphere", "a" => -1 },
            4 => tree! { "p" => "2d" },
            5 => tree! { "p" => "2d", "a" => 1 },
            6 => tree! { "p" => "2dsphere", "g" => "2dsphere" },
            _ => tree! { "a" => 1 },
        };
        let mut found: Vec<Tree> = Vec::new();
        for _ in 0..count {
            let index = index(self);
            // A search by distance must have one index to use.
            if found.iter().all(|other| other.fields()[0].0 != index.fields()[0].0) {
                found.push(index);
            }
        }
        found
    }

    /// Returns a `find`, or a `$geoNear`; distances are shown, their order is open.
    pub(crate) fn search_by_place(&mut self) -> Tree {
        if self.random.percent(25) {
            let mut near = tree! { "near" => self.point(), "distanceField" => "d" };
            let Tree::Doc(fields) = &mut near else { unreachable!("a stage is a document") };
            let mut add = |name: &str, value: Tree| fields.push((name.to_owned(), value));
            if self.random.percent(80) {
                add("key", Tree::of(if self.random.percent(75) { "p" } else { "g" }));
            }
            if self.random.percent(50) {
                add("spherical", Tree::of(self.random.percent(70)));
            }
            for name in ["maxDistance", "minDistance", "distanceMultiplier"] {
                if self.random.percent(25) {
                    add(name, self.distance());
                }
            }
            if self.random.percent(30) {
                add("includeLocs", Tree::of("l"));
            }
            if self.random.percent(25) {
                let query = tree! { "a" => self.small() };
                add("query", query);
            }
            let mut stages = vec![tree! { "$geoNear" => near }];
            if self.random.percent(25) {
                let shown = *self.random.pick(&["geoNearDistance", "geoNearPoint", "sortKey"]);
                stages.push(match self.random.below(4) {
                    0 | 1 => tree! { "$match" => tree! {} },
                    2 => tree! { "$match" => tree! { "a" => self.small() } },
                    _ => tree! { "$addFields" => tree! { "m" => tree! { "$meta" => shown } } },
                });
            }
            let stages = Tree::Array(stages);
            return tree! { "aggregate" => "c", "pipeline" => stages, "cursor" => tree! { "batchSize" => 1000 } };
        }
        let mut filter = Vec::new();
        if self.random.percent(20) {
            filter.push(("a".to_owned(), self.small()));
        }
        let path = *self.random.pick(&["p", "p", "p", "g", "g", "p.a", "p.coordinates"]);
        let condition = self.place_condition();
        filter.push((path.to_owned(), condition));
        if self.random.percent(8) {
            let second = self.place_condition();
            filter.push(("g".to_owned(), second));
        }
        let mut filter = Tree::Doc(filter);
        if self.random.percent(8) {
            let other = tree! { "a" => self.small() };
            filter = tree! { "$or" => Tree::Array(vec![filter, other]) };
        }
        let mut find = tree! { "find" => "c", "filter" => filter, "batchSize" => 1000 };
        if self.random.percent(15)
            && let Tree::Doc(fields) = &mut find
        {
            let shown = *self.random.pick(&["geoNearDistance", "geoNearPoint"]);
            fields.push(("projection".to_owned(), tree! { "m" => tree! { "$meta" => shown } }));
        }
        find
    }

    fn place_condition(&mut self) -> Tree {
        let condition = match self.random.below(16) {
            0..8 => {
                let name = if self.random.percent(92) { "$geoWithin" } else { "$within" };
                Tree::field(name, self.area())
            }
            8..12 => {
                let geometry = self.geometry(1);
                tree! { "$geoIntersects" => tree! { "$geometry" => self.spoiled(geometry) } }
            }
            _ => self.nearness(),
        };
        match self.random.below(20) {
            0 => tree! { "$not" => condition },
            1 => tree! { "$elemMatch" => condition },
            _ => condition,
        }
    }

    /// Returns the argument of `$geoWithin`.
    pub(crate) fn area(&mut self) -> Tree {
        let (name, area) = match self.random.below(6) {
            0 => ("$box", Tree::Array(vec![self.pair(), self.pair()])),
            1 | 2 => {
                let name = if self.random.percent(50) { "$center" } else { "$centerSphere" };
                let radius = self.radius();
                (name, Tree::Array(vec![self.pair(), radius]))
            }
            3 => {
                let count = self.random.between(3, 5);
                ("$polygon", Tree::Array((0..count).map(|_| self.pair()).collect()))
            }
            _ => ("$geometry", self.polygon()),
        };
        Tree::field(name, self.spoiled(area))
    }

    pub(crate) fn nearness(&mut self) -> Tree {
        let name = *self.random.pick(&["$near", "$nearSphere", "$geoNear"]);
        let mut outer = Vec::new();
        let mut limits = Vec::new();
        for name in ["$maxDistance", "$minDistance"] {
            if self.random.percent(35) {
                let distance = self.distance();
                limits.push((name.to_owned(), distance));
            }
        }
        if self.random.percent(50) {
            outer.push((name.to_owned(), self.pair()));
            outer.extend(limits);
        } else {
            let mut inner = vec![("$geometry".to_owned(), self.json_point())];
            inner.extend(limits);
            outer.push((name.to_owned(), Tree::Doc(inner)));
        }
        Tree::Doc(outer)
    }

    fn distance(&mut self) -> Tree {
        let distance = *self.random.pick(&[0.0, 0.02, 0.1, 1.0, 2.0, 100.0, 111_195.0, 1e6, 1e7]);
        let distance = if self.random.percent(80) { Tree::of(distance) } else { self.small() };
        self.spoiled(distance)
    }

    fn radius(&mut self) -> Tree {
        Tree::of(*self.random.pick(&[0.0, 1e-9, 0.0001, 0.02, 0.5, 1.0, 1.5, 3.0, 5.0, -1.0, 0.1]))
    }

    /// Returns a place: two numbers, or a GeoJSON point.
    fn point(&mut self) -> Tree {
        match self.random.below(10) {
            0..4 => self.pair(),
            4 => {
                let (x, y) = self.coordinates();
                tree! { "x" => Tree::of(x), "y" => Tree::of(y) }
            }
            _ => self.json_point(),
        }
    }

    pub(crate) fn json_point(&mut self) -> Tree {
        tree! { "type" => "Point", "coordinates" => self.pair() }
    }

    fn coordinates(&mut self) -> (f64, f64) {
        // Most places are near each other, so that searches find some.
        let (x_end, y_end) = if self.random.percent(85) { (10, 10) } else { (16, 16) };
        (LONGITUDES[self.random.below(x_end)], LATITUDES[self.random.below(y_end)])
    }

    pub(crate) fn pair(&mut self) -> Tree {
        let (x, y) = self.coordinates();
        let number = |value: f64| {
            if value.fract() == 0.0 { Tree::of(value as i32) } else { Tree::of(value) }
        };
        let mut pair = vec![number(x), number(y)];
        match self.random.below(60) {
            0 => drop(pair.pop()),
            1 => pair.push(Tree::of(7)),
            2 => pair[0] = self.scalar(),
            _ => {}
        }
        Tree::Array(pair)
    }

    /// Returns a ring around a rectangle or a triangle.
    fn ring(&mut self) -> Tree {
        let corners = self.corners();
        self.closed(corners)
    }

    /// Returns the corners of a rectangle or a triangle.
    fn corners(&mut self) -> Vec<(f64, f64)> {
        let ((x, y), width, height) = (
            self.coordinates(),
            *self.random.pick(&[1.0, 2.5, 5.0, 20.0]),
            *self.random.pick(&[1.0, 2.5, 5.0]),
        );
        let mut corners = match self.random.below(3) {
            0 => vec![(x, y), (x + width, y), (x, y + height)],
            _ => vec![(x, y), (x + width, y), (x + width, y + height), (x, y + height)],
        };
        if self.random.percent(20) {
            corners.reverse();
        }
        corners
    }

    /// Returns the ring of these corners; rarely it is left open.
    fn closed(&mut self, mut corners: Vec<(f64, f64)>) -> Tree {
        if !self.random.percent(3) {
            corners.push(corners[0]);
        }
        let corner = |(x, y): (f64, f64)| Tree::Array(vec![Tree::of(x), Tree::of(y)]);
        Tree::Array(corners.into_iter().map(corner).collect())
    }

    /// Returns the corners of a hole: within the ring of `outer`, or with a mistake that a server
    /// must tell, such as a corner in common, an edge in common, or a part that is outside.
    fn hole(&mut self, outer: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let (first, second, third) = (outer[0], outer[1], outer[2]);
        let last = outer[outer.len() - 1];
        let between = |from: (f64, f64), to: (f64, f64), part: f64| {
            (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part)
        };
        let middle = between(between(first, second, 0.5), last, 0.4);
        let moved = |by: (f64, f64), scale: f64| -> Vec<_> {
            let corner = |corner: &(f64, f64)| {
                let (x, y) = between(middle, *corner, scale);
                (x + by.0, y + by.1)
            };
            outer.iter().map(corner).collect()
        };
        let mut corners = match self.random.below(14) {
            0 | 1 => vec![first, middle, between(first, middle, 0.25)],
            2 => vec![first, between(middle, second, 0.5), between(middle, last, 0.25)],
            3 => vec![first, second, middle],
            4 => vec![first, third, middle],
            5 => vec![first, middle, third, between(middle, last, 0.5)],
            6 => vec![between(first, second, 0.5), middle, between(middle, last, 0.25)],
            7 => moved((2.0, 0.5), 1.0),
            8 => moved((40.0, 0.0), 0.5),
            9 => moved((0.0, 0.0), 1.0),
            10 => moved((0.0, 0.0), 2.0),
            _ => moved((0.0, 0.0), 0.25),
        };
        if self.random.percent(50) {
            corners.reverse();
        }
        if self.random.percent(25) {
            corners.rotate_left(1);
        }
        corners
    }

    fn polygon(&mut self) -> Tree {
        tree! { "type" => "Polygon", "coordinates" => self.rings() }
    }

    /// Returns the rings of a polygon: one, with others often enough.
    fn rings(&mut self) -> Tree {
        let outer = self.corners();
        let mut rings = vec![self.closed(outer.clone())];
        match self.random.below(100) {
            0..6 => rings.push(self.ring()),
            6..20 => {
                let hole = self.hole(&outer);
                rings.push(self.closed(hole.clone()));
                if self.random.percent(25) {
                    let of = if self.random.percent(50) { outer } else { hole };
                    let second = self.hole(&of);
                    rings.push(self.closed(second));
                }
            }
            _ => {}
        }
        Tree::Array(rings)
    }

    /// Returns a GeoJSON geometry; a collection contains others, at most `depth` deep.
    fn geometry(&mut self, depth: usize) -> Tree {
        match self.random.below(14) {
            0..4 => self.json_point(),
            4..6 => {
                let count = self.random.between(2, 3);
                let line = (0..count).map(|_| self.pair()).collect();
                tree! { "type" => "LineString", "coordinates" => Tree::Array(line) }
            }
            6..10 => self.polygon(),
            10 => {
                let points = (0..2).map(|_| self.pair()).collect();
                tree! { "type" => "MultiPoint", "coordinates" => Tree::Array(points) }
            }
            11 => {
                let lines = (0..2).map(|_| Tree::Array(vec![self.pair(), self.pair()])).collect();
                tree! { "type" => "MultiLineString", "coordinates" => Tree::Array(lines) }
            }
            12 => {
                let polygons = vec![self.rings()];
                tree! { "type" => "MultiPolygon", "coordinates" => Tree::Array(polygons) }
            }
            _ if depth > 0 => {
                let parts = (0..2).map(|_| self.geometry(depth - 1)).collect();
                tree! { "type" => "GeometryCollection", "geometries" => Tree::Array(parts) }
            }
            _ => self.json_point(),
        }
    }
}

//! Planar shapes, and whether a point lies in them. Borders belong to the shape.

/// A rectangle with sides parallel to the axes.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    pub(super) min: (f64, f64),
    pub(super) max: (f64, f64),
}

/// A circle with its interior.
#[derive(Clone, Copy, Debug)]
pub struct Disc {
    pub(super) center: (f64, f64),
    pub(super) radius: f64,
}

/// A polygon by its corners.
#[derive(Clone, Debug)]
pub struct Ring {
    corners: Vec<(f64, f64)>,
    bound: Rectangle,
}

impl Rectangle {
    /// The rectangle with these opposite corners.
    pub(super) fn new(a: (f64, f64), b: (f64, f64)) -> Rectangle {
        Rectangle { min: (a.0.min(b.0), a.1.min(b.1)), max: (a.0.max(b.0), a.1.max(b.1)) }
    }

    /// Returns whether the point lies in it.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        x >= self.min.0 && x <= self.max.0 && y >= self.min.1 && y <= self.max.1
    }

    /// Returns whether the rectangles intersect.
    pub(super) fn meets(&self, other: &Rectangle) -> bool {
        self.min.0 <= other.max.0
            && other.min.0 <= self.max.0
            && self.min.1 <= other.max.1
            && other.min.1 <= self.max.1
    }

    /// Returns whether the other rectangle lies in it without touching its sides.
    pub(super) fn surrounds(&self, other: &Rectangle) -> bool {
        self.min.0 < other.min.0
            && self.min.1 < other.min.1
            && other.max.0 < self.max.0
            && other.max.1 < self.max.1
    }

    pub(super) fn corners(&self) -> [(f64, f64); 4] {
        [self.min, (self.min.0, self.max.1), self.max, (self.max.0, self.min.1)]
    }
}

impl Disc {
    /// Returns whether the point lies in it.
    ///
    /// For a point directly next to or above the centre mongod adds the radius to the lesser
    /// coordinate, which rounds differently from a subtraction.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        let reaches = |one: f64, other: f64| one.min(other) + self.radius >= one.max(other);
        match self.center {
            (center, at) if center == x => reaches(at, y),
            (at, center) if center == y => reaches(at, x),
            center => distance(center, (x, y)) <= self.radius,
        }
    }

    /// Returns whether the rectangle lies entirely in it.
    pub(super) fn holds(&self, rectangle: &Rectangle) -> bool {
        rectangle.corners().into_iter().all(|(x, y)| self.contains(x, y))
    }

    /// Returns whether the rectangle intersects it.
    pub(super) fn meets(&self, rectangle: &Rectangle) -> bool {
        let (x, y) = self.center;
        let (min, max) = (rectangle.min, rectangle.max);
        self.contains(x.clamp(min.0, max.0), y.clamp(min.1, max.1))
    }

    /// The bounding square.
    pub(super) fn bound(&self) -> Rectangle {
        let ((x, y), r) = (self.center, self.radius);
        Rectangle { min: (x - r, y - r), max: (x + r, y + r) }
    }
}

impl Ring {
    /// The polygon with these corners, at least three.
    pub(super) fn new(corners: Vec<(f64, f64)>) -> Ring {
        let first = corners.first().copied().unwrap_or_default();
        let mut bound = Rectangle { min: first, max: first };
        for &(x, y) in &corners {
            bound.min = (bound.min.0.min(x), bound.min.1.min(y));
            bound.max = (bound.max.0.max(x), bound.max.1.max(y));
        }
        Ring { corners, bound }
    }

    /// The bounding rectangle.
    pub(super) fn bound(&self) -> Rectangle {
        self.bound
    }

    /// Returns whether the rectangle lies entirely in it without touching an edge.
    pub(super) fn holds(&self, rectangle: &Rectangle) -> bool {
        let (x, y) = rectangle.min;
        self.contains(x, y) && !self.edges().any(|(from, to)| touches(from, to, rectangle))
    }

    fn edges(&self) -> impl Iterator<Item = ((f64, f64), (f64, f64))> + '_ {
        let before = self.corners.iter().cycle().skip(self.corners.len() - 1);
        before.copied().zip(self.corners.iter().copied())
    }

    /// Returns whether the point lies in it: a ray from it crosses the border an odd number of
    /// times. Corners and points of edges parallel to an axis belong to it; those of other edges
    /// belong to one side.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        // Left of the border too the edges decide, with the rounding of their crossings, as in
        // mongod: with a corner at 1e308 such a point can be found.
        if x > self.bound.max.0 || y < self.bound.min.1 || y > self.bound.max.1 {
            return false;
        }
        let mut is_inside = false;
        for (from, to) in self.edges() {
            let edge = Rectangle::new(from, to);
            if (from.0 == to.0 || from.1 == to.1) && edge.contains(x, y) || to == (x, y) {
                return true;
            }
            if y > edge.min.1 && y <= edge.max.1 && x <= edge.max.0 {
                let crossing = (y - from.1) * (to.0 - from.0) / (to.1 - from.1) + from.0;
                if x <= crossing {
                    is_inside = !is_inside;
                }
            }
        }
        is_inside
    }
}

/// Returns whether the edge intersects the rectangle. The edge is clipped at one side after
/// another.
fn touches(from: (f64, f64), to: (f64, f64), rectangle: &Rectangle) -> bool {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let sides = [
        (-dx, from.0 - rectangle.min.0),
        (dx, rectangle.max.0 - from.0),
        (-dy, from.1 - rectangle.min.1),
        (dy, rectangle.max.1 - from.1),
    ];
    let (mut begin, mut end) = (0.0_f64, 1.0_f64);
    for (outward, room) in sides {
        if outward == 0.0 && room < 0.0 {
            return false;
        } else if outward < 0.0 {
            begin = begin.max(room / outward);
        } else if outward > 0.0 {
            end = end.min(room / outward);
        }
    }
    begin <= end
}

/// The distance of two points.
pub(super) fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = (a.0 - b.0, a.1 - b.1);
    (dx * dx + dy * dy).sqrt()
}

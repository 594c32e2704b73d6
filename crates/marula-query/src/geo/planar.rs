//! Shapes of the plane, and whether a point lies in them. Borders belong to the shape.

/// A rectangle with sides along the axes.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    pub(super) min: (f64, f64),
    pub(super) max: (f64, f64),
}

/// A circle and what it holds.
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

    /// Whether the point lies in it.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        x >= self.min.0 && x <= self.max.0 && y >= self.min.1 && y <= self.max.1
    }

    /// Whether the rectangles share a point.
    pub(super) fn meets(&self, other: &Rectangle) -> bool {
        self.min.0 <= other.max.0
            && other.min.0 <= self.max.0
            && self.min.1 <= other.max.1
            && other.min.1 <= self.max.1
    }

    /// Whether the other lies in it and touches no side of it.
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
    /// Whether the point lies in it.
    ///
    /// Beside or above its center mongod adds the radius to the lesser coordinate, which does not
    /// round as the difference of the two does.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        let reaches = |one: f64, other: f64| one.min(other) + self.radius >= one.max(other);
        match self.center {
            (center, at) if center == x => reaches(at, y),
            (at, center) if center == y => reaches(at, x),
            center => distance(center, (x, y)) <= self.radius,
        }
    }

    /// Whether the whole rectangle lies in it.
    pub(super) fn holds(&self, rectangle: &Rectangle) -> bool {
        rectangle.corners().into_iter().all(|(x, y)| self.contains(x, y))
    }

    /// Whether some of the rectangle lies in it.
    pub(super) fn meets(&self, rectangle: &Rectangle) -> bool {
        let (x, y) = self.center;
        let (min, max) = (rectangle.min, rectangle.max);
        self.contains(x.clamp(min.0, max.0), y.clamp(min.1, max.1))
    }

    /// The square around it.
    pub(super) fn bound(&self) -> Rectangle {
        let ((x, y), r) = (self.center, self.radius);
        Rectangle { min: (x - r, y - r), max: (x + r, y + r) }
    }
}

impl Ring {
    /// The polygon with these corners, three or more of them.
    pub(super) fn new(corners: Vec<(f64, f64)>) -> Ring {
        let first = corners.first().copied().unwrap_or_default();
        let mut bound = Rectangle { min: first, max: first };
        for &(x, y) in &corners {
            bound.min = (bound.min.0.min(x), bound.min.1.min(y));
            bound.max = (bound.max.0.max(x), bound.max.1.max(y));
        }
        Ring { corners, bound }
    }

    /// The rectangle around it.
    pub(super) fn bound(&self) -> Rectangle {
        self.bound
    }

    /// Whether the whole rectangle lies in it, with no edge that touches it.
    pub(super) fn holds(&self, rectangle: &Rectangle) -> bool {
        let (x, y) = rectangle.min;
        self.contains(x, y) && !self.edges().any(|(from, to)| touches(from, to, rectangle))
    }

    fn edges(&self) -> impl Iterator<Item = ((f64, f64), (f64, f64))> + '_ {
        let before = self.corners.iter().cycle().skip(self.corners.len() - 1);
        before.copied().zip(self.corners.iter().copied())
    }

    /// Whether the point lies in it: a ray from it crosses the border an odd number of times.
    /// Corners and the points of edges along an axis belong to it; those of other edges belong to
    /// one side.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        if !self.bound.contains(x, y) {
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

/// Whether some of the edge lies in the rectangle. The edge is cut off at one side of it after the
/// other.
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

/// How far apart two points are.
pub(super) fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = (a.0 - b.0, a.1 - b.1);
    (dx * dx + dy * dy).sqrt()
}

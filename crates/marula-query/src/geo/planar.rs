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
}

impl Disc {
    /// Whether the point lies in it.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        distance(self.center, (x, y)) <= self.radius
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

    /// Whether the point lies in it: a ray from it crosses the border an odd number of times. Corners and the
    /// points of edges along an axis belong to it; those of other edges belong to one side.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        if !self.bound.contains(x, y) {
            return false;
        }
        let mut is_inside = false;
        let mut from = self.corners[self.corners.len() - 1];
        for &to in &self.corners {
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
            from = to;
        }
        is_inside
    }
}

/// How far apart two points are.
pub(super) fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = (a.0 - b.0, a.1 - b.1);
    (dx * dx + dy * dy).sqrt()
}

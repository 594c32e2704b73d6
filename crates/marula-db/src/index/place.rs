//! The keys of documents in `2dsphere` and `2d` indexes.
//!
//! A place field has one or more keys per place; any other field has its values, with array
//! elements one by one. A document has a key for each combination, and none if all its place fields
//! are empty.

use std::ops::ControlFlow;

use marula_bson::order::compare;
use marula_bson::{ByteSlice, Collator, Doc, FieldPath, Type, Value};
use marula_error::{Error, Result, errors};
use marula_query::geo::hash::Grid;
use marula_query::geo::{Geometry, cells, parse_stored};

use super::keys::{KeyMaker, KeySet, measurement_array};
use super::multikey::component_bit;
use super::spec::IndexSpec;

errors! {
    no_sphere_keys(doc: &Doc<'_>, reason: &str) = 16_755, "Can't extract geo keys: {doc}  {reason}";
    not_points(reason: &str) = 183_934, "Can't extract geo keys: {reason}";
    only_points() = 183_493, "Time-series collections '2dsphere' indexes only support point data";
    flat_one_element(doc: &Doc<'_>) = 13_068, "geo field only has 1 element :: caused by :: {doc}";
    flat_not_numbers(doc: &Doc<'_>) = 13_026, "geo values must be 'legacy coordinate pairs' for 2d indexes :: caused by :: {doc}";
    flat_outside(min: f64, max: f64, doc: &Doc<'_>) = 13_027, "point not in interval of [ {min}, {max} ] :: caused by :: {doc}";
    flat_bad_list() = 16_804, "location object expected, location array not in correct format";
}

/// The version of a `2dsphere` index that holds points, lines and polygons only.
const OLD_FORMAT: i32 = 1;

/// The reason why that version rejects other geometries.
const IN_OLD_FORMAT: &str = "given geometry can't be indexed in the old index format";

/// How an index makes the keys of a place field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Geography {
    /// Cells of the globe. Documents without a place have a key only in version 1.
    Sphere {
        /// `2dsphereIndexVersion`.
        version: i32,
        /// The level of the largest cells that the index holds.
        coarsest: u8,
    },
    /// Cells of the globe with a point of one of a bucket's measurements. A bucket without a point
    /// has no key.
    SphereOfBuckets,
    /// Squares of the plane.
    Flat(Grid),
}

impl Geography {
    /// The name of the kind in a key pattern.
    pub fn name(self) -> &'static str {
        match self {
            Geography::Sphere { .. } => "2dsphere",
            Geography::SphereOfBuckets => "2dsphere_bucket",
            Geography::Flat(_) => "2d",
        }
    }
}

impl KeyMaker {
    /// Makes the keys of a document.
    ///
    /// Errors: an invalid place, or one outside the range of the index.
    pub(super) fn make_places(
        &mut self,
        spec: &IndexSpec,
        geography: Geography,
        doc: Doc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        let collator = spec.collation.as_ref().map(|collation| collation.collator());
        let mut columns: Vec<Vec<Value<'_>>> = Vec::with_capacity(spec.parts.len());
        let mut has_place = false;
        for (number, (part, named)) in spec.parts.iter().zip(spec.key.as_doc().values()).enumerate()
        {
            let mut column = if named.kind() == Type::String {
                let places = self.places(geography, &part.path, doc)?;
                has_place |= !places.is_empty();
                places.into_iter().map(Value::Int64).collect()
            } else {
                let is_bound =
                    geography == Geography::SphereOfBuckets && part.path.first() == b"control";
                if is_bound && has_array(&part.path, doc) {
                    return Err(measurement_array());
                }
                literals(&part.path, doc)
            };
            if column.len() > 1 {
                keys.multikey.parts[number] |= component_bit(part.path.parts().len() - 1);
            }
            if column.is_empty() {
                column.push(Value::Null);
            }
            columns.push(column);
        }
        if has_place || matches!(geography, Geography::Sphere { version: OLD_FORMAT, .. }) {
            self.combine(spec, collator, &columns, keys)?;
        }
        Ok(())
    }

    /// The keys of all places at a path.
    fn places(&self, geography: Geography, path: &FieldPath, doc: Doc<'_>) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        match geography {
            Geography::Sphere { version, coarsest } => {
                for value in self.places_on_globe(version, path, doc) {
                    let place = indexable(value, path, doc)?;
                    if version == OLD_FORMAT && !self.is_stored && !place.is_simple() {
                        return Err(no_sphere_keys(&doc, IN_OLD_FORMAT));
                    }
                    found.extend(cells::keys(&place, coarsest));
                }
            }
            Geography::SphereOfBuckets => add_points(path, doc, &mut found)?,
            Geography::Flat(grid) => {
                for_each_value(path, doc, |value| add_squares(&grid, value, doc, &mut found))?;
            }
        }
        Ok(found)
    }

    /// The values at a path that must be places, in order. A null or empty value is no place and
    /// permitted if there are no other values, except in version 1.
    fn places_on_globe<'a>(&self, version: i32, path: &FieldPath, doc: Doc<'a>) -> Vec<Value<'a>> {
        let mut values = Vec::new();
        let _ = path.walk(doc, |leaf| {
            values.extend(leaf.value.map(|value| value.get()));
            ControlFlow::<()>::Continue(())
        });
        values.sort_by(|a, b| compare(*a, *b, None));
        let is_single = values.windows(2).all(|pair| compare(pair[0], pair[1], None).is_eq());
        if is_single && version != OLD_FORMAT || self.is_stored {
            values.retain(|value| !is_empty(*value));
        }
        values
    }

    /// Makes a key for each combination of one value per column.
    fn combine(
        &mut self,
        spec: &IndexSpec,
        collator: Option<&dyn Collator>,
        columns: &[Vec<Value<'_>>],
        keys: &mut KeySet,
    ) -> Result<()> {
        let mut chosen = vec![0; columns.len()];
        loop {
            keys.check_room()?;
            self.writer.reset(&[]);
            for ((part, column), at) in spec.parts.iter().zip(columns).zip(&chosen) {
                self.writer.push(column[*at], part.descending, collator);
            }
            self.finish_key(keys);
            // Advances to the next combination; the last column changes fastest.
            let next = (0..columns.len()).rev().find(|&place| {
                chosen[place] = (chosen[place] + 1) % columns[place].len();
                chosen[place] != 0
            });
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

/// Returns whether there is an array at a path.
fn has_array(path: &FieldPath, doc: Doc<'_>) -> bool {
    path.walk(doc, |leaf| match leaf.expanding_array() {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    })
    .is_break()
}

/// The values at a path; array elements one by one.
fn literals<'a>(path: &FieldPath, doc: Doc<'a>) -> Vec<Value<'a>> {
    let mut values = Vec::new();
    let _ = path.walk(doc, |leaf| {
        match leaf.expanding_array() {
            Some(array) if array.is_empty() => values.push(Value::Undefined),
            Some(array) => values.extend(array.values()),
            None => values.push(leaf.value.map_or(Value::Null, |value| value.get())),
        }
        ControlFlow::<()>::Continue(())
    });
    values
}

/// Adds the cells of the points of a bucket's measurements. The first two parts of the path name
/// the bucket's field with the measurements' values, `data.a`, and the others the place in one of
/// them.
fn add_points(path: &FieldPath, bucket: Doc<'_>, found: &mut Vec<i64>) -> Result<()> {
    let (column, rest) = path.parts().split_at(path.parts().len().min(2));
    let column = column.iter().try_fold(Value::Document(bucket), |outer, name| {
        outer.as_doc().and_then(|outer| outer.get(name))
    });
    let Some(Value::Document(column)) = column else { return Ok(()) };
    if !rest.is_empty() {
        let rest = FieldPath::new(rest.join(&b'.'));
        for value in column.values() {
            match value {
                Value::Document(measured) => add_points_at(&rest, measured, found)?,
                Value::Array(several) => {
                    // A number in the path may be an index.
                    add_points_at(&rest, several, found)?;
                    let mut each = several.values().filter_map(|element| element.as_doc());
                    each.try_for_each(|one| add_points_at(&rest, one, found))?;
                }
                _ => {}
            }
        }
    } else {
        for element in column {
            add_point(&element.name.to_str_lossy(), element.value.get(), found)?;
        }
    }
    // Measurements often come from the same place.
    found.sort_unstable();
    found.dedup();
    Ok(())
}

/// Adds the cells of the points at a path.
fn add_points_at(path: &FieldPath, measured: Doc<'_>, found: &mut Vec<i64>) -> Result<()> {
    let name = path.parts().last().map_or_else(Default::default, |name| name.to_str_lossy());
    for_each_value(path, measured, |value| add_point(&name, value, found))
}

fn add_point(name: &str, value: Value<'_>, found: &mut Vec<i64>) -> Result<()> {
    if is_empty(value) {
        return Ok(());
    }
    let place = parse_stored(name, value).map_err(|error| not_points(error.message()))?;
    if !matches!(place, Geometry::Point(_)) {
        return Err(only_points());
    }
    found.extend(cells::keys(&place, 0));
    Ok(())
}

/// Returns whether a value of an indexed field is no place, which is permitted.
fn is_empty(value: Value<'_>) -> bool {
    match value {
        Value::Null | Value::Undefined => true,
        Value::Document(inner) | Value::Array(inner) => inner.is_empty(),
        _ => false,
    }
}

/// Calls `see` with the values at a path, until the first error.
fn for_each_value(
    path: &FieldPath,
    doc: Doc<'_>,
    mut see: impl FnMut(Value<'_>) -> Result<()>,
) -> Result<()> {
    let walked = path.walk(doc, |leaf| {
        let seen = leaf.value.map_or(Ok(()), |value| see(value.get()));
        seen.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    });
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Parses a value as a place on the globe.
///
/// Errors: `no_sphere_keys`.
fn indexable(value: Value<'_>, path: &FieldPath, doc: Doc<'_>) -> Result<Geometry> {
    let refused = |reason: &str| no_sphere_keys(&doc, reason);
    let last = path.parts().last().map_or_else(Default::default, |name| name.to_str_lossy());
    let place = parse_stored(&last, value).map_err(|error: Error| refused(error.message()))?;
    if place.is_strictly_wound() {
        return Err(refused("can't index geometry with strict winding order"));
    }
    if !place.is_on_globe() {
        return Err(refused(&format!("can't project geometry into spherical CRS: {value}")));
    }
    Ok(place)
}

fn add_squares(grid: &Grid, value: Value<'_>, doc: Doc<'_>, found: &mut Vec<i64>) -> Result<()> {
    let (Value::Document(inner) | Value::Array(inner)) = value else { return Ok(()) };
    match inner.values().next() {
        None => Ok(()),
        Some(first) if first.kind().is_number() => add_square(grid, inner, doc, found),
        Some(_) => inner.values().try_for_each(|location| match location {
            Value::Document(pair) | Value::Array(pair) if pair.is_empty() => Ok(()),
            Value::Document(pair) | Value::Array(pair) => add_square(grid, pair, doc, found),
            _ => Err(flat_bad_list()),
        }),
    }
}

fn add_square(grid: &Grid, pair: Doc<'_>, doc: Doc<'_>, found: &mut Vec<i64>) -> Result<()> {
    let mut values = pair.values();
    let (Some(x), Some(y)) = (values.next(), values.next()) else {
        return Err(flat_one_element(&doc));
    };
    let (Some(x), Some(y)) = (x.as_f64(), y.as_f64()) else { return Err(flat_not_numbers(&doc)) };
    if !grid.contains(x, y) {
        return Err(flat_outside(grid.min, grid.max, &doc));
    }
    found.push(grid.key(x, y));
    Ok(())
}

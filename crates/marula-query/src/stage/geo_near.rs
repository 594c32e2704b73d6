//! `$geoNear`: documents in the order of their distance from a point.
//!
//! The stage is an access path of the collection, so it must come first, and the caller that reads
//! the collection runs it: [`GeoNear::filter`] is the search, [`GeoNear::write`] writes the stage's
//! output document. The point is an expression without fields of documents: inside a `$lookup` it
//! may be one of its variables.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, FieldPath, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::outer::OuterVariables;
use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, deep_path};
use crate::context::Context;
use crate::expression::{Expression, Path, Scope};
use crate::feature_version::FeatureVersion;
use crate::filter::{Filter, Purpose};

pub(super) const ROW: StageRow = StageRow {
    name: "$geoNear",
    since: FeatureVersion::V6_0,
    place: StagePlace::OutsideFacet,
    parse,
};

errors! {
    not_object() = 10_065, "invalid parameter: expected an object ($geoNear)";
    no_near() = 5_860_400, "$geoNear requires a 'near' argument";
    near_not_constant() = 5_860_402, "$geoNear requires a constant near argument";
    near_not_object() = 5_860_401, "$geoNear requires near argument to be a GeoJSON object or a legacy point(array)";
    no_distance_field() = 16_606, "$geoNear requires a 'distanceField' option as a String";
    locations_not_a_string() = 16_607, "$geoNear requires that 'includeLocs' option is a String";
    limit_removed(name: &str) = 50_858, "$geoNear no longer supports the '{name}' parameter. Use a $limit stage instead.";
    num_removed(name: &str) = 50_857, "$geoNear no longer supports the '{name}' parameter. Use a $limit stage instead.";
    start_removed() = 50_856, "$geoNear no longer supports the 'start' argument.";
    not_a_number(name: &str) = TypeMismatch, "{name} must be a number";
    negative(name: &str) = BadValue, "{name} must be nonnegative";
    query_not_object() = TypeMismatch, "query must be an object";
    key_not_a_string(kind: &str) = TypeMismatch, "$geoNear parameter 'key' must be of type string but found type: {kind}";
    key_empty() = BadValue, "$geoNear parameter 'key' cannot be the empty string";
    not_first() = 40_603, "$geoNear was not the first stage in the pipeline after optimization. Is optimization disabled or inhibited?";
    where_not_allowed() = BadValue, "$where is not allowed in this context";
}

/// A parsed `$geoNear`.
#[derive(Clone, Debug)]
pub struct GeoNear {
    near: Expression,
    is_spherical: bool,
    min: Option<f64>,
    max: Option<f64>,
    query: Option<DocBuf>,
    key: Option<FieldPath>,
    distance_field: Path,
    location_field: Option<Path>,
    multiplier: f64,
    /// The variables that the query may use.
    outer: OuterVariables,
    /// The argument as the client wrote it.
    text: DocBuf,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let (Value::Document(spec) | Value::Array(spec)) = value else { return Err(not_object()) };
    let near = match spec.get("near") {
        Some(near) => Expression::parse(near, &mut Scope::new(parser.context))?,
        None => return Err(no_near()),
    };
    if spec.get("limit").is_some() {
        return Err(limit_removed("limit"));
    }
    if spec.get("num").is_some() {
        return Err(num_removed("num"));
    }
    if spec.get("start").is_some() {
        return Err(start_removed());
    }
    let distance_field = match spec.get("distanceField") {
        Some(Value::String(field)) => Path::parse(field)?,
        _ => return Err(no_distance_field()),
    };
    let max = distance(spec, "maxDistance")?;
    let min = distance(spec, "minDistance")?;
    let multiplier = distance(spec, "distanceMultiplier")?.unwrap_or(1.0);
    let query = match spec.get("query") {
        None => None,
        Some(Value::Document(query)) => {
            if query.get("$where").is_some() {
                return Err(where_not_allowed());
            }
            Some(query.to_buf())
        }
        Some(_) => return Err(query_not_object()),
    };
    let location_field = match spec.get("includeLocs") {
        None => None,
        Some(Value::String(field)) => Some(Path::parse(field)?),
        Some(_) => return Err(locations_not_a_string()),
    };
    let key = match spec.get("key") {
        None => None,
        Some(Value::String(key)) if key.is_empty() => return Err(key_empty()),
        Some(Value::String(key)) => {
            Path::parse(key)?;
            Some(FieldPath::new(key))
        }
        Some(other) => return Err(key_not_a_string(other.kind().alias())),
    };
    let is_spherical = spec.get("spherical").is_some_and(|value| value.is_truthy());
    let text = spec.to_buf();
    parser.push(GeoNear {
        near,
        is_spherical,
        min,
        max,
        query,
        key,
        distance_field,
        location_field,
        multiplier,
        outer: OuterVariables::of(parser.context),
        text,
    });
    Ok(())
}

fn distance(spec: Doc<'_>, name: &str) -> Result<Option<f64>> {
    let Some(value) = spec.get(name) else { return Ok(None) };
    let number = value.as_f64().ok_or_else(|| not_a_number(name))?;
    if number.is_nan() || number < 0.0 {
        return Err(negative(name));
    }
    Ok(Some(number))
}

impl GeoNear {
    /// Returns the field to search, if the client names it.
    pub fn key(&self) -> Option<&FieldPath> {
        self.key.as_ref()
    }

    /// Returns whether the point is known without a document.
    pub(super) fn is_constant(&self) -> bool {
        self.near.as_raw_constant().is_some()
    }

    /// Returns whether it has a query with conditions.
    pub(super) fn has_query(&self) -> bool {
        self.query.as_ref().is_some_and(|query| !query.as_doc().is_empty())
    }

    /// Returns whether it adds the location that it has found.
    pub(super) fn has_locations(&self) -> bool {
        self.location_field.is_some()
    }

    /// Returns the path that the distance is written to.
    pub(super) fn distance_field(&self) -> &Path {
        &self.distance_field
    }

    /// Returns the stage with another field to search.
    pub(super) fn with_key(&self, key: FieldPath) -> GeoNear {
        let text = DocBuf::build(|out| {
            for element in self.text.as_doc() {
                match element.name == "key" {
                    true => out.append(element.name, key.to_string().as_str()),
                    false => out.append_raw(element.name, element.value),
                };
            }
        });
        GeoNear { key: Some(key), text, ..self.clone() }
    }

    /// Returns the search on the field `key`, combined with the stage's query.
    ///
    /// Errors: `near_not_constant`, `near_not_object`, and those of filters.
    pub fn filter(&self, key: &FieldPath, context: &Context) -> Result<Filter> {
        let near = match self.near.as_raw_constant() {
            Some(near) if matches!(near.kind(), Type::Document | Type::Array) => near,
            Some(_) => return Err(near_not_object()),
            None if matches!(self.near, Expression::Missing) => return Err(near_not_object()),
            None => return Err(near_not_constant()),
        };
        let context = &self.outer.context(context);
        let filter = DocBuf::build(|out| {
            let mut conditions = out.begin_array("$and");
            let mut condition = conditions.begin_doc();
            let mut search = condition.begin_doc(key.to_string());
            let operator = if self.is_spherical { "$nearSphere" } else { "$near" };
            search.append_raw(operator, near);
            if let Some(min) = self.min {
                search.append("$minDistance", min);
            }
            if let Some(max) = self.max {
                search.append("$maxDistance", max);
            }
            search.finish();
            condition.finish();
            if let Some(query) = &self.query {
                conditions.push(query);
            }
            conditions.finish();
        });
        Filter::parse(filter.as_doc(), context).map_err(|error| {
            // The errors of the query come before those of the point.
            let query = self.query.as_ref().map(DocBuf::as_doc);
            let of_query = query.map(|query| Filter::draft(query, Purpose::Any, context).map(drop));
            of_query.and_then(Result::err).unwrap_or(error)
        })
    }

    /// Writes the stage's output document: with its distance, and with its location if that is
    /// requested.
    ///
    /// Errors: that a path is too long to write to.
    pub fn write(
        &self,
        doc: Doc<'_>,
        distance: f64,
        place: RawValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        deep_path::check(&self.distance_field)?;
        let distance = Value::Double(distance * self.multiplier).to_buf();
        let parts = self.distance_field.parts();
        let Some(location_field) = &self.location_field else {
            set(doc, parts, distance.as_raw(), &mut DocWriter::new(out));
            return Ok(());
        };
        deep_path::check(location_field)?;
        let mut with_distance = Vec::new();
        set(doc, parts, distance.as_raw(), &mut DocWriter::new(&mut with_distance));
        set(Doc::trusted(&with_distance), location_field.parts(), place, &mut DocWriter::new(out));
        Ok(())
    }
}

/// Writes the document with a value at a path; a value on the path that is not a document is
/// replaced by one.
///
/// Depth is bounded by the number of parts of a path.
fn set(doc: Doc<'_>, parts: &[Box<[u8]>], value: RawValue<'_>, out: &mut DocWriter<'_>) {
    let Some((first, rest)) = parts.split_first() else { return };
    let mut is_set = false;
    let put = |found: Option<RawValue<'_>>, out: &mut DocWriter<'_>| {
        if rest.is_empty() {
            out.append_raw(first, value);
            return;
        }
        let inner = found.filter(|found| found.kind() == Type::Document);
        let inner = inner.map_or(Doc::EMPTY, |found| Doc::trusted(found.bytes()));
        set(inner, rest, value, &mut out.begin_doc(first));
    };
    for element in doc {
        if !is_set && **element.name == **first {
            put(Some(element.value), out);
            is_set = true;
        } else {
            out.append_raw(element.name, element.value);
        }
    }
    if !is_set {
        put(None, out);
    }
}

impl Stage for GeoNear {
    fn name(&self) -> &'static str {
        "$geoNear"
    }

    fn print(&self) -> ValueBuf {
        Value::Document(self.text.as_doc()).to_buf()
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.near.optimize(context)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::GeoNear(self)
    }

    fn start(self: Arc<Self>, _: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        // At the front of a pipeline the caller has run it already.
        Err(not_first())
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::ext_json;

    use super::*;

    #[track_caller]
    fn check(doc: &str, path: &str, wanted: &str) {
        let doc = ext_json::parse(doc).unwrap();
        let mut out = Vec::new();
        let value = Value::Int32(7).to_buf();
        let path = Path::parse(path.as_bytes()).unwrap();
        set(doc.as_doc(), path.parts(), value.as_raw(), &mut DocWriter::new(&mut out));
        assert_eq!(Doc::trusted(&out).to_string(), wanted);
    }

    #[test]
    fn a_field_is_set_at_any_depth() {
        check(r#"{"a": 1}"#, "d", "{ a: 1, d: 7 }");
        check(r#"{"d": 1, "a": 1}"#, "d", "{ d: 7, a: 1 }");
        check(r#"{"a": {"b": 1}}"#, "a.c.d", "{ a: { b: 1, c: { d: 7 } } }");
        check(r#"{"a": 5, "b": 1}"#, "a.c", "{ a: { c: 7 }, b: 1 }");
    }
}

//! Finds the measurements of a bucket that the stages after it need.
//!
//! A `$group` by the meta value that takes only the least and the greatest values of fields can
//! read them from the bucket's `control` document. One that takes the latest measurement of each
//! meta value needs only the latest of each bucket; and with an index in that order, only one
//! bucket of each value is read.

use std::sync::Arc;

use marula_bson::FieldPath;

use super::{Shown, UnpackBucket};
use crate::expression::Expression;
use crate::sort::SortPart;
use crate::stage::group::Group;
use crate::stage::passage::is_repeatable;
use crate::stage::{Kind, Pipeline, Sort, Stage};

/// The measurements of a bucket that are unpacked.
#[derive(Clone, Debug)]
pub(super) enum Digest {
    /// All.
    Whole,
    /// The latest one.
    Latest {
        /// Among several with the latest time, the last one; else the first one.
        takes_last: bool,
    },
    /// One with the least values of fields and one with the greatest: neither has to exist as such.
    Extremes(Extremes),
}

/// The fields with the least and the greatest values that are used.
#[derive(Clone, Default, Debug)]
pub(super) struct Extremes {
    pub(super) least: Vec<Box<[u8]>>,
    pub(super) greatest: Vec<Box<[u8]>>,
}

impl UnpackBucket {
    /// Returns the stage that unpacks only what the stages after it need.
    pub(super) fn narrowed(&self, after: &[Arc<dyn Stage>]) -> UnpackBucket {
        let mut narrowed = self.clone();
        if !matches!(&self.shown, Shown::AllBut(names) if names.is_empty()) {
            return narrowed;
        }
        if let Some(needed) = Pipeline::from_stages(after.to_vec()).needs() {
            let is_meta =
                |name: &[u8]| self.meta_field.as_ref().is_some_and(|meta| **meta == *name);
            let mut names: Vec<Box<[u8]>> = needed.fields.names().map(Box::from).collect();
            names.sort_by(|one, other| (is_meta(one), one).cmp(&(is_meta(other), other)));
            narrowed.shown = Shown::Only(names);
        }
        narrowed.digest = self.digest_for(after).unwrap_or(Digest::Whole);
        narrowed
    }

    fn digest_for(&self, after: &[Arc<dyn Stage>]) -> Option<Digest> {
        let mut kinds = self.after_meta_condition(after).iter().map(|stage| stage.kind());
        match (kinds.next()?, kinds.next()) {
            (Kind::Group(group), _) => self.extremes(group).map(Digest::Extremes),
            (Kind::Sort(sort), Some(Kind::Group(group))) => self.latest(sort, group),
            _ => None,
        }
    }

    /// Returns the extremes that a group takes, if it takes nothing else.
    fn extremes(&self, group: &Group) -> Option<Extremes> {
        let mut extremes = Extremes::default();
        if !self.is_of_meta(group.key()) {
            return None;
        }
        for (_, accumulator) in group.fields() {
            let argument = accumulator.argument();
            match accumulator.name() {
                "$min" | "$max" | "$first" | "$last" | "$addToSet" if self.is_of_meta(argument) => {
                }
                // The least time in a bucket's `control` is rounded down.
                "$min" => {
                    let field = field_of(argument).filter(|field| **field != *self.time_field)?;
                    extremes.least.push(field.into());
                }
                "$max" => extremes.greatest.push(field_of(argument)?.into()),
                _ => return None,
            }
        }
        Some(extremes)
    }

    /// Returns the digest for a sort and a group that takes the latest measurements of it.
    fn latest(&self, sort: &Sort, group: &Group) -> Option<Digest> {
        let (is_descending, first) = self.sort_by_time(sort)?;
        let key = group.key_path();
        let is_alike = first.is_none_or(|path| key.as_ref() == Some(path));
        if sort.limit().is_some() || !is_alike || !self.is_of_meta(group.key()) {
            return None;
        }
        let wanted = if is_descending { "$first" } else { "$last" };
        let takes = group.fields().iter().all(|(_, accumulator)| {
            accumulator.name() == wanted && !accumulator.argument().uses_sort_key()
        });
        takes.then_some(Digest::Latest { takes_last: !is_descending })
    }

    /// Returns whether a sort is by descending time, and the path before the time, if there is one;
    /// `None` if it is by anything else.
    pub(super) fn sort_by_time<'s>(&self, sort: &'s Sort) -> Option<(bool, Option<&'s FieldPath>)> {
        let (first, last) = match sort.pattern().parts() {
            [time] => (None, time),
            [SortPart::Path { path, .. }, time] => (Some(path), time),
            _ => return None,
        };
        let SortPart::Path { path, descending } = last else { return None };
        (path.is_single() && *path.first() == *self.time_field).then_some((*descending, first))
    }

    /// Returns whether the value of an expression is the same for all measurements of a bucket.
    fn is_of_meta(&self, expression: &Expression) -> bool {
        let mut is_of_meta = is_repeatable(expression) && !expression.uses_sort_key();
        expression.for_each_path(&mut |path| {
            let first = path.parts().first();
            is_of_meta &= first.is_some_and(|first| Some(first) == self.meta_field.as_ref());
        });
        is_of_meta
    }

    /// Returns the path in buckets of the meta value whose latest measurement `after` takes.
    pub(super) fn key_of_latest(&self, after: &[Arc<dyn Stage>]) -> Option<FieldPath> {
        if !matches!(self.digest, Digest::Latest { .. }) {
            return None;
        }
        match self.after_meta_condition(after).get(1)?.kind() {
            Kind::Group(group) => self.meta_path(&group.key_path()?),
            _ => None,
        }
    }
}

/// Returns the top-level field that an expression is.
fn field_of(expression: &Expression) -> Option<&[u8]> {
    match expression {
        Expression::Field(path) => match path.parts() {
            [name] => Some(name),
            _ => None,
        },
        _ => None,
    }
}

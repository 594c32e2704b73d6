//! `count`: the number of documents that match.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_db::Collection;
use marula_error::{Result, errors};
use marula_plan::{Query, Wanted, Wording, choice, counted_all};

use crate::args::{self, Arguments};
use crate::env::Env;

errors! {
    limit_not_a_number() = BadValue, "limit value is not a valid number";
    limit_least() = BadValue, "limit value for count cannot be min long";
    limit_nan(limit: &Value<'_>) = FailedToParse, "Expected an integer, but found NaN in: limit: {limit}";
    limit_not_whole(limit: &Value<'_>) = FailedToParse, "Expected an integer: limit: {limit}";
    limit_too_large(limit: &Value<'_>) = FailedToParse, "Cannot represent as a 64-bit integer: limit: {limit}";
}

/// The actions on the collection that the user must be allowed.
pub const ACTIONS: &[&str] = &["find"];

/// A `count` whose form is checked.
pub struct CountOp<'a> {
    /// The filter.
    pub filter: Doc<'a>,
    /// The number of documents that are skipped.
    pub skip: u64,
    /// The maximum number that is counted.
    pub limit: Option<u64>,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
}

impl<'a> CountOp<'a> {
    /// Reads the fields of a `count`.
    ///
    /// Errors: this module's rows, and those of [`args`].
    pub fn parse(request: &impl Arguments<'a>) -> Result<Self> {
        Ok(CountOp {
            filter: request.doc("query")?,
            skip: request.count("skip")?,
            limit: limit_of(request.given("limit"))?,
            hint: request.arg("hint"),
            collation: request.arg("collation"),
        })
    }

    /// Returns whether the result is the collection's own counter: no filter, no hint.
    pub fn is_whole(&self) -> bool {
        self.filter.is_empty() && self.hint.is_none()
    }

    /// Makes the query; `None` is a collection that does not exist.
    ///
    /// Errors: those of the collation, the filter and the hint.
    pub fn query(&self, env: &Env<'_>, collection: Option<&Collection>) -> Result<Query> {
        let context = env.context(collection, self.collation, None)?;
        let mut query = args::parse_query(self.filter, context)?;
        query.hint = args::parse_hint(self.hint)?;
        query.wanted = Wanted::Count;
        Ok(query)
    }

    /// The query as the client wrote it.
    pub fn wording(&self) -> Wording<'a> {
        Wording::of(self.filter, self.collation)
    }

    /// Counts the documents that `query` finds in a collection.
    ///
    /// Errors: those of [`choice::choose`] and of the execution.
    pub fn run(&self, env: &Env<'_>, collection: &Arc<Collection>, query: Query) -> Result<u64> {
        if self.is_whole() {
            let all = env.unit.count(collection)?;
            let counted = self.part_of(all);
            let skipped = self.skip.min(u64::try_from(all).unwrap_or(0));
            counted_all(env.unit, counted, skipped);
            return Ok(counted);
        }
        let (wording, mut interrupt) = (self.wording(), || env.check_interrupt());
        let time_budget = env.host.time_budget();
        let mut execution =
            choice::choose(env.unit, collection, query, &wording, time_budget, &mut interrupt)?;
        let enough = self.limit.map_or(u64::MAX, |limit| limit.saturating_add(self.skip));
        let found = execution.count(env.unit, enough, &mut || env.check_interrupt())?;
        Ok(found.saturating_sub(self.skip))
    }

    /// Applies skip and limit to the number of all documents.
    pub fn part_of(&self, all: i64) -> u64 {
        let left = u64::try_from(all).unwrap_or(0).saturating_sub(self.skip);
        left.min(self.limit.unwrap_or(u64::MAX))
    }
}

/// Reads the limit. A negative limit is its absolute value; zero is no limit.
fn limit_of(given: Option<Value<'_>>) -> Result<Option<u64>> {
    // Null is not a number here.
    let Some(limit) = given else { return Ok(None) };
    let number = limit.as_f64().ok_or_else(limit_not_a_number)?;
    let whole = limit.as_exact_i64().ok_or_else(|| match limit {
        Value::Double(_) if number.is_nan() => limit_nan(&limit),
        Value::Double(_) if number.abs() < 2_f64.powi(63) => limit_not_whole(&limit),
        _ => limit_too_large(&limit),
    })?;
    match whole {
        i64::MIN => Err(limit_least()),
        0 => Ok(None),
        whole => Ok(Some(whole.unsigned_abs())),
    }
}

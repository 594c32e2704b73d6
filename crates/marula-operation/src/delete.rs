//! `delete`: removes documents.

use std::ops::ControlFlow;

use marula_bson::{Doc, Value};
use marula_db::session::Done;
use marula_db::write::check_delete_in_transaction;
use marula_db::{Collection, Namespace, WriteOp};
use marula_error::{Error, Result};
use marula_plan::{Execution, Query, Wording, query, without_collection};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use crate::args::{self, Order};
use crate::candidates::{self, Sought, for_each_record, write_first};
use crate::env::Env;
use crate::targets::{check_not_view, not_retryable};
use crate::{statements, time_series};

/// The actions on the collection that the user must be allowed.
pub const ACTIONS: &[&str] = &["remove"];

/// A delete whose form is checked: one statement of the command.
#[derive(Clone, Copy)]
pub struct DeleteOp<'a> {
    /// The filter.
    pub query: Doc<'a>,
    /// The index to use.
    pub hint: Option<Value<'a>>,
    /// The collation.
    pub collation: Option<Value<'a>>,
    /// The command's variables.
    pub let_variables: Option<Value<'a>>,
    /// Whether all documents that match are removed.
    pub multi: bool,
    /// The statement's number in its session.
    pub number: i32,
}

/// Reads the result of a delete from a session's record. Another kind of write counts as one
/// document, as in mongod.
pub fn recorded(done: &Done) -> i64 {
    match done {
        Done::Deleted(count) => *count,
        _ => 1,
    }
}

impl<'a> DeleteOp<'a> {
    /// The delete of one document, without options.
    pub fn of_one(query: Doc<'a>) -> Self {
        DeleteOp {
            query,
            hint: None,
            collation: None,
            let_variables: None,
            multi: false,
            number: 0,
        }
    }

    /// Executes the delete on the collection of this name and returns the number of removed
    /// documents.
    ///
    /// Errors: those of the filter, of the execution and of the write.
    pub fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<i64> {
        if self.multi && op.numbered.is_some() {
            return Err(not_retryable("limit=0"));
        }
        statements::from_look_up(env, op, |op| self.run_once(env, ns, op))
    }

    fn run_once(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<i64> {
        let collection = op.look_up(ns);
        let collection = collection.as_ref();
        let buckets = collection.map(|collection| env.unit.db().buckets_of(collection));
        if let Some(buckets) = buckets.transpose()?.flatten() {
            return match op.may_wait {
                true => time_series::delete(env, &buckets, self, op),
                false => Err(Error::postponed()),
            };
        }
        let (filter, context) = &self.filter(env, collection.map(|collection| &**collection))?;
        let Some(collection) = collection else {
            args::check_text_without_collection(filter, ns)?;
            without_collection(env.unit);
            return Ok(0);
        };
        check_not_view(collection)?;
        check_delete_in_transaction(env.unit, collection)?;
        if !op.may_wait && self.multi {
            return Err(Error::postponed());
        }
        let order = self.order()?;
        let (asked, wording, may_wait) = (self.query, self.wording(), op.may_wait);
        let (limit, wants_key) = (None, false);
        let sought = Sought { asked, filter, order, wording, context, limit, wants_key, may_wait };
        let mut execution = candidates::find(env, collection, sought)?;
        if self.multi {
            return delete_all(env, collection, filter, &mut execution, op);
        }
        let done = || Done::Deleted(1);
        let statement = Some((self.number, &done as &dyn Fn() -> Done));
        let deleted = write_first(env, execution, |candidate| {
            let mut is_wanted = |doc: Doc<'_>| filter.matches(doc);
            let is_deleted = op.delete(collection, &candidate.record, &mut is_wanted, statement)?;
            Ok(is_deleted.then_some(1))
        })?;
        Ok(deleted.unwrap_or_default())
    }

    /// Parses the filter; `None` is a collection that does not exist.
    ///
    /// Errors: those of the filter, the collation and the variables.
    pub fn filter(
        &self,
        env: &Env<'_>,
        collection: Option<&Collection>,
    ) -> Result<(Filter, QueryContext)> {
        let mut context = env.context(collection, self.collation, self.let_variables)?;
        let counts = query::id_equality(self.query).is_none();
        let mut filter = context.counting(counts, |context| Filter::parse(self.query, context))?;
        filter.add_index_conditions(&context);
        Ok((filter, context))
    }

    /// Makes the query for `explain`.
    ///
    /// Errors: those of [`filter`](DeleteOp::filter) and of the hint.
    pub fn explained(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<Query> {
        let (filter, context) = self.filter(env, collection)?;
        if collection.is_none() {
            args::check_text_without_collection(&filter, ns)?;
        }
        Ok(self.order()?.query(filter, context))
    }

    /// Parses the hint; a delete has no sort.
    fn order(&self) -> Result<Order> {
        Ok(Order { hint: args::parse_hint(self.hint)?, ..Order::default() })
    }

    /// The query as the client wrote it.
    pub fn wording(&self) -> Wording<'a> {
        Wording::of(self.query, self.collation)
    }
}

/// Deletes every document that matches.
fn delete_all(
    env: &Env<'_>,
    collection: &Collection,
    filter: &Filter,
    execution: &mut Execution,
    op: &mut WriteOp<'_>,
) -> Result<i64> {
    let mut deleted = 0;
    for_each_record(env, execution, |record| {
        let mut is_wanted = |doc: Doc<'_>| filter.matches(doc);
        deleted += i64::from(op.delete(collection, record, &mut is_wanted, None)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(deleted)
}

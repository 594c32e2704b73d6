//! `find`: documents that match a filter.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocBuf, Value};
use marula_db::{Collection, Namespace};
use marula_error::{Result, errors};
use marula_plan::{Hint, Query, Shown, Wanted, Wording, choice, planner, query, refusal};
use marula_query::context::Context as QueryContext;
use marula_query::filter::{Filter, Purpose};
use marula_query::projection::Projection;
use marula_query::{text, usage};

use crate::args::{self, Arguments};
use crate::by_id;
use crate::documents::{FindDocuments, Tail};
use crate::env::Env;

/// The actions on the collection that the user must be allowed.
pub const ACTIONS: &[&str] = &["find"];

/// The prefix of errors of the execution.
pub const EXECUTING: &str = "Executor error during find command";

errors! {
    await_without_tailable() = FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'";
    to_return_beside() = BadValue, "'limit' or 'batchSize' fields can not be set with 'ntoreturn' field.";
    no_to_return() = 5_746_102, "the ntoreturn find command parameter is not supported when FCV >= 5.1";
    tailable_single_batch() = BadValue, "cannot use tailable option with the 'singleBatch' option";
    tailable_sort() = BadValue, "cannot use tailable option with a sort other than {{$natural: 1}}";
    tailable_not_capped(asked: &str) = BadValue, "{asked} tailable cursor requested on non capped collection";
    tailable_near() = BadValue, "Tailable cursors and geo $near cannot be used together";
    near_natural() = BadValue, "geoNear expression not allowed with $natural sort order";
    tailable_text() = BadValue, "text and tailable cursor not allowed in same query";
    text_natural() = BadValue, "text expression not allowed with $natural sort order";
    min_max_fields() = 51_176, "min and max must have the same field names";
}

/// A `find` whose form is checked.
pub struct FindOp<'a> {
    /// The filter.
    pub filter: Doc<'a>,
    /// The projection.
    pub projection: Doc<'a>,
    /// The sort.
    pub sort: Doc<'a>,
    /// The number of documents in a batch.
    pub batch_size: Option<usize>,
    /// Whether the cursor is closed after the first batch.
    pub single_batch: bool,
    /// Whether the cursor stays open while nobody reads it.
    pub no_cursor_timeout: bool,
    /// The behaviour of the cursor at its end.
    pub tail: Tail,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
    let_variables: Option<Value<'a>>,
    skip: u64,
    limit: u64,
    min: Option<Doc<'a>>,
    max: Option<Doc<'a>>,
    return_key: bool,
    show_record_id: bool,
    may_use_disk: Option<bool>,
}

/// A `find` as the planner takes it, and its projection.
struct FindQuery {
    query: Query,
    projection: Option<Arc<Projection>>,
    /// The filter, if the projection has a positional `$`, which needs the element that matched.
    position_filter: Option<Filter>,
}

impl<'a> FindOp<'a> {
    /// Reads the fields of a `find`.
    ///
    /// Errors: this module's rows, and those of [`args`].
    pub fn parse(request: &impl Arguments<'a>) -> Result<Self> {
        let batch_size = match request.arg("batchSize") {
            None => None,
            size => {
                Some(usize::try_from(args::count_or_zero("batchSize", size)?).unwrap_or(usize::MAX))
            }
        };
        let (skip, limit) = (request.count("skip")?, request.count("limit")?);
        let [min, max] = ["min", "max"].map(|end| request.arg(end).and_then(|end| end.as_doc()));
        check_bounds(min, max)?;
        let tail = match (request.flag("tailable"), request.flag("awaitData")) {
            (true, true) => Tail::AwaitData,
            (true, false) => Tail::Tailable,
            (false, true) => return Err(await_without_tailable()),
            (false, false) => Tail::No,
        };
        let op = FindOp {
            filter: request.doc("filter")?,
            projection: request.doc("projection")?,
            sort: request.doc("sort")?,
            hint: request.arg("hint"),
            skip,
            limit,
            batch_size,
            single_batch: request.flag("singleBatch"),
            no_cursor_timeout: request.flag("noCursorTimeout"),
            tail,
            collation: request.arg("collation"),
            let_variables: request.arg("let"),
            min,
            max,
            return_key: request.flag("returnKey"),
            show_record_id: request.flag("showRecordId"),
            may_use_disk: request.arg("allowDiskUse").map(|flag| flag.is_truthy()),
        };
        if request.arg("ntoreturn").is_some() {
            let is_beside = request.arg("limit").or(request.arg("batchSize")).is_some();
            return Err(if is_beside { to_return_beside() } else { no_to_return() });
        }
        if op.tail != Tail::No {
            if op.single_batch {
                return Err(tailable_single_batch());
            }
            if !op.sort.is_empty()
                && op.sort.get("$natural").and_then(|n| n.as_exact_i64()) != Some(1)
            {
                return Err(tailable_sort());
            }
        }
        Ok(op)
    }

    /// A `find` of one document that matches `filter`.
    pub fn of_one(filter: Doc<'a>) -> Self {
        FindOp {
            filter,
            projection: Doc::EMPTY,
            sort: Doc::EMPTY,
            batch_size: None,
            single_batch: true,
            no_cursor_timeout: false,
            tail: Tail::No,
            hint: None,
            collation: None,
            let_variables: None,
            skip: 0,
            limit: 1,
            min: None,
            max: None,
            return_key: false,
            show_record_id: false,
            may_use_disk: None,
        }
    }

    /// Returns the first document.
    ///
    /// Errors: those of [`prepare`](FindOp::prepare) and of the execution.
    pub fn first(&self, env: &Env<'_>, collection: &Arc<Collection>) -> Result<Option<DocBuf>> {
        let mut documents = self.prepare(env, collection)?;
        let mut batch = Vec::new();
        let filled = documents.fill(env, 1, &mut ArrayWriter::new(&mut batch));
        filled.map_err(|error| error.caused_by(EXECUTING))?;
        let batch = DocBuf::trusted(batch);
        Ok(batch.as_doc().values().find_map(|found| found.as_doc()).map(Doc::to_buf))
    }

    /// Checks a `find` that searches no collection itself: there is none, or `ns` is a view, for
    /// which a pipeline is executed then. In mongod a view has no text index, whatever it reads.
    ///
    /// Errors: those of the filter, the projection and the sort; `no_text_index`.
    pub fn check_without_collection(&self, env: &Env<'_>, ns: &Namespace) -> Result<()> {
        let mut context = self.context(env, None)?;
        context.text_search_error = Some(Arc::new(args::no_text_index(ns)));
        let recorded = self.projection_with_record_id();
        let asked = recorded.as_ref().map_or(self.projection, DocBuf::as_doc);
        self.parse_query(context, asked).map(drop)
    }

    fn context(&self, env: &Env<'_>, collection: Option<&Collection>) -> Result<QueryContext> {
        let mut context = env.context(collection, self.collation, self.let_variables)?;
        context.text_search_error =
            collection.and_then(|collection| args::missing_text_index(self.filter, collection));
        Ok(context)
    }

    /// Parses filter, projection and sort in mongod's order: of several errors, the first counts.
    fn parse_query(
        &self,
        mut context: QueryContext,
        projection: Doc<'_>,
    ) -> Result<(Query, Option<Projection>)> {
        context.has_text_score = text::has_search(self.filter);
        context.has_distance = text::has_near(self.filter);
        let hint = args::parse_hint(self.hint)?;
        let draft =
            context.counting(true, |context| Filter::draft(self.filter, Purpose::Any, context))?;
        args::check_natural_sort(self.sort, hint.as_ref())?;
        if matches!(hint, Some(Hint::Natural { .. })) && context.has_distance {
            return Err(planner::near_with_natural());
        }
        let mut projection = draft_projection(projection, self.filter, &context)?;
        let needs_position = projection.as_ref().is_some_and(Projection::needs_position);
        let mut query = Query::new(Filter::everything(&context), context);
        query.hint = hint;
        args::apply_sort(&mut query, self.sort)?;
        query.filter = if needs_position {
            draft.finish_for_positions(&query.context)?
        } else {
            draft.finish(&query.context)?
        };
        projection.iter_mut().try_for_each(|projection| projection.optimize(&query.context))?;
        if query.filter.near().is_some() {
            if self.sort.get("$natural").is_some() {
                return Err(near_natural());
            }
            if self.tail != Tail::No {
                return Err(tailable_near());
            }
        }
        if let Some(projection) = &projection {
            projection.check_sorted(query.sort.is_some())?;
        }
        Ok((query, projection))
    }

    /// Makes the query in a context.
    ///
    /// Errors: those of the filter, the projection and the sort, and of their combination.
    fn query(&self, env: &Env<'_>, context: QueryContext) -> Result<FindQuery> {
        let recorded = self.projection_with_record_id();
        let asked = recorded.as_ref().map_or(self.projection, DocBuf::as_doc);
        let (mut query, projection) = self.parse_query(context, asked)?;
        if self.tail != Tail::No && query.filter.text().is_some() {
            return Err(tailable_text());
        }
        let needs_position = projection.as_ref().is_some_and(Projection::needs_position);
        let position_filter = needs_position.then(|| query.filter.clone());
        if query.sort.is_some() {
            query.context.limits = env.host.limits(self.may_use_disk);
        }
        if query.filter.text().is_some() && self.sort.get("$natural").is_some() {
            return Err(text_natural());
        }
        query.shows_score = text::asks_for(asked, "textScore");
        query.wants_score = query.shows_score || text::asks_for(self.sort, "textScore");
        query.wants_key = text::asks_for(asked, "indexKey");
        query.skip = self.skip;
        query.limit = Some(self.limit).filter(|&limit| limit > 0);
        query.min = self.min.filter(|min| !min.is_empty()).map(Doc::to_buf);
        query.max = self.max.filter(|max| !max.is_empty()).map(Doc::to_buf);
        let projection = projection.map(Arc::new);
        query.shown = projection.as_ref().map(|parsed| Shown::of_shared(parsed, asked));
        // A sort holds the fields that are shown, not whole documents.
        let sorted = projection.as_ref().filter(|_| query.sort.is_some());
        query.fields = sorted.and_then(|projection| projection.fields());
        if self.return_key {
            // The values that documents are sorted by are those of whole documents.
            match text::asks_for(asked, "sortKey") {
                true => query.wants_key = true,
                false => query.wanted = Wanted::Key,
            }
        }
        query.shows_record_id = self.show_record_id;
        Ok(FindQuery { query, projection, position_filter })
    }

    /// Returns the projection with the record id, if the client asks for that.
    fn projection_with_record_id(&self) -> Option<DocBuf> {
        self.show_record_id.then(|| query::with_record_id(self.projection))
    }

    /// The query as the client wrote it.
    pub fn wording(&self) -> Wording<'a> {
        Wording {
            sort: Some(self.sort),
            projection: Some(self.projection),
            batch_size: self.batch_size.map(|size| size as u64),
            is_tailable: self.tail != Tail::No,
            ..Wording::of(self.filter, self.collation)
        }
    }

    /// Has a tailable cursor scan the collection, whatever its hint and bounds say: an index does
    /// not have the order in which documents are added.
    ///
    /// Errors: `tailable_not_capped`.
    fn apply_tail(&self, query: &mut Query, collection: &Collection) -> Result<()> {
        if self.tail == Tail::No {
            return Ok(());
        }
        if collection.state().options.capped.is_none() {
            let asked = refusal::description(&collection.namespace(), query, &self.wording());
            return Err(tailable_not_capped(&asked));
        }
        let backward = matches!(query.hint, Some(Hint::Natural { backward: true }));
        query.hint = Some(Hint::Natural { backward });
        (query.min, query.max) = (None, None);
        Ok(())
    }

    /// Makes the query for `explain`; `None` is a collection that does not exist.
    ///
    /// Errors: those of [`prepare`](FindOp::prepare) but for those of the plan.
    pub fn explained(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<Query> {
        let mut context = self.context(env, collection)?;
        if collection.is_none() {
            context.text_search_error = Some(Arc::new(args::no_text_index(ns)));
        }
        let FindQuery { mut query, .. } = self.query(env, context)?;
        if let Some(collection) = collection {
            self.apply_tail(&mut query, collection)?;
        }
        Ok(query)
    }

    /// Plans the query on a collection.
    ///
    /// Errors: those of the filter, the projection and the sort, and of their combination;
    /// `tailable_not_capped`; those of [`choice::choose`].
    pub fn prepare(&self, env: &Env<'_>, collection: &Arc<Collection>) -> Result<FindDocuments> {
        let context = self.context(env, Some(collection))?;
        if self.is_plain()
            && let Some(id) = by_id::only_id(collection, self.filter, &context)
        {
            usage::MATCHES.note_always("$eq");
            let execution = by_id::look_up(collection, id, context);
            // One document at most is one batch in any case.
            return Ok(FindDocuments::new(execution));
        }
        let FindQuery { mut query, projection, position_filter } = self.query(env, context)?;
        self.apply_tail(&mut query, collection)?;
        let (wording, mut interrupt) = (self.wording(), || env.check_interrupt());
        let time_budget = env.host.time_budget();
        let execution =
            choice::choose(env.unit, collection, query, &wording, time_budget, &mut interrupt)?;
        let mut documents = FindDocuments::new(execution);
        if let Some(projection) = projection {
            documents.project(projection, position_filter);
        }
        documents.return_key = self.return_key;
        documents.tail = self.tail;
        documents.is_single_batch = self.single_batch;
        if self.tail != Tail::No {
            collection.note_tailable();
        }
        Ok(documents)
    }

    /// Returns whether all documents are returned unchanged, by any plan.
    fn is_plain(&self) -> bool {
        self.projection.is_empty()
            && self.skip == 0
            && self.hint.is_none()
            && self.tail == Tail::No
            && self.sort.is_empty()
            && self.min.is_none()
            && self.max.is_none()
            && !self.return_key
            && !self.show_record_id
    }
}

/// Parses a projection for documents that `filter` finds, without folding its constant expressions.
/// Returns `None` for the empty projection.
pub fn draft_projection(
    doc: Doc<'_>,
    filter: Doc<'_>,
    context: &QueryContext,
) -> Result<Option<Projection>> {
    if doc.is_empty() {
        return Ok(None);
    }
    Projection::draft_for(doc, filter, context).map(Some)
}

/// Checks that `min` and `max` name the same fields in the same order, before the filter is read.
fn check_bounds(min: Option<Doc<'_>>, max: Option<Doc<'_>>) -> Result<()> {
    let (Some(min), Some(max)) = (min, max) else { return Ok(()) };
    let is_open = min.is_empty() || max.is_empty();
    match is_open || min.iter().map(|field| field.name).eq(max.iter().map(|field| field.name)) {
        true => Ok(()),
        false => Err(min_max_fields()),
    }
}

/// Parses a projection for documents that `filter` finds. Returns `None` for the empty projection.
pub fn parse_projection(
    doc: Doc<'_>,
    filter: Doc<'_>,
    context: &QueryContext,
) -> Result<Option<Projection>> {
    let mut projection = draft_projection(doc, filter, context)?;
    projection.iter_mut().try_for_each(|projection| projection.optimize(context))?;
    Ok(projection)
}

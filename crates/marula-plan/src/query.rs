//! A command's parsed request on a collection.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, FieldPath, FieldSet, Type, Value, doc};
use marula_query::context::Context;
use marula_query::filter::Filter;
pub use marula_query::filter::id_equality;
use marula_query::projection::Projection;
use marula_query::sort::SortPattern;

use marula_db::index_filter::AllowedIndexes;

/// A request as the client wrote it: the form that the plan cache, index filters and messages show.
#[derive(Clone, Copy, Default)]
pub struct Wording<'a> {
    /// The filter; `None` if a stage was combined from several.
    pub filter: Option<Doc<'a>>,
    /// The sort.
    pub sort: Option<Doc<'a>>,
    /// The projection.
    pub projection: Option<Doc<'a>>,
    /// The collation.
    pub collation: WordedCollation<'a>,
    /// The number of documents in a batch.
    pub batch_size: Option<u64>,
    /// Whether the cursor stays open after the last document.
    pub is_tailable: bool,
    /// The number of wanted documents, if the query has no limit or a larger one.
    pub limit: Option<u64>,
    /// For a pipeline, the fields that its stages need; only messages use it.
    pub needs: Option<&'a dyn Fn() -> DocBuf>,
}

/// The collation as the command words it.
#[derive(Clone, Copy)]
pub enum WordedCollation<'a> {
    /// As the client gave it, or none.
    AsGiven(Option<Doc<'a>>),
    /// The collation that the query compares with, with all its options.
    InFull,
    /// As in full for a single `_id`, whose collation an update resolves beforehand unless it needs
    /// a position; else none.
    OfUpdate {
        /// Whether the update needs the position of a match.
        needs_position: bool,
    },
}

impl Default for WordedCollation<'_> {
    fn default() -> Self {
        WordedCollation::AsGiven(None)
    }
}

impl<'a> Wording<'a> {
    /// Returns the wording of a filter and the client's collation.
    pub fn of(filter: Doc<'a>, collation: Option<Value<'a>>) -> Self {
        let collation = WordedCollation::AsGiven(collation.and_then(|given| given.as_doc()));
        Wording { filter: Some(filter), collation, ..Wording::default() }
    }

    /// Returns the wording of the filter of an update, which resolves its collation beforehand.
    pub fn of_update(filter: Doc<'a>, collation: Option<Value<'a>>, needs_position: bool) -> Self {
        let collation = match collation {
            Some(_) => WordedCollation::InFull,
            None => WordedCollation::OfUpdate { needs_position },
        };
        Wording { filter: Some(filter), collation, ..Wording::default() }
    }
}

/// The documents that a command wants, and their order.
pub struct Query {
    /// The filter.
    pub filter: Filter,
    /// The sort; `None` permits any order.
    pub sort: Option<SortPattern>,
    /// The number of documents to skip.
    pub skip: u64,
    /// The maximum number of documents to return.
    pub limit: Option<u64>,
    /// The client's hint.
    pub hint: Option<Hint>,
    /// The indexes that an index filter permits for its shape; they take precedence over the hint.
    pub allowed: Option<Arc<AllowedIndexes>>,
    /// The smallest index key, inclusive: `min`.
    pub min: Option<DocBuf>,
    /// The greatest index key, exclusive: `max`.
    pub max: Option<DocBuf>,
    /// The wanted part of a document.
    pub wanted: Wanted,
    /// Whether each document is returned with its record id, which the projection has then.
    pub shows_record_id: bool,
    /// The paths that the projection needs; `None` if there is no projection.
    pub shown: Option<Shown>,
    /// The fields that the caller uses; `None` may be any. A stage that copies documents need not
    /// copy other fields.
    pub fields: Option<FieldSet>,
    /// DISTINCT on this field: one document per distinct value. A hint, which plans may ignore: see
    /// [`Plan::given`](crate::Plan::given).
    pub first_of_each: Option<FieldPath>,
    /// The order that selects the first document of each value; without it, `sort` does.
    pub first_by: Option<SortPattern>,
    /// For a query without a sort, orders of which each is of use to the caller if it costs
    /// nothing: see [`Plan::given`](crate::Plan::given).
    pub free_orders: Vec<SortPattern>,
    /// Whether the score of a text search is wanted.
    pub wants_score: bool,
    /// Whether the projection shows that score.
    pub shows_score: bool,
    /// Whether each document is returned with the key of its index entry.
    pub wants_key: bool,
    /// Collation, time and variables.
    pub context: Context,
}

impl Query {
    /// Returns whether a plan for it may be cached: there is no hint, and more than one plan is
    /// possible.
    pub(crate) fn has_choice(&self) -> bool {
        self.hint.is_none() && !(self.filter.is_always_true() && self.sort.is_none())
    }
}

/// The part of the matching documents that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The documents.
    Documents,
    /// The keys of the index entries that led to them.
    Key,
    /// Their number. The caller applies `skip` and `limit`.
    Count,
}

/// The paths that a projection needs, and those that it does not change.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The paths that it reads; `None` may be any.
    pub needs: Option<Vec<FieldPath>>,
    /// Whether it includes top-level fields by name.
    pub is_simple: bool,
    /// Whether it chooses elements of an array.
    pub chooses_elements: bool,
    /// The projection, if it may fail on a document: then trials compute it too.
    pub computed: Option<Arc<Projection>>,
    /// The paths that it does not change.
    kept: Kept,
}

/// The paths that a projection does not change.
#[derive(Clone, Debug)]
enum Kept {
    /// Those that it reads.
    Needs,
    /// None that can be named.
    Nothing,
    /// All but these.
    AllBut(Vec<FieldPath>),
}

impl Shown {
    /// Returns the needs of `projection`; `written` is the document that it was parsed from.
    pub fn of(projection: &Projection, written: Doc<'_>) -> Self {
        let needs = projection.needs().map(<[FieldPath]>::to_vec);
        let is_plain = projection.is_plain_inclusion();
        let is_simple =
            is_plain && needs.as_ref().is_some_and(|needs| needs.iter().all(FieldPath::is_single));
        let path = |element: marula_bson::Element<'_>| FieldPath::new(element.name);
        let is_exclusion = written.values().all(|value| {
            (value.kind().is_number() || value.kind() == Type::Boolean) && !value.is_truthy()
        });
        let kept = match (&needs, is_plain, is_exclusion) {
            (Some(_), true, _) => Kept::Needs,
            (_, _, true) => Kept::AllBut(written.iter().map(path).collect()),
            _ => Kept::Nothing,
        };
        let chooses_elements = projection.chooses_elements();
        Shown { needs, is_simple, chooses_elements, computed: None, kept }
    }

    /// Like [`of`](Shown::of), for a projection that trials may have to compute.
    pub fn of_shared(projection: &Arc<Projection>, written: Doc<'_>) -> Self {
        let shown = Shown::of(projection, written);
        let may_fail = !matches!(&shown.kept, Kept::AllBut(_)) && !projection.is_plain_inclusion();
        let is_alone = projection.metadata().is_empty();
        let computed = (may_fail && is_alone).then(|| Arc::clone(projection));
        Shown { computed, ..shown }
    }

    /// Returns the needs of a `distinct`: one field.
    pub fn field(path: &FieldPath) -> Self {
        Shown::paths(vec![path.clone()])
    }

    /// Returns the needs of a pipeline that reads only these paths.
    pub fn paths(paths: Vec<FieldPath>) -> Self {
        let is_simple = paths.iter().all(FieldPath::is_single);
        let (needs, chooses_elements) = (Some(paths), false);
        Shown { needs, is_simple, chooses_elements, computed: None, kept: Kept::Needs }
    }

    /// Returns whether no field of a document is needed.
    pub fn is_nothing(&self) -> bool {
        self.needs.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns whether the projected document has the document's value at `path`.
    pub fn keeps(&self, path: &FieldPath) -> bool {
        match &self.kept {
            Kept::Needs => self.needs.iter().flatten().any(|needed| path.starts_with(needed)),
            Kept::Nothing => false,
            Kept::AllBut(paths) => {
                !paths.iter().any(|gone| path.starts_with(gone) || gone.starts_with(path))
            }
        }
    }
}

/// Returns a projection that shows the record id, too: `showRecordId`. As in mongod, a field of
/// that name in the projection takes its place.
pub fn with_record_id(projection: Doc<'_>) -> DocBuf {
    const NAME: &str = "$recordId";
    DocBuf::build(|out| {
        out.append_elements(projection.elements_bytes());
        if projection.get(NAME).is_none() {
            out.append(NAME, &doc! { "$meta": "recordId" });
        }
    })
}

/// A client's hint about the plan.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key pattern.
    Key(DocBuf),
    /// No index, in record order or in reverse: `{ $natural: 1 }` or -1.
    Natural {
        /// Whether the newest record comes first.
        backward: bool,
    },
}

impl Query {
    /// Returns a query for every document that matches `filter`.
    pub fn new(filter: Filter, context: Context) -> Self {
        Query {
            filter,
            sort: None,
            skip: 0,
            limit: None,
            hint: None,
            allowed: None,
            min: None,
            max: None,
            wanted: Wanted::Documents,
            shows_record_id: false,
            shown: None,
            fields: None,
            first_of_each: None,
            first_by: None,
            free_orders: Vec::new(),
            wants_score: false,
            shows_score: false,
            wants_key: false,
            context,
        }
    }
}

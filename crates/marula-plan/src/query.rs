//! What a command asks of a collection, parsed.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, FieldPath, FieldSet, Type, Value};
use marula_query::context::Context;
use marula_query::filter::Filter;
pub use marula_query::filter::id_equality;
use marula_query::projection::Projection;
use marula_query::sort::SortPattern;

use marula_db::index_filter::AllowedIndexes;

/// What a command asks as the client wrote it: what the plan cache, index filters and messages show
/// of it.
#[derive(Clone, Copy, Default)]
pub struct Wording<'a> {
    /// The filter; where a stage was made one of several, `None`.
    pub filter: Option<Doc<'a>>,
    /// The sort.
    pub sort: Option<Doc<'a>>,
    /// The projection.
    pub projection: Option<Doc<'a>>,
    /// The collation.
    pub collation: WordedCollation<'a>,
    /// How many documents a batch holds.
    pub batch_size: Option<u64>,
    /// Whether the cursor stays open behind the last document.
    pub is_tailable: bool,
    /// How many documents are wanted, where the query does not say so.
    pub limit: Option<u64>,
    /// Of a pipeline, what its stages need of a document; a message alone asks for it.
    pub needs: Option<&'a dyn Fn() -> DocBuf>,
}

/// How a command words its collation.
#[derive(Clone, Copy)]
pub enum WordedCollation<'a> {
    /// As the client did, if it did.
    AsGiven(Option<Doc<'a>>),
    /// As none.
    Simple,
    /// As the one that the query compares by, with all its options.
    InFull,
}

impl Default for WordedCollation<'_> {
    fn default() -> Self {
        WordedCollation::AsGiven(None)
    }
}

impl<'a> Wording<'a> {
    /// Of a filter and of the collation that the client gives.
    pub fn of(filter: Doc<'a>, collation: Option<Value<'a>>) -> Self {
        let collation = WordedCollation::AsGiven(collation.and_then(|given| given.as_doc()));
        Wording { filter: Some(filter), collation, ..Wording::default() }
    }

    /// Of a filter that says which documents change: what it compares by is worked out beforehand.
    pub fn of_update(filter: Doc<'a>, collation: Option<Value<'a>>) -> Self {
        let collation = match collation {
            Some(_) => WordedCollation::InFull,
            None => WordedCollation::Simple,
        };
        Wording { filter: Some(filter), collation, ..Wording::default() }
    }
}

/// The documents a command wants, and in which order.
pub struct Query {
    /// Which documents.
    pub filter: Filter,
    /// In which order; `None` is any.
    pub sort: Option<SortPattern>,
    /// How many to leave out at the front.
    pub skip: u64,
    /// How many to give at most.
    pub limit: Option<u64>,
    /// What the client says about the way.
    pub hint: Option<Hint>,
    /// The indexes that an index filter allows for its shape; goes before the hint.
    pub allowed: Option<Arc<AllowedIndexes>>,
    /// The least index key, included: `min`.
    pub min: Option<DocBuf>,
    /// The first index key behind: `max`.
    pub max: Option<DocBuf>,
    /// What of a document is wanted.
    pub wanted: Wanted,
    /// Whether each document comes with what identifies it in its collection.
    pub shows_record_id: bool,
    /// What is shown of each document; `None` is all of it.
    pub shown: Option<Shown>,
    /// The fields that whoever takes the documents looks at; `None` may be any. A stage that keeps
    /// documents for a while need keep no others.
    pub fields: Option<FieldSet>,
    /// The field of whose values each is wanted once, with the first document that has it. A plan
    /// need not see to it: see [`Plan::gives_first_of_each`](crate::Plan::gives_first_of_each).
    pub first_of_each: Option<FieldPath>,
    /// Whether the score of a text search is asked for.
    pub wants_score: bool,
    /// Whether each document comes with the key of the index entry that led to it.
    pub wants_key: bool,
    /// Collation, time and variables.
    pub context: Context,
}

impl Query {
    /// Whether a plan for it is one that may be remembered: nobody asks for a certain one, and
    /// there is a choice.
    pub(crate) fn has_choice(&self) -> bool {
        self.hint.is_none() && !(self.filter.is_always_true() && self.sort.is_none())
    }
}

/// What is wanted of the documents that match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The documents.
    Documents,
    /// The keys of the index that led to them.
    Key,
    /// How many there are. Whoever counts sees to `skip` and `limit`.
    Count,
}

/// What a projection needs of documents, and what it leaves of them.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The paths that it reads; `None` may be any.
    pub needs: Option<Vec<FieldPath>>,
    /// Whether it chooses fields of the document, by their names.
    pub is_simple: bool,
    /// The projection, if it may fail on a document: then it is part of what is tried.
    pub computed: Option<Arc<Projection>>,
    /// What it leaves as it is.
    kept: Kept,
}

/// What a projection leaves as it is.
#[derive(Clone, Debug)]
enum Kept {
    /// What it reads.
    Needs,
    /// Nothing that could be named.
    Nothing,
    /// All but these paths.
    AllBut(Vec<FieldPath>),
}

impl Shown {
    /// What `projection` needs; `written` is the document that it was made of.
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
        Shown { needs, is_simple, computed: None, kept }
    }

    /// As [`of`](Shown::of), for a projection that may be part of a trial.
    pub fn of_shared(projection: &Arc<Projection>, written: Doc<'_>) -> Self {
        let shown = Shown::of(projection, written);
        let may_fail = !matches!(&shown.kept, Kept::AllBut(_)) && !projection.is_plain_inclusion();
        let is_alone = projection.metadata().is_empty();
        let computed = (may_fail && is_alone).then(|| Arc::clone(projection));
        Shown { computed, ..shown }
    }

    /// What a `distinct` needs: one field.
    pub fn field(path: &FieldPath) -> Self {
        let needs = vec![path.clone()];
        let is_simple = path.is_single();
        Shown { needs: Some(needs), is_simple, computed: None, kept: Kept::Needs }
    }

    /// What a pipeline needs that looks at nothing but these paths.
    pub fn paths(paths: Vec<FieldPath>) -> Self {
        let is_simple = paths.iter().all(FieldPath::is_single);
        Shown { needs: Some(paths), is_simple, computed: None, kept: Kept::Needs }
    }

    /// Whether nothing of a document is needed but that it is there.
    pub fn is_nothing(&self) -> bool {
        self.needs.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether what is shown has at `path` what the document has there.
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

/// What the client says about the way to its documents.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key pattern.
    Key(DocBuf),
    /// No index, in record order or against it: `{ $natural: 1 }` or -1.
    Natural {
        /// Whether the newest record comes first.
        backward: bool,
    },
}

impl Query {
    /// Every document that `filter` means.
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
            wants_score: false,
            wants_key: false,
            context,
        }
    }
}

//! The tree of a parsed filter.
//!
//! A [`Node`] says something of a document; a [`Predicate`] says something of the values that one
//! path reaches in it. The tree holds constants as BSON values and everything else decoded, so that
//! neither matching nor planning looks at the filter's text again.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use marula_bson::{FieldPath, Type, ValueBuf};

use crate::context::Interrupt;
use crate::filter::expr::ExprNode;
use crate::filter::geo::{GeoTest, NearTest};
use crate::filter::in_list::InList;
use crate::json_schema::SchemaNode;
use crate::regex::Regex;
use crate::text::{TextMatcher, TextQuery};

/// Something that is true or false of a document.
#[derive(Clone, Debug)]
pub enum Node {
    /// True when every child is; without children, always.
    And(Vec<Node>),
    /// True when a child is.
    Or(Vec<Node>),
    /// True when no child is.
    Nor(Vec<Node>),
    /// True when the child is not.
    Not(Box<Node>),
    /// True when a value at the path satisfies the predicate.
    Path(PathNode),
    /// True when the aggregation expression is.
    Expr(ExprNode),
    /// `$jsonSchema`.
    Schema(SchemaNode),
    /// `$where`: JavaScript.
    Where(WhereNode),
    /// `$text`.
    Text(TextNode),
    /// True of every document.
    AlwaysTrue,
    /// True of no document.
    AlwaysFalse,
}

/// A text search, and how the text index of the collection answers it.
#[derive(Clone, Debug)]
pub struct TextNode {
    /// What is searched for.
    pub query: TextQuery,
    /// The search in the fields of the index, once that is known; copies of the filter learn it
    /// together.
    pub matcher: Arc<OnceLock<Arc<TextMatcher>>>,
}

/// A path and what a value there must satisfy.
#[derive(Clone, Debug)]
pub struct PathNode {
    /// Where the values are.
    pub path: FieldPath,
    /// What one of them must satisfy.
    pub predicate: Predicate,
}

/// What a value at a path must satisfy.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq`, `$lt`, `$lte`, `$gt`, `$gte`.
    Compare(Compare),
    /// `$_internalExprEq` and its siblings: what a comparison within `$expr` says of one path, for
    /// indexes. It holds wherever the comparison does, and where an array stands on the path.
    InternalExpr(Compare),
    /// `$in`.
    In(InList),
    /// `$regex`, or a regular expression in place of a value.
    Regex(Regex),
    /// `$exists: true`.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$mod`.
    Mod {
        /// What the value is divided by; never zero.
        divisor: i64,
        /// What the division must leave.
        remainder: i64,
    },
    /// `$size`: the value is an array of so many elements.
    Size(i64),
    /// `$bitsAllSet` and its siblings.
    Bits(Bits),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(GeoTest),
    /// `$near` and its like: every document passes, an index leaves out and puts in order.
    Near(NearTest),
    /// `$elemMatch` with a filter: an element of the array is a document that matches.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` with operators: one element of the array satisfies them all.
    ElemMatchValue(Vec<Predicate>),
    /// No value at the path satisfies the inner predicate.
    Not(Box<Predicate>),
    /// Every one holds; several operators under one `$not` or `$elemMatch`.
    All(Vec<Predicate>),
    /// No value satisfies it: `$all` of nothing.
    AlwaysFalse,
}

/// A comparison with a constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Compare {
    /// Which comparison.
    pub op: CompareOp,
    /// The constant on the right.
    pub value: ValueBuf,
}

/// The comparisons of the query language.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[allow(missing_docs)]
pub enum CompareOp {
    Eq,
    Lte,
    Lt,
    Gt,
    Gte,
}

impl CompareOp {
    /// Whether values that stand so to each other are as the operator wants.
    #[inline]
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Lte => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Gte => order.is_ge(),
        }
    }

    /// The operator's name, such as `$gte`.
    pub const fn name(self) -> &'static str {
        match self {
            CompareOp::Eq => "$eq",
            CompareOp::Lte => "$lte",
            CompareOp::Lt => "$lt",
            CompareOp::Gt => "$gt",
            CompareOp::Gte => "$gte",
        }
    }
}

/// A set of BSON types, as `$type` names them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct TypeSet {
    /// A bit for each tag from 0 to 31; `MinKey` and `MaxKey` take the places of tags that do not
    /// exist.
    bits: u32,
    /// Whether `"number"` was named; it is printed again by that name.
    all_numbers: bool,
}

impl TypeSet {
    const MIN_KEY: u32 = 30;
    const MAX_KEY: u32 = 31;

    /// The set with nothing in it.
    pub const EMPTY: TypeSet = TypeSet { bits: 0, all_numbers: false };

    /// Adds one type.
    pub fn insert(&mut self, kind: Type) {
        self.bits |= 1 << Self::place(kind);
    }

    /// Adds the four number types under their common name.
    pub fn insert_numbers(&mut self) {
        self.all_numbers = true;
    }

    /// Whether values of type `kind` are in the set.
    #[inline]
    pub fn contains(self, kind: Type) -> bool {
        self.bits >> Self::place(kind) & 1 != 0 || (self.all_numbers && kind.is_number())
    }

    /// Whether the set was given the alias `"number"`.
    pub fn names_all_numbers(self) -> bool {
        self.all_numbers
    }

    /// The types that were added one by one, in the order of their numbers.
    pub fn singles(self) -> impl Iterator<Item = Type> {
        let place_to_kind = |place: u32| match place {
            Self::MIN_KEY => Some(Type::MinKey),
            Self::MAX_KEY => Some(Type::MaxKey),
            tag => u8::try_from(tag).ok().and_then(Type::from_tag),
        };
        [Self::MIN_KEY]
            .into_iter()
            .chain(0..Self::MIN_KEY)
            .chain([Self::MAX_KEY])
            .filter(move |&place| self.bits >> place & 1 != 0)
            .filter_map(place_to_kind)
    }

    const fn place(kind: Type) -> u32 {
        match kind {
            Type::MinKey => Self::MIN_KEY,
            Type::MaxKey => Self::MAX_KEY,
            other => other.tag() as u32,
        }
    }
}

/// A test of some bits of an integer or of binary data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Which test.
    pub op: BitsOp,
    /// The positions tested, as the client listed them; zero is the least significant bit.
    pub positions: Vec<u32>,
}

/// The four tests of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum BitsOp {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

impl BitsOp {
    /// The operator's name, such as `$bitsAllSet`.
    pub const fn name(self) -> &'static str {
        match self {
            BitsOp::AllSet => "$bitsAllSet",
            BitsOp::AllClear => "$bitsAllClear",
            BitsOp::AnySet => "$bitsAnySet",
            BitsOp::AnyClear => "$bitsAnyClear",
        }
    }
}

/// JavaScript that decides about a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WhereNode {
    /// The code, as the client sent it: a string or code value.
    pub code: ValueBuf,
    /// What ends the operation that the filter belongs to.
    pub interrupt: Option<Interrupt>,
}

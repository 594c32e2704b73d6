//! The tree of a parsed filter.
//!
//! A [`Node`] is a condition on a document; a [`Predicate`] is a condition on the values that one
//! path reaches in it. The tree stores constants as BSON values and everything else decoded, so
//! that neither matching nor planning needs the filter's text.

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

/// A condition on a document.
#[derive(Clone, Debug)]
pub enum Node {
    /// All children are true; always true without children.
    And(Vec<Node>),
    /// At least one child is true.
    Or(Vec<Node>),
    /// No child is true.
    Nor(Vec<Node>),
    /// The child is false.
    Not(Box<Node>),
    /// A value at the path satisfies the predicate.
    Path(PathNode),
    /// The aggregation expression is true.
    Expr(ExprNode),
    /// `$jsonSchema`.
    Schema(SchemaNode),
    /// `$where`: JavaScript.
    Where(WhereNode),
    /// `$text`.
    Text(TextNode),
    /// True for every document.
    AlwaysTrue,
    /// True for no document.
    AlwaysFalse,
}

/// A text search, and its evaluation by the collection's text index.
#[derive(Clone, Debug)]
pub struct TextNode {
    /// The query.
    pub query: TextQuery,
    /// The evaluation with the fields of the index, once these are known; shared by copies of the
    /// filter.
    pub matcher: Arc<OnceLock<Arc<TextMatcher>>>,
}

/// A path and the predicate for its values.
#[derive(Clone, Debug)]
pub struct PathNode {
    /// The path of the values.
    pub path: FieldPath,
    /// The predicate that one of the values must satisfy.
    pub predicate: Predicate,
}

/// A condition on a value at a path.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq`, `$lt`, `$lte`, `$gt`, `$gte`.
    Compare(Compare),
    /// `$_internalExprEq` and similar: the condition on one path that follows from a comparison in
    /// `$expr`, for indexes. It holds whenever the comparison does, and also where the path has an
    /// array.
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
        /// The divisor; never zero.
        divisor: i64,
        /// The required remainder.
        remainder: i64,
    },
    /// `$size`: the value is an array with this number of elements.
    Size(i64),
    /// `$bitsAllSet` and its siblings.
    Bits(Bits),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(GeoTest),
    /// `$_internalBucketGeoWithin`: the condition on the places in a bucket that follows from one
    /// on its measurements, for indexes. Every bucket passes: the measurements are tested anyway.
    BucketGeo(GeoTest),
    /// `$near` and similar: every document passes; an index selects and sorts.
    Near(NearTest),
    /// `$elemMatch` with a filter: an element of the array is a document that matches.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` with operators: one element of the array satisfies all of them.
    ElemMatchValue(Vec<Predicate>),
    /// No value at the path satisfies the inner predicate.
    Not(Box<Predicate>),
    /// All predicates hold: several operators under one `$not` or `$elemMatch`.
    All(Vec<Predicate>),
    /// No value satisfies it: `$all` with an empty list.
    AlwaysFalse,
}

/// A comparison with a constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Compare {
    /// The operator.
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
    /// Returns whether the operator holds for this ordering.
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

/// A set of BSON types for `$type`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct TypeSet {
    /// One bit per tag from 0 to 31; `MinKey` and `MaxKey` use the bits of tags that do not exist.
    bits: u32,
    /// Whether `"number"` was given; it is printed again by that name.
    all_numbers: bool,
}

impl TypeSet {
    const MIN_KEY: u32 = 30;
    const MAX_KEY: u32 = 31;

    /// The empty set.
    pub const EMPTY: TypeSet = TypeSet { bits: 0, all_numbers: false };

    /// Adds one type.
    pub fn insert(&mut self, kind: Type) {
        self.bits |= 1 << Self::place(kind);
    }

    /// Adds the four number types under their common alias.
    pub fn insert_numbers(&mut self) {
        self.all_numbers = true;
    }

    /// Returns whether the set contains the type `kind`.
    #[inline]
    pub fn contains(self, kind: Type) -> bool {
        self.bits >> Self::place(kind) & 1 != 0 || (self.all_numbers && kind.is_number())
    }

    /// Returns whether the alias `"number"` was given.
    pub fn names_all_numbers(self) -> bool {
        self.all_numbers
    }

    /// The types that were added individually, ordered by number.
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
    /// The operator.
    pub op: BitsOp,
    /// The tested positions as listed by the client; zero is the least significant bit.
    pub positions: Vec<u32>,
}

/// The four bit tests.
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

/// JavaScript code used as a condition on a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WhereNode {
    /// The code as sent by the client: a string or code value.
    pub code: ValueBuf,
    /// The interrupt of the operation.
    pub interrupt: Option<Interrupt>,
}

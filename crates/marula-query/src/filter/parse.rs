//! Parses filter documents.
//!
//! A filter is parsed field by field: a logical operator, a path with a value, or a path with an
//! object of operators. Operators are rows of [`PATH_OPERATORS`] and [`TOP_OPERATORS`]; each has
//! its function in its family's file. The result is not canonical yet.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, Element, FieldPath, RawValue, Type, Value};
use marula_error::{Error, Result, codes, errors};

use super::node::{BitsOp, Compare, CompareOp, Node, PathNode, Predicate, WhereNode};
use super::number::{parse_i64, parse_non_negative_i32};
use super::{Purpose, array, bits, expr, geo, in_list, modulo, text, types};
use crate::context::Context;
use crate::javascript;
use crate::meter;
use crate::regex::Regex;
use crate::usage;

errors! {
    /// A field of the filter starts with `$` and is not an operator.
    unknown_top_operator(name: &BStr) = BadValue, "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.";
    /// `$not` is used at the top level.
    not_at_the_top() = BadValue, "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.";
    /// An object of operators contains an unknown operator.
    unknown_operator(name: &BStr) = BadValue, "unknown operator: {name}";
    /// The operand of `$and`, `$or` or `$nor` is not an array.
    logical_not_an_array(name: &str) = BadValue, "{name} must be an array";
    /// The operand of `$and`, `$or` or `$nor` is an empty array.
    logical_empty() = BadValue, "$and/$or/$nor must be a nonempty array";
    /// An element of the operand of `$and`, `$or` or `$nor` is not an object.
    logical_not_objects() = BadValue, "$or/$and/$nor entries need to be full objects";
    /// An operator on the whole document is used inside `$elemMatch`.
    top_level_only(name: &str) = BadValue, "{name} can only be applied to the top-level document";
    /// An inequality has a regular expression as its operand.
    regex_operand(path: &BStr) = BadValue, "Can't have RegEx as arg to predicate over field '{path}'.";
    /// `$ne` has a regular expression as its operand.
    ne_regex() = BadValue, "Can't have regex as arg to $ne.";
    /// A comparison has undefined as its operand.
    undefined_operand() = BadValue, "cannot compare to undefined";
    /// The operand of `$not` is neither a regular expression nor an object.
    not_bad_operand() = BadValue, "$not needs a regex or a document";
    /// The operand of `$not` is empty.
    not_empty() = BadValue, "$not cannot be empty";
    /// `$options` is used without `$regex`.
    options_alone() = BadValue, "$options needs a $regex";
    /// `$options` is not a string.
    options_not_a_string() = BadValue, "$options has to be a string";
    /// `$regex` is neither a string nor a regular expression.
    regex_not_a_string() = BadValue, "$regex has to be a string";
    /// Options are given both in the regular expression and in `$options`.
    options_twice() = 51075, "options set in both $regex and $options";
    /// The same, with `$options` first.
    options_before() = 51074, "options set in both $regex and $options";
    /// The operand of `$size` is not a count.
    bad_size(reason: &str) = BadValue, "Failed to parse $size. {reason}";
    /// The operand of `$alwaysTrue` or `$alwaysFalse` is not one.
    always_not_one(name: &str) = FailedToParse, "{name} must be an integer value of 1";
    /// The operand of `$where` is not code.
    where_bad_type() = BadValue, "$where got bad type";
    /// The operand of `$where` is empty.
    where_empty() = BadValue, "code for $where cannot be empty";
    /// The operand of `$where` is code with a scope.
    where_with_scope() = 4649201, "$where no longer supports deprecated BSON type CodeWScope";
    /// `$where` is used for a field.
    where_under_field() = BadValue, "$where cannot be applied to a field";
    /// A path has more parts than the limit.
    path_too_long() = 5_729_100, "FieldPath is too long";
    /// `$expr` is used in the query of an upsert.
    expr_in_upsert() = QueryFeatureNotAllowed, "$expr is not allowed in the query predicate for an upsert";
    /// `$expr` or `$jsonSchema` is used with a positional projection or on the elements of an
    /// array.
    not_in_this_context(name: &str) = QueryFeatureNotAllowed, "{name} is not allowed in this context";
    /// `$where` is used with a positional projection or on the elements of an array, or `$text` on
    /// the elements of an array.
    bad_in_this_context(name: &str) = BadValue, "{name} is not allowed in this context";
    /// A search by distance is used on the elements of an array.
    near_not_allowed() = 5626500, "$geoNear, $near, and $nearSphere are not allowed in this context";
}

/// The operator that its options are next to.
const REGEX: &str = "$regex";

/// The maximum number of parts of a filter's path; a path of an expression may have more.
const PATH_PARTS_MAX: usize = 180;

/// The parser's position in the filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// At the level of whole documents.
    Top,
    /// Inside `$elemMatch`.
    Element,
}

/// The state of the parser.
#[derive(Clone, Copy)]
pub(super) struct Parser<'c> {
    pub(super) context: &'c Context,
    purpose: Purpose,
    level: Level,
}

/// An operator under a path: its name, and the function that parses its operand.
struct PathOperator {
    name: &'static str,
    parse: fn(&Parser<'_>, &BStr, RawValue<'_>) -> Result<Predicate>,
}

/// An operator in level of a path; one that is not a condition yields no node.
struct TopOperator {
    name: &'static str,
    parse: fn(&Parser<'_>, RawValue<'_>) -> Result<Option<Node>>,
}

/// All operators under a path, except `$regex` and `$options`, which are parsed together, and those
/// of geometry, which must be alone.
static PATH_OPERATORS: &[PathOperator] = &[
    PathOperator { name: "$eq", parse: |_, _, operand| eq(operand) },
    PathOperator { name: "$ne", parse: |_, _, operand| ne(operand) },
    PathOperator {
        name: "$gt",
        parse: |_, path, operand| inequality(CompareOp::Gt, path, operand),
    },
    PathOperator {
        name: "$gte",
        parse: |_, path, operand| inequality(CompareOp::Gte, path, operand),
    },
    PathOperator {
        name: "$lt",
        parse: |_, path, operand| inequality(CompareOp::Lt, path, operand),
    },
    PathOperator {
        name: "$lte",
        parse: |_, path, operand| inequality(CompareOp::Lte, path, operand),
    },
    PathOperator {
        name: "$in",
        parse: |parser, _, operand| in_list::parse(parser, "$in", operand),
    },
    PathOperator {
        name: "$nin",
        parse: |parser, _, operand| in_list::parse(parser, "$nin", operand).map(not),
    },
    PathOperator { name: "$exists", parse: |_, _, operand| Ok(exists(operand)) },
    PathOperator { name: "$type", parse: |_, path, operand| types::parse(path, operand) },
    PathOperator { name: "$mod", parse: |_, _, operand| modulo::parse(operand) },
    PathOperator { name: "$size", parse: |_, _, operand| size(operand) },
    PathOperator { name: "$all", parse: array::parse_all },
    PathOperator { name: "$elemMatch", parse: array::parse_elem_match },
    PathOperator { name: "$not", parse: parse_not },
    PathOperator {
        name: "$bitsAllSet",
        parse: |_, path, operand| bits::parse(BitsOp::AllSet, path, operand),
    },
    PathOperator {
        name: "$bitsAllClear",
        parse: |_, path, operand| bits::parse(BitsOp::AllClear, path, operand),
    },
    PathOperator {
        name: "$bitsAnySet",
        parse: |_, path, operand| bits::parse(BitsOp::AnySet, path, operand),
    },
    PathOperator {
        name: "$bitsAnyClear",
        parse: |_, path, operand| bits::parse(BitsOp::AnyClear, path, operand),
    },
    PathOperator { name: "$where", parse: |_, _, _| Err(where_under_field()) },
];

/// All operators in level of a path.
static TOP_OPERATORS: &[TopOperator] = &[
    TopOperator {
        name: "$and",
        parse: |parser, operand| parser.logical("$and", operand).map(Node::And).map(Some),
    },
    TopOperator {
        name: "$or",
        parse: |parser, operand| parser.logical("$or", operand).map(Node::Or).map(Some),
    },
    TopOperator {
        name: "$nor",
        parse: |parser, operand| parser.logical("$nor", operand).map(Node::Nor).map(Some),
    },
    TopOperator { name: "$comment", parse: |_, _| Ok(None) },
    TopOperator { name: "$expr", parse: |parser, operand| parser.expr(operand).map(Some) },
    TopOperator {
        name: "$sampleRate",
        parse: |parser, operand| parser.sample_rate(operand).map(Some),
    },
    TopOperator { name: "$where", parse: |parser, operand| parser.javascript(operand).map(Some) },
    TopOperator {
        name: "$alwaysTrue",
        parse: |_, operand| always("$alwaysTrue", operand, Node::AlwaysTrue).map(Some),
    },
    TopOperator {
        name: "$alwaysFalse",
        parse: |_, operand| always("$alwaysFalse", operand, Node::AlwaysFalse).map(Some),
    },
    TopOperator {
        name: "$jsonSchema",
        parse: |parser, operand| parser.json_schema(operand).map(Some),
    },
    TopOperator { name: "$text", parse: |parser, operand| parser.text(operand).map(Some) },
];

/// Parses a whole filter.
pub(super) fn parse(doc: Doc<'_>, purpose: Purpose, context: &Context) -> Result<Node> {
    Parser { context, purpose, level: Level::Top }.filter(doc)
}

impl<'c> Parser<'c> {
    /// The parser for the inside of `$elemMatch`.
    pub(super) fn inside_element(self) -> Parser<'c> {
        Parser { level: Level::Element, ..self }
    }

    /// Parses a filter document, all of whose conditions must hold.
    pub(super) fn filter(&self, doc: Doc<'_>) -> Result<Node> {
        let mut children = Vec::new();
        for element in doc {
            self.field(element, &mut children)?;
        }
        // A single condition is not wrapped: `{ $alwaysTrue: 1 }` is not an `$and` and prints
        // unchanged.
        Ok(if children.len() == 1 { children.remove(0) } else { Node::And(children) })
    }

    fn field(&self, element: Element<'_>, children: &mut Vec<Node>) -> Result<()> {
        meter::spend(meter::CALL)?;
        let Element { name, value } = element;
        if name.starts_with(b"$") && !is_dbref_name(name) {
            let Some(operator) = TOP_OPERATORS.iter().find(|row| name == row.name) else {
                let is_not = name == "$not";
                return Err(if is_not { not_at_the_top() } else { unknown_top_operator(name) });
            };
            usage::MATCHES.note(operator.name, self.context);
            children.extend((operator.parse)(self, value)?);
            return Ok(());
        }
        // A name with this number of parts has at least this length; few names are so long.
        if name.len() >= PATH_PARTS_MAX
            && name.split_str(".").count() > PATH_PARTS_MAX
            && !self.context.is_stored
        {
            return Err(path_too_long());
        }
        let path = FieldPath::new(name);
        let predicates = match value.get() {
            // A part of a DBRef is compared with its operand, whatever it looks like.
            _ if is_dbref_name(name) => vec![eq(value)?],
            Value::Document(doc) if is_operators(doc) => self.operators(name, doc)?,
            Value::Regex { pattern, options } => {
                usage::MATCHES.note(REGEX, self.context);
                vec![Predicate::Regex(Regex::new(pattern, options)?)]
            }
            _ => vec![self.equality(value)?],
        };
        children.extend(predicates.into_iter().map(|predicate| Node::at(&path, predicate)));
        Ok(())
    }

    /// Parses a value to compare with.
    fn equality(&self, value: RawValue<'_>) -> Result<Predicate> {
        usage::MATCHES.note("$eq", self.context);
        eq(value)
    }

    /// Parses an object of operators.
    pub(super) fn operators(&self, path: &BStr, doc: Doc<'_>) -> Result<Vec<Predicate>> {
        let mut predicates = Vec::new();
        for Element { name, value } in doc {
            if name == REGEX {
                usage::MATCHES.note(REGEX, self.context);
                predicates.push(regex(doc)?);
            } else if matches!(self.purpose, Purpose::Element | Purpose::Positional)
                && crate::geo::is_near(name)
            {
                return Err(near_not_allowed());
            } else if let Some(predicate) = geo::parse(name, doc) {
                usage::MATCHES.note(&name.to_str_lossy(), self.context);
                predicates.push(predicate?);
                // It has parsed the operators next to it.
                break;
            } else if name == "$options" {
                doc.get_raw(b"$regex").ok_or_else(options_alone)?;
            } else if let Some(operator) = PATH_OPERATORS.iter().find(|row| name == row.name) {
                usage::MATCHES.note(operator.name, self.context);
                predicates.push((operator.parse)(self, path, value)?);
            } else {
                return Err(unknown_operator(name));
            }
        }
        Ok(predicates)
    }

    fn logical(&self, name: &str, operand: RawValue<'_>) -> Result<Vec<Node>> {
        let Value::Array(array) = operand.get() else {
            return Err(logical_not_an_array(name));
        };
        if array.is_empty() {
            return Err(logical_empty());
        }
        let child = |value: Value<'_>| self.filter(value.as_doc().ok_or_else(logical_not_objects)?);
        array.values().map(child).collect()
    }

    fn only_at_the_top(&self, name: &str) -> Result<()> {
        match self.level {
            Level::Top => Ok(()),
            Level::Element => Err(top_level_only(name)),
        }
    }

    fn text(&self, operand: RawValue<'_>) -> Result<Node> {
        if self.purpose == Purpose::Element {
            return Err(bad_in_this_context("$text"));
        }
        self.only_at_the_top("$text")?;
        text::parse(operand.get(), self.context)
    }

    fn expr(&self, operand: RawValue<'_>) -> Result<Node> {
        self.only_at_the_top("$expr")?;
        match self.purpose {
            Purpose::Any => {}
            Purpose::Upsert => return Err(expr_in_upsert()),
            Purpose::Positional | Purpose::Element => return Err(not_in_this_context("$expr")),
        }
        expr::ExprNode::parse(operand, self.context).map(Node::Expr)
    }

    fn sample_rate(&self, operand: RawValue<'_>) -> Result<Node> {
        self.only_at_the_top("$sampleRate")?;
        expr::parse_sample_rate(operand, self.context)
    }

    fn json_schema(&self, operand: RawValue<'_>) -> Result<Node> {
        if matches!(self.purpose, Purpose::Positional | Purpose::Element) {
            return Err(not_in_this_context("$jsonSchema"));
        }
        crate::json_schema::parse(operand, self.context)
    }

    fn javascript(&self, operand: RawValue<'_>) -> Result<Node> {
        if self.purpose == Purpose::Element {
            return Err(bad_in_this_context("$where"));
        }
        self.only_at_the_top("$where")?;
        if self.purpose == Purpose::Positional {
            return Err(bad_in_this_context("$where"));
        }
        let code = match operand.get() {
            Value::String(code) | Value::Code(code) => code,
            Value::CodeWithScope { .. } => return Err(where_with_scope()),
            _ => return Err(where_bad_type()),
        };
        if code.is_empty() {
            return Err(where_empty());
        }
        let interrupt = self.context.interrupt.clone();
        javascript::check(&code.to_str_lossy(), interrupt.as_ref())?;
        Ok(Node::Where(WhereNode { code: Value::Code(code).to_buf(), interrupt }))
    }
}

impl WhereNode {
    /// Returns whether the code is true for the document.
    ///
    /// Errors: those raised by the code, and the interrupt of the operation.
    pub(super) fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let Value::Code(code) = self.code.get() else { return Ok(false) };
        javascript::is_true_of(&code.to_str_lossy(), doc, self.interrupt.as_ref())
    }
}

impl Node {
    /// The node for `predicate` on the values at `path`.
    pub fn at(path: &FieldPath, predicate: Predicate) -> Node {
        match predicate {
            Predicate::AlwaysFalse => Node::AlwaysFalse,
            Predicate::All(list) => {
                Node::And(list.into_iter().map(|inner| Node::at(path, inner)).collect())
            }
            Predicate::Not(inner) => match Node::at(path, *inner) {
                // A plain condition is negated in level; any other is wrapped.
                Node::Path(at) if !matches!(at.predicate, Predicate::Not(_)) => {
                    Node::Path(PathNode { predicate: not(at.predicate), ..at })
                }
                other => Node::Not(Box::new(other)),
            },
            predicate => Node::Path(PathNode { path: path.clone(), predicate }),
        }
    }
}

/// Returns whether the document's first field starts with `$`.
pub(super) fn begins_with_operator(doc: Doc<'_>) -> bool {
    doc.iter().next().is_some_and(|first| first.name.starts_with(b"$")) && !is_dbref(doc)
}

/// Returns whether the document is an object of operators rather than a value to compare with.
pub(crate) fn is_operators(doc: Doc<'_>) -> bool {
    begins_with_operator(doc)
}

/// Returns whether the name is one of the three of a DBRef, which are field names despite their
/// `$`.
pub(crate) fn is_dbref_name(name: &[u8]) -> bool {
    matches!(name, b"$ref" | b"$id" | b"$db")
}

/// Returns whether the document is a DBRef: a value, not operators.
fn is_dbref(doc: Doc<'_>) -> bool {
    doc.get_raw(b"$ref").is_some() && doc.get_raw(b"$id").is_some()
}

/// Returns whether the operator is used under a path.
pub(super) fn is_path_operator(name: &[u8]) -> bool {
    name == b"$regex"
        || name == b"$options"
        || geo::is_operator(name)
        || PATH_OPERATORS.iter().any(|row| row.name.as_bytes() == name)
}

/// The names of all operators but those of geometry.
pub(super) fn operator_names() -> impl Iterator<Item = &'static str> {
    let of_paths = PATH_OPERATORS.iter().map(|row| row.name);
    of_paths.chain(TOP_OPERATORS.iter().map(|row| row.name)).chain([REGEX])
}

/// The names of all operators that are counted.
pub(crate) fn counted_names() -> Vec<&'static str> {
    operator_names().chain(["$geoIntersects", "$geoWithin", "$near", "$nearSphere"]).collect()
}

/// Returns whether the operator is used in level of a path.
pub(super) fn is_top_operator(name: &[u8]) -> bool {
    TOP_OPERATORS.iter().any(|row| row.name.as_bytes() == name)
}

fn not(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

/// The comparison of `$eq`.
pub(super) fn eq(operand: RawValue<'_>) -> Result<Predicate> {
    compare(CompareOp::Eq, operand)
}

fn compare(op: CompareOp, operand: RawValue<'_>) -> Result<Predicate> {
    if operand.kind() == Type::Undefined {
        return Err(undefined_operand());
    }
    Ok(Predicate::Compare(Compare { op, value: operand.to_buf() }))
}

fn ne(operand: RawValue<'_>) -> Result<Predicate> {
    if operand.kind() == Type::Regex {
        return Err(ne_regex());
    }
    eq(operand).map(not)
}

fn inequality(op: CompareOp, path: &BStr, operand: RawValue<'_>) -> Result<Predicate> {
    if operand.kind() == Type::Regex {
        return Err(regex_operand(path));
    }
    compare(op, operand)
}

fn exists(operand: RawValue<'_>) -> Predicate {
    if operand.get().is_truthy() { Predicate::Exists } else { not(Predicate::Exists) }
}

fn size(operand: RawValue<'_>) -> Result<Predicate> {
    let size =
        parse_non_negative_i32(b"$size", operand.get()).map_err(|reason| bad_size(&reason))?;
    Ok(Predicate::Size(i64::from(size)))
}

fn parse_not(parser: &Parser<'_>, path: &BStr, operand: RawValue<'_>) -> Result<Predicate> {
    match operand.get() {
        Value::Regex { pattern, options } => {
            usage::MATCHES.note(REGEX, parser.context);
            Ok(not(Predicate::Regex(Regex::new(pattern, options)?)))
        }
        Value::Document(doc) if doc.is_empty() => Err(not_empty()),
        Value::Document(doc) => {
            let mut predicates = parser.operators(path, doc)?;
            let inner = if predicates.len() == 1 {
                predicates.remove(0)
            } else {
                Predicate::All(predicates)
            };
            Ok(not(inner))
        }
        _ => Err(not_bad_operand()),
    }
}

fn regex(operators: Doc<'_>) -> Result<Predicate> {
    let mut pattern = None;
    let mut options = BStr::new("");
    for Element { name, value } in operators {
        match (name.as_bytes(), value.get()) {
            (b"$regex", Value::String(text)) => pattern = Some(text),
            (b"$regex", Value::Regex { pattern: text, options: own }) => {
                pattern = Some(text);
                if !own.is_empty() {
                    if !options.is_empty() {
                        return Err(options_before());
                    }
                    options = own;
                }
            }
            (b"$regex", _) => return Err(regex_not_a_string()),
            (b"$options", Value::String(_)) if !options.is_empty() => return Err(options_twice()),
            (b"$options", Value::String(text)) => options = text,
            (b"$options", _) => return Err(options_not_a_string()),
            _ => {}
        }
    }
    let regex = Regex::new(pattern.unwrap_or_default(), options)?;
    Ok(Predicate::Regex(regex))
}

fn always(name: &str, operand: RawValue<'_>, node: Node) -> Result<Node> {
    let number = parse_i64(name.as_bytes(), operand.get())
        .map_err(|reason| Error::new(codes::FailedToParse, reason))?;
    if number != 1 {
        return Err(always_not_one(name));
    }
    Ok(node)
}

//! Operators of queries: parses a validator in the order of its text, and reports why a clause
//! fails.
//!
//! A report is *inverted* inside `$nor` and `$not`: there a clause is reported because it holds.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, DocBuf, DocWriter, Element, FieldPath, RawValue, Type, Value};
use marula_error::{Error, Result, errors};

use super::Report;
use super::considered::Considered;
use crate::context::Context;
use crate::filter::{Filter, Node, is_dbref_name, is_operators};

errors! {
    /// A clause that tests nothing in documents and so has no reason to report.
    no_annotation(expression: Doc<'_>) = 4994600, "Cannot generate validation error details: no annotation found for expression {expression}";
}

/// A part of a validator.
pub(super) enum Clause {
    /// `$and`, `$or`, `$nor`, or several conditions, which are an `$and`.
    Logical { op: Logical, clauses: Vec<Clause> },
    /// `$not` under a path.
    Not(Box<Clause>),
    /// An operator under a path.
    Path { row: &'static ClauseRow, path: Box<FieldPath>, leaf: Leaf },
    /// `$expr` or `$sampleRate`.
    Expr { name: &'static str, leaf: Leaf },
    /// `$jsonSchema`.
    Schema(Leaf),
    /// `$alwaysTrue` and similar operators.
    Other(Leaf),
}

/// A single condition: as it is reported, and as a filter.
pub(super) struct Leaf {
    pub(super) written: DocBuf,
    pub(super) filter: Filter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Logical {
    And,
    Or,
    Nor,
}

/// A row of the table of path operators, with the report of a failure.
pub(super) struct ClauseRow {
    name: &'static str,
    /// The reasons why the operator fails, and why it holds.
    reasons: [&'static str; 2],
    /// Whether the operator is the negation of another, which the reasons belong to.
    is_negation: bool,
    looks_at: LooksAt,
    /// The types of the values that the operator applies to, in the order of their names.
    expects: &'static [Type],
}

/// The subject of an operator's test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LooksAt {
    /// Whether the path exists, without the values.
    Path,
    /// Values, with the elements of arrays.
    Elements,
    /// Values, with arrays as a whole.
    Arrays,
    /// As `Elements`, with the types in the report too.
    Types,
    /// As `Elements`, of which only geometries can pass the test.
    Geometries,
}

const NUMBERS: &[Type] = &[Type::Decimal128, Type::Double, Type::Int32, Type::Int64];
const BITS: &[Type] = &[Type::Binary, Type::Decimal128, Type::Double, Type::Int32, Type::Int64];
const TEXTS: &[Type] = &[Type::Regex, Type::String, Type::Symbol];
const COMPARISON: [&str; 2] = ["comparison failed", "comparison succeeded"];
const LIST: [&str; 2] = ["no matching value found in array", "matching value found in array"];
const EXISTENCE: [&str; 2] = ["path does not exist", "path does exist"];
const NO_GEOMETRY: &str = "could not find a valid geometry at the given path";
const BITWISE: [&str; 2] =
    ["bitwise operator failed to match", "bitwise operator matched successfully"];

const fn row(
    name: &'static str,
    reasons: [&'static str; 2],
    looks_at: LooksAt,
    expects: &'static [Type],
) -> ClauseRow {
    ClauseRow { name, reasons, is_negation: false, looks_at, expects }
}

const fn negation(name: &'static str, reasons: [&'static str; 2], looks_at: LooksAt) -> ClauseRow {
    ClauseRow { name, reasons, is_negation: true, looks_at, expects: &[] }
}

static ROWS: &[ClauseRow] = &[
    row("$eq", COMPARISON, LooksAt::Elements, &[]),
    negation("$ne", COMPARISON, LooksAt::Elements),
    row("$gt", COMPARISON, LooksAt::Elements, &[]),
    row("$gte", COMPARISON, LooksAt::Elements, &[]),
    row("$lt", COMPARISON, LooksAt::Elements, &[]),
    row("$lte", COMPARISON, LooksAt::Elements, &[]),
    row("$in", LIST, LooksAt::Elements, &[]),
    negation("$nin", LIST, LooksAt::Elements),
    row("$exists", EXISTENCE, LooksAt::Path, &[]),
    row("$type", ["type did not match", "type did match"], LooksAt::Types, &[]),
    row(
        "$mod",
        ["$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"],
        LooksAt::Elements,
        NUMBERS,
    ),
    row(
        "$size",
        ["array length was not equal to given size", "array length was equal to given size"],
        LooksAt::Arrays,
        &[Type::Array],
    ),
    row(
        "$all",
        ["array did not contain all specified values", "array did contain all specified values"],
        LooksAt::Arrays,
        &[],
    ),
    row(
        "$elemMatch",
        ["array did not satisfy the child predicate", "array did satisfy the child predicate"],
        LooksAt::Arrays,
        &[Type::Array],
    ),
    row(
        "$regex",
        ["regular expression did not match", "regular expression did match"],
        LooksAt::Elements,
        TEXTS,
    ),
    row("$bitsAllSet", BITWISE, LooksAt::Elements, BITS),
    row("$bitsAllClear", BITWISE, LooksAt::Elements, BITS),
    row("$bitsAnySet", BITWISE, LooksAt::Elements, BITS),
    row("$bitsAnyClear", BITWISE, LooksAt::Elements, BITS),
    row(
        "$geoWithin",
        [
            "none of the considered geometries were contained within the expression’s geometry",
            "at least one of considered geometries was contained within the expression’s geometry",
        ],
        LooksAt::Geometries,
        &[],
    ),
    row(
        "$geoIntersects",
        [
            "none of the considered geometries intersected the expression’s geometry",
            "at least one of considered geometries intersected the expression’s geometry",
        ],
        LooksAt::Geometries,
        &[],
    ),
];

/// `$exists: false`, the negation of `$exists: true`.
static DOES_NOT_EXIST: ClauseRow = negation("$exists", EXISTENCE, LooksAt::Path);

impl Clause {
    /// Parses a filter document: several conditions are an `$and`.
    pub(super) fn parse(filter: Doc<'_>, context: &Context) -> Result<Clause> {
        let mut clauses = Vec::new();
        for Element { name, value } in filter {
            match (name.as_bytes(), value.get()) {
                (b"$comment", _) => {}
                (top, _) if top.starts_with(b"$") && !is_dbref_name(top) => {
                    clauses.push(Clause::top(name, value, context)?);
                }
                // In a validator, a field of a reference is compared with any value, operators too.
                (top, _) if top.starts_with(b"$") => {
                    let written = DocBuf::build(|out| {
                        out.begin_doc(name).append_raw("$eq", value);
                    });
                    let filter = Filter::parse_as_written(written.as_doc(), context)?;
                    clauses.push(Clause::Other(Leaf { written, filter }));
                }
                (_, Value::Document(operators)) if is_operators(operators) => {
                    Clause::operators(name, operators, context, &mut clauses)?;
                }
                (_, Value::Regex { .. }) => {
                    let written = field(name, value);
                    clauses.push(Clause::path("$regex", name, written, context)?);
                }
                _ => {
                    let written = field(name, value);
                    clauses.push(Clause::path("$eq", name, written, context)?);
                }
            }
        }
        Ok(Clause::all(clauses))
    }

    fn all(mut clauses: Vec<Clause>) -> Clause {
        match clauses.len() {
            1 => clauses.remove(0),
            _ => Clause::Logical { op: Logical::And, clauses },
        }
    }

    fn top(name: &BStr, operand: RawValue<'_>, context: &Context) -> Result<Clause> {
        let op = match name.as_bytes() {
            b"$and" => Logical::And,
            b"$or" => Logical::Or,
            b"$nor" => Logical::Nor,
            other => {
                let written = field(name, operand);
                let leaf = Leaf::parse(written, context)?;
                return Ok(match other {
                    b"$expr" => Clause::Expr { name: "$expr", leaf },
                    b"$sampleRate" => Clause::Expr { name: "$sampleRate", leaf },
                    b"$jsonSchema" => Clause::Schema(leaf),
                    _ => Clause::Other(leaf),
                });
            }
        };
        let branches = operand.get().as_array().unwrap_or(Doc::EMPTY);
        let branches = branches.values().filter_map(|branch| branch.as_doc());
        let clauses =
            branches.map(|branch| Clause::parse(branch, context)).collect::<Result<_>>()?;
        Ok(Clause::Logical { op, clauses })
    }

    fn operators(
        path: &BStr,
        operators: Doc<'_>,
        context: &Context,
        clauses: &mut Vec<Clause>,
    ) -> Result<()> {
        for Element { name, value } in operators {
            let inner = match (name.as_bytes(), value.get()) {
                (b"$options", _) => continue,
                (b"$not", Value::Document(inner)) => {
                    let mut negated = Vec::new();
                    Clause::operators(path, inner, context, &mut negated)?;
                    Clause::Not(Box::new(Clause::all(negated)))
                }
                (b"$not", _) => {
                    let written = field(path, value);
                    Clause::Not(Box::new(Clause::path("$regex", path, written, context)?))
                }
                (operator, _) => {
                    let written = DocBuf::build(|out| {
                        let mut inner = out.begin_doc(path);
                        match operator {
                            // The pattern and its options are one condition.
                            b"$regex" => operators
                                .iter()
                                .filter(|part| part.name == "$regex" || part.name == "$options")
                                .for_each(|part| {
                                    inner.append_raw(part.name, part.value);
                                }),
                            _ => {
                                inner.append_raw(name, value);
                            }
                        }
                    });
                    let mut clause = Clause::path(&name.to_str_lossy(), path, written, context)?;
                    // It is reported with all operators of its path.
                    if let (b"$regex", Clause::Path { leaf, .. }) = (operator, &mut clause) {
                        leaf.written = DocBuf::build(|out| {
                            out.append(path, operators);
                        });
                    }
                    clause
                }
            };
            clauses.push(inner);
        }
        Ok(())
    }

    fn path(operator: &str, path: &BStr, written: DocBuf, context: &Context) -> Result<Clause> {
        let leaf = Leaf::parse(written, context)?;
        let Some(row) = ROWS.iter().find(|row| row.name == operator) else {
            return Ok(Clause::Other(leaf));
        };
        let is_absence =
            operator == "$exists" && leaf.operand().is_some_and(|asked| !asked.get().is_truthy());
        let row = if is_absence { &DOES_NOT_EXIST } else { row };
        Ok(Clause::Path { row, path: Box::new(FieldPath::new(path)), leaf })
    }

    /// Returns whether the clause has a report: that it does not hold or, if inverted, that it
    /// does. A clause whose matching ends with an error always has one.
    fn is_reported(&self, inverted: bool, doc: Doc<'_>) -> bool {
        self.holds(doc).map_or(true, |holds| holds == inverted)
    }

    /// Matches the clause as a filter does, in order: the first branch that decides ends it, so
    /// that a later expression, which may fail, is not evaluated.
    fn holds(&self, doc: Doc<'_>) -> Result<bool> {
        let (op, clauses) = match self {
            Clause::Logical { op, clauses } => (*op, clauses),
            Clause::Not(clause) => return clause.holds(doc).map(|holds| !holds),
            Clause::Path { leaf, .. }
            | Clause::Expr { leaf, .. }
            | Clause::Schema(leaf)
            | Clause::Other(leaf) => return leaf.filter.matches(doc),
        };
        let decides = op != Logical::And;
        for clause in clauses {
            if clause.holds(doc)? == decides {
                return Ok(op == Logical::Or);
            }
        }
        Ok(op != Logical::Or)
    }

    /// Returns the error of the first clause that has no reasons, whether it holds or not.
    pub(super) fn silence(&self) -> Option<Error> {
        match self {
            Clause::Logical { clauses, .. } => clauses.iter().find_map(Clause::silence),
            Clause::Not(clause) => clause.silence(),
            Clause::Other(leaf) => Some(no_annotation(leaf.written.as_doc())),
            _ => None,
        }
    }
}

impl Leaf {
    fn parse(written: DocBuf, context: &Context) -> Result<Leaf> {
        Ok(Leaf { filter: Filter::parse_as_written(written.as_doc(), context)?, written })
    }

    /// Returns the operator's operand.
    pub(super) fn operand(&self) -> Option<RawValue<'_>> {
        let first = self.written.as_doc().iter().next()?;
        if first.name.starts_with(b"$") {
            return Some(first.value);
        }
        first.value.get().as_doc()?.iter().next().map(|operator| operator.value)
    }
}

impl Report<'_> {
    /// Writes the details of a clause.
    pub(super) fn clause(&mut self, clause: &Clause, inverted: bool, out: &mut DocWriter<'_>) {
        match clause {
            Clause::Logical { op, clauses } => self.logical(*op, clauses, inverted, out),
            Clause::Not(inner) => {
                out.append("operatorName", "$not");
                self.clause(inner, !inverted, &mut out.begin_doc("details"));
            }
            Clause::Path { row, path, leaf } => self.path(row, path, leaf, inverted, out),
            Clause::Expr { name, leaf } => self.expr(name, leaf, inverted, out),
            Clause::Schema(leaf) => self.json_schema(leaf, inverted, out),
            Clause::Other(leaf) => write_error(&no_annotation(leaf.written.as_doc()), out),
        }
    }

    fn logical(
        &mut self,
        op: Logical,
        clauses: &[Clause],
        inverted: bool,
        out: &mut DocWriter<'_>,
    ) {
        // If every clause contributes to the failure, every one is reported.
        let (name, inverted, reports_every) = match op {
            Logical::And => ("$and", inverted, inverted),
            Logical::Or => ("$or", inverted, !inverted),
            Logical::Nor => ("$nor", !inverted, inverted),
        };
        out.append("operatorName", name);
        let field = if inverted { "clausesSatisfied" } else { "clausesNotSatisfied" };
        let mut array = out.begin_array(field);
        for (index, clause) in (0_i32..).zip(clauses) {
            if self.is_full() {
                return;
            }
            if reports_every || clause.is_reported(inverted, self.doc) {
                let mut entry = array.begin_doc();
                entry.append("index", index);
                if let Clause::Schema(leaf) = clause {
                    let text = leaf.operand().and_then(|operand| operand.get().as_doc());
                    super::schema::write_annotations(text.unwrap_or(Doc::EMPTY), &mut entry);
                }
                self.clause(clause, inverted, &mut entry.begin_doc("details"));
            }
        }
    }

    fn path(
        &mut self,
        row: &ClauseRow,
        path: &FieldPath,
        leaf: &Leaf,
        inverted: bool,
        out: &mut DocWriter<'_>,
    ) {
        out.append("operatorName", row.name);
        self.written(leaf, out);
        let reason = row.reasons[usize::from(inverted != row.is_negation)];
        if row.looks_at == LooksAt::Path {
            out.append("reason", reason);
            return;
        }
        if matches!(leaf.filter.root(), Node::AlwaysFalse) && row.name == "$all" {
            out.append("reason", "expression always evaluates to false");
            return;
        }
        let considered = Considered::find(path, self.doc, row.looks_at != LooksAt::Arrays);
        if considered.is_missing() {
            out.append("reason", "field was missing");
            return;
        }
        if !inverted && !row.expects.is_empty() && !considered.has_type(row.expects) {
            out.append("reason", "type did not match");
            considered.write_types(out);
            write_expected(row.expects, out);
            considered.write_values(self, out);
            return;
        }
        let reason = match row.looks_at {
            LooksAt::Geometries if !considered.has_geometry(self.field_of(leaf)) => NO_GEOMETRY,
            _ => reason,
        };
        out.append("reason", reason);
        considered.write_values(self, out);
        if row.looks_at == LooksAt::Types {
            considered.write_types(out);
        }
    }

    /// The document's field that is named as the whole path. An array of two numbers is a point,
    /// but as a value of the path only its elements are considered; mongod looks at this field,
    /// too.
    fn field_of(&self, leaf: &Leaf) -> Option<RawValue<'_>> {
        let condition = leaf.written.as_doc().into_iter().next()?;
        self.doc.get_raw(condition.name.as_bytes())
    }

    fn expr(&mut self, name: &str, leaf: &Leaf, inverted: bool, out: &mut DocWriter<'_>) {
        out.append("operatorName", name);
        self.written(leaf, out);
        let result = match leaf.filter.root() {
            Node::Expr(expr) => expr.evaluate(self.doc),
            _ => Ok(None),
        };
        match result {
            Ok(result) => {
                let reason =
                    if inverted { "expression did match" } else { "expression did not match" };
                out.append("reason", reason);
                if let Some(result) = result {
                    self.value("expressionResult", result.as_raw(), out);
                }
            }
            Err(error) => {
                out.append("reason", "failed to evaluate aggregation expression");
                if self.spend(error.message().len()) {
                    write_error(&error, &mut out.begin_doc("details"));
                }
            }
        }
    }

    fn written(&mut self, leaf: &Leaf, out: &mut DocWriter<'_>) {
        self.specified(out, |inner| {
            inner.append_elements(leaf.written.as_doc().elements_bytes());
        });
    }
}

/// The document of one field.
fn field(name: &BStr, value: RawValue<'_>) -> DocBuf {
    DocBuf::build(|out| {
        out.append_raw(name, value);
    })
}

fn write_expected(kinds: &[Type], out: &mut DocWriter<'_>) {
    if let [kind] = *kinds {
        out.append("expectedType", kind.alias());
        return;
    }
    let mut array = out.begin_array("expectedTypes");
    for kind in kinds {
        array.push(kind.alias());
    }
}

pub(super) fn write_error(error: &Error, out: &mut DocWriter<'_>) {
    let code = error.code();
    out.append("code", code.number());
    out.append("codeName", &*code.name().to_string());
    out.append("errmsg", error.message());
}

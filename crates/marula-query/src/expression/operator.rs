//! An operator as a row: its name, the form of its argument, its function.

use std::fmt;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Expression, Frame, Scope, operators, print};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::usage;

errors! {
    /// The number of arguments is not the fixed one.
    pub(crate) wrong_count(name: &str, want: usize, count: usize) = 16020, "Expression {name} takes exactly {want} arguments. {count} were passed in.";
    /// There are too few or too many arguments.
    count_out_of_range(name: &str, min: usize, max: usize, count: usize) = 28667, "Expression {name} takes at least {min} arguments, and at most {max}, but {count} were passed in.";
    /// The operator does not exist.
    pub(crate) unknown_operator(name: &str) = InvalidPipelineOperator, "Unrecognized expression '{name}'";
}

/// Computes an operator. The function evaluates its arguments itself, in the order that it needs.
pub type Eval = for<'a> fn(&'a [Expression], &Frame<'a>) -> Result<Option<Value<'a>>>;

/// Parses an operator's argument.
pub type Parse = fn(&'static Operator, Value<'_>, &mut Scope<'_>) -> Result<Expression>;

/// Prints an operator's argument in the form of `explain`.
pub type Print = fn(&[Expression]) -> ValueBuf;

/// A row of an operator family's table.
pub struct Operator {
    /// The name including the dollar sign.
    pub name: &'static str,
    /// The form of the argument.
    pub shape: Shape,
    /// The function.
    pub eval: Eval,
    /// The release that introduced it.
    pub since: FeatureVersion,
    /// Whether equal arguments give equal results, so that a call with constant arguments is a
    /// constant.
    pub foldable: bool,
    /// Whether its arguments stay unoptimized: a constant that fails does so during evaluation.
    pub late: bool,
    /// Checks constant arguments before evaluation.
    pub check: Option<fn(&[Expression]) -> Result<()>>,
    /// The row that replaces this one once its constant arguments have been folded.
    pub prepared: Option<&'static Operator>,
}

/// The form of an operator's argument.
#[derive(Clone, Copy)]
pub enum Shape {
    /// A list with exactly this number of arguments; for one argument, also the argument itself.
    Exactly(usize),
    /// A list with a number of arguments in this range, inclusive.
    Between(usize, usize),
    /// A list of any length.
    Any,
    /// A document with these field names, in the order of `args`, parsed by the operator's own
    /// function.
    Named(&'static [&'static str], Parse),
    /// Any value; parsed and printed by the operator's own functions.
    Special(Parse, Print),
}

impl Operator {
    /// The row of an operator with exactly `count` arguments.
    pub(super) const fn exactly(name: &'static str, count: usize, eval: Eval) -> Self {
        Operator {
            name,
            shape: Shape::Exactly(count),
            eval,
            since: FeatureVersion::V6_0,
            foldable: true,
            late: false,
            check: None,
            prepared: None,
        }
    }

    /// The row of an operator with `min` to `max` arguments.
    pub(super) const fn between(name: &'static str, min: usize, max: usize, eval: Eval) -> Self {
        Operator {
            name,
            shape: Shape::Between(min, max),
            eval,
            since: FeatureVersion::V6_0,
            foldable: true,
            late: false,
            check: None,
            prepared: None,
        }
    }

    /// The row of an operator with any number of arguments.
    pub(super) const fn any(name: &'static str, eval: Eval) -> Self {
        Operator {
            name,
            shape: Shape::Any,
            eval,
            since: FeatureVersion::V6_0,
            foldable: true,
            late: false,
            check: None,
            prepared: None,
        }
    }

    /// The row of an operator with named arguments.
    pub(super) const fn named(
        name: &'static str,
        names: &'static [&'static str],
        parse: Parse,
        eval: Eval,
    ) -> Self {
        Operator {
            name,
            shape: Shape::Named(names, parse),
            eval,
            since: FeatureVersion::V6_0,
            foldable: true,
            late: false,
            check: None,
            prepared: None,
        }
    }

    /// The row of an operator that parses its own argument.
    pub(super) const fn special(name: &'static str, parse: Parse, eval: Eval) -> Self {
        Operator {
            name,
            shape: Shape::Special(parse, print::list),
            eval,
            since: FeatureVersion::V6_0,
            foldable: true,
            late: false,
            check: None,
            prepared: None,
        }
    }

    /// The row of a special operator with its own print function.
    pub(super) const fn printed(mut self, print: Print) -> Self {
        if let Shape::Special(parse, _) = self.shape {
            self.shape = Shape::Special(parse, print);
        }
        self
    }

    /// The row of an operator that a later release introduced.
    pub(super) const fn since(mut self, version: FeatureVersion) -> Self {
        self.since = version;
        self
    }

    /// The row of an operator that is not deterministic or binds variables.
    pub(super) const fn not_foldable(mut self) -> Self {
        self.foldable = false;
        self
    }

    /// The row of an operator whose arguments stay unoptimized.
    pub(super) const fn late(mut self) -> Self {
        self.foldable = false;
        self.late = true;
        self
    }

    /// The row of an operator that checks constant arguments before evaluation.
    pub(super) const fn checked(mut self, check: fn(&[Expression]) -> Result<()>) -> Self {
        self.check = Some(check);
        self
    }

    /// The row of an operator that is replaced by another once its constant arguments have been
    /// folded.
    pub(super) const fn prepared(mut self, row: &'static Operator) -> Self {
        self.prepared = Some(row);
        self
    }

    /// The operator with this name in a release.
    pub fn find(name: &[u8], version: FeatureVersion) -> Result<&'static Operator> {
        operators::find(name)
            .filter(|operator| operator.since <= version)
            .ok_or_else(|| unknown_operator(&bstr::ByteSlice::to_str_lossy(name)))
    }

    /// Parses the argument of this operator.
    pub fn parse(&'static self, value: Value<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
        usage::EXPRESSIONS.note(self.name, scope.context);
        match self.shape {
            Shape::Exactly(want) => {
                let args = parse_list(value, scope)?;
                if args.len() != want {
                    return Err(wrong_count(self.name, want, args.len()));
                }
                Ok(self.call(args))
            }
            Shape::Between(min, max) => {
                let args = parse_list(value, scope)?;
                if !(min..=max).contains(&args.len()) {
                    return Err(count_out_of_range(self.name, min, max, args.len()));
                }
                Ok(self.call(args))
            }
            Shape::Any => Ok(self.call(parse_list(value, scope)?)),
            Shape::Named(_, parse) | Shape::Special(parse, _) => parse(self, value, scope),
        }
    }

    /// A call of this operator.
    pub fn call(&'static self, args: impl Into<Box<[Expression]>>) -> Expression {
        Expression::Call(Call { operator: self, args: args.into() })
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An operator and its arguments.
#[derive(Clone, Debug)]
pub struct Call {
    /// The row.
    pub operator: &'static Operator,
    /// The arguments; of named ones in the row's order, [`Expression::Missing`] where one is not
    /// given.
    pub args: Box<[Expression]>,
}

impl Call {
    /// The call, whose place is filled by one without arguments.
    pub(super) fn take(&mut self) -> Call {
        Call { operator: self.operator, args: std::mem::take(&mut self.args) }
    }

    /// Computes the constants among the arguments of an operator that does not mind how they are
    /// joined: of one that does not mind the order either they all come last, of another those that
    /// are neighbours become one.
    ///
    /// Errors: those of the constants, which mongod raises even where another argument is null.
    pub(super) fn gather_constants(&mut self, context: &Context) -> Result<()> {
        // `$$REMOVE` is a constant too.
        let is_constant =
            |arg: &Expression| matches!(arg, Expression::Constant(_) | Expression::Missing);
        self.flatten();
        let count = self.args.iter().filter(|arg| is_constant(arg)).count();
        if count == 0 || count == self.args.len() {
            return Ok(());
        }
        let args = std::mem::take(&mut self.args);
        let (name, count_of_all) = (self.operator.name, args.len());
        let runs: Vec<Vec<Expression>> = if is_commutative(name, count_of_all, context) {
            let (constants, mut args): (Vec<_>, Vec<_>) = args.into_iter().partition(is_constant);
            let mut runs: Vec<_> = args.drain(..).map(|arg| vec![arg]).collect();
            runs.push(constants);
            runs
        } else if is_associative(name, count_of_all) {
            let mut runs: Vec<Vec<Expression>> = Vec::new();
            for arg in args {
                match runs.last_mut() {
                    Some(run) if is_constant(&arg) && is_constant(&run[0]) => run.push(arg),
                    _ => runs.push(vec![arg]),
                }
            }
            runs
        } else {
            self.args = args;
            return Ok(());
        };
        let mut outcome = Ok(());
        let join = |mut run: Vec<Expression>| {
            if run.len() == 1 {
                return run.remove(0);
            }
            let mut gathered = self.operator.call(run);
            let computed = gathered.optimize(context);
            if outcome.is_ok() {
                outcome = computed;
            }
            gathered
        };
        // An expression that fails stays as it is and fails again during evaluation.
        self.args = runs.into_iter().map(join).collect();
        outcome
    }

    /// Replaces arguments that are calls of the same associative operator by their arguments.
    fn flatten(&mut self) {
        let name = self.operator.name;
        let is_same = |arg: &Expression| match arg {
            Expression::Call(inner) => {
                inner.operator.name == name && is_associative(name, inner.args.len())
            }
            _ => false,
        };
        if !is_associative(name, self.args.len()) || !self.args.iter().any(is_same) {
            return;
        }
        let args = std::mem::take(&mut self.args);
        let flat = args.into_iter().flat_map(|arg| match arg {
            Expression::Call(mut inner) if inner.operator.name == name => {
                match is_associative(name, inner.args.len()) {
                    true => inner.take().args.into_vec(),
                    false => vec![Expression::Call(inner)],
                }
            }
            arg => vec![arg],
        });
        self.args = flat.collect();
    }

    /// The result of the call if it is independent of the document, or the only argument that can
    /// be its result.
    pub(super) fn decided(&mut self) -> Option<Expression> {
        let truth = |arg: &Expression| match arg {
            Expression::Missing => Some(false),
            arg => arg.as_constant().map(|value| value.is_truthy()),
        };
        let chosen = match self.operator.name {
            "$cond" => match truth(&self.args[0])? {
                true => 1,
                false => 2,
            },
            "$indexOfArray" => {
                let is_nothing = match &self.args[0] {
                    Expression::Missing => true,
                    list => list.as_constant().is_some_and(|value| value.is_nullish()),
                };
                return is_nothing.then(|| Value::Null.into());
            }
            // No variable is bound.
            "$let" if self.args.len() == 1 => 0,
            "$ifNull" => {
                let mut args = std::mem::take(&mut self.args).into_vec();
                drop_nulls(&mut args);
                if let [_] = *args {
                    return args.pop();
                }
                self.args = args.into();
                return None;
            }
            name @ ("$and" | "$or") if self.args.len() > 1 => {
                let last = self.args.len() - 1;
                let truth = truth(&self.args[last])?;
                if truth == (name == "$or") {
                    return Some(Value::Boolean(truth).into());
                }
                // A constant last argument that cannot change the result.
                let mut args = std::mem::take(&mut self.args).into_vec();
                args.pop();
                self.args = args.into();
                return None;
            }
            _ => return None,
        };
        Some(std::mem::replace(&mut self.args[chosen], Expression::Missing))
    }
}

/// Reduces an `$ifNull`'s arguments to those that its value may be: removes constant nulls, except
/// the last argument, and everything after another constant.
fn drop_nulls(args: &mut Vec<Expression>) {
    let is_null = |arg: &Expression| match arg {
        Expression::Missing => Some(true),
        arg => arg.as_constant().map(|value| value.is_nullish()),
    };
    if let Some(end) = args.iter().position(|arg| is_null(arg) == Some(false)) {
        args.truncate(end + 1);
    }
    let last = args.pop();
    args.retain(|arg| is_null(arg) != Some(true));
    args.extend(last);
}

/// Operators whose arguments are associative and commutative.
const COMMUTATIVE: &[&str] = &["$add", "$and", "$multiply", "$or", "$setIntersection", "$setUnion"];
/// Commutative only with two or more arguments; a single argument is an array to reduce.
const COMMUTATIVE_OF_MANY: &[&str] = &["$max", "$min", "$sum"];
/// Operators whose arguments are associative only.
const ASSOCIATIVE: &[&str] = &["$concat", "$concatArrays"];

/// Returns whether a call with `count` arguments is associative and commutative.
fn is_commutative(name: &str, count: usize, context: &Context) -> bool {
    // Under a collation, a union keeps the first of equal values.
    COMMUTATIVE.contains(&name) && (name != "$setUnion" || context.collation.is_none())
        || COMMUTATIVE_OF_MANY.contains(&name) && count > 1
}

/// Returns whether a call with `count` arguments is associative.
fn is_associative(name: &str, count: usize) -> bool {
    ASSOCIATIVE.contains(&name)
        || COMMUTATIVE.contains(&name)
        || COMMUTATIVE_OF_MANY.contains(&name) && count > 1
}

/// Parses an operator's list of arguments: an array, or the only argument.
pub(super) fn parse_list(value: Value<'_>, scope: &mut Scope<'_>) -> Result<Vec<Expression>> {
    match value {
        Value::Array(items) => items.values().map(|item| Expression::parse(item, scope)).collect(),
        value => Ok(vec![Expression::parse(value, scope)?]),
    }
}

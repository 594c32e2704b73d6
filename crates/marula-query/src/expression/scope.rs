//! The visible variables during the parsing of an expression.

use bstr::ByteSlice;
use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::{Expression, Path, Variable};
use crate::context::Context;
use crate::feature_version::FeatureVersion;

/// The maximum nesting of expressions: that of BSON.
pub(crate) const DEPTH_MAX: usize = 200;

errors! {
    /// An expression nests deeper than BSON may.
    too_deep() = Overflow, "BSONObj exceeds maximum nested object depth: {DEPTH_MAX}";
    /// A variable reference is `"$$"` without a name.
    name_empty() = FailedToParse, "empty variable names are not allowed";
    /// A user variable starts with an upper-case letter, a digit or a special character.
    name_bad_start(name: &str) = FailedToParse, "'{name}' starts with an invalid character for a user variable name";
    /// A variable's name contains a special character.
    name_bad_character(name: &str, character: char) = FailedToParse, "'{name}' contains an invalid character for a variable name: '{character}'";
    /// A command's `let` names a variable with a fixed value.
    set_constant(name: &str) = 4738901, "Attempt to set internal constant: {name}";
    /// A constant of an update has the name of a variable that cannot be bound.
    not_writable() = 17275, "Can't redefine a non-user-writable variable";
    /// `$$SEARCH_META` is used, which only `$search` defines.
    no_search() = 6347903, "Can't access $$SEARCH_META without a $search stage earlier in the pipeline";
    /// A variable is not bound.
    variable_undefined(name: &str) = 17276, "Use of undefined variable: {name}";
}

/// The visible variables and the environment of the operation during parsing.
///
/// Bindings nest: [`Scope::bind`] and [`Scope::unbind`] enclose the parsing of the expressions that
/// see the variable, and evaluation calls [`Frame::bind`](super::Frame::bind) at the same places.
pub struct Scope<'c> {
    /// The environment of the operation.
    pub context: &'c Context,
    names: Vec<Box<str>>,
    redact: bool,
    /// Whether the expression is of a filter, in which metadata is missing.
    filters: bool,
    depth: usize,
}

impl<'c> Scope<'c> {
    /// A scope with the system variables and the command's `let`.
    pub fn new(context: &'c Context) -> Self {
        Scope { context, names: Vec::new(), redact: false, filters: false, depth: 0 }
    }

    /// A scope that also has `$$DESCEND`, `$$PRUNE` and `$$KEEP`, and in which `$$CURRENT` is
    /// bound.
    pub fn for_redact(context: &'c Context) -> Self {
        Scope { context, names: vec!["CURRENT".into()], redact: true, filters: false, depth: 0 }
    }

    /// The scope of a filter's expression.
    pub(crate) fn of_filter(context: &'c Context) -> Self {
        Scope { filters: true, ..Scope::new(context) }
    }

    /// Whether the expression is of a filter.
    pub(crate) fn filters(&self) -> bool {
        self.filters
    }

    /// Makes a variable visible.
    pub fn bind(&mut self, name: &str) {
        self.names.push(name.into());
    }

    /// Hides the `count` variables bound last.
    pub fn unbind(&mut self, count: usize) {
        self.names.truncate(self.names.len() - count);
    }

    /// Runs `parse` one level deeper.
    pub(crate) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// The expression for the field path `text` (without its `$`).
    pub(crate) fn field(&self, text: &[u8]) -> Result<Expression> {
        let path = Path::parse_of_expression(text)?;
        match self.find("CURRENT") {
            Some(variable) => Ok(Expression::Variable(variable, path)),
            None if self.is_let("CURRENT") => self.let_variable("CURRENT", &path),
            None => Ok(Expression::Field(path)),
        }
    }

    /// The expression for the variable `text` (without its `$$`), optionally with a path.
    pub(crate) fn variable(&self, text: &[u8]) -> Result<Expression> {
        let (name, path) = match text.find_byte(b'.') {
            Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
            None => (text, None),
        };
        let name = &*name.to_str_lossy();
        check_name(name, is_system_start)?;
        self.check_defined(name)?;
        let path = match path {
            // mongod's error names the whole text, so a trailing dot is a separate error.
            Some(b"") => return Err(Path::parse(b"x.").expect_err("a path may not end with a dot")),
            Some(path) => Path::parse_of_expression(path)?,
            None => Path::default(),
        };
        if let Some(variable) = self.find(name) {
            return Ok(Expression::Variable(variable, path));
        }
        let variable = match name {
            "CURRENT" if self.is_let(name) => return self.let_variable(name, &path),
            "ROOT" if path.is_empty() => Variable::Root { name: "ROOT" },
            "CURRENT" if path.is_empty() => Variable::Root { name: "CURRENT" },
            // mongod parses this path again after a dollar sign, which makes the field a variable.
            "CURRENT" if path.parts()[0].starts_with(b"$") => {
                let text = path.text();
                return self.variable(&text[1..]);
            }
            "ROOT" | "CURRENT" => return Ok(Expression::Field(path)),
            "NOW" => Variable::Now,
            "CLUSTER_TIME" => Variable::ClusterTime,
            "REMOVE" => return Ok(Expression::Missing),
            "JS_SCOPE" => Variable::Unavailable("JS_SCOPE"),
            "IS_MR" => Variable::Unavailable("IS_MR"),
            "USER_ROLES" if self.context.version >= FeatureVersion::V7_0 => {
                let roles = self.context.user_roles.as_ref();
                let roles = roles.map_or(Value::Array(Doc::EMPTY), |roles| roles.get());
                let arena = super::Arena::new();
                let roles =
                    if path.is_empty() { Some(roles) } else { path.eval_value(roles, &arena)? };
                return Ok(roles.map_or(Expression::Missing, Expression::from));
            }
            "SEARCH_META" => return Err(no_search()),
            "DESCEND" | "PRUNE" | "KEEP" if self.redact => {
                return Ok(Value::from(&*name.to_ascii_lowercase()).into());
            }
            _ => return self.let_variable(name, &path),
        };
        Ok(Expression::Variable(variable, path))
    }

    fn find(&self, name: &str) -> Option<Variable> {
        let up = self.names.iter().rev().position(|bound| **bound == *name)?;
        Some(Variable::Bound { up, name: name.into() })
    }

    /// Checks that a variable exists, before its path is.
    fn check_defined(&self, name: &str) -> Result<()> {
        let is_system = match name {
            "CURRENT" => true,
            "USER_ROLES" => self.context.version >= FeatureVersion::V7_0,
            "DESCEND" | "PRUNE" | "KEEP" => self.redact,
            _ => COMMAND_CONSTANTS.contains(&name) || NOT_WRITABLE.contains(&name),
        };
        match is_system || self.find(name).is_some() || self.is_let(name) {
            true => Ok(()),
            false => Err(variable_undefined(name)),
        }
    }

    /// Returns whether the command's `let`, or that of an enclosing `$lookup`, names the variable.
    fn is_let(&self, name: &str) -> bool {
        let Context { unknown_variables, missing_variables, let_variables, .. } = self.context;
        unknown_variables.iter().chain(missing_variables).any(|known| known == name)
            || let_variables.as_ref().is_some_and(|known| known.as_doc().get(name).is_some())
    }

    /// A variable of the command's `let` is a constant, and so is any path into it.
    fn let_variable(&self, name: &str, path: &Path) -> Result<Expression> {
        // The names of a sub-pipeline's variables are known before their values.
        if self.context.unknown_variables.iter().any(|unknown| unknown == name) {
            return Ok(Expression::Variable(Variable::Unavailable("let"), path.clone()));
        }
        let variables = self.context.let_variables.as_ref();
        let Some(value) = variables.and_then(|variables| variables.as_doc().get(name)) else {
            return match self.context.missing_variables.iter().any(|missing| missing == name) {
                true => Ok(Expression::Missing),
                false => Err(variable_undefined(name)),
            };
        };
        let arena = super::Arena::new();
        let value = if path.is_empty() { Some(value) } else { path.eval_value(value, &arena)? };
        Ok(value.map_or(Expression::Missing, Expression::from))
    }
}

/// The variables with one value for a whole command.
const COMMAND_CONSTANTS: &[&str] = &["NOW", "CLUSTER_TIME", "JS_SCOPE", "IS_MR"];

/// The other variables that cannot be bound.
const NOT_WRITABLE: &[&str] = &["ROOT", "REMOVE", "SEARCH_META"];

/// Checks the name of a variable of a command's `let`.
///
/// Errors: `set_constant`, and those of [`check_user_variable`].
pub fn check_let_variable(name: &str) -> Result<()> {
    match COMMAND_CONSTANTS.contains(&name) {
        true => Err(set_constant(name)),
        false => {
            check_user_variable(name).map_err(|error| error.caused_by("Invalid 'let' parameter"))
        }
    }
}

/// Checks the name of a constant of an update statement.
///
/// Errors: `not_writable`, and those of a variable's name.
pub fn check_constant(name: &str) -> Result<()> {
    match COMMAND_CONSTANTS.contains(&name) || NOT_WRITABLE.contains(&name) {
        true => Err(not_writable()),
        false => check_name(name, is_system_start),
    }
}

/// Checks the name of a variable bound by a user: in `$let`, `as`, the command's `let`.
pub fn check_user_variable(name: &str) -> Result<()> {
    // CURRENT is the only system variable that may be redefined.
    if name == "CURRENT" {
        return Ok(());
    }
    check_name(name, |start| start.is_ascii_lowercase() || !start.is_ascii())
}

fn is_system_start(start: char) -> bool {
    start.is_ascii_alphabetic() || !start.is_ascii()
}

fn check_name(name: &str, starts: impl Fn(char) -> bool) -> Result<()> {
    let Some(start) = name.chars().next() else {
        return Err(name_empty());
    };
    if !starts(start) {
        return Err(name_bad_start(name));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    match name.chars().find(|&c| !good(c)) {
        Some(character) => Err(name_bad_character(name, character)),
        None => Ok(()),
    }
}

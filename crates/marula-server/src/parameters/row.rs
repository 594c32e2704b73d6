//! A server parameter: its name, its default with its type and bounds, and when it may be set.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::fmt::Display;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::LOG_LEVEL;
use crate::auth::documents::array;
use crate::log::components as log_components;

errors! {
    not_integral(name: &str) = BadValue, "Failed validating {name}: Unable to coerce value to integral type";
    not_a_number(name: &str) = BadValue, "Failed validating {name}: Unable to coerce value to correct type";
    not_text(name: &str) = BadValue, "Failed validating {name}: Unable to coerce value to correct type";
    not_such(name: &str) = 10_065, "invalid parameter: expected another type ({name})";
    unrecognized(name: &str, value: &str) = BadValue, "Unrecognized {name} '{value}'";
    not_finite(name: &str) = BadValue, "Failed validating {name}: Unable to coerce NaN/Inf to integral type";
    out_of_type(name: &str) = BadValue, "Failed validating {name}: Out of bounds coercing to integral value";
    out_of_bounds(name: &str, value: &str, relation: &str, bound: &str) = BadValue, "Invalid value for parameter {name}: {value} is not {relation} {bound}";
    bad_log_level(value: &Value<'_>) = BadValue, "Invalid value for logLevel: logLevel: {value}";
}

/// The times at which a parameter may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settable {
    /// Never: it reports a property of the server.
    Never,
    /// On the command line or in the configuration file.
    AtStartup,
    /// By `setParameter` only.
    AtRuntime,
    /// By both.
    Always,
}

impl Settable {
    /// Returns whether the command line and the configuration file may set it.
    pub fn at_startup(self) -> bool {
        matches!(self, Settable::AtStartup | Settable::Always)
    }

    /// Returns whether `setParameter` may.
    pub fn at_runtime(self) -> bool {
        matches!(self, Settable::AtRuntime | Settable::Always)
    }
}

/// One end of a parameter's range.
#[derive(Clone, Copy, Debug)]
enum End<T> {
    Open,
    Including(T),
    Excluding(T),
}

/// The range of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<T> {
    least: End<T>,
    most: End<T>,
}

/// Returns the range of all numbers.
pub(super) const fn any<T: Copy>() -> Bounds<T> {
    Bounds { least: End::Open, most: End::Open }
}

/// Returns the range from this number on.
pub(super) const fn at_least<T: Copy>(least: T) -> Bounds<T> {
    Bounds { least: End::Including(least), most: End::Open }
}

/// Returns the range above this number.
pub(super) const fn more_than<T: Copy>(least: T) -> Bounds<T> {
    Bounds { least: End::Excluding(least), most: End::Open }
}

impl<T: Copy> Bounds<T> {
    /// Limits the range to numbers up to this one.
    pub const fn at_most(self, most: T) -> Self {
        Bounds { least: self.least, most: End::Including(most) }
    }

    /// Limits the range to numbers below this one.
    pub const fn less_than(self, most: T) -> Self {
        Bounds { least: self.least, most: End::Excluding(most) }
    }
}

impl<T: Copy + PartialOrd + Display> Bounds<T> {
    fn check(&self, name: &str, value: T) -> Result<T> {
        let refuse = |relation: &str, bound: T| -> Result<T> {
            let value = value.to_string();
            let value = if value == "NaN" { "nan" } else { value.as_str() };
            Err(out_of_bounds(name, value, relation, &bound.to_string()))
        };
        let is = |bound: T, orders: &[Ordering]| {
            value.partial_cmp(&bound).is_some_and(|order| orders.contains(&order))
        };
        // NaN is outside of every bound; in this order mongod reports them.
        if let End::Excluding(most) = self.most
            && !is(most, &[Less])
        {
            return refuse("less than", most);
        }
        if let End::Excluding(least) = self.least
            && !is(least, &[Greater])
        {
            return refuse("greater than", least);
        }
        if let End::Including(most) = self.most
            && !is(most, &[Less, Equal])
        {
            return refuse("less than or equal to", most);
        }
        match self.least {
            End::Including(least) if !is(least, &[Greater, Equal]) => {
                refuse("greater than or equal to", least)
            }
            _ => Ok(value),
        }
    }
}

/// A parameter's default, which also determines its type.
#[derive(Clone, Copy, Debug)]
pub enum Initial {
    /// A boolean; any value is converted.
    Bool(bool),
    /// A 32-bit integer.
    Int(i32, Bounds<i32>),
    /// A 64-bit integer.
    Long(i64, Bounds<i64>),
    /// A number.
    Double(f64, Bounds<f64>),
    /// A string.
    Text(&'static str),
    /// One of several strings; the first is the default.
    OneOf(&'static [&'static str]),
    /// A value that is computed when it is read; it can be set to one of its type.
    Made(fn() -> ValueBuf),
}

/// A parameter.
pub struct ParameterRow {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: Initial,
    /// When it may be set.
    pub settable: Settable,
    /// Its effect; `None` if it has none.
    pub does: Option<&'static str>,
}

/// The first number above the range of a long.
const LONG_BOUND: f64 = 9_223_372_036_854_775_808.0;

impl ParameterRow {
    /// Returns the default value.
    pub fn initial(&self) -> ValueBuf {
        match self.default {
            Initial::Bool(flag) => ValueBuf::from(flag),
            Initial::Int(number, _) => ValueBuf::from(number),
            Initial::Long(number, _) => ValueBuf::from(number),
            Initial::Double(number, _) => ValueBuf::from(number),
            Initial::Text(text) => ValueBuf::from(text),
            Initial::OneOf(names) => ValueBuf::from(names[0]),
            Initial::Made(make) => make(),
        }
    }

    /// Converts a value to the parameter's type.
    pub(super) fn coerce(&self, value: Value<'_>) -> Result<ValueBuf> {
        match self.default {
            Initial::Bool(_) => Ok(ValueBuf::from(value.is_truthy())),
            Initial::Int(..) if self.name == LOG_LEVEL => {
                let level = log_components::level(value).filter(|level| *level >= 0);
                let level = level.ok_or_else(|| bad_log_level(&value))?;
                Ok(ValueBuf::from(level.min(log_components::LEVEL_MAX)))
            }
            Initial::Int(_, bounds) => {
                let number = i32::try_from(self.whole(value)?);
                let number = number.map_err(|_| out_of_type(self.name))?;
                bounds.check(self.name, number).map(ValueBuf::from)
            }
            Initial::Long(_, bounds) => {
                bounds.check(self.name, self.whole(value)?).map(ValueBuf::from)
            }
            Initial::Double(_, bounds) => {
                let number = value.as_f64().ok_or_else(|| not_a_number(self.name))?;
                bounds.check(self.name, number).map(ValueBuf::from)
            }
            Initial::Text(_) => match value {
                Value::String(_) => Ok(value.to_buf()),
                _ => Err(not_text(self.name)),
            },
            Initial::OneOf(names) => match value {
                Value::String(text) if names.iter().any(|name| text == *name) => Ok(value.to_buf()),
                Value::String(text) => Err(unrecognized(self.name, &text.to_string())),
                other => Err(unrecognized(self.name, &other.to_string())),
            },
            Initial::Made(make) => match make().get().kind() == value.kind() {
                true => Ok(value.to_buf()),
                false => Err(not_such(self.name)),
            },
        }
    }

    /// Parses a value from the command line or the configuration file.
    pub(super) fn parse(&self, text: &str) -> Result<ValueBuf> {
        match self.default {
            Initial::Bool(_) => match text {
                "true" | "1" => Ok(ValueBuf::from(true)),
                "false" | "0" => Ok(ValueBuf::from(false)),
                _ => Err(not_a_number(self.name)),
            },
            // Only the verbosity is parsed as an integer.
            Initial::Int(..) if self.name == LOG_LEVEL => {
                let number = text.parse::<i64>().ok();
                self.coerce(number.map_or(Value::String(text.into()), Value::Int64))
            }
            Initial::Made(make) if matches!(make().get(), Value::Array(_)) => {
                let names = text.split(',').filter(|name| !name.is_empty());
                Ok(array(|out| {
                    names.for_each(|name| {
                        out.push(name);
                    });
                }))
            }
            Initial::Int(..) | Initial::Long(..) | Initial::Double(..) => {
                let number =
                    text.parse().map(Value::Int64).or_else(|_| text.parse().map(Value::Double));
                self.coerce(number.unwrap_or(Value::String(text.into())))
            }
            _ => self.coerce(Value::String(text.into())),
        }
    }

    /// Returns a value as an integer: fractions are cut off.
    fn whole(&self, value: Value<'_>) -> Result<i64> {
        if let Value::Int64(number) = value {
            return Ok(number);
        }
        let number = match value {
            Value::Boolean(flag) => Some(f64::from(u8::from(flag))),
            other => other.as_f64(),
        };
        let number = number.ok_or_else(|| not_integral(self.name))?;
        if !number.is_finite() {
            return Err(not_finite(self.name));
        }
        if !(-LONG_BOUND..LONG_BOUND).contains(&number) {
            return Err(out_of_type(self.name));
        }
        #[allow(clippy::cast_possible_truncation)]
        Ok(number as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn check(name: &str, value: impl Into<ValueBuf>, expected: Result<ValueBuf, &str>) {
        let value = value.into();
        let outcome = find(name.as_bytes()).unwrap().coerce(value.get());
        assert_eq!(
            outcome.as_ref().map_err(|error| error.message()),
            expected.as_ref().map_err(|text| *text)
        );
    }

    #[test]
    fn values_are_coerced_as_mongod_does() {
        check("cursorTimeoutMillis", 5, Ok(ValueBuf::from(5_i64)));
        check("cursorTimeoutMillis", 5.7, Ok(ValueBuf::from(5_i64)));
        check("notablescan", 5, Ok(ValueBuf::from(true)));
        check("ttlMonitorEnabled", "false", Ok(ValueBuf::from(true)));
        check(
            "cursorTimeoutMillis",
            "x",
            Err("Failed validating cursorTimeoutMillis: Unable to coerce value to integral type"),
        );
        check(
            "cursorTimeoutMillis",
            "1",
            Err("Failed validating cursorTimeoutMillis: Unable to coerce value to integral type"),
        );
        check("cursorTimeoutMillis", true, Ok(ValueBuf::from(1_i64)));
        check(
            "syncdelay",
            true,
            Err("Failed validating syncdelay: Unable to coerce value to correct type"),
        );
        check("logLevel", -1, Err("Invalid value for logLevel: logLevel: -1"));
        check("logLevel", "x", Err("Invalid value for logLevel: logLevel: \"x\""));
        check(
            "syncdelay",
            "x",
            Err("Failed validating syncdelay: Unable to coerce value to correct type"),
        );
    }

    #[test]
    fn numbers_are_held_to_their_bounds() {
        let refused = |name: &str, value: f64, text: &str| {
            check(name, value, Err(&format!("Invalid value for parameter {name}: {text}")));
        };
        refused("ttlMonitorSleepSecs", 0.0, "0 is not greater than 0");
        refused("journalCommitInterval", 0.0, "0 is not greater than or equal to 1");
        refused("flowControlTargetLagSeconds", -5.0, "-5 is not greater than 0");
        refused("syncdelay", 5000.0, "5000 is not less than or equal to 3600");
        refused("flowControlDecayConstant", 1.0, "1 is not less than 1");
        refused("flowControlDecayConstant", f64::NAN, "nan is not less than 1");
        refused("flowControlFudgeFactor", f64::NAN, "nan is not greater than 0");
        refused(
            "flowControlThresholdLagPercentage",
            f64::NAN,
            "nan is not less than or equal to 1",
        );
        check("flowControlDecayConstant", 0.5, Ok(ValueBuf::from(0.5)));
    }

    #[test]
    fn text_at_the_start_is_read_by_type() {
        let parse = |name: &str, text: &str| find(name.as_bytes()).unwrap().parse(text).ok();
        assert_eq!(parse("ttlMonitorEnabled", "false"), Some(ValueBuf::from(false)));
        assert_eq!(parse("ttlMonitorEnabled", "x"), None);
        assert_eq!(parse("syncdelay", "1.5"), Some(ValueBuf::from(1.5)));
        assert_eq!(parse("logLevel", "2"), Some(ValueBuf::from(2)));
        assert!(parse("authenticationMechanisms", "SCRAM-SHA-256").is_some());
    }
}

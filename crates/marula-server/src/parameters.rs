//! Server parameters: what `getParameter` shows and `setParameter` changes.
//!
//! A parameter is a row of [`ROWS`]: its name in MongoDB, its default, and when it may be set. A
//! row without an effect of its own is one that drivers, tools and tests read, and whose value is
//! true of this server.
//! Source: manual "MongoDB Server Parameters"; names, types and defaults recorded from mongod 6.0.

use std::collections::BTreeMap;

use marula_bson::{Doc, DocBuf, Value, ValueBuf, doc};
use marula_error::{Error, Result, errors};
use parking_lot::RwLock;

use crate::auth::documents::array;
use crate::log_components;
use crate::net::tls::Mode;
use crate::server::Server;
use crate::{snapshots, transactions};

errors! {
    no_tls_mode(name: &str) = BadValue, "Invalid tlsMode setting '{name}', expected one of: 'disabled', 'allowTLS', 'preferTLS', or 'requireTLS'";
    no_tls_step(was: &str, wanted: &str) = BadValue, "Illegal state transition for tlsMode, attempt to change from {was} to {wanted}";
    not_integral(name: &str) = BadValue, "Failed validating {name}: Unable to coerce value to integral type";
    not_a_number(name: &str) = BadValue, "Failed validating {name}: Unable to coerce value to floating point type";
    too_small(name: &str, value: i64, least: i64) = BadValue, "Invalid value for parameter {name}: {value} is not greater than or equal to {least}";
    too_large(name: &str, value: i64, most: i64) = BadValue, "Invalid value for parameter {name}: {value} is not less than or equal to {most}";
    not_finite(name: &str) = BadValue, "Failed validating {name}: Unable to coerce NaN/Inf to integral type";
    out_of_bounds(name: &str) = BadValue, "Failed validating {name}: Out of bounds coercing to integral value";
    bad_log_level(value: &Value<'_>) = BadValue, "Invalid value for logLevel: logLevel: {value}";
}

/// When a parameter may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settable {
    /// Never: it tells of the server.
    Never,
    /// On the command line or in the configuration file.
    AtStartup,
    /// By `setParameter` too.
    Always,
}

/// A parameter's default, and by that its type.
#[derive(Clone, Copy, Debug)]
pub enum Initial {
    /// A flag; any value is taken for its truth.
    Bool(bool),
    /// A whole number of 32 bits between two bounds.
    Int(i32, i64, i64),
    /// A whole number of 64 bits between two bounds.
    Long(i64, i64, i64),
    /// A number.
    Double(f64),
    /// Text.
    Text(&'static str),
    /// A value that is made when it is asked for.
    Made(fn() -> ValueBuf),
}

/// A parameter.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: Initial,
    /// When it may be set.
    pub settable: Settable,
}

const fn row(name: &'static str, default: Initial, settable: Settable) -> Row {
    Row { name, default, settable }
}

/// Which connections are taken: plain ones, or those that use TLS.
const TLS_MODE: &str = "tlsMode";
/// How much is said in the log.
const LOG_LEVEL: &str = "logLevel";
/// How much each part of the server says there.
const LOG_COMPONENTS: &str = "logComponentVerbosity";

const ANY_MIN: i64 = i64::MIN;
const ANY_MAX: i64 = i64::MAX;
const MEMORY: i32 = 100 * 1024 * 1024;

use Initial::{Bool, Double, Int, Long, Made, Text};
use Settable::{Always, AtStartup, Never};

/// Every parameter, by name.
pub static ROWS: &[Row] = &[
    row("allowDiskUseByDefault", Bool(true), Always),
    // The form of the documents of users, by which mongodump chooses what it asks for.
    row("authSchemaVersion", Int(5, ANY_MIN, ANY_MAX), Never),
    row("authenticationMechanisms", Made(mechanisms), Never),
    row("clientCursorMonitorFrequencySecs", Int(4, 1, ANY_MAX), Always),
    row("connPoolMaxConnsPerHost", Int(200, ANY_MIN, ANY_MAX), AtStartup),
    row("cursorTimeoutMillis", Long(600_000, ANY_MIN, ANY_MAX), Always),
    row("enableLocalhostAuthBypass", Bool(true), AtStartup),
    row("enableTestCommands", Bool(false), AtStartup),
    row("featureCompatibilityVersion", Made(|| ValueBuf::from(&doc! { "version": "6.0" })), Never),
    row("indexMaxNumGeneratedKeysPerDocument", Int(100_000, 1, ANY_MAX), AtStartup),
    row("internalDocumentSourceGroupMaxMemoryBytes", Long(MEMORY as i64, 1, ANY_MAX), Always),
    row(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        Long(MEMORY as i64, 1, ANY_MAX),
        Always,
    ),
    row("internalQueryExecYieldIterations", Int(1_000, ANY_MIN, ANY_MAX), Always),
    row("internalQueryMaxAddToSetBytes", Long(MEMORY as i64, 1, ANY_MAX), Always),
    row("internalQueryMaxBlockingSortMemoryUsageBytes", Int(MEMORY, 0, ANY_MAX), Always),
    row("internalQueryMaxPushBytes", Int(MEMORY, 1, ANY_MAX), Always),
    row("internalQueryTopNAccumulatorBytes", Int(MEMORY, 1, ANY_MAX), Always),
    row("journalCommitInterval", Int(100, 1, 500), Always),
    row(
        "localLogicalSessionTimeoutMinutes",
        Int(crate::session::TIMEOUT_MINUTES, 1, ANY_MAX),
        AtStartup,
    ),
    row(LOG_COMPONENTS, Made(|| ValueBuf::from(&log_components::initial())), Always),
    row(LOG_LEVEL, Int(0, 0, 5), Always),
    row("maxBSONDepth", Int(200, 1, ANY_MAX), Never),
    row("maxIndexBuildMemoryUsageMegabytes", Int(200, 50, ANY_MAX), Always),
    row("maxSessions", Int(1_000_000, 1, ANY_MAX), AtStartup),
    row(
        "maxTransactionLockRequestTimeoutMillis",
        Int(transactions::LOCK_TIMEOUT_MS, ANY_MIN, ANY_MAX),
        Always,
    ),
    row("minSnapshotHistoryWindowInSeconds", Int(snapshots::WINDOW_SECONDS, 0, ANY_MAX), Always),
    row("notablescan", Bool(false), Always),
    row(crate::memory::PARAMETER, Long(0, 0, ANY_MAX), Always),
    row("quiet", Bool(false), Always),
    row("scramIterationCount", Int(10_000, 5_000, ANY_MAX), Always),
    row("scramSHA256IterationCount", Int(15_000, 5_000, ANY_MAX), Always),
    row("slowConnectionThresholdMillis", Int(100, ANY_MIN, ANY_MAX), Always),
    row("syncdelay", Double(60.0), Always),
    row(TLS_MODE, Text("disabled"), Always),
    row("traceExceptions", Bool(false), Always),
    row("transactionLifetimeLimitSeconds", Int(transactions::LIFETIME_SECONDS, 1, ANY_MAX), Always),
    row(transactions::BYTES_PARAMETER, Long(transactions::BYTES_MAX, 0, ANY_MAX), Always),
    row(
        transactions::TOTAL_BYTES_PARAMETER,
        Long(transactions::TOTAL_BYTES_MAX, 0, ANY_MAX),
        Always,
    ),
    row("ttlMonitorEnabled", Bool(true), Always),
    row("ttlMonitorSleepSecs", Int(60, 1, ANY_MAX), Always),
];

fn mechanisms() -> ValueBuf {
    array(|out| {
        crate::command::MECHANISMS.iter().for_each(|name| {
            out.push(*name);
        });
    })
}

/// The values that were set.
#[derive(Default)]
pub struct Parameters {
    set: RwLock<BTreeMap<&'static str, ValueBuf>>,
}

/// Why a parameter was not set.
pub enum Refused {
    /// It has no such value.
    Value(Error),
    /// There is no such parameter.
    Unknown,
    /// It may not be set now.
    NotNow,
}

/// The row of the parameter with this name.
pub fn find(name: &[u8]) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name.as_bytes() == name)
}

impl Parameters {
    /// A parameter's value.
    pub fn get(&self, row: &Row) -> ValueBuf {
        if let Some(value) = self.set.read().get(row.name) {
            return value.clone();
        }
        match row.default {
            Bool(flag) => ValueBuf::from(flag),
            Int(number, ..) => ValueBuf::from(number),
            Long(number, ..) => ValueBuf::from(number),
            Double(number) => ValueBuf::from(number),
            Text(text) => ValueBuf::from(text),
            Made(make) => make(),
        }
    }

    /// A parameter's value as a number, or as zero or one.
    pub fn number(&self, name: &str) -> i64 {
        let row = find(name.as_bytes()).expect("the server asks for parameters it has");
        let value = self.get(row);
        value.get().as_exact_i64().unwrap_or(i64::from(value.get().is_truthy()))
    }

    /// A parameter's value as a flag.
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) != 0
    }
}

/// What no long can be.
const LONG_BOUND: f64 = 9_223_372_036_854_775_808.0;

impl Row {
    /// The value as this parameter holds it.
    fn coerce(&self, value: Value<'_>) -> Result<ValueBuf> {
        let whole = |least: i64, most: i64| -> Result<i64> {
            let number = match value {
                Value::String(text) => text.to_string().parse::<f64>().ok(),
                Value::Boolean(flag) => Some(f64::from(u8::from(flag))),
                other => other.as_f64(),
            };
            let number = number.ok_or_else(|| not_integral(self.name))?;
            if !number.is_finite() {
                return Err(not_finite(self.name));
            }
            if !(-LONG_BOUND..LONG_BOUND).contains(&number) {
                return Err(out_of_bounds(self.name));
            }
            #[allow(clippy::cast_possible_truncation)]
            let number = number as i64;
            match number {
                _ if number < least => Err(too_small(self.name, number, least)),
                _ if number > most => Err(too_large(self.name, number, most)),
                _ => Ok(number),
            }
        };
        match self.default {
            Bool(_) => Ok(ValueBuf::from(match value {
                Value::String(text) => text != "false" && text != "0",
                other => other.is_truthy(),
            })),
            Int(_, least, most) => {
                if self.name == LOG_LEVEL {
                    let level = log_components::level(value).filter(|level| *level >= 0);
                    let level = level.ok_or_else(|| bad_log_level(&value))?;
                    return Ok(ValueBuf::from(level.min(log_components::LEVEL_MAX)));
                }
                let number = whole(least.max(i64::from(i32::MIN)), most.min(i64::from(i32::MAX)))?;
                Ok(ValueBuf::from(i32::try_from(number).expect("the bounds are those of an i32")))
            }
            Long(_, least, most) => Ok(ValueBuf::from(whole(least, most)?)),
            Double(_) => {
                let number = match value {
                    Value::String(text) => text.to_string().parse::<f64>().ok(),
                    other => other.as_f64(),
                };
                Ok(ValueBuf::from(number.ok_or_else(|| not_a_number(self.name))?))
            }
            Text(_) | Made(_) => Ok(value.to_buf()),
        }
    }
}

impl Server {
    /// A parameter's value; of the feature compatibility version, what the data says.
    pub fn parameter(&self, row: &Row) -> ValueBuf {
        match row.name {
            "featureCompatibilityVersion" => {
                ValueBuf::from(&doc! { "version": self.db.feature_version().name() })
            }
            TLS_MODE => ValueBuf::from(self.tls_mode().name()),
            _ => self.parameters.get(row),
        }
    }

    fn tls_mode(&self) -> Mode {
        self.options.tls.as_ref().map_or(Mode::Disabled, |tls| tls.mode())
    }

    /// Changes the mode of TLS by one step: from both kinds of connections to those that use it.
    fn set_tls_mode(&self, value: Value<'_>) -> Result<ValueBuf> {
        let name = value.as_str().map(|name| name.to_string()).unwrap_or_default();
        let wanted = Mode::of_name(&name).ok_or_else(|| no_tls_mode(&name))?;
        let was = self.tls_mode();
        match (&self.options.tls, was, wanted) {
            (Some(tls), Mode::Allow, Mode::Prefer) | (Some(tls), Mode::Prefer, Mode::Require) => {
                tls.set_mode(wanted);
                Ok(ValueBuf::from(was.name()))
            }
            _ => Err(no_tls_step(was.name(), wanted.name())),
        }
    }

    /// Sets a parameter while the server runs; answers what it was.
    pub fn set_parameter(&self, name: &[u8], value: Value<'_>) -> Result<ValueBuf, Refused> {
        let row = find(name).ok_or(Refused::Unknown)?;
        if row.settable != Always {
            return Err(Refused::NotNow);
        }
        match row.name {
            TLS_MODE => self.set_tls_mode(value),
            _ => self.store_parameter(row, value),
        }
        .map_err(Refused::Value)
    }

    /// Sets a parameter from the command line or the configuration file, where values are text.
    ///
    /// Errors: one line that says what is wrong.
    pub fn set_parameter_at_startup(&self, name: &str, value: &str) -> Result<(), String> {
        let row = find(name.as_bytes()).filter(|row| row.settable != Never && row.name != TLS_MODE);
        let row =
            row.ok_or_else(|| format!("server parameter '{name}' is not known to this server"))?;
        // The level of the log is the one parameter that does not take its number as text.
        let number = value.parse::<i64>().ok();
        let value = number.map_or(Value::String(value.into()), Value::Int64);
        self.store_parameter(row, value)
            .map(|_| ())
            .map_err(|error| format!("server parameter '{name}': {}", error.message()))
    }

    fn store_parameter(&self, row: &'static Row, value: Value<'_>) -> Result<ValueBuf> {
        let was = self.parameters.get(row);
        let value = match row.name {
            LOG_COMPONENTS => {
                let current = was.get().as_doc().unwrap_or(Doc::EMPTY);
                ValueBuf::from(&log_components::changed(current, value)?)
            }
            _ => row.coerce(value)?,
        };
        self.parameters.set.write().insert(row.name, value.clone());
        match row.name {
            // The level of the log as a whole has two names.
            LOG_LEVEL => {
                let levels = find(LOG_COMPONENTS.as_bytes()).map(|row| self.parameters.get(row));
                let levels = levels.unwrap_or_else(|| ValueBuf::from(&DocBuf::new()));
                let current = levels.get().as_doc().unwrap_or(Doc::EMPTY);
                let change = doc! { "verbosity": value.get() };
                let levels = log_components::changed(current, Value::Document(change.as_doc()))?;
                self.parameters.set.write().insert(LOG_COMPONENTS, ValueBuf::from(&levels));
            }
            LOG_COMPONENTS => {
                let level = value.get().as_doc().and_then(|levels| levels.get("verbosity"));
                let level = level.unwrap_or(Value::Int32(0)).to_buf();
                self.parameters.set.write().insert(LOG_LEVEL, level);
            }
            "cursorTimeoutMillis" => {
                self.cursors.set_timeout_ms(self.parameters.number(row.name));
            }
            crate::memory::PARAMETER => {
                self.memory_setting.set(self.parameters.number(row.name));
            }
            "minSnapshotHistoryWindowInSeconds" => {
                self.snapshots.set_window_seconds(self.parameters.number(row.name));
            }
            "maxTransactionLockRequestTimeoutMillis" => {
                self.transactions.set_lock_timeout_ms(self.parameters.number(row.name));
            }
            "transactionLifetimeLimitSeconds" => {
                self.transactions.set_lifetime_seconds(self.parameters.number(row.name));
            }
            transactions::BYTES_PARAMETER => {
                self.transactions.set_bytes_max(self.parameters.number(row.name));
            }
            transactions::TOTAL_BYTES_PARAMETER => {
                self.transactions.set_total_bytes_max(self.parameters.number(row.name));
            }
            "notablescan" => self.db.set_must_use_indexes(self.parameters.flag(row.name)),
            _ => {}
        }
        Ok(was)
    }
}

/// The parameters and whether each may be set, as `showDetails` prints them.
pub fn write_details(row: &Row, value: &ValueBuf) -> DocBuf {
    doc! {
        "value": value,
        "settableAtRuntime": row.settable == Always,
        "settableAtStartup": row.settable != Never && row.name != TLS_MODE,
    }
}

#[cfg(test)]
mod tests {
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
        check("ttlMonitorEnabled", "x", Ok(ValueBuf::from(true)));
        check(
            "cursorTimeoutMillis",
            "x",
            Err("Failed validating cursorTimeoutMillis: Unable to coerce value to integral type"),
        );
        check("logLevel", -1, Err("Invalid value for logLevel: logLevel: -1"));
        check("logLevel", "x", Err("Invalid value for logLevel: logLevel: \"x\""));
        check(
            "ttlMonitorSleepSecs",
            0,
            Err(
                "Invalid value for parameter ttlMonitorSleepSecs: 0 is not greater than or equal to 1",
            ),
        );
    }

    #[test]
    fn rows_are_sorted() {
        assert!(ROWS.is_sorted_by_key(|row| row.name));
    }
}

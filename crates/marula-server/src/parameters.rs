//! Server parameters, for `getParameter` and `setParameter`.
//!
//! A parameter is a row of [`acting`] or of [`without_effect`]: its name in MongoDB, its default
//! with its type and bounds, and when it may be set.
//! Source: manual "MongoDB Server Parameters"; names, types and defaults recorded from mongod 6.0.

mod acting;
mod row;
mod without_effect;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use marula_bson::{Doc, DocBuf, Value, ValueBuf, doc};
use marula_error::{Error, Result, errors};
use parking_lot::RwLock;

use crate::log::components as log_components;
use crate::net::tls::Mode;
use crate::server::Server;
use crate::{fail_point, transactions};

pub(crate) use row::ParameterRow;

errors! {
    no_tls_mode(name: &str) = BadValue, "Invalid tlsMode setting '{name}', expected one of: 'disabled', 'allowTLS', 'preferTLS', or 'requireTLS'";
    no_tls_step(was: &str, wanted: &str) = BadValue, "Illegal state transition for tlsMode, attempt to change from {was} to {wanted}";
    no_such_mechanism(name: &str) = BadValue, "there is no authentication mechanism '{name}' here; there are SCRAM-SHA-256, SCRAM-SHA-1 and MONGODB-X509";
}

/// The permitted connections: plain ones, or those with TLS.
const TLS_MODE: &str = "tlsMode";
/// The same under its older name, with SSL in its values.
const SSL_MODE: &str = "sslMode";
/// The permitted authentication mechanisms.
const MECHANISMS: &str = "authenticationMechanisms";
/// The verbosity of the log.
const LOG_LEVEL: &str = "logLevel";
/// The verbosity of each component of the log.
const LOG_COMPONENTS: &str = "logComponentVerbosity";

/// The values that were set.
#[derive(Default)]
pub struct Parameters {
    set: RwLock<BTreeMap<&'static str, ValueBuf>>,
}

/// The reason for which a parameter was not set.
pub enum Refused {
    /// The value is not permitted.
    Value(Error),
    /// There is no such parameter.
    Unknown,
    /// The parameter cannot be set now.
    NotNow,
}

/// Every parameter, by name.
pub(crate) static ROWS: LazyLock<Vec<&'static ParameterRow>> = LazyLock::new(|| {
    let mut rows: Vec<&ParameterRow> = acting::ROWS.iter().chain(without_effect::ROWS).collect();
    rows.sort_by_key(|row| row.name);
    rows
});

/// Returns the row of the parameter with this name.
pub(crate) fn find(name: &[u8]) -> Option<&'static ParameterRow> {
    let at = ROWS.binary_search_by_key(&name, |row| row.name.as_bytes()).ok()?;
    Some(ROWS[at])
}

impl Parameters {
    /// Returns a parameter's value.
    pub fn get(&self, row: &ParameterRow) -> ValueBuf {
        self.set.read().get(row.name).cloned().unwrap_or_else(|| row.initial())
    }

    /// Returns a parameter's value as a number; a boolean is zero or one.
    pub fn number(&self, name: &str) -> i64 {
        let row = find(name.as_bytes()).expect("the server asks for parameters it has");
        let value = self.get(row);
        value.get().as_exact_i64().unwrap_or(i64::from(value.get().is_truthy()))
    }

    /// Returns a parameter's value as a boolean.
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) != 0
    }

    /// Returns whether this authentication mechanism is permitted.
    pub fn takes_mechanism(&self, name: &str) -> bool {
        self.set.read().get(MECHANISMS).is_none_or(|taken| {
            let taken = taken.get().as_array().unwrap_or(Doc::EMPTY);
            taken.iter().any(|element| element.value.get() == Value::String(name.into()))
        })
    }
}

impl Server {
    /// Returns a parameter's value; for the feature compatibility version, the stored one.
    pub fn parameter(&self, row: &ParameterRow) -> ValueBuf {
        match row.name {
            "featureCompatibilityVersion" => {
                ValueBuf::from(&doc! { "version": self.db.feature_version().name() })
            }
            TLS_MODE => ValueBuf::from(self.tls_mode().name()),
            SSL_MODE => ValueBuf::from(self.tls_mode().name().replace("TLS", "SSL").as_str()),
            _ => self.parameters.get(row),
        }
    }

    fn tls_mode(&self) -> Mode {
        self.options.tls.as_ref().map_or(Mode::Disabled, |tls| tls.mode())
    }

    /// Changes the TLS mode by one step: from both kinds of connections to those with TLS.
    fn set_tls_mode(&self, name: &str) -> Result<ValueBuf> {
        let wanted = Mode::of_name(name).ok_or_else(|| no_tls_mode(name))?;
        let was = self.tls_mode();
        match (&self.options.tls, was, wanted) {
            (Some(tls), Mode::Allow, Mode::Prefer) | (Some(tls), Mode::Prefer, Mode::Require) => {
                tls.set_mode(wanted);
                Ok(ValueBuf::from(was.name()))
            }
            _ => Err(no_tls_step(was.name(), wanted.name())),
        }
    }

    /// Sets a parameter while the server runs; returns its old value.
    pub fn set_parameter(&self, name: &[u8], value: Value<'_>) -> Result<ValueBuf, Refused> {
        let row = find(name).ok_or(Refused::Unknown)?;
        if !row.settable.at_runtime() {
            return Err(Refused::NotNow);
        }
        let text = || value.as_str().map(|text| text.to_string()).unwrap_or_default();
        match row.name {
            TLS_MODE => self.set_tls_mode(&text()),
            SSL_MODE => self.set_tls_mode(&text().replace("SSL", "TLS")),
            _ => self.store_parameter(row, value),
        }
        .map_err(Refused::Value)
    }

    /// Sets a parameter from the command line or the configuration file.
    ///
    /// Errors: a value that is not permitted.
    pub fn set_parameter_at_startup(&self, wanted: &AtStartup) -> Result<()> {
        self.store_parameter(wanted.row, wanted.value.get()).map(|_| ())
    }

    fn store_parameter(&self, row: &'static ParameterRow, value: Value<'_>) -> Result<ValueBuf> {
        let was = self.parameters.get(row);
        let value = match row.name {
            LOG_COMPONENTS => {
                let current = was.get().as_doc().unwrap_or(Doc::EMPTY);
                ValueBuf::from(&log_components::changed(current, value)?)
            }
            _ => row.coerce(value)?,
        };
        self.parameters.set.write().insert(row.name, value.clone());
        if row.does.is_none() {
            tracing::warn!(parameter = row.name, "this server parameter has no effect in Marula");
        }
        match row.name {
            // The verbosity of the whole log has two names.
            LOG_LEVEL => {
                let levels = find(LOG_COMPONENTS.as_bytes()).map(|row| self.parameters.get(row));
                let levels = levels.unwrap_or_else(|| ValueBuf::from(&DocBuf::new()));
                let current = levels.get().as_doc().unwrap_or(Doc::EMPTY);
                let change = doc! { "verbosity": value.get() };
                let levels = log_components::changed(current, Value::Document(change.as_doc()))?;
                self.parameters.set.write().insert(LOG_COMPONENTS, ValueBuf::from(&levels));
                self.log.set_levels(levels.as_doc());
            }
            LOG_COMPONENTS => {
                let level = value.get().as_doc().and_then(|levels| levels.get("verbosity"));
                let level = level.unwrap_or(Value::Int32(0)).to_buf();
                self.parameters.set.write().insert(LOG_LEVEL, level);
                self.log.set_levels(value.get().as_doc().unwrap_or(Doc::EMPTY));
            }
            "auditAuthorizationSuccess" => {
                if let Some(audit) = &self.options.audit {
                    audit.set_records_successes(self.parameters.flag(row.name));
                }
            }
            "quiet" => self.log.set_quiet(self.parameters.flag(row.name)),
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
            fail_point::PARAMETER => {
                self.fail_points.set_enabled(self.parameters.flag(row.name));
            }
            "requireApiVersion" => {
                let is_required = self.parameters.flag(row.name);
                self.requires_api_version.store(is_required, Ordering::Relaxed);
            }
            "notablescan" => self.db.set_must_use_indexes(self.parameters.flag(row.name)),
            _ => {}
        }
        Ok(was)
    }
}

/// A parameter from the command line or the configuration file.
pub struct AtStartup {
    row: &'static ParameterRow,
    value: ValueBuf,
}

impl AtStartup {
    /// Parses it; values are text there.
    ///
    /// Errors: one line with the cause.
    pub fn parse(name: &str, value: &str) -> Result<Self, String> {
        let row = find(name.as_bytes()).filter(|row| row.settable.at_startup());
        let row =
            row.ok_or_else(|| format!("server parameter '{name}' is not known to this server"))?;
        let value = row.parse(value).and_then(|value| {
            if row.name == MECHANISMS {
                check_mechanisms(value.get())?;
            }
            Ok(value)
        });
        let value =
            value.map_err(|error| format!("server parameter '{name}': {}", error.message()))?;
        Ok(AtStartup { row, value })
    }
}

/// Errors: an unknown mechanism.
fn check_mechanisms(names: Value<'_>) -> Result<()> {
    for element in names.as_array().unwrap_or(Doc::EMPTY) {
        let name = element.value.get().as_str().map(|name| name.to_string()).unwrap_or_default();
        if !crate::command::MECHANISMS.contains(&name.as_str()) {
            return Err(no_such_mechanism(&name));
        }
    }
    Ok(())
}

/// Returns a parameter and the times at which it may be set, as `showDetails` prints them.
pub(crate) fn write_details(row: &ParameterRow, value: &ValueBuf) -> DocBuf {
    doc! {
        "value": value,
        "settableAtRuntime": row.settable.at_runtime(),
        "settableAtStartup": row.settable.at_startup(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_one_row() {
        assert!(acting::ROWS.is_sorted_by_key(|row| row.name));
        assert!(without_effect::ROWS.is_sorted_by_key(|row| row.name));
        assert!(ROWS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(acting::ROWS.iter().all(|row| row.does.is_some()));
    }
}

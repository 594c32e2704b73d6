//! The options of the profiler: `operationProfiling` in mongod.conf.

use marula_bson::{DocBuf, ValueBuf};

use super::{parse, relaxed};
use crate::Failure;

/// The settings of the profiler.
#[derive(Debug, Default)]
pub(crate) struct ProfilingSettings {
    /// The level of every database.
    pub(crate) level: Option<i32>,
    pub(crate) slow_ms: Option<i32>,
    pub(crate) sample_rate: Option<f64>,
    /// The condition for records, in place of the threshold.
    pub(crate) filter: Option<DocBuf>,
}

impl ProfilingSettings {
    /// Sets one by its name in mongod.conf; returns the value as it is shown.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<ValueBuf, Failure> {
        match name.strip_prefix("operationProfiling.").unwrap_or_default() {
            "mode" => {
                let (level, mode) = match value {
                    "off" | "0" => (0, "off"),
                    "slowOp" | "1" => (1, "slowOp"),
                    "all" | "2" => (2, "all"),
                    other => {
                        return Err(format!("{name} '{other}' is not one of off, slowOp, all"));
                    }
                };
                self.level = Some(level);
                Ok(ValueBuf::from(mode))
            }
            "slowOpThresholdMs" => {
                let ms = parse(name, value, "a number of milliseconds")?;
                self.slow_ms = Some(ms);
                Ok(ValueBuf::from(ms))
            }
            "slowOpSampleRate" => {
                let rate: f64 = parse(name, value, "a number from 0 to 1")?;
                if !(0.0..=1.0).contains(&rate) {
                    return Err(format!("{name} '{value}' is not a number from 0 to 1"));
                }
                self.sample_rate = Some(rate);
                Ok(ValueBuf::from(rate))
            }
            "filter" => {
                self.filter = Some(relaxed::document(name, value)?);
                Ok(ValueBuf::from(value))
            }
            _ => Err(super::unknown(name)),
        }
    }
}

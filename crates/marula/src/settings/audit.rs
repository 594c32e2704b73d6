//! The options of the audit log: `auditLog` in mongod.conf.

use std::path::PathBuf;

use marula_bson::{DocBuf, ValueBuf};
use marula_server::options::{
    AuditDestination as Destination, AuditFormat as Format, AuditOptions, LogFile, Rotation,
};

use super::relaxed;
use crate::Failure;

/// The settings of the audit log.
#[derive(Debug, Default)]
pub(crate) struct AuditSettings {
    destination: Option<String>,
    format: Option<Format>,
    path: Option<PathBuf>,
    filter: Option<DocBuf>,
}

impl AuditSettings {
    /// Sets one by its name in mongod.conf; returns the value as it is shown.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<ValueBuf, Failure> {
        match name.strip_prefix("auditLog.").unwrap_or_default() {
            "destination" => match value {
                "file" | "console" => self.destination = Some(value.to_owned()),
                "syslog" => {
                    return Err(format!("{name} 'syslog' is refused: say file or console"));
                }
                other => return Err(format!("{name} '{other}' is not one of file, console")),
            },
            "format" => {
                self.format = Some(match value {
                    "JSON" => Format::Json,
                    "BSON" => Format::Bson,
                    other => return Err(format!("{name} '{other}' is not one of JSON, BSON")),
                });
            }
            "path" => self.path = Some(PathBuf::from(value)),
            "filter" => self.filter = Some(relaxed::document(name, value)?),
            _ => return Err(super::unknown(name)),
        }
        Ok(ValueBuf::from(value))
    }

    /// How the server is to audit; nothing where no destination is named.
    ///
    /// Errors: options that do not go together: half an audit log would be none.
    pub(crate) fn options(&self, rotation: Rotation) -> Result<Option<AuditOptions>, Failure> {
        let Some(destination) = &self.destination else {
            let is_set = self.format.is_some() || self.path.is_some() || self.filter.is_some();
            return match is_set {
                true => Err("auditLog needs auditLog.destination".to_owned()),
                false => Ok(None),
            };
        };
        let destination = match (destination.as_str(), self.format, &self.path) {
            ("file", Some(format), Some(path)) => {
                Destination::File(LogFile { path: path.clone(), rotation }, format)
            }
            ("file", ..) => {
                return Err(
                    "auditLog.destination 'file' needs auditLog.format and auditLog.path".into()
                );
            }
            (_, None, None) => Destination::Console,
            _ => {
                return Err(
                    "auditLog.format and auditLog.path go with auditLog.destination 'file'".into(),
                );
            }
        };
        Ok(Some(AuditOptions { destination, filter: self.filter.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(&str, &str)]) -> Result<bool, Failure> {
        let mut settings = AuditSettings::default();
        for (name, value) in options {
            settings.set(&format!("auditLog.{name}"), value)?;
        }
        Ok(settings.options(Rotation::Rename)?.is_some())
    }

    #[test]
    fn options_must_go_together() {
        let file = ("destination", "file");
        assert_eq!(check(&[]), Ok(false));
        assert_eq!(check(&[file, ("format", "BSON"), ("path", "/x")]), Ok(true));
        assert_eq!(check(&[("destination", "console")]), Ok(true));
        for wrong in [
            &[file][..],
            &[("path", "/x")],
            &[("destination", "syslog")],
            &[("destination", "console"), ("path", "/x")],
            &[file, ("format", "XML"), ("path", "/x")],
            &[file, ("filter", "{ a: ")],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}

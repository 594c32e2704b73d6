//! The options of TLS: `net.tls` in mongod.conf, and `net.ssl`, its older name.

use std::path::PathBuf;
use std::sync::Arc;

use marula_bson::ValueBuf;
use marula_server::network::{Demand, Files, Mode, Off, Tls};

use crate::Failure;
use crate::cli::TlsArgs;
use crate::mongod_args;
use crate::settings::{parse_flag, unknown};

/// The text that is shown instead of a password.
const PASSWORD: &str = "<password>";

/// The TLS settings.
#[derive(Debug, Default)]
pub(crate) struct TlsSettings {
    mode: Option<Mode>,
    certificate_key: Option<PathBuf>,
    files: Files,
    allows_without: bool,
    allows_invalid: bool,
    /// Whether more than the mode is set.
    is_detailed: bool,
}

impl TlsSettings {
    /// Sets an option by its name in mongod.conf; returns the newer name and the value to show.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(String, ValueBuf), Failure> {
        let key = name.get("net.tls.".len()..).unwrap_or_default();
        let key = match (name.starts_with("net.ssl."), key) {
            (true, "PEMKeyFile") => "certificateKeyFile",
            (true, "PEMKeyPassword") => "certificateKeyFilePassword",
            (true, "certificateKeyFile" | "certificateKeyFilePassword") => "",
            (_, key) => key,
        };
        let mut shown = ValueBuf::from(value);
        self.is_detailed |= key != "mode";
        match key {
            "mode" => {
                let newer = match value {
                    older if name.starts_with("net.tls.") => older,
                    "allowSSL" => "allowTLS",
                    "preferSSL" => "preferTLS",
                    "requireSSL" => "requireTLS",
                    other => other,
                };
                let mode = Mode::of_name(newer);
                self.mode =
                    Some(mode.ok_or_else(|| format!("unsupported value for {name} {value}"))?);
                shown = ValueBuf::from(newer);
            }
            "certificateKeyFile" => self.certificate_key = Some(PathBuf::from(value)),
            "certificateKeyFilePassword" => {
                self.files.password = Some(value.to_owned());
                shown = ValueBuf::from(PASSWORD);
            }
            "CAFile" => self.files.authorities = Some(PathBuf::from(value)),
            "CRLFile" => self.files.revocations = Some(PathBuf::from(value)),
            "allowConnectionsWithoutCertificates" => {
                self.allows_without = parse_flag(name, value)?;
                shown = ValueBuf::from(self.allows_without);
            }
            "allowInvalidCertificates" => {
                self.allows_invalid = parse_flag(name, value)?;
                shown = ValueBuf::from(self.allows_invalid);
            }
            // The option concerns connections to other members, of which there are none.
            "allowInvalidHostnames" => shown = ValueBuf::from(parse_flag(name, value)?),
            "disabledProtocols" => {
                for protocol in value.split(',').map(str::trim) {
                    match protocol {
                        "TLS1_2" => self.files.tls12_off = Off::Yes,
                        "TLS1_3" => self.files.tls13_off = Off::Yes,
                        // They are never offered.
                        "TLS1_0" | "TLS1_1" | "none" | "noTLS1_0" | "noTLS1_1" => {}
                        other => return Err(format!("Unrecognized disabledProtocols '{other}'")),
                    }
                }
            }
            _ => return Err(unknown(name)),
        }
        Ok((format!("net.tls.{key}"), shown))
    }

    /// Returns whether connections may use TLS.
    pub(crate) fn is_enabled(&self) -> bool {
        self.mode.is_some_and(|mode| mode != Mode::Disabled)
    }

    /// Checks that the settings are consistent.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let is_on = self.is_enabled();
        if !is_on && self.is_detailed {
            return Err("need to enable TLS via the sslMode/tlsMode flag when using TLS configuration parameters".to_owned());
        }
        if is_on && self.files.authorities.is_none() {
            return Err("The use of TLS without specifying a chain of trust is no longer supported: say --tlsCAFile".to_owned());
        }
        if is_on && self.certificate_key.is_none() {
            return Err(
                "need tlsCertificateKeyFile or certificateSelector when TLS is enabled".to_owned()
            );
        }
        Ok(())
    }

    /// Reads the files, if TLS is on.
    pub(crate) fn open(&self) -> Result<Option<Arc<Tls>>, Failure> {
        let (Some(mode), Some(certificate_key)) = (self.mode, &self.certificate_key) else {
            return Ok(None);
        };
        if mode == Mode::Disabled {
            return Ok(None);
        }
        let demand = match (self.allows_invalid, self.allows_without) {
            (true, _) => Demand::Any,
            (false, true) => Demand::ValidIfGiven,
            (false, false) => Demand::Valid,
        };
        let certificate_key = certificate_key.clone();
        let files = Files { certificate_key, demand, ..self.files.clone() };
        Ok(Some(Arc::new(Tls::open(mode, files)?)))
    }
}

/// Returns the options of the command line, by names in mongod.conf.
pub(crate) fn of_args(args: &TlsArgs) -> impl Iterator<Item = (&'static str, String)> {
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    [
        ("net.tls.mode", args.mode.clone()),
        ("net.ssl.mode", args.ssl_mode.clone()),
        ("net.tls.certificateKeyFile", args.certificate_key_file.clone()),
        ("net.tls.certificateKeyFilePassword", args.certificate_key_file_password.clone()),
        ("net.tls.CAFile", args.ca_file.clone()),
        ("net.tls.CRLFile", args.crl_file.clone()),
        ("net.tls.allowConnectionsWithoutCertificates", flag(args.allow_without_certificates)),
        ("net.tls.allowInvalidCertificates", flag(args.allow_invalid_certificates)),
        ("net.tls.allowInvalidHostnames", flag(args.allow_invalid_hostnames)),
        ("net.tls.disabledProtocols", args.disabled_protocols.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Returns a command line in the form to show.
pub(crate) fn without_passwords(argv: impl Iterator<Item = String>) -> Vec<String> {
    const NAMES: [&str; 2] = ["tlsCertificateKeyFilePassword", "sslPEMKeyPassword"];
    let names: Vec<&str> = NAMES.into_iter().chain(mongod_args::secret_flags()).collect();
    let is_secret = |word: &str| word.strip_prefix("--").is_some_and(|name| names.contains(&name));
    let mut follows = false;
    argv.map(|word| {
        if std::mem::take(&mut follows) {
            return PASSWORD.to_owned();
        }
        follows = is_secret(&word);
        match word.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={PASSWORD}"),
            _ => urls_without_passwords(&word),
        }
    })
    .collect()
}

/// Returns a text with the password of each URL in it, `scheme://user:password@host`, hidden.
pub(crate) fn urls_without_passwords(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str("://");
        // The last `@` before the next URL ends the password, which may have any character.
        let user_len = part.rfind('@').unwrap_or(0);
        match part[..user_len].split_once(':') {
            Some((user, _)) => {
                shown.push_str(user);
                shown.push(':');
                shown.push_str(PASSWORD);
                shown.push_str(&part[user_len..]);
            }
            None => shown.push_str(part),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_not_shown() {
        for (given, shown) in [
            ("http://a:1,https://b:2/x", "http://a:1,https://b:2/x"),
            ("http://u:p@a:1,http://u:p/@q@b:2", "http://u:<password>@a:1,http://u:<password>@b:2"),
            ("--endpoints=https://u:p@[::1]:1", "--endpoints=https://u:<password>@[::1]:1"),
            ("u:p@a", "u:p@a"),
        ] {
            assert_eq!(urls_without_passwords(given), shown);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let argv = [
            "m",
            "--tlsCertificateKeyFilePassword",
            "p",
            "--sslPEMKeyPassword=p",
            "--port=1",
            "--tlsClusterPassword",
            "p",
        ];
        let shown = without_passwords(argv.iter().map(|word| (*word).to_owned()));
        let hidden = "--sslPEMKeyPassword=<password>";
        assert_eq!(
            shown,
            [
                "m",
                "--tlsCertificateKeyFilePassword",
                "<password>",
                hidden,
                "--port=1",
                "--tlsClusterPassword",
                "<password>"
            ]
        );
    }

    #[test]
    fn older_names_mean_the_newer() {
        let mut settings = TlsSettings::default();
        let (name, shown) = settings.set("net.ssl.mode", "requireSSL").unwrap();
        assert_eq!((name.as_str(), shown), ("net.tls.mode", ValueBuf::from("requireTLS")));
        assert!(settings.check().is_err());
        assert_eq!(
            settings.set("net.ssl.PEMKeyFile", "x").unwrap().0,
            "net.tls.certificateKeyFile"
        );
        assert!(settings.set("net.ssl.certificateKeyFile", "x").is_err());
    }
}

//! The files of TLS: certificates, keys, revocations, and the configuration made from them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion, version,
};
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use super::pem::{certificates, key, revocations, sections};

/// The requirement on a client's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Demand {
    /// It is required and must be valid.
    #[default]
    Valid,
    /// It is optional, and must be valid.
    ValidIfGiven,
    /// It is optional and not checked; it then identifies no user.
    Any,
}

/// The operator's files, and their options.
#[derive(Clone, Default)]
pub struct Files {
    /// The server's certificate, its chain, and its key.
    pub certificate_key: PathBuf,
    /// The password of the key.
    pub password: Option<String>,
    /// The authorities for clients' certificates; without them none are requested.
    pub authorities: Option<PathBuf>,
    /// Revoked certificates.
    pub revocations: Option<PathBuf>,
    /// The requirement on clients' certificates.
    pub demand: Demand,
    /// Whether TLS 1.2 is disabled.
    pub tls12_off: Off,
    /// Whether TLS 1.3 is disabled.
    pub tls13_off: Off,
}

/// Whether a version of the protocol is disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Off {
    /// It is enabled.
    #[default]
    No,
    /// It is disabled.
    Yes,
}

impl fmt::Debug for Files {
    /// Prints all but the password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Files")
            .field("certificate_key", &self.certificate_key)
            .field("authorities", &self.authorities)
            .field("demand", &self.demand)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Returns whether a client's certificate is checked.
    pub(super) fn certificates_are_proven(&self) -> bool {
        self.authorities.is_some() && self.demand != Demand::Any
    }
}

/// Reads the files and returns the configuration for connections.
pub(super) fn load(files: &Files) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    if files.tls13_off == Off::No {
        versions.push(&version::TLS13);
    }
    if files.tls12_off == Off::No {
        versions.push(&version::TLS12);
    }
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| format!("no version of TLS is left: {error}"))?;
    let builder = match verifier(files, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let path = &files.certificate_key;
    let sections = sections(path)?;
    let key = key(path, &sections, files.password.as_deref())?;
    let chain = certificates(&sections);
    if chain.is_empty() {
        return Err(format!("'{}' holds no certificate", path.display()));
    }
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("cannot use the certificate of '{}': {error}", path.display()))?;
    Ok(Arc::new(config))
}

fn verifier(
    files: &Files,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(path) = &files.authorities else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&sections(path)?) {
        roots
            .add(certificate)
            .map_err(|error| format!("'{}' holds a broken certificate: {error}", path.display()))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(path) = &files.revocations {
        let lists = revocations(&sections(path)?);
        if lists.is_empty() {
            return Err(format!("'{}' holds no list of revoked certificates", path.display()));
        }
        // As in mongod, only the client's own certificate is looked up.
        builder = builder
            .with_crls(lists)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    if files.demand != Demand::Valid {
        builder = builder.allow_unauthenticated();
    }
    let verifier =
        builder.build().map_err(|error| format!("cannot use '{}': {error}", path.display()))?;
    Ok(Some(match files.demand {
        Demand::Any => Arc::new(Lenient(verifier)),
        _ => verifier,
    }))
}

/// Accepts certificates of unknown authorities; that the client has the key is still checked.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Err(error) = self.0.verify_client_cert(certificate, chain, now) {
            tracing::warn!(%error, "a client's certificate is not valid, which is allowed");
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns the subject of a certificate as a user's name: RFC 2253, the last part first.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let mut parts = Vec::new();
    for part in certificate.subject().iter_rdn() {
        let attributes: Option<Vec<_>> = part.iter().map(attribute).collect();
        parts.push(attributes?.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let kind = attribute.attr_type().to_id_string();
    let name = match kind.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.1" => "UID",
        "1.2.840.113549.1.9.1" => "emailAddress",
        other => other,
    };
    Some(format!("{name}={}", escaped(attribute.as_str().ok()?)))
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        let is_edge =
            (index == 0 && matches!(character, ' ' | '#')) || (index == last && character == ' ');
        if is_edge || matches!(character, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_subject_are_escaped() {
        for (value, expected) in
            [("a, b", "a\\, b"), (" x ", "\\ x\\ "), ("#1", "\\#1"), ("a#", "a#"), ("", "")]
        {
            assert_eq!(escaped(value), expected);
        }
    }
}

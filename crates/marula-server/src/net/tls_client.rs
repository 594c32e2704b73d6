//! TLS as a client speaks it: programs of this binary that connect to a server.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use super::pem::{certificates, key, sections};

/// Makes the settings of a client that checks the server's certificate and its name.
///
/// `authorities` holds the certificates that vouch for the server; without it those that the system
/// trusts do. `certificate_key` holds the client's own certificate and its key.
///
/// Errors: a file that cannot be read or holds something else, a system without authorities.
pub fn config(
    authorities: Option<&Path>,
    certificate_key: Option<&Path>,
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no version of TLS is there: {error}"))?
        .with_root_certificates(roots(authorities)?);
    let Some(path) = certificate_key else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let sections = sections(path)?;
    let config = builder
        .with_client_auth_cert(certificates(&sections), key(path, &sections, None)?)
        .map_err(|error| format!("cannot use the certificate of '{}': {error}", path.display()))?;
    Ok(Arc::new(config))
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            for certificate in certificates(&sections(path)?) {
                roots.add(certificate).map_err(|error| {
                    format!("'{}' holds a broken certificate: {error}", path.display())
                })?;
            }
            if roots.is_empty() {
                return Err(format!("'{}' holds no certificate", path.display()));
            }
        }
        None => {
            // A system has odd certificates here and there; each is one authority less.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("the system trusts no authority; name a file with one".to_owned());
            }
        }
    }
    Ok(roots)
}

//! The version and commit of this program.

use marula_server::options::Build;

/// The version and the commit, which the build script puts into the environment.
pub(crate) const BUILD: Build =
    Build { version: env!("CARGO_PKG_VERSION"), commit: env!("MARULA_COMMIT") };

/// Both, as `--version` shows them.
pub(crate) const SHOWN: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("MARULA_COMMIT"), ")");

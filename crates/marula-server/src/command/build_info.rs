//! `buildInfo`: the version of the server and its limits.

use marula_bson::{DocWriter, doc_fields};
use marula_error::Result;
use marula_query::feature_version::FeatureVersion;

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::request::Request;

/// Returns the MongoDB version that this server behaves as, as text and in parts; drivers and tools
/// select features by it. For 6.0 it is the release that its replies were compared with.
pub(crate) fn compatible_version(version: FeatureVersion) -> (&'static str, [i32; 4]) {
    match version {
        FeatureVersion::V6_0 => (COMPARED_WITH, [6, 0, 27, 0]),
        FeatureVersion::V7_0 => ("7.0.0", [7, 0, 0, 0]),
        FeatureVersion::V8_0 => ("8.0.0", [8, 0, 0, 0]),
    }
}

/// The release of MongoDB that the replies of this server were compared with.
pub(crate) const COMPARED_WITH: &str = "6.0.27";
/// The commit of the build, which the program does not know.
pub const GIT_VERSION: &str = "unknown";
/// The maximum size of a stored document.
pub(crate) const DOCUMENT_BYTES_MAX: i32 = 16 * 1024 * 1024;

pub(super) static COMMAND: Command = Command {
    name: "buildInfo",
    aliases: &["buildinfo"],
    help: "Returns the MongoDB version that this server behaves as, its own version, and limits.",
    place: CommandPlace::Inline,
    run,
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let engine = context.server.db.engine().name;
    let (version, parts_of_version) = compatible_version(request.version);
    doc_fields!(reply;
        "version": version,
        "gitVersion": GIT_VERSION,
        "modules": [],
        "allocator": "mimalloc",
        "javascriptEngine": "quickjs",
        "sysInfo": "deprecated",
    );
    let mut parts = reply.begin_array("versionArray");
    parts_of_version.iter().for_each(|&part| {
        parts.push(part);
    });
    drop(parts);
    doc_fields!(reply;
        "openssl": { "running": "disabled", "compiled": "disabled" },
        "buildEnvironment": {
            "distmod": "",
            "distarch": std::env::consts::ARCH,
            "cc": "",
            "ccflags": "",
            "cxx": "",
            "cxxflags": "",
            "linkflags": "",
            "target_arch": std::env::consts::ARCH,
            "target_os": std::env::consts::OS,
            "cppdefines": "",
        },
        "bits": 64,
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": DOCUMENT_BYTES_MAX,
        "storageEngines": [engine],
        "marula": env!("CARGO_PKG_VERSION"),
    );
    Ok(Outcome::Done)
}

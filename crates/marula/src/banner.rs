//! The first lines of the log: which server this is, how and on what it was started.

use marula_bson::doc;
use marula_server::logging::attributes;
use marula_server::machine::{distribution, host_name, kernel_release};

use crate::settings::{EngineKind, Settings};

/// Writes the lines.
pub(crate) fn log(settings: &Settings, port: u16) {
    let engine = match settings.engine {
        EngineKind::RocksDb => "rocksdb",
        EngineKind::Memory => "memory",
        EngineKind::Sim => "sim",
        EngineKind::Etcd => "etcd",
        EngineKind::Fdb => "fdb",
    };
    let host = host_name();
    let attr = attributes(|out| {
        out.append("pid", i64::from(std::process::id())).append("port", i32::from(port));
        if settings.engine.is_in_folder() {
            out.append("dbPath", settings.dbpath.display().to_string().as_str());
        }
        out.append("architecture", "64-bit").append("host", host.as_str());
        out.append("server", "Marula").append("engine", engine);
    });
    tracing::info!(target: "CONTROL", id = 4_615_611, attr, "MongoDB starting");
    let build = doc! {
        "version": marula_server::VERSION,
        "gitVersion": marula_server::GIT_VERSION,
        "marula": env!("CARGO_PKG_VERSION"),
        "modules": [],
        "allocator": "mimalloc",
        "environment": {
            "distarch": std::env::consts::ARCH,
            "target_arch": std::env::consts::ARCH,
            "target_os": std::env::consts::OS,
        },
    };
    let attr = attributes(|out| {
        out.append("buildInfo", &build);
    });
    tracing::info!(target: "CONTROL", id = 23_403, attr, "Build Info");
    let (name, _) = distribution();
    let version = format!("Kernel {}", kernel_release());
    let attr = attributes(|out| {
        let mut os = out.begin_doc("os");
        os.append("name", name.as_str()).append("version", version.as_str());
    });
    tracing::info!(target: "CONTROL", id = 51_765, attr, "Operating System");
    let attr = attributes(|out| {
        out.append("options", &settings.document());
    });
    tracing::info!(target: "CONTROL", id = 21_951, attr, "Options set by command line");
    for warning in &settings.warnings {
        let (option, value, reason) = (&warning.option, &warning.value, warning.why);
        tracing::warn!(target: "CONTROL", option, value, reason, "This option has no effect in Marula");
    }
}

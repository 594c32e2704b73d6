//! Information about the machine and the process, for `hostInfo` and `serverStatus`.

use std::fs;

/// Returns the machine's name.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns a number in kB from a file such as `/proc/meminfo`, in bytes.
pub(crate) fn proc_bytes(file: &str, field: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a number without a unit from a file such as `/proc/self/io`.
pub(crate) fn proc_number(file: &str, field: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

/// Returns the operating system's release, such as `5.15.0`.
pub fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Returns the name and version of the distribution.
pub fn distribution() -> (String, String) {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    (field("NAME"), field("VERSION_ID"))
}

/// Returns the processors' model.
pub(crate) fn processor_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(String::new, |(_, model)| model.trim().to_owned())
}

/// Returns the processors' frequency in MHz, as the system prints it.
pub(crate) fn processor_mhz() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("cpu MHz"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(String::new, |(_, mhz)| mhz.trim().to_owned())
}

/// Returns processor times and page faults of this process: user µs, system µs, minor faults, major
/// faults.
pub(crate) fn usage() -> (i64, i64, i64, i64) {
    // Fields of /proc/self/stat after the name, which may contain blanks: state is the first of
    // them.
    const TICK_US: i64 = 10_000;
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let number =
        |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok()).unwrap_or(0);
    (number(11) * TICK_US, number(12) * TICK_US, number(7), number(9))
}

/// Returns the used and total bytes of the file system that contains `path`; the administrator's
/// reserve counts as used. `None` if they cannot be determined.
pub(crate) fn file_system(path: &str) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let total = stat.f_blocks.checked_mul(stat.f_frsize)?;
    let free = stat.f_bavail.checked_mul(stat.f_frsize)?;
    Some((total.saturating_sub(free), total))
}

/// Returns the machine's name and the server's port, as `currentOp` shows them.
pub(crate) fn name_and_port(server: &crate::server::Server) -> String {
    format!("{}:{}", host_name(), port(server))
}

/// Returns the machine's name, with the server's port unless that is MongoDB's, as `serverStatus`
/// shows them.
pub(crate) fn name_and_special_port(server: &crate::server::Server) -> String {
    match port(server) {
        "27017" => host_name(),
        _ => name_and_port(server),
    }
}

fn port(server: &crate::server::Server) -> &str {
    server.options.host.rsplit(':').next().unwrap_or_default()
}

/// Returns the maximum number of open files of this process.
pub(crate) fn open_files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

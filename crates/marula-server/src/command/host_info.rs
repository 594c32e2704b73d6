//! `hostInfo`: the machine and the operating system that the server runs on.

use std::thread;

use marula_bson::{DocWriter, Value, doc_fields};
use marula_error::Result;

use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::context::Context;
use crate::host;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "hostInfo",
    help: "Returns facts about the machine: name, memory, processors, operating system.",
    place: CommandPlace::Reserved,
    fields: Fields::Strict { place: "hostInfo", fields: &[] },
    auth: Auth::Cluster(&["hostInfo"]),
    run,
    ..Command::DEFAULT
};

fn run(context: &mut Context<'_>, _: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = i32::try_from(cores).unwrap_or(i32::MAX);
    let memory = host::proc_bytes("/proc/meminfo", "MemTotal").unwrap_or(0);
    let memory_mb = i32::try_from(memory / (1024 * 1024)).unwrap_or(i32::MAX);
    let release = host::kernel_release();
    let (name, version) = host::distribution();
    doc_fields!(reply;
        "system": {
            "currentTime": Value::DateTime(context.now_ms),
            "hostname": &host::name_and_special_port(context.server),
            "cpuAddrSize": 64,
            "memSizeMB": memory_mb,
            "memLimitMB": memory_mb,
            "numCores": cores,
            "numPhysicalCores": cores,
            "numCpuSockets": 1,
            "cpuArch": std::env::consts::ARCH,
            "numaEnabled": false,
            "numNumaNodes": 1,
        },
        "os": { "type": "Linux", "name": &name, "version": &version },
        "extra": {
            "versionString": &release,
            "kernelVersion": &release,
            "cpuString": &host::processor_model(),
            "cpuFrequencyMHz": &host::processor_mhz(),
            "pageSize": 4096_i64,
            "maxOpenFiles": i32::try_from(host::open_files_max()).unwrap_or(i32::MAX),
        },
    );
    Ok(Outcome::Done)
}

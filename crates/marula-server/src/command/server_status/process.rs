//! Statistics of the process, from the operating system.

use marula_bson::{DocWriter, doc_fields};

use super::{Section, int, long};
use crate::host;

pub(super) fn extra_info(_: &Section<'_>, out: &mut DocWriter<'_>) {
    let (user_us, system_us, minor_faults, major_faults) = host::usage();
    let status = |field: &str| long(host::proc_number("/proc/self/status", field).unwrap_or(0));
    let blocks = |field: &str| long(host::proc_number("/proc/self/io", field).unwrap_or(0) / 512);
    let resident_kb = host::proc_bytes("/proc/self/status", "VmHWM").unwrap_or(0) / 1024;
    doc_fields!(out;
        "note": "fields vary by platform",
        "user_time_us": user_us,
        "system_time_us": system_us,
        "maximum_resident_set_kb": long(resident_kb),
        "input_blocks": blocks("read_bytes"),
        "output_blocks": blocks("write_bytes"),
        "page_reclaims": minor_faults,
        "page_faults": major_faults,
        "voluntary_context_switches": status("voluntary_ctxt_switches"),
        "involuntary_context_switches": status("nonvoluntary_ctxt_switches"),
        "threads": status("Threads"),
    );
}

pub(super) fn mem(_: &Section<'_>, out: &mut DocWriter<'_>) {
    const MB: u64 = 1024 * 1024;
    let bytes = |field: &str| host::proc_bytes("/proc/self/status", field).unwrap_or(0);
    doc_fields!(out;
        "bits": 64,
        "resident": int(bytes("VmRSS") / MB),
        "virtual": int(bytes("VmSize") / MB),
        "supported": true,
    );
}

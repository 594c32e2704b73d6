//! Statistics of connections, bytes and messages.

use marula_bson::{DocWriter, doc_fields};
use marula_wire::Compressor;

use super::{Section, int, long};

pub(super) fn connections(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let connections = section.server.network.get().map(|counters| counters.connections());
    let connections = connections.unwrap_or_default();
    let waiting = section.server.primacy.waiting();
    doc_fields!(out;
        "current": int(connections.current),
        "available": int(connections.available),
        "totalCreated": int(connections.total_created),
        "active": int(connections.active),
        "threaded": 0,
        "exhaustIsMaster": 0,
        "exhaustHello": 0,
        "awaitingTopologyChanges": int(waiting as u64),
    );
}

pub(super) fn network(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let network = section.server.network.get().map(|counters| counters.network());
    let network = network.unwrap_or_default();
    doc_fields!(out;
        "bytesIn": long(network.bytes_in),
        "bytesOut": long(network.bytes_out),
        "physicalBytesIn": long(network.physical_bytes_in),
        "physicalBytesOut": long(network.physical_bytes_out),
        "numSlowDNSOperations": 0_i64,
        "numSlowSSLOperations": 0_i64,
        "numRequests": long(network.requests),
    );
    // The kernel's setting; this server does not use TCP Fast Open itself.
    let mut fast_open = out.begin_doc("tcpFastOpen");
    let kernel = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap_or_default();
    doc_fields!(fast_open;
        "kernelSetting": kernel.trim().parse::<i64>().unwrap_or(0),
        "serverSupported": false,
        "clientSupported": false,
        "accepted": 0_i64,
    );
    drop(fast_open);
    let mut all = out.begin_doc("compression");
    for compressor in [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib] {
        let Some(counted) = network.compression.get(usize::from(compressor.id())) else { continue };
        let mut one = all.begin_doc(compressor.name());
        doc_fields!(one;
            "compressor": { "bytesIn": long(counted.compressor_in), "bytesOut": long(counted.compressor_out) },
            "decompressor": { "bytesIn": long(counted.decompressor_in), "bytesOut": long(counted.decompressor_out) },
        );
    }
    drop(all);
    let connections = section.server.network.get().map(|counters| counters.connections());
    let connections = connections.unwrap_or_default();
    let (total, running) = (int(connections.current), int(connections.active));
    // A fixed number of workers serves all connections.
    doc_fields!(out;
        "serviceExecutors": {
            "passthrough": {
                "threadsRunning": 0, "clientsInTotal": 0, "clientsRunning": 0, "clientsWaitingForData": 0,
            },
            "fixed": {
                "threadsRunning": int(network.workers),
                "clientsInTotal": total,
                "clientsRunning": running,
                "clientsWaitingForData": total.saturating_sub(running),
            },
        },
    );
}

/// Writes that no traffic is recorded: this server does not have the feature.
pub(super) fn traffic_recording(_: &Section<'_>, out: &mut DocWriter<'_>) {
    out.append("running", false);
}

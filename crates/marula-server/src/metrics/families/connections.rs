//! Connections, bytes, and the threads that serve them.

use crate::metrics::exposition::{Family, Kind};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "marula_connections",
        kind: Kind::Gauge,
        help: "Connections that are open, that have a request in progress, and that can still be opened",
        write: |reading, out| {
            out.labelled(&[("state", "current")], reading.connections.current);
            out.labelled(&[("state", "active")], reading.connections.active);
            out.labelled(&[("state", "available")], reading.connections.available);
        },
    },
    Family {
        name: "marula_connections_created_total",
        kind: Kind::Counter,
        help: "Connections that were opened",
        write: |reading, out| out.one(reading.connections.total_created),
    },
    Family {
        name: "marula_connections_rejected_total",
        kind: Kind::Counter,
        help: "Connections that were closed immediately because a limit was reached",
        write: |reading, out| out.one(reading.connections.rejected),
    },
    Family {
        name: "marula_tls_handshakes_total",
        kind: Kind::Counter,
        help: "Completed TLS handshakes, by version",
        write: |reading, out| {
            if let Some(tls) = &reading.server.options.tls {
                let (tls12, tls13) = tls.handshakes();
                out.labelled(&[("version", "1.2")], tls12);
                out.labelled(&[("version", "1.3")], tls13);
            }
        },
    },
    Family {
        name: "marula_network_requests_total",
        kind: Kind::Counter,
        help: "Messages received",
        write: |reading, out| out.one(reading.network.requests),
    },
    Family {
        name: "marula_network_bytes_total",
        kind: Kind::Counter,
        help: "Size of requests and replies, uncompressed",
        write: |reading, out| {
            out.labelled(&[("direction", "in")], reading.network.bytes_in);
            out.labelled(&[("direction", "out")], reading.network.bytes_out);
        },
    },
    Family {
        name: "marula_network_physical_bytes_total",
        kind: Kind::Counter,
        help: "Size of requests and replies as received and sent",
        write: |reading, out| {
            out.labelled(&[("direction", "in")], reading.network.physical_bytes_in);
            out.labelled(&[("direction", "out")], reading.network.physical_bytes_out);
        },
    },
    Family {
        name: "marula_network_workers",
        kind: Kind::Gauge,
        help: "Network workers: threads that serve the connections",
        write: |reading, out| out.one(reading.network.workers),
    },
    Family {
        name: "marula_overloads_total",
        kind: Kind::Counter,
        help: "Requests that were rejected because too many waited for a pool thread",
        write: |reading, out| out.one(reading.network.overloads),
    },
    Family {
        name: "marula_late_workers_total",
        kind: Kind::Counter,
        help: "Times that a network worker spent more than a second with one connection",
        write: |reading, out| out.one(reading.network.late),
    },
];

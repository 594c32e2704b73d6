//! Commands, documents, cursors, sessions, transactions.

use marula_db::plan_cache::plan_cache_bytes;

use crate::counters::Counter;
use crate::metrics::exposition::{Family, Kind, Samples};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "marula_command_duration_seconds",
        kind: Kind::Histogram,
        help: "Time from the arrival of a request to its reply, by command; waiting for a sync of the disk is not included",
        write: |reading, out| {
            for (command, counted) in reading.server.counters.by_command() {
                let times = counted.times.read();
                if times.count() > 0 {
                    out.times(&[("command", command.name)], &times);
                }
            }
        },
    },
    Family {
        name: "marula_command_failures_total",
        kind: Kind::Counter,
        help: "Commands that failed, by command",
        write: |reading, out| {
            for (command, counted) in reading.server.counters.by_command() {
                if counted.failed.get() > 0 {
                    out.labelled(&[("command", command.name)], counted.failed.get());
                }
            }
        },
    },
    Family {
        name: "marula_unknown_commands_total",
        kind: Kind::Counter,
        help: "Requests with an unknown command",
        write: |reading, out| out.one(reading.server.counters.unknown_commands.get()),
    },
    Family {
        name: "marula_operations_total",
        kind: Kind::Counter,
        help: "Operations as serverStatus.opcounters counts them: each statement of a write is one",
        write: |reading, out| {
            let counters = &reading.server.counters;
            counted(
                out,
                "type",
                &[
                    ("insert", &counters.insert),
                    ("query", &counters.query),
                    ("update", &counters.update),
                    ("delete", &counters.delete),
                    ("getmore", &counters.get_more),
                    ("command", &counters.command),
                ],
            );
        },
    },
    Family {
        name: "marula_documents_total",
        kind: Kind::Counter,
        help: "Documents inserted, returned, updated and deleted",
        write: |reading, out| {
            let counters = &reading.server.counters;
            counted(
                out,
                "action",
                &[
                    ("inserted", &counters.documents_inserted),
                    ("returned", &counters.documents_returned),
                    ("updated", &counters.documents_updated),
                    ("deleted", &counters.documents_deleted),
                ],
            );
        },
    },
    Family {
        name: "marula_examined_total",
        kind: Kind::Counter,
        help: "Index keys and documents that plans examined",
        write: |reading, out| {
            let counters = &reading.server.counters;
            counted(
                out,
                "kind",
                &[("keys", &counters.keys_examined), ("documents", &counters.documents_examined)],
            );
        },
    },
    Family {
        name: "marula_collection_scans_total",
        kind: Kind::Counter,
        help: "Collection scans",
        write: |reading, out| out.one(reading.server.counters.scans.get()),
    },
    Family {
        name: "marula_sorts_without_index_total",
        kind: Kind::Counter,
        help: "Sorts without an index",
        write: |reading, out| out.one(reading.server.counters.sorts.get()),
    },
    Family {
        name: "marula_plan_cache_bytes",
        kind: Kind::Gauge,
        help: "Memory of the plan caches, estimated",
        write: |_, out| out.one(plan_cache_bytes()),
    },
    Family {
        name: "marula_cursors",
        kind: Kind::Gauge,
        help: "Cursors that are open, that a command is reading, and that have no timeout",
        write: |reading, out| {
            let cursors = &reading.cursors;
            out.labelled(&[("state", "open")], cursors.open);
            out.labelled(&[("state", "pinned")], cursors.pinned);
            out.labelled(&[("state", "no_timeout")], cursors.no_timeout);
        },
    },
    Family {
        name: "marula_cursors_opened_total",
        kind: Kind::Counter,
        help: "Cursors that were opened: those of pipelines, and those of queries with another batch",
        write: |reading, out| out.one(reading.cursors.total_opened),
    },
    Family {
        name: "marula_cursors_timed_out_total",
        kind: Kind::Counter,
        help: "Cursors that were closed because they were idle for too long",
        write: |reading, out| out.one(reading.cursors.timed_out),
    },
    Family {
        name: "marula_sessions",
        kind: Kind::Gauge,
        help: "Active logical sessions",
        write: |reading, out| out.one(reading.server.sessions.count() as u64),
    },
    Family {
        name: "marula_transactions",
        kind: Kind::Gauge,
        help: "Open transactions, by whether one of their commands is running",
        write: |reading, out| {
            out.labelled(&[("state", "active")], reading.transactions.active);
            out.labelled(&[("state", "inactive")], reading.transactions.inactive);
        },
    },
    Family {
        name: "marula_transactions_total",
        kind: Kind::Counter,
        help: "Transactions that were started, committed and aborted",
        write: |reading, out| {
            out.labelled(&[("event", "started")], reading.transactions.started);
            out.labelled(&[("event", "committed")], reading.transactions.committed);
            out.labelled(&[("event", "aborted")], reading.transactions.aborted);
        },
    },
    Family {
        name: "marula_retried_statements_total",
        kind: Kind::Counter,
        help: "Statements of retryable writes that an earlier attempt had already done",
        write: |reading, out| out.one(reading.transactions.retried_statements),
    },
    Family {
        name: "marula_write_conflicts_total",
        kind: Kind::Counter,
        help: "Write conflicts: writes that were retried or rejected because of a concurrent write",
        write: |reading, out| out.one(reading.server.counters.write_conflicts.get()),
    },
    Family {
        name: "marula_lock_waits_total",
        kind: Kind::Counter,
        help: "Waits for a document that an open transaction had locked",
        write: |reading, out| out.one(reading.server.db.lock_waits()),
    },
    Family {
        name: "marula_ttl_passes_total",
        kind: Kind::Counter,
        help: "Passes of the TTL monitor over all collections",
        write: |reading, out| out.one(reading.server.counters.ttl_passes.get()),
    },
    Family {
        name: "marula_ttl_deleted_documents_total",
        kind: Kind::Counter,
        help: "Documents that the TTL monitor has deleted",
        write: |reading, out| out.one(reading.server.counters.ttl_deleted.get()),
    },
];

/// Writes counters, one for each value of a label.
fn counted(out: &mut Samples<'_>, label: &'static str, counters: &[(&str, &Counter)]) {
    for (value, counter) in counters {
        out.labelled(&[(label, value)], counter.get());
    }
}

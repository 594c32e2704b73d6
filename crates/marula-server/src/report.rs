//! The documents of the stages that report on the server and its collections: `$collStats`,
//! `$indexStats`, `$currentOp`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use marula_bson::{Binary, DocBuf, DocWriter, Value, doc_fields, long};
use marula_db::latencies::{Latencies, Latency};
use marula_db::{Collection, Namespace, Unit};
use marula_error::{Result, errors};
use marula_query::stage::{CollectionStats, Histograms, Report, SessionUsers};

use crate::auth::access::{self, Access};
use crate::auth::check::Target;
use crate::auth::name::Name;
use crate::cluster;
use crate::command::current_op::Shown;
use crate::command::server_status::write_latencies;
use crate::command::{coll_stats, current_op};
use crate::context::Context;
use crate::server::Server;
use crate::session::Lsid;
use crate::{host, nodes};

errors! {
    no_collection_for_stats(part: &str, ns: &str) = NamespaceNotFound, "Unable to retrieve {part} in $collStats stage :: caused by :: Collection [{ns}] not found.";
    stats_of_view(ns: &str) = CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection";
    no_collection(ns: &str) = 50933, "collection '{ns}' does not exist";
}

/// The operations that are shown, all or only those of the user, and the user.
pub(crate) struct Sight {
    operations_of: Option<Name>,
    /// The user, if there is access control.
    user: Option<[u8; 32]>,
}

impl Sight {
    /// Returns those that the user of this command may see.
    pub(crate) fn of(ctx: &Context<'_>) -> Self {
        let without =
            |action| ctx.restrained().filter(|access| !access.may(&Target::Cluster, action));
        Sight {
            operations_of: without("inprog").map(|access| access.user.clone()),
            user: ctx.restrained().map(Access::digest),
        }
    }
}

/// Returns the documents of a report on `ns` at the time `now_ms`.
///
/// Errors: a collection that does not exist; a view, if the report needs documents.
pub(crate) fn documents(
    server: &Arc<Server>,
    sight: &Sight,
    ns: &Namespace,
    report: &Report,
    now_ms: i64,
) -> Result<Vec<DocBuf>> {
    match report {
        Report::CollectionStats(wanted) => Ok(vec![collection(server, ns, wanted, now_ms)?]),
        Report::IndexStats => Ok(indexes(server, ns)),
        Report::PlanCacheStats => match server.db.collection(ns) {
            Some(collection) => {
                let mut found = collection.plans().report(&collection.state());
                found.iter_mut().for_each(|entry| {
                    entry.push("host", host::name_and_port(server).as_str());
                });
                Ok(found)
            }
            None => Err(no_collection(ns.as_str())),
        },
        Report::CurrentOp {
            idle_connections,
            idle_sessions,
            idle_cursors,
            cuts_long,
            is_local,
        } => {
            let shown = Shown {
                idle_connections: *idle_connections,
                idle_sessions: *idle_sessions,
                idle_cursors: *idle_cursors,
                cuts_long: *cuts_long,
            };
            let mut listed = current_op::list(server, shown, now_ms);
            if !is_local {
                listed.extend(nodes::requests::operations(server, shown)?);
            }
            let own = &sight.operations_of;
            listed.retain(|one| own.is_none() || one.user == *own);
            Ok(listed.into_iter().map(|one| one.document).collect())
        }
        Report::Sessions { users } => Ok(sessions(server, &|lsid| match users {
            SessionUsers::All => true,
            SessionUsers::Own => sight.user.is_none_or(|user| lsid.uid() == Some(&user)),
            SessionUsers::Named(users) => users
                .iter()
                .any(|(user, db)| lsid.uid() == Some(&access::digest(&Name::new(user, db)))),
        })),
        Report::SessionRecords => session_records(server),
        Report::Cluster => cluster::documents(server, ns.collection(), now_ms),
        Report::Catalog => Ok(catalog_entries(server, ns)),
        Report::Nothing => Ok(Vec::new()),
    }
}

fn collection(
    server: &Arc<Server>,
    ns: &Namespace,
    wanted: &CollectionStats,
    now_ms: i64,
) -> Result<DocBuf> {
    let mut bytes = Vec::new();
    let mut out = DocWriter::new(&mut bytes);
    out.append("ns", ns.as_str());
    out.append("host", host::name_and_port(server).as_str());
    out.append("localTime", Value::DateTime(now_ms));
    if server.db.engine().is_remote {
        out.append("shard", cluster::shard_name(server));
    }
    if let Some(Histograms(with_histograms)) = wanted.latencies {
        let collection = server.db.collection(ns);
        let none = Latencies::default();
        let latencies = collection.as_ref().map_or(&none, |collection| collection.latencies());
        let mut stats = out.begin_doc("latencyStats");
        write_latencies(latencies, &Latency::default(), with_histograms, &mut stats);
    }
    if let Some(scale) = wanted.storage_scale {
        let collection = existing(server, ns, "storageStats")?;
        let mut stats = out.begin_doc("storageStats");
        coll_stats::write_present(&server.db, &collection, scale, &mut stats)?;
    }
    if wanted.count {
        out.append("count", Value::whole(existing(server, ns, "count")?.count()));
    }
    if wanted.query_exec {
        let scans = existing(server, ns, "queryExecStats")?.scans();
        let mut stats = out.begin_doc("queryExecStats");
        let mut out = stats.begin_doc("collectionScans");
        out.append("total", scans.total).append("nonTailable", scans.total - scans.tailable);
    }
    out.finish();
    Ok(DocBuf::trusted(bytes))
}

/// Returns the collection that a part of `$collStats` is about.
fn existing(server: &Server, ns: &Namespace, part: &str) -> Result<Arc<Collection>> {
    let collection =
        server.db.collection(ns).ok_or_else(|| no_collection_for_stats(part, ns.as_str()))?;
    match collection.state().options.view {
        Some(_) => Err(stats_of_view(ns.as_str())),
        None => Ok(collection),
    }
}

fn indexes(server: &Arc<Server>, ns: &Namespace) -> Vec<DocBuf> {
    let Some(collection) = server.db.collection(ns) else { return Vec::new() };
    let state = collection.state();
    let host = host::name_and_port(server);
    let describe = |index: &Arc<marula_db::Index>| {
        let (uses, since) = index.usage();
        DocBuf::build(|out| {
            out.append("name", index.spec.name.as_str());
            out.append("key", &index.spec.key);
            out.append("host", host.as_str());
            let mut accesses = out.begin_doc("accesses");
            accesses.append("ops", long(uses));
            accesses.append("since", Value::DateTime(unix_ms(since)));
            accesses.finish();
            out.append("spec", &index.spec.document);
        })
    };
    state.indexes.iter().map(describe).collect()
}

/// Returns the catalogue's entry of a collection, or of all if `ns` names none.
fn catalog_entries(server: &Arc<Server>, ns: &Namespace) -> Vec<DocBuf> {
    let catalog = server.db.catalog();
    if ns.collection() != "$cmd.aggregate" {
        return server.db.collection(ns).iter().map(catalog_entry).collect();
    }
    let names = catalog.databases();
    let collections = names.iter().flat_map(|name| catalog.collections(name));
    collections.map(|collection| catalog_entry(&collection)).collect()
}

fn catalog_entry(collection: &Arc<Collection>) -> DocBuf {
    let (ns, state) = (collection.namespace(), collection.state());
    let kind = match (&state.options.view, &state.options.time_series) {
        (Some(_), Some(_)) => "timeseries",
        (Some(_), None) => "view",
        (None, _) => "collection",
    };
    DocBuf::build(|out| {
        doc_fields!(out; "db": ns.db(), "name": ns.collection(), "type": kind);
        if let Some(view) = &state.options.view {
            doc_fields!(out;
                "ns": ns.as_str(),
                "_id": ns.as_str(),
                "viewOn": view.on.as_str(),
                "pipeline": Value::Array(view.pipeline.as_doc()),
            );
            return;
        }
        let mut md = out.begin_doc("md");
        md.append("ns", ns.as_str());
        let mut options = md.begin_doc("options");
        options.append("uuid", Binary { subtype: 4, bytes: collection.uuid() });
        for option in state.options.document.as_doc() {
            options.append_raw(option.name, option.value);
        }
        drop(options);
        let mut indexes = md.begin_array("indexes");
        for index in &state.indexes {
            let mut one = indexes.begin_doc();
            doc_fields!(one;
                "spec": &index.spec.document,
                "ready": true,
                "multikey": index.is_multikey(),
                "head": 0_i64,
                "backgroundSecondary": false,
            );
        }
        drop(indexes);
        drop(md);
        let mut idents = out.begin_doc("idxIdent");
        for index in &state.indexes {
            idents.append(&index.spec.name, format!("index-{}", index.ident.0).as_str());
        }
        drop(idents);
        doc_fields!(out;
            "ns": ns.as_str(),
            "ident": format!("collection-{}", collection.ident().0).as_str(),
        );
    })
}

fn unix_ms(moment: SystemTime) -> i64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    long(since.as_millis())
}

fn sessions(server: &Server, is_shown: &dyn Fn(&Lsid) -> bool) -> Vec<DocBuf> {
    let mut all = server.sessions.all();
    all.retain(|session| is_shown(&session.lsid));
    all.sort_by_key(|session| session.lsid);
    all.iter()
        .map(|session| {
            DocBuf::build(|out| {
                session.lsid.write(&mut out.begin_doc("_id"));
                out.append("lastUse", Value::DateTime(session.last_use_ms()));
            })
        })
        .collect()
}

/// Returns the documents of `config.transactions`: the newest numbered write of each session. For
/// older ones only the second of the write is known.
fn session_records(server: &Server) -> Result<Vec<DocBuf>> {
    let stored = server.db.sessions().stored(Unit::new(&server.db).view())?;
    let documents = stored.iter().filter_map(|record| {
        let lsid = Lsid::of_key(&record.lsid)?;
        let second = u64::try_from(record.at_ms / 1_000).unwrap_or(0);
        Some(DocBuf::build(|out| {
            lsid.write(&mut out.begin_doc("_id"));
            out.append("txnNum", record.number);
            let mut op_time = out.begin_doc("lastWriteOpTime");
            op_time.append("ts", Value::Timestamp(second << 32 | 1)).append("t", 1_i64);
            op_time.finish();
            out.append("lastWriteDate", Value::DateTime(record.at_ms));
            if record.is_committed {
                out.append("state", "committed");
            }
        }))
    });
    Ok(documents.collect())
}

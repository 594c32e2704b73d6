//! Statistics of authentication and of TLS.

use marula_bson::{DocWriter, doc_fields};

use super::{Section, count, long};
use crate::auth::logins::Attempts;
use crate::command::MECHANISMS;

/// Writes zeros: keys that are derived from passwords are not cached.
pub(super) fn scram_cache(_: &Section<'_>, out: &mut DocWriter<'_>) {
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let mut one = out.begin_doc(mechanism);
        doc_fields!(one; "count": 0_i64, "hits": 0_i64, "misses": 0_i64);
    }
}

pub(super) fn security(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let logins = &section.server.logins;
    let mut all = out.begin_doc("authentication");
    all.append("saslSupportedMechsReceived", count(&logins.mechanisms_asked));
    let mut mechanisms = all.begin_doc("mechanisms");
    let parameters = &section.server.parameters;
    for name in MECHANISMS.iter().filter(|name| parameters.takes_mechanism(name)) {
        let Some(logins) = logins.of(name) else { continue };
        let mut one = mechanisms.begin_doc(name);
        let none = Attempts::default();
        let kinds = [
            ("speculativeAuthenticate", &logins.speculative),
            ("clusterAuthenticate", &none),
            ("authenticate", &logins.all),
        ];
        for (kind, attempts) in kinds {
            let mut one = one.begin_doc(kind);
            doc_fields!(one; "received": count(&attempts.received), "successful": count(&attempts.successful));
        }
    }
}

pub(super) fn transport_security(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let tls = section.server.options.tls.as_ref();
    let (tls12, tls13) = tls.map_or((0, 0), |tls| tls.handshakes());
    let (tls12, tls13) = (long(tls12), long(tls13));
    doc_fields!(out; "1.0": 0_i64, "1.1": 0_i64, "1.2": tls12, "1.3": tls13, "unknown": 0_i64);
}

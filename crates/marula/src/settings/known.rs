//! Options of mongod 4.4 to 8.0 that `Settings` does not act on: their names in mongod.conf, and
//! what becomes of them.
//!
//! An option that says how mongod does something, which Marula does in its own way, is taken with a
//! warning. One that would keep something from the user's clients, keep data safer, or let others
//! in, stops the start: taken without effect, it would leave the user with less than was asked
//! for.
//! Source: manual "Configuration File Options", "mongod"; Enterprise options included.

use Verdict::{NoEffect, NoEffectIf, Refused, RefusedUnless};

/// The treatment of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is taken, changes nothing, and a warning says why.
    NoEffect(&'static str),
    /// With this value it asks for what is so; with others it is as [`Verdict::NoEffect`].
    NoEffectIf(&'static str, &'static str),
    /// It stops the start, and this is why.
    Refused(&'static str),
    /// With this value it asks for what is so; with others it stops the start.
    RefusedUnless(&'static str, &'static str),
}

/// An option: its name in mongod.conf, and what becomes of it. A name that ends in a point means
/// every option that begins with it.
pub(crate) struct Row(pub(crate) &'static str, pub(crate) Verdict);

const ENGINE: &str = "it tunes WiredTiger, and the data is in RocksDB";
const JOURNAL: &str = "the journal is always on, written at once and synced every 100 ms";
const MEMBERS: &str = "it is about connections between members, and a node stands alone";
const ENCRYPTION: &str = "data on disk is not encrypted";
const KMIP: &str = "there is no KMIP client, and data on disk is not encrypted";
const LDAP: &str = "there is no LDAP";
const KERBEROS: &str = "it is about Kerberos, which is not there";
const WINDOWS: &str = "it is about Windows";
const FIPS: &str = "the cryptographic library has no FIPS mode";
const STORE: &str = "certificates are read from files alone";
const ALONE: &str = "a node stands alone";
const REDACTION: &str = "the log is not redacted";
const COMPRESSION: &str = "the audit log is neither compressed nor encrypted";

/// The options.
pub(crate) static ROWS: &[Row] = &[
    Row("systemLog.traceAllExceptions", NoEffectIf("false", "there are no exceptions to trace")),
    Row("systemLog.syslogFacility", Refused("the log goes to a file or to stdout, not to syslog")),
    Row("processManagement.timeZoneInfo", NoEffect("the time zones are built in")),
    Row("processManagement.windowsService.", NoEffect(WINDOWS)),
    Row("cloud.monitoring.free.", NoEffect("MongoDB's free monitoring has ended")),
    Row("net.ipv6", NoEffectIf("true", "IPv6 addresses are taken wherever they are named")),
    Row("net.wireObjectCheck", NoEffectIf("true", "what clients send is always checked")),
    Row("net.listenBacklog", NoEffect("the backlog is the largest that the system takes")),
    Row("net.serviceExecutor", NoEffect("threads do not follow connections")),
    Row("net.transportLayer", NoEffect("threads do not follow connections")),
    Row("net.maxIncomingConnectionsOverride", NoEffect("all connections count alike")),
    Row("net.http.", NoEffectIf("false", "there is no HTTP interface")),
    Row("security.clusterAuthMode", NoEffect(MEMBERS)),
    Row("security.clusterIpSourceAllowlist", NoEffect(MEMBERS)),
    Row("security.clusterIpSourceWhitelist", NoEffect(MEMBERS)),
    Row("security.redactClientLogData", RefusedUnless("false", REDACTION)),
    Row("security.sasl.hostName", NoEffect(KERBEROS)),
    Row("security.sasl.serviceName", NoEffect(KERBEROS)),
    Row("security.sasl.saslauthdSocketPath", Refused("there is no saslauthd")),
    Row("security.enableEncryption", RefusedUnless("false", ENCRYPTION)),
    Row("security.encryptionCipherMode", Refused(ENCRYPTION)),
    Row("security.encryptionKeyFile", Refused(ENCRYPTION)),
    Row("security.kmip.", Refused(KMIP)),
    Row("security.ldap.", Refused(LDAP)),
    Row("storage.journal.commitIntervalMs", NoEffect(JOURNAL)),
    Row("storage.journal.enabled", NoEffectIf("true", JOURNAL)),
    Row("storage.syncPeriodSecs", NoEffect("the engine flushes by itself")),
    Row("storage.directoryPerDB", NoEffectIf("false", "all databases share one folder")),
    Row("storage.indexBuildRetry", NoEffect("an index build that is cut off is not begun again")),
    Row("storage.wiredTiger.engineConfig.", NoEffect(ENGINE)),
    Row("storage.wiredTiger.collectionConfig.", NoEffect(ENGINE)),
    Row("storage.wiredTiger.indexConfig.", NoEffect(ENGINE)),
    Row("storage.mmapv1.", NoEffect("it tunes an engine of MongoDB 4.0")),
    Row("storage.inMemory.engineConfig.inMemorySizeGB", Refused("data in memory has no bound")),
    Row("replication.enableMajorityReadConcern", NoEffectIf("true", "it is always on")),
    Row("replication.secondaryIndexPrefetch", NoEffect(ALONE)),
    Row("replication.serverless", Refused(ALONE)),
    Row("sharding.clusterRole", Refused(ALONE)),
    Row("sharding.archiveMovedChunks", NoEffect(ALONE)),
    Row("sharding.configDB", Refused(ALONE)),
    Row("auditLog.auditEncryptionKeyIdentifier", Refused(COMPRESSION)),
    Row("auditLog.auditEncryptionHeaderMetadataFile", Refused(COMPRESSION)),
    Row("auditLog.localAuditKeyFile", Refused(COMPRESSION)),
    Row("auditLog.compressionMode", RefusedUnless("none", COMPRESSION)),
    Row("auditLog.runtimeConfiguration", RefusedUnless("false", "the filter is that of the start")),
    Row("auditLog.schema", RefusedUnless("mongo", "the audit log has MongoDB's own schema alone")),
    Row("snmp.", NoEffect("there is no SNMP agent")),
    Row("net.tls.clusterFile", NoEffect(MEMBERS)),
    Row("net.tls.clusterPassword", NoEffect(MEMBERS)),
    Row("net.tls.clusterCAFile", NoEffect(MEMBERS)),
    Row("net.tls.clusterAuthX509.", NoEffect(MEMBERS)),
    Row("net.tls.logVersions", NoEffect("older versions than TLS 1.2 are not offered")),
    Row("net.tls.certificateSelector", Refused(STORE)),
    Row("net.tls.clusterCertificateSelector", NoEffect(MEMBERS)),
    Row("net.tls.FIPSMode", RefusedUnless("false", FIPS)),
    Row("configExpand", RefusedUnless("none", "nothing in the file is expanded")),
    Row("awsIam.sessionToken", Refused("there is no AWS IAM")),
    Row("upgrade", NoEffect("a data folder of an older format is upgraded as it is opened")),
    Row("cpu", NoEffect("serverStatus tells of the processor")),
    Row("sysinfo", NoEffect("hostInfo tells of the machine")),
    Row("restore", NoEffect("it is about backups of MongoDB's own")),
    Row("shutdown", Refused("send SIGTERM to the server, or the command shutdown")),
];

/// The verdict about an option, where this table has it.
pub(crate) fn find(name: &str) -> Option<Verdict> {
    let newer = name.strip_prefix("net.ssl.").map(|rest| format!("net.tls.{rest}"));
    let name = newer.as_deref().unwrap_or(name);
    let fits = |row: &&Row| match row.0.strip_suffix('.') {
        Some(_) => name.starts_with(row.0),
        None => row.0 == name,
    };
    ROWS.iter().find(fits).map(|row| row.1)
}

/// Whether the value of an option is a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 4] = ["password", "sessiontoken", "querypassword", "keyidentifier"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_name_and_by_section() {
        assert_eq!(find("storage.wiredTiger.engineConfig.x"), Some(NoEffect(ENGINE)));
        assert_eq!(find("security.kmip.serverName"), Some(Refused(KMIP)));
        assert_eq!(find("net.ssl.clusterFile"), Some(NoEffect(MEMBERS)));
        assert_eq!(find("net.port"), None);
        assert_eq!(find("storage.wiredTiger"), None);
    }

    #[test]
    fn passwords_are_secrets() {
        assert!(is_secret("net.tls.clusterPassword"));
        assert!(is_secret("security.ldap.bind.queryPassword"));
        assert!(!is_secret("net.port"));
    }
}

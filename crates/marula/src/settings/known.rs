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
pub(crate) struct OptionRow(pub(crate) &'static str, pub(crate) Verdict);

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
pub(crate) static ROWS: &[OptionRow] = &[
    OptionRow(
        "systemLog.traceAllExceptions",
        NoEffectIf("false", "there are no exceptions to trace"),
    ),
    OptionRow(
        "systemLog.syslogFacility",
        Refused("the log goes to a file or to stdout, not to syslog"),
    ),
    OptionRow("processManagement.timeZoneInfo", NoEffect("the time zones are built in")),
    OptionRow("processManagement.windowsService.", NoEffect(WINDOWS)),
    OptionRow("cloud.monitoring.free.", NoEffect("MongoDB's free monitoring has ended")),
    OptionRow("net.ipv6", NoEffectIf("true", "IPv6 addresses are taken wherever they are named")),
    OptionRow("net.wireObjectCheck", NoEffectIf("true", "what clients send is always checked")),
    OptionRow("net.listenBacklog", NoEffect("the backlog is the largest that the system takes")),
    OptionRow("net.serviceExecutor", NoEffect("threads do not follow connections")),
    OptionRow("net.transportLayer", NoEffect("threads do not follow connections")),
    OptionRow("net.maxIncomingConnectionsOverride", NoEffect("all connections count alike")),
    OptionRow("net.http.", NoEffectIf("false", "there is no HTTP interface")),
    OptionRow("security.clusterIpSourceAllowlist", NoEffect(MEMBERS)),
    OptionRow("security.clusterIpSourceWhitelist", NoEffect(MEMBERS)),
    OptionRow("security.redactClientLogData", RefusedUnless("false", REDACTION)),
    OptionRow("security.sasl.hostName", NoEffect(KERBEROS)),
    OptionRow("security.sasl.serviceName", NoEffect(KERBEROS)),
    OptionRow("security.sasl.saslauthdSocketPath", Refused("there is no saslauthd")),
    OptionRow("security.enableEncryption", RefusedUnless("false", ENCRYPTION)),
    OptionRow("security.encryptionCipherMode", Refused(ENCRYPTION)),
    OptionRow("security.encryptionKeyFile", Refused(ENCRYPTION)),
    OptionRow("security.kmip.", Refused(KMIP)),
    OptionRow("security.ldap.", Refused(LDAP)),
    OptionRow("storage.journal.commitIntervalMs", NoEffect(JOURNAL)),
    OptionRow("storage.journal.enabled", NoEffectIf("true", JOURNAL)),
    OptionRow("storage.syncPeriodSecs", NoEffect("the engine flushes by itself")),
    OptionRow("storage.directoryPerDB", NoEffectIf("false", "all databases share one folder")),
    OptionRow(
        "storage.indexBuildRetry",
        NoEffect("an index build that is cut off is not begun again"),
    ),
    OptionRow("storage.wiredTiger.engineConfig.", NoEffect(ENGINE)),
    OptionRow("storage.wiredTiger.collectionConfig.", NoEffect(ENGINE)),
    OptionRow("storage.wiredTiger.indexConfig.", NoEffect(ENGINE)),
    OptionRow("storage.mmapv1.", NoEffect("it tunes an engine of MongoDB 4.0")),
    OptionRow(
        "storage.inMemory.engineConfig.inMemorySizeGB",
        Refused("data in memory has no bound"),
    ),
    OptionRow("replication.enableMajorityReadConcern", NoEffectIf("true", "it is always on")),
    OptionRow("replication.secondaryIndexPrefetch", NoEffect(ALONE)),
    OptionRow("replication.serverless", Refused(ALONE)),
    OptionRow("sharding.clusterRole", Refused(ALONE)),
    OptionRow("sharding.archiveMovedChunks", NoEffect(ALONE)),
    OptionRow("sharding.configDB", Refused(ALONE)),
    OptionRow("auditLog.auditEncryptionKeyIdentifier", Refused(COMPRESSION)),
    OptionRow("auditLog.auditEncryptionHeaderMetadataFile", Refused(COMPRESSION)),
    OptionRow("auditLog.localAuditKeyFile", Refused(COMPRESSION)),
    OptionRow("auditLog.compressionMode", RefusedUnless("none", COMPRESSION)),
    OptionRow(
        "auditLog.runtimeConfiguration",
        RefusedUnless("false", "the filter is that of the start"),
    ),
    OptionRow(
        "auditLog.schema",
        RefusedUnless("mongo", "the audit log has MongoDB's own schema alone"),
    ),
    OptionRow("snmp.", NoEffect("there is no SNMP agent")),
    OptionRow("net.tls.clusterFile", NoEffect(MEMBERS)),
    OptionRow("net.tls.clusterPassword", NoEffect(MEMBERS)),
    OptionRow("net.tls.clusterCAFile", NoEffect(MEMBERS)),
    OptionRow("net.tls.clusterAuthX509.", NoEffect(MEMBERS)),
    OptionRow("net.tls.logVersions", NoEffect("older versions than TLS 1.2 are not offered")),
    OptionRow("net.tls.certificateSelector", Refused(STORE)),
    OptionRow("net.tls.clusterCertificateSelector", NoEffect(MEMBERS)),
    OptionRow("net.tls.FIPSMode", RefusedUnless("false", FIPS)),
    OptionRow("configExpand", RefusedUnless("none", "nothing in the file is expanded")),
    OptionRow("awsIam.sessionToken", Refused("there is no AWS IAM")),
    OptionRow("upgrade", NoEffect("a data folder of an older format is upgraded as it is opened")),
    OptionRow("cpu", NoEffect("serverStatus tells of the processor")),
    OptionRow("sysinfo", NoEffect("hostInfo tells of the machine")),
    OptionRow("restore", NoEffect("it is about backups of MongoDB's own")),
    OptionRow("shutdown", Refused("send SIGTERM to the server, or the command shutdown")),
];

/// The verdict about an option, where this table has it.
pub(crate) fn find(name: &str) -> Option<Verdict> {
    let newer = name.strip_prefix("net.ssl.").map(|rest| format!("net.tls.{rest}"));
    let name = newer.as_deref().unwrap_or(name);
    let fits = |row: &&OptionRow| match row.0.strip_suffix('.') {
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

//! Options of mongod's command line that are no option of `marula serve`: each is one of
//! mongod.conf by another name, and what becomes of it is said there.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::settings::known::{self, Verdict};

/// The value of an option.
#[derive(Clone, Copy)]
enum Takes {
    /// A value.
    Value,
    /// A value, or nothing, which is `true`.
    Optional,
    /// Nothing: it is this value.
    Nothing(&'static str),
}

use Takes::{Nothing, Optional, Value};

const ON: Takes = Nothing("true");

/// Names on the command line, in mongod.conf, and what stands after them.
const ROWS: &[(&str, &str, Takes)] = &[
    ("profile", "operationProfiling.mode", Value),
    ("slowms", "operationProfiling.slowOpThresholdMs", Value),
    ("slowOpSampleRate", "operationProfiling.slowOpSampleRate", Value),
    ("profileFilter", "operationProfiling.filter", Value),
    ("notablescan", "setParameter.notablescan", ON),
    ("timeStampFormat", "systemLog.timeStampFormat", Value),
    ("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", Value),
    ("filePermissions", "net.unixDomainSocket.filePermissions", Value),
    ("nounixsocket", "net.unixDomainSocket.enabled", Nothing("false")),
    ("auditDestination", "auditLog.destination", Value),
    ("auditFormat", "auditLog.format", Value),
    ("auditPath", "auditLog.path", Value),
    ("auditFilter", "auditLog.filter", Value),
    ("auditSchema", "auditLog.schema", Value),
    ("auditCompressionMode", "auditLog.compressionMode", Value),
    ("auditEncryptionKeyUID", "auditLog.auditEncryptionKeyIdentifier", Value),
    ("auditLocalKeyFile", "auditLog.localAuditKeyFile", Value),
    ("auditRuntimeConfiguration", "auditLog.runtimeConfiguration", Optional),
    ("ipv6", "net.ipv6", ON),
    ("listenBacklog", "net.listenBacklog", Value),
    ("objcheck", "net.wireObjectCheck", ON),
    ("noobjcheck", "net.wireObjectCheck", Nothing("false")),
    ("serviceExecutor", "net.serviceExecutor", Value),
    ("transportLayer", "net.transportLayer", Value),
    ("configExpand", "configExpand", Value),
    ("timeZoneInfo", "processManagement.timeZoneInfo", Value),
    ("syslog", "systemLog.destination", Nothing("syslog")),
    ("syslogFacility", "systemLog.syslogFacility", Value),
    ("traceExceptions", "systemLog.traceAllExceptions", ON),
    ("clusterIpSourceAllowlist", "security.clusterIpSourceAllowlist", Value),
    ("clusterIpSourceWhitelist", "security.clusterIpSourceWhitelist", Value),
    ("clusterAuthMode", "security.clusterAuthMode", Value),
    ("redactClientLogData", "security.redactClientLogData", ON),
    ("enableEncryption", "security.enableEncryption", ON),
    ("encryptionCipherMode", "security.encryptionCipherMode", Value),
    ("encryptionKeyFile", "security.encryptionKeyFile", Value),
    ("kmipServerName", "security.kmip.serverName", Value),
    ("kmipPort", "security.kmip.port", Value),
    ("kmipKeyIdentifier", "security.kmip.keyIdentifier", Value),
    ("kmipClientCertificateFile", "security.kmip.clientCertificateFile", Value),
    ("kmipClientCertificatePassword", "security.kmip.clientCertificatePassword", Value),
    ("kmipServerCAFile", "security.kmip.serverCAFile", Value),
    ("kmipRotateMasterKey", "security.kmip.rotateMasterKey", Optional),
    ("ldapServers", "security.ldap.servers", Value),
    ("ldapBindMethod", "security.ldap.bind.method", Value),
    ("ldapQueryUser", "security.ldap.bind.queryUser", Value),
    ("ldapQueryPassword", "security.ldap.bind.queryPassword", Value),
    ("ldapTransportSecurity", "security.ldap.transportSecurity", Value),
    ("ldapUserToDNMapping", "security.ldap.userToDNMapping", Value),
    ("ldapAuthzQueryTemplate", "security.ldap.authz.queryTemplate", Value),
    ("ldapTimeoutMS", "security.ldap.timeoutMS", Value),
    ("awsIamSessionToken", "awsIam.sessionToken", Value),
    ("serverless", "replication.serverless", Value),
    ("enableMajorityReadConcern", "replication.enableMajorityReadConcern", Optional),
    ("shardsvr", "sharding.clusterRole", Nothing("shardsvr")),
    ("configsvr", "sharding.clusterRole", Nothing("configsvr")),
    ("directoryperdb", "storage.directoryPerDB", ON),
    ("journal", "storage.journal.enabled", ON),
    ("nojournal", "storage.journal.enabled", Nothing("false")),
    ("journalCommitInterval", "storage.journal.commitIntervalMs", Value),
    ("syncdelay", "storage.syncPeriodSecs", Value),
    ("noIndexBuildRetry", "storage.indexBuildRetry", Nothing("false")),
    ("inMemorySizeGB", "storage.inMemory.engineConfig.inMemorySizeGB", Value),
    ("wiredTigerJournalCompressor", "storage.wiredTiger.engineConfig.journalCompressor", Value),
    ("wiredTigerDirectoryForIndexes", "storage.wiredTiger.engineConfig.directoryForIndexes", ON),
    (
        "wiredTigerMaxCacheOverflowFileSizeGB",
        "storage.wiredTiger.engineConfig.maxCacheOverflowFileSizeGB",
        Value,
    ),
    (
        "wiredTigerStatisticsLogDelaySecs",
        "storage.wiredTiger.engineConfig.statisticsLogDelaySecs",
        Value,
    ),
    ("zstdDefaultCompressionLevel", "storage.wiredTiger.engineConfig.zstdCompressionLevel", Value),
    (
        "wiredTigerCollectionBlockCompressor",
        "storage.wiredTiger.collectionConfig.blockCompressor",
        Value,
    ),
    ("wiredTigerIndexPrefixCompression", "storage.wiredTiger.indexConfig.prefixCompression", Value),
    ("enableFreeMonitoring", "cloud.monitoring.free.state", Value),
    ("freeMonitoringTag", "cloud.monitoring.free.tags", Value),
    ("tlsClusterFile", "net.tls.clusterFile", Value),
    ("tlsClusterPassword", "net.tls.clusterPassword", Value),
    ("tlsClusterCAFile", "net.tls.clusterCAFile", Value),
    ("tlsLogVersions", "net.tls.logVersions", Value),
    ("tlsFIPSMode", "net.tls.FIPSMode", ON),
    ("tlsCertificateSelector", "net.tls.certificateSelector", Value),
    ("tlsClusterCertificateSelector", "net.tls.clusterCertificateSelector", Value),
    ("sslClusterFile", "net.ssl.clusterFile", Value),
    ("sslClusterPassword", "net.ssl.clusterPassword", Value),
    ("sslClusterCAFile", "net.ssl.clusterCAFile", Value),
    ("sslFIPSMode", "net.ssl.FIPSMode", ON),
    ("tlsOnNormalPorts", "net.tls.mode", Nothing("requireTLS")),
    ("sslOnNormalPorts", "net.ssl.mode", Nothing("requireSSL")),
    ("upgrade", "upgrade", ON),
    ("cpu", "cpu", ON),
    ("sysinfo", "sysinfo", ON),
    ("restore", "restore", ON),
    ("shutdown", "shutdown", ON),
];

/// The options given by these names.
#[derive(Debug, Default)]
pub(crate) struct MongodArgs(Vec<(&'static str, String)>);

impl MongodArgs {
    /// Names in mongod.conf and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// The options whose values must not be shown, with their dashes.
pub(crate) fn secret_flags() -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter(|(_, name, _)| known::is_secret(name)).map(|(flag, ..)| *flag)
}

fn help(option: &str) -> String {
    match known::find(option) {
        None => format!("{option} of mongod.conf"),
        Some(Verdict::NoEffect(why) | Verdict::NoEffectIf(_, why)) => {
            format!("Taken without effect: {why}")
        }
        Some(Verdict::Refused(why)) => format!("Refused: {why}"),
        Some(Verdict::RefusedUnless(value, why)) => format!("Refused unless {value}: {why}"),
    }
}

impl Args for MongodArgs {
    fn augment_args(command: Command) -> Command {
        ROWS.iter().fold(command, |command, (flag, option, takes)| {
            let arg = Arg::new(*flag).long(*flag).help(help(option));
            let arg = arg.help_heading("Further options of mongod");
            command.arg(match takes {
                Value => arg.action(ArgAction::Set),
                Optional => {
                    arg.action(ArgAction::Set).num_args(0..=1).default_missing_value("true")
                }
                Nothing(_) => arg.action(ArgAction::SetTrue),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for MongodArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = ROWS.iter().filter_map(|(flag, option, takes)| match takes {
            Value | Optional => Some((*option, matches.get_one::<String>(flag)?.clone())),
            Nothing(value) => matches.get_flag(flag).then(|| (*option, (*value).to_owned())),
        });
        Ok(MongodArgs(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

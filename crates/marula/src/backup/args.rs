//! The options of `marula backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const TARGETS: &str = "A target is a folder or an object store:\n  \
    /mnt/backups                a folder, made if it is not there\n  \
    s3://bucket/prefix          Amazon S3 and servers like it; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,\n                              \
    AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP are read\n  \
    gs://bucket/prefix          Google Cloud Storage; GOOGLE_SERVICE_ACCOUNT names a file\n  \
    az://container/prefix       Azure; AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY\n\n\
    Encryption: 'openssl rand -base64 32 > key', then --key-file key with every command. Keep the key\n\
    elsewhere than the backups: without it they are lost.";

#[derive(Args, Debug)]
#[command(after_help = "A first backup and back:\n  \
    marula backup create /mnt/backups                        of the server on this machine\n  \
    marula backup restore /mnt/backups --to ./restored       into a new folder\n  \
    marula serve --dbpath ./restored\n\n\
    Every moment of the last week, once the server runs with --backup-to /mnt/backups --backup-keep 7d:\n  \
    marula backup restore /mnt/backups --to ./restored --at 'yesterday 14:03'")]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    pub(crate) command: BackupCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BackupCommand {
    /// Make a backup of a running server, or of a folder that no server has open
    Create(CreateArgs),
    /// Show the backups and the moments that can be restored
    List(ListArgs),
    /// Prove that a backup can be restored: restore it aside, open it, check every document
    Verify(VerifyArgs),
    /// Restore a backup, or a moment, into a new folder
    Restore(RestoreArgs),
    /// Remove backups that are too old, and what only they needed
    Prune(PruneArgs),
}

#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// The folder or object store with the backups
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,

    /// The key that backups are encrypted with: a file with 32 bytes, as they are, in hexadecimal
    /// or base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = format!("Only what the target does not have yet travels. A server sends the files itself: the target and the\n\
    key file are named as its machine sees them, and the user needs the role 'backup'.\n\n{TARGETS}"))]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// The data folder to back up, which no server has open
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["host", "uri"])]
    pub(crate) dbpath: Option<PathBuf>,

    /// The server to back up [default: 127.0.0.1:27017]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "uri")]
    pub(crate) host: Option<String>,

    /// The same as a connection string: mongodb://user:password@host:port/?authSource=admin
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Option<String>,

    /// The user; the password is read from MARULA_PASSWORD
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dbpath", "uri"])]
    pub(crate) username: Option<String>,

    /// The database of that user
    #[arg(long, value_name = "NAME", default_value = "admin")]
    pub(crate) authentication_database: String,

    /// Encrypt the connection; the server's certificate must be of that host
    #[arg(long, conflicts_with_all = ["dbpath", "uri"])]
    pub(crate) tls: bool,

    /// The certificates that vouch for the server [default: those that the system trusts]
    #[arg(long = "tlsCAFile", value_name = "FILE", conflicts_with_all = ["dbpath", "uri"])]
    pub(crate) tls_ca_file: Option<PathBuf>,

    /// The certificate to show to the server, with its key
    #[arg(long = "tlsCertificateKeyFile", value_name = "FILE", conflicts_with_all = ["dbpath", "uri"])]
    pub(crate) tls_certificate_key_file: Option<PathBuf>,

    /// Send everything, also what the target has: mends objects that are damaged there
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Print a line of JSON for each backup
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WhichArgs {
    /// A backup by its name, without the log after it
    #[arg(long, value_name = "NAME", conflicts_with = "at")]
    pub(crate) backup: Option<String>,

    /// A moment: 'latest', '2026-11-23 14:03', '2026-11-23T13:03:00Z', 'yesterday 14:03:10',
    /// '14:03', '10 minutes ago' [default: latest]
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = format!("Without --backup or --at the newest moment is restored and checked. The copy needs as much room as\n\
    the data, and is removed afterwards.\n\n{TARGETS}"))]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) which: WhichArgs,

    /// Every backup, one after the other
    #[arg(long, conflicts_with_all = ["backup", "at"])]
    pub(crate) all: bool,

    /// Only compare every stored object with its checksum: nothing is written or opened
    #[arg(long)]
    pub(crate) objects_only: bool,

    /// Where the copy is made [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = format!("A moment has every write that was acknowledged before it and none that began after it. Times without a\n\
    zone are those of this machine. The folder must be new or empty; a restore that was cut short can be\n\
    said again.\n\n{TARGETS}"))]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// The new data folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: PathBuf,

    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Keep what is needed for every moment that is younger: 12h, 7d, 4w
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: String,

    /// Keep this number of the newest backups, however old they are; the newest one always stays
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) keep_last: usize,

    /// Only show what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
}

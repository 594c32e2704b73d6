//! `marula backup create`: asks a server, or reads a folder that none has open.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use marula_backup::create::{Extent, Known, Source, SourceFile};
use marula_backup::manifest::Moment;
use marula_backup::{Progress, Repository};
use marula_bson::{DocBuf, Value};
use marula_embedded::ClosedFolder;

use super::args::CreateArgs;
use super::mongo_client::Address;
use super::transport::Tls;
use super::{read_key, shown, threads, times};
use crate::Failure;

/// The server on this machine.
const HOST: &str = "127.0.0.1:27017";
/// Where the password of a user is read from: a command line is shown to everyone.
const PASSWORD: &str = "MARULA_PASSWORD";
/// The time between two requests for the progress of a server.
const ASK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(args: &CreateArgs) -> Result<ExitCode, Failure> {
    match &args.dbpath {
        Some(dbpath) => of_folder(dbpath, args)?,
        None => of_server(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn of_folder(dbpath: &Path, args: &CreateArgs) -> Result<(), Failure> {
    let folder = ClosedFolder::hold(dbpath).map_err(|error| {
        format!("{error}. Where a server has it open, say its address: marula backup create TARGET --host HOST:PORT")
    })?;
    let key = read_key(args.target.key_file.as_deref())?;
    let repository =
        Repository::open_or_make(&args.target.target, key).map_err(|error| error.to_string())?;
    let source = source(folder.path(), folder.path(), moment_now())?;
    let progress = Progress::default();
    let made = shown::with_bar("sending", &progress, || {
        let known = Known::default();
        marula_backup::create(&repository, &source, extent(args.full), &known, threads(), &progress)
    });
    let made = made.map_err(|error| error.to_string())?;
    report(&made.id, repository.shown(), made.bytes, made.sent_bytes, made.moment.from_us);
    Ok(())
}

/// The files of a data folder that do not change; `origin` is the folder that they are of.
pub(super) fn source(folder: &Path, origin: &Path, moment: Moment) -> Result<Source, Failure> {
    let told = |error: marula_backup::Error| error.to_string();
    let mut files = SourceFile::in_folder(&folder.join("store"), "store/").map_err(told)?;
    // RocksDB's own log of messages, and its lock, are of this folder alone.
    files.retain(|file| {
        let name = file.name.trim_start_matches("store/");
        !(name == "LOCK" || name.starts_with("LOG"))
    });
    let path = folder.join("MARULA");
    files.push(SourceFile { name: "MARULA".to_owned(), path });
    let origin = std::path::absolute(origin).unwrap_or_else(|_| origin.to_path_buf());
    Ok(Source {
        files,
        moment,
        log: None,
        program: format!("marula {}", env!("CARGO_PKG_VERSION")),
        origin: format!("{}:{}", marula_server::machine::host_name(), origin.display()),
    })
}

pub(super) fn extent(is_full: bool) -> Extent {
    if is_full { Extent::Full } else { Extent::Incremental }
}

fn moment_now() -> Moment {
    let now_us = jiff::Timestamp::now().as_microsecond();
    Moment { from_us: now_us, until_us: now_us }
}

fn of_server(args: &CreateArgs) -> Result<(), Failure> {
    let address = address(args)?;
    let command = DocBuf::build(|out| {
        out.append("backup", 1).append("to", on_server(&args.target.target).as_str());
        if let Some(path) = &args.target.key_file {
            out.append("keyFile", on_server(&path.display().to_string()).as_str());
        }
        out.append("full", args.full);
    });
    // Both exist before the backup begins: a missing privilege is reported at once.
    let (mut asking, mut watching) = (address.connect()?, address.connect()?);
    asking.wait_for_ever()?;
    let reply = thread::scope(|scope| {
        let work = scope.spawn(|| asking.run("admin", command.as_doc()));
        let bar = shown::bar("sending");
        while !work.is_finished() {
            if let Ok(status) =
                watching.run("admin", marula_bson::doc! { "backupStatus": 1 }.as_doc())
                && let Some(running) = status.as_doc().get("running").and_then(|doc| doc.as_doc())
            {
                let number = |name: &str| running.get(name).and_then(|n| n.as_exact_i64());
                bar.set_length(number("bytes").unwrap_or(0).unsigned_abs());
                bar.set_position(number("doneBytes").unwrap_or(0).unsigned_abs());
            }
            thread::sleep(ASK_EVERY);
        }
        bar.finish_and_clear();
        work.join().unwrap_or_else(|_| Err("the backup ended in a panic".to_owned()))
    })?;
    let reply = reply.as_doc();
    let number =
        |name: &str| reply.get(name).and_then(|n| n.as_exact_i64()).unwrap_or(0).unsigned_abs();
    let text = |name: &str| reply.get(name).and_then(|text| text.as_str().map(ToString::to_string));
    let moment_us = match reply.get("moment") {
        Some(Value::DateTime(ms)) => ms.saturating_mul(1000),
        _ => 0,
    };
    let (id, to) = (text("id").unwrap_or_default(), text("to").unwrap_or_default());
    report(&id, &to, number("bytes"), number("sentBytes"), moment_us);
    Ok(())
}

fn address(args: &CreateArgs) -> Result<Address, Failure> {
    if let Some(uri) = &args.uri {
        return Address::of_uri(uri);
    }
    let user = match &args.username {
        None => None,
        Some(name) => {
            let password = std::env::var(PASSWORD).map_err(|_| {
                format!("the password of '{name}' is to be in the variable {PASSWORD}")
            })?;
            Some((name.as_str(), password, args.authentication_database.as_str()))
        }
    };
    let tls = Tls {
        authorities: args.tls_ca_file.clone(),
        certificate_key: args.tls_certificate_key_file.clone(),
    };
    let tls = (args.tls || tls.is_detailed()).then_some(tls);
    Ok(Address::of_host(args.host.as_deref().unwrap_or(HOST), user, tls))
}

/// The absolute form of a path: the server may run in another folder.
fn on_server(path: &str) -> String {
    match path.contains("://") {
        true => path.to_owned(),
        false => {
            std::path::absolute(path).map_or(path.to_owned(), |path| path.display().to_string())
        }
    }
}

fn report(id: &str, target: &str, bytes: u64, sent: u64, moment_us: i64) {
    println!(
        "backup {id} in {target}: {} of files, {} sent, as of {}",
        shown::size(bytes),
        shown::size(sent),
        times::shown(moment_us)
    );
}

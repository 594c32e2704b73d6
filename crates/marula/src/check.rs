//! `marula check`: checks a data folder that no server has open, without changing it.
//!
//! First the engine's files, then each collection: every document is well formed, every index has
//! exactly the entries of the documents, the counters are exact. Progress goes to stderr, the
//! report to stdout.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_db::validate::{self, CHECK_EVERY};
use marula_db::{Collection, Db};

use crate::cli::CheckArgs;
use crate::{Failure, engine};

/// The interval of progress reports.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The size of a folder's content, and its faults.
pub(crate) struct Report {
    pub(crate) collections: usize,
    pub(crate) documents: i64,
    /// A line each.
    pub(crate) faults: Vec<String>,
}

/// Checks the engine, then every collection; reports each error on a line.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let Report { collections, documents, faults } = folder(&args.dbpath)?;
    for fault in &faults {
        println!("{fault}");
    }
    println!("{collections} collections, {documents} documents, {} faults", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the data folder `dbpath`.
///
/// Errors: it cannot be opened or read at all.
pub(crate) fn folder(dbpath: &Path) -> Result<Report, Failure> {
    if !dbpath.is_dir() {
        return Err(format!("there is no data folder '{}'", dbpath.display()));
    }
    let store = engine::open_to_read(dbpath)?;
    let mut told = Instant::now();
    let mut faults = store.check().map_err(|error| format!("cannot check the store: {error}"))?;
    if told.elapsed() >= TELL_EVERY {
        eprintln!("marula: the store's files were read");
    }
    let db = Db::open_to_read(store)
        .map_err(|error| format!("cannot read the catalogue: {}", error.message()))?;
    let (mut collections, mut documents) = (0, 0);
    for name in db.catalog().databases() {
        for collection in db.catalog().collections(&name) {
            documents += check(&db, &collection, &mut faults, &mut told);
            collections += 1;
        }
    }
    db.close().map_err(|error| error.message().to_owned())?;
    Ok(Report { collections, documents, faults })
}

/// Checks one collection; returns the number of its documents. An unreadable part is an error of
/// this collection, and the next collection is checked all the same.
fn check(
    db: &Db,
    collection: &Arc<Collection>,
    faults: &mut Vec<String>,
    told: &mut Instant,
) -> i64 {
    let ns = collection.namespace();
    let mut steps = 0_u64;
    let mut go_on = || {
        steps += 1;
        if told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            let (done, all) = (steps * CHECK_EVERY, collection.count());
            eprintln!("marula: {ns}: {done} documents and entries, of {all} documents");
        }
        Ok(())
    };
    match validate::check(db, collection, &mut go_on) {
        Ok(report) => {
            faults.extend(report.errors.iter().map(|fault| format!("{ns}: {fault}")));
            if report.errors_omitted > 0 {
                faults.push(format!("{ns}: {} more", report.errors_omitted));
            }
            report.records
        }
        Err(error) => {
            faults.push(format!("{ns}: could not be read: {}", error.message()));
            0
        }
    }
}

//! `marula check`: looks through a data folder that no server has open.

use std::process::ExitCode;

use marula_db::{Db, validate};

use crate::cli::CheckArgs;
use crate::settings::EngineKind;
use crate::{Failure, engine};

/// Checks the engine, then every collection; says what is wrong, a line each.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    if !args.dbpath.is_dir() {
        return Err(format!("there is no data folder '{}'", args.dbpath.display()));
    }
    let store = engine::open(EngineKind::RocksDb, &args.dbpath, None)?;
    let mut faults = store.check().map_err(|error| format!("cannot check the store: {error}"))?;
    let client_error = |error: marula_error::Error| error.message().to_owned();
    let db = Db::open(store).map_err(client_error)?;
    let (mut collections, mut documents) = (0, 0);
    for name in db.catalog().databases() {
        for collection in db.catalog().collections(&name) {
            let report =
                validate::check(db.store(), &collection, &mut || Ok(())).map_err(client_error)?;
            collections += 1;
            documents += report.records;
            let ns = collection.namespace();
            faults.extend(report.errors.iter().map(|fault| format!("{ns}: {fault}")));
            if report.errors_omitted > 0 {
                faults.push(format!("{ns}: {} more", report.errors_omitted));
            }
        }
    }
    db.close().map_err(client_error)?;
    for fault in &faults {
        println!("{fault}");
    }
    println!("{collections} collections, {documents} documents, {} faults", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

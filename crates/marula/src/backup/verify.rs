//! `marula backup verify`: restores aside, opens, and checks every document, index and counter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use marula_backup::moment::{Wanted, Way, way_to};
use marula_backup::{Progress, Repository};

use super::args::VerifyArgs;
use super::restore::{Found, restore};
use super::{open, shown, threads, times};
use crate::Failure;
use crate::check::{self, Report};

pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let repository = open(&args.target)?;
    let found = Found::look(&repository, &args.which)?;
    let mut is_whole = true;
    if args.all {
        if found.backups().is_empty() {
            return Err("there are no backups".to_owned());
        }
        for backup in found.backups() {
            let own = std::slice::from_ref(backup);
            let way = way_to(Wanted::Latest, own, &[]).map_err(|error| error.to_string())?;
            is_whole &= report(&way, verify(&repository, &way, args));
        }
    } else {
        let way = found.way(&args.which)?;
        is_whole = report(&way, verify(&repository, &way, args));
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Verifies one; answers what it holds, where it was opened.
fn verify(
    repository: &Repository,
    way: &Way<'_>,
    args: &VerifyArgs,
) -> Result<Option<Report>, Failure> {
    if args.objects_only {
        let progress = Progress::default();
        let compared = shown::with_bar("comparing", &progress, || {
            marula_backup::fetch::compare(repository, way.backup, threads(), &progress)
        });
        return compared.map(|()| None).map_err(|error| error.to_string());
    }
    let aside = Aside::make(args.temp.as_deref())?;
    restore(repository, way, &aside.0)?;
    check::folder(&aside.0).map(Some)
}

/// Says how it went; answers whether it is whole.
fn report(way: &Way<'_>, verified: Result<Option<Report>, Failure>) -> bool {
    let (id, moment) = (&way.backup.id, times::shown(way.until_us));
    match verified {
        Ok(None) => println!("backup {id}: every object is what it was"),
        Ok(Some(report)) if report.faults.is_empty() => println!(
            "backup {id} as of {moment}: restored and checked, {} collections, {} documents, 0 faults",
            report.collections, report.documents
        ),
        Ok(Some(report)) => {
            report.faults.iter().for_each(|fault| println!("backup {id}: {fault}"));
            println!("backup {id} as of {moment}: {} faults", report.faults.len());
            return false;
        }
        Err(failure) => {
            println!("backup {id} as of {moment}: cannot be restored: {failure}");
            return false;
        }
    }
    true
}

/// A folder of this program's own, removed at the end.
struct Aside(PathBuf);

impl Aside {
    fn make(folder: Option<&Path>) -> Result<Aside, Failure> {
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let random = rand::random::<u64>();
        let path = folder.join(format!("marula-verify-{random:016x}"));
        fs::create_dir_all(&path)
            .map_err(|error| format!("cannot make '{}': {error}", path.display()))?;
        Ok(Aside(path))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("marula: cannot remove '{}': {error}", self.0.display());
        }
    }
}

//! The report of a folder of results: a page with charts, the charts as files, tables in Markdown.
//!
//! Everything is drawn from the raw results alone, so that a report can be made anew, and elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::Record;

mod markdown;
mod numbers;

/// Writes the report beside the results and returns the files.
pub(crate) fn write(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let records = Record::load_all(folder)?;
    let mut written = Vec::new();
    let mut put = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        written.push(path);
        Ok::<(), String>(())
    };
    put("report.md", markdown::page(&records))?;
    Ok(written)
}

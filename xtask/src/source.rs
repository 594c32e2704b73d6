//! The repository's files, read once.

use std::fs;
use std::path::Path;

/// A text file: its path from the root of the repository, and its content.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders of files that are not sources: results of builds, data, packages, version control.
const FOREIGN: &[&str] = &["target", "data", "node_modules", "__pycache__", "artifacts", "corpus"];

/// Reads every text file in `folder` and its subfolders, in order of path.
pub(crate) fn read(root: &Path, folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    walk(root, &root.join(folder), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
        if path.is_dir() {
            if !hidden && !FOREIGN.contains(&name.as_str()) {
                walk(root, &path, found);
            }
        } else if name == "local.toml" || name == ".git" {
            // The machine's settings from tools/setup; in a further work tree, the location of the
            // repository.
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path =
                path.strip_prefix(root).expect("the walk starts at the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}

//! Pictures of pages, by the Chromium that is installed, if any.

use std::path::Path;
use std::process::{Command, Stdio};

/// The names under which it is installed.
const PROGRAMS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Draws the page of a file into a PNG file; false where no browser is installed or it fails.
pub(crate) fn draw(page: &Path, width: u32, height: u32, to: &Path) -> bool {
    let Ok(page) = page.canonicalize() else { return false };
    let profile = std::env::temp_dir().join(format!("marula-bench-browser-{}", std::process::id()));
    let root = std::fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let drawn = PROGRAMS.iter().any(|program| {
        let mut command = Command::new(program);
        command.args(["--headless", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1.5"]);
        if root {
            // The browser refuses its sandbox to root; the page is our own and has no scripts.
            command.arg("--no-sandbox");
        }
        command
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--screenshot={}", to.display()))
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
            && to.exists()
    });
    // A remaining profile does no harm.
    let _ = std::fs::remove_dir_all(profile);
    drawn
}

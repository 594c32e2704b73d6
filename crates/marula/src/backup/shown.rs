//! The progress bars of the program, and sizes for people.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use marula_backup::Progress;

/// The time between two moves of a bar.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A bar on the terminal; where stderr is none, nothing is shown.
pub(super) fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style =
        "{msg:<10} [{bar:32}] {percent:>3}%  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
    let style = ProgressStyle::with_template(style).expect("the template is right");
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(what);
    bar
}

/// Does `work` while a bar shows its progress.
pub(super) fn with_bar<T>(what: &'static str, progress: &Progress, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let bar = bar(what);
    let done = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                bar.set_length(progress.total());
                bar.set_position(progress.done());
                thread::park_timeout(LOOK_EVERY);
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        done
    });
    bar.finish_and_clear();
    done
}

/// A number of bytes.
pub(super) fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

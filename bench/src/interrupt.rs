//! Ctrl-C: running measurements stop at the next check, and their results so far are kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The error of an interrupted load.
pub(crate) const MESSAGE: &str = "stopped by Ctrl-C";

/// From here on SIGINT and SIGTERM set a flag instead of ending the program; a second one ends it.
pub(crate) fn listen() -> Result<(), String> {
    let asked = ASKED.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the first signal finds the flag unset, sets it, and the second one
        // ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, 130, asked.clone())
            .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
            .map_err(|error| format!("cannot listen for signals: {error}"))?;
    }
    Ok(())
}

/// Returns whether the end was requested.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// Returns an error once the end was requested.
pub(crate) fn check() -> Result<(), String> {
    if asked() { Err(MESSAGE.into()) } else { Ok(()) }
}

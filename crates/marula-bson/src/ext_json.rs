//! Extended JSON, canonical and relaxed.

//! The simplest engine: ordered maps in memory.

//! (to be written)

pub mod net;

//! Sockets, threads, and the border to commands.
//!
//! A few network *workers* own the connections and poll them; a *pool* runs what may be long. Start with
//! [`service`].

pub mod service;
mod wake;

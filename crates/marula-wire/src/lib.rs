//! The wire protocol of both ends: messages, their old forms, compression, checksums, a small
//! client.
//!
//! A [`Message`] is one request, borrowed from the bytes it came in; a [`ReplyBuffer`] is where its
//! reply is written, in place. A [`Refusal`] is the server's reaction to bytes that are no request.
//! All bytes come from a stranger: every length is checked before it is used, and no claimed size
//! alone causes an allocation.
//!
//! This crate knows no commands and, except for [`client`], no sockets. Start with [`message`].

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod checksum;
pub mod client;
pub mod compress;
pub mod legacy;
pub mod message;
pub mod reply;

pub use client::Client;
pub use compress::{Compressor, Compressors};
pub use message::{Flags, Header, Message, OwnedMessage, Sequence, frame_length, logical_length};
pub use reply::{Form, Refusal, ReplyBuffer, ReplyTo};

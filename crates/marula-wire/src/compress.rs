//! Compression of messages.
//!
//! ```text
//! OP_COMPRESSED      bytes  content
//! originalOpcode     4      i32, the opcode of the original message
//! uncompressedSize   4      i32, without the header
//! compressorId       1      0 noop, 1 snappy, 2 zlib, 3 zstd
//! compressed         …      the original message after its header
//! ```
//!
//! The size is a claim of the sender: it is bounded before anything is allocated, decompression
//! stops when it would exceed it, and the result must have exactly that size. Source: driver
//! specification "OP_COMPRESSED". A reply is compressed exactly when its request was, with the same
//! compressor, whatever was negotiated: mongod's behaviour.

use std::io::Read;

use crate::message::{Header, MESSAGE_BYTES_MAX, OP_COMPRESSED, i32_front};
use crate::reply::Refusal;

/// The bytes of an OP_COMPRESSED between the header and the compressed data.
const PREFIX_BYTES: usize = 9;
/// The default levels of zlib and zstd, which mongod uses.
const ZLIB_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

/// A way to compress messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Compressor {
    Noop = 0,
    Snappy = 1,
    Zlib = 2,
    Zstd = 3,
}

impl Compressor {
    /// All compressors, by id.
    pub const ALL: [Compressor; 4] =
        [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

    /// The compressor with the wire number `id`.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Compressor::ALL.into_iter().find(|compressor| compressor.id() == id)
    }

    /// The compressor named `name` in `hello` and in the configuration.
    pub fn from_name(name: &[u8]) -> Option<Compressor> {
        Compressor::ALL.into_iter().find(|compressor| compressor.name().as_bytes() == name)
    }

    /// The number on the wire.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The name in `hello` and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }
}

/// The set of compressors that a server accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressors(u8);

impl Compressors {
    /// The empty set: every compressed message is refused.
    pub const NONE: Compressors = Compressors(0);
    /// mongod's default: `snappy,zstd,zlib`.
    pub const DEFAULT: Compressors =
        Compressors::NONE.with(Compressor::Snappy).with(Compressor::Zstd).with(Compressor::Zlib);

    /// Adds a compressor to the set.
    #[must_use]
    pub const fn with(self, compressor: Compressor) -> Compressors {
        Compressors(self.0 | 1 << compressor.id())
    }

    /// Returns whether `compressor` is in the set.
    pub const fn has(self, compressor: Compressor) -> bool {
        self.0 & (1 << compressor.id()) != 0
    }
}

/// The uncompressed size that the payload of an OP_COMPRESSED claims; `None` if it is cut or not a
/// size.
pub(crate) fn claimed_size(payload: &[u8]) -> Option<usize> {
    payload.get(4..).and_then(i32_front).and_then(|size| usize::try_from(size).ok())
}

/// Decompresses the message in `frame` into a message with its own header in `out`.
///
/// Errors: all close the connection, as mongod does.
pub(crate) fn inflate(
    header: Header,
    frame: &[u8],
    out: &mut Vec<u8>,
    allowed: Compressors,
) -> Result<Compressor, Refusal> {
    let payload = frame.get(Header::SIZE..).unwrap_or_default();
    let (prefix, compressed) = payload
        .split_first_chunk::<PREFIX_BYTES>()
        .ok_or(Refusal::Close("OP_COMPRESSED is cut"))?;
    let [.., id] = *prefix;
    let opcode = i32_front(prefix).unwrap_or_default();
    let size = claimed_size(prefix)
        .filter(|size| *size <= MESSAGE_BYTES_MAX - Header::SIZE)
        .ok_or(Refusal::Close("OP_COMPRESSED claims a size out of range"))?;
    let compressor = Compressor::from_id(id)
        .filter(|compressor| allowed.has(*compressor))
        .ok_or(Refusal::Close("OP_COMPRESSED names a compressor that is not offered"))?;
    out.clear();
    let inner = Header { length: Header::SIZE + size, opcode, ..header };
    out.extend_from_slice(&inner.to_bytes());
    decompress(compressor, compressed, size, out)
        .filter(|()| out.len() == inner.length)
        .ok_or(Refusal::Close("OP_COMPRESSED does not hold what it claims"))?;
    Ok(compressor)
}

/// Appends at most `size` + 1 decompressed bytes to `out`; `None` if the input is broken.
fn decompress(
    compressor: Compressor,
    compressed: &[u8],
    size: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    // One byte more than claimed, to detect surplus data.
    let limit = size as u64 + 1;
    match compressor {
        Compressor::Noop => out.extend_from_slice(compressed),
        Compressor::Snappy => {
            // Snappy expands 3 bytes to at most 64, so a length claimed inside the stream is
            // accepted only if the input can produce it.
            let claimed = snap::raw::decompress_len(compressed).ok()?;
            if claimed != size || claimed / 22 > compressed.len() {
                return None;
            }
            let start = out.len();
            out.resize(start + size, 0);
            snap::raw::Decoder::new().decompress(compressed, out.get_mut(start..)?).ok()?;
        }
        Compressor::Zlib => {
            flate2::bufread::ZlibDecoder::new(compressed).take(limit).read_to_end(out).ok()?;
        }
        Compressor::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(compressed).ok()?;
            decoder.single_frame().take(limit).read_to_end(out).ok()?;
        }
    }
    Some(())
}

/// Replaces the message that `header` describes at `out[start..]` by its compressed form.
///
/// If compression fails the message stays uncompressed, which every client accepts.
pub(crate) fn deflate(
    compressor: Compressor,
    header: Header,
    start: usize,
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) {
    let payload = out.get(start + Header::SIZE..).unwrap_or_default();
    scratch.clear();
    if compress(compressor, payload, scratch).is_none() {
        return;
    }
    let outer = Header {
        length: Header::SIZE + PREFIX_BYTES + scratch.len(),
        opcode: OP_COMPRESSED,
        ..header
    };
    let size = i32::try_from(payload.len()).expect("a message is shorter than 2 GiB");
    out.truncate(start);
    out.extend_from_slice(&outer.to_bytes());
    out.extend_from_slice(&header.opcode.to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.push(compressor.id());
    out.extend_from_slice(scratch);
}

fn compress(compressor: Compressor, payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match compressor {
        Compressor::Noop => out.extend_from_slice(payload),
        Compressor::Snappy => {
            out.resize(snap::raw::max_compress_len(payload.len()), 0);
            let size = snap::raw::Encoder::new().compress(payload, out).ok()?;
            out.truncate(size);
        }
        Compressor::Zlib => {
            let level = flate2::Compression::new(ZLIB_LEVEL);
            flate2::bufread::ZlibEncoder::new(payload, level).read_to_end(out).ok()?;
        }
        Compressor::Zstd => {
            zstd::stream::copy_encode(payload, &mut *out, ZSTD_LEVEL).ok()?;
        }
    }
    Some(())
}

//! The stored form of bytes: compressed if that saves space, and encrypted if there is a key.
//!
//! ```text
//! magic     8 bytes   "MRLBKP01"
//! kind      1 byte    0 plain, 1 encrypted with AES-256-GCM
//! digest   32 bytes   SHA-256 of the content; encrypted: the salt of the key, random
//! frames              of 1 MB of the content each, one at least:
//!   header  9 bytes   flags (1 compressed with zstd, 2 the last one),
//!                     bytes of content u32, bytes stored u32
//!   stored            the content, or its compressed form; encrypted, with 16 bytes of tag
//! ```
//!
//! Numbers are little-endian. The key of the frames is derived from the repository's key, the salt
//! and the name of the object, so a frame is invalid in any other object. Its nonce is its number,
//! and its header is authenticated: frames cannot be removed, reordered, or cut off at the end.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::key::{Hash, KEY_BYTES, Key, sha256};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"MRLBKP01";
const PLAIN: u8 = 0;
const ENCRYPTED: u8 = 1;
const HEAD_BYTES: usize = MAGIC.len() + 1 + KEY_BYTES;

const FRAME_BYTES: usize = 1 << 20;
const FRAME_HEAD_BYTES: usize = 9;
const COMPRESSED: u8 = 1;
const LAST: u8 = 2;

/// A cheap compression level, because the engine has already compressed its table files.
const ZSTD_LEVEL: i32 = 1;
/// A frame is stored compressed if that saves at least this fraction (an eighth) of it.
const WORTH_PART: usize = 8;
/// After a frame that zstd could not compress, this number of frames is stored uncompressed without
/// an attempt.
const FRAMES_NOT_TRIED: usize = 7;

/// Content that was opened.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    /// The content.
    pub(crate) content: Vec<u8>,
    /// The SHA-256 of the content if it was stored in plain form.
    pub(crate) digest: Option<Hash>,
}

/// Returns the bytes to store under `name` for `content`. `digest` is the SHA-256 of the content if
/// the caller has it already.
///
/// Errors: `Key` if the operating system returns no random bytes.
pub(crate) fn seal(
    key: Option<&Key>,
    name: &str,
    content: &[u8],
    digest: Option<Hash>,
) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(content.len() + content.len() / 64 + 256);
    out.extend_from_slice(MAGIC);
    let cipher = match key {
        None => {
            out.push(PLAIN);
            out.extend_from_slice(&digest.unwrap_or_else(|| sha256(content)));
            None
        }
        Some(key) => {
            let mut salt = [0; KEY_BYTES];
            SystemRandom::new()
                .fill(&mut salt)
                .map_err(|_| Error::Key("the system gives no random bytes".to_owned()))?;
            out.push(ENCRYPTED);
            out.extend_from_slice(&salt);
            Some(cipher(&key.of_frames(&salt, name)))
        }
    };
    let count = content.len().div_ceil(FRAME_BYTES).max(1);
    let mut not_tried = 0;
    for number in 0..count {
        let start = number * FRAME_BYTES;
        let frame = &content[start..content.len().min(start + FRAME_BYTES)];
        let mut flags = if number + 1 == count { LAST } else { 0 };
        let mut packed = None;
        if not_tried == 0 {
            packed = compressed(frame);
            not_tried = if packed.is_some() { 0 } else { FRAMES_NOT_TRIED };
        } else {
            not_tried -= 1;
        }
        if packed.is_some() {
            flags |= COMPRESSED;
        }
        let stored = packed.as_deref().unwrap_or(frame);
        let tag_bytes = if cipher.is_some() { aead::MAX_TAG_LEN } else { 0 };
        let head = frame_head(flags, frame.len(), stored.len() + tag_bytes);
        out.extend_from_slice(&head);
        let at = out.len();
        out.extend_from_slice(stored);
        if let Some(cipher) = &cipher {
            let nonce = nonce(number);
            let tag = cipher
                .seal_in_place_separate_tag(nonce, Aad::from(head), &mut out[at..])
                .expect("a frame is far below the bound of the cipher");
            out.extend_from_slice(tag.as_ref());
        }
    }
    Ok(out)
}

/// Returns the content of the bytes `stored` under `name`; content larger than `bytes_max` is
/// rejected.
///
/// Errors: `Damaged`; `Key` if it is encrypted and there is no key, or the reverse.
pub(crate) fn open(
    key: Option<&Key>,
    name: &str,
    stored: &[u8],
    bytes_max: usize,
) -> Result<Opened> {
    let damaged = |what: &str| Error::Damaged(format!("'{name}' {what}"));
    let Some((head, mut rest)) = stored.split_at_checked(HEAD_BYTES) else {
        return Err(damaged("is cut off"));
    };
    let (magic, head) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged("does not begin as an object of a backup does"));
    }
    let (kind, salt) = (head[0], &head[1..]);
    let cipher = match (kind, key) {
        (PLAIN, None) => None,
        (ENCRYPTED, Some(key)) => Some(cipher(&key.of_frames(salt, name))),
        (PLAIN, Some(_)) => return Err(damaged("is not encrypted, as it should be")),
        (ENCRYPTED, None) => return Err(Error::Key(format!("'{name}' is encrypted: say its key"))),
        _ => return Err(damaged("is of a kind that is not known")),
    };
    let mut content = Vec::with_capacity(rest.len().min(bytes_max));
    let mut number = 0;
    loop {
        let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() else {
            return Err(damaged("is cut off"));
        };
        let (flags, plain_bytes, stored_bytes) = parts(head);
        let is_known = flags & !(COMPRESSED | LAST) == 0;
        if !is_known || plain_bytes > FRAME_BYTES || content.len() + plain_bytes > bytes_max {
            return Err(damaged("has a wrong frame"));
        }
        let Some((frame, behind)) = behind.split_at_checked(stored_bytes) else {
            return Err(damaged("is cut off"));
        };
        rest = behind;
        let mut opened;
        let frame = match &cipher {
            None => frame,
            Some(cipher) => {
                opened = frame.to_vec();
                let opened = cipher
                    .open_in_place(nonce(number), Aad::from(*head), &mut opened)
                    .map_err(|_| damaged("was changed, or is of another key"))?;
                &*opened
            }
        };
        let before = content.len();
        match flags & COMPRESSED != 0 {
            false => content.extend_from_slice(frame),
            true => {
                let plain = zstd::bulk::decompress(frame, plain_bytes);
                content.extend(plain.map_err(|_| damaged("cannot be decompressed"))?);
            }
        }
        if content.len() - before != plain_bytes {
            return Err(damaged("has a frame of a wrong length"));
        }
        number += 1;
        if flags & LAST != 0 {
            break;
        }
    }
    if !rest.is_empty() {
        return Err(damaged("has bytes after its end"));
    }
    let digest = (kind == PLAIN).then(|| sha256(&content));
    if digest.is_some_and(|digest| digest != salt) {
        return Err(damaged("has a wrong checksum"));
    }
    Ok(Opened { content, digest })
}

fn compressed(frame: &[u8]) -> Option<Vec<u8>> {
    let packed = zstd::bulk::compress(frame, ZSTD_LEVEL).ok()?;
    (packed.len() < frame.len() - frame.len() / WORTH_PART).then_some(packed)
}

fn cipher(key: &hmac::Tag) -> LessSafeKey {
    let key = UnboundKey::new(&aead::AES_256_GCM, key.as_ref());
    LessSafeKey::new(key.expect("an HMAC-SHA256 is as long as a key of AES-256"))
}

fn nonce(number: usize) -> Nonce {
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn frame_head(flags: u8, plain_bytes: usize, stored_bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    let number = |bytes: usize| u32::try_from(bytes).expect("a frame is small").to_le_bytes();
    let mut head = [flags; FRAME_HEAD_BYTES];
    head[1..5].copy_from_slice(&number(plain_bytes));
    head[5..].copy_from_slice(&number(stored_bytes));
    head
}

fn parts(head: &[u8; FRAME_HEAD_BYTES]) -> (u8, usize, usize) {
    let [flags, a, b, c, d, e, f, g, h] = *head;
    let plain_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    (flags, plain_bytes, u32::from_le_bytes([e, f, g, h]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64 << 20;

    fn content(bytes: usize) -> Vec<u8> {
        // Frames of both kinds: compressible and incompressible.
        let mut state = 1_u64;
        let next = move |at: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if (at >> 20).is_multiple_of(2) { (state >> 56) as u8 } else { b'a' }
        };
        (0..bytes).map(next).collect()
    }

    #[test]
    fn what_is_sealed_opens_again() {
        let key = Key::new(&[3; KEY_BYTES]);
        for key in [None, Some(&key)] {
            for bytes in [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 12 * FRAME_BYTES] {
                let content = content(bytes);
                let stored = seal(key, "x", &content, None).expect("it is sealed");
                let opened = open(key, "x", &stored, MAX).expect("it opens");
                assert!(opened.content == content, "{bytes}");
                assert_eq!(opened.digest, key.is_none().then(|| sha256(&content)));
                if key.is_none() {
                    let again = seal(None, "x", &content, opened.digest).expect("it is sealed");
                    assert!(again == stored, "{bytes}");
                }
                if bytes > 0 {
                    assert!(open(key, "x", &stored, bytes - 1).is_err(), "it has a bound");
                }
            }
        }
    }

    #[test]
    fn every_change_is_noticed() {
        let key = Key::new(&[3; KEY_BYTES]);
        let content: Vec<u8> = (0..300_u32).flat_map(u32::to_le_bytes).collect();
        for key in [None, Some(&key)] {
            let stored = seal(key, "x", &content, None).expect("it is sealed");
            for at in 0..stored.len() {
                let mut changed = stored.clone();
                changed[at] ^= 1;
                assert!(open(key, "x", &changed, MAX).is_err(), "byte {at}");
                assert!(open(key, "x", &stored[..at], MAX).is_err(), "cut at {at}");
            }
            assert!(open(key, "x", &[&stored[..], b"x"].concat(), MAX).is_err());
        }
    }

    #[test]
    fn a_frame_is_of_one_place_in_one_object() {
        let (key, other) = (Key::new(&[3; KEY_BYTES]), Key::new(&[4; KEY_BYTES]));
        let stored = seal(Some(&key), "x", &content(3 * FRAME_BYTES), None).expect("it is sealed");
        assert!(open(Some(&key), "y", &stored, MAX).is_err(), "under another name");
        assert!(open(Some(&other), "x", &stored, MAX).is_err(), "with another key");
        assert!(matches!(open(None, "x", &stored, MAX), Err(Error::Key(_))), "with no key");
        let (head, frames) = stored.split_at(HEAD_BYTES);
        let first = FRAME_HEAD_BYTES + parts(frames.first_chunk().expect("a head")).2;
        let (first, others) = frames.split_at(first);
        let second = FRAME_HEAD_BYTES + parts(others.first_chunk().expect("a head")).2;
        let (second, third) = others.split_at(second);
        for wrong in
            [[head, second, first, third], [head, first, third, &[]], [head, first, second, &[]]]
        {
            assert!(open(Some(&key), "x", &wrong.concat(), MAX).is_err());
        }
        let plain = seal(None, "x", b"y", None).expect("it is sealed");
        assert!(open(Some(&key), "x", &plain, MAX).is_err(), "a plain one in its place");
    }
}

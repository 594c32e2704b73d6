//! The key of an encrypted repository, and the names of objects.
//!
//! A key file has 32 bytes: raw, as 64 hexadecimal digits, or in base64 (`openssl rand -base64
//! 32`). Each purpose has its own derived key: the HMAC of the purpose under the key of the file.

use std::fs;
use std::io::Read;
use std::path::Path;

use ring::{digest, hmac};

use crate::{Error, Result};

/// The size of a key and of a name in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// The maximum size of a key file.
const FILE_BYTES_MAX: u64 = 1024;

/// The key of a repository.
#[derive(Clone)]
pub struct Key {
    names: hmac::Key,
    frames: hmac::Key,
    check: String,
}

impl Key {
    /// Reads a key file.
    ///
    /// Errors: `Key` if the file cannot be read or is not a key.
    pub fn read(path: &Path) -> Result<Key> {
        let shown = path.display();
        let mut bytes = Vec::new();
        fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| Error::Key(format!("cannot read key file '{shown}': {error}")))?;
        let key = parse(&bytes).ok_or_else(|| {
            Error::Key(format!(
                "key file '{shown}' holds no key: 32 bytes, 64 hexadecimal digits or base64 of 32 bytes ('openssl rand -base64 32' makes one)"
            ))
        })?;
        Ok(Key::new(&key))
    }

    /// Creates a key from raw bytes.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Key {
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let derived = |purpose: &str| hmac::sign(&root, purpose.as_bytes());
        let of = |purpose: &str| hmac::Key::new(hmac::HMAC_SHA256, derived(purpose).as_ref());
        Key {
            names: of("marula backup: names of objects"),
            frames: of("marula backup: keys of frames"),
            check: hex(derived("marula backup: which key it is").as_ref()),
        }
    }

    /// Returns a fingerprint, which identifies the key without revealing it.
    pub(crate) fn check(&self) -> &str {
        &self.check
    }

    /// Returns the key of the frames of one stored object.
    pub(crate) fn of_frames(&self, salt: &[u8], name: &str) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.frames);
        context.update(salt);
        context.update(name.as_bytes());
        context.sign()
    }
}

/// A hash of a content.
pub(crate) type Hash = [u8; KEY_BYTES];

/// Returns the hash that names an object with this content: the SHA-256, or with a key the HMAC, so
/// that a reader of the target cannot test whether it contains a known file.
pub(crate) fn hash_of(key: Option<&Key>, content: &[u8]) -> Hash {
    match key {
        Some(key) => {
            let tag = hmac::sign(&key.names, content);
            tag.as_ref().try_into().expect("an HMAC-SHA256 is as long as a key")
        }
        None => sha256(content),
    }
}

/// Returns the SHA-256 of a content.
pub(crate) fn sha256(content: &[u8]) -> Hash {
    let digest = digest::digest(&digest::SHA256, content);
    digest.as_ref().try_into().expect("a SHA-256 is as long as a key")
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(bytes: &[u8]) -> Option<[u8; KEY_BYTES]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let decoded = if text.len() == 2 * KEY_BYTES { from_hex(text) } else { from_base64(text) };
    decoded?.try_into().ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_have_three_forms() {
        let key = [7; KEY_BYTES];
        let hexadecimal = hex(&key);
        for text in
            [&key[..], hexadecimal.as_bytes(), b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n"]
        {
            assert_eq!(parse(text), Some(key));
        }
        for text in [&b""[..], b"secret", &[7; 31], &[b'z'; 64], b"BwcHBwc=", &[0xFF; 44]] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn names_depend_on_the_key() {
        let (one, other) = (Key::new(&[1; KEY_BYTES]), Key::new(&[2; KEY_BYTES]));
        assert_ne!(one.check(), other.check());
        assert_ne!(hash_of(Some(&one), b"x"), hash_of(Some(&other), b"x"));
        assert_eq!(
            hex(&hash_of(None, b"")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}

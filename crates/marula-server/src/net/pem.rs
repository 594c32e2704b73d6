//! PEM files: their sections, and the certificates, revocations and keys in them.
//!
//! A key may be encrypted in two ways: as PKCS#8, which names how, or in the older form of OpenSSL,
//! whose section begins with headers:
//!
//! ```text
//! -----BEGIN RSA PRIVATE KEY-----
//! Proc-Type: 4,ENCRYPTED
//! DEK-Info: AES-256-CBC,0123456789ABCDEF0123456789ABCDEF
//!
//! <the encrypted key in base64>
//! ```

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit, KeySizeUser};
use marula_bson::hex;
use md5::{Digest, Md5};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer,
    PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

/// A section of a PEM file.
pub(super) struct Section {
    label: String,
    /// The cipher and the start value of a key in the older encrypted form: `DEK-Info`.
    encryption: Option<String>,
    bytes: Vec<u8>,
}

/// Reads the sections of a file.
///
/// Errors: what is wrong with the file, in words for its owner.
pub(super) fn sections(path: &Path) -> Result<Vec<Section>, String> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read '{shown}': {error}"))?;
    let mut found = Vec::new();
    let mut rest = text.lines().map(str::trim);
    while let Some(line) = rest.next() {
        let label = line.strip_prefix("-----BEGIN ").and_then(|line| line.strip_suffix("-----"));
        let Some(label) = label else { continue };
        let end = format!("-----END {label}-----");
        let (mut body, mut encryption) = (String::new(), None);
        loop {
            match rest.next() {
                Some(line) if line == end => break,
                // Base64 has no colon.
                Some(line) => match line.split_once(':') {
                    None => body.push_str(line),
                    Some(("DEK-Info", value)) => encryption = Some(value.trim().to_owned()),
                    Some(_) => {}
                },
                None => return Err(format!("'{shown}' ends within its {label}")),
            }
        }
        let bytes =
            BASE64.decode(&body).map_err(|_| format!("the {label} in '{shown}' is not base64"))?;
        found.push(Section { label: label.to_owned(), encryption, bytes });
    }
    Ok(found)
}

/// Returns the certificates, in the file's order.
pub(super) fn certificates(sections: &[Section]) -> Vec<CertificateDer<'static>> {
    labelled(sections, "CERTIFICATE").map(CertificateDer::from).collect()
}

/// Returns the lists of revoked certificates, in the file's order.
pub(super) fn revocations(sections: &[Section]) -> Vec<CertificateRevocationListDer<'static>> {
    labelled(sections, "X509 CRL").map(CertificateRevocationListDer::from).collect()
}

fn labelled<'s>(
    sections: &'s [Section],
    label: &'static str,
) -> impl Iterator<Item = Vec<u8>> + use<'s> {
    sections.iter().filter(move |section| section.label == label).map(|it| it.bytes.clone())
}

/// Returns the first private key, decrypted if it is encrypted.
///
/// Errors: that there is none, that it needs a password or has another one, in words for the file's
/// owner.
pub(super) fn key(
    path: &Path,
    sections: &[Section],
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, String> {
    let shown = path.display();
    let password = || {
        password
            .ok_or_else(|| format!("the key in '{shown}' is encrypted, and no password is given"))
    };
    let wrong = || format!("the key in '{shown}' cannot be decrypted with the password given");
    for Section { label, encryption, bytes } in sections {
        let plain = || match encryption {
            None => Ok(bytes.clone()),
            Some(encryption) => {
                let (cipher, start) = Cipher::parse(encryption)
                    .map_err(|reason| format!("the key in '{shown}' {reason}"))?;
                cipher.decrypt_key(password()?, &start, bytes).ok_or_else(wrong)
            }
        };
        return Ok(match label.as_str() {
            "PRIVATE KEY" => PrivatePkcs8KeyDer::from(bytes.clone()).into(),
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(plain()?).into(),
            "EC PRIVATE KEY" => PrivateSec1KeyDer::from(plain()?).into(),
            "ENCRYPTED PRIVATE KEY" => {
                let encrypted = pkcs8::EncryptedPrivateKeyInfoRef::try_from(bytes.as_slice())
                    .map_err(|error| format!("the key in '{shown}' is broken: {error}"))?;
                let decrypted = encrypted.decrypt(password()?).map_err(|_| wrong())?;
                PrivatePkcs8KeyDer::from(decrypted.as_bytes().to_vec()).into()
            }
            _ => continue,
        });
    }
    Err(format!("'{shown}' holds no private key"))
}

/// A cipher of the older encrypted form.
struct Cipher {
    /// Its name in `DEK-Info`.
    name: &'static str,
    /// The number of bytes of the start value.
    start_len: usize,
    /// Decrypts bytes with a password and a start value; `None` if the password is wrong.
    decrypt: fn(&str, &[u8], &[u8]) -> Option<Vec<u8>>,
}

const CIPHERS: &[Cipher] = &[
    Cipher { name: "AES-128-CBC", start_len: 16, decrypt: decrypt::<aes::Aes128> },
    Cipher { name: "AES-192-CBC", start_len: 16, decrypt: decrypt::<aes::Aes192> },
    Cipher { name: "AES-256-CBC", start_len: 16, decrypt: decrypt::<aes::Aes256> },
    Cipher { name: "DES-EDE3-CBC", start_len: 8, decrypt: decrypt::<des::TdesEde3> },
];

impl Cipher {
    /// Reads the value of `DEK-Info`: the cipher, and its start value in hexadecimal digits.
    fn parse(encryption: &str) -> Result<(&'static Cipher, Vec<u8>), String> {
        let (name, digits) = encryption.split_once(',').unwrap_or((encryption, ""));
        let cipher = CIPHERS.iter().find(|cipher| cipher.name == name).ok_or_else(|| {
            format!("is encrypted with {name}, which is not supported; `openssl pkcs8 -topk8` converts it")
        })?;
        let start = hex::parse(digits.trim().as_bytes())
            .filter(|start| start.len() == cipher.start_len)
            .ok_or("is broken: its DEK-Info has no start value")?;
        Ok((cipher, start))
    }

    /// Decrypts a key; `None` if the password is wrong.
    fn decrypt_key(&self, password: &str, start: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
        // One of 256 wrong passwords gives a valid padding.
        (self.decrypt)(password, start, bytes).filter(|key| is_sequence(key))
    }
}

/// Returns whether bytes are one sequence of DER, as all keys are.
fn is_sequence(bytes: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    match bytes {
        [SEQUENCE, len @ ..=0x7f, rest @ ..] => rest.len() == usize::from(*len),
        [SEQUENCE, 0x81, len, rest @ ..] => rest.len() == usize::from(*len),
        [SEQUENCE, 0x82, high, low, rest @ ..] => {
            rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    }
}

fn decrypt<C>(password: &str, start: &[u8], bytes: &[u8]) -> Option<Vec<u8>>
where
    cbc::Decryptor<C>: KeyIvInit + BlockModeDecrypt,
    C: cbc::cipher::BlockCipherDecrypt,
{
    // The salt is the front of the start value.
    let key = derived_key(password, &start[..8], cbc::Decryptor::<C>::key_size());
    let decryptor = cbc::Decryptor::<C>::new_from_slices(&key, start).ok()?;
    decryptor.decrypt_padded_vec::<Pkcs7>(bytes).ok()
}

/// Makes a cipher's key of a password as OpenSSL does: MD5 of the block before, the password and
/// the salt, until there are enough bytes.
fn derived_key(password: &str, salt: &[u8], len: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(len + 16);
    let mut block: Option<[u8; 16]> = None;
    while key.len() < len {
        let mut hash = Md5::new();
        if let Some(block) = block {
            hash.update(block);
        }
        hash.update(password);
        hash.update(salt);
        let next: [u8; 16] = hash.finalize().into();
        key.extend_from_slice(&next);
        block = Some(next);
    }
    key.truncate(len);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_encryption_is_refused_in_words() {
        let reason = |text: &str| Cipher::parse(text).map(drop).unwrap_err();
        assert!(reason("DES-CBC,0011223344556677").contains("openssl pkcs8 -topk8"));
        for broken in
            ["AES-256-CBC", "AES-256-CBC,00", "DES-EDE3-CBC,001122334455667", "AES-128-CBC,é"]
        {
            assert!(reason(broken).contains("DEK-Info"), "{broken}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let start = [7; 16];
        for bytes in [&[][..], &[1; 15], &[2; 16], &[3; 4096]] {
            for cipher in CIPHERS {
                assert!(cipher.decrypt_key("p", &start[..cipher.start_len], bytes).is_none());
            }
        }
    }
}

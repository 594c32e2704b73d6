//! Credentials, which the server stores instead of a password.
//!
//! SCRAM stores two keys that are derived from a password, a salt and a number of iterations; the
//! password cannot be derived from them. For SHA-1 the password is first digested with MD5, as
//! drivers do; for SHA-256 it is prepared by SASLprep.
//!
//! Source: RFC 5802, RFC 7677, RFC 4013; manual "SCRAM"; errors recorded from mongod 6.0.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use marula_bson::{Doc, DocWriter, doc_fields, hex};
use marula_error::{Error, Result, errors};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use stringprep::{saslprep, tables};

errors! {
    unknown_mechanism(name: &str) = BadValue, "Unknown auth mechanism '{name}'";
    /// An array of mechanisms is empty.
    pub(crate) no_mechanism() = BadValue, "mechanisms field must not be empty";
    digested() = BadValue, "Use of SCRAM-SHA-256 requires undigested passwords";
    empty_password() = 50_687, "Error preflighting UTF-8 conversion: U_STRING_NOT_TERMINATED_WARNING";
    not_prepared(why: &str) = 50_692, "Error preflighting normalization: {why}";
}

/// The hash function of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mechanism {
    /// SCRAM-SHA-1.
    Sha1,
    /// SCRAM-SHA-256.
    Sha256,
}

impl Mechanism {
    /// Every mechanism, in the order in which they are stored and shown.
    pub(crate) const ALL: [Mechanism; 2] = [Mechanism::Sha1, Mechanism::Sha256];

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "SCRAM-SHA-1",
            Mechanism::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// Returns the mechanism of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Returns the size of a new salt in bytes: with the counter that is appended to it, it fills a
    /// hash.
    pub(super) fn salt_bytes(self) -> usize {
        match self {
            Mechanism::Sha1 => 16,
            Mechanism::Sha256 => 28,
        }
    }

    /// Returns the name of the server parameter with the iterations of new credentials.
    pub(crate) fn iterations_parameter(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "scramIterationCount",
            Mechanism::Sha256 => "scramSHA256IterationCount",
        }
    }

    /// Returns the hash of some bytes.
    pub(super) fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::Sha1 => Sha1::digest(bytes).to_vec(),
            Mechanism::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    /// Returns the keyed hash of some bytes.
    pub(super) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        const ANY_KEY: &str = "HMAC takes keys of every length";
        match self {
            Mechanism::Sha1 => {
                let mut mac = Hmac::<Sha1>::new_from_slice(key).expect(ANY_KEY);
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }
            Mechanism::Sha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect(ANY_KEY);
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }
        }
    }

    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Mechanism::Sha1 => {
                pbkdf2::pbkdf2_hmac_array::<Sha1, 20>(password, salt, iterations).to_vec()
            }
            Mechanism::Sha256 => {
                pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec()
            }
        }
    }
}

/// Parses the field `mechanisms` of a command; returns them in the order in which they are stored.
pub(crate) fn parse_mechanisms(names: Doc<'_>) -> Result<Vec<Mechanism>> {
    let mut mechanisms = Vec::new();
    for name in names.values().filter(|name| !name.is_nullish()) {
        let name = name.as_str().unwrap_or_default().to_string();
        mechanisms.push(Mechanism::of_name(&name).ok_or_else(|| unknown_mechanism(&name))?);
    }
    if mechanisms.is_empty() {
        return Err(no_mechanism());
    }
    mechanisms.sort();
    mechanisms.dedup();
    Ok(mechanisms)
}

/// A password in a command.
#[derive(Clone, Copy)]
pub(crate) struct Password<'p> {
    /// The user's name, which goes into the MD5 digest.
    pub(crate) user: &'p str,
    /// The text.
    pub(crate) text: &'p str,
    /// Whether the client has digested it already.
    pub(crate) is_digested: bool,
}

impl Password<'_> {
    /// Returns the string that a mechanism hashes.
    fn prepared(&self, mechanism: Mechanism) -> Result<String> {
        match mechanism {
            Mechanism::Sha1 if self.is_digested => Ok(self.text.to_owned()),
            Mechanism::Sha1 => Ok(digest(self.user, self.text)),
            Mechanism::Sha256 if self.is_digested => Err(digested()),
            Mechanism::Sha256 => prepare(self.text),
        }
    }
}

/// Returns the MD5 digest of a user's password, for SCRAM-SHA-1.
fn digest(user: &str, password: &str) -> String {
    use md5::Digest as _;
    hex::text(&md5::Md5::digest(format!("{user}:mongo:{password}")))
}

/// Returns a password after SASLprep.
///
/// Errors: characters that it forbids, with ICU's message; an empty result.
pub(super) fn prepare(password: &str) -> Result<String> {
    if password.is_empty() {
        return Err(empty_password());
    }
    match saslprep(password) {
        Ok(prepared) if prepared.is_empty() => Err(not_prepared("U_STRING_NOT_TERMINATED_WARNING")),
        Ok(prepared) => Ok(prepared.into_owned()),
        Err(_) => Err(why_not_prepared(password)),
    }
}

fn why_not_prepared(password: &str) -> Error {
    let is_prohibited = |character: char| saslprep(character.encode_utf8(&mut [0; 4])).is_err();
    if password.chars().any(tables::unassigned_code_point) {
        not_prepared("U_STRINGPREP_UNASSIGNED_ERROR")
    } else if password.chars().any(is_prohibited) {
        not_prepared("U_STRINGPREP_PROHIBITED_ERROR")
    } else {
        not_prepared("U_STRINGPREP_CHECK_BIDI_ERROR")
    }
}

/// The stored credentials of one mechanism.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The number of iterations of the hash.
    pub(super) iterations: u32,
    /// The salt.
    pub(super) salt: Vec<u8>,
    /// The hash of the client's key.
    pub(super) stored_key: Vec<u8>,
    /// The server's key.
    pub(super) server_key: Vec<u8>,
}

impl Credentials {
    /// Creates credentials of a password with a new salt.
    ///
    /// Errors: those of a password that the mechanism does not permit.
    pub(crate) fn make(
        mechanism: Mechanism,
        password: Password<'_>,
        iterations: u32,
    ) -> Result<Self> {
        let mut salt = vec![0; mechanism.salt_bytes()];
        rand::fill(salt.as_mut_slice());
        Ok(Self::with_salt(mechanism, &password.prepared(mechanism)?, salt, iterations))
    }

    fn with_salt(mechanism: Mechanism, password: &str, salt: Vec<u8>, iterations: u32) -> Self {
        let salted = mechanism.salted(password.as_bytes(), &salt, iterations);
        let client_key = mechanism.hmac(&salted, b"Client Key");
        Credentials {
            iterations,
            salt,
            stored_key: mechanism.hash(&client_key),
            server_key: mechanism.hmac(&salted, b"Server Key"),
        }
    }

    /// Reads a mechanism's credentials from a user's document; `None` if there are no valid ones.
    pub(crate) fn stored(mechanism: Mechanism, user: Doc<'_>) -> Option<Self> {
        let credentials = user.get("credentials")?.as_doc()?;
        let credentials = credentials.get(mechanism.name())?.as_doc()?;
        let bytes =
            |field: &str| BASE64.decode(credentials.get(field)?.as_str()?.as_ref() as &[u8]).ok();
        let iterations = credentials.get("iterationCount")?.as_exact_i64()?;
        Some(Credentials {
            iterations: u32::try_from(iterations).ok()?,
            salt: bytes("salt")?,
            stored_key: bytes("storedKey")?,
            server_key: bytes("serverKey")?,
        })
    }

    /// Appends them as the field of their mechanism.
    pub(crate) fn write(&self, mechanism: Mechanism, out: &mut DocWriter<'_>) {
        let mut out = out.begin_doc(mechanism.name());
        doc_fields!(out;
            "iterationCount": i32::try_from(self.iterations).unwrap_or(i32::MAX),
            "salt": BASE64.encode(&self.salt).as_str(),
            "storedKey": BASE64.encode(&self.stored_key).as_str(),
            "serverKey": BASE64.encode(&self.server_key).as_str(),
        );
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::DocBuf;

    use super::*;

    #[test]
    fn keys_are_those_of_the_rfcs() {
        // RFC 5802, section 5: user "user", password "pencil"; here without the MD5 digest.
        let salt = BASE64.decode("QSXCR+Q6sek8bf92").unwrap();
        let sha1 = Credentials::with_salt(Mechanism::Sha1, "pencil", salt, 4096);
        assert_eq!(BASE64.encode(&sha1.stored_key), "6dlGYMOdZcOPutkcNY8U2g7vK9Y=");
        assert_eq!(BASE64.encode(&sha1.server_key), "D+CSWLOshSulAsxiupA+qs2/fTE=");
        // RFC 7677, section 3.
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let sha256 = Credentials::with_salt(Mechanism::Sha256, "pencil", salt, 4096);
        assert_eq!(
            BASE64.encode(&sha256.stored_key),
            "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        );
        assert_eq!(
            BASE64.encode(&sha256.server_key),
            "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn a_password_is_digested_for_sha_1() {
        assert_eq!(digest("user", "pencil"), "1c33006ec1ffd90f9cadcbcc0e118200");
        let digested_already = Password { user: "user", text: "abc", is_digested: true };
        assert_eq!(digested_already.prepared(Mechanism::Sha1).unwrap(), "abc");
        let error = digested_already.prepared(Mechanism::Sha256).unwrap_err();
        assert_eq!(error.message(), "Use of SCRAM-SHA-256 requires undigested passwords");
    }

    #[test]
    fn passwords_are_prepared_as_icu_does() {
        assert_eq!(prepare("I\u{ad}X").unwrap(), "IX");
        assert_eq!(prepare("a\u{a0}b").unwrap(), "a b");
        assert_eq!(prepare("\u{fb01}").unwrap(), "fi");
        let code = |password: &str| {
            let error = prepare(password).unwrap_err();
            let reason = error.message().rsplit(' ').next().unwrap().to_owned();
            (error.code().number(), reason)
        };
        assert_eq!(code(""), (50_687, "U_STRING_NOT_TERMINATED_WARNING".to_owned()));
        assert_eq!(code("\u{ad}"), (50_692, "U_STRING_NOT_TERMINATED_WARNING".to_owned()));
        assert_eq!(code("\u{7}"), (50_692, "U_STRINGPREP_PROHIBITED_ERROR".to_owned()));
        assert_eq!(code("\u{e000}"), (50_692, "U_STRINGPREP_PROHIBITED_ERROR".to_owned()));
        assert_eq!(code("\u{627}1"), (50_692, "U_STRINGPREP_CHECK_BIDI_ERROR".to_owned()));
        assert_eq!(code("\u{1f511}"), (50_692, "U_STRINGPREP_UNASSIGNED_ERROR".to_owned()));
    }

    #[test]
    fn credentials_are_written_and_read() {
        let password = Password { user: "u", text: "p", is_digested: false };
        for mechanism in Mechanism::ALL {
            let made = Credentials::make(mechanism, password, 2).unwrap();
            let user = DocBuf::build(|out| {
                made.write(mechanism, &mut out.begin_doc("credentials"));
            });
            assert!(Credentials::stored(mechanism, user.as_doc()) == Some(made));
        }
        assert!(Credentials::stored(Mechanism::Sha1, Doc::EMPTY).is_none());
    }
}

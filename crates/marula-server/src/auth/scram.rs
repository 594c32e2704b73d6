//! SCRAM, the server's side: a client proves that it knows a password.
//!
//! ```text
//!   client                                  server
//!   n,,n=<user>,r=<nonce>            ──►
//!                                    ◄──    r=<nonce + server's nonce>,s=<salt>,i=<iterations>
//!   c=…,r=<nonces>,p=<proof>         ──►    checks the proof
//!                                    ◄──    v=<server's proof>
//!   (some clients: an empty message) ──►
//! ```
//!
//! The cause of a failure is only logged: clients get the same error for every failure.
//! Source: RFC 5802, RFC 7677; what is accepted beyond them recorded from mongod 6.0.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use marula_bson::Doc;
use marula_error::{Error, Result, errors};
use subtle::ConstantTimeEq;

use super::credentials::{Credentials, Mechanism};
use super::documents::Documents;
use super::name::{Name, Of};

errors! {
    /// A client could not authenticate.
    pub(crate) failed() = AuthenticationFailed, "Authentication failed.";
    /// Only logged: there is no such user.
    unknown_user(user: &str, db: &str) = UserNotFound, "Could not find user \"{user}\" for db \"{db}\"";
    /// Only logged: the user has no credentials for the mechanism.
    no_credentials(mechanism: &str) = AuthenticationFailed, "Unable to use {mechanism} based authentication for user without any {mechanism} credentials registered";
    /// Only logged: the client's message is malformed.
    bad_message() = AuthenticationFailed, "The SCRAM client message could not be parsed";
    /// Only logged: the client does not know the password.
    wrong_password() = AuthenticationFailed, "SCRAM authentication failed, storedKey mismatch";
}

/// The maximum size of a client's message: a name, a nonce and a proof are far shorter.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The minimum length of a client's nonce.
const NONCE_BYTES_MIN: usize = 4;
/// The number of random bytes that the server adds to the nonce.
const NONCE_BYTES: usize = 24;

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// The user that the client claims to be; the name is empty if it is not known yet.
    pub(crate) user: Name,
    /// The cause, for the log.
    pub(crate) cause: Error,
}

/// The next message of a conversation.
enum Next {
    /// The client's proof.
    Proof,
    /// An empty message, which some clients send at the end.
    Empty,
    /// Nothing.
    Nothing,
}

/// A conversation in progress.
pub(crate) struct Conversation {
    /// The user that the client claims to be.
    pub(crate) user: Name,
    /// The mechanism.
    pub(crate) mechanism: Mechanism,
    /// Whether it began with the client's first `hello`.
    pub(crate) is_speculative: bool,
    credentials: Credentials,
    /// Whether the server's proof is the last message.
    skips_empty: bool,
    client_first: String,
    server_first: String,
    nonce: String,
    next: Next,
}

impl Conversation {
    /// Processes the client's first message; returns the server's.
    ///
    /// Errors: the cause of the failure, which is not for the client.
    pub(crate) fn begin(
        documents: &Documents<'_>,
        mechanism: Mechanism,
        db: &str,
        message: &[u8],
        skips_empty: bool,
    ) -> std::result::Result<(Self, Vec<u8>), Rejected> {
        let ClientFirst { user, bare, nonce } = ClientFirst::parse(message)
            .ok_or_else(|| Rejected { user: Name::new("", db), cause: bad_message() })?;
        let user = Name { name: user, db: db.to_owned() };
        let rejected = |cause| Rejected { user: user.clone(), cause };
        let doc = documents.find(Of::User, &user).map_err(rejected)?;
        let doc = doc.ok_or_else(|| rejected(unknown_user(&user.name, db)))?;
        let mut random = [0; NONCE_BYTES];
        rand::fill(&mut random);
        let nonce = nonce + &BASE64.encode(random);
        let conversation =
            Conversation::open(mechanism, user.clone(), doc.as_doc(), bare, nonce, skips_empty)
                .map_err(rejected)?;
        let reply = conversation.server_first.clone().into_bytes();
        Ok((conversation, reply))
    }

    fn open(
        mechanism: Mechanism,
        user: Name,
        doc: Doc<'_>,
        client_first: String,
        nonce: String,
        skips_empty: bool,
    ) -> Result<Self> {
        let credentials =
            Credentials::stored(mechanism, doc).ok_or_else(|| no_credentials(mechanism.name()))?;
        let salt = BASE64.encode(&credentials.salt);
        let server_first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let next = Next::Proof;
        Ok(Conversation {
            user,
            mechanism,
            is_speculative: false,
            credentials,
            skips_empty,
            client_first,
            server_first,
            nonce,
            next,
        })
    }

    /// Processes the client's next message; returns the server's. [`Conversation::is_done`] returns
    /// whether it was the last.
    ///
    /// Errors: the cause of the failure, which is not for the client.
    pub(crate) fn go_on(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        match self.next {
            Next::Proof => {
                let reply = self.check_proof(message).ok_or_else(wrong_password)?;
                self.next = if self.skips_empty { Next::Nothing } else { Next::Empty };
                Ok(reply)
            }
            Next::Empty => {
                self.next = Next::Nothing;
                Ok(Vec::new())
            }
            Next::Nothing => Err(failed()),
        }
    }

    /// Returns whether the client is authenticated and no message is left.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    /// Checks `c=…,r=<nonce>,p=<proof>`; returns the server's proof.
    fn check_proof(&self, message: &[u8]) -> Option<Vec<u8>> {
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut parts = without_proof.split(',');
        parts.next()?.strip_prefix("c=").filter(|binding| !binding.is_empty())?;
        if parts.next()?.strip_prefix("r=")? != self.nonce {
            return None;
        }
        let proof = BASE64.decode(proof).ok()?;
        let exchange = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let Credentials { stored_key, server_key, .. } = &self.credentials;
        let signature = self.mechanism.hmac(stored_key, exchange.as_bytes());
        if proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let is_known: bool = self.mechanism.hash(&client_key).ct_eq(stored_key).into();
        let own_proof = self.mechanism.hmac(server_key, exchange.as_bytes());
        is_known.then(|| format!("v={}", BASE64.encode(own_proof)).into_bytes())
    }
}

/// `n,,n=<user>,r=<nonce>`: the client's first message.
struct ClientFirst {
    user: String,
    /// The message after the header.
    bare: String,
    nonce: String,
}

impl ClientFirst {
    fn parse(message: &[u8]) -> Option<Self> {
        let message = text(message)?;
        let (binding, rest) = message.split_once(',')?;
        let (identity, bare) = rest.split_once(',')?;
        // Channel binding (`p=`) is not supported.
        if !matches!(binding, "n" | "y") {
            return None;
        }
        let mut parts = bare.split(',');
        let user = unescape(parts.next()?.strip_prefix("n=")?)?;
        let nonce = parts.next()?.strip_prefix("r=")?.to_owned();
        // Acting for another user is not supported.
        let is_other = !identity.is_empty() && unescape(identity.strip_prefix("a=")?)? != user;
        let is_whole = !user.is_empty() && nonce.len() >= NONCE_BYTES_MIN && !is_other;
        is_whole.then(|| ClientFirst { user, bare: bare.to_owned(), nonce })
    }
}

fn text(message: &[u8]) -> Option<&str> {
    let may_be_read = message.len() <= MESSAGE_BYTES_MAX && !message.contains(&0);
    std::str::from_utf8(message).ok().filter(|_| may_be_read)
}

/// Decodes a name in which `=2C` is a comma and `=3D` an equals sign.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = part.split_at_checked(2)?;
        text.push(match sign {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        text.push_str(rest);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use marula_bson::DocBuf;

    use super::*;

    /// The credentials of the RFCs' example: user "user", password "pencil".
    fn user(mechanism: Mechanism, salt: &str, stored_key: &str, server_key: &str) -> DocBuf {
        DocBuf::build(|out| {
            let mut all = out.begin_doc("credentials");
            let mut one = all.begin_doc(mechanism.name());
            one.append("iterationCount", 4096).append("salt", salt);
            one.append("storedKey", stored_key).append("serverKey", server_key);
        })
    }

    fn converse(doc: &DocBuf, mechanism: Mechanism, nonces: (&str, &str)) -> Conversation {
        let first = format!("n,,n=user,r={}", nonces.0);
        let first = ClientFirst::parse(first.as_bytes()).unwrap();
        assert_eq!(first.user, "user");
        let nonce = first.nonce + nonces.1;
        let name = Name::new("user", "d");
        Conversation::open(mechanism, name, doc.as_doc(), first.bare, nonce, true).unwrap()
    }

    #[test]
    fn the_conversations_of_the_rfcs_succeed() {
        let doc = user(
            Mechanism::Sha1,
            "QSXCR+Q6sek8bf92",
            "6dlGYMOdZcOPutkcNY8U2g7vK9Y=",
            "D+CSWLOshSulAsxiupA+qs2/fTE=",
        );
        let nonces = ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j");
        let mut sha1 = converse(&doc, Mechanism::Sha1, nonces);
        assert_eq!(
            sha1.server_first,
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
        );
        let proof =
            b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        assert_eq!(sha1.go_on(proof).unwrap(), b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
        assert!(sha1.is_done());
        assert!(sha1.go_on(b"").is_err());

        let doc = user(
            Mechanism::Sha256,
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=",
            "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        );
        let nonces = ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
        let mut sha256 = converse(&doc, Mechanism::Sha256, nonces);
        let proof = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(sha256.go_on(proof).unwrap(), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        // There are no credentials for the other mechanism.
        assert!(Credentials::stored(Mechanism::Sha1, doc.as_doc()).is_none());
    }

    #[test]
    fn a_wrong_proof_fails() {
        let doc = user(
            Mechanism::Sha1,
            "QSXCR+Q6sek8bf92",
            "6dlGYMOdZcOPutkcNY8U2g7vK9Y=",
            "D+CSWLOshSulAsxiupA+qs2/fTE=",
        );
        let nonces = ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j");
        for proof in [
            "",
            "x",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Tt=",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=AAAA",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,c=biws,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        ] {
            let mut conversation = converse(&doc, Mechanism::Sha1, nonces);
            assert!(conversation.go_on(proof.as_bytes()).is_err(), "{proof}");
            assert!(!conversation.is_done());
        }
    }

    #[test]
    fn first_messages_are_read_as_mongod_does() {
        let user = |message: &str| ClientFirst::parse(message.as_bytes()).map(|first| first.user);
        assert_eq!(user("n,,n=us=2Ce=3Dr,r=abcd").as_deref(), Some("us,e=r"));
        assert_eq!(user("y,,n=u,r=abcd,ext=1").as_deref(), Some("u"));
        assert_eq!(user("n,a=u,n=u,r=abcd").as_deref(), Some("u"));
        for wrong in [
            "",
            "x",
            "n",
            "n,,",
            "n,,n=u",
            "n,,n=,r=abcd",
            "n,,n=u,r=abc",
            "n,,r=abcd,n=u",
            "n,a=other,n=u,r=abcd",
            "p=tls-unique,,n=u,r=abcd",
            "n,,m=x,n=u,r=abcd",
            "n,,n=u=2X,r=abcd",
            "n,,n=u=2,r=abcd",
        ] {
            assert_eq!(user(wrong), None, "{wrong}");
        }
        assert!(ClientFirst::parse(b"\xff\xfe").is_none());
    }
}

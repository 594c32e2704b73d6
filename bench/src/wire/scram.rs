//! SCRAM-SHA-256 as MongoDB's clients use it: for running servers with access control.
//!
//! Source: RFC 7677, and MongoDB's driver authentication specification. Passwords are used
//! unchanged: those with letters outside ASCII would have to be normalized first (SASLprep), and
//! are rejected.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::bson::{self, Doc};
use crate::load::Blocking;

/// The maximum number of hashing rounds that a server may request.
const ROUNDS_MAX: u32 = 1_000_000;

type Key = [u8; 32];

/// The user to authenticate.
#[derive(Clone)]
pub(crate) struct Credentials {
    user: String,
    password: String,
    database: String,
    /// The hashed password by salt and rounds: a thousand connections would compute the same hash.
    hashed: Arc<Mutex<Option<(Vec<u8>, u32, Key)>>>,
}

impl Credentials {
    /// Errors: a password that would have to be normalized.
    pub(crate) fn new(user: &str, password: &str, database: &str) -> Result<Credentials, String> {
        if !password.is_ascii() {
            return Err("a password with letters outside ASCII is not supported".into());
        }
        let hashed = Arc::default();
        let (user, password, database) = (user.into(), password.into(), database.into());
        Ok(Credentials { user, password, database, hashed })
    }

    /// Authenticates a connection.
    pub(crate) fn log_in(&self, connection: &mut Blocking) -> Result<(), String> {
        let mut nonce = [0; 18];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut nonce))
            .map_err(|error| format!("/dev/urandom: {error}"))?;
        let user = self.user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={}", STANDARD.encode(nonce));
        let start = Doc::new()
            .int("saslStart", 1)
            .str("mechanism", "SCRAM-SHA-256")
            .binary("payload", format!("n,,{first}").as_bytes())
            .doc("options", Doc::new().bool("skipEmptyExchange", true))
            .str("$db", &self.database);
        let (id, challenge) = payload(&connection.command(start)?)?;
        let (last, signature) = self.answer(&first, &challenge)?;
        let go_on = Doc::new()
            .int("saslContinue", 1)
            .int("conversationId", id)
            .binary("payload", last.as_bytes())
            .str("$db", &self.database);
        let (_, proof) = payload(&connection.command(go_on)?)?;
        match proof.strip_prefix("v=") == Some(&signature) {
            true => Ok(()),
            false => Err("the server does not know the password either".into()),
        }
    }

    /// Returns the client's last message, and the expected signature of the server.
    fn answer(&self, first: &str, challenge: &str) -> Result<(String, String), String> {
        let part = |name: &str| {
            let found = challenge.split(',').find_map(|part| part.strip_prefix(name));
            found.ok_or_else(|| format!("the server's challenge lacks '{name}'"))
        };
        let nonce = part("r=")?;
        let salt = STANDARD.decode(part("s=")?).map_err(|error| format!("the salt: {error}"))?;
        let rounds = part("i=")?.parse::<u32>().ok().filter(|rounds| *rounds <= ROUNDS_MAX);
        let rounds = rounds.ok_or("the server's challenge has no sensible number of rounds")?;
        let salted = self.salted(salt, rounds);
        let client_key = mac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{first},{challenge},{without_proof}");
        let signature = mac(&Sha256::digest(client_key).into(), message.as_bytes());
        let proof: Key = std::array::from_fn(|i| client_key[i] ^ signature[i]);
        let server = mac(&mac(&salted, b"Server Key"), message.as_bytes());
        Ok((format!("{without_proof},p={}", STANDARD.encode(proof)), STANDARD.encode(server)))
    }

    /// PBKDF2 of the password.
    fn salted(&self, salt: Vec<u8>, rounds: u32) -> Key {
        let mut known = self.hashed.lock();
        if let Some((known_salt, known_rounds, key)) = &*known
            && (known_salt, *known_rounds) == (&salt, rounds)
        {
            return *key;
        }
        let password = Hmac::<Sha256>::new_from_slice(self.password.as_bytes());
        let password = password.expect("a key of any length will do");
        let round = |data: &[u8]| -> Key {
            let mut mac = password.clone();
            mac.update(data);
            mac.finalize().into_bytes().into()
        };
        let mut block = round(&[&salt[..], &[0, 0, 0, 1]].concat());
        let mut key = block;
        for _ in 1..rounds {
            block = round(&block);
            key.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
        }
        *known = Some((salt, rounds, key));
        key
    }
}

fn mac(key: &Key, data: &[u8]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

/// The conversation's number and the server's message.
fn payload(reply: &[u8]) -> Result<(i32, String), String> {
    let id = bson::number(reply, "conversationId").unwrap_or(0.0) as i32;
    let Some((5, value)) = bson::field(reply, "payload") else {
        return Err("the reply has no payload".into());
    };
    let length = value.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes);
    let bytes = value.get(5..5 + length.unwrap_or(-5).max(0) as usize);
    let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
    Ok((id, text.ok_or("the payload is not text")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_answered() {
        let credentials = Credentials::new("user", "pencil", "admin").expect("ASCII");
        let first = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, signature) = credentials.answer(first, challenge).expect("a good challenge");
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn bad_challenges_are_refused() {
        let credentials = Credentials::new("user", "pencil", "admin").expect("ASCII");
        for challenge in ["", "r=a,s=!,i=1", "r=a,s=QQ==", "r=a,s=QQ==,i=x", "r=a,s=QQ==,i=9999999"]
        {
            assert!(credentials.answer("n=user,r=a", challenge).is_err(), "{challenge}");
        }
        assert!(Credentials::new("user", "pässword", "admin").is_err());
    }
}

//! Connects to a server as a driver does: a connection string, TLS, SCRAM-SHA-256 or a certificate.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use marula_bson::{Binary, Doc, DocBuf, Value, doc, hex};
use marula_wire::client::Client;
use sha2::{Digest, Sha256};

use super::transport::{Tls, Transport};
use crate::Failure;

/// The timeout of a connection, and of each answer but that of a backup.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// More rounds of a password are a server that wants to keep this program busy.
const ROUNDS_MAX: u32 = 10_000_000;
/// The port of an address that names none.
const PORT: &str = "27017";

/// Where a server is, and as whom to ask it.
#[derive(Clone)]
pub(super) struct Address {
    /// `host:port`.
    pub(super) host: String,
    login: Login,
    tls: Option<Tls>,
}

/// How to say who asks.
#[derive(Clone)]
enum Login {
    None,
    User(User),
    /// The user is the subject of the client's certificate.
    Certificate,
}

#[derive(Clone)]
struct User {
    name: String,
    password: String,
    db: String,
}

impl Address {
    /// The address of a host, a user of it, and TLS if it is to be spoken.
    pub(super) fn of_host(
        host: &str,
        user: Option<(&str, String, &str)>,
        tls: Option<Tls>,
    ) -> Address {
        let login = user.map_or(Login::None, |(name, password, db)| {
            Login::User(User { name: name.to_owned(), password, db: db.to_owned() })
        });
        Address { host: with_port(host), login, tls }
    }

    /// The address of a connection string.
    pub(super) fn of_uri(uri: &str) -> Result<Address, Failure> {
        let wrong = |what: &str| format!("the connection string is not understood: {what}");
        let rest = uri
            .strip_prefix("mongodb://")
            .ok_or_else(|| wrong("it does not begin with mongodb://"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match hosts.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, hosts),
        };
        if host.is_empty() || host.contains(',') {
            return Err(wrong("it must name one host"));
        }
        let decoded =
            |text: &str| decoded(text).ok_or_else(|| wrong("a % is not followed by two digits"));
        let mut source = if db.is_empty() { "admin".to_owned() } else { decoded(db)? };
        let (mut is_encrypted, mut tls, mut by_certificate) = (false, Tls::default(), false);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("authSource", value)) => source = decoded(value)?,
                Some(("authMechanism", value)) => by_certificate = value == "MONGODB-X509",
                Some(("tls" | "ssl", value)) => is_encrypted = value == "true",
                Some(("tlsCAFile", value)) => tls.authorities = Some(decoded(value)?.into()),
                Some(("tlsCertificateKeyFile", value)) => {
                    tls.certificate_key = Some(decoded(value)?.into());
                }
                _ => {}
            }
        }
        is_encrypted |= tls.is_detailed();
        let login = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            _ if by_certificate => Login::Certificate,
            None => Login::None,
            Some((name, password)) => {
                Login::User(User { name: decoded(name)?, password: decoded(password)?, db: source })
            }
        };
        Ok(Address { host: with_port(host), login, tls: is_encrypted.then_some(tls) })
    }

    /// Connects and says who asks.
    pub(super) fn connect(&self) -> Result<Connection, Failure> {
        let transport = Transport::connect(&self.host, self.tls.as_ref(), ANSWER_MAX)?;
        let mut connection =
            Connection { client: Client::over(transport), host: self.host.clone() };
        match &self.login {
            Login::None => {}
            Login::User(user) => connection.sign_in(user)?,
            Login::Certificate => {
                let authenticate = doc! { "authenticate": 1, "mechanism": "MONGODB-X509" };
                connection.run("$external", authenticate.as_doc())?;
            }
        }
        Ok(connection)
    }
}

/// A connection to a server.
pub(super) struct Connection {
    client: Client<Transport>,
    host: String,
}

impl Connection {
    /// Waits for the next answers however long they take.
    pub(super) fn wait_for_ever(&mut self) -> Result<(), Failure> {
        let set = self.client.stream().socket().set_read_timeout(None);
        set.map_err(|error| format!("cannot wait for the server: {error}"))
    }

    /// Sends a command; what the server answers that is no success is a failure.
    pub(super) fn run(&mut self, db: &str, command: Doc<'_>) -> Result<DocBuf, Failure> {
        let host = &self.host;
        let reply = self
            .client
            .run_command(db, command)
            .map_err(|error| format!("the server {host} does not answer: {error}"))?;
        let doc = reply.as_doc();
        if doc.get("ok").and_then(|ok| ok.as_f64()) == Some(1.0) {
            return Ok(reply);
        }
        let message = doc.get("errmsg").and_then(|text| text.as_str().map(ToString::to_string));
        Err(format!("the server {host} says: {}", message.unwrap_or_default()))
    }

    fn sign_in(&mut self, user: &User) -> Result<(), Failure> {
        let failed = |what: &str| format!("cannot sign in as '{}': {what}", user.name);
        let odd = || failed("the server's answer is not understood");
        let nonce = BASE64.encode(rand::random::<[u8; 24]>());
        let name = user.name.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={name},r={nonce}");
        let start = doc! {
            "saslStart": 1,
            "mechanism": "SCRAM-SHA-256",
            "payload": Binary { subtype: 0, bytes: format!("n,,{first}").as_bytes() },
            "options": { "skipEmptyExchange": true },
        };
        let reply = self.run(&user.db, start.as_doc()).map_err(|error| failed(&error))?;
        let challenge = payload(&reply).ok_or_else(odd)?;
        let field = |key: &str| challenge.split(',').find_map(|part| part.strip_prefix(key));
        let (whole, salt, rounds) = (
            field("r=").ok_or_else(odd)?,
            field("s=").ok_or_else(odd)?,
            field("i=").ok_or_else(odd)?,
        );
        let salt = BASE64.decode(salt).map_err(|_| odd())?;
        let rounds: u32 = rounds.parse().ok().filter(|&n| n <= ROUNDS_MAX).ok_or_else(odd)?;
        if !whole.starts_with(&nonce) {
            return Err(odd());
        }
        let password = stringprep::saslprep(&user.password)
            .map_err(|_| failed("the password has characters that are not allowed"))?;
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, rounds, &mut salted);
        let proof_of = format!("c=biws,r={whole}");
        let all = format!("{first},{challenge},{proof_of}");
        let client_key = keyed(&salted, b"Client Key");
        let signature = keyed(&Sha256::digest(client_key), all.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let last = format!("{proof_of},p={}", BASE64.encode(proof));
        let go_on = doc! {
            "saslContinue": 1,
            "conversationId": reply.as_doc().get("conversationId").unwrap_or(Value::Int32(1)),
            "payload": Binary { subtype: 0, bytes: last.as_bytes() },
        };
        let reply = self.run(&user.db, go_on.as_doc()).map_err(|error| failed(&error))?;
        let wanted = BASE64.encode(keyed(&keyed(&salted, b"Server Key"), all.as_bytes()));
        match payload(&reply).and_then(|text| text.strip_prefix("v=").map(|v| v == wanted)) {
            Some(true) => Ok(()),
            _ => Err(failed("the server does not know the password itself")),
        }
    }
}

fn keyed(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut keyed = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    keyed.update(text);
    keyed.finalize().into_bytes().into()
}

fn payload(reply: &DocBuf) -> Option<String> {
    match reply.as_doc().get("payload")? {
        Value::Binary(Binary { bytes, .. }) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

fn with_port(host: &str) -> String {
    let has_port = match host.rsplit_once(':') {
        Some((before, port)) => {
            port.parse::<u16>().is_ok() && (!before.contains(':') || before.ends_with(']'))
        }
        None => false,
    };
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

/// Decodes the escapes of a part of a connection string, `%` and two digits; `None` if one is
/// malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.append(&mut hex::parse(digits)?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_understood() {
        for (uri, expected) in [
            ("mongodb://localhost", ("localhost:27017", None)),
            ("mongodb://[::1]:5/", ("[::1]:5", None)),
            ("mongodb://a:b%40c@h:1/db", ("h:1", Some(("a", "b@c", "db")))),
            ("mongodb://a:b@h:1/?authSource=x", ("h:1", Some(("a", "b", "x")))),
            ("mongodb://a:b@h:1", ("h:1", Some(("a", "b", "admin")))),
        ] {
            let address = Address::of_uri(uri).expect("it is understood");
            let user = match &address.login {
                Login::User(user) => Some((&*user.name, &*user.password, &*user.db)),
                _ => None,
            };
            assert_eq!((&*address.host, user), expected, "{uri}");
            assert!(address.tls.is_none(), "{uri}");
        }
        for uri in
            ["mongodb://h/?tls=true", "mongodb://h/?ssl=true", "mongodb://h/?tlsCAFile=a%20b"]
        {
            assert!(Address::of_uri(uri).expect("it is understood").tls.is_some(), "{uri}");
        }
        for uri in [
            "",
            "http://x",
            "mongodb://",
            "mongodb://a,b/",
            "mongodb://a:%4@h",
            "mongodb://a:%+4@h",
        ] {
            assert!(Address::of_uri(uri).is_err(), "{uri}");
        }
    }
}

//! The addresses that name a running server.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::wire::mongo::MongoLogin;
use crate::wire::postgres::Login;
use crate::wire::scram::Credentials;

fn resolve(host: &str, port_default: u16) -> Result<SocketAddr, String> {
    let full = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{port_default}"),
    };
    let found = full.to_socket_addrs().map_err(|error| format!("no address '{full}': {error}"))?;
    found.into_iter().next().ok_or(format!("no address '{full}'"))
}

/// The server of `//user:password@host:port/database?authSource=…`.
pub(super) fn mongodb_login(rest: &str) -> Result<MongoLogin, String> {
    let rest = rest.trim_start_matches('/');
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, hosts) = place.rsplit_once('@').map_or((None, place), |(who, at)| (Some(who), at));
    let source = options.split('&').find_map(|option| option.strip_prefix("authSource="));
    let source = source.unwrap_or(if database.is_empty() { "admin" } else { database });
    let credentials = who.map(|who| {
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        Credentials::new(&decoded(user), &decoded(password), &decoded(source))
    });
    let address = resolve(hosts.split(',').next().unwrap_or(""), 27017)?;
    Ok(MongoLogin { address, credentials: credentials.transpose()? })
}

/// A part of a URI without its percent signs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let hex = others.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The server of `//user:password@host:port/database`.
pub(super) fn postgresql_login(rest: &str) -> Result<Login, String> {
    let rest = rest.trim_start_matches('/').split('?').next().unwrap_or("");
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, host) = place.rsplit_once('@').unwrap_or(("postgres", place));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    Ok(Login {
        address: resolve(host, 5432)?,
        user: decoded(user),
        password: decoded(password),
        database: decoded(if database.is_empty() { user } else { database }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let check = |word: &str, wanted: &str, who: bool| match mongodb_login(word) {
            Ok(login) => {
                assert_eq!(login.address.to_string(), wanted, "{word}");
                assert_eq!(login.credentials.is_some(), who, "{word}");
            }
            Err(error) => panic!("{word}: {error}"),
        };
        check("//127.0.0.1:27019/?directConnection=true", "127.0.0.1:27019", false);
        check("//127.0.0.1", "127.0.0.1:27017", false);
        check("//127.0.0.1:1,127.0.0.1:2/shop", "127.0.0.1:1", false);
        check("//user:w%40rd@127.0.0.1/?authSource=shop", "127.0.0.1:27017", true);
        assert_eq!(decoded("a%40b%2fc%zz%"), "a@b/c%zz%");
    }

    #[test]
    fn logins_are_read() {
        let login = postgresql_login("//me:secret@127.0.0.1:5433/shop").expect("a login");
        assert_eq!(login.address.to_string(), "127.0.0.1:5433");
        assert_eq!((&*login.user, &*login.password, &*login.database), ("me", "secret", "shop"));
        let login = postgresql_login("//127.0.0.1").expect("a login");
        assert_eq!((&*login.user, &*login.database), ("postgres", "postgres"));
    }
}

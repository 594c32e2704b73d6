//! The user of etcd as whom requests are made, and the token by which etcd knows that user.
//!
//! A token is good for some minutes after its last use, or as the servers are set. One that is
//! refused is replaced: the request that was refused has not been executed.
//!
//! Source: etcd documentation, "Role-based access control" and "API reference": `Authenticate`.

use std::sync::Arc;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{Effect, Etcd};
use crate::kv::{KvError, Result};

#[derive(Default)]
pub(super) struct Login {
    user: Option<User>,
    /// The newest token; empty where the servers ask for none.
    token: Mutex<Option<Arc<str>>>,
}

#[derive(Clone, PartialEq, Eq)]
struct User {
    name: String,
    password: String,
}

impl Login {
    /// Takes the user out of endpoints of the form `http://user:password@host:port`, in which
    /// special characters are percent-encoded. Returns the endpoints without it.
    pub(super) fn of(endpoints: &[String]) -> Result<(Login, Vec<String>), String> {
        let mut user = None;
        let mut plain = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
            let Some((own, address)) = rest.rsplit_once('@') else {
                plain.push(endpoint.clone());
                continue;
            };
            plain.push(format!("{scheme}://{address}"));
            let own = parse_user(own).ok_or_else(|| {
                format!(
                    "etcd endpoint '{endpoint}' is not of the form http://user:password@host:port"
                )
            })?;
            if *user.get_or_insert_with(|| own.clone()) != own {
                return Err("the endpoints of etcd name different users".to_owned());
            }
        }
        Ok((Login { user, token: Mutex::default() }, plain))
    }

    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// The newest token, if there is one.
    pub(super) fn token(&self) -> Option<Arc<str>> {
        self.token.lock().clone().filter(|token| !token.is_empty())
    }
}

fn parse_user(text: &str) -> Option<User> {
    let (name, password) = text.split_once(':')?;
    let decoded = |part: &str| percent_decode_str(part).decode_utf8().ok().map(String::from);
    Some(User {
        name: decoded(name).filter(|name| !name.is_empty())?,
        password: decoded(password)?,
    })
}

/// Whether an error says that a token is missing or no longer good.
pub(super) fn is_refused(text: &str) -> bool {
    ["invalid auth token", "user name is empty", "auth store is old"]
        .iter()
        .any(|refusal| text.contains(refusal))
}

impl Etcd {
    /// The token to use; a new one unless there is one other than `refused`.
    pub(super) fn token(&self, refused: Option<&str>) -> Result<Option<Arc<str>>> {
        let Some(user) = &self.login.user else { return Ok(None) };
        // Held until it is there: one thread asks for all.
        let mut token = self.login.token.lock();
        if token.is_none() || token.as_deref() == refused {
            *token = Some(self.authenticate(user)?);
        }
        Ok(token.clone().filter(|token| !token.is_empty()))
    }

    fn authenticate(&self, user: &User) -> Result<Arc<str>> {
        let request = json!({ "name": user.name, "password": user.password }).to_string();
        match self.send("/v3/auth/authenticate", &request, Effect::Reads, None) {
            Ok(reply) => match reply["token"].as_str() {
                Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    Ok(token.into())
                }
                _ => Err(KvError::Corrupt("etcd's reply has no token".to_owned())),
            },
            Err(KvError::Unavailable(what)) if what.contains("authentication is not enabled") => {
                Ok("".into())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_part_of_endpoints() {
        let of = |endpoints: &[&str]| {
            let endpoints: Vec<String> = endpoints.iter().map(|&text| text.to_owned()).collect();
            Login::of(&endpoints).map(|(login, plain)| {
                (login.user.map(|user| (user.name, user.password)), plain.join(","))
            })
        };
        let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(of(&["a:1", "https://b:2"]), Ok((None, "a:1,https://b:2".to_owned())));
        assert_eq!(
            of(&["https://u:p%40%2C@a:1", "https://b:2"]),
            Ok((user("u", "p@,"), "https://a:1,https://b:2".to_owned()))
        );
        assert_eq!(of(&["u:@a:1"]), Ok((user("u", ""), "http://a:1".to_owned())));
        for wrong in [&["http://u@a:1"][..], &["http://:p@a:1"], &["u:p@a:1", "u:q@b:1"]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}

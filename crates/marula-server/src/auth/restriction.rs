//! Authentication restrictions: the client and server addresses with which a user may authenticate.
//!
//! A user, and each of its roles, may have a list of restrictions. One of each list must be
//! fulfilled; a restriction is fulfilled if each of its addresses is in one of its ranges. Source:
//! manual "Authentication Restrictions"; errors recorded from mongod 6.0.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use marula_bson::{ArrayWriter, ByteSlice, Doc, Type, ValueBuf};
use marula_error::{Result, errors};

use super::documents::{Edit, array};
use crate::fields::{self, Field, Types};
use crate::net::service::Peer;

errors! {
    bad_address() = BadValue, "Invalid IP address in CIDR string";
    length_no_number() = BadValue, "Non-numeric length in CIDR string";
    length_too_long() = BadValue, "Invalid length in CIDR string";
    nothing_set() = CollectionIsEmpty, "At least one of 'clientSource' or 'serverAddress' must be set";
    element_type(place: &str, at: usize, kind: &str, expected: &str) = TypeMismatch, "BSON field '{place}.{at}' is the wrong type '{kind}', expected type '{expected}'";
}

const FIELDS: &[Field] = &[
    Field::optional("clientSource", Types::ARRAY),
    Field::optional("serverAddress", Types::ARRAY),
];

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    address: IpAddr,
    /// The number of significant leading bits.
    bits: u8,
}

impl Range {
    fn parse(text: &str) -> Result<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad_address())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => {
                let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
                if !is_number {
                    return Err(length_no_number());
                }
                let bits = bits.parse().unwrap_or(u8::MAX);
                if bits > most {
                    return Err(length_too_long());
                }
                bits
            }
        };
        Ok(Range { address, bits })
    }
}

impl Range {
    fn contains(&self, address: IpAddr) -> bool {
        let leading_equal = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        leading_equal >= u32::from(self.bits)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A restriction as it is written; absent parts are `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Restriction {
    client_source: Option<Vec<String>>,
    server_address: Option<Vec<String>>,
}

impl Restriction {
    /// Parses the field `authenticationRestrictions` of a command. The addresses are not checked.
    pub(crate) fn parse_list(command: &str, list: Doc<'_>) -> Result<Vec<Restriction>> {
        let place = format!("{command}.authenticationRestrictions");
        let mut restrictions = Vec::new();
        for (at, restriction) in list.values().enumerate() {
            if restriction.is_nullish() {
                continue;
            }
            let kind = restriction.kind().alias();
            let restriction =
                restriction.as_doc().ok_or_else(|| element_type(&place, at, kind, "object"))?;
            fields::check_doc(&place, FIELDS, restriction)?;
            restrictions.push(Restriction {
                client_source: addresses(&place, restriction, "clientSource")?,
                server_address: addresses(&place, restriction, "serverAddress")?,
            });
        }
        Ok(restrictions)
    }

    /// Reads a stored list; `None` if it is invalid.
    pub(crate) fn stored_list(list: Doc<'_>) -> Option<Vec<Restriction>> {
        Restriction::parse_list("", list).ok()
    }

    /// Returns its ranges.
    ///
    /// Errors: an invalid address or length, or a restriction without parts.
    pub(crate) fn check(&self) -> Result<Ranges> {
        if self.client_source.is_none() && self.server_address.is_none() {
            return Err(nothing_set());
        }
        let ranges = |addresses: &Option<Vec<String>>| match addresses {
            Some(list) => {
                list.iter().map(|text| Range::parse(text)).collect::<Result<_>>().map(Some)
            }
            None => Ok(None),
        };
        Ok(Ranges {
            client_source: ranges(&self.client_source)?,
            server_address: ranges(&self.server_address)?,
        })
    }

    /// Appends it.
    pub(crate) fn write(&self, out: &mut ArrayWriter<'_>) {
        let mut restriction = out.begin_doc();
        let parts =
            [("clientSource", &self.client_source), ("serverAddress", &self.server_address)];
        for (name, addresses) in parts {
            if let Some(addresses) = addresses {
                let mut out = restriction.begin_array(name);
                addresses.iter().for_each(|address| {
                    out.push(address.as_str());
                });
            }
        }
    }
}

/// A restriction as it is enforced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ranges {
    client_source: Option<Vec<Range>>,
    server_address: Option<Vec<Range>>,
}

/// The two addresses of a connection; a Unix socket has none.
pub(crate) struct Addresses {
    client: Option<IpAddr>,
    server: Option<IpAddr>,
}

impl Addresses {
    /// Returns the addresses of this connection.
    pub(crate) fn of(peer: &Peer) -> Self {
        let address = |end: Option<SocketAddr>| end.map(|end| end.ip().to_canonical());
        Addresses { client: address(peer.remote), server: address(peer.local) }
    }

    /// Returns whether the connection fulfils a restriction.
    pub(crate) fn meets(&self, ranges: &Ranges) -> bool {
        let meets = |ranges: &Option<Vec<Range>>, address: Option<IpAddr>| match ranges {
            None => true,
            Some(ranges) => {
                address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)))
            }
        };
        meets(&ranges.client_source, self.client) && meets(&ranges.server_address, self.server)
    }
}

impl Ranges {
    /// Appends it; a single address is shown as a range.
    pub(crate) fn write(&self, out: &mut ArrayWriter<'_>) {
        let mut restriction = out.begin_doc();
        let parts =
            [("clientSource", &self.client_source), ("serverAddress", &self.server_address)];
        for (name, ranges) in parts {
            if let Some(ranges) = ranges {
                let mut out = restriction.begin_array(name);
                ranges.iter().for_each(|range| {
                    out.push(range.to_string().as_str());
                });
            }
        }
    }
}

fn addresses(place: &str, restriction: Doc<'_>, name: &str) -> Result<Option<Vec<String>>> {
    let Some(list) = restriction.get(name).and_then(|list| list.as_array()) else {
        return Ok(None);
    };
    let mut addresses = Vec::new();
    for (at, address) in list.iter().enumerate() {
        if address.value.kind() != Type::String {
            let kind = address.value.kind().alias();
            return Err(element_type(&format!("{place}.{name}"), at, kind, "string"));
        }
        addresses.extend(address.value.get().as_str().map(|text| text.to_str_lossy().into_owned()));
    }
    Ok(Some(addresses))
}

/// Returns the array of restrictions for stored users and roles.
pub(crate) fn array_of(restrictions: &[Restriction]) -> ValueBuf {
    array(|out| restrictions.iter().for_each(|one| one.write(out)))
}

/// Returns the change of a stored user or role to these restrictions; without any, the field is
/// removed.
pub(crate) fn edit(restrictions: &[Restriction]) -> Edit {
    let list = (!restrictions.is_empty()).then(|| array_of(restrictions));
    ("authenticationRestrictions", list)
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    fn check_range(text: &str, expected: std::result::Result<&str, &str>) {
        let outcome = Range::parse(text).map(|range| range.to_string());
        let outcome = outcome.map_err(|error| error.message().to_owned());
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn ranges_are_read() {
        check_range("127.0.0.1", Ok("127.0.0.1/32"));
        check_range("10.1.2.3/8", Ok("10.1.2.3/8"));
        check_range("::1/128", Ok("::1/128"));
        check_range("x", Err("Invalid IP address in CIDR string"));
        check_range("300.0.0.1", Err("Invalid IP address in CIDR string"));
        check_range("127.0.0.1/33", Err("Invalid length in CIDR string"));
        check_range("127.0.0.1/999999", Err("Invalid length in CIDR string"));
        check_range("127.0.0.1/x", Err("Non-numeric length in CIDR string"));
        check_range("127.0.0.1/", Err("Non-numeric length in CIDR string"));
        check_range("127.0.0.1/+8", Err("Non-numeric length in CIDR string"));
    }

    #[test]
    fn a_connection_meets_the_ranges_that_its_ends_lie_in() {
        let ranges = |client: &[&str], server: Option<&[&str]>| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let restriction = Restriction {
                client_source: Some(texts(client)),
                server_address: server.map(texts),
            };
            restriction.check().unwrap()
        };
        let from = |client: &str| Addresses {
            client: client.parse().ok(),
            server: "127.0.0.1".parse().ok(),
        };
        assert!(from("10.9.8.7").meets(&ranges(&["10.0.0.0/8"], None)));
        assert!(!from("11.9.8.7").meets(&ranges(&["10.0.0.0/8"], None)));
        assert!(from("11.9.8.7").meets(&ranges(&["10.0.0.0/8", "0.0.0.0/0"], None)));
        assert!(!from("11.9.8.7").meets(&ranges(&[], None)));
        assert!(from("::1").meets(&ranges(&["::1"], Some(&["127.0.0.1"]))));
        assert!(!from("::1").meets(&ranges(&["::1"], Some(&["127.0.0.2"]))));
        assert!(!from("::1").meets(&ranges(&["0.0.0.0/0"], None)));
        // A Unix socket.
        assert!(!from("").meets(&ranges(&["0.0.0.0/0"], None)));
    }

    fn message(list: marula_bson::DocBuf) -> String {
        let list = list.as_doc().get("l").and_then(|list| list.as_array()).unwrap();
        let parsed = Restriction::parse_list("createUser", list);
        let checked =
            parsed.and_then(|list| list.iter().try_for_each(|one| one.check().map(|_| ())));
        checked.err().map_or_else(String::new, |error| error.message().to_owned())
    }

    #[test]
    fn lists_are_checked() {
        assert_eq!(message(doc! { "l": [{ "clientSource": [] }] }), "");
        assert_eq!(message(doc! { "l": [{}] }), nothing_set().message());
        assert_eq!(
            message(doc! { "l": [{ "nope": 1 }] }),
            "BSON field 'createUser.authenticationRestrictions.nope' is an unknown field."
        );
        assert_eq!(
            message(doc! { "l": [5] }),
            "BSON field 'createUser.authenticationRestrictions.0' is the wrong type 'int', expected type 'object'"
        );
        assert_eq!(
            message(doc! { "l": [{ "clientSource": [5] }] }),
            "BSON field 'createUser.authenticationRestrictions.clientSource.0' is the wrong type 'int', expected type 'string'"
        );
    }
}

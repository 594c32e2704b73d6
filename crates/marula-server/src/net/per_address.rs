//! The limit of connections for each address, if there is one: a client that opens ever more
//! connections must not use up those of all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The connections of each address.
pub(super) struct PerAddress {
    max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// The entry of one connection. Dropping it permits another one.
pub(super) struct AddressPlace {
    owner: Arc<PerAddress>,
    address: IpAddr,
}

impl PerAddress {
    /// Returns a limit of `max` connections for each address.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(PerAddress { max, counts: Mutex::default() })
    }

    /// Adds a connection from `remote`; `None` if the address has reached its limit.
    pub(super) fn take(self: &Arc<Self>, remote: SocketAddr) -> Option<AddressPlace> {
        let address = counted_as(remote.ip());
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(AddressPlace { owner: self.clone(), address })
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut counts = self.owner.counts.lock();
        let count = counts.get_mut(&self.address).expect("a place that is held is counted");
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.address);
        }
    }
}

/// Returns the address by which a client is counted: a network of IPv6 counts as one, since each
/// machine in it can have any number of addresses.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().expect("an address"), 5)
    }

    #[test]
    fn each_address_has_as_many_places_as_it_may() {
        let all = PerAddress::new(2);
        let first = all.take(address("10.0.0.1"));
        let second = all.take(address("::ffff:10.0.0.1"));
        assert!(first.is_some() && second.is_some());
        assert!(all.take(address("10.0.0.1")).is_none());
        assert!(all.take(address("10.0.0.2")).is_some());
        drop(first);
        assert!(all.take(address("10.0.0.1")).is_some());
        drop(second);
        assert!(all.counts.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let all = PerAddress::new(1);
        let _first = all.take(address("2001:db8::1"));
        assert!(all.take(address("2001:db8::2")).is_none());
        assert!(all.take(address("2001:db8:0:1::1")).is_some());
    }
}

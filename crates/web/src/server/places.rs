//! Places of connections, by the clients' networks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Most connections from other machines that are served at the same time.
pub const CONNECTIONS_MAX: usize = 64;
/// Most of these connections for a network of clients, an IPv4 address or a /64 of IPv6: clients that take
/// nothing for long leave half of the places to other networks.
const CONNECTIONS_OF_NETWORK: usize = CONNECTIONS_MAX / 2;
/// Most connections from this machine, beside those from other machines: each open page takes one.
pub const LOCAL_CONNECTIONS_MAX: usize = 128;

/// Places of connections that are served, by the clients' networks.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Place of a connection, free again once dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    network: IpAddr,
}

impl Places {
    /// Takes a place for a client, if the client's network may have one more.
    pub(super) fn take(&self, client: IpAddr) -> Option<Place> {
        let network = match client.to_canonical() {
            ip if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip => ip,
        };
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&network).copied().unwrap_or(0);
        let is_full = if network.is_loopback() {
            count >= LOCAL_CONNECTIONS_MAX
        } else {
            let remote = taken.iter().filter(|(network, _)| !network.is_loopback());
            remote.map(|(_, count)| count).sum::<usize>() >= CONNECTIONS_MAX
                || count >= CONNECTIONS_OF_NETWORK
        };
        if is_full {
            return None;
        }
        *taken.entry(network).or_insert(0) += 1;
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_leaves_half_of_the_places_to_others() {
        let places = Places::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |clients: &[&str], count| -> Vec<Place> {
            (0..count).map_while(|place| places.take(ip(clients[place % clients.len()]))).collect()
        };
        let one = take(&["192.0.2.1", "::ffff:192.0.2.1"], 64);
        assert_eq!(one.len(), CONNECTIONS_OF_NETWORK);
        let other = take(&["2001:db8::1", "2001:db8::ffff:1"], 64);
        assert_eq!(other.len(), CONNECTIONS_OF_NETWORK);
        assert!(places.take(ip("198.51.100.1")).is_none(), "all places are taken");
        let local = take(&["127.0.0.1", "::1", "127.5.5.5"], 1_000);
        assert_eq!(local.len(), LOCAL_CONNECTIONS_MAX, "clients of this machine have places of their own");
        drop(one);
        assert_eq!(take(&["198.51.100.1"], 64).len(), CONNECTIONS_OF_NETWORK);
        drop((other, local));
        assert!(places.0.lock().unwrap().is_empty());
    }
}

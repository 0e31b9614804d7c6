//! Servers of repair, and the choice of a server for each file.

use std::collections::BTreeMap;

use headwater_proto::delivery::FileIndex;
use rand::{Rng, RngExt};

use super::http::Server;

/// Most peers that are remembered for wrong bytes; the oldest are forgotten.
const LIARS_MAX: usize = 64;

/// Server of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedServer {
    pub(super) server: Server,
    /// Number of the server, which no other server of the session has.
    pub(super) id: u32,
    /// Whether the server is a receiver, a stranger: after a failure, the server is not asked again.
    pub(super) is_peer: bool,
}

/// Servers in the order of the attempts. Each file begins with the first server.
#[derive(Debug, Default)]
pub(super) struct Servers {
    list: Vec<ListedServer>,
    /// First server that may still have a file, by file; absent for server 0.
    tried: BTreeMap<FileIndex, usize>,
    next_id: u32,
    /// Peers that gave wrong bytes, at most [`LIARS_MAX`].
    liars: Vec<String>,
}

impl Servers {
    /// Makes the list: the user's own server, then peers in random order, with the servers of the sender
    /// at a random place among the peers. So receivers spread over peers and sender alike.
    pub(super) fn find(
        &mut self,
        own: Option<Server>,
        named: impl Iterator<Item = Server>,
        peers: impl Iterator<Item = Server>,
        random: &mut impl Rng,
    ) {
        let is_honest = |peer: &Server| !self.liars.contains(&peer.url);
        let mut peers: Vec<_> = peers.filter(is_honest).map(|server| (server, true)).collect();
        for end in (1..peers.len()).rev() {
            peers.swap(end, random.random_range(0..=end));
        }
        let behind = peers.split_off(random.random_range(0..=peers.len()));
        let named = named.map(|server| (server, false));
        let all = own.map(|server| (server, false)).into_iter().chain(peers).chain(named).chain(behind);
        let mut next_id = self.next_id;
        let listed = all.map(|(server, is_peer)| {
            next_id = next_id.wrapping_add(1);
            ListedServer { server, id: next_id, is_peer }
        });
        self.list = listed.collect();
        self.next_id = next_id;
        self.tried.clear();
    }

    /// Forgets all servers, except peers that gave wrong bytes.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.tried.clear();
    }

    /// Lets each file begin with the first server again.
    pub(super) fn begin_anew(&mut self) {
        self.tried.clear();
    }

    /// Number of servers.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the server at a place.
    pub(super) fn get(&self, place: usize) -> Option<&ListedServer> {
        self.list.get(place)
    }

    /// Returns the place of the server with a number.
    pub(super) fn place(&self, id: u32) -> Option<usize> {
        self.list.iter().position(|server| server.id == id)
    }

    /// Returns the place of a file's server; no server has the place if all were tried.
    pub(super) fn of(&self, file: FileIndex) -> usize {
        self.tried.get(&file).copied().unwrap_or_default()
    }

    /// Moves a file to the next server.
    pub(super) fn refuse(&mut self, file: FileIndex) {
        *self.tried.entry(file).or_default() += 1;
    }

    /// Moves a file to the next server that is no peer, if the file's server is a peer.
    pub(super) fn skip_peers(&mut self, file: FileIndex) {
        while self.get(self.of(file)).is_some_and(|server| server.is_peer) {
            self.refuse(file);
        }
    }

    /// Remembers a peer that gave wrong bytes: later lists are without this peer.
    pub(super) fn ban(&mut self, place: usize) {
        let Some(liar) = self.list.get(place).filter(|server| server.is_peer) else { return };
        if self.liars.len() >= LIARS_MAX {
            self.liars.remove(0);
        }
        self.liars.push(liar.server.url.clone());
    }

    /// Whether a peer is left.
    pub(super) fn has_peers(&self) -> bool {
        self.list.iter().any(|server| server.is_peer)
    }

    /// Moves a server to the end of the list. Files that have tried the server may try the server again.
    pub(super) fn postpone(&mut self, place: usize) {
        if let Some(server) = self.list.get(place).cloned() {
            self.remove(place);
            self.list.push(server);
        }
    }

    /// Removes a server: all files turn to the servers that are left.
    pub(super) fn remove(&mut self, place: usize) {
        if place < self.list.len() {
            self.list.remove(place);
            self.tried.values_mut().for_each(|tried| *tried -= usize::from(*tried > place));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_proto::Seed;

    use super::super::http::AddressRule;
    use super::*;

    fn server(url: &str) -> Server {
        Server::new(url, AddressRule::Remote).unwrap()
    }

    #[test]
    fn receivers_spread_over_peers_and_sender_and_keep_the_order_of_the_senders_servers() {
        let mut firsts = BTreeMap::new();
        for seed in 0..4_000 {
            let mut servers = Servers::default();
            let named = ["http://n1/", "http://n2/"].map(server).into_iter();
            let peers = ["http://p1/", "http://p2/", "http://p3/"].map(server).into_iter();
            servers.find(Some(server("http://own/")), named, peers, &mut Seed(seed).stream("t", 0));
            let urls: Vec<_> = servers.list.iter().map(|listed| listed.server.url.clone()).collect();
            assert_eq!(urls[0], "http://own/");
            let at = |url: &str| urls.iter().position(|other| other == url).unwrap();
            assert_eq!(at("http://n2/"), at("http://n1/") + 1, "{urls:?}");
            assert_eq!(urls.iter().collect::<BTreeSet<_>>().len(), 6);
            *firsts.entry(urls[1].clone()).or_insert(0) += 1;
        }
        assert!(firsts.len() == 4 && firsts.values().all(|count| (800..1_200).contains(count)), "{firsts:?}");
    }

    #[test]
    fn a_file_that_peers_cannot_have_turns_to_the_servers_of_the_sender() {
        for seed in 0..20 {
            let mut servers = Servers::default();
            let peers = ["http://p1/", "http://p2/", "http://p3/"].map(server).into_iter();
            let named = std::iter::once(server("http://n/"));
            servers.find(None, named, peers, &mut Seed(seed).stream("t", 0));
            let sender = servers.list.iter().position(|listed| !listed.is_peer).unwrap();
            servers.skip_peers(FileIndex(1));
            assert_eq!((servers.of(FileIndex(1)), servers.of(FileIndex(0))), (sender, 0));
            servers.skip_peers(FileIndex(1));
            assert_eq!(servers.of(FileIndex(1)), sender);
            servers.refuse(FileIndex(1));
            servers.skip_peers(FileIndex(1));
            assert_eq!(servers.of(FileIndex(1)), servers.len(), "peers alone are left");
        }
    }

    #[test]
    fn a_peer_that_gave_wrong_bytes_is_in_no_later_list() {
        let mut servers = Servers::default();
        let peers = || ["http://p1/", "http://p2/"].map(server).into_iter();
        let mut random = Seed(1).stream("t", 0);
        servers.find(None, std::iter::empty(), peers(), &mut random);
        let liar = servers.get(1).unwrap().server.url.clone();
        servers.ban(1);
        servers.clear();
        servers.find(None, std::iter::empty(), peers(), &mut random);
        assert!(servers.len() == 1 && servers.get(0).unwrap().server.url != liar);
        for _ in 0..2 * LIARS_MAX {
            servers.ban(0);
        }
        assert_eq!(servers.liars.len(), LIARS_MAX);
    }

    #[test]
    fn files_turn_to_the_next_server_and_numbers_stay() {
        let mut servers = Servers::default();
        let named = ["http://a/", "http://b/", "http://c/"].map(server).into_iter();
        servers.find(None, named, std::iter::empty(), &mut Seed(1).stream("t", 0));
        let ids: Vec<_> = servers.list.iter().map(|listed| listed.id).collect();
        servers.refuse(FileIndex(4));
        servers.refuse(FileIndex(4));
        servers.refuse(FileIndex(5));
        servers.remove(1);
        assert_eq!((servers.of(FileIndex(4)), servers.of(FileIndex(5)), servers.of(FileIndex(6))), (1, 1, 0));
        assert_eq!((servers.place(ids[2]), servers.place(ids[1])), (Some(1), None));
        servers.postpone(0);
        assert_eq!((servers.place(ids[2]), servers.place(ids[0])), (Some(0), Some(1)));
        assert_eq!((servers.of(FileIndex(4)), servers.of(FileIndex(6))), (0, 0));
        assert!(!servers.has_peers());
    }
}

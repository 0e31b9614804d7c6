//! Trees of routers with a source above and clients below, on links of 10 ms that lose what a test says.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use crate::bcfs::{BreadcrumbRouter, RouterConfig};
use crate::machine::{
    Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use crate::time::{Duration, Instant};

const UPSTREAM: InterfaceId = InterfaceId(0);
const DELAY: Duration = Duration::from_millis(10);

/// Who stands at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Source,
    Router(usize),
    Client(usize),
}

/// A datagram that has come to the source or a client.
#[derive(Debug)]
pub struct Arrival {
    pub at: Place,
    pub from: SocketAddr,
    pub payload: Vec<u8>,
}

#[derive(Debug)]
struct Parcel {
    to: Place,
    from: Place,
    payload: Vec<u8>,
}

/// The network.
pub struct Bed {
    pub now: Instant,
    routers: Vec<BreadcrumbRouter<InterfaceId>>,
    /// Of each router: above it, then those below it, by interface.
    neighbours: Vec<Vec<Place>>,
    under_way: BTreeMap<(Instant, u64), Parcel>,
    /// Datagrams sent so far, lost ones too.
    pub sent: u64,
    arrived: VecDeque<Arrival>,
}

pub fn address(place: Place) -> SocketAddr {
    let (subnet, number) = match place {
        Place::Source => (1, 1),
        Place::Router(number) => (2, number),
        Place::Client(number) => (3, number),
    };
    SocketAddr::from(([10, 0, subnet, u8::try_from(number).expect("small")], 7_000))
}

impl Bed {
    /// Router i hangs below router `above[i]`, or below the source where that is itself; client i below
    /// router `clients[i]`.
    pub fn new(above: &[usize], clients: &[usize]) -> Self {
        let top = |router: usize| {
            if above[router] == router { Place::Source } else { Place::Router(above[router]) }
        };
        let mut neighbours: Vec<_> = (0..above.len()).map(|router| vec![top(router)]).collect();
        let below = |router: &usize| above[*router] != *router;
        (0..above.len())
            .filter(below)
            .for_each(|router| neighbours[above[router]].push(Place::Router(router)));
        clients
            .iter()
            .enumerate()
            .for_each(|(client, router)| neighbours[*router].push(Place::Client(client)));
        let router = |_| BreadcrumbRouter::new(RouterConfig::default().with_entries(64), UPSTREAM);
        Self {
            now: Instant::ZERO,
            routers: (0..above.len()).map(router).collect(),
            neighbours,
            under_way: BTreeMap::new(),
            sent: 0,
            arrived: VecDeque::new(),
        }
    }

    pub fn router(&self, index: usize) -> &BreadcrumbRouter<InterfaceId> {
        &self.routers[index]
    }

    /// Sends a datagram of the source or a client to its router, or loses it.
    pub fn send(
        &mut self,
        from: Place,
        transmit: Transmit,
        buffer: &[u8],
        is_lost: &mut dyn FnMut(u64) -> bool,
    ) {
        let Destination::Unicast(to) = transmit.destination else { panic!("by unicast") };
        let to = (0..self.routers.len()).map(Place::Router).find(|router| address(*router) == to);
        self.put(from, to.expect("a router"), buffer[..transmit.bytes].to_vec(), is_lost);
    }

    /// The next datagram that comes to the source or a client until `end`, if one does.
    pub fn next(&mut self, end: Instant, is_lost: &mut dyn FnMut(u64) -> bool) -> Option<Arrival> {
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                return Some(arrival);
            }
            let next = self.under_way.first_entry().filter(|entry| entry.key().0 <= end);
            let Some(entry) = next else {
                self.now = end;
                return None;
            };
            self.now = entry.key().0;
            let parcel = entry.remove();
            self.arrive(parcel, is_lost);
        }
    }

    /// Lets the routers age to `now`.
    pub fn age(&mut self) {
        for router in &mut self.routers {
            while router.poll_timeout().is_some_and(|at| at <= self.now) {
                router.handle(self.now, Input::Timeout);
            }
        }
    }

    fn put(&mut self, from: Place, to: Place, payload: Vec<u8>, is_lost: &mut dyn FnMut(u64) -> bool) {
        self.sent += 1;
        if !is_lost(self.sent) {
            self.under_way.insert((self.now + DELAY, self.sent), Parcel { to, from, payload });
        }
    }

    fn arrive(&mut self, parcel: Parcel, is_lost: &mut dyn FnMut(u64) -> bool) {
        let Parcel { to, from, payload } = parcel;
        let Place::Router(index) = to else {
            return self.arrived.push_back(Arrival { at: to, from: address(from), payload });
        };
        let ingress = self.neighbours[index].iter().position(|place| *place == from).expect("a neighbour");
        let ingress = InterfaceId(u32::try_from(ingress).expect("few"));
        let datagram =
            Datagram { source: address(from), channel: None, ecn: Ecn::NotCapable, payload: &payload };
        self.routers[index].handle(self.now, Input::Routed(ingress, datagram));
        let mut buffer = vec![0; crate::DATAGRAM_BYTES_MAX];
        while let Some(output) = self.routers[index].poll_output(self.now, &mut buffer) {
            let (egress, payload) = match output {
                Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                    (egress, buffer[..transmit.bytes].to_vec())
                }
                Output::Router(RouterOutput::Forward { egress, .. }) => (egress, payload.clone()),
                other => panic!("{other:?}"),
            };
            let next = self.neighbours[index][egress.0 as usize];
            self.put(to, next, payload, is_lost);
        }
    }
}

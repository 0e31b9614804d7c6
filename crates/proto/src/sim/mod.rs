//! SIM (Gorinsky, Ramakrishnan, Vin 2008): sender, receivers and routers share the control of a layered
//! session, and rates fit the receivers.
//!
//! Groups are cumulative: who holds group g holds all below it. The sender asks for feedback every two
//! maximum round-trip times, by a number in every packet; each receiver answers once, routers merge the
//! answers of what is below them.
//!
//! | module | what |
//! |---|---|
//! | [`Sender`] | rates of groups, by additive increase and multiplicative decrease of each cumulative rate; the menu that bounds them |
//! | [`Receiver`] | which groups to hold: up while its top group takes turns that it does not feel, down while it is congested and the group still rises |
//! | [`AggregationRouter`] | one report per group and request, of all below it; nobody's identity |
//! | [`relay`] | a router on a host: forwards groups through queues that mark, by what is told of joins and leaves |
//!
//! Marks are ECN's, which routers set as [`crate::queue::Priority`] does; a loss counts as a mark. Bytes:
//! [`headwater_wire::sim`]. Departures from the paper: `docs/errata/sim.md`.
//!
//! What is heard is believed within bounds. A report counts as one receiver unless it comes from where an
//! operator said that a router is; each address is heard once per request and group; echoes must be of
//! packets that were sent, at most 4 s before the request, rates within what was sent. Whatever is reported,
//! a rate changes by one additive step or one decrease per request. Senders and routers remember
//! [`CHILDREN_MAX`] writers, sessions have at most [`GROUPS_MAX`] groups.

mod clock;
mod collector;
mod config;
mod measured;
mod menu;
mod rates;
mod receiver;
pub mod relay;
mod router;
mod schedule;
mod selection;
mod sender;
mod tally;
mod telling;

#[cfg(test)]
mod tests;

pub use collector::{CHILDREN_MAX, Refused};
pub use config::{Config, Facts, GROUPS_MAX, RTT_LONGEST, Trust};
pub use receiver::{Receiver, ReceiverCounters};
pub use router::{AggregationRouter, RouterConfig, RouterCounters};
pub use sender::{Sender, SenderCounters};

use headwater_wire::lct;
use headwater_wire::sim::{DATA_BYTES, Data};

/// A sender that was started again counts requests anew: after so long without a later request any other one
/// is taken.
const ANEW: crate::Duration = crate::Duration::from_secs(5);

/// Whether `request` is later than `than`, of numbers modulo 2^16.
const fn is_later(request: u16, than: u16) -> bool {
    request.wrapping_sub(than).cast_signed() > 0
}

/// What SIM says in a datagram of a session: in the congestion control information of an LCT packet, or, of a
/// congestion control by itself, at the start.
fn data_of(datagram: &[u8]) -> Option<Data> {
    match lct::Packet::new_checked(datagram) {
        Ok(packet) => Data::parse(packet.cci()).ok(),
        Err(_) => Data::parse(datagram.get(..DATA_BYTES)?).ok(),
    }
}

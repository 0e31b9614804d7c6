//! SIM (Gorinsky, Ramakrishnan, Vin 2008): sender, receivers and routers share the congestion control of a
//! layered session, and group rates adapt to the receivers.
//!
//! Groups are cumulative: a receiver subscribed to group g is subscribed to all groups below g. The sender
//! requests feedback every two maximum round-trip times, by a request number in every packet. Each receiver
//! answers each request once; routers merge the answers from downstream.
//!
//! | module | purpose |
//! |---|---|
//! | [`Sender`] | additive increase and multiplicative decrease of each cumulative rate; the menu of bounds |
//! | [`Receiver`] | joins if the top group yields to congestion elsewhere, leaves if congestion goes on |
//! | [`AggregationRouter`] | one report per group and request for all of downstream; no receiver identities |
//! | [`relay`] | router on a host: forwards groups through marking queues, by announced subscriptions |
//!
//! Marks are ECN's, set by routers as [`crate::queue::Priority`] does; a loss counts as a mark. Bytes:
//! [`headwater_wire::sim`]. Departures from the paper: `docs/errata/sim.md`.
//!
//! Feedback is trusted within bounds. A report counts as a single receiver unless the report comes from an
//! address that an operator configured as a router. Each address counts once per request and group. Echoes
//! must name packets that were sent, at most 4 s before the request; reported rates count up to the sent
//! rate. A rate changes by at most a single additive step or a single decrease per request, regardless of the
//! reports. Senders and routers remember [`CHILDREN_MAX`] writers, sessions have at most [`GROUPS_MAX`]
//! groups.

mod collector;
mod config;
mod rates;
mod receiver;
pub mod relay;
mod router;
mod schedule;
mod selection;
mod sender;

#[cfg(test)]
mod tests;

pub use collector::{CHILDREN_MAX, Refused};
pub use config::{Config, Facts, GROUPS_MAX, RTT_LONGEST, Trust};
pub use receiver::{Receiver, ReceiverCounters};
pub use router::{AggregationRouter, RouterConfig, RouterCounters};
pub use sender::{Sender, SenderCounters};

use headwater_wire::lct;
use headwater_wire::sim::{DATA_BYTES, Data};

/// Time without a later request after which any other request number is accepted: a restarted sender counts
/// requests from the start again.
const ANEW: crate::Duration = crate::Duration::from_secs(5);

/// Whether `request` is later than `than`, with numbers modulo 2^16.
const fn is_later(request: u16, than: u16) -> bool {
    request.wrapping_sub(than).cast_signed() > 0
}

/// Returns SIM's fields of a session's datagram: from the congestion control information of an LCT packet or,
/// if the datagram carries congestion control alone, from the start of the datagram.
fn data_of(datagram: &[u8]) -> Option<Data> {
    match lct::Packet::new_checked(datagram) {
        Ok(packet) => Data::parse(packet.cci()).ok(),
        Err(_) => Data::parse(datagram.get(..DATA_BYTES)?).ok(),
    }
}

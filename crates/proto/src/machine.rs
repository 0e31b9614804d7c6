//! Contract between protocol code and drivers. The rules are at the top of the crate.

use core::net::SocketAddr;

use crate::time::{Duration, Instant};

/// Largest datagram that a machine writes, in bytes of UDP payload: fits a jumbo frame without IP
/// fragmentation.
pub const DATAGRAM_BYTES_MAX: usize = 9_000 - 28;

/// Maximum payloads announced to a machine by one [`Machine::expect`]; the machine may ignore payloads.
/// Slightly above the number of memory reads a processor can have in flight.
pub const EXPECTED_MAX: usize = 32;

/// A channel of a session: one multicast group, numbered from 0 (the base channel). The driver knows the
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

impl ChannelId {
    /// The base channel: the first channel of every receiver.
    pub const BASE: Self = Self(0);
}

/// The ECN field of the IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotCapable = 0b00,
    /// ECT(1).
    Capable1 = 0b01,
    /// ECT(0): set by a sender.
    Capable0 = 0b10,
    /// Congestion experienced: set by a router.
    CongestionExperienced = 0b11,
}

impl Ecn {
    /// Converts the two low bits of the traffic class; ignores the other bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}

/// A datagram from the network.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: SocketAddr,
    /// Channel the datagram was sent to; `None` for this end's own address.
    pub channel: Option<ChannelId>,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// UDP payload. Borrowed: a driver may share one buffer among all receivers.
    pub payload: &'a [u8],
}

/// Input of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The time of [`Machine::poll_timeout`] has come, or an object of the machine (a store, a source) has
    /// changed. Harmless if neither is true.
    Timeout,
    /// A datagram arrived at an end.
    Datagram(Datagram<'a>),
    /// A datagram arrived at a router on an interface. Ends ignore this input, as routers ignore
    /// [`Input::Datagram`].
    Routed(InterfaceId, Datagram<'a>),
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a channel's group.
    Channel(ChannelId),
    /// To one end.
    Unicast(SocketAddr),
}

/// A datagram to send: the first `bytes` of the buffer passed to [`Machine::poll_output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub destination: Destination,
    /// Length of the UDP payload in bytes.
    pub bytes: usize,
    /// ECN field to send the datagram with.
    pub ecn: Ecn,
}

/// Output of a machine, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<E> {
    /// Send the datagram written into the buffer.
    Transmit(Transmit),
    /// Join a channel's group.
    Join(ChannelId),
    /// Leave a channel's group.
    Leave(ChannelId),
    /// Pass an event to the application.
    Event(E),
    /// Send a datagram by interface. Only routers emit this output.
    Router(RouterOutput),
}

/// Output of a router that names an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterOutput {
    /// Send the datagram last handled, unchanged and without a copy, with this ECN field. Emitted separately
    /// for each egress interface.
    Forward {
        /// Interface to send on.
        egress: InterfaceId,
        /// ECN field to send the datagram with.
        ecn: Ecn,
    },
    /// Forward the datagram last handled along routes and group memberships, unchanged except for this ECN
    /// field.
    Pass {
        /// ECN field to send the datagram with.
        ecn: Ecn,
    },
    /// Send the datagram written into the buffer.
    Transmit {
        /// Interface to send on.
        egress: InterfaceId,
        /// The datagram.
        transmit: Transmit,
    },
}

/// State machine of a protocol: a sender, a receiver, or a router.
///
/// A router takes datagrams from one interface and forwards them on a set of other interfaces. Its joins and
/// leaves are for the interface toward the source of the channel. A router that emits
/// [`RouterOutput::Forward`] or [`RouterOutput::Pass`] is drained after every datagram, because both refer to
/// the datagram last handled.
pub trait Machine {
    /// Event for the application.
    type Event;

    /// Announces payloads of datagrams that will probably follow, at most [`EXPECTED_MAX`]. A machine with a
    /// large memory footprint may prefetch the data for all payloads at once. The call changes no output and
    /// is optional.
    fn expect(&mut self, _payloads: &mut dyn Iterator<Item = &[u8]>) {}

    /// Tells a sender that its own link is full and carries `packets_per_second`. Default: ignored.
    fn on_full_link(&mut self, _packets_per_second: f64) {}

    /// Handles an input at `now`, which never goes back.
    fn handle(&mut self, now: Instant, input: Input<'_>);

    /// Returns the next output due at `now`, or `None` if no output is left. A datagram is written at the
    /// start of `buffer`, which has room for [`DATAGRAM_BYTES_MAX`].
    #[must_use]
    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>>;

    /// Returns the time for [`Input::Timeout`] if no other input comes first; `None` for never.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns the time by which the driver may be late for [`Machine::poll_timeout`] at no loss: a driver
    /// whose turns cost more than the outputs saves turns. Default: zero.
    fn slack(&self) -> Duration {
        Duration::ZERO
    }
}

/// Takes a machine's outputs for a driver. An outlet collects datagrams and passes them on in batches.
pub trait Outlet<E> {
    /// Returns the buffer for the next datagram, at least [`DATAGRAM_BYTES_MAX`] long. Without an output in
    /// between, a second call returns the same buffer.
    fn room(&mut self) -> &mut [u8];

    /// Takes an output. A `Transmit` refers to the bytes last written into [`Outlet::room`].
    fn put(&mut self, output: Output<E>);

    /// Whether the outlet takes no more outputs in this turn: the driver reads the clock before the next
    /// turn, so that a machine that is late knows the time of each packet. Default: no.
    fn is_full(&self) -> bool {
        false
    }
}

/// Drains a machine: the one loop that every driver runs after every batch of inputs and every timeout.
pub fn drain<M: Machine + ?Sized>(machine: &mut M, now: Instant, outlet: &mut impl Outlet<M::Event>) {
    while !outlet.is_full()
        && let Some(output) = machine.poll_output(now, outlet.room())
    {
        outlet.put(output);
    }
}

/// An interface of a router, numbered from 0.
///
/// The driver decides what an interface stands for: a link, or a peer of a socket. The number of interfaces
/// can be large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_reads_the_two_low_bits() {
        for bits in 0..=255_u8 {
            assert_eq!(Ecn::from_bits(bits) as u8, bits & 0b11);
        }
    }
}

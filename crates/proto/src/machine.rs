//! The contract between protocol code and whatever drives it. The rules are at the top of the crate.

use core::net::SocketAddr;

use crate::time::Instant;

/// Largest datagram that a machine writes, in bytes of UDP payload: jumbo frames, and nothing IP must
/// fragment on them.
pub const DATAGRAM_BYTES_MAX: usize = 9_000 - 28;

/// Payloads that a machine is told of at once by [`Machine::expect`]; it may leave others out. As many as a
/// processor can have on their way from memory at a time, and some more.
pub const EXPECTED_MAX: usize = 32;

/// A channel of a session: one multicast group, numbered from 0 (the base channel). The driver knows its
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

impl ChannelId {
    /// The base channel: the one that every receiver joins first.
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
    /// ECT(0): what a sender sets.
    Capable0 = 0b10,
    /// Congestion experienced: what a router sets.
    CongestionExperienced = 0b11,
}

impl Ecn {
    /// From the two low bits of the traffic class; the others are ignored.
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
    /// Who sent it.
    pub source: SocketAddr,
    /// The channel it was sent to; `None` when it was sent to this end's own address.
    pub channel: Option<ChannelId>,
    /// The ECN field it arrived with.
    pub ecn: Ecn,
    /// UDP payload. Borrowed: a driver may share one buffer among all receivers.
    pub payload: &'a [u8],
}

/// What a driver tells a machine.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The instant of [`Machine::poll_timeout`] has come, or something the machine was handed (a store, a
    /// source) has news. Harmless when neither is true.
    Timeout,
    /// A datagram arrived.
    Datagram(Datagram<'a>),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a channel's group.
    Channel(ChannelId),
    /// To one end.
    Unicast(SocketAddr),
}

/// A datagram to send: the first `bytes` of the buffer that was handed to [`Machine::poll_output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: Destination,
    /// Length of the UDP payload in bytes.
    pub bytes: usize,
    /// The ECN field to send it with.
    pub ecn: Ecn,
}

/// What a machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<E> {
    /// Send the datagram written into the buffer.
    Transmit(Transmit),
    /// Join a channel's group.
    Join(ChannelId),
    /// Leave a channel's group.
    Leave(ChannelId),
    /// Tell the application.
    Event(E),
}

/// One end of a protocol: a sender or a receiver.
pub trait Machine {
    /// What it tells the application.
    type Event;

    /// What is about to be handed in, as far as a driver knows that: payloads of datagrams, at most
    /// [`EXPECTED_MAX`]. A machine with much in memory may read what they will need, all at once. It changes
    /// no output, and nobody has to call it.
    fn expect(&mut self, _payloads: &mut dyn Iterator<Item = &[u8]>) {}

    /// Takes an input at `now`, which never goes back.
    fn handle(&mut self, now: Instant, input: Input<'_>);

    /// The next output due at `now`, or `None` when all are out. A datagram is written at the start of
    /// `buffer`, which has room for [`DATAGRAM_BYTES_MAX`].
    #[must_use]
    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>>;

    /// When to come back with [`Input::Timeout`] if nothing else happens; `None` for never.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Where a driver puts a machine's outputs. It gathers datagrams and hands them on in batches when it likes.
pub trait Outlet<E> {
    /// Room for the next datagram, at least [`DATAGRAM_BYTES_MAX`]. Called again without an output in
    /// between, it gives the same room.
    fn room(&mut self) -> &mut [u8];

    /// Takes an output; a `Transmit` speaks of the bytes last written into [`Outlet::room`].
    fn put(&mut self, output: Output<E>);
}

/// Drains a machine: the one loop that every driver runs after every batch of inputs and every timeout.
pub fn drain<M: Machine + ?Sized>(machine: &mut M, now: Instant, outlet: &mut impl Outlet<M::Event>) {
    while let Some(output) = machine.poll_output(now, outlet.room()) {
        outlet.put(output);
    }
}

/// An interface of a router, numbered from 0.
///
/// A driver says what it stands for: a link, or one peer of a socket. So there may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

/// What a router wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterOutput<E> {
    /// Send the datagram last handed in, unchanged and never copied, with this ECN field; once for each
    /// interface that it leaves by.
    Forward {
        /// Out of this interface.
        egress: InterfaceId,
        /// The ECN field to send it with.
        ecn: Ecn,
    },
    /// Let the datagram last handed in go where routes and group memberships lead, unchanged but for this ECN
    /// field.
    Pass {
        /// The ECN field to send it with.
        ecn: Ecn,
    },
    /// Send the datagram written into the buffer.
    Transmit {
        /// Out of this interface.
        egress: InterfaceId,
        /// The datagram.
        transmit: Transmit,
    },
    /// Join a channel's group on an interface.
    Join(InterfaceId, ChannelId),
    /// Leave a channel's group on an interface.
    Leave(InterfaceId, ChannelId),
    /// Tell the operator.
    Event(E),
}

/// A router: datagrams come in by one interface and leave by a set of others.
///
/// The same rules as for [`Machine`], and one more: it is drained after every datagram, so that `Forward` and
/// `Pass` can speak of the one just handed in.
pub trait Router {
    /// What it tells the operator.
    type Event;

    /// Takes an input that came by `ingress`; the ingress of a timeout means nothing.
    fn handle(&mut self, now: Instant, ingress: InterfaceId, input: Input<'_>);

    /// The next output due at `now`.
    #[must_use]
    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<RouterOutput<Self::Event>>;

    /// When to come back with [`Input::Timeout`].
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;
}

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

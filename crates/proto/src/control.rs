//! What every congestion control is to the rest: a schedule of departures at the sender, a set of memberships
//! at the receiver. It knows rates, losses and channels, never files.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::{Cci, fdt};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
pub use crate::pacing::Overload;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// A packet that a sender may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The channel it goes to.
    pub channel: ChannelId,
    /// The level of that channel now: 0 for the base, higher ones are held by fewer receivers.
    pub level: u16,
    /// When the schedule has it leave: by this a sequencer chooses what it carries, however late the driver
    /// is.
    pub at: Instant,
    /// Congestion control information for the LCT header.
    pub cci: Cci,
    /// The ECN field to send it with.
    pub ecn: Ecn,
    /// Highest level that the sender sends now, while that is not the session's highest: packets of the base
    /// channel tell receivers.
    pub ceiling: Option<u16>,
}

/// A receiver's request for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Destination of the packet that answers the request.
    pub destination: Destination,
    /// Number of the requested symbol of the FDT. `None`, or a number past the last symbol, requests content.
    pub description: Option<u64>,
    /// Whether the receiver has heard an earlier session of this sender, and may hold symbols of that
    /// session.
    pub follows_another: bool,
}

/// Envelope of a sender: the header of another protocol in front of each packet of the session.
pub trait SenderEnvelope {
    /// Bytes of the header in front of the packet that is due next.
    fn bytes(&self) -> usize;

    /// Writes the header at the start of `datagram`, in front of the packet. The datagram leaves at `now`,
    /// and [`SenderControl::departed`] follows.
    fn seal(&mut self, now: Instant, datagram: &mut [u8]);
}

/// Sending on request alone: a departure is due only while a receiver waits for a packet.
pub trait Responder {
    /// Returns the request that the departure due answers.
    fn request(&self) -> Option<Request>;
}

/// Value of a counter or of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Number of events or things.
    Count(u64),
    /// Rate, in bit/s where it is written out.
    Rate(Rate),
    /// Time, in milliseconds where it is written out.
    Time(Duration),
    /// Part of a whole, from 0 to 1.
    Share(f64),
    /// Address of an end.
    Address(IpAddr),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Rate(rate) => serializer.serialize_u64(rate.as_bits()),
            Self::Time(time) => serializer.serialize_f64(1e3 * time.as_secs_f64()),
            Self::Share(share) => serializer.serialize_f64(*share),
            Self::Address(address) => address.serialize(serializer),
        }
    }
}

/// Named counters and measurements of a control at one instant, in the control's order. Serializes as a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters(Vec<(&'static str, Value)>);

impl Counters {
    /// Reads the counters of a control.
    pub fn of(control: &(impl SenderControl + ?Sized)) -> Self {
        let mut counters = Self::default();
        control.visit_counters(&mut |name, value| counters.push(name, value));
        counters
    }

    /// Appends a counter.
    pub fn push(&mut self, name: &'static str, value: Value) {
        self.0.push((name, value));
    }

    /// Returns a value by its name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns a number by its name, 0 where there is none.
    pub fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(count)) => count,
            _ => 0,
        }
    }

    /// Returns a copy without the counter of a name.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(known, _)| *known != name).copied().collect())
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// The layers of a session over time, as a sequencer sees them.
///
/// Level 0 is the base; a receiver of level n holds 0..=n. Between two boundaries each level is one channel,
/// and its cumulative rate never rises.
pub trait Layering {
    /// Number of levels, the base included.
    fn levels(&self) -> u16;

    /// The first boundary after an instant: where levels change channels, or rates jump. `None` for never.
    fn next_boundary(&self, after: Instant) -> Option<Instant>;

    /// The channel that is at a level.
    fn channel(&self, level: u16, at: Instant) -> ChannelId;

    /// How many packets a level sends in `from..to`, exact to the packet. No boundary lies inside.
    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64;

    /// When a level sends its `n`th packet, from 0, at or after `from`; the next boundary or later when it
    /// does not send so many before that.
    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant;

    /// Packets per second of levels 0..=`level` from an instant on.
    fn cumulative_rate(&self, level: u16, at: Instant) -> f64;

    /// The number of the epoch that an instant is in, where receivers join by the first packet of the base in
    /// each.
    fn epoch(&self, _at: Instant) -> Option<u64> {
        None
    }

    /// Shows each packet that a level sends in `from..to`, in order: when it leaves, and
    /// [`Layering::cumulative_rate`] then. No boundary lies inside.
    fn visit(&self, level: u16, from: Instant, to: Instant, see: &mut dyn FnMut(Instant, f64)) {
        for n in 0..self.packets(level, from, to) {
            let at = self.departure(level, from, n);
            see(at, self.cumulative_rate(level, at));
        }
    }

    /// The same just before an instant: what the rate has fallen to when a boundary comes.
    fn cumulative_rate_before(&self, level: u16, at: Instant) -> f64;
}

/// The sending side of a congestion control: which channel sends next, and when.
pub trait SenderControl {
    /// Number of channels of the session; a channel is below it.
    fn channels(&self) -> u16;

    /// Number of levels; a departure's level is below it.
    fn levels(&self) -> u16;

    /// What receivers must know of it, for the FDT: [`crate::described`]. Nothing where one channel is all
    /// there is.
    fn description(&self) -> Option<fdt::Control> {
        None
    }

    /// What its levels will send, for a sequencer to lay content on. A control of several levels has one;
    /// where there is none, every receiver is taken to hold every channel.
    fn layering(&self) -> Option<&dyn Layering> {
        None
    }

    /// When the next packet may leave; `None` while it may not send at all.
    fn next_departure(&self) -> Option<Instant>;

    /// The departure due at `now`, if one is. It stays due until [`SenderControl::departed`].
    fn departure(&self, now: Instant) -> Option<Departure>;

    /// Returns the envelope that the control puts around each packet, if any.
    fn envelope(&mut self) -> Option<&mut dyn SenderEnvelope> {
        None
    }

    /// Returns the queue of requests, if the control sends on request alone.
    fn responder(&self) -> Option<&dyn Responder> {
        None
    }

    /// The departure that is due was used for a datagram of `bytes` of UDP payload. They are 0 when nothing
    /// was sent: the schedule of a control of several channels goes on as if a packet had left.
    fn departed(&mut self, now: Instant, bytes: usize);

    /// A datagram from a receiver. Controls that take no feedback ignore it.
    fn feedback(&mut self, _now: Instant, _datagram: &Datagram<'_>) {}

    /// What is sent while the driver cannot keep up with the rate that was asked for; `None` while it can.
    fn overload(&self) -> Option<Overload> {
        None
    }

    /// Shows each counter and measurement by its name.
    fn visit_counters(&self, _visit: &mut dyn FnMut(&'static str, Value)) {}

    /// The next datagram to a receiver that is due at `now`, written at the start of `buffer`, which has room
    /// for [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX); polled until `None` after every call above. It
    /// is no departure.
    fn poll_transmit(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    /// The next timeout that is not a departure (a rate to adapt, a slot to end).
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Time has come to `now`.
    fn timeout(&mut self, _now: Instant) {}
}

/// Methods of a box that call those of the value in it: of `&self` first, then of `&mut self`.
macro_rules! forward {
    (
        &self: $(fn $get:ident($($key:ident: $key_type:ty),*) $(-> $value:ty)?;)*
        &mut self: $(fn $set:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(fn $get(&self, $($key: $key_type),*) $(-> $value)? {
            (**self).$get($($key),*)
        })*
        $(fn $set(&mut self, $($argument: $type),*) $(-> $result)? {
            (**self).$set($($argument),*)
        })*
    };
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default body is forwarded, too")]
impl<C: SenderControl + ?Sized> SenderControl for Box<C> {
    forward! {
        &self:
        fn channels() -> u16;
        fn levels() -> u16;
        fn description() -> Option<fdt::Control>;
        fn layering() -> Option<&dyn Layering>;
        fn next_departure() -> Option<Instant>;
        fn departure(now: Instant) -> Option<Departure>;
        fn responder() -> Option<&dyn Responder>;
        fn overload() -> Option<Overload>;
        fn visit_counters(visit: &mut dyn FnMut(&'static str, Value));
        fn poll_timeout() -> Option<Instant>;
        &mut self:
        fn envelope() -> Option<&mut dyn SenderEnvelope>;
        fn departed(now: Instant, bytes: usize);
        fn feedback(now: Instant, datagram: &Datagram<'_>);
        fn poll_transmit(now: Instant, buffer: &mut [u8]) -> Option<Transmit>;
        fn timeout(now: Instant);
    }
}

/// A packet that arrived, as a congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Who sent it: where a receiver's questions to its sender go.
    pub source: SocketAddr,
    /// The channel it was sent to.
    pub channel: ChannelId,
    /// Congestion control information of the LCT header.
    pub cci: &'a Cci,
    /// The ECN field it arrived with.
    pub ecn: Ecn,
    /// Bytes of UDP payload.
    pub bytes: usize,
}

/// A wish to join or leave a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Join the channel's group.
    Join(ChannelId),
    /// Leave the channel's group.
    Leave(ChannelId),
}

/// Memberships that a receiving control wants changed, in the order of wishing. A wish that was not taken yet
/// and its opposite cancel out, so there are never more than the session has channels.
#[derive(Clone, Debug, Default)]
pub struct Wishes(VecDeque<Membership>);

impl Wishes {
    /// Wishes to join or leave.
    pub fn push(&mut self, wish: Membership) {
        let opposite = match wish {
            Membership::Join(channel) => Membership::Leave(channel),
            Membership::Leave(channel) => Membership::Join(channel),
        };
        match self.0.iter().position(|other| *other == opposite) {
            Some(index) => drop(self.0.remove(index)),
            None => self.0.push_back(wish),
        }
    }

    /// The oldest wish.
    pub fn pop(&mut self) -> Option<Membership> {
        self.0.pop_front()
    }
}

/// What a receiving control has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Packets received.
    pub packets: u64,
    /// Packets known to be lost: holes in the channels' sequence numbers.
    pub lost: u64,
    /// Packets that came with ECN's congestion mark.
    pub marked: u64,
}

impl Reception {
    /// Counts a packet. Returns whether it is marked.
    pub fn count(&mut self, ecn: Ecn) -> bool {
        let is_marked = ecn == Ecn::CongestionExperienced;
        self.packets += 1;
        self.marked += u64::from(is_marked);
        is_marked
    }
}

/// What a receiving control shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Its name; `unknown` while the session has not described it, nothing where none is described.
    pub name: &'static str,
    /// Channels held, those being joined among them.
    pub channels: u16,
    /// What it holds to be fair, in bit/s of UDP payload.
    pub fair_rate: Option<Rate>,
    /// Its round-trip time, queueing included.
    pub rtt: Option<Duration>,
    /// From a join to the first packet: the mean of late. What packets of a slow channel are apart is in it.
    pub join_latency: Option<Duration>,
    /// The longest of those.
    pub join_latency_max: Option<Duration>,
    /// Loss events per packet of late.
    pub loss_event_rate: Option<f64>,
    /// Packets in which the sender was told of losses.
    pub naks: Option<u64>,
    /// Packets that may be under way at a time, where each is asked for.
    pub window: Option<u16>,
}

/// Result of opening a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeContent<'a> {
    /// A packet of a session.
    Packet {
        /// Address of the packet's sender.
        source: SocketAddr,
        /// The packet.
        packet: &'a [u8],
    },
    /// A message of the envelope's protocol, without a packet.
    Signal,
    /// Neither.
    Malformed,
}

/// Envelope of a receiver: takes packets out of another protocol's datagrams.
pub trait ReceiverEnvelope {
    /// Opens a datagram. If the datagram holds a packet of the session, [`ReceiverControl::arrived`] follows
    /// before the next datagram is opened.
    fn open<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> EnvelopeContent<'a>;
}

/// Receiving on request alone: the control asks for each packet, those of the FDT included, and nobody sends
/// the FDT to receivers that do not ask.
pub trait Requester {
    /// The sender closed the session: packets on the way still count, and requests end.
    fn on_close(&mut self, now: Instant);
}

/// A control that follows the session's description of its congestion control.
pub trait DescribedControl {
    /// The session's FDT came, with this description.
    ///
    /// # Errors
    /// The reason, for people, if the control cannot receive the session.
    fn on_description(&mut self, now: Instant, control: Option<&fdt::Control>) -> Result<(), String>;
}

/// The receiving side of a congestion control: which channels to hold.
pub trait ReceiverControl {
    /// Begins, or begins again after [`ReceiverControl::stop`]: asks for the base channel.
    fn start(&mut self, now: Instant);

    /// Gives up every channel. What was measured stays.
    fn stop(&mut self, now: Instant);

    /// The packet of the base channel of which [`ReceiverControl::arrived`] tells next names the highest
    /// level that the sender sends now ([`Departure::ceiling`]); `None` where it sends all. Nothing comes of
    /// the levels above, and none of them was lost.
    fn limited(&mut self, _now: Instant, _ceiling: Option<u16>) {}

    /// A packet of the session arrived on a channel.
    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>);

    /// Returns the envelope in which packets of the session may come, if any.
    fn envelope(&mut self) -> Option<&mut dyn ReceiverEnvelope> {
        None
    }

    /// Returns the requesting part, if the control asks for each packet.
    fn requester(&mut self) -> Option<&mut dyn Requester> {
        None
    }

    /// Returns the part that follows descriptions, if the control has one.
    fn described(&mut self) -> Option<&mut dyn DescribedControl> {
        None
    }

    /// A datagram that was sent to this end's own address: whether it is for the control, as an answer of its
    /// sender is.
    fn answered(&mut self, _now: Instant, _datagram: &Datagram<'_>) -> bool {
        false
    }

    /// This end's machine dropped packets that it had received, because they were not read in time.
    fn overrun(&mut self, _now: Instant) {}

    /// The next datagram to the sender that is due at `now`, written at the start of `buffer`, which has room
    /// for [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX); polled until `None` after every call above.
    fn poll_transmit(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    /// The next membership to change; polled until `None` after every call above.
    fn poll_membership(&mut self) -> Option<Membership>;

    /// What was measured so far.
    fn reception(&self) -> Reception;

    /// What to show of it.
    fn status(&mut self, _now: Instant) -> Status {
        Status::default()
    }

    /// When to call [`ReceiverControl::timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Time has come to `now`.
    fn timeout(&mut self, _now: Instant) {}
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default body is forwarded, too")]
impl<C: ReceiverControl + ?Sized> ReceiverControl for Box<C> {
    forward! {
        &self:
        fn reception() -> Reception;
        fn poll_timeout() -> Option<Instant>;
        &mut self:
        fn start(now: Instant);
        fn stop(now: Instant);
        fn limited(now: Instant, ceiling: Option<u16>);
        fn arrived(now: Instant, arrival: &Arrival<'_>);
        fn envelope() -> Option<&mut dyn ReceiverEnvelope>;
        fn requester() -> Option<&mut dyn Requester>;
        fn described() -> Option<&mut dyn DescribedControl>;
        fn answered(now: Instant, datagram: &Datagram<'_>) -> bool;
        fn overrun(now: Instant);
        fn poll_transmit(now: Instant, buffer: &mut [u8]) -> Option<Transmit>;
        fn poll_membership() -> Option<Membership>;
        fn status(now: Instant) -> Status;
        fn timeout(now: Instant);
    }
}

//! Interface of every congestion control: a schedule of departures at the sender, a set of memberships at the
//! receiver. A control knows rates, losses and channels, never files.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU32;
use std::collections::VecDeque;

use headwater_wire::extensions::{Lateness, Levels};
use headwater_wire::roster::PacketCounts;
use headwater_wire::{Cci, fdt};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::admission::AdmissionKey;
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
pub use crate::pacing::Overload;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

mod status;

pub use status::{DemandStatus, PathStatus, RateLimit, Status};

/// A packet that a sender may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Channel the packet goes to.
    pub channel: ChannelId,
    /// Current level of the channel: 0 for the base. Fewer receivers subscribe to higher levels.
    pub level: u16,
    /// Scheduled departure time. A sequencer chooses the payload by this time, however late the driver is.
    pub at: Instant,
    /// Congestion control information for the LCT header.
    pub cci: Cci,
    /// ECN field to send the packet with.
    pub ecn: Ecn,
    /// Levels the sender currently sends, unless all are sent whatever receivers hold.
    pub levels: Option<Levels>,
    /// Whether the packet announces `levels` to receivers. Each packet of the base channel does.
    pub tells_levels: bool,
    /// Time since `at`, if packets tell receivers how late they leave.
    pub lateness: Option<Lateness>,
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
    /// Place in a cycle of symbols that the receiver asks for, as a part of 2^32.
    pub place: Option<NonZeroU32>,
    /// Block of which the receiver asks for a symbol; `None` for any.
    pub block: Option<BlockName>,
}

/// Name of a source block in a request, or of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockName {
    /// Transport object identifier of the block's object.
    pub toi: NonZeroU32,
    /// Source block number.
    pub sbn: u32,
    /// Encoding symbol id, for a block without repair symbols; `None` for the next symbol.
    pub esi: Option<u32>,
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
    /// Number of events or items.
    Count(u64),
    /// Rate, serialized in bit/s.
    Rate(Rate),
    /// Time, serialized in milliseconds.
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

    /// Returns a value by name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns the count of a name, or 0 if no count has the name.
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

/// Layers of a session over time, as seen by a sequencer.
///
/// Level 0 is the base; a receiver at level n subscribes to levels 0..=n. Between two boundaries each level
/// is sent on a single channel, and the cumulative rate of a level never rises.
pub trait Layering {
    /// Number of levels, the base included.
    fn levels(&self) -> u16;

    /// Returns the first boundary after an instant: levels change channels, or rates jump. `None` for never.
    fn next_boundary(&self, after: Instant) -> Option<Instant>;

    /// Returns the channel that carries a level.
    fn channel(&self, level: u16, at: Instant) -> ChannelId;

    /// Returns the number of packets a level sends in `from..to`, exact to the packet. No boundary lies
    /// inside.
    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64;

    /// Returns the departure time of a level's `n`th packet, from 0, at or after `from`. If the level sends
    /// fewer packets before the next boundary, returns that boundary or a later time.
    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant;

    /// Returns the rate of levels 0..=`level` from an instant on, in packets per second.
    fn cumulative_rate(&self, level: u16, at: Instant) -> f64;

    /// Returns the maximum number of packets of all levels, sent or not, in an interval; `None` without a
    /// highest rate. Rates are highest at time 0, and each level may send a packet more than in the mean.
    fn most_packets(&self, interval: Duration) -> Option<f64> {
        let rate = self.cumulative_rate(self.levels() - 1, Instant::ZERO);
        Some(rate * interval.as_secs_f64() + f64::from(self.levels()))
    }

    /// Returns the number of the epoch that contains an instant, if receivers join by the first base packet
    /// of each epoch.
    fn epoch(&self, _at: Instant) -> Option<u64> {
        None
    }

    /// Visits each packet that a level sends in `from..to`, in order: the departure time, and
    /// [`Layering::cumulative_rate`] at that time. No boundary lies inside.
    fn visit(&self, level: u16, from: Instant, to: Instant, see: &mut dyn FnMut(Instant, f64)) {
        for n in 0..self.packets(level, from, to) {
            let at = self.departure(level, from, n);
            see(at, self.cumulative_rate(level, at));
        }
    }

    /// Returns the cumulative rate just before an instant, such as the final rate before a boundary.
    fn cumulative_rate_before(&self, level: u16, at: Instant) -> f64;
}

/// Sending side of a congestion control: chooses the next channel to send on, and the time.
pub trait SenderControl {
    /// Number of channels of the session; channel numbers are below this number.
    fn channels(&self) -> u16;

    /// Number of levels; the level of a departure is below this number.
    fn levels(&self) -> u16;

    /// Returns the parameters that receivers need, for the FDT: [`crate::described`]. `None` if the session
    /// has a single channel and nothing to describe.
    fn description(&self) -> Option<fdt::ControlAttributes> {
        None
    }

    /// Returns the future packets of each level, on which a sequencer places content. A control of several
    /// levels has a layering. Without a layering, every receiver is assumed to subscribe to every channel.
    fn layering(&self) -> Option<&dyn Layering> {
        None
    }

    /// Returns the earliest time of the next packet; `None` while sending is not allowed.
    fn next_departure(&self) -> Option<Instant>;

    /// Returns the departure due at `now`, if any. The departure stays due until [`SenderControl::departed`].
    fn departure(&self, now: Instant) -> Option<Departure>;

    /// Returns the envelope that the control puts around each packet, if any.
    fn envelope(&mut self) -> Option<&mut dyn SenderEnvelope> {
        None
    }

    /// Returns the queue of requests, if the control sends on request alone.
    fn responder(&self) -> Option<&dyn Responder> {
        None
    }

    /// Returns how long before the departure a packet can be generated: the schedule of this time depends on
    /// no receiver. Zero if departures depend on feedback or requests, or if packets are too rare to be
    /// listed in manifests ([`crate::auth`]); otherwise the time may change, but not to zero.
    fn lead(&self) -> Duration {
        Duration::ZERO
    }

    /// Marks the due departure as used for a datagram of `bytes` of UDP payload. `bytes` is 0 when nothing
    /// was sent: the schedule of a control of several channels advances as if a packet had left.
    fn departed(&mut self, now: Instant, bytes: usize);

    /// Notes that there was no content to send until `now`: a departure that stayed unused meanwhile is no
    /// sign of a slow driver. Called only for a sender without a layering.
    fn paused(&mut self, _now: Instant) {}

    /// Sets the secret key by which the control tells networks of receivers apart, and proves addresses.
    /// Without a key, in simulations, the limits of the control's paper hold alone.
    fn set_admission_key(&mut self, _key: AdmissionKey) {}

    /// Sends only the levels that receivers report from now on. Without a call, in simulations, all levels
    /// are sent. Controls without levels ignore the call.
    fn follow_demand(&mut self, _rates: DemandRates) {}

    /// Stamps each packet with its lateness from now on: receivers tell a sender that is late from a queue in
    /// the network. Controls whose receivers measure no delays ignore the call.
    fn stamp_departures(&mut self) {}

    /// Returns the levels that receivers need, if the sender sends no others.
    fn demand(&self) -> Option<DemandStatus> {
        None
    }

    /// Learns that the sender's own link is full and carries `packets_per_second`. Default: ignored.
    fn on_full_link(&mut self, _packets_per_second: f64) {}

    /// Handles a datagram from a receiver. Controls without feedback ignore the datagram.
    fn feedback(&mut self, _now: Instant, _datagram: &Datagram<'_>) {}

    /// Handles a receiver's report to the roster of the session. Controls that follow no such reports ignore
    /// the call.
    fn reported(&mut self, _now: Instant, _report: &ReceptionReport) {}

    /// Sets at each timeout whether a receiver may need packets, by the session's roster. Default: ignored.
    fn set_packets_needed(&mut self, _now: Instant, _are_needed: bool) {}

    /// Returns the overload while the driver cannot keep up with the configured rate; `None` otherwise.
    fn overload(&self) -> Option<Overload> {
        None
    }

    /// Visits each counter and measurement by name.
    fn visit_counters(&self, _visit: &mut dyn FnMut(&'static str, Value)) {}

    /// Returns the next datagram due to a receiver at `now`. The datagram is written at the start of
    /// `buffer`, which has room for [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX). Polled until `None`
    /// after every call above. The datagram does not count as a departure.
    fn poll_transmit(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    /// Returns the time by which packets may leave late at no loss to any receiver. Default: zero.
    fn slack(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the next timeout other than a departure (a rate update, the end of a slot).
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles the timeout at `now`.
    fn timeout(&mut self, _now: Instant) {}
}

/// Forwards the methods of a box to the boxed value: methods of `&self` first, then of `&mut self`.
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
        fn description() -> Option<fdt::ControlAttributes>;
        fn layering() -> Option<&dyn Layering>;
        fn next_departure() -> Option<Instant>;
        fn departure(now: Instant) -> Option<Departure>;
        fn responder() -> Option<&dyn Responder>;
        fn lead() -> Duration;
        fn demand() -> Option<DemandStatus>;
        fn slack() -> Duration;
        fn overload() -> Option<Overload>;
        fn visit_counters(visit: &mut dyn FnMut(&'static str, Value));
        fn poll_timeout() -> Option<Instant>;
        &mut self:
        fn envelope() -> Option<&mut dyn SenderEnvelope>;
        fn departed(now: Instant, bytes: usize);
        fn paused(now: Instant);
        fn set_admission_key(key: AdmissionKey);
        fn follow_demand(rates: DemandRates);
        fn stamp_departures();
        fn on_full_link(packets_per_second: f64);
        fn feedback(now: Instant, datagram: &Datagram<'_>);
        fn reported(now: Instant, report: &ReceptionReport);
        fn set_packets_needed(now: Instant, are_needed: bool);
        fn poll_transmit(now: Instant, buffer: &mut [u8]) -> Option<Transmit>;
        fn timeout(now: Instant);
    }
}

/// Packets of a receiver, by a report to the roster of the session ([`crate::roster`]).
#[derive(Clone, Copy, Debug)]
pub struct ReceptionReport {
    /// Identifier of the receiver, whose address has proven to receive.
    pub receiver: u64,
    /// Whether the receiver has not ended.
    pub is_under_way: bool,
    /// Packets since the receiver's start; `None` if the receiver has ended, or counts none.
    pub packets: Option<PacketCounts>,
    /// Interval of reports.
    pub interval: Duration,
}

/// Rates of a sender that sends only the levels that receivers report, in packets per second.
#[derive(Clone, Copy, Debug)]
pub struct DemandRates {
    /// Rate of the levels that are sent without receivers.
    pub idle: f64,
    /// Mean rate up to which a receiver that starts is given room while no receiver has reported more.
    pub start: f64,
}

/// A packet that arrived, as seen by a congestion control.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Address of the sender, to which the receiver sends round-trip requests.
    pub source: SocketAddr,
    /// Channel the packet was sent to.
    pub channel: ChannelId,
    /// Congestion control information of the LCT header.
    pub cci: &'a Cci,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Bytes of UDP payload.
    pub bytes: usize,
    /// Time by which the packet left after its scheduled departure, as far as the packet tells.
    pub lateness: Duration,
}

/// A request to join or leave a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Join the channel's group.
    Join(ChannelId),
    /// Leave the channel's group.
    Leave(ChannelId),
}

/// Queue of membership changes a receiving control requests, oldest first. A pending request and its opposite
/// cancel out, so the queue never holds more requests than the session has channels.
#[derive(Clone, Debug, Default)]
pub struct Wishes(VecDeque<Membership>);

impl Wishes {
    /// Queues a request to join or leave.
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

    /// Removes and returns the oldest request.
    pub fn pop(&mut self) -> Option<Membership> {
        self.0.pop_front()
    }
}

/// Packet counts of a receiving control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Packets received.
    pub packets: u64,
    /// Packets known to be lost: holes in the channels' sequence numbers.
    pub lost: u64,
    /// Packets received with ECN's congestion mark.
    pub marked: u64,
}

impl Reception {
    /// Counts a packet. Returns whether the packet is marked.
    pub fn count(&mut self, ecn: Ecn) -> bool {
        let is_marked = ecn == Ecn::CongestionExperienced;
        self.packets += 1;
        self.marked += u64::from(is_marked);
        is_marked
    }
}

/// Set of rules by which a receiver of several levels changes its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// All rules of this implementation (`docs/design/control.md`).
    #[default]
    Revised,
    /// Rules of the control's papers or RFC only: any loss is congestion, and an overloaded receiver waits
    /// for the decay of its levels. For repeating their experiments.
    Published,
}

impl Rules {
    /// Names in plans and on the command line, the default first.
    pub const NAMES: [(&str, Self); 2] = [("revised", Self::Revised), ("published", Self::Published)];

    /// Returns the rules of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, rules)| *rules)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Revised => Self::NAMES[0].0,
            Self::Published => Self::NAMES[1].0,
        }
    }

    /// Returns the line of the command's help.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Revised => "All rules: losses by chance, overload, a short queue (docs/design/control.md)",
            Self::Published => "Those of the papers and RFCs alone, to repeat their experiments",
        }
    }
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
    /// Neither a packet nor a message.
    Malformed,
}

/// Envelope of a receiver: takes packets out of another protocol's datagrams.
pub trait ReceiverEnvelope {
    /// Opens a datagram. If the datagram holds a packet of the session, [`ReceiverControl::arrived`] follows
    /// before the next datagram is opened.
    fn open<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> EnvelopeContent<'a>;
}

/// Receiving on request alone: the control requests each packet, including packets of the FDT. The FDT is
/// sent only to receivers that request the FDT.
pub trait Requester {
    /// Handles the sender's close of the session: packets in flight still count, and requests end.
    fn on_close(&mut self, now: Instant);

    /// Asks the sender to continue the content at this part of 2^32 of a cycle, if the sender does not know
    /// the receiver's place.
    fn continue_at(&mut self, place: NonZeroU32);

    /// Names the block of which the next request asks for a symbol; `None` for any block.
    fn name_block(&mut self, block: Option<BlockName>);
}

/// A control that follows the session's description of its congestion control.
pub trait DescribedControl {
    /// Handles the session's FDT with this description.
    ///
    /// # Errors
    /// Returns the reason, as text for people, if the control cannot receive the session.
    fn on_description(
        &mut self,
        now: Instant,
        control: Option<&fdt::ControlAttributes>,
    ) -> Result<(), String>;
}

/// Levels that a receiver needs from a sender that sends no others ([`crate::layering::demand`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelNeed {
    /// Highest level held or being joined.
    pub level: u16,
    /// Highest level that the next join may need, at most the session's and the receiver's highest.
    pub next: u16,
    /// Whether the receiver starts.
    pub is_starting: bool,
}

/// Receiving side of a congestion control: chooses the channels to subscribe to.
pub trait ReceiverControl {
    /// Starts, or restarts after [`ReceiverControl::stop`]: requests the base channel.
    fn start(&mut self, now: Instant);

    /// Leaves every channel and keeps the measurements.
    fn stop(&mut self, now: Instant);

    /// Sets the levels the sender currently sends ([`Departure::levels`]), as announced by the base packet of
    /// the next [`ReceiverControl::arrived`]; `None` if the sender sends all levels. Levels above the ceiling
    /// carry no packets, and none of their packets counts as lost.
    fn limited(&mut self, _now: Instant, _levels: Option<Levels>) {}

    /// Returns the levels that the receiver needs from the sender; `None` without levels.
    fn need(&self, _now: Instant) -> Option<LevelNeed> {
        None
    }

    /// Handles a packet of the session on a channel.
    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>);

    /// Handles a packet that waited for authentication, and arrived at `at`: at most
    /// [`WAITING_TIME`](crate::auth::WAITING_TIME) before the time of earlier calls. The packet counts, but a
    /// decision, for example a join, waits for the next packet in time.
    fn arrived_late(&mut self, at: Instant, arrival: &Arrival<'_>) {
        self.arrived(at, arrival);
    }

    /// Whether the schedule has sent a packet of a signed session long before another packet that has come:
    /// the packet is a replay, perhaps from before the join of its channel, and proves no loss.
    fn is_stale(&self, _now: Instant, _cci: &Cci) -> bool {
        false
    }

    /// Handles a packet on a channel that waits for authentication, at most for
    /// [`WAITING_TIME`](crate::auth::WAITING_TIME): a join of the channel has perhaps taken effect.
    fn unverified(&mut self, _now: Instant, _channel: ChannelId) {}

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

    /// Handles a datagram sent to this end's own address. Returns whether the datagram was for the control,
    /// such as an answer of the sender.
    fn answered(&mut self, _now: Instant, _datagram: &Datagram<'_>) -> bool {
        false
    }

    /// Handles an overrun: this end's host dropped received packets that were not read in time.
    fn overrun(&mut self, _now: Instant) {}

    /// Returns the next datagram due to the sender at `now`. The datagram is written at the start of
    /// `buffer`, which has room for [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX). Polled until `None`
    /// after every call above.
    fn poll_transmit(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    /// Returns the next membership to change; polled until `None` after every call above.
    fn poll_membership(&mut self) -> Option<Membership>;

    /// Returns the packet counts so far.
    fn reception(&self) -> Reception;

    /// Returns the status to display.
    fn status(&mut self, _now: Instant) -> Status {
        Status::default()
    }

    /// Returns the time of the next [`ReceiverControl::timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles the timeout at `now`.
    fn timeout(&mut self, _now: Instant) {}
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default body is forwarded, too")]
impl<C: ReceiverControl + ?Sized> ReceiverControl for Box<C> {
    forward! {
        &self:
        fn need(now: Instant) -> Option<LevelNeed>;
        fn is_stale(now: Instant, cci: &Cci) -> bool;
        fn reception() -> Reception;
        fn poll_timeout() -> Option<Instant>;
        &mut self:
        fn start(now: Instant);
        fn stop(now: Instant);
        fn limited(now: Instant, levels: Option<Levels>);
        fn arrived(now: Instant, arrival: &Arrival<'_>);
        fn arrived_late(at: Instant, arrival: &Arrival<'_>);
        fn unverified(now: Instant, channel: ChannelId);
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

//! Test path for receivers: a sender and a receiver over a single drop-tail queue.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use headwater_wire::cci::WebrcCci;

use crate::control::{Arrival, Departure, Membership, ReceiverControl, SenderControl};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use crate::machine::{ChannelId, Ecn};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// UDP payload of a packet.
pub(crate) const BYTES: u16 = 1_480;
/// Address of the sender.
pub(crate) const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

pub(crate) fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Applies a receiver's membership changes without a path.
pub(crate) fn apply(held: &mut [bool], receiver: &mut impl ReceiverControl) {
    while let Some(membership) = receiver.poll_membership() {
        let (ChannelId(channel), joined) = match membership {
            Membership::Join(channel) => (channel, true),
            Membership::Leave(channel) => (channel, false),
        };
        let held = &mut held[usize::from(channel)];
        assert_ne!(*held, joined, "joins what is not held, leaves what is");
        *held = joined;
    }
}

/// A path: joins and leaves take effect at the path's far end, followed by a queue of 25 packets, a link, and
/// propagation.
pub(crate) struct Path {
    rate: Rate,
    delay: Duration,
    pub(crate) join: Duration,
    /// Start of forwarding of each channel.
    pub(crate) joined: Vec<Option<Instant>>,
    /// Transmission start times of the queued packets.
    waiting: VecDeque<Instant>,
    free: Instant,
    dropped: u64,
    /// Queue length from which arriving packets are marked.
    pub(crate) marking: usize,
    /// Extra delay of each seventh packet.
    pub(crate) late: Duration,
    /// Whether each seventh packet is duplicated.
    pub(crate) repeats: bool,
    /// Number of packets of which one is lost behind the queue.
    pub(crate) lossy: Option<u64>,
    carried: u64,
    /// End of a stall of the receiver: arriving packets wait until then.
    pub(crate) stalled: Instant,
    /// Interval of a single sleep: packets that arrive meanwhile are read at the end.
    pub(crate) deaf: Option<(Instant, Instant)>,
    /// Advance of the receiver's clock over the sender's.
    pub(crate) ahead: Duration,
    /// Time to read a packet.
    pub(crate) reading: Duration,
    /// Time at which all arrived packets have been read.
    pub(crate) read: Instant,
    /// Read times of the packets in the socket's buffer of 64 packets.
    unread: VecDeque<Instant>,
    /// Packets dropped because the socket's buffer was full.
    pub(crate) overruns: u64,
}

impl Path {
    fn new(rate: u64, delay: u64, join: u64, channels: u16) -> Self {
        Self {
            rate: Rate::from_kilobits(rate),
            delay: Duration::from_millis(delay),
            join: Duration::from_millis(join),
            joined: vec![None; channels.into()],
            waiting: VecDeque::new(),
            free: Instant::ZERO,
            dropped: 0,
            marking: usize::MAX,
            late: Duration::ZERO,
            repeats: false,
            lossy: None,
            carried: 0,
            stalled: Instant::ZERO,
            deaf: None,
            ahead: Duration::ZERO,
            reading: Duration::ZERO,
            read: Instant::ZERO,
            unread: VecDeque::new(),
            overruns: 0,
        }
    }

    /// Sets the rate of the link in kbit/s.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.rate = Rate::from_kilobits(rate);
    }

    pub(crate) fn apply(&mut self, now: Instant, receiver: &mut impl ReceiverControl) {
        while let Some(membership) = receiver.poll_membership() {
            match membership {
                Membership::Join(ChannelId(channel)) => {
                    let joined = &mut self.joined[usize::from(channel)];
                    assert!(joined.is_none(), "channel {channel} is held already");
                    *joined = Some(now + self.join);
                }
                Membership::Leave(ChannelId(channel)) => {
                    assert!(self.joined[usize::from(channel)].take().is_some(), "{channel} is not held");
                }
            }
        }
    }

    /// Returns the time at which the receiver reads a packet that arrives at an instant.
    fn taken(&self, at: Instant) -> Instant {
        let at = at.max(self.stalled);
        self.deaf.filter(|(from, to)| (*from..*to).contains(&at)).map_or(at, |(_, to)| to)
    }

    /// Returns the arrival time and ECN field of a packet, if the packet is forwarded and the queue has room.
    fn carry(&mut self, now: Instant, departure: &Departure) -> Option<(Instant, Ecn)> {
        self.joined[usize::from(departure.channel.0)].filter(|since| *since <= now)?;
        while self.waiting.front().is_some_and(|start| *start <= now) {
            self.waiting.pop_front();
        }
        if self.waiting.len() >= 25 {
            self.dropped += 1;
            return None;
        }
        let is_marked = self.waiting.len() >= self.marking;
        let start = self.free.max(now);
        if start > now {
            self.waiting.push_back(start);
        }
        self.free = start + self.rate.time_of(u64::from(BYTES) + 34);
        self.carried += 1;
        // Spread by an odd factor, so that losses keep no step with channels.
        if self.lossy.is_some_and(|every| {
            (self.carried.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(every)
        }) {
            return None;
        }
        let ecn = if is_marked { Ecn::CongestionExperienced } else { departure.ecn };
        self.read(self.free + self.delay).map(|at| (at, ecn))
    }

    /// Returns the read time of a packet that arrives at an instant, if the socket's buffer has room.
    fn read(&mut self, at: Instant) -> Option<Instant> {
        while self.unread.front().is_some_and(|read| *read <= at) {
            self.unread.pop_front();
        }
        if self.unread.len() >= 64 {
            self.overruns += 1;
            return None;
        }
        self.read = self.read.max(at) + self.reading;
        self.unread.push_back(self.read);
        Some(self.read)
    }
}

pub(crate) struct Run<R, S = DynamicSender> {
    pub(crate) sender: S,
    pub(crate) receiver: R,
    pub(crate) path: Path,
    on_wire: BinaryHeap<Reverse<(Instant, u64)>>,
    carried: Vec<Departure>,
    pub(crate) now: Instant,
}

impl<R: ReceiverControl> Run<R> {
    /// Returns a run over a link of `rate` kbit/s, with propagation and join times in milliseconds.
    pub(crate) fn new(layers: DynamicConfig, receiver: R, rate: u64, delay: u64, join: u64) -> Self {
        let sender = DynamicSender::new(DynamicChannels::new(layers, Instant::ZERO).unwrap());
        Self::over(sender, receiver, rate, delay, join)
    }
}

impl<R: ReceiverControl, S: SenderControl> Run<R, S> {
    /// Returns a run for any sender.
    pub(crate) fn over(sender: S, receiver: R, rate: u64, delay: u64, join: u64) -> Self {
        let path = Path::new(rate, delay, join, sender.channels());
        Self { sender, receiver, path, on_wire: BinaryHeap::new(), carried: Vec::new(), now: Instant::ZERO }
    }

    /// Starts the receiver.
    pub(crate) fn start(&mut self) {
        self.receiver.start(self.now);
        self.path.apply(self.now, &mut self.receiver);
    }

    pub(crate) fn until(&mut self, end: Instant) {
        loop {
            let departure = self.sender.next_departure().unwrap();
            let arrival = self.on_wire.peek().map(|Reverse((at, _))| self.path.taken(*at));
            let timeout = self.receiver.poll_timeout().map(|at| at - self.path.ahead);
            let next = arrival.into_iter().chain(timeout).fold(departure, Instant::min);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let Reverse((_, index)) = self.on_wire.pop().unwrap();
                let departure = self.carried[usize::try_from(index).unwrap()];
                let Departure { channel, cci, ecn, lateness, .. } = departure;
                let (source, bytes) = (SENDER.into(), BYTES.into());
                let micros = lateness.map_or(0, |lateness| lateness.micros);
                let lateness = Duration::from_micros(micros.into());
                let arrival = Arrival { source, channel, cci: &cci, ecn, bytes, lateness };
                self.receiver.arrived(self.now + self.path.ahead, &arrival);
            } else if departure == next {
                let departure = self.sender.departure(self.now).unwrap();
                self.sender.departed(self.now, BYTES.into());
                if let Some((arrives, ecn)) = self.path.carry(self.now, &departure) {
                    let number = self.carried.len() as u64;
                    let late = if number.is_multiple_of(7) { self.path.late } else { Duration::ZERO };
                    self.on_wire.push(Reverse((arrives + late, number)));
                    if self.path.repeats && number.is_multiple_of(7) {
                        self.on_wire.push(Reverse((arrives + late, number)));
                    }
                    self.carried.push(Departure { ecn, ..departure });
                }
            } else {
                self.receiver.timeout(self.now + self.path.ahead);
            }
            self.path.apply(self.now, &mut self.receiver);
        }
    }

    /// Delivers an arbitrary packet now.
    pub(crate) fn give(&mut self, channel: u16, cci: WebrcCci) {
        self.give_with(channel, cci, Ecn::NotCapable, Duration::ZERO);
    }

    /// Delivers an arbitrary packet with an ECN field and a lateness now.
    pub(crate) fn give_with(&mut self, channel: u16, cci: WebrcCci, ecn: Ecn, lateness: Duration) {
        let cci = cci.short().unwrap();
        let (source, channel, bytes) = (SENDER.into(), ChannelId(channel), BYTES.into());
        let arrival = Arrival { source, channel, cci: &cci, ecn, bytes, lateness };
        self.receiver.arrived(self.now + self.path.ahead, &arrival);
        self.path.apply(self.now, &mut self.receiver);
    }

    pub(crate) fn held(&self) -> usize {
        self.path.joined.iter().flatten().count()
    }
}

/// Returns kbit/s of UDP payload over `from..to`, and the lost part.
pub(crate) fn measure<R: ReceiverControl, S: SenderControl>(
    run: &mut Run<R, S>,
    from: u64,
    to: u64,
) -> (f64, f64) {
    run.until(at(from * 1_000));
    let before = run.receiver.reception();
    run.until(at(to * 1_000));
    let after = run.receiver.reception();
    let packets = (after.packets - before.packets) as f64;
    let lost = (after.lost - before.lost) as f64;
    (packets * f64::from(BYTES) * 8.0 / 1_000.0 / (to - from) as f64, lost / (packets + lost))
}

/// Checks that a receiver with a cap of 500 kbit/s nearly reaches the cap, without loss.
pub(crate) fn keeps_a_cap<R: ReceiverControl>(mut run: Run<R>, least: f64, from: u64, to: u64) {
    run.start();
    let (rate, loss) = measure(&mut run, from, to);
    assert!((least..=500.0).contains(&rate), "{rate:.0} kbit/s");
    assert_eq!(loss, 0.0);
}

/// Checks that a receiver that starts in the middle of a slot receives more than `least` kbit/s, and leaves
/// all channels when stopped.
pub(crate) fn comes_and_goes<R: ReceiverControl, S: SenderControl>(
    mut run: Run<R, S>,
    least: f64,
    from: u64,
    to: u64,
) {
    run.until(at(123_456));
    run.start();
    let (rate, _) = measure(&mut run, from, to);
    assert!(rate > least, "{rate:.0} kbit/s");
    assert!(run.held() > 1);
    run.receiver.stop(run.now);
    run.path.apply(run.now, &mut run.receiver);
    assert_eq!(run.held(), 0, "all is left");
}

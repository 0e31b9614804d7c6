//! Repair as in PGM, over breadcrumbs (section 2.4): data goes to an EXPRESS channel, a NAK is a request on a
//! label derived from the missing number, and the repair is the reply. Routers suppress equal NAKs and
//! forward the repair only to receivers that miss the message, without knowledge of the protocol.
//!
//! The body of a message is its number, 8 bytes, big-endian, followed by the content. If a repair is lost,
//! the next NAK and the repair to that NAK have the next higher level. A receiver detects a missing message
//! when a later message arrives; a receiver that misses the last message sends a NAK only after a further
//! message.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_proto::bcfs::{BcfsSource, Label, Level, ReplyTo, ReturnPath};
use headwater_proto::{ChannelId, Datagram, Duration, Input, Instant, Machine, Output};

use super::express::{Membership, Publisher};

/// Label of the data channel.
const DATA: Label = Label(0);
/// Prefix of NAK labels; the low bits of the message number follow.
const NAKS: u32 = 1 << 31;
const NUMBER_BYTES: usize = 8;
/// Maximum number of repairs queued at a source; receivers repeat further NAKs.
const REPAIRS_MAX: usize = 256;
/// Maximum number of messages that a source keeps, and that a receiver requests.
pub const WINDOW_MAX: u32 = 4_096;
/// Consecutive numbers out of the window before a receiver restarts at the new number: either the earlier
/// messages were forged, or the source was restarted.
const STRANGERS_MAX: u32 = 16;
/// Number of NAKs after which a receiver gives a message up.
const NAKS_MAX: u32 = 10;

/// Number of messages that a source keeps, and the mask that maps numbers to labels: 2^b labels, more than
/// two windows.
#[derive(Debug, Clone, Copy)]
struct Window {
    messages: u64,
    mask: u32,
}

impl Window {
    /// Creates a window of `messages`, clamped to 1 to [`WINDOW_MAX`].
    fn new(messages: u32) -> Self {
        let messages = messages.clamp(1, WINDOW_MAX);
        Self { messages: messages.into(), mask: (2 * messages + 1).next_power_of_two() - 1 }
    }

    fn label(self, number: u64) -> Label {
        Label(NAKS | (u32::try_from(number & u64::from(self.mask)).unwrap_or_default()))
    }
}

/// Source that sends messages, and repairs of the messages in its window.
#[derive(Debug)]
pub struct RepairSource {
    publisher: Publisher,
    window: Window,
    /// Last messages, prefixed with the number, oldest first.
    kept: VecDeque<Vec<u8>>,
    next: u64,
    asked: VecDeque<(ReturnPath, Label, Level)>,
    repairs: u64,
}

impl RepairSource {
    /// Creates a source that keeps `window` messages, 1 to [`WINDOW_MAX`]. See [`Publisher::new`].
    pub fn new(identity: Option<SocketAddr>, reply_to: ReplyTo, window: u32) -> Self {
        let mut publisher = Publisher::new(identity, reply_to, DATA);
        // There is room for the second binding.
        let _second = publisher.source_mut().bind(Label(NAKS), NAKS);
        Self {
            publisher,
            window: Window::new(window),
            kept: VecDeque::new(),
            next: 0,
            asked: VecDeque::new(),
            repairs: 0,
        }
    }

    /// Sends a message. Returns false if the publisher's queue is full. The message is then sent as a repair
    /// only, to the receivers that request it, and the caller must not send the message again.
    pub fn send(&mut self, content: &[u8]) -> bool {
        let is_full = self.kept.len() as u64 == self.window.messages;
        let mut message = if is_full { self.kept.pop_front() } else { None }.unwrap_or_default();
        message.clear();
        message.extend_from_slice(&self.next.to_be_bytes());
        message.extend_from_slice(content);
        let taken = self.publisher.publish(&message);
        // A message that the publisher refused has a number, so receivers miss it and request a repair.
        self.kept.push_back(message);
        self.next += 1;
        taken
    }

    /// Returns the number of repairs sent.
    pub const fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Returns the message that a label refers to, if still kept.
    fn find(&self, label: Label) -> Option<&Vec<u8>> {
        let first = self.next - self.kept.len() as u64;
        let behind = label.0.wrapping_sub(self.window.label(first).0) & self.window.mask;
        self.kept.get(behind as usize)
    }
}

impl Machine for RepairSource {
    type Event = core::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let Input::Datagram(datagram) = input else { return };
        let Some(asked) = self.publisher.source_mut().receive(now, &datagram) else { return };
        if asked.label == DATA {
            self.publisher.joined(now, asked.path);
        } else if asked.wants_reply && self.asked.len() < REPAIRS_MAX {
            self.asked.push_back((asked.path, asked.label, asked.level));
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        while let Some((path, label, level)) = self.asked.pop_front() {
            let Some(message) = self.find(label) else { continue };
            let body = BcfsSource::body(&path, buffer);
            let bytes = message.len().min(body.len());
            body[..bytes].copy_from_slice(&message[..bytes]);
            self.repairs += 1;
            let source = self.publisher.source_mut();
            return Some(Output::Transmit(source.reply(now, &path, label, level, bytes, buffer)));
        }
        self.publisher.poll(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairCounters {
    /// Messages passed to the sink.
    pub received: u64,
    /// Messages missing when a later message arrived.
    pub missed: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Messages given up.
    pub lost: u64,
    /// Messages received again, or out of the window.
    pub superfluous: u64,
}

/// Receiver that passes each message with its number to `sink` on arrival, and requests missing messages, at
/// most a window.
#[derive(Debug)]
pub struct RepairReceiver<F> {
    membership: Membership,
    joins: Option<ChannelId>,
    window: Window,
    repeat: Duration,
    sink: F,
    /// Number after the highest; `None` before the first message.
    next: Option<u64>,
    missing: BTreeMap<u64, Missing>,
    /// The missing messages, by the time of the next NAK.
    due: BTreeSet<(Instant, u64)>,
    strangers: u32,
    counters: RepairCounters,
}

/// Missing message.
#[derive(Debug, Clone, Copy)]
struct Missing {
    level: Level,
    naks: u32,
    due: Instant,
}

impl<F: FnMut(u64, &[u8])> RepairReceiver<F> {
    /// Creates a receiver of `source` by way of `upstream`, from `now` on. `window` is the source's window;
    /// `repeat` is the time after which a NAK counts as lost, and must exceed the round-trip time. With
    /// `joins`, the receiver joins that group to receive replies.
    pub fn new(
        (source, upstream): (SocketAddr, SocketAddr),
        joins: Option<ChannelId>,
        window: u32,
        repeat: Duration,
        now: Instant,
        sink: F,
    ) -> Self {
        let mut membership = Membership::new(source, upstream, DATA, now);
        let _second = membership.client_mut().bind(Label(NAKS), NAKS);
        Self {
            membership,
            joins,
            window: Window::new(window),
            repeat,
            sink,
            next: None,
            missing: BTreeMap::new(),
            due: BTreeSet::new(),
            strangers: 0,
            counters: RepairCounters::default(),
        }
    }

    /// Returns the receiver's counters.
    pub const fn counters(&self) -> &RepairCounters {
        &self.counters
    }

    fn message(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(reply) = self.membership.receive(datagram) else { return };
        let Some((number, content)) = reply.body.split_first_chunk::<NUMBER_BYTES>() else { return };
        let number = u64::from_be_bytes(*number);
        let next = *self.next.get_or_insert(number);
        let is_far = number.abs_diff(next) > 2 * self.window.messages;
        if number < next && !is_far {
            if !self.settle(number) {
                self.counters.superfluous += 1;
                return;
            }
        } else if reply.label == DATA && (!is_far || self.are_strangers()) {
            self.ahead(now, number, if is_far { number } else { next });
        } else {
            self.counters.superfluous += 1;
            return;
        }
        self.strangers = 0;
        self.counters.received += 1;
        (self.sink)(number, content);
    }

    /// Whether enough consecutive messages were out of the window to restart at the new number.
    fn are_strangers(&mut self) -> bool {
        self.strangers += 1;
        self.strangers > STRANGERS_MAX
    }

    /// Records a new highest number: the numbers from `next` to `number` are missing.
    fn ahead(&mut self, now: Instant, number: u64, next: u64) {
        let Some(after) = number.checked_add(1) else { return };
        self.next = Some(after);
        let first = next.max(after.saturating_sub(self.window.messages));
        self.counters.lost += first.saturating_sub(next);
        for missed in first..number {
            self.counters.missed += 1;
            self.await_repair(missed, Missing { level: Level::ONE, naks: 0, due: now });
        }
        while let Some((oldest, _)) = self.missing.first_key_value()
            && oldest + self.window.messages < after
        {
            let oldest = *oldest;
            self.settle(oldest);
            self.counters.lost += 1;
        }
    }

    fn await_repair(&mut self, number: u64, missing: Missing) {
        self.settle(number);
        self.due.insert((missing.due, number));
        self.missing.insert(number, missing);
    }

    /// Removes a message that arrived or is given up; false if the message was not missing.
    fn settle(&mut self, number: u64) -> bool {
        let Some(missing) = self.missing.remove(&number) else { return false };
        self.due.remove(&(missing.due, number))
    }

    /// Returns the next due NAK.
    fn nak(&mut self, now: Instant) -> Option<(Label, Level)> {
        loop {
            let (_, number) = *self.due.first().filter(|(due, _)| *due <= now)?;
            let Missing { level, naks, .. } = *self.missing.get(&number)?;
            if naks < NAKS_MAX {
                let due = now + self.repeat;
                self.await_repair(number, Missing { level: level.raised(), naks: naks + 1, due });
                self.counters.naks += 1;
                return Some((self.window.label(number), level));
            }
            self.settle(number);
            self.counters.lost += 1;
        }
    }
}

impl<F: FnMut(u64, &[u8])> Machine for RepairReceiver<F> {
    type Event = core::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            self.message(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        if let Some(channel) = self.joins.take() {
            return Some(Output::Join(channel));
        }
        if let Some(transmit) = self.membership.poll(now, buffer) {
            return Some(Output::Transmit(transmit));
        }
        let (label, level) = self.nak(now)?;
        let client = self.membership.client_mut();
        Some(Output::Transmit(client.request(label, level, Some(&[]), buffer)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.membership.due();
        Some(self.due.first().map_or(due, |(nak, _)| due.min(*nak)))
    }
}

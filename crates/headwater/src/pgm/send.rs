//! A session that sends messages.

use headwater_proto::Instant;
use headwater_proto::pgm::zmq::Packer;
use headwater_proto::pgm::{Filler, Source, SourceEvent};

use super::feed::{Batch, PgmFeed};
use super::options::{Framing, PgmSendOptions};
use super::socket::Opened;
use super::update::{PgmSendOutcome, PgmSendProgress, PgmSendStarted, PgmSendSummary, PgmSendUpdate};
use crate::clock::{Clock, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, SenderSocket};
use crate::progress::Progress;
use crate::send::{RateWatch, SendError};
use crate::stop::StopHandle;

/// Packets that wait for their departure: what a turn of the driver may send at some Gbit/s.
const READY_PACKETS: u32 = 64;
/// Receivers that go on asking hold a session no longer than this.
const LINGER_MAX: headwater_proto::Duration = headwater_proto::Duration::from_secs(60);
/// The end is told a few times whatever happens; a stopped sender repairs little more and is gone.
const LINGER_STOPPED: headwater_proto::Duration = headwater_proto::Duration::from_millis(350);

/// Sends messages that its feeds hand over, on the thread that calls [`Self::run`].
#[derive(Debug)]
pub struct PgmSendSession {
    options: PgmSendOptions,
    opened: Opened,
    feed: PgmFeed,
}

impl PgmSendSession {
    /// Opens the socket. Nothing is sent yet.
    ///
    /// # Errors
    /// When an option is out of range, or there is no way to send to the group.
    pub fn open(options: PgmSendOptions) -> Result<Self, SendError> {
        let opened = Opened::new(&options)?;
        let feed = PgmFeed::new(opened.link.poller.waker(), opened.message_bytes_max(&options));
        Ok(Self { options, opened, feed })
    }

    /// Where and how it sends.
    pub fn started(&self) -> PgmSendStarted {
        let socket = &self.opened.link.socket;
        PgmSendStarted {
            group: self.options.link.group,
            control: self.options.control,
            source: socket.local_addr(),
            interface: socket.interface().name.clone(),
            gsi: self.opened.session.gsi,
            source_port: self.opened.session.source_port,
            payload_bytes: self.opened.payload_bytes,
            message_bytes_max: self.opened.message_bytes_max(&self.options),
        }
    }

    /// What hands it messages.
    pub fn feed(&self) -> PgmFeed {
        self.feed.clone()
    }

    /// Stops it from any thread: what waits is dropped, receivers are told that it ended.
    pub fn stop_handle(&self) -> StopHandle {
        self.opened.link.stop.clone()
    }

    /// Sends until the feed is finished and nobody asks any more, or it is stopped.
    ///
    /// # Errors
    /// When the network failed.
    pub fn run(&mut self, observer: &mut dyn FnMut(PgmSendUpdate)) -> Result<PgmSendSummary, SendError> {
        let result = self.send(observer);
        self.feed.end();
        result
    }

    fn send(&mut self, observer: &mut dyn FnMut(PgmSendUpdate)) -> Result<PgmSendSummary, SendError> {
        observer(PgmSendUpdate::Started(self.started()));
        let clock = Clock::start();
        let mut source = self.opened.source(&self.options, clock.now());
        let mut watch = Watch {
            stop: self.stop_handle(),
            supply: Supply {
                feed: self.feed.clone(),
                batch: Batch::default(),
                packing: Packing::new(self.options.wire.framing, self.opened.payload_bytes),
                messages: 0,
                message_bytes: 0,
            },
            ending: Ending::new(LINGER_STOPPED.max(self.options.linger.into())),
            progress: Progress::new(clock.now()),
            rate: RateWatch::new(self.options.control.rate_max()),
            last: PgmSendProgress::of(&source),
            observer,
        };
        let link = &mut self.opened.link;
        link.drive(&mut self.options.link, &mut source, clock, &mut watch)?;
        let outcome = match link.stop.is_stopped() {
            true => PgmSendOutcome::Interrupted,
            false => PgmSendOutcome::Completed,
        };
        Ok(PgmSendSummary { outcome, progress: watch.last })
    }
}

impl Drop for PgmSendSession {
    /// Lets go of who waits for room, where it never ran to its end.
    fn drop(&mut self) {
        self.feed.end();
    }
}

/// Messages on their way from the feed to the source.
struct Supply {
    feed: PgmFeed,
    batch: Batch,
    packing: Packing,
    messages: u64,
    message_bytes: u64,
}

impl Supply {
    /// Hands over what is there, as far as a few packets are ready to leave.
    fn hand_over(&mut self, source: &mut Source) {
        source.set_backlogged(true);
        while source.waiting() < READY_PACKETS {
            let Some(message) = self.batch.first() else {
                if self.feed.take(&mut self.batch) {
                    continue;
                }
                return self.exhausted(source);
            };
            if !self.packing.push(message, source) {
                return;
            }
            self.messages += 1;
            self.message_bytes += message.len() as u64;
            self.batch.take();
        }
    }

    /// The application has nothing more for now: a packet that is not full need not wait, unless others do.
    fn exhausted(&mut self, source: &mut Source) {
        source.set_backlogged(false);
        let is_finished = self.feed.is_finished();
        if is_finished || source.waiting() == 0 {
            self.packing.flush(source);
        }
        if is_finished {
            source.finish();
        }
    }

    /// Whether there is more to hand over, once there is room.
    fn has_more(&self) -> bool {
        self.batch.first().is_some() || self.packing.has_rest() || self.feed.has_some()
    }
}

/// How messages come into packets.
enum Packing {
    /// By PGM itself.
    Messages,
    Zmq(Packer),
    Bytes(Filler),
}

impl Packing {
    fn new(framing: Framing, payload_bytes: u16) -> Self {
        match framing {
            Framing::Messages => Self::Messages,
            Framing::Zmq => Self::Zmq(Packer::new(payload_bytes)),
            Framing::Bytes => Self::Bytes(Filler::new(payload_bytes)),
        }
    }

    /// Takes a message where the source has room for all packets that it fills.
    fn push(&mut self, message: &[u8], source: &mut Source) -> bool {
        let packets = match self {
            Self::Messages => return source.send(message),
            Self::Zmq(packer) => packer.packets(message.len()),
            Self::Bytes(filler) => filler.packets(message.len()),
        };
        if packets > source.room() as usize {
            return false;
        }
        let mut send = |packet: &[u8]| _ = source.send(packet);
        match self {
            Self::Messages => send(message),
            Self::Zmq(packer) => packer.push(message, send),
            Self::Bytes(filler) => filler.push(message, send),
        }
        true
    }

    /// Whether there is a packet that is not full.
    const fn has_rest(&self) -> bool {
        match self {
            Self::Messages => false,
            Self::Zmq(packer) => packer.has_rest(),
            Self::Bytes(filler) => filler.has_rest(),
        }
    }

    /// Sends it as it is.
    fn flush(&mut self, source: &mut Source) {
        let send = |packet: &[u8]| _ = source.send(packet);
        match self {
            Self::Messages => {}
            Self::Zmq(packer) => packer.flush(send),
            Self::Bytes(filler) => filler.flush(send),
        }
    }
}

/// When a session that has sent all is over.
struct Ending {
    linger: headwater_proto::Duration,
    is_sent: bool,
    sent: Option<Instant>,
    /// Numbers asked for, and since when they are no more.
    asked: (u64, Instant),
}

impl Ending {
    const fn new(linger: headwater_proto::Duration) -> Self {
        Self { linger, is_sent: false, sent: None, asked: (0, Instant::ZERO) }
    }

    fn is_over(&mut self, source: &Source, is_stopped: bool, now: Instant) -> bool {
        let asked = source.counters().asked;
        if asked != self.asked.0 || source.has_repairs() {
            self.asked = (asked, now);
        }
        if !self.is_sent {
            return false;
        }
        let sent = *self.sent.get_or_insert(now);
        match is_stopped {
            true => now >= sent + LINGER_STOPPED,
            false => now >= self.asked.1.max(sent) + self.linger || now >= sent + LINGER_MAX,
        }
    }
}

struct Watch<'a> {
    stop: StopHandle,
    supply: Supply,
    ending: Ending,
    progress: Progress,
    rate: RateWatch,
    last: PgmSendProgress,
    observer: &'a mut dyn FnMut(PgmSendUpdate),
}

impl Application<Source, SenderSocket> for Watch<'_> {
    fn steer(&mut self, source: &mut Source, _port: &mut SenderSocket, _now: Instant) {
        if self.ending.is_sent {
            return;
        }
        if self.stop.is_stopped() {
            source.close();
        } else {
            self.supply.hand_over(source);
        }
    }

    fn event(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Sent => self.ending.is_sent = true,
        }
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(PgmSendUpdate::LinkChanged(change));
    }

    fn observe(
        &mut self,
        source: &mut Source,
        _port: &SenderSocket,
        unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        let is_over = self.ending.is_over(source, self.stop.is_stopped(), now);
        if self.progress.is_due(now) || is_over {
            if let Some(limit) = self.rate.look(source.overload()) {
                (self.observer)(PgmSendUpdate::RateLimited(limit));
            }
            self.last = PgmSendProgress {
                elapsed: elapsed(now),
                rate_bits: self.progress.rate_bits(now, source.counters().bytes),
                messages: self.supply.messages,
                message_bytes: self.supply.message_bytes,
                unsent,
                ..PgmSendProgress::of(source)
            };
            (self.observer)(PgmSendUpdate::Progress(self.last.clone()));
        }
        if is_over {
            return None;
        }
        // What the source has too little of, the next turn brings.
        let wants = source.waiting() == 0 && !self.ending.is_sent && self.supply.has_more();
        Some(if wants { now } else { self.progress.next() })
    }
}

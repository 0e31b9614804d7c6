//! Sessions that send messages; the source's socket.

use headwater_proto::pgm::zmq::Packer;
use headwater_proto::pgm::{Filler, Mode, PgmSession, PgmSource, SourceConfig, SourceControl, SourceEvent};
use headwater_proto::{DATAGRAM_BYTES_MAX, Duration, Instant};
use headwater_wire::pgm::Gsi;

use super::feed::{Batch, PgmFeed};
use super::options::{Framing, PgmControl, PgmSendOptions};
use super::update::{PgmSendOutcome, PgmSendProgress, PgmSendStarted, PgmSendSummary, PgmSendUpdate};
use crate::clock::{Clock, Progress, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, SenderSocket};
use crate::send::{Link, RateWatch, SendError};
use crate::session::Session;
use crate::system;
use crate::threads::StopHandle;

/// Packets waiting for departure: the packets of a turn of the driver at some Gbit/s.
const READY_PACKETS: u32 = 64;
/// Maximum time that requests of receivers prolong a session.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// Time of a stopped sender for a few announcements of the end and for last repairs.
const LINGER_STOPPED: Duration = Duration::from_millis(350);

/// Session that sends the messages of its feeds, until the feed is finished and no receiver requests repairs,
/// or the session is stopped. A stopped session drops waiting messages and announces the end to receivers.
#[derive(Debug)]
pub struct PgmSendSession {
    options: PgmSendOptions,
    opened: SourceEndpoint,
    feed: PgmFeed,
}

impl PgmSendSession {
    /// Opens the socket. Nothing is sent yet.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can send to the group.
    pub fn open(options: PgmSendOptions) -> Result<Self, SendError> {
        let opened = SourceEndpoint::new(&options)?;
        let feed = PgmFeed::new(opened.link.poller.waker(), opened.message_bytes_max(&options));
        Ok(Self { options, opened, feed })
    }

    /// Returns the parameters of the session at its start.
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

    /// Returns a handle that passes messages to the session.
    pub fn feed(&self) -> PgmFeed {
        self.feed.clone()
    }

    fn send(&mut self, observer: &mut dyn FnMut(PgmSendUpdate)) -> Result<PgmSendSummary, SendError> {
        observer(PgmSendUpdate::Started(self.started()));
        let clock = Clock::start();
        let mut source = self.opened.source(&self.options, clock.now());
        let mut watch = Watch {
            stop: self.opened.link.stop.clone(),
            supply: Supply {
                feed: self.feed.clone(),
                batch: Batch::default(),
                packing: Packing::new(self.options.wire.framing, self.opened.payload_bytes),
                messages: 0,
                message_bytes: 0,
            },
            ending: LingerTimer::new(LINGER_STOPPED.max(self.options.linger.into())),
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

impl Session for PgmSendSession {
    type Update = PgmSendUpdate;
    type Summary = PgmSendSummary;
    type Error = SendError;

    fn stop_handle(&self) -> StopHandle {
        self.opened.link.stop.clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(PgmSendUpdate)) -> Result<PgmSendSummary, SendError> {
        let result = self.send(observer);
        self.feed.end();
        result
    }

    fn is_progress(update: &PgmSendUpdate) -> bool {
        matches!(update, PgmSendUpdate::Progress(_))
    }
}

impl Drop for PgmSendSession {
    /// Releases threads that wait for room, for a session that never ran to its end.
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
    /// Passes messages on until a few packets are ready to leave.
    fn hand_over(&mut self, source: &mut PgmSource) {
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

    /// The application has no message now: a partly filled packet leaves, unless other packets wait.
    fn exhausted(&mut self, source: &mut PgmSource) {
        source.set_backlogged(false);
        let is_finished = self.feed.is_finished();
        if is_finished || source.waiting() == 0 {
            self.packing.flush(source);
        }
        if is_finished {
            source.finish();
        }
    }

    /// Whether more messages can be passed on once there is room.
    fn has_more(&self) -> bool {
        self.batch.first().is_some() || self.packing.has_rest() || self.feed.has_some()
    }
}

/// Conversion of messages to packets.
enum Packing {
    /// Fragmentation by PGM.
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

    /// Takes a message if the source has room for all packets of the message.
    fn push(&mut self, message: &[u8], source: &mut PgmSource) -> bool {
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

    /// Whether a packet is partly filled.
    const fn has_rest(&self) -> bool {
        match self {
            Self::Messages => false,
            Self::Zmq(packer) => packer.has_rest(),
            Self::Bytes(filler) => filler.has_rest(),
        }
    }

    /// Sends the partly filled packet.
    fn flush(&mut self, source: &mut PgmSource) {
        let send = |packet: &[u8]| _ = source.send(packet);
        match self {
            Self::Messages => {}
            Self::Zmq(packer) => packer.flush(send),
            Self::Bytes(filler) => filler.flush(send),
        }
    }
}

/// Timer of the end of a session that has sent all messages.
struct LingerTimer {
    linger: Duration,
    is_sent: bool,
    sent: Option<Instant>,
    /// Number of requests, and the time of the last change.
    asked: (u64, Instant),
}

impl LingerTimer {
    const fn new(linger: Duration) -> Self {
        Self { linger, is_sent: false, sent: None, asked: (0, Instant::ZERO) }
    }

    fn is_over(&mut self, source: &PgmSource, is_stopped: bool, now: Instant) -> bool {
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
    ending: LingerTimer,
    progress: Progress,
    rate: RateWatch,
    last: PgmSendProgress,
    observer: &'a mut dyn FnMut(PgmSendUpdate),
}

impl Application<PgmSource, SenderSocket> for Watch<'_> {
    fn steer(&mut self, source: &mut PgmSource, _port: &mut SenderSocket, _now: Instant) {
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
        source: &mut PgmSource,
        _port: &SenderSocket,
        unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        let is_over = self.ending.is_over(source, self.stop.is_stopped(), now);
        if self.progress.is_due(now) || is_over {
            if let Some(limit) = self.rate.on_overload(source.overload()) {
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
        // If the source has too few packets, the next turn follows at once.
        let wants = source.waiting() == 0 && !self.ending.is_sent && self.supply.has_more();
        Some(if wants { now } else { self.progress.next() })
    }
}

/// Header of a data packet without options, in bytes.
const HEADER_BYTES: u16 = 24;
/// OPT_LENGTH and OPT_FRAGMENT, in packets of messages longer than one.
const FRAGMENT_BYTES: u16 = 4 + 16;
/// Longest IP packet that OpenPGM accepts by default.
const IP_BYTES_MAX: u32 = 1_500;
/// Doubling time of the rate before the first answer. Receivers of other makes are silent until the first
/// loss, and the hosts then may take seconds to resolve the route.
const BLIND_DOUBLING: Duration = Duration::from_secs(2);
const PAYLOAD_MAX: u16 = 8_192;
const PAYLOAD_MIN: u16 = 16;

/// Open socket, and the session on the socket.
#[derive(Debug)]
pub(super) struct SourceEndpoint {
    pub(super) link: Link,
    pub(super) session: PgmSession,
    pub(super) payload_bytes: u16,
    /// UDP payload of a full packet.
    packet_bytes: u16,
}

impl SourceEndpoint {
    pub(super) fn new(options: &PgmSendOptions) -> Result<Self, SendError> {
        // Receivers send NAKs to the group's own port, whatever the source port of the data.
        let link = Link::open(&options.link, 1, options.link.group.port())?;
        let headers =
            HEADER_BYTES + if options.wire.framing == Framing::Messages { FRAGMENT_BYTES } else { 0 };
        let payload_bytes = payload_bytes(options.payload_bytes, &link, u32::from(headers))?;
        let packet_bytes = payload_bytes + headers;
        Ok(Self { link, session: session(options)?, payload_bytes, packet_bytes })
    }

    /// Creates the machine, which begins at `now`.
    pub(super) fn source(&self, options: &PgmSendOptions, now: Instant) -> PgmSource {
        let control = match options.control {
            PgmControl::Fixed(rate) => SourceControl::Fixed(rate),
            PgmControl::LeSbcc(options) => {
                let chain = options.chain(self.packet_bytes, Some(BLIND_DOUBLING), now);
                SourceControl::LeSbcc(Box::new(chain))
            }
        };
        PgmSource::new(self.config(options), control, now)
    }

    /// Returns the maximum bytes of a message.
    pub(super) fn message_bytes_max(&self, options: &PgmSendOptions) -> usize {
        let packets = self.config(options).waiting_packets_max() as usize;
        // In ZeroMQ's packets, two bytes are the offset, and the message before may use part of one packet.
        match options.wire.framing {
            Framing::Messages => packets * usize::from(self.payload_bytes),
            Framing::Zmq => (packets - 2) * usize::from(self.payload_bytes - 2),
            Framing::Bytes => (packets - 1) * usize::from(self.payload_bytes),
        }
    }

    fn config(&self, options: &PgmSendOptions) -> SourceConfig {
        let path = self.link.socket.local_addr().ip();
        SourceConfig::new(self.session, path, self.payload_bytes)
            .with_mode(Mode::Pgm)
            .with_window_packets(options.window_packets)
            .with_roll_call(matches!(options.control, PgmControl::LeSbcc(_)))
    }
}

fn session(options: &PgmSendOptions) -> Result<PgmSession, SendError> {
    let [a, b, c, d, e, f, port @ ..]: [u8; 8] = system::random_bytes()?;
    let group = options.link.group;
    let destination_port = options.wire.port(group);
    // Receivers distinguish packets to and from the source by the two ports.
    let source_port = u16::from_be_bytes(port).max(1);
    let source_port = if source_port == destination_port { source_port ^ 1 } else { source_port };
    Ok(PgmSession { gsi: Gsi([a, b, c, d, e, f]), source_port, destination_port, group: group.ip() })
}

/// Returns the requested payload bytes, or else the largest payload that fits.
fn payload_bytes(asked: Option<u16>, link: &Link, headers: u32) -> Result<u16, SendError> {
    let headers = link.header_bytes() + headers;
    let interface = link.socket.interface();
    let mtu = interface.mtu();
    let Some(asked) = asked else {
        let room = mtu.unwrap_or(IP_BYTES_MAX).min(IP_BYTES_MAX).saturating_sub(headers);
        return Ok(u16::try_from(room).unwrap_or(PAYLOAD_MAX).max(PAYLOAD_MIN));
    };
    let fits_datagram = u32::from(asked) + headers <= u32::try_from(DATAGRAM_BYTES_MAX).unwrap_or(u32::MAX);
    if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&asked) || !fits_datagram {
        let option = "the length of a packet's payload";
        return Err(SendError::Option { option, value: asked.into(), range: "from 16 to 8192 bytes" });
    }
    match mtu.filter(|mtu| headers + u32::from(asked) > *mtu) {
        Some(mtu) => Err(SendError::Mtu { symbol_size: asked, mtu, interface: interface.name.clone() }),
        None => Ok(asked),
    }
}

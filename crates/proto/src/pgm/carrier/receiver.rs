use core::net::{IpAddr, SocketAddr};

use headwater_wire::Cci;
use headwater_wire::pgm::{Body, Gsi, Options, Packet, PgmReport, PgmWord};

use super::{Opened, open};
use crate::admission::Word;
use crate::control::{
    Arrival, EnvelopeContent, Membership, ReceiverControl, ReceiverEnvelope, Reception, Status,
};
use crate::fixed;
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::pgm::receive_window::{GREETING_SPACING, GREETINGS, Missing, State, back_off};
use crate::pgm::{PgmReceiverConfig as PgmConfig, ahead};
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

/// Maximum number of missing packets with pending NAKs; beyond the maximum, the latest sequence numbers stay.
pub const MISSING_MAX: usize = 1_024;
/// Number of consecutive packets behind the last packet, above which the count restarts: the last packet was
/// forged, or the sender restarted.
const BEHIND_MAX: u32 = 64;
/// Number of retransmissions of an unconfirmed NAK. A confirmed packet needs no further NAK, because another
/// symbol repairs the loss.
const RETRIES: u8 = 3;
const NCF_WAIT: Duration = Duration::from_millis(500);
/// Age of a word from which a NAK is followed by a request for the next one. A word is valid for 60 to 120 s.
const WORD_AGE: Duration = Duration::from_secs(45);
/// Time after the longest back-off of the first SPMR in which NAKs wait for the word. NAKs without a word
/// count as those of another receiver.
const WORD_WAIT: Duration = Duration::from_millis(100);
/// Time that a dismissed receiver stays out of the group.
const DISMISSED: Duration = Duration::from_secs(300);

/// Configuration of a [`PgmCarrierReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct PgmCarrierReceiverConfig {
    group: IpAddr,
    seed: Seed,
    back_off: Duration,
}

impl PgmCarrierReceiverConfig {
    /// Creates the configuration of a receiver for the session on `group` (the base channel's address), which
    /// NAKs name. `seed` draws the back-offs: receivers of a session must not share a seed.
    pub fn new(group: IpAddr, seed: Seed) -> Self {
        Self { group, seed, back_off: Duration::from_millis(50) }
    }

    /// Sets the maximum wait before a NAK is sent, drawn uniformly for each gap. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }
}

/// Receiver on the base channel that NAKs each missing packet until a confirmation. The receiver answers a
/// source's first packet with an SPMR within a back-off, and sends two more SPMRs. So the source learns of
/// the receiver, and the receiver's host resolves the path to the source before a queue is full.
///
/// Memory: some 200 bytes for each of at most [`MISSING_MAX`] missing packets.
#[derive(Clone, Debug)]
pub struct PgmCarrierReceiver {
    config: PgmConfig,
    channel: fixed::FixedReceiver,
    draw: Stream,
    /// Whether the receiver is between start and stop. Packets may arrive after the stop, out of a socket's
    /// buffer.
    is_held: bool,
    opener: Opener,
    source: Option<Source>,
    missing: Missing,
    /// Time of the next SPMR to the source and number of SPMRs left, and time of the last SPMR to any source.
    greeting: Option<(Instant, u8)>,
    greeted: Option<Instant>,
    /// Time of the first SPMR without an answer, and the least time from an SPMR to the answer.
    asked: Option<Instant>,
    round_trip: Option<Duration>,
    /// Word of the source, with the time of arrival.
    word: Option<(Word, Instant)>,
    /// Time until which NAKs wait for the first word.
    naks_from: Instant,
    /// End of a dismissal by the source.
    returns: Option<Instant>,
    naks: u64,
}

/// Opens PGM packets, and keeps the header of the last packet that carried a packet of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opener {
    carried: Option<Carried>,
}

/// Header of an ODATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    session: SessionKey,
    sequence: u32,
}

/// Session of a PGM packet that a source sent: source identifier, source port and destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionKey {
    gsi: Gsi,
    source_port: u16,
    destination_port: u16,
}

impl SessionKey {
    fn new(packet: &Packet<'_>) -> Self {
        let Packet { gsi, source_port, destination_port, .. } = *packet;
        Self { gsi, source_port, destination_port }
    }
}

impl Opener {
    /// Takes the header of the packet that was opened last, if PGM carried the packet. PGM's header is not
    /// verified: the number counts only if its low 16 bits are those of the packet's own CCI.
    pub(crate) fn take(&mut self, cci: &Cci) -> Option<Carried> {
        let own = cci.webrc().ok()?.sequence;
        self.carried.take_if(|carried| carried.sequence & u32::from(u16::MAX) == own)
    }

    /// Opens a datagram, which may be a message of PGM's instead.
    fn read<'a>(&mut self, datagram: &Datagram<'a>) -> (EnvelopeContent<'a>, Option<Packet<'a>>) {
        let source = datagram.source;
        self.carried = None;
        match open(datagram.payload) {
            Some(Opened::Bare(packet)) => (EnvelopeContent::Packet { source, packet }, None),
            Some(Opened::Carried(carrier, packet)) => {
                if let Body::Odata { sequence, .. } = carrier.body {
                    self.carried = Some(Carried { session: SessionKey::new(&carrier), sequence });
                }
                (EnvelopeContent::Packet { source, packet }, None)
            }
            Some(Opened::Word(message)) => (EnvelopeContent::Signal, Some(message)),
            None => (EnvelopeContent::Malformed, None),
        }
    }
}

impl ReceiverEnvelope for Opener {
    fn open<'a>(&mut self, _now: Instant, datagram: &Datagram<'a>) -> EnvelopeContent<'a> {
        self.read(datagram).0
    }
}

/// The received source.
#[derive(Clone, Copy, Debug)]
struct Source {
    session: SessionKey,
    address: SocketAddr,
    /// Sequence number after the last packet.
    end: u32,
    /// Number of consecutive packets behind the last packet.
    behind: u32,
}

impl PgmCarrierReceiver {
    /// Creates a receiver that is not started.
    pub fn new(config: PgmCarrierReceiverConfig) -> Self {
        let PgmCarrierReceiverConfig { group, seed, back_off } = config;
        let config = PgmConfig::new(0, group)
            .with_back_off(back_off)
            .with_waits(NCF_WAIT, NCF_WAIT)
            .with_retries(RETRIES, 0);
        Self {
            config,
            channel: fixed::FixedReceiver::new(),
            draw: seed.stream("nak", 0),
            is_held: false,
            opener: Opener::default(),
            source: None,
            missing: Missing::default(),
            greeting: None,
            greeted: None,
            asked: None,
            round_trip: None,
            word: None,
            naks_from: Instant::ZERO,
            returns: None,
            naks: 0,
        }
    }

    /// Number of packets that are missing and not confirmed yet.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Hands over the header of the packet that [`ReceiverControl::arrived`] reports next.
    pub(crate) fn take_over(&mut self, carried: Carried) {
        self.opener.carried = Some(carried);
    }

    fn on_odata(&mut self, now: Instant, address: SocketAddr, carried: Carried) {
        let Carried { session, sequence } = carried;
        let known = self.source.filter(|source| (source.session, source.address) == (session, address));
        let Some(mut source) = known else {
            self.missing.clear();
            self.word = None;
            (self.asked, self.round_trip) = (None, None);
            self.source = Some(Source { session, address, end: sequence.wrapping_add(1), behind: 0 });
            // New sources get SPMRs at most once per `GREETING_SPACING`, so that forged sources cause no
            // more.
            let earliest = self.greeted.map_or(now, |last| now.max(last + GREETING_SPACING));
            let due = earliest + back_off(&mut self.draw, self.config.back_off);
            self.greeting = Some((due, GREETINGS));
            self.naks_from = now + self.config.back_off + WORD_WAIT;
            return;
        };
        let gap = ahead(sequence, source.end);
        if gap < 0 {
            self.missing.remove(sequence);
            source.behind += 1;
            if source.behind > BEHIND_MAX {
                self.missing.clear();
                source.end = sequence.wrapping_add(1);
            }
        } else {
            self.miss(now, sequence, gap.unsigned_abs());
            (source.end, source.behind) = (sequence.wrapping_add(1), 0);
        }
        self.source = Some(source);
    }

    /// Records that `gap` packets before `sequence` are missing. All share a back-off, so that a single NAK
    /// reports all of the gap.
    fn miss(&mut self, now: Instant, sequence: u32, gap: u32) {
        if gap == 0 {
            return;
        }
        let state = State::new(now + back_off(&mut self.draw, self.config.back_off));
        let gap = gap.min(u32::try_from(MISSING_MAX).unwrap_or(u32::MAX));
        for place in (1..=gap).rev() {
            self.missing.set(sequence.wrapping_sub(place), state);
        }
        while self.missing.len() > MISSING_MAX {
            let Some(oldest) = self.missing.furthest_behind(sequence) else { return };
            self.missing.remove(oldest);
        }
    }

    fn on_ncf(&mut self, address: SocketAddr, packet: &Packet<'_>, report: &PgmReport) {
        let sender = (SessionKey::new(packet), address);
        if self.source.is_some_and(|source| (source.session, source.address) == sender) {
            self.missing.remove(report.sequence);
            packet.options.nak_list.as_slice().iter().for_each(|sequence| self.missing.remove(*sequence));
        }
    }
}

impl PgmCarrierReceiver {
    /// Takes the word of the source. A dismissed receiver leaves the group for a while: the receiver's path
    /// carries less than the session's least rate (circuit breaker, RFC 8085, section 4.1.1).
    fn on_word(&mut self, now: Instant, PgmWord { word, is_dismissed }: PgmWord) {
        // Without the receiver's word, anybody could forge the dismissal.
        if is_dismissed && self.word.is_some_and(|(known, _)| known == word) {
            self.leave(now);
            self.returns = Some(now + DISMISSED);
        } else if !is_dismissed {
            self.word = Some((word, now));
            self.naks_from = now;
            self.answered_round_trip(now);
        }
    }

    /// Measures the round-trip time by the answer to an SPMR. The next SPMR reports the first measurement
    /// within a back-off, because the source begins by the distance of receivers.
    fn answered_round_trip(&mut self, now: Instant) {
        let Some(asked) = self.asked.take() else { return };
        let round_trip = now.since(asked);
        if self.round_trip.is_none()
            && let Some((due, _)) = &mut self.greeting
        {
            *due = now + back_off(&mut self.draw, self.config.back_off);
        }
        self.round_trip = Some(self.round_trip.map_or(round_trip, |least| least.min(round_trip)));
    }

    fn leave(&mut self, now: Instant) {
        self.source = None;
        self.greeting = None;
        self.missing.clear();
        self.channel.stop(now);
    }

    /// Returns the option of a NAK, and requests the next word if the word is old.
    fn nak_word(&mut self, now: Instant) -> Option<PgmWord> {
        let is_old = self.word.is_none_or(|(_, since)| now.since(since) > WORD_AGE);
        let may_ask = self.greeted.is_none_or(|last| now >= last + GREETING_SPACING);
        if is_old && may_ask && self.greeting.is_none() {
            self.greeting = Some((now, 1));
        }
        self.word.map(|(word, _)| PgmWord { word, is_dismissed: false })
    }
}

impl ReceiverEnvelope for PgmCarrierReceiver {
    fn open<'a>(&mut self, _now: Instant, datagram: &Datagram<'a>) -> EnvelopeContent<'a> {
        let (content, message) = self.opener.read(datagram);
        if let Some(packet) = message
            && let Body::Ncf(report) = &packet.body
            && self.is_held
        {
            self.on_ncf(datagram.source, &packet, report);
        }
        content
    }
}

impl ReceiverControl for PgmCarrierReceiver {
    fn start(&mut self, now: Instant) {
        self.is_held = true;
        self.channel.start(now);
    }

    fn stop(&mut self, now: Instant) {
        // Packets sent while the receiver does not listen are not lost.
        self.is_held = false;
        self.returns = None;
        self.leave(now);
    }

    fn envelope(&mut self) -> Option<&mut dyn ReceiverEnvelope> {
        Some(self)
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        if let Some(carried) =
            self.opener.take(arrival.cci).filter(|_| self.is_held && self.returns.is_none())
        {
            self.on_odata(now, arrival.source, carried);
        }
        self.channel.arrived(now, arrival);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let source = self.source?;
        let (options, body) = if let Some((_, left)) = self.greeting.take_if(|(due, _)| *due <= now) {
            self.greeting = (left > 1).then(|| (now + GREETING_SPACING, left - 1));
            self.greeted = Some(now);
            self.asked.get_or_insert(now);
            let nanos = self.round_trip.map_or(0, Duration::as_nanos);
            let word = PgmWord { word: nanos.to_be_bytes(), is_dismissed: false };
            (Options { word: Some(word), ..Options::default() }, Body::Spmr)
        } else {
            if now < self.naks_from {
                return None;
            }
            let (sequence, nak_list) = self.missing.due(now, &self.config, &mut self.draw)?;
            let report = PgmReport { sequence, source: source.address.ip(), group: self.config.group };
            self.naks += 1;
            (Options { nak_list, word: self.nak_word(now), ..Options::default() }, Body::Nak(report))
        };
        let SessionKey { gsi, source_port, destination_port } = source.session;
        let packet = Packet { options, ..Packet::new(destination_port, source_port, gsi, body) };
        let bytes = packet.emit(buffer).ok()?;
        Some(Transmit { destination: Destination::Unicast(source.address), bytes, ecn: Ecn::NotCapable })
    }

    fn answered(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let (Some(source), Ok(packet)) = (self.source, Packet::parse(datagram.payload)) else { return false };
        let is_sources = (SessionKey::new(&packet), datagram.source) == (source.session, source.address);
        let Some(word) = packet.options.word.filter(|_| is_sources && packet.body == Body::Spmr) else {
            return false;
        };
        self.on_word(now, word);
        true
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.channel.poll_membership()
    }

    fn reception(&self) -> Reception {
        self.channel.reception()
    }

    fn status(&mut self, now: Instant) -> Status {
        let dismissed = self.returns.map(|at| at.since(now));
        Status { naks: Some(self.naks), dismissed, ..Status::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let greeting = self.greeting.map(|(due, _)| due);
        let missing = self.missing.first().map(|(due, _)| due.max(self.naks_from));
        [greeting, missing, self.returns].into_iter().flatten().min()
    }

    fn timeout(&mut self, now: Instant) {
        if self.returns.take_if(|at| *at <= now).is_some() {
            self.channel.start(now);
        }
    }
}

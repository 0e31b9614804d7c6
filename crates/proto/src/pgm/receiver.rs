//! The receiving end.

use core::net::{IpAddr, SocketAddr};

use headwater_wire::pgm::{Body, Gsi, Options, Packet, PgmReport};

use super::Malformed;
use super::ahead;
use super::config::PgmReceiverConfig;
use super::receive_window::Assembly;
use super::receive_window::ReceiveWindow;
use super::receive_window::{GREETING_SPACING, GREETINGS, Missing, Phase, State, back_off};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use crate::rng::Stream;
use crate::time::Instant;

/// Destination of messages.
pub trait Deliver {
    /// Takes the next message, whole. After a loss, the next message is the first that arrived whole.
    fn message(&mut self, now: Instant, message: &[u8]);

    /// Records that `packets` packets between the last message and the next message were given up.
    fn lost(&mut self, _now: Instant, _packets: u64) {}
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgmReceiverCounters {
    /// Data packets taken, each once.
    pub packets: u64,
    /// Repairs among the packets taken.
    pub repaired: u64,
    /// Data packets that were already present or delivered.
    pub duplicates: u64,
    /// Packets found missing.
    pub missed: u64,
    /// Packets given up: beyond the window, or after too many NAKs.
    pub lost: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Messages that could not be reassembled, because packets of the message were lost, too long or
    /// contradictory.
    pub broken: u64,
    /// Bytes of all packets of the session, as UDP payload.
    pub bytes: u64,
    /// Datagrams that were not PGM packets, or not for this end.
    pub malformed: Malformed,
    /// Datagrams of other sessions.
    pub foreign: u64,
}

/// Event of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmReceiverEvent {
    /// The first packet of a session arrived.
    Heard {
        /// Source address of the session.
        source: SocketAddr,
        /// The source's identifier.
        gsi: Gsi,
    },
    /// Packets were given up for good.
    Lost {
        /// Number of packets given up.
        packets: u64,
    },
    /// The source announced the end, and all packets were delivered or given up.
    Finished,
}

/// Trail and lead of an SPM without a window (RFC 3208).
const NO_WINDOW: (u32, u32) = (0, 0x8000_0000);

/// The received session, which is the first session heard.
#[derive(Clone, Debug)]
struct Peer {
    gsi: Gsi,
    port: u16,
    address: SocketAddr,
    /// Network address of the source, from SPMs; before the first SPM, the source address of data. NAKs name
    /// this address, and are not sent there.
    path: IpAddr,
    spm: Option<u32>,
    /// Time at which an SPMR is due, and number of SPMRs left.
    request: Option<(Instant, u8)>,
    window: ReceiveWindow,
    missing: Missing,
    /// Sequence number after the last packet, once the source announced the end.
    fin: Option<u32>,
}

/// Receives messages of the first session heard, in order, and NAKs missing packets.
///
/// Memory: `payload_bytes` and 24 bytes more for each packet of the window, some 200 bytes for each missing
/// packet, and a message.
#[derive(Debug)]
pub struct PgmReceiverMachine<D> {
    config: PgmReceiverConfig,
    deliver: D,
    draw: Stream,
    peer: Option<Peer>,
    assembly: Assembly,
    told: ReportedEvents,
    /// Arrival time of the last packet of the session.
    heard: Option<Instant>,
    counters: PgmReceiverCounters,
}

/// Events already reported to the application.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedEvents {
    is_joined: bool,
    is_heard: bool,
    lost: u64,
    is_finished: bool,
}

impl<D: Deliver> PgmReceiverMachine<D> {
    /// Creates a receiver with back-offs drawn from `draw`.
    pub fn new(config: PgmReceiverConfig, deliver: D, draw: Stream) -> Self {
        let assembly = Assembly::new(config.message_bytes_max);
        let (told, counters) = (ReportedEvents::default(), PgmReceiverCounters::default());
        Self { config, deliver, draw, peer: None, assembly, told, heard: None, counters }
    }

    /// Returns the counters.
    pub fn counters(&self) -> PgmReceiverCounters {
        PgmReceiverCounters { broken: self.assembly.broken(), ..self.counters }
    }

    /// Returns the destination of messages.
    pub const fn deliver(&self) -> &D {
        &self.deliver
    }

    /// Returns the destination of messages mutably, to take delivered messages.
    pub const fn deliver_mut(&mut self) -> &mut D {
        &mut self.deliver
    }

    /// Returns the arrival time of the last packet of the session; `None` before the first.
    pub const fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// Number of packets that are missing and not given up.
    pub fn missing(&self) -> usize {
        self.peer.as_ref().map_or(0, |peer| peer.missing.len())
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let packet = match Packet::parse(datagram.payload) {
            Ok(packet) => packet,
            Err(error) => return self.counters.malformed.count(&error),
        };
        let is_known = self.peer.as_ref().is_none_or(|peer| {
            // A source may send from several UDP ports.
            (peer.gsi, peer.port, peer.address.ip()) == (packet.gsi, packet.source_port, datagram.source.ip())
        });
        if packet.destination_port != self.config.destination_port || packet.parity || !is_known {
            self.counters.foreign += 1;
            return;
        }
        match packet.body {
            Body::Odata { .. } | Body::Rdata { .. } => self.data(now, datagram, &packet),
            Body::Spm { .. } => self.spm(now, datagram, &packet),
            Body::Ncf(report) if report.group == self.config.group => self.ncf(now, &report, &packet.options),
            // NCF of another group.
            Body::Ncf(_) => {}
            _ => self.counters.malformed.misplaced += 1,
        }
        if self.peer.is_some() {
            self.heard = Some(now);
            self.counters.bytes += datagram.payload.len() as u64;
        }
        self.deliver_all(now);
    }

    /// Creates the peer at the first packet. The peer's window begins at `first`.
    fn meet(&mut self, now: Instant, datagram: &Datagram<'_>, packet: &Packet<'_>, first: u32) {
        let (config, draw) = (&self.config, &mut self.draw);
        self.peer.get_or_insert_with(|| Peer {
            request: config.requests_path.then(|| (now + back_off(draw, config.back_off), GREETINGS)),
            gsi: packet.gsi,
            port: packet.source_port,
            address: datagram.source,
            path: datagram.source.ip(),
            spm: None,
            window: ReceiveWindow::new(config.window_packets, config.payload_bytes, first),
            missing: Missing::default(),
            fin: None,
        });
    }

    fn data(&mut self, now: Instant, datagram: &Datagram<'_>, packet: &Packet<'_>) {
        let (Body::Odata { sequence, trail, data } | Body::Rdata { sequence, trail, data }) = packet.body
        else {
            return;
        };
        if data.len() > usize::from(self.config.payload_bytes) || ahead(sequence, trail) < 0 {
            self.counters.malformed.contradictory += 1;
            return;
        }
        // A repair may be old: the receiver would NAK all packets since then.
        if self.peer.is_none() && matches!(packet.body, Body::Rdata { .. }) {
            return;
        }
        self.meet(now, datagram, packet, sequence);
        self.reach(now, sequence);
        let Some(peer) = &mut self.peer else { return };
        peer.give_up_before(trail);
        if !peer.window.holds(sequence) || !peer.window.put(sequence, data, packet.options.fragment) {
            self.counters.duplicates += 1;
            return;
        }
        peer.window.extend(sequence);
        peer.missing.remove(sequence);
        self.counters.packets += 1;
        self.counters.repaired += u64::from(matches!(packet.body, Body::Rdata { .. }));
    }

    fn spm(&mut self, now: Instant, datagram: &Datagram<'_>, packet: &Packet<'_>) {
        let Body::Spm { sequence, trail, lead, path } = packet.body else { return };
        let end = lead.wrapping_add(1);
        let has_window = (trail, lead) != NO_WINDOW;
        if has_window && ahead(end, trail) < 0 {
            self.counters.malformed.contradictory += 1;
            return;
        }
        // Without a window the SPM does not tell the beginning.
        if !has_window && self.peer.is_none() {
            return;
        }
        self.meet(now, datagram, packet, end);
        let Some(peer) = &mut self.peer else { return };
        if peer.spm.is_some_and(|last| ahead(sequence, last) <= 0) {
            return;
        }
        (peer.spm, peer.path) = (Some(sequence), path);
        if !has_window {
            return;
        }
        peer.fin = packet.options.fin.then_some(end);
        self.reach(now, end);
        if let Some(peer) = &mut self.peer {
            peer.give_up_before(trail);
        }
    }

    /// Handles an NCF: repairs of the confirmed packets are under way, so the receiver need not NAK.
    fn ncf(&mut self, now: Instant, report: &PgmReport, options: &Options) {
        let wait = self.config.data_wait;
        let Some(peer) = &mut self.peer else { return };
        if let Some(trail) = options.join.filter(|trail| ahead(report.sequence, *trail) >= 0) {
            peer.give_up_before(trail);
        }
        for sequence in core::iter::once(report.sequence).chain(options.nak_list.as_slice().iter().copied()) {
            if let Some(state) = peer.missing.get(sequence) {
                peer.missing.set(sequence, State { phase: Phase::Data, due: now + wait, ..state });
            }
        }
    }

    /// Records that the source has sent all packets before `end`; absent packets are missing. Packets without
    /// room advance the window.
    fn reach(&mut self, now: Instant, end: u32) {
        let Some(peer) = &mut self.peer else { return };
        let beyond = ahead(end, peer.window.end());
        if usize::try_from(beyond).is_ok_and(|beyond| beyond > peer.window.packets()) {
            // More packets than fit the window: restarts at `end`.
            let packets = u64::from(end.wrapping_sub(peer.window.next()));
            self.counters.lost += packets;
            peer.window.restart(end);
            peer.missing.clear();
            self.assembly.lost();
            self.deliver.lost(now, packets);
            return;
        }
        for place in 0..u32::try_from(beyond).unwrap_or(0) {
            let Some(peer) = &mut self.peer else { return };
            let sequence = end.wrapping_sub(beyond.cast_unsigned()).wrapping_add(place);
            if !peer.window.holds(sequence) {
                peer.missing.remove(peer.window.next());
                self.deliver_all(now);
            }
            let Some(peer) = &mut self.peer else { return };
            let due = now + back_off(&mut self.draw, self.config.back_off);
            peer.missing.set(sequence, State::new(due));
            peer.window.extend(sequence);
            self.counters.missed += 1;
        }
        // The packet at `end` needs a place, too.
        while self.peer.as_ref().is_some_and(|peer| beyond >= 0 && !peer.window.holds(end)) {
            if let Some(peer) = &mut self.peer {
                peer.missing.remove(peer.window.next());
            }
            self.deliver_all(now);
        }
    }

    /// Delivers the packets that are present in order, and skips packets given up.
    fn deliver_all(&mut self, now: Instant) {
        let Some(peer) = &mut self.peer else { return };
        loop {
            let next = peer.window.next();
            if let Some((data, fragment)) = peer.window.take() {
                if let Some(message) = self.assembly.packet(data, fragment) {
                    self.deliver.message(now, message);
                    self.counters.messages += 1;
                }
            } else if ahead(peer.window.end(), next) > 0 && peer.missing.get(next).is_none() {
                peer.window.skip();
                self.counters.lost += 1;
                self.assembly.lost();
                self.deliver.lost(now, 1);
            } else {
                break;
            }
        }
    }

    /// Writes a NAK for all missing packets that are due, if any.
    fn poll_nak(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let peer = self.peer.as_mut()?;
        let (sequence, nak_list) = peer.missing.due(now, &self.config, &mut self.draw)?;
        let options = Options { nak_list, ..Options::default() };
        let report = PgmReport { sequence, source: peer.path, group: self.config.group };
        let transmit = peer.transmit(&self.config, options, Body::Nak(report), buffer)?;
        self.counters.naks += 1;
        Some(transmit)
    }

    fn poll_request(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let peer = self.peer.as_mut()?;
        let (_, left) = peer.request.take_if(|(due, _)| *due <= now)?;
        peer.request = (left > 1).then(|| (now + GREETING_SPACING, left - 1));
        peer.transmit(&self.config, Options::default(), Body::Spmr, buffer)
    }

    fn poll_event(&mut self) -> Option<PgmReceiverEvent> {
        let peer = self.peer.as_ref()?;
        if !self.told.is_heard {
            self.told.is_heard = true;
            return Some(PgmReceiverEvent::Heard { source: peer.address, gsi: peer.gsi });
        }
        let lost = self.counters.lost - self.told.lost;
        if lost > 0 {
            self.told.lost = self.counters.lost;
            return Some(PgmReceiverEvent::Lost { packets: lost });
        }
        let is_finished = peer.fin == Some(peer.window.next());
        let news = is_finished && !self.told.is_finished;
        self.told.is_finished |= is_finished;
        news.then_some(PgmReceiverEvent::Finished)
    }
}

impl Peer {
    fn transmit(
        &self,
        config: &PgmReceiverConfig,
        options: Options,
        body: Body<'_>,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let packet = Packet { options, ..Packet::new(config.destination_port, self.port, self.gsi, body) };
        let bytes = packet.emit(buffer).ok()?;
        let mut to = self.address;
        if let Some(port) = config.nak_port {
            // The destination is not the address that SPMs name: a forged SPM would aim all receivers at a
            // victim.
            to.set_port(port);
        }
        Some(Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable })
    }

    /// Gives up all missing packets before `trail`, which the source no longer keeps.
    fn give_up_before(&mut self, trail: u32) {
        while let Some(sequence) = self.missing.before(self.window.next(), trail) {
            self.missing.remove(sequence);
        }
    }
}

impl<D: Deliver> Machine for PgmReceiverMachine<D> {
    type Event = PgmReceiverEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<PgmReceiverEvent>> {
        if !self.told.is_joined {
            self.told.is_joined = true;
            return Some(Output::Join(ChannelId::BASE));
        }
        let request = self.poll_request(now, buffer);
        if let Some(transmit) = request.or_else(|| self.poll_nak(now, buffer)) {
            return Some(Output::Transmit(transmit));
        }
        // Packets given up by `poll_nak` after too many NAKs are skipped here.
        self.deliver_all(now);
        self.poll_event().map(Output::Event)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let peer = self.peer.as_ref()?;
        let nak = peer.missing.first().map(|(due, _)| due);
        peer.request.into_iter().map(|(due, _)| due).chain(nak).min()
    }
}

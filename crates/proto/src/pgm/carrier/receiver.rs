use core::net::{IpAddr, SocketAddr};

use headwater_wire::pgm::{Body, Gsi, Options, Packet, Report};

use crate::control::{Arrival, Membership, ReceiverControl, Reception, Status};
use crate::fixed;
use crate::machine::{Destination, Ecn, Transmit};
use crate::pgm::missing::{GREETING_SPACING, GREETINGS, Missing, State, back_off};
use crate::pgm::{ReceiverConfig as PgmConfig, ahead};
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

/// Most missing packets that are asked for at a time: of more, those with the latest numbers.
pub const MISSING_MAX: usize = 1_024;
/// Packets in a row that are behind the last one begin the count anew: the last one was forged, or the sender began again.
const BEHIND_MAX: u32 = 64;
/// How often a NAK is sent again that nobody confirms. What is confirmed is done with: another symbol repairs.
const RETRIES: u8 = 3;
const NCF_WAIT: Duration = Duration::from_millis(500);

/// Configuration of a [`Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    group: IpAddr,
    seed: Seed,
    back_off: Duration,
}

impl ReceiverConfig {
    /// A receiver of the session on `group` (the base channel's address), which NAKs name. `seed` draws its back-offs: receivers of
    /// one session must not share it.
    pub fn new(group: IpAddr, seed: Seed) -> Self {
        Self { group, seed, back_off: Duration::from_millis(50) }
    }

    /// Longest wait before a NAK is sent, drawn uniformly for each hole. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }
}

/// Holds the base channel and NAKs what is missing on it, until that is confirmed. A source's first packet it answers with an SPMR within a
/// back-off, and twice more: the source learns that it is there, and its host the way to the source before a queue is full.
///
/// Memory: some 200 bytes for each of at most [`MISSING_MAX`] missing packets.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: PgmConfig,
    channel: fixed::Receiver,
    draw: Stream,
    /// Between start and stop: packets may come later, out of a socket's buffer.
    is_held: bool,
    source: Option<Source>,
    missing: Missing,
    /// When the source is to be greeted and how often yet, and when one last was.
    greeting: Option<(Instant, u8)>,
    greeted: Option<Instant>,
    naks: u64,
}

/// Who is received.
#[derive(Clone, Copy, Debug)]
struct Source {
    gsi: Gsi,
    port: u16,
    destination_port: u16,
    address: SocketAddr,
    /// Behind the last packet.
    end: u32,
    /// Packets in a row that were not in front.
    behind: u32,
}

impl Receiver {
    /// A receiver that holds nothing yet.
    pub fn new(config: ReceiverConfig) -> Self {
        let ReceiverConfig { group, seed, back_off } = config;
        let config = PgmConfig::new(0, group)
            .with_back_off(back_off)
            .with_waits(NCF_WAIT, NCF_WAIT)
            .with_retries(RETRIES, 0);
        Self {
            config,
            channel: fixed::Receiver::new(),
            draw: seed.stream("nak", 0),
            is_held: false,
            source: None,
            missing: Missing::default(),
            greeting: None,
            greeted: None,
            naks: 0,
        }
    }

    /// Packets that are missing and not confirmed yet.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    fn data(&mut self, now: Instant, address: SocketAddr, packet: &Packet<'_>, sequence: u32) {
        let known = self.source.filter(|source| source.sent(address, packet));
        let Some(mut source) = known else {
            self.missing.clear();
            self.source = Some(Source::new(address, packet, sequence));
            // Any source at most once in that time, whoever makes up new ones.
            let earliest = self.greeted.map_or(now, |last| now.max(last + GREETING_SPACING));
            self.greeting = Some((earliest + back_off(&mut self.draw, self.config.back_off), GREETINGS));
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

    /// So many packets before one are missing. One back-off for all, so that one NAK tells of them.
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

    fn confirmed(&mut self, address: SocketAddr, packet: &Packet<'_>, report: &Report) {
        if self.source.is_some_and(|source| source.sent(address, packet)) {
            self.missing.remove(report.sequence);
            packet.options.nak_list.as_slice().iter().for_each(|sequence| self.missing.remove(*sequence));
        }
    }
}

impl Source {
    fn new(address: SocketAddr, packet: &Packet<'_>, sequence: u32) -> Self {
        Self {
            gsi: packet.gsi,
            port: packet.source_port,
            destination_port: packet.destination_port,
            address,
            end: sequence.wrapping_add(1),
            behind: 0,
        }
    }

    fn sent(&self, address: SocketAddr, packet: &Packet<'_>) -> bool {
        (self.gsi, self.port, self.destination_port, self.address)
            == (packet.gsi, packet.source_port, packet.destination_port, address)
    }
}

impl ReceiverControl for Receiver {
    fn start(&mut self, now: Instant) {
        self.is_held = true;
        self.channel.start(now);
    }

    fn stop(&mut self, now: Instant) {
        // What it does not listen to is not lost.
        self.is_held = false;
        self.source = None;
        self.greeting = None;
        self.missing.clear();
        self.channel.stop(now);
    }

    fn enveloped(&mut self, now: Instant, source: SocketAddr, packet: &Packet<'_>) {
        match &packet.body {
            _ if !self.is_held => {}
            Body::Odata { sequence, .. } => self.data(now, source, packet, *sequence),
            Body::Ncf(report) => self.confirmed(source, packet, report),
            _ => {}
        }
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.channel.arrived(now, arrival);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let source = self.source?;
        let (options, body) = if let Some((_, left)) = self.greeting.take_if(|(due, _)| *due <= now) {
            self.greeting = (left > 1).then(|| (now + GREETING_SPACING, left - 1));
            self.greeted = Some(now);
            (Options::default(), Body::Spmr)
        } else {
            let (sequence, nak_list) = self.missing.due(now, &self.config, &mut self.draw)?;
            let report = Report { sequence, source: source.address.ip(), group: self.config.group };
            self.naks += 1;
            (Options { nak_list, ..Options::default() }, Body::Nak(report))
        };
        let packet =
            Packet { options, ..Packet::new(source.destination_port, source.port, source.gsi, body) };
        let bytes = packet.emit(buffer).ok()?;
        Some(Transmit { destination: Destination::Unicast(source.address), bytes, ecn: Ecn::NotCapable })
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.channel.poll_membership()
    }

    fn reception(&self) -> Reception {
        self.channel.reception()
    }

    fn status(&mut self, _now: Instant) -> Status {
        Status { naks: Some(self.naks), ..Status::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.greeting.into_iter().map(|(due, _)| due).chain(self.missing.first().map(|(due, _)| due)).min()
    }
}

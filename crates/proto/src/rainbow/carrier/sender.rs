use core::num::NonZeroU32;
use std::collections::VecDeque;

use headwater_wire::bcfs::{Label, Level, mark_any};
use headwater_wire::{Cci, fdt};

use super::{NAME, Wanted};
use super::{Peers, Refusal, UNPROVEN_PER_SECOND, Word};
use crate::admission::AdmissionKey;
use crate::bcfs::relay::REQUESTS_PER_SECOND;
use crate::bcfs::{self, HashKey, ReplyTo, ReturnPath};
use crate::control::{
    BlockName, Departure, Overload, Request, Responder, SenderControl, SenderEnvelope, Value,
};
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::pacing::{BURST, Pacer, RateCap};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Maximum number of queued requests.
const PENDING_MAX: u64 = 4_096;
/// With a maximum rate, the queue holds the packets of this time at that rate, at least `PENDING_MIN`.
const PENDING_TIME: Duration = Duration::from_millis(100);
const PENDING_MIN: u64 = 16;

/// Configuration of a [`RainbowCarrierSender`].
#[derive(Clone, Copy, Debug)]
pub struct RainbowCarrierSenderConfig {
    key: HashKey,
    /// Maximum rate, and bytes of a packet.
    max_rate: Option<(Rate, u16)>,
    requests_per_second: u32,
    challenge_key: Option<AdmissionKey>,
}

impl RainbowCarrierSenderConfig {
    /// Creates the configuration of a sender that answers on any address of the host, at the rate of the
    /// requests. `key` must be secret: addresses prove reception by tokens made with the key.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, max_rate: None, requests_per_second: REQUESTS_PER_SECOND, challenge_key: None }
    }

    /// Answers only addresses that return the word of a challenge. `key` must be secret. Default: `None`, any
    /// address, as in the paper.
    #[must_use]
    pub const fn with_challenges(mut self, key: Option<AdmissionKey>) -> Self {
        self.challenge_key = key;
        self
    }

    /// Sets the maximum rate, in bit/s of UDP payload, for packets of `packet_bytes` bytes. Default: the rate
    /// of the requests.
    #[must_use]
    pub const fn with_max_rate(mut self, rate: Option<Rate>, packet_bytes: u16) -> Self {
        self.max_rate = match rate {
            Some(rate) => Some((rate, packet_bytes)),
            None => None,
        };
        self
    }

    /// Sets the limit of requests per second from an address, at least 1. The burst is a tenth of a second,
    /// at least 64 requests. Default: [`REQUESTS_PER_SECOND`].
    #[must_use]
    pub const fn with_requests_per_second(mut self, requests: u32) -> Self {
        self.requests_per_second = requests;
        self
    }

    /// Returns the limit of replies per second to unproven addresses: at most a quarter of a maximum rate, so
    /// that unproven addresses do not take all of that rate.
    fn unproven_per_second(&self) -> u32 {
        self.packets_in(Duration::from_millis(250)).map_or(UNPROVEN_PER_SECOND, |packets| {
            u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, UNPROVEN_PER_SECOND)
        })
    }

    fn pending_max(&self) -> u64 {
        let packets = self.packets_in(PENDING_TIME);
        packets.map_or(PENDING_MAX, |packets| packets.clamp(PENDING_MIN, PENDING_MAX))
    }

    /// Returns the number of packets in `time` at the maximum rate, if set.
    fn packets_in(&self, time: Duration) -> Option<u64> {
        self.max_rate.map(|(rate, packet_bytes)| rate.bytes_in(time) / u64::from(packet_bytes.max(1)))
    }
}

/// Counters of requests to a [`RainbowCarrierSender`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Requests received.
    pub requests: u64,
    /// Requests of a level above 1, repeated after a loss.
    pub raised: u64,
    /// Nulls received.
    pub nulls: u64,
    /// Other datagrams, or for another source.
    pub ignored: u64,
    /// Requests without a valid word, refused with a challenge.
    pub challenged: u64,
    /// Requests refused by the limits of addresses without proven reception.
    pub unproven: u64,
    /// Requests refused by the limit of an address.
    pub too_fast: u64,
    /// Requests dropped because the queue was full.
    pub forgotten: u64,
}

/// Answers each request with a packet of the session.
///
/// CCI: a token of four bytes, made for the address that the packet goes to.
#[derive(Debug)]
pub struct RainbowCarrierSender {
    bcfs: bcfs::BcfsSource,
    has_challenges: bool,
    peers: Peers,
    pending: VecDeque<Pending>,
    pending_max: u64,
    /// Pacing at the maximum rate, if set.
    pacing: Option<(Pacer, RateCap)>,
    counters: RequestCounters,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    path: ReturnPath,
    label: Label,
    level: Level,
    follows_another: bool,
    selection: Selection,
    /// Arrival time of the request.
    asked: Instant,
}

/// Part of the content that a request asks for.
#[derive(Clone, Copy, Debug)]
struct Selection {
    place: Option<NonZeroU32>,
    block: Option<BlockName>,
}

/// Returns the token and the selection in the body of a request. Zeros fill the rest of a body.
fn parse_body(body: &[u8]) -> (Option<Word>, Selection) {
    let token = body.first_chunk().copied().filter(|token| *token != Word::default());
    let number = |at: usize| body.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let nonzero = |at| number(at).and_then(NonZeroU32::new);
    let esi = number(16).and_then(|number| number.checked_sub(1));
    let block = nonzero(8).zip(number(12)).map(|(toi, sbn)| BlockName { toi, sbn, esi });
    (token, Selection { place: nonzero(4), block })
}

impl RainbowCarrierSender {
    /// Creates a sender without requests.
    pub fn new(config: RainbowCarrierSenderConfig) -> Self {
        let mut source = bcfs::BcfsSource::new(None, ReplyTo::Peer).with_challenges(config.challenge_key);
        source.bind(Label(0), 0).expect("the first binding of a source");
        Self {
            bcfs: source,
            has_challenges: config.challenge_key.is_some(),
            peers: Peers::new(config.key, config.requests_per_second.max(1), config.unproven_per_second()),
            pending: VecDeque::new(),
            pending_max: config.pending_max(),
            pacing: config
                .max_rate
                .map(|(rate, _)| (Pacer::new(rate, BURST, Instant::ZERO), RateCap::new(rate))),
            counters: RequestCounters::default(),
        }
    }

    /// Returns the counters of requests.
    pub fn counters(&self) -> RequestCounters {
        let challenges = self.bcfs.challenges();
        let unchallenged = challenges.unanswered + challenges.wordless;
        RequestCounters {
            challenged: challenges.challenged,
            unproven: self.counters.unproven + unchallenged,
            ignored: self.counters.ignored - challenges.challenged - unchallenged,
            ..self.counters
        }
    }

    /// Returns the maximum length of BCFS's header around each packet, in bytes.
    pub const fn envelope_bytes_max() -> usize {
        bcfs::HEADER_BYTES_MAX
    }
}

impl SenderControl for RainbowCarrierSender {
    fn channels(&self) -> u16 {
        1
    }

    fn levels(&self) -> u16 {
        1
    }

    fn description(&self) -> Option<fdt::ControlAttributes> {
        fdt::ControlAttributes::new(NAME).ok()
    }

    fn envelope(&mut self) -> Option<&mut dyn SenderEnvelope> {
        Some(self)
    }

    fn responder(&self) -> Option<&dyn Responder> {
        Some(self)
    }

    fn next_departure(&self) -> Option<Instant> {
        let _waits = self.pending.front()?;
        Some(self.pacing.as_ref().map_or(Instant::ZERO, |(pacer, _)| pacer.next()))
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let at = self.next_departure().filter(|at| *at <= now)?;
        let word = self.peers.word(self.pending.front()?.path.peer);
        let cci = Cci::new(&word).ok()?;
        Some(Departure {
            channel: ChannelId::BASE,
            level: 0,
            at,
            cci,
            ecn: Ecn::NotCapable,
            levels: None,
            tells_levels: false,
            lateness: None,
        })
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        let asked = self.pending.pop_front().map_or(now, |pending| pending.asked);
        let Some((pacer, cap)) = &mut self.pacing else { return };
        // Before the request arrived, the driver was not late.
        let late = now.since(pacer.next().max(asked));
        pacer.sent(now, bytes);
        if cap.departed(now, pacer.rate(), late) {
            pacer.set_rate(now, cap.rate());
            pacer.set_burst(cap.burst());
        }
    }

    fn overload(&self) -> Option<Overload> {
        self.pacing.as_ref().and_then(|(_, cap)| cap.overload())
    }

    fn feedback(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let counters = &mut self.counters;
        let Some(asked) = self.bcfs.receive(now, datagram) else {
            counters.ignored += 1;
            return;
        };
        counters.requests += u64::from(!asked.is_null);
        counters.nulls += u64::from(asked.is_null);
        counters.raised += u64::from(!asked.is_null && asked.level > Level::ONE);
        if !asked.wants_reply {
            return;
        }
        if self.pending.len() as u64 >= self.pending_max {
            counters.forgotten += 1;
            return;
        }
        let (peer, (token, selection)) = (asked.path.peer, parse_body(asked.body));
        match self.peers.admits(now, peer, token, self.has_challenges) {
            Ok(()) => {
                let follows_another = self.peers.brings_another(peer, token);
                let (path, label, level) = (asked.path, asked.label, asked.level);
                let pending = Pending { path, label, level, follows_another, selection, asked: now };
                self.pending.push_back(pending);
            }
            Err(Refusal::Unproven) => self.counters.unproven += 1,
            Err(Refusal::TooFast) => self.counters.too_fast += 1,
        }
    }

    fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.bcfs.poll_challenge(buffer)
    }

    fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        let RequestCounters { requests, raised, nulls, ignored, challenged, unproven, too_fast, forgotten } =
            self.counters();
        visit("requests", Value::Count(requests));
        visit("raised", Value::Count(raised));
        visit("nulls", Value::Count(nulls));
        visit("ignored", Value::Count(ignored));
        visit("challenged", Value::Count(challenged));
        visit("unproven", Value::Count(unproven));
        visit("too_fast", Value::Count(too_fast));
        visit("forgotten", Value::Count(forgotten));
    }
}

impl SenderEnvelope for RainbowCarrierSender {
    fn bytes(&self) -> usize {
        self.pending.front().map_or(0, |pending| bcfs::BcfsSource::header_bytes(&pending.path))
    }

    fn seal(&mut self, now: Instant, datagram: &mut [u8]) {
        let Some(Pending { path, label, level, .. }) = self.pending.front() else { return };
        let body_bytes = datagram.len().saturating_sub(bcfs::BcfsSource::header_bytes(path));
        self.bcfs.reply(now, path, *label, *level, body_bytes, datagram);
        if Wanted::of(*label) == Wanted::Content {
            mark_any(datagram);
        }
    }
}

impl Responder for RainbowCarrierSender {
    fn request(&self) -> Option<Request> {
        let pending = self.pending.front()?;
        let description = match Wanted::of(pending.label) {
            Wanted::Content | Wanted::Block(_) => None,
            Wanted::Description(number) => Some(number.into()),
        };
        let destination = self.bcfs.destination(&pending.path);
        let Pending { follows_another, selection: Selection { place, block }, .. } = *pending;
        Some(Request { destination, description, follows_another, place, block })
    }
}

//! The sending end.

use core::net::IpAddr;
use std::collections::VecDeque;

use headwater_wire::pgm::{Body, Fragment, NAK_LIST_MAX, Options, Packet, PgmReport, PgmWord};

use super::Malformed;
use super::config::{Answers, Mode, SourceConfig};
use super::roll_call::RollCall;
use super::transmit_window::TransmitWindow;
use super::words::NakWords;
use crate::admission::AdmissionKey;
use crate::control::{Overload, Value};
use crate::le_sbcc::{Chain, Estimator, Indication, UNPROVEN};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use crate::pacing::{BURST, Pacer, RateCap};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Time between SPMs while data flows.
const SPM_INTERVAL: Duration = Duration::from_millis(500);
/// Times between heartbeat SPMs after the end of data, in milliseconds; the last time repeats.
const HEARTBEATS_MS: [u64; 9] = [100, 100, 100, 100, 1_300, 7_000, 16_000, 25_000, 30_000];
/// Maximum number of NCFs between two departures of data, so that NCFs delay data by little. Further NAKs are
/// not confirmed, and receivers repeat the NAKs.
const NCFS_MAX: usize = 8;
/// Minimum time between answers to SPMRs.
const SPMR_SPACING: Duration = Duration::from_millis(100);
/// Maximum number of consecutive repairs while new data waits; a packet of new data follows.
const REPAIRS_IN_A_ROW: u8 = 3;
/// Minimum time between repairs of a packet at a fixed rate, without a measured round-trip time.
const REPAIR_SPACING: Duration = Duration::from_millis(50);

/// Rate control of a source.
#[derive(Clone, Debug)]
pub enum SourceControl {
    /// Constant rate in bit/s of UDP payload.
    Fixed(Rate),
    /// LE-SBCC.
    LeSbcc(Box<Chain>),
}

/// Refused datagrams, counted by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Datagrams that are not PGM packets, or not for this end.
    pub malformed: Malformed,
    /// Datagrams of another session: ports, source identifier or addresses.
    pub foreign: u64,
    /// NAKs for packets that were not sent yet.
    pub future: u64,
    /// NAKs for packets that are no longer kept.
    pub past: u64,
    /// NAKs of dismissed receivers.
    pub dismissed: u64,
}

/// Counters of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Packets sent for the first time.
    pub originals: u64,
    /// Packets retransmitted.
    pub repairs: u64,
    /// Confirmations sent.
    pub ncfs: u64,
    /// Path messages sent.
    pub spms: u64,
    /// Bytes of all packets sent, as UDP payload.
    pub bytes: u64,
    /// Sequence numbers requested by NAKs, within the window.
    pub asked: u64,
    /// Refused datagrams and sequence numbers.
    pub refused: Refused,
}

/// Event of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// All waiting packets were sent, after [`PgmSource::finish`]. Repairs may follow, and the SPM that
    /// announces the end to receivers.
    Sent,
}

/// Sends messages to a group, and repairs lost packets.
#[derive(Clone, Debug)]
pub struct PgmSource {
    config: SourceConfig,
    control: SourceControl,
    pacer: Pacer,
    /// Limiter of the fixed or maximum rate, if configured.
    cap: Option<RateCap>,
    /// Whether the application has more data than the window had room for.
    is_backlogged: bool,
    /// Whether nothing was left to send after the last packet of data.
    is_dry: bool,
    window: TransmitWindow,
    /// Sequence numbers to retransmit, each once.
    repairs: VecDeque<u32>,
    /// Number of consecutive repairs since new data left.
    repairs_in_a_row: u8,
    ncfs: VecDeque<Packet<'static>>,
    /// Number of NCFs made since the last departure of data.
    ncfs_made: usize,
    spm: Spm,
    roll_call: Option<RollCall>,
    /// Words of receivers; `None` if NAKs count by their source address alone.
    words: Option<NakWords>,
    /// Departure time of the first packet that receivers answer: data, or an SPM.
    began: Option<Instant>,
    is_finishing: bool,
    is_sent_told: bool,
    counters: SourceCounters,
}

#[derive(Clone, Copy, Debug)]
struct Spm {
    sequence: u32,
    next: Instant,
    heartbeat: usize,
    last: Option<Instant>,
    /// Whether no new data left since the last SPM.
    is_latest: bool,
}

impl PgmSource {
    /// Creates a source that begins at `now`.
    pub fn new(config: SourceConfig, control: SourceControl, now: Instant) -> Self {
        let (rate, cap) = match &control {
            SourceControl::Fixed(rate) => (*rate, Some(RateCap::new(*rate))),
            SourceControl::LeSbcc(chain) => {
                (chain.rate(), chain.max_rate().map(|most| RateCap::new(most).with_small_probes()))
            }
        };
        Self {
            window: TransmitWindow::new(config.window_packets, config.payload_bytes, config.first_sequence),
            config,
            control,
            pacer: Pacer::new(rate, BURST, now),
            cap,
            is_backlogged: false,
            is_dry: true,
            repairs: VecDeque::new(),
            repairs_in_a_row: 0,
            ncfs: VecDeque::new(),
            ncfs_made: 0,
            spm: Spm { sequence: 0, next: now, heartbeat: 0, last: None, is_latest: false },
            roll_call: (config.roll_call && config.mode == Mode::Pgm).then(RollCall::new),
            words: None,
            began: None,
            is_finishing: false,
            is_sent_told: false,
            counters: SourceCounters::default(),
        }
    }

    /// Counts NAKs without a valid word as those of one receiver, if the control dismisses receivers. `key`
    /// must be secret.
    pub(super) fn set_admission_key(&mut self, key: AdmissionKey) {
        self.words = self.chain().is_some_and(Chain::dismisses).then(|| NakWords::new(key));
    }

    /// Returns the next answer that carries a word to a receiver.
    pub(super) fn poll_word(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, word) = self.words.as_mut()?.pop()?;
        let options = Options { word: Some(word), ..Options::default() };
        let packet = Packet { options, ..self.packet(Body::Spmr) };
        let bytes = packet.emit(buffer).ok()?;
        Some(Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable })
    }

    /// Takes a message, and splits a message longer than a packet into several packets. Returns false and
    /// takes nothing if there is no room for the whole message now. A message of more packets than half of
    /// the window never has room.
    pub fn send(&mut self, message: &[u8]) -> bool {
        let packets = message.len().div_ceil(self.window.payload_bytes()).max(1);
        let Ok(length) = u32::try_from(message.len()) else { return false };
        if packets > self.window.room() as usize || self.is_finishing {
            return false;
        }
        if packets == 1 {
            self.window.push(message, None);
            return true;
        }
        let (first, mut offset) = (self.window.end(), 0);
        for data in message.chunks(self.window.payload_bytes()) {
            self.window.push(data, Some(Fragment { first, offset, length }));
            offset += u32::try_from(data.len()).unwrap_or(u32::MAX);
        }
        true
    }

    /// Ends the session: the session is over when all waiting packets are sent. Repairs go on.
    pub fn finish(&mut self) {
        self.is_finishing = true;
        // Without waiting packets, no data triggers the SPM with the end of the session.
        if self.window.waiting() == 0 {
            (self.spm.heartbeat, self.spm.next) = (0, Instant::ZERO);
        }
    }

    /// Ends the session as [`Self::finish`], but drops the packets that wait to be sent for the first time.
    pub fn close(&mut self) {
        let next = self.window.next();
        // Receivers wait for an announced packet.
        self.window.cut(u32::from(self.roll_call.is_some_and(|call| call.is_withheld(next))));
        self.finish();
    }

    /// Whether repairs wait to be sent.
    pub fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Number of packets that wait to be sent for the first time.
    pub fn waiting(&self) -> u32 {
        self.window.waiting()
    }

    /// Number of packets that [`PgmSource::send`] has room for.
    pub fn room(&self) -> u32 {
        self.window.room()
    }

    /// Returns the sending rate.
    pub fn rate(&self) -> Rate {
        self.pacer.rate()
    }

    /// Returns LE-SBCC's stages; `None` at a fixed rate.
    pub fn chain(&self) -> Option<&Chain> {
        match &self.control {
            SourceControl::Fixed(_) => None,
            SourceControl::LeSbcc(chain) => Some(chain),
        }
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    /// Visits the allowed rate, the reasons for the rate, and the receivers' requests.
    pub fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        let counters = &self.counters;
        visit("allowed_rate", Value::Rate(self.rate()));
        match self.chain() {
            Some(chain) => chain.visit_counters(visit),
            None => {
                visit("loss_indications", Value::Count(counters.asked));
                for name in ["loss_events", "passed", "reductions", "receivers"] {
                    visit(name, Value::Count(0));
                }
            }
        }
        visit("repairs", Value::Count(counters.repairs));
        visit("confirmations", Value::Count(counters.ncfs));
        visit("asked_future", Value::Count(counters.refused.future));
        visit("asked_past", Value::Count(counters.refused.past));
        if self.words.is_some() {
            visit("asked_dismissed", Value::Count(counters.refused.dismissed));
        }
        visit("foreign", Value::Count(counters.refused.foreign));
        visit("malformed", Value::Count(counters.refused.malformed.total()));
    }

    /// Sets whether the application has more to send than the source had room for. A driver is late only with
    /// packets that wait, in the source or in the application. Default: no.
    pub const fn set_backlogged(&mut self, is_backlogged: bool) {
        self.is_backlogged = is_backlogged;
    }

    /// Returns the sustained part of the fixed or maximum rate while the driver cannot keep up; `None`
    /// otherwise.
    pub fn overload(&self) -> Option<Overload> {
        self.cap.as_ref().and_then(RateCap::overload)
    }

    /// Sets the pacing to the control's rate, limited to the rate that the driver keeps up with.
    fn follow_rate(&mut self, now: Instant) {
        let rate = match &self.control {
            SourceControl::Fixed(rate) => *rate,
            SourceControl::LeSbcc(chain) => chain.rate(),
        };
        if let Some(cap) = self.cap {
            self.pacer.set_burst(cap.burst());
        }
        self.pacer.set_rate(now, self.cap.map_or(rate, |cap| cap.rate().min(rate)));
    }

    /// Advances the control to `now`. Without data to send the rate does not rise.
    pub(super) fn timeout(&mut self, now: Instant, has_data: bool) {
        if let SourceControl::LeSbcc(chain) = &mut self.control
            && chain.poll_timeout() <= now
        {
            if !has_data {
                chain.idle();
            }
            chain.timeout(now);
            self.follow_rate(now);
        }
    }

    /// Sequence number of the next packet of data.
    pub(super) const fn next_sequence(&self) -> u32 {
        self.window.end()
    }

    /// Returns the earliest departure time of the next packet of data, and the time at which the packet is
    /// due by the rate alone.
    pub(super) fn places(&self) -> [Instant; 2] {
        let due = self.pacer.next();
        [due.max(self.chain().map_or(Instant::ZERO, Chain::silent_until)), due]
    }

    /// Writes PGM's header in front of the data in `packet`, into the room left for the header. The packet
    /// leaves at `now` and is not kept.
    pub(super) fn seal(&mut self, now: Instant, packet: &mut [u8]) {
        self.window.push(&[], None);
        let Some(sequence) = self.window.take_next() else { return };
        if let Some(slot) = self.window.sent(sequence) {
            (slot.sent, slot.first) = (now, now);
        }
        let body = Body::Odata { sequence, trail: self.window.trail(), data: &[] };
        self.counters.originals += 1;
        let sealed = self.packet(body).emit_around(packet);
        debug_assert!(sealed.is_ok(), "room for the header is left, and a datagram is short");
    }

    /// Records that a packet of data of `bytes` left at `now`.
    pub(super) fn departed(&mut self, now: Instant, bytes: usize) {
        let [place, _] = self.places();
        self.pacer.sent(now, bytes);
        let is_dry = !self.is_backlogged && self.window.waiting() == 0 && self.repairs.is_empty();
        let is_dry = core::mem::replace(&mut self.is_dry, is_dry);
        // If there was nothing to send, or the control made the packet wait, the driver was not late.
        let late = if is_dry { Duration::ZERO } else { now.since(place) };
        let rate = self.pacer.rate();
        if self.cap.as_mut().is_some_and(|cap| cap.departed(now, rate, late)) {
            self.follow_rate(now);
        }
        self.counters.bytes += bytes as u64;
        self.ncfs_made = 0;
        self.began.get_or_insert(now);
        if let SourceControl::LeSbcc(chain) = &mut self.control {
            chain.sent();
        }
    }

    /// Notes that there was nothing to send until now.
    pub(super) fn paused(&mut self) {
        self.is_dry = true;
    }

    /// Handles a datagram from a receiver.
    pub(super) fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let packet = match Packet::parse(datagram.payload) {
            Ok(packet) => packet,
            Err(error) => return self.counters.refused.malformed.count(&error),
        };
        let session = &self.config.session;
        // Parity NAKs count packets of a group; no parity is sent.
        let is_ours = !packet.parity
            && packet.gsi == session.gsi
            && (packet.source_port, packet.destination_port)
                == (session.destination_port, session.source_port);
        match packet.body {
            _ if !is_ours => self.counters.refused.foreign += 1,
            Body::Nak(report) if report.source == self.config.path && report.group == session.group => {
                self.nak(now, datagram, &report, &packet.options);
            }
            Body::Nak(_) => self.counters.refused.foreign += 1,
            Body::Spmr => self.spmr(now, datagram, packet.options.word),
            _ => self.counters.refused.malformed.misplaced += 1,
        }
    }

    /// Handles an SPMR: a receiver hears the source, and the receiver's host knows the path to the source.
    /// The word of an SPMR is the receiver's round-trip time in nanoseconds, or 0.
    fn spmr(&mut self, now: Instant, datagram: &Datagram<'_>, word: Option<PgmWord>) {
        if let (Some(words), Some(_)) = (&mut self.words, word) {
            words.answer(now, datagram.source);
        }
        if let (SourceControl::LeSbcc(chain), Some(began)) = (&mut self.control, self.began) {
            match word.map_or(0, |word| u64::from_be_bytes(word.word)) {
                0 => chain.heard(now.since(began)),
                nanos => chain.measured(now, Duration::from_nanos(nanos)),
            }
        }
        // A single SPM answers several SPMRs; lean sources send no SPM.
        let earliest = self.spm.last.map_or(now, |last| last + SPMR_SPACING);
        self.spm.next = self.spm.next.min(earliest.max(now));
    }

    fn nak(&mut self, now: Instant, datagram: &Datagram<'_>, report: &PgmReport, options: &Options) {
        let Some(receiver) = self.nak_receiver(now, datagram, options.word) else { return };
        let mut confirmed = Options::default();
        let mut first = None;
        let list = options.nak_list.as_slice();
        // Of several consecutive missing packets, only the last is noticed by the following packet. A full
        // list may continue in the next NAK.
        let cut = list.last().filter(|_| list.len() == NAK_LIST_MAX);
        let is_missing = |sequence| sequence == report.sequence || list.contains(&sequence);
        for sequence in core::iter::once(report.sequence).chain(list.iter().copied()) {
            let is_noticed = cut != Some(&sequence) && !is_missing(sequence.wrapping_add(1));
            if !self.asked(now, receiver, sequence, is_noticed) {
                continue;
            }
            match first {
                None => first = Some(sequence),
                Some(_) => _ = confirmed.nak_list.push(sequence),
            }
        }
        let Some(sequence) = first.filter(|_| self.ncfs_made < NCFS_MAX) else { return };
        self.ncfs_made += 1;
        confirmed.join = Some(self.window.trail());
        let report = PgmReport { sequence, ..*report };
        self.ncfs.push_back(Packet { options: confirmed, ..self.packet(Body::Ncf(report)) });
    }

    /// Returns the receiver that a NAK counts for; `None` for the NAKs of a dismissed receiver, which are
    /// neither counted nor confirmed.
    fn nak_receiver(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        word: Option<PgmWord>,
    ) -> Option<IpAddr> {
        let ip = datagram.source.ip();
        let (Some(words), SourceControl::LeSbcc(chain)) = (&mut self.words, &self.control) else {
            return Some(ip);
        };
        let is_proven = word.is_some_and(|word| words.check(now, datagram.source, &word.word));
        let receiver = if is_proven { ip } else { UNPROVEN };
        if !chain.is_dismissed(now, receiver) {
            return Some(receiver);
        }
        self.counters.refused.dismissed += 1;
        if is_proven {
            words.tell_dismissed(now, datagram.source);
        }
        None
    }

    /// Handles a NAK for a packet: reports the loss to the control, and schedules a repair. `is_noticed`
    /// tells whether the following packet, rather than a later packet, revealed the loss. Returns whether to
    /// confirm the NAK.
    fn asked(&mut self, now: Instant, receiver: IpAddr, sequence: u32, is_noticed: bool) -> bool {
        let spacing = self.repair_spacing();
        let answer = self.chain().map_or(0.0, |chain| chain.round_trip().spacing());
        let answer = Duration::from_secs_f64(answer);
        let trail = self.window.trail();
        let is_answer = self.answers_roll_call(now, sequence);
        let Some(slot) = self.window.sent(sequence) else {
            match super::ahead(sequence, trail) < 0 {
                _ if is_answer => {}
                true => self.counters.refused.past += 1,
                false => self.counters.refused.future += 1,
            }
            return false;
        };
        self.counters.asked += 1;
        // A repair under way cannot be missing yet. The first transmission can be, because the round trip may
        // be shorter than the estimate.
        let is_new = !slot.is_wanted && (!slot.is_repair || now.since(slot.sent) >= spacing);
        if is_new && self.config.answers == Answers::Repairs {
            slot.is_wanted = true;
            self.repairs.push_back(sequence);
        }
        let is_confirmed = self.config.answers == Answers::Nothing
            || slot.confirmed > Instant::ZERO && now.since(slot.confirmed) < spacing;
        if !is_confirmed {
            slot.confirmed = now;
        }
        // Repeated NAKs, and NAKs for lost repairs, are triggered by a timer of the receiver.
        let is_fresh = now.since(*slot.asked.get_or_insert(now)) <= spacing;
        let is_timed = is_noticed && is_fresh && !slot.is_repair;
        // A repair under way cannot be missing. A repeated NAK adds no information; a new NAK concerns the
        // first transmission of the packet.
        let is_under_way = slot.is_repair && now.since(slot.sent) < answer;
        let sent = if is_under_way { slot.first } else { slot.sent };
        // If an SPM revealed the loss, the sample is too short. The published estimator takes the sample.
        let is_exact = self.chain().is_some_and(|chain| chain.estimator() == Estimator::Sawtooth);
        let behind = self.window.sent(sequence.wrapping_add(1));
        let behind = behind.filter(|slot| is_timed && !slot.is_repair && !(is_exact && slot.follows_spm));
        let noticed = behind.map(|slot| slot.sent);
        if let SourceControl::LeSbcc(chain) = &mut self.control
            && !is_answer
        {
            chain.indication(now, &Indication { receiver, sent, noticed });
            self.follow_rate(now);
        }
        !is_confirmed
    }

    /// Whether a NAK for `sequence` answers the roll call. The receiver is then present and knows the path,
    /// and may have lost nothing.
    fn answers_roll_call(&mut self, now: Instant, sequence: u32) -> bool {
        let Some(answer) = self.roll_call.as_mut().and_then(|call| call.answer(now, sequence)) else {
            return false;
        };
        if let SourceControl::LeSbcc(chain) = &mut self.control {
            chain.heard(answer);
        }
        true
    }

    fn repair_spacing(&self) -> Duration {
        match &self.control {
            SourceControl::Fixed(_) => REPAIR_SPACING,
            SourceControl::LeSbcc(chain) => Duration::from_secs_f64(0.5 * chain.round_trip().srtt()),
        }
    }

    fn packet<'a>(&self, body: Body<'a>) -> Packet<'a> {
        let session = &self.config.session;
        Packet::new(session.source_port, session.destination_port, session.gsi, body)
    }

    fn poll_spm(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if self.config.mode == Mode::Lean || now < self.spm_due() {
            return None;
        }
        let (next, has_data) = (self.window.next(), self.window.waiting() > 0);
        let calls = self.roll_call.as_mut().is_some_and(|call| call.spm(now, next, has_data));
        let (trail, lead) = (self.window.trail(), if calls { next } else { self.window.lead() });
        let body = Body::Spm { sequence: self.spm.sequence, trail, lead, path: self.config.path };
        let fin = self.is_finishing && self.window.waiting() == 0;
        let packet = Packet { options: Options { fin, ..Options::default() }, ..self.packet(body) };
        let heartbeat = HEARTBEATS_MS[self.spm.heartbeat.min(HEARTBEATS_MS.len() - 1)];
        let interval = match self.window.waiting() {
            0 => Duration::from_millis(heartbeat),
            _ => SPM_INTERVAL,
        };
        self.spm = Spm {
            sequence: self.spm.sequence.wrapping_add(1),
            next: now + interval,
            heartbeat: self.spm.heartbeat + 1,
            last: Some(now),
            is_latest: true,
        };
        self.counters.spms += 1;
        self.began.get_or_insert(now);
        self.transmit(now, &packet, buffer)
    }

    fn spm_due(&self) -> Instant {
        let called = self.roll_call.and_then(|call| call.spm_due(self.spm.last, self.window.waiting() > 0));
        called.map_or(self.spm.next, |due| due.min(self.spm.next))
    }

    /// Returns the next confirmation that is due at `now`.
    pub(super) fn poll_ncf(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let packet = self.ncfs.pop_front()?;
        self.counters.ncfs += 1;
        self.transmit(now, &packet, buffer)
    }

    fn poll_data(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if self.next_departure().is_none_or(|at| at > now) {
            return None;
        }
        let repair = match self.repairs_in_a_row >= REPAIRS_IN_A_ROW && self.window.waiting() > 0 {
            true => None,
            false => self.next_repair(),
        };
        self.repairs_in_a_row = repair.map_or(0, |_| self.repairs_in_a_row.saturating_add(1));
        let sequence = repair.or_else(|| self.window.take_next())?;
        let slot = self.window.sent(sequence)?;
        (slot.sent, slot.is_repair, slot.is_wanted, slot.asked) = (now, repair.is_some(), false, None);
        if repair.is_none() {
            slot.first = now;
            slot.follows_spm = core::mem::take(&mut self.spm.is_latest);
        }
        let fragment = slot.fragment;
        let (trail, data) = (self.window.trail(), self.window.data(sequence));
        let body = match repair {
            Some(_) => Body::Rdata { sequence, trail, data },
            None => Body::Odata { sequence, trail, data },
        };
        let packet = Packet { options: Options { fragment, ..Options::default() }, ..self.packet(body) };
        let bytes = packet.emit(buffer).ok()?;
        self.departed(now, bytes);
        match repair {
            Some(_) => self.counters.repairs += 1,
            None => self.counters.originals += 1,
        }
        // Heartbeats restart after the last data; after a pause, data brings SPMs at the regular interval.
        if repair.is_none() {
            self.spm.heartbeat = 0;
            let soon = match self.window.waiting() {
                0 => Duration::from_millis(HEARTBEATS_MS[0]),
                _ => SPM_INTERVAL,
            };
            self.spm.next = self.spm.next.min(now + soon);
        }
        Some(to_group(bytes))
    }

    /// Returns the next sequence number to retransmit that is still kept.
    fn next_repair(&mut self) -> Option<u32> {
        while let Some(sequence) = self.repairs.pop_front() {
            if self.window.sent(sequence).is_some_and(|slot| slot.is_wanted) {
                return Some(sequence);
            }
        }
        None
    }

    /// Writes a packet other than data. The packet is paid out of the rate, but does not wait for the rate.
    fn transmit(&mut self, now: Instant, packet: &Packet<'_>, buffer: &mut [u8]) -> Option<Transmit> {
        let bytes = packet.emit(buffer).ok()?;
        self.pacer.sent(now, bytes);
        self.counters.bytes += bytes as u64;
        Some(to_group(bytes))
    }

    /// Whether there is data to send, without a roll call to wait for.
    fn has_data(&self, now: Instant) -> bool {
        self.next_departure().is_some()
            && self.roll_call.and_then(|call| call.ends()).is_none_or(|end| end <= now)
    }

    fn next_departure(&self) -> Option<Instant> {
        if self.window.waiting() == 0 && self.repairs.is_empty() {
            return None;
        }
        let earliest = self.roll_call.map_or(Some(Instant::ZERO), |call| call.ends())?;
        Some(self.places()[0].max(earliest))
    }
}

const fn to_group(bytes: usize) -> Transmit {
    Transmit { destination: Destination::Channel(ChannelId::BASE), bytes, ecn: Ecn::NotCapable }
}

impl Machine for PgmSource {
    type Event = SourceEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.timeout(now, self.has_data(now));
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SourceEvent>> {
        let transmit = match self.poll_spm(now, buffer) {
            Some(transmit) => Some(transmit),
            None => self.poll_ncf(now, buffer).or_else(|| self.poll_data(now, buffer)),
        };
        if transmit.is_none() && self.is_finishing && !self.is_sent_told && self.window.waiting() == 0 {
            self.is_sent_told = true;
            return Some(Output::Event(SourceEvent::Sent));
        }
        transmit.map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let spm = (self.config.mode == Mode::Pgm).then(|| self.spm_due());
        let chain = self.chain().map(Chain::poll_timeout);
        spm.into_iter().chain(chain).chain(self.next_departure()).min()
    }
}

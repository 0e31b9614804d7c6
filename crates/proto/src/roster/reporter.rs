//! Receiving end of a roster: when a receiver reports.

use core::net::SocketAddr;

use headwater_wire::extensions::Members;
use headwater_wire::roster::{self as wire, ReceiverState, Reply, Report, ReportKind, RosterHeader};
use rand::Rng;

use super::{ReportKey, interval};
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::rng::{Seed, Stream, crowd_part, unit};
use crate::time::{Duration, Instant};

/// Compensation for timers that are drawn anew (RFC 3550, section 6.3.1: e - 1.5).
const COMPENSATION: f64 = 1.218_28;
/// Window of the random wait after the first hello without a reply; it doubles with each further one.
const RETRY: Duration = Duration::from_secs(4);
/// The same to a sender whose rate follows reports: the path may be overloaded until the receiver is heard.
const RETRY_QUICK: Duration = Duration::from_secs(1);
/// Shortest wait for a reply to a hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// Hellos in a row without a reply after which hellos become rare.
const HELLOS_MAX: u32 = 6;
/// Mean time between rare hellos: a firewall or a relay may let reports through later.
const RARE: Duration = Duration::from_secs(300);
/// Hellos in a row without a reply after which an ending receiver expects no reply.
const HELLOS_HOPEFUL: u32 = 3;
/// Progress reports in a row without a reply after which the receiver begins with a hello again. The sender
/// answers each second one to a crowd.
const UNANSWERED_MAX: u32 = 8;
/// The same to a sender whose rate follows reports, after about the same time: an overloaded path loses most
/// replies.
const UNANSWERED_MAX_QUICK: u32 = 16;
/// Waits for the reply to the report of an end.
const REPEATS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(2)];
/// Number of these waits if the sender does not wait for ends: the report is sent twice.
const REPEATS_UNAWAITED: usize = 1;
/// Default longest time from the end of a receiver until its report, and until the reply.
const LINGER: Duration = Duration::from_secs(5);

/// Configuration of a [`RosterReporter`].
#[derive(Clone, Debug)]
pub struct ReporterConfig {
    receiver: u64,
    seed: Seed,
    name: Option<String>,
    is_public: bool,
    linger: Duration,
    key: Option<ReportKey>,
}

impl ReporterConfig {
    /// Reports under this identifier, which a receiver draws once and keeps. Times are drawn from `seed`.
    pub fn new(receiver: u64, seed: Seed) -> Self {
        Self { receiver, seed, name: None, is_public: false, linger: LINGER, key: None }
    }

    /// Sets the longest time that the receiver stays at its end for its last report. If the time drawn for
    /// the report is later, the receiver ends at once without a report. Default: 5 s.
    #[must_use]
    pub const fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the key that authenticates reports to a sender with the same key. Default: none.
    #[must_use]
    pub fn with_key(mut self, key: Option<ReportKey>) -> Self {
        self.key = key;
        self
    }

    /// Sets the name to report, cut to [`NAME_BYTES_MAX`](wire::NAME_BYTES_MAX) bytes; a name that is not
    /// [printable](wire::is_name) is left out. Unless `is_public`, only a verified sender gets the name.
    /// Default: none.
    #[must_use]
    pub fn with_name(mut self, name: Option<String>, is_public: bool) -> Self {
        let cut = |mut name: String| {
            name.truncate(name.floor_char_boundary(wire::NAME_BYTES_MAX));
            name
        };
        self.name = name.map(cut).filter(|name| wire::is_name(name));
        self.is_public = is_public;
        self
    }
}

/// Timer of the next report.
#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Instant,
    /// Start of the wait.
    from: Instant,
    /// Exponent of the interval that the wait was drawn for.
    exponent: u8,
    wait: Wait,
}

/// Distribution of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Few receivers of many wait for less than half of the interval.
    First,
    /// Half to one and a half intervals, compensated.
    Regular,
    /// Uniform within half of the interval, in which as many reports fit; none within the shortest interval.
    End,
    /// A time that does not depend on the interval.
    Fixed,
}

/// End of a receiver.
#[derive(Clone, Copy, Debug)]
struct End {
    result: u8,
    /// Reports without a reply.
    sent: usize,
    /// Whether nothing is left to wait for.
    is_over: bool,
}

/// Reports of a receiver to its sender. Memory: constant.
#[derive(Clone, Debug)]
pub struct RosterReporter {
    config: ReporterConfig,
    stream: Stream,
    sender: Option<SocketAddr>,
    is_awaited: bool,
    is_quick: bool,
    exponent: u8,
    /// Cookie of the sender; 0 for none.
    cookie: u64,
    sequence: u16,
    timer: Option<Timer>,
    /// Reports without a reply.
    unanswered: u32,
    /// Whether the last report was sent at once after a new cookie.
    is_resent: bool,
    end: Option<End>,
    /// Port at which the receiver answers HTTP repair after the end.
    repair_port: Option<u16>,
}

impl RosterReporter {
    /// Creates a reporter that knows no sender.
    pub fn new(config: ReporterConfig) -> Self {
        let mut stream = config.seed.stream("roster/reporter", 0);
        let sequence = u16::try_from(stream.next_u32() >> 16).expect("16 bits are left");
        Self {
            config,
            stream,
            sender: None,
            is_awaited: false,
            is_quick: false,
            exponent: 0,
            cookie: 0,
            sequence,
            timer: None,
            unanswered: 0,
            is_resent: false,
            end: None,
            repair_port: None,
        }
    }

    /// Handles the announcement of a packet of the session from `sender`. A new sender gets a hello first.
    pub fn heard(&mut self, now: Instant, sender: SocketAddr, members: Members) {
        let Members { exponent, is_awaiting, is_quick, .. } = members;
        (self.exponent, self.is_awaited, self.is_quick) = (exponent, is_awaiting, is_quick);
        if self.sender.replace(sender) != Some(sender) {
            (self.cookie, self.unanswered) = (0, 0);
            self.set(now, Wait::First);
        }
    }

    /// Processes a datagram; returns whether the datagram is a reply, even to an unknown report.
    pub fn answered(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Ok(reply) = Reply::parse(datagram.payload) else { return wire::is_roster(datagram.payload) };
        let RosterHeader { kind, receiver, cookie, sequence } = reply.header;
        let is_ours = self.sender == Some(datagram.source)
            && receiver == self.config.receiver
            && sequence == self.sequence
            && self.unanswered > 0;
        if !is_ours || cookie == 0 {
            return true;
        }
        self.exponent = reply.exponent;
        self.unanswered = 0;
        let is_new = core::mem::replace(&mut self.cookie, cookie) != cookie;
        if reply.is_counted {
            if let Some(end) = self.end
                && matches!(kind, ReportKind::Done | ReportKind::Leaving)
                && !end.is_over
            {
                self.end_is_known(now);
            }
        } else if is_new && !core::mem::replace(&mut self.is_resent, true) {
            self.timer = Some(Timer { at: now, from: now, exponent: self.exponent, wait: Wait::Fixed });
        }
        true
    }

    /// Reports progress at once, if the interval of reports is the shortest. Receivers of a crowd keep their
    /// times: their reports would come together.
    pub fn report_now(&mut self, now: Instant) {
        if self.cookie != 0 && self.exponent == 0 && self.end.is_none() {
            self.set_fixed(now, Duration::ZERO);
        }
    }

    /// Ends the receiver with an exit code; 0 for a receiver that has everything. The last report follows.
    pub fn finish(&mut self, now: Instant, result: u8) {
        if self.end.is_some() {
            return;
        }
        // Without a cookie, the sender has no row of the receiver, and expects none unless it waits for ends.
        let is_expected = self.cookie != 0 || self.is_awaited && self.unanswered < HELLOS_HOPEFUL;
        let mut is_over = self.sender.is_none() || !is_expected;
        match (self.cookie, self.unanswered) {
            // The first hello keeps its time.
            (0, 0) => {}
            (0, _) => self.set(now, Wait::First),
            _ => self.set(now, Wait::End),
        }
        is_over |= self.timer.is_none_or(|timer| timer.at > now + self.config.linger);
        self.end = Some(End { result, sent: 0, is_over });
        self.timer = self.timer.filter(|_| !is_over || self.is_serving());
    }

    /// Serves the content at a port after the end: the receiver then goes on to report that it has
    /// everything, with the port, until [`RosterReporter::stop_serving`]. Called before
    /// [`RosterReporter::finish`].
    pub fn serve(&mut self, port: u16) {
        self.repair_port = Some(port);
    }

    /// Reports the end of serving, as the end of the receiver was reported before.
    pub fn stop_serving(&mut self, now: Instant) {
        if !self.is_serving() {
            return;
        }
        (self.repair_port, self.timer) = (None, None);
        if let Some(end) = self.end.as_mut().filter(|_| self.cookie != 0) {
            (end.sent, end.is_over) = (0, false);
            self.set_fixed(now, Duration::ZERO);
        }
    }

    /// Whether the receiver has everything and serves the content.
    fn is_serving(&self) -> bool {
        self.repair_port.is_some() && matches!(self.end, Some(End { result: 0, .. }))
    }

    /// Ends the reports, or goes on with reports of a receiver that serves.
    fn end_is_known(&mut self, now: Instant) {
        self.timer = None;
        if let Some(end) = &mut self.end {
            (end.is_over, end.sent) = (true, 0);
        }
        if self.is_serving() && self.exponent < Members::NO_PROGRESS {
            self.set(now, Wait::Regular);
        }
    }

    /// Whether the receiver has ended, and the sender knows or cannot be reached.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end.is_over)
    }

    /// Whether a report is due at `now`.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let Some(timer) = self.timer.filter(|timer| timer.at <= now) else { return false };
        if timer.exponent < self.exponent && timer.wait != Wait::Fixed {
            // Reconsideration (RFC 3550, section 6.3.3): the interval has grown since the wait was drawn.
            let at = timer.from + self.draw(timer.wait);
            self.timer = Some(Timer { at, exponent: self.exponent, ..timer });
            return at <= now;
        }
        true
    }

    /// Whether the rate of the session follows the reports.
    pub fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Returns when [`RosterReporter::is_due`] may change.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer.map(|timer| timer.at)
    }

    /// Writes the report that is due at the start of `buffer`. A hello needs no `state`.
    pub fn transmit(
        &mut self,
        now: Instant,
        state: impl FnOnce() -> ReceiverState,
        is_verified: bool,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let sender = self.sender?;
        let is_retry = self.timer.take().is_some_and(|timer| timer.wait == Wait::Fixed);
        if !is_retry {
            self.is_resent = false;
        }
        let kind = match self.end {
            _ if self.cookie == 0 => ReportKind::Hello,
            None => ReportKind::Progress,
            Some(End { result: 0, .. }) => ReportKind::Done,
            Some(_) => ReportKind::Leaving,
        };
        // A repeated report of an end has the number of the first, so that any reply counts.
        let is_repeated = self.end.is_some_and(|end| end.sent > 0) && kind != ReportKind::Hello;
        if !is_repeated {
            self.sequence = self.sequence.wrapping_add(1);
        }
        // The report of the end names no port: a sender tells an end from a receiver that serves.
        let repair_port = self.repair_port.filter(|_| kind == ReportKind::Done && self.is_over());
        self.schedule(now, kind);
        let result = self.end.map_or(0, |end| end.result);
        let header = RosterHeader {
            kind,
            receiver: self.config.receiver,
            cookie: self.cookie,
            sequence: self.sequence,
        };
        let name = self.config.name.as_deref().filter(|_| self.config.is_public || is_verified);
        let state = (kind != ReportKind::Hello).then(|| ReceiverState { result, repair_port, ..state() });
        let mut bytes = Report { header, state, name }.emit(buffer);
        if let Some(key) = self.config.key.as_ref().filter(|_| kind != ReportKind::Hello) {
            bytes = key.authenticate(buffer, bytes);
        }
        Some(Transmit { destination: Destination::Unicast(sender), bytes, ecn: Ecn::NotCapable })
    }

    /// Counts a report of a kind and schedules the next one.
    fn schedule(&mut self, now: Instant, kind: ReportKind) {
        self.unanswered += 1;
        if let Some(end) = self.end.as_mut().filter(|end| !end.is_over) {
            let repeats = if self.is_awaited { &REPEATS[..] } else { &REPEATS[..REPEATS_UNAWAITED] };
            let wait = repeats.get(end.sent).copied();
            end.sent += 1;
            match wait {
                Some(wait) => self.set_fixed(now, wait),
                None => self.end_is_known(now),
            }
            return;
        }
        match kind {
            ReportKind::Hello if self.unanswered >= HELLOS_MAX => {
                let wait = RARE.as_secs_f64() * (0.5 + unit(&mut self.stream));
                self.set_fixed(now, Duration::from_secs_f64(wait));
            }
            ReportKind::Hello => {
                let least = if self.is_quick { RETRY_QUICK } else { RETRY };
                let window =
                    least.max(interval(self.exponent, self.is_quick)).saturating_mul(1 << self.unanswered);
                let wait = window.as_secs_f64() * unit(&mut self.stream);
                self.set_fixed(now, Duration::from_secs_f64(wait).max(PATIENCE));
            }
            _ => {
                let most = if self.is_quick { UNANSWERED_MAX_QUICK } else { UNANSWERED_MAX };
                if self.unanswered >= most {
                    (self.cookie, self.unanswered) = (0, 0);
                }
                if self.exponent < Members::NO_PROGRESS {
                    self.set(now, Wait::Regular);
                }
            }
        }
    }

    fn set(&mut self, now: Instant, wait: Wait) {
        let at = now + self.draw(wait);
        self.timer = Some(Timer { at, from: now, exponent: self.exponent, wait });
    }

    fn set_fixed(&mut self, now: Instant, wait: Duration) {
        self.timer = Some(Timer { at: now + wait, from: now, exponent: self.exponent, wait: Wait::Fixed });
    }

    /// Draws a wait of the interval.
    fn draw(&mut self, wait: Wait) -> Duration {
        let part = match wait {
            Wait::First => crowd_part(&mut self.stream),
            Wait::Regular => (0.5 + unit(&mut self.stream)) / COMPENSATION,
            Wait::End if self.exponent == 0 => 0.0,
            Wait::End => 0.5 * unit(&mut self.stream),
            Wait::Fixed => 0.0,
        };
        Duration::from_secs_f64(interval(self.exponent, self.is_quick).as_secs_f64() * part)
    }
}

//! Reports of a receiver to a sender that keeps a roster.

use core::net::SocketAddr;

use headwater_wire::extensions::Members;
use headwater_wire::roster::{DONE_PPM, PacketCounts, ReceiverState};

use super::DeliveryReceiver;
use super::catalogue::{Catalogue, FileOutcome};
use crate::control::{ReceiverControl, Reception};
use crate::delivery::object::content_digest;
use crate::delivery::sender::roster::content_id;
use crate::delivery::store::Store;
use crate::machine::{Datagram, Transmit};
use crate::roster::RosterReporter;
use crate::time::{Duration, Instant};

/// Reporter, and what the next report is compared with.
#[derive(Debug)]
pub(super) struct SessionReporter {
    reporter: RosterReporter,
    last: LastReport,
    /// Path of most bytes, by its code.
    path: u8,
    /// Number of whole bundles of which the application takes a part.
    in_part: usize,
    /// Last computed content.
    known: Option<(ContentKey, u32)>,
}

/// Files, digests and files that are not refused, for which the content was computed.
type ContentKey = (usize, usize, usize);

/// Shortest time over which a rate is measured.
const RATE_TIME_MIN: Duration = Duration::from_millis(250);

/// Last report with a rate; at first, the first packet of a sender with a roster.
#[derive(Debug)]
struct LastReport {
    at: Instant,
    bytes: u64,
    rate_kbits: u32,
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Reports to a sender that keeps a roster. Default: no reports.
    #[must_use]
    pub fn with_reporter(mut self, reporter: Option<RosterReporter>) -> Self {
        let last = LastReport { at: Instant::ZERO, bytes: 0, rate_kbits: 0 };
        self.reporter = reporter
            .map(|reporter| Box::new(SessionReporter { reporter, last, path: 0, in_part: 0, known: None }));
        self
    }

    /// Sets the path of most bytes in reports, by its code in [`ReceiverState::path`]. Default: 0, multicast.
    pub fn report_path(&mut self, path: u8) {
        self.reporter.iter_mut().for_each(|session| session.path = path);
    }

    /// Sets the number of bundles that are whole and of which the application has left files out: these
    /// bundles do not count as files in place. Default: 0.
    pub fn report_in_part(&mut self, files: usize) {
        self.reporter.iter_mut().for_each(|session| session.in_part = files);
    }

    /// Ends the receiver with an exit code, 0 if all files are whole, and reports the end. The machine leaves
    /// its channels and takes nothing but the reply until [`DeliveryReceiver::has_reported`].
    pub fn finish(&mut self, now: Instant, result: u8) {
        if !self.ended {
            self.ended = true;
            self.settle(now);
        }
        if let Some(session) = &mut self.reporter {
            session.reporter.finish(now, result);
        }
    }

    /// Tells the sender, after the end, that this receiver answers HTTP repair at a port. Called before
    /// [`DeliveryReceiver::finish`].
    pub fn serve_repair(&mut self, port: u16) {
        self.reporter.iter_mut().for_each(|session| session.reporter.serve(port));
    }

    /// Reports that this receiver does not answer HTTP repair any more.
    pub fn stop_serving(&mut self, now: Instant) {
        self.reporter.iter_mut().for_each(|session| session.reporter.stop_serving(now));
    }

    /// Whether no reply to a report of the end is awaited: the sender knows the end, cannot be reached, or
    /// keeps no roster.
    pub fn has_reported(&self) -> bool {
        self.reporter.as_ref().is_none_or(|session| session.reporter.is_over())
    }

    /// Takes a reply to a report. Returns whether the datagram is a reply.
    pub(super) fn on_reply(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let session = self.reporter.as_mut().filter(|_| datagram.channel.is_none());
        session.is_some_and(|session| session.reporter.answered(now, datagram))
    }

    /// Handles the announcement of a roster in a packet of the session. Anybody can send copies of verified
    /// packets from another address, which gets no reports.
    pub(super) fn on_members(&mut self, now: Instant, source: SocketAddr, members: Option<Members>) {
        let is_sender = self.session().is_some_and(|(sender, _)| sender == source.ip());
        if let (Some(session), Some(members), true) = (&mut self.reporter, members, is_sender) {
            if session.last.at == Instant::ZERO {
                session.last = LastReport { at: now, bytes: self.stats.bytes, rate_kbits: 0 };
            }
            session.reporter.heard(now, source, members);
        }
    }

    /// Reports at once whether this receiver needs packets.
    pub(super) fn report_need(&mut self, now: Instant) {
        self.reporter.iter_mut().for_each(|session| session.reporter.report_now(now));
    }

    /// Returns when a report is due.
    pub(super) fn report_timeout(&self) -> Option<Instant> {
        self.reporter.as_ref()?.reporter.poll_timeout()
    }

    /// Writes the report that is due, if any.
    pub(super) fn poll_report(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.reporter.as_mut()?.reporter.is_due(now) {
            return None;
        }
        let symbol_bytes = u64::from(self.symbol_size().unwrap_or(0));
        let Self { reporter, front, catalogue, stats, holding, .. } = self;
        // A block may need a symbol beyond its number of source symbols.
        let most_ppm = DONE_PPM - u32::from(*holding);
        let SessionReporter { reporter, last, path, in_part, known } = &mut **reporter.as_mut()?;
        let (is_verified, control) = (front.is_verified(), &mut front.control);
        let is_quick = reporter.is_quick();
        let state = || {
            let reception = control.reception();
            let files = catalogue.files.iter();
            let (held, symbols) = files.fold((0, 0), |(held, symbols), file| {
                (held + file.symbols_held.min(file.symbols), symbols + file.symbols)
            });
            let files = catalogue.files.iter();
            let whole = files.filter(|file| file.outcome.is_some_and(FileOutcome::is_in_place));
            ReceiverState {
                result: 0,
                path: *path,
                content: content(known, catalogue),
                done_ppm: ppm(held, symbols).min(most_ppm),
                useful_bytes: stats.useful * symbol_bytes,
                rate_kbits: last.rate_kbits(now, stats.bytes),
                fair_kbits: control.status(now).fair_rate.map_or(0, |rate| saturated(rate.as_bits() / 1_000)),
                lost_ppm: ppm(reception.lost, reception.lost + reception.packets),
                files_whole: saturated(whole.count().saturating_sub(*in_part) as u64),
                files: saturated(catalogue.files.len() as u64),
                repair_port: None,
                packets: is_quick.then(|| packet_counts(&reception)),
            }
        };
        reporter.transmit(now, state, is_verified, buffer)
    }
}

impl LastReport {
    /// Returns the rate since the last report, or the rate of that report if the time is too short.
    fn rate_kbits(&mut self, now: Instant, bytes: u64) -> u32 {
        let lasted = now.since(self.at);
        if lasted >= RATE_TIME_MIN {
            let rate_kbits = kbits(bytes - self.bytes, lasted.as_nanos());
            *self = Self { at: now, bytes, rate_kbits };
        }
        self.rate_kbits
    }
}

#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn packet_counts(reception: &Reception) -> PacketCounts {
    PacketCounts { received: reception.packets as u32, lost: reception.lost as u32 }
}

/// Returns the first 32 bits of the digest of the announced content; 0 while a digest is to follow.
fn content(computed: &mut Option<(ContentKey, u32)>, catalogue: &Catalogue) -> u32 {
    let files = || catalogue.files.iter().filter(|file| file.outcome != Some(FileOutcome::Refused));
    let digests = files().filter(|file| file.spec.digest.is_some()).count();
    if files().any(|file| file.spec.digest.is_none() && file.digest_follows) || files().next().is_none() {
        return 0;
    }
    let key = (catalogue.files.len(), digests, files().count());
    if let Some((known, content)) = *computed
        && known == key
    {
        return content;
    }
    let each = files().map(|file| (file.spec.path.as_str(), file.spec.bytes, file.spec.digest));
    let content = content_id(&content_digest(each));
    *computed = Some((key, content));
    content
}

/// Returns a part in millionths, rounded down; 0 of nothing.
fn ppm(part: u64, whole: u64) -> u32 {
    let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    u32::try_from(ppm).unwrap_or(u32::MAX)
}

fn kbits(bytes: u64, nanos: u64) -> u32 {
    let kbits = u128::from(bytes) * 8_000_000 / u128::from(nanos.max(1));
    u32::try_from(kbits).unwrap_or(u32::MAX)
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_a_time_that_is_long_enough() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut last = LastReport { at: at(10_000), bytes: 1_000, rate_kbits: 0 };
        assert_eq!(last.rate_kbits(at(11_000), 126_000), 1_000);
        // A report follows the reply to a hello at once: a packet in a millisecond is no rate.
        assert_eq!(last.rate_kbits(at(11_001), 127_500), 1_000);
        assert_eq!(last.rate_kbits(at(12_000), 188_500), 500);
    }
}

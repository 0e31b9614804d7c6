//! Reports to a roster that a relay passes on.
//!
//! Receivers below a relay that ends their feedback take the relay for the sender, and report to the relay.
//! The relay passes each report on as it is, under its own address, and the reply back to the receiver. To
//! the sender, all receivers below have the relay's address.
//!
//! | attempt by a stranger below | effect |
//! |---|---|
//! | reports in a victim's name | at most one reply for each report, as long as a hello at most |
//! | more than [`REPORTS_PER_SECOND`] reports | the rest is dropped: receivers repeat their reports |
//! | ever new identifiers | only the last [`WAITING_MAX`] reports can have a reply |
//!
//! Memory: 0.1 MB.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::roster::{REPORT_BYTES_MAX, Reply, Report};

use crate::admission::Limit;
use crate::machine::{Datagram, Destination, Ecn, InterfaceId, Transmit};
use crate::time::{Duration, Instant};

/// Reports that a relay passes on in a second: as many as a sender asks for by default.
pub const REPORTS_PER_SECOND: u32 = 500;
/// Reports beyond this rate that are passed on at once.
const BURST: u32 = 256;
/// Most reports that wait for a reply.
pub const WAITING_MAX: usize = 1_024;
/// Time for which a report waits for a reply. A receiver repeats a report without a reply.
const REPLY_TIME: Duration = Duration::from_secs(10);
/// Most datagrams that wait to be sent.
const OUTGOING_MAX: usize = 256;

/// Report without a reply.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    receiver: u64,
    sequence: u16,
    at: Instant,
    /// Link and address of the receiver.
    link: InterfaceId,
    from: SocketAddr,
    /// Sender, the only source of a reply.
    to: SocketAddr,
}

/// Datagram to be sent.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    egress: InterfaceId,
    to: SocketAddr,
    bytes: usize,
    payload: [u8; REPORT_BYTES_MAX],
}

/// Reports and replies on their way through a relay.
#[derive(Debug)]
pub(crate) struct RelayedReports {
    limit: Limit,
    /// Time at which the next report conforms to the limit.
    due: Instant,
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    outgoing: VecDeque<Outgoing>,
    passed: u64,
}

impl RelayedReports {
    /// Creates the state of a relay without reports.
    pub(crate) const fn new() -> Self {
        Self {
            limit: Limit::new(REPORTS_PER_SECOND, BURST),
            due: Instant::ZERO,
            waiting: VecDeque::new(),
            outgoing: VecDeque::new(),
            passed: 0,
        }
    }

    /// Returns the number of reports and replies passed on.
    pub(crate) const fn passed(&self) -> u64 {
        self.passed
    }

    /// Passes the report of a receiver on a link below on to the sender, behind an interface. Returns whether
    /// the report was passed on.
    pub(crate) fn on_report(
        &mut self,
        now: Instant,
        (link, from): (InterfaceId, SocketAddr),
        (upstream, to): (InterfaceId, SocketAddr),
        report: &[u8],
    ) -> bool {
        let Ok(Report { header, .. }) = Report::parse(report) else { return false };
        if !self.has_room(report) || !self.limit.admits(now, &mut self.due) {
            return false;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        let (receiver, sequence) = (header.receiver, header.sequence);
        self.waiting.push_back(Waiting { receiver, sequence, at: now, link, from, to });
        self.push(upstream, to, report);
        true
    }

    /// Passes a sender's reply on to the receiver. Returns whether the datagram was passed on.
    pub(crate) fn on_reply(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Ok(Reply { header, .. }) = Reply::parse(datagram.payload) else { return false };
        let is_answered = |waiting: &Waiting| {
            (waiting.receiver, waiting.sequence, waiting.to)
                == (header.receiver, header.sequence, datagram.source)
                && now.since(waiting.at) <= REPLY_TIME
        };
        if !self.has_room(datagram.payload) {
            return false;
        }
        let place = self.waiting.iter().rposition(is_answered);
        let Some(Waiting { link, from, .. }) = place.and_then(|place| self.waiting.remove(place)) else {
            return false;
        };
        self.push(link, from, datagram.payload);
        true
    }

    fn has_room(&self, datagram: &[u8]) -> bool {
        datagram.len() <= REPORT_BYTES_MAX && self.outgoing.len() < OUTGOING_MAX
    }

    fn push(&mut self, egress: InterfaceId, to: SocketAddr, datagram: &[u8]) {
        let bytes = datagram.len();
        let mut payload = [0; REPORT_BYTES_MAX];
        payload[..bytes].copy_from_slice(datagram);
        self.outgoing.push_back(Outgoing { egress, to, bytes, payload });
        self.passed += 1;
    }

    /// Writes the next datagram to the start of `buffer`. Returns the datagram and its interface.
    pub(crate) fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<(InterfaceId, Transmit)> {
        let Outgoing { egress, to, bytes, payload } = self.outgoing.pop_front()?;
        buffer[..bytes].copy_from_slice(&payload[..bytes]);
        Some((egress, Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable }))
    }
}

#[cfg(test)]
mod tests {
    use headwater_wire::roster::{ReceiverState, ReportKind, RosterHeader};

    use super::*;

    const UPSTREAM: InterfaceId = InterfaceId(0);
    const LINK: InterfaceId = InterfaceId(2);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn host(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 7_000).into()
    }

    fn header(receiver: u64) -> RosterHeader {
        RosterHeader { kind: ReportKind::Done, receiver, cookie: 5, sequence: 3 }
    }

    fn report(receiver: u64) -> Vec<u8> {
        let mut bytes = [0; REPORT_BYTES_MAX];
        let state = Some(ReceiverState::default());
        let length = Report { header: header(receiver), state, name: Some("a-host") }.emit(&mut bytes);
        bytes[..length].to_vec()
    }

    fn datagram(source: SocketAddr, payload: &[u8]) -> Datagram<'_> {
        Datagram { source, channel: None, ecn: Ecn::NotCapable, payload }
    }

    fn sent(relay: &mut RelayedReports) -> Vec<(InterfaceId, SocketAddr, Vec<u8>)> {
        let mut buffer = [0; 512];
        core::iter::from_fn(|| {
            let (egress, transmit) = relay.poll_transmit(&mut buffer)?;
            let Destination::Unicast(to) = transmit.destination else { panic!("{transmit:?}") };
            Some((egress, to, buffer[..transmit.bytes].to_vec()))
        })
        .collect()
    }

    #[test]
    fn a_report_goes_up_as_it_is_and_its_reply_comes_back_once() {
        let (mut relay, sender, receiver) = (RelayedReports::new(), host(1), host(9));
        let up = report(7);
        assert!(relay.on_report(at(0), (LINK, receiver), (UPSTREAM, sender), &up));
        assert_eq!(sent(&mut relay), [(UPSTREAM, sender, up.clone())]);
        let reply = Reply { header: header(7), exponent: 2, is_counted: true }.emit();
        assert!(!relay.on_reply(at(50), &datagram(host(3), &reply)), "of a stranger");
        let other = Reply { header: header(8), exponent: 2, is_counted: true }.emit();
        assert!(!relay.on_reply(at(50), &datagram(sender, &other)), "to another receiver");
        assert!(relay.on_reply(at(50), &datagram(sender, &reply)));
        assert!(reply.len() <= up.len(), "no amplification");
        assert_eq!(sent(&mut relay), [(LINK, receiver, reply.to_vec())]);
        assert!(!relay.on_reply(at(51), &datagram(sender, &reply)), "a second time");
        assert!(relay.on_report(at(60), (LINK, receiver), (UPSTREAM, sender), &up));
        assert!(!relay.on_reply(at(11_000), &datagram(sender, &reply)), "late");
    }

    #[test]
    fn a_flood_from_below_is_bounded_and_leaves_no_more_than_the_last_reports() {
        let mut relay = RelayedReports::new();
        let mut passed = 0;
        for number in 0..100_000_u64 {
            let bytes = report(number);
            let now = at(number / 10);
            passed += u32::from(relay.on_report(now, (LINK, host(9)), (UPSTREAM, host(1)), &bytes));
            sent(&mut relay);
        }
        assert!((5_000..=5_300).contains(&passed), "{passed} in ten seconds");
        assert_eq!(relay.waiting.len(), WAITING_MAX);
        for payload in [&b"HWP"[..], &[0; 40], &report(1)[..30]] {
            assert!(!relay.on_report(at(20_000), (LINK, host(9)), (UPSTREAM, host(1)), payload));
        }
    }
}

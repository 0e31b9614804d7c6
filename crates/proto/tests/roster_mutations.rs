//! Reports to a roster, and replies, of which bytes are changed, cut or added, by receivers with a right
//! cookie and by strangers: no end fails, no stranger has a row, no reply is longer than the report, and
//! memory is bounded.
#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]

#[expect(dead_code, reason = "other tests ask for more")]
mod allocated;

use core::net::{Ipv4Addr, SocketAddr};

use headwater_proto::roster::{ReporterConfig, RosterConfig, RosterReporter, RosterSender};
use headwater_proto::{Datagram, Duration, Ecn, Instant, Seed};
use headwater_wire::extensions::Members;
use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, Reply, Report, ReportKind, RosterHeader};
use rand::Rng;

const MUTATED: u64 = if option_env!("HEADWATER_LONG").is_some() { 10_000_000 } else { 200_000 };
const RECEIVERS: u8 = 16;
/// Memory of a roster of few rows and of a reporter, in bytes.
const MEMORY_MAX: usize = 200_000;

fn address(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 4_242).into()
}

/// Changes some bytes, and perhaps the length.
fn mutate(draw: &mut impl Rng, bytes: &mut Vec<u8>) {
    for _ in 0..draw.next_u32() % 4 {
        let place = draw.next_u32() as usize % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = draw.next_u32().to_be_bytes()[0];
        }
    }
    match draw.next_u32() % 8 {
        0 => bytes.truncate(draw.next_u32() as usize % (bytes.len() + 1)),
        1 => bytes.extend_from_slice(&draw.next_u64().to_be_bytes()[..draw.next_u32() as usize % 9]),
        _ => {}
    }
}

/// Passes a report to a roster; returns the reply, if any.
fn pass(roster: &mut RosterSender, now: Instant, source: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    roster.on_timeout(now);
    roster.on_datagram(now, &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload });
    let mut buffer = [0; 64];
    let mut reply = None;
    while let Some(transmit) = roster.poll_transmit(&mut buffer) {
        assert!(transmit.bytes <= payload.len(), "no amplification");
        reply = Some(buffer[..transmit.bytes].to_vec());
    }
    reply
}

#[test]
fn mutated_reports_and_replies_change_nothing_of_others_and_memory_is_bounded() {
    let mut draw = Seed(11).stream("mutations", 0);
    let mut roster = RosterSender::new(RosterConfig::new(), [7; 32]);
    roster.set_content(Some(1));
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(1)));
    let heard = Members { exponent: 0, is_awaiting: true, is_quick: false, count: 0 };
    reporter.heard(Instant::ZERO, address(1), heard);
    let mut now = Instant::ZERO;
    let mut reports = Vec::new();
    for receiver in 1..=RECEIVERS {
        let hello =
            RosterHeader { kind: ReportKind::Hello, receiver: receiver.into(), cookie: 0, sequence: 1 };
        let mut bytes = [0; REPORT_BYTES_MAX];
        let length = Report { header: hello, state: None, name: None }.emit(&mut bytes);
        let reply = pass(&mut roster, now, address(receiver), &bytes[..length]).unwrap();
        let cookie = Reply::parse(&reply).unwrap().header.cookie;
        let header = RosterHeader { kind: ReportKind::Progress, cookie, ..hello };
        let state = Some(ReceiverState { repair_port: Some(7_280), ..ReceiverState::default() });
        let length = Report { header, state, name: Some("a-host") }.emit(&mut bytes);
        reports.push(bytes[..length].to_vec());
    }
    let mut replies = 0;
    let peak = allocated::peak(|| {
        for _ in 0..MUTATED {
            now += Duration::from_micros(50);
            let receiver = draw.next_u32() as usize % reports.len();
            let mut report = reports[receiver].clone();
            mutate(&mut draw, &mut report);
            let own = address(u8::try_from(receiver + 1).unwrap());
            let is_own = draw.next_u32().is_multiple_of(2);
            let source = if is_own { own } else { (Ipv4Addr::from_bits(draw.next_u32()), 9).into() };
            if let Some(mut reply) = pass(&mut roster, now, source, &report) {
                replies += 1;
                mutate(&mut draw, &mut reply);
                let payload = &reply;
                let datagram = Datagram { source: address(1), channel: None, ecn: Ecn::NotCapable, payload };
                reporter.answered(now, &datagram);
            }
            if reporter.poll_timeout().is_some_and(|due| due <= now) && reporter.is_due(now) {
                let state = ReceiverState::default;
                reporter.transmit(now, state, true, &mut [0; REPORT_BYTES_MAX]).unwrap();
            }
        }
    });
    assert!(replies > 1_000, "{replies} replies");
    assert!(roster.rows().all(|row| row.receiver <= RECEIVERS.into()), "a stranger has a row");
    assert!(peak < MEMORY_MAX, "{peak} bytes");
}

//! Reports and replies are written as bytes that read the same. Reports of strangers change no row of a
//! roster, and a reply is no longer than the report. A receiver that serves reports as before, whatever
//! replies say.
#![no_main]
use std::hash::{DefaultHasher, Hasher as _};

use headwater_wire::roster::{REPORT_BYTES_MAX, Reply, Report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = Report::parse(bytes) {
        let mut buffer = [0; REPORT_BYTES_MAX];
        let written = report.emit(&mut buffer);
        assert_eq!(Report::parse(&buffer[..written]), Ok(report));
    }
    if let Ok(reply) = Reply::parse(bytes) {
        assert_eq!(Reply::parse(&reply.emit()), Ok(reply));
    }
    sender(bytes);
});

fn sender(bytes: &[u8]) {
    use headwater_proto::roster::{RosterConfig, RosterSender};
    use headwater_proto::{Datagram, Ecn, Instant};
    // The key depends on the input: the fuzzer reads the operands of comparisons, and so learns the cookie of
    // a constant key.
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let mut key = [7; 32];
    key[..8].copy_from_slice(&hasher.finish().to_be_bytes());
    let mut roster = RosterSender::new(RosterConfig::new(), key);
    let source = ([192, 0, 2, 1], 4_242).into();
    let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: bytes };
    assert!(roster.on_datagram(Instant::ZERO, &datagram).is_none());
    let mut buffer = [0; 64];
    let replied = roster.poll_transmit(&mut buffer).map_or(0, |transmit| transmit.bytes);
    assert!(replied <= bytes.len());
    assert_eq!(roster.rows().count(), 0);
    assert_eq!(roster.repair_servers(Instant::ZERO).count(), 0);
    reporter(bytes);
}

fn reporter(bytes: &[u8]) {
    use headwater_proto::roster::{ReporterConfig, RosterReporter};
    use headwater_proto::{Datagram, Ecn, Instant, Seed};
    use headwater_wire::extensions::Members;
    use headwater_wire::roster::ReceiverState;
    let source = ([192, 0, 2, 1], 4_242).into();
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(1)));
    reporter.serve(7_280);
    reporter.heard(
        Instant::ZERO,
        source,
        Members { exponent: 0, is_awaiting: true, is_quick: true, count: 0 },
    );
    let mut now = Instant::ZERO;
    for turn in 0..16 {
        let Some(due) = reporter.poll_timeout() else { break };
        now = now.max(due);
        if reporter.is_due(now) {
            reporter.transmit(now, ReceiverState::default, true, &mut [0; REPORT_BYTES_MAX]);
        }
        // Replies of the sender, of any content behind the magic.
        let reply = bytes.get(turn..).unwrap_or_default();
        reporter.answered(now, &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: reply });
        if turn == 4 {
            reporter.finish(now, 0);
        }
    }
    reporter.stop_serving(now);
    while let Some(due) = reporter.poll_timeout() {
        now = now.max(due);
        if reporter.is_due(now) {
            reporter.transmit(now, ReceiverState::default, true, &mut [0; REPORT_BYTES_MAX]);
        }
        assert!(
            now < Instant::ZERO + headwater_proto::Duration::from_secs(40_000 * 3_600),
            "reports without end"
        );
    }
}

//! Reports and replies are written as bytes that read the same. Reports of strangers change no row of a roster,
//! and are answered with no more bytes than they have.
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
}

//! Probes of `headwater doctor`.
use headwater_wire::lct;
use headwater_wire::probe::{BYTES, ExchangeError, Message, ProbeArrival, Request};
use proptest::prelude::*;

use crate::hex::hex;

const REQUEST: &str = "485744 10 0123456789abcdef 0007 20 02 00 00 00 00";
const REPLY: &str = "485744 11 0123456789abcdef 0007 20 02 1e 03 03 00";

fn request() -> Request {
    Request { nonce: 0x0123_4567_89AB_CDEF, sequence: 7, ttl: 32, traffic_class: 0b10 }
}

#[test]
fn a_request_and_its_reply_are_these_bytes() {
    let reply = Message::Reply(request(), ProbeArrival { ttl: Some(30), traffic_class: Some(0b11) });
    for (message, digits) in [(Message::Request(request()), REQUEST), (reply, REPLY)] {
        assert_eq!(message.emit().as_slice(), hex(digits));
        assert_eq!(Message::parse(&hex(digits)), Ok(message));
    }
}

#[test]
fn what_the_peer_did_not_see_stays_unknown() {
    let mut bytes = hex(REPLY);
    bytes[18] = 0b1111_1100;
    assert_eq!(Message::parse(&bytes), Ok(Message::Reply(request(), ProbeArrival::default())));
}

#[test]
fn other_datagrams_are_refused_with_the_reason() {
    let bytes = hex(REQUEST);
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Message::parse(&bytes)
    };
    assert_eq!(changed(0, 0x10), Err(ExchangeError::Magic));
    assert_eq!(changed(3, 0x20), Err(ExchangeError::Version(2)));
    assert_eq!(changed(3, 0x12), Err(ExchangeError::Kind(2)));
    assert_eq!(Message::parse(&[]), Err(ExchangeError::Magic));
    for bytes_wrong in [3, 4, BYTES - 1, BYTES + 1] {
        let mut datagram = hex(REQUEST);
        datagram.resize(bytes_wrong, 0);
        assert_eq!(Message::parse(&datagram), Err(ExchangeError::Length(bytes_wrong)));
    }
}

#[test]
fn receivers_of_sessions_do_not_take_probes_for_packets() {
    assert!(lct::Packet::new_checked(hex(REQUEST).as_slice()).is_err());
    assert!(lct::Packet::new_checked(hex(REPLY).as_slice()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn what_is_read_is_what_was_written(
        nonce: u64, sequence: u16, ttl: u8, traffic_class: u8, seen: Option<(Option<u8>, Option<u8>)>
    ) {
        let request = Request { nonce, sequence, ttl, traffic_class };
        let message = match seen {
            None => Message::Request(request),
            Some((ttl, traffic_class)) => Message::Reply(request, ProbeArrival { ttl, traffic_class }),
        };
        prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Message::parse(&bytes);
    }
}

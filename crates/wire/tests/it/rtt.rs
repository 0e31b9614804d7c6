//! Round-trip questions.
use headwater_wire::lct;
use headwater_wire::rtt::{BYTES, ExchangeError, Message};
use proptest::prelude::*;

use crate::hex::hex;

const QUESTION: &str = "485752 10 0123456789abcdef 0000 0000";
const ANSWER: &str = "485752 11 0123456789abcdef 012c 0000";
const NONCE: u64 = 0x0123_4567_89AB_CDEF;

#[test]
fn a_question_and_its_answer_are_these_bytes() {
    let answer = Message::Answer { nonce: NONCE, pause_s: 300 };
    for (message, digits) in [(Message::Question { nonce: NONCE }, QUESTION), (answer, ANSWER)] {
        assert_eq!(message.emit().as_slice(), hex(digits));
        assert_eq!(Message::parse(&hex(digits)), Ok(message));
    }
}

#[test]
fn other_datagrams_are_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let mut bytes = hex(QUESTION);
        bytes[at] = value;
        Message::parse(&bytes)
    };
    assert_eq!(changed(0, 0x10), Err(ExchangeError::Magic));
    assert_eq!(changed(2, b'D'), Err(ExchangeError::Magic), "a probe of the doctor");
    assert_eq!(changed(3, 0x20), Err(ExchangeError::Version(2)));
    assert_eq!(changed(3, 0x12), Err(ExchangeError::Kind(2)));
    for bytes_wrong in [3, 4, BYTES - 1, BYTES + 1] {
        let mut datagram = hex(QUESTION);
        datagram.resize(bytes_wrong, 0);
        assert_eq!(Message::parse(&datagram), Err(ExchangeError::Length(bytes_wrong)));
    }
}

#[test]
fn receivers_of_sessions_do_not_take_them_for_packets() {
    assert!(lct::Packet::new_checked(hex(QUESTION).as_slice()).is_err());
    assert!(lct::Packet::new_checked(hex(ANSWER).as_slice()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        let _ = Message::parse(&bytes);
    }
}

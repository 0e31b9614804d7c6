//! Round-trip questions.
use headwater_wire::lct;
use headwater_wire::rtt::{BYTES, Demand, ExchangeError, LossClass, Message};
use proptest::prelude::*;

use crate::hex::hex;

const QUESTION: &str = "485752 10 0123456789abcdef 0000 0000";
const ANSWER: &str = "485752 11 0123456789abcdef 012c 0000";
/// Of a receiver that starts, and of one that lost 50 to 70 %.
const STARTING: &str = "485752 12 0000000000000000 0000 80 17";
const LOSSY: &str = "485752 12 0000000000000000 0000 60 05";
const NONCE: u64 = 0x0123_4567_89AB_CDEF;

#[test]
fn questions_answers_and_reports_are_these_bytes() {
    let answer = Message::Answer { nonce: NONCE, pause_s: 300 };
    let starting = Message::Report(Demand { level: 23, is_starting: true, loss: LossClass::default() });
    let lossy = Message::Report(Demand { level: 5, is_starting: false, loss: LossClass::of(0.6) });
    let question = Message::Question { nonce: NONCE };
    let all = [(question, QUESTION), (answer, ANSWER), (starting, STARTING), (lossy, LOSSY)];
    for (message, digits) in all {
        assert_eq!(message.emit().as_slice(), hex(digits));
        assert_eq!(Message::parse(&hex(digits)), Ok(message));
    }
}

#[test]
fn loss_is_told_in_classes() {
    let classes = [0.0, 0.05, 0.19, 0.2, 0.3, 0.5, 0.69, 0.7, 1.0].map(LossClass::of);
    assert_eq!(classes.map(LossClass::code), [1, 2, 3, 4, 5, 6, 6, 7, 7]);
    assert_eq!(classes.map(LossClass::least), [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.5, 0.7, 0.7]);
    assert!(classes.iter().enumerate().all(|(at, class)| class.is_heavy() == (at >= 5)));
    assert_eq!(LossClass::from_code(0xF9), LossClass::of(0.0));
    assert_eq!(LossClass::default().least(), 0.0);
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
    assert_eq!(changed(3, 0x13), Err(ExchangeError::Kind(3)));
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
    assert!(lct::Packet::new_checked(hex(STARTING).as_slice()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        let _ = Message::parse(&bytes);
    }
}

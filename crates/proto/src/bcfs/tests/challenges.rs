//! Words of relays: requests of unproven addresses have no effect but a challenge.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::bcfs::{Header, Kind, WORD_BYTES, WORDED_BODY_BYTES_MIN};

use crate::bcfs::relay::{Relay, RelayConfig};
use crate::bcfs::{CHALLENGES_PER_SECOND, Label, Level, RouterConfig};
use crate::machine::{Datagram, Destination, Ecn, Input, Machine, Output};
use crate::rng::Seed;
use crate::time::{Duration, Instant};

const START: Instant = Instant::from_nanos(1_000_000_000);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7_000))
}

fn relay() -> Relay {
    let config = RelayConfig::new(RouterConfig::default().with_entries(1_000), Seed(1));
    Relay::new(config.with_challenges(Some([9; 32]))).expect("sound numbers")
}

fn message(kind: Kind, label: u32, body: &[u8]) -> Vec<u8> {
    let header = Header::new(kind, address(1), Label(label), Level::ONE);
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes).expect("room");
    bytes.extend(body);
    bytes
}

fn request(label: u32, word: [u8; WORD_BYTES]) -> Vec<u8> {
    message(Kind::Request, label, &[&word[..], b"content "].concat())
}

/// Gives a datagram to the relay; returns the datagrams that the relay sends.
fn play(relay: &mut Relay, now: Instant, source: SocketAddr, payload: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    relay.handle(now, Input::Datagram(Datagram { source, channel: None, ecn: Ecn::NotCapable, payload }));
    let mut buffer = vec![0; crate::DATAGRAM_BYTES_MAX];
    core::iter::from_fn(|| match relay.poll_output(now, &mut buffer)? {
        Output::Transmit(transmit) => match transmit.destination {
            Destination::Unicast(to) => Some((to, buffer[..transmit.bytes].to_vec())),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    })
    .collect()
}

/// Reads a challenge.
fn word_in(payload: &[u8]) -> (Header, [u8; WORD_BYTES]) {
    let (header, body) = Header::parse(payload).expect("a message");
    assert_eq!(header.kind, Kind::Challenge);
    (header, body.try_into().expect("a word"))
}

fn word_of(relay: &mut Relay, now: Instant, from: SocketAddr) -> [u8; WORD_BYTES] {
    let sent = play(relay, now, from, &request(1, [0; WORD_BYTES]));
    assert_eq!(sent[0].0, from);
    word_in(&sent[0].1).1
}

#[test]
fn a_request_without_a_word_causes_a_shorter_challenge_and_nothing_else() {
    let mut relay = relay();
    for word in [[0; WORD_BYTES], [1; WORD_BYTES]] {
        let asked = request(7, word);
        let sent = play(&mut relay, START, address(10), &asked);
        assert_eq!(sent.len(), 1);
        let (header, _) = word_in(&sent[0].1);
        assert_eq!((sent[0].0, header.label, header.is_renewal), (address(10), Label(7), false));
        assert!(sent[0].1.len() < asked.len());
    }
    for short in
        [message(Kind::Request, 7, &[]), message(Kind::Request, 7, &[0; 15]), message(Kind::Null, 7, &[])]
    {
        assert_eq!(play(&mut relay, START, address(10), &short), []);
    }
    let counters = relay.counters();
    assert_eq!((counters.neighbours, counters.entries), (0, 0));
    assert_eq!((counters.challenges.challenged, counters.challenges.wordless), (2, 3));
    let word = word_of(&mut relay, START, address(10));
    assert_eq!(play(&mut relay, START, address(11), &request(7, word)).len(), 1, "another address's word");
    assert_eq!(relay.counters().neighbours, 0);
    let sent = play(&mut relay, START, address(10), &request(7, word));
    assert_eq!(sent[0].0, address(1), "the source");
    assert_eq!(relay.counters().entries, 1);
}

#[test]
fn the_relay_returns_the_word_of_the_next_hop_and_repeats_the_refused_request() {
    let mut relay = relay();
    let word = word_of(&mut relay, START, address(10));
    let body = |sent: &[(SocketAddr, Vec<u8>)]| {
        assert_eq!((sent.len(), sent[0].0), (1, address(1)));
        Header::parse(&sent[0].1).expect("a request").1.to_vec()
    };
    let first = play(&mut relay, START, address(10), &request(7, word));
    assert_eq!(body(&first), b"\0\0\0\0\0\0\0\0content ", "not the word of this relay");
    let again = play(&mut relay, START, address(1), &message(Kind::Challenge, 7, b"of above"));
    assert_eq!(body(&again), b"of above\0\0\0\0\0\0\0\0");
    assert_eq!(play(&mut relay, START, address(1), &message(Kind::Challenge, 7, b"of above")), [], "known");
    assert_eq!(body(&play(&mut relay, START, address(10), &request(8, word))), b"of abovecontent ");
    // A renewal answers an accepted request.
    let mut renewal = message(Kind::Challenge, 8, b"the next");
    renewal[15] |= 4;
    assert_eq!(play(&mut relay, START, address(1), &renewal), []);
    assert_eq!(body(&play(&mut relay, START, address(10), &request(9, word))), b"the nextcontent ");
    assert_eq!(play(&mut relay, START, address(66), &message(Kind::Challenge, 9, b"stranger")), []);
    assert_eq!(play(&mut relay, START, address(10), &message(Kind::Challenge, 9, b"receiver")), []);
    assert_eq!(relay.counters().refused.stranger, 2);
    // A null in place of a suppressed request has room for the word.
    let null = play(&mut relay, START + Duration::from_secs(2), address(10), &request(9, word));
    assert_eq!(Header::parse(&null[0].1).expect("a null").0.kind, Kind::Null);
    assert_eq!(body(&null).len(), WORDED_BODY_BYTES_MIN);
    assert!(body(&null).starts_with(b"the next"));
}

#[test]
fn a_word_that_soon_expires_is_renewed_with_the_request_accepted() {
    let mut relay = relay();
    let word = word_of(&mut relay, START, address(10));
    let later = START + Duration::from_secs(60);
    let sent = play(&mut relay, later, address(10), &request(7, word));
    let (header, renewed) = word_in(&sent[0].1);
    assert!(header.is_renewal && renewed != word);
    assert_eq!(sent[1].0, address(1), "the request goes up");
    assert_eq!(play(&mut relay, later, address(10), &request(8, renewed)).len(), 1);
    let expired = START + Duration::from_secs(120);
    assert_eq!(play(&mut relay, expired, address(10), &request(9, word))[0].0, address(10));
}

/// 100 000 requests a second from addresses of 250 networks, of every network in turn, and of one.
#[test]
fn a_flood_from_forged_addresses_takes_no_place_and_is_not_amplified() {
    for networks in [65_536_u32, 250, 1] {
        let mut relay = relay();
        let word = word_of(&mut relay, START, address(10));
        let (mut received, mut sent) = (0, BTreeMap::<SocketAddr, usize>::new());
        for step in 0..50_000_u32 {
            let now = START + Duration::from_micros(10 * u64::from(step));
            let network = (step % networks).to_be_bytes();
            let from = SocketAddr::from(([10, network[2], network[3], 1 + step.to_be_bytes()[3] % 250], 9));
            let asked = request(step, [u8::from(step % 2 == 0); WORD_BYTES]);
            received += asked.len();
            for (to, payload) in play(&mut relay, now, from, &asked) {
                *sent.entry(to).or_default() += payload.len();
            }
            if step % 1_000 == 0 {
                let served = play(&mut relay, now, address(10), &request(step, word));
                assert_eq!(served.last().expect("served").0, address(1));
            }
        }
        assert!(sent.values().sum::<usize>() < received);
        let counters = relay.counters();
        assert!(counters.neighbours <= 2, "the receiver and the source");
        let most = u64::from(CHALLENGES_PER_SECOND) * 6 / 10 + 2;
        let most = most.min(u64::from(networks) * (256 + 12));
        assert!(counters.challenges.challenged <= most, "{} of {networks}", counters.challenges.challenged);
        assert!(counters.challenges.unanswered > 0);
    }
}

//! Single packets: signed, listed, replayed, of trees, with a changed bit.

use headwater_wire::auth::Authentication;
use headwater_wire::extensions::Lateness;
use headwater_wire::lct;

use super::*;
use crate::auth::pass::{CHAIN, PassChain, Reference};

pub(super) fn auth(datagram: &[u8]) -> Option<Authentication> {
    Authentication::find(&lct::Packet::new_checked(datagram).unwrap()).unwrap().map(|(auth, _)| auth)
}

#[test]
fn each_packet_is_verified_in_order_and_once() {
    let (mut source, mut front) = (source(), front());
    let sent: Vec<_> = (0..400).map(|_| source.send()).collect();
    // A manifest for each 25 packets, and the first group is signed: one manifest comes before it.
    assert_eq!(sent.iter().filter(|datagram| auth(datagram).is_some()).count(), 400_usize.div_ceil(26) + 25);
    for (index, datagram) in sent.iter().enumerate() {
        assert_eq!(front.on_packet(at(index as u64), BASE, datagram), AuthVerdict::Verified, "{index}");
    }
    for datagram in &sent[120..] {
        let verdict = front.on_packet(at(400), BASE, datagram);
        assert_eq!(verdict, AuthVerdict::Rejected(Rejection::Replayed));
    }
    for datagram in &sent[..120] {
        assert_ne!(front.on_packet(at(400), BASE, datagram), AuthVerdict::Verified);
    }
    front.on_timeout(at(1_000));
    assert!(front.poll_released().is_none());
    assert_eq!(front.counters().ended(), 800);
    assert_eq!(front.session(), Some((&KEY, TSI, STARTED)));
}

#[test]
fn a_channel_without_manifests_signs_each_packet() {
    let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
    for index in 0..100 {
        let datagram = source.send();
        assert_eq!(auth(&datagram).unwrap().number, index + 1);
        assert_eq!(front.on_packet(at(index.into()), BASE, &datagram), AuthVerdict::Verified);
    }
    assert_eq!(source.end.signatures(), 100);
}

#[test]
fn packets_planned_late_and_closing_packets_are_signed() {
    let mut source = source();
    for _ in 0..200 {
        source.plan();
        assert!(auth(&source.send_planned()).is_some(), "planned when it leaves");
    }
    let mut source = self::source();
    for _ in 0..200 {
        source.send();
    }
    while source.end.planned(BASE) > 0 {
        source.send_planned();
    }
    assert_eq!(source.end.next_slot(BASE), Slot::Packet);
    let header = alc::Repr { close_session: true, ..source.header(false) };
    let mut bytes = [0; 100];
    let length = header.emit(&mut bytes).unwrap();
    source.end.plan(BASE, &bytes[..length]).unwrap();
    assert!(auth(&source.send_planned()).is_some());
}

#[test]
fn shed_packets_leave_the_others_verified() {
    let (mut source, mut front) = (source(), front());
    for index in 0..1_000_u64 {
        let datagram = source.send();
        assert_eq!(front.on_packet(at(index), BASE, &datagram), AuthVerdict::Verified, "{index}");
        if index % 3 == 0 && source.end.planned(BASE) > 0 && index % 26 > 2 && index % 26 < 20 {
            assert!(source.end.shed(BASE));
        }
    }
}

#[test]
fn one_signature_serves_a_tree() {
    for count in 2..=16 {
        let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
        (0..count).for_each(|_| source.plan());
        assert_eq!(source.end.sign_tree(BASE), Ok(count));
        let sent: Vec<_> = (0..count).map(|_| source.send_planned()).collect();
        assert_eq!(source.end.signatures(), 1);
        for datagram in sent.iter().rev() {
            assert_eq!(front.on_packet(at(0), BASE, datagram), AuthVerdict::Verified);
        }
        assert_eq!(front.checks(), 1);
        for datagram in &sent {
            let verdict = front.on_packet(at(1), BASE, datagram);
            assert_eq!(verdict, AuthVerdict::Rejected(Rejection::Replayed));
        }
    }
}

#[test]
fn on_request_a_tree_takes_one_check() {
    let config = signing().with_request(true);
    let mut source = Source::new(config, StandIn(KEY), false);
    let mut front = front_of(VerifyingConfig::new(vec![KEY], 1).with_request(true));
    let mut trees = Vec::new();
    for _ in 0..2 {
        (0..16).for_each(|_| source.plan());
        source.end.sign_tree(BASE).unwrap();
        trees.push((0..16).map(|_| source.send_planned()).collect::<Vec<_>>());
    }
    // A relay repeats packets, and a packet with the number of another tree proves nothing.
    for datagram in trees.iter().flatten().chain(&trees[0]) {
        assert_eq!(front.on_packet(at(0), BASE, datagram), AuthVerdict::Verified);
    }
    assert_eq!(front.checks(), 2);
    let mut forged = trees[0][3].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(front.on_packet(at(1), BASE, &forged), AuthVerdict::Rejected(Rejection::Forged));
}

#[test]
fn a_packet_of_one_channel_is_not_accepted_on_another_one() {
    let mut source = Source::new(signing(), StandIn(KEY), false);
    let mut front = front_of(VerifyingConfig::new(vec![KEY], 2));
    front.join(ChannelId(1));
    let datagram = source.send();
    let verdict = front.on_packet(at(0), ChannelId(1), &datagram);
    assert_eq!(verdict, AuthVerdict::Rejected(Rejection::Forged));
    assert_eq!(front.on_packet(at(0), BASE, &datagram), AuthVerdict::Verified);
}

#[test]
fn other_keys_and_earlier_sessions_are_refused() {
    let verdict = |config: SigningConfig, key: PublicKey, front: &mut VerifyingFront<StandIn>| {
        front.on_packet(at(0), BASE, &Source::new(config, StandIn(key), false).send())
    };
    let config = VerifyingConfig::new(vec![[8; 32], KEY], 1).with_started_min(&KEY, STARTED);
    let mut front = front_of(config.clone());
    let earlier = SigningConfig::new(TSI, STARTED - 1, 1, [3; 32]);
    assert_eq!(verdict(signing(), [7; 32], &mut front), AuthVerdict::Rejected(Rejection::Untrusted));
    assert_eq!(verdict(earlier.clone(), KEY, &mut front), AuthVerdict::Rejected(Rejection::Replayed));
    assert_eq!(verdict(signing(), KEY, &mut front), AuthVerdict::Verified);
    assert_eq!(verdict(signing(), [8; 32], &mut front), AuthVerdict::Rejected(Rejection::Untrusted));
    assert_eq!(verdict(earlier, KEY, &mut front), AuthVerdict::Rejected(Rejection::Replayed));
    let later = SigningConfig::new(TSI, STARTED + 1, 1, [3; 32]);
    assert_eq!(verdict(later, KEY, &mut front), AuthVerdict::Rejected(Rejection::Foreign));
    // The earliest start is that of one key.
    let earlier = SigningConfig::new(TSI, STARTED - 1, 1, [3; 32]);
    assert_eq!(verdict(earlier, [8; 32], &mut front_of(config)), AuthVerdict::Verified);
}

#[test]
fn only_a_later_session_of_the_sender_replaces_a_silent_one() {
    let foreign = |tsi, started, key| {
        let config = SigningConfig::new(tsi, started, 1, [3; 32]);
        let mut source = Source { tsi, ..Source::new(config, StandIn(key), false) };
        source.send()
    };
    let mut unsigned = source();
    unsigned.tsi = 8;
    let unsigned = std::iter::repeat_with(|| unsigned.send()).find(|datagram| auth(datagram).is_none());
    let unsigned = unsigned.unwrap();
    let mut stranger = foreign(8, STARTED + 1, KEY);
    *stranger.last_mut().unwrap() ^= 1;
    let (foreign_now, successor) = (Rejection::Foreign, Rejection::Successor);
    let mut front = front();
    front.on_packet(at(0), BASE, &foreign(TSI, STARTED, KEY));
    let cases = [
        (&unsigned, foreign_now),
        (&foreign(8, STARTED + 1, [8; 32]), foreign_now),
        (&stranger, Rejection::Forged),
        (&foreign(8, STARTED - 1, KEY), Rejection::Replayed),
        (&foreign(8, STARTED + 1, KEY), successor),
        // Such a session exists: each of its packets tells.
        (&unsigned, successor),
    ];
    for (datagram, reason) in cases {
        assert_eq!(front.on_packet(at(6_000), BASE, datagram), AuthVerdict::Rejected(reason));
    }
    let mut front = self::front();
    front.on_packet(at(0), BASE, &foreign(TSI, STARTED, KEY));
    for (datagram, _) in cases {
        assert_eq!(front.on_packet(at(4_000), BASE, datagram), AuthVerdict::Rejected(foreign_now));
    }
}

#[test]
fn an_unsigned_session_is_known_by_its_first_packets() {
    let config = VerifyingConfig::new(Vec::new(), 1).with_first_key(true).with_unsigned(true);
    let mut source = source();
    let mut front = front_of(config);
    while source.symbols < 60 {
        source.send();
    }
    let is_unsigned = |datagram: &Vec<u8>| auth(datagram).is_none();
    let unsigned = std::iter::repeat_with(|| source.send()).filter(is_unsigned);
    // 1000 packets in 20 ms.
    for (index, datagram) in unsigned.take(1_000).enumerate() {
        front.on_packet(at(index as u64 / 50), BASE, &datagram);
    }
    while front.poll_released().is_some() {}
    assert_eq!(front.counters(), AuthCounters { unsigned: 1_000, ..AuthCounters::default() });
}

#[test]
fn a_replay_after_another_join_is_refused() {
    let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
    let datagram = source.send();
    assert_eq!(front.on_packet(at(0), BASE, &datagram), AuthVerdict::Verified);
    front.leave(BASE);
    front.join(BASE);
    assert_eq!(front.on_packet(at(1), BASE, &datagram), AuthVerdict::Rejected(Rejection::Replayed));
}

#[test]
fn packets_on_request_are_verified_whatever_the_word_in_the_cci() {
    let config = signing().with_request(true);
    let mut source = Source::new(config, StandIn(KEY), false);
    let mut front = front_of(VerifyingConfig::new(vec![KEY], 1).with_request(true));
    for index in 0..100_u8 {
        let mut datagram = source.send();
        datagram[4..8].fill(index);
        assert_eq!(front.on_packet(at(index.into()), BASE, &datagram), AuthVerdict::Verified);
    }
}

#[test]
fn passes_fit_across_chains() {
    let keys = hash::SessionKeys::new(&KEY, TSI, STARTED, false);
    let mut chain = PassChain::new(&keys, [5; 32], BASE);
    let all: Vec<_> = (1..=3 * CHAIN)
        .map(|number| {
            let (pass, next_pass) = chain.pass(&keys, number);
            Reference { number, pass, next_pass }
        })
        .collect();
    for (index, reference) in all.iter().enumerate() {
        let fits = |later: &Reference| reference.fits(&keys, BASE, later);
        assert!(!fits(reference));
        for step in [1, 2, 16] {
            assert!(all.get(index + step).is_none_or(fits), "{index} and {step} more");
        }
        assert!(!all.get(index + 17).is_some_and(fits));
        let changed = |later: &Reference| Reference { pass: [1; 6], ..*later };
        assert!(!all.get(index + 1).map(changed).is_some_and(|later| fits(&later)));
    }
}

#[test]
fn a_flood_cannot_use_up_the_tries_of_a_genuine_number() {
    let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
    assert_eq!(front.on_packet(at(0), BASE, &source.send()), AuthVerdict::Verified);
    let datagram = source.send();
    let mut forged = datagram.clone();
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..10 {
        assert_eq!(front.on_packet(at(1), BASE, &forged), AuthVerdict::Rejected(Rejection::Forged));
    }
    assert_eq!(front.on_packet(at(1), BASE, &datagram), AuthVerdict::Verified);
}

/// The lateness is written when a packet leaves, after the packet was listed.
#[test]
fn the_lateness_alone_may_change_and_a_copy_with_another_one_counts_no_second_time() {
    let mut listed = source();
    (listed.symbol_bytes, listed.is_stamped) = (8, true);
    let sent: Vec<_> = (0..60).map(|_| listed.send()).collect();
    // A signed packet, a manifest, and a listed packet.
    for index in [3, 26, 30] {
        let packet = lct::Packet::new_checked(&sent[index][..]).unwrap();
        let place = Lateness::place(&packet).expect("stamped");
        for bit in 0..sent[index].len() * 8 {
            let mut front = front();
            for earlier in &sent[..index] {
                assert_eq!(front.on_packet(at(0), BASE, earlier), AuthVerdict::Verified);
            }
            let mut changed = sent[index].clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let is_verified = front.on_packet(at(0), BASE, &changed) == AuthVerdict::Verified;
            assert_eq!(is_verified, place.contains(&(bit / 8)), "packet {index}, bit {bit}");
            if is_verified {
                let again = front.on_packet(at(0), BASE, &sent[index]);
                assert_eq!(again, AuthVerdict::Rejected(Rejection::Replayed), "packet {index}, bit {bit}");
            }
        }
    }
}

#[test]
fn no_changed_bit_is_verified() {
    let mut listed = source();
    listed.symbol_bytes = 8;
    let sent: Vec<_> = (0..60).map(|_| listed.send()).collect();
    let mut tree = Source::new(signing(), StandIn(KEY), false);
    tree.symbol_bytes = 8;
    (0..4).for_each(|_| tree.plan());
    tree.end.sign_tree(BASE).unwrap();
    let leaves: Vec<_> = (0..4).map(|_| tree.send_planned()).collect();
    // A signed packet, a manifest, a listed packet, and a leaf before and after its tree is known.
    for (before, datagram) in [
        (&sent[..3], &sent[3]),
        (&sent[..26], &sent[26]),
        (&sent[..30], &sent[30]),
        (&leaves[..0], &leaves[1]),
        (&leaves[..1], &leaves[1]),
    ] {
        for bit in 0..datagram.len() * 8 {
            let mut front = front();
            for earlier in before {
                assert_eq!(front.on_packet(at(0), BASE, earlier), AuthVerdict::Verified);
            }
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(front.on_packet(at(0), BASE, &changed), AuthVerdict::Verified, "bit {bit}");
            assert_eq!(front.on_packet(at(0), BASE, datagram), AuthVerdict::Verified, "bit {bit}");
        }
    }
}

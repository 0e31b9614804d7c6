//! A stranger on the receiver's network, who sees each packet and forges others.

use headwater_wire::auth::{Authentication, insert_manifest};
use headwater_wire::lct;

use super::packets::auth;
use super::*;

/// Returns a symbol of the session with made-up content.
fn forged_symbol(source: &mut Source, rng: &mut Stream) -> Vec<u8> {
    let header = source.header(true);
    let mut bytes = vec![0; 1_340];
    header.emit(&mut bytes).unwrap();
    rng.fill_bytes(&mut bytes[24..]);
    bytes
}

/// Returns a manifest of a made-up tag with the latest genuine pass, under a number that may come.
fn forged_manifest(latest: &Authentication, rng: &mut Stream) -> Vec<u8> {
    let header = alc::Repr { toi: None, payload_id: None, ..source().header(false) };
    let mut bytes = vec![0; 300];
    let length = header.emit(&mut bytes).unwrap();
    let length = insert_manifest(&mut bytes, length, [rng.random()].into_iter()).unwrap();
    let number = latest.number + rng.random_range(0..=16);
    let mut auth = Authentication { number, ..*latest };
    rng.fill_bytes(&mut auth.signature);
    let end = auth.insert(&mut bytes, length).unwrap().end;
    bytes.truncate(end);
    bytes
}

/// Genuine packets that arrive at 20 % of loss, and those of them that are verified, beside a flood or not.
fn verified_of_arrivals(slots: u64, is_flooded: bool) -> (u32, u32) {
    let (mut source, mut strange, mut front) = (source(), source(), front());
    let (mut rng, mut loss) = (Seed(4).stream("stranger", 0), Seed(4).stream("loss", 0));
    let (mut arrived, mut verified, mut sent, mut memory_max) = (0, 0, 0, 0);
    let mut latest: Option<Authentication> = None;
    for index in 0..slots {
        let datagram = source.send();
        // In any order, and evenly over the millisecond. The stranger has seen the packets of the one before.
        let mut packets = Vec::new();
        if let Some(latest) = latest.as_ref().filter(|_| is_flooded) {
            packets.extend((0..10).map(|_| forged_symbol(&mut strange, &mut rng)));
            packets.extend((0..40).map(|_| forged_manifest(latest, &mut rng)));
        }
        let packet = lct::Packet::new_checked(datagram.as_slice()).unwrap();
        latest = Authentication::find(&packet).unwrap().map(|(auth, _)| auth).or(latest);
        let genuine = rng.random_range(0..=packets.len());
        packets.insert(genuine, datagram);
        let is_lost = loss.random::<f64>() < 0.2;
        for (place, bytes) in packets.iter().enumerate() {
            let is_genuine = place == genuine;
            if is_genuine && is_lost {
                continue;
            }
            (sent, arrived) = (sent + 1, arrived + u32::from(is_genuine));
            let now = at(index) + Duration::from_micros(19 * place as u64);
            let is_verified = front.on_packet(now, BASE, bytes) == AuthVerdict::Verified;
            assert!(is_genuine || !is_verified);
            verified += u32::from(is_verified);
            while let Some(released) = front.poll_released() {
                assert!(symbol(released.bytes).is_some_and(|number| u64::from(number) <= index));
                verified += 1;
            }
            memory_max = memory_max.max(front.memory_bytes());
        }
    }
    front.on_timeout(at(slots + 1_000));
    assert_eq!(front.counters().ended(), sent, "each packet is counted once");
    let (counters, checks) = (front.counters(), front.checks());
    println!("{verified} of {arrived} verified, {checks} checks, {memory_max} bytes, {counters:?}");
    assert!(memory_max <= WAITING_BYTES_MAX + SAMPLE_BYTES + 20_000, "{memory_max}");
    // The wide sample until the first verified packet, 200 a second, four of each number whose pass is known,
    // a sample of 2000 a second, and the genuine ones.
    let bound = 2_000 + slots / 5 + 4 * source.end.signatures() + 2 * slots + source.end.signatures();
    assert!(checks <= bound, "{checks} checks, at most {bound}");
    (arrived, verified)
}

#[test]
fn floods_are_not_verified_and_displace_nothing() {
    let (arrived, quiet) = verified_of_arrivals(10_000, false);
    let (again, flooded) = verified_of_arrivals(10_000, true);
    assert_eq!(arrived, again, "the same losses");
    assert!(f64::from(flooded) >= 0.995 * f64::from(quiet), "{flooded} beside a flood, {quiet} without");
}

/// Time until the first verified packet of each of 100 receivers, in seconds and ascending, beside so many
/// forged signatures a second. Genuine signatures come 10 times a second, at random times; in each
/// millisecond the forged packets come first, all at once.
fn first_verified(forged_a_second: u64) -> Vec<f64> {
    let first = |seed| {
        let mut source = Source::new(signing(), StandIn(KEY), false);
        let mut rng = Seed(seed).stream("stranger", 0);
        let config = VerifyingConfig::new(vec![KEY], 1);
        let mut front = VerifyingFront::new(config, StandIn(KEY), Seed(seed).stream("front", 0));
        front.join(BASE);
        let latest = auth(&source.send()).unwrap();
        let forged = forged_manifest(&latest, &mut rng);
        for index in 0..20_000 {
            for _ in 0..forged_a_second / 1_000 {
                front.on_packet(at(index), BASE, &forged);
            }
            if rng.random::<f64>() < 0.01 {
                front.on_packet(at(index), BASE, &source.send());
            }
            if front.session().is_some() {
                return index as f64 / 1_000.0;
            }
        }
        f64::INFINITY
    };
    let mut times: Vec<_> = (0..100).map(first).collect();
    times.sort_by(f64::total_cmp);
    println!("{forged_a_second}/s: first verified: median {:.2} s, 95 % {:.2} s", times[50], times[94]);
    times
}

#[test]
fn a_late_receiver_verifies_its_first_packet_beside_forged_signatures_that_come_first() {
    let times = first_verified(100_000);
    assert!(times[94] <= 2.0, "{}", times[94]);
}

#[test]
fn copies_that_come_before_each_genuine_signature_displace_none() {
    let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
    let mut rng = Seed(1).stream("stranger", 0);
    for index in 0..200 {
        let genuine = source.send();
        for _ in 0..20 {
            let mut copy = genuine.clone();
            let place = rng.random_range(40..copy.len());
            copy[place] ^= 1;
            front.on_packet(at(100 * index), BASE, &copy);
        }
        front.on_packet(at(100 * index), BASE, &genuine);
        front.on_timeout(at(100 * index + 99));
        while front.poll_released().is_some() {}
        assert_eq!(front.counters().verified, index + 1);
    }
}

#[test]
fn a_receiver_that_was_cut_off_verifies_again_beside_forged_signatures() {
    let mut times = Vec::new();
    for seed in 0..20 {
        let (mut source, mut front) = (Source::new(signing(), StandIn(KEY), false), front());
        let mut rng = Seed(seed).stream("stranger", 0);
        front.on_packet(at(0), BASE, &source.send());
        // No pass fits any more.
        (0..40).for_each(|_| _ = source.send());
        let latest = auth(&source.send()).unwrap();
        let forged = forged_manifest(&latest, &mut rng);
        let back = (4_000..20_000).find(|&index| {
            for _ in 0..40 {
                front.on_packet(at(index), BASE, &forged);
            }
            if index % 100 == 0 {
                front.on_packet(at(index), BASE, &source.send());
            }
            while front.poll_released().is_some() {}
            front.counters().verified > 1
        });
        times.push(back.map_or(f64::INFINITY, |index| index as f64 / 1_000.0 - 4.0));
    }
    times.sort_by(f64::total_cmp);
    assert!(times[18] <= 2.0, "{times:?}");
}

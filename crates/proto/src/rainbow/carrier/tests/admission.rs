//! Admission of addresses, and the highest rate of a source.

use super::*;

/// A request of an address, that brings this.
fn request(
    sender: &mut RainbowCarrierSender,
    now: Instant,
    from: SocketAddr,
    label: u32,
    body: &[u8],
) -> Option<[u8; 4]> {
    let payload = asking(label, body);
    sender.feedback(now, &Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload: &payload });
    let departure = sender.departure(now)?;
    assert_eq!(sender.responder().unwrap().request().unwrap().destination, Destination::Unicast(from));
    sender.departed(now, 300);
    Some(departure.cci.as_bytes().try_into().unwrap())
}

fn forged(step: u64) -> SocketAddr {
    let [.., high, low] = step.to_be_bytes();
    SocketAddr::new([10, 7, high, low].into(), 9)
}

/// The highest rate is 87 packets a second, and 16 requests wait at the most.
#[test]
fn made_up_addresses_do_not_take_all_of_a_low_rate() {
    let rate = Rate::from_kilobits(1_000);
    let mut sender = RainbowCarrierSender::new(config().with_max_rate(Some(rate), 1_444));
    let ask = |sender: &mut RainbowCarrierSender, now, from, body: &[u8]| {
        let payload = asking(1, body);
        sender.feedback(
            now,
            &Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload: &payload },
        );
    };
    let (mut word, mut asked, mut served, mut others) = (Vec::new(), 0, 0, 0);
    for step in 0..100_000_u64 {
        let now = at(step / 10);
        ask(&mut sender, now, forged(step), &[]);
        if step % 200 == 0 {
            asked += 1;
            ask(&mut sender, now, host(1), &word);
        }
        while let Some(departure) = sender.departure(now) {
            if sender.responder().unwrap().request().unwrap().destination == Destination::Unicast(host(1)) {
                served += 1;
                word = departure.cci.as_bytes().to_vec();
            } else {
                others += 1;
            }
            sender.departed(now, 1_444);
        }
    }
    assert!(served > asked * 9 / 10, "{served} of {asked}");
    assert!((200..=240).contains(&others), "a quarter of the rate in ten seconds: {others}");
}

#[test]
fn made_up_addresses_are_answered_slowly_and_cannot_hold_up_who_hears() {
    let mut sender = RainbowCarrierSender::new(config());
    let word = request(&mut sender, at(0), host(1), 1, &[]).unwrap();
    assert!(request(&mut sender, at(0), host(1), 1, &word).is_some());
    let (mut answered, mut served) = (0, 0);
    for step in 0..20_000_u64 {
        let now = at(step / 10);
        answered += u64::from(request(&mut sender, now, forged(step), 1, &word).is_some());
        if step % 10 == 0 {
            // Also those that bring nothing, as when a relay tells that somebody still waits.
            let brings = if step % 20 == 0 { &word[..] } else { &[] };
            served += u64::from(request(&mut sender, now, host(1), 2, brings).is_some());
        }
    }
    let allowed = 2 * u64::from(UNPROVEN_PER_SECOND);
    assert!(answered <= allowed + 110 && answered >= allowed, "{answered} in two seconds");
    assert_eq!(served, 2_000);
    assert_eq!(sender.counters().unproven, 20_000 - answered);
    // What an address has shown does not hold for ever.
    let later = at(60_000);
    let flood = (0..1_000).filter(|_| request(&mut sender, later, host(1), 2, &[]).is_some()).count();
    assert!(flood <= 110, "{flood}");
}

#[test]
fn an_address_that_hears_may_ask_so_fast() {
    let mut sender = RainbowCarrierSender::new(config().with_requests_per_second(1_000));
    let word = request(&mut sender, at(0), host(1), 1, &[]).unwrap();
    let answered =
        (0..50_000).filter(|step| request(&mut sender, at(step / 10), host(1), 1, &word).is_some()).count();
    assert!((5_000..=5_110).contains(&answered), "{answered} in five seconds");
    assert!(sender.counters().too_fast > 44_000);
}

#[test]
fn a_highest_rate_is_kept_and_few_requests_wait() {
    let rate = Rate::from_kilobits(1_000);
    let mut sender = RainbowCarrierSender::new(config().with_max_rate(Some(rate), 500));
    let word = request(&mut sender, at(0), host(1), 1, &[]).unwrap();
    let mut sent = 0;
    let payload = asking(1, &word);
    for step in 0..20_000 {
        let now = at(step / 2);
        let datagram = Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload: &payload };
        sender.feedback(now, &datagram);
        while sender.departure(now).is_some() {
            sender.departed(now, 500);
            sent += 1;
        }
    }
    assert!((2_490..=2_510).contains(&sent), "{sent} packets of 4 kbit in 10 s");
    let after = (0..100).filter(|_| {
        let due = sender.next_departure().is_some();
        sender.departed(at(20_000), 500);
        due
    });
    assert!(after.count() <= 25, "a tenth of a second");
}

/// Answers requests, of which twenty always wait, for 30 s from `begin` with a driver that takes `packet_ms`
/// for each packet. Returns how many packets left in the last 10 s.
fn answered(sender: &mut RainbowCarrierSender, begin: Instant, packet_ms: u64) -> u32 {
    let (mut word, mut waiting, mut answered) = (Vec::new(), 0, 0);
    let (mut now, end) = (begin, begin + Duration::from_secs(30));
    while now < end {
        for label in waiting..20_u32 {
            let payload = asking(label, &word);
            let datagram =
                Datagram { source: host(0), channel: None, ecn: Ecn::NotCapable, payload: &payload };
            sender.feedback(now, &datagram);
        }
        waiting = 20;
        let mut done = now;
        while let Some(departure) = sender.departure(now) {
            word = departure.cci.as_bytes().to_vec();
            sender.departed(now, 500);
            (waiting, done) = (waiting - 1, done + Duration::from_millis(packet_ms));
            answered += u32::from(now >= begin + Duration::from_secs(20));
        }
        now = done.max(sender.next_departure().unwrap_or(now)).max(now + Duration::from_millis(1));
    }
    answered
}

#[test]
fn a_highest_rate_settles_below_what_the_driver_sends() {
    // A packet each 10 ms.
    let rate = Rate::from_kilobits(400);
    let mut sender = RainbowCarrierSender::new(config().with_max_rate(Some(rate), 500));
    assert!((990..=1_010).contains(&answered(&mut sender, at(1_000), 1)));
    assert_eq!(sender.overload(), None);
    let answered = answered(&mut sender, at(31_000), 25);
    let overload = sender.overload().expect("the driver sends two fifths");
    assert!((0.25..=0.44).contains(&overload.share), "{overload:?}");
    assert!((250..=400).contains(&answered), "{answered} packets in 10 s");
}

/// Without requests nothing is late.
#[test]
fn few_requests_are_no_overload() {
    let mut sender = RainbowCarrierSender::new(config().with_max_rate(Some(Rate::from_kilobits(400)), 500));
    for step in 0..600 {
        request(&mut sender, at(100 * step), host(0), 1, &[]).expect("answered at once");
        assert_eq!(sender.overload(), None);
    }
}

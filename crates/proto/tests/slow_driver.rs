//! Senders whose driver cannot send what is due in time: levels are left out from the highest one down, one
//! rate is sent evenly, and receivers follow.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fec::{Order, Scheme};
use headwater_proto::control::{Arrival, Departure, Membership, ReceiverControl, SenderControl};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, FileToSend, MemorySource, PlanConfig, RelativePath, SessionPlan,
};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Duration, Input, Instant, Machine, Rate, Seed, fixed, flid, le_sbcc, m2c,
    pgm, sim, webrc,
};
use headwater_wire::pgm::Gsi;

const PACKET_BYTES: u16 = 1_440;
const MAX: Rate = Rate::from_kilobits(8_000);
/// Packets per second of that rate.
const PACKETS: f64 = 8e6 / (8.0 * 1_440.0);
/// Part of the rate that the slow driver sends.
const SHARE: f64 = 0.4;
const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// A driver like that of sockets: it sends what is due at the beginning of a turn, which takes a time for
/// each packet.
struct Driver<C> {
    sender: C,
    now: Instant,
    /// Time by which the driver wakes late whenever it sleeps.
    late: Duration,
}

impl<C: SenderControl> Driver<C> {
    fn new(sender: C) -> Self {
        Self { sender, now: Instant::ZERO, late: Duration::ZERO }
    }

    /// Sends at most `share` of [`PACKETS`] per second until `end`, and shows when each packet left.
    fn run(&mut self, end: Instant, share: f64, mut see: impl FnMut(Instant, &Departure)) {
        let gap = Duration::from_secs_f64(1.0 / (share * PACKETS));
        loop {
            let next = self.sender.next_departure().into_iter().chain(self.sender.poll_timeout()).min();
            let next = next.expect("senders go on");
            let now = if next > self.now { next + self.late } else { self.now };
            if now >= end {
                return;
            }
            self.sender.timeout(now);
            let mut done = now;
            while let Some(departure) = self.sender.departure(now) {
                done += gap;
                see(done, &departure);
                self.sender.departed(now, PACKET_BYTES.into());
            }
            self.now = done;
        }
    }
}

fn layers(shape: Shape) -> DynamicConfig {
    let config = match shape {
        Shape::Geometric => DynamicConfig::fine(PACKET_BYTES, MAX),
        Shape::Webrc => DynamicConfig::new(PACKET_BYTES, MAX).with_shape(shape),
    };
    config.with_base_rate(Rate::from_kilobits(120))
}

fn dynamic(shape: Shape) -> DynamicSender {
    DynamicSender::new(DynamicChannels::new(layers(shape), Instant::ZERO).expect("sound numbers"))
}

fn flid_layers() -> flid::FlidConfig {
    flid::FlidConfig::dynamic_layers(PACKET_BYTES, MAX).with_base_rate(Rate::from_kilobits(120))
}

fn flid_dl() -> flid::FlidSender {
    flid::FlidSender::new(flid::Layers::new(&flid_layers(), Instant::ZERO).expect("sound numbers"))
}

/// What of its levels a sender with a slow driver sends, and that it sends all again with a fast one.
fn sheds_the_highest_levels(sender: impl SenderControl) {
    let mut driver = Driver::new(sender);
    driver.run(at(2), 10.0, |now, departure| {
        assert!(now.since(departure.at) < Duration::from_millis(100) && departure.levels.is_none());
    });
    let (low, mut late) = (driver.sender.levels() / 3, Duration::ZERO);
    driver.run(at(20), SHARE, |now, departure| {
        if departure.level <= low {
            late = late.max(now.since(departure.at));
        }
    });
    assert!(late < Duration::from_millis(100), "the lowest levels are {late:?} late while the ceiling falls");
    let (from, to) = (at(20), at(60));
    let (mut sent, mut ceilings, mut latest) = (Vec::new(), BTreeSet::new(), Duration::ZERO);
    driver.run(to + Duration::from_secs(1), SHARE, |now, departure| {
        ceilings.extend(departure.levels.map(|levels| u16::from(levels.ceiling)));
        if departure.level <= low {
            latest = latest.max(now.since(departure.at));
        }
        // A late packet of the slot before counts by that slot's levels.
        let is_of_now = now.since(departure.at) < Duration::from_millis(5);
        assert!(departure.levels.is_none_or(|levels| !is_of_now || departure.level <= levels.ceiling.into()));
        sent.push(*departure);
    });
    assert!(latest < Duration::from_millis(100), "the lowest levels are {latest:?} late");
    let overload = driver.sender.overload().expect("it cannot send all");
    // Rates fall within a slot, and a level more may just be tried.
    assert!((0.5 * SHARE..1.5 * SHARE).contains(&overload.share), "{overload:?}");
    let (lowest, highest) = (*ceilings.first().expect("told"), *ceilings.last().expect("told"));
    assert!(highest < driver.sender.levels() - 1, "the highest level is not sent");
    // The ceiling tries levels above those that the driver keeps up with; all below are complete.
    let layering = driver.sender.layering().expect("several levels");
    let mut begin = from;
    while begin < to {
        let end = layering.next_boundary(begin).unwrap_or(to).min(to);
        for level in 0..=lowest {
            let of_level = |sent: &&Departure| sent.level == level && sent.at >= begin && sent.at < end;
            let count = sent.iter().filter(of_level).count() as u64;
            assert_eq!(count, layering.packets(level, begin, end), "level {level} of {lowest}");
        }
        begin = end;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of packets")]
    let rate = sent.len() as f64 / 41.0;
    assert!(rate > 0.6 * SHARE * PACKETS, "{rate} packets/s of {}", SHARE * PACKETS);

    driver.run(at(240), 10.0, |_, _| ());
    assert_eq!(driver.sender.overload(), None, "a driver that keeps up sends all");
}

#[test]
fn m2c_sheds_the_highest_levels() {
    sheds_the_highest_levels(dynamic(Shape::Geometric));
}

#[test]
fn webrc_sheds_the_highest_levels() {
    sheds_the_highest_levels(dynamic(Shape::Webrc));
}

#[test]
fn flid_dl_sheds_the_highest_levels() {
    sheds_the_highest_levels(flid_dl());
}

/// A driver that sends each packet when it may leave keeps the order of the schedule: from 35 packets per
/// second on, which are 23 ms apart.
fn keeps_the_order<C: SenderControl>(sender: impl Fn(Rate) -> C) {
    for kilobits in [400, 1_000, 8_000, 100_000] {
        let mut sender = sender(Rate::from_kilobits(kilobits));
        let mut last = Instant::ZERO;
        while let Some(now) = sender.next_departure().filter(|now| *now < at(30)) {
            let departure = sender.departure(now).expect("due");
            assert!(departure.at >= last, "{kilobits} kbit/s: {departure:?} after one of {last:?}");
            last = departure.at;
            sender.departed(now, PACKET_BYTES.into());
        }
    }
}

fn dynamic_up_to(max: Rate, shape: Shape) -> DynamicSender {
    let config = DynamicConfig::new(PACKET_BYTES, max).with_shape(shape);
    let config = config.with_base_rate(Rate::from_kilobits(40));
    DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).expect("sound numbers"))
}

#[test]
fn m2c_keeps_the_order_of_the_schedule() {
    keeps_the_order(|max| dynamic_up_to(max, Shape::Geometric));
}

#[test]
fn webrc_keeps_the_order_of_the_schedule() {
    keeps_the_order(|max| dynamic_up_to(max, Shape::Webrc));
}

#[test]
fn flid_dl_keeps_the_order_of_the_schedule() {
    keeps_the_order(|max| {
        let config = flid::FlidConfig::dynamic_layers(PACKET_BYTES, max);
        let config = config.with_base_rate(Rate::from_kilobits(40));
        flid::FlidSender::new(flid::Layers::new(&config, Instant::ZERO).expect("sound numbers"))
    });
}

/// A driver that was away does not lower the ceiling, however long it was.
#[test]
fn a_pause_leaves_no_level_out() {
    for pause_ms in [100, 400, 900, 5_000, 60_000] {
        let mut driver = Driver::new(dynamic(Shape::Geometric));
        driver.run(at(5), 10.0, |_, _| ());
        driver.now += Duration::from_millis(pause_ms);
        driver.run(at(90), 10.0, |_, departure| assert_eq!(departure.levels, None, "after {pause_ms} ms"));
    }
}

/// Two pauses in half a second do not either: a busy machine, or one whose time another takes.
#[test]
fn two_pauses_leave_no_level_out() {
    for phase in 0..10 {
        let mut driver = Driver::new(dynamic(Shape::Geometric));
        let begin = at(5) + Duration::from_millis(50 * phase);
        driver.run(begin, 10.0, |_, _| ());
        driver.now = begin + Duration::from_millis(300);
        driver.run(begin + Duration::from_millis(400), 10.0, |_, _| ());
        driver.now += Duration::from_millis(300);
        driver.run(at(60), 10.0, |_, departure| assert_eq!(departure.levels, None, "phase {phase}"));
    }
}

fn stamped() -> DynamicSender {
    let mut sender = dynamic(Shape::Geometric);
    sender.stamp_departures();
    sender
}

fn lateness(departure: &Departure) -> Duration {
    departure.lateness.map_or(Duration::ZERO, |lateness| Duration::from_micros(lateness.micros.into()))
}

/// A sender that tells its lateness lets the schedule slip: nothing is skipped, the ceiling falls to what the
/// driver sends, and the levels below come at nearly their rates.
#[test]
fn a_schedule_that_slips_skips_nothing_and_sheds_the_highest_levels() {
    let mut driver = Driver::new(stamped());
    let mut last = BTreeMap::<(ChannelId, u32), u32>::new();
    let (from, to) = (at(20), at(60));
    let (mut base, mut gaps) = (0_u64, 0);
    driver.run(to, SHARE, |now, departure| {
        let cci = departure.cci.webrc().unwrap();
        if departure.channel == ChannelId::BASE {
            let before = last.insert((departure.channel, 0), cci.sequence);
            gaps += u32::from(before.is_some_and(|before| cci.sequence != before + 1));
            base += u64::from(now >= from);
        }
    });
    assert_eq!(gaps, 0, "packets of the base were skipped");
    let overload = driver.sender.overload().expect("it cannot send all");
    assert!((0.5 * SHARE..1.5 * SHARE).contains(&overload.share), "{overload:?}");
    let scheduled = driver.sender.layering().unwrap().packets(0, from, to);
    assert!(base * 10 >= scheduled * 8, "{base} packets of the base of {scheduled}");
    driver.run(at(240), 10.0, |_, _| ());
    assert_eq!(driver.sender.overload(), None, "a driver that keeps up sends all");
}

#[test]
fn a_receiver_takes_what_a_schedule_that_slips_sends() {
    let receiver = m2c::Receiver::new(layers(Shape::Geometric), m2c::ReceiverConfig::new()).unwrap();
    is_served(stamped(), receiver, 40);
}

/// Another program has the sender's processor for 40 ms of each 100 ms.
#[test]
fn a_sender_that_is_away_looks_like_no_queue() {
    let mut driver = Driver::new(stamped());
    let mut receiver = m2c::Receiver::new(layers(Shape::Geometric), m2c::ReceiverConfig::new()).unwrap();
    receiver.start(Instant::ZERO);
    let mut held = vec![false; usize::from(SenderControl::channels(&driver.sender))];
    for tenths in 0..300 {
        driver.run(Instant::ZERO + Duration::from_millis(100 * tenths + 60), 10.0, |now, departure| {
            while let Some(membership) = receiver.poll_membership() {
                let (ChannelId(channel), joined) = match membership {
                    Membership::Join(channel) => (channel, true),
                    Membership::Leave(channel) => (channel, false),
                };
                held[usize::from(channel)] = joined;
            }
            if held[usize::from(departure.channel.0)] {
                let Departure { channel, ref cci, ecn, .. } = *departure;
                if channel == ChannelId::BASE {
                    receiver.limited(now, departure.levels);
                }
                let (bytes, lateness) = (PACKET_BYTES.into(), lateness(departure));
                let arrival = Arrival { source: SENDER.into(), channel, cci, ecn, bytes, lateness };
                receiver.arrived(now, &arrival);
            }
        });
        driver.now = Instant::ZERO + Duration::from_millis(100 * (tenths + 1));
    }
    let (levels, reception) = (receiver.status(driver.now).unwrap().levels, receiver.reception());
    assert_eq!(reception.lost, 0);
    assert!(levels + 3 >= driver.sender.levels(), "{levels} of {} levels", driver.sender.levels());
}

/// What a receiver gets of a sender with a slow driver, over a path that carries all.
fn is_served<R: ReceiverControl>(sender: impl SenderControl, mut receiver: R, settled: u64) {
    let mut held = vec![false; usize::from(sender.channels())];
    let mut apply = |receiver: &mut R| {
        while let Some(membership) = receiver.poll_membership() {
            let (ChannelId(channel), joined) = match membership {
                Membership::Join(channel) => (channel, true),
                Membership::Leave(channel) => (channel, false),
            };
            assert_ne!(std::mem::replace(&mut held[usize::from(channel)], joined), joined);
        }
        held.clone()
    };
    let mut driver = Driver::new(sender);
    driver.run(at(10), SHARE, |_, _| ());
    receiver.start(driver.now);
    apply(&mut receiver);
    let (mut sent, mut before) = (0_u32, None);
    driver.run(at(settled + 100), SHARE, |now, departure| {
        if now >= at(settled) {
            sent += 1;
            before.get_or_insert(receiver.reception());
        }
        while receiver.poll_timeout().is_some_and(|due| due <= now) {
            receiver.timeout(now);
        }
        if apply(&mut receiver)[usize::from(departure.channel.0)] {
            let Departure { channel, ref cci, ecn, .. } = *departure;
            if channel == ChannelId::BASE {
                receiver.limited(now, departure.levels);
            }
            let bytes = PACKET_BYTES.into();
            let lateness = lateness(departure);
            receiver.arrived(now, &Arrival { source: SENDER.into(), channel, cci, ecn, bytes, lateness });
        }
        apply(&mut receiver);
    });
    let (before, after) = (before.expect("sent"), receiver.reception());
    let (came, lost) = (after.packets - before.packets, after.lost - before.lost);
    assert!(came * 10 >= u64::from(sent) * 9, "{came} of {sent} packets came, {lost} lost");
    assert!(lost * 100 <= came, "{lost} packets lost beside {came}");
}

#[test]
fn an_m2c_receiver_takes_what_is_sent() {
    let receiver = m2c::Receiver::new(layers(Shape::Geometric), m2c::ReceiverConfig::new()).unwrap();
    is_served(dynamic(Shape::Geometric), receiver, 40);
}

#[test]
fn a_webrc_receiver_takes_what_is_sent() {
    let receiver =
        webrc::WebrcReceiver::new(layers(Shape::Webrc), webrc::WebrcReceiverConfig::new()).unwrap();
    is_served(dynamic(Shape::Webrc), receiver, 120);
}

#[test]
fn a_flid_dl_receiver_takes_what_is_sent() {
    let receiver = flid::FlidReceiver::new(flid_layers(), flid::FlidReceiverConfig::new()).unwrap();
    is_served(flid_dl(), receiver, 300);
}

/// One rate, or several that are a fixed or highest rate together, settles somewhat below what the driver
/// sends.
fn settles<C: SenderControl>(sender: C) -> Driver<C> {
    let mut driver = Driver::new(sender);
    driver.run(at(10), 10.0, |_, _| ());
    assert_eq!(driver.sender.overload(), None);
    driver.run(at(40), SHARE, |_, _| ());
    let (mut sent, mut last, mut longest) = (0_u32, driver.now, Duration::ZERO);
    driver.run(at(70), SHARE, |now, _| {
        sent += 1;
        longest = longest.max(now.since(last));
        last = now;
    });
    let rate = f64::from(sent) / 30.0;
    assert!((0.7 * SHARE * PACKETS..=SHARE * PACKETS).contains(&rate), "{rate} of {}", SHARE * PACKETS);
    assert!(longest < Duration::from_millis(20), "a silence of {longest:?}");
    let overload = driver.sender.overload().expect("it cannot send all");
    assert!((0.5 * SHARE..=1.1 * SHARE).contains(&overload.share), "{overload:?}");
    driver
}

fn settles_and_recovers(sender: impl SenderControl) {
    let mut driver = settles(sender);
    driver.run(at(240), 10.0, |_, _| ());
    assert_eq!(driver.sender.overload(), None, "a driver that keeps up sends all");
}

#[test]
fn one_rate_settles_below_what_the_driver_sends() {
    settles_and_recovers(fixed::FixedSender::new(MAX, Instant::ZERO));
}

#[test]
fn le_sbcc_settles_below_what_the_driver_sends() {
    let config = le_sbcc::LeSbccConfig::new(PACKET_BYTES).with_initial_rate(MAX).with_max_rate(MAX);
    let chain = le_sbcc::Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
    let (sender, group) = (SENDER.0.into(), [239, 255, 72, 87].into());
    let session = pgm::PgmSession { gsi: Gsi([7; 6]), source_port: 9, destination_port: 7_500, group };
    settles_and_recovers(pgm::carrier::PgmCarrierSender::new(session, sender, 4_096, chain, Instant::ZERO));
}

/// Its rates rise again with receivers' reports only.
#[test]
fn sim_settles_below_what_the_driver_sends() {
    let config = sim::SimConfig::new(1, PACKET_BYTES).with_initial_rate(MAX).with_max_rate(MAX);
    settles(sim::SimSender::new(config, Instant::ZERO));
}

/// The driver of a busy machine is late whenever it sleeps. It sends what it can, and its rate does not fall
/// again and again: at a lower rate it is as late.
fn sends_from_a_busy_machine<C: SenderControl>(sender: impl Fn() -> C) {
    let sent = |late_ms| {
        let mut driver = Driver::new(sender());
        driver.late = Duration::from_millis(late_ms);
        driver.run(at(60), 10.0, |_, _| ());
        let mut sent = 0_u32;
        driver.run(at(90), 10.0, |_, _| sent += 1);
        (driver, f64::from(sent))
    };
    let (_, on_time) = sent(0);
    // Late by more than a burst, a driver sends a burst each time: 10 of 40 ms. SIM's rates fall once, and
    // rise with reports alone.
    for (late_ms, least) in [(10, 0.9), (20, 0.2), (40, 0.1)] {
        let (mut driver, late) = sent(late_ms);
        let share = late / on_time;
        assert!(share > least, "late by {late_ms} ms, the sender sends {share} of its rate");
        driver.late = Duration::ZERO;
        driver.run(at(200), 10.0, |_, _| ());
        assert_eq!(driver.sender.overload(), None, "a driver that is on time sends all");
    }
}

#[test]
fn m2c_sends_from_a_busy_machine() {
    sends_from_a_busy_machine(|| dynamic(Shape::Geometric));
}

#[test]
fn webrc_sends_from_a_busy_machine() {
    sends_from_a_busy_machine(|| dynamic(Shape::Webrc));
}

#[test]
fn flid_dl_sends_from_a_busy_machine() {
    sends_from_a_busy_machine(flid_dl);
}

#[test]
fn one_rate_is_sent_from_a_busy_machine() {
    sends_from_a_busy_machine(|| fixed::FixedSender::new(MAX, Instant::ZERO));
}

#[test]
fn sim_sends_from_a_busy_machine() {
    sends_from_a_busy_machine(|| {
        let config = sim::SimConfig::new(1, PACKET_BYTES).with_initial_rate(MAX).with_max_rate(MAX);
        sim::SimSender::new(config, Instant::ZERO)
    });
}

/// A sender of a file whose content waits for five seconds, polled as often as the sender asks for. Checks
/// that the sender then sends at its rate.
fn waits_and_sends_at_its_rate(control: impl SenderControl) {
    let path = RelativePath::new("file").expect("a name");
    let file = FileToSend { path, bytes: 200_000, mode: None, modified: None };
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 1_408, order: Order::Window };
    let plan = SessionPlan::new(vec![file], config).expect("a plan");
    let source = MemorySource::new(&plan, &[&[7; 200_000]]);
    let digests = source.digests();
    let mut sender = DeliverySender::new(DeliverySenderConfig::new(1), &plan, &digests, control, source)
        .expect("a sender");
    sender.hold(true);
    let (mut buffer, mut begun) = (vec![0; DATAGRAM_BYTES_MAX], 0);
    let mut poll = |sender: &mut DeliverySender<_, _>, from: Instant, until: Instant| {
        while let Some(now) = sender.poll_timeout().map(|now| now.max(from)).filter(|now| *now < until) {
            sender.handle(now, Input::Timeout);
            while sender.poll_output(now, &mut buffer).is_some() {}
        }
        sender.stats().bytes - core::mem::replace(&mut begun, sender.stats().bytes)
    };
    assert!(poll(&mut sender, at(0), at(5)) < 10_000, "the FDT alone");
    sender.hold(false);
    let bytes = poll(&mut sender, at(5), at(10));
    assert!(sender.control().overload().is_none(), "a wait for receivers is no overload");
    assert!((4_800_000..5_200_000).contains(&bytes), "{bytes} bytes in 5 s at 8 Mb/s");
}

#[test]
fn a_wait_for_receivers_is_no_overload() {
    waits_and_sends_at_its_rate(fixed::FixedSender::new(MAX, Instant::ZERO));
}

//! A sender of levels that follows its receivers' reports: quiet without receivers, and as fast as without
//! reports for those who are there.

mod signed;
mod uplink;

mod support {
    use core::cmp::Reverse;
    use core::net::SocketAddr;
    use std::collections::{BTreeMap, BinaryHeap, VecDeque};

    use headwater_proto::control::{
        Arrival, DemandRates, Departure, Membership, ReceiverControl, SenderControl,
    };
    use headwater_proto::controls::{Control, Description, M2C};
    use headwater_proto::described::{DescribedReceiver, DescribedReceiverConfig};
    use headwater_proto::{ChannelId, Datagram, Duration, Ecn, Instant, Rate, Seed};
    use headwater_wire::rtt::{Demand, Message};

    use super::signed::{Header, SignedSender};
    use super::uplink::Uplink;

    /// UDP payload of a packet.
    pub const BYTES: u16 = 1_424;
    /// Idle rate of a sender in packets per second: 1.2 Mbit/s.
    pub const IDLE: f64 = 1_200_000.0 / (8.0 * BYTES as f64);
    const RATES: DemandRates = DemandRates { idle: IDLE, start: 100_000_000.0 / (8.0 * BYTES as f64) };
    const QUEUE: usize = 25;
    const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

    pub fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Levels that the sender sends.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        All,
        Demand,
        /// By demand, in a signed session.
        SignedDemand,
    }

    pub struct Host {
        receiver: DescribedReceiver,
        rate: Rate,
        delay: Duration,
        pub joined: BTreeMap<u16, Instant>,
        left: BTreeMap<u16, Instant>,
        pub leave: Duration,
        pub queue: usize,
        waiting: VecDeque<Instant>,
        free: Instant,
        pub packets: u64,
    }

    /// A sender, and receivers that each have a link with a queue of 25 packets.
    pub struct Bed {
        description: Description,
        /// Whether packets tell how late they leave, as on sockets.
        is_stamped: bool,
        pub sender: Box<dyn SenderControl + Send>,
        /// In place of `sender`.
        pub signed: Option<SignedSender>,
        pub uplink: Option<Uplink>,
        pub hosts: Vec<Host>,
        arrivals: BinaryHeap<Reverse<(Instant, u64, usize)>>,
        packets: BTreeMap<u64, Header>,
        reports: BinaryHeap<Reverse<(Instant, Vec<u8>)>>,
        pub now: Instant,
        pub sent: u64,
        /// The last of so many reports arrives; 0 for none.
        pub arrives: u64,
        /// Reports so far.
        count: u64,
    }

    impl Bed {
        pub fn new(control: &'static Control, megabits: u64, mode: Mode) -> Self {
            let rates = (Rate::from_kilobits(120), Rate::from_kilobits(1_000 * megabits));
            let description = Description::new(control).with_rates(BYTES, rates.0, rates.1);
            let mut bed = Self {
                sender: description.sender(Instant::ZERO).expect("rates of levels"),
                signed: None,
                uplink: None,
                description,
                is_stamped: control.name == M2C.name,
                hosts: Vec::new(),
                arrivals: BinaryHeap::new(),
                packets: BTreeMap::new(),
                reports: BinaryHeap::new(),
                now: Instant::ZERO,
                sent: 0,
                arrives: 1,
                count: 0,
            };
            if mode != Mode::All {
                bed.sender.follow_demand(RATES);
            }
            if bed.is_stamped {
                bed.sender.stamp_departures();
            }
            if mode == Mode::SignedDemand {
                let mut control = bed.description.sender(Instant::ZERO).expect("rates of levels");
                control.follow_demand(RATES);
                control.stamp_departures();
                bed.signed = Some(SignedSender::new(control));
            }
            bed
        }

        /// Replaces the sender by one that knows nothing of the receivers, at the same place of the schedule.
        pub fn restart(&mut self) {
            self.sender = self.description.sender(Instant::ZERO).expect("rates of levels");
            self.sender.follow_demand(RATES);
            if self.is_stamped {
                self.sender.stamp_departures();
            }
            self.sender.timeout(self.now);
        }

        /// Adds a receiver at the end of a link of so many kbit/s.
        pub fn add(&mut self, kilobits: u64, round_trip_ms: u64) {
            let seed = Seed(self.hosts.len() as u64);
            let config = DescribedReceiverConfig::new().with_reports(Some(seed));
            let mut receiver = DescribedReceiver::new(config);
            receiver.start(self.now);
            let delay = Duration::from_millis(round_trip_ms / 2);
            let rate = Rate::from_kilobits(kilobits);
            let mut host = Host {
                receiver,
                rate,
                delay,
                joined: BTreeMap::new(),
                left: BTreeMap::new(),
                leave: Duration::ZERO,
                queue: QUEUE,
                waiting: VecDeque::new(),
                free: Instant::ZERO,
                packets: 0,
            };
            host.apply(self.now);
            self.hosts.push(host);
        }

        pub fn remove(&mut self, index: usize) {
            let host = &mut self.hosts[index];
            host.receiver.stop(self.now);
            host.apply(self.now);
        }

        /// Packets per second from now to an instant: sent, and received by each host.
        pub fn measure(&mut self, end: Instant) -> (f64, Vec<f64>) {
            let (from, sent) = (self.now, self.sent);
            let before: Vec<u64> = self.hosts.iter().map(|host| host.packets).collect();
            self.until(end);
            let seconds = end.since(from).as_secs_f64();
            let each =
                self.hosts.iter().zip(before).map(|(host, before)| (host.packets - before) as f64 / seconds);
            ((self.sent - sent) as f64 / seconds, each.collect())
        }

        pub fn until(&mut self, end: Instant) {
            loop {
                let ready = self.uplink.as_ref().map_or(self.now, |uplink| uplink.ready().max(self.now));
                let departure = match &self.signed {
                    Some(signed) => signed.next_departure(),
                    None => self.sender.next_departure(),
                };
                let is_full = ready > self.now && departure.is_some_and(|at| at < ready);
                let departure = departure.map(|at| at.max(ready));
                let arrival = self.arrivals.peek().map(|Reverse((at, ..))| *at);
                let report = self.reports.peek().map(|Reverse((at, _))| *at);
                let timeouts = self.hosts.iter().filter_map(|host| host.receiver.poll_timeout());
                let timeout = timeouts.min().map(|at| at.max(self.now));
                let next = [departure, arrival, report, timeout].into_iter().flatten().min();
                let Some(next) = next.filter(|next| *next < end) else { break };
                self.now = next;
                if report == Some(next) {
                    let Reverse((_, payload)) = self.reports.pop().expect("a report is due");
                    let source = SocketAddr::from(([198, 51, 100, 1], 9_999));
                    let datagram =
                        Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
                    match &mut self.signed {
                        Some(signed) => signed.feedback(next, datagram),
                        None => self.sender.feedback(next, &datagram),
                    }
                } else if arrival == Some(next) {
                    self.arrive();
                } else if timeout == Some(next) {
                    for index in 0..self.hosts.len() {
                        self.hosts[index].receiver.timeout(next);
                        self.after(index);
                    }
                } else {
                    if is_full {
                        self.fill_link();
                    }
                    self.depart();
                }
            }
            self.now = end;
        }

        /// Hands the sender a report from nobody's address.
        pub fn forge(&mut self, report: Demand) {
            let payload = Message::Report(report).emit();
            let source = SocketAddr::from(([203, 0, 113, 1], 9));
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
            self.sender.feedback(self.now, &datagram);
        }

        /// Tells the sender of its own link, which is full.
        fn fill_link(&mut self) {
            let Some(uplink) = &self.uplink else { return };
            let rate = uplink.rate();
            match &mut self.signed {
                Some(signed) => signed.on_full_link(rate),
                None => self.sender.on_full_link(rate),
            }
        }

        fn header(&mut self) -> Option<Header> {
            if let Some(signed) = &mut self.signed {
                return signed.depart(self.now);
            }
            let departure = self.sender.departure(self.now)?;
            self.sender.departed(self.now, BYTES.into());
            let levels = departure.levels.filter(|_| departure.tells_levels);
            let Departure { channel, cci, lateness, .. } = departure;
            Some(Header { channel, cci, levels, lateness })
        }

        fn depart(&mut self) {
            let Some(header) = self.header() else { return };
            self.sent += 1;
            self.packets.insert(self.sent, header);
            if self.packets.len() > 20_000 {
                self.packets.pop_first();
            }
            let left = self.uplink.as_mut().map_or(self.now, |uplink| uplink.carry(self.now));
            for (index, host) in self.hosts.iter_mut().enumerate() {
                if let Some(at) = host.carry(left, header.channel) {
                    self.arrivals.push(Reverse((at, self.sent, index)));
                }
            }
        }

        fn arrive(&mut self) {
            let Reverse((_, number, index)) = self.arrivals.pop().expect("an arrival is due");
            let Header { channel, cci, levels, lateness } = self.packets[&number];
            let lateness = Duration::from_micros(lateness.map_or(0, |lateness| lateness.micros).into());
            let host = &mut self.hosts[index];
            host.packets += 1;
            if channel == ChannelId::BASE || levels.is_some() {
                host.receiver.limited(self.now, levels);
            }
            let (source, ecn) = (SENDER.into(), Ecn::NotCapable);
            host.receiver.arrived(
                self.now,
                &Arrival { source, channel, cci: &cci, ecn, bytes: BYTES.into(), lateness },
            );
            // The description takes five packets of the base channel.
            if host.packets == 5 {
                let description = self.description.to_fdt();
                let described = host.receiver.described().expect("a described receiver");
                described.on_description(self.now, description.as_ref()).expect("a sound description");
            }
            self.after(index);
        }

        fn after(&mut self, index: usize) {
            let host = &mut self.hosts[index];
            host.apply(self.now);
            let mut buffer = [0; 64];
            while let Some(transmit) = host.receiver.poll_transmit(self.now, &mut buffer) {
                self.count += 1;
                if self.arrives > 0 && self.count.is_multiple_of(self.arrives) {
                    self.reports.push(Reverse((self.now + host.delay, buffer[..transmit.bytes].to_vec())));
                }
            }
        }
    }

    impl Host {
        fn apply(&mut self, now: Instant) {
            while let Some(membership) = self.receiver.poll_membership() {
                match membership {
                    // A join takes as long as the way to the sender and back.
                    Membership::Join(ChannelId(channel)) => self.joined.insert(channel, now + self.delay),
                    Membership::Leave(ChannelId(channel)) => {
                        self.left.insert(channel, now + self.leave);
                        self.joined.remove(&channel)
                    }
                };
            }
        }

        fn carry(&mut self, now: Instant, channel: ChannelId) -> Option<Instant> {
            let held = self.joined.get(&channel.0).is_some_and(|since| *since <= now);
            if !held && self.left.get(&channel.0).is_none_or(|until| *until <= now) {
                return None;
            }
            while self.waiting.front().is_some_and(|start| *start <= now) {
                self.waiting.pop_front();
            }
            if self.waiting.len() >= self.queue {
                return None;
            }
            let start = self.free.max(now);
            if start > now {
                self.waiting.push_back(start);
            }
            self.free = start + self.rate.time_of(u64::from(BYTES) + 42);
            held.then_some(self.free + self.delay)
        }

        pub fn unheard(&mut self, now: Instant) -> Option<SocketAddr> {
            self.receiver.status(now).unheard
        }
    }
}

use headwater_proto::Instant;
use headwater_proto::controls::{Control, FLID_DL, M2C, WEBRC};
use headwater_wire::rtt::{Demand, LossClass};
use support::{BYTES, Bed, IDLE, Mode, at};
use uplink::Uplink;

const CONTROLS: [&Control; 3] = [&M2C, &WEBRC, &FLID_DL];

/// Mbit/s of UDP payload.
fn megabits(packets_per_second: f64) -> f64 {
    packets_per_second * 8.0 * f64::from(BYTES) / 1e6
}

/// Seconds until the first receiver has so many packets.
fn until_packets(bed: &mut Bed, packets: u64) -> f64 {
    let began = bed.now;
    while bed.hosts[0].packets < packets {
        bed.until(bed.now + headwater_proto::Duration::from_millis(10));
        assert!(bed.now < at(300_000), "{} packets", bed.hosts[0].packets);
    }
    bed.now.since(began).as_secs_f64()
}

#[test]
fn nobody_there_costs_the_idle_rate() {
    for control in CONTROLS {
        let mut bed = Bed::new(control, 50, Mode::Demand);
        let (sent, _) = bed.measure(at(60_000));
        assert!(sent <= 1.01 * IDLE, "{}: {:.2} Mbit/s", control.name, megabits(sent));
        // A receiver comes and goes.
        bed.add(20_000, 20);
        let (sent, received) = bed.measure(at(120_000));
        assert!(
            received[0] > 1.5 * IDLE && sent > received[0],
            "{}: {:.2} Mbit/s",
            control.name,
            megabits(sent)
        );
        bed.remove(0);
        bed.until(at(141_000));
        let (sent, _) = bed.measure(at(160_000));
        assert!(sent <= 1.01 * IDLE, "{}: {:.2} Mbit/s after the last left", control.name, megabits(sent));
    }
}

/// Mbit/s sent and received in the first minute, and received in the half minute after: means of receivers
/// that begin at other places of the schedule.
fn minute(control: &'static Control, session: u64, mode: Mode, kilobits: u64, round_trip: u64) -> [f64; 3] {
    const BEGINS: u64 = 3;
    let runs = (0..BEGINS).map(|run| {
        let mut bed = Bed::new(control, session, mode);
        let begin = 2_371 * run;
        bed.until(at(begin));
        bed.add(kilobits, round_trip);
        let (sent, received) = bed.measure(at(begin + 60_000));
        let (_, later) = bed.measure(at(begin + 90_000));
        [sent, received[0], later[0]].map(megabits)
    });
    let sum = runs.fold([0.0; 3], |sum, rates| std::array::from_fn(|at| sum[at] + rates[at]));
    sum.map(|rates| rates / BEGINS as f64)
}

#[test]
fn a_slow_receiver_gets_what_it_gets_of_a_sender_of_all_levels() {
    for control in CONTROLS {
        for round_trip in [20, 200] {
            let run = |mode| minute(control, 25, mode, 4_000, round_trip);
            let (all, demand) = (run(Mode::All), run(Mode::SignedDemand));
            println!("{} at {round_trip} ms: all {all:.2?}, demand {demand:.2?} Mbit/s", control.name);
            let ([_, first, later], [sent, first_here, later_here]) = (all, demand);
            // The next level of WEBRC and FLID-DL is a third above, of M2C a seventh.
            let most = if *control == M2C { 7.0 } else { 8.5 };
            assert!(sent <= most, "{} at {round_trip} ms: {sent:.2} Mbit/s sent", control.name);
            let (mean, mean_here) = (2.0 * first + later, 2.0 * first_here + later_here);
            assert!(mean_here >= 0.9 * mean, "{}: {all:?} {demand:?}", control.name);
        }
    }
}

/// A session of 1 Gbit/s: the room for a start is bounded by 100 Mbit/s.
#[test]
fn a_fast_session_sends_little_more() {
    for (kilobits, most) in [(4_000, 7.0), (50_000, 72.0)] {
        for round_trip in [20, 200] {
            let rates = minute(&M2C, 1_000, Mode::SignedDemand, kilobits, round_trip);
            println!("{kilobits} kbit/s at {round_trip} ms: {rates:.2?} Mbit/s");
            assert!(rates[0] <= most, "{kilobits} kbit/s at {round_trip} ms: {rates:?}");
        }
    }
}

/// Starts of a median. A start meets the schedule's slots at another place each time, and takes up to 0.7 s
/// more or less: the medians of half as many starts differ by 0.1 s by chance.
const STARTS: u64 = 31;

#[test]
fn starts_take_little_longer() {
    for round_trip in [20, 200] {
        for (session, kilobits) in [(100, 4_000), (100, 20_000), (1_000, 80_000)] {
            let median = |mode| {
                let mut seconds: Vec<f64> = (0..STARTS)
                    .map(|phase| {
                        let mut bed = Bed::new(&M2C, session, mode);
                        bed.until(at(100 + 5_000 * phase / STARTS));
                        bed.add(kilobits, round_trip);
                        until_packets(&mut bed, kilobits / 5)
                    })
                    .collect();
                seconds.sort_by(f64::total_cmp);
                seconds[seconds.len() / 2]
            };
            let [all, unsigned, signed] = [Mode::All, Mode::Demand, Mode::SignedDemand].map(median);
            println!(
                "{kilobits} kbit/s of {session} Mbit/s at {round_trip} ms: {all:.2} s, by demand {unsigned:.2}, \
                 signed {signed:.2}"
            );
            for demand in [unsigned, signed] {
                assert!(
                    demand <= all + 0.1,
                    "{kilobits} kbit/s at {round_trip} ms: {demand:.2} s, not {all:.2} s"
                );
            }
        }
    }
}

/// While nothing is known, a start has room for the levels of a session of 100 Mbit/s; then for a step above
/// the highest level that came.
#[test]
fn a_start_has_room_for_the_default_rate_without_demand() {
    let highest = |kilobits| {
        let mut bed = Bed::new(&M2C, 1_000, Mode::Demand);
        bed.add(kilobits, 20);
        let mut ceiling = 0;
        while bed.now < at(2_000) {
            bed.until(bed.now + headwater_proto::Duration::from_millis(10));
            ceiling = ceiling.max(bed.sender.demand().expect("follows reports").ceiling);
        }
        ceiling
    };
    let of_rate = |kilobits| {
        let description = headwater_proto::controls::Description::new(&M2C);
        let rates = [120, kilobits].map(headwater_proto::Rate::from_kilobits);
        let sender = description.with_rates(BYTES, rates[0], rates[1]).sender(Instant::ZERO).unwrap();
        sender.layering().expect("levels").levels() - 1
    };
    assert_eq!(highest(20_000), of_rate(100_000));
    // The last step before a link of 80 Mbit/s is full is of 100 Mbit/s.
    let room = highest(80_000);
    assert!((of_rate(100_000)..=of_rate(240_000)).contains(&room), "{room}");
}

#[test]
fn lost_reports_stop_no_level() {
    for control in CONTROLS {
        let rates = [1, 2].map(|arrives| {
            let mut bed = Bed::new(control, 50, Mode::Demand);
            bed.arrives = arrives;
            bed.add(10_000, 40);
            bed.until(at(30_000));
            bed.measure(at(90_000)).1[0]
        });
        assert!(rates[1] >= 0.95 * rates[0], "{}: {rates:?} with each second report lost", control.name);
    }
}

#[test]
fn a_sender_that_hears_no_report_is_named() {
    let mut bed = Bed::new(&M2C, 50, Mode::Demand);
    bed.arrives = 0;
    bed.add(10_000, 40);
    let (_, received) = bed.measure(at(60_000));
    assert!(received[0] > 0.8 * IDLE, "the idle rate: {:.2} Mbit/s", megabits(received[0]));
    let now: Instant = bed.now;
    assert!(bed.hosts[0].unheard(now).is_some());
    bed.arrives = 1;
    bed.until(at(120_000));
    assert!(bed.hosts[0].unheard(at(120_000)).is_none());
}

#[test]
fn a_restarted_sender_sends_what_is_held_within_a_second() {
    let mut bed = Bed::new(&M2C, 50, Mode::Demand);
    bed.add(10_000, 40);
    bed.until(at(60_000));
    let (before, _) = bed.measure(at(70_000));
    bed.restart();
    bed.until(at(71_000));
    let (after, _) = bed.measure(at(72_000));
    assert!(after >= 0.8 * before, "{:.2} Mbit/s of {:.2}", megabits(after), megabits(before));
}

#[test]
fn the_fastest_receiver_decides() {
    let mut bed = Bed::new(&M2C, 50, Mode::Demand);
    for (kilobits, round_trip) in [(1_000, 30), (4_000, 80), (30_000, 20)] {
        bed.add(kilobits, round_trip);
    }
    bed.until(at(30_000));
    let (sent, received) = bed.measure(at(90_000));
    for (got, link) in received.iter().zip([1.0, 4.0, 30.0]) {
        assert!(megabits(*got) >= 0.85 * link, "{:.2} of {link} Mbit/s", megabits(*got));
    }
    assert!(megabits(sent) <= 50.0, "{:.1} Mbit/s", megabits(sent));
}

/// Packets per second in each second of a minute.
fn seconds(bed: &mut Bed, mut before: impl FnMut(&mut Bed)) -> Vec<f64> {
    let measured = (1..=60).map(|second| {
        before(bed);
        bed.measure(at(1_000 * second)).0
    });
    measured.collect()
}

/// The levels of a session are fewer than a report can name.
#[test]
fn forged_reports_make_nobody_send_more_than_all_levels() {
    for control in CONTROLS {
        let all = seconds(&mut Bed::new(control, 20, Mode::All), |_| {});
        for is_starting in [true, false] {
            let mut bed = Bed::new(control, 20, Mode::Demand);
            bed.add(4_000, 40);
            let sent = seconds(&mut bed, |bed| {
                for (number, level) in (0..=255).rev().step_by(5).enumerate() {
                    let loss = LossClass::of(if number % 2 == 0 { 0.0 } else { 0.9 });
                    bed.forge(Demand { level, is_starting, loss });
                }
            });
            for (second, (sent, all)) in sent.iter().zip(&all).enumerate() {
                assert!(*sent <= 1.02 * all, "{}: {sent:.0} of {all:.0} in second {second}", control.name);
            }
            let (_, received) = bed.measure(at(70_000));
            assert!(received[0] > 0.5 * IDLE, "{}: {received:?}", control.name);
        }
    }
}

/// Receivers of a sender whose own link is the bottleneck take what that link carries, whether the session's
/// rate is the link's or ten times as much. Linux's driver keeps 5 ms in the link's queue
/// (`crates/headwater/src/net/sender.rs`); elsewhere a queue may be longer, which receivers take for the
/// network's.
#[test]
fn a_senders_own_link_is_used() {
    for mode in [Mode::Demand, Mode::SignedDemand] {
        for (link, hosts, session) in [(100, 1, 1_000), (100, 8, 1_000), (100, 8, 100), (20, 3, 100)] {
            for (queue_ms, least) in [(5, 0.95), (20, 0.8)] {
                let mut bed = Bed::new(&M2C, session, mode);
                bed.uplink = Some(Uplink::new(link, queue_ms, BYTES));
                bed.until(at(2_000));
                for _ in 0..hosts {
                    bed.add(2_000 * link, 1);
                }
                bed.until(at(10_000));
                let (_, each) = bed.measure(at(50_000));
                let carried = link as f64 * f64::from(BYTES) / f64::from(BYTES + 66);
                for packets in each {
                    let share = megabits(packets) / carried;
                    assert!(
                        share > least,
                        "{mode:?}, {hosts} receivers behind {link} Mbit/s, {queue_ms} ms: {share:.3}"
                    );
                }
            }
        }
    }
}

/// Receivers that hold all levels whatever they lose make a sender offer its own link no more than the link
/// carries: its driver is late, and the levels end there. Others take what they take without such receivers.
#[test]
fn a_senders_own_link_bounds_receivers_that_hold_all() {
    let run = |queue_ms, is_attacked| {
        let mut bed = Bed::new(&M2C, 100, Mode::Demand);
        bed.uplink = Some(Uplink::new(20, queue_ms, BYTES));
        for _ in 0..3 {
            bed.add(40_000, 1);
        }
        let carried = 20e6 / (8.0 * f64::from(BYTES + 66));
        let (mut offered, mut before) = (Vec::new(), Vec::new());
        for second in 1..=120 {
            if is_attacked {
                bed.forge(Demand { level: 255, is_starting: false, loss: LossClass::of(0.9) });
            }
            bed.until(at(1_000 * second));
            let ceiling = bed.sender.demand().expect("follows reports").ceiling;
            let layers = bed.sender.layering().expect("levels");
            offered.push(layers.cumulative_rate(ceiling, bed.now) / carried);
            if second == 30 {
                before = bed.hosts.iter().map(|host| host.packets).collect();
            }
        }
        let got = bed.hosts.iter().zip(&before).map(|(host, before)| host.packets - before).min();
        let offered = offered[30..].iter().sum::<f64>() / 90.0;
        (offered, got.expect("receivers") as f64 / (90.0 * carried))
    };
    for queue_ms in [5, 50] {
        let [alone, attacked] = [false, true].map(|is_attacked| run(queue_ms, is_attacked));
        println!(
            "queue of {queue_ms} ms, alone and beside others: offered, received {alone:.3?} {attacked:.3?}"
        );
        assert!(attacked.0 <= 1.1, "{queue_ms} ms: {:.2} of the link", attacked.0);
        assert!(attacked.1 >= 0.88, "{queue_ms} ms: {:.3} of the link", attacked.1);
    }
}

/// Where leaves take two seconds, as by a switch that asks other members, a start that went too far does not
/// take the levels that were left for an overload.
#[test]
fn slow_leaves_end_no_start() {
    for (begin, queue) in [(2_000, 415), (2_000, 60), (3_700, 60), (5_100, 415), (5_487, 415)] {
        let mut bed = Bed::new(&M2C, 1_000, Mode::Demand);
        bed.until(at(begin));
        for _ in 0..8 {
            bed.add(100_000, 1);
        }
        for host in &mut bed.hosts {
            (host.leave, host.queue) = (headwater_proto::Duration::from_secs(2), queue);
        }
        bed.until(at(begin + 5_000));
        let (_, each) = bed.measure(at(begin + 20_000));
        let carried = 100.0 * f64::from(BYTES) / f64::from(BYTES + 42);
        for packets in each {
            let share = megabits(packets) / carried;
            assert!(share > 0.88, "start at {begin} ms, queue of {queue}: {share:.3}");
        }
    }
}

/// A start's room that the sender's own link does not carry is left at once: receivers would start behind the
/// queue, and end early. Six seconds, as a file of some 50 MB takes.
#[test]
fn starts_meet_no_queue_of_the_senders_own_link() {
    for mode in [Mode::Demand, Mode::SignedDemand] {
        for queue_ms in [5, 20] {
            for begin in [2_000, 3_300, 4_300, 5_100] {
                let mut bed = Bed::new(&M2C, 1_000, mode);
                bed.uplink = Some(Uplink::new(100, queue_ms, BYTES));
                bed.until(at(begin));
                for _ in 0..8 {
                    bed.add(100_000, 1);
                }
                let (_, each) = bed.measure(at(begin + 6_000));
                let mean = each.iter().map(|packets| megabits(*packets)).sum::<f64>() / 8.0;
                assert!(mean > 40.0, "{mode:?}, {queue_ms} ms, start at {begin}: {mean:.1} Mbit/s");
            }
        }
    }
}

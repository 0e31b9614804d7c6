//! A sender at one rate on a machine that other programs share: the sender sends what the machine leaves, and
//! all again once the machine is free.

use headwater_proto::control::SenderControl;
use headwater_proto::{Duration, Instant, Rate, Seed, fixed};
use rand::RngExt;

const PACKET_BYTES: usize = 1_440;
const RATE: Rate = Rate::from_kilobits(200_000);
/// Bytes of a turn, as of the driver of sockets: a turn that fills its buffer ends.
const TURN_BYTES: usize = 256 * 1_024;

/// Alternation of times on the processor and times away, each between two bounds in microseconds.
struct Load {
    on: (u64, u64),
    away: (u64, u64),
}

/// Machine that runs the sender's driver.
struct Machine {
    sender: fixed::FixedSender,
    /// Rate at which the driver sends while it runs, as a multiple of [`RATE`].
    speed: f64,
    now: Instant,
    sent: u64,
    /// Lowest and highest cap, as a part of [`RATE`].
    caps: (f64, f64),
}

impl Machine {
    fn new(speed: f64) -> Self {
        let sender = fixed::FixedSender::new(RATE, Instant::ZERO);
        Self { sender, speed, now: Instant::ZERO, sent: 0, caps: (1.0, 1.0) }
    }

    /// Runs for some seconds. Returns the part of [`RATE`] that was sent.
    fn run(&mut self, seconds: u64, load: Option<&Load>, seed: u64) -> f64 {
        let mut chance = Seed(seed).stream("load", 0);
        let (begin, end) = (self.now, self.now + Duration::from_secs(seconds));
        (self.sent, self.caps) = (0, (self.cap(), self.cap()));
        let mut leaves = end;
        if let Some(load) = load {
            leaves = begin + Duration::from_micros(chance.random_range(load.on.0..=load.on.1));
        }
        while self.now < end {
            let due = self.sender.next_departure().expect("the sender goes on").max(self.now);
            self.now = due;
            if due < leaves {
                self.turn();
            }
            // A turn or a sleep that a time away interrupts ends so much later.
            while let Some(load) = load.filter(|_| self.now >= leaves) {
                let away = Duration::from_micros(chance.random_range(load.away.0..=load.away.1));
                self.now = if due < leaves { self.now + away } else { self.now.max(leaves + away) };
                leaves = leaves + away + Duration::from_micros(chance.random_range(load.on.0..=load.on.1));
            }
        }
        rate(self.sent, self.now.since(begin))
    }

    fn turn(&mut self) {
        let now = self.now;
        let mut bytes = 0;
        while bytes < TURN_BYTES && self.sender.departure(now).is_some() {
            self.sender.departed(now, PACKET_BYTES);
            bytes += PACKET_BYTES;
        }
        self.sent += bytes as u64;
        let cap = self.cap();
        self.caps = (self.caps.0.min(cap), self.caps.1.max(cap));
        #[expect(clippy::cast_precision_loss, reason = "bytes of a turn")]
        let seconds = bytes as f64 * 8.0 / (self.speed * 2e8);
        self.now += Duration::from_secs_f64(seconds);
    }

    fn cap(&self) -> f64 {
        self.sender.overload().map_or(1.0, |overload| overload.share)
    }

    /// Asserts that more than these parts of the rate were sent, and were the cap at any time.
    fn assert_used(&self, about: &str, sent: f64, (sent_min, cap_min): (f64, f64)) {
        assert!(sent > sent_min, "{about}: {sent:.3} of the rate is sent, not {sent_min:.3}");
        let cap = self.caps.0;
        assert!(cap > cap_min, "{about}: the cap fell to {cap:.3}, {sent:.3} is sent");
    }

    /// Asserts that a machine that is free for so many seconds sends the whole rate then.
    fn assert_recovers(&mut self, about: &str, seconds: u64) {
        self.run(seconds, None, 1);
        let sent = self.run(5, None, 1);
        assert!(sent > 0.97, "{about}: {sent:.3} of the rate from {seconds} s after the load on");
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of some minutes")]
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_secs_f64() / 2e8
}

/// Part of the rate that a machine lets the sender send: the time on the processor, or less if that is too
/// little for a burst of 10 ms after each time away.
fn possible(load: &Load, speed: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "microseconds")]
    let mean = |(least, most): (u64, u64)| (least + most) as f64 / 2e6;
    let (on, away) = (mean(load.on), mean(load.away));
    (on * speed).min(on + 0.01) / (on + away)
}

/// Machines that stop for a tenth to half of a second again and again, and are fast in between.
#[test]
fn a_machine_that_stalls_lowers_the_rate_by_its_stalls_alone() {
    for seed in 0..5 {
        let load = Load { on: (50_000, 400_000), away: (100_000, 500_000) };
        let mut machine = Machine::new(4.0);
        machine.run(5, None, seed);
        let sent = machine.run(60, Some(&load), seed);
        let possible = possible(&load, 4.0);
        machine.assert_used(&format!("seed {seed}"), sent, (0.85 * possible, 0.85 * sent));
        machine.assert_recovers(&format!("seed {seed}"), 3);
    }
}

/// Machines whose other programs take most of the time, in short turns, and stall now and then.
#[test]
fn a_machine_that_others_share_lowers_the_rate_to_what_it_leaves() {
    let loads = [
        (Load { on: (2_000, 4_000), away: (10_000, 60_000) }, 2.0),
        (Load { on: (1_000, 10_000), away: (1_000, 100_000) }, 2.0),
        (Load { on: (3_000, 6_000), away: (30_000, 30_000) }, 4.0),
        (Load { on: (500, 1_500), away: (3_000, 6_000) }, 1.5),
    ];
    for (number, (load, speed)) in loads.iter().enumerate() {
        for seed in 0..3 {
            let mut machine = Machine::new(*speed);
            machine.run(20, Some(load), seed);
            let sent = machine.run(60, Some(load), seed + 100);
            let possible = possible(load, *speed);
            let about = format!("load {number}, seed {seed}");
            machine.assert_used(&about, sent, (0.7 * possible, 0.6 * possible));
            machine.assert_recovers(&about, 40);
        }
    }
}

/// A machine that cannot send more than a twentieth of the rate for minutes, as of a disk that others read.
#[test]
fn a_machine_that_was_slow_for_minutes_is_used_once_it_is_fast() {
    let mut machine = Machine::new(0.05);
    machine.run(10, None, 1);
    let sent = machine.run(200, None, 1);
    machine.assert_used("a twentieth", sent, (0.04, 0.04));
    machine.speed = 4.0;
    machine.assert_recovers("a minute later", 60);
}

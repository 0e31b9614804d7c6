//! The receiver against its sender over a path that is one drop-tail queue.

use headwater_wire::cci::WebrcCci;

use super::*;
use crate::control::{Arrival, ReceiverControl, Rules, SenderControl};
use crate::layering::path::{BYTES, Run, SENDER, apply, at, comes_and_goes, keeps_a_cap, measure};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use crate::machine::{ChannelId, Ecn};
use crate::rate::Rate;
use crate::time::Instant;

/// The RFC's own numbers, from one packet a second to a maximum in kbit/s.
fn layers(max: u64) -> DynamicConfig {
    DynamicConfig::new(BYTES, Rate::from_kilobits(max)).with_shape(Shape::Webrc)
}

fn run(max: u64, config: WebrcReceiverConfig, rate: u64) -> Run<WebrcReceiver> {
    Run::new(layers(max), WebrcReceiver::new(layers(max), config).unwrap(), rate, 4, 5)
}

#[test]
fn a_receiver_alone_uses_its_link() {
    for (link, max) in [(1_000, 4_000), (4_000, 16_000)] {
        let mut run = run(max, WebrcReceiverConfig::new(), link);
        run.start();
        let (rate, loss) = measure(&mut run, 100, 500);
        assert!(rate > 0.6 * link as f64, "{rate:.0} of {link} kbit/s, loss {loss:.3}");
        assert!(loss < 0.15, "loss {loss:.3} at {link} kbit/s");
    }
}

#[test]
fn a_cap_is_kept() {
    let config = WebrcReceiverConfig::new().with_max_rate(Rate::from_kilobits(500));
    keeps_a_cap(run(4_000, config, 4_000), 300.0, 60, 260);
}

#[test]
fn a_receiver_may_come_at_any_time_and_go() {
    comes_and_goes(run(4_000, WebrcReceiverConfig::new(), 1_000), 500.0, 180, 280);
}

/// Packets straight from a sender to the receiver, without a path.
struct Bench {
    sender: DynamicSender,
    receiver: WebrcReceiver,
    held: Vec<bool>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let sender = DynamicSender::new(DynamicChannels::new(layers(2_000), Instant::ZERO).unwrap());
        let held = vec![false; usize::from(sender.channels().dynamic_channels()) + 1];
        let receiver = WebrcReceiver::new(layers(2_000), WebrcReceiverConfig::new()).unwrap();
        let mut bench = Self { sender, receiver, held, now: Instant::ZERO };
        bench.receiver.start(bench.now);
        apply(&mut bench.held, &mut bench.receiver);
        bench
    }

    fn give(&mut self, channel: ChannelId, cci: WebrcCci) {
        let (source, cci) = (SENDER.into(), cci.short().unwrap());
        let arrival = Arrival {
            source,
            channel,
            cci: &cci,
            ecn: Ecn::NotCapable,
            bytes: BYTES.into(),
            lateness: crate::time::Duration::ZERO,
        };
        self.receiver.arrived(self.now, &arrival);
        apply(&mut self.held, &mut self.receiver);
    }

    /// Goes on for some seconds; the receiver gets what it holds and `keeps` says.
    fn pass(&mut self, seconds: u64, keeps: impl Fn(&WebrcCci) -> bool) {
        let end = self.now + crate::time::Duration::from_secs(seconds);
        loop {
            let departure = self.sender.next_departure().unwrap();
            let next = self.receiver.poll_timeout().map_or(departure, |timeout| timeout.min(departure));
            if next >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.receiver.timeout(self.now);
            apply(&mut self.held, &mut self.receiver);
            let Some(departure) = self.sender.departure(self.now) else { continue };
            self.sender.departed(self.now, BYTES.into());
            let cci = departure.cci.webrc().unwrap();
            if self.held[usize::from(departure.channel.0)] && keeps(&cci) {
                self.give(departure.channel, cci);
            }
        }
    }

    fn waves(&self) -> usize {
        self.held.iter().filter(|held| **held).count() - 1
    }
}

/// Nothing follows a wave's last packet that would age its holes.
#[test]
fn what_is_missing_at_the_end_of_a_wave_is_a_loss_event() {
    let [lossless, lossy] = [0xFFFF, 0xFFFE].map(|kept_below| {
        let mut bench = Bench::new();
        bench.pass(60, |_| true);
        assert!(!bench.receiver.status().unwrap().is_starting, "the highest wave is held");
        // The last packet itself arrives.
        bench.pass(25, |cci| cci.sequence < kept_below || cci.sequence == 0xFFFF);
        (bench.receiver.status().unwrap().loss, bench.receiver.reception().lost)
    });
    assert_eq!((lossless.1, lossy.1), (0, 2), "two waves ended");
    assert!(lossy.0 > 1.1 * lossless.0, "{} beside {}", lossy.0, lossless.0);
}

#[test]
fn a_session_that_falls_silent_is_given_up_and_taken_up_again() {
    let mut bench = Bench::new();
    bench.pass(60, |_| true);
    let before = bench.waves();
    assert!(before > 5, "{before} waves");
    bench.pass(15, |_| false);
    assert!(bench.held[0] && bench.waves() == 0, "the base is left");
    bench.pass(60, |_| true);
    assert!(bench.waves() > 5, "{} waves", bench.waves());
}

/// Slots begin anew at 0: what looks older than all is passed over until the old session has stood still for
/// 20 s.
#[test]
fn a_sender_that_is_started_anew_is_followed() {
    let mut bench = Bench::new();
    bench.pass(125, |_| true);
    bench.sender = DynamicSender::new(DynamicChannels::new(layers(2_000), bench.now).unwrap());
    bench.pass(80, |_| true);
    assert!(bench.waves() > 5, "{} waves", bench.waves());
    let before = bench.receiver.reception();
    bench.pass(60, |_| true);
    let after = bench.receiver.reception();
    assert_eq!(after.lost, before.lost);
    assert!(after.packets > before.packets + 1_000);
}

/// One packet that says a slot far ahead makes all waves seem over; the session is given up when that slot
/// stands still.
#[test]
fn a_slot_that_was_a_lie_costs_half_a_minute() {
    let mut bench = Bench::new();
    bench.pass(65, |_| true);
    let cci = WebrcCci { slot: 20, channel: bench.sender.channels().dynamic_channels(), sequence: 0 };
    bench.give(ChannelId::BASE, cci);
    assert_eq!(bench.waves(), 0);
    bench.pass(90, |_| true);
    assert!(bench.waves() > 5, "{} waves", bench.waves());
}

#[test]
fn a_capacity_that_falls_is_followed_by_leaving_waves() {
    let lost = |rules| {
        let receiver =
            WebrcReceiver::new(layers(16_000), WebrcReceiverConfig::new().with_rules(rules)).unwrap();
        let mut run = Run::new(layers(16_000), receiver, 4_000, 4, 5);
        run.start();
        run.until(at(60_000));
        run.path.set_rate(400);
        measure(&mut run, 64, 80).1
    };
    let (published, revised) = (lost(Rules::Published), lost(Rules::Revised));
    assert!(published > 0.5 && revised < 0.3, "{published:.3} by the RFC's rules, {revised:.3} by ours");
}

//! A sender to which nobody reports: packets may wait for each other, until a receiver reports.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{Signing, SigningConfig, StandIn};
use headwater_proto::control::{DemandRates, SenderControl};
use headwater_proto::controls::{self, Control, Description};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, FileToSend, MemorySource, PlanConfig, RelativePath, SessionPlan,
};
use headwater_proto::layering::ceiling::IDLE_SLACK;
use headwater_proto::pacing::BURST;
use headwater_proto::{DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, Machine, Output, Rate};
use headwater_wire::extensions::Lateness;
use headwater_wire::lct;
use headwater_wire::rtt::{Demand, LossClass, Message};

const SYMBOL: u16 = 1_024;

type Sender = DeliverySender<Box<dyn SenderControl + Send>, MemorySource>;

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Sender of up to 100 Mbit/s for reports, that sends 1.2 Mbit/s to nobody and stamps packets of M2C.
fn sender(control: &'static Control, is_signed: bool) -> Sender {
    let rates = (Rate::from_kilobits(120), Rate::from_kilobits(100_000));
    let mut control =
        Description::new(control).with_rates(1_100, rates.0, rates.1).sender(Instant::ZERO).unwrap();
    control.follow_demand(DemandRates { idle: 136.0, start: 1e4 });
    control.stamp_departures();
    let content = vec![5; 2_000_000];
    let path = RelativePath::new("file").unwrap();
    let file = FileToSend { path, bytes: content.len() as u64, mode: None, modified: None };
    let order = Order::Spread { rate: 8_000_000 };
    let plan = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL, order };
    let plan = SessionPlan::new(vec![file], plan).unwrap();
    let source = MemorySource::new(&plan, &[&content]);
    let digests = source.digests();
    let signing = || Signing::new(SigningConfig::new(9, 1, 1, [3; 32]), Box::new(StandIn([7; 32])));
    DeliverySender::new(DeliverySenderConfig::new(9), &plan, &digests, control, source)
        .unwrap()
        .with_signing(is_signed.then(signing))
}

/// Turns and packets of a driver.
#[derive(Debug, Default)]
struct Work {
    turns: u64,
    packets: u64,
    late_max: Duration,
}

/// Drives the sender on time, or as on sockets by timers that end as late as the sender allows.
fn drive(sender: &mut Sender, end: Instant, uses_slack: bool) -> Work {
    let (mut work, mut buffer) = (Work::default(), vec![0; DATAGRAM_BYTES_MAX]);
    let next = |sender: &Sender| {
        let slack = if uses_slack { sender.slack() } else { Duration::ZERO };
        sender.poll_timeout().map(|due| due + slack).filter(|now| *now < end)
    };
    while let Some(now) = next(sender) {
        sender.handle(now, Input::Timeout);
        work.turns += 1;
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            work.packets += 1;
            work.late_max = work.late_max.max(lateness(&buffer[..transmit.bytes]));
        }
    }
    work
}

/// Lateness that a packet tells; zero without the extension.
fn lateness(packet: &[u8]) -> Duration {
    let place = Lateness::place(&lct::Packet::new_checked(packet).unwrap());
    let told = place.and_then(|place| Lateness::parse(&packet[place]));
    told.map_or(Duration::ZERO, |told| Duration::from_micros(told.micros.into()))
}

fn report(sender: &mut Sender, now: Instant, level: u8, is_starting: bool) {
    let report = Message::Report(Demand { level, is_starting, loss: LossClass::default() }).emit();
    let source = "192.0.2.9:9".parse().unwrap();
    let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &report };
    sender.handle(now, Input::Datagram(datagram));
}

/// Turns cost a sender for nobody most of its processor time.
#[test]
fn packets_for_nobody_share_turns() {
    for control in [&controls::M2C, &controls::WEBRC, &controls::FLID_DL] {
        for is_signed in [false, true] {
            let named = format!("{}, signed: {is_signed}", control.name);
            let [alone, shared] = [false, true].map(|uses_slack| {
                let mut sender = sender(control, is_signed);
                drive(&mut sender, seconds(100), uses_slack);
                drive(&mut sender, seconds(300), uses_slack)
            });
            println!("{named}: {alone:?} alone, {shared:?}");
            assert!(3 * shared.turns <= 2 * shared.packets, "{named}: {shared:?}");
            assert!(shared.packets.abs_diff(alone.packets) <= 3, "{named}: {alone:?} alone, {shared:?}");
            assert!(shared.late_max <= alone.late_max + BURST, "{named}: {alone:?} alone, {shared:?}");
        }
    }
}

#[test]
fn a_report_ends_the_slack_until_its_receiver_has_gone() {
    for is_signed in [false, true] {
        let mut sender = sender(&controls::M2C, is_signed);
        drive(&mut sender, seconds(100), true);
        assert_eq!(sender.slack(), IDLE_SLACK);
        report(&mut sender, seconds(100), 0, true);
        assert_eq!(sender.slack(), Duration::ZERO, "a receiver starts");
        drive(&mut sender, seconds(102), true);
        assert_eq!(sender.slack(), Duration::ZERO, "a receiver starts");
        report(&mut sender, seconds(102), 9, false);
        assert_eq!(sender.slack(), Duration::ZERO, "a receiver holds levels");
        drive(&mut sender, seconds(110), true);
        assert_eq!(sender.slack(), Duration::ZERO, "a receiver holds levels");
        drive(&mut sender, seconds(130), true);
        assert_eq!(sender.slack(), IDLE_SLACK, "the receiver has gone");
    }
}

#[test]
fn a_sender_of_all_levels_has_no_slack() {
    let rates = (Rate::from_kilobits(120), Rate::from_kilobits(1_000));
    for control in [&controls::M2C, &controls::WEBRC, &controls::FLID_DL] {
        let sender =
            Description::new(control).with_rates(1_100, rates.0, rates.1).sender(Instant::ZERO).unwrap();
        assert_eq!(sender.slack(), Duration::ZERO, "{}", control.name);
    }
}

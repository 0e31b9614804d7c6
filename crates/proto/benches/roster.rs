//! Reports of receivers at a sender with a roster: 1000 receivers send 250 reports a second, which must take
//! less than 1 % of a core. A forger sends 100 000 a second from random addresses, of both kinds of reports,
//! which must take less than 10 %: 1 us each.

use core::hint::black_box;
use core::net::{Ipv4Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::control::{DemandRates, SenderControl};
use headwater_proto::controls::{Description, M2C};
use headwater_proto::roster::{RosterConfig, RosterSender};
use headwater_proto::{Datagram, Duration, Ecn, Instant, Rate, Seed};
use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, Reply, Report, ReportKind, RosterHeader};
use headwater_wire::rtt::{Demand, LossClass, Message};
use rand::Rng;

fn address(number: u32) -> SocketAddr {
    (Ipv4Addr::from_bits(0x0A00_0001_u32.wrapping_add(number)), 40_000).into()
}

/// Passes a report, and returns the cookie of the reply, if any.
fn report(sender: &mut RosterSender, now: Instant, number: u32, header: RosterHeader) -> Option<u64> {
    let state = Some(ReceiverState { content: 1, done_ppm: 500_000, ..ReceiverState::default() });
    let mut bytes = [0; REPORT_BYTES_MAX];
    let length = Report { header, state, name: Some("a-name-of-a-host") }.emit(&mut bytes);
    let source = address(number);
    let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &bytes[..length] };
    black_box(sender.on_datagram(now, &datagram));
    let mut buffer = [0; 64];
    let mut cookie = None;
    while let Some(transmit) = sender.poll_transmit(&mut buffer) {
        cookie = Reply::parse(&buffer[..transmit.bytes]).ok().map(|reply| reply.header.cookie);
    }
    cookie
}

fn reports(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("roster");
    group.throughput(Throughput::Elements(1));
    for receivers in [1_000_u32, 100_000] {
        let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]);
        sender.set_content(Some(1));
        let mut now = Instant::ZERO;
        let mut cookies = vec![0; receivers as usize];
        let mut sequence = 0_u16;
        let mut round = |sender: &mut RosterSender, number: u32, kind| {
            // 250 reports a second.
            now += Duration::from_millis(4);
            sequence = sequence.wrapping_add(1);
            let cookie = &mut cookies[number as usize];
            let header = RosterHeader { kind, receiver: u64::from(number) + 1, cookie: *cookie, sequence };
            if let Some(found) = report(sender, now, number, header) {
                *cookie = found;
            }
        };
        (0..receivers).for_each(|number| round(&mut sender, number, ReportKind::Hello));
        let mut number = 0;
        group.bench_function(format!("a report of {receivers} receivers"), |bencher| {
            bencher.iter(|| {
                number = (number + 1) % receivers;
                round(&mut sender, number, ReportKind::Progress);
            });
        });
        let counts = sender.counts(now);
        println!("{counts:?}, {} rows", sender.rows().count());
    }
    group.finish();
}

/// Time between two datagrams of a forger.
const FORGED: Duration = Duration::from_micros(10);

fn forged(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("forged");
    group.throughput(Throughput::Elements(1));
    let mut stream = Seed(7).stream("forger", 0);
    let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]);
    sender.set_content(Some(1));
    let mut now = Instant::ZERO;
    group.bench_function("a report with a wrong cookie", |bencher| {
        bencher.iter(|| {
            now += FORGED;
            let (receiver, cookie) = (stream.next_u64(), stream.next_u64());
            let header = RosterHeader { kind: ReportKind::Done, receiver, cookie, sequence: 1 };
            report(&mut sender, now, stream.next_u32(), header)
        });
    });
    assert_eq!(sender.rows().count(), 0);
    let [base, max] = [120, 1_000_000].map(Rate::from_kilobits);
    let description = Description::new(&M2C).with_rates(1_424, base, max);
    let mut control = description.sender(Instant::ZERO).expect("rates of levels");
    control.follow_demand(DemandRates { idle: 100.0, start: 9_000.0 });
    let mut now = Instant::ZERO;
    group.bench_function("a report of levels", |bencher| {
        bencher.iter(|| {
            now += FORGED;
            let demand = Demand { level: u8::MAX, is_starting: true, loss: LossClass::default() };
            let payload = Message::Report(demand).emit();
            let source = address(stream.next_u32());
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
            control.feedback(now, black_box(&datagram));
        });
    });
    group.finish();
}

criterion_group!(benches, reports, forged);
criterion_main!(benches);

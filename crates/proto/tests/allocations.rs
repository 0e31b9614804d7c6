//! The hot paths allocate nothing per packet, by an allocator that counts: source symbols, from a sender to a
//! receiver whose content takes no memory.

#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[expect(dead_code, reason = "other tests ask for more")]
mod allocated;
mod counter;

use allocated::calls;
use counter::Counter;
use headwater_fec::{Order, Scheme};
use headwater_proto::control::{Arrival, Membership, ReceiverControl, SenderControl};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, PlanConfig,
    RelativePath, SessionPlan, Source, SourceError,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, Machine, Output, Rate, fixed,
    flid,
};

/// Content that is all zeros.
struct Zeros;

impl Source for Zeros {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

fn sender(scheme: Scheme, order: Order, symbols: u64) -> DeliverySender<fixed::FixedSender, Zeros> {
    let config = PlanConfig { scheme, symbol_size: 1408, order };
    let file = FileToSend {
        path: RelativePath::new("file").unwrap(),
        bytes: symbols * 1408,
        mode: None,
        modified: None,
    };
    let plan = SessionPlan::new(vec![file], config).unwrap();
    let digests: Vec<_> =
        plan.objects().iter().map(|object| vec![[0; 32]; object.partition.blocks() as usize]).collect();
    let control = fixed::FixedSender::new(Rate::from_bits(symbols * 1424 * 4).unwrap(), Instant::ZERO);
    DeliverySender::new(DeliverySenderConfig::new(7), &plan, &digests, control, Zeros).unwrap()
}

/// Both ends, and what each has allocated.
struct Pair {
    sender: DeliverySender<fixed::FixedSender, Zeros>,
    receiver: DeliveryReceiver<fixed::FixedReceiver, Counter>,
    buffer: Vec<u8>,
    sender_allocations: u64,
    receiver_allocations: u64,
}

impl Pair {
    /// A file of so many symbols in several blocks, sent at a rate at which it takes 2 s: the FDT comes again
    /// on the way.
    fn new(scheme: Scheme, symbols: u64) -> Self {
        Self {
            sender: sender(scheme, Order::Spread { rate: 10_000_000_000 }, symbols),
            receiver: DeliveryReceiver::new(
                DeliveryReceiverConfig::default(),
                fixed::FixedReceiver::new(),
                Counter::default(),
                Instant::ZERO,
            ),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            sender_allocations: 0,
            receiver_allocations: 0,
        }
    }

    /// Passes packets on until the receiver holds so many symbols.
    fn run_to(&mut self, symbols: u64) {
        while self.receiver.store().symbols < symbols {
            let now = self.sender.poll_timeout().unwrap();
            let before = calls();
            self.sender.handle(now, Input::Timeout);
            let output = self.sender.poll_output(now, &mut self.buffer);
            self.sender_allocations += calls() - before;
            let Some(Output::Transmit(transmit)) = output else { continue };
            let datagram = Datagram {
                source: "192.0.2.1:7".parse().unwrap(),
                channel: Some(ChannelId::BASE),
                ecn: Ecn::NotCapable,
                payload: &self.buffer[..transmit.bytes],
            };
            let before = calls();
            self.receiver.handle(now, Input::Datagram(datagram));
            while self.receiver.poll_output(now, &mut []).is_some() {}
            let _next = self.receiver.poll_timeout();
            self.receiver_allocations += calls() - before;
        }
    }
}

/// Blocks are begun, and the FDT is read, in the first tenth; blocks end in the last one.
#[test]
fn source_symbols_pass_without_an_allocation() {
    for scheme in [Scheme::RaptorQ, Scheme::NoCode] {
        let symbols = 20_000;
        let mut pair = Pair::new(scheme, symbols);
        pair.run_to(symbols / 10);
        assert!(pair.sender_allocations + pair.receiver_allocations > 0, "what is counted is counted");
        (pair.sender_allocations, pair.receiver_allocations) = (0, 0);
        let fdt_packets = pair.receiver.stats().fdt_packets;
        pair.run_to(symbols * 9 / 10);
        assert!(pair.receiver.stats().fdt_packets > fdt_packets, "the FDT came again");
        assert_eq!((pair.sender_allocations, pair.receiver_allocations), (0, 0), "{scheme:?}");
    }
}

/// Three passes, most of them repair symbols, in either order: once the first window has begun, nothing is
/// allocated but the queue of events, by the first one.
#[test]
fn repair_symbols_are_sent_without_an_allocation() {
    for order in [Order::Spread { rate: 10_000_000_000 }, Order::Window] {
        let symbols = 5_000;
        let mut sender = sender(Scheme::RaptorQ, order, symbols);
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut during = 0;
        while sender.stats().symbols < 3 * symbols {
            let now = sender.poll_timeout().unwrap();
            let before = calls();
            sender.handle(now, Input::Timeout);
            let output = sender.poll_output(now, &mut buffer);
            if matches!(output, Some(Output::Transmit(_))) && sender.stats().symbols > 100 {
                during += calls() - before;
            }
        }
        assert!(sender.stats().symbols > 2 * symbols, "repair symbols went out");
        assert!(during <= 1, "{order:?}: {during} allocations");
    }
}

/// Levels go up and down in each slot; the queues of it are there after the first minute.
#[test]
fn flid_changes_levels_without_an_allocation() {
    let rate = Rate::from_kilobits(8_000);
    for config in
        [flid::FlidConfig::static_layers(1_440, rate), flid::FlidConfig::dynamic_layers(1_440, rate)]
    {
        let mut sender = flid::FlidSender::new(flid::Layers::new(&config, Instant::ZERO).unwrap());
        let mut receiver = flid::FlidReceiver::new(config, flid::FlidReceiverConfig::new()).unwrap();
        let mut held = vec![false; sender.channels().into()];
        let (warm, end) =
            (Instant::ZERO + Duration::from_secs(240), Instant::ZERO + Duration::from_secs(480));
        let (mut packets, mut changes, mut before) = (0_u64, 0_u64, None);
        receiver.start(Instant::ZERO);
        while let Some(now) = sender.next_departure().filter(|at| *at < end) {
            if now >= warm && before.is_none() {
                (before, changes) = (Some(calls()), 0);
            }
            let departure = sender.departure(now).unwrap();
            sender.departed(now, 1_440);
            packets += 1;
            receiver.timeout(now);
            // One packet in a thousand is lost.
            if held[usize::from(departure.channel.0)] && !packets.is_multiple_of(1_000) {
                let arrival = Arrival {
                    source: ([192, 0, 2, 1], 4_242).into(),
                    channel: departure.channel,
                    cci: &departure.cci,
                    ecn: Ecn::NotCapable,
                    bytes: 1_440,
                    lateness: Duration::ZERO,
                };
                receiver.arrived(now, &arrival);
            }
            while let Some(membership) = receiver.poll_membership() {
                changes += 1;
                match membership {
                    Membership::Join(channel) => held[usize::from(channel.0)] = true,
                    Membership::Leave(channel) => held[usize::from(channel.0)] = false,
                }
            }
        }
        assert!(changes > 10, "{:?}: {changes} joins and leaves", config.kind());
        assert_eq!(calls() - before.unwrap(), 0, "{:?}", config.kind());
    }
}

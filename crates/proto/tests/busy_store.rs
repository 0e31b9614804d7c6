//! A receiver whose store is busy decoding while packets still come.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use std::collections::BTreeMap;

use headwater_fec::{DecodeError, Order, Parameters, Repair, Scheme, codec};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySenderConfig, MemoryStore, PlanConfig, ReceiverEvent,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};
use headwater_wire::alc;
use pair::{content, sender};

/// Files of one block each.
const FILES: usize = 20;
/// K of each block.
const K: u32 = 10;
const T: u16 = 256;

struct Bench {
    receiver: DeliveryReceiver<fixed::FixedReceiver, MemoryStore>,
    is_joined: bool,
    joins: usize,
    is_complete: bool,
}

impl Bench {
    fn new() -> Self {
        let mut store = MemoryStore::new(1 << 20);
        store.set_busy(true);
        let config = DeliveryReceiverConfig::default();
        let receiver = DeliveryReceiver::new(config, fixed::FixedReceiver::new(), store, Instant::ZERO);
        let mut bench = Self { receiver, is_joined: false, joins: 0, is_complete: false };
        bench.handle(Input::Timeout);
        bench
    }

    fn give(&mut self, payload: &[u8]) {
        let source = "192.0.2.1:4000".parse().unwrap();
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        self.handle(Input::Datagram(datagram));
    }

    fn handle(&mut self, input: Input<'_>) {
        self.receiver.handle(Instant::ZERO, input);
        while let Some(output) = self.receiver.poll_output(Instant::ZERO, &mut []) {
            match output {
                Output::Join(_) => (self.is_joined, self.joins) = (true, self.joins + 1),
                Output::Leave(_) => self.is_joined = false,
                Output::Event(ReceiverEvent::SessionCompleted { .. }) => self.is_complete = true,
                _ => {}
            }
        }
    }
}

/// Datagrams by file and ESI.
type Symbols = BTreeMap<(u128, u32), Vec<u8>>;

/// The sender's datagrams: those of the FDT, and those of symbols.
fn datagrams(contents: &[Vec<u8>]) -> (Vec<Vec<u8>>, Symbols) {
    let plan =
        PlanConfig { scheme: Scheme::RaptorQ, symbol_size: T, order: Order::Spread { rate: 1_000_000 } };
    let mut sender = sender(contents, plan, DeliverySenderConfig::new(7), Rate::from_kilobits(1_000));
    let (mut fdt, mut symbols) = (Vec::new(), BTreeMap::new());
    let (mut now, mut buffer) = (Instant::ZERO, vec![0; DATAGRAM_BYTES_MAX]);
    while symbols.len() < FILES * 6 * K as usize {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let datagram = &buffer[..transmit.bytes];
            match alc::parse(datagram).map(|(header, _)| (header.toi, header.payload_id)).unwrap() {
                (Some(0), _) => fdt.push(datagram.to_vec()),
                (Some(toi), Some(id)) => _ = symbols.insert((toi, id.esi), datagram.to_vec()),
                _ => {}
            }
        }
        now = sender.poll_timeout().unwrap().max(now + Duration::from_nanos(1));
        sender.handle(now, Input::Timeout);
    }
    (fdt, symbols)
}

/// Whether all source symbols but the last two, and these repair symbols, determine a block.
fn suffice(repairs: &[u32]) -> bool {
    let symbol = vec![0; T.into()];
    let repairs: Vec<Repair<'_>> = repairs.iter().map(|esi| Repair { esi: *esi, data: &symbol }).collect();
    let mut block = vec![0; K as usize * usize::from(T)];
    match codec(Parameters::raptorq(T)).unwrap().decode(K, &mut block, &[K - 2, K - 1], &repairs) {
        Ok(()) => true,
        Err(DecodeError::NeedMore { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// While blocks wait for the decoder, they take the symbols that come, and the receiver stays until each has
/// one to spare: a block of K symbols that fails is decoded by another symbol, without joining again.
#[test]
fn a_block_that_waits_for_the_decoder_takes_a_symbol_to_spare() {
    let contents: Vec<_> = (0..FILES).map(|file| content(file as u64, K as usize * usize::from(T))).collect();
    let (fdt, symbols) = datagrams(&contents);
    let mut bench = Bench::new();
    fdt.iter().for_each(|datagram| bench.give(datagram));

    let tois: Vec<u128> = (1..=FILES as u128).collect();
    // Pairs of repair symbols that do not suffice: one of some hundred.
    let mut weak = BTreeMap::new();
    for toi in &tois {
        let repairs: Vec<u32> = symbols.range((*toi, K)..(*toi + 1, 0)).map(|((_, esi), _)| *esi).collect();
        let pairs = repairs.iter().flat_map(|one| repairs.iter().map(move |other| [*one, *other]));
        let mut pairs = pairs.filter(|[one, other]| one < other);
        let pair = pairs.find(|pair| !suffice(pair)).unwrap_or([repairs[0], repairs[1]]);
        let spare = repairs.iter().find(|esi| suffice(&[pair[0], pair[1], **esi]) && !pair.contains(esi));
        weak.insert(*toi, (pair, *spare.unwrap()));
    }
    assert!(weak.values().any(|(pair, _)| !suffice(pair)), "a block must fail at K symbols");

    for (toi, (pair, _)) in &weak {
        (0..K - 2).chain(*pair).for_each(|esi| bench.give(&symbols[&(*toi, esi)]));
    }
    assert!(bench.is_joined, "all blocks have K symbols, and none is decoded");
    let mut before_last = weak.iter();
    let (last, (_, spare_of_last)) = before_last.next_back().unwrap();
    before_last.for_each(|(toi, (_, spare))| bench.give(&symbols[&(*toi, *spare)]));
    assert!(bench.is_joined, "a block has no symbol to spare");
    bench.give(&symbols[&(*last, *spare_of_last)]);
    assert!(!bench.is_joined, "all blocks have one to spare");

    bench.receiver.store_mut().set_busy(false);
    bench.handle(Input::Timeout);
    assert!(bench.is_complete, "no packet more is needed");
    assert_eq!(bench.joins, 1);
    // Files end in the order of their blocks.
    let received: Vec<_> = bench.receiver.store().finished().map(|(_, bytes)| bytes.to_vec()).collect();
    assert!(received.len() == FILES && contents.iter().all(|content| received.contains(content)));
}

/// A store that keeps up holds nobody: the receiver leaves with the symbol that makes its last block whole.
#[test]
fn a_receiver_with_a_quick_store_leaves_with_the_last_symbol() {
    let contents: Vec<_> = (0..FILES).map(|file| content(file as u64, K as usize * usize::from(T))).collect();
    let (fdt, symbols) = datagrams(&contents);
    let mut bench = Bench::new();
    bench.receiver.store_mut().set_busy(false);
    fdt.iter().for_each(|datagram| bench.give(datagram));
    for toi in 1..=FILES as u128 {
        assert!(bench.is_joined && !bench.is_complete);
        (0..K).for_each(|esi| bench.give(&symbols[&(toi, esi)]));
    }
    assert!(!bench.is_joined && bench.is_complete);
    assert_eq!(bench.receiver.stats().surplus, 0);
}

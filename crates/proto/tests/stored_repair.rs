//! A source that has only so many repair symbols of each block, and some of them late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, MemoryStore, PlanConfig, RelativePath, SenderEvent, SessionPlan, Source, SourceError,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};
use headwater_wire::{PayloadId, alc};

const T: u16 = 64;
const RATE: Rate = Rate::from_kilobits(10_000);

/// Gives n = 2k symbols of each block, those of repair after it was asked for `late` of them.
#[derive(Debug)]
struct Stored {
    symbols: MemorySource,
    plan: SessionPlan,
    late: u32,
    fails: bool,
}

impl Stored {
    fn k(&self, object: usize, sbn: u32) -> u32 {
        self.plan.objects()[object].partition.block(sbn).unwrap().symbols
    }
}

impl Source for Stored {
    fn read_symbol(&mut self, object: usize, sbn: u32, esi: u32, out: &mut [u8]) -> Result<(), SourceError> {
        assert!(esi < 2 * self.k(object, sbn), "there is no symbol {esi}");
        self.symbols.read_symbol(object, sbn, esi, out)
    }

    fn encoding_symbols(&self, object: usize, sbn: u32) -> Option<u32> {
        Some(2 * self.k(object, sbn))
    }

    fn is_ready(&mut self, object: usize, sbn: u32, esi: u32) -> Result<bool, SourceError> {
        if esi < self.k(object, sbn) {
            return Ok(true);
        }
        if self.fails {
            return Err(SourceError::Session("no repair symbol will ever come".into()));
        }
        let is_ready = self.late == 0;
        self.late = self.late.saturating_sub(1);
        Ok(is_ready)
    }
}

/// Ten source symbols in one block.
fn session(late: u32, fails: bool, end: End) -> (Vec<u8>, DeliverySender<fixed::FixedSender, Stored>) {
    let bytes: Vec<u8> =
        (0..10 * u32::from(T)).map(|at| at.wrapping_mul(0x9E37_79B9).to_be_bytes()[0]).collect();
    let file = FileToSend {
        path: RelativePath::new("file").unwrap(),
        bytes: bytes.len() as u64,
        mode: None,
        modified: None,
    };
    let order = Order::Spread { rate: RATE.as_bits() };
    let plan =
        SessionPlan::new(vec![file], PlanConfig { scheme: Scheme::RaptorQ, symbol_size: T, order }).unwrap();
    let symbols = MemorySource::new(&plan, &[&bytes]);
    let digests = symbols.digests();
    let source = Stored { symbols, plan: plan.clone(), late, fails };
    let control = fixed::FixedSender::new(RATE, Instant::ZERO);
    let config = DeliverySenderConfig::new(1).with_end(end);
    (bytes, DeliverySender::new(config, &plan, &digests, control, source).unwrap())
}

/// All datagrams and events of a session.
fn run(mut sender: DeliverySender<fixed::FixedSender, Stored>) -> (Vec<Vec<u8>>, Vec<SenderEvent>) {
    let (mut now, mut buffer) = (Instant::ZERO, vec![0; DATAGRAM_BYTES_MAX]);
    let (mut datagrams, mut events) = (Vec::new(), Vec::new());
    while !sender.is_finished() {
        sender.handle(now, Input::Timeout);
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            match output {
                Output::Transmit(transmit) => datagrams.push(buffer[..transmit.bytes].to_vec()),
                Output::Event(event) => events.push(event),
                other => panic!("a sender joins nothing: {other:?}"),
            }
        }
        now = sender.poll_timeout().unwrap_or(now);
    }
    (datagrams, events)
}

fn esis(datagrams: &[Vec<u8>]) -> Vec<u32> {
    let of_content = |datagram: &Vec<u8>| {
        let (header, _) = alc::parse(datagram).unwrap();
        let PayloadId { esi, .. } = header.payload_id?;
        header.toi.filter(|toi| *toi > 0).map(|_| esi)
    };
    datagrams.iter().filter_map(of_content).collect()
}

#[test]
fn a_store_of_n_symbols_is_sent_in_cycles() {
    let (_, sender) = session(0, false, End::Passes(5));
    let (datagrams, _) = run(sender);
    let expected: Vec<u32> = (0..50).map(|sent| sent % 20).collect();
    assert_eq!(esis(&datagrams), expected);
}

#[test]
fn a_repair_symbol_that_is_late_gives_way_to_a_source_symbol() {
    let (bytes, sender) = session(3, false, End::Passes(2));
    let (datagrams, _) = run(sender);
    let expected: Vec<u32> = (0..10).chain([9, 8, 7]).chain(13..20).collect();
    assert_eq!(esis(&datagrams), expected);

    // Whoever heard nothing of the first pass decodes from the second: 3 source and 7 repair symbols.
    let mut receiver = DeliveryReceiver::new(
        DeliveryReceiverConfig::default(),
        fixed::FixedReceiver::new(),
        MemoryStore::new(1 << 20),
        Instant::ZERO,
    );
    let first_pass = 1..11;
    for (index, payload) in datagrams.iter().enumerate() {
        if !first_pass.contains(&index) {
            let source = "192.0.2.1:4000".parse().unwrap();
            let channel = Some(ChannelId::BASE);
            let datagram = Datagram { source, channel, ecn: Ecn::NotCapable, payload };
            receiver.handle(Instant::ZERO, Input::Datagram(datagram));
            while receiver.poll_output(Instant::ZERO, &mut []).is_some() {}
        }
    }
    let (_, received) = receiver.store().finished().next().unwrap();
    assert!(received == bytes);
}

#[test]
fn repair_symbols_that_never_come_end_the_session() {
    let (_, sender) = session(0, true, End::Never);
    let (datagrams, events) = run(sender);
    assert_eq!(esis(&datagrams), (0..10).collect::<Vec<_>>());
    assert!(events.contains(&SenderEvent::SourceFailed(SourceError::Session(
        "no repair symbol will ever come".into()
    ))));
}

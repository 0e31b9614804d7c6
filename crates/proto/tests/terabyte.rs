//! What a receiver takes to keep account of content of any length, by an allocator that counts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]

#[expect(dead_code, reason = "other tests ask for more")]
mod allocated;
#[expect(dead_code, reason = "other tests ask for more")]
mod bench;
mod counter;

use bench::{complete, fdt, packet};
use counter::Counter;
use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    BLOCK_STATE_BYTES, DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig,
    Digest, Drops, FileToSend, PlanConfig, PlannedObject, RelativePath, SessionPlan, Source, SourceError,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};
use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Headwater, Instance, OtiAttributes, Segment};
use headwater_wire::{Fti, PayloadId};

const MIB: usize = 1 << 20;
const TERABYTE: u64 = 1_000_000_000_000;
const T: usize = 1_408;

type Counted = DeliveryReceiver<fixed::FixedReceiver, Counter>;

fn receiver() -> Counted {
    DeliveryReceiver::new(
        DeliveryReceiverConfig::default(),
        fixed::FixedReceiver::new(),
        Counter::default(),
        Instant::ZERO,
    )
}

fn give(receiver: &mut Counted, payload: &[u8]) {
    let source = "192.0.2.1:4000".parse().unwrap();
    let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
    receiver.handle(Instant::ZERO, Input::Datagram(datagram));
    while receiver.poll_output(Instant::ZERO, &mut []).is_some() {}
}

/// Gives an FDT in as many packets as it takes, from the one with number `first` on.
fn give_fdt(receiver: &mut Counted, instance_id: u32, xml: &str, first: usize) {
    let fti = Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: 60_000, max_block: 1 };
    let extension = Some(FdtExtension { version: 2, instance_id });
    let extensions = Extensions { fdt: extension, fti: Some(fti), ..Extensions::default() };
    for (sbn, payload) in (0..).zip(xml.as_bytes().chunks(60_000)).skip(first) {
        give(receiver, &packet(Some(0), 0, extensions, Some(PayloadId { sbn, esi: 0 }), payload));
    }
}

fn plan(bytes: u64, rate: u64) -> SessionPlan {
    let file = FileToSend { path: RelativePath::new("large").unwrap(), bytes, mode: None, modified: None };
    let order = Order::Spread { rate };
    let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 1_408, order };
    SessionPlan::new(vec![file], config).unwrap()
}

/// The FDT of a planned file, with digests.
fn described(plan: &SessionPlan) -> Instance {
    let count = u32::try_from(plan.objects().len()).unwrap();
    let file_length = plan.files()[0].bytes;
    let entry = |(index, object): (u32, &PlannedObject)| {
        let length = object.partition.transfer_length();
        let blocks = u8::try_from(object.partition.blocks()).unwrap();
        let fti =
            Fti::RaptorQ { transfer_length: length, symbol_size: 1_408, blocks, sub_blocks: 1, alignment: 1 };
        let segment = Segment { index, count, offset: object.offset, file: "large".into(), file_length };
        File {
            toi: u128::from(index) + 1,
            content_location: format!("large.{index}"),
            transfer_length: Some(length),
            oti: OtiAttributes::from(&fti),
            headwater: Headwater {
                segment: Some(segment),
                digest: Some([1; 32]),
                block_digests: vec![[2; 16]; blocks.into()],
                ..Headwater::default()
            },
            ..File::default()
        }
    };
    complete((0..).zip(plan.objects()).map(entry).collect())
}

/// Begins all blocks, and receives so much that the repair symbols of all are known that a loss of so many
/// percent makes necessary: one of each 256, which takes as much as all of them.
fn receive_with_loss(receiver: &mut Counted, plan: &SessionPlan, lost: u32) -> u64 {
    let mut given = 0;
    for (toi, object) in (1..).zip(plan.objects()) {
        for block in (0..object.partition.blocks()).map(|sbn| object.partition.block(sbn).unwrap()) {
            let k = block.symbols;
            let needed = k * lost / (100 - lost);
            for esi in [0].into_iter().chain((k..k + needed).step_by(256)) {
                let id = PayloadId { sbn: block.sbn, esi };
                give(receiver, &packet(Some(toi), 6, Extensions::default(), Some(id), &[0; T]));
                given += 1;
            }
        }
    }
    given
}

#[test]
fn a_terabyte_is_received_within_the_bound_at_any_loss() {
    let plan = plan(TERABYTE, 500_000_000);
    let xml = described(&plan).to_xml();
    for (lost, is_all_kept) in [(3, true), (50, false)] {
        let mut machine = receiver();
        let bytes = allocated::peak(|| {
            give_fdt(&mut machine, 0, &xml, 0);
            let given = receive_with_loss(&mut machine, &plan, lost);
            let stats = machine.stats();
            assert_eq!(machine.store().symbols, stats.useful);
            assert_eq!(stats.dropped, Drops { no_room: given - stats.useful, ..Drops::default() });
            assert_eq!(stats.useful == given, is_all_kept, "{lost} %: {stats:?}");
        });
        println!("a terabyte of which {lost} % are lost: {:.1} MiB", bytes as f64 / MIB as f64);
        assert!(bytes > 80 * MIB, "a bit for each symbol, and each block: {bytes}");
        assert!(bytes < BLOCK_STATE_BYTES + 12 * MIB, "{lost} %: {bytes} bytes");
    }
}

/// Content that costs nothing.
struct Nothing;

impl Source for Nothing {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }

    fn encoding_symbols(&self, _: usize, _: u32) -> Option<u32> {
        Some(20_034)
    }
}

#[test]
fn a_terabyte_is_sent_within_the_bound() {
    // Blocks of 10 017 symbols, and of 14 415.
    for rate in [500_000_000, 50_000_000] {
        let plan = plan(TERABYTE, rate);
        let blocks: usize = plan.objects().iter().map(|object| object.partition.blocks() as usize).sum();
        let digests: Vec<Vec<Digest>> =
            plan.objects().iter().map(|object| vec![[2; 32]; object.partition.blocks() as usize]).collect();
        let bytes = allocated::peak(|| {
            let control = fixed::FixedSender::new(Rate::from_bits(rate).unwrap(), Instant::ZERO);
            let mut sender =
                DeliverySender::new(DeliverySenderConfig::new(1), &plan, &digests, control, Nothing).unwrap();
            let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
            let mut packets = 0;
            while packets < 20_000 {
                let now = sender.poll_timeout().unwrap();
                while let Some(output) = sender.poll_output(now, &mut buffer) {
                    packets += u32::from(matches!(output, Output::Transmit(_)));
                }
            }
        });
        println!("a terabyte in {blocks} blocks: {:.1} MiB", bytes as f64 / MIB as f64);
        // The FDT as values, as XML and as symbols, which is as long as its digests; and the blocks' own.
        assert!(bytes < 130 * blocks + 24 * MIB, "{bytes} bytes for {blocks} blocks");
    }
}

/// All that a hostile session can make a receiver keep, at the same time: packets of unknown objects, blocks,
/// names, and FDTs that never become whole.
#[test]
fn the_worst_that_a_session_can_do_is_bounded() {
    let mut machine = receiver();
    let bytes = allocated::peak(|| {
        // Blocks as large as they may be, begun each, in objects with long names.
        let fti = |length| Fti::NoCode { transfer_length: length, symbol_size: 1, max_block: 65_535 };
        let huge = |toi: u32| {
            let length = 65_535 * 4_000;
            let name = format!("{toi}{}", format!("/{}", "x".repeat(200)).repeat(5));
            File {
                toi: toi.into(),
                content_location: name,
                transfer_length: Some(length),
                oti: OtiAttributes::from(&fti(length)),
                ..File::default()
            }
        };
        let open = Instance { complete: false, ..complete((1..=4_000).map(huge).collect()) };
        give_fdt(&mut machine, 1, &open.to_xml(), 0);
        for number in 0..40_000 {
            let id = PayloadId { sbn: number % 4_000, esi: 0 };
            give(
                &mut machine,
                &packet(Some((number / 4_000 + 1).into()), 0, Extensions::default(), Some(id), &[0]),
            );
        }
        // Packets of objects that nobody describes.
        for number in 0..20_000_u32 {
            let id = Some(PayloadId { sbn: 0, esi: number });
            give(
                &mut machine,
                &packet(Some((100_000 + number % 90).into()), 0, Extensions::default(), id, &[0; T]),
            );
        }
        // Two FDTs that lack a packet, and one that is whole and as long as they come.
        for instance_id in [2, 3] {
            let xml = " ".repeat(headwater_proto::delivery::FDT_BYTES_MAX);
            give_fdt(&mut machine, instance_id, &xml, 1);
        }
        give(&mut machine, &fdt(4, &complete(Vec::new())));
    });
    println!("the worst session: {:.1} MiB", bytes as f64 / MIB as f64);
    let dropped = machine.stats().dropped;
    assert!(dropped.no_room > 0 && dropped.unknown_object > 0, "{dropped:?} {:?}", machine.files().count());
    assert!(bytes < 144 * MIB, "{bytes} bytes: a store has 112 MiB more");
}

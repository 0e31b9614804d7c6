//! Counters of a receiver: each datagram handed to it is in exactly one of them, whatever comes in whatever
//! order.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "other tests ask for more")]
mod bench;

use bench::{Bench, close, complete, fdt, file, packet, symbol};
use headwater_proto::delivery::{DeliveryReceiver, DeliveryReceiverConfig, block_digest, file_digest};
use headwater_proto::{Instant, fixed};
use headwater_wire::extensions::Extensions;
use headwater_wire::fdt::{File, Instance, OtiAttributes};
use headwater_wire::{Fti, PayloadId};
use proptest::prelude::*;

/// Room for a few packets before the FDT, so that some do not fit.
const PENDING_BYTES: usize = 3_000;
/// Objects that an FDT may describe, and one that none describes.
const OBJECTS: u128 = 7;

#[derive(Clone, Debug)]
enum Step {
    /// A symbol of an object: its number and bytes, of which those of most objects have 10.
    Symbol {
        toi: u128,
        esi: u32,
        bytes: usize,
    },
    /// A symbol of a code that no object has, or of a block that does not exist.
    Stray {
        toi: u128,
        codepoint: u8,
        sbn: u32,
    },
    /// A symbol that tells the coding of its object.
    Coded {
        toi: u128,
    },
    /// An instance of the FDT that describes the first `files` objects, by one of several versions of the
    /// content.
    Fdt {
        id: u32,
        files: usize,
        version: u8,
        complete: bool,
    },
    /// A packet of the FDT that cannot be read.
    BrokenFdt,
    /// A packet with neither object nor symbol.
    Bare,
    Close,
    Malformed {
        bytes: Vec<u8>,
    },
    /// A packet of another sender.
    Foreign {
        toi: u128,
    },
    Wait {
        milliseconds: u64,
    },
    /// Another receiver goes on with what this one had.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let toi = 1..=OBJECTS;
    prop_oneof![
        12 => (toi.clone(), 0_u32..4, prop_oneof![4 => Just(10_usize), 1 => 0_usize..12])
            .prop_map(|(toi, esi, bytes)| Step::Symbol { toi, esi, bytes }),
        1 => (toi.clone(), prop_oneof![Just(0_u8), Just(6)], 0_u32..3)
            .prop_map(|(toi, codepoint, sbn)| Step::Stray { toi, codepoint, sbn }),
        1 => toi.clone().prop_map(|toi| Step::Coded { toi }),
        4 => (0_u32..6, 0_usize..7, 0_u8..4, prop::bool::weighted(0.3))
            .prop_map(|(id, files, version, complete)| Step::Fdt { id, files, version, complete }),
        1 => Just(Step::BrokenFdt),
        1 => Just(Step::Bare),
        1 => Just(Step::Close),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Step::Malformed { bytes }),
        1 => toi.prop_map(|toi| Step::Foreign { toi }),
        1 => (0_u64..2_000).prop_map(|milliseconds| Step::Wait { milliseconds }),
        1 => Just(Step::Restart),
    ]
}

/// The bytes of a symbol of a file: those that its digest promises.
fn bytes_of(toi: u128, esi: u32, bytes: usize) -> Vec<u8> {
    let seed = u8::try_from(toi).unwrap().wrapping_mul(16).wrapping_add(u8::try_from(esi).unwrap());
    vec![seed; bytes]
}

/// An entry for an object; some versions contradict others, promise another content, or are refused.
fn entry(toi: u128, version: u8) -> File {
    let plain = file(toi, &format!("f{toi}"), 20, 10);
    match (toi % 5, version) {
        // Its symbols tell its coding.
        (1, 0) => File { oti: OtiAttributes::default(), ..plain },
        // Another length than in other instances.
        (2, 1) => file(toi, &format!("f{toi}"), 30, 10),
        // A name that is refused.
        (3, 2) => file(toi, "../f", 20, 10),
        (4, 3) => File { content_encoding: Some("br".to_owned()), ..plain },
        // What the symbols bring is not what is promised.
        (0, _) => promised(plain, &[b'?'; 20]),
        (2, _) => promised(plain, &[bytes_of(toi, 0, 10), bytes_of(toi, 1, 10)].concat()),
        _ => plain,
    }
}

fn promised(mut file: File, content: &[u8]) -> File {
    let block = block_digest(content);
    file.headwater.digest = Some(file_digest([&block]));
    file.headwater.block_digests = vec![block[..16].try_into().unwrap()];
    file
}

fn config() -> DeliveryReceiverConfig {
    DeliveryReceiverConfig::default().with_pending_bytes(PENDING_BYTES)
}

/// Another receiver that goes on with what this one had.
fn restarted(bench: Bench) -> Bench {
    let mut next = Bench::with(config());
    let (store, now) = (bench.receiver.into_store().interrupted(), Instant::from_nanos(bench.now));
    next.receiver = DeliveryReceiver::new(config(), fixed::FixedReceiver::new(), store, now);
    next.now = bench.now;
    next.wait(0);
    next
}

fn datagram(step: &Step) -> Option<Vec<u8>> {
    let id = |sbn, esi| Some(PayloadId { sbn, esi });
    Some(match step {
        Step::Symbol { toi, esi, bytes } => symbol(*toi, *esi, &bytes_of(*toi, *esi, *bytes)),
        Step::Stray { toi, codepoint, sbn } => {
            packet(Some(*toi), *codepoint, Extensions::default(), id(*sbn, 0), &[0; 10])
        }
        Step::Coded { toi } => {
            let fti = Some(Fti::NoCode { transfer_length: 20, symbol_size: 10, max_block: 64 });
            packet(
                Some(*toi),
                0,
                Extensions { fti, ..Extensions::default() },
                id(0, 0),
                &bytes_of(*toi, 0, 10),
            )
        }
        Step::Fdt { id, files, version, complete: is_complete } => {
            let files = (1..).take(*files).map(|toi| entry(toi, *version)).collect();
            fdt(*id, &Instance { complete: *is_complete, ..complete(files) })
        }
        Step::BrokenFdt => packet(Some(0), 0, Extensions::default(), id(0, 0), b"<"),
        Step::Bare => packet(Some(1), 0, Extensions::default(), None, &[]),
        Step::Close => close(),
        Step::Malformed { bytes } => bytes.clone(),
        Step::Foreign { toi } => symbol(*toi, 0, &[0; 10]),
        Step::Wait { .. } | Step::Restart => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_datagram_is_in_one_counter(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::with(config());
        let mut given = 0;
        for step in &steps {
            let was_ended = bench.receiver.is_ended();
            match (step, datagram(step)) {
                (Step::Foreign { .. }, Some(datagram)) => bench.give_from("192.0.2.2:4000", &datagram),
                (_, Some(datagram)) => bench.give(&datagram),
                (Step::Wait { milliseconds }, None) => bench.wait(*milliseconds),
                (_, None) => {
                    bench = restarted(bench);
                    given = 0;
                }
            }
            // What comes after the end is in no counter at all.
            given += u64::from(datagram(step).is_some() && !was_ended);
            let stats = bench.receiver.stats();
            prop_assert_eq!(stats.packets, given, "{:?}", step);
            prop_assert_eq!(stats.accounted(), given, "{:?}: {:?}", step, stats);
        }
    }
}

/// Packets that wait for the FDT move to the counter that they would have been in, and are in one meanwhile.
#[test]
fn packets_before_the_fdt_move_to_their_counters() {
    let mut bench = Bench::new();
    for toi in [1, 1, 2, 3] {
        bench.give(&symbol(toi, 0, &[7; 10]));
    }
    bench.give(&close());
    let stats = bench.receiver.stats();
    assert_eq!((stats.packets, stats.pending, stats.signalling), (5, 4, 1));
    // Of the first a symbol and its duplicate are taken, the second is refused, the third never described.
    bench.give(&fdt(0, &complete(vec![file(1, "a", 20, 10), file(2, "../b", 20, 10)])));
    let stats = bench.receiver.stats();
    let moved = (stats.useful, stats.duplicates, stats.dropped.refused, stats.dropped.unknown_object);
    assert_eq!((moved, stats.pending), ((1, 1, 1, 1), 0));
    assert_eq!((stats.packets, stats.accounted(), stats.fdt_packets), (6, 6, 1));
}

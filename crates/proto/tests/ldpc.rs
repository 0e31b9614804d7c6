//! Sessions in LDPC: the order of sending, what repeats when, and what hostile parameters come to.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "other tests ask for more")]
mod bench;
#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use std::collections::BTreeSet;

use bench::{Bench, complete, fdt, file, packet};
use headwater_fec::{Order, Scheme, sending_order};
use headwater_proto::delivery::{DeliverySenderConfig, End, PlanConfig};
use headwater_proto::{DATAGRAM_BYTES_MAX, Instant, Machine, Output, Rate, Seed};
use headwater_wire::extensions::Extensions;
use headwater_wire::fdt::{File, OtiAttributes};
use headwater_wire::fti::Ldpc;
use headwater_wire::{Fti, PayloadId, alc};
use pair::{FixedSender, Link, Pair, content, sender};

const RATE: Rate = Rate::from_kilobits(20_000);
const LIMIT: Instant = Instant::from_nanos(3_600_000_000_000);
const SCHEMES: [Scheme; 2] = [Scheme::LdpcStaircase, Scheme::LdpcTriangle];

fn ldpc(scheme: Scheme) -> PlanConfig {
    PlanConfig { scheme, symbol_size: 64, order: Order::Spread { rate: RATE.as_bits() } }
}

/// Object and symbol of each packet of content, in the order of sending.
fn sent(mut sender: FixedSender) -> Vec<(u128, PayloadId)> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut sent = Vec::new();
    while let Some(now) = sender.poll_timeout() {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            if let Output::Transmit(transmit) = output {
                let (header, _) = alc::parse(&buffer[..transmit.bytes]).unwrap();
                let is_content = header.toi.is_some_and(|toi| toi > 0);
                sent.extend(header.payload_id.filter(|_| is_content).map(|id| (header.toi.unwrap(), id)));
            }
        }
    }
    sent
}

/// n = 2k symbols, each once, in the random order; then the same again, also by a sender that was started
/// again.
#[test]
fn nothing_comes_twice_before_all_symbols_came() {
    for scheme in SCHEMES {
        let contents = [content(1, 500 * 64)];
        let config = DeliverySenderConfig::new(1).with_end(End::Passes(4));
        let symbols = sent(sender(&contents, ldpc(scheme), config, RATE));
        let esis: Vec<u32> = symbols.iter().map(|(_, id)| id.esi).collect();
        assert_eq!(esis[..1_000], sending_order(1, 1_000)[..]);
        assert_eq!((esis.len(), &esis[..1_000]), (2_000, &esis[1_000..]));
        assert_eq!(symbols, sent(sender(&contents, ldpc(scheme), config, RATE)));
    }
}

/// A pass is as many symbols as the content has: a single one has nothing to spare, and is the content.
#[test]
fn a_single_pass_is_the_content_itself() {
    let contents = [content(1, 500 * 64), content(2, 10)];
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(1));
    let symbols = sent(sender(&contents, ldpc(Scheme::LdpcTriangle), config, RATE));
    let distinct: BTreeSet<(u128, u32)> = symbols.iter().map(|(toi, id)| (*toi, id.esi)).collect();
    assert_eq!((symbols.len(), distinct.len()), (501, 501));
    assert!(symbols.iter().all(|(_, id)| id.esi < 500));
    let mut pair =
        Pair::new(Seed(1), sender(&contents, ldpc(Scheme::LdpcTriangle), config, RATE), &[Link::default()]);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}

/// Late joiners and lossy ones need few more symbols than the content has: Triangle about 1 %, Staircase with
/// N1 = 3 some 7 %. Up to 158 more are kept that come while an attempt is under way, in case it fails.
#[test]
fn few_symbols_beyond_the_content_are_needed() {
    let contents = [content(5, 5_000 * 64)];
    let joins = [0, 37_000_000, 111_000_000];
    let links: Vec<Link> = joins
        .iter()
        .flat_map(|at| [0.0, 0.05, 0.3].map(|loss| (Instant::from_nanos(*at), loss)))
        .map(|(joins_at, loss)| Link { loss, joins_at, ..Link::default() })
        .collect();
    for (scheme, most) in [(Scheme::LdpcTriangle, 5_039 + 158 + 20), (Scheme::LdpcStaircase, 5_600)] {
        let mut pair =
            Pair::new(Seed(4), sender(&contents, ldpc(scheme), DeliverySenderConfig::new(1), RATE), &links);
        pair.run(LIMIT);
        for end in &pair.receivers {
            end.assert_received(&contents);
            let stats = end.machine.stats();
            println!("{scheme}: {} symbols of 5000", stats.useful);
            assert!(stats.useful <= most, "{scheme}: {} symbols", stats.useful);
        }
    }
}

#[test]
fn files_of_every_size_arrive_over_bad_links() {
    let links = [
        Link { loss: 0.05, ..Link::default() },
        Link { loss: 0.4, reordered: 0.1, duplicated: 0.05, ..Link::default() },
    ];
    let contents: Vec<Vec<u8>> =
        [0, 1, 64, 65, 129, 9_000].into_iter().map(|bytes| content(1, bytes)).collect();
    for scheme in SCHEMES {
        let mut pair =
            Pair::new(Seed(3), sender(&contents, ldpc(scheme), DeliverySenderConfig::new(7), RATE), &links);
        pair.run(LIMIT);
        pair.receivers.iter().for_each(|end| end.assert_received(&contents));
    }
}

/// Whatever the parameters say, the receiver neither panics nor hangs, and others' files arrive.
#[test]
fn hostile_parameters_cost_their_own_file_only() {
    let many = (1 << 20) - 1;
    let mut hostile = Vec::new();
    for (max_block, max_symbols) in
        [(1, many), (many, many), (many - 1, many), (2, 3), (1, 2), (1 << 18, many), (300, 301)]
    {
        for (seed, n1_minus3, g) in [(1, 0, 1), (0x7FFF_FFFE, 7, 1), (1, 0, 31)] {
            for blocks in [1, 3] {
                let transfer_length = (u64::from(max_block) * 2 * blocks).min(40_000);
                hostile.push(Ldpc {
                    transfer_length,
                    symbol_size: 2,
                    n1_minus3,
                    g,
                    max_block,
                    max_symbols,
                    seed,
                });
            }
        }
    }
    for claim in hostile {
        for fti in [Fti::LdpcStaircase(claim), Fti::LdpcTriangle(claim)] {
            if fti.validate().is_err() {
                continue;
            }
            let mut bench = Bench::new();
            let entry =
                File { oti: OtiAttributes::from(&fti), ..file(2, "hostile", claim.transfer_length, 1) };
            bench.give(&fdt(0, &complete(vec![entry, file(1, "honest", 10, 10)])));
            let codepoint = fti.encoding_id().codepoint();
            for at in 0..600_u32 {
                // The last symbols that exist, and those beyond.
                let esi = if at % 2 == 0 { at / 2 } else { claim.max_symbols.saturating_sub(at / 2) };
                let id = PayloadId { sbn: at % 3, esi };
                bench.give(&packet(Some(2), codepoint, Extensions::default(), Some(id), &[0xAB; 2]));
            }
            bench.give(&bench::symbol(1, 0, b"0123456789"));
            assert!(
                bench.received().contains(&("honest", &b"0123456789"[..])),
                "{fti:?}: {:?}",
                bench.events
            );
        }
    }
}

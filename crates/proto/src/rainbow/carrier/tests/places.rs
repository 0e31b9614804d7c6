//! Sources that are started again, and receivers that tell where in the cycle of a finite code they are.

use rand::RngExt as _;

use super::*;
use crate::delivery::{DeliverySenderConfig, Start};

const KEY: u64 = 9;

/// Runs sessions of other seeds one after the other. Returns the symbols that each receiver got twice or for
/// nothing, and the symbols of the content.
fn restarted(scheme: Scheme, seed: u64, receivers: usize) -> (Vec<u64>, u64) {
    let file = content(2_000_000);
    let mut stores: Vec<_> = (0..receivers).map(|_| MemoryStore::new(1 << 24)).collect();
    let mut beyond = vec![0; receivers];
    for session in 0..3 {
        let start = Start::Drawn(Seed(seed * 10 + session));
        let config = RainbowCarrierSenderConfig::new([KEY, session])
            .with_max_rate(Some(Rate::from_kilobits(2_000)), 300);
        let session_config = DeliverySenderConfig::new(u32::try_from(session).unwrap() + 1).with_start(start);
        let mut bed = Bed::new(sender_by(scheme, &[&file], config, session_config), 0.0);
        for store in stores.drain(..) {
            bed.receiver_with(store);
        }
        bed.run(if session < 2 { at(2_500 * receivers as u64) } else { at(600_000) });
        for (index, (receiver, _)) in bed.receivers.iter().enumerate() {
            let stats = receiver.stats();
            beyond[index] += stats.duplicates + stats.surplus;
            assert!(session < 2 || receiver.is_ended());
        }
        stores.extend(bed.receivers.into_iter().map(|(receiver, _)| receiver.into_store().interrupted()));
    }
    (beyond, file.len().div_ceil(SYMBOL.into()) as u64)
}

/// A receiver goes on where it was, and not at the place of the new session. Packets under way at each
/// end are missed: of Reed-Solomon, each costs a round of the other blocks.
#[test]
fn a_cycle_goes_on_after_the_source_was_started_again() {
    for (scheme, part) in [(Scheme::ReedSolomon, 20), (Scheme::NoCode, 100), (Scheme::LdpcStaircase, 20)] {
        for seed in 0..4 {
            let (beyond, symbols) = restarted(scheme, seed, 2);
            assert!(
                beyond.iter().all(|beyond| *beyond <= symbols / part),
                "{scheme}, seed {seed}: {beyond:?} of {symbols} symbols twice or for nothing"
            );
        }
    }
}

/// A receiver that is killed misses the packets under way, and goes on from another port. By then the order
/// is ahead of the place that the receiver tells, and goes on: other symbols replace what was missed. Without
/// repair symbols, the receiver asks for what was missed.
#[test]
fn kills_cost_little_of_a_finite_code() {
    let file = content(2_000_000);
    let symbols = file.len().div_ceil(SYMBOL.into()) as u64;
    let cases = [(Scheme::ReedSolomon, 8, 64), (Scheme::NoCode, symbols / 20, 20)];
    for (scheme, twice_most, part, seed) in
        cases.into_iter().flat_map(|(of, most, part)| (0..4).map(move |seed| (of, most, part, seed)))
    {
        let config =
            RainbowCarrierSenderConfig::new([KEY, seed]).with_max_rate(Some(Rate::from_kilobits(2_000)), 300);
        let session = DeliverySenderConfig::new(1).with_start(Start::Drawn(Seed(seed)));
        let mut bed = Bed::new(sender_by(scheme, &[&file], config, session), 0.0);
        let mut draw = Seed(seed).stream("kills", 0);
        let (mut store, mut twice, mut surplus, mut lives) = (MemoryStore::new(1 << 24), 0, 0, 0);
        loop {
            bed.receiver_with(store);
            lives += 1;
            let life = Duration::from_millis(draw.random_range(200..500));
            bed.run(if lives <= 15 { bed.now + life } else { at(600_000) });
            let (receiver, _) = bed.receivers.pop().unwrap();
            twice += receiver.stats().duplicates;
            surplus += receiver.stats().surplus;
            if receiver.is_ended() {
                break;
            }
            store = receiver.into_store().interrupted();
            bed.first_port += 1;
        }
        assert!(
            lives == 16 && twice <= twice_most && twice + surplus <= symbols / part,
            "{scheme}, seed {seed}: {twice} of {symbols} symbols twice, {surplus} for nothing, {lives} lives"
        );
    }
}

/// Blocks miss different packets, so that some blocks are whole long before the last: from then on requests
/// name the blocks that lack symbols.
#[test]
fn losses_bring_little_for_nothing() {
    let file = content(2_000_000);
    let symbols = file.len().div_ceil(SYMBOL.into()) as u64;
    for scheme in [Scheme::ReedSolomon, Scheme::RaptorQ, Scheme::NoCode, Scheme::LdpcStaircase] {
        for seed in 0..4 {
            let config = RainbowCarrierSenderConfig::new([KEY, seed])
                .with_max_rate(Some(Rate::from_kilobits(2_000)), 300);
            let session = DeliverySenderConfig::new(1).with_start(Start::Drawn(Seed(seed)));
            let mut bed = Bed::new(sender_by(scheme, &[&file], config, session), 0.02);
            bed.draw = Seed(seed).stream("loss", 1);
            bed.receiver();
            bed.run(at(600_000));
            let receiver = &bed.receivers[0].0;
            assert!(receiver.is_ended());
            let beyond = receiver.stats().duplicates + receiver.stats().surplus;
            assert!(
                beyond <= symbols / 64,
                "{scheme}, seed {seed}: {beyond} of {symbols} symbols beyond need"
            );
        }
    }
}

//! Samples of the round-trip time from NAKs.

use super::*;
use crate::le_sbcc::Estimator;

/// A hole is noticed by the packet behind it: only that one's time tells the round trip, not how long the
/// hole was.
#[test]
fn a_hole_gives_one_sample_of_the_round_trip() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(100), 1);
    assert!(bed.source.counters().originals > 200);
    let mut samples = |numbers: &[u32]| {
        let count = |bed: &Bed| bed.source.chain().expect("it is under LE-SBCC").counters().samples;
        let before = count(&bed);
        bed.give_source(host(66), &nak(numbers[0], numbers[1..].iter().copied()));
        count(&bed) - before
    };
    let row: Vec<_> = (0..100).collect();
    assert_eq!(samples(&row[..20]), 1);
    assert_eq!(samples(&[23, 24, 26, 21, 22]), 2, "two holes, in any order");
    assert_eq!(samples(&row[30..93]), 0, "a full list: the hole may be longer");
}

/// An SPM reveals a loss as the next packet does, and leaves earlier.
#[test]
fn a_loss_that_an_spm_reveals_is_no_sample() {
    for (estimator, expected) in [(Estimator::Published, 1), (Estimator::Sawtooth, 0)] {
        let control = LeSbccConfig::new(200).with_estimator(estimator);
        let chain = Chain::new(control, Seed(5).stream("source", 0), Instant::ZERO);
        let source = PgmSource::new(config(Mode::Pgm), SourceControl::LeSbcc(Box::new(chain)), Instant::ZERO);
        let mut bed = Bed::new(source, 1, lossless());
        // Heartbeats follow each packet.
        for _ in 0..4 {
            assert!(bed.source.send(&[1; 100]));
            bed.run(Duration::from_millis(1_500));
        }
        bed.give_source(host(66), &nak(2, []));
        let counters = bed.source.chain().expect("it is under LE-SBCC").counters();
        assert_eq!((counters.indications, counters.samples), (1, expected), "{estimator:?}");
    }
}

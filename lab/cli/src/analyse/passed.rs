//! Loss events that pass Max-LPRF in the round model of LE-SBCC's analysis, as CSV: 6000 packets, by the
//! number of receivers, each count with half of its 99 % interval over 40 seeds. The worst receiver loses 10
//! or 20 %, all further receivers 2 %.

use std::io::{self, Write};

use headwater_baselines::le_sbcc::rounds;
use headwater_proto::Seed;

const RUNS: u64 = 40;
/// Student's t at 99.5 %, for 39 degrees of freedom.
const T: f64 = 2.708;

/// Writes the table as lines of CSV.
pub fn write(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "worst_loss,receivers,passed,ci99")?;
    for worst in [0.1, 0.2] {
        for others in [0, 10, 100, 1_000, 10_000] {
            let run = |run| {
                f64::from(rounds::passed(6_000, worst, others, 0.02, &mut Seed(1).stream("rounds", run)))
            };
            let counts: Vec<f64> = (0..RUNS).map(run).collect();
            let mean = counts.iter().sum::<f64>() / RUNS as f64;
            let squares: f64 = counts.iter().map(|count| (count - mean) * (count - mean)).sum();
            let half = T * libm::sqrt(squares / (RUNS - 1) as f64 / RUNS as f64);
            writeln!(out, "{worst},{},{mean:.1},{half:.1}", others + 1)?;
        }
    }
    Ok(())
}

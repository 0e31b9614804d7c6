//! The table of LE-SBCC's analysis as CSV, in the format of `lab/experiments/le_sbcc/markov/published.csv`:
//! the number of lost packets per loss event, by the probability of loss, for independent and bursty losses.

use std::io::{self, Write};

use headwater_baselines::le_sbcc::markov::{Losses, analyse};

/// Maximum number of packets in a round trip, chosen to match the paper's figures.
const MOST: usize = 200;
const INDEPENDENT: [f64; 19] = [
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
];
const BURSTY: [f64; 16] =
    [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9];

/// Writes the table as lines of CSV.
pub fn write(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "case,N,p,p_li,mean_packets_per_rtt,le_per_rtt,ratio_pli_over_ple_per_packet")?;
    for (case, losses, probabilities) in
        [("nonbursty", Losses::Independent, &INDEPENDENT[..]), ("bursty", Losses::Bursty, &BURSTY[..])]
    {
        for p in probabilities {
            let found = analyse(losses, MOST, *p);
            writeln!(
                out,
                "{case},{MOST},{p},{:.5},{:.3},{:.4},{:.4}",
                found.indications_per_packet,
                found.packets,
                found.events_per_round_trip,
                found.indications_per_event
            )?;
        }
    }
    Ok(())
}

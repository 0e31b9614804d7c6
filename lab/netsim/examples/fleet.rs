//! A file to a fleet of receivers, each behind a link that loses 2 %: `time fleet 10000 6000`.

use std::process::ExitCode;

use headwater_netsim::speed::Fleet;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "an example is a program of its own")]
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let [receivers, packets] = numbers[..] else {
        eprintln!("usage: fleet RECEIVERS PACKETS");
        return ExitCode::FAILURE;
    };
    let mut fleet = Fleet::new(receivers, packets, 0.02);
    fleet.run.run_until(fleet.end);
    let (whole, hops) = (fleet.whole(), fleet.run.usage().packet_hops);
    println!("{whole} of {receivers} receivers hold {packets} packets, after {hops} packet-hops");
    if whole == receivers as usize { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

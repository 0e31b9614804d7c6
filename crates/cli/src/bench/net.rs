//! `headwater bench net`: whole sessions on one interface, beside bare loops of system calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::Scheme;
use headwater::net::Interface;

use super::bare::{self, Calls};
use super::report::{BenchReport, Speed, size};
use super::session::{Bed, PACKET_BYTES, Transfer};
use super::{ROUNDS, median_by};
use crate::args::MeasureArgs;
use crate::demo::content;
use crate::exit::{Exit, Failure, OrExit};

/// Rates to try, in percent of the rate of the bare pair. The bench finds the fixed rate at which the
/// receiver completes first, and stops when higher rates do not help.
const RATES: [u64; 8] = [25, 40, 60, 80, 100, 130, 170, 250];
/// Share of the best speed so far: a rate with less speed is the last rate tried.
const FALLING: f64 = 0.8;
/// Usual file system in memory.
const MEMORY: &str = "/dev/shm";

const TRANSFERS: [(&str, Transfer); 3] = [
    ("session, no code", Transfer { scheme: Scheme::NoCode, loss: 0.0, signing: None }),
    ("session, RaptorQ", Transfer { scheme: Scheme::RaptorQ, loss: 0.0, signing: None }),
    ("session, RaptorQ, 1 % loss", Transfer { scheme: Scheme::RaptorQ, loss: 0.01, signing: None }),
];

/// Rate at which a signed session is measured beside an unsigned one.
const SIGNED_RATE_BITS: u64 = 1_000_000_000;
const SIGNED: [(&str, Transfer); 2] = [
    ("1 Gbit/s, unsigned", Transfer { scheme: Scheme::NoCode, loss: 0.0, signing: Some(false) }),
    ("1 Gbit/s, signed", Transfer { scheme: Scheme::NoCode, loss: 0.0, signing: Some(true) }),
];

const SENDERS: [(&str, Scheme); 2] =
    [("sender alone, no code", Scheme::NoCode), ("sender alone, RaptorQ", Scheme::RaptorQ)];

/// Measures pairs of a sender and a receiver, then lone senders.
pub fn run(args: &MeasureArgs, report: &BenchReport) -> Result<(), Failure> {
    let parent = args.dir.clone().unwrap_or_else(default_folder);
    let folder = tempfile::Builder::new().prefix("headwater-bench-").tempdir_in(&parent);
    let folder =
        folder.or_exit(Exit::Disk, format!("cannot make a temporary folder in '{}'", parent.display()))?;
    let file = folder.path().join("content");
    content::make(&file, args.size.0, 1).or_exit(Exit::Disk, "cannot write the content to send")?;
    let bed = Bed::new(&args.interface, &file, folder.path().join("out"), args.size.0, !args.no_offload);
    let interface = Interface::find(&args.interface)
        .or_exit(Exit::Network, format!("cannot use the interface '{}'", args.interface))?;
    let bare = Bare { interface, time: args.time / u32::try_from(ROUNDS).expect("a few") };
    report.title(&format!(
        "{} in packets of {PACKET_BYTES} bytes on {}, median of {ROUNDS} rounds",
        size(args.size.0),
        bare.interface
    ));
    pairs(&bed, &bare, report)?;
    authentication(&bed, report)?;
    senders(&bed, &bare, report)
}

fn default_folder() -> PathBuf {
    if Path::new(MEMORY).is_dir() { MEMORY.into() } else { std::env::temp_dir() }
}

/// Bare loops.
struct Bare {
    interface: Interface,
    /// Time of a round.
    time: Duration,
}

impl Bare {
    fn run(&self, calls: Calls, received: bool) -> Result<Speed, Failure> {
        bare::run(&self.interface, calls, PACKET_BYTES, self.time, received)
            .or_exit(Exit::Network, format!("cannot run bare system calls on {}", self.interface))
    }
}

fn pairs(bed: &Bed<'_>, bare: &Bare, report: &BenchReport) -> Result<(), Failure> {
    let carried = bits(bare.run(Calls::Single, true)?);
    let mut rates = Vec::new();
    for (_, transfer) in TRANSFERS {
        rates.push(best_rate(bed, transfer, carried)?);
    }
    let (mut single, mut runs) = (Vec::new(), Vec::new());
    let mut sessions = [const { Vec::new() }; TRANSFERS.len()];
    for _ in 0..ROUNDS {
        single.push(bare.run(Calls::Single, true)?);
        runs.push(bare.run(Calls::Segmented, true)?);
        for (((_, transfer), rate), speeds) in TRANSFERS.iter().zip(&rates).zip(&mut sessions) {
            speeds.push(bed.transfer(*transfer, *rate)?);
        }
    }
    let single = median(single);
    report.row("net", "bare sendmmsg and recvmmsg", single, None);
    report.row("net", "bare UDP_SEGMENT and UDP_GRO", median(runs), None);
    for ((name, _), speeds) in TRANSFERS.iter().zip(sessions) {
        report.row("net", name, median(speeds), Some(("bare sendmmsg and recvmmsg", single)));
    }
    Ok(())
}

/// Measures a signed session and an unsigned one in turns, with packets of equal content.
fn authentication(bed: &Bed<'_>, report: &BenchReport) -> Result<(), Failure> {
    let mut sessions = [const { Vec::new() }; SIGNED.len()];
    for _ in 0..ROUNDS {
        for ((_, transfer), speeds) in SIGNED.iter().zip(&mut sessions) {
            speeds.push(bed.transfer(*transfer, SIGNED_RATE_BITS)?);
        }
    }
    let cpu = |speed: &Speed| speed.cpu_s_per_gb.unwrap_or_default();
    let [unsigned, signed] = sessions.map(|rounds| median_by(rounds, cpu));
    report.row("net", SIGNED[0].0, unsigned, None);
    report.row("net", SIGNED[1].0, signed, Some((SIGNED[0].0, unsigned)));
    Ok(())
}

/// Returns the rate in bit/s at which the receiver completes first.
fn best_rate(bed: &Bed<'_>, transfer: Transfer, carried: u64) -> Result<u64, Failure> {
    let mut best = (0.0, carried / 100 * RATES[0]);
    for percent in RATES {
        let rate = carried / 100 * percent;
        let goodput = bed.transfer(transfer, rate)?.bits_per_s;
        if goodput > best.0 {
            best = (goodput, rate);
        } else if goodput < best.0 * FALLING {
            break;
        }
    }
    Ok(best.1)
}

fn senders(bed: &Bed<'_>, bare: &Bare, report: &BenchReport) -> Result<(), Failure> {
    let mut runs = Vec::new();
    let mut sessions = [const { Vec::new() }; SENDERS.len()];
    for _ in 0..ROUNDS {
        runs.push(bare.run(Calls::Segmented, false)?);
        for ((_, scheme), speeds) in SENDERS.iter().zip(&mut sessions) {
            speeds.push(bed.send_alone(*scheme, bare.time)?);
        }
    }
    let runs = median(runs);
    report.row("net", "bare UDP_SEGMENT, no receiver", runs, None);
    for ((name, _), speeds) in SENDERS.iter().zip(sessions) {
        report.row("net", name, median(speeds), Some(("bare UDP_SEGMENT", runs)));
    }
    Ok(())
}

/// Converts a bare speed to a rate in bit/s.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no machine carries 2^64 bit/s")]
fn bits(speed: Speed) -> u64 {
    speed.bits_per_s as u64
}

fn median(rounds: Vec<Speed>) -> Speed {
    median_by(rounds, |speed| speed.bits_per_s)
}

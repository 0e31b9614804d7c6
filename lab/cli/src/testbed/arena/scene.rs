//! Scenes of the arena: the traffic that contenders compete with, as a plan for each cell.

use std::fmt::Write;

/// Contenders, in the order of reports: all programs that move files.
pub use headwater_netsim::plan::flow::MOVERS as CONTENDERS;
use headwater_netsim::plan::flow::{TOOLS, is_by_unicast};

/// Time for a rival to start up, after which receivers join and measurement begins.
const WARM_UP: &str = "8s";
/// Duration of a transfer at the bottleneck's rate, in seconds.
const IDEAL_SECONDS: u64 = 16;
/// A transfer that takes this multiple of its ideal time has failed.
const PATIENCE: u64 = 10;
/// bit/s that the short connections of [`Rival::Short`] ask for; less than half of the slowest link.
pub const SHORT_RATE: f64 = 480e3;

/// Rival traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    None,
    /// A TCP (reno) connection that always has more to send.
    Tcp,
    /// Two short connections a second, 30 kB on average.
    Short,
}

/// A scene, which every contender meets at each of its rates and numbers of receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    pub name: &'static str,
    pub title: &'static str,
    pub rival: Rival,
    /// Mbit/s of the bottleneck.
    pub rates: &'static [u64],
    pub receivers: &'static [usize],
    /// The last receiver is behind a quarter of the rate.
    pub is_slow: bool,
    /// Milliseconds that a membership message takes.
    pub join_ms: u64,
}

const PLAIN: Scene = Scene {
    name: "alone",
    title: "Alone",
    rival: Rival::None,
    rates: &[1, 4, 40],
    receivers: &[1, 2, 5],
    is_slow: false,
    join_ms: 0,
};

const TCP: Scene = Scene { name: "tcp", title: "Beside one TCP", rival: Rival::Tcp, ..PLAIN };
const CROWD: Scene =
    Scene { name: "short", title: "Beside short TCP connections", rival: Rival::Short, ..PLAIN };
const SLOW: Scene = Scene {
    name: "slow",
    title: "One receiver behind a quarter of the rate",
    rates: &[4],
    receivers: &[2, 5],
    is_slow: true,
    ..PLAIN
};
const JOIN: Scene = Scene {
    name: "join-500",
    title: "Joins that take 500 ms",
    rates: &[4],
    receivers: &[1],
    join_ms: 500,
    ..PLAIN
};

/// All scenes: about a day.
pub const FULL: &[Scene] = &[
    PLAIN,
    TCP,
    CROWD,
    SLOW,
    Scene { name: "join-100", title: "Joins that take 100 ms", join_ms: 100, ..JOIN },
    JOIN,
];

/// A short overview: each kind of scene at 4 Mbit/s.
pub const SHORT: &[Scene] = &[
    Scene { rates: &[4], receivers: &[1, 5], ..PLAIN },
    Scene { rates: &[4], receivers: &[1], ..TCP },
    Scene { rates: &[4], receivers: &[1], ..CROWD },
    Scene { receivers: &[5], ..SLOW },
    JOIN,
];

impl Scene {
    /// Bytes of the file at a rate, divided by `part` relative to the full form.
    pub fn bytes(rate: u64, part: u64) -> u64 {
        rate * 1_000_000 / 8 * IDEAL_SECONDS / part
    }

    /// The plan of a cell, as TOML.
    pub fn plan(&self, by: &str, rate: u64, receivers: usize, part: u64, runs: u64) -> String {
        let bytes = Self::bytes(rate, part);
        // Two links of a quarter of the rate in sequence are no slower than a single such link.
        let slowest = if self.is_slow { rate * 1_000 / 4 } else { rate * 1_000 };
        let alone = bytes * 8 / 1_000 / slowest.max(1);
        let served = if is_by_unicast(by) { receivers as u64 } else { 1 };
        let seconds = 30 + PATIENCE * alone.max(1) * served;
        // Contenders without congestion control get a rate that leaves room.
        let most = if matches!(by, "fixed" | "openpgm") { slowest * 9 / 10 } else { rate * 4_000 };
        // 75 ms at each rate, but 25 packets at least.
        let packets = (rate * 25 / 4).max(25);
        let (pairs, names) =
            (receivers + 1, (1..=receivers).map(|n| format!("\"sink-{n}\"")).collect::<Vec<_>>().join(", "));
        let mut text = format!(
            "name = \"arena-{scene}-{by}-{rate}-{receivers}\"\nruns = {runs}\nduration = \"{seconds}s\"\nwarm-up = \"{WARM_UP}\"\n\
             [topology]\nkind = \"dumbbell\"\npairs = {pairs}\naccess = {{ rate = \"1G\", delay = \"0ms\" }}\n\
             bottleneck = {{ rate = \"{rate}M\", delay = \"1ms\", queue = {{ packets = {packets} }} }}\n\
             [flow.main]\nkind = \"transfer\"\nby = \"{by}\"\nfrom = \"source-1\"\nreceivers = [{names}]\nsize = \"{bytes}B\"\n\
             max-rate = \"{most}k\"\njoin = \"{WARM_UP}\"\nstart = \"{start}\"\n\
             [measure]\nlinks = [\"bottleneck\"]\nuntil = [\"main\"]\n",
            scene = self.name,
            start = starts(by),
        );
        if self.is_slow {
            let quarter = rate * 250;
            writeln!(text, "[link.sink-{receivers}]\nrate = \"{quarter}k\"\ndelay = \"0ms\"\nqueue = {{ packets = {packets} }}").ok();
        } else if self.join_ms > 0 {
            for number in 1..=receivers {
                writeln!(
                    text,
                    "[link.sink-{number}]\nrate = \"1G\"\ndelay = \"0ms\"\ngraft-delay = \"{}ms\"",
                    self.join_ms
                )
                .ok();
            }
        }
        let rival = match self.rival {
            Rival::None => return text,
            Rival::Tcp => "kind = \"tcp\"",
            Rival::Short => "kind = \"short-tcp\"\ninterval = \"500ms\"\nmean-bytes = \"30kB\"",
        };
        writeln!(text, "[flow.rival]\n{rival}\nfrom = \"source-{pairs}\"\nto = \"sink-{pairs}\"").ok();
        text
    }
}

/// Start of the sender. Headwater's senders do not wait for receivers and start early. TCP starts with the
/// receivers. Other tools start a second after the receivers, because some of the tools wait for their
/// receivers.
fn starts(by: &str) -> &'static str {
    match by {
        _ if TOOLS.contains(&by) => "9s",
        "tcp" => WARM_UP,
        _ => "1s",
    }
}

#[cfg(test)]
mod tests {
    use headwater_netsim::plan::Plan;
    use headwater_netsim::plan::flow::FlowKind;

    use super::*;

    #[test]
    fn every_cell_is_a_plan() {
        for scene in FULL.iter().chain(SHORT) {
            for by in CONTENDERS {
                for (rate, receivers) in
                    scene.rates.iter().flat_map(|rate| scene.receivers.iter().map(move |n| (*rate, *n)))
                {
                    let text = scene.plan(by, rate, receivers, 1, 2);
                    let plan = Plan::parse("arena", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                    let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
                    assert_eq!(scenario.flows.len(), if scene.rival == Rival::None { 1 } else { 2 });
                    let FlowKind::Transfer(transfer) = &scenario.flows[0].kind else { panic!("no transfer") };
                    assert_eq!((transfer.by, transfer.size), (*by, rate * 2_000_000));
                    if scene.is_slow {
                        let slow = &scenario.topology.links
                            [scenario.topology.link(&format!("sink-{receivers}")).unwrap()];
                        assert_eq!(slow.forward.rate.as_bits(), rate * 250_000);
                    }
                }
            }
        }
    }
}

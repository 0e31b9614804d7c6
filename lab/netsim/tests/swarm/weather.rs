//! A plan from a seed.

use std::fmt::Write;

use headwater_proto::Seed;
use headwater_proto::rng::Stream;
use rand::Rng;

/// Faults are over by then.
const CALM_FROM: u64 = 25;
/// The longest back-off of a timer that doubles from its start to the end of the faults is over by then.
const DURATION: u64 = 90;

/// The plan of a seed: a random tree with a link more, traffic of all kinds, and faults until [`CALM_FROM`]
/// seconds.
pub fn plan(seed: u64) -> String {
    let mut weather = Weather { chance: Seed(seed).stream("swarm", 0), text: String::new() };
    let nodes = weather.from(4, 8);
    let names: Vec<String> = (0..nodes).map(|node| format!("\"n{node}\"")).collect();
    weather.line(&format!("name = \"swarm-{seed}\"\nseed = {seed}\nduration = \"{DURATION}s\""));
    weather.line(&format!("topology = {{ kind = \"graph\", nodes = [{}] }}", names.join(", ")));
    weather.line("measure = { bin = \"15s\" }");
    weather.line("network = { graft-delay = \"1ms\", leave-latency = \"200ms\" }");
    let links = weather.links(nodes);
    weather.flows(nodes);
    weather.faults(nodes, links);
    weather.text
}

struct Weather {
    chance: Stream,
    text: String,
}

impl Weather {
    /// A number from `low` to `high`, both among them.
    fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.chance.next_u64() % (high - low + 1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.from(0, words.len() as u64 - 1)).unwrap()]
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").unwrap();
    }

    /// Another node than `node`.
    fn other(&mut self, node: u64, nodes: u64) -> u64 {
        (node + self.from(1, nodes - 1)) % nodes
    }

    fn links(&mut self, nodes: u64) -> u64 {
        for node in 1..nodes {
            let up = self.from(0, node - 1);
            self.link(node, up, node);
        }
        // A second way somewhere: nothing may go round in it.
        self.link(nodes, 0, nodes - 1);
        nodes
    }

    fn link(&mut self, number: u64, a: u64, b: u64) {
        let (rate, delay) = (self.from(600, 4_000), self.from(1, 40));
        let queue = match self.from(0, 2) {
            0 => format!("{{ packets = {} }}", self.from(2, 60)),
            1 => format!("{{ bytes = \"{}kB\" }}", self.from(3, 60)),
            _ => format!(
                "{{ kind = \"red\", preset = \"ns1999\", packets = {}, ecn = true }}",
                self.from(20, 60)
            ),
        };
        let loss = match self.from(0, 2) {
            0 => "{ kind = \"none\" }".into(),
            1 => format!("{{ kind = \"bernoulli\", p = 0.{:02}, direction = \"both\" }}", self.from(1, 30)),
            _ => "{ kind = \"gilbert\", rate = 0.1, burst = 5.0, direction = \"both\" }".into(),
        };
        let reordered = self.from(0, 5);
        self.line(&format!(
            "[link.l{number}]\nbetween = [\"n{a}\", \"n{b}\"]\nrate = \"{rate}k\"\ndelay = \"{delay}ms\"\nqueue = {queue}\n\
             loss = {loss}\nimpair = {{ reordered = 0.0{reordered}, reordered-by = \"30ms\", duplicated = 0.02, damaged = \
             0.01, direction = \"both\" }}"
        ));
    }

    fn flows(&mut self, nodes: u64) {
        let source = self.from(0, nodes - 1);
        let receivers: Vec<String> =
            (0..nodes).filter(|node| *node != source).map(|node| format!("\"n{node}\"")).collect();
        let (fec, size, rate) =
            (self.pick(&["raptorq", "rs", "ldpc-triangle", "none"]), self.from(1, 200), self.from(60, 300));
        self.line(&format!(
            "[flow.file]\nkind = \"fixed\"\nfrom = \"n{source}\"\nreceivers = [{}]\nrate = \"{rate}k\"\nsize = \"{size}kB\"\n\
             fec = \"{fec}\"\ndecode = true\njoin = {{ uniform = [\"0s\", \"20s\"] }}",
            receivers.join(", ")
        ));
        for number in 0..self.from(1, 3) {
            let from = self.from(0, nodes - 1);
            let to = self.other(from, nodes);
            let profile = self.pick(&["ns1999", "ns2002", "ns2005", "rfc", "linux"]);
            let variant = self.pick(&["reno", "newreno", "sack"]);
            let ecn = self.pick(&["true", "false"]);
            self.line(&format!(
                "[flow.tcp-{number}]\nkind = \"tcp\"\nfrom = \"n{from}\"\nto = \"n{to}\"\nprofile = \"{profile}\"\n\
                 variant = \"{variant}\"\necn = {ecn}\nsegment-bytes = 1000\nmaximum-window = 40\nrto-maximum = \"8s\"\n\
                 rto-initial = \"1s\""
            ));
        }
        let to = self.other(source, nodes);
        self.line(&format!(
            "[flow.bursts]\nkind = \"on-off\"\nfrom = \"n{source}\"\nto = \"n{to}\"\nrate = \"300k\"\non = \"400ms\"\noff = \
             \"600ms\"\n[flow.pages]\nkind = \"short-tcp\"\nfrom = \"n{to}\"\nto = \"n{source}\"\ninterval = \"1s\"\n\
             mean-bytes = \"3kB\""
        ));
    }

    fn faults(&mut self, nodes: u64, links: u64) {
        for _ in 0..self.from(1, 4) {
            let (from, took, link) = (self.from(1, CALM_FROM - 8), self.from(1, 6), self.from(1, links));
            for (time, state) in [(from, "down"), (from + took, "up")] {
                self.line(&format!("[[at]]\ntime = \"{time}s\"\nlink = \"l{link}\"\nstate = \"{state}\""));
            }
        }
        for _ in 0..self.from(0, 3) {
            let (from, took, node) = (self.from(1, CALM_FROM - 8), self.from(1, 6), self.from(0, nodes - 1));
            for (time, state) in [(from, "paused"), (from + took, "running")] {
                self.line(&format!("[[at]]\ntime = \"{time}s\"\nnode = \"n{node}\"\nstate = \"{state}\""));
            }
        }
        let (time, node, step) = (self.from(1, CALM_FROM - 1), self.from(0, nodes - 1), self.from(1, 5_000));
        self.line(&format!("[[at]]\ntime = \"{time}s\"\nnode = \"n{node}\"\nclock-step = \"{step}s\""));
        for link in 1..=links {
            // Where faults overlapped, a link may have been mended before it was cut again.
            self.line(&format!("[[at]]\ntime = \"{CALM_FROM}s\"\nlink = \"l{link}\"\nstate = \"up\""));
            self.line(&format!(
                "[[at]]\ntime = \"{CALM_FROM}s\"\nlink = \"l{link}\"\nloss = {{ kind = \"none\", direction = \"both\" }}"
            ));
        }
    }
}

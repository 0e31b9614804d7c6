//! Sessions of SIM in plans: marking links, routers that merge reports.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use headwater_netsim::engine::Run;
use headwater_netsim::network::{AgentId, LinkId};
use headwater_netsim::plan::run::{Outcome, Watch};
use headwater_netsim::trace::{AgentEvent, LinkEvent, Observer, OnLink};
use headwater_proto::{Instant, Seed};
use headwater_wire::sim::SimReport;

use crate::{parse, spoilt};

/// Node 0 sends, 3 to 6 receive, behind 1 and 2 Mbit/s.
const TREE: &str = r#"
name = "sim"
duration = "90s"
warm-up = "60s"
[topology]
kind = "tree"
arity = 2
depth = 2
link = { rate = "3M", delay = "5ms", queue = { kind = "priority" }, back = { rate = "10M" } }
[link.n1]
rate = "1M"
[link.n5]
rate = "2M"
[flow.sim]
kind = "session"
control = "sim"
from = "n0"
receivers = ["n3", "n4", "n5", "n6"]
aggregate = ["n1", "n2"]
max-rate = "100M"
groups = 3
symbol-bytes = 976
header-bytes = 0
"#;

fn outcome(text: &str) -> Outcome {
    let plan = parse(text).unwrap();
    plan.run(&plan.cell(0), 1, &mut ()).unwrap()
}

fn rates(outcome: &Outcome) -> Vec<f64> {
    outcome.flows[0].members.iter().map(|member| member.throughput / 1e6).collect()
}

#[test]
fn rates_fit_the_receivers() {
    let aggregated = outcome(TREE);
    for (rate, path) in rates(&aggregated).iter().zip([1.0, 1.0, 2.0, 3.0]) {
        assert!((0.85..1.01).contains(&(rate / path)), "{:?}", rates(&aggregated));
    }
    let marks = |name: &str| aggregated.links.iter().find(|link| link.name == name).unwrap().marks;
    assert!(marks("n1") > 0 && marks("n5") > 0 && marks("n2") > 0);
    assert_eq!(marks("n3"), 0, "nothing waits there");
    assert_eq!(aggregated.flows[0].kind, "sim");
}

#[test]
fn it_works_without_routers_and_without_marks() {
    let alone = outcome(&spoilt(TREE, "aggregate = [\"n1\", \"n2\"]\n", ""));
    for (rate, path) in rates(&alone).iter().zip([1.0, 1.0, 2.0, 3.0]) {
        assert!(rate / path > 0.8, "each receiver reports to the sender: {:?}", rates(&alone));
    }
    for queue in ["{ kind = \"priority\", priority = false }", "{ packets = 20 }"] {
        let degraded = outcome(&spoilt(TREE, "{ kind = \"priority\" }", queue));
        for (rate, path) in rates(&degraded).iter().zip([1.0, 1.0, 2.0, 3.0]) {
            assert!((0.3..1.01).contains(&(rate / path)), "{queue}: {:?}", rates(&degraded));
        }
    }
}

#[test]
fn a_group_is_as_good_as_its_routers() {
    // One of them pauses for good: its receivers are not heard any more, and the others' rates go on.
    let text = format!("{TREE}\n[[at]]\ntime = \"10s\"\nnode = \"n1\"\nstate = \"paused\"\n");
    let silent = rates(&outcome(&text));
    assert!(silent[2] > 1.5 && silent[3] > 2.2, "{silent:?}");
}

#[test]
fn what_comes_and_goes_leaves_the_others_alone() {
    let cycle = "[flow.sim.member.n3]\ncycle = \"2s\"\n";
    let moved = outcome(&format!("{TREE}{cycle}"));
    let rates = rates(&moved);
    assert!(moved.flows[0].members[0].leaves >= 4, "{:?}", moved.flows[0].members[0]);
    assert!(rates[1] > 0.8 && rates[3] > 2.2, "{rates:?}");
}

#[test]
fn mistakes_are_told() {
    let wrong = |from: &str, to: &str| parse(&spoilt(TREE, from, to)).unwrap_err().to_string();
    assert!(wrong("groups = 3", "groups = 9").contains("at most 8 groups"));
    assert!(wrong("groups = 3", "decrease = 0.2").contains("from 0.5 to 0.99"));
    assert!(wrong("control = \"sim\"", "control = \"m2c\"").contains("means nothing to m2c"));
    let queue = |keys: &str| wrong("kind = \"priority\"", &format!("kind = \"priority\", {keys}"));
    assert!(queue("marking = \"threshold\", threshold = -1.0").contains("0 or more packets"));
    assert!(queue("threshold = 7.0").contains("marking = \"threshold\""), "marking is by RED");
    assert!(queue("gentle = true").contains("gentle"));
    let at = "[[at]]\ntime = \"1s\"\nlink = \"n1\"\nevery = \"1s\"\n";
    assert!(parse(&format!("{TREE}{at}")).unwrap_err().to_string().contains("taken in turn"));
    assert!(parse(&format!("{TREE}{at}rates = [\"1M\", \"2M\"]\n")).is_ok());
}

/// Looks at the links that lead to the sender.
#[derive(Default)]
struct Wire {
    agents: Vec<String>,
    up: Vec<LinkId>,
    /// Identities in reports of receivers, and in those that left routers.
    below: BTreeSet<u32>,
    above: BTreeSet<u32>,
    /// Routers, requests and ranks of reports that left routers.
    seen: BTreeSet<(u32, u16, u8)>,
    /// Receivers that what left a router spoke for, by router and request.
    heard: BTreeMap<(u32, u16), u32>,
    reports: usize,
    named: Vec<String>,
}

impl Observer for Wire {
    fn on_link(&mut self, _at: Instant, what: &OnLink<'_>) {
        let (LinkEvent::Taken, Ok(report)) = (what.event, SimReport::parse(what.payload)) else { return };
        if !self.up.contains(&what.link) {
            self.below.insert(report.source);
            return;
        }
        let name = &self.agents[what.packet.source.index()];
        if !name.contains("/aggregator/") {
            self.named.push(name.clone());
        }
        self.above.insert(report.source);
        self.seen.insert((report.source, report.request, report.group.rank));
        *self.heard.entry((report.source, report.request)).or_default() += report.population;
        self.reports += 1;
    }

    fn on_agent(&mut self, _at: Instant, _agent: AgentId, _event: AgentEvent<'_>) {}
}

#[derive(Default)]
struct Look(Option<Box<Wire>>);

impl Watch for Look {
    fn observers(&mut self, run: &Run, _links: &[LinkId]) -> Vec<Box<dyn Observer>> {
        let agents = run.names().agents.iter().map(ToString::to_string).collect();
        let up = ["n1/back", "n2/back"].map(|name| run.names().link(name).unwrap()).to_vec();
        vec![Box::new(Wire { agents, up, ..Wire::default() })]
    }

    fn finish(&mut self, observers: Vec<Box<dyn Observer>>) {
        let wire = observers.into_iter().find_map(|observer| (observer as Box<dyn Any>).downcast().ok());
        self.0 = wire;
    }
}

#[test]
fn no_receiver_is_named_beyond_its_router_and_groups_are_reported_once() {
    let plan = parse(TREE).unwrap();
    let mut look = Look::default();
    plan.run(&plan.cell(0), 1, &mut look).unwrap();
    let wire = look.0.unwrap();
    assert_eq!(wire.below.len(), 4);
    assert_eq!(wire.above.len(), 2, "two routers");
    assert!(wire.above.is_disjoint(&wire.below));
    assert_eq!(wire.named, Vec::<String>::new(), "datagrams come from routers alone");
    assert!(wire.reports > 200);
    assert_eq!(wire.seen.len(), wire.reports, "one report for each router, request and group");
}

/// Routers above a queue that fills and empties: the way down changes from request to request.
#[test]
fn everybody_is_heard_while_queues_fill() {
    let deep = spoilt(TREE, "depth = 2", "depth = 3");
    let deep = spoilt(&deep, "[link.n1]", "[link.n3]");
    let deep = spoilt(&deep, "[link.n5]", "[link.n4]");
    let deep = spoilt(
        &deep,
        r#"["n3", "n4", "n5", "n6"]"#,
        r#"["n7", "n8", "n9", "n10", "n11", "n12", "n13", "n14"]"#,
    );
    let deep = spoilt(&deep, r#"["n1", "n2"]"#, r#"["n1", "n2", "n3", "n4", "n5", "n6"]"#);
    let deep = spoilt(&deep, "max-rate", "start = { uniform = [\"0s\", \"1s\"] }\nmax-rate");
    let deep = spoilt(&spoilt(&deep, "90s", "50s"), "60s", "30s");
    for seed in 1..=2 {
        let plan = parse(&deep).unwrap().with_seed(Seed(seed));
        let mut look = Look::default();
        let outcome = plan.run(&plan.cell(0), 1, &mut look).unwrap();
        let wire = look.0.unwrap();
        // A router that says nothing to a request has heard nobody.
        let requests: BTreeSet<u16> = wire.heard.keys().map(|(_, request)| *request).collect();
        let asked =
            wire.above.iter().flat_map(|router| requests.iter().map(move |request| (*router, *request)));
        let missed = asked.filter(|of| wire.heard.get(of).is_none_or(|heard| *heard < 4)).count();
        let all = wire.above.len() * requests.len();
        assert!(100 * missed < all, "{missed} of {all} requests");
        let rates = rates(&outcome);
        for (rate, path) in rates.iter().zip([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0]) {
            assert!((0.85..1.01).contains(&(rate / path)), "{rates:?}");
        }
    }
}

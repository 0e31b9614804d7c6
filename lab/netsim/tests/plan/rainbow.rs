//! Rainbow in plans: breadcrumb routers at nodes, what is counted, and what is refused.

use headwater_netsim::plan::run::{EndResults, Outcome};

use crate::{parse, spoilt};

/// Three receivers behind one link, of which one has a slow link of its own.
const PLAN: &str = r#"
name = "rainbow"
duration = "120s"

[topology]
kind = "star"
leaves = 3
trunk = { rate = "400k", delay = "10ms", queue = { packets = 10 } }
leaf = { rate = "1M", delay = "5ms", queue = { packets = 10 } }

[link.leaf-1]
rate = "200k"

[flow.main]
kind = "rainbow"
from = "source"
receivers = "leaf-*"
routers = "hub"
packets = 1000
threshold = 3

[measure]
until = ["main"]
"#;

fn outcome(text: &str) -> Outcome {
    let plan = parse(text).unwrap();
    plan.run(&plan.cell(0), 1, &mut ()).unwrap()
}

fn main_flow(outcome: &Outcome) -> EndResults {
    outcome.flows[0].ends.clone()
}

#[test]
fn each_receiver_has_its_own_rate_and_links_carry_symbols_once() {
    let outcome = outcome(PLAN);
    let flow = &outcome.flows[0];
    assert_eq!(flow.session.unwrap().complete, Some(3));
    let times: Vec<f64> = flow.members.iter().map(|member| member.completion.unwrap()).collect();
    // 1000 packets of 512 bytes: 20.5 s at 200 kb/s, 10.2 s at 400 kb/s.
    assert!((20.5..27.0).contains(&times[0]), "{times:?}");
    assert!(times[1..].iter().all(|time| (10.2..14.0).contains(time)), "{times:?}");
    let slow = flow.members[0].rainbow.unwrap();
    assert!(slow.shared * 10 > slow.packets * 8, "{slow:?}");
    let counted = main_flow(&outcome);
    assert_eq!(
        counted.count("symbols"),
        counted.count("requests") + counted.count("nulls"),
        "a symbol for each"
    );
    assert!(counted.count("asked") * 2 > counted.count("requests") * 3, "the router merges: {counted:?}");
}

#[test]
fn without_breadcrumbs_every_request_reaches_the_source() {
    let counted = main_flow(&outcome(&spoilt(PLAN, "routers = \"hub\"\n", "")));
    assert!(counted.count("requests") * 10 > counted.count("asked") * 9, "{counted:?}");
    // A reply to anyone goes to everyone, whose own request brings one more.
    assert!(counted.number("overhead").is_some_and(|overhead| overhead > 2.0), "{counted:?}");
}

#[test]
fn one_receiver_is_a_unicast_flow() {
    let text = spoilt(PLAN, "receivers = \"leaf-*\"", "to = \"leaf-2\"");
    let outcome = outcome(&text);
    let counted = main_flow(&outcome);
    assert!(outcome.flows[0].session.is_none() && outcome.window.to < 15.0);
    assert!(counted.number("overhead").is_some_and(|overhead| overhead < 0.05), "{counted:?}");
}

/// Sixteen that lose a packet in a hundred by themselves, so that their windows are never in step, beside a
/// TCP.
const APART: &str = r#"
name = "apart"
duration = "60s"
warm-up = "20s"

[topology]
kind = "star"
leaves = 16
nodes = ["sink"]
trunk = { rate = "512k", delay = "10ms", queue = { kind = "red", preset = "ns1999", packets = 10 } }
leaf = { rate = "1M", delay = "5ms", queue = { packets = 10 }, loss = { kind = "bernoulli", p = 0.01, filter = "data" } }

[link.sink]
between = ["hub", "sink"]
rate = "1M"
delay = "5ms"

[flow.main]
kind = "rainbow"
from = "source"
receivers = "leaf-*"
routers = "hub"
reordering = "time"
keep = 256
join = { uniform = ["0s", "5s"] }

[flow.tcp]
kind = "tcp"
profile = "ns1999"
from = "source"
to = "sink"
"#;

#[test]
fn routers_that_keep_replies_serve_receivers_out_of_step_once_and_leave_a_tcp_its_share() {
    let kept = outcome(APART);
    let plain = outcome(&spoilt(APART, "keep = 256", "keep = 0"));
    let overhead = |outcome: &Outcome| main_flow(outcome).number("overhead").unwrap();
    assert!(overhead(&kept) < 0.1 && overhead(&plain) > 0.25, "{} {}", overhead(&kept), overhead(&plain));
    let share = kept.flows[0].throughput / kept.flows[1].throughput;
    assert!((0.6..1.7).contains(&share), "{share} of TCP's");
}

#[test]
fn mistakes_are_told() {
    for (from, to, told) in [
        ("threshold = 3", "threshold = 0", "'threshold'"),
        ("threshold = 3", "reordering = \"late\"", "count"),
        ("threshold = 3", "keep = 20000", "'keep'"),
        ("routers = \"hub\"", "routers = \"source\"", "needs no router"),
        ("routers = \"hub\"", "routers = \"hup\"", "hub"),
        ("packets = 1000", "packets = 0", "'packets'"),
    ] {
        let problems = parse(&spoilt(PLAN, from, to)).unwrap_err().to_string();
        assert!(problems.contains(told), "{to}: {problems}");
    }
}

//! Plans at work: what is measured, and that nothing but the plan decides it.

use headwater_netsim::plan::Plan;
use headwater_netsim::plan::run::{Outcome, RunError, Watch};

use crate::{DUMBBELL, STAR, parse, spoilt};

fn run(plan: &Plan, number: u64) -> Outcome {
    plan.run(&plan.cell(0), number, &mut ()).unwrap()
}

fn outcome(text: &str) -> Outcome {
    run(&parse(text).unwrap(), 1)
}

/// A source, a link of 1 Mbit/s and 10 ms with room for 10 packets, and packets of 1000 bytes in all.
const PIPE: &str = r#"
name = "pipe"
duration = "12s"
warm-up = "2s"
topology = { kind = "graph", nodes = ["a", "b"] }
[link.pipe]
between = ["a", "b"]
rate = "1M"
delay = "10ms"
queue = { packets = 10 }
[flow.cbr]
kind = "cbr"
from = "a"
to = "b"
rate = "500k"
payload-bytes = 960
header-bytes = 40
[measure]
bin = "1s"
"#;

#[test]
fn a_window_is_measured_by_the_definitions() {
    let outcome = outcome(PIPE);
    let [flow] = &outcome.flows[..] else { panic!("one flow") };
    let [forward, back] = &outcome.links[..] else { panic!("one link of two directions") };
    assert_eq!((flow.send_rate, flow.throughput, flow.goodput), (500e3, 500e3, 480e3));
    assert_eq!((flow.loss, forward.loss, forward.drops, forward.marks), (Some(0.0), Some(0.0), 0, 0));
    assert_eq!((forward.arrivals, forward.throughput, forward.mean_queue), (625, 500e3, 0.0));
    assert_eq!((back.name.as_str(), back.arrivals, back.loss), ("pipe/back", 0, None));
    assert_eq!((outcome.window.from, outcome.window.to), (2.0, 12.0));
    let series = outcome.series.unwrap();
    assert_eq!(series.flows[0].throughput.len(), 12);
    let sent = series.flows[0].send_rate[5];
    assert!(sent == 496e3 || sent == 504e3, "a second has 62 or 63 packets: {sent}");
    assert_eq!(series.links[1].name, "pipe/back");
}

#[test]
fn a_group_may_have_a_receiver_at_a_node_called_source() {
    let outcome = outcome(
        r#"
        name = "back"
        duration = "2s"
        warm-up = "1s"
        topology = { kind = "star", leaves = 3, trunk = { rate = "1M", delay = "1ms" }, leaf = { rate = "1M", delay = "1ms" } }
        [flow.back]
        kind = "cbr"
        rate = "100k"
        from = "leaf-1"
        receivers = ["source", "leaf-2"]
        [measure]
        bin = "500ms"
        "#,
    );
    assert!((outcome.flows[0].throughput - 100e3).abs() < 9e3, "{:?}", outcome.flows[0]);
    // One group: its rates are the flow's.
    let flow = &outcome.series.unwrap().flows[0];
    let [group] = &flow.groups[..] else { panic!("one group") };
    assert_eq!((&group.send_rate, &group.throughput), (&flow.send_rate, &flow.throughput));
    assert_eq!(group.held, [1.0; 4], "both receivers are members from the start");
}

#[test]
fn an_overloaded_queue_is_full_and_drops_what_is_too_much() {
    let outcome = outcome(&spoilt(PIPE, "\"500k\"", "\"1250k\""));
    let link = &outcome.links[0];
    // Of 1.25 Mbit/s 0.25 is too much; 10 packets wait but for the moments after a departure.
    assert!((link.loss.unwrap() - 0.2).abs() < 0.002, "{link:?}");
    assert!((9.0..=10.0).contains(&link.mean_queue) && (link.throughput - 1e6).abs() < 2e3, "{link:?}");
    assert!((link.mean_queue_bytes - 1_000.0 * link.mean_queue).abs() < 1e-6);
    let flow = &outcome.flows[0];
    assert!((flow.loss.unwrap() - 0.2).abs() < 0.002 && flow.send_rate > 1.24e6, "{flow:?}");
}

#[test]
fn a_timetable_takes_effect_when_it_says() {
    let changes = "[[at]]\ntime = \"4s\"\nlink = \"pipe\"\nstate = \"down\"\n[[at]]\ntime = \"6s\"\nlink = \"pipe\"\n\
                   state = \"up\"\n[[at]]\ntime = \"8s\"\nlink = \"pipe\"\nrate = \"250k\"\n[[at]]\ntime = \"10s\"\n\
                   link = \"pipe\"\nloss = { kind = \"bernoulli\", p = 1.0 }\n";
    let series = outcome(&format!("{PIPE}{changes}")).series.unwrap();
    let rates = &series.flows[0].throughput;
    // The bin after a change has what was under way.
    let near = |bins: std::ops::Range<usize>, rate: f64| {
        let all = rates[bins.clone()].iter().all(|measured| (measured - rate).abs() <= 10e3);
        assert!(all, "bins {bins:?} should have {rate}: {rates:?}");
    };
    near(1..4, 500e3);
    near(5..6, 0.0);
    near(7..8, 500e3);
    near(9..10, 250e3);
    near(11..12, 0.0);
}

/// Found by the swarm: the time that a node stood still was taken for time to the next packet.
#[test]
fn bursts_go_on_after_a_pause_or_a_step_of_the_clock() {
    let bursts = "kind = \"on-off\"\non = \"200ms\"\noff = \"200ms\"";
    for (state, later) in
        [("state = \"paused\"", "state = \"running\""), ("clock-step = \"1h\"", "clock-step = \"2h\"")]
    {
        let at = |time, what| format!("[[at]]\ntime = \"{time}\"\nnode = \"a\"\n{what}\n");
        let text = [&spoilt(PIPE, "kind = \"cbr\"", bursts), &*at("3s", state), &at("6s", later)].concat();
        let series = outcome(&text).series.unwrap();
        assert!(
            series.flows[0].send_rate[7..].iter().sum::<f64>() > 300e3,
            "{text}: {:?}",
            series.flows[0].send_rate
        );
    }
}

#[test]
fn tcps_fill_a_bottleneck_and_are_counted() {
    let outcome = outcome(&spoilt(DUMBBELL, "[[at]]", "[measure]\nlinks = [\"bottleneck\"]\n[[at]]"));
    assert_eq!(outcome.links.len(), 2);
    assert_eq!(outcome.which.key.len(), 32);
    for flow in &outcome.flows {
        let tcp = &flow.ends;
        assert!(
            tcp.count("segments") > 500
                && tcp.count("retransmissions") > 0
                && tcp.number("mean_rtt").unwrap() > 0.044,
            "{flow:?}"
        );
        assert!(flow.goodput < flow.throughput && flow.throughput <= flow.send_rate, "{flow:?}");
    }
    assert!(outcome.jain["tcp"] > 0.5);
}

#[test]
fn a_session_is_received_whole_by_who_stays() {
    for text in [STAR.to_owned(), spoilt(STAR, "size = ", "decode = true\nsize = ")] {
        let outcome = outcome(&text);
        let session = outcome.flows[0].session.unwrap();
        assert_eq!((session.receivers, session.joins), (5, 5));
        // 100 kB take 0.8 s at 1 Mbit/s; leaf-3 has a second, from 4 to 5 s.
        assert_eq!(session.complete, Some(5), "{session:?}");
        assert!(session.longest_completion.unwrap() < 1.2, "{session:?}");
        assert_eq!(session.leaves, 5, "who has all leaves");
    }
}

#[test]
fn equal_runs_are_equal_and_others_are_not() {
    let plan = parse(DUMBBELL).unwrap();
    let (one, again, two) = (run(&plan, 1), run(&plan, 1), run(&plan, 2));
    assert_eq!(one, again);
    assert_ne!(one.trace, two.trace);
}

/// "A probe must not perturb": the series are read off, they are not events.
#[test]
fn reading_off_changes_nothing() {
    let plain = outcome(DUMBBELL);
    let mut probed = outcome(&spoilt(
        DUMBBELL,
        "[[at]]",
        "[measure]\nbin = \"7ms\"\nconvergence = { flows = [\"tcp\"], bin = \"1300us\" }\n[[at]]",
    ));
    // It is told of the bins.
    probed.flows.iter_mut().for_each(|flow| flow.variation = None);
    assert_eq!((plain.trace, plain.hops, plain.flows), (probed.trace, probed.hops, probed.flows));
}

/// Flows that do not meet may stand in any order.
#[test]
fn the_order_of_independent_flows_changes_nothing() {
    let flow = |name: &str| {
        format!(
            "[flow.{name}]\nkind = \"cbr\"\nnoise = true\nfrom = \"{name}1\"\nto = \"{name}2\"\nrate = \"500k\"\n"
        )
    };
    let link = |name: &str| {
        format!("[link.{name}]\nbetween = [\"{name}1\", \"{name}2\"]\nrate = \"400k\"\ndelay = \"1ms\"\n")
    };
    let head = "name = \"two\"\nduration = \"5s\"\ntopology = { kind = \"graph\", nodes = [\"a1\", \"a2\", \"b1\", \"b2\"] }\n\
                [link.ab]\nbetween = [\"a1\", \"b1\"]\nrate = \"1M\"\ndelay = \"1ms\"\n";
    let one = outcome(&[head, &link("a"), &link("b"), &flow("a"), &flow("b")].concat());
    let other = outcome(&[head, &link("b"), &link("a"), &flow("b"), &flow("a")].concat());
    assert_eq!(one.trace, other.trace);
    assert_eq!(one.flows[0], other.flows[1]);
}

#[test]
fn a_run_can_be_given_up() {
    struct Never;
    impl Watch for Never {
        fn go_on(&mut self) -> bool {
            false
        }
    }
    let plan = parse(PIPE).unwrap();
    assert_eq!(plan.run(&plan.cell(0), 1, &mut Never), Err(RunError::GivenUp));
}

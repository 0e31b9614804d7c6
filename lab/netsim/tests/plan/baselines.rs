//! TFMCC and PGMCC in plans.

use crate::{outcome, parse, spoilt};

/// A source and three receivers, of which the first loses most.
const FLOW: &str = r#"
name = "baselines"
duration = "40s"
warm-up = "10s"
[topology]
kind = "star"
leaves = 3
trunk = { rate = "10M", delay = "10ms" }
leaf = { rate = "10M", delay = "15ms", loss = { kind = "bernoulli", p = 0.005 } }
[link.leaf-1]
loss = { kind = "bernoulli", p = 0.03 }
[flow.main]
kind = "tfmcc"
from = "source"
receivers = "leaf-*"
packet-bytes = 560
header-bytes = 0
"#;

#[test]
fn what_the_sources_count_is_told() {
    for kind in ["tfmcc", "pgmcc"] {
        let outcome = outcome(&FLOW.replace("tfmcc", kind));
        let flow = &outcome.flows[0];
        let counted = &flow.ends;
        assert_eq!(flow.kind, kind);
        let sent = counted.count("packets") as f64 * 560.0 * 8.0 / 30.0;
        assert!(
            (flow.send_rate / sent - 1.0).abs() < 0.01,
            "{} is not {sent}: no feedback in it",
            flow.send_rate
        );
        assert!((0.85..1.0).contains(&(flow.throughput / flow.send_rate)), "{flow:?}");
        assert!(counted.count("feedback") > 0 && counted.count("feedback") < 2 * counted.count("packets"));
        assert_eq!(
            (counted.get("rounds").is_some(), counted.get("timeouts").is_some()),
            (kind == "tfmcc", kind == "pgmcc")
        );
        let losses: Vec<f64> = flow.members.iter().map(|member| member.loss.unwrap()).collect();
        assert!((0.02..0.045).contains(&losses[0]) && losses[1] < 0.015, "{losses:?}");
        // 50 ms and 3 %: some 100 packets a second.
        assert!((200_000.0..900_000.0).contains(&flow.throughput), "{}", flow.throughput);
    }
}

#[test]
fn one_receiver_makes_a_unicast_flow_without_a_group() {
    let text = spoilt(FLOW, "receivers = \"leaf-*\"", "to = \"leaf-2\"");
    let outcome = outcome(&text);
    let flow = &outcome.flows[0];
    assert!(flow.session.is_none() && flow.members.is_empty() && flow.goodput > 100_000.0, "{flow:?}");
}

#[test]
fn each_has_its_own_keys() {
    let wrong = |text: &str| parse(text).unwrap_err().to_string();
    let of_other = wrong(&spoilt(FLOW, "header-bytes = 0", "threshold = 4.0"));
    assert!(of_other.contains("threshold"), "{of_other}");
    let pgmcc = spoilt(FLOW, "tfmcc", "pgmcc");
    let low = wrong(&spoilt(&pgmcc, "header-bytes = 0", "threshold = 0.5"));
    assert!(low.contains("from 1 to 1000000"), "{low}");
    let short = wrong(&spoilt(FLOW, "header-bytes = 0", "initial-rtt = \"10us\""));
    assert!(short.contains("at least 1ms"), "{short}");
}

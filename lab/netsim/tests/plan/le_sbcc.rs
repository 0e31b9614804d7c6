//! Flows under LE-SBCC in plans: what is counted, what the switches do, NAKs aggregated at routers.

use headwater_netsim::plan::run::{EndResults, FlowOutcome, Outcome};

use crate::{outcome, parse, spoilt};

/// A source, a hub, and three receivers of which the first loses most.
const FLOW: &str = r#"
name = "le-sbcc"
duration = "200s"
[topology]
kind = "clusters"
leaves = [2, 1]
trunk = { rate = "10M", delay = "10ms" }
branch = { rate = "10M", delay = "10ms" }
leaf = { rate = "10M", delay = "5ms", loss = { kind = "bernoulli", p = 0.02 } }
[link.leaf-1]
loss = { kind = "bernoulli", p = 0.1 }
[flow.main]
kind = "le-sbcc"
from = "source"
receivers = "leaf-*"
payload-bytes = 536
header-bytes = 0
initial-rtt = "50ms"
back-off = "0s"
packets = 3000
[measure]
bin = "1s"
until = ["main"]
"#;

fn main_flow(outcome: &Outcome) -> (&FlowOutcome, &EndResults) {
    let flow = &outcome.flows[0];
    (flow, &flow.ends)
}

#[test]
fn what_the_source_counts_is_told() {
    let outcome = outcome(FLOW);
    let (flow, counted) = main_flow(&outcome);
    assert_eq!((flow.kind, counted.count("packets") + counted.count("repairs")), ("le-sbcc", 3_000));
    assert!(counted.count("repairs") > 0 && counted.count("naks") <= counted.count("loss_indications"));
    let stages = [
        counted.count("loss_indications"),
        counted.count("loss_events"),
        counted.count("passed"),
        counted.count("reductions"),
    ];
    assert!(stages.windows(2).all(|pair| pair[0] > pair[1] && pair[1] > 0), "{stages:?}");
    assert_eq!(counted.get("worst").and_then(|worst| worst.as_str()), Some("leaf-1"));
    // 25 ms each way, and the packets' own time.
    assert!((0.05..0.06).contains(&counted.number("srtt").unwrap()), "{}", counted.number("srtt").unwrap());
    assert!((0.05..0.06).contains(&counted.number("mean_rtt").unwrap()), "{:?}", counted.number("mean_rtt"));
    let rate = counted.number("loss_event_rate").unwrap();
    assert!((rate - counted.count("passed") as f64 / 3_000.0).abs() < 1e-9, "{rate}");
    // All were delivered in order, but for what was asked for at the end.
    assert!(
        flow.goodput > 0.9 * 536.0 * 8.0 * counted.count("packets") as f64 / outcome.window.to,
        "{flow:?}"
    );
    let losses: Vec<f64> = flow.members.iter().map(|member| member.loss.unwrap()).collect();
    assert!(
        (0.07..0.13).contains(&losses[0]) && losses[1..].iter().all(|loss| (0.01..0.04).contains(loss)),
        "{losses:?}"
    );
    assert!((0.1..1.5).contains(&flow.variation.unwrap()), "{:?}", flow.variation);
    assert!(outcome.window.to < 190.0, "the run ends with the flow: {:?}", outcome.window);
    let series = &outcome.series.as_ref().unwrap().flows[0];
    assert_eq!(series.srtt.len(), series.throughput.len());
    assert!(series.srtt[3..].iter().all(|srtt| (0.045..0.08).contains(srtt)), "{:?}", series.srtt);
}

#[test]
fn one_receiver_is_a_unicast_flow() {
    let text = spoilt(&spoilt(FLOW, "receivers = \"leaf-*\"", "to = \"leaf-1\""), "packets = 3000\n", "");
    let outcome = outcome(&spoilt(&spoilt(&text, "until = [\"main\"]\n", ""), "200s", "60s"));
    let (flow, counted) = main_flow(&outcome);
    assert!(flow.session.is_none() && flow.members.is_empty());
    assert_eq!(
        (counted.count("loss_events"), counted.get("worst").and_then(|worst| worst.as_str())),
        (counted.count("passed"), Some("leaf-1"))
    );
    assert!(counted.count("reductions") > 50, "{counted:?}");
}

#[test]
fn without_repairs_each_loss_is_told_of_once() {
    let outcome = outcome(&spoilt(FLOW, "packets = 3000", "packets = 3000\nrepairs = false"));
    let (flow, counted) = main_flow(&outcome);
    assert_eq!((counted.count("packets"), counted.count("repairs")), (3_000, 0));
    let lost: f64 = flow.loss.unwrap() * 9_000.0;
    // But for the first and the last ones, of which nobody knows.
    let told = counted.count("loss_indications") as f64 / lost;
    assert!((0.97..=1.0).contains(&told), "{told} of {lost}");
}

#[test]
fn each_stage_has_its_switch() {
    let counted = |switch: &str| {
        let outcome = outcome(&spoilt(FLOW, "packets = 3000", &format!("packets = 3000\n{switch}")));
        main_flow(&outcome).1.clone()
    };
    let without = counted("li2le = false");
    assert_eq!(without.count("loss_indications"), without.count("loss_events"));
    let without = counted("max-lprf = false");
    assert_eq!(without.count("loss_events"), without.count("passed"));
    let without = counted("atf = false");
    assert_eq!(without.count("passed"), without.count("reductions"));
    // Of new data alone: what repairs take of the rate comes in bursts.
    let variation = |module: &str| {
        let switches = format!("packets = 3000\nrepairs = false\nmodule = \"{module}\"");
        outcome(&spoilt(FLOW, "packets = 3000", &switches)).flows[0].variation.unwrap()
    };
    let (smooth, rough) = (variation("tfrc"), variation("aimd"));
    assert!(smooth < 0.7 * rough, "{smooth} {rough}");
    let capped =
        outcome(&spoilt(FLOW, "packets = 3000", "packets = 3000\nmax-rate = \"50k\"\nmin-rate = \"40k\""));
    assert!((39e3..51e3).contains(&capped.flows[0].send_rate), "{}", capped.flows[0].send_rate);
}

#[test]
fn estimators_and_modules_have_their_words() {
    // 25 ms each way, and up to 50 ms of back-off.
    let waiting = spoilt(FLOW, "back-off = \"0s\"", "back-off = \"50ms\"");
    let round_trip = |words: &str| {
        let outcome = outcome(&spoilt(&waiting, "packets = 3000", &format!("packets = 1500\n{words}")));
        let counted = main_flow(&outcome).1;
        assert!(counted.count("reductions") > 0, "{words}");
        (counted.number("srtt").unwrap(), counted.number("sigma").unwrap())
    };
    for words in ["module = \"sqrt\"", "module = \"iiad\"\nestimator = \"published\""] {
        let (srtt, _) = round_trip(words);
        assert!((0.06..0.1).contains(&srtt), "{words}: {srtt}");
    }
    let (srtt, sigma) = round_trip("estimator = \"sawtooth\"");
    // The least sample has little back-off, but the next packet reveals the loss.
    let full = srtt + 2.0 * sigma;
    assert!((0.05..0.07).contains(&full) && srtt >= 0.75 * full - 1e-9, "{srtt} {sigma}");
}

#[test]
fn routers_send_on_the_first_nak_for_each_packet() {
    let none = spoilt(FLOW, "packets = 3000", "packets = 3000\nrepairs = false");
    let naks = |aggregate: &str| {
        // All behind the trunk lose the same packets.
        let text = spoilt(
            &none,
            "delay = \"10ms\" }\nbranch",
            "delay = \"10ms\", loss = { kind = \"bernoulli\", p = 0.05 } }\nbranch",
        );
        let outcome = outcome(&spoilt(&text, "repairs = false", &format!("repairs = false\n{aggregate}")));
        let (flow, counted) = main_flow(&outcome);
        (counted.count("loss_indications") as f64, flow.throughput, counted.count("packets"))
    };
    let [(all, ..), (partial, ..), (complete, rate, packets)] =
        ["", "aggregate = [\"hub-1\", \"hub-2\"]", "aggregate = \"hub*\""].map(naks);
    // Lost: 5 % before all three; behind it 10, 2 and 2 %. Each cluster tells of what any of it lost, or all
    // together.
    let expected = [
        3.0 * 0.05 + 0.95 * 0.14,
        2.0 * 0.05 + 0.95 * (0.118 + 0.02),
        0.05 + 0.95 * (1.0 - 0.9 * 0.98 * 0.98),
    ];
    for (found, expected) in [all, partial, complete].into_iter().zip(expected) {
        let found = found / packets as f64;
        assert!((found / expected - 1.0).abs() < 0.12, "{found} of {expected}");
    }
    // What comes through a router is not delivered there.
    assert!(rate > 0.0 && packets == 3_000);
}

#[test]
fn a_router_takes_a_repair_for_the_end_of_a_loss() {
    // A second of lifetime would keep the worst receiver, who loses repairs too, from asking again.
    let aggregated = outcome(&spoilt(FLOW, "packets = 3000", "packets = 3000\naggregate = \"hub*\""));
    let (flow, counted) = main_flow(&aggregated);
    assert!(counted.count("repairs") > 200, "{counted:?}");
    assert!(
        flow.goodput > 0.9 * 536.0 * 8.0 * counted.count("packets") as f64 / aggregated.window.to,
        "{flow:?}"
    );
}

#[test]
fn plans_under_le_sbcc_tell_what_is_wrong_with_them() {
    let fails = |from: &str, to: &str, hints: &[&str]| {
        let error = parse(&spoilt(FLOW, from, to)).unwrap_err().to_string();
        for hint in hints {
            assert!(error.contains(hint), "'{hint}' is missing in: {error}");
        }
    };
    fails("\"le-sbcc\"\nfrom", "\"le-sbc\"\nfrom", &["did you mean 'le-sbcc'?"]);
    fails(
        "packets = 3000",
        "module = \"tfcr\"\npackets = 3000",
        &["'tfcr' is no module", "did you mean 'tfrc'?"],
    );
    fails(
        "packets = 3000",
        "aggregate = \"hup-1\"\npackets = 3000",
        &["no node 'hup-1'", "did you mean 'hub-1'?"],
    );
    fails(
        "packets = 3000",
        "min-rate = \"2M\"\nmax-rate = \"1M\"\npackets = 9",
        &["'min-rate' is above 'max-rate'"],
    );
    fails("packets = 3000", "srtt-gain = 0.0\npackets = 9", &["from 0.001 to 1"]);
    fails("packets = 3000", "window = 8\npackets = 9", &["'window' is 8; it must be from 16"]);
    fails("packets = 3000\n", "", &["sends without end"]);
    fails("receivers = \"leaf-*\"\n", "", &["either one node in 'to' or a multicast group"]);
    fails("leaves = [2, 1]", "leaves = 3", &["a list of how many there are in each cluster"]);
    fails("leaves = [2, 1]", "leaves = [2, 300000]", &["at most 200000 nodes in all"]);
    let many = spoilt(FLOW, "leaves = [2, 1]", "leaves = [2, 9000]");
    let error =
        parse(&spoilt(&many, "packets = 3000", "window = 4096\npackets = 9")).unwrap_err().to_string();
    assert!(error.contains("windows take at most") && error.contains("smaller 'window'"), "{error}");
}

//! Sessions of plans: every congestion control over one bottleneck, files and packets, and what is told of
//! their receivers.

use headwater_netsim::plan::run::Outcome;

use crate::{parse, spoilt};

/// A sender, a bottleneck of 1 Mbit/s, and two receivers behind it, of which one has a slow last hop.
pub const SESSION: &str = r#"
name = "session"
duration = "200s"
[network]
graft-delay = "1ms"
leave-latency = "100ms"
[topology]
kind = "graph"
nodes = ["source", "left", "right", "near", "far"]
[link.access]
between = ["source", "left"]
rate = "100M"
delay = "1ms"
queue = { packets = 1000 }
[link.bottleneck]
between = ["left", "right"]
rate = "1M"
delay = "2ms"
queue = { packets = 25 }
[link.near]
between = ["right", "near"]
rate = "100M"
delay = "1ms"
[link.far]
between = ["right", "far"]
rate = "300k"
delay = "1ms"
queue = { packets = 25 }
graft-delay = "200ms"
[flow.file]
kind = "session"
control = "m2c"
from = "source"
receivers = ["near", "far"]
max-rate = "4M"
base-rate = "12k"
quiescent-slots = 10
symbol-bytes = 1448
header-bytes = 42
size = "2MB"
content = "zeros"
[measure]
bin = "1s"
until = ["file"]
"#;

fn outcome(text: &str) -> Outcome {
    let plan = parse(text).unwrap();
    plan.run(&plan.cell(0), 1, &mut ()).unwrap()
}

#[test]
fn each_receiver_takes_a_file_at_its_own_rate_and_the_run_ends_with_the_last() {
    // By the default rules nothing is lost.
    let outcome = outcome(&spoilt(SESSION, "\"m2c\"", "\"m2c\"\nrules = \"published\""));
    let flow = &outcome.flows[0];
    assert_eq!((flow.kind, flow.session.unwrap().complete), ("m2c", Some(2)));
    let [near, far] = &flow.members[..] else { panic!("two receivers") };
    let (first, last) = (near.completion.unwrap(), far.completion.unwrap());
    // 16.8 Mbit with headers.
    assert!((16.8..35.0).contains(&first) && (56.0..120.0).contains(&last), "{first} s, {last} s");
    assert!(outcome.window.to >= last && outcome.window.to < last + 2.0, "ended at {}", outcome.window.to);
    assert!(far.loss.unwrap() > 0.0 && far.joins >= far.leaves && far.leaves > 5, "{far:?}");
    // A membership message that crosses the far hop takes 200 ms more.
    let (near, far) = (near.join_latency.unwrap(), far.join_latency.unwrap());
    assert!(far > near + 0.1, "joins take {near} and {far} s");
}

#[test]
fn criteria_add_up_to_the_bytes_on_the_link() {
    for control in ["m2c", "webrc", "flid-dl", "flid-sl"] {
        let base = if control.starts_with("flid") { "120k\"" } else { "12k\"\nquiescent-slots = 10" };
        let alone = SESSION.replace("[\"near\", \"far\"]", "\"near\"").replace("m2c", control);
        let outcome = outcome(&alone.replace("12k\"\nquiescent-slots = 10", base));
        let criteria = outcome.flows[0].criteria.unwrap();
        let (dup, sym, head) = (criteria.dup.unwrap(), criteria.sym.unwrap(), criteria.head.unwrap());
        // 1448 of 1506 bytes are content.
        assert!((head - 58.0 / 1_448.0).abs() < 1e-12);
        let packets = (1.0 + sym) * (1.0 + dup) * (1.0 + head);
        // Beside symbols there is the FDT.
        let control_packets = (1.0 + criteria.net) / packets - 1.0;
        assert!((0.0..0.06).contains(&control_packets), "{control}: {criteria:?}");
        assert!((criteria.tput / criteria.gput - 1.0 - criteria.net).abs() < 1e-9);
        assert!((criteria.time * criteria.gput - 16e6).abs() < 1.0, "{criteria:?}");
    }
}

/// Returns the outcome of an unsigned and a signed session to one receiver, with symbols of equal length.
fn unsigned_and_signed(text: &str) -> [Outcome; 2] {
    let text = text.replace("symbol-bytes = 1448", "symbol-bytes = 1344");
    [&text, &spoilt(&text, "1344", "1344\nsigning = true")].map(|text| outcome(text))
}

#[test]
fn a_signed_session_costs_its_bytes() {
    for control in ["m2c", "webrc", "flid-dl", "fixed"] {
        let text =
            SESSION.replace("[\"near\", \"far\"]", "\"near\"").replace("1M", "8M").replace("2MB", "8MB");
        let text = text.replace("\"m2c\"", &format!("\"{control}\"")).replace("4M", "7M");
        let text = match control {
            "m2c" | "webrc" => text,
            "flid-dl" => text.replace("12k\"\nquiescent-slots = 10", "120k\""),
            _ => text.replace("base-rate = \"12k\"\nquiescent-slots = 10\n", ""),
        };
        let outcomes = unsigned_and_signed(&text);
        let times = outcomes.each_ref().map(|outcome| outcome.flows[0].members[0].completion.unwrap());
        let net = outcomes.each_ref().map(|outcome| outcome.flows[0].criteria.unwrap().net);
        println!("{control}: {times:?} s, {net:?}");
        // At most a signature of 92 bytes in each packet of 1344.
        assert!(net[1] > net[0] && net[1] < net[0] + 0.075, "{control}: {net:?}");
        assert!(times[1] < 1.15 * times[0] + 0.5, "{control}: {times:?}");
    }
}

/// Pairs of the experiments that compare the two: all levels, and what receivers report.
#[test]
fn a_sender_that_follows_reports_sends_less_and_its_receivers_take_as_much() {
    for control in ["m2c", "webrc"] {
        let text = SESSION.replace("m2c", control).replace("\"4M\"", "\"16M\"");
        let outcomes = [false, true]
            .map(|reports| outcome(&spoilt(&text, "\"16M\"", &format!("\"16M\"\nreports = {reports}"))));
        let sent = outcomes.each_ref().map(|outcome| outcome.flows[0].send_rate / 1e6);
        let times = outcomes.each_ref().map(|outcome| {
            let members = outcome.flows[0].members.iter();
            members.map(|member| member.completion.unwrap()).collect::<Vec<_>>()
        });
        println!("{control}: {sent:.2?} Mbit/s sent, whole after {times:.1?} s");
        assert!(sent[1] < 0.3 * sent[0], "{control}: {sent:?}");
        for (all, reported) in times[0].iter().zip(&times[1]) {
            assert!(*reported < 1.1 * all + 1.0, "{control}: {times:?}");
        }
    }
}

#[test]
fn ldpc_without_content_is_whole_when_a_decoder_has_it() {
    for code in ["ldpc-triangle", "ldpc-staircase"] {
        let text = SESSION.replace("size = \"2MB\"", &format!("fec = \"{code}\"\nsize = \"700kB\""));
        let known = outcome(&text);
        let decoded = outcome(&text.replace("content = \"zeros\"", "decode = true"));
        let completions = |outcome: &Outcome| -> Vec<f64> {
            outcome.flows[0].members.iter().map(|member| member.completion.unwrap()).collect()
        };
        assert_eq!(completions(&known), completions(&decoded), "{code}");
        // More than k symbols are needed, and not many more with elimination.
        let overhead = known.flows[0].criteria.unwrap().sym.unwrap();
        assert!(overhead > 0.0 && overhead < 0.1, "{code}: {overhead}");
    }
}

#[test]
fn tcp_transfers_are_told_by_the_same_criteria() {
    let text = r#"
        name = "one"
        duration = "60s"
        topology = { kind = "dumbbell", bottleneck = { rate = "1M", delay = "2ms", queue = { packets = 25 } }, access = { rate = "100M", delay = "1ms" } }
        [flow.tcp]
        kind = "tcp"
        profile = "linux"
        segment-bytes = 1460
        header-bytes = 54
        bytes = "1MB"
        start = "3s"
        from = "source-1"
        to = "sink-1"
        [measure]
        until = ["tcp"]
    "#;
    let outcome = outcome(text);
    let criteria = outcome.flows[0].criteria.unwrap();
    // 685 segments of 1514 bytes.
    assert!((8.3..9.5).contains(&criteria.time), "{criteria:?}");
    assert!((0.037..0.06).contains(&criteria.net), "{criteria:?}");
    assert!(outcome.window.to < 14.0);
    assert_eq!((criteria.dup, criteria.sym), (None, None));
}

#[test]
fn zeros_travel_as_any_content_does() {
    let short = spoilt(SESSION, "2MB", "200kB");
    let time = |text: &str| outcome(text).flows[0].criteria.unwrap().time;
    let zeros = time(&short);
    assert_eq!(zeros, time(&spoilt(&short, "content = \"zeros\"", "content = \"random\"")));
    // A decoder of RaptorQ wants a symbol or two more than k in one of 200 blocks: two packets of 300 kbit/s.
    let decoded = time(&spoilt(&short, "content = \"zeros\"", "content = \"zeros\"\ndecode = true"));
    assert!((0.0..0.1).contains(&(decoded - zeros)), "{zeros} and, decoded, {decoded} s");
}

#[test]
fn packets_without_a_file_flow_beside_tcp() {
    let greedy =
        spoilt(&spoilt(SESSION, "size = \"2MB\"\ncontent = \"zeros\"\n", ""), "until = [\"file\"]\n", "");
    let tcp = "[flow.tcp]\nkind = \"tcp\"\nfrom = \"left\"\nto = \"right\"\nprofile = \"linux\"\n[measure]";
    let text = spoilt(&spoilt(&greedy, "[measure]", tcp), "\"200s\"", "\"60s\"");
    let outcome = outcome(&text);
    let session = &outcome.flows[0];
    assert!(session.criteria.is_none() && session.session.unwrap().complete.is_none());
    assert!(session.members[0].throughput > 30e3 && outcome.flows[1].goodput > 100e3, "{:?}", outcome.flows);
    let series = &outcome.series.unwrap().flows[0];
    let near = &series.members[0];
    assert_eq!((near.node.as_str(), near.level.len(), near.window.len()), ("near", 60, 60));
    assert!(*near.level.iter().max().unwrap() > 8, "{:?}", near.level);
    assert!(near.fair_rate[30..].iter().all(|rate| (50e3..5e6).contains(rate)), "{:?}", near.fair_rate);
    assert!(near.rtt[30..].iter().all(|rtt| (0.004..1.0).contains(rtt)), "{:?}", near.rtt);
    assert!(series.groups.len() > 20, "a group for each channel");
}

#[test]
fn a_receiver_may_cap_itself() {
    let text = format!("{SESSION}[flow.file.member.near]\ncap = \"200k\"\nrtt-hint = \"8ms\"\n");
    let outcome = outcome(&text);
    let near = &outcome.flows[0].members[0];
    // 16.1 Mbit of payload.
    assert!(near.completion.unwrap() > 80.0, "{near:?}");
    assert_eq!(near.loss, Some(0.0));
}

#[test]
fn sessions_tell_what_is_wrong_with_them() {
    let fails = |from: &str, to: &str, hints: &[&str]| {
        let error = parse(&spoilt(SESSION, from, to)).unwrap_err().to_string();
        for hint in hints {
            assert!(error.contains(hint), "'{hint}' is missing in: {error}");
        }
    };
    fails("control = \"m2c\"", "", &["'control' is missing"]);
    fails("\"m2c\"", "\"mc2\"", &["'mc2' is no control", "did you mean 'm2c'?"]);
    fails("max-rate = \"4M\"", "", &["'max-rate' is missing"]);
    fails("\"4M\"", "\"13k\"", &["m2c cannot have these layers", "the maximum must be at least"]);
    fails("size = \"2MB\"\n", "", &["'content' is for sessions that carry a file", "sends without end"]);
    fails("content = \"zeros\"", "content = \"zeroes\"", &["did you mean 'zeros'?"]);
    fails("\"m2c\"", "\"webrc\"\nrtt-hint = \"9ms\"", &["'rtt-hint' means nothing to webrc"]);
    fails("\"m2c\"", "\"fixed\"", &["'base-rate' means nothing to fixed"]);
    fails("\"m2c\"", "\"webrc\"\nshape = \"webrc\"", &["'shape' means nothing to webrc"]);
    fails("\"m2c\"", "\"fixed\"\nreports = true", &["'reports' is for sessions of m2c and webrc"]);
    fails("receivers = [\"near\", \"far\"]", "to = \"near\"", &["nodes in 'receivers'"]);
    fails("until = [\"file\"]", "until = [\"fil\"]", &["no flow 'fil'", "did you mean 'file'?"]);
    let member = |key: &str| format!("content = \"zeros\"\n[flow.file.member.near]\n{key} = \"9ms\"\n");
    fails("content = \"zeros\"", &member("rtt-hnt"), &["unknown key 'rtt-hnt'", "did you mean 'rtt-hint'?"]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the plans are files of the repository")]
fn every_plan_of_the_experiments_is_right() {
    let folders =
        ["m2c", "le_sbcc"].map(|paper| format!("{}/../experiments/{paper}", env!("CARGO_MANIFEST_DIR")));
    let mut plans = 0;
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path().join("plan.toml");
        // The sequencer and the Markov chain by themselves need no network.
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        headwater_netsim::plan::Plan::parse(&path.to_string_lossy(), &text).unwrap();
        plans += 1;
    }
    assert!(plans >= 14, "{plans} plans");
}

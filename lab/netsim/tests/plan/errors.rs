//! Plans that cannot run: each mistake is told with its place and with what would be right.

use crate::{DUMBBELL, STAR, parse, spoilt};

/// Replaces `from` by `to`; the error must point at `place` (line:column, or only a line) and say each of
/// `hints`.
#[track_caller]
fn fails(text: &str, from: &str, to: &str, place: &str, hints: &[&str]) {
    let error = parse(&spoilt(text, from, to)).expect_err("the plan is wrong").to_string();
    assert!(error.contains(&format!("p.toml:{place}:")), "not at {place}: {error}");
    for hint in hints {
        assert!(error.contains(hint), "'{hint}' is missing in: {error}");
    }
}

#[test]
fn what_is_no_toml_is_shown_where_it_ends() {
    fails(DUMBBELL, "pairs = 2", "pairs = ", "13:9", &["not TOML"]);
    fails(DUMBBELL, "[flow.tcp]", "[topology]", "17", &["duplicate"]);
    fails(DUMBBELL, "seed = 7", "seed = 7\nseed = 8", "4:1", &["duplicate"]);
    fails(DUMBBELL, "seed = 7", "seed = 99999999999999999999", "3:8", &["64 bits"]);
    fails(DUMBBELL, "seed = 7", "seed = 2026-11-20", "3:8", &["no dates"]);
}

#[test]
fn unknown_keys_and_words_come_with_what_was_meant() {
    fails(DUMBBELL, "warm-up", "warmup", "6:1", &["unknown key 'warmup'", "did you mean 'warm-up'?"]);
    fails(DUMBBELL, "\"20ms\"", "\"20ms\", dealy = 1", "15:45", &["unknown key 'dealy'", "'delay'?"]);
    fails(DUMBBELL, "kind = \"dumbbell\"", "kind = \"dumbell\"", "12:8", &["did you mean 'dumbbell'?"]);
    fails(DUMBBELL, "kind = \"tcp\"", "kind = \"tpc\"", "18:8", &["no kind of flow; did you mean 'tcp'?"]);
    fails(DUMBBELL, "kind = \"tcp\"", "", "17:7", &["'kind' is missing", "cbr, on-off, fixed"]);
    fails(DUMBBELL, "ns2005", "ns205", "9:11", &["did you mean 'ns2005'?"]);
    fails(DUMBBELL, "\"bernoulli\"", "\"bernouli\"", "15", &["did you mean 'bernoulli'?"]);
    fails(DUMBBELL, "pairs = 2", "leaves = 2", "13:1", &["unknown key 'leaves'"]);
}

#[test]
fn what_would_take_all_memory_or_time_is_refused() {
    fails(DUMBBELL, "\"60s\"", "\"3y\"", "5:12", &["at most 1000 days"]);
    let runs = spoilt(DUMBBELL, "runs = 3", "runs = 1000000");
    let swept = "[[sweep]]\n\"topology.bottleneck.delay\" = [\"1ms\", \"2ms\"]\n";
    assert!(parse(&runs).is_ok());
    fails(&(runs + swept), "seed = 7", "seed = 8", "4:8", &["2 cells of 1000000 runs", "1000000 in all"]);
    fails(
        &format!("{STAR}[measure]\nbin = \"1s\"\n"),
        "bin = \"1s\"",
        "bin = \"1us\"",
        "26:7",
        &["bins", "at most"],
    );
    let script = (1..=50_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let script = format!(
        "topology = {{ kind = \"star\", leaves = 100, trunk = {{ rate = \"1M\", delay = \"1ms\" }}, leaf = {{ rate = \
         \"1M\", delay = \"1ms\", loss = {{ kind = \"script\", packets = [{script}] }} }} }}\n"
    );
    let plan =
        |topology: &str, flow: &str| format!("name = \"x\"\nduration = \"1s\"\n{topology}[flow.x]\n{flow}");
    let cbr = "kind = \"cbr\"\nrate = \"1M\"\nfrom = \"source\"\nto = \"leaf-1\"\n";
    fails(&plan(&script, cbr), "\"x\"", "\"y\"", "3", &["at most 4000000 packets together"]);
    let star = "topology = { kind = \"star\", leaves = 4, trunk = { rate = \"1M\", delay = \"1ms\" }, leaf = { rate = \
                \"1M\", delay = \"1ms\" } }\n";
    let many = format!("count = 60000\n{cbr}");
    fails(&plan(star, &many), "\"x\"", "\"y\"", "4:7", &["more than 55536 flows begin or end at 'source'"]);
    let large =
        "kind = \"fixed\"\nrate = \"1M\"\nsize = \"1GiB\"\nfrom = \"source\"\nreceivers = \"leaf-*\"\n";
    assert!(parse(&plan(star, large)).is_ok(), "receivers that do not decode hold nothing");
    let decoded = format!("{large}decode = true\n");
    fails(&plan(star, &decoded), "\"x\"", "\"y\"", "4:7", &["at most 4294967296 bytes of content"]);
}

#[test]
fn parameters_of_queues_go_by_their_names_in_plans() {
    let red = |parameter: &str| format!("{{ kind = \"red\", {parameter} }}");
    let fails = |parameter, hint| fails(DUMBBELL, "{ packets = 25 }", &red(parameter), "15", &[hint]);
    fails("mean-packet = 0", "'mean-packet' is 0; it must be above 0");
    fails("th-min = 9, th-max = 5", "'th-max' is 5; it must be above th-min");
    fails("max-p = 1.5", "'max-p' is 1.5");
}

#[test]
fn values_need_their_type_unit_and_range() {
    fails(DUMBBELL, "\"60s\"", "60", "5:12", &["a time needs a unit", "\"10s\""]);
    fails(DUMBBELL, "\"60s\"", "\"60 parsecs\"", "5:12", &["is not a time", "ms"]);
    fails(DUMBBELL, "\"60s\"", "\"-60s\"", "5:12", &["'-60s' is not a time"]);
    fails(DUMBBELL, "\"60s\"", "\"0s\"", "5:12", &["longer than 0"]);
    fails(DUMBBELL, "\"10s\"", "\"60s\"", "6:11", &["shorter than the run"]);
    fails(DUMBBELL, "\"1M\"", "-1", "15:23", &["above 0 bit/s, not -1"]);
    fails(DUMBBELL, "\"1M\"", "\"1MB\"", "15:23", &["'MB' is not a unit", "Mbit/s"]);
    fails(DUMBBELL, "packets = 25", "packets = -25", "15", &["-25 is negative"]);
    fails(DUMBBELL, "packets = 25", "packets = 25, bytes = 9", "15", &["not by both"]);
    fails(DUMBBELL, "p = 0.01", "p = 1.5", "15", &["1.5 is no probability"]);
    fails(DUMBBELL, "p = 0.01, ", "", "15", &["'p' is missing"]);
    fails(DUMBBELL, "pairs = 2", "pairs = 0", "13:9", &["from 1 to"]);
    fails(DUMBBELL, "pairs = 2", "pairs = 4000000", "13:9", &["from 1 to 99999"]);
    fails(DUMBBELL, "runs = 3", "runs = 0", "4:8", &["from 1 to"]);
    fails(DUMBBELL, "[\"0s\", \"5s\"]", "[\"5s\", \"0s\"]", "22:9", &["above the upper one"]);
    fails(DUMBBELL, "[\"0s\", \"5s\"]", "\"5s\"", "22:9", &["{ uniform = [low, high] }"]);
    fails(
        DUMBBELL,
        "profile =",
        "maximum-window = 0\nprofile =",
        "9:18",
        &["'maximum-window'", "1 to 1048576"],
    );
    fails(
        DUMBBELL,
        "packets = 25",
        "kind = \"red\", th-min = 9, th-max = 3",
        "15",
        &["'th-max' is 3", "above th-min"],
    );
    fails(DUMBBELL, "packets = 25", "kind = \"red\", th-min = 9", "15", &["'th-min' and 'th-max' together"]);
    fails(DUMBBELL, "packets = 25", "th-min = 9", "15", &["unknown key 'th-min'"]);
}

#[test]
fn names_must_exist_once_and_be_reachable() {
    fails(DUMBBELL, "sink-{i}", "sinc-{i}", "21:6", &["no node 'sinc-1'", "did you mean 'sink-1'?"]);
    fails(DUMBBELL, "count = 2", "count = 3", "20:8", &["no node 'source-3'"]);
    fails(DUMBBELL, "count = 2", "", "20:8", &["'{i}' numbers the flows"]);
    fails(
        DUMBBELL,
        "link = \"bottleneck\"",
        "link = \"bottelneck\"",
        "26:8",
        &["did you mean 'bottleneck'?"],
    );
    fails(DUMBBELL, "pairs = 2", "pairs = 2\nnodes = [\"left\"]", "14:10", &["a node 'left' already"]);
    fails(DUMBBELL, "[[at]]", "[link.x]\nrate = \"1M\"\n[[at]]", "24:7", &["no link 'x'", "between"]);
    fails(
        DUMBBELL,
        "pairs = 2",
        "pairs = 2\nnodes = [\"island\"]",
        "11:2",
        &["'island' cannot be reached from 'left'"],
    );
    fails(DUMBBELL, "to = \"sink-{i}\"", "to = \"source-{i}\"", "20:8", &["would send to itself"]);
    fails(STAR, "receivers = \"leaf-*\"", "receivers = \"leef-*\"", "17:13", &["no node is called like"]);
    fails(STAR, "member.leaf-3", "member.leaf-33", "22:19", &["no receiver of this flow", "leaf-3"]);
    fails(STAR, "leave = \"5s\"", "leave = \"3s\"", "24:9", &["'leaf-3' must leave after it joins"]);
    fails(STAR, "receivers = ", "to = ", "14:7", &["a flow of kind fixed has nodes in 'receivers'"]);
    fails(STAR, "[flow.file]", "[flow.\"a b\"]", "14:7", &["'a b' cannot be a name"]);
}

#[test]
fn two_flows_of_one_name_are_refused() {
    let second = "[flow.tcp-2]\nkind = \"cbr\"\nrate = \"1M\"\nfrom = \"left\"\nto = \"right\"\n[[at]]";
    fails(DUMBBELL, "[[at]]", second, "24:7", &["two flows would be called 'tcp-2'"]);
}

#[test]
fn sweeps_need_paths_that_exist_and_values_that_fit() {
    let sweep = |lines: &str| format!("{DUMBBELL}\n[[sweep]]\n{lines}\n");
    let says = |lines: &str, hints: &[&str]| fails(&sweep(lines), "runs = 3", "runs = 2", "30:1", hints);
    says("\"topolgy.pairs\" = [1]", &["no 'topolgy'", "did you mean 'topology'?"]);
    says("\"flow.udp.rate\" = [\"1M\"]", &["no 'udp' of the path"]);
    says("\"at.3.rate\" = [\"1M\"]", &["'at' is a list of 1"]);
    says("\"name.x\" = [\"1M\"]", &["cannot be swept"]);
    says("tcp.profile = [\"rfc\"]", &["written in quotes"]);
    says("\"topology.pears\" = [1]", &["unknown key 'pears'", "did you mean 'pairs'?"]);
    let swept = sweep("\"topology.bottleneck.rate\" = [\"1M\", \"2 furlongs\"]");
    fails(&swept, "runs = 3", "runs = 2", "30:37", &["'furlongs' is not a unit"]);
    let uneven = sweep("\"topology.pairs\" = [2, 3]\n\"flow.tcp.count\" = [1]");
    fails(&uneven, "runs = 3", "runs = 2", "31:1", &["has 1 values", "has 2", "[[sweep]] for each"]);
    let twice = sweep("\"tcp.profile\" = [\"rfc\"]\n[[sweep]]\n\"tcp.profile\" = [\"rfc\"]");
    fails(&twice, "runs = 3", "runs = 2", "32:1", &["swept already"]);
    let many = sweep("\"seed.x\" = [1]").replace(
        "\"seed.x\" = [1]",
        "\"tcp.overhead\" = { from = 1, to = 9, steps = 1000 }\n[[sweep]]\n\"tcp.tick\" = { from = 1, to = 2, steps = 1000 }",
    );
    let error =
        parse(&many.replace("from = 1, to = 9", "from = 0.1, to = 9.0").replace("to = 2,", "to = 2.5,"));
    assert!(error.unwrap_err().to_string().contains("more than 100000 cells"));
}

#[test]
fn all_mistakes_are_told_at_once_in_order() {
    let text = spoilt(&spoilt(DUMBBELL, "\"60s\"", "60"), "sink-{i}", "sinc-{i}");
    let error = parse(&text).unwrap_err().to_string();
    let (first, second) = (error.find("p.toml:5:12").unwrap(), error.find("p.toml:21:6").unwrap());
    assert!(first < second, "{error}");
    assert!(error.contains(" 5 | duration = 60\n   |            ^^"), "{error}");
}

#[test]
fn a_mistake_that_many_links_share_is_told_once() {
    let text = spoilt(DUMBBELL, "{ rate = \"10M\", delay = \"1ms\" }", "{ rate = \"10M\", dealy = \"1ms\" }");
    let error = parse(&text).unwrap_err().to_string();
    assert_eq!(error.matches("p.toml:").count(), 2, "the unknown key, and the one that is missing: {error}");
}

#[test]
fn policers_codel_and_hosts_are_checked() {
    let with = |queue: &str| spoilt(DUMBBELL, "{ packets = 25 }", queue);
    let policer = "{ kind = \"policer\", rate = \"1M\", burst = \"3kB\" }";
    fails(&with(policer), ", burst = \"3kB\"", "", "15", &["'burst' is missing"]);
    fails(&with(policer), "burst", "brust", "15", &["unknown key 'brust'", "'burst'?"]);
    let codel = "{ kind = \"codel\", interval = \"100ms\" }";
    fails(&with(codel), "\"100ms\"", "\"0s\"", "15", &["'interval' is 0; it must be longer than 0"]);
    fails(&with(codel), "codel", "codle", "15", &["did you mean 'codel'?"]);
    let hosts =
        spoilt(DUMBBELL, "[flow.tcp]", "[hosts]\nreceive-min = \"2ms\"\nreceive-max = \"2ms\"\n[flow.tcp]");
    fails(&hosts, "receive-max = \"2ms\"", "receive-max = \"1ms\"", "19:15", &["at least 'receive-min'"]);
    fails(&hosts, "receive-max", "nodes = \"sink\"\nreceive-max", "19:9", &["there is no node 'sink'"]);
}

//! LE-SBCC over PGM on the paper's figure 5: the plans of the experiments, a minute of them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use headwater_netsim::plan::Plan;
use headwater_netsim::plan::run::{FlowOutcome, Outcome};

/// The plan of an experiment, shorter: what comes between 40 and 100 s is measured.
#[expect(clippy::disallowed_methods, reason = "the plans are files of the repository")]
fn plan(experiment: &str) -> Plan {
    let path = format!("{}/../experiments/le_sbcc/{experiment}/plan.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let shorter = |line: &str| match line.split_once(" = ") {
        Some(("duration", _)) => "duration = \"100s\"".to_owned(),
        Some(("warm-up", _)) => "warm-up = \"40s\"".to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(shorter).collect();
    Plan::parse(&path, &lines.join("\n")).unwrap()
}

fn run(plan: &Plan, cell: usize, number: u64) -> Outcome {
    plan.run(&plan.cell(cell), number, &mut ()).unwrap()
}

/// Throughput of the main flow over the mean of the flows beside it.
fn share(outcome: &Outcome) -> f64 {
    let beside: Vec<&FlowOutcome> = outcome.flows.iter().filter(|flow| flow.group != "main").collect();
    let mean = beside.iter().map(|flow| flow.throughput).sum::<f64>() / beside.len() as f64;
    main_flow(outcome).throughput / mean
}

fn main_flow(outcome: &Outcome) -> &FlowOutcome {
    outcome.flows.iter().find(|flow| flow.group == "main").unwrap()
}

/// L1: the main flow gets as much as the others. L2: without a filter it gets less.
#[test]
fn a_flow_to_four_gets_what_flows_to_one_get_and_less_without_a_filter() {
    let plan = plan("figure-5");
    let whole = [1, 2].map(|number| share(&run(&plan, 0, number)));
    // A minute of two runs; over ten runs of 450 s it is 1.02.
    let mean = (whole[0] + whole[1]) / 2.0;
    assert!((0.75..=1.35).contains(&mean), "{whole:?}");
    // In the order of the plan: without LI2LE, without Max-LPRF.
    for cell in [1, 2] {
        let without = share(&run(&plan, cell, 1));
        assert!(without < 0.7, "{without} in cell {:?}", plan.cell(cell).values);
    }
}

/// L5 (b) and L9: beside 16 TCP Reno it gets a TCP's share, the TFRC module more evenly.
#[test]
fn beside_tcp_it_gets_a_tcps_share_and_with_tfrc_a_smooth_one() {
    let plan = plan("tcp");
    let [aimd, tfrc] = [0, 1].map(|cell| {
        let runs = [1, 2].map(|number| run(&plan, cell, number));
        let variation = |outcome: &Outcome| main_flow(outcome).variation.unwrap();
        [share(&runs[0]) / 2.0 + share(&runs[1]) / 2.0, variation(&runs[0]) / 2.0 + variation(&runs[1]) / 2.0]
    });
    assert!([aimd[0], tfrc[0]].iter().all(|share| (0.6..=1.5).contains(share)), "{aimd:?} {tfrc:?}");
    assert!(tfrc[1] < 0.5 * aimd[1], "variation {} and {}", tfrc[1], aimd[1]);
}

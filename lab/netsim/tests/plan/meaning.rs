//! What plans mean.

use headwater_netsim::network::{CodelConfig, LinkQueue, LossConfig, PolicerConfig};
use headwater_netsim::network::{Delay, HostConfig, LossFilter, Pause};
use headwater_netsim::plan::flow::{FlowKind, Receivers};
use headwater_netsim::plan::timetable::What;
use headwater_proto::queue::{Limit, QueueConfig};
use headwater_proto::{Duration, Rate};

use crate::{DUMBBELL, STAR, parse, spoilt};

fn link<'a>(
    scenario: &'a headwater_netsim::plan::Scenario,
    name: &str,
) -> &'a headwater_netsim::plan::link::Link {
    scenario.topology.links.iter().find(|link| link.name == name).unwrap()
}

#[test]
fn a_dumbbell_has_its_parts() {
    let plan = parse(DUMBBELL).unwrap();
    assert_eq!((plan.name(), plan.runs(), plan.seed().0, plan.cells()), ("two", 3, 7, 1));
    let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
    assert_eq!(scenario.topology.nodes, ["left", "right", "source-1", "sink-1", "source-2", "sink-2"]);
    let names: Vec<&str> = scenario.topology.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["bottleneck", "source-1", "sink-1", "source-2", "sink-2"]);
    let bottleneck = link(&scenario, "bottleneck");
    assert_eq!(bottleneck.forward.queue, QueueConfig::drop_tail(25).into());
    assert_eq!(
        bottleneck.back.queue,
        QueueConfig::drop_tail(25).into(),
        "what is not said apart is for both directions"
    );
    assert_eq!(bottleneck.forward.loss.model, LossConfig::Bernoulli(0.01));
    assert_eq!(bottleneck.forward.loss.filter, LossFilter::Data);
    assert_eq!(bottleneck.back.loss.model, LossConfig::None, "loss is forward unless said");
    assert_eq!(link(&scenario, "sink-2").forward.queue, QueueConfig::drop_tail(50).into());
    let [first, second] = &scenario.flows[..] else { panic!("two flows") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("tcp-1", "tcp-2"));
    assert_eq!((first.group.as_str(), first.from, &first.to), ("tcp", 2, &Receivers::Node(3)));
    assert!(first.start != second.start && first.start <= Duration::from_secs(5), "each is drawn for itself");
    let FlowKind::Tcp(tcp) = &first.kind else { panic!("{:?}", first.kind) };
    assert_eq!(tcp.config, headwater_netsim::tcp::Profile::Ns2005.config());
    let rate = What::Rate { link: 0, sides: [true, true], rate: Rate::from_kilobits(500) };
    assert_eq!(scenario.timetable[0].what, rate);
}

#[test]
fn runs_differ_in_what_is_drawn_and_in_nothing_else() {
    let plan = parse(DUMBBELL).unwrap();
    let cell = plan.cell(0);
    let (one, two) = (plan.scenario(&cell, 1).unwrap(), plan.scenario(&cell, 2).unwrap());
    assert_ne!(one.flows[0].start, two.flows[0].start);
    assert_eq!(one.topology, two.topology);
    assert_eq!(one, plan.scenario(&cell, 1).unwrap());
    // A flow more does not shift what the others draw.
    let more = parse(&spoilt(&spoilt(DUMBBELL, "pairs = 2", "pairs = 3"), "count = 2", "count = 3")).unwrap();
    assert_eq!(
        more.scenario(&more.cell(0), 1).unwrap().flows[..2].iter().map(|f| f.start).collect::<Vec<_>>(),
        [one.flows[0].start, one.flows[1].start]
    );
}

#[test]
fn a_star_has_a_group_with_members_of_their_own() {
    let plan = parse(STAR).unwrap();
    let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
    let Receivers::Group(members) = &scenario.flows[0].to else { panic!("a group") };
    assert_eq!(members.len(), 5);
    assert!(members[0].join != members[1].join, "each is drawn for itself");
    assert_eq!((members[2].join, members[2].leave), (Duration::from_secs(4), Some(Duration::from_secs(5))));
    assert_eq!(link(&scenario, "leaf-1").forward.rate, Rate::from_kilobits(2_000));
    assert_eq!(link(&scenario, "leaf-2").forward.rate, Rate::from_kilobits(1_000));
    assert_ne!(link(&scenario, "leaf-1").forward.delay, link(&scenario, "leaf-2").forward.delay);
}

#[test]
fn a_direction_back_speaks_for_itself() {
    let text = spoilt(
        DUMBBELL,
        "bottleneck = { rate = \"1M\",",
        "bottleneck = { back = { rate = \"2M\", loss = { kind = \"script\", packets = [3] } }, rate = \"1M\",",
    );
    let plan = parse(&text).unwrap();
    let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
    let bottleneck = link(&scenario, "bottleneck");
    assert_eq!(
        (bottleneck.forward.rate, bottleneck.back.rate),
        (Rate::from_kilobits(1_000), Rate::from_kilobits(2_000))
    );
    assert_eq!(bottleneck.back.loss.model, LossConfig::Script(vec![3]));
    assert_eq!(bottleneck.forward.loss.model, LossConfig::Bernoulli(0.01));
    assert_eq!(
        (bottleneck.back.delay, bottleneck.back.queue),
        (Duration::from_millis(20), QueueConfig::drop_tail(25).into())
    );
}

#[test]
fn what_both_directions_share_is_drawn_once_for_both() {
    let delays = |back: &str| {
        let drawn = "delay = { uniform = [\"5ms\", \"50ms\"] }";
        let plan = parse(&spoilt(DUMBBELL, "delay = \"20ms\"", &format!("{drawn}{back}"))).unwrap();
        let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
        let bottleneck = link(&scenario, "bottleneck");
        (bottleneck.forward.delay, bottleneck.back.delay)
    };
    let (forward, back) = delays("");
    assert_eq!(forward, back);
    assert_eq!(
        delays(", back = { rate = \"2M\" }"),
        (forward, back),
        "something else is said of the way back"
    );
    let own = delays(", back = { delay = { uniform = [\"5ms\", \"50ms\"] } }");
    assert!(own.0 == forward && own.1 != forward, "{own:?}");
}

#[test]
fn a_loss_of_the_timetable_goes_the_way_of_its_entry_unless_it_has_its_own() {
    let sides = |entry: &str, own: &str| {
        let loss = format!("{entry}\nloss = {{ kind = \"bernoulli\", p = 0.1{own} }}");
        let plan = parse(&spoilt(DUMBBELL, "rate = \"500k\"", &loss)).unwrap();
        let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
        let What::Loss { sides, .. } = scenario.timetable[0].what else { panic!("a loss") };
        sides
    };
    assert_eq!(sides("", ""), [true, false]);
    assert_eq!(sides("direction = \"back\"", ""), [false, true]);
    assert_eq!(sides("direction = \"both\"", ", direction = \"back\""), [false, true]);
    assert_eq!(sides("", ", direction = \"both\""), [true, true]);
}

#[test]
fn trees_are_numbered_as_heaps() {
    let text = "name = 't'\nduration = '1s'\ntopology = { kind = 'tree', arity = 2, depth = 4, \
                link = { rate = '1M', delay = '5ms' } }\n[link.n15]\nrate = '2M'\n\
                [flow.f]\nkind = 'cbr'\nrate = '1M'\nfrom = 'n0'\nreceivers = ['n15', 'n3*']\n";
    let plan = parse(text).unwrap();
    let scenario = plan.scenario(&plan.cell(0), 1).unwrap();
    assert_eq!(scenario.topology.nodes.len(), 31);
    assert_eq!(link(&scenario, "n15").ends, [7, 15]);
    assert_eq!(link(&scenario, "n15").forward.rate, Rate::from_kilobits(2_000));
    let Receivers::Group(members) = &scenario.flows[0].to else { panic!("a group") };
    assert_eq!(members.iter().map(|member| member.node).collect::<Vec<_>>(), [15, 3, 30]);
}

#[test]
fn sweeps_multiply_and_zip() {
    let text = format!(
        "{DUMBBELL}\n[[sweep]]\n\"topology.pairs\" = [1, 2]\n\"flow.tcp.count\" = [1, 2]\n\
         [[sweep]]\n\"topology.bottleneck.loss.p\" = {{ from = 0.001, to = 0.1, steps = 3, scale = \"log\" }}\n\
         [[sweep]]\n\"at.0.rate\" = [\"100k\"]\n"
    );
    let plan = parse(&text).unwrap();
    assert_eq!(plan.cells(), 6);
    let values: Vec<String> =
        (0..6).map(|index| serde_json::to_string(&plan.cell(index).values).unwrap()).collect();
    assert_eq!(
        values[1],
        r#"{"at.0.rate":"100k","flow.tcp.count":1,"topology.bottleneck.loss.p":0.01,"topology.pairs":1}"#
    );
    let last = plan.scenario(&plan.cell(5), 1).unwrap();
    assert_eq!(last.flows.len(), 2);
    assert_eq!(link(&last, "bottleneck").forward.loss.model, LossConfig::Bernoulli(0.1));
}

#[test]
fn a_key_names_what_is_run_and_not_how_it_is_written() {
    let plan = parse(DUMBBELL).unwrap();
    let key = |text: &str, run| {
        let plan = parse(text).unwrap();
        plan.key(&plan.cell(0), run)
    };
    let own = plan.key(&plan.cell(0), 1);
    assert_eq!(own, key(&spoilt(DUMBBELL, "runs = 3", "# more\nruns = 9 \ntitle = \"x\""), 1));
    assert_ne!(own, key(DUMBBELL, 2));
    assert_ne!(own, key(&spoilt(DUMBBELL, "seed = 7", "seed = 8"), 1));
    assert_ne!(own, key(&spoilt(DUMBBELL, "20ms", "21ms"), 1));
    // A swept value and a written one are the same run.
    let swept = format!("{DUMBBELL}\n[[sweep]]\n\"topology.bottleneck.delay\" = [\"20ms\", \"21ms\"]\n");
    assert_eq!(own, key(&swept, 1));
    assert_eq!(own.to_string().len(), 32);
}

#[test]
fn policers_and_codel_are_queues() {
    let queue = |text: &str| {
        let plan = parse(&spoilt(DUMBBELL, "{ packets = 25 }", text)).unwrap();
        link(&plan.scenario(&plan.cell(0), 1).unwrap(), "bottleneck").forward.queue
    };
    let policer =
        PolicerConfig { rate: Rate::from_kilobits(500), burst_bytes: 16_000, limit: Limit::Packets(50) };
    let written = "{ kind = \"policer\", rate = \"500k\", burst = \"16kB\" }";
    assert_eq!(queue(written), LinkQueue::Policer(policer));
    assert_eq!(
        queue("{ kind = \"codel\", packets = 1000 }"),
        LinkQueue::Codel(CodelConfig::new(1_000)),
        "RFC 8289's parameters"
    );
    let codel = CodelConfig {
        target: Duration::from_millis(15),
        interval: Duration::from_millis(300),
        ecn: true,
        ..CodelConfig::new(50)
    };
    let written = "{ kind = \"codel\", target = \"15ms\", interval = \"300ms\", ecn = true }";
    assert_eq!(queue(written), LinkQueue::Codel(codel));
}

#[test]
fn hosts_are_late_where_the_plan_says_so() {
    let hosts = |text: &str| {
        let plan = parse(&spoilt(DUMBBELL, "[flow.tcp]", &format!("[hosts]\n{text}\n[flow.tcp]"))).unwrap();
        plan.scenario(&plan.cell(0), 1).unwrap().hosts
    };
    let late = hosts("receive-min = \"100us\"\nreceive-max = \"2ms\"");
    let nodes: Vec<usize> = late.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, [2, 3, 4, 5], "sources and sinks, not routers");
    let receive = Delay { min: Duration::from_micros(100), max: Duration::from_millis(2) };
    assert_eq!(late[0].1, HostConfig { receive, ..HostConfig::default() });
    let late = hosts("nodes = \"sink-2\"\ntimer-max = \"1ms\"");
    let timer = Delay { min: Duration::ZERO, max: Duration::from_millis(1) };
    assert_eq!(late, [(5, HostConfig { timer, ..HostConfig::default() })]);
    let late = hosts("nodes = \"sink-2\"\npause-interval = \"50ms\"\npause-max = \"1ms\"");
    let pause = Some(Pause { interval: Duration::from_millis(50), length: timer });
    assert_eq!(late, [(5, HostConfig { pause, ..HostConfig::default() })]);
    let no_interval = parse(&spoilt(DUMBBELL, "[flow.tcp]", "[hosts]\npause-max = \"1ms\"\n[flow.tcp]"));
    assert!(no_interval.unwrap_err().to_string().contains("needs 'pause-interval'"));
    assert!(
        parse(DUMBBELL).unwrap().scenario(&parse(DUMBBELL).unwrap().cell(0), 1).unwrap().hosts.is_empty()
    );
}

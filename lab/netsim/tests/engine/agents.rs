//! Agents that come, go, stand still, and have clocks of their own.

use headwater_netsim::engine::Run;
use headwater_netsim::network::{AgentId, BuildError, Builder, Delay, Event, HostConfig, LinkConfig, NodeId};
use headwater_proto::{Duration, Ecn, InterfaceId, Rate, Seed};

use crate::script::{Log, Sends, micros, millis};

/// Two nodes, 1 Gbit/s and 1 ms apart, and a packet each millisecond from `a` to a log at `b`.
fn pair() -> (Builder, [NodeId; 2], AgentId, AgentId) {
    let mut network = Builder::new();
    let [a, b] = ["a", "b"].map(|name| network.node(name));
    let fast = LinkConfig::new(Rate::from_kilobits(1_000_000), Duration::from_millis(1));
    network.link("a-b", a, b, fast.clone(), fast);
    let flow = network.flow("flow");
    let log = network.agent("log", b, Log::default());
    let to = network.destination(log);
    let packets: Vec<_> = (0..100).map(|n| (n * 1_000, 125)).collect();
    let source = network.agent("source", a, Sends::new(flow, to, &packets));
    (network, [a, b], source, log)
}

fn run(network: Builder) -> Run {
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(millis(1_000));
    run
}

#[test]
fn an_agent_gets_nothing_before_its_start_and_after_its_stop() {
    let (mut network, _, _, log) = pair();
    network.start_at(log, micros(10_500));
    network.at(micros(20_500), Event::Stop(log));
    let run = run(network);
    assert_eq!(run.agent::<Log>(log).unwrap().numbers(), (10..20).collect::<Vec<u64>>());
    let counters = run.agent_counters(log);
    assert_eq!((counters.received_packets, counters.missed_packets), (10, 90));
}

#[test]
fn a_paused_agent_misses_packets_and_its_timers_come_late() {
    let (mut network, _, source, log) = pair();
    network.at(micros(10_500), Event::Pause(log));
    network.at(micros(20_500), Event::Resume(log));
    network.at(micros(49_500), Event::Pause(source));
    network.at(micros(60_500), Event::Resume(source));
    let run = run(network);
    let log = run.agent::<Log>(log).unwrap();
    let numbers: Vec<u64> = (0..10).chain(20..100).collect();
    assert_eq!(log.numbers(), numbers);
    // Packets 50 to 60 leave at 60.5 ms, one after the other.
    assert_eq!(log.times()[40], 61_501_000);
    assert_eq!(log.times()[50], 61_511_000);
    assert_eq!(log.times()[51], 62_001_000);
}

#[test]
fn an_agent_that_is_paused_at_its_start_starts_when_it_is_resumed() {
    let times = |start: u64, pauses: &[(u64, u64)]| {
        let (mut network, _, source, log) = pair();
        network.start_at(source, micros(start));
        for (from, to) in pauses {
            network.at(micros(*from), Event::Pause(source));
            network.at(micros(*to), Event::Resume(source));
        }
        run(network).agent::<Log>(log).unwrap().times()
    };
    let late = times(20_500, &[]);
    assert_eq!(times(10_500, &[(5_500, 20_500)]), late, "its start came meanwhile");
    assert_eq!(times(20_500, &[(5_500, 10_500)]), late, "its start comes later");
    assert_eq!(times(0, &[(0, 20_500)]), late);
}

#[test]
fn a_clock_may_be_ahead_and_step() {
    let (mut network, _, source, log) = pair();
    network.clock_ahead(log, Duration::from_secs(5));
    network.at(micros(10_500), Event::StepClock(source, Duration::from_millis(20)));
    let run = run(network);
    let log = run.agent::<Log>(log).unwrap();
    assert_eq!(log.times()[0], 5_001_001_000, "by its own clock");
    assert_eq!(log.times()[11], 5_011_501_000, "packets 11 to 30 are due at once");
    assert_eq!(log.times()[30], 5_011_520_000);
    assert_eq!(log.times()[31], 5_012_001_000);
}

#[test]
fn agents_of_one_node_reach_each_other() {
    let mut network = Builder::new();
    let [a, b] = ["a", "b"].map(|name| network.node(name));
    let config = LinkConfig::new(Rate::from_kilobits(1), Duration::ZERO);
    network.link("a-b", a, b, config.clone(), config);
    let flow = network.flow("flow");
    let log = network.agent("log", a, Log::default());
    let to = network.destination(log);
    network.agent("source", a, Sends::new(flow, to, &[(7, 1_500)]));
    let run = run(network);
    let log = run.agent::<Log>(log).unwrap();
    assert_eq!((log.times(), &log.ingress), (vec![7_000], &vec![None]));
    assert_eq!(run.usage().packet_hops, 0);
}

#[test]
fn a_packet_tells_its_interface_and_its_ecn_field() {
    let mut network = Builder::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| network.node(name));
    let config = LinkConfig::new(Rate::from_kilobits(1_000), Duration::ZERO);
    network.link("c-b", c, b, config.clone(), config.clone());
    network.link("a-b", a, b, config.clone(), config);
    let flow = network.flow("flow");
    let log = network.agent("log", b, Log::default());
    let to = network.destination(log);
    let source = Sends { ecn: Ecn::Capable0, ..Sends::new(flow, to, &[(0, 100)]) };
    network.agent("source", a, source);
    let run = run(network);
    let log = run.agent::<Log>(log).unwrap();
    assert_eq!((&log.ingress[..], &log.ecn[..]), (&[Some(InterfaceId(1))][..], &[Ecn::Capable0][..]));
}

#[test]
fn what_cannot_be_built_is_named() {
    let config = LinkConfig::new(Rate::from_kilobits(1), Duration::ZERO);
    let build = |declare: &dyn Fn(&mut Builder, [NodeId; 2])| {
        let mut network = Builder::new();
        let nodes = ["a", "b"].map(|name| network.node(name));
        declare(&mut network, nodes);
        network.build(Seed(1), 0).unwrap_err().to_string()
    };
    let message = build(&|_, _| {});
    assert_eq!(message, "node 'b' has no path to 'a'; join all nodes by links");
    let message = build(&|network, [a, b]| {
        network.link("l", a, b, config.clone(), config.clone());
        network.link("l", a, b, config.clone(), config.clone());
    });
    assert_eq!(message, "two links are called 'l'; give each a name of its own");
    let message = build(&|network, [a, _]| {
        network.link("l", a, a, config.clone(), config.clone());
    });
    assert_eq!(message, "link 'l' leads from 'a' to itself; a link joins two nodes");
    let message = build(&|network, [a, b]| {
        let lossy = config.clone().with_loss(headwater_netsim::network::LossConfig::Bernoulli(1.5));
        network.link("l", a, b, config.clone(), lossy);
    });
    assert!(message.starts_with("link 'l/back': loss is 1.5"), "{message}");
    assert!(matches!(Builder::new().build(Seed(1), 0), Err(BuildError::Empty)));
}

#[test]
fn a_late_host_hands_packets_over_in_batches_of_one_time() {
    let (mut network, [_, b], _, log) = pair();
    let receive = Delay { min: Duration::from_micros(2_500), max: Duration::from_micros(4_500) };
    network.late_host(b, HostConfig { receive, ..HostConfig::default() });
    let run = run(network);
    let log = run.agent::<Log>(log).unwrap();
    assert_eq!(log.numbers(), (0..100).collect::<Vec<u64>>(), "nothing is lost, the order stays");
    // Packet n reaches the host at n + 1.001 ms; an interrupt comes 2.5 to 4.5 ms after the first of its batch.
    let times = log.times();
    let mut first = 0;
    while first < 100 {
        let interrupt = times[first];
        let came = (first as u64) * 1_000_000 + 1_001_000;
        assert!((2_500_000..=4_500_000).contains(&(interrupt - came)), "{}", interrupt - came);
        let batch = times.iter().filter(|time| **time == interrupt).count();
        let due = (interrupt - came) / 1_000_000 + 1;
        assert_eq!(batch as u64, due.min(100 - first as u64), "all that came meanwhile");
        first += batch;
    }
    assert!(times.iter().collect::<std::collections::BTreeSet<_>>().len() > 15);
}

#[test]
fn a_late_hosts_timers_fire_late_and_make_up_for_it() {
    let (mut network, [a, _], _, log) = pair();
    let timer = Delay { min: Duration::from_micros(100), max: Duration::from_millis(2) };
    network.late_host(a, HostConfig { timer, ..HostConfig::default() });
    let run = run(network);
    let times = run.agent::<Log>(log).unwrap().times();
    let late: Vec<u64> = (0..).zip(&times).map(|(n, time)| time - (n * 1_000_000 + 1_001_000)).collect();
    assert_eq!(late.len(), 100);
    assert!(late[1..].iter().all(|late| *late <= 2_003_000), "{late:?}");
    // A packet that is due when a call comes goes out with that call, and is less than 1 ms late.
    assert!(late.iter().any(|late| *late > 1_500_000) && late.iter().any(|late| *late < 500_000));
    let mean = late.iter().sum::<u64>() / 100;
    assert!((500_000..1_500_000).contains(&mean), "{mean}");
}

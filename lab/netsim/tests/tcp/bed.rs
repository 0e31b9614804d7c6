//! Connections on simulated links.

use headwater_netsim::agent::{TcpConnection, TcpSource};
use headwater_netsim::chance;
use headwater_netsim::engine::Run;
use headwater_netsim::network::{Builder, LinkConfig, LinkCounters, LinkId};
use headwater_netsim::tcp::{Config, Data, Sender, SenderCounters};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Instant, Rate, Seed};

/// Faster than anything under test, in kbit/s.
const FAST: u64 = 10_000_000;

pub fn at(seconds: f64) -> Instant {
    Instant::ZERO + chance::seconds(seconds)
}

/// Greedy connections over one link, each by an access link of its own delay.
pub struct Bed {
    pub run: Run,
    link: LinkId,
    pub connections: Vec<TcpConnection>,
}

impl Bed {
    /// `round_trips` are without queues and serialisation, one per connection; the bottleneck takes no time
    /// itself.
    pub fn new(seed: u64, bottleneck: LinkConfig, config: &Config, round_trips: &[Duration]) -> Self {
        let mut network = Builder::new();
        let (left, right) = (network.node("left"), network.node("right"));
        let back = LinkConfig::new(Rate::from_kilobits(FAST), Duration::ZERO);
        let link = network.link("bottleneck", left, right, bottleneck, back);
        let mut connections = Vec::new();
        for (number, round_trip) in round_trips.iter().enumerate() {
            let delay = Duration::from_nanos(round_trip.as_nanos() / 2);
            let access =
                LinkConfig::new(Rate::from_kilobits(FAST), delay).with_queue(QueueConfig::drop_tail(10_000));
            let node = network.node(&format!("source-{number}"));
            network.link(&format!("access-{number}"), node, left, access.clone(), access);
            let name = format!("tcp-{number}");
            let overhead = Seed(seed).stream(&format!("{name}/overhead"), 0);
            let connection =
                TcpConnection::declare(&mut network, &name, (node, right), config, Data::Greedy, overhead)
                    .unwrap();
            let start = chance::uniform_duration(
                &mut Seed(seed).stream(&format!("{name}/start"), 0),
                Duration::from_secs(1),
            );
            network.start_at(connection.source, Instant::ZERO + start);
            connections.push(connection);
        }
        Self { run: network.build(Seed(seed), 0).unwrap(), link, connections }
    }

    pub fn sender(&self, number: usize) -> &Sender {
        self.run.agent::<TcpSource>(self.connections[number].source).unwrap().sender()
    }

    pub fn counters(&self, number: usize) -> SenderCounters {
        *self.sender(number).counters()
    }

    pub fn link(&mut self) -> LinkCounters {
        self.run.link_counters(self.link)
    }
}

/// Asserts that a measured `value` lies where it must.
pub fn assert_between(what: &str, of: &str, value: f64, least: f64, most: f64) {
    assert!(least <= value && value <= most, "{what}: {of} is {value:.4}, not in {least:.4} to {most:.4}");
}

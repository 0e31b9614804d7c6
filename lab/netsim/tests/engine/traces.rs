//! The same run gives the same digest: in every build, watched or not, in whatever order things were
//! declared.

use std::cell::Cell;
use std::rc::Rc;

use headwater_netsim::agent::{Cbr, Sink};
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, Impairments, LinkConfig, LinkId};
use headwater_netsim::trace::{AgentEvent, LinkEvent, Observer, OnLink};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Instant, Rate, Seed};

use crate::script::millis;

/// Pairs of flows over bottlenecks of their own, all at the same instants, joined by one link that nobody
/// uses. Declared in the given order.
fn network(order: &[u64]) -> Builder {
    let mut network = Builder::new();
    let hub = network.node("hub");
    for element in order {
        let impairments = Impairments { duplicated: 0.01, ..Impairments::NONE };
        let config = LinkConfig::new(Rate::from_kilobits(500), Duration::from_millis(3))
            .with_queue(QueueConfig::drop_tail(4))
            .with_loss(LossConfig::Bernoulli(0.05))
            .with_impairments(impairments);
        let [a, b] = ["a", "b"].map(|end| network.node(&format!("{end}{element}")));
        network.link(&format!("bottleneck{element}"), a, b, config.clone(), config.clone());
        network.link(&format!("idle{element}"), hub, a, config.clone(), config);
        let sink = network.agent(&format!("sink{element}"), b, Sink::new());
        for source in 0..2 {
            let flow = network.flow(&format!("flow{element}/{source}"));
            let cbr = Cbr::new(flow, network.destination(sink), Rate::from_kilobits(270), 500, 28);
            network.agent(&format!("source{element}/{source}"), a, cbr);
        }
    }
    network
}

fn digest(network: Builder, seed: Seed, run: u64) -> String {
    let mut run = network.build(seed, run).unwrap();
    run.watch_digest();
    run.run_until(millis(5_000));
    run.digest().unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_digest_is_the_same_everywhere() {
    insta::assert_snapshot!(digest(network(&[0, 1, 2]), Seed(42), 7));
}

#[test]
fn seed_and_run_number_make_a_difference() {
    let one = digest(network(&[0, 1]), Seed(1), 0);
    assert_eq!(one, digest(network(&[0, 1]), Seed(1), 0));
    assert_ne!(one, digest(network(&[0, 1]), Seed(2), 0));
    assert_ne!(one, digest(network(&[0, 1]), Seed(1), 1));
}

#[test]
fn the_order_of_declaration_of_independent_elements_does_not_matter() {
    assert_eq!(digest(network(&[0, 1, 2, 3]), Seed(3), 0), digest(network(&[2, 0, 3, 1]), Seed(3), 0));
}

struct Count(Rc<Cell<u64>>);

impl Observer for Count {
    fn on_link(&mut self, _: Instant, what: &OnLink<'_>) {
        self.0.set(self.0.get() + u64::from(what.event == LinkEvent::Delivered));
    }

    fn on_agent(&mut self, _: Instant, _: AgentId, _: AgentEvent<'_>) {}
}

#[test]
fn watching_changes_nothing() {
    let expected = digest(network(&[0, 1]), Seed(5), 0);
    let mut run = network(&[0, 1]).build(Seed(5), 0).unwrap();
    let count = Rc::new(Cell::new(0));
    run.watch_digest();
    run.observe(Box::new(Count(Rc::clone(&count))));
    run.run_until(millis(5_000));
    let digest: String = run.digest().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, expected);
    let links: Vec<LinkId> = (0..2).map(|n| run.names().link(&format!("bottleneck{n}")).unwrap()).collect();
    let delivered: u64 = links.into_iter().map(|link| run.link_counters(link).delivered_packets).sum();
    assert_eq!(count.get(), delivered);
}

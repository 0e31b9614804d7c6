//! What a router tells of losses above it to those who did not lose: nobody can make it tell of more than
//! there were.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::bcfs::{HOPS, Header, Kind};
use proptest::prelude::*;

use crate::bcfs::{BcfsSource, BreadcrumbRouter, Label, Level, ReplyTo, RouterConfig};
use crate::machine::{Datagram, Ecn, Input, InterfaceId, Machine, Output, RouterOutput};
use crate::time::Instant;

const UPSTREAM: InterfaceId = InterfaceId(0);
const VICTIM: InterfaceId = InterfaceId(99);
const NOW: Instant = Instant::from_nanos(20_000_000_000);
const BUFFER_BYTES: usize = 200;

#[derive(Debug, Clone, Copy)]
struct Ask {
    kind: Kind,
    link: u32,
    label: u32,
    level: u16,
    hops: u8,
    is_any: bool,
    /// The request is lost above, if it goes up, or what answers it.
    is_lost: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Ask(Ask),
    /// The next reply of the source comes.
    Reply,
}

/// A router, relays above it that only take hops, and a source, whose replies come in the order in which they
/// were asked for.
struct Above {
    router: BreadcrumbRouter<InterfaceId>,
    source: BcfsSource,
    relays: u8,
    replies: VecDeque<Vec<u8>>,
    lost: u32,
}

fn name() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 7_000))
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram { source: name(), channel: None, ecn: Ecn::NotCapable, payload }
}

impl Above {
    fn new(relays: u8) -> Self {
        let mut source = BcfsSource::new(None, ReplyTo::Peer);
        source.bind(Label(0), 0).expect("the first binding");
        let config = RouterConfig::default().with_entries(100).with_recent(4_096);
        let router = BreadcrumbRouter::new(config, UPSTREAM);
        Self { router, source, relays, replies: VecDeque::new(), lost: 0 }
    }

    /// Hands a message over; what the router sends of its own.
    fn hand(&mut self, ingress: InterfaceId, message: &[u8]) -> Option<(InterfaceId, Vec<u8>)> {
        self.router.handle(NOW, Input::Routed(ingress, datagram(message)));
        let (mut buffer, mut sent) = ([0; BUFFER_BYTES], None);
        while let Some(output) = self.router.poll_output(NOW, &mut buffer) {
            if let Output::Router(RouterOutput::Transmit { egress, transmit }) = output {
                sent = Some((egress, buffer[..transmit.bytes].to_vec()));
            }
        }
        sent
    }

    fn ask(&mut self, ask: Ask) {
        let Ask { kind, link, label, level, hops, is_any, is_lost } = ask;
        let header = Header { hops, is_any, ..Header::new(kind, name(), Label(label), Level(level)) };
        let mut message = [0; 20];
        header.emit(&mut message).expect("room");
        let Some((UPSTREAM, sent)) = self.hand(InterfaceId(link), &message) else { return };
        let (header, _) = Header::parse(&sent).expect("a message");
        if header.hops < self.relays {
            return;
        }
        let asked = self.source.receive(NOW, &datagram(&sent)).expect("all labels are bound");
        if !asked.wants_reply {
            return;
        }
        let mut reply = vec![0; BUFFER_BYTES];
        let transmit = self.source.reply(NOW, &asked.path, asked.label, asked.level, 4, &mut reply);
        reply.truncate(transmit.bytes);
        headwater_wire::bcfs::mark_any(&mut reply);
        if is_lost {
            self.lost += 1;
        } else {
            self.replies.push_back(reply);
        }
    }

    fn reply(&mut self) {
        if let Some(reply) = self.replies.pop_front() {
            self.hand(UPSTREAM, &reply);
        }
    }

    /// Lets all come that is under way; of the replies that were kept, how many tell somebody who has asked
    /// for nothing before of a loss, and how many do not.
    fn told(mut self) -> (u32, u32) {
        while !self.replies.is_empty() {
            self.reply();
        }
        let (mut of_losses, mut of_none) = (0, 0);
        for label in 1_000.. {
            let header =
                Header { is_any: true, ..Header::new(Kind::Request, name(), Label(label), Level::ONE) };
            let mut message = [0; 20];
            header.emit(&mut message).expect("room");
            let Some((VICTIM, reply)) = self.hand(VICTIM, &message) else { break };
            let (reply, _) = Header::parse(&reply).expect("a message");
            *(if reply.follows_loss { &mut of_losses } else { &mut of_none }) += 1;
        }
        (of_losses, of_none)
    }
}

const REQUEST: Ask =
    Ask { kind: Kind::Request, link: 1, label: 1, level: 1, hops: HOPS, is_any: true, is_lost: false };

/// Each request is a level above the one before, and goes up before that was answered, so that there always
/// is a breadcrumb to raise.
#[test]
fn asking_ever_higher_without_loss_tells_of_none() {
    let mut above = Above::new(0);
    above.ask(REQUEST);
    for level in 2..100 {
        above.ask(Ask { level, ..REQUEST });
        above.reply();
    }
    assert_eq!(above.told(), (0, 99));
}

/// So that there is something that was not answered.
#[test]
fn what_was_meant_to_die_on_the_way_tells_of_no_loss() {
    let mut above = Above::new(3);
    for label in 1..100 {
        above.ask(Ask { label, hops: 2, ..REQUEST });
        above.ask(Ask { label, level: 2, ..REQUEST });
        above.reply();
    }
    assert_eq!(above.told(), (0, 99));
}

/// A source answers a null only where it has not answered lately.
#[test]
fn a_null_that_is_not_answered_tells_of_no_loss() {
    let mut above = Above::new(0);
    for label in 1..100 {
        above.ask(Ask { label, ..REQUEST });
        above.reply();
        above.ask(Ask { kind: Kind::Null, label, ..REQUEST });
        above.ask(Ask { label, level: 2, ..REQUEST });
        above.reply();
    }
    assert_eq!(above.told(), (0, 198));
}

#[test]
fn each_loss_that_is_asked_for_again_is_told_of() {
    let mut above = Above::new(3);
    for label in 1..100 {
        above.ask(Ask { label, is_lost: label % 3 == 0, ..REQUEST });
        above.reply();
        if label % 3 == 0 {
            above.ask(Ask { label, level: 2, is_lost: label % 2 == 0, ..REQUEST });
            above.ask(Ask { label, level: 3, ..REQUEST });
            above.reply();
            above.reply();
        }
    }
    assert_eq!(above.told().0, 33);
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![5 => Just(Kind::Request), 1 => Just(Kind::Null)];
    // With few, most die on the way, but with as many as a router takes for enough none may.
    let hops = prop_oneof![3 => Just(HOPS), 1 => 1..=HOPS];
    let ask = (kind, 1..4_u32, 1..4_u32, 0..7_u16, hops, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(kind, link, label, level, hops, is_any, is_lost)| {
            Step::Ask(Ask { kind, link, label, level, hops, is_any, is_lost })
        },
    );
    prop_oneof![3 => ask, 2 => Just(Step::Reply)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_048) })]

    #[test]
    fn no_more_losses_are_told_of_than_there_were(
        relays in 0..HOPS / 2, steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut above = Above::new(relays);
        for step in steps {
            match step {
                Step::Ask(ask) => above.ask(ask),
                Step::Reply => above.reply(),
            }
        }
        let lost = above.lost;
        let (of_losses, _) = above.told();
        prop_assert!(of_losses <= lost, "{} of {}", of_losses, lost);
    }
}

//! A router against a small obvious one: the rules of the specification in maps.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::bcfs::{HEADER_BYTES_MAX, Header, Kind};
use proptest::prelude::*;

use crate::bcfs::{BreadcrumbRouter, Label, Level, RouterConfig};
use crate::machine::{Datagram, Ecn, Input, InterfaceId, Machine, Output, RouterOutput};
use crate::time::{Duration, Instant};

const UPSTREAM: InterfaceId = InterfaceId(0);
const ENTRIES: usize = 4;
const LINKS: usize = 16;
const REFRESH: Duration = Duration::from_millis(1_000);
const EXPIRY: Duration = Duration::from_millis(5_000);

type Key = (u8, u32);

#[derive(Debug, Clone)]
enum Step {
    Ask(Ask),
    Reply {
        key: Key,
        level: u16,
    },
    Pass {
        millis: u64,
    },
    /// The router is told of messages that come next, or do not.
    Expect {
        keys: Vec<Key>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    is_null: bool,
    link: u32,
    key: Key,
    level: u16,
    hops: u8,
}

/// What goes out: a message upward, or a reply by these links.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Nothing,
    Up(Kind, Key, u16),
    Down(Vec<u32>),
}

#[derive(Debug)]
struct Crumb {
    /// Level, and when it last asked.
    links: BTreeMap<u32, (u16, Instant)>,
    refreshed: Instant,
    hops: u8,
    used: Instant,
    order: usize,
}

#[derive(Debug, Default)]
struct Model {
    now: Instant,
    order: usize,
    crumbs: BTreeMap<Key, Crumb>,
}

impl Model {
    fn links(&self) -> usize {
        self.crumbs.values().map(|crumb| crumb.links.len()).sum()
    }

    fn age(&mut self) {
        self.crumbs.retain(|_, crumb| self.now.since(crumb.used) < EXPIRY);
    }

    fn evict(&mut self) {
        let oldest = self.crumbs.iter().min_by_key(|(_, crumb)| crumb.order).map(|(key, _)| *key);
        self.crumbs.remove(&oldest.expect("it is full"));
    }

    fn ask(&mut self, ask: Ask) -> Out {
        let Ask { is_null, link, key, level, hops } = ask;
        let (now, kind) = (self.now, if is_null { Kind::Null } else { Kind::Request });
        self.order += 1;
        let order = self.order;
        if let Some(crumb) = self.crumbs.get_mut(&key) {
            crumb.order = order;
        }
        let is_new_link = |model: &Self| model.crumbs.get(&key).is_none_or(|c| !c.links.contains_key(&link));
        while (!self.crumbs.contains_key(&key) && self.crumbs.len() == ENTRIES)
            || (self.links() == LINKS && is_new_link(self))
        {
            self.evict();
        }
        let Some(crumb) = self.crumbs.get_mut(&key) else {
            let links = BTreeMap::from([(link, (level, now))]);
            self.crumbs.insert(key, Crumb { links, refreshed: now, hops, used: now, order });
            return Out::Up(kind, key, level);
        };
        let top = crumb.links.values().map(|(level, _)| *level).max().expect("it has links");
        let raised = crumb.links.get(&link).map_or(level, |(before, _)| level.max(*before));
        crumb.links.insert(link, (raised, now));
        crumb.used = now;
        if level > top {
            (crumb.refreshed, crumb.hops) = (now, hops);
            return Out::Up(kind, key, level);
        }
        let died = crumb.hops <= 16 && hops > crumb.hops;
        if now.since(crumb.refreshed) <= REFRESH && !died {
            return Out::Nothing;
        }
        (crumb.refreshed, crumb.hops) = (now, hops);
        Out::Up(Kind::Null, key, top)
    }

    fn reply(&mut self, key: Key, level: u16) -> Out {
        self.order += 1;
        let (now, order) = (self.now, self.order);
        let Some(crumb) = self.crumbs.get_mut(&key) else { return Out::Nothing };
        (crumb.used, crumb.order) = (now, order);
        crumb.links.retain(|_, (_, asked)| now.since(*asked) < EXPIRY);
        let egresses = crumb.links.keys().copied().collect();
        crumb.links.retain(|_, (asked, _)| *asked > level);
        if crumb.links.is_empty() {
            self.crumbs.remove(&key);
        }
        Out::Down(egresses)
    }
}

fn source(key: Key) -> SocketAddr {
    // They differ in the upper half only.
    SocketAddr::from(([0x2001, 0xDB8, key.0.into(), 0, 0, 0, 0, 1], 7_000))
}

/// Hands a message over, and what comes out.
fn play(
    router: &mut BreadcrumbRouter<InterfaceId>,
    now: Instant,
    ingress: InterfaceId,
    header: Header,
) -> Out {
    let (mut message, mut buffer) = ([0; 32], vec![0; crate::DATAGRAM_BYTES_MAX]);
    header.emit(&mut message).expect("room");
    let datagram = Datagram { source: header.source, channel: None, ecn: Ecn::Capable0, payload: &message };
    router.handle(now, Input::Routed(ingress, datagram));
    let (mut out, mut egresses) = (Out::Nothing, Vec::new());
    while let Some(output) = router.poll_output(now, &mut buffer) {
        match output {
            Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                assert_eq!((egress, transmit.ecn, &out), (UPSTREAM, Ecn::Capable0, &Out::Nothing));
                let (sent, _) = Header::parse(&buffer[..transmit.bytes]).expect("a message");
                assert_eq!((sent.hops, sent.source), (header.hops - 1, header.source));
                let last = if sent.source == source((1, 0)) { 1 } else { 2 };
                out = Out::Up(sent.kind, (last, sent.label.0), sent.level.0);
            }
            Output::Router(RouterOutput::Forward { egress, ecn }) => {
                assert_eq!(ecn, Ecn::Capable0);
                egresses.push(egress.0);
                egresses.sort_unstable();
                out = Out::Down(egresses.clone());
            }
            other => panic!("{other:?}"),
        }
    }
    out
}

fn message(key: Key) -> [u8; HEADER_BYTES_MAX] {
    let mut bytes = [0; HEADER_BYTES_MAX];
    Header::new(Kind::Reply, source(key), Label(key.1), Level::ONE).emit(&mut bytes).unwrap();
    bytes
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (1..=2_u8, 0..4_u32);
    let level = || prop_oneof![4 => 0..4_u16, 1 => Just(u16::MAX)];
    let hops = || prop_oneof![4 => Just(32_u8), 1 => 1..19_u8];
    prop_oneof![
        6 => (any::<bool>(), 1..9_u32, key(), level(), hops())
            .prop_map(|(is_null, link, key, level, hops)| Step::Ask(Ask { is_null, link, key, level, hops })),
        3 => (key(), level()).prop_map(|(key, level)| Step::Reply { key, level }),
        2 => prop::collection::vec(key(), 1..8).prop_map(|keys| Step::Expect { keys }),
        2 => prop_oneof![0..1_500_u64, Just(1_000), Just(2_500), Just(5_000)].prop_map(|millis| Step::Pass { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_router_does_what_the_rules_say(
        steps in prop::collection::vec(step(), 1..120), key in any::<[u64; 2]>(),
    ) {
        let config = RouterConfig::default().with_entries(ENTRIES).with_refresh(REFRESH).with_expiry(EXPIRY);
        let mut router = BreadcrumbRouter::new(config.with_hash_key(key), UPSTREAM);
        let mut model = Model { now: Instant::ZERO + EXPIRY, ..Model::default() };
        for step in steps {
            let now = model.now;
            let (out, expected) = match step {
                Step::Pass { millis } => {
                    model.now += Duration::from_millis(millis);
                    model.age();
                    if router.poll_timeout().is_some_and(|at| at <= model.now) && millis % 2 == 0 {
                        router.handle(model.now, Input::Timeout);
                        prop_assert!(router.poll_timeout().is_none_or(|at| at > model.now));
                        prop_assert_eq!(router.entries(), model.crumbs.len());
                    }
                    continue;
                }
                Step::Expect { keys } => {
                    let messages: Vec<_> = keys.into_iter().map(message).collect();
                    router.expect(messages.iter().map(|message| &message[..]));
                    continue;
                }
                Step::Ask(ask) => {
                    let Ask { is_null, link, key, level, hops } = ask;
                    let kind = if is_null { Kind::Null } else { Kind::Request };
                    let header = Header { hops, ..Header::new(kind, source(key), Label(key.1), Level(level)) };
                    // Those that have outlived their time give way first, being the oldest: so a model
                    // without them is no other.
                    (play(&mut router, now, InterfaceId(link), header), model.ask(ask))
                }
                Step::Reply { key, level } => {
                    let header = Header::new(Kind::Reply, source(key), Label(key.1), Level(level));
                    (play(&mut router, now, UPSTREAM, header), model.reply(key, level))
                }
            };
            // All links of a breadcrumb may have asked too long ago, while nulls of the past kept it.
            let is_nothing = |out: &Out| *out == Out::Nothing || *out == Out::Down(Vec::new());
            prop_assert!(out == expected || (is_nothing(&out) && is_nothing(&expected)), "{:?}, not {:?}", out, expected);
            prop_assert!(router.entries() <= ENTRIES && router.links() <= LINKS);
        }
        // What is left differs only in what nobody has looked at since its time came.
        while router.poll_timeout().is_some_and(|at| at <= model.now) {
            router.handle(model.now, Input::Timeout);
        }
        prop_assert_eq!((router.entries(), router.links()), (model.crumbs.len(), model.links()));
    }
}

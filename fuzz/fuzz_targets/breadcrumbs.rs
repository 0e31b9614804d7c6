//! Two routers of breadcrumbs get the same messages in batches, and one is told of each batch beforehand, of
//! one that never comes, or of neither: no panic, the bounds hold, and what comes out is the same.
#![no_main]

use std::net::SocketAddr;

use headwater_proto::bcfs::{BreadcrumbRouter, Label, Level, RouterConfig};
use headwater_proto::{DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, InterfaceId, Machine};
use headwater_wire::bcfs::{Header, Kind};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const UPSTREAM: InterfaceId = InterfaceId(0);
const ENTRIES: usize = 8;

#[derive(Arbitrary, Debug)]
enum Step {
    Batch { expected: Expected, messages: Vec<Message> },
    Millis(u16),
}

#[derive(Arbitrary, Debug)]
enum Expected {
    Nothing,
    All,
    Others(Vec<Message>),
}

#[derive(Arbitrary, Debug)]
enum Message {
    Sound { ingress: u8, kind: u8, source: u8, label: u8, level: u16, hops: u8, flags: u8 },
    Bytes { ingress: u8, bytes: Vec<u8> },
}

type Routers = [BreadcrumbRouter<InterfaceId>; 2];

fuzz_target!(|steps: Vec<Step>| {
    let config = || RouterConfig::default().with_entries(ENTRIES).with_recent(4).with_hash_key([1, 2]);
    let mut routers: Routers = [(); 2].map(|()| BreadcrumbRouter::new(config(), UPSTREAM));
    let mut now = Instant::ZERO;
    for step in steps {
        match step {
            Step::Millis(millis) => {
                now += Duration::from_millis(millis.into());
                give(&mut routers, now, Input::Timeout);
            }
            Step::Batch { expected, messages } => {
                let messages: Vec<_> = messages.iter().map(written).collect();
                let payloads = |messages: &[(InterfaceId, Vec<u8>)]| -> Vec<Vec<u8>> {
                    messages.iter().map(|(_, bytes)| bytes.clone()).collect()
                };
                let told = match expected {
                    Expected::Nothing => Vec::new(),
                    Expected::All => payloads(&messages),
                    Expected::Others(others) => payloads(&others.iter().map(written).collect::<Vec<_>>()),
                };
                routers[0].expect(told.iter().map(Vec::as_slice));
                for (ingress, payload) in &messages {
                    let source = SocketAddr::from(([192, 0, 2, 2], 7_000));
                    let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload };
                    give(&mut routers, now, Input::Routed(*ingress, datagram));
                }
            }
        }
    }
});

/// Hands both the same, and compares what comes out.
fn give(routers: &mut Routers, now: Instant, input: Input<'_>) {
    let [told, untold] = routers.each_mut().map(|router| {
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        router.handle(now, input);
        let mut outputs = Vec::new();
        while let Some(output) = router.poll_output(now, &mut room) {
            outputs.push((output, room.clone()));
        }
        assert!(router.entries() <= ENTRIES && router.links() <= 4 * ENTRIES);
        (outputs, router.poll_timeout(), *router.counters())
    });
    assert_eq!(told, untold);
}

fn written(message: &Message) -> (InterfaceId, Vec<u8>) {
    match message {
        Message::Bytes { ingress, bytes } => (InterfaceId((*ingress).into()), bytes.clone()),
        Message::Sound { ingress, kind, source, label, level, hops, flags } => {
            let kind = [Kind::Request, Kind::Null, Kind::Reply][usize::from(*kind) % 3];
            // Few of each, so that they meet.
            let source = SocketAddr::from(([192, 0, 2, source % 2], 7_000));
            let header = Header {
                hops: *hops,
                is_any: flags & 1 == 1,
                follows_loss: flags & 2 == 2,
                ..Header::new(kind, source, Label((label % 16).into()), Level(*level))
            };
            let mut bytes = vec![0; header.buffer_len()];
            header.emit(&mut bytes).expect("there is room");
            (InterfaceId((ingress % 12).into()), bytes)
        }
    }
}

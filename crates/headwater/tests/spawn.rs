//! Sessions of each kind on threads of their own, over the loopback interface.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use futures_lite::{StreamExt, future};
use headwater::pgm::{
    PgmControl, PgmReceiveOptions, PgmReceiveOutcome, PgmReceiveSession, PgmReceiveUpdate, PgmSendOptions,
    PgmSendSession,
};
use headwater::relay::{RelayOptions, RelaySession};
use headwater::{
    CongestionControl, LinkOptions, ListenOptions, ReceiveOptions, ReceiveOutcome, ReceiveSession,
    ReceiveUpdate, SendOptions, SendOutcome, SendSession, SendUpdate, Session, SessionThread, prepare,
};

/// A receiver that gets no packet for so long has failed. Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a group and port of this process and test, below the ports that the system assigns.
fn group(test: u16) -> SocketAddr {
    let process = u16::try_from(std::process::id() % 120).unwrap();
    format!("239.255.{}.{test}:{}", 121 + process, 8_000 + process * 100 + 90 + test).parse().unwrap()
}

fn link(group: SocketAddr) -> LinkOptions {
    LinkOptions { interface: Some("lo".into()), ..LinkOptions::new(group) }
}

fn listen(group: SocketAddr) -> ListenOptions {
    ListenOptions { interface: Some("lo".into()), timeout: Some(PATIENCE), ..ListenOptions::new(group) }
}

fn rate() -> CongestionControl {
    CongestionControl::Fixed { rate: "20M".parse().unwrap() }
}

fn sending(group: SocketAddr, folder: &tempfile::TempDir) -> SessionThread<SendSession> {
    let path = folder.path().join("content");
    fs::write(&path, vec![7; 100_000]).unwrap();
    let options = SendOptions::new(link(group), rate());
    SendSession::open(prepare([path]).unwrap(), options).unwrap().spawn().unwrap()
}

fn receiving(group: SocketAddr, folder: &tempfile::TempDir) -> SessionThread<ReceiveSession> {
    ReceiveSession::open(ReceiveOptions::new(listen(group), folder.path())).unwrap().spawn().unwrap()
}

#[test]
fn files_arrive_between_spawned_sessions() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut receiver = receiving(group(0), &to);
    let mut sender = sending(group(0), &from);
    let is_completed = |update: &ReceiveUpdate| matches!(update, ReceiveUpdate::FileCompleted { .. });
    assert_eq!(receiver.updates().filter(is_completed).count(), 1, "and the iterator ends");
    assert_eq!(receiver.join().unwrap().outcome, ReceiveOutcome::Completed);
    assert_eq!(fs::read(to.path().join("content")).unwrap(), vec![7; 100_000]);

    assert!(sender.updates().any(|update| matches!(update, SendUpdate::Progress(_))));
    sender.stop();
    assert_eq!(sender.join().unwrap().outcome, SendOutcome::Interrupted);
}

#[test]
fn a_stream_of_updates_ends_with_the_session() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut receiver = receiving(group(1), &to);
    let _sender = sending(group(1), &from);
    let names = future::block_on(async {
        let mut names = Vec::new();
        while let Some(update) = receiver.next().await {
            if let ReceiveUpdate::FileCompleted { path, .. } = update {
                names.push(path.to_string());
            }
        }
        names
    });
    assert_eq!(names, ["content"]);
    assert_eq!(receiver.join().unwrap().outcome, ReceiveOutcome::Completed);
}

#[test]
fn a_dropped_handle_ends_its_session() {
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let relay = RelaySession::open(RelayOptions { listen: vec![listen], ..RelayOptions::default() }).unwrap();
    let address = relay.local_addrs()[0];
    drop(relay.spawn().unwrap());
    // The socket is closed, so that the address is free.
    assert!(std::net::UdpSocket::bind(address).is_ok());
}

#[test]
fn messages_are_owned_updates() {
    let group = group(2);
    let options = PgmReceiveOptions::new(listen(group));
    let mut receiver = PgmReceiveSession::open(options).unwrap().spawn().unwrap();
    assert!(receiver.updates().any(|update| update == PgmReceiveUpdate::Joined));
    let control = PgmControl::Fixed("10M".parse().unwrap());
    let options = PgmSendOptions::new(link(group), control);
    let session = PgmSendSession::open(options).unwrap();
    let feed = session.feed();
    let sender = session.spawn().unwrap();
    (0..100_u8).for_each(|number| feed.send(&[number]).unwrap());
    feed.finish();
    let message =
        |update| if let PgmReceiveUpdate::Message(message) = update { Some(message[0]) } else { None };
    assert!(receiver.updates().filter_map(message).eq(0..100));
    assert_eq!(receiver.join().unwrap().outcome, PgmReceiveOutcome::Closed);
    sender.join().unwrap();
}

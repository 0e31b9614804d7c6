//! Files by request on loopback sockets: from the source itself and by way of a relay, and what ends a
//! session.

use std::net::SocketAddr;
use std::time::Duration;

use headwater::proto::Rate;
use headwater::proto::control::Value;
use headwater::relay::{RelayOptions, RelaySession};
use headwater::{
    GroupKeys, IncompleteReason, RainbowOptions, ReceiveOptions, ReceiveOutcome, SendError, SendOptions,
    SendOutcome, SendSession, SenderKey, Session, Trust, prepare,
};

use crate::bed::{Change, PATIENCE, Sending, content, names, receive, tree, write};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A sender on a thread, and where it is asked.
fn start(path: &std::path::Path, options: SendOptions) -> (Sending, SocketAddr) {
    start_at(any(), path, options)
}

fn start_at(at: SocketAddr, path: &std::path::Path, options: SendOptions) -> (Sending, SocketAddr) {
    let mut session =
        SendSession::open(prepare([path]).unwrap(), options.with(|options| options.listen = vec![at]))
            .unwrap();
    let (stop, source) = (session.stop_handle(), session.started().source);
    let thread = std::thread::spawn(move || session.run(&mut |_| {}));
    (Sending { stop, thread }, source)
}

fn asking(source: SocketAddr, via: Option<SocketAddr>, out: &std::path::Path) -> ReceiveOptions {
    ReceiveOptions::asking(source, via, out).with(|options| options.listen.timeout = Some(PATIENCE))
}

#[test]
fn a_rehearsal_takes_no_port_and_never_runs() {
    let taken = std::net::UdpSocket::bind(any()).unwrap();
    let at = taken.local_addr().unwrap();
    let bed = tempfile::tempdir().unwrap();
    let path = bed.path().join("file");
    write(&path, &content(3_000, 1), 0o644);
    let options = || SendOptions::on_request(RainbowOptions::new()).with(|options| options.listen = vec![at]);
    let refused = SendSession::open(prepare([&path]).unwrap(), options()).unwrap_err();
    assert!(matches!(refused, SendError::Open(_)), "{refused}");
    let mut session =
        SendSession::open(prepare([&path]).unwrap(), options().with(|options| options.is_rehearsal = true))
            .unwrap();
    assert_eq!((session.started().listen, session.started().group), (vec![at], at));
    assert!(matches!(session.run(&mut |_| {}), Err(SendError::Rehearsal)));
}

#[test]
fn a_folder_comes_from_the_source_and_by_way_of_a_relay() {
    let bed = tempfile::tempdir().unwrap();
    let folder = bed.path().join("folder");
    write(&folder.join("large"), &content(3_000_000, 1), 0o644);
    write(&folder.join("small/one"), &content(700, 2), 0o600);
    write(&folder.join("small/none"), &[], 0o644);
    let (sending, source) = start(&folder, SendOptions::on_request(RainbowOptions::new()));
    let mut relay =
        RelaySession::open(RelayOptions::default().with(|options| options.listen = vec![any()])).unwrap();
    let (via, end) = (relay.local_addrs()[0], relay.stop_handle());
    let relaying = std::thread::spawn(move || relay.run(&mut |_| {}).unwrap());
    for (name, via) in [("direct", None), ("relayed", Some(via))] {
        let out = bed.path().join(name);
        // At most what an encoder without optimization keeps up with: else source symbols leave again.
        let rate = Some(Rate::from_kilobits(20_000));
        let began = std::time::Instant::now();
        let summary = receive(asking(source, via, &out).with(|options| options.listen.max_rate = rate));
        assert_eq!(summary.outcome, ReceiveOutcome::Completed, "{name}");
        assert_eq!(tree(&out.join("folder")), tree(&folder), "{name}");
        let stats = &summary.progress.stats;
        assert!(stats.duplicates <= stats.packets / 10, "{name}: {stats:?}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{name}: 3 MB at 20 Mbit/s take 1.2 s");
        assert!(summary.progress.control.window.is_some());
    }
    end.stop();
    assert!(relaying.join().unwrap().counters.router.replies > 2_000);
    let summary = sending.stop();
    let requests = &summary.progress.counters;
    assert!(requests.count("requests") >= summary.progress.packets, "{requests:?}");
    assert_eq!(requests.get("unproven"), Some(Value::Count(0)));
}

/// Relay and source verify and forward packets without the group key.
#[test]
fn an_encrypted_and_signed_session_comes_by_way_of_a_relay() {
    let bed = tempfile::tempdir().unwrap();
    let file = bed.path().join("file");
    write(&file, &content(600_000, 1), 0o644);
    let group_key = GroupKeys::create(&bed.path().join("key")).unwrap();
    let options = SendOptions::on_request(RainbowOptions::new())
        .with(|options| options.signing = Some(SenderKey::ephemeral().unwrap()))
        .with(|options| options.group_key = Some(group_key.clone()));
    let (sending, source) = start(&file, options);
    let mut relay =
        RelaySession::open(RelayOptions::default().with(|options| options.listen = vec![any()])).unwrap();
    let (via, end) = (relay.local_addrs()[0], relay.stop_handle());
    let relaying = std::thread::spawn(move || relay.run(&mut |_| {}).unwrap());
    for (name, via) in [("direct", None), ("relayed", Some(via))] {
        let out = bed.path().join(name);
        let options = asking(source, via, &out)
            .with(|options| options.listen.trust = Trust::First)
            .with(|options| options.listen.group_key = Some(group_key.clone()));
        let summary = receive(options);
        assert_eq!(summary.outcome, ReceiveOutcome::Completed, "{name}: {summary:?}");
        assert_eq!(tree(&out)["file"].2, content(600_000, 1), "{name}");
    }
    let stranger = asking(source, Some(via), &bed.path().join("stranger"));
    let stranger = receive(stranger.with(|options| options.listen.timeout = Some(Duration::from_secs(2))));
    assert!(matches!(stranger.outcome, ReceiveOutcome::NothingOpened(_)), "{:?}", stranger.outcome);
    end.stop();
    relaying.join().unwrap();
    sending.stop();
}

#[test]
fn a_file_comes_by_ipv6() {
    let bed = tempfile::tempdir().unwrap();
    let file = bed.path().join("file");
    write(&file, &content(300_000, 4), 0o644);
    let options = SendOptions::on_request(RainbowOptions::new());
    let (sending, source) = start_at("[::1]:0".parse().unwrap(), &file, options);
    let out = bed.path().join("out");
    assert_eq!(receive(asking(source, None, &out)).outcome, ReceiveOutcome::Completed);
    assert_eq!(tree(&out)["file"].2, content(300_000, 4));
    sending.stop();
}

/// What does not fit would never come, and nobody would be told.
#[test]
fn packets_that_no_usual_path_takes_are_refused() {
    let bed = tempfile::tempdir().unwrap();
    let file = bed.path().join("file");
    write(&file, &content(10_000, 5), 0o644);
    for (at, fits) in [("0.0.0.0:0", false), ("127.0.0.1:0", true)] {
        let options =
            SendOptions::on_request(RainbowOptions::new()).with(|options| options.symbol_size = Some(8_000));
        let options = options.with(|options| options.listen = vec![at.parse().unwrap()]);
        let session = SendSession::open(prepare([&file]).unwrap(), options);
        assert_eq!(session.is_ok(), fits, "{at}");
        assert!(fits || matches!(session, Err(SendError::Mtu { mtu: 1_500, .. })));
    }
}

#[test]
fn a_source_that_closes_says_so_and_what_came_is_kept() {
    let bed = tempfile::tempdir().unwrap();
    let file = bed.path().join("file");
    write(&file, &content(2_000_000, 3), 0o644);
    let slow = RainbowOptions::new().with_max_rate(Some("8M".parse().unwrap()));
    let (sending, source) = start(&file, SendOptions::on_request(slow));
    let out = bed.path().join("out");
    let receiving = {
        let options = asking(source, None, &out);
        std::thread::spawn(move || receive(options))
    };
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(sending.stop().outcome, SendOutcome::Interrupted);
    let first = receiving.join().unwrap();
    assert_eq!(first.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
    let rate = first.progress.stats.bytes as f64 * 8.0 / 0.8;
    assert!(rate < 16e6, "{rate}: the highest rate is not kept");
    assert!(first.kept.is_some() && first.progress.stats.useful > 100);
    // It goes on with what another session of the same file sends.
    let (sending, source) = start(&file, SendOptions::on_request(RainbowOptions::new()));
    let second = receive(asking(source, None, &out));
    assert_eq!(second.outcome, ReceiveOutcome::Completed);
    assert!(second.progress.stats.resumed > 100);
    assert_eq!(tree(&out)["file"].2, content(2_000_000, 3));
    assert_eq!(names(&out), ["file"]);
    sending.stop();
}

#[test]
fn who_asks_nobody_gives_up_in_time() {
    let bed = tempfile::tempdir().unwrap();
    // Port 9 discards, if anything is there.
    let options = ReceiveOptions::asking("127.0.0.1:9".parse().unwrap(), None, bed.path());
    let summary = receive(options.with(|options| options.listen.timeout = Some(Duration::from_secs(1))));
    assert_eq!(summary.outcome, ReceiveOutcome::NothingReceived);
    for nobody in ["0.0.0.0:7288", "127.0.0.1:0", "239.1.2.3:7288"] {
        let options = ReceiveOptions::asking(nobody.parse().unwrap(), None, bed.path());
        assert!(headwater::ReceiveSession::open(options).is_err(), "{nobody}");
    }
}

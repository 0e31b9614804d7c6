//! What comes of files: early, late, with loss, one session after the other, and what both ends say of it.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headwater::{
    Direction, GroupKeys, IncompleteReason, Loss, ReceiveOptions, ReceiveOutcome, ReceiveSession,
    ReceiveUpdate, Scheme, SendEnd, SendError, SendOptions, SendOutcome, SendSession, SendUpdate, SenderKey,
    Session, TraceHook, prepare,
};

use crate::bed::{
    Change, Sending, content, group, names, receive, receive_ahead, receive_options, send_options, tree,
    write,
};

#[test]
fn three_receivers_get_the_same_tree_early_late_and_with_loss() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("tree");
    write(&sent.join("empty"), b"", 0o644);
    write(&sent.join("zz-empty-and-last"), b"", 0o644);
    write(&sent.join("one"), b"1", 0o600);
    write(&sent.join("bin/run"), &content(5_000, 1), 0o755);
    write(&sent.join("deep/er/café.bin"), &content(1_409, 2), 0o644);
    write(&sent.join("large"), &content(20_000_000, 3), 0o644);
    let (group, total) = (group(), 20_006_410);

    let receiver = |name: &str, loss| {
        let out = folder.path().join(name);
        let options = receive_options(group, &out).with(|options| options.listen.loss = loss);
        (out, ReceiveSession::open(options).unwrap())
    };
    let ten_percent = Loss { probability: 0.1, seed: 7 };
    let (early_out, mut early) = receiver("early", None);
    let (lossy_out, mut lossy) = receiver("lossy", Some(ten_percent));
    let (late_out, mut late) = receiver("late", None);

    let (passed, half_way) = mpsc::channel();
    let (early, lossy, late, summary) = thread::scope(|scope| {
        let early = scope.spawn(|| {
            let mut updates = Vec::new();
            let summary = early.run(&mut |update| updates.push(update)).unwrap();
            (summary, updates)
        });
        let lossy = scope.spawn(|| lossy.run(&mut |_| {}).unwrap());
        let mut session = SendSession::open(prepare([&sent]).unwrap(), send_options(group, "100M")).unwrap();
        let stop = session.stop_handle();
        let sender = scope.spawn(move || {
            session
                .run(&mut |update| {
                    if let SendUpdate::Progress(progress) = update
                        && progress.passes >= 0.4
                    {
                        let _heard_already = passed.send(());
                    }
                })
                .unwrap()
        });
        half_way.recv().unwrap();
        let late = late.run(&mut |_| {}).unwrap();
        let (early, lossy) = (early.join().unwrap(), lossy.join().unwrap());
        stop.stop();
        (early, lossy, late, sender.join().unwrap())
    });

    let (early, updates) = early;
    let original = tree(&sent);
    for (summary, out) in [(&early, &early_out), (&lossy, &lossy_out), (&late, &late_out)] {
        assert_eq!(summary.outcome, ReceiveOutcome::Completed, "{}", out.display());
        assert_eq!((summary.files_completed, summary.bytes_completed), (6, total));
        assert_eq!(names(out), ["tree"], "no working folder is left");
        assert_eq!(tree(&out.join("tree")), original);
        let stats = &summary.progress.stats;
        assert_eq!((stats.dropped.total(), stats.accounted()), (0, stats.packets));
        assert!(summary.progress.files.iter().all(|file| file.is_done && !file.is_refused));
    }
    assert!(lossy.progress.reception.lost > 0, "one in ten packets was dropped");
    assert_eq!(summary.outcome, SendOutcome::Interrupted);
    assert!(summary.progress.symbols > 14_000 && summary.fdt_packets > 0);

    assert!(matches!(updates[0], ReceiveUpdate::Started(_)));
    assert!(matches!(updates[1], ReceiveUpdate::Joined(_)));
    let completed = |update: &ReceiveUpdate| match update {
        ReceiveUpdate::FileCompleted { path, digest, .. } => {
            assert!(digest.is_some());
            Some(path.to_string())
        }
        _ => None,
    };
    let mut completed: Vec<_> = updates.iter().filter_map(completed).collect();
    completed.sort();
    let expected: Vec<_> = original.keys().map(|name| format!("tree/{name}")).collect();
    assert_eq!(completed, expected);
    assert!(updates.iter().any(|update| matches!(update, ReceiveUpdate::Progress(_))));
    assert!(updates.contains(&ReceiveUpdate::SessionCompleted { refused: 0 }));
}

#[test]
fn a_closed_session_is_incomplete_and_the_next_one_goes_on() {
    // Every symbol kept counts; a code needs some more than k, LDPC a few percent.
    the_next_session_goes_on(Scheme::RaptorQ, 2);
    the_next_session_goes_on(Scheme::LdpcTriangle, 100);
}

/// Kept content is plain: a session of the same content in the clear continues an encrypted one.
#[test]
fn an_encrypted_session_is_continued_with_and_without_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 5), 0o644);
    let group_key = GroupKeys::create(&folder.path().join("key")).unwrap();
    let key = SenderKey::ephemeral().unwrap();
    for is_encrypted in [true, false] {
        let (group, out) = (group(), folder.path().join(format!("out-{is_encrypted}")));
        let encrypted = |options: SendOptions| {
            options
                .with(|options| options.signing = Some(key.clone()))
                .with(|options| options.group_key = Some(group_key.clone()))
        };
        let member = |options: ReceiveOptions| {
            options.with(|options| options.listen.group_key = Some(group_key.clone()))
        };
        let receiving = receive_ahead(member(receive_options(group, &out)));
        let options = send_options(group, "10M")
            .with(|options| options.end = SendEnd::After(Duration::from_millis(1_000)));
        let sending = Sending::start(&file, encrypted(options));
        let summary = receiving.join().unwrap();
        assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
        sending.thread.join().unwrap().unwrap();
        let held = summary.progress.symbols_held;
        assert!(held > 0, "{summary:?}");

        let (send, receiving) = (send_options(group, "50M"), receive_options(group, &out));
        let (send, receiving) =
            if is_encrypted { (encrypted(send), member(receiving)) } else { (send, receiving) };
        let sending = Sending::start(&file, send);
        let summary = receive(receiving);
        sending.stop();
        assert_eq!(summary.outcome, ReceiveOutcome::Completed);
        assert_eq!(summary.progress.stats.resumed, held);
        assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
    }
}

fn the_next_session_goes_on(scheme: Scheme, more: u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 5), 0o644);
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receive_ahead(receive_options(group, &out));
    let options = send_options(group, "10M")
        .with(|options| options.scheme = scheme)
        .with(|options| options.end = SendEnd::After(Duration::from_millis(400)));
    let sending = Sending::start(&file, options);
    let summary = receiving.join().unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
    assert_eq!(sending.thread.join().unwrap().unwrap().outcome, SendOutcome::Completed);
    let held = summary.progress.symbols_held;
    assert!(held > 0 && held < summary.progress.symbols);
    assert_eq!(names(&out), [".headwater-work"]);
    assert_eq!(summary.kept, Some(out.join(".headwater-work")));

    let sending = Sending::start(&file, send_options(group, "50M").with(|options| options.scheme = scheme));
    let summary = receive(receive_options(group, &out));
    sending.stop();
    assert_eq!(summary.outcome, ReceiveOutcome::Completed);
    assert_eq!((summary.progress.stats.resumed, summary.kept), (held, None));
    let needed = summary.progress.stats.useful + held;
    assert!((2_131..=2_131 + more).contains(&needed), "{scheme}: {needed} symbols");
    assert_eq!(names(&out), ["file"], "no working folder is left");
    assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn sessions_share_a_process_a_group_and_a_folder_without_mixing() {
    let folder = tempfile::tempdir().unwrap();
    let (group, out) = (group(), folder.path().join("out"));
    let ends = [11_u32, 22].map(|tsi| {
        let path = folder.path().join(format!("session-{tsi}"));
        write(&path, &content(400_000, tsi.into()), 0o644);
        let receiving =
            receive_ahead(receive_options(group, &out).with(|options| options.listen.tsi = Some(tsi.into())));
        (path, tsi, receiving)
    });
    let ends = ends.map(|(path, tsi, receiving)| {
        (Sending::start(&path, send_options(group, "20M").with(|options| options.tsi = Some(tsi))), receiving)
    });
    for (sending, receiving) in ends {
        let summary = receiving.join().unwrap();
        assert_eq!((summary.outcome, summary.files_completed), (ReceiveOutcome::Completed, 1));
        sending.stop();
    }
    assert_eq!(names(&out), ["session-11", "session-22"]);
    for tsi in [11, 22] {
        let name = format!("session-{tsi}");
        assert!(fs::read(out.join(&name)).unwrap() == content(400_000, tsi), "{name} differs");
    }
}

#[test]
fn silence_ends_in_nothing_received() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/out");
    let summary = receive(
        receive_options(group(), &out)
            .with(|options| options.listen.timeout = Some(Duration::from_millis(150))),
    );
    assert_eq!(summary.outcome, ReceiveOutcome::NothingReceived);
    assert!(names(&out).is_empty());
}

#[test]
fn a_stopped_receiver_is_not_resumed_by_another_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 5), 0o644);
    let (group, out) = (group(), folder.path().join("out"));
    let mut receiver = ReceiveSession::open(receive_options(group, &out)).unwrap();
    let stop = receiver.stop_handle();
    let sending = Sending::start(&file, send_options(group, "5M"));
    let summary = receiver
        .run(&mut |update| {
            if matches!(update, ReceiveUpdate::Progress(progress) if progress.symbols_held > 0) {
                stop.stop();
            }
        })
        .unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Interrupted);
    drop(receiver);
    assert_eq!(names(&out), [".headwater-work"]);
    assert_eq!(sending.stop().outcome, SendOutcome::Interrupted);

    write(&file, &content(3_000_000, 6), 0o644);
    let sending = Sending::start(&file, send_options(group, "50M"));
    let summary = receive(receive_options(group, &out));
    sending.stop();
    assert_eq!((summary.outcome, summary.progress.stats.resumed), (ReceiveOutcome::Completed, 0));
    assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
    assert_eq!(names(&out), ["file"]);
}

#[test]
fn a_file_that_changes_ends_the_session_saying_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(200_000, 5), 0o644);
    // All symbols may be in memory by then: the file is looked at all the same.
    let mut session = SendSession::open(prepare([&file]).unwrap(), send_options(group(), "1M")).unwrap();
    let mut started = false;
    let error = session
        .run(&mut |update| {
            if matches!(update, SendUpdate::Progress(_)) && !started {
                started = true;
                fs::write(&file, b"short").unwrap();
            }
        })
        .unwrap_err();
    assert!(matches!(&error, SendError::Source(_)), "{error:?}");
    assert!(error.to_string().contains("changed while it was being sent"), "{error}");
}

#[test]
fn both_ends_trace_every_datagram() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(50_000, 5), 0o644);
    let (group, out) = (group(), folder.path().join("out"));
    let (sent, sent_traces) = mpsc::channel();
    let (received, received_traces) = mpsc::channel();
    let options = receive_options(group, &out).with(|options| {
        options.listen.trace = Some(TraceHook::new(move |packet| {
            assert_eq!((packet.direction, packet.destination), (Direction::Received, group));
            received.send((packet.source, packet.payload.to_vec())).unwrap();
        }));
    });
    let mut receiver = ReceiveSession::open(options).unwrap();
    let options = send_options(group, "10M").with(|options| options.tsi = Some(77)).with(|options| {
        options.link.trace = Some(TraceHook::new(move |packet| {
            assert_eq!((packet.direction, packet.destination), (Direction::Sent, group));
            assert_eq!((packet.ttl, packet.dscp), (Some(1), Some(0)));
            sent.send((packet.source, packet.payload.to_vec())).unwrap();
        }));
    });
    let sending = Sending::start(&file, options);
    let mut tsi = None;
    receiver
        .run(&mut |update| {
            if let ReceiveUpdate::SessionFound { tsi: found, .. } = update {
                tsi = Some(found);
            }
        })
        .unwrap();
    // The hooks go with their sessions, and with them the senders' ends of the channels.
    drop(receiver);
    let summary = sending.stop();
    let sent: Vec<_> = sent_traces.iter().collect();
    let received: Vec<_> = received_traces.iter().collect();
    assert_eq!(tsi, Some(77));
    assert_eq!(sent.len() as u64, summary.progress.packets);
    assert!(!received.is_empty() && received.iter().all(|packet| sent.contains(packet)));
}

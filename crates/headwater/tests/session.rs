//! Whole sessions over real multicast on the loopback interface: files in, files out.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use headwater::pgm::{LeSbccModule, LeSbccOptions};
use headwater::proto::Rate;
use headwater::{
    CongestionControl, Direction, IncompleteReason, LayerOptions, Loss, ReceiveOptions, ReceiveOutcome,
    ReceiveSession, ReceiveSummary, ReceiveUpdate, RepairPlace, Scheme, SendEnd, SendError, SendOptions,
    SendOrder, SendOutcome, SendSession, SendUpdate, StopHandle, prepare,
};
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Instance, OtiAttributes};
use headwater_wire::{Fti, PayloadId, alc};
use socket2::SockRef;

/// A receiver that hears nothing for so long has failed. Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A group and port that no other test of this run uses, below those that the system hands out.
fn group() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    format!("239.255.{process}.{}:{}", test % 100, 8_000 + process * 100 + test % 100).parse().unwrap()
}

fn send_options(group: SocketAddr, rate: &str) -> SendOptions {
    SendOptions::new(group, CongestionControl::Fixed { rate: rate.parse().unwrap() })
        .with_interface(Some("lo".into()))
}

fn receive_options(group: SocketAddr, out: &Path) -> ReceiveOptions {
    ReceiveOptions::new(group, out).with_interface(Some("lo".into())).with_timeout(Some(PATIENCE))
}

/// Bytes that are the same on each run and compress badly.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend(state.to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// All files below a folder with their permission bits, by relative name.
fn tree(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, (mode, fs::read(&path).unwrap()));
            }
        }
    }
    files
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A session that is sent on a thread of its own until it is stopped.
struct Sending {
    stop: StopHandle,
    thread: thread::JoinHandle<Result<headwater::SendSummary, SendError>>,
}

impl Sending {
    fn start(path: &Path, options: SendOptions) -> Self {
        let mut session = SendSession::open(prepare([path]).unwrap(), options).unwrap();
        let stop = session.stop_handle();
        Self { stop, thread: thread::spawn(move || session.run(&mut |_| {})) }
    }

    fn stop(self) -> headwater::SendSummary {
        self.stop.stop();
        self.thread.join().unwrap().unwrap()
    }
}

/// Starts to receive on a thread of its own, and returns once the base channel is joined.
fn receive_ahead(options: ReceiveOptions) -> thread::JoinHandle<ReceiveSummary> {
    let mut session = ReceiveSession::open(options).unwrap();
    let (joined, wait) = mpsc::channel();
    let receiving = thread::spawn(move || {
        let mut observer = |update| {
            if matches!(update, ReceiveUpdate::Joined(_)) {
                // A receiver that left while its last block is decoded may come back: nobody waits for that.
                let _later = joined.send(());
            }
        };
        session.run(&mut observer).unwrap()
    });
    wait.recv().unwrap();
    receiving
}

fn receive(options: ReceiveOptions) -> ReceiveSummary {
    ReceiveSession::open(options).unwrap().run(&mut |_| {}).unwrap()
}

fn write(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

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
        let options = receive_options(group, &out).with_loss(loss);
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
        assert_eq!(summary.progress.stats.dropped.by_reason().map(|(_, count)| count), [0; 8]);
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
fn every_code_brings_a_file_whole() {
    for scheme in [Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::NoCode] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write(&file, &content(300_001, 5), 0o640);
        let (group, out) = (group(), folder.path().join("out"));
        let mut receiver = ReceiveSession::open(
            receive_options(group, &out).with_loss(Some(Loss { probability: 0.05, seed: 1 })),
        )
        .unwrap();
        let sending = Sending::start(&file, send_options(group, "20M").with_scheme(scheme));
        let summary = receiver.run(&mut |_| {}).unwrap();
        sending.stop();
        assert_eq!(summary.outcome, ReceiveOutcome::Completed, "{scheme}");
        assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap(), "{scheme}");
    }
}

#[test]
fn a_single_pass_ends_by_itself_and_needs_no_memory_for_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(100_000, 5), 0o644);
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receive_ahead(receive_options(group, &out));
    let options = send_options(group, "10M").with_end(SendEnd::Passes(1)).with_memory_limit(Some(1));
    let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
    let mut passes = Vec::new();
    let summary = session
        .run(&mut |update| {
            if let SendUpdate::PassCompleted(pass) = update {
                passes.push(pass);
            }
        })
        .unwrap();
    assert_eq!((summary.outcome, summary.progress.symbols, passes), (SendOutcome::Completed, 72, vec![1]));
    assert_eq!(receiving.join().unwrap().outcome, ReceiveOutcome::Completed);
}

#[test]
fn content_that_needs_more_memory_than_allowed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(100_000, 5), 0o644);
    let open = |scheme| {
        let options = send_options(group(), "10M").with_memory_limit(Some(99_999)).with_scheme(scheme);
        SendSession::open(prepare([&file]).unwrap(), options)
    };
    assert!(matches!(open(Scheme::RaptorQ), Err(SendError::Memory { .. })));
    assert!(matches!(open(Scheme::ReedSolomon), Err(SendError::Memory { .. })));
    assert!(open(Scheme::NoCode).is_ok());
}

/// What is sent from a store on disk, in either order, when encoders do not fit.
#[test]
fn content_beyond_the_memory_limit_arrives_by_repair_symbols_on_disk() {
    for (scheme, order, bytes, limit, rate) in [
        (Scheme::RaptorQ, SendOrder::Spread, 20_000_000, 50_000_000, "100M"),
        (Scheme::RaptorQ, SendOrder::Window, 20_000_000, 30_000_000, "100M"),
        (Scheme::ReedSolomon, SendOrder::Spread, 2_000_000, 1_000_000, "20M"),
        (Scheme::ReedSolomon, SendOrder::Window, 2_000_000, 1_000_000, "20M"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (file, out, temporary) =
            (folder.path().join("file"), folder.path().join("out"), folder.path().join("temporary"));
        write(&file, &content(bytes, 5), 0o644);
        fs::create_dir(&temporary).unwrap();
        let group = group();
        let receive = receive_options(group, &out).with_loss(Some(Loss { probability: 0.2, seed: 1 }));
        let mut receiver = ReceiveSession::open(receive).unwrap();
        let (sent, symbols) = mpsc::channel();
        let options = send_options(group, rate)
            .with_scheme(scheme)
            .with_order(Some(order))
            .with_memory_limit(Some(limit))
            .with_temporary_folder(Some(temporary.clone()))
            .with_trace(Some(Box::new(move |packet| {
                let (header, _) = alc::parse(packet.payload).unwrap();
                let toi = header.toi.filter(|toi| *toi > 0);
                let _stopped = toi.map(|toi| sent.send((toi, header.payload_id.unwrap())));
            })));
        let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
        let RepairPlace::Disk { bytes: stored, .. } = session.repair_place() else { panic!("{scheme}") };
        let permille = if order == SendOrder::Spread { 1_000 } else { 310 };
        let least = session.plan().symbols() * 1_408 * permille / 1_000;
        assert!(
            (least..=least + least / 50).contains(stored),
            "{scheme}, {order:?}: {stored} bytes for {least}"
        );
        let plan = session.plan().clone();
        let stop = session.stop_handle();
        let sending = Sending { stop, thread: thread::spawn(move || session.run(&mut |_| {})) };
        let summary = receiver.run(&mut |_| {}).unwrap();
        sending.stop();
        assert_eq!(summary.outcome, ReceiveOutcome::Completed, "{scheme}");
        assert!(fs::read(out.join("file")).unwrap() == fs::read(&file).unwrap(), "{scheme}");
        assert!(names(&temporary).is_empty());
        let (mut repairs, object) = (0, &plan.objects()[0]);
        for (toi, PayloadId { sbn, esi }) in symbols.iter() {
            assert_eq!(toi, 1);
            let k = object.partition.block(sbn).unwrap().symbols;
            assert!(esi < 2 * k, "{scheme}: symbol {esi} of {k}");
            repairs += usize::from(esi >= k);
        }
        assert!(repairs > 0, "{scheme}");
    }
}

#[test]
fn a_disk_without_room_for_repair_symbols_is_told_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    // 15 TB that take no room: more than a test machine has.
    fs::File::create(&file).unwrap().set_len(15_000_000_000_000).unwrap();
    let open = |temporary: &Path| {
        let options = send_options(group(), "10M").with_temporary_folder(Some(temporary.to_owned()));
        SendSession::open(prepare([&file]).unwrap(), options)
    };
    let error = open(folder.path()).unwrap_err();
    let SendError::Space { needed, free, .. } = &error else { panic!("{error:?}") };
    assert!(needed.0 >= 15_000_000_000_000 && *free < *needed);
    assert!(matches!(open(&folder.path().join("none")), Err(SendError::Store { .. })));
}

#[test]
fn a_closed_session_is_incomplete_and_the_next_one_goes_on() {
    // Every symbol kept counts; LDPC needs some more than k, and little at this loss of none.
    the_next_session_goes_on(Scheme::RaptorQ, 0);
    the_next_session_goes_on(Scheme::LdpcTriangle, 100);
}

fn the_next_session_goes_on(scheme: Scheme, more: u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 5), 0o644);
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receive_ahead(receive_options(group, &out));
    let options =
        send_options(group, "10M").with_scheme(scheme).with_end(SendEnd::After(Duration::from_millis(400)));
    let sending = Sending::start(&file, options);
    let summary = receiving.join().unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
    assert_eq!(sending.thread.join().unwrap().unwrap().outcome, SendOutcome::Completed);
    let held = summary.progress.symbols_held;
    assert!(held > 0 && held < summary.progress.symbols);
    assert_eq!(names(&out), [".headwater-work"]);
    assert_eq!(summary.kept, Some(out.join(".headwater-work")));

    let sending = Sending::start(&file, send_options(group, "50M").with_scheme(scheme));
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
        let receiving = receive_ahead(receive_options(group, &out).with_tsi(Some(tsi.into())));
        (path, tsi, receiving)
    });
    let ends = ends.map(|(path, tsi, receiving)| {
        (Sending::start(&path, send_options(group, "20M").with_tsi(Some(tsi))), receiving)
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
    let summary = receive(receive_options(group(), &out).with_timeout(Some(Duration::from_millis(150))));
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
fn links_in_the_folder_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, out, outside) =
        (folder.path().join("tree"), folder.path().join("out"), folder.path().join("outside"));
    write(&sent.join("trap/file"), b"escaped", 0o644);
    write(&sent.join("link"), b"escaped", 0o644);
    write(&sent.join("good"), b"arrived", 0o644);
    fs::create_dir_all(out.join("tree")).unwrap();
    write(&outside.join("target"), b"untouched", 0o644);
    symlink(&outside, out.join("tree/trap")).unwrap();
    symlink(outside.join("target"), out.join("tree/link")).unwrap();
    let group = group();
    let mut receiver = ReceiveSession::open(receive_options(group, &out)).unwrap();
    let sending = Sending::start(&sent, send_options(group, "10M"));
    let mut refused = Vec::new();
    let summary = receiver
        .run(&mut |update| {
            if let ReceiveUpdate::FileRefused { location, reason } = update {
                refused.push((location, reason));
            }
        })
        .unwrap();
    sending.stop();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::Refused));
    assert_eq!(summary.files_refused, 2);
    assert_eq!(
        refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["tree/link", "tree/trap/file"]
    );
    assert!(refused.iter().all(|(_, reason)| reason.contains("move it away")), "{refused:?}");
    assert_eq!(names(&outside), ["target"]);
    assert_eq!(fs::read(outside.join("target")).unwrap(), b"untouched");
    assert_eq!(fs::read(out.join("tree/good")).unwrap(), b"arrived");
    assert_eq!(names(&out), ["tree"]);
}

/// A packet of a session that was not made by this crate's sender.
fn packet(toi: u128, id: PayloadId, extensions: Extensions, payload: &[u8]) -> Vec<u8> {
    let header = alc::Repr {
        tsi: 1,
        toi: Some(toi),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 0,
        cci: WebrcCci { slot: 0, channel: 0, sequence: 0 }.short().unwrap(),
        extensions,
        payload_id: Some(id),
    };
    let mut buffer = [0; 4_096];
    let start = header.emit(&mut buffer).unwrap();
    [&buffer[..start], payload].concat()
}

#[test]
fn names_from_a_hostile_sender_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let absolute = format!("{}/absolute", folder.path().display());
    let names = ["../parent", "%2e%2e/escape", &absolute, "a/../../up", ".headwater-x/y", "..", "good"];
    let content = b"hostile";
    let fti = |bytes: usize| Fti::NoCode { transfer_length: bytes as u64, symbol_size: 1_024, max_block: 4 };
    let file = |(toi, name): (u128, &&str)| File {
        toi,
        content_location: (*name).to_owned(),
        content_length: Some(content.len() as u64),
        transfer_length: Some(content.len() as u64),
        oti: OtiAttributes::from(&fti(content.len())),
        ..File::default()
    };
    let files = (1..).zip(&names).map(file).collect();
    let xml = Instance { expires: u32::MAX, complete: true, files, ..Instance::default() }.to_xml();
    let extensions = Extensions {
        fdt: Some(FdtExtension { version: 2, instance_id: 0 }),
        fti: Some(fti(xml.len())),
        ..Extensions::default()
    };
    let group = group();
    let receiving = receive_ahead(receive_options(group, &out));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for (esi, symbol) in (0..).zip(xml.as_bytes().chunks(1_024)) {
        let id = PayloadId { sbn: esi / 4, esi: esi % 4 };
        socket.send_to(&packet(0, id, extensions, symbol), group).unwrap();
    }
    for (toi, _) in (1..).zip(&names) {
        let id = PayloadId { sbn: 0, esi: 0 };
        socket.send_to(&packet(toi, id, Extensions::default(), content), group).unwrap();
    }
    let summary = receiving.join().unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::Refused));
    assert_eq!((summary.files_completed, summary.files_refused), (1, names.len() - 1));
    assert_eq!(tree(folder.path()).into_keys().collect::<Vec<_>>(), ["out/good"]);
}

#[test]
fn a_file_that_changes_ends_the_session_saying_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(200_000, 5), 0o644);
    // Slow enough that the change comes within the first pass: later ones take all they send from memory.
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
    let options = receive_options(group, &out).with_trace(Some(Box::new(move |packet| {
        assert_eq!((packet.direction, packet.destination), (Direction::Received, group));
        received.send((packet.source, packet.payload.to_vec())).unwrap();
    })));
    let mut receiver = ReceiveSession::open(options).unwrap();
    let options = send_options(group, "10M").with_tsi(Some(77)).with_trace(Some(Box::new(move |packet| {
        assert_eq!((packet.direction, packet.destination), (Direction::Sent, group));
        assert_eq!((packet.ttl, packet.dscp), (Some(1), Some(0)));
        sent.send((packet.source, packet.payload.to_vec())).unwrap();
    })));
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

#[test]
fn rates_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(400_000, 5), 0o644);
    let options = send_options(group(), "8M").with_end(SendEnd::Passes(2));
    let rate = Rate::from_kilobits(8_000);
    let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
    let summary = session.run(&mut |_| {}).unwrap();
    // Never sooner: a busy machine may be later.
    let least = Duration::from(rate.time_of(summary.progress.bytes - 3_000)) - Duration::from_millis(11);
    assert!(summary.progress.elapsed >= least, "{:?} < {least:?}", summary.progress.elapsed);
    assert_eq!(summary.progress.unsent, 0);
}

#[test]
fn at_high_rates_a_call_sends_many_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, content(3_000_000, 5)).unwrap();
    let options = send_options(group(), "1G").with_scheme(Scheme::NoCode);
    let options = options.with_end(SendEnd::After(Duration::from_millis(200)));
    let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
    let segmentation = session.started().segmentation;
    let sent = session.run(&mut |_| {}).unwrap();
    // 18 in 200 us; a turn that comes late sends more. A kernel that does not segment takes them one by one.
    let least = if segmentation { 8 } else { 1 };
    assert!(sent.progress.packets >= least * sent.calls, "{sent:?}");
}

/// A session in which each receiver has its own rate: no option, no number but the group at the receivers.
/// Says how many answers to questions for the round-trip time came to the slow one, too.
fn multi_rate(control: fn(LayerOptions) -> CongestionControl) -> (ReceiveSummary, ReceiveSummary, u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 7), 0o600);
    let group = group();
    let layers = LayerOptions::new().with_max_rate("40M".parse().unwrap());
    let options = SendOptions::new(group, control(layers)).with_interface(Some("lo".into()));
    let sending = Sending::start(&file, options);
    let (free, capped) = (folder.path().join("free"), folder.path().join("capped"));
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let cap = receive_options(group, &capped).with_max_rate(Some("2M".parse().unwrap())).with_trace(Some(
        Box::new(move |packet| {
            let is_answer = packet.direction == Direction::Received && packet.payload.starts_with(b"HWR");
            counted.fetch_add(u64::from(is_answer), Ordering::Relaxed);
        }),
    ));
    let slow = thread::spawn(move || receive(cap));
    let quick = receive(receive_options(group, &free));
    let slow = slow.join().unwrap();
    sending.stop();
    for (summary, out) in [(&quick, &free), (&slow, &capped)] {
        assert_eq!(summary.outcome, ReceiveOutcome::Completed);
        assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
        assert_eq!(summary.progress.control.name, control(layers).name());
        assert!(summary.progress.control.join_latency.is_some());
        let (useful, packets) = (summary.progress.stats.useful, summary.progress.stats.packets);
        assert!(packets < useful + useful / 5 + 100, "{useful} of {packets} packets were needed");
    }
    // 3 MB at 2 Mbit/s take 12 s.
    assert!(slow.progress.elapsed > Duration::from_secs(9), "{:?}", slow.progress.elapsed);
    (quick, slow, answers.load(Ordering::Relaxed))
}

/// The capped receiver does not hold the other one back.
fn is_quicker(quick: &ReceiveSummary, slow: &ReceiveSummary) {
    let (quick, slow) = (quick.progress.elapsed, slow.progress.elapsed);
    assert!(quick < slow * 3 / 4, "{quick:?}, and {slow:?} with a cap");
}

#[test]
fn each_receiver_has_its_own_rate_by_m2c() {
    let (quick, slow, answers) = multi_rate(CongestionControl::M2c);
    is_quicker(&quick, &slow);
    // The first question is asked within 4 s of the first packet, the second 7 s after its answer or later.
    assert!((1..3).contains(&answers), "{answers} answers");
}

#[test]
fn each_receiver_has_its_own_rate_by_webrc() {
    let (quick, slow, _answers) = multi_rate(CongestionControl::Webrc);
    is_quicker(&quick, &slow);
}

#[test]
fn each_receiver_has_its_own_rate_by_flid_dl() {
    // It takes seconds to rise, and any packet that a busy machine loses takes it down a level.
    let _whole = multi_rate(CongestionControl::FlidDl);
}

#[test]
fn a_session_of_many_rates_is_described_and_closed_for_those_on_the_base_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(50_000_000, 8), 0o600);
    let group = group();
    let layers = LayerOptions::new().with_base_rate("1M".parse().unwrap());
    let options = SendOptions::new(group, CongestionControl::M2c(layers)).with_interface(Some("lo".into()));
    let cap = Some("1M".parse().unwrap());
    let receiving = receive_ahead(receive_options(group, &folder.path().join("out")).with_max_rate(cap));
    let sending = Sending::start(&file, options.with_end(SendEnd::After(Duration::from_secs(2))));
    let sent = sending.thread.join().unwrap().unwrap();
    assert_eq!(sent.outcome, SendOutcome::Completed);
    let summary = receiving.join().unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
    // Packets of 2 s at 1 Mbit/s, and those of the end: no other channel's.
    let packets = summary.progress.stats.packets;
    assert!((100..400).contains(&packets), "{packets} packets");
}

#[test]
fn contradictions_of_a_session_of_many_rates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, b"x", 0o600);
    let refused = |layers: LayerOptions, change: fn(SendOptions) -> SendOptions| {
        let options = SendOptions::new(group(), CongestionControl::M2c(layers));
        let options = change(options.with_interface(Some("lo".into())));
        SendSession::open(prepare([&file]).unwrap(), options).unwrap_err()
    };
    let low = LayerOptions::new().with_max_rate("500k".parse().unwrap());
    let error = refused(low, |options| options);
    assert!(matches!(error, SendError::Rates { .. }));
    assert!(error.to_string().contains("at least 600 kbit/s"), "{error}");
    let windows = refused(LayerOptions::new(), |options| options.with_order(Some(SendOrder::Window)));
    assert!(matches!(windows, SendError::NoWindows));
    let passes = refused(LayerOptions::new(), |options| options.with_end(SendEnd::Passes(1)));
    assert!(matches!(passes, SendError::NoPasses));
}

/// LDPC over a lossy link: several files, those of no byte and of one among them, with repair symbols in memory and, within
/// little memory, in blocks of their own on disk.
#[test]
fn ldpc_carries_files_of_every_size() {
    for (scheme, memory) in
        [(Scheme::LdpcTriangle, None), (Scheme::LdpcStaircase, None), (Scheme::LdpcTriangle, Some(1 << 20))]
    {
        let group = group();
        let (source, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (index, bytes) in [0, 1, 1_409, 300_000, 2_000_001].into_iter().enumerate() {
            fs::write(source.path().join(format!("file{index}")), content(bytes, index as u64)).unwrap();
        }
        let options = receive_options(group, out.path()).with_loss(Some(Loss { probability: 0.05, seed: 3 }));
        let receiving = receive_ahead(options);
        let options = send_options(group, "40M").with_scheme(scheme).with_memory_limit(memory);
        let session = SendSession::open(prepare([source.path()]).unwrap(), options).unwrap();
        let is_on_disk = matches!(session.repair_place(), RepairPlace::Disk { .. });
        assert_eq!(is_on_disk, memory.is_some(), "{:?}", session.repair_place());
        drop(session);
        let options = send_options(group, "40M").with_scheme(scheme).with_memory_limit(memory);
        let sending = Sending::start(source.path(), options);
        let summary = receiving.join().unwrap();
        sending.stop();
        assert_eq!(summary.outcome, ReceiveOutcome::Completed);
        let folder = source.path().file_name().unwrap();
        let (sent, received) = (tree(source.path()), tree(&out.path().join(folder)));
        assert!(sent.keys().eq(received.keys()), "{:?}", received.keys());
        for (name, file) in &sent {
            assert!(
                *file == received[name],
                "{name}, {scheme}: mode {:o}, {} bytes",
                received[name].0,
                received[name].1.len()
            );
        }
    }
}

/// Windows are no order for LDPC: by itself it is spread at any rate, and asked for windows it says why not.
#[test]
fn ldpc_is_sent_in_spread_order_only() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), content(10_000, 1)).unwrap();
    let open = |order| {
        let options = send_options(group(), "2G").with_scheme(Scheme::LdpcTriangle).with_order(order);
        SendSession::open(prepare([source.path().join("file")]).unwrap(), options)
    };
    assert!(open(None).is_ok());
    let error = open(Some(SendOrder::Window)).unwrap_err().to_string();
    assert!(error.contains("choose spread order"), "{error}");
}

/// One rate that the sender finds: receivers tell what they lose by NAKs, other symbols repair, and who comes late gets all of it.
#[test]
fn files_over_pgm_at_a_rate_by_le_sbcc_reach_all_receivers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(500_000, 9), 0o600);
    let group = group();
    for module in [LeSbccModule::Aimd, LeSbccModule::Tfrc] {
        let le_sbcc = LeSbccOptions::new()
            .with_module(module)
            .with_min_rate(Some("3M".parse().unwrap()))
            .with_max_rate("8M".parse().unwrap());
        let control = CongestionControl::LeSbcc(le_sbcc);
        let options = SendOptions::new(group, control).with_interface(Some("lo".into()));
        let out = |name: &str| folder.path().join(format!("{name}-{}", control.name()));
        let (early, lossy, late) = (out("early"), out("lossy"), out("late"));
        let receiving = receive_ahead(receive_options(group, &early));
        let loss = Some(Loss { probability: 0.05, seed: 4 });
        let losing = receive_ahead(receive_options(group, &lossy).with_loss(loss));
        let sending = Sending::start(&file, options);
        let (first, second) = (receiving.join().unwrap(), losing.join().unwrap());
        let third = receive(receive_options(group, &late));
        let sent = sending.stop();
        for (summary, out) in [(&first, &early), (&second, &lossy), (&third, &late)] {
            assert_eq!(summary.outcome, ReceiveOutcome::Completed);
            assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
            assert_eq!(summary.progress.control.name, "le-sbcc");
            assert_eq!(summary.progress.stats.duplicates, 0, "no symbol is sent twice");
        }
        assert!(second.progress.reception.lost > 10 && second.progress.control.naks > Some(5));
        let pgm = sent.progress.pgm.unwrap();
        assert_eq!((pgm.counters.repairs, pgm.counters.refused.malformed.total()), (0, 0));
        let why = pgm.feedback.unwrap();
        let counters = why.counters;
        assert!(counters.indications > 10 && counters.reductions > 0, "{why:?}");
        assert!(counters.indications >= counters.events && counters.events >= counters.passed, "{why:?}");
        assert!(why.worst.is_some(), "{why:?}");
        assert!((3_000_000..=8_000_000).contains(&pgm.allowed.as_bits()), "{pgm:?}");
    }
}

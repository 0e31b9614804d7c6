//! Erasure codes, and where their repair symbols are kept.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use headwater::{
    Loss, ReceiveOutcome, ReceiveSession, RepairPlace, Scheme, SendEnd, SendError, SendOrder, SendOutcome,
    SendSession, SendUpdate, Session, TraceHook, prepare,
};

use headwater_wire::{PayloadId, alc};

use crate::bed::{
    Change, Sending, content, group, names, receive_ahead, receive_options, send_options, tree, write,
};

#[test]
fn every_code_brings_a_file_whole() {
    for scheme in [Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::NoCode] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write(&file, &content(300_001, 5), 0o640);
        let (group, out) = (group(), folder.path().join("out"));
        let mut receiver = ReceiveSession::open(
            receive_options(group, &out)
                .with(|options| options.listen.loss = Some(Loss { probability: 0.05, seed: 1 })),
        )
        .unwrap();
        let sending =
            Sending::start(&file, send_options(group, "20M").with(|options| options.scheme = scheme));
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
    let options = send_options(group, "10M")
        .with(|options| options.end = SendEnd::Passes(1))
        .with(|options| options.memory_limit = Some(1));
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
        let options = send_options(group(), "10M")
            .with(|options| options.memory_limit = Some(99_999))
            .with(|options| options.scheme = scheme);
        SendSession::open(prepare([&file]).unwrap(), options)
    };
    assert!(matches!(open(Scheme::RaptorQ), Err(SendError::Memory { .. })));
    assert!(matches!(open(Scheme::ReedSolomon), Err(SendError::Memory { .. })));
    assert!(open(Scheme::NoCode).is_ok());
}

/// At low rates blocks are long, and so are the plans of their code: where those leave no room, blocks are
/// short.
#[test]
fn long_blocks_are_cut_where_memory_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(40_000_000, 5), 0o644);
    for (limit, blocks, is_in_memory) in [(40 << 20, 6, false), (64 << 20, 6, true), (96 << 20, 2, true)] {
        let options = send_options(group(), "10M").with(|options| options.memory_limit = Some(limit));
        let session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
        assert_eq!(session.plan().objects()[0].partition.blocks(), blocks, "{limit}");
        assert_eq!(matches!(session.repair_place(), RepairPlace::Memory { .. }), is_in_memory, "{limit}");
    }
}

/// What is sent from a store on disk, in either order, when encoders do not fit.
#[test]
fn content_beyond_the_memory_limit_arrives_by_repair_symbols_on_disk() {
    for (scheme, order, bytes, limit, rate) in [
        (Scheme::RaptorQ, SendOrder::Spread, 20_000_000, 25_000_000, "100M"),
        (Scheme::RaptorQ, SendOrder::Window, 20_000_000, 15_000_000, "100M"),
        (Scheme::ReedSolomon, SendOrder::Spread, 2_000_000, 1_000_000, "20M"),
        (Scheme::ReedSolomon, SendOrder::Window, 2_000_000, 1_000_000, "20M"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (file, out, temporary) =
            (folder.path().join("file"), folder.path().join("out"), folder.path().join("temporary"));
        write(&file, &content(bytes, 5), 0o644);
        fs::create_dir(&temporary).unwrap();
        let group = group();
        let receive = receive_options(group, &out)
            .with(|options| options.listen.loss = Some(Loss { probability: 0.2, seed: 1 }));
        let mut receiver = ReceiveSession::open(receive).unwrap();
        let (sent, symbols) = mpsc::channel();
        let options = send_options(group, rate)
            .with(|options| options.scheme = scheme)
            .with(|options| options.order = Some(order))
            .with(|options| options.memory_limit = Some(limit))
            .with(|options| options.temporary_folder = Some(temporary.clone()))
            .with(|options| {
                options.link.trace = Some(TraceHook::new(move |packet| {
                    // Replies to receivers are no packets of the session.
                    let Ok((header, _)) = alc::parse(packet.payload) else { return };
                    let toi = header.toi.filter(|toi| *toi > 0);
                    let _stopped = toi.map(|toi| sent.send((toi, header.payload_id.unwrap())));
                }));
            });
        let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
        let RepairPlace::Disk { bytes: stored, .. } = session.repair_place() else { panic!("{scheme}") };
        let permille = if order == SendOrder::Spread { 1_000 } else { 470 };
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
        let options = send_options(group(), "10M")
            .with(|options| options.temporary_folder = Some(temporary.to_owned()));
        SendSession::open(prepare([&file]).unwrap(), options)
    };
    let error = open(folder.path()).unwrap_err();
    let SendError::Space { needed, free, .. } = &error else { panic!("{error:?}") };
    assert!(needed.0 >= 15_000_000_000_000 && *free < *needed);
    assert!(matches!(open(&folder.path().join("none")), Err(SendError::Store { .. })));
}

/// LDPC over a lossy link: several files, those of no byte and of one among them, with repair symbols in
/// memory and, within little memory, in blocks of their own on disk.
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
        let options = receive_options(group, out.path())
            .with(|options| options.listen.loss = Some(Loss { probability: 0.05, seed: 3 }));
        let receiving = receive_ahead(options);
        let options = send_options(group, "40M")
            .with(|options| options.scheme = scheme)
            .with(|options| options.memory_limit = memory);
        let session = SendSession::open(prepare([source.path()]).unwrap(), options).unwrap();
        let is_on_disk = matches!(session.repair_place(), RepairPlace::Disk { .. });
        assert_eq!(is_on_disk, memory.is_some(), "{:?}", session.repair_place());
        drop(session);
        let options = send_options(group, "40M")
            .with(|options| options.scheme = scheme)
            .with(|options| options.memory_limit = memory);
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
                received[name].2.len()
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
        let options = send_options(group(), "2G")
            .with(|options| options.scheme = Scheme::LdpcTriangle)
            .with(|options| options.order = order);
        SendSession::open(prepare([source.path().join("file")]).unwrap(), options)
    };
    assert!(open(None).is_ok());
    let error = open(Some(SendOrder::Window)).unwrap_err().to_string();
    assert!(error.contains("choose spread order"), "{error}");
}

//! Sessions with compressed content.

use std::fs;
use std::path::Path;

use headwater::{
    ContentCoding, Loss, ReceiveOutcome, ReceiveSession, ReceiveUpdate, SendOptions, SendSession, Session,
    prepare,
};

use crate::bed::{Change, Sending, content, group, receive, receive_options, send_options, tree, write};

fn text(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of a text\n").into_bytes()).take(bytes).collect()
}

/// Small texts, which travel in a bundle, a long text, and content that does not shrink.
fn files(folder: &Path) {
    for number in 0..40 {
        write(&folder.join(format!("d/small {number}")), &text(2_000 + number), 0o640);
    }
    write(&folder.join("long"), &text(3 << 20), 0o600);
    write(&folder.join("noise"), &content(1_600_000, 3), 0o644);
}

fn compressed(options: SendOptions, coding: ContentCoding) -> SendOptions {
    options.with(|options| options.compression = Some(coding))
}

#[test]
fn a_folder_arrives_as_it_was_in_fewer_packets() {
    for coding in ContentCoding::ALL {
        let folder = tempfile::tempdir().unwrap();
        let (sent, out) = (folder.path().join("sent"), folder.path().join("out"));
        files(&sent);
        let group = group();
        let plain = SendSession::open(prepare([&sent]).unwrap(), send_options(group, "50M")).unwrap();
        let options = || compressed(send_options(group, "50M"), coding);
        let session = SendSession::open(prepare([&sent]).unwrap(), options()).unwrap();
        let summary = session.compression().unwrap();
        assert_eq!((summary.coding, summary.encoded, summary.plain), (coding, 2, 1));
        let noise = 1_600_000_u64.div_ceil(1_408);
        assert!(session.plan().symbols() - noise < (plain.plan().symbols() - noise) / 3, "{coding}");
        drop((plain, session));

        let loss = Some(Loss { probability: 0.05, seed: 1 });
        let bundles = Some(folder.path().join("bundles"));
        let receiving =
            || receive_options(group, &out).with(|options| options.bundle_cache = bundles.clone());
        let lossy = receiving().with(|options| options.listen.loss = loss);
        let mut receiver = ReceiveSession::open(lossy).unwrap();
        let sending = Sending::start(&sent, options());
        let mut announced = Vec::new();
        let received = receiver
            .run(&mut |update| {
                if let ReceiveUpdate::FileAnnounced { path, bytes, encoding, .. } = update {
                    announced.push((path.to_string(), bytes, encoding));
                }
            })
            .unwrap();
        assert_eq!(received.outcome, ReceiveOutcome::Completed, "{coding}");
        assert!(tree(&out.join("sent")) == tree(&sent), "{coding}");
        let long = announced.iter().find(|(path, ..)| path == "sent/long").unwrap();
        assert!(
            long.1 == 3 << 20 && matches!(long.2, Some((other, bytes)) if other == coding && bytes < 1 << 20)
        );
        let noise = announced.iter().find(|(path, ..)| path == "sent/noise").unwrap();
        assert_eq!(noise.2, None);
        drop(receiver);

        // Files in place are found by their digests, and nothing is received.
        let again = receive(receiving());
        sending.stop();
        assert_eq!(again.outcome, ReceiveOutcome::Completed);
        assert_eq!(again.progress.stats.useful, 0, "{coding}");
        let names = fs::read_dir(&out).unwrap().count();
        assert_eq!(names, 1, "no working folder is left");
    }
}

#[test]
fn a_file_that_changes_during_the_session_comes_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    write(&file, &text(2_000_000), 0o644);
    let group = group();
    let mut receiver = ReceiveSession::open(receive_options(group, &out)).unwrap();
    let options = compressed(send_options(group, "10M"), ContentCoding::Zstd);
    let sending = Sending::start(&file, options);
    fs::write(&file, "other content").unwrap();
    let received = receiver.run(&mut |_| {}).unwrap();
    assert_eq!(received.outcome, ReceiveOutcome::Completed);
    let sent = sending.stop();
    assert_eq!(sent.files_left_out, 0);
    assert!(fs::read(out.join("file")).unwrap() == text(2_000_000));
}

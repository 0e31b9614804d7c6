//! What must not come of names and folders.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::symlink;

use headwater::{IncompleteReason, ReceiveOutcome, ReceiveSession, ReceiveUpdate, Session};
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Instance, OtiAttributes};
use headwater_wire::{Fti, PayloadId, alc};
use socket2::SockRef;

use crate::bed::{Change, Sending, group, names, receive_ahead, receive_options, send_options, tree, write};

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

/// A stranger describes other content under the identifiers of a session that is not signed.
#[test]
fn a_contradicted_description_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, out) = (folder.path().join("file"), folder.path().join("out"));
    write(&sent, &[7; 400_000], 0o644);
    let group = group();
    let sending = Sending::start(&sent, send_options(group, "1M").with(|options| options.tsi = Some(1)));
    let fti = Fti::NoCode { transfer_length: 9, symbol_size: 1_024, max_block: 4 };
    let file = File {
        toi: 1,
        content_location: "other".to_owned(),
        content_length: Some(9),
        transfer_length: Some(9),
        oti: OtiAttributes::from(&fti),
        ..File::default()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    let mut forged = 0;
    let mut forge = || {
        let xml = Instance { expires: u32::MAX, files: vec![file.clone()], ..Instance::default() }.to_xml();
        forged += 1;
        let extensions = Extensions {
            fdt: Some(FdtExtension { version: 2, instance_id: forged }),
            fti: Some(Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: 1_024, max_block: 4 }),
            ..Extensions::default()
        };
        socket.send_to(&packet(0, PayloadId { sbn: 0, esi: 0 }, extensions, xml.as_bytes()), group).unwrap();
    };
    let mut contradicted = Vec::new();
    let mut receiver = ReceiveSession::open(receive_options(group, &out)).unwrap();
    let summary = receiver.run(&mut |update| match update {
        ReceiveUpdate::FileAnnounced { .. } => (0..3).for_each(|_| forge()),
        ReceiveUpdate::SessionContradicted { contradictions } => contradicted.push(contradictions),
        _ => {}
    });
    sending.stop();
    assert_eq!(summary.unwrap().outcome, ReceiveOutcome::Completed, "the first description counts");
    assert!(matches!(contradicted[..], [1..=3]), "{contradicted:?}");
}

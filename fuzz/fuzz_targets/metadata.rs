//! Metadata of the FDT: accepted names and links stay inside, values are within their bounds, and what is
//! written is read again.
#![no_main]
use headwater_proto::delivery::{
    EntryKind, SessionMetadata, XATTR_BYTES_MAX, XATTRS_MAX, Xattr, check_link_target,
};
use headwater_wire::fdt::{Entry, Instance};
use libfuzzer_sys::fuzz_target;

/// Fields are lines; entries are separated by an empty line.
fn entry(text: &str) -> Entry {
    let mut lines = text.lines().map(str::to_owned);
    Entry {
        content_location: lines.next().unwrap_or_default(),
        kind: lines.next().unwrap_or_default(),
        target: lines.next(),
        mode: lines.next(),
        modified: lines.next(),
        owner: lines.next(),
        xattrs: lines.next(),
    }
}

fuzz_target!(|text: &str| {
    let (head, entries) = text.split_once("\n\n").unwrap_or((text, ""));
    let (preserve, owner) = head.split_once('\n').unwrap_or((head, ""));
    let instance = Instance {
        preserve: Some(preserve.to_owned()),
        owner: Some(owner.to_owned()),
        entries: entries.split("\n\n").map(entry).collect(),
        ..Instance::default()
    };
    let (metadata, _faults) = SessionMetadata::of(&instance);
    assert!(metadata.entries.is_sorted_by(|one, other| one.path < other.path));
    for entry in &metadata.entries {
        assert!(entry.mode.is_none_or(|mode| mode <= 0o7777));
        assert!(entry.modified.is_none_or(|time| time.is_within_calendar()));
        assert!(entry.xattrs.len() <= XATTRS_MAX);
        assert!(entry.xattrs.iter().map(|xattr| xattr.value.len()).sum::<usize>() <= XATTR_BYTES_MAX);
        assert!(entry.xattrs.iter().all(|xattr| Xattr::may_travel(&xattr.name)));
        match &entry.kind {
            EntryKind::Link(target) => {
                assert_eq!(check_link_target(&entry.path, target), Ok(()));
                // Every prefix of the way stays at or below the folder.
                let mut depth = entry.path.as_str().matches('/').count() as i64;
                for component in target.split('/') {
                    depth += match component {
                        "" | "." => 0,
                        ".." => -1,
                        _ => 1,
                    };
                    assert!(depth >= 0);
                }
            }
            EntryKind::HardLink(target) => assert_ne!(target, &entry.path),
            EntryKind::File | EntryKind::Folder => {}
        }
    }
    // Written by a sender, the same metadata is read.
    let xml = metadata.to_instance().to_xml();
    let again = Instance::parse(xml.as_bytes()).expect("written by us");
    assert_eq!(SessionMetadata::of(&again), (metadata, Vec::new()));
});

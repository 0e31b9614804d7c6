use headwater_wire::fdt::{Entry, FileTime, Instance};
use proptest::prelude::*;

use super::*;

fn path(name: &str) -> RelativePath {
    RelativePath::new(name).unwrap()
}

fn entry(name: &str, kind: &str) -> Entry {
    Entry { content_location: name.into(), kind: kind.into(), ..Entry::default() }
}

fn link(name: &str, target: &str) -> Entry {
    Entry { target: Some(target.into()), ..entry(name, "link") }
}

fn read(entries: Vec<Entry>) -> (Vec<MetadataEntry>, Vec<(String, MetadataError)>) {
    let (metadata, faults) = SessionMetadata::of(&Instance { entries, ..Instance::default() });
    (metadata.entries, faults.into_iter().map(|fault| (fault.name, fault.reason)).collect())
}

#[test]
fn written_metadata_is_read_again() {
    let mut file = MetadataEntry::new(path("a b/c"), EntryKind::File);
    (file.mode, file.owner) = (Some(0o4755), Some(Owner { user: 0, group: 65_534 }));
    file.xattrs = vec![Xattr { name: "user.x y=%".into(), value: vec![0, 255, 32] }];
    let mut folder = MetadataEntry::new(path("a b"), EntryKind::Folder);
    (folder.mode, folder.modified) = (Some(0o2775), FileTime::new(-5, 7));
    let metadata = SessionMetadata {
        travels: Preserve::ALL,
        owner: Some(Owner { user: 1000, group: 100 }),
        entries: vec![
            folder,
            file,
            MetadataEntry::new(path("l"), EntryKind::Link("a b/%c d".into())),
            MetadataEntry::new(path("m"), EntryKind::HardLink(path("a b/c"))),
        ],
    };
    let instance = Instance::parse(metadata.to_instance().to_xml().as_bytes()).unwrap();
    assert_eq!(SessionMetadata::of(&instance), (metadata, Vec::new()));
    let plain = SessionMetadata::default().to_instance();
    assert!(!SessionMetadata::is_in(&plain), "the default needs no attribute");
}

#[test]
fn links_that_may_lead_out_are_refused_by_name() {
    for target in ["b", "b/c", "./b", "../a", "../../a", "../x/y/./z", ".."] {
        assert_eq!(check_link_target(&path("d/e/l"), target), Ok(()), "{target}");
    }
    // After the name of a link that leads upwards, `..` would leave the folder.
    for target in ["/etc/passwd", "/", "../../../a", "x/..", "x/../../..", "d/../x"] {
        let out = MetadataError::LinkOut(target.into());
        assert_eq!(check_link_target(&path("d/e/l"), target), Err(out), "{target}");
    }
    assert!(check_link_target(&path("l"), "..").is_err());
    for target in ["", "a\0b", &"x".repeat(4_096)] {
        assert_eq!(check_link_target(&path("l"), target), Err(MetadataError::Target));
    }
    let (kept, faults) = read(vec![link("out", "../../etc"), link("in", "file"), entry("none", "link")]);
    assert_eq!(kept.len(), 1);
    assert_eq!(faults[0], ("out".into(), MetadataError::LinkOut("../../etc".into())));
    assert_eq!(faults[1], ("none".into(), MetadataError::Target));
}

#[test]
fn a_bad_attribute_costs_itself_and_a_bad_name_the_entry() {
    let bad = Entry {
        mode: Some("17777".into()),
        modified: Some("31556926000000000.000000000".into()),
        owner: Some("4294967295:0".into()),
        xattrs: Some("user.a=00 security.capability=00 trusted.x=00 system.posix_acl_access=00".into()),
        ..entry("d", "folder")
    };
    let (kept, faults) =
        read(vec![bad, entry("../up", "folder"), entry("/abs", "file"), entry("x", "device")]);
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].mode, kept[0].modified, kept[0].owner), (None, None, None));
    let names: Vec<_> = kept[0].xattrs.iter().map(|xattr| xattr.name.as_str()).collect();
    assert_eq!(names, ["system.posix_acl_access", "user.a"]);
    let expected = [
        MetadataError::Mode,
        MetadataError::Time,
        MetadataError::Owner,
        MetadataError::XattrName("security.capability".into()),
        MetadataError::XattrName("trusted.x".into()),
    ];
    assert!(faults[..5].iter().all(|(name, _)| name == "d"));
    assert!(faults.iter().take(5).map(|(_, reason)| reason).eq(&expected));
    assert!(matches!(faults[5].1, MetadataError::Name(_)) && matches!(faults[6].1, MetadataError::Name(_)));
    assert_eq!(faults[7], ("x".into(), MetadataError::Kind));
}

#[test]
fn a_million_bytes_of_attributes_are_refused_and_the_rest_is_read() {
    let long = Entry { xattrs: Some(format!("user.a={}", "00".repeat(1 << 20))), ..entry("a", "file") };
    let instance = Instance { expires: 1, entries: vec![long, entry("b", "file")], ..Instance::default() };
    let instance = Instance::parse(instance.to_xml().as_bytes()).unwrap();
    let (metadata, faults) = SessionMetadata::of(&instance);
    assert_eq!(metadata.entries.len(), 2);
    assert!(metadata.entries[0].xattrs.is_empty());
    assert_eq!((faults[0].name.as_str(), &faults[0].reason), ("a", &MetadataError::Xattrs));
    let many = |count: usize| {
        let words: Vec<_> = (0..count).map(|number| format!("user.{number}=00")).collect();
        Entry { xattrs: Some(words.join(" ")), ..entry("a", "file") }
    };
    assert_eq!(read(vec![many(XATTRS_MAX)]).1.len(), 0);
    assert_eq!(read(vec![many(XATTRS_MAX + 1)]).1.len(), 1);
}

#[test]
fn names_that_come_twice_are_refused_and_reports_are_bounded() {
    let (kept, faults) = read(vec![link("a", "b"), entry("a", "folder"), link("a", "c")]);
    assert_eq!(kept.len(), 1);
    assert_eq!(faults, vec![("a".into(), MetadataError::Twice); 2]);
    assert!(read(vec![entry("..", "file"); 1_000]).1.len() < 100);
    let own = Entry { target: Some("a".into()), ..entry("a", "hardlink") };
    assert_eq!(read(vec![own]).1[0].1, MetadataError::HardLinkTarget);
}

/// Follows a path from a folder through links, as a kernel does. Returns the folders below the root, or
/// nothing once the root was left.
fn resolve(
    links: &[(Vec<String>, String)],
    start: &[String],
    path: &str,
    hops: &mut u32,
) -> Option<Vec<String>> {
    *hops += 1;
    let mut at = start.to_vec();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(at.pop()?),
            name => {
                at.push(name.to_owned());
                let link = links.iter().find(|(place, _)| *place == at);
                if let Some((_, target)) = link.filter(|_| *hops < 40) {
                    at.pop();
                    at = resolve(links, &at, target, hops)?;
                }
            }
        }
    }
    Some(at)
}

proptest! {
    /// Links that are accepted never lead out together, on whatever way.
    #[test]
    fn accepted_links_stay_inside(
        candidates in prop::collection::vec(("[abc](/[abc]){0,2}", "(\\.\\./){0,2}([abc]|\\.\\.)(/([abc]|\\.\\.)){0,3}"), 1..6),
    ) {
        let accepted: Vec<(Vec<String>, String)> = candidates
            .iter()
            .filter(|(name, target)| check_link_target(&path(name), target).is_ok())
            .map(|(name, target)| (name.split('/').map(str::to_owned).collect(), target.clone()))
            .collect();
        // A link is made inside a true folder.
        let is_in_folder = |(place, _): &&(Vec<String>, String)| {
            (1..place.len()).all(|above| !accepted.iter().any(|(other, _)| other[..] == place[..above]))
        };
        let made: Vec<_> = accepted.iter().filter(is_in_folder).cloned().collect();
        for (place, target) in &made {
            let mut hops = 0;
            prop_assert!(resolve(&made, &place[..place.len() - 1], target, &mut hops).is_some());
        }
    }
}

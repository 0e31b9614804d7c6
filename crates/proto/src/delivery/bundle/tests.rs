use proptest::prelude::*;

use super::*;

fn member(path: &str, bytes: u32) -> BundleMember {
    let modified = FileTime::new(1_763_971_200, 123_456_789).unwrap();
    BundleMember { path: RelativePath::new(path).unwrap(), bytes, mode: 0o644, modified }
}

fn check(index: usize) -> MemberCheck {
    MemberCheck { crc32: 0x0403_0201, digest: [u8::try_from(index).unwrap(); 16] }
}

/// Writes a whole bundle part by part, as a sender does, with content of zeros.
fn write(layout: &BundleLayout) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(part) = layout.part(u32::try_from(out.len()).unwrap()) {
        match part {
            BundlePart::Header { member, from } => {
                out.extend(&layout.local_header(member, check(member))[from..]);
            }
            BundlePart::Content { member, from } => {
                out.resize(out.len() + layout.members()[member].bytes as usize - from, 0);
            }
            BundlePart::Entry { member, from } => out.extend(&layout.entry(member, check(member))[from..]),
            BundlePart::End { from } => out.extend(&layout.end_record()[from..]),
        }
    }
    out
}

fn read(bytes: &[u8]) -> Result<(BundleLayout, Vec<MemberCheck>), BundleError> {
    let end = BundleEnd::parse(bytes.len() as u64, bytes.last_chunk().unwrap())?;
    let directory = &bytes[end.start as usize..][..end.bytes as usize];
    end.parse_directory(directory)
}

#[test]
fn a_bundle_of_one_member_has_these_bytes() {
    let layout = BundleLayout::new(vec![member("a", 2)]).unwrap();
    #[rustfmt::skip]
    let expected = [
        b"PK\x03\x04\x0a\0\0\x08\0\0\0\0\x21\0".as_slice(),
        b"\x01\x02\x03\x04\x02\0\0\0\x02\0\0\0\x01\0\x09\0", b"a", b"UT\x05\0\x01\x80\x10\x24\x69", b"\0\0",
        b"PK\x01\x02\x14\x03\x0a\0\0\x08\0\0\0\0\x21\0",
        b"\x01\x02\x03\x04\x02\0\0\0\x02\0\0\0\x01\0\x29\0", b"\0\0\0\0\0\0\0\0\xa4\x81\0\0\0\0",
        b"a", b"UT\x05\0\x01\x80\x10\x24\x69",
        b"WH\x1c\0\x80\x10\x24\x69\0\0\0\0\x15\xcd\x5b\x07", &[0; 16],
        b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x58\0\0\0\x2a\0\0\0\0\0",
    ].concat();
    assert_eq!(write(&layout), expected);
    assert_eq!(layout.bytes() as usize, expected.len());
    assert_eq!(read(&expected), Ok((layout, vec![check(0)])));
}

/// Writes a bundle, changes a field of the directory's last entry (offset within the entry), and reads.
fn changed(members: Vec<BundleMember>, at: usize, bytes: &[u8]) -> String {
    let layout = BundleLayout::new(members).unwrap();
    let mut bundle = write(&layout);
    let entry = *layout.entries.last().unwrap() as usize;
    bundle[entry + at..][..bytes.len()].copy_from_slice(bytes);
    read(&bundle).unwrap_err().to_string()
}

#[test]
fn hostile_bundles_are_refused_by_name() {
    let two = || vec![member("aa", 5), member("bb", 5)];
    for (at, bytes, reason) in [
        (46, b"..".as_slice(), "has a member \"..\""),
        (46, b"/b", "has a member \"/b\""),
        (46, b"\xff\xfe", "not well-formed"),
        (46, b"aa", "'aa' and 'aa' of the bundle have the same name"),
        (46, b"AA", "'aa' and 'AA' of the bundle have the same name"),
        (20, b"\xff\xff\xff\xff\xff\xff\xff\xff", "'bb' of the bundle claims 4294967295 bytes"),
        (42, &[0; 4], "'bb' of the bundle overlaps"),
        (42, &[60, 0, 0, 0], "gap before the member 'bb'"),
        (38, &[0, 0, 0xFF, 0xA1], "'bb' of the bundle is a link"),
        (38, &[0, 0, 0xED, 0x41], "'bb' of the bundle is a link, or no regular file"),
        (10, &[8], "headers of the member 'bb'"),
        (8, &[9], "headers of the member 'bb'"),
        (20, &[4], "headers of the member 'bb'"),
        (0, b"PK\x01\x03", "entry 1"),
        (30, &[0], "headers of the member 'bb'"),
        (28, &[0xFF, 0xFF], "entry 1"),
    ] {
        let message = changed(two(), at, bytes);
        assert!(message.contains(reason), "{at}: {message}");
    }
    let message = changed(vec![member("a", 1), member("xbb", 1)], 46, b"a/b");
    assert!(message.contains("'a' of the bundle stands in the way of 'a/b'"), "{message}");
    let message = changed(vec![member("a/b", 1), member("x", 1)], 46, b"A");
    assert!(message.contains("'A' of the bundle stands in the way of 'a/b'"), "{message}");
}

#[test]
fn an_end_record_claims_no_more_than_there_is() {
    let layout = BundleLayout::new(vec![member("a", 5)]).unwrap();
    let bundle = write(&layout);
    let end = bundle.len() - END_BYTES;
    let read_with = |at: usize, bytes: &[u8]| {
        let mut bundle = bundle.clone();
        bundle[end + at..][..bytes.len()].copy_from_slice(bytes);
        BundleEnd::parse(bundle.len() as u64, bundle.last_chunk().unwrap()).unwrap_err()
    };
    assert_eq!(read_with(0, b"PK\x05\x07"), BundleError::NoEnd);
    assert_eq!(read_with(4, &[1]), BundleError::NoEnd);
    assert_eq!(read_with(8, &[0, 0, 0, 0]), BundleError::Members(0));
    assert_eq!(read_with(8, &[1, 0x40, 1, 0x40]), BundleError::Members(16_385));
    assert!(matches!(read_with(12, &[0xFF; 4]), BundleError::Directory { bytes: u32::MAX, .. }));
    assert!(matches!(read_with(16, &[0xFF; 4]), BundleError::Directory { start: u32::MAX, .. }));
    let long = u64::from(BUNDLE_BYTES_MAX) + 1;
    assert_eq!(BundleEnd::parse(long, bundle.last_chunk().unwrap()), Err(BundleError::TooLong(long)));
}

#[test]
fn a_bundle_has_limits() {
    let many = (0..=BUNDLE_MEMBERS_MAX).map(|index| member(&index.to_string(), 0));
    assert_eq!(BundleLayout::new(many.collect()), None);
    assert_eq!(BundleLayout::new(Vec::new()), None);
    assert_eq!(BundleLayout::new(vec![member("a", BUNDLE_BYTES_MAX)]), None);
    assert_eq!(BundleLayout::new(vec![member("a", u32::MAX), member("b", u32::MAX)]), None);
}

fn members() -> impl Strategy<Value = Vec<BundleMember>> {
    let one = (0..2_000_u32, 0..0o1000_u32, any::<i64>(), 0..1_000_000_000_u32);
    prop::collection::vec(one, 1..20).prop_map(|members| {
        let member = |(index, (bytes, mode, seconds, nanoseconds)): (usize, (u32, u32, i64, u32))| {
            let modified = FileTime::new(seconds, nanoseconds).unwrap();
            let path = RelativePath::new(&format!("folder {index}/ä{}", "x".repeat(index))).unwrap();
            BundleMember { path, bytes, mode, modified }
        };
        members.into_iter().enumerate().map(member).collect()
    })
}

proptest! {
    #[test]
    fn a_bundle_is_read_as_it_was_written(members in members()) {
        let layout = BundleLayout::new(members.clone()).unwrap();
        let bundle = write(&layout);
        prop_assert_eq!(bundle.len(), layout.bytes() as usize);
        let (found, checks) = read(&bundle).unwrap();
        prop_assert_eq!(found.members(), &members);
        prop_assert_eq!(checks, (0..members.len()).map(check).collect::<Vec<_>>());
        for member in 0..members.len() {
            let header = found.local_header(member, check(member));
            prop_assert_eq!(&bundle[found.header_start(member) as usize..][..header.len()], &header);
        }
    }

    /// One changed byte of the directory or the end record gives an error, or values that a content check
    /// decides.
    #[test]
    fn a_changed_byte_never_moves_a_member(members in members(), place in any::<prop::sample::Index>(), value: u8) {
        let layout = BundleLayout::new(members).unwrap();
        let mut bundle = write(&layout);
        let from = layout.directory_start() as usize;
        let at = from + place.index(bundle.len() - from);
        bundle[at] = value;
        if let Ok((found, _)) = read(&bundle) {
            let starts = |layout: &BundleLayout| (0..layout.members().len())
                .map(|member| layout.content_start(member)).collect::<Vec<_>>();
            prop_assert_eq!(starts(&found), starts(&layout));
        }
    }
}

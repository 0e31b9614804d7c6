//! Bundles: a directory that is read describes members without gaps or overlaps, and is written back
//! unchanged.
#![no_main]
use headwater_proto::delivery::{BUNDLE_END_BYTES, BundleEnd, BundleLayout, MemberCheck};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((directory, record)) = bytes.split_last_chunk::<BUNDLE_END_BYTES>() else { return };
    // The members before the directory: as long as the end record says, up to the limit.
    let start = u64::from(u32::from_le_bytes([record[16], record[17], record[18], record[19]]));
    let Ok(end) = BundleEnd::parse(start + bytes.len() as u64, record) else { return };
    let Ok((layout, checks)) = end.parse_directory(directory) else { return };
    assert_eq!(layout.members().len(), end.members);
    let mut at = 0;
    for (index, member) in layout.members().iter().enumerate() {
        assert_eq!(layout.header_start(index), at);
        at = layout.content_start(index) + member.bytes;
    }
    assert_eq!(at, layout.directory_start());
    assert_eq!(written(&layout, &checks), bytes);
});

fn written(layout: &BundleLayout, checks: &[MemberCheck]) -> Vec<u8> {
    let entries = checks.iter().enumerate().flat_map(|(index, check)| layout.entry(index, *check));
    entries.chain(layout.end_record()).collect()
}

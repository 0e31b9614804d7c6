//! Blocks that are found on disk: in an older version, in a file that the user names, as holes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::delivery::{block_digest, file_digest};

use super::tests::{FILE, OBJECT, Session, T, open, open_with, report};
use super::*;

/// Blocks of a file, and the length of each: whole pages, longer than the shortest base together.
const BLOCKS: usize = 40;
const BLOCK_BYTES: usize = 32 << 10;

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut noise);
    noise
}

fn content() -> Vec<u8> {
    noise(1, BLOCKS * BLOCK_BYTES)
}

/// Announces a file, and searches for its blocks. Returns whether blocks may be on disk, the numbers of the
/// blocks found, and whether the whole file is there.
fn search(session: &mut Session, content: &[u8], is_sparse: bool) -> (bool, Vec<u32>, bool) {
    let blocks = u32::try_from(content.len() / BLOCK_BYTES).unwrap();
    let partition = Partition::with_blocks(content.len() as u64, T, blocks).unwrap();
    let digests: Vec<Digest> = content.chunks(BLOCK_BYTES).map(block_digest).collect();
    let digest = file_digest(&digests);
    let spec = FileSpec {
        digest: Some(digest),
        is_sparse,
        ..FileSpec::new(RelativePath::new("image").unwrap(), content.len() as u64)
    };
    let held = session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition,
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: Some([7; 32]),
    };
    session.store.create_object(OBJECT, &object);
    if !held.is_present {
        return (false, Vec::new(), false);
    }
    let promised = digests.iter().map(|digest| *digest.first_chunk().unwrap()).collect();
    session.store.compare_file(FILE, digest, promised);
    let mut found = Vec::new();
    loop {
        match report(session) {
            StoreReport::BlockFound { object, sbn, digest } => {
                assert_eq!((object, digest), (OBJECT, digests[sbn as usize]));
                session.store.judge_block(OBJECT, sbn, BlockVerdict::Right).unwrap();
                found.push(sbn);
            }
            StoreReport::FileCompared { is_same, .. } => return (true, found, is_same),
            other => panic!("{other:?}"),
        }
    }
}

/// Sends the blocks that were not found, and returns the file.
fn receive_rest(session: &mut Session, content: &[u8], found: &[u32], folder: &Path) -> Vec<u8> {
    let missing = (0..u32::try_from(content.len() / BLOCK_BYTES).unwrap()).filter(|sbn| !found.contains(sbn));
    for sbn in missing {
        let block = &content[sbn as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        for (esi, symbol) in (0..).zip(block.chunks(T.into())) {
            session.store.write_source(OBJECT, sbn, esi, symbol).unwrap();
        }
        session.store.finish_block(BlockJob { object: OBJECT, sbn, missing: Vec::new(), repairs: 0 });
        let done = StoreReport::BlockDone { object: OBJECT, sbn, digest: block_digest(block) };
        assert_eq!(report(session), done);
        session.store.judge_block(OBJECT, sbn, BlockVerdict::Right).unwrap();
    }
    session.store.finish_file(FILE);
    assert_eq!(report(session), StoreReport::FileDone(FILE));
    fs::read(folder.join("image")).unwrap()
}

fn all_but(missing: &[u32]) -> Vec<u32> {
    (0..u32::try_from(BLOCKS).unwrap()).filter(|sbn| !missing.contains(sbn)).collect()
}

#[test]
fn an_older_version_in_place_leaves_the_changed_blocks_to_receive() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = content();
    for block in [0, 17, 39] {
        old[block * BLOCK_BYTES + 5] ^= 1;
    }
    // Longer than the new version, which is cut at the end.
    old.extend(noise(3, 100));
    fs::write(folder.path().join("image"), &old).unwrap();
    let mut session = open(folder.path());
    let (is_present, found, is_same) = search(&mut session, &content(), false);
    assert_eq!((is_present, is_same), (true, false));
    assert_eq!(found, all_but(&[0, 17, 39]));
    assert_eq!(fs::read(folder.path().join("image")).unwrap(), old, "the older version stays meanwhile");
    assert_eq!(receive_rest(&mut session, &content(), &found, folder.path()), content());
}

#[test]
fn found_blocks_are_resumed_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = content();
    old[5] ^= 1;
    fs::write(folder.path().join("image"), &old).unwrap();
    let mut session = open(folder.path());
    let found = search(&mut session, &content(), false).1;
    assert_eq!(found.len(), BLOCKS - 1);
    session.store.poll_report();
    drop(session);
    fs::remove_file(folder.path().join("image")).unwrap();
    let mut session = open(folder.path());
    let (is_present, ..) = search(&mut session, &content(), false);
    assert!(!is_present);
    let object = Arc::clone(session.store.objects[0].as_ref().unwrap());
    let mut kept = vec![0; BLOCK_BYTES];
    session.store.places.read(&object.file, 7 * BLOCK_BYTES as u64, &mut kept).unwrap();
    assert_eq!(kept, content()[7 * BLOCK_BYTES..][..BLOCK_BYTES]);
}

#[test]
fn a_named_file_gives_blocks_that_have_moved() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Three blocks more in front, and a block that is gone.
    let mut old = noise(2, 3 * BLOCK_BYTES);
    old.extend(content());
    old.drain(20 * BLOCK_BYTES..21 * BLOCK_BYTES);
    for base in [elsewhere.path().join("image"), elsewhere.path().to_owned()] {
        let _ = fs::remove_file(folder.path().join("image"));
        fs::write(elsewhere.path().join("image"), &old).unwrap();
        let mut session =
            open_with(folder.path(), StoreOptions { base: Some(base), ..StoreOptions::default() });
        let (is_present, mut found, is_same) = search(&mut session, &content(), false);
        assert_eq!((is_present, is_same), (true, false));
        found.sort_unstable();
        assert_eq!(found, all_but(&[17]));
        assert_eq!(receive_rest(&mut session, &content(), &found, folder.path()), content());
    }
    let missing = StoreOptions { base: Some(folder.path().join("nothing")), ..StoreOptions::default() };
    let poller = crate::net::Poller::new().unwrap();
    let error = DiskStore::open(folder.path(), missing, poller.waker()).unwrap_err();
    assert!(error.0.contains("nothing'"), "{error}");
}

#[test]
fn blocks_of_zeros_of_a_sparse_file_are_known_and_stay_holes() {
    let folder = tempfile::tempdir().unwrap();
    let mut sparse = vec![0; BLOCKS * BLOCK_BYTES];
    // A block with a page of content, one of content alone.
    sparse[3 * BLOCK_BYTES + 8_192..][..4_096].copy_from_slice(&noise(4, 4_096));
    sparse[5 * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&noise(5, BLOCK_BYTES));
    let mut session = open(folder.path());
    let (is_present, found, _) = search(&mut session, &sparse, true);
    assert!(is_present);
    assert_eq!(found, all_but(&[3, 5]));
    assert_eq!(receive_rest(&mut session, &sparse, &found, folder.path()), sparse);
    let blocks = fs::metadata(folder.path().join("image")).unwrap().blocks();
    let expected = (BLOCK_BYTES + 4_096) as u64 / 512;
    assert!((expected..=expected + 16).contains(&blocks), "{blocks} sectors for {expected}");
    // Without the announcement all blocks are received: old senders have no holes.
    let folder = tempfile::tempdir().unwrap();
    assert!(!search(&mut open(folder.path()), &sparse, false).0);
}

#[test]
fn a_hole_takes_the_place_of_older_content() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("image"), content()).unwrap();
    let mut new = content();
    new[10 * BLOCK_BYTES..20 * BLOCK_BYTES].fill(0);
    let mut session = open(folder.path());
    let (_, found, is_same) = search(&mut session, &new, true);
    assert_eq!((found.len(), is_same), (BLOCKS, false));
    assert_eq!(receive_rest(&mut session, &new, &found, folder.path()), new);
    let metadata = fs::metadata(folder.path().join("image")).unwrap();
    assert!(metadata.blocks() * 512 <= (31 * BLOCK_BYTES) as u64, "{}", metadata.blocks());
}

/// Zeros over content of an earlier symbol are zeros, however the runs lie.
#[test]
fn zeros_are_written_over_older_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut expected = noise(6, 64 << 10);
    fs::write(&path, &expected).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut chance = noise(7, 4 * 200).into_iter();
    let mut draw = |below: usize| {
        usize::from(u16::from_le_bytes([chance.next().unwrap(), chance.next().unwrap()])) % below
    };
    for _ in 0..200 {
        let (at, length) = (draw(60 << 10), draw(4 << 10));
        let mut run = vec![0; length];
        if length > 100 {
            run[length / 3..length / 2].fill(9);
        }
        expected[at..at + length].copy_from_slice(&run);
        place::write_sparse(&file, &run, at as u64).unwrap();
        assert_eq!(fs::read(&path).unwrap(), expected);
    }
}

/// Blocks of zeros that came leave the working file without room on disk.
#[test]
fn an_older_version_is_never_cloned_over_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let mut new = content();
    new[..BLOCK_BYTES].fill(0);
    let mut session = open(folder.path());
    search(&mut session, &new, false);
    let object = Arc::clone(session.store.objects[0].as_ref().unwrap());
    assert!(object.file.is_clone.get().is_none());
    for (esi, symbol) in (0..).zip(new[..BLOCK_BYTES].chunks(T.into())) {
        session.store.write_source(OBJECT, 0, esi, symbol).unwrap();
    }
    session.store.finish_block(BlockJob { object: OBJECT, sbn: 0, missing: Vec::new(), repairs: 0 });
    report(&mut session);
    session.store.judge_block(OBJECT, 0, BlockVerdict::Right).unwrap();
    assert_eq!(object.file.is_clone.get(), Some(&false));
    drop(session);
    let mut session = open(folder.path());
    search(&mut session, &new, false);
    let object = Arc::clone(session.store.objects[0].as_ref().unwrap());
    assert_eq!(object.file.is_clone.get(), Some(&false), "resumed");
}

#[test]
fn a_part_of_a_comparison_takes_a_bounded_number_of_holes() {
    const HOLE_BYTES: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    let digests = vec![crate::system::zero_digest(HOLE_BYTES); 40];
    let bytes = 40 * HOLE_BYTES;
    let digest = file_digest(&digests);
    let path = RelativePath::new("image").unwrap();
    let spec = FileSpec { digest: Some(digest), is_sparse: true, ..FileSpec::new(path, bytes) };
    session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(bytes, T, 40).unwrap(),
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: None,
    };
    session.store.create_object(OBJECT, &object);
    let objects = session.store.present.remove(&FILE).unwrap();
    let promised = digests.iter().map(|digest| *digest.first_chunk().unwrap()).collect();
    let mut comparison = Comparison::new(session.store.file(FILE), objects, digest, promised);
    let step = comparison.go_on(&session.store.places).unwrap();
    let compare::ComparisonStep::More(found) = step else { panic!("{step:?}") };
    assert_eq!(found.len(), 32);
}

#[test]
fn holes_take_no_room_and_content_beyond_the_disk_is_refused() {
    const LENGTH: u64 = 32 << 20;
    let zeros = crate::system::zero_digest(LENGTH);
    for (block, is_refused) in [(zeros, false), ([1; 32], true)] {
        let folder = tempfile::tempdir().unwrap();
        let mut session = open(folder.path());
        let blocks = session.store.places.folder.free_bytes().unwrap() / LENGTH + 10;
        let (count, bytes) = (u32::try_from(blocks).unwrap(), blocks * LENGTH);
        let digests = vec![block; count as usize];
        let digest = file_digest(&digests);
        let path = RelativePath::new("image").unwrap();
        let mut spec = FileSpec { digest: Some(digest), ..FileSpec::new(path, bytes) };
        session.store.create_file(FILE, &spec).unwrap_err();
        spec.is_sparse = true;
        session.store.create_file(FILE, &spec).unwrap();
        let object = ObjectSpec {
            file: FILE,
            offset: 0,
            partition: Partition::with_blocks(bytes, 1_024, count).unwrap(),
            codec: codec(Parameters::raptorq(1_024)).unwrap(),
            identity: None,
        };
        session.store.create_object(OBJECT, &object);
        let promised = digests.iter().map(|digest| *digest.first_chunk().unwrap()).collect();
        session.store.compare_file(FILE, digest, promised);
        let report = report(&mut session);
        assert_eq!(matches!(report, StoreReport::FileRefused(FILE, _)), is_refused, "{report:?}");
    }
}

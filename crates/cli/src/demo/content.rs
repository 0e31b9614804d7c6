//! Content of the demo: generation and comparison.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// Bytes written or read at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Writes `bytes` incompressible bytes without repetitions: BLAKE3's output for `seed`.
pub fn make(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"headwater demo").update(&seed.to_be_bytes());
    let mut stream = hasher.finalize_xof();
    let mut file = BufWriter::new(File::create(path)?);
    let mut chunk = [0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        stream.fill(&mut chunk[..length]);
        file.write_all(&chunk[..length])?;
        left -= length as u64;
    }
    file.flush()
}

/// Returns the BLAKE3 digest of a file, read from disk, independent of the digests in the session.
pub fn digest(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path)?;
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hasher.finalize()),
            length => hasher.update(&chunk[..length]),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_long_enough_and_follows_from_its_seed() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str, bytes, seed| {
            let path = folder.path().join(name);
            make(&path, bytes, seed).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
            digest(&path).unwrap()
        };
        assert_eq!(made("a", 100_000, 1), made("b", 100_000, 1));
        assert_ne!(made("c", 100_000, 2), made("d", 100_000, 1));
        assert_eq!(made("e", 0, 1), blake3::hash(b""));
    }
}

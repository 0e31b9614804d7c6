//! Boxes of fragmented MP4 (ISO/IEC 14496-12): a stream of bytes is split into an init segment and fragments.

/// Largest box in bytes; an encoder that puts out a larger box is refused.
pub const BOX_BYTES_MAX: usize = 16 << 20;
/// Bytes of a box before the content: length and type.
const HEAD_BYTES: usize = 8;

/// Failure to read a track.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoxError {
    /// A box is shorter than its head, or longer than [`BOX_BYTES_MAX`].
    #[error("a box of {bytes} bytes is out of range (8 to {BOX_BYTES_MAX}): the stream is no fragmented MP4")]
    Length {
        /// Length that the box claims.
        bytes: u64,
    },
    /// The init segment lacks a box.
    #[error("the init segment has no '{0}' box: the stream is no fragmented MP4 with one track")]
    Missing(&'static str),
    /// The sample entry is of no known codec.
    #[error("the sample entry '{0}' is not avc1, avc3, av01 or Opus")]
    Codec(String),
    /// A fragment has no decoding time, or comes before the init segment.
    #[error("a fragment has no decoding time, or comes before the init segment")]
    Fragment,
}

/// Init segment of a track: the boxes `ftyp` and `moov`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// Bytes of the segment.
    pub bytes: Vec<u8>,
    /// Units of decoding times in a second.
    pub timescale: u32,
    /// Codec string for `MediaSource` and playlists (RFC 6381), for example `avc3.64001e`.
    pub codec: String,
}

/// Fragment of a track: a `moof` box and the `mdat` box behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Decoding time of the first sample, in milliseconds.
    pub time_ms: u64,
    /// Bytes of the fragment.
    pub bytes: Vec<u8>,
}

impl Fragment {
    /// Returns the fragment at another decoding time in milliseconds, in a track of a timescale; `None` if
    /// the fragment has no decoding time.
    pub fn at(&self, time_ms: u64, timescale: u32) -> Option<Self> {
        let moof = find(&self.bytes, &[b"moof"])?;
        let tfdt = find(moof, &[b"traf", b"tfdt"])?;
        // The found content lies within the bytes.
        let start = tfdt.as_ptr().addr() - self.bytes.as_ptr().addr();
        let (at, is_long) = (start + 4, *tfdt.first()? != 0);
        let time = time_ms * u64::from(timescale) / 1_000;
        let mut bytes = self.bytes.clone();
        if is_long {
            bytes.get_mut(at..at + 8)?.copy_from_slice(&time.to_be_bytes());
        } else {
            bytes.get_mut(at..at + 4)?.copy_from_slice(&u32::try_from(time).ok()?.to_be_bytes());
        }
        Some(Self { time_ms, bytes })
    }
}

/// Part of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Init segment, once.
    Init(Init),
    /// Fragment, in order.
    Fragment(Fragment),
}

/// Splits the bytes of a track. Memory: two boxes of at most [`BOX_BYTES_MAX`] each, and the bytes of one
/// push.
#[derive(Debug, Default)]
pub struct Splitter {
    pending: Vec<u8>,
    /// `ftyp`, before the `moov` box has come.
    head: Vec<u8>,
    /// `moof`, before the `mdat` box has come.
    fragment: Option<Fragment>,
    timescale: Option<u32>,
}

impl Splitter {
    /// Adds bytes and returns the parts that are complete.
    ///
    /// # Errors
    /// If the bytes are no fragmented MP4. The splitter is of no use afterwards.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Piece>, BoxError> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let (mut rest, mut pieces) = (&pending[..], Vec::new());
        while let Some((kind, boxed, next)) = next_box(rest)? {
            pieces.extend(self.on_box(kind, boxed)?);
            rest = next;
        }
        self.pending = rest.to_vec();
        Ok(pieces)
    }

    fn on_box(&mut self, kind: [u8; 4], boxed: &[u8]) -> Result<Option<Piece>, BoxError> {
        match &kind {
            b"ftyp" => self.head = boxed.to_vec(),
            b"moov" => {
                let mut bytes = std::mem::take(&mut self.head);
                bytes.extend_from_slice(boxed);
                let content = &boxed[HEAD_BYTES..];
                let timescale = timescale(content)?;
                self.timescale = Some(timescale);
                return Ok(Some(Piece::Init(Init { bytes, timescale, codec: codec(content)? })));
            }
            b"moof" => {
                let timescale = u64::from(self.timescale.ok_or(BoxError::Fragment)?);
                let time = decoding_time(&boxed[HEAD_BYTES..]).ok_or(BoxError::Fragment)?;
                let time_ms = time.saturating_mul(1_000) / timescale;
                self.fragment = Some(Fragment { time_ms, bytes: boxed.to_vec() });
            }
            b"mdat" => {
                if let Some(mut fragment) = self.fragment.take() {
                    fragment.bytes.extend_from_slice(boxed);
                    return Ok(Some(Piece::Fragment(fragment)));
                }
            }
            // Such as the index at the end of a file.
            _ => {}
        }
        Ok(None)
    }
}

/// Type of a box, the whole box, and the bytes behind.
type FirstBox<'a> = ([u8; 4], &'a [u8], &'a [u8]);

/// Returns the first box; `None` if the box is not complete.
fn next_box(bytes: &[u8]) -> Result<Option<FirstBox<'_>>, BoxError> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [a, b, c, d, kind @ ..] = *head;
    let claimed = u64::from(u32::from_be_bytes([a, b, c, d]));
    let length = usize::try_from(claimed).ok().filter(|length| (HEAD_BYTES..=BOX_BYTES_MAX).contains(length));
    let length = length.ok_or(BoxError::Length { bytes: claimed })?;
    Ok(bytes.split_at_checked(length).map(|(boxed, rest)| (kind, boxed, rest)))
}

/// Returns the content of the box at a path below the content of a box.
fn find<'a>(content: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    let Some((first, below)) = path.split_first() else { return Some(content) };
    let mut rest = content;
    while let Ok(Some((kind, boxed, next))) = next_box(rest) {
        if kind == **first {
            return find(&boxed[HEAD_BYTES..], below);
        }
        rest = next;
    }
    None
}

fn timescale(moov: &[u8]) -> Result<u32, BoxError> {
    let mdhd = find(moov, &[b"trak", b"mdia", b"mdhd"]).ok_or(BoxError::Missing("mdhd"))?;
    // Version and flags, then two times, of 4 bytes each, or of 8 bytes in version 1.
    let at = if mdhd.first() == Some(&1) { 20 } else { 12 };
    let timescale =
        mdhd.get(at..).and_then(|rest| rest.first_chunk()).map(|field| u32::from_be_bytes(*field));
    timescale.filter(|timescale| *timescale > 0).ok_or(BoxError::Missing("mdhd"))
}

/// Returns the codec string of the first sample entry (RFC 6381).
fn codec(moov: &[u8]) -> Result<String, BoxError> {
    let missing = BoxError::Missing("stsd");
    let stsd = find(moov, &[b"trak", b"mdia", b"minf", b"stbl", b"stsd"]).ok_or(missing.clone())?;
    let (kind, entry, _) =
        stsd.get(8..).and_then(|entries| next_box(entries).ok().flatten()).ok_or(missing)?;
    // Fields of a visual sample entry take 78 bytes before the boxes with the configuration.
    let inner = entry.get(HEAD_BYTES + 78..).unwrap_or_default();
    match &kind {
        b"Opus" => Ok("opus".to_owned()),
        b"avc1" | b"avc3" => {
            let configuration = find(inner, &[b"avcC"]).ok_or(BoxError::Missing("avcC"))?;
            let [_, profile, compatibility, level] =
                *configuration.first_chunk().ok_or(BoxError::Missing("avcC"))?;
            let kind = String::from_utf8_lossy(&kind);
            Ok(format!("{kind}.{profile:02x}{compatibility:02x}{level:02x}"))
        }
        b"av01" => {
            let configuration = find(inner, &[b"av1C"]).ok_or(BoxError::Missing("av1C"))?;
            let [_, profile, depth, _] = *configuration.first_chunk().ok_or(BoxError::Missing("av1C"))?;
            let tier = if depth & 0x80 == 0 { 'M' } else { 'H' };
            let bits = if depth & 0x40 == 0 { 8 } else { 10 };
            Ok(format!("av01.{}.{:02}{tier}.{bits:02}", profile >> 5, profile & 0x1f))
        }
        _ => Err(BoxError::Codec(String::from_utf8_lossy(&kind).escape_default().to_string())),
    }
}

fn decoding_time(moof: &[u8]) -> Option<u64> {
    let tfdt = find(moof, &[b"traf", b"tfdt"])?;
    let time = tfdt.get(4..)?;
    match tfdt.first()? {
        0 => time.first_chunk().map(|field| u32::from_be_bytes(*field).into()),
        _ => time.first_chunk().map(|field| u64::from_be_bytes(*field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + HEAD_BYTES).unwrap();
        [&length.to_be_bytes()[..], kind, content].concat()
    }

    fn moov(entry: &[u8]) -> Vec<u8> {
        let mdhd = boxed(b"mdhd", &[&[0; 12][..], &12_800_u32.to_be_bytes(), &[0; 8]].concat());
        let stsd = boxed(b"stsd", &[&[0; 8][..], entry].concat());
        let minf = boxed(b"minf", &boxed(b"stbl", &stsd));
        boxed(b"moov", &boxed(b"trak", &boxed(b"mdia", &[mdhd, minf].concat())))
    }

    fn entry(kind: &[u8; 4], configuration: &[u8]) -> Vec<u8> {
        boxed(kind, &[&[0; 78][..], configuration].concat())
    }

    fn fragment(time: u64) -> Vec<u8> {
        let tfdt = boxed(b"tfdt", &[&[1, 0, 0, 0][..], &time.to_be_bytes()].concat());
        let moof = boxed(b"moof", &boxed(b"traf", &tfdt));
        [moof, boxed(b"mdat", b"samples")].concat()
    }

    #[test]
    fn a_track_is_split_wherever_the_bytes_are_cut() {
        let avc = entry(b"avc3", &boxed(b"avcC", &[1, 0x64, 0, 0x1e]));
        let track = [boxed(b"ftyp", b"iso6"), moov(&avc), fragment(0), boxed(b"free", b""), fragment(12_800)]
            .concat();
        for step in [1, 7, track.len()] {
            let mut splitter = Splitter::default();
            let pieces: Vec<Piece> =
                track.chunks(step).flat_map(|bytes| splitter.push(bytes).unwrap()).collect();
            let [Piece::Init(init), Piece::Fragment(first), Piece::Fragment(second)] = &pieces[..] else {
                panic!("{pieces:?}")
            };
            assert_eq!((&*init.codec, init.timescale), ("avc3.64001e", 12_800));
            assert_eq!((first.time_ms, second.time_ms), (0, 1_000));
            assert_eq!([&init.bytes[..], &first.bytes, &boxed(b"free", b""), &second.bytes].concat(), track);
        }
    }

    #[test]
    fn a_fragment_moves_to_another_time() {
        let moved = Fragment { time_ms: 1_000, bytes: fragment(12_800) }.at(5_000, 12_800).unwrap();
        assert_eq!(moved, Fragment { time_ms: 5_000, bytes: fragment(64_000) });
    }

    #[test]
    fn codec_strings_follow_rfc_6381() {
        let of = |entry: &[u8]| codec(&moov(entry)[HEAD_BYTES..]);
        assert_eq!(of(&entry(b"av01", &boxed(b"av1C", &[0x81, 0x04, 0x4c, 0]))).unwrap(), "av01.0.04M.10");
        assert_eq!(of(&boxed(b"Opus", &[0; 20])).unwrap(), "opus");
        assert_eq!(of(&entry(b"mp4v", &[])), Err(BoxError::Codec("mp4v".into())));
        assert_eq!(of(&boxed(b"avc1", b"short")), Err(BoxError::Missing("avcC")));
    }

    #[test]
    fn wrong_boxes_are_errors() {
        let push = |bytes: &[u8]| Splitter::default().push(bytes);
        assert_eq!(push(b"\0\0\0\x07moov"), Err(BoxError::Length { bytes: 7 }));
        assert_eq!(push(b"\xff\0\0\0moov"), Err(BoxError::Length { bytes: 0xff00_0000 }));
        assert_eq!(push(&boxed(b"moov", b"")), Err(BoxError::Missing("mdhd")));
        assert_eq!(push(&fragment(0)), Err(BoxError::Fragment));
    }
}

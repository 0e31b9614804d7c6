//! Header of a buffer, and the description of the tracks. All numbers are big-endian.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::layout::Protection;

/// First bytes of a buffer of video.
pub const MAGIC: [u8; 4] = *b"HWV1";
/// Most tracks of a buffer: description, audio, and rungs.
pub const TRACKS_MAX: usize = 16;
/// Most rungs of a buffer.
pub const RUNGS_MAX: usize = TRACKS_MAX - FIXED_TRACKS;
/// Bytes of the header before the lengths of the tracks.
pub const INDEX_BYTES: usize = 32;
/// Most bytes of an inflated description.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;
/// Description and audio.
const FIXED_TRACKS: usize = 2;
/// Longest codec string in bytes.
const CODEC_BYTES_MAX: usize = 64;

/// Failure to read the header of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The buffer is no video.
    #[error("the buffer does not begin with HWV1: no video")]
    Magic,
    /// Fewer bytes than a header has.
    #[error("the header of the buffer is not complete")]
    Short,
    /// Too few or too many tracks.
    #[error("the buffer has {0} tracks, not 3 to {TRACKS_MAX}")]
    Tracks(u8),
    /// The protection is out of range.
    #[error("the repair symbols of the buffer are out of range")]
    Protection,
    /// The time of the GOP is out of range.
    #[error("the buffer's GOP of {0} ms is out of range (20 ms to 60 s)")]
    Time(u32),
}

/// Header of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Repair symbols.
    pub protection: Protection,
    /// Number of the GOP, from the start of the sender.
    pub number: u32,
    /// Time of a GOP in milliseconds.
    pub gop_ms: u32,
    /// Number that distinguishes runs of a sender: GOP numbers of another run begin anew.
    pub run: u32,
    /// Time of capture of the first picture, in milliseconds since 1970; 0 if not known.
    pub capture_ms: u64,
    /// Lengths of the tracks in bytes: description, audio, rungs.
    pub lengths: Vec<u32>,
}

impl Index {
    /// Reads the header at the beginning of a buffer.
    ///
    /// # Errors
    /// If the bytes are no header.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let shown = bytes.len().min(MAGIC.len());
        if bytes[..shown] != MAGIC[..shown] {
            return Err(IndexError::Magic);
        }
        let head = bytes.first_chunk::<INDEX_BYTES>().ok_or(IndexError::Short)?;
        let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let tracks = usize::from(head[4]);
        if !(FIXED_TRACKS + 1..=TRACKS_MAX).contains(&tracks) {
            return Err(IndexError::Tracks(head[4]));
        }
        let protection = Protection { percent: head[5], symbol_bytes: u16_at(6), first_block: u16_at(8) };
        if !protection.is_valid() {
            return Err(IndexError::Protection);
        }
        let gop_ms = u32_at(16);
        if !(20..=60_000).contains(&gop_ms) {
            return Err(IndexError::Time(gop_ms));
        }
        let lengths = bytes.get(INDEX_BYTES..INDEX_BYTES + 4 * tracks).ok_or(IndexError::Short)?;
        let (lengths, _) = lengths.as_chunks::<4>();
        Ok(Self {
            protection,
            number: u32_at(12),
            gop_ms,
            run: u32_at(20),
            capture_ms: u64::from(u32_at(24)) << 32 | u64::from(u32_at(28)),
            lengths: lengths.iter().map(|length| u32::from_be_bytes(*length)).collect(),
        })
    }

    /// Appends the header to a buffer.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(u8::try_from(self.lengths.len()).unwrap_or(u8::MAX));
        out.push(self.protection.percent);
        out.extend_from_slice(&self.protection.symbol_bytes.to_be_bytes());
        out.extend_from_slice(&self.protection.first_block.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        for field in [self.number, self.gop_ms, self.run] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&self.capture_ms.to_be_bytes());
        self.lengths.iter().for_each(|length| out.extend_from_slice(&length.to_be_bytes()));
    }

    /// Returns the bytes of the header with the lengths.
    pub fn bytes(&self) -> usize {
        INDEX_BYTES + 4 * self.lengths.len()
    }

    /// Returns the number of rungs.
    pub fn rungs(&self) -> usize {
        self.lengths.len() - FIXED_TRACKS
    }

    /// Returns the ranges of the tracks in the data; `None` if the lengths exceed the address space.
    pub fn ranges(&self) -> Option<Vec<std::ops::Range<usize>>> {
        let mut at = self.bytes();
        let range = |length: &u32| {
            let start = at;
            at = at.checked_add(usize::try_from(*length).ok()?)?;
            Some(start..at)
        };
        self.lengths.iter().map(range).collect()
    }
}

/// Rung of a ladder, for people and players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Width of the picture.
    pub width: u16,
    /// Height of the picture.
    pub height: u16,
    /// Rate of the encoding in bit/s.
    pub rate: u32,
}

/// Description of the tracks, which each buffer carries, so that a receiver may join at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Codec string of the video, for all rungs.
    pub video_codec: String,
    /// Init segment of the video, for all rungs.
    pub video_init: Vec<u8>,
    /// Codec string of the audio; empty without audio.
    pub audio_codec: String,
    /// Init segment of the audio; empty without audio.
    pub audio_init: Vec<u8>,
    /// Rungs, smallest first.
    pub rungs: Vec<Rung>,
}

/// Failure to read a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The description cannot be inflated.
    #[error("the description of the tracks cannot be inflated")]
    Corrupt,
    /// The description inflates to more than [`DESCRIPTION_BYTES_MAX`].
    #[error("the description of the tracks inflates to more than {DESCRIPTION_BYTES_MAX} bytes")]
    TooLong,
    /// A field is missing or out of range.
    #[error("the description of the tracks has a field out of range")]
    Field,
}

impl Description {
    /// Inflates and reads a description.
    ///
    /// # Errors
    /// If the description is corrupt or longer than [`DESCRIPTION_BYTES_MAX`].
    pub fn parse(deflated: &[u8]) -> Result<Self, DescriptionError> {
        let mut plain = Vec::new();
        let most = DESCRIPTION_BYTES_MAX as u64 + 1;
        let inflated = DeflateDecoder::new(deflated).take(most).read_to_end(&mut plain);
        inflated.map_err(|_corrupt| DescriptionError::Corrupt)?;
        if plain.len() > DESCRIPTION_BYTES_MAX {
            return Err(DescriptionError::TooLong);
        }
        let mut fields = Fields(&plain);
        fields.description().ok_or(DescriptionError::Field)
    }

    /// Returns the deflated description.
    pub fn emit(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        for (codec, init) in [(&self.video_codec, &self.video_init), (&self.audio_codec, &self.audio_init)] {
            plain.push(u8::try_from(codec.len()).unwrap_or(0));
            plain.extend_from_slice(codec.as_bytes());
            plain.extend_from_slice(&u32::try_from(init.len()).unwrap_or(0).to_be_bytes());
            plain.extend_from_slice(init);
        }
        plain.push(u8::try_from(self.rungs.len()).unwrap_or(0));
        for rung in &self.rungs {
            plain.extend_from_slice(&rung.width.to_be_bytes());
            plain.extend_from_slice(&rung.height.to_be_bytes());
            plain.extend_from_slice(&rung.rate.to_be_bytes());
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let written = encoder.write_all(&plain).and_then(|()| encoder.finish());
        written.unwrap_or_default()
    }
}

/// Fields that are left to read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field)
    }

    fn number<const BYTES: usize>(&mut self) -> Option<u32> {
        Some(self.take(BYTES)?.iter().fold(0, |number, octet| number << 8 | u32::from(*octet)))
    }

    /// Codec string: letters, digits and dots alone, so that the string fits a playlist and a page.
    fn codec(&mut self) -> Option<String> {
        let bytes = self.number::<1>()? as usize;
        let text = std::str::from_utf8(self.take(bytes)?).ok()?;
        let is_codec = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'.';
        (text.len() <= CODEC_BYTES_MAX && text.bytes().all(is_codec)).then(|| text.to_owned())
    }

    fn init(&mut self) -> Option<Vec<u8>> {
        let bytes = usize::try_from(self.number::<4>()?).ok()?;
        Some(self.take(bytes)?.to_vec())
    }

    fn description(&mut self) -> Option<Description> {
        let (video_codec, video_init) = (self.codec()?, self.init()?);
        let (audio_codec, audio_init) = (self.codec()?, self.init()?);
        let count = self.number::<1>()? as usize;
        let rung = |fields: &mut Self| {
            let (width, height) = (fields.number::<2>()?, fields.number::<2>()?);
            let (width, height) = (u16::try_from(width).ok()?, u16::try_from(height).ok()?);
            Some(Rung { width, height, rate: fields.number::<4>()? })
        };
        let rungs: Vec<Rung> = (0..count.min(TRACKS_MAX)).map(|_| rung(self)).collect::<Option<_>>()?;
        let is_complete = !video_codec.is_empty()
            && audio_codec.is_empty() == audio_init.is_empty()
            && (1..=RUNGS_MAX).contains(&count)
            && self.0.is_empty();
        is_complete.then_some(Description { video_codec, video_init, audio_codec, audio_init, rungs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_documented_layout() {
        let index = Index {
            protection: Protection { symbol_bytes: 1_344, percent: 4, first_block: 9 },
            number: 7,
            gop_ms: 1_000,
            run: 0xabcd,
            capture_ms: 0x0001_0002_0003_0004,
            lengths: vec![1, 2, 3],
        };
        let mut bytes = Vec::new();
        index.emit(&mut bytes);
        let expected =
            b"HWV1\x03\x04\x05\x40\0\x09\0\0\0\0\0\x07\0\0\x03\xe8\0\0\xab\xcd\0\x01\0\x02\0\x03\0\x04\
            \0\0\0\x01\0\0\0\x02\0\0\0\x03";
        assert_eq!(bytes, expected);
        assert_eq!(Index::parse(&bytes), Ok(index.clone()));
        assert_eq!(index.ranges().unwrap(), [44..45, 45..47, 47..50]);
        for end in 0..bytes.len() {
            assert_eq!(Index::parse(&bytes[..end]), Err(IndexError::Short), "{end}");
        }
        assert_eq!(Index::parse(b"HWX"), Err(IndexError::Magic));
        for (at, wrong, error) in [
            (4, 0, IndexError::Tracks(0)),
            (4, 2, IndexError::Tracks(2)),
            (4, 17, IndexError::Tracks(17)),
            (5, 26, IndexError::Protection),
            (5, 0, IndexError::Protection),
            (9, 201, IndexError::Protection),
            (17, 1, IndexError::Time(0x1_03e8)),
        ] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert_eq!(Index::parse(&bytes), Err(error), "{at}");
        }
    }

    fn description() -> Description {
        Description {
            video_codec: "avc3.64001e".into(),
            video_init: vec![1; 700],
            audio_codec: "opus".into(),
            audio_init: vec![2; 600],
            rungs: vec![Rung { width: 320, height: 180, rate: 56_000 }],
        }
    }

    #[test]
    fn a_description_is_read_as_written() {
        assert_eq!(Description::parse(&description().emit()), Ok(description()));
        let silent = Description { audio_codec: String::new(), audio_init: Vec::new(), ..description() };
        assert_eq!(Description::parse(&silent.emit()), Ok(silent));
    }

    #[test]
    fn a_description_that_inflates_without_end_is_refused_within_bounds() {
        let bomb = Description { video_init: vec![0; 50 << 20], ..description() }.emit();
        assert!(bomb.len() < 60_000, "{}", bomb.len());
        assert_eq!(Description::parse(&bomb), Err(DescriptionError::TooLong));
        assert_eq!(Description::parse(b"\xff\xff\xff"), Err(DescriptionError::Corrupt));
    }

    #[test]
    fn text_for_pages_is_letters_digits_and_dots() {
        for codec in ["avc3\"><script>", "opus\n#EXT", "é"] {
            let wrong = Description { video_codec: codec.into(), ..description() };
            assert_eq!(Description::parse(&wrong.emit()), Err(DescriptionError::Field), "{codec}");
        }
        let empty = Description { rungs: Vec::new(), ..description() };
        assert_eq!(Description::parse(&empty.emit()), Err(DescriptionError::Field));
    }
}

//! Generated tracks: boxes with made-up samples, as an encoder writes them.

use headwater_media::{Packed, Packer, Piece, Planned, Protection, Rung, Splitter};

/// Time of a GOP.
pub const GOP_MS: u32 = 1_000;
const TIMESCALE: u32 = 12_800;

/// Pseudo-random numbers (xorshift64*).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 8).unwrap();
    [&length.to_be_bytes()[..], kind, content].concat()
}

/// Init segment of a track of video, or of audio.
fn init(is_video: bool) -> Vec<u8> {
    let mdhd = boxed(b"mdhd", &[&[0; 12][..], &TIMESCALE.to_be_bytes(), &[0; 8]].concat());
    let configuration = boxed(b"avcC", &[1, 0x64, 0, 0x1e]);
    let entry = if is_video {
        boxed(b"avc3", &[&[0; 78][..], &configuration].concat())
    } else {
        boxed(b"Opus", &[0; 28])
    };
    let stsd = boxed(b"stsd", &[&[0; 8][..], &entry].concat());
    let minf = boxed(b"minf", &boxed(b"stbl", &stsd));
    let moov = boxed(b"moov", &boxed(b"trak", &boxed(b"mdia", &[mdhd, minf].concat())));
    [boxed(b"ftyp", b"iso6"), moov].concat()
}

/// Fragment of the GOP `number` of a track with `bytes` bytes of samples.
pub fn fragment(track: usize, number: u32, bytes: usize) -> Vec<u8> {
    let time = u64::from(number) * u64::from(TIMESCALE) * u64::from(GOP_MS) / 1_000;
    let tfdt = boxed(b"tfdt", &[&[1, 0, 0, 0][..], &time.to_be_bytes()].concat());
    let moof = boxed(b"moof", &boxed(b"traf", &tfdt));
    let sample = |at: usize| (at % 251) as u8 ^ (track as u8) << 4 ^ number as u8;
    [moof, boxed(b"mdat", &(0..bytes).map(sample).collect::<Vec<_>>())].concat()
}

/// Encoder of an audio track and of rungs.
pub struct Encoder {
    pub packer: Packer,
    splitters: Vec<Splitter>,
    next: u32,
}

impl Encoder {
    pub fn new(rungs: usize, has_audio: bool, protection: Protection) -> Self {
        let rung =
            |number: usize| Rung { width: 320 << number, height: 180 << number, rate: 50_000 << number };
        let planned =
            Planned { rungs: (0..rungs).map(rung).collect(), protection, places: vec![usize::MAX; rungs] };
        let packer = Packer::new(planned, GOP_MS, 99, has_audio);
        let splitters = (0..rungs + usize::from(has_audio)).map(|_| Splitter::default()).collect();
        let mut encoder = Self { packer, splitters, next: 0 };
        for track in 0..encoder.splitters.len() {
            encoder.write(track, &init(track < rungs));
        }
        encoder
    }

    pub fn write(&mut self, track: usize, bytes: &[u8]) {
        for piece in self.splitters[track].push(bytes).unwrap() {
            self.packer.push(track, piece).unwrap();
        }
    }

    /// Encodes a GOP with this many bytes in each track, the rungs first.
    pub fn gop(&mut self, bytes: &[usize]) -> Packed {
        for (track, bytes) in bytes.iter().enumerate() {
            self.write(track, &fragment(track, self.next, *bytes));
        }
        self.next += 1;
        self.packer.poll(|number| 1_000_000 + u64::from(number)).unwrap().expect("all tracks have the GOP")
    }
}

/// Pieces of a track's fragment.
pub fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut splitter = Splitter::default();
    splitter.push(&init(true)).unwrap();
    splitter.push(bytes).unwrap()
}

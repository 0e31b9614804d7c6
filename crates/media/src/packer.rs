//! Tracks of an encoder to buffers: rates of the rungs, assembly of a GOP, and the time in which a buffer is
//! sent.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_fec::{FecError, Parameters, codec};

use crate::boxes::{Init, Piece};
use crate::index::{Description, Index, RUNGS_MAX, Rung};
use crate::layout::{FIRST_BLOCK_MAX, Layout, Protection};

/// Part of the session's rate that becomes prefix, in percent (measured: 89.5 at 120 kbit/s, 90 at 720, 92 at
/// 2400).
const PREFIX_PERCENT: u64 = 90;
/// Mean size of a GOP in percent of its place: with a VBV of 0.5 s, the largest GOP of x264 is 1.14 of the
/// mean.
const FILL_PERCENT: u64 = 85;
/// Bytes of the boxes around an audio fragment.
const AUDIO_OVERHEAD: u64 = 200;
/// Bytes of the boxes around a fragment of video, and for each picture.
const VIDEO_OVERHEAD: u64 = 130;
const PICTURE_OVERHEAD: u64 = 12;
/// Bytes of the header and of the deflated description.
const HEAD_BYTES: u64 = 1_000;
/// Least rate of the lowest rung in bit/s.
const RATE_MIN: u64 = 24_000;
/// Least bits for a pixel of a picture, in thousandths, at the full size; a rung with less is made smaller.
const PIXEL_MILLIBITS: u64 = 33;
/// Scales of pictures, in eighths.
const SCALES: [u64; 6] = [8, 6, 4, 3, 2, 1];
/// Most GOPs of a track that wait for other tracks.
const WAITING_MAX: usize = 8;
/// GOPs of video that wait at most for the audio of the first.
const PATIENCE: usize = 2;

/// Failure to plan a ladder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// The percentages are not ascending from 1 to 100, or too many.
    #[error("rungs are at most {RUNGS_MAX} ascending percentages from 1 to 100, for example 5,30,100")]
    Percentages,
    /// The lowest rung is above the base channel's rate.
    #[error(
        "the lowest rung of {percent} % is {rung} kbit/s, less than the base channel's {base} kbit/s: no receiver \
         would hold that part alone; raise the lowest rung to {least} %"
    )]
    BelowBase {
        /// Percentage of the lowest rung.
        percent: u8,
        /// Rate of the lowest rung in kbit/s.
        rung: u64,
        /// Rate of the base channel in kbit/s.
        base: u64,
        /// Least percentage.
        least: u64,
    },
    /// A rung has too little rate for pictures.
    #[error(
        "the rung of {percent} % leaves {rate} kbit/s for pictures, less than {least}: raise the maximum rate, or \
         leave the rung out"
    )]
    TooSlow {
        /// Percentage of the rung.
        percent: u8,
        /// Rate for pictures in kbit/s.
        rate: u64,
        /// Least rate in kbit/s.
        least: u64,
    },
}

/// Demands on a ladder.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Rate of the session in bit/s.
    pub rate: u64,
    /// Rate of the base channel in bit/s.
    pub base_rate: u64,
    /// Cumulative percentages of the rate at which the rungs are whole.
    pub percentages: Vec<u8>,
    /// Time of a GOP in milliseconds.
    pub gop_ms: u32,
    /// Pictures of a second.
    pub frame_rate: u32,
    /// Width and height of the source.
    pub size: (u16, u16),
    /// Whether small rungs have smaller pictures.
    pub scales: bool,
    /// Rate of the audio in bit/s; 0 without audio.
    pub audio_rate: u64,
    /// Bytes of a symbol, the bytes of a buffer in a packet.
    pub symbol_bytes: u16,
    /// Repair symbols in percent of the source symbols; 0 for none.
    pub protection: u8,
}

/// Planned rungs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Rungs, smallest first.
    pub rungs: Vec<Rung>,
    /// Repair symbols.
    pub protection: Protection,
    /// Bytes of the buffer up to the end of each rung with its repair symbols.
    pub places: Vec<usize>,
}

impl Ladder {
    /// Plans rates and sizes, so that each rung is whole at its part of the session's rate.
    ///
    /// # Errors
    /// If a rung is out of range.
    pub fn plan(&self) -> Result<Planned, LadderError> {
        self.check()?;
        let symbol = u64::from(self.symbol_bytes.max(1));
        let gop = u64::from(self.gop_ms);
        let (mut rungs, mut places, mut before, mut first_block) = (Vec::new(), Vec::new(), 0, 0);
        for (number, percent) in self.percentages.iter().enumerate() {
            let bits = self.rate * u64::from(*percent) / 100 * gop / 1_000 * PREFIX_PERCENT / 100;
            let end = (bits / 8 / symbol).max(before);
            let k = source_symbols(end - before, self.protection.into());
            let pictures = u64::from(self.frame_rate) * gop / 1_000;
            let mut fixed = VIDEO_OVERHEAD + PICTURE_OVERHEAD * pictures;
            if number == 0 {
                first_block = k;
                let audio = self.audio_rate * gop / 8_000;
                fixed += HEAD_BYTES + audio + if self.audio_rate > 0 { AUDIO_OVERHEAD } else { 0 };
            }
            let rate = (k * symbol * FILL_PERCENT / 100).saturating_sub(fixed) * 8 * 1_000 / gop;
            if rate < RATE_MIN {
                let (rate, least) = (rate / 1_000, RATE_MIN / 1_000);
                return Err(LadderError::TooSlow { percent: *percent, rate, least });
            }
            let (width, height) = self.size_for(rate);
            rungs.push(Rung { width, height, rate: u32::try_from(rate).unwrap_or(u32::MAX) });
            places.push(usize::try_from(end * symbol).unwrap_or(usize::MAX));
            before = end;
        }
        let first_block = u16::try_from(first_block).unwrap_or(u16::MAX).clamp(1, FIRST_BLOCK_MAX);
        let protection = if self.protection == 0 {
            Protection::default()
        } else {
            Protection { symbol_bytes: self.symbol_bytes, percent: self.protection, first_block }
        };
        Ok(Planned { rungs, protection, places })
    }

    fn check(&self) -> Result<(), LadderError> {
        let percentages = &self.percentages;
        let is_ascending = percentages.is_sorted_by(|lower, higher| lower < higher);
        let is_in_range = percentages.iter().all(|percent| (1..=100).contains(percent));
        if !(1..=RUNGS_MAX).contains(&percentages.len()) || !is_ascending || !is_in_range {
            return Err(LadderError::Percentages);
        }
        let (percent, base, rate) = (percentages[0], self.base_rate, self.rate.max(1));
        let rung = rate * u64::from(percent) / 100;
        if rung < base {
            let least = (base * 100).div_ceil(rate);
            return Err(LadderError::BelowBase { percent, rung: rung / 1_000, base: base / 1_000, least });
        }
        Ok(())
    }

    /// Returns the largest size at which a rate has enough bits for a pixel.
    fn size_for(&self, rate: u64) -> (u16, u16) {
        let (width, height) = (u64::from(self.size.0), u64::from(self.size.1));
        let scaled = |scale: u64, side: u64| (side * scale / 8).max(16) & !1;
        let is_fine = |scale: &&u64| {
            let pixels = scaled(**scale, width) * scaled(**scale, height) * u64::from(self.frame_rate);
            rate * 1_000 >= pixels * PIXEL_MILLIBITS
        };
        let scale = SCALES.iter().find(is_fine).copied().filter(|_| self.scales);
        let scale = scale.unwrap_or(if self.scales { SCALES[SCALES.len() - 1] } else { 8 });
        let side = |side| u16::try_from(scaled(scale, side)).unwrap_or(u16::MAX - 1);
        (side(width), side(height))
    }
}

/// Returns the most source symbols that leave room for repair symbols.
fn source_symbols(symbols: u64, percent: u64) -> u64 {
    let mut k = symbols * 100 / (100 + percent);
    while k > 0 && k + (k * percent).div_ceil(100) > symbols {
        k -= 1;
    }
    k
}

/// Failure to pack a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A track falls behind the other tracks.
    #[error("the encoder's track {track} has fallen behind the other tracks by {WAITING_MAX} GOPs")]
    Stalled {
        /// Number of the track: rungs from 0, then audio.
        track: usize,
    },
    /// A second init segment with other contents.
    #[error("the encoder's track {track} has changed its parameters")]
    Changed {
        /// Number of the track.
        track: usize,
    },
    /// The repair symbols cannot be made.
    #[error("cannot make repair symbols")]
    Protection(#[from] FecError),
}

/// Buffer that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Number of the GOP.
    pub number: u32,
    /// Bytes of the buffer.
    pub bytes: Vec<u8>,
    /// Rungs that end beyond their place.
    pub over: usize,
}

/// Assembles the tracks of an encoder into buffers.
///
/// Memory: eight GOPs of each track.
#[derive(Debug)]
pub struct Packer {
    plan: Planned,
    gop_ms: u32,
    run: u32,
    tracks: Vec<Track>,
    has_audio: bool,
    description: Vec<u8>,
}

#[derive(Debug, Default)]
struct Track {
    init: Option<Init>,
    waiting: VecDeque<(u32, Vec<u8>)>,
    newest: Option<u32>,
}

impl Packer {
    /// Makes a packer for the rungs of a plan. `run` distinguishes runs of a sender.
    pub fn new(plan: Planned, gop_ms: u32, run: u32, has_audio: bool) -> Self {
        let tracks = (0..plan.rungs.len() + usize::from(has_audio)).map(|_| Track::default()).collect();
        Self { plan, gop_ms, run, tracks, has_audio, description: Vec::new() }
    }

    /// Adds a part of a track: the rungs from 0, then the audio.
    ///
    /// # Errors
    /// If another track has stalled, or the track changes its parameters. The packer is of no use afterwards.
    pub fn push(&mut self, track: usize, piece: Piece) -> Result<(), PackError> {
        let gop_ms = u64::from(self.gop_ms);
        let place = &mut self.tracks[track];
        match piece {
            Piece::Init(init) if place.init.as_ref().is_some_and(|known| *known != init) => {
                return Err(PackError::Changed { track });
            }
            Piece::Init(init) => {
                place.init = Some(init);
                self.describe();
            }
            Piece::Fragment(fragment) => {
                // Audio fragments begin up to some packets late.
                let number = (fragment.time_ms + gop_ms / 4) / gop_ms;
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                match place.waiting.back_mut() {
                    Some((newest, bytes)) if *newest == number => bytes.extend_from_slice(&fragment.bytes),
                    _ => place.waiting.push_back((number, fragment.bytes)),
                }
                place.newest = Some(number);
                if place.waiting.len() > WAITING_MAX {
                    let is_behind = |track: &Track| track.waiting.len() < WAITING_MAX / 2;
                    let track = self.tracks.iter().position(is_behind).unwrap_or(track);
                    return Err(PackError::Stalled { track });
                }
            }
        }
        Ok(())
    }

    /// Returns the next buffer, once all tracks have its GOP. `capture_ms` is the time of its first picture.
    ///
    /// # Errors
    /// If the repair symbols cannot be made.
    pub fn poll(&mut self, capture_ms: impl Fn(u32) -> u64) -> Result<Option<Packed>, PackError> {
        let rungs = self.plan.rungs.len();
        let Some(number) = self.next_number() else { return Ok(None) };
        let audio_track = self.has_audio.then_some(rungs);
        let audio = audio_track.map_or_else(Vec::new, |track| self.tracks[track].take(number));
        let videos: Vec<Vec<u8>> = (0..rungs).map(|track| self.tracks[track].take(number)).collect();
        let length = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let index = Index {
            protection: self.plan.protection,
            number,
            gop_ms: self.gop_ms,
            run: self.run,
            capture_ms: capture_ms(number),
            lengths: [&self.description, &audio].into_iter().chain(&videos).map(length).collect(),
        };
        let mut data = Vec::new();
        index.emit(&mut data);
        data.extend_from_slice(&self.description);
        data.extend_from_slice(&audio);
        let mut ends = Vec::new();
        for video in &videos {
            data.extend_from_slice(video);
            ends.push(data.len());
        }
        let layout = Layout::new(index.protection, &ends);
        let bytes = protect(&layout, index.protection, data)?;
        let over =
            ends.iter().zip(&self.plan.places).filter(|(end, place)| buffer_end(&layout, **end) > **place);
        Ok(Some(Packed { number, over: over.count(), bytes }))
    }

    /// Returns the number of the GOP that all tracks have.
    fn next_number(&self) -> Option<u32> {
        if self.description.is_empty() {
            return None;
        }
        let videos = &self.tracks[..self.plan.rungs.len()];
        let number =
            videos.iter().filter_map(|track| track.waiting.front()).map(|(number, _)| *number).min()?;
        let has = |track: &Track| track.newest.is_some_and(|newest| newest >= number);
        let waiting = videos.iter().map(|track| track.waiting.len()).min().unwrap_or(0);
        let is_complete =
            videos.iter().all(has) && (waiting >= PATIENCE || self.tracks[videos.len()..].iter().all(has));
        is_complete.then_some(number)
    }

    /// Makes the description once all tracks have begun. The init segment of the highest rung serves all
    /// rungs, as parameters come with each key picture.
    fn describe(&mut self) {
        let rungs = self.plan.rungs.len();
        if self.tracks.iter().any(|track| track.init.is_none()) {
            return;
        }
        let Some(video) = self.tracks[rungs - 1].init.clone() else { return };
        let audio = self.tracks.get(rungs).and_then(|track| track.init.clone());
        let (audio_codec, audio_init) =
            audio.map_or_else(Default::default, |audio| (audio.codec, audio.bytes));
        let description = Description {
            video_codec: video.codec,
            video_init: video.bytes,
            audio_codec,
            audio_init,
            rungs: self.plan.rungs.clone(),
        };
        self.description = description.emit();
    }
}

impl Track {
    /// Takes the bytes of a GOP, and of earlier GOPs, if any.
    fn take(&mut self, number: u32) -> Vec<u8> {
        let mut taken = Vec::new();
        while self.waiting.front().is_some_and(|(first, _)| *first <= number) {
            taken.extend(self.waiting.pop_front().into_iter().flat_map(|(_, bytes)| bytes));
        }
        taken
    }
}

/// Returns the end in the buffer of data, with the repair symbols behind.
fn buffer_end(layout: &Layout, end: usize) -> usize {
    let block = layout.blocks_of(&(end.saturating_sub(1)..end)).next();
    block.map_or(end, |block| {
        let block = layout.blocks[block];
        (block.at + block.k + block.m) * layout.symbol
    })
}

/// Inserts repair symbols into data.
fn protect(layout: &Layout, protection: Protection, mut data: Vec<u8>) -> Result<Vec<u8>, FecError> {
    if layout.blocks.is_empty() {
        return Ok(data);
    }
    data.resize(data.len().next_multiple_of(layout.symbol), 0);
    let mut buffer = Vec::with_capacity(layout.bytes);
    for block in &layout.blocks {
        let (k, n) = (number(block.k), number(block.k + block.m));
        let source = &data[block.first * layout.symbol..(block.first + block.k) * layout.symbol];
        buffer.extend_from_slice(source);
        let codec = codec(Parameters::reed_solomon(protection.symbol_bytes, k, n))?;
        let encoder = codec.encoder(k, source)?;
        for esi in k..n {
            let at = buffer.len();
            buffer.resize(at + layout.symbol, 0);
            encoder.symbol(esi, &mut buffer[at..])?;
        }
    }
    Ok(buffer)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Times of a buffer that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Time for which the buffer waited for the end of the buffer before: the lead of the encoder.
    pub lead: Duration,
}

/// Returns the time in which the next buffer is sent, so that the lead of the encoder's clock over the
/// session's clock falls: a tenth of the lead for each second, at most 2 % of the time of a GOP.
pub fn submission_time(gop: Duration, last: Option<Submitted>) -> Duration {
    const LEAD_WHOLE: f64 = 10.0;
    const SHORTER_MAX: f64 = 0.02;
    let lead = last.map_or(0.0, |last| last.lead.as_secs_f64());
    gop.mul_f64(1.0 - (lead / LEAD_WHOLE).min(SHORTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder() -> Ladder {
        Ladder {
            rate: 2_400_000,
            base_rate: 120_000,
            percentages: vec![5, 30, 100],
            gop_ms: 1_000,
            frame_rate: 25,
            size: (640, 360),
            scales: true,
            audio_rate: 16_000,
            symbol_bytes: 1_344,
            protection: 4,
        }
    }

    #[test]
    fn rungs_fit_their_part_of_the_rate() {
        let plan = ladder().plan().unwrap();
        let sizes: Vec<_> = plan.rungs.iter().map(|rung| (rung.width, rung.height)).collect();
        assert_eq!(sizes, [(320, 180), (640, 360), (640, 360)]);
        let rates: Vec<_> = plan.rungs.iter().map(|rung| rung.rate / 1_000).collect();
        assert!((40..60).contains(&rates[0]), "{rates:?}");
        assert!((390..450).contains(&rates[1]) && (1_150..1_300).contains(&rates[2]), "{rates:?}");
        assert_eq!(plan.protection, Protection { symbol_bytes: 1_344, percent: 4, first_block: 9 });
        assert!(plan.places[0] <= 13_500 && plan.places[2] <= 270_000, "{:?}", plan.places);
    }

    #[test]
    fn impossible_ladders_are_explained() {
        let error = |ladder: Ladder| ladder.plan().unwrap_err().to_string();
        assert!(error(Ladder { percentages: vec![30, 5], ..ladder() }).contains("ascending"));
        assert!(error(Ladder { percentages: vec![], ..ladder() }).contains("ascending"));
        assert!(error(Ladder { percentages: (1..=15).collect(), ..ladder() }).contains("at most 14"));
        assert!(
            error(Ladder { percentages: vec![4, 100], ..ladder() }).contains("raise the lowest rung to 5 %")
        );
        let slow = Ladder { rate: 120_000, percentages: vec![100], audio_rate: 64_000, ..ladder() };
        assert!(error(slow).contains("for pictures"));
    }

    #[test]
    fn an_encoder_that_leads_is_sent_faster_by_two_percent_at_most() {
        let gop = Duration::from_secs(1);
        let time =
            |lead| submission_time(gop, Some(Submitted { lead: Duration::from_millis(lead) })).as_millis();
        assert_eq!((time(0), time(50), time(200), time(5_000)), (1_000, 995, 980, 980));
        assert_eq!(submission_time(gop, None), gop);
    }
}

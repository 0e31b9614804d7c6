//! Received buffers of video, for the gateway and the folder.

use headwater::stream::Received;
use headwater_media::{Cut, CutError, Cutter, Description, IndexError, ReceivedBuffer};
use headwater_web::{Presentation, VideoReception, VideoSegment};

use super::folder::Folder;
use crate::exit::{Exit, Failure, OrExit};

/// Buffers without video after which a session carries no video.
const OTHER_MAX: u32 = 3;
/// Buffers in a row without a whole rung, after which people are told.
const WITHOUT_MAX: u32 = 5;

/// Counters of a player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayerCounters {
    /// Buffers.
    pub buffers: u64,
    /// Buffers without a whole rung.
    pub without: u64,
    /// Buffers whose header was lost.
    pub headless: u64,
    /// Buffers that are no video, or forged.
    pub foreign: u64,
    /// Lost packets that were repaired.
    pub repaired: u64,
}

/// Buffer as played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// Number of the buffer, or of the group of pictures.
    pub number: u32,
    /// Rung, if any is whole.
    pub rung: Option<usize>,
    /// Rungs of the buffer; 0 if the buffer is no video.
    pub rungs: usize,
    /// Repaired packets.
    pub repaired: usize,
}

/// Takes the buffers of a session.
pub struct Player {
    cutter: Cutter,
    reception: VideoReception,
    folder: Option<Folder>,
    counters: PlayerCounters,
    /// Run, description and presentation of the last buffer.
    shown: Option<(Description, Presentation)>,
    /// Buffers without video before the first video.
    others: u32,
    /// Buffers in a row without a rung, and their bytes.
    without: (u32, usize),
    is_warned: bool,
}

impl Player {
    pub fn new(reception: VideoReception, folder: Option<Folder>) -> Self {
        Self {
            cutter: Cutter::default(),
            reception,
            folder,
            counters: PlayerCounters::default(),
            shown: None,
            others: 0,
            without: (0, 0),
            is_warned: false,
        }
    }

    pub const fn counters(&self) -> PlayerCounters {
        self.counters
    }

    /// Plays or stores a buffer.
    ///
    /// # Errors
    /// If the session carries no video and there is no folder, or the folder cannot be written.
    pub fn on_buffer(&mut self, received: &Received) -> Result<Played, Failure> {
        self.counters.buffers += 1;
        let pieces = received.pieces.iter().map(|piece| (piece.offset, &piece.bytes[..])).collect();
        let buffer = ReceivedBuffer { length: received.length, prefix: &received.prefix, pieces };
        let none = Played { number: received.id.into(), rung: None, rungs: 0, repaired: 0 };
        match self.cutter.cut(&buffer) {
            Ok(cut) => self.on_cut(cut, received),
            Err(CutError::Index(IndexError::Magic)) if self.shown.is_none() => {
                self.on_other(received).map(|()| none)
            }
            Err(CutError::Lost) => {
                self.counters.headless += 1;
                self.on_missing(received.prefix.len(), None);
                Ok(none)
            }
            Err(error) => {
                self.counters.foreign += 1;
                tracing::debug!("buffer {} is skipped: {error}", received.id);
                Ok(none)
            }
        }
    }

    fn on_cut(&mut self, cut: Cut, received: &Received) -> Result<Played, Failure> {
        let Cut { index, description, audio, rung, repaired } = cut;
        self.others = 0;
        self.counters.repaired += repaired as u64;
        let played = Played {
            number: index.number,
            rung: rung.as_ref().map(|rung| rung.0),
            rungs: index.rungs(),
            repaired,
        };
        if rung.is_none() {
            let ranges = index.ranges().unwrap_or_default();
            let needed = ranges.get(2).map_or(0, |range| range.end);
            self.on_missing(received.prefix.len(), Some((needed, index.gop_ms)));
        } else {
            (self.without, self.is_warned) = ((0, 0), false);
            self.reception.set_note(None);
        }
        let Some(description) = description else { return Ok(played) };
        let presentation = self.presentation(index.run, index.gop_ms, description);
        let segment = VideoSegment {
            number: index.number,
            rung: played.rung,
            prefix: received.prefix.len(),
            length: received.length,
            capture_ms: index.capture_ms,
            video: rung.map(|(_, bytes)| bytes.into()).unwrap_or_default(),
            audio: audio.into(),
        };
        if let Some(folder) = &mut self.folder {
            folder.write_segment(&presentation, &segment).or_exit(Exit::Disk, NOT_WRITTEN)?;
        }
        self.reception.push(presentation, segment);
        tracing::debug!("GOP {} is at the gateway", played.number);
        Ok(played)
    }

    fn presentation(&mut self, run: u32, gop_ms: u32, description: Description) -> Presentation {
        if let Some((known, presentation)) = &self.shown
            && *known == description
            && (presentation.run, presentation.gop_ms) == (run, gop_ms)
        {
            return presentation.clone();
        }
        let presentation = Presentation {
            run,
            gop_ms,
            video_codec: description.video_codec.clone(),
            video_init: description.video_init.clone().into(),
            audio_codec: description.audio_codec.clone(),
            audio_init: description.audio_init.clone().into(),
            rungs: description.rungs.iter().map(|rung| (rung.width, rung.height, rung.rate)).collect(),
        };
        self.shown = Some((description, presentation.clone()));
        presentation
    }

    /// Counts a buffer without a picture, and says why there is none.
    fn on_missing(&mut self, prefix: usize, needed: Option<(usize, u32)>) {
        self.counters.without += 1;
        self.without = (self.without.0 + 1, self.without.1 + prefix);
        if self.without.0 < WITHOUT_MAX {
            return;
        }
        let mean = self.without.1 / self.without.0 as usize;
        let reason = match needed {
            Some((needed, gop_ms)) if mean < needed => {
                let rate = |bytes: usize| bytes as u64 * 8 / u64::from(gop_ms.max(1));
                format!(
                    "the path carries {} kbit/s of the video, and the lowest rung needs {} kbit/s",
                    rate(mean),
                    rate(needed)
                )
            }
            _ => "packets of the lowest rung are lost in each buffer".to_owned(),
        };
        if !std::mem::replace(&mut self.is_warned, true) {
            tracing::warn!("no picture for {} buffers: {reason}", self.without.0);
        }
        self.reception.set_note(Some(format!("No picture: {reason}.")));
    }

    fn on_other(&mut self, received: &Received) -> Result<(), Failure> {
        self.counters.foreign += 1;
        if let Some(folder) = &mut self.folder {
            return folder.write_buffer(&received.prefix).or_exit(Exit::Disk, NOT_WRITTEN);
        }
        self.others += 1;
        if self.others >= OTHER_MAX {
            let reason = "the session carries buffers of other content than video; receive the buffers into a folder: --out DIR";
            return Err(Failure::new(Exit::Other, reason));
        }
        Ok(())
    }

    /// Ends the files of the folder.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.folder.as_mut().map_or(Ok(()), Folder::finish).or_exit(Exit::Disk, NOT_WRITTEN)
    }
}

const NOT_WRITTEN: &str = "cannot write the stream to the folder of --out";

#[cfg(test)]
mod tests {
    use headwater_media::{Fragment, Init, Packer, Piece, Planned, Protection, Rung};

    use super::*;

    fn packed(count: u32) -> Vec<Vec<u8>> {
        let rung = Rung { width: 320, height: 180, rate: 50_000 };
        let plan =
            Planned { rungs: vec![rung; 2], protection: Protection::default(), places: vec![9_000; 2] };
        let mut packer = Packer::new(plan, 1_000, 7, false);
        for track in 0..2 {
            let init = Init { bytes: vec![1; 600], timescale: 1_000, codec: "avc3.64001e".into() };
            packer.push(track, Piece::Init(init)).unwrap();
        }
        let gop = |number: u32| {
            for track in 0..2 {
                let time_ms = u64::from(number) * 1_000;
                packer.push(track, Piece::Fragment(Fragment { time_ms, bytes: vec![2; 7_000] })).unwrap();
            }
            packer.poll(|_| 0).unwrap().unwrap().bytes
        };
        (0..count).map(gop).collect()
    }

    fn received(bytes: &[u8], prefix: usize) -> Received {
        Received { length: Some(bytes.len()), prefix: bytes[..prefix].to_vec(), ..Received::default() }
    }

    #[test]
    fn a_prefix_without_a_rung_is_told_with_both_rates() {
        let reception = VideoReception::default();
        let mut player = Player::new(reception.clone(), None);
        for bytes in packed(6) {
            let played = player.on_buffer(&received(&bytes, 5_000)).unwrap();
            assert_eq!((played.rung, played.rungs), (None, 2));
        }
        assert_eq!((player.counters().buffers, player.counters().without), (6, 6));
        let note = reception.note().unwrap();
        assert!(note.contains("carries 40 kbit/s") && note.contains("needs 5"), "{note}");
    }

    #[test]
    fn foreign_buffers_between_are_counted_and_skipped() {
        let mut player = Player::new(VideoReception::default(), None);
        let buffers = packed(2);
        assert_eq!(player.on_buffer(&received(&buffers[0], 10_000)).unwrap().rung, Some(0));
        for _ in 0..5 {
            player.on_buffer(&received(b"no video, though as long as a header of video is", 48)).unwrap();
        }
        let mut forged = buffers[1].clone();
        forged[44..48].copy_from_slice(&u32::MAX.to_be_bytes());
        player.on_buffer(&received(&forged, 10_000)).unwrap();
        assert_eq!(player.on_buffer(&received(&buffers[1], buffers[1].len())).unwrap().rung, Some(1));
        assert_eq!(player.counters().foreign, 6);
    }
}

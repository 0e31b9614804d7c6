//! Last buffers of a received video: list and playlists.

use std::collections::VecDeque;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Buffers that are kept.
pub const BUFFERS_KEPT: usize = 12;
/// Buffers at the beginning of a playlist that are about to go, and are not named any more.
const LEAVING: usize = 2;
/// Most buffers without a segment that are filled in between two received buffers.
const GAP_MAX: u32 = 100;

/// Kind of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Video,
    Audio,
}

/// Tracks of a video.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presentation {
    /// Number that distinguishes runs of a sender.
    pub run: u32,
    /// Time of a buffer in milliseconds.
    pub gop_ms: u32,
    /// Codec string of the video: letters, digits and dots.
    pub video_codec: String,
    /// Init segment of the video.
    pub video_init: Bytes,
    /// Codec string of the audio; empty without audio.
    pub audio_codec: String,
    /// Init segment of the audio.
    pub audio_init: Bytes,
    /// Width, height and rate in bit/s of each rung, smallest first.
    pub rungs: Vec<(u16, u16, u32)>,
}

impl Presentation {
    /// Returns the playlist (RFC 8216) that names `video.m3u8` and `audio.m3u8`.
    pub fn master_playlist(&self) -> String {
        let (width, height, rate) = self.rungs.last().copied().unwrap_or_default();
        let (mut codecs, mut media, mut audio) = (self.video_codec.clone(), "", "");
        if !self.audio_codec.is_empty() {
            codecs = format!("{codecs},{}", self.audio_codec);
            media = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"audio\",DEFAULT=YES,AUTOSELECT=YES,URI=\"audio.m3u8\"\n";
            audio = ",AUDIO=\"audio\"";
        }
        format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n{media}#EXT-X-STREAM-INF:BANDWIDTH={},CODECS=\"{codecs}\",\
             RESOLUTION={width}x{height}{audio}\nvideo.m3u8\n",
            rate.saturating_mul(2)
        )
    }
}

/// Received buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VideoSegment {
    /// Number of the group of pictures.
    pub number: u32,
    /// Rung of the video, if any is whole.
    pub rung: Option<usize>,
    /// Bytes up to the first hole.
    pub prefix: usize,
    /// Bytes of the whole buffer, if known.
    pub length: Option<usize>,
    /// Time of capture in milliseconds since 1970; 0 if not known.
    pub capture_ms: u64,
    /// Fragments of the video; empty without a rung.
    pub video: Bytes,
    /// Fragments of the audio; empty if the audio is not whole.
    pub audio: Bytes,
}

/// Reception of a video, shared by a receiver and a gateway.
///
/// Memory: [`BUFFERS_KEPT`] buffers.
#[derive(Clone, Debug, Default)]
pub struct VideoReception(Arc<Mutex<Reception>>);

#[derive(Debug, Default)]
struct Reception {
    instance: Instance,
    presentation: Option<Presentation>,
    /// Segments with their public numbers, which never go back.
    segments: VecDeque<Numbered>,
    next: u64,
    /// Runs of the sender whose segments have gone from the list.
    discontinuities: u64,
    note: Option<String>,
}

/// Number that distinguishes receptions: public numbers of another reception begin anew.
#[derive(Debug)]
struct Instance(u64);

impl Default for Instance {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

#[derive(Debug)]
struct Numbered {
    public: u64,
    run: u32,
    is_first: bool,
    segment: VideoSegment,
}

impl VideoReception {
    fn lock(&self) -> MutexGuard<'_, Reception> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a buffer. Buffers that are missing before become gaps. A buffer of an earlier number of the same
    /// run is dropped.
    pub fn push(&self, presentation: Presentation, segment: VideoSegment) {
        self.lock().push(presentation, segment);
    }

    /// Sets a line for people who wait for pictures.
    pub fn set_note(&self, note: Option<String>) {
        self.lock().note = note;
    }

    /// Returns the line for people who wait for pictures.
    pub fn note(&self) -> Option<String> {
        self.lock().note.clone()
    }

    /// Returns the received buffers as JSON.
    pub(crate) fn list(&self) -> String {
        let reception = self.lock();
        let run = reception.presentation.as_ref().map(|shown| shown.run);
        let buffer = |numbered: &Numbered| {
            let segment = &numbered.segment;
            serde_json::json!({
                "n": numbered.public, "gop": segment.number, "rung": segment.rung, "prefix": segment.prefix,
                "length": segment.length, "capture": segment.capture_ms, "audio": !segment.audio.is_empty(),
            })
        };
        let buffers = reception.segments.iter().filter(|numbered| Some(numbered.run) == run);
        let buffers: Vec<_> = buffers.map(buffer).collect();
        let shown = reception.presentation.clone().unwrap_or_default();
        let rung = |(width, height, rate): &(u16, u16, u32)| serde_json::json!({ "width": width, "height": height, "rate": rate });
        serde_json::json!({
            "instance": format!("{:016x}", reception.instance.0), "run": shown.run, "gop": shown.gop_ms, "note": reception.note, "video": shown.video_codec,
            "audio": shown.audio_codec, "rungs": shown.rungs.iter().map(rung).collect::<Vec<_>>(), "buffers": buffers,
        })
        .to_string()
    }

    /// Returns the playlist that names the playlists of the tracks; `None` before the first buffer.
    pub(crate) fn master_playlist(&self) -> Option<String> {
        self.lock().presentation.as_ref().map(Presentation::master_playlist)
    }

    /// Returns the playlist of a track; `None` before the first buffer.
    pub(crate) fn playlist(&self, kind: Kind) -> Option<String> {
        let reception = self.lock();
        let shown = reception.presentation.as_ref()?;
        let leaving = if reception.segments.len() >= BUFFERS_KEPT { LEAVING } else { 0 };
        let first = reception.segments.get(leaving)?.public;
        let (letter, init) = match kind {
            Kind::Video => ('v', "init-video"),
            Kind::Audio => ('a', "init-audio"),
        };
        let gone = reception.segments.iter().take(leaving).filter(|numbered| numbered.is_first).count();
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{first}\n#EXT-X-DISCONTINUITY-SEQUENCE:{}\n#EXT-X-MAP:URI=\"{init}\"\n",
            shown.gop_ms.div_ceil(1_000),
            reception.discontinuities + gone as u64
        );
        for Numbered { public, is_first, segment, .. } in reception.segments.iter().skip(leaving) {
            let bytes = if letter == 'v' { &segment.video } else { &segment.audio };
            let gap = if bytes.is_empty() { "#EXT-X-GAP\n" } else { "" };
            let break_ = if *is_first { "#EXT-X-DISCONTINUITY\n" } else { "" };
            let seconds = f64::from(shown.gop_ms) / 1_000.0;
            let _written = write!(text, "{break_}{gap}#EXTINF:{seconds:.3},\n{letter}{public}.m4s\n");
        }
        Some(text)
    }

    pub(crate) fn init(&self, kind: Kind) -> Option<Bytes> {
        let reception = self.lock();
        let shown = reception.presentation.as_ref()?;
        let init = if kind == Kind::Video { &shown.video_init } else { &shown.audio_init };
        Some(init.clone()).filter(|init| !init.is_empty())
    }

    pub(crate) fn segment(&self, kind: Kind, number: u64) -> Option<Bytes> {
        let reception = self.lock();
        let numbered = reception.segments.iter().find(|numbered| numbered.public == number)?;
        let bytes = if kind == Kind::Video { &numbered.segment.video } else { &numbered.segment.audio };
        Some(bytes.clone()).filter(|bytes| !bytes.is_empty())
    }
}

impl Reception {
    fn push(&mut self, presentation: Presentation, segment: VideoSegment) {
        let last = self.segments.back().filter(|last| last.run == presentation.run);
        let last = last.map(|last| last.segment.number);
        let missing = match last {
            Some(last) if segment.number <= last => return,
            Some(last) => segment.number - last - 1,
            None => 0,
        };
        let run = presentation.run;
        let is_first = last.is_none() && !self.segments.is_empty();
        if missing > GAP_MAX {
            // The numbers are of no use to players, which would wait.
            self.insert(run, true, segment);
        } else {
            for number in segment.number - missing..segment.number {
                self.insert(run, false, VideoSegment { number, ..VideoSegment::default() });
            }
            self.insert(run, is_first, segment);
        }
        self.presentation = Some(presentation);
    }

    fn insert(&mut self, run: u32, is_first: bool, segment: VideoSegment) {
        if self.segments.len() == BUFFERS_KEPT {
            let gone = self.segments.pop_front();
            self.discontinuities += u64::from(gone.is_some_and(|gone| gone.is_first));
        }
        self.segments.push_back(Numbered { public: self.next, run, is_first, segment });
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presentation(run: u32) -> Presentation {
        Presentation {
            run,
            gop_ms: 1_000,
            video_codec: "avc3.64001e".into(),
            video_init: Bytes::from_static(b"init"),
            audio_codec: "opus".into(),
            audio_init: Bytes::from_static(b"audio"),
            rungs: vec![(320, 180, 56_000), (640, 360, 420_000)],
        }
    }

    fn segment(number: u32) -> VideoSegment {
        let video = Bytes::from(vec![u8::try_from(number % 256).unwrap()]);
        VideoSegment { number, rung: Some(1), prefix: 10, video, ..VideoSegment::default() }
    }

    #[test]
    fn the_last_buffers_are_kept_and_missing_buffers_are_gaps() {
        let reception = VideoReception::default();
        assert!(reception.playlist(Kind::Video).is_none() && reception.master_playlist().is_none());
        for number in (5..30).filter(|number| *number != 27) {
            reception.push(presentation(1), segment(number));
        }
        let playlist = reception.playlist(Kind::Video).unwrap();
        assert!(playlist.contains("#EXT-X-MEDIA-SEQUENCE:15\n"), "{playlist}");
        assert!(playlist.contains("#EXT-X-GAP\n#EXTINF:1.000,\nv22.m4s"), "{playlist}");
        assert_eq!(playlist.matches("GAP").count(), 1);
        assert_eq!(reception.segment(Kind::Video, 24), Some(Bytes::from_static(&[29])));
        assert_eq!((reception.segment(Kind::Video, 12), reception.segment(Kind::Video, 22)), (None, None));
        assert_eq!(reception.playlist(Kind::Audio).unwrap().matches("GAP").count(), 10, "no audio came");
        assert!(
            reception.master_playlist().unwrap().contains("CODECS=\"avc3.64001e,opus\",RESOLUTION=640x360")
        );
    }

    #[test]
    fn a_sender_that_starts_again_is_a_discontinuity_and_numbers_go_on() {
        let reception = VideoReception::default();
        (100..105).for_each(|number| reception.push(presentation(1), segment(number)));
        reception.push(presentation(1), segment(99));
        (0..3).for_each(|number| reception.push(presentation(2), segment(number)));
        let playlist = reception.playlist(Kind::Video).unwrap();
        assert!(playlist.contains("v4.m4s\n#EXT-X-DISCONTINUITY\n#EXTINF:1.000,\nv5.m4s"), "{playlist}");
        let list: serde_json::Value = serde_json::from_str(&reception.list()).unwrap();
        assert_eq!((list["run"].as_u64(), list["buffers"].as_array().unwrap().len()), (Some(2), 3));
        (3..20).for_each(|number| reception.push(presentation(2), segment(number)));
        assert!(reception.playlist(Kind::Video).unwrap().contains("DISCONTINUITY-SEQUENCE:1"));
    }

    /// Players of a receiver that has started again begin anew, too.
    #[test]
    fn receptions_of_one_run_are_told_apart() {
        let instance = |reception: &VideoReception| {
            reception.push(presentation(1), segment(1));
            let list: serde_json::Value = serde_json::from_str(&reception.list()).unwrap();
            list["instance"].as_str().unwrap().to_owned()
        };
        let reception = VideoReception::default();
        assert_eq!(instance(&reception), instance(&reception));
        assert_ne!(instance(&reception), instance(&VideoReception::default()));
    }

    #[test]
    fn a_forged_number_takes_no_memory() {
        let reception = VideoReception::default();
        reception.push(presentation(1), segment(1));
        reception.push(presentation(1), segment(u32::MAX));
        assert_eq!(reception.lock().segments.len(), 2);
    }
}

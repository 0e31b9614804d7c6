//! Folder for a received stream: `headwater stream receive --out`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use headwater_web::{Presentation, VideoSegment};

/// Folder with the segments and playlists of a video, or with a file for each buffer of other content.
pub struct Folder {
    path: PathBuf,
    /// Number of the next buffer.
    next: u32,
    /// Playlists of video and audio, once video has come.
    playlists: Option<[Option<File>; 2]>,
    run: Option<u32>,
    /// Runs of the sender.
    runs: u32,
}

impl Folder {
    pub const fn new(path: PathBuf) -> Self {
        Self { path, next: 0, playlists: None, run: None, runs: 0 }
    }

    /// Writes the beginning of a buffer that is no video.
    pub fn write_buffer(&mut self, prefix: &[u8]) -> io::Result<()> {
        let name = format!("{:08}.bin", self.next);
        self.next = self.next.wrapping_add(1);
        fs::write(self.path.join(name), prefix)
    }

    /// Writes the segments of a buffer, and names the segments in the playlists.
    pub fn write_segment(&mut self, presentation: &Presentation, segment: &VideoSegment) -> io::Result<()> {
        if self.run != Some(presentation.run) {
            self.begin(presentation)?;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let seconds = f64::from(presentation.gop_ms) / 1_000.0;
        let tracks = [('v', &segment.video), ('a', &segment.audio)];
        let Some(playlists) = &mut self.playlists else { return Ok(()) };
        for (playlist, (letter, bytes)) in playlists.iter_mut().zip(tracks) {
            let Some(playlist) = playlist else { continue };
            let name = format!("{letter}{number:08}.m4s");
            if bytes.is_empty() {
                write!(playlist, "#EXT-X-GAP\n#EXTINF:{seconds:.3},\n{name}\n")?;
            } else {
                fs::write(self.path.join(&name), bytes)?;
                write!(playlist, "#EXTINF:{seconds:.3},\n{name}\n")?;
            }
        }
        Ok(())
    }

    /// Begins a run of the sender.
    fn begin(&mut self, presentation: &Presentation) -> io::Result<()> {
        self.run = Some(presentation.run);
        self.runs += 1;
        let inits = [("video", &presentation.video_init), ("audio", &presentation.audio_init)];
        if self.playlists.is_none() {
            let head = format!(
                "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-PLAYLIST-TYPE:EVENT\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
                presentation.gop_ms.div_ceil(1_000),
                self.next
            );
            let create = |name: &str| {
                let mut file = File::create(self.path.join(format!("{name}.m3u8")))?;
                file.write_all(head.as_bytes()).map(|()| file)
            };
            let audio = (!presentation.audio_init.is_empty()).then(|| create("audio")).transpose()?;
            self.playlists = Some([Some(create("video")?), audio]);
            fs::write(self.path.join("master.m3u8"), presentation.master_playlist())?;
        }
        let Some(playlists) = &mut self.playlists else { return Ok(()) };
        for (playlist, (name, bytes)) in playlists.iter_mut().zip(inits) {
            let Some(playlist) = playlist else { continue };
            let name = format!("init-{name}-{}.mp4", self.runs);
            fs::write(self.path.join(&name), bytes)?;
            let discontinuity = if self.runs > 1 { "#EXT-X-DISCONTINUITY\n" } else { "" };
            writeln!(playlist, "{discontinuity}#EXT-X-MAP:URI=\"{name}\"")?;
        }
        Ok(())
    }

    /// Ends the playlists.
    pub fn finish(&mut self) -> io::Result<()> {
        self.playlists
            .iter_mut()
            .flatten()
            .flatten()
            .try_for_each(|playlist| playlist.write_all(b"#EXT-X-ENDLIST\n"))
    }
}

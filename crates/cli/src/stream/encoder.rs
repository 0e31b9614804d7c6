//! ffmpeg as a child process: its command line, the sockets of the tracks, and its end.
//!
//! The child starts before this process is confined, and connects one Unix socket for each track, in a folder
//! that only this user can enter. The folder is gone before the first packet is sent.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_media::Rung;
use tempfile::TempDir;

use super::ffmpeg::{Ffmpeg, INTERVAL};
use super::source::Source;
use crate::args::{Codec, VideoArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::system::{LocalListener, kill_group, private_folder};

/// Longest time until ffmpeg has opened its outputs.
const START_TIME: Duration = Duration::from_secs(30);
/// Time for ffmpeg to end after its outputs are closed, before a kill.
const END_TIME: Duration = Duration::from_secs(2);
/// Last lines of ffmpeg that are kept.
const LINES_MAX: usize = 20;
/// Longest line that is kept, in bytes.
const LINE_BYTES_MAX: u64 = 2 << 10;
/// Rate of the audio in bit/s.
pub const AUDIO_RATE: u64 = 16_000;
/// Largest picture that an encoder of one thread encodes in real time, in pixels.
const ONE_THREAD_PIXELS: u32 = 640 * 360;

/// Encoding as demanded.
pub struct Encoding<'a> {
    /// Options of the video.
    pub args: &'a VideoArgs,
    /// Rungs, smallest first.
    pub rungs: &'a [Rung],
    /// Pictures of a second.
    pub fps: u32,
    /// Time of a GOP in milliseconds.
    pub gop_ms: u32,
    /// Program.
    pub ffmpeg: &'a Ffmpeg<'a>,
}

/// Track of an encoder.
pub type Track = Box<dyn Read + Send>;

/// Running ffmpeg. No thread serves ffmpeg before [`Encoder::watch`], so that all threads of a confined
/// process are confined.
pub struct Encoder {
    child: Option<Child>,
    /// Program that copies standard input to ffmpeg, if the source is standard input.
    feeder: Option<Child>,
    /// Standard error of ffmpeg, before a thread reads the lines.
    stderr: Option<ChildStderr>,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Encoder {
    /// Starts ffmpeg, and waits until ffmpeg has opened a connection for each track: the rungs, then the
    /// audio, if any.
    ///
    /// # Errors
    /// If ffmpeg ends or stalls before.
    pub fn start(encoding: &Encoding<'_>, source: &mut Source) -> Result<(Self, Vec<Track>), Failure> {
        let folder = folder(encoding)?;
        let count = encoding.rungs.len() + usize::from(source.audio.is_some());
        if encoding.args.codec == Codec::Av1 {
            return prepare(encoding, source, &folder, count);
        }
        let mut listeners = Vec::new();
        let tried = "cannot make a socket for ffmpeg; is the path of TMPDIR shorter than 80 bytes?";
        for track in 0..count {
            let path = folder.path().join(track_name(track, "sock"));
            let listener = LocalListener::bind(&path).or_exit(Exit::Disk, tried)?;
            if path.exists() {
                encoding.ffmpeg.give(&path)?;
            }
            listeners.push(listener);
        }
        let address = |track: usize| listeners[track].address().to_owned();
        let mut encoder = Self::spawn(encoding, source, &address, &folder)?;
        let began = Instant::now();
        let mut tracks: Vec<Track> = Vec::new();
        for listener in &listeners {
            tracks.push(encoder.accept(encoding.ffmpeg, listener, began)?);
        }
        let closed = folder.close();
        closed.or_exit(Exit::Disk, "cannot delete the folder of ffmpeg's sockets")?;
        Ok((encoder, tracks))
    }

    fn spawn(
        encoding: &Encoding<'_>,
        source: &mut Source,
        path: &dyn Fn(usize) -> String,
        folder: &TempDir,
    ) -> Result<Self, Failure> {
        let ffmpeg = encoding.ffmpeg;
        let tried = format!("cannot run '{}'", ffmpeg.program.display());
        let feeder = source.head.take().map(|head| feed(ffmpeg, &head, folder)).transpose()?;
        let mut encoder = Self { child: None, feeder, stderr: None, lines: Arc::default() };
        let input = encoder.feeder.as_mut().and_then(|feeder| feeder.stdout.take());
        let mut command = ffmpeg.command(ffmpeg.program);
        command.args(["-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+verbose", "-y"]);
        command.args(&source.input).args(outputs(encoding, source, path));
        command
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        tracing::debug!("{command:?}");
        let mut child = command.spawn().or_exit(Exit::Other, tried)?;
        encoder.stderr = child.stderr.take();
        encoder.child = Some(child);
        Ok(encoder)
    }

    fn accept(
        &mut self,
        ffmpeg: &Ffmpeg<'_>,
        listener: &LocalListener,
        began: Instant,
    ) -> Result<Track, Failure> {
        loop {
            ffmpeg.check_signals()?;
            match listener.accept() {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).or_exit(Exit::Other, "cannot accept a connection of ffmpeg"),
            }
            if let Some(status) = self.ended() {
                return Err(self.failure(status));
            }
            if began.elapsed() > START_TIME {
                return Err(self.stalled("opened no output", START_TIME));
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Reads the lines of ffmpeg on a thread.
    pub fn watch(&mut self) -> Result<(), Failure> {
        let Some(stderr) = self.stderr.take() else { return Ok(()) };
        let kept = Arc::clone(&self.lines);
        let thread = std::thread::Builder::new().name("ffmpeg".into());
        let thread = thread.spawn(move || keep_lines(BufReader::new(stderr), &kept));
        thread.map(drop).or_exit(Exit::Other, "cannot start a thread")
    }

    /// Waits until ffmpeg ends, and keeps the last lines.
    fn wait(&mut self, ffmpeg: &Ffmpeg<'_>) -> Result<ExitStatus, Failure> {
        let (stderr, lines) = (self.stderr.take(), Arc::clone(&self.lines));
        std::thread::scope(|scope| {
            scope.spawn(move || stderr.map(|stderr| keep_lines(BufReader::new(stderr), &lines)));
            loop {
                if let Some(status) = self.ended() {
                    return Ok(status);
                }
                if let Err(interrupted) = ffmpeg.check_signals() {
                    self.kill();
                    return Err(interrupted);
                }
                std::thread::sleep(INTERVAL);
            }
        })
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Waits for the end of ffmpeg after the end of its tracks.
    ///
    /// # Errors
    /// If ffmpeg has failed, with its last lines.
    pub fn finish(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < END_TIME {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(status)),
                None => std::thread::sleep(INTERVAL),
            }
        }
        Ok(())
    }

    /// Returns the failure of an encoder that gives nothing.
    pub fn stalled(&mut self, symptom: &str, time: Duration) -> Failure {
        self.kill();
        let reason = format!(
            "ffmpeg has {symptom} for {} s, and the session is closed; is the source on, and this machine fast enough?{}",
            time.as_secs(),
            self.last_lines()
        );
        Failure::new(Exit::Other, reason)
    }

    fn failure(&mut self, status: ExitStatus) -> Failure {
        self.kill();
        // A thread may still read the last lines.
        std::thread::sleep(INTERVAL * 5);
        let reason = format!("ffmpeg has failed ({status}), and the session is closed{}", self.last_lines());
        Failure::new(Exit::Other, reason)
    }

    fn last_lines(&mut self) -> String {
        if let Some(stderr) = self.stderr.take() {
            keep_lines(BufReader::new(stderr), &self.lines);
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let shown: Vec<_> = lines.iter().map(String::as_str).collect();
        if shown.is_empty() {
            String::new()
        } else {
            format!("; its last lines: {}", super::plain(&shown.join("; ")))
        }
    }

    /// Ends ffmpeg and the programs that a script in its place has started.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_group(&mut child);
        }
        if let Some(mut feeder) = self.feeder.take() {
            feeder.kill().ok();
            feeder.wait().ok();
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a program that copies the first bytes of standard input, which were read already, and the rest.
fn feed(ffmpeg: &Ffmpeg<'_>, head: &[u8], folder: &TempDir) -> Result<Child, Failure> {
    let path = folder.path().join("head");
    fs::write(&path, head).or_exit(Exit::Disk, "cannot write to the folder of ffmpeg's sockets")?;
    ffmpeg.give(&path)?;
    let feeder = ffmpeg.command("cat").arg(path).arg("-").stdout(Stdio::piped()).spawn();
    feeder.or_exit(Exit::Other, "cannot run 'cat', which passes standard input to ffmpeg")
}

/// Keeps the last lines, and tells of pictures of another size or rate.
fn keep_lines(mut lines: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    let mut pictures: Option<String> = None;
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if let Some(found) = input_pictures(&line) {
            if pictures.as_ref().is_some_and(|known| *known != found) {
                tracing::warn!(
                    "the source has changed its pictures to {found}; the video goes on with the size and rate of its start"
                );
            }
            pictures = Some(found);
        }
        // Reports on normal work tell nothing of a failure.
        if line.is_empty() || ["[verbose]", "[info]"].iter().any(|level| line.contains(level)) {
            continue;
        }
        tracing::debug!("ffmpeg: {}", super::plain(&line));
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

/// Returns the pictures that a line of ffmpeg reports at the input of its filters: `640x360 at 25/1`.
fn input_pictures(line: &str) -> Option<String> {
    let (_, report) =
        line.split_once("input from stream").filter(|(graph, _)| graph.starts_with("[graph"))?;
    let field = |name: &str| {
        let value = report.split(' ').find_map(|word| word.strip_prefix(name))?;
        value.bytes().all(|octet| octet.is_ascii_digit() || octet == b'/').then_some(value)
    };
    Some(format!("{}x{} at {}", field("w:")?, field("h:")?, field("fr:")?))
}

fn track_name(track: usize, suffix: &str) -> String {
    format!("t{track}.{suffix}")
}

/// Makes the folder of the tracks, which only the user of ffmpeg can enter.
fn folder(encoding: &Encoding<'_>) -> Result<TempDir, Failure> {
    let tried = "cannot make a folder for ffmpeg's sockets; is there room in TMPDIR?";
    let folder = tempfile::Builder::new().prefix("headwater-video-").tempdir().or_exit(Exit::Disk, tried)?;
    private_folder(folder.path()).or_exit(Exit::Disk, tried)?;
    encoding.ffmpeg.give(folder.path())?;
    Ok(folder)
}

/// Encodes a file as a whole, and returns its tracks.
fn prepare(
    encoding: &Encoding<'_>,
    source: &mut Source,
    folder: &TempDir,
    count: usize,
) -> Result<(Encoder, Vec<Track>), Failure> {
    if !source.is_file {
        let reason = "--codec av1 is for files: SVT-AV1 exceeds its rate too far for live sources; leave --codec out, or encode the source into a file first";
        return Err(Failure::new(Exit::Usage, reason));
    }
    let path = |track| folder.path().join(track_name(track, "mp4"));
    let mut encoder = Encoder::spawn(encoding, source, &|track| path(track).display().to_string(), folder)?;
    let status = encoder.wait(encoding.ffmpeg)?;
    if !status.success() {
        return Err(encoder.failure(status));
    }
    let tried = "cannot read the encoded video";
    let open = |track| File::open(path(track)).map(|file| Box::new(file) as Track).or_exit(Exit::Disk, tried);
    let tracks = (0..count).map(open).collect::<Result<_, _>>()?;
    Ok((encoder, tracks))
}

/// Returns the filters and outputs of ffmpeg.
fn outputs(encoding: &Encoding<'_>, source: &Source, path: &dyn Fn(usize) -> String) -> Vec<String> {
    let Encoding { args, rungs, fps, gop_ms, .. } = encoding;
    let pictures = fps * gop_ms / 1_000;
    let split: String = (0..rungs.len()).map(|rung| format!("[s{rung}]")).collect();
    let mut filters = format!("[0:v:0]fps={fps}:start_time=0,split={}{split}", rungs.len());
    for (number, rung) in rungs.iter().enumerate() {
        let Rung { width, height, .. } = rung;
        filters += &format!(
            ";[s{number}]scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:-1:-1,setsar=1,\
             format=yuv420p[v{number}]"
        );
    }
    let mut words = vec!["-filter_complex".to_owned(), filters];
    for (number, rung) in rungs.iter().enumerate() {
        let rate = rung.rate;
        add(&mut words, &format!("-map [v{number}] -g {pictures} -keyint_min {pictures}"));
        let codec = match args.codec {
            Codec::H264 => format!(
                "-c:v libx264 -preset veryfast -bf 3 -sc_threshold 0 -b:v {rate} -maxrate {rate} -bufsize {} \
                 -tag:v avc3 -bsf:v dump_extra=freq=keyframe",
                rate / 2
            ),
            Codec::Av1 => {
                format!("-c:v libsvtav1 -preset 8 -b:v {rate} -svtav1-params rc=1:scd=0:pred-struct=2")
            }
        };
        add(&mut words, &codec);
        if u32::from(rung.width) * u32::from(rung.height) <= ONE_THREAD_PIXELS {
            add(&mut words, "-threads 1");
        }
        // Composition offsets below zero let pictures begin at time 0, as the audio does.
        add(&mut words, "-f mp4 -movflags +frag_keyframe+empty_moov+default_base_moof+negative_cts_offsets");
        words.push(path(number));
    }
    if let Some(audio) = source.audio {
        let micros = u64::from(*gop_ms) * 1_000;
        let codec = format!(
            "-map {audio} -c:a libopus -b:a {AUDIO_RATE} -ac 1 -vbr off -frame_duration 20 -f mp4 -movflags \
             +empty_moov+default_base_moof -frag_duration {micros}"
        );
        add(&mut words, &codec);
        words.push(path(rungs.len()));
    }
    words
}

/// Adds words that are separated by blanks.
fn add(words: &mut Vec<String>, line: &str) {
    words.extend(line.split(' ').map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_found_in_the_lines_of_ffmpeg() {
        let line = "[graph 0 input from stream 0:0 @ 0x5] [verbose] w:640 h:360 pixfmt:yuv420p tb:1/90000 fr:25/1 sar:1/1";
        assert_eq!(input_pictures(line).as_deref(), Some("640x360 at 25/1"));
        assert_eq!(input_pictures("[Parsed_scale_2 @ 0x5] [verbose] w:320 h:180 flags:''"), None);
    }
}

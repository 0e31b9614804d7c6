//! Source of a video: checks of ffmpeg and of the source, and the input options of ffmpeg.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::ffmpeg::{Ffmpeg, INTERVAL, LOOK_TIME};
use crate::args::{Codec, VideoArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::system::{is_character_device, wait_for_input};

/// Most bytes of standard input by which ffmpeg finds out about the streams.
const HEAD_BYTES: usize = 1 << 20;
/// Longest wait for these bytes, from the first on.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Size of the test picture.
const TEST_SIZE: (u16, u16) = (640, 360);
/// Clock in the test picture, which needs a font.
const CLOCK: &str = "drawtext=text='%{localtime\\:%T}':fontsize=64:fontcolor=white:box=1:boxcolor=black@0.7:\
     boxborderw=12:x=(w-tw)/2:y=h-th-34";
/// Largest side of a picture that is sent.
const SIDE_MAX: u16 = 8_192;
/// Last lines of ffmpeg in an error.
const LINES_SHOWN: usize = 4;

/// Source as ffmpeg reads the source.
#[derive(Debug)]
pub struct Source {
    /// Words before the filters.
    pub input: Vec<String>,
    /// Name of the stream of audio, if there is any.
    pub audio: Option<&'static str>,
    /// Width and height of the pictures.
    pub size: (u16, u16),
    /// First bytes of standard input, if the source is standard input.
    pub head: Option<Vec<u8>>,
    /// Whether the source is a file that ends.
    pub is_file: bool,
}

/// Refuses an ffmpeg that is missing, or lacks an encoder. Returns whether the encoder of audio is there.
pub fn check_ffmpeg(ffmpeg: &Ffmpeg<'_>, args: &VideoArgs) -> Result<bool, Failure> {
    let looked = ffmpeg.look(&["-encoders"], None)?;
    let (listed, ffmpeg) = (looked.out, ffmpeg.program.display());
    if !looked.status.is_some_and(|status| status.success()) {
        let problem = match looked.lines.lines().last() {
            Some(line) if looked.status.is_some() => line.trim_start_matches("headwater: ").to_owned(),
            _ => looked.status.map_or("it does not end".to_owned(), |status| status.to_string()),
        };
        let reason = format!(
            "cannot run '{ffmpeg}', which encodes the video: {}; install the package ffmpeg, or name the program by --ffmpeg",
            crate::stream::plain(&problem)
        );
        return Err(Failure::new(Exit::Usage, reason));
    }
    let has = |encoder: &str| listed.split_whitespace().any(|word| word == encoder);
    let (encoder, library) = match args.codec {
        Codec::H264 => ("libx264", "x264"),
        Codec::Av1 => ("libsvtav1", "SVT-AV1"),
    };
    if !has(encoder) {
        let reason = format!(
            "'{ffmpeg}' has no encoder {encoder}; install an ffmpeg with {library}, such as the package ffmpeg of Debian, \
             Ubuntu or Arch, or choose another --codec"
        );
        return Err(Failure::new(Exit::Usage, reason));
    }
    if !has("libopus") && !args.no_audio {
        tracing::warn!("'{ffmpeg}' has no encoder libopus: the video is sent without audio");
    }
    Ok(has("libopus"))
}

impl Source {
    /// Looks at the source of the arguments.
    ///
    /// # Errors
    /// If ffmpeg cannot read the source, or the source has no video.
    pub fn open(ffmpeg: &Ffmpeg<'_>, args: &VideoArgs, has_opus: bool, fps: u32) -> Result<Self, Failure> {
        let name = args.source.as_deref().unwrap_or("test");
        let wants_audio = has_opus && !args.no_audio;
        if name == "test" {
            return Self::test(ffmpeg, wants_audio, fps);
        }
        let head = if name == "-" { Some(read_head(ffmpeg)?) } else { None };
        let url = if name == "-" { "pipe:0" } else { name };
        let mut input: Vec<String> = Vec::new();
        if let Some(format) = args.input_format.as_deref().or(device_format(name)) {
            input.extend(["-f".to_owned(), format.to_owned()]);
        }
        input.extend(["-i".to_owned(), url.to_owned()]);
        let report = ffmpeg.look(&input, head.as_deref())?.lines;
        let streams = Streams::parse(&report);
        let Some(size) = streams.video else {
            return Err(Failure::new(Exit::Usage, not_read(name, &report)));
        };
        let audio = streams.has_audio.then_some("0:a:0").filter(|_| wants_audio);
        if audio.is_none() && wants_audio {
            tracing::warn!("'{name}' has no audio: the video is sent without audio");
        }
        let is_file = std::fs::metadata(name).is_ok_and(|metadata| metadata.is_file());
        let is_web = ["http:", "https:", "file:"].iter().any(|scheme| name.starts_with(scheme));
        if (is_file || is_web) && args.codec == Codec::H264 {
            // A live source paces itself.
            input.insert(0, "-re".to_owned());
        }
        Ok(Self { input, audio, size, head, is_file })
    }

    fn test(ffmpeg: &Ffmpeg<'_>, wants_audio: bool, fps: u32) -> Result<Self, Failure> {
        let (width, height) = TEST_SIZE;
        let plain = format!("testsrc2=size={width}x{height}:rate={fps}");
        let clock = format!("{plain},{CLOCK}");
        let picture = if can_draw(ffmpeg, &clock)? { clock } else { plain };
        // A short tone each second.
        let tone = "aevalsrc=exprs='if(lt(mod(t,1),0.06),0.2*sin(2*PI*880*t),0)':s=48000";
        let words = ["-re", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", tone];
        Ok(Self {
            input: words.map(str::to_owned).into(),
            audio: wants_audio.then_some("1:a:0"),
            size: TEST_SIZE,
            head: None,
            is_file: false,
        })
    }
}

/// Whether ffmpeg has a filter and a font for a picture.
fn can_draw(ffmpeg: &Ffmpeg<'_>, picture: &str) -> Result<bool, Failure> {
    let words = ["-f", "lavfi", "-i", picture, "-frames:v", "1", "-f", "null", "-"];
    Ok(ffmpeg.look(&words, None)?.status.is_some_and(|status| status.success()))
}

/// Returns ffmpeg's format of a device.
fn device_format(name: &str) -> Option<&'static str> {
    let is_device = |kind: &str| name.starts_with(kind) && Path::new(name).exists();
    (is_device("/dev/video") && is_character_device(Path::new(name))).then_some("v4l2")
}

/// Reads the first bytes of standard input.
fn read_head(ffmpeg: &Ffmpeg<'_>) -> Result<Vec<u8>, Failure> {
    let mut input = std::io::stdin().lock();
    let (mut head, mut until) = (Vec::new(), None::<Instant>);
    let mut piece = vec![0; 64 << 10];
    while head.len() < HEAD_BYTES {
        ffmpeg.check_signals()?;
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        if !wait_for_input(INTERVAL) {
            continue;
        }
        let bytes =
            input.read(&mut piece).or_exit(Exit::Disk, "cannot read the video from standard input")?;
        if bytes == 0 {
            break;
        }
        head.extend_from_slice(&piece[..bytes]);
        until.get_or_insert_with(|| Instant::now() + HEAD_TIME);
    }
    Ok(head)
}

/// Streams that ffmpeg has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Streams {
    /// Width and height.
    video: Option<(u16, u16)>,
    has_audio: bool,
}

impl Streams {
    fn parse(report: &str) -> Self {
        let mut streams = Self::default();
        for line in report.lines().filter(|line| line.trim_start().starts_with("Stream #0:")) {
            if line.contains(": Audio:") {
                streams.has_audio = true;
            } else if line.contains(": Video:") && !line.contains("(attached pic)") && streams.video.is_none()
            {
                streams.video = line.split([',', ' ']).find_map(size);
            }
        }
        streams
    }
}

/// Returns the width and height of a word such as `640x360`.
fn size(word: &str) -> Option<(u16, u16)> {
    let (width, height) = word.split_once('x')?;
    let side = |text: &str| text.parse().ok().filter(|side| (16..=SIDE_MAX).contains(side));
    side(width).zip(side(height))
}

/// Returns the reason why a source is not sent.
fn not_read(name: &str, report: &str) -> String {
    if report.lines().any(|line| line.starts_with("Input #0")) {
        return format!("'{name}' has no video that ffmpeg can read; name a source with video");
    }
    let about = |line: &&str| !line.trim().is_empty() && !line.contains("At least one output file");
    let lines: Vec<&str> = report.lines().filter(about).collect();
    let shown = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("; ");
    if shown.is_empty() {
        return format!(
            "ffmpeg has found nothing in '{name}' within {} s; is the source on?",
            LOOK_TIME.as_secs()
        );
    }
    format!("ffmpeg cannot read '{name}': {}", crate::stream::plain(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_in_the_lines_of_ffmpeg() {
        let report = "\
Input #0, mov,mp4,m4a,3gp,3g2,mj2, from 'film.mp4':
  Stream #0:0[0x1](und): Video: h264 (High) (avc1 / 0x31637661), yuv420p(tv, bt709), 1280x720 [SAR 1:1 DAR 16:9], 25 fps
  Stream #0:1[0x2](und): Audio: aac (LC) (mp4a / 0x6134706D), 48000 Hz, stereo, fltp, 128 kb/s";
        assert_eq!(Streams::parse(report), Streams { video: Some((1_280, 720)), has_audio: true });
        let cover = "Input #0\n  Stream #0:1: Video: mjpeg, yuvj420p, 600x600, 90k tbr (attached pic)\n  Stream #0:0: Audio: mp3";
        assert_eq!(Streams::parse(cover), Streams { video: None, has_audio: true });
        assert!(not_read("song.mp3", cover).contains("no video"));
        assert!(not_read("gone", "gone: No such file or directory\n").contains("No such file"));
        assert_eq!(size("0x31637661"), None);
    }
}

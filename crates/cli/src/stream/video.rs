//! Video of an encoder, as buffers of a stream.

use std::cell::Cell;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater::stream::{BUFFER_TIME_MAX, StreamFeed};
use headwater_media::{Ladder, Packed, Packer, Planned, Splitter, Submitted, submission_time};

use super::encoder::{AUDIO_RATE, Encoder, Encoding, Track};
use super::ffmpeg::Ffmpeg;
use super::input::offer;
use super::receive::BUFFER_BYTES_MAX;
use super::source::{self, Source};
use crate::args::{Codec, VideoArgs};
use crate::exit::{Exit, Failure, OrExit};

/// Frame rates to choose from.
const FRAME_RATES: [u32; 4] = [25, 24, 30, 20];
/// Lateness of the encoder in milliseconds, from which people are told.
const LATE_MS: u64 = 3_000;
/// Longest time without a picture.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Pieces of tracks that wait for the packer, at most of this length.
const PIECES_MAX: usize = 64;
const PIECE_BYTES: usize = 64 << 10;
/// Time of Opus packets, which fill a GOP of audio.
const OPUS_MS: u32 = 20;

/// Video that is ready to be sent.
pub struct Video {
    encoder: Encoder,
    tracks: Vec<Track>,
    plan: Planned,
    percentages: Vec<u8>,
    gop_ms: u32,
    fps: u32,
    has_audio: bool,
    /// Whether the whole video is encoded already.
    is_prepared: bool,
}

/// Bytes of a track; none at its end.
type TrackBytes = (usize, Vec<u8>);

impl Video {
    /// Looks at the source, plans the rungs for a maximum rate and a base rate in bit/s, and starts the
    /// encoder.
    ///
    /// # Errors
    /// If ffmpeg is missing, the source cannot be read, or the rungs do not fit the rates.
    pub fn start(
        args: &VideoArgs,
        (rate, base_rate): (u64, u64),
        symbol_bytes: u16,
        ffmpeg: &Ffmpeg<'_>,
    ) -> Result<Self, Failure> {
        let (gop_ms, fps) = times(args)?;
        // Wrong rates are found before ffmpeg is looked for.
        let ladder = |size, has_audio: bool| Ladder {
            rate,
            base_rate,
            percentages: args.rungs.clone(),
            gop_ms,
            frame_rate: fps,
            size,
            scales: args.codec == Codec::H264,
            audio_rate: if has_audio { AUDIO_RATE } else { 0 },
            symbol_bytes,
            protection: args.repair,
        };
        let plan = |size, has_audio| {
            let planned = ladder(size, has_audio).plan();
            planned.or_exit(Exit::Usage, "cannot lay out the video of --max-rate, --rungs and --gop")
        };
        plan((640, 360), !args.no_audio)?;
        let has_opus = source::check_ffmpeg(ffmpeg, args)?;
        let mut source = Source::open(ffmpeg, args, has_opus, fps)?;
        let has_audio = source.audio.is_some();
        let plan = plan(source.size, has_audio)?;
        if plan.places.last().is_some_and(|bytes| *bytes > BUFFER_BYTES_MAX) {
            let reason = format!(
                "a buffer of --max-rate in --gop would have more than {} MiB, the most that receivers take; lower one of both",
                BUFFER_BYTES_MAX >> 20
            );
            return Err(Failure::new(Exit::Usage, reason));
        }
        let encoding = Encoding { args, rungs: &plan.rungs, fps, gop_ms, ffmpeg };
        let (encoder, tracks) = Encoder::start(&encoding, &mut source)?;
        let (percentages, is_prepared) = (args.rungs.clone(), args.codec == Codec::Av1);
        Ok(Self { encoder, tracks, plan, percentages, gop_ms, fps, has_audio, is_prepared })
    }

    /// Returns the rungs for people.
    pub fn describe(&self) -> String {
        let rung = |(rung, percent): (&headwater_media::Rung, &u8)| {
            format!("{percent} % {}x{} {} kbit/s", rung.width, rung.height, rung.rate / 1_000)
        };
        let rungs: Vec<_> = self.plan.rungs.iter().zip(&self.percentages).map(rung).collect();
        let audio = if self.has_audio { "with audio" } else { "without audio" };
        format!("{} pictures a second, {audio}; {}", self.fps, rungs.join(", "))
    }

    /// Submits the buffers on a thread, until the source ends.
    pub fn submit(self, feed: StreamFeed) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
        let run = move || {
            let result = self.run(&feed);
            feed.finish();
            result
        };
        Builder::new().name("video".to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
    }

    fn run(mut self, feed: &StreamFeed) -> Result<(), Failure> {
        self.encoder.watch()?;
        let pieces = self.read_tracks()?;
        let tracks = self.plan.rungs.len() + usize::from(self.has_audio);
        let mut splitters: Vec<Splitter> = (0..tracks).map(|_| Splitter::default()).collect();
        let mut packer = Packer::new(self.plan.clone(), self.gop_ms, run_number(), self.has_audio);
        let mut pacer = Pacer::new(self.gop_ms, self.is_prepared);
        let (mut open, mut last_piece) = (tracks, Instant::now());
        let mut over = Overruns::default();
        let tried = "cannot pack the video of ffmpeg";
        while open > 0 {
            let (track, bytes) = match pieces.recv_timeout(super::send::STEP) {
                Ok(piece) => piece,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if last_piece.elapsed() > SILENCE_MAX => {
                    return Err(self.encoder.stalled("given no picture", SILENCE_MAX));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if feed.is_ended() {
                        return Ok(());
                    }
                    continue;
                }
            };
            last_piece = Instant::now();
            open -= usize::from(bytes.is_empty());
            for piece in splitters[track].push(&bytes).or_exit(Exit::Other, tried)? {
                packer.push(track, piece).or_exit(Exit::Other, tried)?;
            }
            while let Some(packed) =
                packer.poll(|number| pacer.capture_ms(number)).or_exit(Exit::Other, tried)?
            {
                over.count(&packed);
                tracing::debug!("GOP {} is submitted", packed.number);
                let time = pacer.next(Instant::now());
                if !offer(feed, &packed.bytes.into(), time)? {
                    return Ok(());
                }
                // The wait for the session is no silence of the encoder.
                last_piece = Instant::now();
            }
        }
        self.encoder.finish()
    }

    /// Reads each track on a thread.
    fn read_tracks(&mut self) -> Result<Receiver<TrackBytes>, Failure> {
        let (sender, pieces) = sync_channel(PIECES_MAX);
        for (number, track) in self.tracks.drain(..).enumerate() {
            let sender = sender.clone();
            let thread = Builder::new().name(format!("track {number}"));
            thread
                .spawn(move || read_track(number, track, &sender))
                .or_exit(Exit::Other, "cannot start a thread")?;
        }
        Ok(pieces)
    }
}

fn read_track(number: usize, mut track: Track, sender: &SyncSender<TrackBytes>) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // The end of ffmpeg reports the reason.
        let bytes = track.read(&mut piece).unwrap_or(0);
        if sender.send((number, piece[..bytes].to_vec())).is_err() || bytes == 0 {
            return;
        }
    }
}

/// Returns the time of a GOP in milliseconds, and the pictures of a second.
fn times(args: &VideoArgs) -> Result<(u32, u32), Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let shown = humantime::format_duration(args.gop);
    let longest = Duration::from(BUFFER_TIME_MAX).min(Duration::from_secs(10));
    let gop_ms = u32::try_from(args.gop.as_millis()).unwrap_or(u32::MAX);
    if args.gop > longest
        || args.gop < Duration::from_millis(200)
        || !args.gop.subsec_nanos().is_multiple_of(1_000_000)
    {
        return Err(usage(format!(
            "--gop {shown} is out of range: 200ms to {} s, in whole milliseconds",
            longest.as_secs()
        )));
    }
    if !gop_ms.is_multiple_of(OPUS_MS) && !args.no_audio {
        return Err(usage(format!(
            "--gop {shown} is no multiple of {OPUS_MS} ms, the time of a packet of audio; write for example 480ms, or --no-audio"
        )));
    }
    let fits = |fps: &u32| (fps * gop_ms).is_multiple_of(1_000);
    match args.fps {
        Some(fps) if fits(&fps) => Ok((gop_ms, fps)),
        Some(fps) => Err(usage(format!("--gop {shown} has no whole number of pictures at --fps {fps}; change one of both"))),
        None => FRAME_RATES.into_iter().find(fits).map(|fps| (gop_ms, fps)).ok_or_else(|| {
            usage(format!("--gop {shown} has no whole number of pictures at 25, 24, 30 and 20 pictures a second; choose another --gop, or --fps"))
        }),
    }
}

/// Number that distinguishes this run of a sender.
fn run_number() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_millis() & u128::from(u32::MAX)).unwrap_or(0)
}

/// Times of buffers, and times of capture.
struct Pacer {
    gop: Duration,
    /// Whether the encoder's clock is of no account.
    is_prepared: bool,
    /// End of the time of the last submitted buffer.
    until: Option<Instant>,
    last: Option<Submitted>,
    /// Estimated time of the first picture, in milliseconds since 1970.
    began_ms: Cell<u64>,
    /// Whether people know that the encoder is too slow.
    is_warned: Cell<bool>,
}

impl Pacer {
    fn new(gop_ms: u32, is_prepared: bool) -> Self {
        let gop = Duration::from_millis(gop_ms.into());
        Self {
            gop,
            is_prepared,
            until: None,
            last: None,
            began_ms: Cell::new(u64::MAX),
            is_warned: Cell::new(is_prepared),
        }
    }

    /// Returns the time in which a buffer that is ready now is to be sent.
    fn next(&mut self, now: Instant) -> Duration {
        let begins = self.until.map_or(now, |until| until.max(now));
        let lead = begins - now;
        self.last = Some(Submitted { lead }).filter(|_| !self.is_prepared);
        let time = submission_time(self.gop, self.last);
        tracing::debug!("lead of the encoder: {} ms", lead.as_millis());
        self.until = Some(begins + time);
        time
    }

    /// Returns the estimated time of capture of a GOP that is ready now: a GOP is ready no sooner than after
    /// its last picture, so the earliest GOP counts.
    fn capture_ms(&self, number: u32) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::from(number) * u64::try_from(self.gop.as_millis()).unwrap_or(0);
        let latest = u64::try_from(now - self.gop.as_millis()).unwrap_or(0).saturating_sub(since);
        // The clocks of source and system may differ: the estimate may rise by 1 ms in each buffer.
        self.began_ms.set(self.began_ms.get().saturating_add(1).min(latest));
        let late = latest - self.began_ms.get();
        if late > LATE_MS && !self.is_warned.replace(true) {
            tracing::warn!(
                "the encoder is {late} ms behind the source: this machine is too slow for these rungs; leave a rung out, or \
                 lower --fps or --max-rate"
            );
        }
        self.began_ms.get() + since
    }
}

/// Counter of buffers with rungs beyond their place.
#[derive(Default)]
struct Overruns {
    buffers: u64,
    over: u64,
}

impl Overruns {
    /// Buffers after which the share is looked at.
    const ENOUGH: u64 = 30;

    fn count(&mut self, packed: &Packed) {
        self.buffers += 1;
        self.over += u64::from(packed.over > 0);
        if packed.over > 0 {
            tracing::debug!("GOP {}: {} rungs exceed their place", packed.number, packed.over);
        }
        if self.buffers == Self::ENOUGH && self.over * 4 > self.buffers {
            tracing::warn!(
                "{} of {} buffers are larger than planned: slow receivers miss pictures; raise --max-rate",
                self.over,
                self.buffers
            );
        }
    }
}

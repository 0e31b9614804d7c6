//! `headwater demo --video`: a test picture to three receivers of 5, 30 and 100 % of the rate, on one page.

use std::thread::{Builder, JoinHandle};

use headwater::stream::{
    StreamReceiveOptions, StreamReceiveSession, StreamReceiveUpdate, StreamSendOptions, StreamSendSession,
};
use headwater::{CongestionControl, LayerOptions, ListenOptions, SenderKey, Session, StopHandle, Trust};
use headwater_media::Ladder;
use headwater_proto::Rate;
use headwater_proto::controls;
use headwater_web::{GatewayOptions, GatewaySocket, VideoReception};

use super::cast::Loopback;
use super::clip;
use crate::args::{DemoArgs, VideoArgs};
use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};
use crate::receive::error_failure;
use crate::screen::Screen;
use crate::send::{failure, server_failed};
use crate::shutdown::Shutdown;
use crate::stream::ffmpeg::Ffmpeg;
use crate::stream::player::Player;
use crate::stream::source::check_ffmpeg;
use crate::stream::video::Video;

/// Rates of the sender and of the receivers.
const RATE: Rate = Rate::from_kilobits(2_400);
const RECEIVERS: [(&str, Rate); 3] = [
    ("5 %: 120 kbit/s", Rate::from_kilobits(120)),
    ("30 %: 720 kbit/s", Rate::from_kilobits(720)),
    ("100 %: 2.4 Mbit/s", RATE),
];

/// Plays until a signal.
pub fn run(args: &DemoArgs, screen: &Screen) -> Result<Exit, Failure> {
    let address = args.view.http_or_default();
    if !address.ip().is_loopback() {
        let reason = format!(
            "--http {address}: the demo shows its video to browsers on this machine alone; leave the address out, or show              video to other machines by 'headwater stream send --video test' and 'headwater stream receive --http {address}'"
        );
        return Err(Failure::new(Exit::Usage, reason));
    }
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let socket = GatewaySocket::open(address).map_err(server_failed)?;
    let shutdown = Shutdown::install(capture.as_ref())?;
    let loopback = Loopback::find()?;
    let mut session = sender(&loopback, capture.as_ref())?;
    let part_bytes = session.started().part_bytes;
    let video = VideoArgs::test(args.video.ffmpeg.clone().unwrap_or_else(|| "ffmpeg".into()));
    let is_asked = || shutdown.is_asked();
    let ffmpeg = Ffmpeg::new(&video.ffmpeg, None, &is_asked)?;
    let video = match check_ffmpeg(&ffmpeg, &video) {
        Ok(_) => Some(Video::start(&video, (RATE.as_bits(), BASE_BITS), part_bytes, &ffmpeg)?),
        Err(failure) if failure.exit == Exit::Interrupted => return Err(failure),
        Err(_) => {
            screen.say("ffmpeg or its encoder is missing: a prepared clip is played; install the package ffmpeg for a live picture");
            None
        }
    };
    let mut receivers = Vec::new();
    let mut threads = Vec::new();
    for (name, rate) in RECEIVERS {
        let reception = VideoReception::default();
        threads.push(receive(&loopback, rate, session.started().tsi, reception.clone(), &shutdown)?);
        receivers.push((name.to_owned(), reception));
    }
    let about = "One sender of 2.4 Mbit/s, three receivers on this machine, each with the picture that its own rate carries";
    let page = socket.address();
    let options = GatewayOptions { about: about.to_owned(), names: Vec::new(), receivers };
    let gateway = socket.serve(options).map_err(server_failed)?;
    let submitter = match video {
        Some(video) => video.submit(session.feed())?,
        None => clip::submit(plan(part_bytes)?, session.feed())?,
    };
    screen.say(&format!("open http://{page}/ in a browser; Ctrl-C ends the demo"));
    shutdown.watch(session.stop_handle());
    let result = session.run(&mut |_| {});
    shutdown.stop_sessions();
    for thread in threads {
        drop(thread.join());
    }
    drop(gateway);
    result.map_err(|error| failure("cannot send over loopback", error))?;
    submitter.join().unwrap_or_else(|_panic| Err(Failure::new(Exit::Other, "a thread has failed")))?;
    capture.map_or(Ok(()), Capture::finish)?;
    Ok(if shutdown.is_asked() { Exit::Interrupted } else { Exit::Ok })
}

/// Rate of the base channel in bit/s.
const BASE_BITS: u64 = 120_000;

/// Plans the rungs of the prepared clip.
fn plan(part_bytes: u16) -> Result<headwater_media::Planned, Failure> {
    let ladder = Ladder {
        rate: RATE.as_bits(),
        base_rate: BASE_BITS,
        percentages: vec![5, 30, 100],
        gop_ms: 1_000,
        frame_rate: 25,
        size: (640, 360),
        scales: true,
        audio_rate: 16_000,
        symbol_bytes: part_bytes,
        protection: 4,
    };
    ladder.plan().or_exit(Exit::Other, "cannot lay out the demo's clip")
}

fn sender(loopback: &Loopback, capture: Option<&Capture>) -> Result<StreamSendSession, Failure> {
    let layers = LayerOptions::new().with_max_rate(RATE).with_idle_rate(None);
    let control = CongestionControl::layered(&controls::DEFAULT, layers);
    let control = control.ok_or_else(|| Failure::new(Exit::Other, "the default control has no layers"))?;
    let key = SenderKey::ephemeral().or_exit(Exit::Other, "cannot make a key")?;
    let mut options =
        StreamSendOptions { signing: Some(key), ..StreamSendOptions::new(loopback.group, control) };
    options.link.interface = Some(loopback.interface.clone());
    options.link.trace = capture.map(Capture::hook);
    StreamSendSession::open(options).map_err(|error| failure("cannot send over loopback", error))
}

fn receive(
    loopback: &Loopback,
    rate: Rate,
    tsi: u32,
    reception: VideoReception,
    shutdown: &Shutdown,
) -> Result<JoinHandle<()>, Failure> {
    let listen = ListenOptions {
        interface: Some(loopback.interface.clone()),
        tsi: Some(tsi.into()),
        max_rate: Some(rate),
        trust: Trust::First,
        ..ListenOptions::new(loopback.group)
    };
    let options = StreamReceiveOptions { wants_pieces: true, ..StreamReceiveOptions::new(listen) };
    let mut session = StreamReceiveSession::open(options)
        .map_err(|error| error_failure("cannot receive over loopback", error))?;
    let stop: StopHandle = session.stop_handle();
    shutdown.watch(stop.clone());
    let run = move || {
        let mut player = Player::new(reception, None);
        let ended = session.run(&mut |update| {
            if let StreamReceiveUpdate::Buffer(buffer) = update
                && let Err(failure) = player.on_buffer(&buffer)
            {
                tracing::error!("{}", failure.chain());
                stop.stop();
            }
        });
        if let Err(error) = ended {
            tracing::error!("a receiver has failed: {error}");
        }
    };
    Builder::new().name("receiver".to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
}

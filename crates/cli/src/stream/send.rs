//! `headwater stream send`.

use std::thread::JoinHandle;
use std::time::Duration;

use headwater::stream::{
    StreamSendOptions, StreamSendProgress, StreamSendSession, StreamSendUpdate, StreamStarted,
};
use headwater::{
    BASE_RATE_DEFAULT, CongestionControl, LayerOptions, MAX_RATE_DEFAULT, RateLimit, SenderKey, Session,
};
use headwater_proto::Rate;
use headwater_proto::controls;
use headwater_proto::eventlog::{ControlState, Event, Progress, Role};

use super::ffmpeg::Ffmpeg;
use super::input;
use super::video::Video;
use crate::args::StreamSendArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::receive::{link_changed, settle};
use crate::sandbox::{Paths, confine};
use crate::screen::{Screen, rate, time};
use crate::send::{RateWarning, average, failure};
use crate::shutdown::{EarlySignals, Shutdown};

/// Default maximum rate of a session with video.
const VIDEO_RATE: Rate = Rate::from_kilobits(2_400);

/// Content of a session.
enum Content {
    Video(Video),
    Input(input::Form),
}

/// Sends a stream.
pub fn run(args: &StreamSendArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    if args.keys.next_key.is_some() {
        let reason = "--next-key is for sessions of files: a stream announces no key; leave --next-key out";
        return Err(Failure::new(Exit::Usage, reason));
    }
    let form = input::form(args)?;
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater stream send")?;
    let key = keys::signing_key(&args.keys, false)?;
    let written = keys::written(key.as_ref());
    let session = open(args, key, capture.as_ref())?;
    let signals = EarlySignals::catch()?;
    let content = match form {
        Some(form) => Content::Input(form),
        // ffmpeg starts before the confinement, which forbids to start programs.
        None => {
            let rates = (max_rate(args).as_bits(), base_rate(args).as_bits());
            let is_asked = || signals.is_asked();
            let ffmpeg = Ffmpeg::new(&args.video.ffmpeg, args.confine.user.as_deref(), &is_asked)?;
            Content::Video(Video::start(&args.video, rates, session.started().part_bytes, &ffmpeg)?)
        }
    };
    confine(&args.confine, &Paths { write: written.into_iter().collect(), ..Paths::default() })?;
    let outcome = signals
        .serve(capture.as_ref())
        .and_then(|shutdown| transfer(args, content, session, &shutdown, &screen, &mut events));
    settle(outcome, events, capture)
}

fn max_rate(args: &StreamSendArgs) -> Rate {
    args.max_rate.unwrap_or(if args.stdin { MAX_RATE_DEFAULT } else { VIDEO_RATE })
}

fn base_rate(args: &StreamSendArgs) -> Rate {
    args.base_rate.unwrap_or(BASE_RATE_DEFAULT)
}

fn open(
    args: &StreamSendArgs,
    key: Option<SenderKey>,
    capture: Option<&Capture>,
) -> Result<StreamSendSession, Failure> {
    let layers = LayerOptions::new()
        .with_max_rate(max_rate(args))
        .with_base_rate(base_rate(args))
        .with_groups(args.groups.groups)
        .with_silence(args.groups.silence.map(Into::into))
        .with_idle_rate(None);
    let control = args.congestion_control.unwrap_or(&controls::DEFAULT);
    let control = CongestionControl::layered(control, layers).ok_or_else(|| {
        let name = control.name;
        Failure::new(Exit::Usage, format!("--congestion-control {name} has no layers, by which a receiver gets a part of each buffer; leave the option out"))
    })?;
    let options = StreamSendOptions {
        tsi: args.tsi,
        part_bytes: args.symbol_size,
        signing: key,
        group_key: keys::group_key(args.keys.group_key.as_deref())?,
        ..StreamSendOptions::new(args.network.sender(&args.link, capture), control)
    };
    let tried = format!("cannot send to {}", args.network.group);
    StreamSendSession::open(options).map_err(|error| failure(&tried, error))
}

/// Thread that submits buffers, until the content ends.
type Submitter = JoinHandle<Result<(), Failure>>;

fn transfer(
    args: &StreamSendArgs,
    content: Content,
    mut session: StreamSendSession,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let started = session.started();
    screen.say(&describe(&started, &content));
    events.emit(None, &started_event(&started));
    let submitter: Submitter = match content {
        Content::Video(video) => video.submit(session.feed())?,
        Content::Input(form) => input::submit(form, session.feed())?,
    };
    let line = screen.line("sending");
    let mut last = Progress::default();
    let mut warning = RateWarning::new(false);
    let result = session.run(&mut |update| match update {
        StreamSendUpdate::Progress(sent) => {
            last = progress(&sent);
            line.show(&[rate(sent.rate_bits), format!("{} buffers", sent.stats.buffers)]);
            events.emit(None, &Event::SessionProgress(last.clone()));
        }
        StreamSendUpdate::LinkChanged(change) => {
            link_changed(&change);
            let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
            events.emit(None, &event);
        }
        StreamSendUpdate::RateLimited(limit) => {
            warning.warn(&limit);
            let RateLimit { asked, sent, ceiling } = limit;
            events.emit(None, &Event::RateLimited { asked, rate: sent, ceiling });
        }
    });
    screen.clear();
    let tried = format!("cannot send to {}", args.network.group);
    let summary =
        result.map_err(|error| events.session_failed(Role::Sender, last.clone(), failure(&tried, error)))?;
    // A thread that still waits for standard input ends with the process.
    let submitted = if submitter.is_finished() || !args.stdin {
        submitter.join().unwrap_or_else(|_panic| Err(Failure::new(Exit::Other, "a thread has failed")))
    } else {
        Ok(())
    };
    if let Err(failure) = submitted {
        return Err(events.session_failed(Role::Sender, last, failure));
    }
    let (outcome, exit) =
        if summary.is_complete { ("completed", Exit::Ok) } else { ("interrupted", Exit::Interrupted) };
    events.emit(None, &Event::SessionEnded { role: Role::Sender, outcome, progress: last });
    let StreamSendProgress { elapsed, stats, .. } = summary.progress;
    let mean = rate(average(stats.bytes, elapsed));
    screen.say(&format!("sent {} buffers in {}, {mean} on average", stats.buffers, time(elapsed)));
    Ok(exit)
}

fn describe(started: &StreamStarted, content: &Content) -> String {
    let to = format!("to {} on {}", started.group, started.interface);
    match content {
        Content::Video(video) => format!("sending video {to}: {}", video.describe()),
        Content::Input(form) => format!("sending buffers of {} {to}", humantime::format_duration(form.time)),
    }
}

fn started_event(started: &StreamStarted) -> Event<'_> {
    Event::SessionStarted {
        role: Role::Sender,
        group: started.group.to_string(),
        interface: Some(&started.interface),
        tsi: Some(started.tsi.into()),
        control: Some(ControlState {
            name: started.congestion_control.name(),
            channels: started.channels,
            rate_max: started.congestion_control.rate_max().as_bits(),
        }),
    }
}

fn progress(sent: &StreamSendProgress) -> Progress {
    Progress {
        packets: sent.stats.packets,
        bytes: sent.stats.bytes,
        rate: sent.rate_bits,
        unsent: sent.unsent,
        ..Progress::default()
    }
}

/// Time for which a submitter waits before it looks whether the session has ended.
pub const STEP: Duration = Duration::from_millis(200);

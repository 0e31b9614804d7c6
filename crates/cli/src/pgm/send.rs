//! `headwater pgm send`.

use std::io;
use std::thread::{self, JoinHandle};

use headwater::pgm::{
    LeSbccModule, LeSbccOptions, PgmControl, PgmFeed, PgmFeedError, PgmSendOptions, PgmSendOutcome,
    PgmSendSession, PgmSendStarted, PgmSendUpdate,
};
use headwater::{MAX_RATE_DEFAULT, RateLimit, Session};
use headwater_proto::eventlog::{ControlState, Event, Progress, Role};

use super::messages::{Messages, ReadError};
use super::progress::{of_sender, parts_of_sender, summary_of_sender};
use super::receive::identifier;
use crate::args::{Form, FramingName, PgmControlName, PgmSendArgs};
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure, OrExit};
use crate::receive::{link_changed, settle};
use crate::sandbox::{Paths, confine};
use crate::screen::Screen;
use crate::send::{RateWarning, failure};
use crate::shutdown::Shutdown;

/// Sends the messages of standard input.
pub fn run(args: &PgmSendArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let control = control(args)?;
    let (form, size) = form(args)?;
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater pgm send")?;
    confine(&args.confine, &Paths::default())?;
    let session = open(args, control, capture.as_ref())?;
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| transfer(args, (form, size), session, &shutdown, &screen, &mut events));
    settle(outcome, events, capture)
}

/// Returns the form of messages on standard input, and the length of messages of a form without lengths; 0
/// for any length.
fn form(args: &PgmSendArgs) -> Result<(Form, usize), Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
    let framing = args.wire.framing;
    match (super::form(args.form, framing)?, args.size) {
        (Some(Form::Bytes), None) if framing == FramingName::Bytes => Ok((Form::Bytes, 0)),
        (_, Some(_)) if framing == FramingName::Bytes => {
            usage("--size is for messages, and a stream of bytes has no messages: leave --size out")
        }
        (None | Some(Form::Bytes), Some(size)) => Ok((Form::Bytes, size as usize)),
        (Some(Form::Bytes), None) => usage("messages of bytes need a length: add for example --size 1400"),
        (Some(_), Some(_)) => usage("--size is for --form bytes: leave --size out, or the other --form"),
        (form, None) => Ok((form.unwrap_or(Form::Lines), 0)),
    }
}

/// Returns the control of the options `--congestion-control` and rates.
pub fn control(args: &PgmSendArgs) -> Result<PgmControl, Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
    let module = match (args.congestion_control, args.rate) {
        (None | Some(PgmControlName::Fixed), Some(rate)) => {
            if args.max_rate.is_some() || args.start_rate.is_some() {
                return usage("--rate is constant: leave --max-rate and --start-rate out, or --rate");
            }
            return Ok(PgmControl::Fixed(rate));
        }
        (Some(PgmControlName::Fixed), None) => {
            return usage("a fixed rate needs a value: add for example --rate 10M");
        }
        (Some(_), Some(_)) => {
            return usage("--rate is for the control 'fixed'; the maximum rate of LE-SBCC is --max-rate");
        }
        (None | Some(PgmControlName::LeSbcc), None) => LeSbccModule::Aimd,
        (Some(PgmControlName::LeSbccTfrc), None) => LeSbccModule::Tfrc,
        (Some(PgmControlName::LeSbccSqrt), None) => LeSbccModule::Sqrt,
        (Some(PgmControlName::LeSbccIiad), None) => LeSbccModule::Iiad,
    };
    let max_rate = args.max_rate.unwrap_or(MAX_RATE_DEFAULT);
    if args.start_rate.is_some_and(|start| start > max_rate) {
        return usage("--start-rate is above --max-rate: lower --start-rate, or raise --max-rate");
    }
    let options = LeSbccOptions::new().with_module(module).with_max_rate(max_rate);
    Ok(PgmControl::LeSbcc(options.with_start_rate(args.start_rate)))
}

pub fn open(
    args: &PgmSendArgs,
    control: PgmControl,
    capture: Option<&Capture>,
) -> Result<PgmSendSession, Failure> {
    let options = PgmSendOptions {
        wire: args.wire.options(),
        window_packets: args.wire.window,
        payload_bytes: args.payload,
        linger: args.linger,
        ..PgmSendOptions::new(args.network.sender(&args.link, capture), control)
    };
    let tried = format!("cannot send to {}", args.network.group);
    PgmSendSession::open(options).map_err(|error| failure(&tried, error))
}

fn transfer(
    args: &PgmSendArgs,
    form: (Form, usize),
    mut session: PgmSendSession,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let reader = read(form, &session)?;
    let line = screen.line("sending");
    let mut last = Progress::default();
    let mut warning = RateWarning::new(args.rate.is_some());
    let result = session.run(&mut |update| match update {
        PgmSendUpdate::Started(started) => {
            screen.say(&format!("sending messages to {} on {}", started.group, started.interface));
            events.emit(None, &started_event(&started));
        }
        PgmSendUpdate::Progress(sent) => {
            last = of_sender(&sent);
            line.show(&parts_of_sender(&sent));
            events.emit(None, &Event::SessionProgress(last.clone()));
        }
        PgmSendUpdate::RateLimited(limit) => {
            warning.warn(&limit);
            let RateLimit { asked, sent, ceiling } = limit;
            events.emit(None, &Event::RateLimited { asked, rate: sent, ceiling });
        }
        PgmSendUpdate::LinkChanged(change) => {
            link_changed(&change);
            let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
            events.emit(None, &event);
        }
    });
    screen.clear();
    let tried = format!("cannot send to {}", args.network.group);
    let summary =
        result.map_err(|error| events.session_failed(Role::Sender, last.clone(), failure(&tried, error)))?;
    // A thread that still waits for standard input ends with the process.
    let read = if reader.is_finished() { reader.join().unwrap_or(Ok(())) } else { Ok(()) };
    if let Err(failure) = read {
        return Err(events.session_failed(Role::Sender, last, failure));
    }
    let (outcome, exit) = match summary.outcome {
        PgmSendOutcome::Completed => ("completed", Exit::Ok),
        PgmSendOutcome::Interrupted => ("interrupted", Exit::Interrupted),
    };
    events.emit(None, &Event::SessionEnded { role: Role::Sender, outcome, progress: last });
    screen.say(&summary_of_sender(&summary.progress));
    Ok(exit)
}

fn started_event(started: &PgmSendStarted) -> Event<'_> {
    Event::SessionStarted {
        role: Role::Sender,
        group: started.group.to_string(),
        interface: Some(&started.interface),
        tsi: Some(identifier(started.gsi)),
        control: Some(ControlState {
            name: started.control.name(),
            channels: 1,
            rate_max: started.control.rate_max().as_bits(),
        }),
    }
}

/// Reads standard input on a thread, so that a read without end delays no shutdown.
fn read(
    (form, size): (Form, usize),
    session: &PgmSendSession,
) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
    let (feed, bytes_max) = (session.feed(), session.started().message_bytes_max);
    let run = move || {
        let messages = Messages::new(io::stdin().lock(), form, size, bytes_max);
        let result = hand_over(messages, &feed);
        feed.finish();
        result.map_err(not_read)
    };
    let thread = thread::Builder::new().name("standard input".to_owned()).spawn(run);
    thread.or_exit(Exit::Other, "cannot start a thread")
}

fn hand_over(mut messages: Messages<impl io::BufRead>, feed: &PgmFeed) -> Result<(), ReadError> {
    let mut message = Vec::new();
    while messages.next(&mut message)? {
        match feed.send(&message) {
            Ok(()) => {}
            // The end of the session reports the reason.
            Err(PgmFeedError::Ended) => return Ok(()),
            Err(PgmFeedError::TooLong { max, .. }) => return Err(ReadError::TooLong { bytes_max: max }),
        }
    }
    Ok(())
}

fn not_read(error: ReadError) -> Failure {
    match error {
        ReadError::TooLong { bytes_max } => Failure::new(
            Exit::Usage,
            format!(
                "a message is longer than {bytes_max} bytes, the capacity of half a window; all messages before were \
                 sent; set a larger --window, or another --form"
            ),
        ),
        ReadError::Truncated => Failure::new(
            Exit::Usage,
            "standard input ends within a message; all messages before were sent; does the input have --form lengths?",
        ),
        ReadError::Io(error) => {
            let error = anyhow::Error::from(error).context("cannot read messages from standard input");
            Failure::of(Exit::Disk, error)
        }
    }
}

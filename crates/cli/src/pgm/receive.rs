//! `headwater pgm receive`.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};

use headwater::pgm::{
    PgmReceiveOptions, PgmReceiveOutcome, PgmReceiveSession, PgmReceiveSummary, PgmReceiveUpdate,
};
use headwater::{ListenOptions, Session, StopHandle};
use headwater_proto::eventlog::{Event, Progress, Role};
use headwater_wire::pgm::Gsi;

use super::messages;
use super::progress::{of_receiver, parts_of_receiver, summary_of_receiver};
use crate::args::{Form, PgmReceiveArgs};
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure, OrExit};
use crate::receive::{error_failure, link_changed, settle};
use crate::sandbox::{Paths, confine};
use crate::screen::Screen;
use crate::shutdown::Shutdown;

/// Receives messages to standard output or to a file.
pub fn run(args: &PgmReceiveArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    if args.output.json && args.out.is_none() {
        let reason =
            "events and messages cannot both go to standard output: write messages to a file with --out FILE";
        return Err(Failure::new(Exit::Usage, reason));
    }
    let form = super::form(args.form, args.wire.framing)?.unwrap_or(Form::Lines);
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater pgm receive")?;
    confine(&args.confine, &Paths { file: args.out.clone(), ..Paths::default() })?;
    let session = open(args, capture.as_ref())?;
    let out = Out::open(args, form, session.stop_handle())?;
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| transfer(args, session, out, &shutdown, &screen, &mut events));
    settle(outcome, events, capture)
}

pub fn open(args: &PgmReceiveArgs, capture: Option<&Capture>) -> Result<PgmReceiveSession, Failure> {
    let listen = args.network.receiver(&args.listen, capture)?;
    let options = PgmReceiveOptions {
        wire: args.wire.options(),
        nak_port: args.nak_port,
        payload_bytes: args.payload,
        window_packets: args.wire.window,
        message_bytes_max: u32::try_from(args.message_max.0).unwrap_or(u32::MAX),
        ..PgmReceiveOptions::new(ListenOptions { timeout: args.timeout, ..listen })
    };
    let tried = format!("cannot receive from {}", args.network.group);
    PgmReceiveSession::open(options).map_err(|error| error_failure(&tried, error))
}

/// Output of messages. A failed write stops the session.
struct Out {
    form: Form,
    out: Box<dyn Write>,
    stop: StopHandle,
    failed: Option<io::Error>,
}

impl Out {
    fn open(args: &PgmReceiveArgs, form: Form, stop: StopHandle) -> Result<Self, Failure> {
        let out: Box<dyn Write> = match &args.out {
            Some(path) => {
                let file = File::create(path);
                let tried = format!("cannot write messages to '{}'", path.display());
                Box::new(BufWriter::new(file.or_exit(Exit::Disk, tried)?))
            }
            // The buffer of standard output would write each line separately.
            None => Box::new(BufWriter::new(io::stdout().lock())),
        };
        Ok(Self { form, out, stop, failed: None })
    }

    fn write(&mut self, message: &[u8]) {
        if self.failed.is_none() {
            let written = messages::write(&mut self.out, self.form, message);
            self.keep(written);
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            let flushed = self.out.flush();
            self.keep(flushed);
        }
    }

    fn keep(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed = Some(error);
            self.stop.stop();
        }
    }
}

fn transfer(
    args: &PgmReceiveArgs,
    mut session: PgmReceiveSession,
    mut out: Out,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let line = screen.line("receiving");
    let group = args.network.group;
    let mut last = Progress::default();
    let result = session.run_borrowing(&mut |update| {
        let event = match &update {
            PgmReceiveUpdate::Message(message) => return out.write(message),
            PgmReceiveUpdate::Settled => return out.flush(),
            PgmReceiveUpdate::Started(started) => {
                screen.say(&format!("receiving messages from {} on {}", started.group, started.interface));
                Event::SessionStarted {
                    role: Role::Receiver,
                    group: started.group.to_string(),
                    interface: Some(&started.interface),
                    tsi: None,
                    control: None,
                }
            }
            PgmReceiveUpdate::Joined => Event::ChannelJoined { channel: 0, group: group.to_string() },
            PgmReceiveUpdate::Found { source, gsi } => {
                screen.say(&format!("session {} from {source}", identifier(*gsi)));
                Event::SessionFound { tsi: identifier(*gsi), source: source.to_string() }
            }
            PgmReceiveUpdate::Lost { packets } => {
                tracing::warn!("{packets} packets are lost for good: their messages are missing here");
                Event::MessagesLost { packets: *packets }
            }
            PgmReceiveUpdate::Progress(received) => {
                last = of_receiver(received);
                line.show(&parts_of_receiver(received));
                Event::SessionProgress(last.clone())
            }
            PgmReceiveUpdate::LinkChanged(change) => {
                link_changed(change);
                Event::LinkChanged { interface: &change.interface, state: change.state.name() }
            }
        };
        events.emit(None, &event);
    });
    screen.clear();
    out.flush();
    let tried = format!("cannot receive from {group}");
    let summary = result
        .map_err(|error| events.session_failed(Role::Receiver, last.clone(), error_failure(&tried, error)))?;
    let ended = end(args, &summary, out.failed);
    let outcome = ended.as_ref().map_or_else(|(outcome, _)| *outcome, |_| "completed");
    events.emit(None, &Event::SessionEnded { role: Role::Receiver, outcome, progress: last });
    if summary.progress.session.is_some() {
        screen.say(&summary_of_receiver(&summary.progress));
    }
    ended.map_err(|(_, failure)| failure)
}

/// Returns a word for the event log, or a word and the failure.
pub fn end(
    args: &PgmReceiveArgs,
    summary: &PgmReceiveSummary,
    failed: Option<io::Error>,
) -> Result<Exit, (&'static str, Failure)> {
    match failed {
        // The reader of the messages has closed the output.
        Some(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
        Some(error) => {
            let failure =
                Failure::of(Exit::Disk, anyhow::Error::from(error).context("cannot write messages"));
            return Err(("store-failed", failure));
        }
        None => {}
    }
    let (lost, broken) = (summary.progress.counters.lost, summary.progress.broken);
    match summary.outcome {
        PgmReceiveOutcome::Closed if lost == 0 && broken == 0 => Ok(Exit::Ok),
        PgmReceiveOutcome::Closed if lost == 0 => {
            let reason = format!(
                "{broken} messages were dropped: longer than --message-max, or of another --framing than the sender's"
            );
            Err(("incomplete", Failure::new(Exit::Incomplete, reason)))
        }
        PgmReceiveOutcome::Closed => {
            let reason = format!(
                "{lost} packets were lost for good, and messages with them; give both ends a larger --window, or the sender a lower --max-rate"
            );
            Err(("incomplete", Failure::new(Exit::Incomplete, reason)))
        }
        PgmReceiveOutcome::BrokenOff => {
            let reason = format!(
                "{lost} packets were lost for good, and the stream ends there, after {} bytes; give both ends a larger --window, or the sender a lower --max-rate",
                summary.progress.message_bytes
            );
            Err(("incomplete", Failure::new(Exit::Incomplete, reason)))
        }
        PgmReceiveOutcome::TimedOut => {
            let reason = "the source fell silent without an end of the session; was the source killed, or is the network down?";
            Err(("incomplete", Failure::new(Exit::Incomplete, reason)))
        }
        PgmReceiveOutcome::NothingReceived => {
            let failure = crate::receive::nothing_received(args.network.group);
            Err(("nothing-received", failure))
        }
        PgmReceiveOutcome::Interrupted => {
            Err(("interrupted", Failure::new(Exit::Interrupted, "interrupted before the source ended")))
        }
    }
}

/// Returns the name of a session as a number, for events.
pub fn identifier(gsi: Gsi) -> u64 {
    gsi.0.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

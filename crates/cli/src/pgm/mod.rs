//! `headwater pgm`: messages over PGM, to and from any implementation.

pub mod messages;
mod progress;
mod receive;
mod send;

use headwater::pgm::{
    Framing, PgmFeed, PgmReceiveOutcome, PgmReceiveSummary, PgmReceiveUpdate, PgmSendSummary, PgmSendUpdate,
};
use headwater::{ReceiveError, SendError};
use headwater_proto::eventlog::Event;

use crate::args::{Form, FramingName, PgmArgs, PgmCommand, PgmReceiveArgs, PgmSendArgs};
use crate::embed::{Delivery, Embedded, EmbeddedSession, SessionEnd};
use crate::exit::{Exit, Failure};
use crate::receive::error_failure;
use crate::send::embedded::Log;
use crate::send::failure;

/// Runs `headwater pgm send` or `headwater pgm receive`.
pub fn run(args: &PgmArgs) -> Result<Exit, Failure> {
    match &args.command {
        PgmCommand::Send(args) => send::run(args),
        PgmCommand::Receive(args) => receive::run(args),
    }
}

/// Returns the form of messages on standard input or output, if requested or fixed by the framing.
fn form(said: Option<Form>, framing: FramingName) -> Result<Option<Form>, Failure> {
    match (said, framing) {
        (Some(Form::Lines | Form::Lengths), FramingName::Bytes) => {
            let reason = "a stream of bytes has no messages: leave --form out, or choose another --framing";
            Err(Failure::new(Exit::Usage, reason))
        }
        (_, FramingName::Bytes) => Ok(Some(Form::Bytes)),
        (said, _) => Ok(said),
    }
}

impl From<FramingName> for Framing {
    fn from(name: FramingName) -> Self {
        match name {
            FramingName::Messages => Self::Messages,
            FramingName::Zmq => Self::Zmq,
            FramingName::Bytes => Self::Bytes,
        }
    }
}

/// Sends messages, for bindings.
pub fn embed_sender(args: &PgmSendArgs) -> Result<(Box<dyn EmbeddedSession>, PgmFeed), Failure> {
    let session = send::open(args, send::control(args)?, None)?;
    let feed = session.feed();
    let mut events = Log::open(&args.output, "headwater pgm send")?.events;
    let convert = move |update| {
        if let PgmSendUpdate::Progress(sent) = update {
            events.emit(None, &Event::SessionProgress(progress::of_sender(&sent)));
        }
        events.take_lines().map(Delivery::Events)
    };
    let tried = format!("cannot send to {}", args.network.group);
    let finish = move |result: Result<PgmSendSummary, SendError>| -> SessionEnd {
        (None, result.map(|_summary| Exit::Ok).map_err(|error| failure(&tried, error)))
    };
    Ok((Embedded::start(session, convert, finish, ())?, feed))
}

/// Receives messages, for bindings.
pub fn embed_receiver(args: PgmReceiveArgs) -> Result<Box<dyn EmbeddedSession>, Failure> {
    let session = receive::open(&args, None)?;
    let mut events = Log::open(&args.output, "headwater pgm receive")?.events;
    let convert = move |update| {
        match update {
            PgmReceiveUpdate::Message(message) => return Some(Delivery::Message(message.into_owned())),
            PgmReceiveUpdate::Lost { packets } => return Some(Delivery::Gap(packets)),
            PgmReceiveUpdate::Progress(received) => {
                events.emit(None, &Event::SessionProgress(progress::of_receiver(&received)));
            }
            _ => {}
        }
        events.take_lines().map(Delivery::Events)
    };
    let finish = move |result: Result<PgmReceiveSummary, ReceiveError>| -> SessionEnd {
        let tried = format!("cannot receive from {}", args.network.group);
        let ended =
            result.map_err(|error| error_failure(&tried, error)).and_then(|summary| match summary.outcome {
                // Gaps were delivered in sequence.
                PgmReceiveOutcome::Closed | PgmReceiveOutcome::Interrupted => Ok(Exit::Ok),
                _ => receive::end(&args, &summary, None).map_err(|(_, failure)| failure),
            });
        (None, ended)
    };
    Embedded::start(session, convert, finish, ())
}

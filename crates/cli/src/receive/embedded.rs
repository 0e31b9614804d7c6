//! Receiving sessions for bindings.

use std::sync::{Arc, Mutex, PoisonError};

use headwater::stream::{
    StreamOutcome, StreamReceiveOptions, StreamReceiveSession, StreamReceiveSummary, StreamReceiveUpdate,
};
use headwater::{FetchedDescription, ReceiveError, ReceiveSummary, ReceiveUpdate};
use headwater_proto::eventlog::{Event, Progress, Role};

use super::{
    conclude, described, error_failure, listen, listen_options, log, outcome_name, progress, receiving_failed,
};
use crate::args::{GetArgs, ReceiveArgs};
use crate::embed::{Delivery, Embedded, EmbeddedSession, SessionEnd};
use crate::exit::{Exit, Failure};
use crate::keys::TrustedSenders;
use crate::send::embedded::Log;

/// Receives files.
pub fn files(args: ReceiveArgs) -> Result<Box<dyn EmbeddedSession>, Failure> {
    match &args.sdp {
        Some(file) => start(described::read(&args, file)?, None),
        None => start(args, None),
    }
}

/// Receives the files that a URL describes.
pub fn described(args: &GetArgs) -> Result<Box<dyn EmbeddedSession>, Failure> {
    let (found, receive_args) = described::fetch(args)?;
    start(receive_args, Some(found))
}

fn start(args: ReceiveArgs, found: Option<FetchedDescription>) -> Result<Box<dyn EmbeddedSession>, Failure> {
    if args.follow.follow || args.follow.exec.is_some() {
        return Err(Failure::new(Exit::Usage, "--follow and --exec are for the command alone"));
    }
    if args.serve.serve_repair.is_some() {
        return Err(Failure::new(Exit::Usage, "--serve-repair is for the command alone"));
    }
    if args.view.http.is_some() {
        return Err(Failure::new(Exit::Usage, "--http is for the command alone"));
    }
    let shared = Arc::new(Mutex::new(Log::open(&args.output, "headwater receive")?));
    let ending = Arc::clone(&shared);
    let group = args.ask.unwrap_or(args.network.group);
    let senders = Arc::new(Mutex::new(TrustedSenders::new(&args.keys, group)?));
    let mut session = {
        let senders = senders.lock().unwrap_or_else(PoisonError::into_inner);
        listen((&args, found.as_ref(), None), (None, None), &senders)?
    };
    session.open_folder().map_err(|error| receiving_failed(&args, error))?;
    let (trusted, too_long) = (Arc::clone(&senders), Arc::new(Mutex::new(None)));
    let missing = Arc::clone(&too_long);
    let convert = move |update: ReceiveUpdate| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &update {
            ReceiveUpdate::Progress(received) => shared.last = progress(received),
            ReceiveUpdate::LongPacketsMissing(packets) => {
                *missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(packets.clone());
            }
            _ => {}
        }
        trusted.lock().unwrap_or_else(PoisonError::into_inner).on_update(&update);
        log(&update, group, None, &mut shared.events);
        shared.events.take_lines().map(Delivery::Events)
    };
    let finish = move |result: Result<ReceiveSummary, ReceiveError>| -> SessionEnd {
        let mut shared = ending.lock().unwrap_or_else(PoisonError::into_inner);
        let Log { events, last } = &mut *shared;
        let ended = match result {
            Err(error) => {
                Err(events.session_failed(Role::Receiver, last.clone(), receiving_failed(&args, error)))
            }
            Ok(summary) => {
                let (outcome, progress) = (outcome_name(&summary.outcome), progress(&summary.progress));
                events.emit(None, &Event::SessionEnded { role: Role::Receiver, outcome, progress });
                let too_long = too_long.lock().unwrap_or_else(PoisonError::into_inner).take();
                let senders = senders.lock().unwrap_or_else(PoisonError::into_inner);
                conclude((&args, found.as_ref()), &summary, &senders, too_long)
            }
        };
        (events.take_lines(), ended)
    };
    Embedded::start(session, convert, finish, ())
}

/// Receives a stream of buffers.
pub fn stream(args: &ReceiveArgs) -> Result<Box<dyn EmbeddedSession>, Failure> {
    let group = args.network.group;
    let senders = TrustedSenders::new(&args.keys, group)?;
    let listen = listen_options((args, None), None, &senders)?;
    let tried = format!("cannot receive from {group}");
    let session = StreamReceiveSession::open(StreamReceiveOptions::new(listen))
        .map_err(|error| error_failure(&tried, error))?;
    let mut events = Log::open(&args.output, "headwater stream")?.events;
    let convert = move |update: StreamReceiveUpdate| {
        match update {
            StreamReceiveUpdate::Buffer(buffer) => {
                return Some(Delivery::Buffer { prefix: buffer.prefix, length: buffer.length });
            }
            StreamReceiveUpdate::Progress(received) => {
                let progress = Progress {
                    packets: received.stats.packets,
                    rate: received.rate_bits,
                    lost: received.reception.lost,
                    kernel_drops: received.kernel_drops,
                    ..Progress::default()
                };
                events.emit(None, &Event::SessionProgress(progress));
            }
            StreamReceiveUpdate::LinkChanged(change) => {
                let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
                events.emit(None, &event);
            }
            StreamReceiveUpdate::Late { .. } | StreamReceiveUpdate::Session(_) => {}
        }
        events.take_lines().map(Delivery::Events)
    };
    let finish = move |result: Result<StreamReceiveSummary, ReceiveError>| -> SessionEnd {
        let ended = result.map_err(|error| error_failure(&tried, error)).and_then(|summary| {
            let failure = |exit, why: &str| Err(Failure::new(exit, why));
            match summary.outcome {
                StreamOutcome::Closed | StreamOutcome::Interrupted => Ok(Exit::Ok),
                StreamOutcome::NothingReceived => Err(super::nothing_received(group)),
                StreamOutcome::TimedOut => {
                    failure(Exit::Incomplete, "no part of a buffer came within the timeout")
                }
                StreamOutcome::NoBuffers => {
                    failure(Exit::Other, "the session carries files, not buffers; receive files")
                }
                StreamOutcome::ControlRefused(reason) => failure(Exit::Other, &reason),
            }
        });
        (None, ended)
    };
    Embedded::start(session, convert, finish, ())
}

//! Sending sessions for bindings.

use headwater::stream::{
    StreamFeed, StreamSendOptions, StreamSendSession, StreamSendSummary, StreamSendUpdate,
};
use headwater::{SendError, SendSummary, SendUpdate};
use headwater_proto::eventlog::{Event, Progress, Role};

use super::describe::FdtFile;
use super::roster::{self, Receipts};
use super::{Facts, conclude, control, log, log_compression, open_unconfined, progress, sending_failed};
use crate::args::SendArgs;
use crate::embed::{Delivery, Embedded, EmbeddedSession, SessionEnd};
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::keys;

/// Events of a session that two closures share, and the last progress.
pub struct Log {
    pub events: Events,
    pub last: Progress,
}

impl Log {
    pub fn open(args: &crate::args::OutputArgs, title: &str) -> Result<Self, Failure> {
        Ok(Self { events: Events::open(args, title)?.collecting(), last: Progress::default() })
    }
}

/// Sends files.
pub fn files(args: SendArgs) -> Result<Box<dyn EmbeddedSession>, Failure> {
    if args.dry_run || args.paths.iter().any(|path| path.as_os_str() == "-") {
        let why = "--dry-run and standard input are for the command alone";
        return Err(Failure::new(Exit::Usage, why));
    }
    let mut log_of_session = Log::open(&args.output, "headwater send")?;
    let receivers = roster::options(&args)?;
    let mut receipts = args.roster.receipts.as_deref().map(Receipts::open).transpose()?;
    let (session, mut fdt, server) = open_unconfined(&args, receivers.clone())?;
    let facts = Facts { symbols: session.plan().symbols() };
    log_compression(&session, &mut log_of_session.events);
    let shared = std::sync::Arc::new(std::sync::Mutex::new(log_of_session));
    let ending = std::sync::Arc::clone(&shared);
    let convert = move |update: SendUpdate| {
        let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let SendUpdate::Progress(sent) = &update {
            shared.last = progress(sent, facts.symbols);
            fdt.iter_mut().for_each(FdtFile::update);
        }
        receipts.iter_mut().for_each(|receipts| receipts.on_update(&update));
        log(&update, facts, None, &mut shared.events);
        shared.events.take_lines().map(Delivery::Events)
    };
    let finish = move |result: Result<SendSummary, SendError>| -> SessionEnd {
        let mut shared = ending.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Log { events, last } = &mut *shared;
        let ended = match result {
            Err(error) => {
                Err(events.session_failed(Role::Sender, last.clone(), sending_failed(&args, error)))
            }
            Ok(summary) => {
                let mut progress = progress(&summary.progress, facts.symbols);
                progress.receivers = summary.roster.as_ref().map(|roster| roster.counts);
                let outcome = match summary.outcome {
                    headwater::SendOutcome::Completed => "completed",
                    headwater::SendOutcome::Interrupted => "interrupted",
                };
                events.emit(None, &Event::SessionEnded { role: Role::Sender, outcome, progress });
                // The application knows that it has stopped the session.
                conclude(&summary, receivers.as_ref(), Exit::Ok)
            }
        };
        (events.take_lines(), ended)
    };
    Embedded::start(session, convert, finish, server)
}

/// Sends a stream of buffers.
pub fn stream(args: &SendArgs) -> Result<(Box<dyn EmbeddedSession>, StreamFeed), Failure> {
    let control = control::chosen(args)?;
    let options = StreamSendOptions {
        tsi: args.tsi,
        part_bytes: args.symbol_size,
        signing: keys::signing_key(&args.keys, false)?,
        group_key: keys::group_key(args.keys.group_key.as_deref())?,
        ..StreamSendOptions::new(args.network.sender(&args.link, None), control)
    };
    let tried = format!("cannot send to {}", args.network.group);
    let session = StreamSendSession::open(options).map_err(|error| super::failure(&tried, error))?;
    let feed = session.feed();
    let mut events = Log::open(&args.output, "headwater stream")?.events;
    let convert = move |update: StreamSendUpdate| {
        match &update {
            StreamSendUpdate::Progress(sent) => {
                let progress = Progress {
                    packets: sent.stats.packets,
                    bytes: sent.stats.bytes,
                    rate: sent.rate_bits,
                    unsent: sent.unsent,
                    ..Progress::default()
                };
                events.emit(None, &Event::SessionProgress(progress));
            }
            StreamSendUpdate::LinkChanged(change) => {
                let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
                events.emit(None, &event);
            }
            StreamSendUpdate::RateLimited(limit) => {
                let headwater::RateLimit { asked, sent, ceiling } = *limit;
                events.emit(None, &Event::RateLimited { asked, rate: sent, ceiling });
            }
        }
        events.take_lines().map(Delivery::Events)
    };
    let finish = move |result: Result<StreamSendSummary, SendError>| -> SessionEnd {
        (None, result.map(|_summary| Exit::Ok).map_err(|error| super::failure(&tried, error)))
    };
    Ok((Embedded::start(session, convert, finish, ())?, feed))
}

//! `headwater send`.

mod control;
mod dry_run;
mod view;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater::net::OpenError;
use headwater::{
    CongestionControl, FileSet, PrepareError, RateLimit, SendEnd, SendError, SendOptions, SendOutcome,
    SendProgress, SendSession, SendUpdate, SenderKey, prepare_with,
};
use headwater_proto::control::Counters;
use headwater_proto::controls::Network;
use headwater_proto::eventlog::{ControlState, Event, Progress, Role};

use crate::args::SendArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure, OrExit};
use crate::keys;
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use view::View;
pub use view::{RateWarning, average};

/// Most paths that are left out and named each; further ones are counted.
const SKIPPED_NAMED_MAX: usize = 10;
/// Most links out of the paths given that are named.
const OUTSIDE_NAMED_MAX: usize = 3;

/// Sends files, or shows what would be sent.
pub fn run(args: &SendArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let files = prepare_with(&args.paths, args.links.into()).map_err(preparation_failed)?;
    warn_of_selection(&files);
    keep_sources(&files, [&args.output.pcap, &args.output.events])?;
    // A dry run leaves no capture behind, not even an empty one.
    let capture = args.output.pcap.as_deref().filter(|_| !args.dry_run).map(Capture::create).transpose()?;
    let control = control::chosen(args)?;
    let key = keys::signing_key(&args.keys, args.dry_run)?;
    let session = open(args, control, files, capture.as_ref(), key)?;
    let mut events = Events::open(&args.output, "headwater send")?;
    if args.dry_run {
        dry_run::show(args, &session, &mut events).or_exit(Exit::Other, "cannot write to standard output")?;
        return events.finish().map(|()| Exit::Ok);
    }
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| transfer(args, session, &shutdown, &screen, &mut events));
    crate::receive::settle(outcome, events, capture)
}

/// Says what is left out, and what is sent although it lies outside of the paths given.
fn warn_of_selection(files: &FileSet) {
    let skipped = files.skipped();
    for skipped in skipped.iter().take(SKIPPED_NAMED_MAX) {
        tracing::warn!("'{}' is {} and is not sent", skipped.path.display(), skipped.kind);
    }
    if let Some(more @ 1..) = skipped.len().checked_sub(SKIPPED_NAMED_MAX) {
        tracing::warn!("{more} more are not sent, for reasons like these");
    }
    let outside = files.outside();
    if !outside.is_empty() {
        let shown = outside.iter().take(OUTSIDE_NAMED_MAX);
        let shown = shown.map(|link| format!("'{}' to '{}'", link.path.display(), link.target.display()));
        let more = outside.len().saturating_sub(OUTSIDE_NAMED_MAX);
        tracing::warn!(
            "{} out of the paths given: the files that they lead to are sent ({}{}); --links skip leaves links out",
            if outside.len() == 1 {
                "1 link leads".to_owned()
            } else {
                format!("{} links lead", outside.len())
            },
            shown.collect::<Vec<_>>().join(", "),
            if more == 0 { String::new() } else { format!(", and {more} more") }
        );
    }
}

/// Refuses to write a log or a capture over a file that is to be sent.
fn keep_sources(files: &FileSet, targets: [&Option<PathBuf>; 2]) -> Result<(), Failure> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    for target in targets.into_iter().flatten() {
        let Some(taken) = identity(target) else { continue };
        if files.files().iter().any(|file| identity(&file.path) == Some(taken)) {
            let reason = format!("'{}' is among the files to send; write it elsewhere", target.display());
            return Err(Failure::new(Exit::Usage, reason));
        }
    }
    Ok(())
}

fn open(
    args: &SendArgs,
    control: CongestionControl,
    files: FileSet,
    capture: Option<&Capture>,
    key: Option<SenderKey>,
) -> Result<SendSession, Failure> {
    let end = match (args.passes, args.duration) {
        (Some(passes), _) => SendEnd::Passes(passes),
        (None, Some(duration)) => SendEnd::After(duration),
        (None, None) => SendEnd::Never,
    };
    let options = |key| {
        SendOptions::new(args.network.group, control)
            .with_listen(args.listen.clone())
            .with_rehearsal(args.dry_run)
            .with_interface(args.network.interface.clone())
            .with_ttl(args.link.ttl)
            .with_dscp(args.link.dscp)
            .with_scheme(args.fec.into())
            .with_order(args.order.into())
            .with_symbol_size(args.symbol_size)
            .with_tsi(args.tsi)
            .with_end(end)
            .with_outage_max(args.link.outage)
            .with_memory_limit(Some(args.memory.0))
            .with_temporary_folder(args.temp_dir.clone())
            .with_offload(!args.link.no_offload)
            .with_signing(key)
            .with_trace(capture.map(Capture::hook))
    };
    // A symbol size of the user's that leaves no room for signatures is no reason to fail, unless a key was
    // named.
    let is_default = args.keys.is_default() && args.symbol_size.is_some();
    let opened = match SendSession::open(files.clone(), options(key)) {
        Err(SendError::Mtu { .. }) if is_default => {
            let opened = SendSession::open(files, options(None));
            if opened.is_ok() {
                tracing::warn!(
                    "packets with this --symbol-size have no room for signatures: the session is not signed"
                );
            }
            opened
        }
        opened => opened,
    };
    opened.map_err(|error| sending_failed(args, error))
}

fn transfer(
    args: &SendArgs,
    mut session: SendSession,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let mut view = View::new(args, screen, &session);
    let facts = Facts { symbols: session.plan().symbols() };
    let mut last = Progress::default();
    let result = session.run(&mut |update| {
        if let SendUpdate::Progress(sent) = &update {
            last = progress(sent, facts.symbols);
        }
        log(&update, facts, None, events);
        view.show(&update);
    });
    screen.clear();
    let summary =
        result.map_err(|error| events.session_failed(Role::Sender, last, sending_failed(args, error)))?;
    let (outcome, exit) = match summary.outcome {
        SendOutcome::Completed => ("completed", Exit::Ok),
        SendOutcome::Interrupted => ("interrupted", Exit::Interrupted),
    };
    let progress = progress(&summary.progress, facts.symbols);
    events.emit(None, &Event::SessionEnded { role: Role::Sender, outcome, progress });
    view.sum_up(&summary);
    match summary.files_left_out {
        0 => Ok(exit),
        files => Err(left_out(files)),
    }
}

/// Some files were not sent to the end, and the lines before say why.
fn left_out(files: usize) -> Failure {
    let files = crate::screen::count(files, "file");
    Failure::new(
        Exit::LeftOut,
        format!(
            "{files} could not be sent and receivers lack them; the lines above say why; the others were sent"
        ),
    )
}

/// What a session's updates leave out.
#[derive(Clone, Copy)]
pub struct Facts {
    /// Symbols that the content has.
    pub symbols: u64,
}

/// Tells the event log what a sender said.
pub fn log(update: &SendUpdate, facts: Facts, end: Option<&str>, events: &mut Events) {
    match update {
        SendUpdate::Started(started) => {
            let event = Event::SessionStarted {
                role: Role::Sender,
                group: started.group.to_string(),
                interface: started.interface.as_deref(),
                tsi: Some(started.tsi.into()),
                control: Some(ControlState {
                    name: started.congestion_control.name(),
                    channels: started.channels,
                    rate_max: started.congestion_control.rate_max().as_bits(),
                }),
            };
            events.emit(end, &event);
            if let Some(rate) = started.congestion_control.rate_base() {
                events.emit(end, &Event::RateUpdated { channel: 0, rate: rate.as_bits() });
            }
        }
        SendUpdate::PassCompleted(pass) => events.emit(end, &Event::PassCompleted { pass: *pass }),
        SendUpdate::FileLeftOut { path, reason } => {
            events.emit(end, &Event::ObjectWithdrawn { file: path.as_str(), reason });
        }
        SendUpdate::Progress(sent) => {
            events.emit(end, &Event::SessionProgress(progress(sent, facts.symbols)));
        }
        SendUpdate::RateLimited(RateLimit { asked, sent, ceiling }) => {
            events.emit(end, &Event::RateLimited { asked: *asked, rate: *sent, ceiling: *ceiling });
        }
        SendUpdate::LinkChanged(change) => {
            let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
            events.emit(end, &event);
        }
        // Hashing comes before the session, and is nobody's but this user's.
        _ => {}
    }
}

/// The counters of a sender.
pub fn progress(sent: &SendProgress, symbols: u64) -> Progress {
    let (feedback, asked) = match sent.counters.get("requests") {
        Some(_) => (Counters::default(), Some(sent.counters.clone())),
        None => (sent.counters.without("malformed"), None),
    };
    Progress {
        packets: sent.packets,
        bytes: sent.bytes,
        rate: sent.rate_bits,
        symbols: sent.symbols,
        symbols_total: symbols,
        unsent: sent.unsent,
        dropped: sent.counters.count("malformed"),
        feedback,
        asked,
        ..Progress::default()
    }
}

fn preparation_failed(error: PrepareError) -> Failure {
    let exit = match &error {
        PrepareError::Read { source, .. } if source.kind() != std::io::ErrorKind::NotFound => Exit::Disk,
        _ => Exit::Usage,
    };
    Failure::of(exit, error)
}

fn sending_failed(args: &SendArgs, error: SendError) -> Failure {
    let tried = match args.congestion_control {
        Some(control) if control.network == Network::Requests => match &error {
            SendError::Open(OpenError::Bind { .. }) => {
                "cannot be asked there (--listen says where)".to_owned()
            }
            _ => "cannot send to those who ask".to_owned(),
        },
        _ => format!("cannot send to {}", args.network.group),
    };
    failure(&tried, error)
}

/// Gives an error of a sender its exit code.
pub fn failure(tried: &str, error: SendError) -> Failure {
    let exit = match &error {
        SendError::Open(OpenError::CodePoint(_) | OpenError::SourceFamily { .. }) => Exit::Usage,
        SendError::Interface(_)
        | SendError::Open(_)
        | SendError::Network { .. }
        | SendError::Asked { .. } => Exit::Network,
        SendError::Mtu { .. }
        | SendError::Channels(_)
        | SendError::Option { .. }
        | SendError::Layers(_)
        | SendError::Rates { .. }
        | SendError::NoWindows
        | SendError::NoPasses
        | SendError::NotOnRequest(_)
        | SendError::Rehearsal
        | SendError::ListenTwice(..)
        | SendError::Plan(_)
        | SendError::Fdt(_) => Exit::Usage,
        SendError::Source(_) | SendError::Space { .. } | SendError::Store { .. } => Exit::Disk,
        SendError::Memory { .. } => Exit::Other,
    };
    Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
}

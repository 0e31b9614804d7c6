//! `headwater send`.

mod control;
mod describe;
mod dry_run;
pub mod embedded;
mod history;
mod http;
mod input;
mod roster;
mod view;

use std::path::{Path, PathBuf};

use headwater::keys::PublicKey;
use headwater::net::OpenError;
use headwater::{
    CompressionSummary, CongestionControl, FileSet, GroupKeys, PrepareError, RateLimit, RosterOptions,
    SendEnd, SendError, SendInput, SendOptions, SendOutcome, SendProgress, SendSession, SendSummary,
    SendUpdate, SenderKey, Session, Skipped, prepare_tree,
};
use headwater_proto::control::{Counters, DemandStatus};
use headwater_proto::controls::Network;
use headwater_proto::eventlog::{ControlState, Event, Progress, Role};

use headwater_web::{Details, FileServer, LiveView};

use crate::args::{HolesName, SendArgs};
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure, OrExit};
use crate::keys;
use crate::live::await_viewers;
use crate::sandbox::{Paths, confine};
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use crate::system::is_same_file;
use describe::FdtFile;
pub use http::server_failed;
use roster::Receipts;
use view::View;
pub use view::{RateWarning, average};

/// Maximum number of skipped paths in warnings; further paths are counted.
const SKIPPED_NAMED_MAX: usize = 10;
/// Maximum number of links out of the given paths in a warning.
const OUTSIDE_NAMED_MAX: usize = 3;

/// Sends files, or shows the session of a dry run.
pub fn run(args: &SendArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let input = input::chosen(args)?;
    let files = match &input {
        Some(_) => FileSet::default(),
        None => prepare_tree(&args.paths, args.metadata.prepare_options()).map_err(preparation_failed)?,
    };
    warn_of_selection(&files);
    let refused = files.refused().count();
    keep_sources(&files, [&args.output.pcap, &args.output.events, &args.roster.receipts])?;
    // A dry run creates no capture, not even an empty file.
    let capture = args.output.pcap.as_deref().filter(|_| !args.dry_run).map(Capture::create).transpose()?;
    let control = control::chosen(args)?;
    let key = keys::signing_key(&args.keys, args.dry_run)?;
    let (next_key, group_key) =
        (keys::next_key(args.keys.next_key.as_ref())?, keys::group_key(args.keys.group_key.as_deref())?);
    let mut events = Events::open(&args.output, "headwater send")?;
    log_skipped(&files, &mut events);
    let receivers = roster::options(args)?;
    let receipts = args.roster.receipts.as_deref().filter(|_| !args.dry_run);
    let receipts = receipts.map(Receipts::open).transpose()?;
    let socket = http::open(args)?;
    let view = socket.as_ref().map(|_| LiveView::new());
    view.iter().for_each(|view| events.show(view.feed()));
    let is_repeated = args.dry_run || input.is_some() || history::note(&files);
    confine(&args.confine, &paths(args, &files, key.as_ref()))?;
    let keys = (key, next_key, group_key);
    let content = input.map_or_else(|| Content::Files { files, is_repeated }, Content::Input);
    if args.compress.is_some() {
        screen.say("compressing the files");
    }
    let session = open(args, control, content, capture.as_ref(), (keys, receivers.clone()))?;
    let fdt = describe::publish(args, &session, http::public(args, socket.as_ref()))?;
    let (session, server) = http::serve(args, session, (socket, view.clone()), &screen)?;
    if args.dry_run {
        dry_run::show(args, &session, &mut events).or_exit(Exit::Other, "cannot write to standard output")?;
        events.finish()?;
        return if refused == 0 { Ok(Exit::Ok) } else { Err(left_out(refused, "nothing was sent")) };
    }
    let outcome = Shutdown::install(capture.as_ref()).and_then(|shutdown| {
        let outcome = transfer(args, (session, fdt), &shutdown, &screen, (&mut events, receipts, receivers));
        if let Some(server) = server.as_ref().filter(|_| !shutdown.is_asked() && http::is_named(args)) {
            http::linger(args, server, &screen, &shutdown);
        }
        view.iter().for_each(|view| await_viewers(view, &shutdown));
        outcome
    });
    crate::receive::settle(outcome, events, capture)
}

/// Files that are sent, the folder of repair symbols, and the file of the key.
fn paths(args: &SendArgs, files: &FileSet, key: Option<&SenderKey>) -> Paths {
    let outside = files.outside().iter().map(|link| link.target.clone());
    let folder = args.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
    let described =
        args.repair.sdp.as_deref().and_then(Path::parent).map(|parent| match parent.as_os_str() {
            name if name.is_empty() => PathBuf::from("."),
            _ => parent.to_owned(),
        });
    Paths {
        read: args.paths.iter().filter(|path| *path != Path::new("-")).cloned().chain(outside).collect(),
        write: keys::written(key).into_iter().chain([folder]).chain(described).collect(),
        listens: args.repair.http.is_some(),
        ..Paths::default()
    }
}

/// Warns of skipped paths, and of links to files outside of the given paths.
fn warn_of_selection(files: &FileSet) {
    let skipped = files.skipped();
    for skipped in skipped.iter().take(SKIPPED_NAMED_MAX) {
        log_left_out(skipped, &format!("{skipped} and is not sent"));
    }
    if let Some(more @ 1..) = skipped.len().checked_sub(SKIPPED_NAMED_MAX) {
        let more =
            format!("{more} more paths are not sent, for similar reasons; --json and --events name them all");
        log_left_out(&skipped[SKIPPED_NAMED_MAX], &more);
    }
    let outside = files.outside();
    if !outside.is_empty() {
        let shown = outside.iter().take(OUTSIDE_NAMED_MAX);
        let shown = shown.map(|link| format!("'{}' to '{}'", link.path.display(), link.target.display()));
        let more = outside.len().saturating_sub(OUTSIDE_NAMED_MAX);
        tracing::warn!(
            "{} out of the given paths: the files behind links are sent ({}{}); --links skip leaves links out",
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

/// Logs a line on a skipped path. A refused name makes the exit code 9, and is told with --quiet, too.
fn log_left_out(skipped: &Skipped, line: &str) {
    if skipped.reason.has_content() {
        tracing::error!("{line}");
    } else {
        tracing::warn!("{line}");
    }
}

/// Writes each skipped path to the event log.
fn log_skipped(files: &FileSet, events: &mut Events) {
    for skipped in files.skipped() {
        let (path, refused) = (skipped.escaped_path(), skipped.reason.has_content());
        events.emit(None, &Event::ObjectSkipped { path, reason: skipped.reason.to_string(), refused });
    }
}

/// Refuses to write a log or a capture over a file that is to be sent.
fn keep_sources(files: &FileSet, targets: [&Option<PathBuf>; 3]) -> Result<(), Failure> {
    for target in targets.into_iter().flatten() {
        if target.exists() && files.files().iter().any(|file| is_same_file(target, &file.path)) {
            let reason = format!("'{}' is among the files to send; write it elsewhere", target.display());
            return Err(Failure::new(Exit::Usage, reason));
        }
    }
    Ok(())
}

/// Key of a sender, the key of later sessions, and keys of the group.
type Keys = (Option<SenderKey>, Option<PublicKey>, Option<GroupKeys>);

/// Content of a session.
enum Content {
    Files { files: FileSet, is_repeated: bool },
    Input(SendInput),
}

fn open(
    args: &SendArgs,
    control: CongestionControl,
    content: Content,
    capture: Option<&Capture>,
    ((key, next_key, group_key), roster): (Keys, Option<RosterOptions>),
) -> Result<SendSession, Failure> {
    let end = match (args.passes, args.duration) {
        (Some(passes), _) => SendEnd::Passes(passes),
        (None, Some(duration)) => SendEnd::After(duration),
        (None, None) => SendEnd::Never,
    };
    let is_repeated = match content {
        Content::Files { is_repeated, .. } => is_repeated,
        Content::Input(_) => true,
    };
    let options = |signing| SendOptions {
        listen: args.listen.clone(),
        is_rehearsal: args.dry_run,
        is_repeated,
        scheme: args.fec.into(),
        order: args.order.into(),
        bundling: args.bundle.into(),
        compression: args.compress.map(Into::into),
        skips_holes: args.metadata.holes == HolesName::Skip,
        symbol_size: args.symbol_size,
        is_beside_requests: args.repair.sdp_rainbow.is_some(),
        tsi: args.tsi,
        end,
        memory_limit: Some(args.memory.0),
        temporary_folder: args.temp_dir.clone(),
        signing,
        next_key,
        group_key: group_key.clone(),
        roster: roster.clone(),
        ..SendOptions::new(args.network.sender(&args.link, capture), control)
    };
    let files = match content {
        Content::Files { files, .. } => files,
        Content::Input(input) => {
            let opened = SendSession::open_input(input, options(key));
            return opened.map_err(|error| sending_failed(args, error));
        }
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

/// Opens the session of the arguments, with its HTTP server, without confinement.
fn open_unconfined(
    args: &SendArgs,
    receivers: Option<RosterOptions>,
) -> Result<(SendSession, Option<FdtFile>, Option<FileServer>), Failure> {
    let files = prepare_tree(&args.paths, args.metadata.prepare_options()).map_err(preparation_failed)?;
    let control = control::chosen(args)?;
    let key = keys::signing_key(&args.keys, false)?;
    let next_key = keys::next_key(args.keys.next_key.as_ref())?;
    let group_key = keys::group_key(args.keys.group_key.as_deref())?;
    let socket = http::open(args)?;
    let content = Content::Files { is_repeated: history::note(&files), files };
    let session = open(args, control, content, None, ((key, next_key, group_key), receivers))?;
    let fdt = describe::publish(args, &session, http::public(args, socket.as_ref()))?;
    let (session, server) = http::serve(args, session, (socket, None), &Screen::hidden())?;
    Ok((session, fdt, server))
}

fn transfer(
    args: &SendArgs,
    (mut session, mut fdt): (SendSession, Option<FdtFile>),
    shutdown: &Shutdown,
    screen: &Screen,
    (events, mut receipts, receivers): (&mut Events, Option<Receipts>, Option<RosterOptions>),
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let mut view = View::new(args, screen, &session);
    let facts = Facts { symbols: session.plan().symbols() };
    log_compression(&session, events);
    let mut last = Progress::default();
    let result = session.run(&mut |update| {
        if let SendUpdate::Progress(sent) = &update {
            last = progress(sent, facts.symbols);
            fdt.iter_mut().for_each(FdtFile::update);
        }
        log(&update, facts, None, events);
        receipts.iter_mut().for_each(|receipts| receipts.on_update(&update));
        view.show(&update);
    });
    screen.clear();
    let summary =
        result.map_err(|error| events.session_failed(Role::Sender, last, sending_failed(args, error)))?;
    let (outcome, exit) = match summary.outcome {
        SendOutcome::Completed => ("completed", Exit::Ok),
        SendOutcome::Interrupted => ("interrupted", Exit::Interrupted),
    };
    let mut progress = progress(&summary.progress, facts.symbols);
    progress.receivers = summary.roster.as_ref().map(|roster| roster.counts);
    events.emit(None, &Event::SessionEnded { role: Role::Sender, outcome, progress });
    view.sum_up(&summary);
    let ended = conclude(&summary, receivers.as_ref(), exit)?;
    receipts.and_then(|receipts| receipts.failure()).map_or(Ok(ended), Err)
}

/// Returns the exit code of a session that has ended, or the failure of files or receivers.
fn conclude(summary: &SendSummary, receivers: Option<&RosterOptions>, exit: Exit) -> Result<Exit, Failure> {
    let missing = roster::failure(receivers, summary.roster.as_ref());
    let left_out =
        (summary.files_left_out > 0).then(|| left_out(summary.files_left_out, "all other files were sent"));
    // Missing receivers are a reason to send again, and outweigh what can never be sent.
    let failure = match (missing, left_out) {
        (None, None) => return Ok(exit),
        (None, Some(left_out)) => return Err(left_out),
        (Some(missing), None) => missing,
        (Some(missing), Some(left_out)) => {
            Failure::new(missing.exit, format!("{}; {}", missing.error, left_out.error))
        }
    };
    Err(Failure { exit: if exit == Exit::Ok { failure.exit } else { exit }, ..failure })
}

/// Returns the failure of a session that left files or folders out, and the fate of the other files. Earlier
/// lines have the reasons.
fn left_out(paths: usize, others: &str) -> Failure {
    let paths = crate::screen::count(paths, "path");
    Failure::new(
        Exit::LeftOut,
        format!("{paths} could not be sent and receivers lack them; the lines above say why; {others}"),
    )
}

/// Facts of a session that updates do not contain.
#[derive(Clone, Copy)]
pub struct Facts {
    /// Symbols of the content.
    pub symbols: u64,
}

/// Writes the result of the compression to the event log.
fn log_compression(session: &SendSession, events: &mut Events) {
    if let Some(CompressionSummary { coding, encoded, bytes, encoded_bytes, plain }) = session.compression() {
        let coding = coding.name();
        events.emit(None, &Event::ContentCompressed { coding, encoded, bytes, encoded_bytes, plain });
    }
}

/// Writes the update of a sender to the event log.
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
        SendUpdate::PartsReleased { bytes } => events.emit(end, &Event::StreamReleased { bytes: *bytes }),
        SendUpdate::InputEnded { bytes } => events.emit(end, &Event::StreamEnded { bytes: *bytes }),
        SendUpdate::Progress(sent) => {
            let ceiling = sent.ceiling.map(|ceiling| (ceiling.level, Some(ceiling.rate_bits)));
            let channel_bytes = &sent.channel_bytes[..];
            events.details(end, &Details { channel_bytes, ceiling, ..Details::default() });
            events.emit(end, &Event::SessionProgress(progress(sent, facts.symbols)));
        }
        SendUpdate::RateLimited(RateLimit { asked, sent, ceiling }) => {
            events.emit(end, &Event::RateLimited { asked: *asked, rate: *sent, ceiling: *ceiling });
        }
        SendUpdate::ReceiverReported { update, .. } => {
            events.emit(end, &Event::ReceiverReported(roster::report(&update.row, update.state)));
        }
        SendUpdate::NameContested(contested) => {
            let ids = [&contested.first, &contested.second].map(|row| format!("{:016x}", row.receiver));
            let addresses = [&contested.first, &contested.second].map(|row| row.address.to_string());
            events.emit(end, &Event::ReceiverContested { name: &contested.name, receivers: ids, addresses });
        }
        SendUpdate::DemandChanged(demand) => {
            let DemandStatus { held, ceiling, is_limited, .. } = *demand;
            events.emit(end, &Event::DemandChanged { level: held, ceiling, limited: is_limited });
        }
        SendUpdate::Unreported { lasted } => {
            events.emit(end, &Event::DemandUnreported { seconds: lasted.as_secs() });
        }
        SendUpdate::LinkChanged(change) => {
            let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
            events.emit(end, &event);
        }
        // Hashing before the session is shown to the user only.
        _ => {}
    }
}

/// Returns the counters of a sender.
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
        receivers: sent.roster.as_ref().map(|roster| roster.counts).filter(|counts| counts.total() > 0),
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
            SendError::Open(OpenError::Bind { .. }) => "cannot accept requests (see --listen)".to_owned(),
            _ => "cannot send on request".to_owned(),
        },
        _ => format!("cannot send to {}", args.network.group),
    };
    failure(&tried, error)
}

/// Adds an exit code to an error of a sender.
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
        | SendError::Memory { .. }
        | SendError::Plan(_)
        | SendError::Fdt(_) => Exit::Usage,
        SendError::Source(_)
        | SendError::Space { .. }
        | SendError::SpoolSpace { .. }
        | SendError::CompressionSpace { .. }
        | SendError::Compression { .. }
        | SendError::Store { .. } => Exit::Disk,
    };
    Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
}

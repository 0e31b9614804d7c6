//! `headwater receive`.

mod view;

use std::net::SocketAddr;
use std::path::Path;

use headwater::net::OpenError;
use headwater::{
    IncompleteReason, ReceiveError, ReceiveOptions, ReceiveOutcome, ReceiveProgress, ReceiveSession,
    ReceiveSummary, ReceiveUpdate,
};
use headwater_proto::Rate;
use headwater_proto::delivery::hex;
use headwater_proto::eventlog::{Event, Progress, Reasons, Reception, Role};

use crate::args::ReceiveArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::sandbox::{Paths, confine};
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use view::View;
use view::wanted;
pub use view::{link_changed, parts};

/// Most other sessions that are named where the one asked for was not heard.
const OTHERS_NAMED_MAX: usize = 3;

/// Receives a session.
pub fn run(args: &ReceiveArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater receive")?;
    confine(&args.confine, &Paths { folder: Some(args.out.clone()), ..Paths::default() })?;
    let session = open(args, capture.as_ref())?;
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| transfer(args, session, &shutdown, &screen, &mut events));
    settle(outcome, events, capture)
}

/// Ends the event log and the capture. What the transfer came to counts more than a log that could not be
/// written.
pub fn settle(
    outcome: Result<Exit, Failure>,
    events: Events,
    capture: Option<Capture>,
) -> Result<Exit, Failure> {
    let logs = [events.finish(), capture.map_or(Ok(()), Capture::finish)];
    let failed = logs.into_iter().filter_map(Result::err);
    if outcome.is_err() {
        failed.for_each(|failure| tracing::error!("{}", failure.chain()));
        return outcome;
    }
    failed.fold(outcome, |outcome, failure| outcome.and(Err(failure)))
}

fn open(args: &ReceiveArgs, capture: Option<&Capture>) -> Result<ReceiveSession, Failure> {
    if args.ask.is_some() && args.multicast.is_none() && args.network.interface.is_some() {
        let why = "--interface is where a group is joined, and with --ask there is none but with --multicast: leave it out";
        return Err(Failure::new(Exit::Usage, why));
    }
    let options = match args.ask {
        Some(source) => ReceiveOptions::asking(source, args.via, &args.out),
        None => ReceiveOptions::new(args.network.group, &args.out),
    };
    let options = match args.multicast {
        Some(group) => options.with_replies_to(group, args.network.interface.clone()),
        None => options,
    };
    let options = options
        .with_source(args.listen.source_for(args.network.group)?)
        .with_interface(args.network.interface.clone())
        .with_tsi(args.tsi)
        .with_timeout(args.timeout)
        .with_max_rate(args.max_rate)
        .with_rtt(args.rtt)
        .with_loss(args.listen.loss())
        .with_trace(capture.map(Capture::hook));
    ReceiveSession::open(options).map_err(|error| receiving_failed(args, error))
}

fn transfer(
    args: &ReceiveArgs,
    mut session: ReceiveSession,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let mut view = View::new(args, screen);
    let group = args.ask.unwrap_or(args.network.group);
    let mut last = Progress::default();
    let mut too_long = None;
    let result = session.run(&mut |update| {
        match &update {
            ReceiveUpdate::Progress(received) => last = progress(received),
            ReceiveUpdate::LongPacketsMissing(missing) => too_long = Some(missing.clone()),
            _ => {}
        }
        log(&update, group, None, events);
        view.show(&update);
    });
    screen.clear();
    let summary =
        result.map_err(|error| events.session_failed(Role::Receiver, last, receiving_failed(args, error)))?;
    let progress = progress(&summary.progress);
    let outcome = outcome_name(&summary.outcome);
    events.emit(None, &Event::SessionEnded { role: Role::Receiver, outcome, progress });
    view.sum_up(&summary);
    if summary.outcome == ReceiveOutcome::NothingReceived {
        return Err(match args.ask {
            Some(source) => nothing_answered(source, args.via),
            None => nothing_wanted(args, &summary),
        });
    }
    // What keeps most packets away says more than that the time was over.
    if let (ReceiveOutcome::Incomplete(_), Some(missing)) = (&summary.outcome, too_long) {
        return Err(Failure::new(Exit::Incomplete, missing));
    }
    match failure(&summary.outcome, summary.files_refused, group, &args.out) {
        Some(failure) => Err(failure),
        None => Ok(Exit::Ok),
    }
}

/// Tells the event log what a receiver said.
pub fn log(update: &ReceiveUpdate, group: SocketAddr, end: Option<&str>, events: &mut Events) {
    let event = match update {
        ReceiveUpdate::Started(started) => Event::SessionStarted {
            role: Role::Receiver,
            group: started.group.to_string(),
            interface: started.interface.as_deref(),
            tsi: None,
            control: None,
        },
        ReceiveUpdate::Joined(channel) => {
            Event::ChannelJoined { channel: channel.0, group: channel_group(group, channel.0) }
        }
        ReceiveUpdate::Left(channel) => Event::ChannelLeft { channel: channel.0 },
        ReceiveUpdate::SessionFound { tsi, source } => {
            Event::SessionFound { tsi: *tsi, source: source.to_string() }
        }
        ReceiveUpdate::LinkChanged(change) => {
            Event::LinkChanged { interface: &change.interface, state: change.state.name() }
        }
        ReceiveUpdate::OtherSession { tsi, source } => {
            Event::SessionOther { tsi: *tsi, source: source.to_string() }
        }
        ReceiveUpdate::Silent { lasted, is_found } => {
            Event::SessionSilent { seconds: lasted.as_secs(), is_found: *is_found }
        }
        ReceiveUpdate::HeardAgain { lasted } => Event::SessionHeardAgain { seconds: lasted.as_secs() },
        ReceiveUpdate::LongPacketsMissing(missing) => Event::LongPacketsMissing {
            packet_bytes: missing.packet_bytes,
            longest: missing.longest,
            interface: missing.interface.as_ref().map(|(name, _)| name.as_str()),
            mtu: missing.interface.as_ref().and_then(|(_, mtu)| *mtu),
        },
        ReceiveUpdate::SessionReplaced { tsi, source } => {
            Event::SessionReplaced { tsi: *tsi, source: source.to_string() }
        }
        ReceiveUpdate::FileAnnounced { path, bytes, .. } => {
            Event::ObjectAnnounced { file: path.as_str(), bytes: *bytes }
        }
        ReceiveUpdate::FileRefused { location, reason } => Event::ObjectRefused { location, reason },
        ReceiveUpdate::FileCompleted { path, bytes, digest, is_present, .. } => {
            let digest = digest.as_ref().map(hex);
            Event::ObjectCompleted { file: path.as_str(), bytes: *bytes, digest, present: *is_present }
        }
        ReceiveUpdate::FileMismatch { path, .. } => Event::ObjectMismatch { file: path.as_str() },
        ReceiveUpdate::SessionCompleted { refused } => Event::SessionCompleted { refused: *refused },
        ReceiveUpdate::SessionClosed => Event::SessionClosed {},
        ReceiveUpdate::Progress(received) => Event::SessionProgress(progress(received)),
        ReceiveUpdate::ControlRefused { reason } => {
            return events.emit(end, &Event::SessionFailed { reason });
        }
        ReceiveUpdate::StoreFailed(error) => {
            return events.emit(end, &Event::SessionFailed { reason: &error.0 });
        }
        _ => return,
    };
    events.emit(end, &event);
}

/// Group and port of a channel; they count up from the base channel's.
fn channel_group(base: SocketAddr, channel: u16) -> String {
    let channels = headwater::net::Channels::new(base, channel.saturating_add(1));
    let group = channels.ok().and_then(|channels| channels.address(headwater_proto::ChannelId(channel)));
    group.unwrap_or(base).to_string()
}

/// The counters of a receiver.
pub fn progress(received: &ReceiveProgress) -> Progress {
    Progress {
        packets: received.stats.packets,
        bytes: received.stats.bytes,
        rate: received.rate_bits,
        lost: received.reception.lost,
        symbols: received.symbols_held,
        symbols_total: received.symbols,
        useful: received.stats.useful,
        resumed: received.stats.resumed,
        duplicates: received.stats.duplicates,
        surplus: received.stats.surplus,
        dropped: received.stats.dropped.total(),
        dropped_for: Reasons(received.stats.dropped.by_reason()),
        kernel_drops: received.kernel_drops,
        reception: Some(reception(received)),
        ..Progress::default()
    }
}

fn reception(received: &ReceiveProgress) -> Reception {
    let control = &received.control;
    Reception {
        control: control.name,
        fair_rate: control.fair_rate.map(Rate::as_bits),
        channels: control.channels,
        rtt: control.rtt.map(millis),
        join_latency: control.join_latency.map(millis),
        join_latency_max: control.join_latency_max.map(millis),
        naks: control.naks,
        fdt_packets: received.stats.fdt_packets,
        signalling: received.stats.signalling,
        pending: received.stats.pending,
        contradictions: received.stats.contradictions,
        kept_out: received.foreign,
        window: control.window,
        missing: received.symbols.saturating_sub(received.symbols_held),
        time_left: view::time_left(received).and_then(|left| u64::try_from(left.as_millis()).ok()),
    }
}

/// Milliseconds, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "times of a session, in microseconds, are below 2^53")]
fn millis(time: headwater_proto::Duration) -> f64 {
    (time.as_nanos() / 1_000) as f64 / 1e3
}

/// One word for the event log.
pub fn outcome_name(outcome: &ReceiveOutcome) -> &'static str {
    match outcome {
        ReceiveOutcome::Completed => "completed",
        ReceiveOutcome::NothingReceived => "nothing-received",
        ReceiveOutcome::Incomplete(_) => "incomplete",
        ReceiveOutcome::VerificationFailed => "verification-failed",
        ReceiveOutcome::ControlRefused(_) => "control-refused",
        ReceiveOutcome::StoreFailed(_) => "store-failed",
        ReceiveOutcome::Interrupted => "interrupted",
    }
}

/// What went wrong with the content, what to do, and the exit code; nothing if all is well.
pub fn failure(outcome: &ReceiveOutcome, refused: usize, group: SocketAddr, out: &Path) -> Option<Failure> {
    Some(match outcome {
        ReceiveOutcome::Completed => return None,
        ReceiveOutcome::NothingReceived => nothing_received(group),
        ReceiveOutcome::Incomplete(reason) => Failure::new(Exit::Incomplete, incomplete(*reason, refused)),
        ReceiveOutcome::VerificationFailed => Failure::new(
            Exit::VerificationFailed,
            "a file is not what its sender promised and was discarded; receive it again, and suspect the sender's \
             storage if it happens again",
        ),
        ReceiveOutcome::ControlRefused(reason) => Failure::new(Exit::Other, reason),
        ReceiveOutcome::StoreFailed(error) => Failure::of(
            Exit::Disk,
            anyhow::Error::from(error.clone()).context(format!("cannot write to '{}'", out.display())),
        ),
        ReceiveOutcome::Interrupted => {
            Failure::new(Exit::Interrupted, "interrupted before every file was whole")
        }
    })
}

/// Nothing came from a group within the timeout.
pub fn nothing_received(group: SocketAddr) -> Failure {
    Failure::new(
        Exit::NothingReceived,
        format!(
            "nothing was received from {group} within the timeout; is the sender on this network and this group, \
             may its TTL reach this machine, and does a firewall let UDP port {} in? `headwater doctor` looks at all of it",
            group.port()
        ),
    )
}

/// Nothing of the session wanted came within the timeout: others may have.
fn nothing_wanted(args: &ReceiveArgs, summary: &ReceiveSummary) -> Failure {
    let (group, others) = (args.network.group, &summary.others);
    let message = if let [first, ..] = &others[..] {
        let shown = others.iter().take(OTHERS_NAMED_MAX);
        let shown = shown.map(|other| format!("session {} from {}", other.tsi, other.source));
        let more = others.len().saturating_sub(OTHERS_NAMED_MAX);
        let source = first.source.ip();
        let name = match (args.tsi, &args.listen.source) {
            // A source-specific group needs a source.
            (None, Some(_)) => format!("name that source (--source {source})"),
            _ => format!(
                "name that one (--tsi {} --source {source}), or neither to take the first that is heard",
                first.tsi
            ),
        };
        format!(
            "nothing was received of the session asked for{}; on {group} {}{} was heard; {name}",
            wanted(args),
            shown.collect::<Vec<_>>().join(", "),
            if more == 0 { String::new() } else { format!(" and {more} more") },
        )
    } else if summary.datagrams > 0 {
        format!(
            "no session was heard on {group} within the timeout, but {} datagrams that are of none: something else uses this group and \
             port; choose another --group at both ends",
            summary.datagrams
        )
    } else {
        return nothing_received(group);
    };
    Failure::new(Exit::NothingReceived, message)
}

/// Nothing came from a source that was asked.
fn nothing_answered(source: SocketAddr, via: Option<SocketAddr>) -> Failure {
    let by_way_of = via.map_or_else(String::new, |via| format!(" by way of {via}"));
    Failure::new(
        Exit::NothingReceived,
        format!(
            "nothing came from {source}{by_way_of} within the timeout; is it sending with --congestion-control rainbow, is the address the one that \
             it or the relay sends from, and do firewalls let UDP through?"
        ),
    )
}

fn incomplete(reason: IncompleteReason, refused: usize) -> String {
    match reason {
        IncompleteReason::TimedOut => {
            "the session fell silent before every file was whole; start this receiver \
             again while it is sent, or give it a longer --timeout"
                .into()
        }
        IncompleteReason::SessionClosed => {
            "the sender ended the session before every file was whole; let it send \
             more passes, or until interrupted"
                .into()
        }
        IncompleteReason::Refused => format!(
            "{} of the session cannot be received here; the lines above say why",
            crate::screen::count(refused, "file")
        ),
    }
}

fn receiving_failed(args: &ReceiveArgs, error: ReceiveError) -> Failure {
    error_failure(&format!("cannot receive from {}", args.ask.unwrap_or(args.network.group)), error)
}

/// Gives an error of a receiver its exit code.
pub fn error_failure(tried: &str, error: ReceiveError) -> Failure {
    let exit = match &error {
        ReceiveError::Open(OpenError::SourceFamily { .. }) => Exit::Usage,
        ReceiveError::Interface(_) | ReceiveError::Open(_) | ReceiveError::Network { .. } => Exit::Network,
        ReceiveError::Channels(_) | ReceiveError::Loss(_) | ReceiveError::Nobody(..) => Exit::Usage,
        ReceiveError::Store(_) => Exit::Disk,
    };
    match error {
        // It is the folder that cannot be used, and it says so itself: not the group.
        ReceiveError::Store(error) => Failure::of(exit, error),
        error => Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned())),
    }
}

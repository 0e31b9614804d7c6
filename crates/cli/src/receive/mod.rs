//! `headwater receive`.

mod described;
mod description;
pub mod embedded;
mod failure;
mod follow;
mod hook;
mod serving;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use headwater::keys::{Unopened, fingerprint};
use headwater::{
    BytesByPath, FetchedDescription, ListenOptions, LongPacketsMissing, ReceiveOptions, ReceiveOutcome,
    ReceiveProgress, ReceiveSession, ReceiveSummary, ReceiveUpdate, RepairUpdate, Selection, ServingOptions,
    Session, Target, find_amt_relay,
};
use headwater_proto::Rate;
use headwater_proto::delivery::hex;
use headwater_proto::eventlog::{Event, PathBytes, PathEstimate, Progress, Reasons, Reception, Role};
use headwater_web::{Details, LiveView};

use crate::args::{AmtRelayName, GetArgs, KeptLinks, ReceiveArgs, Repair, kinds};
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::keys::{self, TrustedSenders};
use crate::live::{await_viewers, block_cells};
use crate::sandbox::{Paths, RESOLVER_FILES, confine};
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use crate::system::is_named_pipe;
use description::DescriptionWatch;
pub use failure::{error_failure, failure, nothing_opened, nothing_received};
use failure::{nothing_answered, nothing_came, nothing_wanted, receiving_failed};
use follow::{Follower, NextStep};
use hook::FileHook;
pub use hook::run_for_files;
use view::View;
pub use view::{link_changed, parts};

/// Receives a session.
pub fn run(args: &ReceiveArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    match &args.sdp {
        Some(file) => receive(described::read(args, file)?, None, &screen),
        None => receive(args.clone(), None, &screen),
    }
}

/// Receives the session that a URL describes.
pub fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let (found, receive_args) = described::fetch(args)?;
    receive(receive_args, Some((found, args)), &screen)
}

/// Description of a session, and the arguments of the fetch.
type Found<'a> = (FetchedDescription, &'a GetArgs);

/// Receives a session, by all paths of its description if the description is given.
fn receive(mut args: ReceiveArgs, mut found: Option<Found<'_>>, screen: &Screen) -> Result<Exit, Failure> {
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    if args.output.json && args.to.as_deref() == Some(Path::new("-")) {
        let why =
            "--json and --to - both write to standard output: write the events to a file by --events FILE";
        return Err(Failure::new(Exit::Usage, why));
    }
    let mut senders = TrustedSenders::new(&args.keys, args.ask.unwrap_or(args.network.group))?;
    let command = if found.is_some() { "headwater get" } else { "headwater receive" };
    let mut events = Events::open(&args.output, command)?;
    let description = found.as_ref().map(|(found, _)| found);
    let server = serving::open(&args)?;
    let serves = serving::options(&args, server.as_ref());
    let view = args.view.http.map(|_| LiveView::new());
    view.iter().for_each(|view| events.show(view.feed()));
    if let Some(pipe) = args.to.as_deref().filter(|to| is_named_pipe(to)) {
        screen.say(&format!("waiting until a program opens the pipe '{}' to read", pipe.display()));
    }
    let mut session = listen((&args, description, None), (capture.as_ref(), serves), &senders)?;
    let mut follower = Follower::new(&args, found.as_ref().map(|(_, args)| &*args.url), senders.is_told)?;
    let hook = FileHook::start(&args)?;
    let folders = senders.folder().into_iter().chain([args.folder()]).collect();
    let paths = Paths {
        folders,
        optional: bundle_cache(),
        read: resolver_files(&args).into_iter().chain(args.metadata.base.clone()).collect(),
        listens: server.is_some(),
        ..Paths::default()
    };
    confine(&args.confine, &paths)?;
    session.open_folder().map_err(|error| receiving_failed(&args, error))?;
    let server = serving::start(&args, (server, view.clone()), &session, screen)?;
    let outcome = Shutdown::install(capture.as_ref()).and_then(|shutdown| {
        let is_asked = || shutdown.is_asked();
        let receive_all = || loop {
            let watchers = (&mut follower, hook.as_ref());
            let description = found.as_ref().map(|(found, _)| found);
            if let Some(found) = description {
                watchers.0.on_description(found.description.tsi);
            }
            let ended =
                transfer((&args, description), session, &senders, &shutdown, screen, (&mut events, watchers));
            if !args.keys.allow_older {
                senders.follow();
            }
            let except = match (ended, found.as_mut()) {
                (Ok(Ended::Redescribed(next)), Some(found)) => {
                    described::apply(&mut args, &next)?;
                    found.0 = *next;
                    None
                }
                (ended, _) => match follower.next(ended.map(Ended::exit), &is_asked) {
                    NextStep::End(ended) => return ended,
                    NextStep::Session(except) => {
                        if let Some(next) = found.as_mut() {
                            let Some(described) = described::await_next(next, except, &is_asked) else {
                                return Ok(Exit::Ok);
                            };
                            args = described;
                        }
                        except
                    }
                },
            };
            let description = found.as_ref().map(|(found, _)| found);
            session = listen((&args, description, except), (capture.as_ref(), None), &senders)?;
        };
        let ended = receive_all();
        let hooked = hook.map_or(Ok(()), |hook| hook.finish(&is_asked));
        view.iter().for_each(|view| await_viewers(view, &shutdown));
        ended.and_then(|exit| hooked.map(|()| exit))
    });
    drop(server);
    settle(outcome, events, capture)
}

/// Folder for the directories of bundles that were received.
fn bundle_cache() -> Option<PathBuf> {
    keys::state_folder().map(|folder| folder.join("bundles"))
}

/// Files that finding a server's address reads, if a server may be asked.
fn resolver_files(args: &ReceiveArgs) -> Vec<PathBuf> {
    RESOLVER_FILES.iter().filter(|_| args.repair.repair == Repair::Auto).map(PathBuf::from).collect()
}

/// Ends the event log and the capture. A failure of the transfer counts more than a failure of a log.
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

fn listen(
    (args, found, except): (&ReceiveArgs, Option<&FetchedDescription>, Option<u64>),
    (capture, serving): (Option<&Capture>, Option<ServingOptions>),
    senders: &TrustedSenders,
) -> Result<ReceiveSession, Failure> {
    if args.ask.is_some() && args.multicast.is_none() && args.network.interface.is_some() {
        let why = "--interface is for joining a group, and with --ask only --multicast names a group: leave --interface out";
        return Err(Failure::new(Exit::Usage, why));
    }
    let options = match (found, args.ask) {
        (Some(found), _) => ReceiveOptions::described(found, args.folder()),
        (None, Some(source)) => ReceiveOptions::asking(source, args.via, args.folder()),
        (None, None) => ReceiveOptions::new(args.network.group, args.folder()),
    };
    let mut options = match args.multicast {
        Some(group) => options.with_replies_to(group, args.network.interface.clone()),
        None => options,
    };
    options.listen =
        ListenOptions { group: options.listen.group, ..listen_options((args, except), capture, senders)? };
    options.amt = args.amt.map(|relay| amt_relay(relay, options.listen.source)).transpose()?;
    options.selection = Selection::new(&args.select.include, &args.select.exclude)
        .map_err(|error| Failure::of(Exit::Usage, error))?;
    options.bundle_cache = bundle_cache();
    options.preserve = kinds(&args.metadata.preserve);
    options.base = args.metadata.base.clone();
    options.keeps_links = args.metadata.links == KeptLinks::Keep;
    options.takes_other_senders = senders.is_told;
    options.serving = serving;
    if let Some(described) = args.described.as_ref().filter(|_| args.amt.is_none() && args.ask.is_none()) {
        options.set_described_relay(described);
    }
    options.repair.is_enabled = args.repair.repair == Repair::Auto;
    options.repair.url = args.repair.repair_url.clone().or(options.repair.url);
    options.target =
        args.to.as_deref().map(Target::open).transpose().map_err(|error| Failure::of(Exit::Disk, error))?;
    ReceiveSession::listen(options).map_err(|error| receiving_failed(args, error))
}

/// Returns the options of listening that are common to files and streams.
fn listen_options(
    (args, except): (&ReceiveArgs, Option<u64>),
    capture: Option<&Capture>,
    senders: &TrustedSenders,
) -> Result<ListenOptions, Failure> {
    Ok(ListenOptions {
        tsi: args.tsi,
        except,
        timeout: args.timeout,
        max_rate: args.max_rate,
        rtt: args.rtt,
        rules: args.rules,
        trust: senders.trust.clone(),
        reports: !args.no_reports,
        name: args.name.clone(),
        linger: args.linger,
        group_key: keys::group_key(args.keys.group_key.as_deref())?,
        roster_key: keys::group_key(args.roster_key.as_deref())?,
        block_cells: block_cells(&args.view),
        ..args.network.receiver(&args.listen, capture)?
    })
}

/// Returns the address of the AMT relay; asks DNS for the relay of the source.
fn amt_relay(relay: AmtRelayName, source: Option<IpAddr>) -> Result<SocketAddr, Failure> {
    match (relay, source) {
        (AmtRelayName::At(relay), _) => Ok(relay),
        (AmtRelayName::Auto, Some(source)) => {
            find_amt_relay(source).map_err(|error| Failure::of(Exit::Network, error))
        }
        (AmtRelayName::Auto, None) => Err(Failure::new(
            Exit::Usage,
            "--amt auto asks DNS for the relay of a source: name the source by --source, or the relay by its address",
        )),
    }
}

fn transfer(
    (args, found): (&ReceiveArgs, Option<&FetchedDescription>),
    mut session: ReceiveSession,
    senders: &TrustedSenders,
    shutdown: &Shutdown,
    screen: &Screen,
    (events, (follower, hook)): (&mut Events, (&mut Follower, Option<&FileHook>)),
) -> Result<Ended, Failure> {
    shutdown.watch_only(session.stop_handle());
    let mut described = found.and_then(|found| DescriptionWatch::start(found, session.stop_handle()));
    let mut view = View::new(args, screen);
    let group = args.ask.unwrap_or(args.network.group);
    let mut last = Progress::default();
    // A receiver that has left its channels estimates no path any more.
    let mut path = None;
    let mut too_long = None;
    let result = session.run(&mut |update| {
        match &update {
            ReceiveUpdate::Progress(received) => {
                last = progress(received);
                path = received.control.path.or(path);
            }
            ReceiveUpdate::LongPacketsMissing(missing) => too_long = Some(missing.clone()),
            _ => {}
        }
        senders.on_update(&update);
        follower.on_update(&update);
        described.iter_mut().for_each(|described| described.on_update(&update));
        hook.iter().for_each(|hook| hook.on_update(&update));
        log(&update, group, None, events);
        view.show(&update);
    });
    screen.clear();
    let summary =
        result.map_err(|error| events.session_failed(Role::Receiver, last, receiving_failed(args, error)))?;
    let is_redescribed = summary.outcome == ReceiveOutcome::Interrupted && !shutdown.is_asked();
    if let Some(next) = described.and_then(|described| described.take()).filter(|_| is_redescribed) {
        let (tsi, source) = (next.description.tsi.unwrap_or_default(), next.url.clone());
        screen.say(&format!("'{source}' describes session {tsi} now; continuing with this session"));
        events.emit(None, &Event::SessionReplaced { tsi, source });
        return Ok(Ended::Redescribed(Box::new(next)));
    }
    let mut progress = progress(&summary.progress);
    if let Some(reception) = &mut progress.reception {
        reception.path = path.as_ref().map(PathEstimate::from);
    }
    let outcome = outcome_name(&summary.outcome);
    show_progress(&summary.progress, None, events);
    events.emit(None, &Event::SessionEnded { role: Role::Receiver, outcome, progress });
    view.sum_up(&summary);
    follower.on_summary(&summary, screen)?;
    conclude((args, found), &summary, senders, too_long).map(Ended::With)
}

/// End of a session.
enum Ended {
    With(Exit),
    /// The URL describes another session.
    Redescribed(Box<FetchedDescription>),
}

impl Ended {
    fn exit(self) -> Exit {
        if let Self::With(exit) = self { exit } else { Exit::Ok }
    }
}

/// Returns the exit code of a session that has ended, or the failure with advice.
fn conclude(
    (args, found): (&ReceiveArgs, Option<&FetchedDescription>),
    summary: &ReceiveSummary,
    senders: &TrustedSenders,
    too_long: Option<LongPacketsMissing>,
) -> Result<Exit, Failure> {
    let group = args.ask.unwrap_or(args.network.group);
    if summary.outcome == ReceiveOutcome::NothingReceived {
        return Err(match (found, args.ask) {
            (Some(found), _) => nothing_came(found),
            (None, Some(source)) => nothing_answered(source, args.via),
            (None, None) => nothing_wanted(args, summary),
        });
    }
    if summary.outcome == ReceiveOutcome::NothingTrusted {
        return Err(senders.nothing_trusted(summary, &args.folder()));
    }
    if let ReceiveOutcome::NothingOpened(reason) = summary.outcome {
        return Err(nothing_opened(reason, args.keys.group_key.is_some(), group));
    }
    // The reason for lost packets says more than the timeout.
    if let (ReceiveOutcome::Incomplete(_), Some(missing)) = (&summary.outcome, too_long) {
        return Err(Failure::new(Exit::Incomplete, missing));
    }
    match failure(&summary.outcome, summary.files_refused, group, args.place()) {
        Some(failure) => Err(failure),
        None => Ok(Exit::Ok),
    }
}

/// Writes the update of a receiver to the event log.
pub fn log(update: &ReceiveUpdate, group: SocketAddr, end: Option<&str>, events: &mut Events) {
    show_details(update, end, events);
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
        ReceiveUpdate::CeilingChanged { ceiling, level } => {
            let (level, ceiling) = (u16::from(*level), u16::from(*ceiling));
            Event::DemandChanged { level, ceiling, limited: false }
        }
        ReceiveUpdate::Unheard { sender } => Event::DemandUnheard { sender: sender.to_string() },
        ReceiveUpdate::Dismissed { returns } => Event::SessionDismissed { seconds: returns.as_secs() },
        ReceiveUpdate::OtherSession { tsi, source } => {
            Event::SessionOther { tsi: *tsi, source: source.to_string() }
        }
        ReceiveUpdate::SessionVerified { tsi, key, .. } => {
            Event::SessionVerified { tsi: *tsi, key: fingerprint(key) }
        }
        ReceiveUpdate::NextKeyAnnounced { key } => Event::NextKeyAnnounced { key: fingerprint(key) },
        ReceiveUpdate::SessionUnsigned { tsi } => Event::SessionUnsigned { tsi: *tsi },
        ReceiveUpdate::SessionUnopened { tsi, reason } => {
            let (reason, epoch) = match *reason {
                Unopened::NoKey { epoch } => ("no-key", Some(epoch)),
                Unopened::WrongKey { epoch } => ("wrong-key", Some(epoch)),
                Unopened::Clear => ("clear", None),
            };
            Event::SessionUnopened { tsi: *tsi, reason, epoch }
        }
        ReceiveUpdate::SessionUntrusted { tsi, source } => {
            Event::SessionUntrusted { tsi: *tsi, source: source.to_string() }
        }
        ReceiveUpdate::SessionContradicted { contradictions } => {
            Event::SessionContradicted { contradictions: *contradictions }
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
        ReceiveUpdate::SessionCompleted { refused } => Event::SessionCompleted { refused: *refused },
        ReceiveUpdate::SessionClosed => Event::SessionClosed {},
        ReceiveUpdate::Progress(received) => Event::SessionProgress(progress(received)),
        ReceiveUpdate::Serving { port, time } => {
            Event::RepairServing { port: *port, seconds: time.as_secs_f64() }
        }
        ReceiveUpdate::PathChanged(path) => Event::PathChanged { path: path.name() },
        ReceiveUpdate::DescribedByHttp { key } => {
            Event::SessionDescribed { key: key.as_ref().map(fingerprint) }
        }
        ReceiveUpdate::ControlRefused { reason } => Event::SessionFailed { reason },
        ReceiveUpdate::StoreFailed(error) => Event::SessionFailed { reason: &error.0 },
        update => match file_event(update) {
            Some(event) => event,
            None => return,
        },
    };
    events.emit(end, &event);
}

/// Returns the event of an update about a file or a stream.
fn file_event(update: &ReceiveUpdate) -> Option<Event<'_>> {
    Some(match update {
        ReceiveUpdate::FileAnnounced { path, bytes, encoding, .. } => Event::ObjectAnnounced {
            file: path.as_str(),
            bytes: *bytes,
            coding: encoding.map(|(coding, _)| coding.name()),
            encoded_bytes: encoding.map(|(_, bytes)| bytes),
        },
        ReceiveUpdate::FileRefused { location, reason } => Event::ObjectRefused { location, reason },
        ReceiveUpdate::FileCompleted { path, bytes, digest, is_present, .. } => {
            let digest = digest.as_ref().map(hex);
            Event::ObjectCompleted { file: path.as_str(), bytes: *bytes, digest, present: *is_present }
        }
        ReceiveUpdate::PartMissed { stream, offset, bytes } => {
            Event::StreamMissed { file: stream.as_str(), offset: *offset, bytes: *bytes }
        }
        ReceiveUpdate::StreamCompleted { stream, bytes, missed } => {
            Event::StreamCompleted { file: stream.as_str(), bytes: *bytes, missed: *missed }
        }
        ReceiveUpdate::FileMismatch { path, .. } => Event::ObjectMismatch { file: path.as_str() },
        ReceiveUpdate::Repair(update) => repair_event(update),
        _ => return None,
    })
}

/// Shows on the page what events do not contain.
fn show_details(update: &ReceiveUpdate, end: Option<&str>, events: &mut Events) {
    match update {
        ReceiveUpdate::FileAnnounced { file, path, .. } => events.name_file(end, *file, path.as_str()),
        ReceiveUpdate::Progress(received) => show_progress(received, end, events),
        _ => {}
    }
}

/// Shows on the page what the event of a progress does not contain.
pub fn show_progress(received: &ReceiveProgress, end: Option<&str>, events: &mut Events) {
    let ceiling = received.control.levels.map(|levels| (levels.ceiling.into(), None));
    let details = Details {
        channel_bytes: &received.channel_bytes,
        ceiling,
        blocks: received.blocks.as_deref(),
        files: &received.files,
        loss_events: received.control.loss_event_rate,
    };
    events.details(end, &details);
}

fn repair_event(update: &RepairUpdate) -> Event<'_> {
    match update {
        RepairUpdate::Scheduled { wait, url } => {
            Event::RepairScheduled { wait: wait.as_secs_f64() * 1e3, url }
        }
        RepairUpdate::Refused { path, url, reason } => {
            Event::RepairRefused { file: path.as_str(), url, reason }
        }
        RepairUpdate::Failed { reason } => Event::RepairFailed { reason },
    }
}

/// Returns the group and port of a channel, which count up from the base channel.
fn channel_group(base: SocketAddr, channel: u16) -> String {
    let channels = headwater::net::Channels::new(base, channel.saturating_add(1));
    let group = channels.ok().and_then(|channels| channels.address(headwater_proto::ChannelId(channel)));
    group.unwrap_or(base).to_string()
}

/// Returns the counters of a receiver.
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
        reused: received.stats.reused,
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
        marked: received.marked,
        window: control.window,
        missing: received.symbols.saturating_sub(received.symbols_held),
        bytes_by_path: path_bytes(received.bytes_by_path),
        time_left: view::time_left(received).and_then(|left| u64::try_from(left.as_millis()).ok()),
        path: control.path.as_ref().map(PathEstimate::from),
    }
}

fn path_bytes(BytesByPath { multicast, amt, rainbow, http }: BytesByPath) -> PathBytes {
    PathBytes { multicast, amt, rainbow, http }
}

/// Converts a time to milliseconds, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "times of a session, in microseconds, are below 2^53")]
fn millis(time: headwater_proto::Duration) -> f64 {
    (time.as_nanos() / 1_000) as f64 / 1e3
}

/// Returns a word for the event log.
pub fn outcome_name(outcome: &ReceiveOutcome) -> &'static str {
    match outcome {
        ReceiveOutcome::Completed => "completed",
        ReceiveOutcome::NothingReceived => "nothing-received",
        ReceiveOutcome::NothingWanted => "nothing-wanted",
        ReceiveOutcome::NothingTrusted => "nothing-trusted",
        ReceiveOutcome::NothingOpened(_) => "nothing-opened",
        ReceiveOutcome::Incomplete(_) => "incomplete",
        ReceiveOutcome::VerificationFailed => "verification-failed",
        ReceiveOutcome::ControlRefused(_) => "control-refused",
        ReceiveOutcome::StoreFailed(_) => "store-failed",
        ReceiveOutcome::Interrupted => "interrupted",
    }
}

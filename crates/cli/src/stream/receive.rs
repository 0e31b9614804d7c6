//! `headwater stream receive`.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater::stream::{
    SessionEvent, StreamOutcome, StreamReceiveOptions, StreamReceiveProgress, StreamReceiveSession,
    StreamReceiveSummary, StreamReceiveUpdate,
};
use headwater::{ListenOptions, ReceiveUpdate, Session};
use headwater_proto::eventlog::{Event, Progress, Role};
use headwater_web::{GatewayOptions, GatewaySocket, VideoReception};

use super::folder::Folder;
use super::player::{Played, Player};
use crate::args::StreamReceiveArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::keys::{self, TrustedSenders};
use crate::receive::{error_failure, link_changed, nothing_opened, nothing_received, settle};
use crate::sandbox::{Paths, confine};
use crate::screen::{Screen, count, percent, rate, time};
use crate::send::server_failed;
use crate::shutdown::Shutdown;

/// Default address of the page.
const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Longest buffer: a gateway keeps several.
pub const BUFFER_BYTES_MAX: usize = 16 << 20;

/// Receives a stream.
pub fn run(args: &StreamReceiveArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater stream receive")?;
    let senders = TrustedSenders::new(&args.keys, args.network.group)?;
    let session = open(args, capture.as_ref(), &senders)?;
    let address = args.http.or_else(|| args.out.is_none().then_some(HTTP_DEFAULT));
    let socket = address.map(GatewaySocket::open).transpose().map_err(server_failed)?;
    let folders: Vec<PathBuf> = args.out.iter().cloned().chain(senders.folder()).collect();
    confine(&args.confine, &Paths { folders, listens: socket.is_some(), ..Paths::default() })?;
    let reception = VideoReception::default();
    let mut page = None;
    let gateway = socket.map(|socket| {
        page = Some(socket.address());
        let options = GatewayOptions {
            about: format!("Live video from {}", args.network.group),
            names: args.http_name.clone(),
            receivers: vec![("This receiver".to_owned(), reception.clone())],
        };
        socket.serve(options)
    });
    let gateway = gateway.transpose().map_err(server_failed)?;
    if let Some(page) = page {
        screen.say(&format!("video at http://{page}/, for players http://{page}/master.m3u8"));
    }
    let player = Player::new(reception, args.out.clone().map(Folder::new));
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| transfer(args, session, player, &shutdown, &screen, (&mut events, &senders)));
    drop(gateway);
    settle(outcome, events, capture)
}

fn open(
    args: &StreamReceiveArgs,
    capture: Option<&Capture>,
    senders: &TrustedSenders,
) -> Result<StreamReceiveSession, Failure> {
    let listen = ListenOptions {
        tsi: args.tsi,
        timeout: args.timeout,
        max_rate: args.max_rate,
        rtt: args.rtt,
        rules: args.rules,
        trust: senders.trust.clone(),
        group_key: keys::group_key(args.keys.group_key.as_deref())?,
        ..args.network.receiver(&args.listen, capture)?
    };
    let options = StreamReceiveOptions {
        buffer_bytes_max: BUFFER_BYTES_MAX,
        // Packets beyond a hole count by the repair symbols.
        wants_pieces: true,
        ..StreamReceiveOptions::new(listen)
    };
    let tried = format!("cannot receive from {}", args.network.group);
    StreamReceiveSession::open(options).map_err(|error| error_failure(&tried, error))
}

/// Reception of a session, in the order of its updates.
struct Watch<'a> {
    player: Player,
    screen: &'a Screen,
    events: &'a mut Events,
    senders: &'a TrustedSenders,
    last: Progress,
    /// Group, and the reason why no content is taken.
    group: SocketAddr,
    refused: Option<Failure>,
    has_group_key: bool,
    played: Option<Played>,
}

fn transfer(
    args: &StreamReceiveArgs,
    session: StreamReceiveSession,
    player: Player,
    shutdown: &Shutdown,
    screen: &Screen,
    (events, senders): (&mut Events, &TrustedSenders),
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let stop = session.stop_handle();
    let group = args.network.group;
    events.emit(
        None,
        &Event::SessionStarted {
            role: Role::Receiver,
            group: group.to_string(),
            interface: None,
            tsi: None,
            control: None,
        },
    );
    let line = screen.line("receiving");
    let mut watch = Watch {
        player,
        screen,
        events,
        senders,
        group,
        last: Progress::default(),
        refused: None,
        has_group_key: args.keys.group_key.is_some(),
        played: None,
    };
    // The session reads packets on a thread of its own, so that a slow disk loses no packets.
    let tried = format!("cannot receive from {group}");
    let mut thread = session.spawn().map_err(|error| Failure::of(Exit::Other, error))?;
    let mut failed = None;
    for update in thread.updates() {
        if let StreamReceiveUpdate::Progress(received) = &update {
            line.show(&watch.parts(received));
        }
        // The buffer that a signal cuts off says nothing.
        if shutdown.is_asked() && matches!(update, StreamReceiveUpdate::Buffer(_)) {
            continue;
        }
        if let Err(failure) = watch.on_update(update)
            && failed.is_none()
        {
            failed = Some(failure);
            stop.stop();
        }
    }
    screen.clear();
    let result = thread.join();
    let Watch { mut player, events, last, refused, .. } = watch;
    let summary = result
        .map_err(|error| events.session_failed(Role::Receiver, last.clone(), error_failure(&tried, error)))?;
    let finished = player.finish();
    let ended = failed.map_or(finished, Err).and_then(|()| conclude(&summary, refused, (group, args)));
    let outcome = match (&ended, &summary.outcome) {
        (Ok(Exit::Interrupted), _) => "interrupted",
        (Ok(_), _) => "completed",
        (Err(_), StreamOutcome::NothingReceived) => "nothing-received",
        (Err(_), _) => "failed",
    };
    events.emit(None, &Event::SessionEnded { role: Role::Receiver, outcome, progress: last });
    if player.counters().buffers > 0 {
        screen.say(&sum_up(&player, &summary));
    }
    ended
}

impl Watch<'_> {
    fn on_update(&mut self, update: StreamReceiveUpdate) -> Result<(), Failure> {
        match update {
            StreamReceiveUpdate::Buffer(buffer) => {
                let played = self.player.on_buffer(&buffer)?;
                let event = Event::StreamBuffer {
                    number: played.number,
                    prefix: buffer.prefix.len(),
                    bytes: buffer.length,
                    rung: played.rung,
                    repaired: played.repaired,
                };
                self.events.emit(None, &event);
                self.played = Some(played);
            }
            StreamReceiveUpdate::Session(event) => self.on_session(event),
            StreamReceiveUpdate::Progress(received) => {
                self.last = progress(&received);
                self.events.emit(None, &Event::SessionProgress(self.last.clone()));
            }
            StreamReceiveUpdate::LinkChanged(change) => {
                link_changed(&change);
                let event = Event::LinkChanged { interface: &change.interface, state: change.state.name() };
                self.events.emit(None, &event);
            }
            StreamReceiveUpdate::Late { .. } => {}
        }
        Ok(())
    }

    fn on_session(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Found { tsi, source } => {
                self.screen.say(&format!("session {tsi} from {source}"));
                self.events.emit(None, &Event::SessionFound { tsi, source: source.to_string() });
            }
            SessionEvent::Verified { tsi, key, is_ephemeral, started } => {
                self.refused = None;
                self.senders.on_update(&ReceiveUpdate::SessionVerified { tsi, key, is_ephemeral, started });
            }
            SessionEvent::Untrusted { .. } => {
                let reason = format!(
                    "packets came from {}, but none of a trusted sender; ask the sender for its key (--trust KEY), or receive \
                     with --trust any, or --unsigned if it does not sign",
                    self.group
                );
                tracing::warn!("{reason}");
                self.refused = Some(Failure::new(Exit::Untrusted, reason));
            }
            SessionEvent::Unopened { reason, .. } => {
                let failure = nothing_opened(reason, self.has_group_key, self.group);
                tracing::warn!("{}", failure.chain());
                self.refused = Some(failure);
            }
            _ => {}
        }
    }

    /// Returns `1.9 Mbit/s`, `encoding 3 of 3`, `2 buffers without a picture`, by importance.
    fn parts(&self, received: &StreamReceiveProgress) -> Vec<String> {
        let mut parts = vec![rate(received.rate_bits)];
        match self.played {
            Some(Played { rung: Some(rung), rungs, .. }) => {
                parts.push(format!("encoding {} of {rungs}", rung + 1));
            }
            Some(Played { rungs: 1.., .. }) => parts.push("no picture".to_owned()),
            _ => {}
        }
        let counters = self.player.counters();
        parts.push(format!("{} buffers", counters.buffers));
        if counters.without > 0 {
            parts.push(format!("{} without a picture", counters.without));
        }
        parts
    }
}

/// Returns the exit code of a session that has ended, or the failure with advice.
fn conclude(
    summary: &StreamReceiveSummary,
    refused: Option<Failure>,
    (group, args): (SocketAddr, &StreamReceiveArgs),
) -> Result<Exit, Failure> {
    let failure = |exit, why: &str| Err(Failure::new(exit, why));
    match &summary.outcome {
        StreamOutcome::Closed => Ok(Exit::Ok),
        StreamOutcome::Interrupted => Ok(Exit::Interrupted),
        StreamOutcome::NothingReceived | StreamOutcome::TimedOut => match refused {
            Some(failure) => Err(failure),
            None if summary.outcome == StreamOutcome::NothingReceived => Err(nothing_received(group)),
            None => failure(
                Exit::Incomplete,
                "no part of a buffer came within the timeout; has the sender ended?",
            ),
        },
        StreamOutcome::NoBuffers => failure(
            Exit::Other,
            &format!(
                "the session on {group} carries files, no stream; receive with `headwater receive --group {}`",
                args.network.group
            ),
        ),
        StreamOutcome::ControlRefused(reason) => failure(Exit::Other, reason),
    }
}

fn progress(received: &StreamReceiveProgress) -> Progress {
    Progress {
        packets: received.stats.packets,
        bytes: received.stats.bytes,
        rate: received.rate_bits,
        lost: received.reception.lost,
        duplicates: received.stats.parts.duplicates,
        kernel_drops: received.kernel_drops,
        ..Progress::default()
    }
}

/// Formats `received 60 buffers in 61.2 s: 1 without a picture, 0 without a header, 0 of other content; 0.2 %
/// of the packets lost, 12 repaired`.
fn sum_up(player: &Player, summary: &StreamReceiveSummary) -> String {
    let counters = player.counters();
    let reception = summary.progress.reception;
    format!(
        "received {} in {}: {} without a picture, {} without a header, {} of other content; {} of the packets lost, {} repaired",
        count(usize::try_from(counters.buffers).unwrap_or(usize::MAX), "buffer"),
        time(summary.progress.elapsed),
        counters.without,
        counters.headless,
        counters.foreign,
        percent(reception.lost, reception.packets + reception.lost),
        counters.repaired
    )
}

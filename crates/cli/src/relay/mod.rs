//! `headwater relay`.

mod amt;
mod sim;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use headwater::relay::{RELAY_PORT, RelayError, RelayGroup, RelayOptions, RelayProgress, RelaySession};
use headwater::{Session, StopHandle};
use headwater_proto::Seed;
use headwater_proto::bcfs::RouterConfig;
use headwater_proto::bcfs::relay::{EgressShape, RelayConfig};
use headwater_proto::eventlog::{self, Event};
use headwater_proto::queue::{QueueConfig, RedConfig};

use crate::args::{QueueName, RelayArgs};
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::live::Live;
use crate::receive::settle;
use crate::sandbox::{Paths, confine};
use crate::screen::{Screen, count, rate, time};
use crate::shutdown::Shutdown;

/// Relays until interrupted.
pub fn run(args: &RelayArgs) -> Result<Exit, Failure> {
    if !args.sim.sim.is_empty() {
        return sim::run(args);
    }
    if args.ecn && args.queue != QueueName::Red {
        return Err(Failure::new(
            Exit::Usage,
            "--ecn needs --queue red: a drop-tail queue does not mark packets",
        ));
    }
    if args.amt.amt {
        return amt::run(args);
    }
    run_relay(args, |capture| {
        RelaySession::open(options(args, capture))
            .map_err(|error| RelaySession::failed("cannot relay", error))
    })
}

/// Relay of a kind, as the command shows the relay.
trait ShownRelay: Session<Update = Self::Progress, Summary = Self::Progress> {
    type Progress: Clone + Default;

    /// Returns the addresses at which the relay listens.
    fn listens(&self) -> Vec<String>;

    /// Returns the opening words, before the addresses.
    fn title(args: &RelayArgs) -> String;

    /// Returns the line of progress.
    fn line_of(progress: &Self::Progress, before: &Self::Progress) -> String;

    /// Returns the summary.
    fn last_line_of(progress: &Self::Progress) -> String;

    /// Returns what the user should know, once, since the progress before.
    fn advice(_progress: &Self::Progress, _before: &Self::Progress) -> Option<&'static str> {
        None
    }

    /// Returns the event of progress, or of the end.
    fn event(progress: &Self::Progress, is_end: bool) -> Event<'static>;

    fn failed(tried: &str, error: Self::Error) -> Failure;
}

/// Opens a relay, and relays until interrupted.
fn run_relay<R: ShownRelay>(
    args: &RelayArgs,
    open: impl FnOnce(Option<&Capture>) -> Result<R, Failure>,
) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater relay")?;
    let mut live = Live::open(&args.view, &mut events)?;
    confine(&args.confine, &Paths { listens: live.is_some(), ..Paths::default() })?;
    let session = open(capture.as_ref())?;
    live.iter_mut().try_for_each(|live| live.serve(None, &screen))?;
    let outcome = Shutdown::install(capture.as_ref()).and_then(|shutdown| {
        let outcome = relay(args, session, &shutdown, &screen, &mut events);
        if let Some(live) = live {
            live.finish(&shutdown);
        }
        outcome
    });
    settle(outcome, events, capture)
}

fn relay<R: ShownRelay>(
    args: &RelayArgs,
    mut session: R,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let listen = session.listens();
    screen.say(&format!("{} at {}", R::title(args), listen.join(" and ")));
    events.emit(None, &Event::RelayStarted { listen });
    stop_after(args.duration, session.stop_handle());
    let line = screen.line("relaying");
    let mut before = R::Progress::default();
    let ended = session.run(&mut |progress| {
        line.set_message(R::line_of(&progress, &before));
        if let Some(advice) = R::advice(&progress, &before) {
            screen.say(advice);
        }
        events.emit(None, &R::event(&progress, false));
        before = progress;
    });
    line.finish_and_clear();
    match ended {
        Ok(progress) => {
            events.emit(None, &R::event(&progress, true));
            screen.say(&R::last_line_of(&progress));
            Ok(Exit::Ok)
        }
        Err(error) => Err(events.failed(R::failed("the relay ended", error))),
    }
}

fn options(args: &RelayArgs, capture: Option<&Capture>) -> RelayOptions {
    let group = args.multicast.zip(args.interface.clone()).zip(args.network);
    let group =
        group.map(|((group, interface), network)| RelayGroup { group, interface, network, ttl: args.ttl });
    let router = RouterConfig::default().with_entries(args.entries as usize);
    let relay = RelayConfig::new(router, Seed(0))
        .with_upstreams(args.upstream.clone())
        .with_sources(args.source.clone())
        .with_neighbours(args.neighbours as usize)
        .with_requests_per_second(args.request_rate)
        .with_recent(args.keep as usize)
        .with_shape(args.egress_rate.map(|rate| EgressShape { rate, queue: queue(args) }));
    let mut options = RelayOptions::new(relay);
    (options.group, options.dscp, options.trace) = (group, args.dscp, capture.map(Capture::hook));
    if !args.listen.is_empty() {
        options.listen = args.listen.iter().map(|listen| listen.with_port(RELAY_PORT)).collect();
    }
    options
}

fn queue(args: &RelayArgs) -> QueueConfig {
    match args.queue {
        QueueName::DropTail => QueueConfig::drop_tail(args.queue_packets),
        QueueName::Red if args.ecn => QueueConfig::Red(RedConfig::after_2001(args.queue_packets).with_ecn()),
        QueueName::Red => QueueConfig::Red(RedConfig::after_2001(args.queue_packets)),
    }
}

fn stop_after(duration: Option<Duration>, stop: StopHandle) {
    if let Some(duration) = duration {
        thread::spawn(move || {
            thread::sleep(duration);
            stop.stop();
        });
    }
}

impl ShownRelay for RelaySession {
    type Progress = RelayProgress;

    fn listens(&self) -> Vec<String> {
        self.local_addrs().iter().map(SocketAddr::to_string).collect()
    }

    fn title(_args: &RelayArgs) -> String {
        "relaying".into()
    }

    /// Returns `3.4 Mbit/s to 9 neighbours, 812 requests/s in, 301 up, 256 breadcrumbs`.
    fn line_of(progress: &RelayProgress, before: &RelayProgress) -> String {
        let (now, then) = (&progress.counters, &before.counters);
        let span = progress.elapsed.saturating_sub(before.elapsed).max(Duration::from_millis(1));
        let per_second =
            |now: u64, then: u64| u128::from(now.saturating_sub(then)) * 1_000 / span.as_millis();
        let bits = per_second(now.egress.sent_bytes, then.egress.sent_bytes) * 8;
        let up = |counters: &headwater_proto::bcfs::RouterCounters| counters.sent_on + counters.refreshed;
        format!(
            "{}, {}, {} requests/s in, {}/s up, {}",
            rate(u64::try_from(bits).unwrap_or(u64::MAX)),
            count(now.neighbours, "neighbour"),
            per_second(now.router.requests + now.router.nulls, then.router.requests + then.router.nulls),
            per_second(up(&now.router), up(&then.router)),
            count(now.entries, "breadcrumb"),
        )
    }

    /// Returns the summary of the relay.
    fn last_line_of(progress: &RelayProgress) -> String {
        let RelayProgress { elapsed, counters, unsent } = progress;
        let (router, egress) = (&counters.router, &counters.egress);
        format!(
            "relayed {} replies to {} in {}; of {} requests {} went up; {} packets dropped by queues, {unsent} by the system",
            router.replies,
            router.forwarded,
            time(*elapsed),
            router.requests + router.nulls,
            router.sent_on + router.refreshed,
            egress.queue_drops + egress.no_room,
        )
    }

    fn event(progress: &RelayProgress, is_end: bool) -> Event<'static> {
        let progress = eventlog::RelayProgress { counters: progress.counters, unsent: progress.unsent };
        if is_end { Event::RelayEnded(progress) } else { Event::RelayProgress(progress) }
    }

    fn failed(tried: &str, error: RelayError) -> Failure {
        let exit = match error {
            RelayError::NoAddress
            | RelayError::ListenTwice(..)
            | RelayError::GroupFamily(_)
            | RelayError::NetworkFamily(..)
            | RelayError::Queue(_) => Exit::Usage,
            RelayError::Open(_) | RelayError::Driver(_) => Exit::Network,
            RelayError::Poller(_) => Exit::Other,
        };
        Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
    }
}

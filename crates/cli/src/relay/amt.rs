//! `headwater relay --amt`.

use std::net::SocketAddr;

use headwater::Session;
use headwater::relay::{AMT_PORT, AmtRelayError, AmtRelayOptions, AmtRelayProgress, AmtRelaySession};
use headwater_proto::bcfs::relay::EgressShape;
use headwater_proto::eventlog::{self, Event};

use crate::args::RelayArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::receive::settle;
use crate::sandbox::{Paths, confine};
use crate::screen::{Screen, count, rate, time};
use crate::shutdown::Shutdown;

/// Relays groups until interrupted.
pub fn run(args: &RelayArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let mut events = Events::open(&args.output, "headwater relay")?;
    confine(&args.confine, &Paths::default())?;
    let options = options(args, capture.as_ref());
    let session = AmtRelaySession::open(options).map_err(|error| failed("cannot relay", error))?;
    let outcome = Shutdown::install(capture.as_ref())
        .and_then(|shutdown| relay(args, session, &shutdown, &screen, &mut events));
    settle(outcome, events, capture)
}

fn options(args: &RelayArgs, capture: Option<&Capture>) -> AmtRelayOptions {
    let interface = args.interface.clone().unwrap_or_default();
    let mut options = AmtRelayOptions::new(interface, args.amt.ports());
    if !args.listen.is_empty() {
        options.listen = args.listen.iter().map(|listen| listen.with_port(AMT_PORT)).collect();
    }
    options.shape = args.egress_rate.map(|rate| EgressShape { rate, queue: super::queue(args) });
    (options.dscp, options.trace) = (args.dscp, capture.map(Capture::hook));
    options
}

fn relay(
    args: &RelayArgs,
    mut session: AmtRelaySession,
    shutdown: &Shutdown,
    screen: &Screen,
    events: &mut Events,
) -> Result<Exit, Failure> {
    shutdown.watch(session.stop_handle());
    let listen: Vec<_> = session.local_addrs().iter().map(SocketAddr::to_string).collect();
    let on = args.interface.as_deref().unwrap_or_default();
    screen.say(&format!("relaying groups on {on} to AMT gateways, at {}", listen.join(" and ")));
    events.emit(None, &Event::RelayStarted { listen });
    super::stop_after(args.duration, session.stop_handle());
    let line = screen.line("relaying");
    let mut before = AmtRelayProgress::default();
    let ended = session.run(&mut |progress| {
        line.set_message(line_of(&progress, &before));
        events.emit(None, &Event::AmtRelayProgress(event(&progress)));
        before = progress;
    });
    line.finish_and_clear();
    match ended {
        Ok(progress) => {
            events.emit(None, &Event::AmtRelayEnded(event(&progress)));
            screen.say(&last_line_of(&progress));
            Ok(Exit::Ok)
        }
        Err(error) => Err(events.failed(failed("the relay ended", error))),
    }
}

fn event(progress: &AmtRelayProgress) -> eventlog::AmtRelayProgress {
    eventlog::AmtRelayProgress { counters: progress.counters, unsent: progress.unsent }
}

/// Returns `13 Mbit/s to 3 gateways, 12 groups`.
fn line_of(progress: &AmtRelayProgress, before: &AmtRelayProgress) -> String {
    let (now, then) = (&progress.counters, &before.counters);
    let span = progress.elapsed.saturating_sub(before.elapsed).as_millis().max(1);
    let bytes = now.egress.sent_bytes.saturating_sub(then.egress.sent_bytes);
    let bits = u128::from(bytes) * 8_000 / span;
    format!(
        "{} to {}, {}",
        rate(u64::try_from(bits).unwrap_or(u64::MAX)),
        count(now.gateways, "gateway"),
        count(now.memberships, "group"),
    )
}

/// Returns the summary of the relay.
fn last_line_of(progress: &AmtRelayProgress) -> String {
    let AmtRelayProgress { elapsed, counters, unsent } = progress;
    format!(
        "relayed {} packets of {} in {}; {} packets dropped by queues, {unsent} by the system",
        counters.egress.sent,
        counters.packets,
        time(*elapsed),
        counters.egress.queue_drops + counters.egress.no_room,
    )
}

fn failed(tried: &str, error: AmtRelayError) -> Failure {
    let exit = match error {
        AmtRelayError::Ports | AmtRelayError::Addresses(_) | AmtRelayError::Queue(_) => Exit::Usage,
        AmtRelayError::Interface(_) | AmtRelayError::Open(_) | AmtRelayError::Driver(_) => Exit::Network,
    };
    Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
}

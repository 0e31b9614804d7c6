//! `headwater relay --amt`.

use std::net::SocketAddr;

use headwater::relay::{AMT_PORT, AmtRelayError, AmtRelayOptions, AmtRelayProgress, AmtRelaySession};
use headwater_proto::bcfs::relay::EgressShape;
use headwater_proto::eventlog::{self, Event};

use crate::args::RelayArgs;
use crate::capture::Capture;
use crate::exit::{Exit, Failure};
use crate::screen::{count, rate, time};

use super::{ShownRelay, run_relay};

/// Relays groups until interrupted.
pub fn run(args: &RelayArgs) -> Result<Exit, Failure> {
    run_relay(args, |capture| {
        AmtRelaySession::open(options(args, capture))
            .map_err(|error| AmtRelaySession::failed("cannot relay", error))
    })
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

impl ShownRelay for AmtRelaySession {
    type Progress = AmtRelayProgress;

    fn listens(&self) -> Vec<String> {
        self.local_addrs().iter().map(SocketAddr::to_string).collect()
    }

    fn title(args: &RelayArgs) -> String {
        let on = args.interface.as_deref().unwrap_or_default();
        format!("relaying groups on {on} to AMT gateways,")
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

    fn event(progress: &AmtRelayProgress, is_end: bool) -> Event<'static> {
        let progress = eventlog::AmtRelayProgress { counters: progress.counters, unsent: progress.unsent };
        if is_end { Event::AmtRelayEnded(progress) } else { Event::AmtRelayProgress(progress) }
    }

    fn failed(tried: &str, error: AmtRelayError) -> Failure {
        let exit = match error {
            AmtRelayError::Ports | AmtRelayError::Addresses(_) | AmtRelayError::Queue(_) => Exit::Usage,
            AmtRelayError::Interface(_) | AmtRelayError::Open(_) | AmtRelayError::Driver(_) => Exit::Network,
        };
        Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
    }
}

//! From options to the congestion control of a session.

use headwater::pgm::LeSbccOptions;
use headwater::{CongestionControl, LayerOptions, RainbowOptions, SimOptions};
use headwater_proto::controls::{self, Network};

use crate::args::{self, Order, SendArgs};
use crate::exit::{Exit, Failure};

/// The control that the options ask for: the one named; else a fixed rate where there is one, else M2C.
pub fn chosen(args: &SendArgs) -> Result<CongestionControl, Failure> {
    let by_default = if args.rate.is_some() { &controls::FIXED } else { &controls::DEFAULT };
    let wanted = args.congestion_control.unwrap_or(by_default);
    if !args.listen.is_empty() && wanted.network != Network::Requests {
        return Err(usage(
            "--listen is where receivers ask: it needs --congestion-control rainbow".to_owned(),
        ));
    }
    if wanted.network != Network::GroupsAndReports && args.sim != args::SimArgs::default() {
        return Err(usage(
            "--groups and --sim-relay are options of --congestion-control sim alone".to_owned(),
        ));
    }
    if args.sim.sim_relay.len() > headwater::SIM_RELAYS_MAX {
        return Err(usage(format!(
            "--sim-relay may be given {} times at the most; put a relay between",
            headwater::SIM_RELAYS_MAX
        )));
    }
    let no_sender = || usage(format!("this version has no sender of {}", wanted.name));
    let control = match wanted.network {
        Network::Requests => rainbow(args)?,
        Network::Group => return fixed(args),
        Network::GroupAndNaks => return le_sbcc(args, LeSbccOptions::of(wanted).ok_or_else(no_sender)?),
        Network::GroupsAndReports => sim(args)?.into(),
        Network::Groups => CongestionControl::layered(wanted, layers(args)).ok_or_else(no_sender)?,
    };
    let name = control.name();
    if let Some(rate) = args.rate {
        return Err(usage(format!(
            "--rate {rate} is one rate for all, and with {name} each receiver has its own: say --max-rate for the most, or \
             --congestion-control fixed"
        )));
    }
    if args.passes.is_some() {
        return Err(usage(format!(
            "--passes counts packets of one rate, and with {name} each receiver has its own: say --duration, or --rate for one rate"
        )));
    }
    if args.order == Order::Window {
        return Err(usage(format!(
            "--order window is for receivers of one rate, and with {name} each has its own: leave it out, or say --rate"
        )));
    }
    Ok(control)
}

fn rainbow(args: &SendArgs) -> Result<CongestionControl, Failure> {
    if args.base_rate.is_some() {
        return Err(usage(
            "--base-rate is of groups, and with rainbow each receiver asks for what it takes: leave it out"
                .to_owned(),
        ));
    }
    if args.network.interface.is_some() {
        return Err(usage(
            "--interface is where multicast leaves, and rainbow needs none: say --listen and an address"
                .to_owned(),
        ));
    }
    let of_multicast = [
        ("--group", args.network.group.to_string() != args::GROUP_DEFAULT),
        ("--ttl", args.link.ttl != args::TTL_DEFAULT),
        ("--outage", args.link.outage != args::OUTAGE_DEFAULT),
        ("--no-offload", args.link.no_offload),
    ];
    if let Some((option, _)) = of_multicast.into_iter().find(|(_, is_said)| *is_said) {
        return Err(usage(format!("{option} is of multicast, and rainbow sends none: leave it out")));
    }
    Ok(RainbowOptions::new().with_max_rate(args.max_rate).into())
}

fn fixed(args: &SendArgs) -> Result<CongestionControl, Failure> {
    for (option, rate) in [("--max-rate", args.max_rate), ("--base-rate", args.base_rate)] {
        if rate.is_some() {
            return Err(usage(format!(
                "{option} bounds what receivers choose from, and at a fixed rate there is nothing to choose: leave out {option} or \
                 --rate"
            )));
        }
    }
    match args.rate {
        Some(rate) => Ok(CongestionControl::Fixed { rate }),
        None => Err(usage("--congestion-control fixed needs a --rate, for example --rate 10M".to_owned())),
    }
}

fn le_sbcc(args: &SendArgs, options: LeSbccOptions) -> Result<CongestionControl, Failure> {
    let options = options.with_min_rate(args.base_rate).with_wait_for_slowest(args.wait_for_slowest);
    let options = args.max_rate.map_or(options, |rate| options.with_max_rate(rate));
    if let Some(rate) = args.rate {
        return Err(usage(format!(
            "--rate {rate} is a rate that stays, and with {} the sender finds it: say --max-rate for the most, or \
             --congestion-control fixed",
            options.name()
        )));
    }
    if let Some(least) = args.base_rate.filter(|least| *least > options.max_rate()) {
        let max = options.max_rate();
        return Err(usage(format!("--base-rate {least}, the least, is above the most, --max-rate {max}")));
    }
    Ok(options.into())
}

fn layers(args: &SendArgs) -> LayerOptions {
    let mut layers = LayerOptions::new();
    if let Some(rate) = args.base_rate {
        layers = layers.with_base_rate(rate);
    }
    if let Some(rate) = args.max_rate {
        layers = layers.with_max_rate(rate);
    }
    layers
}

fn sim(args: &SendArgs) -> Result<SimOptions, Failure> {
    let group = args.network.group.ip();
    let relays = args.sim.sim_relay.iter().map(|relay| relay.for_option("--sim-relay", group));
    let options = SimOptions::new().with_relays(&relays.collect::<Result<Vec<_>, _>>()?);
    let options = args.sim.groups.map_or(options, |groups| options.with_groups(groups));
    let options = args.base_rate.map_or(options, |rate| options.with_initial_rate(rate));
    Ok(args.max_rate.map_or(options, |rate| options.with_max_rate(rate)))
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

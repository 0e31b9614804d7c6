//! From options to the congestion control of a session.

use headwater::pgm::LeSbccOptions;
use headwater::{
    CongestionControl, DedicatedOptions, IDLE_RATE_DEFAULT, LayerOptions, RainbowOptions, SimOptions,
};
use headwater_proto::Rate;
use headwater_proto::controls::{self, Control, Network};
use headwater_proto::sim::GROUPS_MAX;

use crate::args::{self, Demand, Order, SendArgs, SendRate};
use crate::exit::{Exit, Failure};

/// Rate below which the unit of a rate was probably forgotten: a packet takes 10 s and more.
const LOW_RATE_BITS: u64 = 1_000;
/// Bits of a packet with a symbol of the default length.
const PACKET_BITS: u64 = 8 * 1_408;

/// Returns the requested control; by default a fixed rate with `--rate`, else M2C.
pub fn chosen(args: &SendArgs) -> Result<CongestionControl, Failure> {
    warn_of_low_rates(args);
    let by_default = match args.rate {
        Some(SendRate::Constant(_)) => &controls::FIXED,
        Some(SendRate::Auto) => &controls::DEDICATED,
        None => &controls::DEFAULT,
    };
    let wanted = args.congestion_control.unwrap_or(by_default);
    if args.rate == Some(SendRate::Auto) && wanted != &controls::DEDICATED {
        return Err(usage(format!(
            "--rate auto is the control dedicated, and not {0}: leave out --rate or --congestion-control {0}",
            wanted.name
        )));
    }
    if !args.listen.is_empty() && wanted.network != Network::Requests {
        return Err(usage(
            "--listen is for requests of receivers: add --congestion-control rainbow".to_owned(),
        ));
    }
    if wanted.network != Network::GroupsAndReports && args.sim != args::SimArgs::default() {
        return Err(usage("--sim-relay is an option of --congestion-control sim only".to_owned()));
    }
    check_groups(args, wanted)?;
    let has_levels = wanted.network == Network::Groups;
    if args.demand == Some(Demand::On) && !has_levels {
        let name = wanted.name;
        return Err(usage(format!(
            "--demand on is for m2c, webrc and flid-dl, and {name} sends what its receivers' reports allow, or one rate: leave --demand out"
        )));
    }
    if args.idle_rate.is_some() && (!has_levels || args.demand == Some(Demand::Off)) {
        return Err(usage(
            "--idle-rate is the rate without reports of receivers to m2c, webrc or flid-dl: leave --idle-rate out, or --demand off"
                .to_owned(),
        ));
    }
    if args.sim.sim_relay.len() > headwater::SIM_RELAYS_MAX {
        return Err(usage(format!(
            "--sim-relay may be repeated at most {} times; put a relay between",
            headwater::SIM_RELAYS_MAX
        )));
    }
    let no_sender = || usage(format!("this version has no sender of {}", wanted.name));
    let control = match wanted.network {
        Network::Requests => rainbow(args)?,
        Network::Group if wanted == &controls::DEDICATED => return dedicated(args),
        Network::Group => return fixed(args),
        Network::GroupAndNaks => return le_sbcc(args, LeSbccOptions::of(wanted).ok_or_else(no_sender)?),
        Network::GroupsAndReports => sim(args)?.into(),
        Network::Groups => CongestionControl::layered(wanted, layers(args)).ok_or_else(no_sender)?,
    };
    let name = control.name();
    if let Some(SendRate::Constant(rate)) = args.rate {
        return Err(usage(format!(
            "--rate {rate} is one rate for all, and with {name} each receiver has a rate of its own: use --max-rate, or \
             --congestion-control fixed"
        )));
    }
    if args.passes.is_some() {
        return Err(usage(format!(
            "--passes counts packets of one rate, and with {name} each receiver has a rate of its own: use --duration, or --rate for one rate"
        )));
    }
    if args.order == Order::Window {
        return Err(usage(format!(
            "--order window is for receivers of one rate, and with {name} each receiver has a rate of its own: leave --order out, or use --rate"
        )));
    }
    Ok(control)
}

/// Refuses --groups and --silence of controls whose groups do not depend on them.
fn check_groups(args: &SendArgs, control: &Control) -> Result<(), Failure> {
    let has_waves = control.has_waves();
    let is_sim = control.network == Network::GroupsAndReports;
    let name = control.name;
    if args.groups.groups.is_some() && !has_waves && !is_sim {
        let has = match control.network {
            Network::Groups => "has a group for each step of its rates",
            Network::Requests => "sends by unicast",
            _ => "sends to one group",
        };
        return Err(usage(format!(
            "--groups is for m2c, webrc and sim, and {name} {has}: leave --groups out"
        )));
    }
    if args.groups.silence.is_some() && !has_waves {
        return Err(usage(format!(
            "--silence is for m2c and webrc, whose groups are used again, and not for {name}: leave --silence out"
        )));
    }
    if let Some(groups) = args.groups.groups.filter(|groups| is_sim && *groups > GROUPS_MAX) {
        return Err(usage(format!("--groups {groups} is too many for sim: at most {GROUPS_MAX}")));
    }
    Ok(())
}

fn rainbow(args: &SendArgs) -> Result<CongestionControl, Failure> {
    if args.base_rate.is_some() {
        return Err(usage(
            "--base-rate is for groups, and with rainbow receivers request packets: leave --base-rate out"
                .to_owned(),
        ));
    }
    if args.network.interface.is_some() {
        return Err(usage(
            "--interface is for multicast, and rainbow sends by unicast: use --listen with an address"
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
        return Err(usage(format!(
            "{option} is for multicast, and rainbow sends by unicast: leave {option} out"
        )));
    }
    Ok(RainbowOptions::new().with_max_rate(args.max_rate).into())
}

/// Warns of rates whose unit was forgotten.
fn warn_of_low_rates(args: &SendArgs) {
    let constant = match args.rate {
        Some(SendRate::Constant(rate)) => Some(rate),
        _ => None,
    };
    let given = [("--rate", constant), ("--max-rate", args.max_rate), ("--base-rate", args.base_rate)];
    for (option, rate) in given {
        if let Some(bits) = rate.map(Rate::as_bits).filter(|bits| *bits < LOW_RATE_BITS) {
            let seconds = PACKET_BITS / bits;
            tracing::warn!(
                "{option} {bits} is {bits} bit/s, at which a packet takes {seconds} s; {option} {bits}M is {bits} Mbit/s"
            );
        }
    }
}

fn fixed(args: &SendArgs) -> Result<CongestionControl, Failure> {
    for (option, rate) in [("--max-rate", args.max_rate), ("--base-rate", args.base_rate)] {
        if rate.is_some() {
            return Err(usage(format!(
                "{option} bounds the rates of receivers, and a fixed rate is the same for all: leave out {option} or \
                 --rate"
            )));
        }
    }
    match args.rate {
        Some(SendRate::Constant(rate)) => Ok(CongestionControl::Fixed { rate }),
        _ => Err(usage("--congestion-control fixed needs a --rate, for example --rate 10M".to_owned())),
    }
}

fn dedicated(args: &SendArgs) -> Result<CongestionControl, Failure> {
    if let Some(SendRate::Constant(rate)) = args.rate {
        return Err(usage(format!(
            "--rate {rate} is constant, and with dedicated the sender finds the rate: use --max-rate, or --congestion-control fixed"
        )));
    }
    if args.roster.no_roster {
        return Err(usage(
            "--rate auto follows the reports of receivers: leave --no-roster out, or name a --rate, for example --rate 10M"
                .to_owned(),
        ));
    }
    let options = DedicatedOptions::new().with_max_rate(args.max_rate);
    if let (Some(start), Some(max)) = (args.base_rate, args.max_rate)
        && start > max
    {
        return Err(usage(format!(
            "--base-rate {start} is above --max-rate {max}: lower --base-rate, or raise --max-rate"
        )));
    }
    Ok(args.base_rate.map_or(options, |rate| options.with_start(rate)).into())
}

fn le_sbcc(args: &SendArgs, options: LeSbccOptions) -> Result<CongestionControl, Failure> {
    let options = options.with_min_rate(args.base_rate).with_wait_for_slowest(args.wait_for_slowest);
    let options = args.max_rate.map_or(options, |rate| options.with_max_rate(rate));
    if let Some(SendRate::Constant(rate)) = args.rate {
        return Err(usage(format!(
            "--rate {rate} is constant, and with {} the sender finds the rate: use --max-rate, or \
             --congestion-control fixed",
            options.name()
        )));
    }
    if let Some(least) = args.base_rate.filter(|least| *least > options.max_rate()) {
        let max = options.max_rate();
        return Err(usage(format!(
            "--base-rate {least} is above --max-rate {max}: lower --base-rate, or raise --max-rate"
        )));
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
    let layers = layers.with_groups(args.groups.groups).with_silence(args.groups.silence.map(Into::into));
    let idle_rate = args.idle_rate.unwrap_or(IDLE_RATE_DEFAULT);
    layers.with_idle_rate((args.demand != Some(Demand::Off)).then_some(idle_rate))
}

fn sim(args: &SendArgs) -> Result<SimOptions, Failure> {
    let group = args.network.group.ip();
    let relays = args.sim.sim_relay.iter().map(|relay| relay.for_option("--sim-relay", group));
    let options = SimOptions::new().with_relays(&relays.collect::<Result<Vec<_>, _>>()?);
    let options = args.groups.groups.map_or(options, |groups| options.with_groups(groups));
    let options = args.base_rate.map_or(options, |rate| options.with_initial_rate(rate));
    Ok(args.max_rate.map_or(options, |rate| options.with_max_rate(rate)))
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

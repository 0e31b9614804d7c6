//! TCP flows: a named profile, and a key for each switch.

use headwater_proto::{Duration, Size};

use super::FlowKind;
use crate::plan::link::merged;
use crate::plan::section::Section;
use crate::plan::tree::Value;
use crate::tcp::{Config, CutFrom, Data, Growth, Profile, Reduction, RttSampling, SackPipe, Variant};

/// Switches of a connection; the only keys of `[tcp]`.
pub(crate) const SWITCHES: &[&str] = &[
    "profile",
    "variant",
    "segment-bytes",
    "header-bytes",
    "ack-bytes",
    "initial-window",
    "maximum-window",
    "syn-exchange",
    "limited-transmit",
    "cut-from",
    "integer-cut",
    "growth",
    "byte-counting",
    "exit-to-flight",
    "exit-growth",
    "sack-pipe",
    "reduction",
    "rack",
    "tick",
    "rto-initial",
    "rto-minimum",
    "rto-maximum",
    "rto-variance-minimum",
    "rtt-sampling",
    "ecn",
    "overhead",
    "ack-every",
    "ack-delay",
    "ack-quick",
];

/// Additional keys of a connection, without the switches.
pub(super) const KEYS: &[&str] = &["bytes", "segments", "kernel"];

/// Additional keys of short connections, without the switches.
pub(super) const SHORT_KEYS: &[&str] = &["interval", "mean-bytes", "shape", "kernel"];

/// Congestion controls of kernels.
const KERNELS: &[&str] = &["reno", "cubic", "bbr"];

/// A TCP connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Switches of the connection.
    pub config: Config,
    /// Data to send.
    pub data: Data,
    /// Congestion control requested from a testbed's kernel; default the name of the growth function.
    pub kernel: Option<&'static str>,
}

/// TCP connections that come at random: Poisson arrivals, sizes exponential or Pareto.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortTcp {
    /// The switches of each.
    pub config: Config,
    /// Mean time between two arrivals.
    pub interval: Duration,
    /// Mean bytes of a connection.
    pub mean_bytes: u64,
    /// Shape of a Pareto distribution of sizes, above 1; exponential if absent.
    pub shape: Option<f64>,
    /// Congestion control requested from a testbed's kernel; default the name of the growth function.
    pub kernel: Option<&'static str>,
}

/// Value of `kernel`.
fn kernel(flow: &Section<'_>) -> Option<&'static str> {
    flow.node("kernel").and_then(|_| flow.word("kernel", KERNELS))
}

pub(super) fn read(plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let config = config(plan, flow)?;
    let data = match (flow.get::<Size>("bytes"), flow.within("segments", &(1..=u64::from(u32::MAX)))) {
        (Some(_), Some(_)) => {
            flow.problem_at(
                "bytes",
                "what a connection sends is given in 'bytes' or in 'segments', not in both",
            );
            return None;
        }
        (Some(Size(bytes)), None) => Data::Bytes(bytes),
        (None, Some(segments)) => Data::Segments(u32::try_from(segments).ok()?),
        (None, None) => Data::Greedy,
    };
    Some(FlowKind::Tcp(Tcp { config, data, kernel: kernel(flow) }))
}

pub(super) fn read_short(plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let config = config(plan, flow);
    let interval: Duration = flow.need("interval")?;
    let Size(mean_bytes) = flow.need("mean-bytes")?;
    let shape: Option<f64> = flow.get("shape");
    if interval == Duration::ZERO {
        flow.problem_at("interval", "the mean time between connections must be longer than 0");
    }
    if mean_bytes == 0 {
        flow.problem_at("mean-bytes", "the mean size must be above 0");
    }
    if shape.is_some_and(|shape| shape <= 1.0) {
        flow.problem_at("shape", "a Pareto distribution has a mean only for a shape above 1");
    }
    let kernel = kernel(flow);
    Some(FlowKind::ShortTcp(ShortTcp { config: config?, interval, mean_bytes, shape, kernel }))
}

/// Configuration from the profile, overridden by `[tcp]`, overridden by the flow.
fn config(plan: &Section<'_>, flow: &Section<'_>) -> Option<Config> {
    let mut own = flow.table.clone();
    own.entries.retain(|key, _| SWITCHES.contains(&key.as_str()));
    let common = match plan.node("tcp").map(|node| &node.value) {
        // Checked whole by `plan::read`.
        Some(Value::Table(common)) => merged(common, Some(&own)),
        _ => own,
    };
    let section = Section::new(flow.context, &common, flow.span.clone(), &*flow.path, SWITCHES);
    let profile = match section.get::<String>("profile") {
        None => Profile::Rfc,
        Some(_) => section.word("profile", &Profile::ALL.map(Profile::name))?.parse().ok()?,
    };
    let config = switches(&section, &profile.config());
    if let Err(error) = config.check() {
        let name = error.field.replace("acks.", "ack-").replace('_', "-");
        let span = common.entries.get(&name).map_or(&flow.span, |entry| &entry.node.span);
        flow.problem(span, format!("'{name}' must be {}", error.must_be));
        return None;
    }
    Some(config)
}

/// Checks `[tcp]` without a flow, so that mistakes are reported although no flow uses the table.
pub(crate) fn check_common(plan: &Section<'_>) {
    if let Some(section) = plan.section("tcp", SWITCHES) {
        section.word("profile", &Profile::ALL.map(Profile::name));
        switches(&section, &Profile::Rfc.config());
    }
}

/// `base` with the switches that are written.
fn switches(section: &Section<'_>, base: &Config) -> Config {
    let choose = |key, words: &[&'static str]| section.node(key).and_then(|_| section.word(key, words));
    let bytes = |key, max: u16, base| {
        section.within(key, &(0..=u64::from(max))).and_then(|bytes| u16::try_from(bytes).ok()).unwrap_or(base)
    };
    let count = |key, base| {
        section
            .within(key, &(0..=u64::from(u32::MAX)))
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(base)
    };
    let mut acks = base.acks;
    acks.every = count("ack-every", acks.every);
    acks.delay = section.or("ack-delay", acks.delay);
    acks.quick = count("ack-quick", acks.quick);
    Config {
        variant: match choose("variant", &["reno", "newreno", "sack"]) {
            Some("reno") => Variant::Reno,
            Some("newreno") => Variant::NewReno,
            Some(_) => Variant::Sack,
            None => base.variant,
        },
        segment_bytes: bytes("segment-bytes", 65_000, base.segment_bytes),
        header_bytes: bytes("header-bytes", 500, base.header_bytes),
        ack_bytes: bytes("ack-bytes", 1_500, base.ack_bytes),
        initial_window: count("initial-window", base.initial_window),
        maximum_window: count("maximum-window", base.maximum_window),
        syn_exchange: section.or("syn-exchange", base.syn_exchange),
        limited_transmit: section.or("limited-transmit", base.limited_transmit),
        cut_from: match choose("cut-from", &["window", "flight-size", "pipe"]) {
            Some("window") => CutFrom::Window,
            Some("pipe") => CutFrom::Pipe,
            Some(_) => CutFrom::FlightSize,
            None => base.cut_from,
        },
        integer_cut: section.or("integer-cut", base.integer_cut),
        growth: match choose("growth", &["reno", "cubic", "linux-cubic"]) {
            Some("cubic") => Growth::Cubic,
            Some("linux-cubic") => Growth::LinuxCubic,
            Some(_) => Growth::Reno,
            None => base.growth,
        },
        byte_counting: section.or("byte-counting", base.byte_counting),
        exit_to_flight: section.or("exit-to-flight", base.exit_to_flight),
        exit_growth: section.or("exit-growth", base.exit_growth),
        sack_pipe: match choose("sack-pipe", &["estimate", "scoreboard"]) {
            Some("estimate") => SackPipe::Estimate,
            Some(_) => SackPipe::Scoreboard,
            None => base.sack_pipe,
        },
        reduction: match choose("reduction", &["at-once", "proportional"]) {
            Some("at-once") => Reduction::AtOnce,
            Some(_) => Reduction::Proportional,
            None => base.reduction,
        },
        rack: section.or("rack", base.rack),
        tick: section.or("tick", base.tick),
        rto_initial: section.or("rto-initial", base.rto_initial),
        rto_minimum: section.or("rto-minimum", base.rto_minimum),
        rto_maximum: section.or("rto-maximum", base.rto_maximum),
        rto_variance_minimum: section.or("rto-variance-minimum", base.rto_variance_minimum),
        rtt_sampling: match choose("rtt-sampling", &["one-at-a-time", "every-ack"]) {
            Some("every-ack") => RttSampling::EveryAck,
            Some(_) => RttSampling::OneAtATime,
            None => base.rtt_sampling,
        },
        ecn: section.or("ecn", base.ecn),
        overhead: section.or("overhead", base.overhead),
        acks,
    }
}

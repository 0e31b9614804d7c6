//! `headwater send --dry-run`: a session without sending.

use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;

use headwater::{RepairPlace, SendSession, SendStarted};
use headwater_fec::Order;
use headwater_proto::controls::Network;
use headwater_proto::delivery::SessionPlan;
use headwater_proto::eventlog::{Event, Plan};
use headwater_proto::{Duration, Size};

use crate::args::SendArgs;
use crate::events::Events;
use crate::screen::{count, time};
use crate::send::view::compression;

/// Header bytes of a packet of content: LCT 12, FEC payload ID 4.
const HEADER_BYTES: u64 = 16;

/// Shows a session on standard output, as text or as an event.
pub fn show(args: &SendArgs, session: &SendSession, events: &mut Events) -> io::Result<()> {
    let started = session.started();
    let plan = planned(args, session, &started);
    let event = Event::SessionPlanned(plan.clone());
    events.emit(None, &event);
    if args.output.json {
        return Ok(());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = text(args, session, &started, &plan, &mut out).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn planned<'a>(args: &SendArgs, session: &SendSession, started: &'a SendStarted) -> Plan<'a> {
    let plan = session.plan();
    let added = started.congestion_control.added_bytes();
    let packet_bytes = u64::from(started.symbol_size) + HEADER_BYTES + u64::from(added);
    let rate = started.congestion_control.rate_max();
    let pass: Duration = rate.time_of(plan.pass_symbols().saturating_mul(packet_bytes));
    Plan {
        group: started.group.to_string(),
        interface: started.interface.as_deref(),
        tsi: args.tsi.map(u64::from),
        control: started.congestion_control.name(),
        channels: started.channels,
        rate: rate.as_bits(),
        order: order(plan.order()).0,
        files: session.files().files().len(),
        bytes: session.files().bytes(),
        objects: plan.objects().len(),
        blocks: blocks(plan, |_| true),
        symbols: plan.symbols(),
        symbol_size: started.symbol_size,
        pass_time: pass.as_millis(),
    }
}

fn blocks(plan: &SessionPlan, is_of: impl Fn(usize) -> bool) -> u64 {
    let objects = plan.objects().iter().filter(|object| is_of(object.file));
    objects.map(|object| u64::from(object.partition.blocks())).sum()
}

fn text(
    args: &SendArgs,
    session: &SendSession,
    started: &SendStarted,
    plan: &Plan<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{:>12} {:>8} {:>8} {:>10}  file", "bytes", "objects", "blocks", "symbols")?;
    let session_plan = session.plan();
    for (index, file) in session_plan.files().iter().enumerate() {
        let objects = session_plan.objects().iter().filter(|object| object.file == index);
        let symbols: u64 = objects.clone().map(|object| object.partition.symbols()).sum();
        let blocks = blocks(session_plan, |file| file == index);
        writeln!(out, "{:>12} {:>8} {blocks:>8} {symbols:>10}  {}", file.bytes, objects.count(), file.path)?;
    }
    let Plan { bytes, objects, blocks, symbols, .. } = plan;
    if let Some(summary) = session.compression() {
        writeln!(out, "{}", compression(&summary))?;
    }
    writeln!(out, "{bytes:>12} {objects:>8} {blocks:>8} {symbols:>10}  {}", count(plan.files, "file"))?;
    writeln!(out)?;
    match plan.interface {
        Some(on) => {
            writeln!(
                out,
                "group      {} on {on}, TTL {}, DSCP {}",
                plan.group, args.link.ttl, args.link.dscp
            )?;
        }
        None => writeln!(out, "asked at   {}, DSCP {}", addresses(&started.listen), args.link.dscp)?,
    }
    let tsi = args.tsi.map_or_else(|| "random".to_owned(), |tsi| tsi.to_string());
    writeln!(out, "session    TSI {tsi}")?;
    let scheme = headwater::Scheme::from(args.fec);
    writeln!(out, "code       {scheme}, symbols of {} bytes", plan.symbol_size)?;
    let (order, what) = order(session_plan.order());
    writeln!(out, "order      {order}: {what}")?;
    writeln!(out, "repair     {}", repair(session.repair_place()))?;
    writeln!(out, "rate       {}", rates(started))?;
    let pass = time(std::time::Duration::from_millis(plan.pass_time));
    let control = started.congestion_control;
    let least = match control.control().network {
        _ if control.rate_cap().is_none() => ", at 100 Mbit/s",
        _ if control.is_multi_rate() => ", for the fastest receivers",
        Network::GroupAndNaks => ", at the highest rate",
        Network::Group if control.follows_roster() => ", at the highest rate",
        _ => "",
    };
    writeln!(out, "one pass   {pass} for {}{least}", Size(*bytes))?;
    writeln!(out, "Nothing was sent.")
}

/// Returns `0.0.0.0:7288 and [::]:7288`.
pub fn addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" and ")
}

/// Returns `10 Mbit/s, fixed`; `le-sbcc, up to 100 Mbit/s: ...`;
/// `m2c, 120 kbit/s to 100 Mbit/s for each receiver, on 108 groups`.
pub fn rates(started: &SendStarted) -> String {
    let control = started.congestion_control;
    let (name, max, channels) = (control.name(), control.rate_max(), started.channels);
    match control.rate_base() {
        _ if control.rate_cap().is_none() => format!("{name}: as receivers request"),
        _ if control.is_on_request() => format!("{name}, up to {max}: as receivers request"),
        Some(base) if control.is_multi_rate() => {
            format!("{name}, {base} to {max} for each receiver, on {channels} groups")
        }
        Some(base) if base < max => format!("{name}, from {base} up to {max}, as receivers report"),
        Some(_) => format!("{max}, {name}"),
        None => format!("{name}, up to {max}: the fair rate of the worst receiver's path"),
    }
}

/// Returns the name and the description of an order.
fn order(order: Order) -> (&'static str, &'static str) {
    match order {
        Order::Spread { .. } => ("spread", "all blocks take turns"),
        Order::Window => {
            ("window", "windows of up to 256 blocks, each block with 1 % of repair; then passes of repair")
        }
    }
}

/// Returns the place of repair symbols.
fn repair(place: &RepairPlace) -> String {
    match place {
        RepairPlace::Nowhere => "none".into(),
        RepairPlace::Memory { bytes } => format!("encoders in memory, {}", Size(*bytes)),
        RepairPlace::Disk { bytes, folder } => {
            format!("{} in '{}' while it is sent", Size(*bytes), folder.display())
        }
    }
}

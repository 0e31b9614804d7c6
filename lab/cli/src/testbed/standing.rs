//! `headwater-lab testbed`: networks that stand until removed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use headwater_testbed::{Bed, Lateness, Standing, remove_abandoned, require_root, standing};

use super::failure;
use crate::args::{RoutingName, TestbedArgs, TestbedCommand};
use crate::simulate;
use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::shutdown::Shutdown;

pub fn run(args: &TestbedArgs) -> Result<Exit, Failure> {
    match &args.command {
        TestbedCommand::Up { plan, cell, routing, as_wire } => up(plan, *cell, *routing, *as_wire),
        TestbedCommand::Down { name } => down(name.as_deref()),
        TestbedCommand::List => list(),
        TestbedCommand::Run(args) => super::run_plan(args),
        TestbedCommand::Exec { name, node, command } => exec(name.as_deref(), node, command),
    }
}

fn up(path: &Path, cell: usize, routing: RoutingName, is_wire: bool) -> Result<Exit, Failure> {
    let plan = simulate::read(path, None)?;
    if cell == 0 || cell > plan.cells() {
        let message = format!("there is no cell {cell}: the plan has cells 1 to {}", plan.cells());
        return Err(Failure::new(Exit::Usage, message));
    }
    let scenario = plan.scenario(&plan.cell(cell - 1), 1).or_exit(Exit::Usage, "cannot read the cell")?;
    if !is_wire && Bed::needs_wire(&scenario).map_err(failure)? {
        return say(&up_with_wire(path, cell, routing)?).map(|()| Exit::Ok);
    }
    // Replaces an existing network of the same plan and cell.
    let mark = format!("{} {cell}", plan.digest());
    for old in standing().map_err(failure)?.iter().filter(|old| old.mark().as_ref() == Some(&mark)) {
        old.remove().map_err(failure)?;
    }
    let mut bed = Bed::up(&scenario, routing.into()).map_err(failure)?;
    bed.stand(&mark).map_err(failure)?;
    if is_wire {
        let shutdown = Shutdown::install(None)?;
        say(&format!("{}\n", bed.name()))?;
        bed.hold(&mut || shutdown.is_asked(), &lateness_line).map_err(failure)?;
    } else {
        say(&format!("{}\n", bed.name()))?;
    }
    Ok(Exit::Ok)
}

/// Starts another process that builds the network and runs the wire until removal. Returns the line that the
/// process prints once the network stands: the network's name.
fn up_with_wire(path: &Path, cell: usize, routing: RoutingName) -> Result<String, Failure> {
    let tried = "cannot start the process that delays, loses and marks";
    let program = std::env::current_exe().or_exit(Exit::Other, tried)?;
    let routing = routing.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut command = Command::new(program);
    command
        .args(["testbed", "up", "--as-wire", "--cell", &cell.to_string(), "--routing", &routing])
        .arg(path);
    // A separate process group: a signal that interrupts this process does not interrupt the child.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().or_exit(Exit::Other, tried)?;
    let mut name = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut name).or_exit(Exit::Other, tried)?;
    }
    if !name.is_empty() {
        return Ok(name);
    }
    let ended = child.wait_with_output().or_exit(Exit::Other, tried)?;
    let mut codes = [Exit::Usage, Exit::Network, Exit::Interrupted].into_iter();
    let exit = codes.find(|exit| ended.status.code() == Some(*exit as i32)).unwrap_or(Exit::Other);
    let reason = String::from_utf8_lossy(&ended.stderr);
    Err(Failure::new(exit, reason.trim().trim_start_matches("headwater-lab: ")))
}

fn lateness_line(lateness: &Lateness) -> String {
    let report = lateness.report();
    let verdict = if report.is_valid { "valid" } else { "INVALID: p99 above 1 ms" };
    format!(
        "the wire was late: p50 {:.2} ms, p99 {:.2} ms, at most {:.2} ms of {} packets: {verdict}",
        report.p50_ms, report.p99_ms, report.most_ms, report.packets
    )
}

fn down(name: Option<&str>) -> Result<Exit, Failure> {
    let abandoned = remove_abandoned().map_err(failure)?;
    if abandoned > 0 {
        say(&format!("removed what {} left\n", headwater_cli::screen::count(abandoned, "killed run")))?;
    }
    let beds = match name {
        Some(name) => vec![find(Some(name))?],
        None => standing().map_err(failure)?.into_iter().filter(Standing::is_left).collect(),
    };
    for bed in beds {
        let report = bed.remove().map_err(failure)?;
        let report = report.map_or_else(String::new, |report| format!("; {report}"));
        say(&format!("{} is down{report}\n", bed.name))?;
    }
    Ok(Exit::Ok)
}

fn list() -> Result<Exit, Failure> {
    for bed in standing().map_err(failure)? {
        let nodes = bed.nodes().map_err(failure)?;
        let state = if bed.is_left() { "stands" } else { "of a run" };
        say(&format!("{}  {state}  {}\n", bed.name, nodes.join(" ")))?;
    }
    Ok(Exit::Ok)
}

fn exec(name: Option<&str>, node: &str, command: &[String]) -> Result<Exit, Failure> {
    require_root().map_err(failure)?;
    let bed = find(name)?;
    let nodes = bed.nodes().map_err(failure)?;
    if !nodes.iter().any(|known| known == node) {
        let message = format!("{} has no node '{node}'; it has {}", bed.name, nodes.join(", "));
        return Err(Failure::new(Exit::Usage, message));
    }
    let error = Command::new("ip").args(["netns", "exec", &bed.namespace(node)]).args(command).exec();
    Err(Failure::new(Exit::Other, format!("cannot run 'ip netns exec': {error}")))
}

/// Returns the network with a name; without a name, the only standing network.
fn find(name: Option<&str>) -> Result<Standing, Failure> {
    let mut beds = standing().map_err(failure)?;
    let names: Vec<String> = beds.iter().map(|bed| bed.name.clone()).collect();
    beds.retain(|bed| name.is_none_or(|name| bed.name == name));
    match (beds.pop(), beds.is_empty()) {
        (Some(bed), true) => Ok(bed),
        (None, _) if names.is_empty() => {
            Err(Failure::new(Exit::Usage, "no network stands; 'headwater-lab testbed up PLAN' makes one"))
        }
        _ => Err(Failure::new(Exit::Usage, format!("say which network: {}", names.join(", ")))),
    }
}

fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .or_exit(Exit::Other, "cannot write to standard output")
}

//! A file transfer by an external program, on a testbed only.

use headwater_proto::controls::{CONTROLS, Control, Network};
use headwater_proto::{Rate, Size};

use super::FlowKind;
use crate::plan::section::Section;

pub(super) const KEYS: &[&str] = &["by", "size", "max-rate"];

/// Programs that may move a file: the controls of `headwater send`, TCP to each receiver by itself, other
/// tools.
pub const MOVERS: &[&str] = &movers();

/// Other tools among [`MOVERS`].
pub const TOOLS: &[&str] = &["uftp", "udpcast", "norm", "openpgm"];
const TCP: &str = "tcp";

/// Whether a mover serves each receiver by itself.
pub fn is_by_unicast(mover: &str) -> bool {
    Control::of(mover).map_or(mover == TCP, |control| control.network == Network::Requests)
}

const fn movers() -> [&'static str; CONTROLS.len() + 1 + TOOLS.len()] {
    let mut movers = [TCP; CONTROLS.len() + 1 + TOOLS.len()];
    let mut index = 0;
    while index < CONTROLS.len() {
        movers[index] = CONTROLS[index].name;
        index += 1;
    }
    let mut tool = 0;
    while tool < TOOLS.len() {
        movers[CONTROLS.len() + 1 + tool] = TOOLS[tool];
        tool += 1;
    }
    movers
}

/// A file that a program of the machine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Program: a control of `headwater send`, or a tool.
    pub by: &'static str,
    /// Bytes of content.
    pub size: u64,
    /// Maximum rate in bit/s of UDP payload; for `fixed` and `openpgm`, the rate. TCP, udpcast and NORM
    /// ignore the value.
    pub max_rate: Rate,
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    flow.need::<String>("by")?;
    let by = flow.word("by", MOVERS)?;
    let size: Option<Size> = flow.need("size");
    let max_rate = flow.need("max-rate");
    let Size(size) = size?;
    if size == 0 || size > super::session::SIZE_MAX {
        flow.problem_at("size", format!("content has 1 to {} bytes", super::session::SIZE_MAX));
        return None;
    }
    Some(FlowKind::Transfer(Transfer { by, size, max_rate: max_rate? }))
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::plan::flow::FlowKind;

    fn plan(flow: &str) -> Result<Plan, crate::plan::PlanError> {
        let text = format!(
            "name = \"x\"\nduration = \"1s\"\n\
             topology = {{ kind = \"dumbbell\", bottleneck = {{ rate = \"1M\", delay = \"1ms\" }}, access = {{ rate = \"1M\", delay = \"1ms\" }} }}\n\
             flow.main = {{ kind = \"transfer\", from = \"source-1\", receivers = [\"sink-1\"], {flow} }}\n"
        );
        Plan::parse("x.toml", &text)
    }

    #[test]
    fn a_transfer_is_read_and_only_a_testbed_runs_it() {
        let read = plan("by = \"uftp\", size = \"2MB\", max-rate = \"4M\"").unwrap();
        let scenario = read.scenario(&read.cell(0), 1).unwrap();
        let FlowKind::Transfer(transfer) = scenario.flows[0].kind else { panic!("a transfer") };
        assert_eq!((transfer.by, transfer.size, transfer.max_rate.as_bits()), ("uftp", 2_000_000, 4_000_000));
        let refused = read.run(&read.cell(0), 1, &mut ()).unwrap_err().to_string();
        assert!(refused.contains("headwater-lab testbed run"), "{refused}");
    }

    #[test]
    fn what_nobody_moves_is_refused() {
        assert!(
            plan("by = \"pigeon\", size = \"2MB\", max-rate = \"4M\"")
                .unwrap_err()
                .to_string()
                .contains("pigeon")
        );
        assert!(plan("by = \"uftp\", size = \"0B\", max-rate = \"4M\"").is_err());
        assert!(plan("by = \"uftp\", size = \"2MB\"").unwrap_err().to_string().contains("max-rate"));
    }
}

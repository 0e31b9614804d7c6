//! The links of a plan: rate, delay, queue, loss and impairments of each direction.

use headwater_proto::{Duration, Rate};

use super::problem::Span;
use super::queue::{self, Loss, Sides};
use super::section::{Context, Section};
use super::tree::Table;
use crate::network::{Impairments, LinkQueue};

const LINK_KEYS: &[&str] = &["between", "rate", "delay", "queue", "loss", "impair", "graft-delay", "back"];
const BACK_KEYS: &[&str] = &["rate", "delay", "queue", "loss", "impair"];

/// A link: two directions with separate parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name in plans and results.
    pub name: String,
    /// End nodes, as indices into the scenario's nodes; `forward` leads from the first to the second.
    pub ends: [usize; 2],
    /// From the first end to the second.
    pub forward: Direction,
    /// From the second end to the first.
    pub back: Direction,
    /// Delay of a membership message in addition to the propagation delay; default the network's setting.
    pub graft_delay: Option<Duration>,
}

/// A direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// bit/s on the wire, headers included.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Queue.
    pub queue: LinkQueue,
    /// Loss behind the queue.
    pub loss: Loss,
    /// Faults behind the loss.
    pub impair: Impairments,
}

/// Reads a link from `table`, which holds all of the link's entries.
///
/// Entries apply to both directions, except loss and impairments, which name their direction; entries of
/// `back` override for the direction back.
pub(crate) fn read(
    context: &Context,
    name: &str,
    ends: [usize; 2],
    table: &Table,
    span: &Span,
) -> Option<Link> {
    const FORWARD: usize = 0;
    const BACK: usize = 1;
    let section = Section::new(context, table, span.clone(), format!("link.{name}"), LINK_KEYS);
    let over = section.section("back", BACK_KEYS);
    let forward = direction(&section, None, FORWARD);
    let back = direction(&section, over.as_ref(), BACK);
    let graft_delay = section.get("graft-delay");
    Some(Link { name: name.into(), ends, forward: forward?, back: back?, graft_delay })
}

/// `base` with entries replaced by those of `over`.
pub(crate) fn merged(base: &Table, over: Option<&Table>) -> Table {
    let mut table = base.clone();
    for (key, entry) in over.into_iter().flat_map(|over| &over.entries) {
        table.entries.insert(key.clone(), entry.clone());
    }
    table
}

/// Reads a direction from `section`, overridden by `over`. A random value that both directions share is drawn
/// once.
fn direction(section: &Section<'_>, over: Option<&Section<'_>>, side: usize) -> Option<Direction> {
    let replaced = |key| over.filter(|over| over.node(key).is_some());
    let of = |key| replaced(key).unwrap_or(section);
    // Nobody says "direction" inside of `back`.
    let is_meant = |key, sides: Sides| replaced(key).is_some() || sides[side];
    let (rate, delay) = (of("rate").need("rate"), of("delay").need("delay"));
    let loss = queue::loss(of("loss")).filter(|(_, sides)| is_meant("loss", *sides)).map(|(loss, _)| loss);
    let impair = queue::impairments(of("impair"));
    let impair = impair.filter(|(_, sides)| is_meant("impair", *sides)).map(|(impair, _)| impair);
    let (rate, delay) = (rate?, delay?);
    Some(Direction {
        rate,
        delay,
        queue: queue::queue(of("queue"), rate, delay)?,
        loss: loss.unwrap_or_default(),
        impair: impair.unwrap_or_default(),
    })
}

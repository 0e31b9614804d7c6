//! Elements of a network, and their declaration.
//!
//! ```
//! use headwater_netsim::agent::{Cbr, Sink};
//! use headwater_netsim::network::{Builder, LinkConfig};
//! use headwater_proto::queue::QueueConfig;
//! use headwater_proto::{Duration, Instant, Rate, Seed};
//!
//! let mut network = Builder::new();
//! let a = network.node("a");
//! let b = network.node("b");
//! let there = LinkConfig::new(Rate::from_kilobits(1_000), Duration::from_millis(10))
//!     .with_queue(QueueConfig::drop_tail(25));
//! let link = network.link("a-b", a, b, there.clone(), there);
//! let flow = network.flow("cbr");
//! let sink = network.agent("sink", b, Sink::new());
//! let to = network.destination(sink);
//! network.agent("source", a, Cbr::new(flow, to, Rate::from_kilobits(500), 1_000, 28));
//!
//! let mut run = network.build(Seed(1), 0)?;
//! run.run_until(Instant::from_nanos(1_000_000_000));
//! assert_eq!(run.flow_counters(flow).delivered_packets, 62);
//! assert_eq!(run.link_counters(link).dropped_full, 0);
//! # Ok::<(), headwater_netsim::network::BuildError>(())
//! ```

mod builder;
mod config;
pub(crate) mod counters;
pub(crate) mod groups;
pub(crate) mod host;
mod ids;
mod line;
pub(crate) mod link;
pub(crate) mod policy;
pub(crate) mod routing;
pub(crate) mod wire;

pub(crate) use builder::Routers;
pub use builder::{BuildError, Builder, Names};
pub(crate) use config::Change;
pub use config::{Event, LinkConfig, Session};
pub use counters::{AgentCounters, FlowCounters, LinkCounters};
pub use host::{Delay, HostConfig};
pub use ids::{AgentId, FlowId, GroupId, LinkId, NodeId};
pub use line::{Line, LineArrival};
pub use link::Drop;
pub use wire::{Impairments, LossFilter};

//! Routing between hosts: bridges that snoop IGMPv3, routers with IGMPv3 and PIM-SSM, or bridges that flood.

mod bridge;
mod frr;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;

use headwater_netsim::plan::Scenario;
use headwater_netsim::plan::flow::Receivers;

use crate::error::Error;
use crate::network::Network;
use crate::shape::Shape;

/// Multicast forwarding of a bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Bridges of the kernel in a single subnet: a leave takes a third of a second, or more where the queues
    /// are long.
    Bridge,
    /// FRR's zebra and pimd in each router, a subnet for each link: source-specific groups, leaves within
    /// 0.11 s.
    Frr,
    /// Bridges that know no members: every group goes everywhere.
    Static,
}

impl Routing {
    /// Returns FRR if installed, else bridges.
    pub fn best() -> Self {
        if Self::Frr.missing().is_none() { Self::Frr } else { Self::Bridge }
    }

    /// Returns a required program that this machine lacks, if any.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match self {
            Self::Frr => frr::PROGRAMS.into_iter().find(|program| !Path::new(program).exists()),
            Self::Bridge | Self::Static => None,
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bridge => "bridge",
            Self::Frr => "frr",
            Self::Static => "static",
        })
    }
}

impl FromStr for Routing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bridge" => Ok(Self::Bridge),
            "frr" => Ok(Self::Frr),
            "static" => Ok(Self::Static),
            _ => Err(format!("'{text}' is no routing; there are bridge, frr and static")),
        }
    }
}

/// The routing of a bed.
#[derive(Debug)]
pub(crate) struct Router {
    routing: Routing,
    frr: Option<frr::Daemons>,
}

impl Router {
    pub fn new(routing: Routing) -> Self {
        Self { routing, frr: None }
    }

    /// Sets up addresses for all hosts, and forwarding at all routers. Programs keep files below `folder`.
    pub fn make(
        &mut self,
        network: &Network,
        shape: &Shape,
        scenario: &Scenario,
        folder: &Path,
    ) -> Result<(), Error> {
        match self.routing {
            Routing::Bridge => {
                bridge::make(network, shape, root(shape, scenario), Some(scenario.leave_latency))
            }
            Routing::Static => bridge::make(network, shape, root(shape, scenario), None),
            Routing::Frr => {
                self.frr = Some(frr::make(network, shape, folder)?);
                Ok(())
            }
        }
    }

    /// Waits until memberships are known to the routers.
    pub fn settle(&self, network: &Network, shape: &Shape) -> Result<(), Error> {
        match &self.frr {
            Some(daemons) => daemons.settle(network, shape),
            None => {
                if self.routing == Routing::Bridge {
                    bridge::settle();
                }
                Ok(())
            }
        }
    }
}

/// A host's address.
pub(crate) fn address(routing: Routing, shape: &Shape, host: usize) -> Ipv4Addr {
    match (routing, shape.neighbours(host).first()) {
        (Routing::Frr, Some((link, _))) => Shape::link_address(*link, shape.end(*link, host)),
        _ => Shape::flat_address(host),
    }
}

/// Router next to the first source of a group, which queries for members. Without groups, the first router.
fn root(shape: &Shape, scenario: &Scenario) -> Option<usize> {
    let casts = scenario.flows.iter().find(|flow| matches!(flow.to, Receivers::Group(_)));
    let next = casts.and_then(|flow| shape.neighbours(flow.from).first()).map(|(_, next)| *next);
    next.filter(|next| shape.routers().any(|router| router == *next)).or_else(|| shape.routers().next())
}

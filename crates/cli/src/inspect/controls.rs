//! Which sessions of a capture run which congestion control, as their FDTs say: the bytes of a packet do not.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use headwater_wire::fdt::Instance;

/// Most sessions remembered; the packets of further ones are shown in WEBRC's shape.
const SESSIONS_MAX: usize = 64;
/// The control whose CCI has a shape of its own.
const FLID_DL: &str = "flid-dl";

/// The sessions that run FLID-DL.
#[derive(Default)]
pub struct Controls {
    flid: BTreeSet<(SocketAddr, u64)>,
}

impl Controls {
    /// Takes the FDT of a session.
    pub fn learn(&mut self, source: SocketAddr, tsi: u64, xml: &str) {
        let Ok(instance) = Instance::parse(xml.as_bytes()) else { return };
        if instance.control.is_none_or(|control| control.name() != FLID_DL) {
            self.flid.remove(&(source, tsi));
        } else if self.flid.len() < SESSIONS_MAX {
            self.flid.insert((source, tsi));
        }
    }

    /// Whether packets with this TSI have FLID-DL's CCI. False until their FDT has been seen.
    pub fn is_flid(&self, source: SocketAddr, tsi: Option<u64>) -> bool {
        tsi.is_some_and(|tsi| self.flid.contains(&(source, tsi)))
    }
}

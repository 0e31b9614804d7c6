//! Congestion controls of the sessions of a capture, from the FDTs: packets do not name the control.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use headwater_proto::controls::{CciForm, Control};
use headwater_wire::fdt::Instance;

/// Maximum number of sessions in memory; packets of further sessions are shown in WEBRC's format.
const SESSIONS_MAX: usize = 64;
/// Sessions whose packets carry FLID's congestion control information.
#[derive(Default)]
pub struct Controls {
    flid: BTreeSet<(SocketAddr, u64)>,
}

impl Controls {
    /// Reads the FDT of a session.
    pub fn learn(&mut self, source: SocketAddr, tsi: u64, xml: &str) {
        let Ok(instance) = Instance::parse(xml.as_bytes()) else { return };
        let control = instance.control.and_then(|control| Control::of_fdt(control.name()));
        if control.is_none_or(|control| control.cci != CciForm::Flid) {
            self.flid.remove(&(source, tsi));
        } else if self.flid.len() < SESSIONS_MAX {
            self.flid.insert((source, tsi));
        }
    }

    /// Whether packets with this TSI have FLID's CCI. False before the FDT of the session.
    pub fn is_flid(&self, source: SocketAddr, tsi: Option<u64>) -> bool {
        tsi.is_some_and(|tsi| self.flid.contains(&(source, tsi)))
    }
}

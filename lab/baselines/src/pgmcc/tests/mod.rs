mod acker;
mod hostile;
mod window;

use core::net::{IpAddr, Ipv4Addr};

use headwater_wire::pgm::Gsi;

use super::{PgmccReceiver, PgmccReceiverConfig, PgmccSender, PgmccSenderConfig};
use crate::group::{Loss, Network, address};
use headwater_proto::pgm::PgmSession;
use headwater_proto::rng::Seed;
use headwater_proto::time::Duration;

const PACKET: u16 = 1_000;
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const SESSION: PgmSession =
    PgmSession { gsi: Gsi([1, 2, 3, 4, 5, 6]), source_port: 40_961, destination_port: 7_500, group: GROUP };

type Group = Network<PgmccSender, PgmccReceiver>;

/// A sender, and nobody who listens.
fn group() -> Group {
    Network::new(PgmccSender::new(PgmccSenderConfig::new(SESSION, PACKET)))
}

/// Where the reports of the `number`th receiver come from.
fn host(number: usize) -> IpAddr {
    IpAddr::from(address(number).0)
}

impl Group {
    /// Receivers of one round-trip time, in milliseconds.
    fn with(mut self, receivers: usize, rtt_ms: u64, loss: Loss) -> Self {
        (0..receivers).for_each(|_| self.add(rtt_ms, loss));
        self
    }

    fn add(&mut self, rtt_ms: u64, loss: Loss) {
        let number = self.members.len();
        let config =
            PgmccReceiverConfig::new(7_500, GROUP, host(number)).with_back_off(Duration::from_millis(10));
        self.join(PgmccReceiver::new(config, Seed(number as u64).stream("receiver", 0)), rtt_ms, loss);
    }

    /// Number of the receiver that is the acker.
    fn acker(&self) -> Option<usize> {
        let acker = self.sender.acker()?.address;
        (0..self.members.len()).find(|number| host(*number) == acker)
    }
}

mod hostile;
mod message;
mod rate;
mod rounds;

use super::{TfmccReceiver, TfmccSender, TfmccSenderConfig};
use crate::group::{Loss, Network};
use headwater_proto::rng::Seed;
use headwater_proto::time::Instant;

const PACKET: u16 = 1_000;

type Group = Network<TfmccSender, TfmccReceiver>;

/// A sender, and nobody who listens.
fn group() -> Group {
    Network::new(TfmccSender::new(TfmccSenderConfig::new(PACKET), Instant::ZERO))
}

impl Group {
    /// Receivers of one round-trip time, in milliseconds.
    fn with(mut self, receivers: usize, rtt_ms: u64, loss: Loss) -> Self {
        (0..receivers).for_each(|_| self.add(rtt_ms, loss));
        self
    }

    fn add(&mut self, rtt_ms: u64, loss: Loss) {
        let receiver = TfmccReceiver::new(Seed(self.members.len() as u64));
        self.join(receiver, rtt_ms, loss);
    }

    /// X in packets per second.
    fn rate(&self) -> f64 {
        self.sender.rate().packets_per_second(f64::from(PACKET))
    }

    /// Number of the receiver that is the CLR.
    fn clr(&self) -> Option<usize> {
        let id = self.sender.clr()?.id;
        self.members.iter().position(|member| member.receiver.id() == id)
    }
}

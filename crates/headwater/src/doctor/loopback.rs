//! Whether a datagram to the group comes back within this machine: the join, the route and the packet filter
//! in one. The datagrams have TTL 0, so that nobody else hears them.

use std::io;
use std::time::{Duration, Instant};

use headwater_proto::{ChannelId, Ecn};
use headwater_wire::probe::{Message, Request, Seen};

use super::check::Check;
use super::error_chain;
use crate::net::{
    Channels, Interface, Poller, ReceiverOptions, ReceiverSocket, RecvBatch, Run, SenderOptions, SenderSocket,
};

const NAME: &str = "loopback";
/// Far longer than a machine takes to hear itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// What became of the datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It came back.
    Heard,
    /// It did not.
    Silence,
    /// It could not be sent, or the group not be joined.
    Failed(String),
}

/// Sends to the group and listens.
pub(super) fn probe(channels: &Channels, interface: &Interface, nonce: u64) -> Outcome {
    attempt(channels, interface, nonce).unwrap_or_else(Outcome::Failed)
}

fn attempt(channels: &Channels, interface: &Interface, nonce: u64) -> Result<Outcome, String> {
    let options = SenderOptions { interface: Some(interface.clone()), ttl: 0, ..SenderOptions::default() };
    let mut sender = SenderSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    // Source-specific groups are heard from a named source only: here ourselves.
    let source = channels.is_source_specific().then(|| sender.local_addr().ip());
    let options =
        ReceiverOptions { interface: Some(interface.clone()), source, ..ReceiverOptions::default() };
    let mut receiver = ReceiverSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    receiver.join(ChannelId::BASE).map_err(|error| error_chain(&error))?;
    let request = Request { nonce, sequence: 0, ttl: 0, traffic_class: 0 };
    // A reply, for those are never answered: a peer on this machine has no part in it.
    let (destination, contents) = (channels.base(), Message::Reply(request, Seen::default()).emit());
    let run = Run { destination, contents: &contents, segment_bytes: 0, ecn: Ecn::NotCapable };
    sender.send(&[run]).map_err(|error| error_chain(&error))?;
    match comes_back(&mut receiver, &contents) {
        Ok(true) => Ok(Outcome::Heard),
        Ok(false) => Ok(Outcome::Silence),
        Err(error) => Err(error.to_string()),
    }
}

fn comes_back(receiver: &mut ReceiverSocket, contents: &[u8]) -> io::Result<bool> {
    let deadline = Instant::now() + PATIENCE;
    let (mut poller, mut batch) = (Poller::new()?, RecvBatch::new());
    while Instant::now() < deadline {
        if receiver.recv(&mut batch)? == 0 {
            poller.wait(receiver.fds(), Some(deadline))?;
        }
        if batch.iter().any(|datagram| datagram.payload == contents) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this machine can hear itself.
pub(super) fn judge(outcome: &Outcome, channels: &Channels, interface: &Interface) -> Check {
    let group = channels.base();
    let name = &interface.name;
    match outcome {
        Outcome::Heard => Check::ok(NAME, format!("a datagram sent to {group} on {name} was received here")),
        Outcome::Silence => Check::problem(
            NAME,
            format!("a datagram sent to {group} on {name} was not received here"),
            format!(
                "the firewall of this machine is the likeliest reason: let UDP port {} in; then rp_filter",
                channels.port()
            ),
        ),
        Outcome::Failed(reason) => Check::problem(
            NAME,
            reason.clone(),
            "the lines above may say why; nothing can be sent or received before",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn silence_and_refusals_are_problems() {
        let channels = Channels::new("239.255.72.99:17287".parse().unwrap(), 1).unwrap();
        let interface = Interface::find("lo").unwrap();
        let verdict = |outcome| judge(&outcome, &channels, &interface).verdict;
        assert_eq!(verdict(Outcome::Heard), Verdict::Ok);
        assert_eq!(verdict(Outcome::Silence), Verdict::Problem);
        assert_eq!(verdict(Outcome::Failed("no".to_owned())), Verdict::Problem);
        assert_eq!(probe(&channels, &interface, 1), Outcome::Heard);
    }
}

//! Riding out an interface that cannot send for a while: a cable moved, a switch or a driver started again.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::link::LinkState;
use super::send_error::SendError;

/// How long nothing could be sent, and how long that may last.
#[derive(Debug)]
pub(super) struct Outage {
    longest: Duration,
    since: Option<Instant>,
}

impl Outage {
    /// None yet; none may last longer than `longest`.
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, since: None }
    }

    /// What a refusal means for the session: nothing while it may still pass, else why it ends.
    ///
    /// # Errors
    /// The refusal itself when it is no outage, or that the outage lasts too long.
    pub(super) fn refused(
        &mut self,
        refusal: SendError,
        interface: &str,
        (state, address): (LinkState, IpAddr),
    ) -> Result<(), SendError> {
        if !refusal.may_pass() {
            return Err(refusal);
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            warn!("nothing can be sent on {interface}, going on for {:?}: {refusal}", self.longest);
            now
        });
        if now - since < self.longest {
            return Ok(());
        }
        Err(SendError::Outage {
            longest: self.longest,
            advice: state.complaint(interface, Some(address)),
            source: Box::new(refusal),
        })
    }

    /// Something was sent.
    pub(super) fn ended(&mut self, interface: &str) {
        if let Some(since) = self.since.take() {
            info!("sending on {interface} again after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn down() -> SendError {
        SendError::InterfaceDown {
            interface: "eth7".to_owned(),
            source: std::io::Error::from_raw_os_error(libc::ENETDOWN),
        }
    }

    #[test]
    fn an_outage_is_ridden_out_until_it_lasts_too_long() {
        let mut patient = Outage::new(Duration::from_secs(3_600));
        assert!(patient.refused(down(), "eth7", (LinkState::Down, ADDRESS)).is_ok());
        assert!(patient.refused(down(), "eth7", (LinkState::Down, ADDRESS)).is_ok());
        let mut hasty = Outage::new(Duration::ZERO);
        let error = hasty.refused(down(), "eth7", (LinkState::Down, ADDRESS)).unwrap_err();
        assert!(error.to_string().contains("ip link set dev eth7 up"), "{error}");
        let error = hasty.refused(down(), "eth7", (LinkState::Gone, ADDRESS)).unwrap_err();
        assert!(error.to_string().contains("no interface eth7 any more"), "{error}");
    }

    #[test]
    fn what_does_not_pass_ends_at_once() {
        let refusal = SendError::TooLarge {
            bytes: 9_000,
            interface: "eth7".to_owned(),
            source: std::io::Error::from_raw_os_error(libc::EMSGSIZE),
        };
        let mut patient = Outage::new(Duration::from_secs(3_600));
        assert!(matches!(
            patient.refused(refusal, "eth7", (LinkState::Up, ADDRESS)),
            Err(SendError::TooLarge { .. })
        ));
    }
}

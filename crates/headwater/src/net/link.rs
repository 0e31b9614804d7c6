//! State of a socket's interface during a session, and sending that survives an interface outage.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::interface::Interface;
use super::send_error::SendError;

/// Ability of an interface to carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Carries packets.
    Up,
    /// Carries nothing: the interface is up, but has no link (no cable, no access point, the other end down).
    NoLink,
    /// Carries nothing: the interface has lost the address that the session sends from.
    NoAddress,
    /// Carries nothing: the interface is down.
    Down,
    /// Carries nothing: there is no interface of that name.
    Gone,
}

/// Change of an interface's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// Name of the interface.
    pub interface: String,
    /// New state.
    pub state: LinkState,
    /// The address that the session sends from, if it sends.
    pub address: Option<IpAddr>,
}

impl LinkChange {
    /// Returns the fault of the interface and the remedy; `None` when the interface is up.
    pub fn complaint(&self) -> Option<String> {
        self.state.complaint(&self.interface, self.address)
    }
}

impl LinkState {
    /// Returns the state as a word for the event log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoLink => "no-link",
            Self::NoAddress => "no-address",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }

    /// Returns the fault of the interface and the remedy; `None` when the interface is up. `address` is the
    /// address that the session sends from, if the session sends.
    pub(super) fn complaint(self, interface: &str, address: Option<IpAddr>) -> Option<String> {
        Some(match self {
            Self::Up => return None,
            Self::NoLink => format!("{interface} has no link; is its cable in, and the other end up?"),
            Self::NoAddress => {
                let address = address.map_or_else(|| "ADDRESS".to_owned(), |address| address.to_string());
                format!(
                    "{interface} has lost the address {address}; give it back with `ip address add {address}/PREFIX dev {interface}`, with the prefix \
                     length that it had"
                )
            }
            Self::Down => {
                format!("{interface} is down; bring it up with `ip link set dev {interface} up`")
            }
            Self::Gone => {
                format!("there is no interface {interface} any more; `ip link` lists what there is")
            }
        })
    }

    fn of(found: Option<&Interface>, address: Option<IpAddr>) -> Self {
        match found {
            None => Self::Gone,
            Some(interface) if !interface.up => Self::Down,
            Some(interface) if address.is_some_and(|own| !interface.addresses.contains(&own)) => {
                Self::NoAddress
            }
            Some(interface) if !interface.running => Self::NoLink,
            Some(_) => Self::Up,
        }
    }
}

/// Watches the interface of a socket.
#[derive(Debug)]
pub(super) struct LinkWatch {
    /// The address that the socket sends from, if the socket sends.
    address: Option<IpAddr>,
    state: LinkState,
}

/// Result of an inspection of the interface.
#[derive(Debug)]
pub(super) struct LinkInspection {
    /// Current state.
    pub(super) state: LinkState,
    /// The current interface, if sockets must be bound again: another interface of the same name, or an
    /// interface that was gone in between. The kernel has dropped the memberships and options of the old
    /// interface.
    pub(super) renewed: Option<Interface>,
}

impl LinkWatch {
    /// Starts with an interface that is up.
    pub(super) const fn new(address: Option<IpAddr>) -> Self {
        Self { address, state: LinkState::Up }
    }

    /// Inspects `interface`. Returns `None` without a change.
    pub(super) fn inspect_link(&self, interface: &Interface) -> Option<LinkInspection> {
        // If the system lists nothing, for want of descriptors or memory, the state of the interface is
        // unknown.
        let mut interfaces = Interface::list().ok()?;
        let same = interfaces.iter().position(|other| other.index == interface.index);
        let named = || interfaces.iter().position(|other| other.name == interface.name);
        let found = same.or_else(named).map(|position| interfaces.swap_remove(position));
        let state = LinkState::of(found.as_ref(), self.address);
        let renewed = found.filter(|found| found.index != interface.index || self.state == LinkState::Gone);
        (state != self.state || renewed.is_some()).then_some(LinkInspection { state, renewed })
    }

    /// Sets the new state. Returns a change if the state differs from the previous state.
    pub(super) fn on_state(&mut self, interface: &Interface, state: LinkState) -> Option<LinkChange> {
        let changed = std::mem::replace(&mut self.state, state) != state;
        changed.then(|| LinkChange { interface: interface.name.clone(), state, address: self.address })
    }

    /// Returns the state last reported.
    pub(super) const fn state(&self) -> LinkState {
        self.state
    }
}

/// Duration of the current outage, and its maximum.
#[derive(Debug)]
pub(super) struct Outage {
    longest: Duration,
    since: Option<Instant>,
}

impl Outage {
    /// Starts without an outage; an outage may last at most `longest`.
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, since: None }
    }

    /// Handles a refusal to send: ignored while the cause may still pass, else an error that ends the
    /// session.
    ///
    /// # Errors
    /// The refusal itself when the cause is no outage, or [`SendError::Outage`] when the outage lasts too
    /// long.
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

    /// Ends the outage after a successful send.
    pub(super) fn ended(&mut self, interface: &str) {
        if let Some(since) = self.since.take() {
            info!("sending on {interface} again after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_first_is_told() {
        let mut interface = Interface::find("lo").unwrap();
        let own = Some(interface.addresses[0]);
        let elsewhere = Some("192.0.2.77".parse().unwrap());
        assert_eq!(LinkState::of(None, own), LinkState::Gone);
        assert_eq!(LinkState::of(Some(&interface), own), LinkState::Up);
        assert_eq!(LinkState::of(Some(&interface), elsewhere), LinkState::NoAddress);
        let complaint = LinkState::NoAddress.complaint("eth7", elsewhere).unwrap();
        assert!(complaint.contains("`ip address add 192.0.2.77/PREFIX dev eth7`"), "{complaint}");
        interface.running = false;
        assert_eq!(LinkState::of(Some(&interface), None), LinkState::NoLink);
        interface.up = false;
        assert_eq!(LinkState::of(Some(&interface), elsewhere), LinkState::Down);
        for state in [LinkState::NoLink, LinkState::NoAddress, LinkState::Down, LinkState::Gone] {
            assert!(state.complaint("eth7", None).unwrap().contains("eth7"));
        }
    }

    #[test]
    fn another_interface_of_the_name_is_bound_again_and_nothing_is_told_of_what_stays() {
        let watch = LinkWatch::new(None);
        let mut interface = Interface::find("lo").unwrap();
        assert!(watch.inspect_link(&interface).is_none());
        interface.index += 1_000_000;
        let inspection = watch.inspect_link(&interface).unwrap();
        assert_eq!((inspection.state, inspection.renewed.unwrap().name), (LinkState::Up, "lo".to_owned()));
        interface.name = "no-such-one".to_owned();
        assert_eq!(watch.inspect_link(&interface).unwrap().state, LinkState::Gone);
    }
}

#[cfg(test)]
mod outage_tests {
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

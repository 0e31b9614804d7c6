//! AMT relay as a path of a described session. The relay is looked up once the groups are silent, on a thread
//! of its own, and is tried by the base channel alone.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use headwater_proto::{ChannelId, Instant};
use headwater_wire::amt;

use super::http::AddressRule;
use super::listener::{ListenOptions, Listener};
use super::session::ReceiveError;
use crate::driad::find_amt_relay;
use crate::net::AmtSocket;
use crate::threads::StopHandle;

/// Time after which a relay that was not found is looked up again.
const LOOKUP_PAUSE: Duration = Duration::from_secs(30);
/// Name of a relay that is to be discovered.
const AUTO: &str = "auto";

/// AMT relay as a description names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedRelay {
    /// The relay that DNS names for the source.
    Discovered,
    /// Address or name, and port.
    Host(String, u16),
}

impl NamedRelay {
    /// Parses `198.51.100.7`, `[2001:db8::1]:2268`, `relay.example.org`, `auto`, or an empty text, which
    /// means `auto`. `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let with_port = |host: &str, port| Some(Self::Host(host.to_ascii_lowercase(), port));
        if text.is_empty() || text == AUTO {
            return Some(Self::Discovered);
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return with_port(&address.ip().to_string(), address.port()).filter(|_| address.port() != 0);
        }
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return with_port(&ip.to_string(), amt::PORT);
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
            None => (text, amt::PORT),
        };
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        with_port(name, port).filter(|_| is_name && !name.is_empty())
    }

    /// Returns the name or address of the host; empty if the relay is to be discovered.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Discovered => "",
            Self::Host(host, _) => host,
        }
    }

    /// Finds the relay's address. May block the caller for some seconds.
    fn find(&self, source: Option<IpAddr>, rule: AddressRule) -> Result<SocketAddr, String> {
        let found: Vec<SocketAddr> = match (self, source) {
            (Self::Host(host, port), _) => (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| format!("'{host}' cannot be found: {error}"))?
                .collect(),
            (Self::Discovered, Some(source)) => {
                vec![find_amt_relay(source).map_err(|error| error.to_string())?]
            }
            (Self::Discovered, None) => return Err("the description names no source to ask DNS for".into()),
        };
        let is_host = |at: &&SocketAddr| !at.ip().is_unspecified() && !at.ip().is_multicast();
        let allowed = found.iter().filter(is_host).find(|at| rule.allows(at.ip()));
        allowed.copied().ok_or_else(|| {
            format!(
                "{found:?} is on this machine or this link, which a description from elsewhere may not name"
            )
        })
    }
}

/// AMT relay of a session, and the tunnel to the relay.
#[derive(Debug)]
pub(super) struct TunnelPath {
    relay: NamedRelay,
    rule: AddressRule,
    /// Options of the tunnel's listener.
    listen: ListenOptions,
    stop: StopHandle,
    state: TunnelState,
    not_before: Instant,
}

#[derive(Debug)]
enum TunnelState {
    Closed,
    LookingUp(Receiver<Result<SocketAddr, String>>),
    Open(Box<Listener<AmtSocket>>),
}

impl TunnelPath {
    /// Creates a path whose relay is not looked up yet. `stop` ends the session.
    pub(super) fn new(
        (relay, rule): (NamedRelay, AddressRule),
        listen: ListenOptions,
        stop: StopHandle,
    ) -> Self {
        Self { relay, rule, listen, stop, state: TunnelState::Closed, not_before: Instant::ZERO }
    }

    /// Whether the relay is known, or may become known soon.
    pub(super) fn is_possible(&self, now: Instant) -> bool {
        now >= self.not_before || self.is_in_use()
    }

    /// Whether the relay is looked up, or a tunnel is open.
    pub(super) fn is_in_use(&self) -> bool {
        !matches!(self.state, TunnelState::Closed)
    }

    /// Listens to the base channel behind the relay, once the relay is found. Never blocks.
    pub(super) fn listen(&mut self, now: Instant) -> Option<&mut AmtSocket> {
        if let Err(reason) = self.advance(now) {
            tracing::warn!("multicast cannot be received through an AMT relay: {reason}");
            self.state = TunnelState::Closed;
            self.not_before = now + LOOKUP_PAUSE.into();
        }
        let socket = &mut self.listener()?.socket;
        if let Err(error) = socket.join(ChannelId::BASE) {
            tracing::debug!(%error, "multicast behind the AMT relay is not looked for");
        }
        Some(socket)
    }

    /// Returns the listener of the tunnel, once the relay is found.
    pub(super) fn listener(&mut self) -> Option<&mut Listener<AmtSocket>> {
        match &mut self.state {
            TunnelState::Open(listener) => Some(listener),
            TunnelState::Closed | TunnelState::LookingUp(_) => None,
        }
    }

    /// Leaves all groups at the relay and closes the tunnel, or ends the look-up.
    pub(super) fn close(&mut self) {
        self.listener().into_iter().for_each(|listener| listener.socket.leave_all());
        self.state = TunnelState::Closed;
    }

    /// Begins or ends the look-up. Returns the reason of a failure.
    fn advance(&mut self, now: Instant) -> Result<(), String> {
        match &self.state {
            TunnelState::Closed if now >= self.not_before => {
                let answer = self.look_up().map_err(|error| error.to_string())?;
                self.state = TunnelState::LookingUp(answer);
            }
            TunnelState::LookingUp(answer) => match answer.try_recv() {
                Ok(found) => {
                    let relay = found?;
                    let listener = self.open(relay).map_err(|error| super::session::chain(&error))?;
                    tracing::info!("trying the AMT relay {relay}");
                    self.state = TunnelState::Open(Box::new(listener));
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err("the look-up failed".into()),
            },
            TunnelState::Closed | TunnelState::Open(_) => {}
        }
        Ok(())
    }

    fn look_up(&self) -> io::Result<Receiver<Result<SocketAddr, String>>> {
        let (answer, found) = mpsc::sync_channel(1);
        let (relay, rule, source) = (self.relay.clone(), self.rule, self.listen.source);
        thread::Builder::new().name("amt look-up".into()).spawn(move || {
            // A session that has ended takes no answer.
            let _ended = answer.send(relay.find(source, rule));
        })?;
        Ok(found)
    }

    fn open(&self, relay: SocketAddr) -> Result<Listener<AmtSocket>, ReceiveError> {
        let mut options = self.listen.for_path(self.listen.group);
        (options.source, options.tsi) = (self.listen.source, self.listen.tsi);
        let mut listener = Listener::open_amt(options, relay)?;
        listener.stop = self.stop.shared_with(listener.poller.waker());
        Ok(listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_named_by_address_or_name_with_or_without_a_port() {
        let host = |name: &str, port| Some(NamedRelay::Host(name.to_owned(), port));
        for (text, relay) in [
            ("", Some(NamedRelay::Discovered)),
            ("auto", Some(NamedRelay::Discovered)),
            ("198.51.100.7", host("198.51.100.7", 2268)),
            ("198.51.100.7:5", host("198.51.100.7", 5)),
            ("2001:db8::1", host("2001:db8::1", 2268)),
            ("[2001:db8::1]:5", host("2001:db8::1", 5)),
            ("Relay.example.org", host("relay.example.org", 2268)),
            ("relay:5", host("relay", 5)),
            ("relay:0", None),
            ("http://relay", None),
            (":5", None),
        ] {
            assert_eq!(NamedRelay::parse(text), relay, "{text}");
        }
    }

    #[test]
    fn a_relay_on_this_machine_is_taken_from_a_description_of_this_machine_alone() {
        let relay = NamedRelay::parse("127.0.0.1").unwrap();
        let found = |rule| relay.find(None, rule);
        assert_eq!(found(AddressRule::RemoteOrLoopback), Ok("127.0.0.1:2268".parse().unwrap()));
        assert!(found(AddressRule::Remote).unwrap_err().contains("on this machine"));
        let group = NamedRelay::parse("239.1.2.3").unwrap();
        assert!(group.find(None, AddressRule::Any).is_err());
        assert!(NamedRelay::Discovered.find(None, AddressRule::Any).is_err());
    }
}

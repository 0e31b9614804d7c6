//! Options and socket common to receiving files and receiving streams.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headwater_proto::pgm::carrier;
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{Machine, Rate, Seed, described};
use tracing::warn;

use super::session::{ContentPort, Loss, OTHERS_TIME, ReceiveError};
use super::update::{HeardSession, ReceiveStarted};
use crate::clock::Clock;
use crate::doctor::{Session, listen_to_all};
use crate::driver::TraceHook;
use crate::driver::{Application, Hooks, Port, drive};
use crate::keys::Trust;
use crate::net::{Channels, Interface, Poller, ReceiverCounters, ReceiverOptions, ReceiverSocket};
use crate::system::{self, InputLosses};
use crate::threads::{StopHandle, stoppable};

/// Options for listening, documented at [`crate::ReceiveOptions`].
pub(crate) struct ListenOptions {
    /// Group of the base channel; for a session on request, the source.
    pub(crate) group: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) interface: Option<String>,
    pub(crate) tsi: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_rate: Option<Rate>,
    pub(crate) rtt: Option<Duration>,
    pub(crate) loss: Option<Loss>,
    pub(crate) trace: Option<TraceHook>,
    pub(crate) trust: Trust,
}

impl ListenOptions {
    pub(crate) fn new(group: SocketAddr) -> Self {
        Self {
            group,
            source: None,
            interface: None,
            tsi: None,
            timeout: None,
            max_rate: None,
            rtt: None,
            loss: None,
            trace: None,
            trust: Trust::default(),
        }
    }

    /// # Errors
    /// If the loss probability is out of range.
    pub(crate) fn check(&self) -> Result<(), ReceiveError> {
        match self.loss {
            Some(loss) if !(0.0..=1.0).contains(&loss.probability) => {
                Err(ReceiveError::Loss(loss.probability))
            }
            _ => Ok(()),
        }
    }

    /// Creates a control for any described session. All controls of receivers are created here.
    pub(crate) fn control(&self) -> described::DescribedReceiver {
        let naks = carrier::PgmCarrierReceiverConfig::new(self.group.ip(), Seed(system::random_u64()));
        let config = described::DescribedReceiverConfig::new()
            .with_max_rate(self.max_rate)
            .with_rtt_hint(self.rtt.map(Into::into))
            .with_naks(Some(naks))
            .with_seed(Seed(system::random_u64()))
            .with_prober(self.rtt.is_none().then(|| ProberConfig::new(Seed(system::random_u64()))));
        described::DescribedReceiver::new(config)
    }
}

/// Setters of the listening options, for a type with [`ListenOptions`] in its field `listen`.
macro_rules! listen_setters {
    () => {
        /// Receives from this address only (source-specific multicast, RFC 4607). Default: the first sender
        /// heard.
        #[must_use]
        pub fn with_source(mut self, source: Option<std::net::IpAddr>) -> Self {
            self.listen.source = source;
            self
        }

        /// Interface to receive on, by name or address. Default: the interface of the kernel's route to the
        /// group, but never a loopback interface.
        #[must_use]
        pub fn with_interface(mut self, interface: Option<String>) -> Self {
            self.listen.interface = interface;
            self
        }

        /// Time without any needed data after which the receiver gives up. Default: never.
        #[must_use]
        pub fn with_timeout(mut self, timeout: Option<std::time::Duration>) -> Self {
            self.listen.timeout = timeout;
            self
        }

        /// Drops datagrams deliberately. Default: no drops.
        #[must_use]
        pub fn with_loss(mut self, loss: Option<crate::receive::Loss>) -> Self {
            self.listen.loss = loss;
            self
        }

        /// Hook called for each received datagram, including deliberately dropped datagrams. Default: no
        /// hook.
        #[must_use]
        pub fn with_trace(mut self, trace: Option<crate::driver::TraceHook>) -> Self {
            self.listen.trace = trace;
            self
        }
    };
}

/// Setters for receivers of sessions of channels, in addition to [`listen_setters`].
macro_rules! session_setters {
    () => {
        /// Receives only the session with this transport session identifier. Default: the first session
        /// heard.
        #[must_use]
        pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
            self.listen.tsi = tsi;
            self
        }

        /// Senders whose packets are accepted. Default: any sender, without a check.
        #[must_use]
        pub fn with_trust(mut self, trust: crate::keys::Trust) -> Self {
            self.listen.trust = trust;
            self
        }

        /// Maximum rate to take of a session in which each receiver has a rate of its own, in bit/s of UDP
        /// payload. Default: the fair rate of the path.
        #[must_use]
        pub fn with_max_rate(mut self, rate: Option<headwater_proto::Rate>) -> Self {
            self.listen.max_rate = rate;
            self
        }

        /// Round-trip time to the sender on an idle path, if known. With this value a receiver is as fast as
        /// a TCP flow even if its routers take long to join a group. Default: the receiver queries the
        /// sender occasionally by unicast (`docs/reference/wire/rtt.md`); without an answer, the receiver
        /// uses the shortest join time.
        #[must_use]
        pub fn with_rtt(mut self, rtt: Option<std::time::Duration>) -> Self {
            self.listen.rtt = rtt;
            self
        }
    };
}

pub(crate) use listen_setters;
pub(crate) use session_setters;

impl fmt::Debug for ListenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenOptions")
            .field("group", &self.group)
            .field("source", &self.source)
            .field("interface", &self.interface)
            .field("tsi", &self.tsi)
            .field("timeout", &self.timeout)
            .field("max_rate", &self.max_rate)
            .field("rtt", &self.rtt)
            .field("loss", &self.loss)
            .finish_non_exhaustive()
    }
}

/// Open sockets, and the poller for driving a machine.
#[derive(Debug)]
pub(crate) struct Listener<P = ReceiverSocket> {
    pub(crate) options: ListenOptions,
    pub(crate) socket: P,
    pub(crate) poller: Poller,
    pub(crate) stop: StopHandle,
}

impl Listener {
    /// Opens the socket. Nothing is joined yet.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub(crate) fn open(options: ListenOptions) -> Result<Self, ReceiveError> {
        options.check()?;
        // The session announces its number of channels.
        let channels = Channels::all_from(options.group)?;
        if channels.is_source_specific() && options.source.is_none() {
            let group = channels.base().ip();
            warn!(%group, "no source named for a source-specific group: routers will not serve it");
        }
        let interface = options.interface.as_deref().map(Interface::find).transpose()?;
        let socket = ReceiverOptions { interface, source: options.source, ..ReceiverOptions::default() };
        let socket = ReceiverSocket::open(&channels, &socket)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { options, socket, poller, stop })
    }

    /// Leaves all joined channels after a session that was aborted.
    pub(crate) fn leave(&mut self) {
        self.socket.leave_all();
    }
}

impl<P: Port> Listener<P> {
    /// Drives `machine` until `application` ends it.
    ///
    /// # Errors
    /// If the network fails.
    pub(crate) fn drive<M: Machine>(
        &mut self,
        machine: &mut M,
        clock: Clock,
        application: &mut impl Application<M, P>,
    ) -> Result<(), ReceiveError> {
        let loss = self.options.loss.map(|loss| (loss.probability, Seed(loss.seed).stream("loss", 0)));
        let hooks = Hooks { trace: self.options.trace.as_mut(), loss, dscp: 0, ttl: 0 };
        drive(machine, &mut self.socket, &mut self.poller, clock, hooks, application)
            .map_err(|source| ReceiveError::Network { group: self.options.group.ip(), source })
    }
}

impl ContentPort for ReceiverSocket {
    type Control = described::DescribedReceiver;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted {
        ReceiveStarted {
            group: options.group,
            via: None,
            source: options.source,
            interface: Some(self.interface().name.clone()),
            receive_buffer: self.receive_buffer(),
        }
    }

    fn control(&self, options: &ListenOptions) -> described::DescribedReceiver {
        options.control()
    }

    fn expect_source(&mut self, source: Option<IpAddr>) {
        ReceiverSocket::expect_source(self, source);
    }

    fn counters(&self) -> ReceiverCounters {
        ReceiverSocket::counters(self)
    }

    fn interface(&self) -> Option<&Interface> {
        Some(ReceiverSocket::interface(self))
    }

    fn input_losses(&self) -> InputLosses {
        InputLosses::read(&ReceiverSocket::interface(self).name, self.channels().is_ipv4())
    }

    fn others(&self) -> Vec<HeardSession> {
        // For a source-specific group, routers forward only the named source; other senders on the same link
        // and switch are still heard.
        let deadline = Instant::now() + OTHERS_TIME;
        let heard = listen_to_all(self.channels(), ReceiverSocket::interface(self), deadline).into_iter();
        let session = |session: Session| Some(HeardSession { tsi: session.tsi?, source: session.source });
        heard.filter_map(session).collect()
    }

    fn leave_all(&mut self) {
        ReceiverSocket::leave_all(self);
    }
}

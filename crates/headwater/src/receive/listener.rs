//! Options and socket common to receiving files and receiving streams.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headwater_proto::control::Rules;
use headwater_proto::pgm::carrier;
use headwater_proto::roster::{ReporterConfig, RosterReporter};
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{Machine, Rate, Seed, described};
use tracing::warn;

use super::options::Loss;
use super::session::{ContentPort, OTHERS_TIME, ReceiveError};
use super::update::{HeardSession, ReceiveStarted};
use crate::clock::Clock;
use crate::doctor::{FoundSession, listen_to_all};
use crate::driver::TraceHook;
use crate::driver::{Application, Hooks, Port, drive};
use crate::keys::{GroupKey, GroupKeys, Trust};
use crate::net::{AmtSocket, Channels, Interface, Poller, ReceiverCounters, ReceiverOptions, ReceiverSocket};
use crate::system::{self, InputLosses};
use crate::threads::{StopHandle, stoppable};

/// Options of receiving from groups, common to files, streams and messages.
#[derive(Debug)]
pub struct ListenOptions {
    /// Group and port of the base channel; for a session on request, the address of the source.
    pub group: SocketAddr,
    /// Only address to receive from (source-specific multicast, RFC 4607). Default: the first sender heard.
    pub source: Option<IpAddr>,
    /// Interface to receive on, by name or address. Default: the interface of the kernel's route to the
    /// group, but never a loopback interface.
    pub interface: Option<String>,
    /// Only transport session identifier to receive; messages over PGM have none. Default: the first session
    /// heard.
    pub tsi: Option<u64>,
    /// Transport session identifier of a session not to receive: the session that an application has already
    /// received, if the application waits for the sender's next session. Default: none.
    pub except: Option<u64>,
    /// Time without any needed data after which the receiver gives up. Default: never.
    pub timeout: Option<Duration>,
    /// Maximum rate to take of a session in which each receiver has a rate of its own, in bit/s of UDP
    /// payload. Default: the fair rate of the path.
    pub max_rate: Option<Rate>,
    /// Round-trip time to the sender on an idle path, if known, for a session in which each receiver has a
    /// rate of its own. With this value a receiver is as fast as a TCP flow even if its routers take long to
    /// join a group. Default: the receiver queries the sender occasionally by unicast
    /// (`docs/reference/wire/rtt.md`); without an answer, the receiver uses the shortest join time.
    pub rtt: Option<Duration>,
    /// Rules by which the receiver changes its rate under M2C and WEBRC. Default: all rules of this
    /// implementation; the published rules repeat experiments of the papers. No effect under a control
    /// without a choice of rules.
    pub rules: Rules,
    /// Whether the receiver reports the levels that it needs to a sender that sends no others, and its
    /// progress to a sender that keeps a roster. Default: yes.
    pub reports: bool,
    /// Name in reports to a sender that keeps a roster. Default: the host's name, to verified senders alone.
    pub name: Option<String>,
    /// Longest wait at the end until a sender that keeps a roster knows the end. Default: 5 s.
    pub linger: Duration,
    /// Senders whose packets are accepted; messages over PGM are not signed. Default: any sender, without a
    /// check.
    pub trust: Trust,
    /// Keys of the group: content encrypted by one of these keys is received, and no content in the clear.
    /// Messages over PGM are never encrypted. Default: content in the clear alone.
    pub group_key: Option<GroupKeys>,
    /// Keys of reports to a sender that counts no others. Default: none.
    pub roster_key: Option<GroupKeys>,
    /// Maximum cells of the block map in progress updates of a session of files. Default: 0, no map.
    pub block_cells: usize,
    /// Deliberate drop of datagrams. Default: no drops.
    pub loss: Option<Loss>,
    /// Hook called for each received datagram, including deliberately dropped datagrams. Default: no hook.
    pub trace: Option<TraceHook>,
}

impl From<SocketAddr> for ListenOptions {
    fn from(group: SocketAddr) -> Self {
        Self::new(group)
    }
}

impl ListenOptions {
    /// Creates default options for a group.
    pub const fn new(group: SocketAddr) -> Self {
        Self {
            group,
            source: None,
            interface: None,
            tsi: None,
            except: None,
            timeout: None,
            max_rate: None,
            rtt: None,
            rules: Rules::Revised,
            reports: true,
            name: None,
            linger: Duration::from_secs(5),
            block_cells: 0,
            loss: None,
            trace: None,
            trust: Trust::Unchecked,
            group_key: None,
            roster_key: None,
        }
    }

    /// Creates the options for another path to the session, at an address, with any identifier and source. No
    /// hook is called for the datagrams of that path.
    pub(super) fn for_path(&self, at: SocketAddr) -> Self {
        Self {
            interface: self.interface.clone(),
            timeout: self.timeout,
            max_rate: self.max_rate,
            rtt: self.rtt,
            rules: self.rules,
            reports: self.reports,
            name: self.name.clone(),
            linger: self.linger,
            trust: self.trust.clone(),
            group_key: self.group_key.clone(),
            roster_key: self.roster_key.clone(),
            block_cells: self.block_cells,
            loss: self.loss,
            ..Self::new(at)
        }
    }

    /// Creates the reports to a sender that keeps a roster, under a receiver's identifier.
    pub(crate) fn reporter(&self, receiver: u64) -> Option<RosterReporter> {
        let name = self.name.clone().or_else(system::files::host_name);
        let config = ReporterConfig::new(receiver, Seed(system::random_u64()));
        // Receivers get a new key before the sender does.
        let key = self.roster_key.as_ref().and_then(|keys| keys.report_keys().into_iter().next());
        let config = config.with_linger(self.linger.into()).with_key(key);
        self.reports.then(|| RosterReporter::new(config.with_name(name, self.name.is_some())))
    }

    /// Returns all group keys.
    pub(crate) fn group_keys(&self) -> Vec<GroupKey> {
        self.group_key.as_ref().map(GroupKeys::to_vec).unwrap_or_default()
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
            .with_rules(self.rules)
            .with_naks(Some(naks))
            .with_reports(self.reports.then(|| Seed(system::random_u64())))
            .with_seed(Seed(system::random_u64()))
            .with_prober(self.rtt.is_none().then(|| ProberConfig::new(Seed(system::random_u64()))));
        described::DescribedReceiver::new(config)
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

impl Listener<AmtSocket> {
    /// Opens a socket for groups behind an AMT relay. Nothing is joined yet.
    ///
    /// # Errors
    /// If an option is out of range.
    pub(crate) fn open_amt(options: ListenOptions, relay: SocketAddr) -> Result<Self, ReceiveError> {
        options.check()?;
        let socket = AmtSocket::open(relay, &Channels::all_from(options.group)?, options.source)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { options, socket, poller, stop })
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

impl ContentPort for AmtSocket {
    type Control = described::DescribedReceiver;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted {
        ReceiveStarted {
            group: options.group,
            via: None,
            amt: Some(self.relay()),
            source: options.source,
            interface: None,
            receive_buffer: self.receive_buffer(),
        }
    }

    fn control(&self, options: &ListenOptions) -> described::DescribedReceiver {
        options.control()
    }

    fn expect_source(&mut self, source: Option<IpAddr>) {
        AmtSocket::expect_source(self, source);
    }

    fn counters(&self) -> ReceiverCounters {
        AmtSocket::counters(self)
    }

    fn leave_all(&mut self) {
        AmtSocket::leave_all(self);
    }
}

impl ContentPort for ReceiverSocket {
    type Control = described::DescribedReceiver;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted {
        ReceiveStarted {
            group: options.group,
            via: None,
            amt: None,
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
        let session =
            |session: FoundSession| Some(HeardSession { tsi: session.tsi?, source: session.source });
        heard.filter_map(session).collect()
    }

    fn leave_all(&mut self) {
        ReceiverSocket::leave_all(self);
    }
}

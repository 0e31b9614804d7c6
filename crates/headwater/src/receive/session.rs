//! Receiving session for files: options, opening, running, errors.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{DeliveryReceiver, DeliveryReceiverConfig, StoreError};

use super::asker::{self, AskingPort};
use super::listener::{ListenOptions, Listener};
use super::repair::{RepairOptions, Repairer};
use super::update::{HeardSession, ReceiveOutcome, ReceiveStarted, ReceiveSummary, ReceiveUpdate};
use super::watch::Watch;
use crate::clock::Clock;
use crate::driver::{DriverError, Port};
use crate::net::{AmtSocket, ChannelsError, Interface, InterfaceError, OpenError, ReceiverCounters, Waker};
use crate::session::Session;
use crate::store::{DiskStore, Target};
use crate::system::{self, InputLosses};
use crate::threads::StopHandle;

/// Session that receives files until every file is in place, the sender closes the session, the timeout
/// expires, or the session is stopped. A silent session is replaced by another acceptable session on the
/// group.
///
/// No incomplete file ever has its final name. Data of incomplete files stays in a working folder. The next
/// session that receives the same files into the same folder resumes from this data.
#[derive(Debug)]
pub struct ReceiveSession {
    way: SessionListener,
    out: PathBuf,
    target: Option<Arc<Target>>,
    takes_other_senders: bool,
    repair: RepairOptions,
    /// `None` after the first run.
    store: Option<DiskStore>,
}

/// Transport of packets to the receiver.
#[derive(Debug)]
enum SessionListener {
    /// Multicast groups that the receiver joins.
    Groups(Box<Listener>),
    /// Multicast groups that the receiver joins at an AMT relay.
    Tunnel(Box<Listener<AmtSocket>>),
    /// Replies to requests of the receiver.
    Requests(Box<Listener<AskingPort>>),
}

/// Time to listen for other senders after nothing came from the named source.
pub(super) const OTHERS_TIME: Duration = Duration::from_secs(1);

/// Operations of a receiver's sockets that a session of files needs in addition to datagrams.
pub(super) trait ContentPort: Port {
    type Control: ReceiverControl;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted;

    /// Creates a control for a session that is not known yet.
    fn control(&self, options: &ListenOptions) -> Self::Control;

    /// Sets the source of the session, once known.
    fn expect_source(&mut self, _source: Option<IpAddr>) {}

    fn counters(&self) -> ReceiverCounters;

    /// Returns the interface that groups are received on.
    fn interface(&self) -> Option<&Interface> {
        None
    }

    /// Returns the packets lost on the way into this machine, for all destinations.
    fn input_losses(&self) -> InputLosses {
        InputLosses::default()
    }

    /// Leaves all joined channels.
    fn leave_all(&mut self);

    /// Listens for [`OTHERS_TIME`] and returns the sessions of any senders; empty if listening is
    /// impossible.
    fn others(&self) -> Vec<HeardSession> {
        Vec::new()
    }
}

impl ReceiveSession {
    /// Opens the sockets and the folder. Nothing is joined or requested yet.
    ///
    /// # Errors
    /// If an option is out of range, the folder cannot be written to, or no interface can receive from the
    /// group.
    pub fn open(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let mut session = Self::listen(options)?;
        session.open_folder()?;
        Ok(session)
    }

    /// Opens the sockets alone, and starts no thread: a process can confine itself before
    /// [`ReceiveSession::open_folder`].
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub fn listen(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let ReceiveOptions { listen, out, target, takes_other_senders, repair, amt, ask } = options;
        let way = match (ask, amt) {
            (None, None) => SessionListener::Groups(Box::new(Listener::open(listen)?)),
            (None, Some(relay)) => SessionListener::Tunnel(Box::new(Listener::open_amt(listen, relay)?)),
            (Some(ask), _) => SessionListener::Requests(Box::new(asker::open(listen, &ask)?)),
        };
        Ok(Self { way, out, target: target.map(Arc::new), takes_other_senders, repair, store: None })
    }

    /// Opens the folder, which is made if it is missing. Without this call the session opens the folder when
    /// it runs.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn open_folder(&mut self) -> Result<(), ReceiveError> {
        self.store = Some(DiskStore::open(&self.out, self.target.clone(), self.way.waker())?);
        Ok(())
    }

    /// Returns the parameters of the session at its start.
    pub fn started(&self) -> ReceiveStarted {
        match &self.way {
            SessionListener::Groups(listener) => listener.socket.started(&listener.options),
            SessionListener::Tunnel(listener) => listener.socket.started(&listener.options),
            SessionListener::Requests(asker) => asker.socket.started(&asker.options),
        }
    }
}

impl Session for ReceiveSession {
    type Update = ReceiveUpdate;
    type Summary = ReceiveSummary;
    type Error = ReceiveError;

    fn stop_handle(&self) -> StopHandle {
        match &self.way {
            SessionListener::Groups(listener) => listener.stop.clone(),
            SessionListener::Tunnel(listener) => listener.stop.clone(),
            SessionListener::Requests(asker) => asker.stop.clone(),
        }
    }

    fn run(&mut self, observer: &mut dyn FnMut(ReceiveUpdate)) -> Result<ReceiveSummary, ReceiveError> {
        observer(ReceiveUpdate::Started(self.started()));
        let (store, pins) = (self.store.take(), !self.takes_other_senders);
        let (place, repair) = ((&*self.out, &self.target), self.repair.clone());
        match &mut self.way {
            SessionListener::Groups(listener) => {
                run_on(listener, (false, pins), (place, repair), store, observer)
            }
            SessionListener::Tunnel(listener) => {
                run_on(listener, (false, pins), (place, repair), store, observer)
            }
            SessionListener::Requests(asker) => run_on(asker, (true, pins), (place, repair), store, observer),
        }
    }

    fn is_progress(update: &ReceiveUpdate) -> bool {
        matches!(update, ReceiveUpdate::Progress(_))
    }
}

impl SessionListener {
    fn waker(&self) -> Waker {
        match self {
            Self::Groups(listener) => listener.poller.waker(),
            Self::Tunnel(listener) => listener.poller.waker(),
            Self::Requests(asker) => asker.poller.waker(),
        }
    }
}

fn run_on<P: ContentPort>(
    listener: &mut Listener<P>,
    (is_on_request, pins): (bool, bool),
    ((out, target), repair): ((&Path, &Option<Arc<Target>>), RepairOptions),
    mut first: Option<DiskStore>,
    observer: &mut dyn FnMut(ReceiveUpdate),
) -> Result<ReceiveSummary, ReceiveError> {
    let options = &listener.options;
    let config = DeliveryReceiverConfig::default().with_tsi(options.tsi).with_source(options.source);
    let clock = Clock::start();
    let losses = listener.socket.input_losses();
    let limits = (options.timeout, options.source.is_some(), options.linger);
    let mut receiver = system::random_u64();
    let is_local = listener.socket.interface().map_or(options.group.ip().is_loopback(), |on| on.loopback);
    let repairer = Repairer::new(repair, is_local, options.timeout, listener.poller.waker());
    let mut watch =
        Watch::new(listener.stop.clone(), observer, limits, losses, clock.now()).with_repairer(repairer);
    loop {
        let store = match first.take() {
            Some(store) => store,
            None => DiskStore::open(out, target.clone(), listener.poller.waker())?,
        };
        receiver = store.receiver_id(receiver);
        let options = &listener.options;
        let pinned = if pins { store.pinned() } else { Vec::new() };
        let trust = match &pinned[..] {
            [] => options.trust.clone(),
            pinned => options.trust.pinned_to(pinned.to_vec()),
        };
        let control = listener.socket.control(options);
        let mut machine = DeliveryReceiver::new(config, control, store, clock.now())
            .with_verifying(trust.verifying(is_on_request, options.group_key.is_some()))
            .with_group_keys(options.group_keys())
            .with_reporter(options.reporter(receiver));
        let driven = listener.drive(&mut machine, clock, &mut watch);
        if driven.is_ok() && watch.begins_anew(clock.now()) {
            continue;
        }
        let mut summary = watch.summary(&mut machine, &listener.socket, clock.now());
        summary.pinned = pinned;
        listener.socket.leave_all();
        driven?;
        if let Some(target) = target.as_ref().filter(|_| summary.outcome == ReceiveOutcome::Completed) {
            target.finish(&listener.stop)?;
        }
        if summary.outcome == ReceiveOutcome::NothingReceived
            && listener.options.source.is_some()
            && summary.others.is_empty()
        {
            // A membership of the named source has kept all other senders out.
            summary.others.extend(listener.socket.others());
        }
        return Ok(summary);
    }
}

/// Options of a receiving session.
#[derive(Debug)]
pub struct ReceiveOptions {
    /// Group, source, interface and limits. For a session on request, only TSI, timeout, loss and trace
    /// apply, and a source to receive from must be the address of the asked source.
    pub listen: ListenOptions,
    /// Folder for the files, created if missing.
    pub out: PathBuf,
    /// Device or stream that takes the content of a session of one file; the folder then holds working files
    /// alone. Default: none.
    pub target: Option<Target>,
    /// Whether unfinished files of the folder may be continued with another sender than the signer of the
    /// session that they came from. Default: no.
    pub takes_other_senders: bool,
    /// Repair of missing symbols from HTTP servers.
    pub repair: RepairOptions,
    /// AMT relay through which groups are received, without multicast on this network. No effect on a session
    /// on request. Default: groups are received natively.
    pub amt: Option<SocketAddr>,
    ask: Option<PullOptions>,
}

/// Path of requests to a source. The source's address takes the place of the group.
#[derive(Clone, Debug)]
pub(super) struct PullOptions {
    /// Address that requests are sent to.
    pub(super) upstream: SocketAddr,
    /// Group for replies and the interface to join the group on.
    pub(super) group: Option<(SocketAddr, Option<String>)>,
}

/// Deliberate random drop of arriving datagrams, to test the effect of loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Probability that a datagram is dropped, from 0 to 1.
    pub probability: f64,
    /// Seed of the selection: the same seed drops the same datagrams.
    pub seed: u64,
}

impl ReceiveOptions {
    /// Receives the first session heard on a group (the base channel) into the folder `out`, which is
    /// created if missing.
    pub fn new(listen: impl Into<ListenOptions>, out: impl Into<PathBuf>) -> Self {
        Self {
            listen: listen.into(),
            out: out.into(),
            target: None,
            takes_other_senders: false,
            repair: RepairOptions::default(),
            amt: None,
            ask: None,
        }
    }

    /// Requests a session from `source` packet by packet, through a relay or directly, and receives the
    /// session into the folder `out`.
    pub fn asking(source: SocketAddr, via: Option<SocketAddr>, out: impl Into<PathBuf>) -> Self {
        let ask = PullOptions { upstream: via.unwrap_or(source), group: None };
        Self { ask: Some(ask), ..Self::new(source, out) }
    }

    /// Group by which the relay replies to all receivers on this network, if the relay does so
    /// ([`RelayGroup`](crate::relay::RelayGroup)), and the interface to join the group on. By default the
    /// kernel's route to the group selects the interface. Has no effect on a session without requests.
    #[must_use]
    pub fn with_replies_to(mut self, group: SocketAddr, interface: Option<String>) -> Self {
        if let Some(ask) = &mut self.ask {
            ask.group = Some((group, interface));
        }
        self
    }
}

/// Error that prevents receiving a session. Failures of the content are a
/// [`ReceiveOutcome`](crate::ReceiveOutcome) instead.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The group is no multicast address.
    #[error(transparent)]
    Channels(#[from] ChannelsError),
    /// There is no interface to receive on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The loss probability is out of range.
    #[error("the loss probability is {0}, which must be from 0 to 1")]
    Loss(f64),
    /// The folder for the files cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source, or the relay for its requests, is no address of a host.
    #[error(
        "nothing of {0} can be asked for by way of {1}: port 0, an unspecified address and a group are no host's"
    )]
    Nobody(SocketAddr, SocketAddr),
    /// Receiving failed: the interface or a membership.
    #[error("receiving from {group} failed")]
    Network {
        /// Group of the base channel; for a session on request, the source.
        group: IpAddr,
        /// Error of the driver.
        source: DriverError,
    },
}

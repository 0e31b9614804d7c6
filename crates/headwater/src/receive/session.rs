//! A session that receives files: its options, opened, run, and its errors.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{Receiver, ReceiverConfig, StoreError};

use super::asker::{self, AskingPort};
use super::listener::{ListenOptions, Listener, listen_setters, session_setters};
use super::update::{HeardSession, ReceiveOutcome, ReceiveStarted, ReceiveSummary, ReceiveUpdate};
use super::watch::Watch;
use crate::clock::Clock;
use crate::driver::{DriverError, Port};
use crate::net::{ChannelsError, Interface, InterfaceError, OpenError, ReceiverCounters, Waker};
use crate::store::DiskStore;
use crate::system::InputLosses;
use crate::threads::StopHandle;

/// A session that receives files.
#[derive(Debug)]
pub struct ReceiveSession {
    way: SessionListener,
    out: PathBuf,
    /// Until the first run takes it.
    store: Option<DiskStore>,
}

/// How packets come.
#[derive(Debug)]
enum SessionListener {
    /// By groups that are joined.
    Groups(Box<Listener>),
    /// From who is asked for them.
    Requests(Box<Listener<AskingPort>>),
}

/// How long others are listened for when nothing came from the source named.
pub(super) const OTHERS_TIME: Duration = Duration::from_secs(1);

/// What a session of files asks of a receiver's sockets beside datagrams.
pub(super) trait ContentPort: Port {
    type Control: ReceiverControl;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted;

    /// A control for a session that is not known yet.
    fn control(&self, options: &ListenOptions) -> Self::Control;

    /// Who sends the session, once that is known.
    fn expect_source(&mut self, _source: Option<IpAddr>) {}

    fn counters(&self) -> ReceiverCounters;

    /// Where groups are received, if they are.
    fn interface(&self) -> Option<&Interface> {
        None
    }

    /// Packets lost on their way into this machine, by whoever they were meant for.
    fn input_losses(&self) -> InputLosses {
        InputLosses::default()
    }

    /// Gives up what is still joined.
    fn leave_all(&mut self);

    /// Sessions of whoever sends, listened for during [`OTHERS_TIME`]; none where it cannot be listened.
    fn others(&self) -> Vec<HeardSession> {
        Vec::new()
    }
}

impl ReceiveSession {
    /// Opens the sockets and the folder. Nothing is joined or asked for yet.
    ///
    /// # Errors
    /// When an option is out of range, the folder cannot be written to, or there is no way to receive from
    /// the group.
    pub fn open(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let ReceiveOptions { listen, out, ask } = options;
        let way = match ask {
            None => SessionListener::Groups(Box::new(Listener::open(listen)?)),
            Some(ask) => SessionListener::Requests(Box::new(asker::open(listen, &ask)?)),
        };
        let store = DiskStore::open(&out, way.waker())?;
        Ok(Self { way, out, store: Some(store) })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        match &self.way {
            SessionListener::Groups(listener) => listener.stop.clone(),
            SessionListener::Requests(asker) => asker.stop.clone(),
        }
    }

    /// Where it receives.
    pub fn started(&self) -> ReceiveStarted {
        match &self.way {
            SessionListener::Groups(listener) => listener.socket.started(&listener.options),
            SessionListener::Requests(asker) => asker.socket.started(&asker.options),
        }
    }

    /// Receives until every file is in place, the sender closes the session, the timeout is over, or it is
    /// stopped. A session that falls silent makes way for another one on the group, if that is one that would
    /// have been taken.
    ///
    /// Whatever the end, nothing partial has its final name. What came of files that are not whole stays in a
    /// working folder, and the next session that receives the same files into the same folder goes on from
    /// there.
    ///
    /// # Errors
    /// When the network fails.
    pub fn run(&mut self, observer: &mut dyn FnMut(ReceiveUpdate)) -> Result<ReceiveSummary, ReceiveError> {
        observer(ReceiveUpdate::Started(self.started()));
        let store = self.store.take();
        match &mut self.way {
            SessionListener::Groups(listener) => run_on(listener, &self.out, store, observer),
            SessionListener::Requests(asker) => run_on(asker, &self.out, store, observer),
        }
    }
}

impl SessionListener {
    fn waker(&self) -> Waker {
        match self {
            Self::Groups(listener) => listener.poller.waker(),
            Self::Requests(asker) => asker.poller.waker(),
        }
    }
}

fn run_on<P: ContentPort>(
    listener: &mut Listener<P>,
    out: &Path,
    mut first: Option<DiskStore>,
    observer: &mut dyn FnMut(ReceiveUpdate),
) -> Result<ReceiveSummary, ReceiveError> {
    let options = &listener.options;
    let config = ReceiverConfig::default().with_tsi(options.tsi).with_source(options.source);
    let clock = Clock::start();
    let losses = listener.socket.input_losses();
    let limits = (options.timeout, options.source.is_some());
    let mut watch = Watch::new(listener.stop.clone(), observer, limits, losses, clock.now());
    loop {
        let store = match first.take() {
            Some(store) => store,
            None => DiskStore::open(out, listener.poller.waker())?,
        };
        let control = listener.socket.control(&listener.options);
        let mut machine = Receiver::new(config, control, store, clock.now());
        let driven = listener.drive(&mut machine, clock, &mut watch);
        if driven.is_ok() && watch.begins_anew(clock.now()) {
            continue;
        }
        let mut summary = watch.summary(&mut machine, &listener.socket, clock.now());
        listener.socket.leave_all();
        driven?;
        if summary.outcome == ReceiveOutcome::NothingReceived
            && listener.options.source.is_some()
            && summary.others.is_empty()
        {
            // A membership of the source named has kept all others out.
            summary.others.extend(listener.socket.others());
        }
        return Ok(summary);
    }
}

/// How a session is received.
#[derive(Debug)]
pub struct ReceiveOptions {
    pub(super) listen: ListenOptions,
    pub(super) out: PathBuf,
    pub(super) ask: Option<PullOptions>,
}

/// By what way to ask a source, whose address stands in place of the group, for packets.
#[derive(Clone, Debug)]
pub(super) struct PullOptions {
    /// Whom requests go to.
    pub(super) upstream: SocketAddr,
    /// A group by which replies may come, and the interface that it is joined on.
    pub(super) group: Option<(SocketAddr, Option<String>)>,
}

/// Datagrams dropped on purpose as they arrive, to see what loss does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Chance of each datagram to be dropped, from 0 to 1.
    pub probability: f64,
    /// Which datagrams: the same seed drops the same ones.
    pub seed: u64,
}

impl ReceiveOptions {
    /// Receives the first session heard on `group` (its base channel) into the folder `out`, which is made if
    /// need be.
    pub fn new(group: SocketAddr, out: impl Into<PathBuf>) -> Self {
        Self { listen: ListenOptions::new(group), out: out.into(), ask: None }
    }

    /// Asks a source for its session, packet by packet, by way of a relay or directly, and receives it into
    /// the folder `out`. Of the options of what listens TSI, timeout, loss and trace alone count; a source to
    /// receive from must be the one that is asked.
    pub fn asking(source: SocketAddr, via: Option<SocketAddr>, out: impl Into<PathBuf>) -> Self {
        let ask = PullOptions { upstream: via.unwrap_or(source), group: None };
        Self { ask: Some(ask), ..Self::new(source, out) }
    }

    /// A group by which the relay replies to all on this network, where it does
    /// ([`RelayGroup`](crate::relay::RelayGroup)), and the interface to join it on: by default where the
    /// kernel's route to it leads. Nothing comes of it where no source is asked.
    #[must_use]
    pub fn with_replies_to(mut self, group: SocketAddr, interface: Option<String>) -> Self {
        if let Some(ask) = &mut self.ask {
            ask.group = Some((group, interface));
        }
        self
    }

    listen_setters!();
    session_setters!();
}

/// Why a session cannot be received. What goes wrong with its content is a
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
    /// The chance of loss is no probability.
    #[error("the loss probability is {0}, which must be from 0 to 1")]
    Loss(f64),
    /// The folder for the files cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source, or the relay that it is to be asked by, is no address of a host.
    #[error(
        "nothing of {0} can be asked for by way of {1}: port 0, an unspecified address and a group are no host's"
    )]
    Nobody(SocketAddr, SocketAddr),
    /// Receiving failed: the interface or a membership.
    #[error("receiving from {group} failed")]
    Network {
        /// The base channel's group, or the source that is asked.
        group: IpAddr,
        /// What went wrong.
        source: DriverError,
    },
}

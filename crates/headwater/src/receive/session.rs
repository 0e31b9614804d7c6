//! Receiving session for files: opening, running, errors.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{DeliveryReceiver, DeliveryReceiverConfig, StoreError};
use headwater_wire::sdp::RequestSource;

use super::asker::{self, AskingPort};
use super::listener::{ListenOptions, Listener};
use super::nothing::{self, NoPort};
use super::options::{PathOptions, PullOptions, ReceiveOptions};
use super::paths::{ContentPath, OnPath, OtherPaths, PacketPath, PathSwitch, SourceProbe, listen_to_base};
use super::repair::{RepairOptions, Repairer};
use super::serving::{ReceivedFiles, Serving, ServingOptions};
use super::tunnel::TunnelPath;
use super::update::{HeardSession, ReceiveOutcome, ReceiveStarted, ReceiveSummary, ReceiveUpdate};
use super::watch::Watch;
use crate::clock::Clock;
use crate::driver::{DriverError, Port};
use crate::net::{AmtSocket, ChannelsError, Interface, InterfaceError, OpenError, ReceiverCounters, Waker};
use crate::send::PublishedFiles;
use crate::session::Session;
use crate::store::{ApplyOptions, DiskStore, StoreOptions};
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
    store_options: StoreOptions,
    takes_other_senders: bool,
    repair: RepairOptions,
    serving: Option<ServingOptions>,
    received: ReceivedFiles,
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
    /// Several paths, one at a time.
    Paths(PathListeners),
}

/// Listeners of the paths of packets. Paths that the description or this machine lacks are absent.
#[derive(Debug)]
struct PathListeners {
    groups: Option<Box<Listener>>,
    is_wireless: bool,
    tunnel: Option<Box<TunnelPath>>,
    requests: Option<(RequestSource, Box<Listener<AskingPort>>)>,
    nothing: Box<Listener<NoPort>>,
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
        let ReceiveOptions { listen, out, takes_other_senders, repair, serving, amt, ask, paths, .. } =
            options;
        let store_options = StoreOptions {
            target: options.target.map(Arc::new),
            selection: options.selection,
            bundle_cache: options.bundle_cache,
            apply: ApplyOptions { preserve: options.preserve, links: options.keeps_links },
            base: options.base,
            stop: None,
        };
        let way = match (paths, ask, amt) {
            (Some(paths), ..) => SessionListener::Paths(PathListeners::open(listen, paths)?),
            (None, None, None) => SessionListener::Groups(Box::new(Listener::open(listen)?)),
            (None, None, Some(relay)) => {
                SessionListener::Tunnel(Box::new(Listener::open_amt(listen, relay)?))
            }
            (None, Some(ask), _) => SessionListener::Requests(Box::new(asker::open(listen, &ask)?)),
        };
        let received = ReceivedFiles::default();
        let mut session =
            Self { way, out, store_options, takes_other_senders, repair, serving, received, store: None };
        session.store_options.stop = Some(session.stop_handle().flag());
        Ok(session)
    }

    /// Opens the folder, which is made if it is missing. Without this call the session opens the folder when
    /// it runs.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn open_folder(&mut self) -> Result<(), ReceiveError> {
        self.store = Some(DiskStore::open(&self.out, self.store_options.clone(), self.way.waker())?);
        Ok(())
    }

    /// Returns the whole files, for a server. Files appear once whole, if the session serves
    /// ([`ReceiveOptions::serving`]).
    pub fn published(&self) -> PublishedFiles {
        PublishedFiles::received(self.received.clone())
    }

    /// Returns the parameters of the session at its start.
    pub fn started(&self) -> ReceiveStarted {
        fn of<P: ContentPort>(listener: &Listener<P>) -> ReceiveStarted {
            listener.socket.started(&listener.options)
        }
        match &self.way {
            SessionListener::Groups(listener) => of(listener),
            SessionListener::Tunnel(listener) => of(listener),
            SessionListener::Requests(asker) => of(asker),
            SessionListener::Paths(PathListeners { groups, requests, nothing, .. }) => {
                let asked = || requests.as_ref().map(|(_, asker)| of(asker));
                groups.as_ref().map(|groups| of(groups)).or_else(asked).unwrap_or_else(|| of(nothing))
            }
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
            SessionListener::Paths(PathListeners { nothing, .. }) => nothing.stop.clone(),
        }
    }

    fn run(&mut self, observer: &mut dyn FnMut(ReceiveUpdate)) -> Result<ReceiveSummary, ReceiveError> {
        observer(ReceiveUpdate::Started(self.started()));
        let mut folder = Folder {
            first: self.store.take(),
            out: self.out.clone(),
            store_options: self.store_options.clone(),
            pins: !self.takes_other_senders,
            receiver: system::random_u64(),
            serving: self
                .serving
                .map(|serving| Serving::new(serving, self.out.clone(), self.received.clone())),
            clock: Clock::start(),
        };
        let repair = self.repair.clone();
        match &mut self.way {
            SessionListener::Groups(listener) => {
                run_on(listener, ContentPath::Multicast, &mut folder, repair, observer)
            }
            SessionListener::Tunnel(listener) => {
                run_on(listener, ContentPath::Amt, &mut folder, repair, observer)
            }
            SessionListener::Requests(asker) => {
                run_on(asker, ContentPath::Rainbow, &mut folder, repair, observer)
            }
            SessionListener::Paths(paths) => paths.run(&mut folder, repair, observer),
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
            Self::Paths(paths) => paths.nothing.poller.waker(),
        }
    }
}

/// Folder of a session, in which one machine after the other receives.
struct Folder {
    /// Store that is open already.
    first: Option<DiskStore>,
    out: PathBuf,
    store_options: StoreOptions,
    pins: bool,
    /// Identifier of the receiver.
    receiver: u64,
    /// Serving of the files, until the application takes this value.
    serving: Option<Serving>,
    clock: Clock,
}

/// End of a machine.
enum MachineEnd {
    /// The session goes on with another machine.
    Next,
    Session(Box<ReceiveSummary>),
}

fn run_on<P: ContentPort>(
    listener: &mut Listener<P>,
    path: ContentPath,
    folder: &mut Folder,
    repair: RepairOptions,
    observer: &mut dyn FnMut(ReceiveUpdate),
) -> Result<ReceiveSummary, ReceiveError> {
    let mut watch = watch(listener, path, folder.clock, repair, observer)
        .with_order(folder.store_options.target.is_some())
        .with_serving(folder.serving.take());
    loop {
        match run_machine(listener, path == ContentPath::Rainbow, folder, &mut watch, None)? {
            MachineEnd::Next => {}
            MachineEnd::Session(summary) => return Ok(*summary),
        }
    }
}

/// Creates the application of a session whose packets come by `path` at first.
fn watch<'a, P: ContentPort>(
    listener: &Listener<P>,
    path: ContentPath,
    clock: Clock,
    repair: RepairOptions,
    observer: &'a mut dyn FnMut(ReceiveUpdate),
) -> Watch<'a> {
    let Listener { options, socket, poller, stop } = listener;
    let limits = (options.timeout, options.source.is_some(), options.linger);
    let is_local = socket.interface().map_or(options.group.ip().is_loopback(), |on| on.loopback);
    let repairer = Repairer::new(repair, is_local, options, poller.waker());
    let watch = Watch::new(stop.clone(), observer, limits, socket.input_losses(), clock.now());
    watch.with_repairer(repairer).with_path(path).with_block_map(options.block_cells)
}

/// Choice of the path of a machine, and the other paths.
type Paths<'p> = (&'p mut PathSwitch, OtherPaths<'p>);

/// Joins the base channel natively beside a machine on another path.
fn beside_groups(groups: &mut Option<Box<Listener>>) -> OtherPaths<'_> {
    let mut groups = groups.as_mut().map(|groups| &mut groups.socket);
    groups.iter_mut().for_each(|groups| listen_to_base(groups));
    OtherPaths { groups, tunnel: None }
}

/// Runs a machine of a session with several paths.
fn run_path<P: ContentPort>(
    listener: &mut Listener<P>,
    is_on_request: bool,
    folder: &mut Folder,
    watch: &mut Watch<'_>,
    paths: Paths<'_>,
) -> Result<MachineEnd, ReceiveError> {
    watch.set_waker(&listener.poller.waker());
    run_machine(listener, is_on_request, folder, watch, Some(paths))
}

fn run_machine<P: ContentPort>(
    listener: &mut Listener<P>,
    is_on_request: bool,
    folder: &mut Folder,
    watch: &mut Watch<'_>,
    paths: Option<Paths<'_>>,
) -> Result<MachineEnd, ReceiveError> {
    let clock = folder.clock;
    let store = match folder.first.take() {
        Some(store) => store,
        None => DiskStore::open(&folder.out, folder.store_options.clone(), listener.poller.waker())?,
    };
    folder.receiver = store.receiver_id(folder.receiver);
    watch.set_unpacked(store.unpacked(), store.made_names());
    let options = &listener.options;
    let config = DeliveryReceiverConfig::default()
        .with_tsi(options.tsi)
        .with_except(options.except)
        .with_source(options.source);
    let pinned = if folder.pins { store.pinned() } else { Vec::new() };
    let trust = match &pinned[..] {
        [] => options.trust.clone(),
        pinned => options.trust.pinned_to(pinned.to_vec()),
    };
    let control = listener.socket.control(options);
    let mut machine = DeliveryReceiver::new(config, control, store, clock.now())
        .with_verifying(trust.verifying(is_on_request, options.group_key.is_some()))
        .with_group_keys(options.group_keys())
        .with_reporter(options.reporter(folder.receiver));
    let (driven, has_switched) = match paths {
        None => (listener.drive(&mut machine, clock, watch), false),
        Some((switch, beside)) => {
            let mut on_path = OnPath { watch: &mut *watch, switch: &mut *switch, beside };
            let driven = listener.drive(&mut machine, clock, &mut on_path);
            let next = switch.take_next(clock.now()).filter(|_| driven.is_ok());
            if let Some(next) = next {
                watch.on_path_change(&machine, next.content(), clock.now());
            }
            (driven, next.is_some())
        }
    };
    if driven.is_ok() && (has_switched || watch.begins_anew(clock.now())) {
        // A recording of an earlier session does not take the place of the next session.
        if let Some((key, started)) = watch.verified() {
            listener.options.trust = listener.options.trust.following(key, started);
        }
        if has_switched {
            listener.socket.leave_all();
        }
        return Ok(MachineEnd::Next);
    }
    let mut summary = watch.summary(&mut machine, &listener.socket, clock.now());
    summary.pinned = pinned;
    listener.socket.leave_all();
    driven?;
    if let Some(target) =
        folder.store_options.target.as_ref().filter(|_| summary.outcome == ReceiveOutcome::Completed)
    {
        target.finish(&listener.stop)?;
    }
    if summary.outcome == ReceiveOutcome::NothingReceived
        && listener.options.source.is_some()
        && summary.others.is_empty()
    {
        // A membership of the named source has kept all other senders out.
        summary.others.extend(listener.socket.others());
    }
    Ok(MachineEnd::Session(Box::new(summary)))
}

impl PathListeners {
    /// Opens the paths. A path that cannot be opened is left out if another path is left.
    fn open(listen: ListenOptions, paths: PathOptions) -> Result<Self, ReceiveError> {
        let nothing = nothing::open(listen.for_path(listen.group))?;
        let request = |rainbow: RequestSource| {
            let ask = PullOptions { upstream: rainbow.via.unwrap_or(rainbow.source), group: None };
            let asker = asker::open(listen.for_path(rainbow.source), &ask)?;
            Ok::<_, ReceiveError>((rainbow, Box::new(asker)))
        };
        let requests = paths.rainbow.map(request).transpose();
        let has_other_path = matches!(&requests, Ok(Some(_))) || paths.has_http;
        let tunnel = paths.amt.filter(|_| paths.has_groups).map(|relay| {
            let mut options = listen.for_path(listen.group);
            (options.source, options.tsi) = (listen.source, listen.tsi);
            Box::new(TunnelPath::new(relay, options, nothing.stop.clone()))
        });
        let has_other_path = has_other_path || tunnel.is_some();
        let groups = paths.has_groups.then(|| Listener::open(listen).map(Box::new)).transpose();
        let groups = match groups {
            Err(error) if has_other_path => {
                tracing::warn!("multicast cannot be received: {}; other paths are left", chain(&error));
                None
            }
            groups => groups?,
        };
        let requests = match requests {
            Err(error) if groups.is_some() || tunnel.is_some() || paths.has_http => {
                tracing::warn!("nothing can be requested: {}; other paths are left", chain(&error));
                None
            }
            requests => requests?,
        };
        let is_wireless = groups.as_ref().is_some_and(|groups| groups.socket.interface().is_wireless());
        let mut listeners = Self { groups, is_wireless, tunnel, requests, nothing: Box::new(nothing) };
        let stop = listeners.nothing.stop.clone();
        if let Some(groups) = &mut listeners.groups {
            groups.stop = stop.shared_with(groups.poller.waker());
        }
        if let Some((_, requests)) = &mut listeners.requests {
            requests.stop = stop.shared_with(requests.poller.waker());
        }
        Ok(listeners)
    }

    fn run(
        &mut self,
        folder: &mut Folder,
        repair: RepairOptions,
        observer: &mut dyn FnMut(ReceiveUpdate),
    ) -> Result<ReceiveSummary, ReceiveError> {
        let clock = folder.clock;
        let Self { groups, is_wireless, tunnel, requests, nothing } = self;
        let home = if groups.is_some() { PacketPath::Multicast } else { PacketPath::Nothing };
        let probe = requests
            .as_ref()
            .and_then(|(source, _)| SourceProbe::open(source.source, source.via.unwrap_or(source.source)));
        let tsi = groups.as_ref().and_then(|groups| groups.options.tsi);
        let mut switch = PathSwitch::new(home, probe, tsi, clock.now()).on_wireless(*is_wireless);
        let mut watch = match groups {
            Some(groups) => watch(groups, ContentPath::Multicast, clock, repair, observer),
            None => watch(nothing, ContentPath::Http, clock, repair, observer),
        }
        .with_order(folder.store_options.target.is_some())
        .with_serving(folder.serving.take())
        .with_paths();
        loop {
            let current = switch.current();
            if current != PacketPath::Amt {
                tunnel.iter_mut().for_each(|tunnel| tunnel.close());
            }
            let end = match (current, &mut *groups, &mut *requests) {
                (PacketPath::Multicast, Some(groups), _) => {
                    let beside = OtherPaths { groups: None, tunnel: tunnel.as_deref_mut() };
                    run_path(groups, false, folder, &mut watch, (&mut switch, beside))?
                }
                (PacketPath::Rainbow, groups, Some((_, asker))) => {
                    run_path(asker, true, folder, &mut watch, (&mut switch, beside_groups(groups)))?
                }
                (PacketPath::Amt, groups, _)
                    if let Some(through) = tunnel.as_mut().and_then(|tunnel| tunnel.listener()) =>
                {
                    run_path(through, false, folder, &mut watch, (&mut switch, beside_groups(groups)))?
                }
                _ => {
                    let beside = OtherPaths { groups: None, tunnel: tunnel.as_deref_mut() };
                    run_path(nothing, false, folder, &mut watch, (&mut switch, beside))?
                }
            };
            if let MachineEnd::Session(summary) = end {
                groups.iter_mut().for_each(|groups| groups.leave());
                tunnel.iter_mut().for_each(|tunnel| tunnel.close());
                return Ok(*summary);
            }
        }
    }
}

/// Returns the messages of an error and its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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

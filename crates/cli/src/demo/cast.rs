//! Sessions of the demo: a sender and three receivers, each on a thread, which report to the main thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater::net::Interface;
use headwater::{
    CongestionControl, LayerOptions, ListenOptions, Loss, ReceiveError, ReceiveOptions, ReceiveSession,
    ReceiveSummary, ReceiveUpdate, SendError, SendOptions, SendSession, SendSummary, SendUpdate, Session,
    prepare,
};
use headwater_proto::Rate;
use headwater_web::CELLS_MAX;

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};
use crate::receive::error_failure;
use crate::send;
use crate::shutdown::Shutdown;

/// Number of receivers.
pub const RECEIVERS: usize = 3;
/// Index of the receiver that joins late.
pub const LATE: usize = 1;
/// Index of the receiver that loses packets.
pub const LOSSY: usize = 2;

/// Receivers of a demo.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    pub names: [&'static str; RECEIVERS],
    /// Share of the highest rate that each receiver takes at most; `None` for a single rate.
    rates: Option<[f64; RECEIVERS]>,
    /// Share of packets that the lossy receiver drops.
    pub loss: f64,
    /// Point at which the late receiver joins.
    pub late_at: LateAt,
}

/// Point at which the late receiver joins.
#[derive(Clone, Copy, Debug)]
pub enum LateAt {
    /// Part of a pass of the sender.
    Pass(f64),
    /// Time since the start of the sender.
    Time(Duration),
}

/// Receivers at a single rate.
pub const ONE_RATE: Cast =
    Cast { names: ["steady", "late", "lossy"], rates: None, loss: 0.1, late_at: LateAt::Pass(0.4) };
/// Receivers at a rate each.
pub const MANY_RATES: Cast = Cast {
    names: ["fast", "medium", "slow"],
    rates: Some([1.0, 0.375, 0.16]),
    loss: 0.01,
    late_at: LateAt::Time(Duration::from_secs(5)),
};

impl Cast {
    /// Returns the control of the sender, with `rate` as the highest rate.
    fn control(&self, rate: Rate) -> CongestionControl {
        match self.rates {
            None => CongestionControl::Fixed { rate },
            // Room above the highest rate, for the levels that receivers may join next.
            Some(_) => {
                let most = Rate::from_bits(rate.as_bits().saturating_mul(2)).unwrap_or(rate);
                CongestionControl::M2c(LayerOptions::new().with_max_rate(most))
            }
        }
    }

    /// Returns the highest rate of a receiver.
    fn rate(&self, receiver: usize, rate: Rate) -> Option<Rate> {
        let share = self.rates?[receiver];
        #[expect(clippy::cast_precision_loss, reason = "a rate, and `as` saturates")]
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, and `as` saturates"
        )]
        Rate::from_bits((rate.as_bits() as f64 * share) as u64)
    }
}

impl LateAt {
    /// Whether the point has come, after `passes` and the time since the start.
    pub fn has_come(self, passes: f64, started: Option<Instant>) -> bool {
        match self {
            Self::Pass(part) => passes >= part,
            Self::Time(time) => started.is_some_and(|started| started.elapsed() >= time),
        }
    }
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 87);
/// Silence after which a receiver gives up, so that the demo always ends.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Report of a thread.
pub enum StageReport {
    /// Update of the sender.
    Sender(SendUpdate),
    /// End of the sender.
    SenderEnded(Result<Box<SendSummary>, SendError>),
    /// Update of a receiver.
    Receiver(usize, ReceiveUpdate),
    /// End of a receiver.
    ReceiverEnded(usize, Result<Box<ReceiveSummary>, ReceiveError>),
}

/// Loopback interface of the demo.
pub struct Loopback {
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Name of the interface.
    pub interface: String,
}

impl Loopback {
    /// Finds the loopback interface and a free port.
    pub fn find() -> Result<Self, Failure> {
        let tried = "cannot play the demo on this machine";
        let interfaces = Interface::list().or_exit(Exit::Network, tried)?;
        let loopback = interfaces.into_iter().find(|interface| interface.loopback && interface.up);
        let Some(interface) = loopback else {
            return Err(Failure::new(
                Exit::Network,
                format!("{tried}: no loopback interface is up; run `ip link set dev lo up` as root"),
            ));
        };
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
        let port = port.or_exit(Exit::Network, tried)?.port();
        let group = (IpAddr::V4(GROUP), port).into();
        Ok(Self { group, interface: interface.name })
    }
}

/// Network of the demo.
pub struct Stage {
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Name of the loopback interface.
    pub interface: String,
    pub cast: Cast,
    /// Highest rate.
    pub rate: Rate,
    /// Whether a page shows the sessions.
    has_page: bool,
}

impl Stage {
    /// Finds the network.
    pub fn set(cast: Cast, rate: Rate, has_page: bool) -> Result<Self, Failure> {
        let Loopback { group, interface } = Loopback::find()?;
        Ok(Self { group, interface, cast, rate, has_page })
    }

    /// Opens the sender of a file.
    pub fn sender(&self, file: &Path, capture: Option<&Capture>) -> Result<SendSession, Failure> {
        let files = prepare([file]).or_exit(Exit::Usage, "cannot send this file")?;
        let mut options = SendOptions::new(self.group, self.cast.control(self.rate));
        options.link.interface = Some(self.interface.clone());
        options.link.trace = capture.map(Capture::hook);
        SendSession::open(files, options).map_err(|error| send::failure("cannot send over loopback", error))
    }

    /// Starts a receiver.
    pub fn receive(
        &self,
        receiver: usize,
        out: PathBuf,
        tsi: u32,
        seed: u64,
        reports: Sender<StageReport>,
        shutdown: &Shutdown,
    ) -> Result<JoinHandle<()>, Failure> {
        let loss = (receiver == LOSSY).then_some(Loss { probability: self.cast.loss, seed });
        let name = self.cast.names[receiver];
        let listen = ListenOptions {
            interface: Some(self.interface.clone()),
            tsi: Some(tsi.into()),
            timeout: Some(SILENCE_MAX),
            max_rate: self.cast.rate(receiver, self.rate),
            name: Some(name.to_owned()),
            block_cells: if self.has_page { CELLS_MAX } else { 0 },
            loss,
            ..ListenOptions::new(self.group)
        };
        let options = ReceiveOptions::new(listen, out);
        let mut session = ReceiveSession::open(options)
            .map_err(|error| error_failure("cannot receive over loopback", error))?;
        shutdown.watch(session.stop_handle());
        spawn(name, move || {
            // The main thread no longer receives reports only if the demo has failed.
            let result =
                session.run(&mut |update| drop(reports.send(StageReport::Receiver(receiver, update))));
            drop(reports.send(StageReport::ReceiverEnded(receiver, result.map(Box::new))));
        })
    }
}

/// Starts the sender.
pub fn send(
    mut session: SendSession,
    reports: Sender<StageReport>,
    shutdown: &Shutdown,
) -> Result<JoinHandle<()>, Failure> {
    shutdown.watch(session.stop_handle());
    spawn("sender", move || {
        let result = session.run(&mut |update| drop(reports.send(StageReport::Sender(update))));
        drop(reports.send(StageReport::SenderEnded(result.map(Box::new))));
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    thread::Builder::new().name(name.to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
}

//! Sessions of the demo: a sender and three receivers, each on a thread, which report to the main thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use headwater::net::Interface;
use headwater::{
    CongestionControl, ListenOptions, Loss, ReceiveError, ReceiveOptions, ReceiveSession, ReceiveSummary,
    ReceiveUpdate, SendError, SendOptions, SendSession, SendSummary, SendUpdate, Session, prepare,
};
use headwater_proto::Rate;

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};
use crate::receive::error_failure;
use crate::send;
use crate::shutdown::Shutdown;

/// Names of the three receivers.
pub const RECEIVERS: [&str; 3] = ["steady", "late", "lossy"];
/// Index of the receiver that joins late.
pub const LATE: usize = 1;
/// Part of a pass after which the late receiver joins.
pub const LATE_AT_PASS: f64 = 0.4;
/// Index of the receiver that loses packets.
pub const LOSSY: usize = 2;
/// Share of packets that the lossy receiver drops.
pub const LOSS: f64 = 0.1;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 87);
/// Silence after which a receiver gives up, so that the demo always ends.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Report of a thread.
pub enum Report {
    /// Update of the sender.
    Sender(SendUpdate),
    /// End of the sender.
    SenderEnded(Result<Box<SendSummary>, SendError>),
    /// Update of a receiver.
    Receiver(usize, ReceiveUpdate),
    /// End of a receiver.
    ReceiverEnded(usize, Result<Box<ReceiveSummary>, ReceiveError>),
}

/// Network of the demo.
pub struct Stage {
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Name of the loopback interface.
    pub interface: String,
}

impl Stage {
    /// Finds the loopback interface and a free port.
    pub fn set() -> Result<Self, Failure> {
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
        Ok(Self { group: (IpAddr::V4(GROUP), port).into(), interface: interface.name })
    }

    /// Opens the sender of a file.
    pub fn sender(&self, file: &Path, rate: Rate, capture: Option<&Capture>) -> Result<SendSession, Failure> {
        let files = prepare([file]).or_exit(Exit::Usage, "cannot send this file")?;
        let mut options = SendOptions::new(self.group, CongestionControl::Fixed { rate });
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
        reports: Sender<Report>,
        shutdown: &Shutdown,
    ) -> Result<JoinHandle<()>, Failure> {
        let loss = (receiver == LOSSY).then_some(Loss { probability: LOSS, seed });
        let listen = ListenOptions {
            interface: Some(self.interface.clone()),
            tsi: Some(tsi.into()),
            timeout: Some(SILENCE_MAX),
            loss,
            ..ListenOptions::new(self.group)
        };
        let options = ReceiveOptions::new(listen, out);
        let mut session = ReceiveSession::open(options)
            .map_err(|error| error_failure("cannot receive over loopback", error))?;
        shutdown.watch(session.stop_handle());
        spawn(RECEIVERS[receiver], move || {
            // The main thread no longer receives reports only if the demo has failed.
            let result = session.run(&mut |update| drop(reports.send(Report::Receiver(receiver, update))));
            drop(reports.send(Report::ReceiverEnded(receiver, result.map(Box::new))));
        })
    }
}

/// Starts the sender.
pub fn send(
    mut session: SendSession,
    reports: Sender<Report>,
    shutdown: &Shutdown,
) -> Result<JoinHandle<()>, Failure> {
    shutdown.watch(session.stop_handle());
    spawn("sender", move || {
        let result = session.run(&mut |update| drop(reports.send(Report::Sender(update))));
        drop(reports.send(Report::SenderEnded(result.map(Box::new))));
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    thread::Builder::new().name(name.to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
}

//! Whole sessions to measure, as `send` and `receive` run them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use headwater::{
    CongestionControl, LinkOptions, ListenOptions, Loss, ReceiveOptions, ReceiveOutcome, ReceiveSession,
    ReceiveSummary, Scheme, SendEnd, SendOptions, SendSession, SendUpdate, SenderKey, Session, Trust,
    prepare,
};
use headwater_proto::Rate;

use super::report::{Speed, speed};
use super::{process_cpu, thread_cpu};
use crate::exit::{Exit, Failure, OrExit};

/// Bytes of a symbol, and of a packet with a symbol: short identifiers make 16 bytes of headers.
const SYMBOL_BYTES: u16 = 1_408;
pub const PACKET_BYTES: usize = 1_424;
/// Bytes of a symbol that leave room for a signature in the packet.
const SIGNED_SYMBOL_BYTES: u16 = 1_344;
/// Group of the sessions.
const GROUP: &str = "239.255.72.88:7388";
/// TSI of 16 bits, which makes the header short.
const TSI: u32 = 7;
/// Rate of a lone sender, above the speed of any machine.
const RATE_UNBOUND_BITS: u64 = 1_000_000_000_000;
/// Silence after which a receiver gives up.
const SILENCE: Duration = Duration::from_secs(2);

/// Parameters that all sessions share.
pub struct Bed<'a> {
    interface: &'a str,
    group: SocketAddr,
    file: &'a Path,
    out: PathBuf,
    bytes: u64,
    offload: bool,
}

/// Transfer to measure.
#[derive(Clone, Copy)]
pub struct Transfer {
    pub scheme: Scheme,
    /// Share of the packets that the receiver drops deliberately.
    pub loss: f64,
    /// Authentication to measure: `None` for packets of usual length, else whether packets are signed.
    pub signing: Option<bool>,
}

/// Time and processor time at an instant.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    process: Duration,
    thread: Duration,
}

impl Moment {
    fn now() -> Self {
        Self { at: Instant::now(), process: process_cpu(), thread: thread_cpu() }
    }
}

impl<'a> Bed<'a> {
    /// Sends `file` of `bytes` bytes; received files go to the folder `out`. With `offload`, the kernel
    /// segments runs of datagrams if supported.
    pub fn new(interface: &'a str, file: &'a Path, out: PathBuf, bytes: u64, offload: bool) -> Self {
        let group = GROUP.parse().expect("an address and a port");
        Self { interface, group, file, out, bytes, offload }
    }

    /// Measures a sender at a rate in bit/s and a receiver, from the first packet until the file is in place,
    /// without the hashing before. A transfer that fails because of loss has speed 0.
    pub fn transfer(&self, transfer: Transfer, rate_bits: u64) -> Result<Speed, Failure> {
        // A file that is there would not be received again.
        match std::fs::remove_dir_all(&self.out) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::of(Exit::Disk, error));
            }
            _ => {}
        }
        let mut receiver = self.receiver(transfer)?;
        let mut sender = self.sender(transfer, rate_bits, SendEnd::Never)?;
        let stop = sender.stop_handle();
        let start = Mutex::new(None);
        let (sent, received) = thread::scope(|scope| {
            let start = &start;
            let receiving = scope.spawn(move || {
                let cpu = thread_cpu();
                let result = receiver.run(&mut |_| {});
                let end = Moment::now();
                stop.stop();
                result.map(|summary| (summary, end, end.thread - cpu))
            });
            let sent = sender.run(&mut |update| {
                if matches!(update, SendUpdate::Started(_)) {
                    *start.lock().expect("nobody panics with it") = Some(Moment::now());
                }
            });
            let sender_end = thread_cpu();
            (sent.map(|_| sender_end), receiving.join().expect("a session does not panic"))
        });
        let sender_end = sent.or_exit(Exit::Network, "the sending session failed")?;
        let (summary, end, receiver_cpu) = received.or_exit(Exit::Network, "the receiving session failed")?;
        let start = start.into_inner().expect("nobody panics with it");
        let (Some(start), ReceiveOutcome::Completed) = (start, &summary.outcome) else {
            return Ok(Speed::default());
        };
        let cpus = [end.process - start.process, sender_end - start.thread, receiver_cpu];
        Ok(self.speed_of(&summary, end.at - start.at, cpus))
    }

    /// Measures a sender at full speed without a receiver.
    pub fn send_alone(&self, scheme: Scheme, time: Duration) -> Result<Speed, Failure> {
        let transfer = Transfer { scheme, loss: 0.0, signing: None };
        let mut sender = self.sender(transfer, RATE_UNBOUND_BITS, SendEnd::After(time))?;
        let mut start = None;
        let sent = sender.run(&mut |update| {
            if matches!(update, SendUpdate::Started(_)) {
                start = Some(Moment::now());
            }
        });
        let sent = sent.or_exit(Exit::Network, "the sending session failed")?.progress;
        let (start, end) = (start.unwrap_or_else(Moment::now), Moment::now());
        let gigabytes = gigabytes(sent.bytes);
        let cpu = end.process - start.process;
        Ok(Speed {
            packets_per_s: Some(sent.packets as f64 / sent.elapsed.as_secs_f64()),
            cpu_s_per_gb: Some(cpu.as_secs_f64() / gigabytes),
            sender_cpu_s_per_gb: Some((end.thread - start.thread).as_secs_f64() / gigabytes),
            ..speed(sent.bytes, sent.elapsed.as_secs_f64())
        })
    }

    fn speed_of(&self, summary: &ReceiveSummary, took: Duration, cpus: [Duration; 3]) -> Speed {
        let progress = &summary.progress;
        let [process, sender, receiver] = cpus.map(|cpu| Some(cpu.as_secs_f64() / gigabytes(self.bytes)));
        Speed {
            packets_per_s: Some(progress.stats.packets as f64 / took.as_secs_f64()),
            cpu_s_per_gb: process,
            sender_cpu_s_per_gb: sender,
            receiver_cpu_s_per_gb: receiver,
            kernel_drops: Some(progress.kernel_drops),
            lost: Some(progress.reception.lost),
            ..speed(self.bytes, took.as_secs_f64())
        }
    }

    fn sender(&self, transfer: Transfer, rate_bits: u64, end: SendEnd) -> Result<SendSession, Failure> {
        let rate = Rate::from_bits(rate_bits);
        let rate = rate.ok_or_else(|| Failure::new(Exit::Other, "the bare loops carried nothing"))?;
        let files = prepare([self.file]).or_exit(Exit::Disk, "cannot read the content back")?;
        let interface = Some(self.interface.to_owned());
        let link = LinkOptions { interface, offload: self.offload, ..LinkOptions::new(self.group) };
        let signing = (transfer.signing == Some(true)).then(SenderKey::ephemeral).transpose();
        let symbol_bytes = if transfer.signing.is_some() { SIGNED_SYMBOL_BYTES } else { SYMBOL_BYTES };
        let options = SendOptions {
            scheme: transfer.scheme,
            symbol_size: Some(symbol_bytes),
            tsi: Some(TSI),
            end,
            signing: signing.or_exit(Exit::Other, "cannot make a key")?,
            ..SendOptions::new(link, CongestionControl::Fixed { rate })
        };
        SendSession::open(files, options).or_exit(Exit::Network, "cannot open a sending session")
    }

    fn receiver(&self, transfer: Transfer) -> Result<ReceiveSession, Failure> {
        let loss = (transfer.loss > 0.0).then_some(Loss { probability: transfer.loss, seed: 1 });
        let (interface, timeout) = (Some(self.interface.to_owned()), Some(SILENCE));
        let trust = if transfer.signing == Some(true) { Trust::First } else { Trust::Unchecked };
        let listen = ListenOptions { interface, timeout, loss, trust, ..ListenOptions::new(self.group) };
        let options = ReceiveOptions::new(listen, &self.out);
        ReceiveSession::open(options).or_exit(Exit::Network, "cannot open a receiving session")
    }
}

fn gigabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1e9).max(f64::MIN_POSITIVE)
}

//! Bare loops of system calls: the limit of the kernel and of this machine. Elsewhere than on Linux each call
//! carries a datagram.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use headwater::net::Interface;

#[cfg(target_os = "linux")]
use super::bare_linux::{open_receiver, open_sender, receive, send};
#[cfg(not(target_os = "linux"))]
use super::bare_portable::{open_receiver, open_sender, receive, send};
use super::report::Speed;
use super::thread_cpu;

/// Destination of bare loops.
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 89);
pub(super) const PORT: u16 = 7389;
/// Receive buffer in bytes, as for a receiving session.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Interval at which the receiver checks for the end.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// System calls of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `sendmmsg` and `recvmmsg`, a datagram in each message.
    Single,
    /// `send` with `UDP_SEGMENT`, `recvmmsg` with `UDP_GRO`.
    Segmented,
}

/// Counts of an end.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    pub(super) cpu: Duration,
}

/// Repeats `step`, which returns the bytes of a call, for `time` and at least once: a machine under load may
/// pause a thread for longer.
pub(super) fn repeat_for(time: Duration, mut step: impl FnMut() -> io::Result<u64>) -> io::Result<Count> {
    let (began, cpu) = (Instant::now(), thread_cpu());
    let mut bytes = 0;
    loop {
        bytes += step()?;
        let took = began.elapsed();
        if took >= time {
            return Ok(Count { bytes, took, cpu: thread_cpu() - cpu });
        }
    }
}

/// Sends datagrams of `packet_bytes` for `time` on an interface; with `received`, to a receiver in another
/// thread.
///
/// # Errors
/// If the kernel refuses a call.
pub fn run(
    interface: &Interface,
    calls: Calls,
    packet_bytes: usize,
    time: Duration,
    received: bool,
) -> io::Result<Speed> {
    let sender = open_sender(interface)?;
    let receiver = received.then(|| open_receiver(interface, calls)).transpose()?;
    let over = AtomicBool::new(false);
    let (sent, got) = thread::scope(|scope| {
        let receiving = receiver.map(|socket| {
            let over = &over;
            scope.spawn(move || receive(&socket, calls, over))
        });
        let sent = send(&sender, calls, packet_bytes, time);
        over.store(true, Relaxed);
        let got = receiving.map(|thread| thread.join().expect("the receiving loop does not panic"));
        (sent, got)
    });
    let sent = sent?;
    let got = got.transpose()?;
    Ok(sum_up(sent, got, packet_bytes))
}

fn sum_up(sent: Count, got: Option<Count>, packet_bytes: usize) -> Speed {
    let through = got.unwrap_or(sent);
    let gigabytes = (through.bytes as f64 / 1e9).max(f64::MIN_POSITIVE);
    let cpu = |count: Count| count.cpu.as_secs_f64() / gigabytes;
    let seconds = sent.took.as_secs_f64();
    Speed {
        bits_per_s: through.bytes as f64 * 8.0 / seconds,
        packets_per_s: Some(through.bytes as f64 / packet_bytes as f64 / seconds),
        cpu_s_per_gb: Some(cpu(sent) + got.map_or(0.0, cpu)),
        sender_cpu_s_per_gb: Some(cpu(sent)),
        receiver_cpu_s_per_gb: got.map(cpu),
        kernel_drops: None,
        lost: got.map(|got| sent.bytes.saturating_sub(got.bytes) / packet_bytes as u64),
    }
}

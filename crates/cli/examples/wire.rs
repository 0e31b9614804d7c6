//! A wire between two ports of this machine, in user space, where the kernel cannot delay packets: what comes in by one port leaves by the
//! other, after the queue, the rate and the delay that simulated links have (`headwater_netsim::network::Line`), each way its own. It prints
//! how late it was itself; a run in which one frame in a hundred was more than 1 ms late is no measurement, and it says so.
//!
//! `wire --rate 1M --delay 250ms --queue 42 a,b c,d` joins a with b and c with d. Needs `CAP_NET_RAW`; ends by SIGINT or SIGTERM.
//! Bytes are those of IP, without the Ethernet header. Frames keep what offloads left undone (PACKET_VNET_HDR).
#![expect(unsafe_code, reason = "packet sockets, which no safe crate here offers")]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use headwater_netsim::network::{Line, LinkConfig};
use headwater_proto::queue::{LossConfig, QueueConfig};
use headwater_proto::{Duration, Ecn, Instant, Rate, Seed};

/// `struct virtio_net_hdr` in front of each frame.
const OFFLOADS_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
const FRAME_BYTES_MAX: usize = 65_536 + 256;
/// Of `linux/if_packet.h`, where `libc` has none.
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Of `asm-generic/sockios.h`.
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;
/// Frames read from a port before those that are due are sent.
const READ_MAX: usize = 64;
/// Longest wait, so that a signal is noticed.
const LOOK: u64 = 100_000_000;
/// Lateness is counted by 10 us, up to 100 ms.
const BUCKET_NANOS: u64 = 10_000;
const BUCKETS: usize = 10_000;
const LATE_MAX_NANOS: u64 = 1_000_000;

#[derive(Parser)]
struct Options {
    /// Bits of IP per second, each way.
    #[arg(long)]
    rate: Rate,
    /// Propagation one way.
    #[arg(long, value_parser = humantime::parse_duration)]
    delay: StdDuration,
    /// Packets that wait at most, each way.
    #[arg(long, default_value_t = 25)]
    queue: u32,
    /// Share of packets lost behind the queue, from the first port to the second.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pairs of ports.
    #[arg(required = true)]
    ports: Vec<String>,
}

/// A port, and the line of what comes in by it.
struct Side {
    socket: OwnedFd,
    /// Frames in buffers of [`FRAME_BYTES_MAX`], with their lengths.
    line: Line<(Vec<u8>, usize)>,
    spare: Vec<Vec<u8>>,
    /// Frames that the other port did not take.
    refused: u64,
}

struct Lateness {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut sides = Vec::new();
    for (number, pair) in options.ports.iter().enumerate() {
        let Some((one, other)) = pair.split_once(',') else {
            bail!("'{pair}' is no pair of ports, as 'a,b'")
        };
        sides.push(Side::open(&options, one, &format!("{number}/there"), options.loss)?);
        sides.push(Side::open(&options, other, &format!("{number}/back"), 0.0)?);
    }
    // SAFETY: no pointers. Where it fails, the report shows it.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    println!("ready");
    let clock = Clock::new();
    let mut lateness = Lateness { counts: vec![0; BUCKETS], total: 0, most: 0 };
    while !stop.load(Ordering::Relaxed) {
        for pair in sides.chunks_exact_mut(2) {
            let [one, other] = pair else { continue };
            one.deliver(&clock, &other.socket, &mut lateness);
            other.deliver(&clock, &one.socket, &mut lateness);
        }
        wait(&clock, &sides)?;
        for side in &mut sides {
            side.read(&clock)?;
        }
    }
    report(&options, &clock, &mut sides, &lateness);
    Ok(())
}

impl Side {
    fn open(options: &Options, port: &str, name: &str, loss: f64) -> Result<Self> {
        let loss = if loss > 0.0 { LossConfig::Bernoulli(loss) } else { LossConfig::None };
        let delay = Duration::from_nanos(u64::try_from(options.delay.as_nanos())?);
        let queue = QueueConfig::drop_tail(options.queue);
        let config = LinkConfig::new(options.rate, delay).with_queue(queue).with_loss(loss);
        let line = Line::new(&config, Seed(options.seed), name)?;
        let socket = packet_socket(port).with_context(|| format!("cannot open port '{port}'"))?;
        Ok(Self { socket, line, spare: Vec::new(), refused: 0 })
    }

    /// Reads what waits, at the time at which the kernel had it.
    fn read(&mut self, clock: &Clock) -> io::Result<()> {
        for _ in 0..READ_MAX {
            let mut frame = self.spare.pop().unwrap_or_else(|| vec![0; FRAME_BYTES_MAX]);
            // SAFETY: the buffer is as long as is said.
            let read =
                unsafe { libc::recv(self.socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            let Ok(bytes) = usize::try_from(read) else {
                self.spare.push(frame);
                return match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                    error => Err(error),
                };
            };
            let wire =
                u32::try_from(bytes.saturating_sub(OFFLOADS_BYTES + ETHERNET_BYTES)).unwrap_or(u32::MAX);
            let came = clock.stamp(&self.socket);
            // Dropped by the queue: counted there.
            _ = self.line.offer(came, (frame, bytes), wire, Ecn::NotCapable);
        }
        Ok(())
    }

    fn deliver(&mut self, clock: &Clock, to: &OwnedFd, lateness: &mut Lateness) {
        loop {
            let now = clock.now();
            let Some((due, frame)) = self.line.arrive(now) else { return };
            let Ok((frame, bytes)) = frame else { continue };
            // SAFETY: the buffer is as long as is said.
            let sent = unsafe { libc::send(to.as_raw_fd(), frame.as_ptr().cast(), bytes, 0) };
            self.refused += u64::from(sent < 0);
            lateness.count(now.since(due).as_nanos());
            self.spare.push(frame);
        }
    }
}

impl Lateness {
    fn count(&mut self, nanos: u64) {
        let bucket = usize::try_from(nanos / BUCKET_NANOS).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    /// Nanoseconds within which so many of a thousand were.
    fn within(&self, thousandths: u64) -> u64 {
        let wanted = self.total * thousandths / 1_000;
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        (bucket.unwrap_or(BUCKETS) as u64 + 1) * BUCKET_NANOS
    }
}

fn report(options: &Options, clock: &Clock, sides: &mut [Side], lateness: &Lateness) {
    let now = clock.now();
    let ports = options.ports.iter().flat_map(|pair| pair.split(','));
    for (port, side) in ports.zip(sides) {
        let (refused, counters) = (side.refused, side.line.counters(now));
        println!(
            "from {port}: {} packets, {} dropped by the queue, {} lost, {} delivered, {} bytes, at most {} waited, {refused} not taken",
            counters.offered_packets,
            counters.dropped_full,
            counters.lost,
            counters.delivered_packets,
            counters.delivered_bytes,
            counters.waiting_peak
        );
    }
    let [half, most] = [500, 990].map(|thousandths| lateness.within(thousandths) as f64 / 1e6);
    println!("late: p50 {half:.2} ms, p99 {most:.2} ms, at most {:.2} ms", lateness.most as f64 / 1e6);
    let is_valid = lateness.within(990) <= LATE_MAX_NANOS;
    println!("{}", if is_valid { "valid" } else { "INVALID: p99 above 1 ms" });
}

/// The monotonic clock, and what the wall's is ahead of it.
struct Clock {
    began: u64,
    wall_ahead: i128,
}

impl Clock {
    fn new() -> Self {
        let began = read_clock(libc::CLOCK_MONOTONIC);
        Self { began, wall_ahead: i128::from(read_clock(libc::CLOCK_REALTIME)) - i128::from(began) }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(read_clock(libc::CLOCK_MONOTONIC) - self.began)
    }

    /// When the frame that was read last had come; now, where the kernel does not say.
    fn stamp(&self, socket: &OwnedFd) -> Instant {
        // SAFETY: all-zero is a valid `timespec`, which the call fills.
        let mut stamp: libc::timespec = unsafe { zeroed() };
        // SAFETY: as above; the descriptor is open.
        let told = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut stamp) };
        let now = self.now();
        let wall = i128::from(stamp.tv_sec) * 1_000_000_000 + i128::from(stamp.tv_nsec);
        let came = wall - self.wall_ahead - i128::from(self.began);
        match u64::try_from(came) {
            Ok(came) if told == 0 => now.min(Instant::from_nanos(came)),
            _ => now,
        }
    }
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    // SAFETY: all-zero is a valid `timespec`, which the call fills.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Until a frame is due or one has come.
fn wait(clock: &Clock, sides: &[Side]) -> io::Result<()> {
    let now = clock.now();
    let due = sides.iter().filter_map(|side| side.line.next()).min();
    let nanos = due.map_or(LOOK, |due| due.since(now).as_nanos().min(LOOK));
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::try_from(nanos).unwrap_or(0) };
    let poll = |side: &Side| libc::pollfd { fd: side.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<_> = sides.iter().map(poll).collect();
    let count = libc::nfds_t::try_from(polled.len()).unwrap_or(0);
    // SAFETY: as many entries as are said, and a time that lives as long as the call.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    match io::Error::last_os_error() {
        error if ready < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// All frames that come in by a port, whoever they are for, none that leave by it.
fn packet_socket(port: &str) -> io::Result<OwnedFd> {
    let name = CString::new(port)?;
    // SAFETY: the name ends with a zero.
    let index = match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => return Err(io::Error::last_os_error()),
        index => i32::try_from(index).unwrap_or(0),
    };
    let all = i32::from(u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be());
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let opened = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(opened) };
    for (level, option, value) in [
        (libc::SOL_PACKET, PACKET_VNET_HDR, 1),
        (libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20),
    ] {
        set(&socket, level, option, &value)?;
    }
    // SAFETY: all-zero is a valid request.
    let mut everyone: libc::packet_mreq = unsafe { zeroed() };
    (everyone.mr_ifindex, everyone.mr_type) = (index, u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or(0));
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everyone)?;
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = u16::try_from(all).unwrap_or(0);
    address.sll_ifindex = index;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: the address is as long as is said.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value is as long as is said.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

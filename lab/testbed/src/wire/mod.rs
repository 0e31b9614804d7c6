//! The wire: links in user space, for link properties that the kernel's queues lack.
//!
//! A thread in a namespace between the ends of its links reads frames from a port, passes each frame through
//! the simulator's own link ([`Line`]: drop-tail, RED or `CoDel` with ECN, policers, rate, delay, Bernoulli's
//! and Gilbert's losses from named random streams), and writes the frame to the opposite port. A link with a
//! token bucket in front keeps rate and queue in the kernel, and only delay and losses here.
//!
//! The wire measures its own lateness: the time from the instant at which a packet was due until the packet
//! left ([`Lateness`]).
//!
//! Lateness of the wire's forwarding.

mod frame;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;
use std::{io, thread};

use headwater_netsim::network::{Line, LinkConfig, LinkCounters};
use headwater_netsim::plan::link::{Direction, Link};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Ecn, Instant, Rate, Seed};
use serde::Serialize;

use crate::shape::{Cable, bucket};
use crate::{Error, Tried, sys};

/// Maximum number of frames read from a port before due frames are sent.
const READ_MAX: usize = 64;
const FRAME_BYTES_MAX: usize = 65_536 + 256;
/// Maximum wait, so that the end is noticed.
const LOOK: StdDuration = StdDuration::from_millis(50);
/// Queue of the wire where the kernel's bucket is the actual queue: only packets of the same instant wait.
const OPEN_QUEUE: QueueConfig = QueueConfig::drop_tail(100_000);
/// The rate there: 100 Gbit/s.
const OPEN_RATE: u64 = 100_000_000_000;

/// The two ports of a wired link, in the wire's namespace.
pub(crate) fn ports(link: usize) -> [String; 2] {
    ["a", "b"].map(|end| format!("w{link}{end}"))
}

/// Time for the wire's thread to report its counters.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// Counters of lines since the start of the wire: by link, for both directions.
pub(crate) type Lines = Vec<(usize, [LinkCounters; 2])>;

/// A wire at work.
#[derive(Debug)]
pub(crate) struct Wire {
    stop: Arc<AtomicBool>,
    asks: mpsc::Sender<mpsc::Sender<Lines>>,
    thread: JoinHandle<io::Result<Lateness>>,
}

impl Wire {
    /// Opens the ports of all wired links and begins.
    pub fn start(namespace: &Path, links: &[Link], cables: &[Cable], seed: Seed) -> Result<Self, Error> {
        let wired = (0..cables.len()).filter(|link| cables[*link].is_wired);
        let mut sides = Vec::new();
        for link in wired {
            let [a, b] = ports(link);
            let directions = [(&links[link].forward, a, "there"), (&links[link].back, b, "back")];
            for (direction, port, name) in directions {
                let socket = sys::inside(namespace, || sys::packet_socket(&port));
                let socket =
                    socket.and_then(|socket| socket).tried(|| format!("open port '{port}' of the wire"))?;
                let name = format!("{link}/{name}");
                let line = |config: &LinkConfig, name: &str| {
                    Line::new(config, seed, name).map_err(|error| Error::plan(error.to_string()))
                };
                let config = config_of(direction);
                // Membership messages bypass the queue, with a delay of their own.
                let delay = direction.delay + cables[link].graft_delay;
                let signals = LinkConfig::new(open_rate(), delay).with_queue(OPEN_QUEUE);
                sides.push(Side {
                    link,
                    socket,
                    line: line(&config, &name)?,
                    signals: line(&signals, &format!("{name}/signals"))?,
                    spare: Vec::new(),
                    last: Instant::ZERO,
                });
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (asks, asked) = mpsc::channel();
        let work = move || run(sides, &told, &asked);
        let thread =
            thread::Builder::new().name("wire".into()).spawn(work).tried(|| "start the wire".into())?;
        Ok(Self { stop, asks, thread })
    }

    /// Current counters of the lines.
    ///
    /// # Errors
    ///
    /// If the wire's thread has ended, or hangs.
    pub fn lines(&self) -> Result<Lines, Error> {
        let (to, from) = mpsc::channel();
        self.asks.send(to).tried(|| "ask the wire".into())?;
        from.recv_timeout(PATIENCE).tried(|| "hear from the wire".into())
    }

    /// Ends the wire. Returns its lateness.
    pub fn end(self) -> Result<Lateness, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        ended.tried(|| "go on with the wire".into())
    }
}

fn open_rate() -> Rate {
    Rate::from_bits(OPEN_RATE).unwrap_or(Rate::from_kilobits(1))
}

/// Configuration of the wire's part of a direction.
fn config_of(direction: &Direction) -> LinkConfig {
    let (rate, queue) = match bucket(direction) {
        Some(_) => (open_rate(), OPEN_QUEUE.into()),
        None => (direction.rate, direction.queue),
    };
    LinkConfig::new(rate, direction.delay).with_queue(queue).with_loss(direction.loss.model.clone())
}

/// A port, with the lines for frames that arrive through the port.
struct Side {
    link: usize,
    socket: OwnedFd,
    line: Line<Vec<u8>>,
    signals: Line<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Arrival of the last frame, a lower bound for the next: the wall clock may be set back.
    last: Instant,
}

fn run(
    mut sides: Vec<Side>,
    stop: &AtomicBool,
    asked: &mpsc::Receiver<mpsc::Sender<Lines>>,
) -> io::Result<Lateness> {
    sys::hurry();
    let clock = Clock::new();
    let mut lateness = Lateness::default();
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        for pair in sides.chunks_exact_mut(2) {
            let [one, other] = pair else { continue };
            one.deliver(&clock, &other.socket, &mut lateness);
            other.deliver(&clock, &one.socket, &mut lateness);
        }
        let due = sides.iter().flat_map(|side| [side.line.next(), side.signals.next()]).flatten().min();
        let longest = due.map_or(LOOK, |due| StdDuration::from(due.since(clock.now())).min(LOOK));
        let sockets: Vec<&OwnedFd> = sides.iter().map(|side| &side.socket).collect();
        sys::wait(&sockets, longest)?;
        for side in &mut sides {
            side.read(&clock, &mut buffer)?;
        }
        for to in asked.try_iter() {
            // A requester that has stopped waiting needs no answer.
            to.send(counted(&mut sides, clock.now())).ok();
        }
    }
    Ok(lateness)
}

fn counted(sides: &mut [Side], now: Instant) -> Lines {
    let counters = |pair: &mut [Side]| match pair {
        [one, other] => Some((one.link, [one, other].map(|side| side.line.counters(now).clone()))),
        _ => None,
    };
    sides.chunks_exact_mut(2).filter_map(counters).collect()
}

impl Side {
    /// Reads waiting frames, each with the kernel's time of arrival.
    fn read(&mut self, clock: &Clock, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..READ_MAX {
            let Some(bytes) = sys::receive(&self.socket, buffer)? else { return Ok(()) };
            self.last = self.last.max(clock.stamp(&self.socket));
            let came = self.last;
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(&buffer[..bytes]);
            let (wire, ecn) = (frame::wire_bytes(&frame), frame::ecn(&frame));
            let line = if frame::is_membership(&frame) { &mut self.signals } else { &mut self.line };
            // Dropped by the queue: counted there.
            line.offer(came, frame, wire, ecn).ok();
        }
        Ok(())
    }

    fn deliver(&mut self, clock: &Clock, to: &OwnedFd, lateness: &mut Lateness) {
        for line in [&mut self.line, &mut self.signals] {
            loop {
                let now = clock.now();
                let Some((due, frame)) = line.arrive(now) else { break };
                let Ok((mut frame, ecn)) = frame else { continue };
                if ecn == Ecn::CongestionExperienced {
                    frame::mark(&mut frame);
                }
                // A frame that the port refuses is lost, as on any wire without a far end.
                sys::send(to, &frame);
                lateness.count(now.since(due).as_nanos());
                self.spare.push(frame);
            }
        }
    }
}

/// The monotonic clock, and the lead of the wall clock.
struct Clock {
    began: i128,
    wall_ahead: i128,
}

impl Clock {
    fn new() -> Self {
        let (wall, began) = sys::clocks();
        Self { began, wall_ahead: wall - began }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(sys::clocks().1 - self.began).unwrap_or(0))
    }

    /// Arrival of the frame read last; now, if the kernel reports no time, or an impossible time.
    fn stamp(&self, socket: &OwnedFd) -> Instant {
        let now = self.now();
        let came =
            sys::stamp(socket).and_then(|wall| u64::try_from(wall - self.wall_ahead - self.began).ok());
        came.map_or(now, |came| now.min(Instant::from_nanos(came)))
    }
}

/// Maximum valid 99th percentile in nanoseconds. A later wire has measured the machine, and the run does not
/// count.
pub const LATENESS_MAX: u64 = 1_000_000;
/// Counted by 10 us, up to 100 ms.
const BUCKET_NANOS: u64 = 10_000;
const BUCKETS: usize = 10_000;

/// A histogram of lateness in nanoseconds.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

/// Summary of lateness, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatenessReport {
    /// Packets handed on.
    pub packets: u64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The latest.
    pub most_ms: f64,
    /// Whether [`LATENESS_MAX`] was kept.
    pub is_valid: bool,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, most: 0 }
    }
}

impl Lateness {
    pub(crate) fn count(&mut self, nanos: u64) {
        let bucket = usize::try_from(nanos / BUCKET_NANOS).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    /// Lateness in nanoseconds not exceeded by `thousandths` of a thousand packets, rounded up to 10 us.
    pub fn within(&self, thousandths: u64) -> u64 {
        let wanted = (self.total * thousandths).div_ceil(1_000);
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        if self.total == 0 { 0 } else { (bucket.unwrap_or(BUCKETS) as u64 + 1) * BUCKET_NANOS }
    }

    /// Summarises the histogram.
    pub fn report(&self) -> LatenessReport {
        let milliseconds = |nanos: u64| nanos as f64 / 1e6;
        let p99 = self.within(990);
        LatenessReport {
            packets: self.total,
            p50_ms: milliseconds(self.within(500)),
            p99_ms: milliseconds(p99),
            most_ms: milliseconds(self.most),
            is_valid: p99 <= LATENESS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_rounded_up() {
        let mut lateness = Lateness::default();
        assert!(lateness.report().is_valid, "nothing was late");
        for _ in 0..99 {
            lateness.count(55_000);
        }
        lateness.count(3_000_000);
        let report = lateness.report();
        assert_eq!((report.p50_ms, report.p99_ms, report.most_ms), (0.06, 0.06, 3.0));
        assert!(report.is_valid);
        lateness.count(3_000_000);
        assert!(!lateness.report().is_valid, "2 of 101 were later");
    }
}

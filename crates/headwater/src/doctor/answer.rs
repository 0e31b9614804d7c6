//! `doctor --answer`: tells whoever probes the group how the probes arrived.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use headwater_wire::probe::{Message, Request, Seen};
use tracing::debug;

use super::DoctorOptions;
use crate::net::{Interface, ObservedSocket, OpenError, Poller};
use crate::stop::{StopHandle, stoppable};

/// Most answers at once, and in a second: whoever forges a source gets no more out of this end.
const ANSWERS_AT_ONCE: u32 = 40;
const ANSWERS_PER_SECOND: u32 = 20;
/// Longest datagram looked at: a longer one is no probe.
const DATAGRAM_BYTES_MAX: usize = 64;

/// Answers probes until it is stopped.
#[derive(Debug)]
pub struct Answerer {
    socket: ObservedSocket,
    interface: Interface,
    poller: Poller,
    stop: StopHandle,
    allowance: Allowance,
}

/// A probe that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who asked.
    pub by: SocketAddr,
    /// What was asked.
    pub request: Request,
    /// How it arrived.
    pub seen: Seen,
    /// Whether it was answered; if not, too many were asking, or the answer could not be sent.
    pub is_answered: bool,
}

impl Answerer {
    /// Joins the group.
    ///
    /// # Errors
    /// [`OpenError`]: no interface, the port is taken, the group cannot be joined.
    pub fn open(options: &DoctorOptions) -> Result<Self, OpenError> {
        let interface = options.find_interface()?;
        let socket = ObservedSocket::open(options.group, &interface, options.source)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { socket, interface, poller, stop, allowance: Allowance::full(Instant::now()) })
    }

    /// The interface that it listens on.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// What stops it.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Answers until stopped.
    ///
    /// # Errors
    /// When receiving fails for good: the interface is gone.
    pub fn run(&mut self, observe: &mut dyn FnMut(&Asked)) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while !self.stop.is_stopped() {
            let Some(observed) = self.socket.recv(&mut buffer)? else {
                self.poller.wait([self.socket.as_fd()], None)?;
                continue;
            };
            let Ok(Message::Request(request)) = Message::parse(&buffer[..observed.bytes]) else { continue };
            let seen = Seen { ttl: observed.ttl, traffic_class: observed.traffic_class };
            let is_answered =
                self.allowance.take(Instant::now()) && self.answer(request, seen, observed.source);
            observe(&Asked { by: observed.source, request, seen, is_answered });
        }
        Ok(())
    }

    fn answer(&self, request: Request, seen: Seen, to: SocketAddr) -> bool {
        let reply = Message::Reply(request, seen).emit();
        match self.socket.send_to(&reply, to) {
            Ok(()) => true,
            Err(error) => {
                debug!(%to, %error, "an answer could not be sent");
                false
            }
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Instant up to which tokens were added.
    filled: Instant,
}

impl Allowance {
    fn full(now: Instant) -> Self {
        Self { left: ANSWERS_AT_ONCE, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        const INTERVAL: Duration = Duration::from_millis(1_000 / ANSWERS_PER_SECOND as u64);
        let due = now.saturating_duration_since(self.filled).as_nanos() / INTERVAL.as_nanos();
        if due >= u128::from(ANSWERS_AT_ONCE) {
            *self = Self::full(now);
        } else {
            let due = u32::try_from(due).expect("below the size of the bucket");
            self.left = (self.left + due).min(ANSWERS_AT_ONCE);
            self.filled += INTERVAL * due;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_limited_at_once_and_over_time() {
        let start = Instant::now();
        let mut allowance = Allowance::full(start);
        let mut answered =
            |at: Duration, asked: usize| (0..asked).filter(|_| allowance.take(start + at)).count();
        assert_eq!(answered(Duration::ZERO, 100), 40);
        assert_eq!(answered(Duration::from_millis(49), 100), 0);
        assert_eq!(answered(Duration::from_millis(1_000), 100), 20);
        assert_eq!(answered(Duration::from_secs(86_400), 100), 40);
        // Asked steadily for ten seconds.
        let steady =
            (0..1_000).map(|i| answered(Duration::from_millis(86_400_000 + i * 10), 1)).sum::<usize>();
        assert_eq!(steady, 199);
    }
}

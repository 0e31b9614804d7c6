//! Reading turns of a driver.

use std::io;

use headwater_proto::{Duration, Instant};

use super::Port;
use crate::clock::Clock;
use crate::net::Poller;

/// Pace at which a driver reads while datagrams arrive at less than twice the pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPace {
    /// Time between turns that read.
    pub(super) pause: Duration,
    /// Maximum batches of a turn, so that output does not wait for longer.
    pub(super) batches_max: usize,
    /// Whether turns that send do not read between, and datagrams beyond the batches wait for the next pause.
    /// The arrival then counts from the turn that reads. From a full receive buffer the kernel drops
    /// datagrams at a fraction of the cost of a read.
    pub(super) is_bounded: bool,
}

impl ReadPace {
    /// Pace of data. A busy receiver may be late by the pause. At 10 Gbit/s 900 datagrams wait meanwhile:
    /// 2 MB of the receive buffer.
    pub(super) const DATA: Self =
        Self { pause: Duration::from_micros(500), batches_max: 8, is_bounded: false };
    /// Pace of a sender: at most 51 200 datagrams a second, so that a flood of reports takes a bounded part
    /// of the processor.
    pub(super) const REPORTS: Self =
        Self { pause: Duration::from_micros(1_250), batches_max: 2, is_bounded: true };
}

/// Lateness of a turn from which the thread was away after the wait.
const AWAY: Duration = Duration::from_micros(500);

/// Datagrams read in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedCount {
    pub(super) datagrams: usize,
    /// Whether no datagram is left.
    pub(super) is_all: bool,
}

impl ReceivedCount {
    /// Nothing, as nothing waits.
    pub(super) const NOTHING: Self = Self { datagrams: 0, is_all: true };
}

/// Times at which the driver reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTimer {
    /// Last turn that read a datagram.
    last_read: Option<Instant>,
    /// Nothing is read before this time, at a bounded pace.
    pause_end: Instant,
    /// End of the last wait, if nothing came before.
    awaited: Instant,
    /// Whether datagrams may wait.
    may_have_datagrams: bool,
}

impl Default for ReadTimer {
    fn default() -> Self {
        Self { last_read: None, pause_end: Instant::ZERO, awaited: Instant::ZERO, may_have_datagrams: true }
    }
}

impl ReadTimer {
    /// Whether the turn at `now` reads.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        // Datagrams that came while the thread was away must not look later than the timers of the machine.
        let was_away = now >= self.awaited + AWAY;
        (self.may_have_datagrams || was_away) && now >= self.pause_end
    }

    /// Waits for the next turn, due at `deadline`, after a turn at `now`.
    pub(super) fn wait<P: Port>(
        &mut self,
        (poller, port): (&mut Poller, &P),
        clock: Clock,
        (now, deadline): (Instant, Instant),
        heard: ReceivedCount,
    ) -> io::Result<()> {
        let (pace, before) = (port.read_pace(), self.last_read);
        let is_busy = heard.datagrams > 0 && before.is_some_and(|at| now < at + pace.pause + pace.pause);
        if heard.datagrams > 0 {
            self.last_read = Some(now);
        }
        if is_busy && pace.is_bounded {
            self.pause_end = now + pace.pause;
        }
        let pause_end = if is_busy && heard.is_all { now + pace.pause } else { self.pause_end };
        self.awaited = deadline;
        if now < pause_end {
            self.may_have_datagrams = true;
            return poller.wait([], clock.to_std(deadline.min(pause_end))).map(drop);
        }
        // Datagrams that were read already wake no poller.
        let (deadline, wake) = (if heard.is_all { deadline } else { now }, port.wake_at());
        let deadline = clock.to_std(deadline).into_iter().chain(wake).min();
        let ready = poller.wait(port.fds(), deadline)?;
        // A turn of a timer does not read: a read of nothing costs as much as a packet.
        self.may_have_datagrams = ready.readable > 0 || wake.is_some() || !heard.is_all;
        Ok(())
    }
}

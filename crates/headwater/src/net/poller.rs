//! Waiting for datagrams, for a point in time, or for another thread.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::descriptor::{AsFd, BorrowedFd};
use super::sys::WakeEvent;
use crate::threads::wake_precisely;

/// Waits until a socket is readable, a deadline has come, or a [`Waker`] is used.
#[derive(Debug)]
pub struct Poller {
    wake: Arc<WakeEvent>,
    readable: Vec<bool>,
}

/// Ends the wait of a [`Poller`] from any thread, or the next wait when the poller is not waiting.
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakeEvent>);

/// Cause of the end of a wait. Without readable sockets or a waker: the deadline, or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Number of readable sockets.
    pub readable: usize,
    /// Whether a waker was used since the last wait.
    pub woken: bool,
}

impl Poller {
    /// Creates a poller for the calling thread, whose timer slack becomes 1 ns: with Linux's 50 us each wait
    /// would end that much late.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        wake_precisely()?;
        Ok(Self { wake: Arc::new(WakeEvent::new()?), readable: Vec::new() })
    }

    /// Returns a waker for the poller.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Waits for any of `fds`, the deadline (`None`: for ever) or a waker. May end early without a reason.
    ///
    /// # Errors
    /// The error of `poll`, except an interruption by a signal, which ends the wait.
    pub fn wait<'a>(
        &mut self,
        fds: impl IntoIterator<Item = BorrowedFd<'a>>,
        deadline: Option<Instant>,
    ) -> io::Result<Readiness> {
        let wake = PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN);
        let sockets = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // A small allocation per system call: the list borrows the caller's sockets, so the list cannot be
        // kept.
        let mut polled = std::iter::once(wake).chain(sockets).collect::<Vec<_>>();
        let timeout = deadline.map(time_until);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => polled.iter_mut().for_each(PollFd::clear_revents),
            Err(errno) => return Err(errno.into()),
        }
        // The next read reports errors.
        self.readable.clear();
        self.readable.extend(polled[1..].iter().map(|fd| !fd.revents().is_empty()));
        let woken = !polled[0].revents().is_empty();
        if woken {
            self.wake.reset()?;
        }
        Ok(Readiness { readable: self.readable.iter().filter(|readable| **readable).count(), woken })
    }

    /// Whether the socket at this place of the last wait's list is readable.
    pub fn is_readable(&self, index: usize) -> bool {
        self.readable.get(index).copied().unwrap_or(false)
    }
}

impl Waker {
    /// Ends the wait.
    pub fn wake(&self) {
        self.0.set();
    }
}

fn time_until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec {
        // Nobody waits for 10^11 years.
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos() as _,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn keeps_the_deadline() {
        let mut poller = Poller::new().unwrap();
        let deadline = Instant::now() + Duration::from_micros(1500);
        while Instant::now() < deadline {
            assert_eq!(poller.wait([], Some(deadline)).unwrap(), Readiness::default());
        }
        let past = Instant::now();
        assert_eq!(poller.wait([], Some(past)).unwrap(), Readiness::default());
    }

    #[test]
    fn another_thread_wakes_it_once_however_often_it_calls() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        thread::spawn(move || {
            waker.wake();
            waker.clone().wake();
        })
        .join()
        .unwrap();
        assert!(poller.wait([], None).unwrap().woken);
        assert!(!poller.wait([], Some(Instant::now())).unwrap().woken);
    }

    #[test]
    fn a_waker_ends_a_wait_that_has_begun() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert!(poller.wait([], None).unwrap().woken);
        other.join().unwrap();
    }

    #[test]
    fn tells_which_socket_is_readable() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        let mut poller = Poller::new().unwrap();
        let readiness = poller.wait([quiet.as_fd(), busy.as_fd()], None).unwrap();
        assert_eq!(readiness.readable, 1);
        assert!(!poller.is_readable(0) && poller.is_readable(1));
    }
}

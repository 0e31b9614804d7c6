//! Socket for requests of a receiver to senders, and for their answers.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::batch::RecvBatch;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{Endpoint, OpenError};
use super::receiver::ReceiverCounters;
use super::sender::Run;

/// Socket on an unshared port: on the groups' port, any receiver of this machine could get the answer. The
/// first request opens the socket.
#[derive(Debug)]
pub(super) struct QuerySocket {
    /// Unspecified address of the groups' IP version.
    any: IpAddr,
    /// Socket, and destination of the last request; datagrams from other sources are dropped.
    opened: Option<(Endpoint, SocketAddr)>,
}

impl QuerySocket {
    pub(super) const fn new(any: IpAddr) -> Self {
        Self { any, opened: None }
    }

    /// Sends datagrams by unicast. Returns the number of datagrams that the kernel refused: the machine
    /// repeats a lost request.
    ///
    /// # Errors
    /// When the socket cannot be opened.
    pub(super) fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, OpenError> {
        let mut unsent = 0;
        for run in runs {
            let (endpoint, of) = match &mut self.opened {
                Some(opened) => opened,
                None => {
                    let endpoint = Endpoint::open(SocketAddr::new(self.any, 0), false)?;
                    self.opened.insert((endpoint, run.destination))
                }
            };
            *of = run.destination;
            for datagram in run.datagrams() {
                let sent = endpoint.socket.send_to(datagram, &run.destination.into());
                unsent += u64::from(sent.is_err());
            }
        }
        Ok(unsent)
    }

    /// Reads answers into a batch, as the end's socket of this number.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(
        &self,
        batch: &mut RecvBatch,
        number: usize,
        counters: &mut ReceiverCounters,
    ) -> io::Result<()> {
        let Some((endpoint, of)) = &self.opened else { return Ok(()) };
        batch.read_apart(number, endpoint, |heard| counters.admit_answer(*of, heard).then_some(None))
    }

    /// Returns the port of the socket, after the first request.
    pub(super) fn port(&self) -> Option<u16> {
        Some(self.opened.as_ref()?.0.socket.local_addr().ok()?.as_socket()?.port())
    }

    /// Returns the descriptor, after the first request.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.opened.as_ref().map(|(endpoint, _)| endpoint.as_fd())
    }
}

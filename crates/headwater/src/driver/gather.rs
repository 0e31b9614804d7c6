//! Datagrams gathered back to back, so that one call to the kernel sends many.

use std::net::SocketAddr;

use headwater_proto::{DATAGRAM_BYTES_MAX, Ecn};

use crate::net::{RUN_BYTES_MAX, Run};

/// Datagrams gathered before they are sent: four full messages with segmentation offload, of full datagrams.
const GATHER_BYTES: usize = 4 * (RUN_BYTES_MAX - 1_500);

/// Datagrams to be sent, in order.
#[derive(Debug)]
pub(crate) struct Gather {
    buffer: Box<[u8]>,
    filled: usize,
    runs: Vec<Span>,
}

/// Datagrams of one size (the last may be shorter) for one destination.
#[derive(Clone, Copy, Debug)]
struct Span {
    destination: SocketAddr,
    ecn: Ecn,
    start: usize,
    end: usize,
    segment_bytes: usize,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; GATHER_BYTES + DATAGRAM_BYTES_MAX].into(), filled: 0, runs: Vec::new() }
    }

    /// Room for the next datagram.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// The first `bytes` in the room.
    pub(crate) fn written(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.filled..self.filled + bytes]
    }

    /// Takes the first `bytes` in the room as a datagram. False when there is no room for another one: time
    /// to send.
    #[must_use]
    pub(crate) fn put(&mut self, destination: SocketAddr, ecn: Ecn, bytes: usize) -> bool {
        let start = self.filled;
        self.filled += bytes;
        let end = self.filled;
        match self.runs.last_mut() {
            Some(run) if run.takes(destination, ecn, bytes) => run.end = end,
            _ => self.runs.push(Span { destination, ecn, start, end, segment_bytes: bytes }),
        }
        self.filled <= GATHER_BYTES
    }

    /// The datagrams gathered, as runs to send.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.runs.iter().map(|run| Run {
            destination: run.destination,
            contents: &self.buffer[run.start..run.end],
            segment_bytes: run.segment_bytes,
            ecn: run.ecn,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        self.runs.clear();
    }
}

impl Span {
    /// Whether another datagram may join: only the last of a run may be shorter, and none is empty.
    fn takes(&self, destination: SocketAddr, ecn: Ecn, bytes: usize) -> bool {
        let whole = self.segment_bytes > 0 && (self.end - self.start).is_multiple_of(self.segment_bytes);
        let fits = bytes > 0 && bytes <= self.segment_bytes;
        whole && fits && self.destination == destination && self.ecn == ecn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "239.0.0.1:1";
    const THERE: &str = "239.0.0.2:1";

    fn gather(datagrams: &[(&str, Ecn, usize)]) -> Vec<(usize, usize)> {
        let mut gather = Gather::new();
        for (destination, ecn, bytes) in datagrams {
            assert!(gather.put(destination.parse().unwrap(), *ecn, *bytes));
        }
        gather.runs().map(|run| (run.contents.len(), run.segment_bytes)).collect()
    }

    #[test]
    fn equal_datagrams_make_a_run_that_a_shorter_one_ends() {
        let no = Ecn::NotCapable;
        assert_eq!(
            gather(&[(HERE, no, 100), (HERE, no, 100), (HERE, no, 40), (HERE, no, 40)]),
            [(240, 100), (40, 40)]
        );
        assert_eq!(gather(&[(HERE, no, 100), (HERE, no, 101)]), [(100, 100), (101, 101)]);
    }

    #[test]
    fn destinations_and_ecn_fields_are_kept_apart() {
        let no = Ecn::NotCapable;
        assert_eq!(gather(&[(HERE, no, 9), (THERE, no, 9), (HERE, no, 9)]).len(), 3);
        assert_eq!(gather(&[(HERE, no, 9), (HERE, Ecn::Capable0, 9)]).len(), 2);
    }

    #[test]
    fn there_is_room_for_the_largest_datagram_until_it_says_otherwise() {
        let mut gather = Gather::new();
        loop {
            assert!(gather.room().len() >= DATAGRAM_BYTES_MAX);
            if !gather.put(HERE.parse().unwrap(), Ecn::NotCapable, DATAGRAM_BYTES_MAX) {
                break;
            }
        }
        gather.clear();
        assert!(gather.is_empty() && gather.room().len() >= DATAGRAM_BYTES_MAX);
    }
}

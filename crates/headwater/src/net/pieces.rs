//! Runs of datagrams, cut into what one message may carry.

use std::net::SocketAddr;

use headwater_proto::Ecn;

use super::sender::Run;

/// Most bytes of a run in one message. With its headers (Ethernet 14 and two tags of 4, IPv6 40, UDP 8) a run
/// is then shorter than 64 KiB, the longest that an interface takes whole (`gso_max_size`): a byte more, and
/// the kernel cuts every run itself, at five times the cost.
pub(crate) const RUN_BYTES_MAX: usize = 65_535 - (14 + 8 + 40 + 8);

/// What one message carries: datagrams of a run, all of `segment_bytes` but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) destination: SocketAddr,
    /// Never empty.
    pub(super) contents: &'a [u8],
    pub(super) segment_bytes: usize,
    pub(super) ecn: Ecn,
}

impl<'a> Piece<'a> {
    pub(super) fn datagrams(&self) -> u64 {
        self.contents.len().div_ceil(self.segment_bytes) as u64
    }

    /// Its datagrams, each as a run of its own.
    pub(super) fn singly(&self) -> impl Iterator<Item = Run<'a>> {
        let Self { destination, contents, segment_bytes, ecn } = *self;
        contents.chunks(segment_bytes).map(move |contents| Run { destination, contents, segment_bytes, ecn })
    }
}

/// The pieces of runs, in order. Empty runs have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    runs: &'a [Run<'a>],
    /// Bytes of the first run that were taken.
    taken: usize,
    segments_max: usize,
}

impl<'a> Pieces<'a> {
    /// Pieces of at most `segments_max` datagrams.
    pub(super) fn new(runs: &'a [Run<'a>], segments_max: usize) -> Self {
        Self { runs, taken: 0, segments_max }
    }

    /// The same from here on, with as many datagrams in a piece.
    pub(super) fn with_segments_max(self, segments_max: usize) -> Self {
        Self { segments_max, ..self }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let (run, later) = loop {
            let (run, later) = self.runs.split_first()?;
            if self.taken < run.contents.len() {
                break (run, later);
            }
            (self.runs, self.taken) = (later, 0);
        };
        let segment_bytes = match run.segment_bytes {
            0 => run.contents.len(),
            bytes => bytes.min(run.contents.len()),
        };
        let segments = (RUN_BYTES_MAX / segment_bytes).clamp(1, self.segments_max);
        let rest = &run.contents[self.taken..];
        let contents = &rest[..rest.len().min(segment_bytes * segments)];
        self.taken += contents.len();
        if contents.len() == rest.len() {
            (self.runs, self.taken) = (later, 0);
        }
        Some(Piece { destination: run.destination, contents, segment_bytes, ecn: run.ecn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(runs: &[(usize, usize)], segments_max: usize) -> Vec<(usize, u64)> {
        let contents = vec![0; 200_000];
        let run = |(bytes, segment_bytes): &(usize, usize)| Run {
            destination: "239.0.0.1:1".parse().unwrap(),
            contents: &contents[..*bytes],
            segment_bytes: *segment_bytes,
            ecn: Ecn::NotCapable,
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let cut = Pieces::new(&runs, segments_max);
        cut.map(|piece| (piece.contents.len(), piece.datagrams())).collect()
    }

    #[test]
    fn runs_are_cut_between_datagrams() {
        assert_eq!(pieces(&[(150_000, 1_000)], 64), [(64_000, 64), (64_000, 64), (22_000, 22)]);
        assert_eq!(pieces(&[(150_000, 1_472)], 64), [(64_768, 44), (64_768, 44), (20_464, 14)]);
        // 46 of these would fit a UDP payload, but with their headers no interface.
        assert_eq!(pieces(&[(66_000, 1_424)], 64), [(64_080, 45), (1_920, 2)]);
        assert_eq!(pieces(&[(2_500, 1_000)], 1), [(1_000, 1), (1_000, 1), (500, 1)]);
    }

    #[test]
    fn empty_runs_have_no_piece_and_a_run_without_segments_is_one_datagram() {
        assert_eq!(pieces(&[(0, 0), (0, 9), (7, 0), (0, 1), (7, 100)], 64), [(7, 1), (7, 1)]);
        assert_eq!(pieces(&[], 64), []);
        assert_eq!(pieces(&[(70_000, 0)], 64), [(70_000, 1)]);
    }
}

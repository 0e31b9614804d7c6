//! Everything in which one TCP differs from another.

use core::fmt;

use headwater_proto::Duration;

use super::Segment;

/// Largest window in segments: bounds what a sender and a sink remember, 16 bytes per outstanding segment.
pub const WINDOW_SEGMENTS_MAX: u32 = 1 << 20;

/// How losses are recovered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Fast recovery ends with the first new acknowledgement (RFC 5681).
    Reno,
    /// It lasts until all that was outstanding at its start is acknowledged (RFC 6582).
    NewReno,
    /// Selective acknowledgements say what is missing (RFC 2018, 6675).
    Sack,
}

/// What a SACK sender takes for the number of segments in the network during recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SackPipe {
    /// An estimate, less one per duplicate and two per partial acknowledgement (Fall and Floyd 1996).
    Estimate,
    /// The count of RFC 6675: segments neither selectively acknowledged nor taken for lost, and
    /// retransmissions. Three segments acknowledged above a hole start recovery, also when duplicate
    /// acknowledgements were lost. What was selectively acknowledged is kept over a timeout (RFC 6675,
    /// section 5.1, with erratum 1610 of RFC 2018).
    Scoreboard,
}

/// How the window grows in congestion avoidance, and what a cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// A segment a round trip; half (RFC 5681).
    Reno,
    /// By a cube of the time since the last cut; seven tenths (RFC 9438, with fast convergence). Slow start
    /// is Reno's, without HyStart++.
    Cubic,
}

/// What a window cut halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutFrom {
    /// The congestion window; a further timeout of the same segment cuts again.
    Window,
    /// What is outstanding, without what Limited Transmit added; a further timeout of the same segment does
    /// not cut again (RFC 5681, section 3.1).
    FlightSize,
    /// What is thought to be in the network: about two segments less, once three duplicates told of what has
    /// left. ns-3 does so.
    Pipe,
}

/// How the window comes down in the recovery of a SACK sender with a scoreboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// At once: nothing is sent until half a window has left (RFC 6675).
    AtOnce,
    /// In proportion to what is delivered, over a round trip (RFC 6937), as Linux and ns-3 do. It goes on
    /// sending into a queue that has just overflowed.
    Proportional,
}

/// Which acknowledgements measure the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSampling {
    /// One segment is timed at a time, and only if it was not retransmitted (Karn).
    OneAtATime,
    /// As with the timestamp option (RFC 7323): every acknowledgement of new data, of its first segment, by
    /// the time of the last transmission. Timestamps tell retransmissions apart, so these count, and back-off
    /// ends at once.
    EveryAck,
}

/// When a sink acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Segments in order per acknowledgement: b of the equations. 1: no delayed acknowledgements; 2: RFC
    /// 5681.
    pub every: u32,
    /// Longest delay of an acknowledgement. 100 ms in ns-2, at most 500 ms in RFC 5681.
    pub delay: Duration,
    /// Segments acknowledged one by one at the start of the connection, as Linux does in slow start.
    pub quick: u32,
}

impl AckPolicy {
    /// Every packet is acknowledged at once.
    pub const EVERY_PACKET: Self = Self { every: 1, delay: Duration::from_millis(100), quick: 0 };
    /// Every second packet, or after 100 ms.
    pub const DELAYED: Self = Self { every: 2, ..Self::EVERY_PACKET };
}

/// What a sender has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Always more.
    Greedy,
    /// So many full segments.
    Segments(u32),
    /// So many bytes; the last segment holds what is left.
    Bytes(u64),
}

/// One connection: sender, sink and sizes on the wire. Start from a [`Profile`](super::Profile) and set what
/// differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How losses are recovered from.
    pub variant: Variant,
    /// Payload of a full segment in bytes.
    pub segment_bytes: u16,
    /// Headers of a data segment in bytes, counted on the wire beside the payload. 0 where a paper's packet
    /// size includes them.
    pub header_bytes: u16,
    /// An acknowledgement or a SYN on the wire, in bytes.
    pub ack_bytes: u16,
    /// Congestion window at the start, in segments.
    pub initial_window: u32,
    /// The receiver's window: the most that may be outstanding, in segments; at most [`WINDOW_SEGMENTS_MAX`].
    pub maximum_window: u32,
    /// Whether a SYN and its answer go before the data.
    pub syn_exchange: bool,
    /// Whether the first two duplicate acknowledgements let a new segment out (RFC 3042).
    pub limited_transmit: bool,
    /// What a cut halves.
    pub cut_from: CutFrom,
    /// Whether a cut rounds down to whole segments.
    pub integer_cut: bool,
    /// How the window grows in congestion avoidance.
    pub growth: Growth,
    /// Whether the window grows by segments acknowledged, not by acknowledgements, and, with Reno's growth,
    /// by whole segments (RFC 3465, without its limit).
    pub byte_counting: bool,
    /// Whether NewReno's window shrinks to what is outstanding at the end of recovery (RFC 6582, section 3.2,
    /// step 3, option 1), rather than to ssthresh.
    pub exit_to_flight: bool,
    /// Whether the acknowledgement that ends the recovery of Reno and NewReno also grows the window, as in
    /// ns-2: at windows of two or three segments, a fifth of them. RFC 5681 sets it to ssthresh.
    pub exit_growth: bool,
    /// What a SACK sender takes for its pipe.
    pub sack_pipe: SackPipe,
    /// How the window comes down, with [`SackPipe::Scoreboard`].
    pub reduction: Reduction,
    /// Granularity of the clock that measures round-trip times and sets timeouts.
    pub tick: Duration,
    /// Retransmission timeout before the first sample.
    pub rto_initial: Duration,
    /// Smallest retransmission timeout.
    pub rto_minimum: Duration,
    /// Largest retransmission timeout, back-off included.
    pub rto_maximum: Duration,
    /// Smallest share of the deviation in the timeout, 4 * RTTVAR. Linux has its 200 ms here.
    pub rto_variance_minimum: Duration,
    /// Which acknowledgements measure the round-trip time.
    pub rtt_sampling: RttSampling,
    /// Whether data is sent ECN-capable and echoes are answered (RFC 3168).
    pub ecn: bool,
    /// Each burst of transmissions waits for a time uniform in 0 to this, against phase effects; zero for
    /// none. About the service time of the bottleneck (`overhead_` of ns-2).
    pub overhead: Duration,
    /// When the sink acknowledges.
    pub acks: AckPolicy,
}

impl Config {
    /// Bytes of `segment` on the wire.
    pub fn wire_bytes(&self, segment: &Segment) -> u32 {
        if segment.payload_bytes == 0 {
            u32::from(self.ack_bytes)
        } else {
            u32::from(segment.payload_bytes) + u32::from(self.header_bytes)
        }
    }

    /// Checks that a connection can work like this.
    ///
    /// # Errors
    ///
    /// Names the first value that cannot be, and the range it must be in.
    pub fn check(&self) -> Result<(), ConfigError> {
        let windows = 1..=WINDOW_SEGMENTS_MAX;
        let rules = [
            (self.segment_bytes > 0, "segment_bytes", "at least 1"),
            (self.ack_bytes > 0, "ack_bytes", "at least 1"),
            (windows.contains(&self.initial_window), "initial_window", "1 to 1048576 segments"),
            (windows.contains(&self.maximum_window), "maximum_window", "1 to 1048576 segments"),
            (self.tick > Duration::ZERO, "tick", "longer than 0"),
            (self.rto_initial > Duration::ZERO, "rto_initial", "longer than 0"),
            (self.rto_initial <= self.rto_maximum, "rto_initial", "at most rto_maximum"),
            (self.rto_minimum <= self.rto_maximum, "rto_minimum", "at most rto_maximum"),
            (self.acks.every > 0, "acks.every", "at least 1"),
            (self.acks.every == 1 || self.acks.delay > Duration::ZERO, "acks.delay", "longer than 0"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, field, must_be)) => Err(ConfigError { field, must_be }),
        }
    }
}

/// A value of a [`Config`] that no connection can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp: {} must be {}", self.field, self.must_be)
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Profile;

    #[test]
    fn every_profile_can_work() {
        for profile in Profile::ALL {
            assert_eq!(profile.config().check(), Ok(()), "{}", profile.name());
        }
    }

    #[test]
    fn nonsense_is_named() {
        let config = Config { maximum_window: 0, ..Profile::Rfc.config() };
        assert_eq!(
            config.check().unwrap_err().to_string(),
            "tcp: maximum_window must be 1 to 1048576 segments"
        );
        let config = Config { acks: AckPolicy { every: 0, ..AckPolicy::DELAYED }, ..Profile::Rfc.config() };
        assert_eq!(config.check().unwrap_err().field, "acks.every");
    }

    #[test]
    fn headers_count_on_data_only() {
        let config = Config { segment_bytes: 1000, ..Profile::Rfc.config() };
        let data = Segment { payload_bytes: 1000, ..Segment::default() };
        assert_eq!(config.wire_bytes(&data), 1040);
        assert_eq!(config.wire_bytes(&Segment::default()), 40);
    }
}

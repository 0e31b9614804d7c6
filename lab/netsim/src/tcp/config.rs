//! Configuration of a TCP: a switch for each difference between implementations.

use core::fmt;

use headwater_proto::Duration;

use super::Segment;

/// Maximum window in segments: bounds the state of a sender and a sink, 16 bytes per outstanding segment.
pub const WINDOW_SEGMENTS_MAX: u32 = 1 << 20;

/// Loss recovery algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Fast recovery ends with the first new acknowledgement (RFC 5681).
    Reno,
    /// Fast recovery ends when all segments outstanding at its start are acknowledged (RFC 6582).
    NewReno,
    /// Selective acknowledgements report the missing segments (RFC 2018, 6675).
    Sack,
}

/// A SACK sender's estimate of the number of segments in the network during recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SackPipe {
    /// An estimate, reduced by 1 per duplicate and by 2 per partial acknowledgement (Fall and Floyd 1996).
    Estimate,
    /// The count of RFC 6675: segments neither selectively acknowledged nor taken for lost, plus
    /// retransmissions. Three segments acknowledged above a hole start recovery, also when duplicate
    /// acknowledgements were lost. Selective acknowledgements are kept over a timeout (RFC 6675, section 5.1,
    /// with erratum 1610 of RFC 2018).
    Scoreboard,
}

/// Growth of the window in congestion avoidance, and the share of the window left by a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// A segment a round trip; half (RFC 5681).
    Reno,
    /// By a cube of the time since the last cut; seven tenths (RFC 9438, with fast convergence). Slow start
    /// is Reno's, without HyStart++.
    Cubic,
    /// The same as Linux has it, without `HyStart`: whole segments, the curve a least round-trip time ahead,
    /// Reno's estimate with the lower slope of RFC 9438, section 4.3, for ever.
    LinuxCubic,
}

/// Quantity halved by a window cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutFrom {
    /// The congestion window; a further timeout of the same segment cuts again.
    Window,
    /// Flight size, without segments added by Limited Transmit; a further timeout of the same segment does
    /// not cut again (RFC 5681, section 3.1).
    FlightSize,
    /// Segments thought to be in the network: about two segments fewer than outstanding, once three
    /// duplicates have reported segments that left the network. Used by ns-3.
    Pipe,
}

/// Window reduction in the recovery of a SACK sender with a scoreboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// At once: nothing is sent until half a window has left (RFC 6675).
    AtOnce,
    /// In proportion to delivered segments, over a round trip (RFC 6937), as in Linux and ns-3. The sender
    /// continues to send into a queue that has just overflowed.
    Proportional,
}

/// Acknowledgements that measure the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSampling {
    /// A single segment is timed at a time, and only if never retransmitted (Karn).
    OneAtATime,
    /// As with the timestamp option (RFC 7323): every acknowledgement of new data measures its first segment,
    /// from that segment's last transmission. Timestamps distinguish retransmissions, so retransmitted
    /// segments count, and back-off ends at once.
    EveryAck,
}

/// Acknowledgement policy of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Segments in order per acknowledgement: b of the equations. 1: no delayed acknowledgements; 2: RFC
    /// 5681.
    pub every: u32,
    /// Maximum delay of an acknowledgement. 100 ms in ns-2, at most 500 ms in RFC 5681.
    pub delay: Duration,
    /// Segments acknowledged immediately at the start of the connection, as Linux does in slow start.
    pub quick: u32,
}

impl AckPolicy {
    /// Acknowledges every packet at once.
    pub const EVERY_PACKET: Self = Self { every: 1, delay: Duration::from_millis(100), quick: 0 };
    /// Acknowledges every second packet, or after 100 ms.
    pub const DELAYED: Self = Self { every: 2, ..Self::EVERY_PACKET };
}

/// Data that a sender has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Unlimited data.
    Greedy,
    /// A number of full segments.
    Segments(u32),
    /// A number of bytes; the last segment holds the remainder.
    Bytes(u64),
}

/// Configuration of a connection: sender, sink and sizes on the wire. Start from a
/// [`Profile`](super::Profile) and change individual switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Loss recovery algorithm.
    pub variant: Variant,
    /// Payload of a full segment in bytes.
    pub segment_bytes: u16,
    /// Headers of a data segment in bytes, counted on the wire in addition to the payload. 0 where a paper's
    /// packet size includes headers.
    pub header_bytes: u16,
    /// An acknowledgement or a SYN on the wire, in bytes.
    pub ack_bytes: u16,
    /// Congestion window at the start, in segments.
    pub initial_window: u32,
    /// The receiver's window: the most that may be outstanding, in segments; at most [`WINDOW_SEGMENTS_MAX`].
    pub maximum_window: u32,
    /// Whether a SYN exchange precedes the data.
    pub syn_exchange: bool,
    /// Whether the first two duplicate acknowledgements let a new segment out (RFC 3042).
    pub limited_transmit: bool,
    /// Quantity halved by a cut.
    pub cut_from: CutFrom,
    /// Whether a cut rounds down to whole segments.
    pub integer_cut: bool,
    /// Growth of the window in congestion avoidance.
    pub growth: Growth,
    /// Whether the window grows by acknowledged segments instead of acknowledgements, and, with Reno's
    /// growth, by whole segments (RFC 3465, without its limit).
    pub byte_counting: bool,
    /// Whether NewReno's window shrinks to the flight size at the end of recovery (RFC 6582, section 3.2,
    /// step 3, option 1), rather than to ssthresh.
    pub exit_to_flight: bool,
    /// Whether the acknowledgement that ends the recovery of Reno and NewReno also grows the window, as in
    /// ns-2: with windows of two or three segments, by a fifth. RFC 5681 sets the window to ssthresh.
    pub exit_growth: bool,
    /// A SACK sender's estimate of the pipe.
    pub sack_pipe: SackPipe,
    /// Window reduction, with [`SackPipe::Scoreboard`].
    pub reduction: Reduction,
    /// Whether losses are detected by time, too (RFC 8985: RACK, with tail loss probes), with
    /// [`SackPipe::Scoreboard`]. A lost retransmission is then retransmitted without a timeout.
    pub rack: bool,
    /// Granularity of the clock that measures round-trip times and sets timeouts.
    pub tick: Duration,
    /// Retransmission timeout before the first sample.
    pub rto_initial: Duration,
    /// Smallest retransmission timeout.
    pub rto_minimum: Duration,
    /// Largest retransmission timeout, back-off included.
    pub rto_maximum: Duration,
    /// Minimum of the deviation's share in the timeout, 4 * RTTVAR: 200 ms in Linux.
    pub rto_variance_minimum: Duration,
    /// Acknowledgements that measure the round-trip time.
    pub rtt_sampling: RttSampling,
    /// Whether data is sent ECN-capable and echoes are answered (RFC 3168).
    pub ecn: bool,
    /// Maximum random delay of each burst of transmissions, uniform from 0, against phase effects; zero for
    /// no delay. About the service time of the bottleneck (`overhead_` of ns-2).
    pub overhead: Duration,
    /// Acknowledgement policy of the sink.
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

    /// Checks that a connection can work with this configuration.
    ///
    /// # Errors
    ///
    /// Names the first invalid value, and the range of valid values.
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
    /// Requirement on the value.
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

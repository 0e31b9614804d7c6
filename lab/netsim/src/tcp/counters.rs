//! Counters of senders and sinks, always on.

use headwater_proto::Duration;

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Data segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Data segments sent again.
    pub segments_retransmitted: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes_sent: u64,
    /// Payload bytes acknowledged cumulatively.
    pub payload_bytes_acked: u64,
    /// Fast retransmits, that is, entries into fast recovery.
    pub fast_retransmits: u64,
    /// Expiries of the retransmission timer, that of the SYN included.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Timeouts of data that started a series of timeouts: timeouts without back-off.
    pub first_timeouts: u64,
    /// Sum of the retransmission timeouts that started a series.
    pub first_timeouts_sum: Duration,
    /// Window cuts that answered an ECN echo.
    pub ecn_cuts: u64,
    /// Round-trip times measured.
    pub rtt_samples: u64,
    /// Sum of the measured round-trip times.
    pub rtt_sum: Duration,
}

impl SenderCounters {
    /// Mean of the timeouts that started a series: T_0 of the equation of Padhye et al. `None` before the
    /// first.
    pub fn mean_first_timeout(&self) -> Option<Duration> {
        mean(self.first_timeouts_sum, self.first_timeouts)
    }

    /// Mean of the measured round-trip times. `None` before the first.
    pub fn mean_rtt(&self) -> Option<Duration> {
        mean(self.rtt_sum, self.rtt_samples)
    }
}

fn mean(sum: Duration, count: u64) -> Option<Duration> {
    sum.as_nanos().checked_div(count).map(Duration::from_nanos)
}

/// Counters of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Data segments that arrived.
    pub segments_received: u64,
    /// Data segments that had been received before.
    pub segments_duplicate: u64,
    /// Data segments beyond the window, which were discarded.
    pub segments_beyond_window: u64,
    /// Data segments that arrived marked "congestion experienced".
    pub segments_marked: u64,
    /// Payload bytes received in order, each counted once: goodput.
    pub payload_bytes_in_order: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
}

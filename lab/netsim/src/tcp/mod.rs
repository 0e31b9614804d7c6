//! TCP as competing traffic: Reno, NewReno and SACK senders, with Reno's or CUBIC's growth, and their sink,
//! counting in segments.
//!
//! Both ends are state machines without a network: inputs carry the time, [`Sender::poll_transmit`] and
//! [`Sink::poll_transmit`] return segments to send, and `next_timeout` returns the instant of the next
//! `timeout` call. After every input, the caller polls an end until nothing is left to send. Time never goes
//! back; an early or repeated `timeout` is harmless.
//!
//! Data goes one way, from sender to sink, in segments numbered from 0; a connection ends when its last
//! segment is acknowledged, without FIN. [`Config`] has a switch for each difference between simulators and
//! kernels; [`Profile`] names the combinations that papers used.
//!
//! Sources: RFC 5681 (Reno), 6582 (NewReno), 6675 and 2018 (SACK), 6937 (proportional rate reduction), 6298
//! (timeout), 3042 (Limited Transmit), 3465 (byte counting), 3168 (ECN), 9438 (CUBIC), 8985 (RACK-TLP);
//! Fall and Floyd, *Simulation-based comparisons of Tahoe, Reno and SACK TCP*, 1996 (the estimated pipe);
//! Jacobson, *Congestion avoidance and control*, 1988 (integer arithmetic of the timeout).

mod config;
mod counters;
mod cubic;
mod linux_cubic;
mod profile;
mod prr;
mod rto;
mod scoreboard;
mod segment;
mod sender;
mod sink;
mod window;

pub use config::{
    AckPolicy, Config, ConfigError, CutFrom, Data, Growth, Reduction, RttSampling, SackPipe, Variant,
    WINDOW_SEGMENTS_MAX,
};
pub use counters::{SenderCounters, SinkCounters};
pub use profile::{Profile, UnknownProfile};
pub use segment::{SACK_BLOCKS, SackBlock, SackBlocks, Segment, Transmit};
pub use sender::Sender;
pub use sink::Sink;

/// Duplicate acknowledgements that make a fast retransmit: DupThresh (RFC 5681, section 3.2).
const DUP_THRESH: u32 = 3;

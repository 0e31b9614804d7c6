//! The monotonic clock, as protocol machines count time: from the start of the session.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater_proto::Instant;

/// Seconds from the NTP epoch (1900) to the Unix epoch (1970).
const NTP_TO_UNIX_SECS: u64 = 2_208_988_800;

/// A clock whose zero is its making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.zero.elapsed().into()
    }

    /// A point in time of the operating system; what was before the clock's zero is zero.
    pub(crate) fn at(self, at: std::time::Instant) -> Instant {
        Instant::ZERO + at.saturating_duration_since(self.zero).into()
    }

    /// The same point in time for the operating system; `None` when that is past its reach.
    pub(crate) fn to_std(self, instant: Instant) -> Option<std::time::Instant> {
        self.zero.checked_add(Duration::from_nanos(instant.as_nanos()))
    }
}

/// Time since the clock's zero.
pub(crate) fn elapsed(now: Instant) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

/// What a wall clock shows now, in NTP seconds modulo 2^32.
pub(crate) fn ntp_now() -> u32 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let ntp = unix.wrapping_add(NTP_TO_UNIX_SECS) & u64::from(u32::MAX);
    u32::try_from(ntp).expect("32 bits are left")
}

//! Roster of a session's receivers: who receives, how far each receiver is, and who has everything
//! (`docs/design/roster.md`).
//!
//! Receivers report by unicast, and each report is answered ([`headwater_wire::roster`]). Delivery and repair
//! depend on no report, and no rate but a found one ([`crate::fixed`]). The reports of all receivers together
//! stay below a rate that the sender chooses: the sender estimates the number of receivers and announces the
//! interval of reports on the base channel, as RTCP does with unicast feedback (RFC 3550, section 6; RFC
//! 5760).
//!
//! [`RosterSender`] keeps rows of addresses that have proven to receive; [`RosterReporter`] is the receiving
//! end.

mod key;
mod pace;
pub(crate) mod relay;
mod reporter;
mod sender;
mod table;
#[cfg(test)]
mod tests;

pub use self::key::ReportKey;
pub use self::reporter::{ReporterConfig, RosterReporter};
pub use self::sender::{RosterConfig, RosterSender, RosterUpdate};
pub use self::table::{IDS_OF_HOST, ROWS_MAX, RosterCounts, RosterRow, RowState};

use crate::time::Duration;

/// Shortest interval of reports.
const INTERVAL_MIN: Duration = Duration::from_secs(2);
/// The same of a sender whose rate follows the reports.
const INTERVAL_QUICK: Duration = Duration::from_millis(500);
/// Largest exponent of an interval: 9 h.
const EXPONENT_MAX: u8 = 14;

/// Returns the interval of reports for an exponent.
pub(crate) fn interval(exponent: u8, is_quick: bool) -> Duration {
    let least = if is_quick { INTERVAL_QUICK } else { INTERVAL_MIN };
    least.saturating_mul(1 << exponent.min(EXPONENT_MAX))
}

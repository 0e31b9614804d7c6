//! Summary of the demo: cost of each receiver, and saving by multicast.

use std::fmt;
use std::time::Duration;

use headwater::{ReceiveSummary, SendSummary};
use headwater_proto::Size;

use crate::screen::{percent, ratio, time};

/// Receiver with the whole file.
pub struct Row {
    /// Time from the start of the sender to the join of the receiver.
    pub joined: Duration,
    /// Summary of the session.
    pub summary: ReceiveSummary,
    /// Whether the copy equals the original.
    pub identical: bool,
}

/// Summary of the demo.
pub struct Table<'a> {
    /// Names of the receivers, in order.
    pub names: &'a [&'static str],
    /// Receivers, in order.
    pub rows: &'a [Row],
    /// Summary of the sender.
    pub sent: &'a SendSummary,
    /// Bytes of the file.
    pub bytes: u64,
    /// BLAKE3 digest of the original.
    pub digest: blake3::Hash,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}  copy",
            "receiver", "joined at", "took", "lost", "needed", "received", "overhead"
        )?;
        for (name, row) in self.names.iter().zip(self.rows) {
            row.write(name, f)?;
        }
        let copies = self.rows.len() as u64;
        let sent = self.sent.progress.bytes;
        writeln!(f)?;
        writeln!(f, "content    {}, BLAKE3 {}", Size(self.bytes), self.digest)?;
        writeln!(
            f,
            "sent       {} once, for all {copies}, in {}",
            Size(sent),
            time(self.sent.progress.elapsed)
        )?;
        let unicast = self.bytes.saturating_mul(copies);
        write!(f, "unicast    {} for {copies} copies, without any repeats", Size(unicast))?;
        // The description of a file of a few bytes is longer than the file.
        if unicast > sent { write!(f, ": {:.1} times as much", ratio(unicast, sent)) } else { Ok(()) }
    }
}

impl Row {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = &self.summary.progress;
        let (stats, reception) = (&progress.stats, &progress.reception);
        let received = stats.useful + stats.duplicates + stats.surplus;
        let extra = received.saturating_sub(progress.symbols);
        writeln!(
            f,
            "{name:<10}{:>10}{:>10}{:>9}{:>10}{received:>10}{:>8.2} %  {}",
            time(self.joined),
            time(progress.elapsed),
            percent(reception.lost, reception.packets + reception.lost),
            progress.symbols,
            100.0 * ratio(extra, progress.symbols),
            if self.identical { "identical" } else { "DIFFERENT" }
        )
    }
}

//! The demo's last word: what each receiver needed, and what multicast saved.

use std::fmt;
use std::time::Duration;

use headwater::{ReceiveSummary, SendSummary};
use headwater_proto::Size;

use super::cast::RECEIVERS;
use crate::screen::{percent, ratio, time};

/// A receiver that has it all.
pub struct Row {
    /// Time from the sender's start to its join.
    pub joined: Duration,
    /// How it ended.
    pub summary: ReceiveSummary,
    /// Whether its copy is the original.
    pub identical: bool,
}

/// The summary.
pub struct Table<'a> {
    /// The receivers, in order.
    pub rows: &'a [Row],
    /// The sender.
    pub sent: &'a SendSummary,
    /// Bytes of the file.
    pub bytes: u64,
    /// BLAKE3 of the original.
    pub digest: blake3::Hash,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}  copy",
            "receiver", "joined at", "took", "lost", "needed", "received", "overhead"
        )?;
        for (name, row) in RECEIVERS.iter().zip(self.rows) {
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
        // A file of a few bytes costs more to describe than to send.
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

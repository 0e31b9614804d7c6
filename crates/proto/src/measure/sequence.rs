//! Loss from the holes in a channel's 16-bit packet sequence numbers.

/// Counts packets received and lost on one channel. Copes with reordering and with numbers that wrap, as long
/// as fewer than 2^15 packets in a row go missing.
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    highest: Option<u16>,
    received: u64,
    expected: u64,
}

impl SequenceTracker {
    /// A packet with this number arrived.
    pub fn record(&mut self, sequence: u16) {
        self.received += 1;
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            self.expected += 1;
            return;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead < 1 << 15 {
            self.expected += u64::from(ahead);
            self.highest = Some(sequence);
        }
    }

    /// The channel was left: what is sent meanwhile is not lost.
    pub fn pause(&mut self) {
        self.highest = None;
    }

    /// Packets received, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets expected and not received. Duplicates hide losses one for one.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }
}

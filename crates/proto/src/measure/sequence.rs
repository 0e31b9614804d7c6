//! Loss from gaps in a channel's 16-bit packet sequence numbers.

/// Counts received and lost packets of a single channel. Handles reordering and wrapping numbers, as long as
/// fewer than 2^15 consecutive packets are missing.
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    highest: Option<u16>,
    received: u64,
    expected: u64,
}

impl SequenceTracker {
    /// Records a packet with this number.
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

    /// Pauses the count after the channel is left: packets sent meanwhile are not lost.
    pub fn pause(&mut self) {
        self.highest = None;
    }

    /// Returns the number of packets received, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of packets expected and not received. Each duplicate hides a loss.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }
}

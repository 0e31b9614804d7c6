//! State of every outstanding segment, and the number of segments in the network.

use std::collections::VecDeque;

use headwater_proto::{Duration, Instant};

use super::{DUP_THRESH, SackBlock, SackBlocks};

/// An outstanding segment.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Instant of the last transmission.
    at: Instant,
    /// Selectively acknowledged.
    sacked: bool,
    /// Taken for lost.
    lost: bool,
    /// Retransmitted after the segment was taken for lost.
    resent: bool,
}

impl Sent {
    /// Contribution to the pipe (RFC 6675, `SetPipe`).
    fn in_network(&self) -> u32 {
        if self.sacked { 0 } else { u32::from(!self.lost) + u32::from(self.resent) }
    }
}

/// The outstanding segments, `una()..end()`: at most the window plus segments sent by Limited Transmit.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    una: u32,
    sent: VecDeque<Sent>,
    pipe: u32,
    /// Segments known to have arrived since the start.
    delivered: u64,
    last_option: SackBlocks,
    /// Segment after the highest selectively acknowledged segment; `una` or less if no segment is.
    sacked_end: u32,
    /// All unacknowledged segments below this are taken for lost: position where `take_losses` continues.
    lost_end: u32,
    /// Segment after the highest segment that was taken for lost because it was overtaken.
    overtaken_end: u32,
    /// Transmission and number of the segment sent last among those delivered since
    /// [`Self::take_delivered`]: of segments sent once, and of segments sent again.
    delivered_last: [Option<(Instant, u32)>; 2],
    /// Outstanding segments that are selectively acknowledged.
    sacked: u32,
    /// No segment below this is to be retransmitted: position where the search for holes continues.
    resend_from: u32,
}

impl Scoreboard {
    /// The lowest segment not acknowledged: SND.UNA.
    pub(super) fn una(&self) -> u32 {
        self.una
    }

    /// Segment after the highest segment sent: SND.MAX.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the window, a u32")]
    pub(super) fn end(&self) -> u32 {
        self.una + self.sent.len() as u32
    }

    /// Segments sent and not acknowledged cumulatively.
    pub(super) fn outstanding(&self) -> u32 {
        self.end() - self.una
    }

    /// Segments thought to be in the network.
    pub(super) fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Number of segments that cumulative or selective acknowledgements have reported since the start.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records that segment `end()` went out.
    pub(super) fn send_new(&mut self, now: Instant) {
        self.sent.push_back(Sent { at: now, sacked: false, lost: false, resent: false });
        self.pipe += 1;
    }

    /// Records that outstanding segment `sequence` went out again.
    pub(super) fn resend(&mut self, sequence: u32, now: Instant) {
        self.change(sequence, |sent| *sent = Sent { at: now, resent: true, ..*sent });
    }

    /// Records a SACK option. Returns the number of segments that the option acknowledges for the first time.
    pub(super) fn sack(&mut self, option: SackBlocks) -> u32 {
        let mut new = 0;
        for block in option.as_slice() {
            // The last option contained most of a block; only the growth is scanned.
            let inside = |known: &&SackBlock| block.start <= known.start && known.end <= block.end;
            let known = self.last_option.as_slice().iter().find(inside);
            let known = known.copied().unwrap_or(SackBlock { start: block.end, end: block.end });
            new += self.sack_range(block.start, known.start) + self.sack_range(known.end, block.end);
        }
        self.last_option = option;
        new
    }

    fn sack_range(&mut self, start: u32, end: u32) -> u32 {
        let mut new = 0;
        for sequence in start.max(self.una)..end.min(self.end()) {
            if !self.entry(sequence).sacked {
                new += 1;
                self.note_delivered(sequence, *self.entry(sequence));
                self.sacked += 1;
                self.change(sequence, |sent| sent.sacked = true);
            }
            self.sacked_end = self.sacked_end.max(sequence + 1);
        }
        self.delivered += u64::from(new);
        new
    }

    /// Takes segments below [`DUP_THRESH`] selectively acknowledged segments for lost (RFC 6675, `IsLost`).
    pub(super) fn take_losses(&mut self) {
        let mut above = 0;
        let mut sequence = self.sacked_end;
        let from = self.lost_end.max(self.una);
        while above < DUP_THRESH && sequence > from {
            sequence -= 1;
            above += u32::from(self.entry(sequence).sacked);
        }
        if above == DUP_THRESH {
            for below in from..sequence {
                self.take_lost(below);
            }
            self.lost_end = self.lost_end.max(sequence);
        }
    }

    /// Takes segment `sequence` for lost.
    pub(super) fn take_lost(&mut self, sequence: u32) {
        self.change(sequence, |sent| sent.lost |= !sent.sacked);
    }

    /// Whether the first outstanding segment is taken for lost and not sent again yet.
    pub(super) fn first_is_lost(&self) -> bool {
        self.sent.front().is_some_and(|sent| sent.lost && !sent.resent)
    }

    /// A timeout: takes all for lost that is not selectively acknowledged, or all if that is to be forgotten.
    pub(super) fn take_all_lost(&mut self, keep_sacked: bool) {
        self.pipe = 0;
        for sent in &mut self.sent {
            *sent = Sent { sacked: sent.sacked && keep_sacked, lost: true, resent: false, ..*sent };
        }
        if !keep_sacked {
            self.sacked = 0;
            self.sacked_end = self.una;
            self.last_option = SackBlocks::default();
        }
        self.lost_end = self.end();
        self.resend_from = self.una;
    }

    /// Forgets all selective acknowledgements.
    pub(super) fn forget_sacked(&mut self) {
        for sequence in self.una..self.sacked_end.max(self.una) {
            self.change(sequence, |sent| sent.sacked = false);
        }
        self.sacked = 0;
        self.sacked_end = self.una;
        self.last_option = SackBlocks::default();
    }

    /// Begins a recovery: the search for holes starts at the first segment.
    pub(super) fn begin_recovery(&mut self) {
        self.resend_from = self.una;
    }

    /// Removes the segments that `ack`, at most `end()`, acknowledges. Returns their number and the last
    /// transmission of the first segment.
    pub(super) fn advance(&mut self, ack: u32) -> Option<(u32, Instant)> {
        let acked = ack.checked_sub(self.una).filter(|acked| *acked > 0)?;
        let first_sent = self.sent.front()?.at;
        for sequence in self.una..ack {
            let Some(sent) = self.sent.pop_front() else { break };
            self.pipe -= sent.in_network();
            self.delivered += u64::from(!sent.sacked);
            match sent.sacked {
                true => self.sacked -= 1,
                false => self.note_delivered(sequence, sent),
            }
        }
        self.una = ack;
        Some((acked, first_sent))
    }

    /// The lowest segment that is taken for lost and was not sent again since.
    pub(super) fn next_lost(&mut self) -> Option<u32> {
        let end = self.lost_end.max(self.overtaken_end).min(self.end());
        self.next_to_resend(end, |sent| sent.lost && !sent.resent)
    }

    /// Lowest segment, lost or not, that lies below a selectively acknowledged segment and was not
    /// retransmitted.
    pub(super) fn next_hole(&mut self) -> Option<u32> {
        self.next_to_resend(self.sacked_end, |sent| !sent.resent)
    }

    /// Highest segment not selectively acknowledged, if never retransmitted.
    pub(super) fn last_hole(&self) -> Option<u32> {
        let last = (self.una..self.end()).rev().find(|sequence| !self.entry(*sequence).sacked)?;
        (!self.entry(last).resent).then_some(last)
    }

    /// First segment from `resend_from` below `end` that is unacknowledged and `wanted`. The segments passed
    /// over are acknowledged or retransmitted, and are not searched again in this recovery.
    fn next_to_resend(&mut self, end: u32, wanted: impl Fn(&Sent) -> bool) -> Option<u32> {
        let from = self.resend_from.max(self.una);
        let found = (from..end).find(|sequence| {
            let sent = self.entry(*sequence);
            !sent.sacked && wanted(sent)
        });
        self.resend_from = found.unwrap_or(end.max(from));
        found
    }

    fn note_delivered(&mut self, sequence: u32, sent: Sent) {
        let last = &mut self.delivered_last[usize::from(sent.resent || sent.lost)];
        *last = (*last).max(Some((sent.at, sequence)));
    }

    /// Returns the last transmission and the number of the segments sent last among those delivered since the
    /// last call, and whether the segment was sent again.
    pub(super) fn take_delivered(&mut self) -> impl Iterator<Item = ((Instant, u32), bool)> + use<> {
        let [once, again] = core::mem::take(&mut self.delivered_last);
        once.map(|sent| (sent, false)).into_iter().chain(again.map(|sent| (sent, true)))
    }

    /// Number of outstanding segments that are selectively acknowledged.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Takes for lost, also if sent again, segments last sent before `newest` and at least `patience` ago
    /// (RFC 8985, section 6.2, step 5). Returns whether any was, and the longest time until another one is.
    pub(super) fn take_overtaken(
        &mut self,
        newest: (Instant, u32),
        now: Instant,
        patience: Duration,
    ) -> (bool, Option<Duration>) {
        let (mut any, mut remaining) = (false, None);
        for sequence in self.una..self.end() {
            let sent = self.entry(sequence);
            let is_in_network = !sent.sacked && (!sent.lost || sent.resent);
            if !is_in_network || (sent.at, sequence) >= newest {
                continue;
            }
            let due = sent.at + patience;
            if due > now {
                remaining = remaining.max(Some(due.since(now)));
                continue;
            }
            any = true;
            self.change(sequence, |sent| (sent.lost, sent.resent) = (true, false));
            self.overtaken_end = self.overtaken_end.max(sequence + 1);
            self.resend_from = self.resend_from.min(sequence);
        }
        (any, remaining)
    }

    fn entry(&self, sequence: u32) -> &Sent {
        &self.sent[(sequence - self.una) as usize]
    }

    /// Changes the state of a segment and updates the pipe.
    fn change(&mut self, sequence: u32, change: impl FnOnce(&mut Sent)) {
        let sent = &mut self.sent[(sequence - self.una) as usize];
        let before = sent.in_network();
        change(sent);
        self.pipe = self.pipe + sent.in_network() - before;
    }
}

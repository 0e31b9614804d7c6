//! Choice of the next segment to send.

use super::{Phase, Sender};

/// A transmission that the window allows now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The SYN.
    Syn,
    /// The first segment never sent.
    New,
    /// This segment again.
    Again(u32),
    /// The last segment again, once per recovery.
    Rescue(u32),
}

/// Duplicate acknowledgements that let a new segment out each (RFC 3042).
const LIMITED_TRANSMIT: u32 = 2;

impl Sender {
    /// Returns the next permitted transmission, if any.
    pub(super) fn choose(&mut self) -> Option<Choice> {
        match self.phase {
            Phase::Idle | Phase::Finished | Phase::Opening { due: false } => None,
            Phase::Opening { due: true } => Some(Choice::Syn),
            Phase::Open => self.choose_open(),
            Phase::Recovery => self.choose_in_recovery(),
            Phase::Loss => self.choose_after_timeout(),
        }
    }

    fn choose_open(&self) -> Option<Choice> {
        if self.rack.is_probe_due {
            // New data, else the last segment again (RFC 8985, section 7.3).
            let last = self.board.end() - 1;
            return self.new_segment().or(Some(Choice::Again(last)));
        }
        let in_network = if self.uses_scoreboard() && self.config.limited_transmit {
            // Selectively acknowledged segments have left the network (RFC 6675, section 5, step 3).
            self.board.pipe()
        } else {
            self.board.outstanding() - self.limited_transmit()
        };
        (in_network < self.window.segments()).then(|| self.new_segment())?
    }

    /// Number of segments that Limited Transmit permits beyond the window. Zero where three duplicate
    /// acknowledgements would not indicate a loss either, because they come from segments sent twice.
    fn limited_transmit(&self) -> u32 {
        let allowed = self.config.limited_transmit && !self.repeats_barred();
        if allowed { self.dup_acks.min(LIMITED_TRANSMIT).min(self.board.outstanding()) } else { 0 }
    }

    fn choose_in_recovery(&mut self) -> Option<Choice> {
        if let Some(sequence) = self.urgent {
            return Some(Choice::Again(sequence));
        }
        if self.uses_scoreboard() {
            return self.next_segment();
        }
        if self.estimates_pipe() {
            if self.estimate >= self.window.segments() {
                return None;
            }
            return self.hole().or_else(|| self.new_segment());
        }
        (self.board.outstanding() < self.window.segments()).then(|| self.new_segment())?
    }

    /// `NextSeg` of RFC 6675, section 4, in the room between pipe and window, or as the proportional
    /// reduction allows.
    fn next_segment(&mut self) -> Option<Choice> {
        let room = match self.reduces_in_proportion() {
            true => self.prr.allows(),
            false => self.board.pipe() < self.window.segments(),
        };
        if !room {
            return None;
        }
        let lost = self.board.next_lost().map(Choice::Again);
        lost.or_else(|| self.new_segment()).or_else(|| self.hole()).or_else(|| self.rescue())
    }

    fn hole(&mut self) -> Option<Choice> {
        self.board.next_hole().map(Choice::Again)
    }

    /// Returns the last segment for retransmission if nothing else may be sent: the last segment may be the
    /// missing segment (`NextSeg`, rule 4).
    fn rescue(&self) -> Option<Choice> {
        if self.rescued { None } else { self.board.last_hole().map(Choice::Rescue) }
    }

    fn choose_after_timeout(&mut self) -> Option<Choice> {
        if self.board.pipe() >= self.window.segments() {
            return None;
        }
        let lost = self.board.next_lost().map(Choice::Again);
        lost.or_else(|| self.new_segment())
    }

    /// New data, if there is any and the receiver's window has room.
    fn new_segment(&self) -> Option<Choice> {
        let room = self.board.outstanding() < self.config.maximum_window;
        (room && self.board.end() < self.total).then_some(Choice::New)
    }
}

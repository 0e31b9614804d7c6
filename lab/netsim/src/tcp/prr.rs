//! Proportional rate reduction (RFC 6937, with the slow-start reduction bound).

/// Number of segments that may go out in a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prr {
    /// RecoverFS: segments outstanding when recovery began.
    flight: u32,
    /// Segments delivered in this recovery: prr_delivered.
    delivered: u64,
    /// Segments sent in this recovery: prr_out.
    out: u64,
    /// Segments that may go out now: sndcnt.
    budget: u64,
}

impl Prr {
    /// Recovery begins with `flight` segments outstanding.
    pub(super) fn begin(flight: u32) -> Self {
        Self { flight: flight.max(1), ..Self::default() }
    }

    /// Updates the budget after an acknowledgement that reported `delivered` segments; `pipe` segments are in
    /// the network.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and below the window"
    )]
    #[expect(clippy::cast_precision_loss, reason = "counts of segments in one recovery")]
    pub(super) fn acknowledged(&mut self, delivered: u64, pipe: u32, ssthresh: f64) {
        self.delivered += delivered;
        self.budget = if f64::from(pipe) > ssthresh {
            let due = (self.delivered as f64 * ssthresh / f64::from(self.flight)).ceil() as u64;
            due.saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + 1;
            limit.min((ssthresh - f64::from(pipe)) as u64)
        };
    }

    /// Whether a segment may go out.
    pub(super) fn allows(&self) -> bool {
        self.budget > 0
    }

    /// A segment went out.
    pub(super) fn sent(&mut self) {
        self.out += 1;
        self.budget = self.budget.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_half_of_what_is_delivered() {
        // The example of RFC 6937, section 4: 20 outstanding, one lost, ssthresh 10: 19 delivered make 10
        // sent.
        let mut prr = Prr::begin(20);
        prr.sent();
        let (mut pipe, mut sent) = (16_u32, 1);
        prr.acknowledged(3, pipe, 10.0);
        for _ in 3..19 {
            while prr.allows() {
                prr.sent();
                sent += 1;
                pipe += 1;
            }
            pipe -= 1;
            prr.acknowledged(1, pipe, 10.0);
        }
        assert!(sent == 9 || sent == 10, "{sent}");
        assert!(pipe.abs_diff(10) <= 1, "{pipe}");
    }

    #[test]
    fn grows_back_to_ssthresh_when_too_much_was_lost() {
        // 20 outstanding, 15 lost: the pipe is below ssthresh; each delivered segment lets two out.
        let mut prr = Prr::begin(20);
        prr.sent();
        prr.acknowledged(3, 3, 10.0);
        assert!(prr.allows());
        let mut sent = 0;
        while prr.allows() {
            prr.sent();
            sent += 1;
        }
        assert_eq!(sent, 4, "max(3 - 1, 3) + 1");
    }
}

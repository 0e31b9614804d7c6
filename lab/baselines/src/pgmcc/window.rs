//! Window and tokens: limit of the packets in flight.

/// Number of acknowledged packets behind a hole that make the hole a loss.
const LATER: u32 = 3;
/// Maximum window in packets.
const WINDOW_MAX: f64 = 1_048_576.0;
/// Number of remembered packets.
const REMEMBERED: u32 = u64::BITS;

/// W, T and the state of the last 64 packets. Numbers wrap.
#[derive(Clone, Copy, Debug)]
pub struct PgmccWindow {
    window: f64,
    tokens: f64,
    threshold: f64,
    /// Number of the next packet.
    next: u32,
    /// Highest number acknowledged, or given up with all earlier packets.
    highest: u32,
    /// Bit i: the state of `highest - i` is known.
    known: u64,
    /// Bit i: `highest - i` was acknowledged since the last timeout, by any acker.
    acked: u64,
    /// Bit i of `own`: the current acker has received `highest - i`. Bit i of `told`: the current acker has
    /// reported on `highest - i`.
    own: u64,
    told: u64,
    /// Losses before this number have already halved the window, or belong to a timeout.
    cut: u32,
    /// After a loss: the window stays constant until this number is acknowledged.
    recovery: Option<u32>,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckResult {
    /// Packets acknowledged for the first time.
    pub new: u32,
    /// Packets detected as lost.
    pub lost: u32,
    /// Whether the window was halved.
    pub is_halved: bool,
}

impl PgmccWindow {
    /// Creates a window of one packet with one token; slow start ends at `threshold` packets.
    pub fn new(first: u32, threshold: f64) -> Self {
        Self {
            window: 1.0,
            tokens: 1.0,
            threshold,
            next: first,
            highest: first.wrapping_sub(1),
            known: !0,
            acked: 0,
            own: 0,
            told: 0,
            cut: first,
            recovery: None,
        }
    }

    /// Returns W in packets.
    pub const fn packets(&self) -> f64 {
        self.window
    }

    /// Returns T in packets; negative after a halving.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Returns the number of the next packet.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Whether a packet may be sent.
    pub fn is_open(&self) -> bool {
        // Sums of thirds and sevenths round to slightly less than 1.
        self.tokens > 1.0 - 1e-9
    }

    /// Whether packets in unknown state are in flight.
    pub fn is_waiting(&self) -> bool {
        self.next.wrapping_sub(1) != self.highest || self.known != !0
    }

    /// Counts a sent packet.
    pub const fn sent(&mut self) {
        self.tokens -= 1.0;
        self.next = self.next.wrapping_add(1);
    }

    /// Processes an acknowledgement of `highest` and of the packets in `bitmap` (bit i: `highest - i`), by
    /// the acker or the previous acker. Returns `None` if `highest` was not sent yet.
    pub fn acknowledged(&mut self, highest: u32, bitmap: u32, is_acker: bool) -> Option<AckResult> {
        if ahead(highest, self.next) >= 0 {
            return None;
        }
        let mut told = AckResult { lost: self.reach(highest), ..AckResult::default() };
        let oldest = self.highest.wrapping_sub(REMEMBERED);
        let mut is_hit = told.lost > 0 && ahead(oldest, self.cut) >= 0;
        let behind = self.highest.wrapping_sub(highest);
        let [seen, said] = [bitmap, !0].map(|bits: u32| u64::from(bits).checked_shl(behind).unwrap_or(0));
        told.new = (seen & !self.known).count_ones();
        self.known |= seen;
        self.acked |= seen;
        if is_acker {
            self.own |= seen;
            self.told |= said;
        }
        told.lost += self.find_losses();
        is_hit |= self.find_hits();
        self.end_recovery();
        if told.new > 0 {
            self.grow(f64::from(told.new));
        }
        // Lost packets are no longer in flight.
        self.tokens += f64::from(told.lost);
        if is_hit {
            told.is_halved = true;
            self.halve();
        }
        Some(told)
    }

    /// Switches to another acker. Packets the new acker lost before the switch still halve the window, unless
    /// `is_forgiven`.
    pub const fn switched(&mut self, is_forgiven: bool) {
        (self.own, self.told) = (0, 0);
        if is_forgiven {
            self.cut = self.next;
        }
    }

    /// Handles a timeout: restarts with a window of one packet, and stops counting the packets in flight.
    pub fn timed_out(&mut self) {
        (self.window, self.tokens) = (1.0, 1.0);
        (self.highest, self.known, self.acked) = (self.next.wrapping_sub(1), !0, 0);
        (self.own, self.told, self.cut) = (0, 0, self.next);
        self.recovery = None;
    }

    /// Advances to `highest`; packets that leave the memory in unknown state count as lost.
    fn reach(&mut self, highest: u32) -> u32 {
        let Ok(steps) = u32::try_from(ahead(highest, self.highest)) else { return 0 };
        let forgotten = match steps {
            0 => 0,
            1..REMEMBERED => (!self.known >> (REMEMBERED - steps)).count_ones(),
            _ => (!self.known).count_ones() + (steps - REMEMBERED),
        };
        for bits in [&mut self.known, &mut self.acked, &mut self.own, &mut self.told] {
            *bits = bits.checked_shl(steps).unwrap_or(0);
        }
        self.highest = highest;
        forgotten
    }

    /// Marks holes with three acknowledged packets behind as lost, and returns the number of holes.
    fn find_losses(&mut self) -> u32 {
        let (mut lost, mut later) = (0, 0);
        for place in 0..REMEMBERED {
            let bit = 1_u64 << place;
            later += u32::from(self.acked & bit != 0);
            if later >= LATER && self.known & bit == 0 {
                self.known |= bit;
                lost += 1;
            }
        }
        lost
    }

    /// Whether the acker misses a packet sent after the last halving, and has three later packets. Receptions
    /// by previous ackers do not count.
    fn find_hits(&mut self) -> bool {
        let (mut is_hit, mut later) = (false, 0);
        for place in 0..REMEMBERED {
            let bit = 1_u64 << place;
            later += u32::from(self.own & bit != 0);
            let is_hole = later >= LATER && self.told & !self.own & bit != 0;
            is_hit |= is_hole && ahead(self.highest.wrapping_sub(place), self.cut) >= 0;
        }
        is_hit
    }

    fn end_recovery(&mut self) {
        if self.recovery.is_some_and(|end| ahead(self.highest, end) >= 0) {
            self.recovery = None;
        }
    }

    fn grow(&mut self, new: f64) {
        if self.recovery.is_some() {
            self.tokens += new;
            return;
        }
        let below = (self.threshold - self.window).clamp(0.0, new);
        self.tokens += 2.0 * below;
        self.window += below;
        let rest = new - below;
        self.tokens += rest * (1.0 + 1.0 / self.window);
        self.window = (self.window + rest / self.window).min(WINDOW_MAX);
    }

    fn halve(&mut self) {
        let half = (self.window / 2.0).max(1.0);
        self.tokens -= self.window - half;
        self.window = half;
        (self.recovery, self.cut) = (Some(self.next), self.next);
    }
}

/// Returns the distance of `a` ahead of `b`; negative if `a` is behind.
const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

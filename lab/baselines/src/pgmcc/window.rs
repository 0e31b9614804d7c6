//! Window and tokens: how many packets may be under way.

/// Acknowledged packets behind a hole that make it a loss.
const LATER: u32 = 3;
/// Most packets of a window.
const WINDOW_MAX: f64 = 1_048_576.0;
/// Packets that are remembered.
const REMEMBERED: u32 = u64::BITS;

/// W, T and the fate of the last 64 packets. Numbers wrap.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    window: f64,
    tokens: f64,
    threshold: f64,
    /// Number of the next packet.
    next: u32,
    /// The highest number acknowledged, or given up with all before it.
    highest: u32,
    /// Bit i: it is known what became of `highest - i`.
    known: u64,
    /// Bit i: `highest - i` was acknowledged since the last timeout, by whoever was the acker.
    acked: u64,
    /// Bit i: today's acker has `highest - i`; and of the other: it said whether it has.
    own: u64,
    told: u64,
    /// Losses before this number had their halving, or a timeout.
    cut: u32,
    /// After a loss: the window stays until this number is acknowledged.
    recovery: Option<u32>,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Packets acknowledged for the first time.
    pub new: u32,
    /// Packets found lost.
    pub lost: u32,
    /// Whether the window was halved.
    pub is_halved: bool,
}

impl Window {
    /// One packet and one token; slow start up to `threshold` packets.
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

    /// W in packets.
    pub const fn packets(&self) -> f64 {
        self.window
    }

    /// T in packets; negative after a halving.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Number of the next packet.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Whether a packet may be sent.
    pub fn is_open(&self) -> bool {
        // Sums of thirds and sevenths fall short of one by a hair.
        self.tokens > 1.0 - 1e-9
    }

    /// Whether packets are under way of which nothing is known.
    pub fn is_waiting(&self) -> bool {
        self.next.wrapping_sub(1) != self.highest || self.known != !0
    }

    /// A packet was sent.
    pub const fn sent(&mut self) {
        self.tokens -= 1.0;
        self.next = self.next.wrapping_add(1);
    }

    /// A receiver has `highest` and of those before it the ones in `bitmap` (bit i: `highest - i`): the
    /// acker, or the one before it. `None` for what was not sent yet.
    pub fn acknowledged(&mut self, highest: u32, bitmap: u32, is_acker: bool) -> Option<Told> {
        if ahead(highest, self.next) >= 0 {
            return None;
        }
        let mut told = Told { lost: self.reach(highest), ..Told::default() };
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
        // What was lost is under way no more.
        self.tokens += f64::from(told.lost);
        if is_hit {
            told.is_halved = true;
            self.halve();
        }
        Some(told)
    }

    /// Another receiver is the acker. What it lost before that halves the window like what it loses from now
    /// on, unless that `is_forgiven`.
    pub const fn switched(&mut self, is_forgiven: bool) {
        (self.own, self.told) = (0, 0);
        if is_forgiven {
            self.cut = self.next;
        }
    }

    /// No acknowledgement came in time: begins anew, and what is under way counts no more.
    pub fn timed_out(&mut self) {
        (self.window, self.tokens) = (1.0, 1.0);
        (self.highest, self.known, self.acked) = (self.next.wrapping_sub(1), !0, 0);
        (self.own, self.told, self.cut) = (0, 0, self.next);
        self.recovery = None;
    }

    /// Moves on to `highest`; packets that are forgotten by that without a word count as lost.
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

    /// Holes with three acknowledged packets behind them.
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

    /// Whether the acker misses a packet that was sent after the last halving, and has three behind it. What
    /// others had of it does not matter.
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

/// How far `a` is ahead of `b`; negative when behind.
const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

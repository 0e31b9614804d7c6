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
    /// Bit i: `highest - i` was acknowledged since the last timeout.
    acked: u64,
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

    /// The acker has `highest` and of those before it the ones in `bitmap` (bit i: `highest - i`). `None` for what was not sent yet.
    pub fn acknowledged(&mut self, highest: u32, bitmap: u32) -> Option<Told> {
        if ahead(highest, self.next) >= 0 {
            return None;
        }
        let mut told = Told { lost: self.reach(highest), ..Told::default() };
        let behind = self.highest.wrapping_sub(highest);
        let seen = if behind < REMEMBERED { u64::from(bitmap) << behind } else { 0 };
        told.new = (seen & !self.known).count_ones();
        self.known |= seen;
        self.acked |= seen;
        told.lost += self.find_losses();
        self.end_recovery();
        if told.new > 0 {
            self.grow(f64::from(told.new));
        }
        // What was lost is under way no more.
        self.tokens += f64::from(told.lost);
        if told.lost > 0 && self.recovery.is_none() {
            told.is_halved = true;
            self.halve();
        }
        Some(told)
    }

    /// No acknowledgement came in time: begins anew, and what is under way counts no more.
    pub fn timed_out(&mut self) {
        (self.window, self.tokens) = (1.0, 1.0);
        (self.highest, self.known, self.acked) = (self.next.wrapping_sub(1), !0, 0);
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
        (self.known, self.acked) = match steps {
            ..REMEMBERED => (self.known << steps, self.acked << steps),
            _ => (0, 0),
        };
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
        self.recovery = Some(self.next);
    }
}

/// How far `a` is ahead of `b`; negative when behind.
const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

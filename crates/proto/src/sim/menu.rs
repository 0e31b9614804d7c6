//! The menu: bounds of the middle groups' rates, derived from the rates that receivers report.

/// Maximum number of past requests that the bounds average over.
const REQUESTS_MAX: usize = 256;

/// Bounds of cumulative rates, recomputed after every `period` requests. The menu activates when the top
/// group is congested, and stays active.
#[derive(Clone, Debug)]
pub(super) struct Menu {
    /// Number of requests between two adaptations.
    period: usize,
    is_allowed: bool,
    is_active: bool,
    since: usize,
    /// Smallest and largest received rate of each of the last `period` requests with reports, in a ring.
    rates: Vec<(f64, f64)>,
    next: usize,
    /// Bounds in bit/s, by rank; infinite for an unbounded group.
    bounds: Vec<f64>,
}

impl Menu {
    pub fn new(groups: u16, period: u16, is_allowed: bool) -> Self {
        Self {
            period: usize::from(period).clamp(1, REQUESTS_MAX),
            is_allowed: is_allowed && groups > 2,
            is_active: false,
            since: 0,
            rates: Vec::new(),
            next: 0,
            bounds: vec![f64::INFINITY; groups.into()],
        }
    }

    pub const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Maximum cumulative rate of a group, in bit/s.
    pub fn bound(&self, rank: usize) -> f64 {
        self.bounds[rank]
    }

    /// Ends a request, given the smallest and the largest reported rate, if any, and whether the top group is
    /// congested.
    pub fn request(&mut self, rates: Option<(f64, f64)>, is_top_congested: bool) {
        if let Some(rates) = rates {
            self.record(rates);
        }
        self.since += 1;
        if !self.is_active && is_top_congested && self.is_allowed {
            self.is_active = true;
            self.adapt();
        } else if self.is_active && self.since >= self.period {
            self.adapt();
        }
    }

    fn record(&mut self, rates: (f64, f64)) {
        if self.rates.len() < self.period {
            self.rates.push(rates);
        } else {
            self.rates[self.next] = rates;
            self.next = (self.next + 1) % self.period;
        }
    }

    /// Splits the range of received rates into as many equal ranges as there are middle groups.
    fn adapt(&mut self) {
        self.since = 0;
        let count = self.rates.len();
        if count == 0 {
            return;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| self.rates.iter().map(of).sum::<f64>() / float(count);
        let (least, most) = (mean(|rates| rates.0), mean(|rates| rates.1));
        let middle = self.bounds.len() - 2;
        for number in 1..=middle {
            self.bounds[number] = least + (most - least) * float(number) / float(middle);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_2_has_these_bounds() {
        let mut menu = Menu::new(5, 25, true);
        menu.request(Some((1e6, 6e6)), false);
        assert_eq!(menu.bound(1), f64::INFINITY, "not active yet");
        menu.request(Some((1e6, 6e6)), true);
        let bounds: Vec<f64> = (0..5).map(|rank| menu.bound(rank)).collect();
        assert_eq!(&bounds[..1], [f64::INFINITY]);
        assert!((bounds[1] - 8e6 / 3.0).abs() < 1.0 && (bounds[2] - 13e6 / 3.0).abs() < 1.0);
        assert!((bounds[3] - 6e6).abs() < 1.0 && bounds[4].is_infinite());
    }

    #[test]
    fn it_forgets_and_never_ends() {
        let mut menu = Menu::new(3, 4, true);
        menu.request(Some((1.0, 100.0)), true);
        for _ in 0..8 {
            menu.request(Some((1.0, 50.0)), false);
        }
        assert!(menu.is_active());
        assert!((menu.bound(1) - 50.0).abs() < 1e-9, "of the last four requests");
        let mut two = Menu::new(2, 4, true);
        two.request(Some((1.0, 2.0)), true);
        assert!(!two.is_active(), "nothing lies between two groups");
    }
}

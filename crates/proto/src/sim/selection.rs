//! Selective participation: whether a receiver joins the next group or leaves its top one.

/// What to do with the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Stay,
    Join,
    Leave,
}

/// Reports after one of congestion in which a fall is the sender's answer to that: it takes a request to decide, and another one to see.
const OWN: u16 = 3;

/// A selection interval: some requests since the last change, or since the last interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// Requests of an interval.
    interval: u16,
    /// A fall by this part between two reports is a decrease.
    fall: f64,
    reports: u16,
    congested: u16,
    has_fallen: bool,
    /// It has fallen for others' sake: this receiver had not been congested.
    has_yielded: bool,
    /// Reports since one of congestion.
    calm: u16,
    /// The top group's cumulative rate at the first and the latest report.
    first: Option<f64>,
    latest: Option<f64>,
}

impl Selection {
    /// Of intervals of so many requests, under a sender that leaves `decrease` of a rate.
    pub fn new(interval: u16, decrease: f64) -> Self {
        let fall = (1.0 - decrease) / 2.0;
        Self {
            interval,
            fall,
            reports: 0,
            congested: 0,
            has_fallen: false,
            has_yielded: false,
            calm: u16::MAX,
            first: None,
            latest: None,
        }
    }

    /// The subscription changed, or an interval is over: what was seen does not count any more.
    pub fn restart(&mut self) {
        *self = Self { calm: self.calm, ..Self::new(self.interval, 1.0 - 2.0 * self.fall) };
    }

    /// A request was answered: whether the top group is congested, its cumulative rate if it was heard, and the sender's additive step.
    pub fn report(&mut self, is_congested: bool, rate: Option<f64>, step: f64) -> Choice {
        self.reports += 1;
        self.congested += u16::from(is_congested);
        self.calm = if is_congested { 0 } else { self.calm.saturating_add(1) };
        if let Some(rate) = rate {
            let falls = self.latest.is_some_and(|before| rate <= before * (1.0 - self.fall));
            self.has_fallen |= falls;
            self.has_yielded |= falls && self.calm > OWN;
            self.latest = Some(rate);
            self.first.get_or_insert(rate);
        }
        if self.reports < self.interval {
            return Choice::Stay;
        }
        let risen = self.first.zip(self.latest).is_some_and(|(first, latest)| latest > first + step);
        let choice = match (self.congested, self.has_yielded) {
            (0, true) => Choice::Join,
            (congested, _) if 2 * congested > self.reports && risen && !self.has_fallen => Choice::Leave,
            _ => Choice::Stay,
        };
        self.restart();
        choice
    }
}

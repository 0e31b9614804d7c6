//! Selective participation: joins of the next group, and leaves of the top group.

/// Decision on the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Stay,
    Join,
    Leave,
}

/// Number of reports after a congested report in which a fall of the rate is attributed to the same queue.
/// The sender takes a request to decide and another to show the decrease. If the sender left the group
/// unchanged after a decrease, other receivers of the group report the same queue two requests later still.
const OWN: u16 = 4;

/// An uncongested interval may have congested reports up to a fraction of 1/`OTHERWISE`: beside flows that
/// fill queues by themselves, as TCP does, ten consecutive reports without a mark are rare.
const OTHERWISE: u16 = 5;

/// A selection interval: the requests since the last change, or since the last interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// Number of requests in an interval.
    interval: u16,
    /// Relative fall between two reports that counts as a decrease.
    fall: f64,
    reports: u16,
    congested: u16,
    has_fallen: bool,
    /// Whether the rate fell for the sake of other receivers: this receiver was not congested.
    has_yielded: bool,
    /// Number of reports since the last congested report.
    calm: u16,
    /// Cumulative rate of the top group at the first and the latest report.
    first: Option<f64>,
    latest: Option<f64>,
}

impl Selection {
    /// Creates a selection with intervals of `interval` requests, for a sender with the factor `decrease`.
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

    /// Discards all observations after a change of the subscription, or at the end of an interval.
    pub fn restart(&mut self) {
        *self = Self { calm: self.calm, ..Self::new(self.interval, 1.0 - 2.0 * self.fall) };
    }

    /// Handles an answered request, given whether the top group is congested, the group's cumulative rate if
    /// known, and the sender's additive step.
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
        // A constant rate, as under the menu's bounds, brings no relief either. Neither does a rate that too
        // few packets arrive to measure.
        let stands = self.first.zip(self.latest).is_none_or(|(first, latest)| latest > first - step);
        // An uncongested receiver gains nothing more from a constant rate either. A bounded rate follows the
        // groups above: a receiver that waits for a fall stays below receivers with slower links.
        let is_held = self.first.zip(self.latest).is_some_and(|(first, latest)| latest < first + step);
        let has_room = self.has_yielded || is_held && !self.has_fallen;
        let choice = if has_room && OTHERWISE * self.congested <= self.reports {
            Choice::Join
        } else if 2 * self.congested > self.reports && stands && !self.has_fallen {
            Choice::Leave
        } else {
            Choice::Stay
        };
        self.restart();
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ten reports come to: whether each says congestion, and the rate.
    fn choice(reports: &[(bool, f64)]) -> Choice {
        let mut selection = Selection::new(10, 0.875);
        let all = reports.iter().map(|(congested, rate)| selection.report(*congested, Some(*rate), 1.0));
        all.last().unwrap_or(Choice::Stay)
    }

    fn interval(congested: &[u8], rate: impl Fn(u8) -> f64) -> Choice {
        let reports: Vec<_> = (0..10).map(|report| (congested.contains(&report), rate(report))).collect();
        choice(&reports)
    }

    #[test]
    fn joins_when_others_make_the_rate_fall() {
        let falls = |report: u8| if report < 6 { 100.0 } else { 87.5 };
        assert_eq!(interval(&[], falls), Choice::Join);
        assert_eq!(interval(&[0, 9], falls), Choice::Join, "a mark now and then is no congestion");
        assert_eq!(interval(&[0, 1, 9], falls), Choice::Stay);
        assert_eq!(interval(&[4], falls), Choice::Stay, "that may be the answer to its own");
        let falls_at = |place: u8| interval(&[1], |report| if report < place { 100.0 } else { 87.5 });
        assert_eq!((falls_at(5), falls_at(6)), (Choice::Stay, Choice::Join), "of one queue for four reports");
        assert_eq!(interval(&[], |report| 100.0 + f64::from(report)), Choice::Stay, "nobody yields");
    }

    #[test]
    fn joins_when_a_bound_holds_the_rate() {
        assert_eq!(interval(&[], |_| 100.0), Choice::Join);
        assert_eq!(
            interval(&[3], |report| 100.0 - 0.2 * f64::from(report)),
            Choice::Join,
            "it follows what it is made of"
        );
        assert_eq!(interval(&[], |report| 100.0 + f64::from(report / 5)), Choice::Stay, "it rises");
        assert_eq!(interval(&[1, 4, 7], |_| 100.0), Choice::Stay, "there is no room");
        let mut selection = Selection::new(10, 0.875);
        let last = (0..10).map(|_| selection.report(false, None, 1.0)).last();
        assert_eq!(last, Some(Choice::Stay), "nothing is known of the rate");
    }

    #[test]
    fn leaves_when_the_rate_does_not_fall() {
        let most = [0, 1, 2, 3, 7, 9];
        assert_eq!(interval(&most, |report| 100.0 + 2.0 * f64::from(report)), Choice::Leave);
        assert_eq!(interval(&most, |_| 100.0), Choice::Leave, "a bound holds it: nothing will change");
        assert_eq!(interval(&most, |report| if report < 6 { 100.0 } else { 87.5 }), Choice::Stay);
        assert_eq!(interval(&most[1..], |_| 100.0), Choice::Stay, "half is not most");
        let mut selection = Selection::new(10, 0.875);
        let last = (0..10).map(|_| selection.report(true, None, 1.0)).last();
        assert_eq!(last, Some(Choice::Leave), "so little comes that nothing is known of the rate");
    }
}

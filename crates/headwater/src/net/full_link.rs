//! Rate of a link that is full, by the datagrams that the kernel takes meanwhile.

use std::time::{Duration, Instant};

/// Shortest time of a full link that tells the link's rate.
const MEASURED_TIME: Duration = Duration::from_millis(20);
/// Longest time between two refusals of a queue that stays full.
const REFUSALS_TIME: Duration = Duration::from_millis(5);

/// Measures how many datagrams a link takes while datagrams wait all the time. A busy machine that leaves the
/// link idle meanwhile tells nothing.
#[derive(Debug, Default)]
pub(super) struct FullLink {
    /// Start of the measured time, and the datagrams taken before.
    since: Option<(Instant, u64)>,
    /// Time by which the link is certainly full again, or nothing is known.
    certain_until: Option<Instant>,
    packets_per_second: Option<f64>,
}

impl FullLink {
    /// Records that there is no room at `now`, when the kernel has taken so many datagrams.
    pub(super) fn on_full(&mut self, now: Instant, datagrams: u64) {
        let is_certain = self.certain_until.is_some_and(|until| now <= until);
        let Some((since, before)) = self.since.filter(|_| is_certain) else {
            self.since = Some((now, datagrams));
            return;
        };
        let time = now.duration_since(since);
        if time >= MEASURED_TIME {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 datagrams")]
            let count = datagrams.saturating_sub(before) as f64;
            // A link that takes nothing pauses.
            self.packets_per_second = (count > 0.0).then(|| count / time.as_secs_f64());
            self.since = Some((now, datagrams));
        }
    }

    /// Records that a queue refused a datagram at `now`: the queue stays full.
    pub(super) fn on_refusal(&mut self, now: Instant, datagrams: u64) {
        self.on_full(now, datagrams);
        self.certain_until = Some(now + REFUSALS_TIME);
    }

    /// Records that the buffer has room again after `waited`, for half of its datagrams. The other half lasts
    /// as long. `is_empty` if none is left: the link was idle.
    pub(super) fn on_room(&mut self, now: Instant, waited: Duration, is_empty: bool) {
        self.certain_until = (!is_empty).then_some(now + waited);
    }

    /// Records that the buffer has another length: the next datagrams taken tell nothing of those that left.
    pub(super) fn on_resized(&mut self) {
        self.since = None;
    }

    /// Takes the rate that was measured since the last call.
    pub(super) fn take(&mut self) -> Option<f64> {
        self.packets_per_second.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Fills of a buffer of 20 datagrams for a link of 4 datagrams a millisecond. Between fills, the machine
    /// is away for `away`.
    fn rate_of(away: Duration) -> Option<f64> {
        let mut link = FullLink::default();
        let (mut now, mut taken) = (Instant::now(), 20);
        for _ in 0..20 {
            link.on_full(now, taken);
            // Half of the buffer leaves.
            now += 5 * MS / 2;
            link.on_room(now, 5 * MS / 2, false);
            now += away;
            let left = 10 + away.as_micros() * 4 / 1_000;
            taken += u64::try_from(left.min(20)).unwrap();
        }
        link.take()
    }

    #[test]
    fn a_full_link_tells_its_rate() {
        let rate = rate_of(MS).expect("the link is full for 70 ms");
        assert!((rate - 4_000.0).abs() < 200.0, "{rate}");
    }

    #[test]
    fn a_machine_that_leaves_the_link_idle_tells_nothing() {
        assert_eq!(rate_of(20 * MS), None);
        let (mut link, mut now) = (FullLink::default(), Instant::now());
        for fill in 1..20 {
            link.on_full(now, 20 * fill);
            // The machine is away until the buffer is empty, and longer.
            now += 30 * MS;
            link.on_room(now, 30 * MS, true);
        }
        assert_eq!(link.take(), None);
    }

    #[test]
    fn a_buffer_that_shrinks_tells_nothing() {
        let (mut link, mut now) = (FullLink::default(), Instant::now());
        for fill in 1..20 {
            link.on_full(now, 20 + fill);
            now += 10 * MS;
            link.on_room(now, 10 * MS, false);
            link.on_resized();
        }
        assert_eq!(link.take(), None);
    }

    #[test]
    fn a_link_that_pauses_tells_nothing() {
        let (mut link, began) = (FullLink::default(), Instant::now());
        for refusal in 0..50 {
            link.on_refusal(began + refusal * MS, 100);
        }
        assert_eq!(link.take(), None);
    }

    #[test]
    fn a_queue_that_refuses_tells_the_rate_of_what_it_takes() {
        let (mut link, began) = (FullLink::default(), Instant::now());
        for packet in 0..500_u32 {
            // Two of three are taken.
            if packet % 3 == 0 {
                link.on_refusal(began + packet * MS / 5, u64::from(packet) * 2 / 3);
            }
        }
        let rate = link.take().expect("a tenth of a second of refusals");
        assert!((rate - 3_333.0).abs() < 200.0, "{rate}");
    }
}

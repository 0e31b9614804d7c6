//! Links of a relay that are offered more groups than they carry.

use crate::time::Duration;

/// Time between two looks at the drops of links.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Time for which a group is pruned.
pub(crate) const PRUNED: Duration = Duration::from_secs(30);
/// Consecutive looks at a queue that drops too much, before a group is pruned.
const BAD_LOOKS: u8 = 3;
/// A queue that drops more than one of this many packets drops too much.
const DROPS_OF: u64 = 4;

/// Detector of a link whose queue drops too much for some looks in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overload {
    bad_looks: u8,
}

impl Overload {
    /// Takes the packets that the queue was offered and dropped since the last look. Returns whether the
    /// groups that the link does not carry are to be pruned.
    pub(crate) fn look(&mut self, offered: u64, dropped: u64) -> bool {
        self.bad_looks = if dropped * DROPS_OF > offered { self.bad_looks + 1 } else { 0 };
        let is_due = self.bad_looks >= BAD_LOOKS;
        if is_due {
            self.bad_looks = 0;
        }
        is_due
    }
}

/// Returns the number of groups that a link carries of `offered` packets by group, the most important group
/// first, if the link's queue has taken `taken` of `all` packets.
pub(crate) fn carried(offered: impl Iterator<Item = u64> + Clone, taken: u64, all: u64) -> usize {
    let share = offered.clone().sum::<u64>() * taken / all.max(1);
    let mut sum = 0;
    let fits = offered.take_while(|count| {
        sum += *count;
        sum <= share
    });
    fits.count()
}

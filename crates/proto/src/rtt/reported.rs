//! Maximum of reports of levels.

use headwater_wire::rtt::LossClass;

/// Highest level of a kind of receivers, and the least loss reported at the level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported {
    /// Highest level.
    pub level: u16,
    /// Least loss of the receivers at that level.
    pub loss: LossClass,
}

impl Reported {
    /// Returns the maximum of two reports.
    pub fn max(self, other: Self) -> Self {
        match self.level.cmp(&other.level) {
            core::cmp::Ordering::Greater => self,
            core::cmp::Ordering::Less => other,
            core::cmp::Ordering::Equal => Self { loss: self.loss.min(other.loss), ..self },
        }
    }
}

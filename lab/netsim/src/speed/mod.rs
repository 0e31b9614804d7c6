//! How fast the simulator is: two loads, each on the engine and on a bare loop that does as little as a
//! simulator can. The measure is packet-hops per second on one core; who measures brings the clock.
//!
//! | load | what |
//! |---|---|
//! | [`dumbbell`] | 17 TCPs over one bottleneck, three hops each way |
//! | [`star`] | constant rate to 10 000 leaves, an agent at each |
//! | [`Fleet`] | a file to thousands of receivers; no bare loop, only how long it takes |

mod bare;
mod fleet;
mod load;

pub use bare::{bare_dumbbell, bare_star};
pub use fleet::Fleet;
pub use load::{dumbbell, star};

use headwater_proto::{Duration, Rate};

/// Connections over the bottleneck.
const PAIRS: u32 = 17;
/// Their access links, the bottleneck, and what they carry.
const ACCESS_RATE: Rate = Rate::from_kilobits(100_000);
const BOTTLENECK_RATE: Rate = Rate::from_kilobits(34_000);
const ACCESS_DELAY: Duration = Duration::from_millis(5);
const BOTTLENECK_DELAY: Duration = Duration::from_millis(10);
const QUEUE_PACKETS: u32 = 125;
const DATA_BYTES: u32 = 1_040;
const ACK_BYTES: u32 = 40;

/// What the star carries, and its links.
const STAR_RATE: Rate = Rate::from_kilobits(1_000);
const STAR_BYTES: u32 = 1_000;
const STAR_LINK_RATE: Rate = Rate::from_kilobits(10_000);
const STAR_DELAY: Duration = Duration::from_millis(10);

/// Where a leaf of the star lies: all at one distance, or each a little farther than the one before, so that
/// no two events fall on one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// All at one distance.
    Level,
    /// Each 100 ns farther.
    Staggered,
}

impl Leaves {
    fn delay(self, leaf: u32) -> Duration {
        match self {
            Self::Level => STAR_DELAY,
            Self::Staggered => STAR_DELAY + Duration::from_nanos(100).saturating_mul(leaf.into()),
        }
    }
}

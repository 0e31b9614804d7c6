//! Speed of the simulator: loads, most of which run both on the engine and on a bare loop that does as little
//! as a simulator can. The measure is packet-hops per second on a single core; the caller supplies the clock.
//!
//! | load | content |
//! |---|---|
//! | [`dumbbell`] | 17 TCPs over one bottleneck, three hops each way |
//! | [`star`] | constant rate to 10 000 leaves, an agent at each |
//! | [`Fleet`] | a file to thousands of receivers; no bare loop, only the time taken |

mod bare;
mod fleet;
mod load;

pub use bare::{bare_dumbbell, bare_star};
pub use fleet::Fleet;
pub use load::{dumbbell, star};

use headwater_proto::{Duration, Rate};

/// Connections over the bottleneck.
const PAIRS: u32 = 17;
/// Parameters of the dumbbell: access links, bottleneck, and packet sizes.
const ACCESS_RATE: Rate = Rate::from_kilobits(100_000);
const BOTTLENECK_RATE: Rate = Rate::from_kilobits(34_000);
const ACCESS_DELAY: Duration = Duration::from_millis(5);
const BOTTLENECK_DELAY: Duration = Duration::from_millis(10);
const QUEUE_PACKETS: u32 = 125;
const DATA_BYTES: u32 = 1_040;
const ACK_BYTES: u32 = 40;

/// Parameters of the star: traffic and links.
const STAR_RATE: Rate = Rate::from_kilobits(1_000);
const STAR_BYTES: u32 = 1_000;
const STAR_LINK_RATE: Rate = Rate::from_kilobits(10_000);
const STAR_DELAY: Duration = Duration::from_millis(10);

/// Distance of the star's leaves: all equal, or each a little farther than the previous leaf, so that no two
/// events fall on the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// All leaves at the same distance.
    Level,
    /// Each leaf 100 ns farther than the previous leaf.
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

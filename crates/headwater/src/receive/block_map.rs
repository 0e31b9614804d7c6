//! Map of a session's blocks in the progress of a receiver.

use std::sync::Arc;

use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{BlockMap, DeliveryReceiver};
use headwater_proto::{Duration, Instant};

use crate::store::DiskStore;

/// Interval of a new map: a map visits each block.
const INTERVAL: Duration = Duration::from_millis(500);

/// Latest map, renewed from time to time.
#[derive(Debug, Default)]
pub(super) struct BlockMapWatch {
    cells: usize,
    due: Instant,
    latest: Option<Arc<BlockMap>>,
}

impl BlockMapWatch {
    /// Makes maps of at most `cells` cells; none if `cells` is 0.
    pub(super) fn new(cells: usize) -> Self {
        Self { cells, ..Self::default() }
    }

    /// Returns the latest map, if there are to be maps; at the end of the session a new one.
    pub(super) fn poll<C: ReceiverControl>(
        &mut self,
        machine: &DeliveryReceiver<C, DiskStore>,
        (now, is_ended): (Instant, bool),
    ) -> Option<Arc<BlockMap>> {
        if self.cells > 0 && (now >= self.due || is_ended) {
            self.due = now + INTERVAL;
            self.latest = Some(Arc::new(machine.block_map(self.cells)));
        }
        self.latest.clone()
    }
}

//! Parts of a session by themselves, for whoever measures them.

use std::path::Path;

use headwater_proto::delivery::{Store, StoreError};

use crate::net::Waker;
use crate::store::DiskStore;

/// What a receiving session writes to: content below `folder`, which is made if need be. `waker` is used
/// whenever a report is there. What is not finished when it is dropped is removed.
///
/// # Errors
/// When the folder cannot be written to.
pub fn disk_store(folder: &Path, waker: Waker) -> Result<impl Store, StoreError> {
    DiskStore::open(folder, waker)
}

//! Parts of a session, for measurements.

use std::path::Path;

use headwater_proto::delivery::{Store, StoreError};

use crate::net::Waker;
use crate::store::{DiskStore, StoreOptions};

/// Opens the store of a receiving session, with content below `folder`, which is created if missing. The
/// store uses `waker` for each report. Dropping the store removes incomplete files.
///
/// # Errors
/// If the folder cannot be written to.
pub fn disk_store(folder: &Path, waker: Waker) -> Result<impl Store, StoreError> {
    DiskStore::open(folder, StoreOptions::default(), waker)
}

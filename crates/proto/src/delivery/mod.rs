//! File delivery: objects and FEC over one congestion control, on ALC/LCT with FLUTE's FDT.
//!
//! ```text
//! files -> SessionPlan -> Carousel -> Sender ~~ datagrams ~~> Receiver -> Store
//!              |                        ^ (any SenderControl)   (any ReceiverControl)
//!              +--- FDT, once a second -+
//! ```
//!
//! Content is an argument: a [`DeliverySender`] reads symbols from a [`Source`], a [`DeliveryReceiver`]
//! writes symbols to a [`Store`]. [`MemoryStore`] and [`MemorySource`] serve tests and simulations.
//!
//! Sources: RFC 5775 (ALC), RFC 6726 (FLUTE), RFC 5052 (blocks); the sequencer paper for the order of
//! sending.

mod bundle;
mod carousel;
mod encoding;
pub(crate) mod fdt;
pub(crate) mod front;
mod memory;
mod metadata;
mod name;
mod object;
mod plan;
mod receiver;
mod repair;
pub(crate) mod sender;
mod store;

pub use bundle::{
    BUNDLE_BYTES_MAX, BUNDLE_MEMBERS_MAX, BundleEnd, BundleError, BundleLayout, BundleMember, BundlePart,
    DIRECTORY_BYTES_MAX, END_BYTES as BUNDLE_END_BYTES, LOCAL_HEADER_BYTES_MAX, MemberCheck,
};
pub use carousel::{Carousel, CarouselBlock, Hierarchy, Place, Start, Visit, passes_end};
pub use carousel::{Offsets, bisecting_offsets};
pub use encoding::{ContentCoding, Encoding};
pub use fdt::{FDT_BYTES_MAX, FdtTooLarge};
pub use front::{OTHERS_MAX, SILENCE};
pub use front::{SessionEvent, Verifying};
pub use headwater_wire::fdt::{FileTime, Withdrawal};
pub use memory::{MemorySource, MemoryStore};
pub use metadata::{
    ACL_XATTRS, EntryKind, MetadataEntry, MetadataError, MetadataFault, Owner, Preserve, SessionMetadata,
    TARGET_BYTES_MAX, USER_XATTRS, XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTRS_MAX, Xattr,
    check_link_target,
};
pub use name::{COMPONENT_BYTES_MAX, NameError, PATH_BYTES_MAX, RESERVED_PREFIX, RelativePath};
pub use object::{BlockHasher, Digest, ShortDigest, block_digest, content_digest, file_digest, hex};
pub use plan::{
    FileToSend, OBJECTS_MAX, PlanConfig, PlanError, PlannedObject, SYMBOL_SIZE_MAX, SessionPlan, StreamPart,
};
pub use receiver::{
    BLOCK_STATE_BYTES, BlockMap, DECODING_BYTES, DeliveryReceiver, DeliveryReceiverConfig, Drops,
    FileProgress, MissingRange, PENDING_BYTES, ReceiverEvent, ReceiverStats, RepairFile, RepairPosition,
    RepairStats, STRIP_WIDTH_MIN,
};
pub use repair::{RepairServers, entity_tag};
pub use sender::{DeliverySender, DeliverySenderConfig, End, SenderEvent, SenderStats};
pub use store::{
    BlockJob, BlockVerdict, Description, FileIndex, FileSpec, FileVersion, HeldBlock, HeldFile, ObjectIndex,
    ObjectSpec, Source, SourceError, Store, StoreError, StoreReport, StoredRepair, repair_slots,
};

//! Headwater over real UDP multicast: the runtime of the protocol machines in `headwater-proto`.
//!
//! Every session is opened with its options and is a [`Session`]. [`Session::run`] runs the session on the
//! caller's thread and reports updates to an observer. [`Session::spawn`] runs the session on a thread of its
//! own: the handle, a [`SessionThread`], gives the updates as an iterator or as a stream for an event loop. A
//! session ends on its own, or by its [`StopHandle`].
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use headwater::{CongestionControl, LayerOptions, ReceiveOptions, ReceiveSession};
//! use headwater::{SendOptions, SendSession, Session, prepare};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group: SocketAddr = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let files = prepare(["images/", "notes.txt"])?;
//! let options = SendOptions::new(group, CongestionControl::M2c(LayerOptions::new()));
//! let mut session = SendSession::open(files, options)?;
//! let stop = session.stop_handle(); // for another thread, or a signal handler
//! let summary = session.run(&mut |update| println!("{update:?}"))?;
//!
//! // On any number of others:
//! let mut options = ReceiveOptions::new(group, "received");
//! options.listen.timeout = Some(Duration::from_secs(30));
//! let mut session = ReceiveSession::open(options)?;
//! let summary = session.run(&mut |update| println!("{update:?}"))?;
//! println!("{:?}", summary.outcome);
//! # Ok(())
//! # }
//! ```
//!
//! | purpose | session | options |
//! |---|---|---|
//! | send files, listed by [`prepare`] | [`SendSession`] | [`SendOptions`] |
//! | receive files | [`ReceiveSession`] | [`ReceiveOptions`] |
//! | send live buffers | [`stream::StreamSendSession`] | [`stream::StreamSendOptions`] |
//! | receive live buffers | [`stream::StreamReceiveSession`] | [`stream::StreamReceiveOptions`] |
//! | send messages over PGM | [`pgm::PgmSendSession`] | [`pgm::PgmSendOptions`] |
//! | receive messages | [`pgm::PgmReceiveSession`] | [`pgm::PgmReceiveOptions`] |
//! | relay requests and replies (BCFS) | [`relay::RelaySession`] | [`relay::RelayOptions`] |
//! | relay groups and reports (SIM) | [`relay::SimRelaySession`] | [`relay::SimRelayOptions`] |
//! | relay groups by unicast (AMT) | [`relay::AmtRelaySession`] | [`relay::AmtRelayOptions`] |
//! | options of all senders, of all receivers | | [`LinkOptions`], [`ListenOptions`] |
//! | run a session on a thread | [`SessionThread`] by [`Session::spawn`] | |
//! | choose the rate | | [`CongestionControl`], [`pgm::PgmControl`] |
//! | find out why multicast does not start | [`doctor`] | |
//!
//! Updates, progress, summary and error of a session have its prefix: [`SendUpdate`], [`SendSummary`],
//! [`SendError`]. [`stream`], [`pgm`] and [`relay`] have pages of their own, with examples.
//!
//! The machines are in [`proto`].

#[doc(hidden)]
pub mod bench;
mod clock;
#[doc(hidden)]
pub mod coding;
mod congestion_control;
pub mod doctor;
mod driad;
mod driver;
pub mod keys;
#[doc(hidden)]
pub mod net;
pub mod pgm;
mod receive;
pub mod relay;
mod send;
mod session;
mod store;
pub mod stream;
mod system;
mod threads;

pub use congestion_control::{
    BASE_RATE_DEFAULT, CongestionControl, DedicatedOptions, FAST_RATE_DEFAULT, GROUPS_MAX, IDLE_RATE_DEFAULT,
    LayerOptions, MAX_RATE_DEFAULT, RainbowOptions, SILENCE_DEFAULT, SIM_GROUPS_DEFAULT, SIM_RELAYS_MAX,
    START_RATE_DEFAULT, SimOptions,
};
pub use driad::{DriadError, find_amt_relay, find_amt_relay_at};
pub use driver::{Direction, DriverError, PacketTrace, TraceHook};
pub use headwater_fec::Scheme;
pub use headwater_proto as proto;
pub use headwater_proto::delivery::{ContentCoding, Preserve, RepairServers};
pub use headwater_wire::fdt::{PEERS_MAX as REPAIR_PEERS_MAX, URLS_MAX as REPAIR_URLS_MAX};
pub use headwater_wire::sdp::{RequestSource, SessionDescription};
pub use keys::{GroupKeys, KeyError, SenderKey, Trust};
pub use receive::{
    BytesByPath, ContentPath, DescriptionError, FetchedDescription, FileStatus, HeardSession, HttpPath,
    IncompleteReason, ListenOptions, LongPacketsMissing, Loss, ReceiveError, ReceiveOptions, ReceiveOutcome,
    ReceiveProgress, ReceiveSession, ReceiveStarted, ReceiveSummary, ReceiveUpdate, RepairOptions,
    RepairUpdate, SILENCE_SHOWN, SILENCE_TOLD, ServingOptions,
};
pub use send::{
    Bundling, CompressionSummary, ContestedName, EXPECTED_MAX, FILES_PATH, FileSet, LinkOptions, Links,
    MissingReceiver, OutsideLink, PeerOptions, PrepareError, PrepareOptions, PreparedFile, PublishedFile,
    PublishedFiles, RateLimit, RepairPlace, RosterEnd, RosterOptions, RosterProgress, RosterSummary,
    SLOWEST_MAX, SOURCE_PORT, SendEnd, SendError, SendInput, SendOptions, SendOrder, SendOutcome,
    SendProgress, SendSession, SendStarted, SendSummary, SendUpdate, SentCeiling, SkipReason, Skipped,
    prepare, prepare_tree, prepare_with,
};
pub use session::{Backlog, Session, SessionThread};
pub use store::{NameSet, PatternError, ReceivedKind, Selection, Target, remove_received};
pub use threads::StopHandle;

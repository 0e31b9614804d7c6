//! Headwater over real UDP multicast: the runtime of the protocol machines in `headwater-proto`.
//!
//! The easy API sends files with a [`SendSession`] and receives them with a [`ReceiveSession`]. Each runs on
//! the thread that calls its `run`, tells an observer what happens, and ends on its own or by its
//! [`StopHandle`]. Live content goes by a [`StreamSender`] and a [`StreamReceiver`]: see [`stream`]; messages
//! by the ends in [`pgm`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use headwater::{CongestionControl, LayerOptions, ReceiveOptions, ReceiveSession};
//! use headwater::{SendOptions, SendSession, prepare};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let files = prepare(["images/", "notes.txt"])?;
//! let options = SendOptions::new(group, CongestionControl::M2c(LayerOptions::new()));
//! let mut session = SendSession::open(files, options)?;
//! let stop = session.stop_handle(); // for another thread, or a signal handler
//! let summary = session.run(&mut |update| println!("{update:?}"))?;
//!
//! // On any number of others:
//! let options = ReceiveOptions::new(group, "received").with_timeout(Some(Duration::from_secs(30)));
//! let mut session = ReceiveSession::open(options)?;
//! let summary = session.run(&mut |update| println!("{update:?}"))?;
//! println!("{:?}", summary.outcome);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what |
//! |---|---|
//! | `send`, `receive` | the easy API for files |
//! | [`stream`] | the easy API for live content, handed over buffer by buffer |
//! | [`pgm`] | the easy API for messages, over PGM: OpenPGM's and ZeroMQ's, too |
//! | [`relay`] | a relay of the breadcrumb forwarding service |
//! | `store` | content on disk, as a receiver's machine sees it |
//! | `driver` | runs a machine on a socket: one thread, one loop |
//! | [`doctor`] | why multicast does not start |
//! | [`net`] | the sockets |
//! | [`mod@bench`] | parts of a session by themselves |
//! | [`proto`] | the machines |

pub mod bench;
mod clock;
mod congestion_control;
pub mod doctor;
mod driver;
pub mod net;
pub mod pgm;
mod receive;
pub mod relay;
mod send;
mod store;
pub mod stream;
mod system;
mod threads;

pub use congestion_control::{
    BASE_RATE_DEFAULT, CongestionControl, LayerOptions, MAX_RATE_DEFAULT, RainbowOptions, SIM_GROUPS_DEFAULT,
    SIM_RELAYS_MAX, SimOptions,
};
pub use driver::{Direction, DriverError, PacketTrace, TraceHook};
pub use headwater_fec::Scheme;
pub use headwater_proto as proto;
pub use receive::{
    FileStatus, HeardSession, IncompleteReason, LongPacketsMissing, Loss, ReceiveError, ReceiveOptions,
    ReceiveOutcome, ReceiveProgress, ReceiveSession, ReceiveStarted, ReceiveSummary, ReceiveUpdate,
    SILENCE_SHOWN, SILENCE_TOLD,
};
pub use send::{
    FileSet, Links, OutsideLink, PrepareError, PreparedFile, RateLimit, RepairPlace, SOURCE_PORT, SendEnd,
    SendError, SendOptions, SendOrder, SendOutcome, SendProgress, SendSession, SendStarted, SendSummary,
    SendUpdate, Skipped, prepare, prepare_with,
};
pub use stream::{
    StreamDelivery, StreamError, StreamOutcome, StreamReceiveOptions, StreamReceiveProgress,
    StreamReceiveSummary, StreamReceiver, StreamSendOptions, StreamSendProgress, StreamSendSummary,
    StreamSender, StreamStarted,
};
pub use threads::StopHandle;

//! Messages over PGM (RFC 3208) in UDP: whole, in order, retransmitted on request, to receivers of any
//! make.
//!
//! A sender has one rate. Under LE-SBCC the sender derives the rate from the NAKs that every PGM receiver
//! sends, so that the session is fair to TCP on the path to the worst receiver, for any number of receivers.
//! OpenPGM's and ZeroMQ's unmodified `epgm://` sockets interoperate with both ends (`docs/reference/pgm.md`).
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use headwater::Session;
//! use headwater::pgm::{LeSbccOptions, PgmControl, PgmReceiveOptions, PgmReceiveSession};
//! use headwater::pgm::{PgmReceiveUpdate, PgmSendOptions, PgmSendSession};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group: SocketAddr = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let options = PgmSendOptions::new(group, PgmControl::LeSbcc(LeSbccOptions::new()));
//! let session = PgmSendSession::open(options)?;
//! let feed = session.feed(); // for any number of threads
//! let thread = session.spawn()?;
//! for number in 0..1_000 {
//!     feed.send(format!("message {number}").as_bytes())?; // waits until there is room
//! }
//! feed.finish();
//! println!("{:?}", thread.join()?.outcome);
//!
//! // On any number of others:
//! let mut thread = PgmReceiveSession::open(PgmReceiveOptions::new(group))?.spawn()?;
//! for update in thread.updates() {
//!     match update {
//!         PgmReceiveUpdate::Message(message) => println!("{}", String::from_utf8_lossy(&message)),
//!         PgmReceiveUpdate::Lost { packets } => println!("{packets} packets are lost for good"),
//!         _ => {}
//!     }
//! }
//! println!("{:?}", thread.join()?.outcome);
//! # Ok(())
//! # }
//! ```
//!
//! A sender sends from the port of the group and receives NAKs at this port, so that each port of a machine's
//! address serves a single sender.

mod feed;
mod options;
mod receive;
mod send;
mod update;

pub use feed::{PgmFeed, PgmFeedError};
pub use headwater_proto::le_sbcc::Module as LeSbccModule;
pub use options::{Framing, LeSbccOptions, PgmControl, PgmReceiveOptions, PgmSendOptions, PgmWireOptions};
pub use receive::PgmReceiveSession;
pub use send::PgmSendSession;
pub use update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveStarted, PgmReceiveSummary, PgmReceiveUpdate,
    PgmSendOutcome, PgmSendProgress, PgmSendStarted, PgmSendSummary, PgmSendUpdate,
};

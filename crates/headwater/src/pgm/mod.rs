//! Messages over PGM (RFC 3208) in UDP: whole, in order, retransmitted on request, to receivers of any
//! make.
//!
//! A sender has one rate. Under LE-SBCC the sender derives the rate from the NAKs that every PGM receiver
//! sends, so that the session is fair to TCP on the path to the worst receiver, for any number of receivers.
//! OpenPGM's and ZeroMQ's unmodified `epgm://` sockets interoperate with both ends (`docs/reference/pgm.md`).
//!
//! ```no_run
//! use headwater::pgm::{
//!     LeSbccOptions, PgmControl, PgmReceiveOptions, PgmReceived, PgmReceiver, PgmSendOptions, PgmSender,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let sender = PgmSender::open(PgmSendOptions::new(group, PgmControl::LeSbcc(LeSbccOptions::new())))?;
//! for number in 0..1_000 {
//!     sender.send(format!("message {number}").as_bytes())?; // waits until there is room
//! }
//! println!("{:?}", sender.finish()?.outcome);
//!
//! // On any number of others:
//! let mut receiver = PgmReceiver::open(PgmReceiveOptions::new(group))?;
//! for received in receiver.by_ref() {
//!     match received {
//!         PgmReceived::Message(message) => println!("{}", String::from_utf8_lossy(&message)),
//!         PgmReceived::Lost { packets } => println!("{packets} packets are lost for good"),
//!     }
//! }
//! println!("{:?}", receiver.finish()?.outcome);
//! # Ok(())
//! # }
//! ```
//!
//! | type | purpose |
//! |---|---|
//! | [`PgmSender`], [`PgmReceiver`] | easy ends, each on a thread of its own |
//! | [`PgmSendSession`], [`PgmReceiveSession`] | ends on the caller's thread, with an observer |
//! | [`PgmFeed`] | passes messages to a session from any thread |
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
pub use options::{Framing, LeSbccOptions, PgmControl, PgmReceiveOptions, PgmSendOptions};
pub use receive::{PgmReceiveSession, PgmReceiver};
pub use send::{PgmSendSession, PgmSender};
pub use update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveStarted, PgmReceiveSummary, PgmReceiveUpdate,
    PgmReceived, PgmSendOutcome, PgmSendProgress, PgmSendStarted, PgmSendSummary, PgmSendUpdate,
};

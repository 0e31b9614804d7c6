//! Messages over PGM (RFC 3208) in UDP: whole, in order, and sent again where a receiver asks, to receivers
//! of any make.
//!
//! One sender has one rate. Under LE-SBCC it finds that rate from the NAKs that every PGM receiver sends, so
//! that it is fair to TCP on the way to its worst receiver, whatever their number. OpenPGM's and ZeroMQ's
//! `epgm://` sockets receive it, and are received, as they are (`docs/reference/pgm.md`).
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
//! | type | what |
//! |---|---|
//! | [`PgmSender`], [`PgmReceiver`] | the easy ends: each runs on a thread of its own |
//! | [`PgmSendSession`], [`PgmReceiveSession`] | the same on the thread that calls `run`, which tells an observer |
//! | [`PgmFeed`] | hands messages to a session from any thread |
//!
//! UDP: a sender sends from, and hears NAKs at, the port of the group. So only one sender of a machine's
//! address can have a port.

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

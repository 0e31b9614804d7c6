//! Every sender, receiver and router of Headwater as a state machine.
//!
//! There is no socket, clock, thread or entropy in this crate: time, chance, files and datagrams are
//! arguments. The same machines run in the simulator (virtual time), on real sockets, and in this crate's own
//! tests.
//!
//! # The contract
//!
//! A [`Machine`] is driven by three calls:
//!
//! * [`Machine::handle`] passes in a datagram, or the passage of time;
//! * [`Machine::poll_output`] returns the pending actions: datagrams, joins, leaves, events, in one ordered
//!   queue;
//! * [`Machine::poll_timeout`] returns the time of the next call.
//!
//! Rules for the driver:
//!
//! 1. `now` never goes back, over all calls.
//! 2. After every input or batch of inputs of one instant, and after every call that changes a machine, drain
//!    the machine with [`drain`]: only then are the machine's state and timeout up to date.
//! 3. Come back at `poll_timeout` or soon after. Coming late is harmless (it costs smoothness); coming early
//!    or for no reason is too.
//! 4. `poll_output` writes a datagram at the start of the buffer passed in, at least [`DATAGRAM_BYTES_MAX`]
//!    long. A driver that advances the buffer after each datagram gets a contiguous batch, ready for one
//!    system call.
//!
//! Rules for the machine:
//!
//! 1. No input from the network panics, or returns an error upward: the input is counted with a reason, and
//!    dropped.
//! 2. No allocation per packet in steady state. Every queue and table has a stated bound.
//! 3. The same inputs give the same outputs, byte for byte, on every machine.
//!
//! # Layout
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | the contract |
//! | [`time`], [`rate`], [`rng`], [`pacing`] | basic types |
//! | [`control`] | interface of every congestion control; [`fixed`] is the simplest |
//! | [`layering`] | channels, rates and times of the layers; the sequencer |
//! | [`m2c`], [`webrc`] | M2C's and WEBRC's receivers |
//! | [`le_sbcc`] | a single rate from receivers' NAKs alone |
//! | [`pgm`] | PGM's source and receiver: messages, repaired by NAKs |
//! | [`bcfs`] | the breadcrumb forwarding service: requesters, repliers, and the routers between |
//! | [`flid`] | FLID-SL and FLID-DL, both ends |
//! | [`rainbow`] | receivers that each run a TCP-like window, over BCFS |
//! | [`sim`] | SIM: sender, receiver, and the router that merges reports |
//! | [`amt`] | AMT (RFC 7450): gateway and relay of multicast over unicast |
//! | [`rtt`] | round-trip questions between receivers and sender |
//! | [`roster`] | reports of receivers: who receives, how far each receiver is |
//! | [`controls`] | table of the controls: names, parameters, constructors |
//! | [`described`] | receiver of the control that a session names in its FDT |
//! | [`auth`] | signatures and tags of packets: the signing end and the verifying front |
//! | [`crypt`] | encryption of content by a group key |
//! | [`measure`] | loss and rates |
//! | [`queue`] | what a link does to packets, shared by simulated links and the relay |
//! | [`delivery`] | files: objects, FDT, carousel, FEC blocks, over one congestion control |
//! | [`stream`] | live buffers: each receiver gets the part its rate allows, most important bytes first |
//! | [`eventlog`] | events of a session, for logs and plots |

#![forbid(unsafe_code)]

pub mod admission;
pub mod amt;
pub mod auth;
pub mod bcfs;
pub mod control;
pub mod controls;
pub mod crypt;
pub mod delivery;
pub mod described;
mod egress;
pub mod eventlog;
pub mod fixed;
pub mod flid;
pub mod layering;
pub mod le_sbcc;
pub mod m2c;
pub mod machine;
pub mod measure;
pub mod pacing;
pub mod pgm;
pub mod queue;
pub mod rainbow;
pub mod rate;
pub mod rng;
pub mod roster;
pub mod rtt;
pub mod sim;
pub mod stream;
pub mod time;
pub mod webrc;

pub use machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, EXPECTED_MAX, Ecn, Input, InterfaceId, Machine,
    Outlet, Output, RouterOutput, Transmit, drain,
};
pub use rate::{Rate, Size};
pub use rng::Seed;
pub use time::{Duration, Instant};

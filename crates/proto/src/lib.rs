//! Every sender, receiver and router of Headwater as a state machine.
//!
//! There is no socket, clock, thread or entropy in this crate: time, chance, files and datagrams are arguments. The
//! same machines run in the simulator (virtual time), on real sockets, and in this crate's own tests.
//!
//! # The contract
//!
//! A [`Machine`] is driven by three calls:
//!
//! * [`Machine::handle`] gives it a datagram or tells it that time has passed;
//! * [`Machine::poll_output`] takes what it wants done: datagrams, joins, leaves, events, in one ordered queue;
//! * [`Machine::poll_timeout`] says when to come back.
//!
//! Rules for the driver:
//!
//! 1. `now` never goes back, over all calls.
//! 2. After every input or batch of inputs of one instant, and after every call that changes a machine, drain it with
//!    [`drain`]: only then are its state and its timeout up to date.
//! 3. Come back at `poll_timeout` or soon after. Coming late is harmless (it costs smoothness); coming early or
//!    for no reason is too.
//! 4. `poll_output` writes a datagram at the start of the buffer handed in, at least [`DATAGRAM_BYTES_MAX`] long. A
//!    driver that moves the buffer on after each one ends with a batch, back to back, ready for one system call.
//!
//! Rules for the machine:
//!
//! 1. Nothing from the network panics, or returns an error upward: it is counted with a reason, and dropped.
//! 2. No allocation per packet in steady state. Every queue and table has a stated bound.
//! 3. The same inputs give the same outputs, byte for byte, on every machine.
//!
//! # Layout
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | the contract |
//! | [`time`], [`rate`], [`rng`], [`timers`], [`pacing`] | its vocabulary |
//! | [`control`] | what every congestion control is to the rest; [`fixed`] is the plainest |
//! | [`layering`] | which channel sends how much when; the sequencer |
//! | [`m2c`], [`webrc`] | their receivers |
//! | [`le_sbcc`] | a single rate from receivers' NAKs alone |
//! | [`pgm`] | PGM's source and receiver: messages, repaired by NAKs |
//! | [`bcfs`] | the breadcrumb forwarding service: who asks, who replies, and the router between |
//! | [`flid`] | FLID-SL and FLID-DL, both ends |
//! | [`rainbow`] | receivers that each run a TCP-like window, over BCFS |
//! | [`sim`] | SIM: sender, receiver, and the router that merges reports |
//! | [`rtt`] | round-trip questions between receivers and sender |
//! | [`controls`] | table of the controls: names, parameters, constructors |
//! | [`described`] | receiver of the control that a session names in its FDT |
//! | [`measure`] | loss and rates |
//! | [`queue`] | what a link does to packets, shared by simulated links and the relay |
//! | [`delivery`] | files: objects, FDT, carousel, FEC blocks, over one congestion control |
//! | [`stream`] | buffers: live content in which each receiver has what its rate brings, most important first |
//! | [`eventlog`] | what happened, for logs and plots |

#![forbid(unsafe_code)]

pub mod bcfs;
pub mod control;
pub mod controls;
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
pub mod rtt;
pub mod sim;
pub mod stream;
pub mod time;
pub mod timers;
pub mod webrc;

pub use machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, EXPECTED_MAX, Ecn, Input, InterfaceId, Machine,
    Outlet, Output, Router, RouterOutput, Transmit, drain,
};
pub use rate::{Rate, Size};
pub use rng::Seed;
pub use time::{Duration, Instant};

//! A deterministic packet simulator: links, queues, multicast trees, TCP and other cross traffic around
//! Headwater's protocol machines, which run in it unchanged.
//!
//! The simulator is called `netsim` in every name, because SIM is one of the protocols.
//!
//! # Layout
//!
//! | module | what |
//! |---|---|
//! | [`network`] | nodes, links, flows, sessions, and how they are declared: begin at [`network::Builder`] |
//! | [`agent`] | what sends and receives at nodes |
//! | [`engine`] | the run |
//! | [`tcp`] | TCP machines |
//! | [`plan`] | experiments as text, checked before they run |
//! | [`measure`] | what is measured, and how sure of it one may be |
//! | [`trace`] | what happened: digests and observers |
//! | [`chance`] | random draws |
//! | [`speed`] | loads to measure the simulator by, and the yardstick |

#![forbid(unsafe_code)]

pub mod agent;
pub mod chance;
pub mod engine;
pub mod measure;
pub mod network;
pub mod plan;
pub mod speed;
pub mod tcp;
pub mod trace;

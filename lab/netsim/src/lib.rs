//! A deterministic packet simulator: links, queues, multicast trees, TCP and other cross traffic around
//! Headwater's protocol machines, which run unchanged.
//!
//! The simulator is called `netsim` in every name, because SIM is a protocol.
//!
//! # Layout
//!
//! | module | content |
//! |---|---|
//! | [`network`] | nodes, links, flows, sessions and their declaration: begin at [`network::Builder`] |
//! | [`agent`] | senders and receivers at nodes |
//! | [`engine`] | the run |
//! | [`tcp`] | TCP machines |
//! | [`plan`] | experiments as text, checked before a run |
//! | [`measure`] | measures and confidence intervals |
//! | [`trace`] | digests and observers of a run's events |
//! | [`chance`] | random draws |
//! | [`speed`] | loads to benchmark the simulator, and a reference loop |

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
